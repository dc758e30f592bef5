"""Tables on the page: reading, missing cells, filling, and single cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor

from vfg.imputation.answers import axis_numbers
from vfg.imputation.explanation import Explanation, places_of
from vfg.imputation.missing_cells import MissingCells
from vfg.imputation.table_model import TableModel
from vfg.inference.variables import Array, Marginal, Value, Variable, days_of
from vfg.studio.asking.cards import LEVEL
from vfg.studio.asking.model import DRAWS, OpenModel
from vfg.tables.cells import Column
from vfg.tables.frames import Table, is_frame, quote
from vfg.tables.frames import open_table as open_cells
from vfg.tables.numeric import NumericEncoding
from vfg.utils.extras import needs

MOST_BYTES = 64 * 2**20
"""The largest file that a page takes."""
MOST_ROWS = 100_000
"""The longest table that a page fills."""
MOST_CELLS = 20_000_000
"""The largest table that a page opens, 160 MB as numbers; a small Parquet file may hold more."""
MOST_MEMORY = 512 * 2**20
"""Bytes that an open table may take; text can take more than eight bytes a cell."""
EVALUATIONS = 256
"""Answers behind the explanation of a cell: exact for up to eight observed cells."""
ROWS_AT_ONCE = 4_096
"""Rows of a file that are read together, between looks at how much memory they take."""
ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".feather", ".jsonl")
NUMBERS = ("float", "integer", "boolean", "duration", "empty")
DATES = ("date", "duration", "empty")


@dataclass(frozen=True)
class MatchedTable:
    """A table that fits a model."""

    name: str  # of its file
    whole: Any  # a `pyarrow.Table` with all columns
    places: tuple[int, ...]  # where the model's columns are among them
    variables: Mapping[str, Variable]  # the model's columns
    missing_values: Any = np.nan  # what marks a missing cell besides null and NaN
    data: bytes | None = None  # of the file that it was read from

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.whole.num_rows)

    @property
    def columns(self) -> list[str]:
        """The names of the model's columns."""
        return list(self.variables)

    @cached_property
    def frame(self) -> Any:
        """The model's columns under their names in its order, as a `pyarrow.Table`."""
        return self.whole.select(list(self.places)).rename_columns(self.columns)

    @cached_property
    def cells(self) -> Table:
        """The model's columns, ready to be read."""
        return open_cells(self.frame, self.missing_values)

    @property
    def missing(self) -> Array:
        """Which cells of the model's columns are missing, `(rows, columns)`."""
        return self.cells.missing

    def column(self, name: str) -> Column:
        """The cells of one of the model's columns."""
        return self.cells.column(self.columns.index(name))

    @property
    def summary(self) -> str:
        """The table in half a line."""
        missing = int(self.missing.sum())
        share = missing / max(self.missing.size, 1)
        return f"{self.rows} rows · {len(self.columns)} columns · {missing} missing ({share:.1%})"


def read_bytes(model: OpenModel, name: str, data: bytes) -> MatchedTable:
    """A file as a table of a model.

    Kinds of columns are those of the command line. Columns that are not in the model, and those
    whose categories are text, are left as the text that they are.
    """
    if len(data) > MOST_BYTES:
        raise too_large(name, len(data))
    with _as_file(name, data) as path:
        whole, places = _read(model, path, name)
    return replace(_check_columns(model, whole, places, name), data=data)


def too_large(name: str, size: int, most: int | None = None, unit: str = "MiB") -> ValueError:
    """The error for a table that a page does not take."""
    limit = MOST_BYTES if most is None else most
    numbers = [f"{n / 2**20:.0f}" if unit == "MiB" else f"{n:,}" for n in (size, limit)]
    return ValueError(
        f"{name!r} has {numbers[0]} {unit}, and the page takes {numbers[1]}; "
        "fill it with: vfg impute"
    )


@contextmanager
def _as_file(name: str, data: bytes) -> Iterator[Path]:
    """A file with some content, for as long as it is needed."""
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{name!r} is not a readable table; choose {', '.join(ENDINGS)}")
    with TemporaryDirectory(prefix="vfg-") as folder:
        path = Path(folder, "table").with_suffix(".csv" if ending == ".txt" else ending)
        path.write_bytes(data)
        yield path


