"""A pure function that fills the missing values of a record batch, for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from vfg.bigtable.formats import Dialect
from vfg.bigtable.type_inference import cast_layout, cast_text, format_layout, mark_missing
from vfg.bigtable.writing import format_like
from vfg.imputation.missing_cells import MissingCells, ParameterDraws, know_of_empty_columns
from vfg.imputation.parameter_draws import FittedRows, Posterior
from vfg.imputation.settings import SEEDS, check_count, check_estimate, check_share
from vfg.imputation.table_model import TableModel
from vfg.tables.frames import open_table as opened
from vfg.tables.frames import quote
from vfg.tables.schema import (
    FITTING,
    Boolean,
    ColumnSpec,
    Continuous,
    Date,
    Empty,
    Identifier,
    Integer,
)
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc

DRAW_COLUMN = "draw"
"""The column that counts the draws of a row."""


@dataclass(frozen=True)
class Filling:
    """What to write in place of missing values, and which columns to add.

    Args:
        draws: number of copies of every row, each with other joint draws of its missing values, and
            a column `draw` that counts from 1; None (default) writes the row once with expected
            values.
        level: of central intervals, whose ends are added as columns `<name>_low` and `<name>_high`
            for numbers and dates; None (default) for no intervals.
        flag: whether to add columns `<name>_filled` of truth values (default False).
        seed: of the draws (default 0).
        estimate: "mean" (default) or "median", as for `VFGImputer`.
        proper: whether `vfg.bigtable.impute` draws the parameters, too, given the rows that are
            filled (2,000 of them at most); see `VFGImputer.sample` (default False). Set it if
            estimates are pooled.
        parameters: those that `vfg.bigtable.impute` drew if `proper` is True; None (default) draws
            from the fitted model alone.

    Raises:
        ValueError: for draws below 1, a level outside (0, 1), or draws together with a level.

    Example:
        >>> Filling(draws=5).draws
        5
    """

    draws: int | None = None
    level: float | None = None
    flag: bool = False
    seed: int = 0
    estimate: str = "mean"
    proper: bool = False
    parameters: ParameterDraws | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_estimate(self.estimate)
        if self.draws is not None:
            check_count("draws", self.draws)
        if self.level is not None:
            check_share("level", self.level)
        if self.draws is not None and self.level is not None:
            raise ValueError("draws and level exclude each other; write draws or intervals")
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed must be from 0 to {SEEDS - 1}, but is {self.seed}")

    def to_dict(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        # Jobs of earlier versions, which resume, do not name these.
        usual = ("estimate", "mean"), ("proper", False), ("parameters", None)
        settings = asdict(replace(self, parameters=None))
        return {k: v for k, v in settings.items() if (k, v) not in usual}


def filled_batch(
    model: TableModel, batch: Any, first_row: int = 0, filling: Filling | None = None
) -> Any:
    """Fill the missing values of a part of a table.

    Rows do not influence each other. The result of a row depends only on its cells, its position in
    the whole table, the model and the settings, so it is the same bit for bit however a table is
    divided (on one kind of machine, with one number of threads). Observed cells, columns that the
    model does not know, order and types stay as they are. Columns without any observed cell in
    fitting keep their missing values.

    Args:
        model: a fitted one: `VFGImputer.model_`, or what `vfg.load` returns.
        batch: a `pyarrow.RecordBatch` with the columns of the model, in any order, among others.
        first_row: the position of its first row in the whole table.
        filling: what to write; None for expected values.

    Returns:
        A record batch with the schema of `filled_schema`.

    Raises:
        ValueError: for a column that is missing, or that holds what it did not in fitting.

    Example:
        >>> from vfg.sklearn import VFGImputer
        >>> table = pa.table({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 4.0, None, 8.0]})
        >>> model = VFGImputer(bend=False, random_state=0).fit(table).model_
        >>> batch = pa.record_batch({"b": [None, 4.0], "id": ["x", "y"], "a": [2.0, 2.0]})
        >>> [round(cell) for cell in filled_batch(model, batch)["b"].to_pylist()]
        [4, 4]
    """
    chosen = Filling() if filling is None else filling
    schema = filled_schema(model, batch.schema, chosen)
    if not batch.num_rows:
        return pa.RecordBatch.from_pylist([], schema=schema)
    part = _EncodedPart(model, batch, first_row, schema)
    columns = part.draws(chosen) if chosen.draws is not None else part.fill(chosen)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_parameters(model: TableModel, table: Any, rows: int, filling: Filling) -> Filling:
    """The same settings with parameters that are drawn given a table of some of all rows.

    Models of more columns than `vfg.imputation.parameter_draws.MOST_COLUMNS` have draws of one
    model.
    """
    names = model_columns(model, table.schema.names)
    schema = filled_schema(model, table.schema, Filling())
    typed = _cast_columns(model, table, {name: schema.field(name).type for name in names})
    fitted = FittedRows.of(*model.fitted_matrix(typed)[:2], filling.seed)
    if fitted is None:
        return filling
    posterior = Posterior(fitted._replace(rows=fitted.rows * rows / max(1, table.num_rows)))
    drawn = ParameterDraws.of(model, posterior, filling.draws or 1, filling.seed)
    return replace(filling, parameters=drawn)


@dataclass(frozen=True)
class TextColumns:
    """Columns of separated text, whose observed cells are written as they were read."""

    types: Any  # of the columns of the model, as a `pyarrow.Schema`
    samples: dict[str, str]  # observed cells by column; filled ones are written alike
    dialect: Dialect
    layouts: dict[str, str]  # of dates and durations, by column

    def fill(self, model: TableModel, batch: Any, first_row: int, filling: Filling) -> Any:
        """Fill a record batch of text, as `filled_batch` does; the result has `schema`."""
        columns = [
            self._parse(name, batch.column(name))
            if name in self.types.names
            else batch.column(name)
            for name in batch.schema.names
        ]
        typed = pa.RecordBatch.from_arrays(columns, batch.schema.names)
        filled = filled_batch(model, typed, first_row, filling)
        rows = np.repeat(np.arange(batch.num_rows), filling.draws or 1)
        texts = {
            name: self._merge(name, batch.column(name), typed.column(name), filled, rows)
            for name in self.types.names
        }
        for name in self._interval_ends(filled.schema):
            texts[name] = self._format(name.rpartition("_")[0], filled.column(name))
        arrays = [texts.get(name, filled.column(name)) for name in filled.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema(filled.schema))

    def schema(self, filled: Any) -> Any:
        """The schema of filled tables, with text for the columns of the model."""
        texts = [*self.types.names, *self._interval_ends(filled)]
        fields = [
            field.with_type(pa.string()) if field.name in texts else field for field in filled
        ]
        return pa.schema(fields)

    def _interval_ends(self, filled: Any) -> list[str]:
        """The added columns that are written in the layout of the columns that they are of."""
        ends = [f"{name}_{end}" for name in self.layouts for end in ("low", "high")]
        return [name for name in ends if name in filled.names and name not in self.types.names]

    def _parse(self, name: str, cells: Any) -> Any:
        kind, marked = self.types.field(name).type, mark_missing(cells, self.dialect.missing)
        if name in self.layouts:
            return cast_layout(marked, self.layouts[name], kind)
        return cast_text(marked, kind, decimal=self.dialect.decimal or ".")

    def _format(self, name: str, values: Any) -> Any:
        sample = self.samples.get(name, "")
        if name in self.layouts:
            return format_layout(values, self.layouts[name], sample).cast(pa.string())
        return format_like(values, sample, self.dialect.decimal or ".").cast(pa.string())

    def _merge(self, name: str, before: Any, typed: Any, filled: Any, rows: Any) -> Any:
        """The text of a column: as it was where it was observed or still is missing."""
        missing = pc.is_null(typed, nan_is_null=True).take(rows)
        values = filled.column(name)
        if pa.types.is_string(typed.type):  # texts that are no dates are filled, too
            changed = pc.not_equal(typed.take(rows), values.cast(pa.string()))
            missing = pc.or_(missing, pc.fill_null(changed, False))
        is_filled = pc.and_(missing, pc.is_valid(values))
        return pc.if_else(is_filled, self._format(name, values), before.take(rows))


def filled_schema(model: TableModel, schema: Any, filling: Filling | None = None) -> Any:
    """The schema of what `filled_batch` returns.

    Args:
        model: the fitted model.
        schema: of the table with missing values.
        filling: what to write; None for expected values.

    Raises:
        ValueError: for a column that is missing, that holds what it did not in fitting, or whose
            name one of the added columns would have.
    """
    chosen = Filling() if filling is None else filling
    names = model_columns(model, schema.names)
    specs = dict(zip(names, model.encoding.schema.values(), strict=True))
    _check_kinds(model, schema, names)
    fields = [_fill_type(field, specs) for field in schema]
    added = []
    if chosen.level is not None:
        kinds = {field.name: field.type for field in fields}
        for name in _interval_columns(model, names):
            added += [pa.field(f"{name}_{end}", kinds[name]) for end in ("low", "high")]
    if chosen.flag:
        added += [pa.field(f"{name}_filled", pa.bool_()) for name in names]
    if chosen.draws is not None:
        added.append(pa.field(DRAW_COLUMN, pa.int32()))
    taken = [field.name for field in added if field.name in schema.names]
    if taken:
        raise ValueError(f"the table has a column {quote(taken)} already; rename it")
    return pa.schema([*fields, *added], metadata=None)


def model_columns(model: TableModel, names: Sequence[str]) -> list[str]:
    """The columns of a table that are in a model, in its order; by position if it has no names."""
    return [names[place] for place in model.places(names)]


def count_missing(batch: Any, names: Sequence[str], texts: Sequence[str] | None = None) -> int:
    """How many cells of some columns are missing: null, NaN, or one of some texts."""
    columns = [batch.column(name) for name in names]
    if texts is not None:
        columns = [mark_missing(column, texts) for column in columns]
    nulls = (pc.is_null(column, nan_is_null=True) for column in columns)
    return sum(pc.sum(column).as_py() or 0 for column in nulls)


def _cast_columns(model: TableModel, batch: Any, types: dict[str, Any]) -> Any:
    """The columns of a model by their types, as a table that can be encoded."""
    arrays = [_cast(batch.column(name), kind) for name, kind in types.items()]
    return opened(pa.table(arrays, names=list(types)), model.encoding.missing_values)


class _EncodedPart:
    """A part of a table, encoded once."""

    def __init__(self, model: TableModel, batch: Any, first_row: int, schema: Any) -> None:
        self.model, self.batch = model, batch
        self.names = model_columns(model, batch.schema.names)
        self.types = {name: schema.field(name).type for name in self.names}
        know_of_empty_columns(model)  # reports of jobs name them
        self.cells = MissingCells(model, _cast_columns(model, batch, self.types), first_row)

    def fill(self, filling: Filling) -> list[Any]:
        """All columns with what is expected, then what the settings add."""
        estimates = self.cells.estimates(filling.estimate, filling.seed)
        columns = self._with_others(self._fill_columns(estimates))
        if filling.level is not None:
            own = filling.estimate, filling.seed
            ends = self.cells.intervals(filling.level, filling.seed, *own)
            low, high = (self._fill_columns(end, are_ends=True) for end in ends)
            for name in _interval_columns(self.model, self.names):
                columns += [low[name], high[name]]
        return columns + (self._flags() if filling.flag else [])

    def draws(self, filling: Filling) -> list[Any]:
        """All columns, every row as often as there are draws, one after the other."""
        number = filling.draws or 1
        known, cells = filling.parameters, self.cells
        if known is None or not len(cells.values):
            draws = cells.draws(number, filling.seed)
        else:
            draws = cells.proper_draws(known, filling.seed)
        names, rows = self.batch.schema.names, self.batch.num_rows
        tables = [
            pa.record_batch(self._with_others(self._fill_columns(one)), names) for one in draws
        ]
        order = np.arange(number * rows).reshape(number, rows).T.ravel()
        columns = pa.Table.from_batches(tables).combine_chunks().take(order).columns
        result = [column.combine_chunks() for column in columns]
        if filling.flag:
            result += [flags.take(order % rows) for flags in self._flags()]
        return [*result, pa.array(order // rows + 1, pa.int32())]

    def _fill_columns(self, matrix: Tensor, *, are_ends: bool = False) -> dict[str, Any]:
        """The columns of the model, by name, filled from a matrix."""
        table = self.cells.fill(matrix, are_ends=are_ends)
        return {
            name: _combine(self._restore(name, table.column(place)))
            for place, name in enumerate(self.names)
        }

    def _restore(self, name: str, column: Any) -> Any:
        """A filled column in the type of its field; ordered categories keep all of their levels."""
        kind = self.types[name]
        if not pa.types.is_dictionary(kind) or not kind.ordered:
            return _cast(column, kind)
        spec = list(self.model.encoding.schema.values())[self.names.index(name)]
        known = self.batch.column(name).dictionary.to_pylist()
        learned = [level for level in getattr(spec, "categories", None) or () if level is not None]
        # The order of the table, if it has all levels, else that of the model.
        levels = known if {*learned} <= {*known} else [*dict.fromkeys([*learned, *known])]
        values = _combine(_cast(column, kind)).dictionary_decode()
        levels_array = pa.array(levels, kind.value_type)
        codes = pc.index_in(values, levels_array).cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(codes, levels_array, ordered=True)

    def _with_others(self, filled: dict[str, Any]) -> list[Any]:
        columns = zip(self.batch.schema.names, self.batch.columns, strict=True)
        return [filled.get(name, column) for name, column in columns]

    def _flags(self) -> list[Any]:
        missing = self.cells.missing
        parts = enumerate(self.model.encoding.parts.values())
        return [pa.array(missing[:, k] & part.fillable, pa.bool_()) for k, part in parts]


def _cast(column: Any, kind: Any) -> Any:
    return column if column.type == kind else column.cast(kind)


def _combine(column: Any) -> Any:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    merged = column.combine_chunks()
    # Columns in many pieces keep several only if their texts are too long for one.
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


def _interval_columns(model: TableModel, names: Sequence[str]) -> list[str]:
    """Columns of numbers and dates, for which intervals mean something."""
    specs = model.encoding.schema.values()
    kinds = Continuous | Integer | Date
    return [name for name, spec in zip(names, specs, strict=True) if isinstance(spec, kinds)]


def _fill_type(field: Any, specs: dict[str, ColumnSpec]) -> Any:
    """A field, with the type that its column needs once a cell of it is filled."""
    if field.name not in specs or not pa.types.is_null(field.type):
        return field
    spec = specs[field.name]
    if isinstance(spec, Empty):
        return field
    categories = getattr(spec, "categories", None)
    if categories:
        return field.with_type(pa.array(list(categories)).type)
    if isinstance(spec, Continuous):
        return field.with_type(pa.float64())
    kinds = {Integer: pa.int64(), Boolean: pa.bool_(), Identifier: pa.string()}
    return field.with_type(kinds.get(type(spec), pa.timestamp("us")))


def _check_kinds(model: TableModel, schema: Any, names: Sequence[str]) -> None:
    """Refuse columns whose type differs from that in fitting."""
    empty = pa.schema([schema.field(name) for name in names]).empty_table()
    columns = opened(empty, model.encoding.missing_values)
    for place, (name, spec) in enumerate(zip(names, model.encoding.schema.values(), strict=True)):
        storage = columns.column(place).storage
        if not isinstance(spec, (Empty, *FITTING[storage])):
            raise ValueError(
                f"the column {name!r} was {spec.name} in fitting, but now holds "
                f"{schema.field(name).type}; convert it, or remove the cells that do not fit"
            )