def _read(model: OpenModel, path: Path, name: str) -> tuple[Any, tuple[int, ...]]:
    with needs("table"):
        import pyarrow as pa

        from vfg.bigtable import open_table as open_source
    source = open_source(path, like=getattr(model.model, "origin", None))
    for file in source.files:
        file.name = repr(name)
    names, is_text = source.names, path.suffix in (".csv", ".tsv")
    places = _places(model, names, name)
    if not is_text and source.rows * len(names) > MOST_CELLS:
        raise too_large(name, source.rows * len(names), MOST_CELLS, "cells")
    known = dict(zip((names[place] for place in places), model.variables.values(), strict=True))
    texts = [name for name, v in known.items() if any(isinstance(c, str) for c in v.categories)]
    others = [column for column in names if column not in known]
    real = [name for name, variable in known.items() if variable.kind == "number"]
    source = source.with_text_columns(others, texts, real)
    batches, size = [], 0
    for batch in source.batches(ROWS_AT_ONCE):
        batches.append(batch)
        size += batch.nbytes
        if size > MOST_MEMORY:
            raise too_large(name, size, MOST_MEMORY)
    whole = pa.Table.from_batches(batches, schema=source.schema)
    if not whole.num_rows:
        raise ValueError(f"{name!r} has no rows; choose a table with a header and rows")
    return whole, places


def open_table(model: OpenModel, table: Any, name: str = "table") -> MatchedTable:
    """A frame or an array as a table of a model."""
    with needs("table"):
        import pyarrow as pa
    if not is_frame(table):
        cells = np.asarray(table)
        labels: Sequence[Any] = range(cells.shape[1])
        whole = pa.table({str(k): pa.array(cells[:, k].tolist(), from_pandas=True) for k in labels})
    else:
        labels = open_cells(table).labels
        whole = _as_arrow(table)
    return _check_columns(model, whole, _places(model, labels, name), name)


def _as_arrow(frame: Any) -> Any:
    """A frame of any library as a `pyarrow.Table`; row labels are left out."""
    import narwhals
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    known = narwhals.from_native(frame, eager_only=True)
    if known.implementation.is_pandas():
        renamed = frame.set_axis([str(label) for label in frame.columns], axis=1)
        return pa.Table.from_pandas(renamed, preserve_index=False).replace_schema_metadata(None)
    return known.to_arrow()


def _places(model: OpenModel, labels: Sequence[Any], name: str) -> tuple[int, ...]:
    """Where the columns of a model are among those of a table: by name, else by position."""
    names, result = list(model.variables), {str(label): k for k, label in enumerate(labels)}
    missing = [column for column in names if column not in result]
    if not missing:
        return tuple(result[column] for column in names)
    counted = list(map(str, range(len(names))))
    if len(labels) == len(names) and counted in (names, list(result)):
        return tuple(range(len(names)))
    raise ValueError(
        f"{name!r} lacks the column{'' if len(missing) == 1 else 's'} {quote(missing)}; "
        f"the model has {quote(names)}"
    )


def _check_columns(model: OpenModel, whole: Any, places: Sequence[int], name: str) -> MatchedTable:
    """Check that columns hold what the model needs, and cast them."""
    is_table = isinstance(model.model, TableModel)
    marker = model.model.encoding.missing_values if isinstance(model.model, TableModel) else np.nan
    for place, variable in zip(places, model.variables.values(), strict=True):
        column = whole.column(place)
        kind = _arrow_type(column, variable, is_table)
        if kind != column.type:
            whole = whole.set_column(place, whole.field(place).name, column.cast(kind))
    table = MatchedTable(name, whole, tuple(places), model.variables, marker)
    for column, variable in table.variables.items():
        storage = table.column(column).storage
        if variable.kind == "date" and storage not in DATES:
            raise ValueError(f"column {column!r} must hold dates, but holds {storage} cells")
        if variable.kind in ("number", "integer") and storage not in NUMBERS:
            raise ValueError(f"column {column!r} must hold numbers, but holds {storage} cells")
    return table


def _arrow_type(column: Any, variable: Variable, is_table: bool) -> Any:
    """The type that a column needs to be filled; models of graphs expect no whole numbers."""
    import pyarrow as pa

    if pa.types.is_null(column.type):
        if variable.kind == "choice":
            return pa.array(list(variable.categories)).type
        kinds = {"number": pa.float64(), "integer": pa.int64(), "date": pa.timestamp("us")}
        return kinds[variable.kind]
    has_gaps = column.null_count and variable.kind == "number" and not is_table
    return pa.float64() if has_gaps and pa.types.is_integer(column.type) else column.type


def fill_table(model: OpenModel, table: MatchedTable) -> MatchedTable:
    """Fill the missing values of the model's columns; other columns stay as they are."""
    if table.rows > MOST_ROWS:
        raise ValueError(
            f"the table has {table.rows} rows, and the page fills at most {MOST_ROWS}; "
            "fill it with: vfg impute"
        )
    done, whole = model.model.fill(table.frame), table.whole
    for k, place in enumerate(table.places):
        whole = whole.set_column(place, whole.field(place).name, done.column(k))
    return replace(table, whole=whole)


def row_evidence(table: MatchedTable, row: int, without: str = "") -> dict[str, Value]:
    """What a row of a table, counted from 1, gives as evidence."""
    if not 1 <= row <= table.rows:
        raise ValueError(f"the table has the rows 1 to {table.rows}, but got {row}")
    result = {
        name: _value(table.column(name), row - 1, variable)
        for name, variable in table.variables.items()
        if not (name == without or variable.idle)
    }
    return {name: value for name, value in result.items() if value is not None}


def colour_cells(table: MatchedTable, column: str, rows: Array) -> list[Any]:
    """Cells of any column as numbers, else as texts; None if missing."""
    if column in table.variables:
        variable, cells = table.variables[column], table.column(column)
        values = [_value(cells, row, variable) for row in rows.tolist()]
        if variable.kind == "choice":
            return [None if value is None else str(value) for value in values]
        return [None if value is None else variable.number_of(value) for value in values]
    return [
        cell if cell is None or isinstance(cell, int | float) else str(cell) or None
        for cell in table.whole.column(column).take(rows).to_pylist()
    ]


def _value(column: Column, row: int, variable: Variable) -> Value | None:
    """A cell as a value of its variable; None for a missing cell, or an unknown category."""
    if column.missing[row]:
        return None
    cell = column.values[row]
    if column.storage == "date":
        day = cell.astype("M8[D]")
        cell = str(day if day == cell else cell.astype("M8[s]"))
    elif column.storage == "duration":
        cell = float(days_of(np.array([cell]))[0])
    try:
        return variable.parse(cell.item() if isinstance(cell, np.generic) else cell)
    except ValueError:
        return None


@dataclass(frozen=True)
class Cell:
    """One cell of a table, as the model sees it from the rest of its row."""

    expected: Marginal
    actual: Value | None  # None if it is missing
    influence: tuple[tuple[str, float], ...]  # of other cells of the row, the strongest first
    why: Explanation | None = None  # of a filled cell of a model of a table


def cell(model: OpenModel, table: MatchedTable, row: int, column: str) -> Cell:
    """What the model expects in one cell, given the rest of its row."""
    model.variable(column)
    answered = model.ask(row_evidence(table, row, without=column))
    moved = [(name, moves.get(column, 0.0)) for name, moves in answered.influence.items()]
    ranked = tuple(sorted(moved, key=lambda pair: -pair[1]))
    expected, missing = answered[column], bool(table.column(column).missing[row - 1])
    variable, why = model.variables[column], None
    if missing and isinstance(model.model, TableModel) and not variable.idle:
        expected = _as_missing(model.model, table, row - 1, expected)
        label = model.model.labels[column]
        why = model.model.explain(table.cells, row - 1, label, evaluations=EVALUATIONS)
    return Cell(expected, _value(table.column(column), row - 1, variable), ranked, why)


def _as_missing(model: TableModel, table: MatchedTable, place: int, expected: Marginal) -> Marginal:
    """The distribution that fills a cell: ends are those of `predict_interval`."""
    label = model.labels[expected.variable.name]
    part, section = model.encoding.parts[label], model.encoding.sections[label]
    if not isinstance(part, NumericEncoding):
        return expected
    cells = MissingCells(model, model.view(table.frame.slice(place, 1)), place)

    def numbers(matrix: Tensor) -> Array:
        decoded: Array = axis_numbers(part.decode(model.spread_out(matrix)[:, section]))
        return decoded

    low, high = numbers(cells.intervals(LEVEL, 0)[:, 0]).tolist()
    if not cells.moves(places_of(model, label)[0]):
        return replace(expected, low=low, high=high)
    draws, mean = numbers(cells.draws(DRAWS, 0)[:, 0]), float(numbers(cells.means())[0])
    value = expected.variable.value_of(mean)
    return replace(
        expected, value=value, mean=mean, std=float(draws.std()), low=low, high=high, draws=draws
    )


def comparison(table: MatchedTable, done: MatchedTable, column: str) -> dict[str, Array]:
    """Observed and filled cells of a column, apart."""
    missing, cells = table.column(column).missing, done.column(column)
    parts = {"observed": ~missing, "filled": missing}
    return {name: cells.values[~cells.missing & part] for name, part in parts.items()}


def download(model: OpenModel, table: MatchedTable) -> tuple[str, bytes]:
    """The filled table as a file: its name and its content.

    A table that was read from a file is filled by `vfg.bigtable.impute`, so that it is what
    `vfg impute` writes, in the format of the original. Others become CSV.
    """
    from vfg.bigtable import impute, write_table

    source = Path(table.name)
    if table.data is not None and isinstance(model.model, TableModel):
        with _as_file(table.name, table.data) as path, suppress(ValueError):
            # It refuses what is read with other kinds there, such as categories like 10001 alone.
            target = path.with_name(f"filled{path.suffix}")
            impute(path, model.model, target)
            return f"{source.stem}-filled{source.suffix}", target.read_bytes()
    with TemporaryDirectory(prefix="vfg-") as folder:
        target = Path(folder, "filled.csv")
        filled = fill_table(model, table).whole
        write_table(filled.to_batches(), filled.schema, target)
        return f"{source.stem}-filled.csv", target.read_bytes()
