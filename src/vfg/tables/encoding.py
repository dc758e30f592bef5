"""Tables of mixed columns as matrices of real numbers, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import nn

from vfg.tables.categorical import (
    CategoricalEncoding,
    IdentifierEncoding,
    OrdinalEncoding,
    category_indices,
    cross_fitted_codes,
    find_equal_rows,
    joint_codes,
    split_weights,
)
from vfg.tables.cells import Array, Column, ColumnEncoding, Label, Mask, as_objects, is_absent
from vfg.tables.frames import Table, open_table, quote
from vfg.tables.numeric import NumericEncoding
from vfg.tables.schema import (
    Boolean,
    ColumnSpec,
    Continuous,
    Date,
    Empty,
    Identifier,
    Integer,
    Ordinal,
    Schema,
    check_storage,
)
from vfg.utils.specs import check_choice


class Arrays(nn.Module):
    """Arrays of an encoding as buffers, by shape and dtype, so that model files keep them."""

    def __init__(self, shapes: Mapping[str, tuple[list[int], str]]) -> None:
        super().__init__()
        self.shapes = {name: (list(shape), dtype) for name, (shape, dtype) in shapes.items()}
        for name, (shape, dtype) in self.shapes.items():
            self.register_buffer(self._key(name), torch.zeros(shape, dtype=getattr(torch, dtype)))

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Arrays:
        """Buffers that hold given arrays."""
        made = cls({name: (list(a.shape), str(a.dtype)) for name, a in arrays.items()})
        for name, array in arrays.items():
            made.get_buffer(made._key(name)).copy_(torch.from_numpy(np.ascontiguousarray(array)))
        return made

    def read(self) -> dict[str, Array]:
        """The arrays."""
        return {name: self.get_buffer(self._key(name)).cpu().numpy() for name in self.shapes}

    def _apply(self, fn: Any, recurse: bool = True) -> Arrays:
        """Stay as they are when a model changes its dtype: code points are not parameters."""
        return self

    @staticmethod
    def _key(name: str) -> str:
        return "array_" + name.replace(".", "_")


RESTORE: dict[str, Any] = {
    kind.name: kind.from_dict
    for kind in (NumericEncoding, CategoricalEncoding, OrdinalEncoding, IdentifierEncoding)
}


class Encoding:
    """The translation of a table's columns to standardised real numbers, fitted to a table.

    Every column becomes a section of one to eight columns: numbers, dates and ordinal columns one,
    booleans and categories as many as their code points need. The encoded values of the fitted
    table have mean 0 and variance 1, and code points are uncorrelated within their section. Made by
    `Encoding.fit`, or restored by `Encoding.from_dict`.

    Args:
        schema: the kind of every column.
        parts: the encoding of every column; as an attribute, by label.
        missing_values: what marks missing cells besides NaN, None, NaT and NA.
        frame: the library and the names of the dtypes of the fitted frame; None for arrays.

    Attributes:
        sections: which columns of the matrix every column of the table becomes, by label.
        width: the number of columns of the matrix.
        idle: columns that are no evidence and that no model needs to fill: constant ones,
            those without observed cells, and those of identifiers or free text.

    Example:
        >>> table = [[1.0, "a"], [3.0, "b"], [None, "b"], [2.0, None]]
        >>> encoding = Encoding.fit(Schema.infer(table), table)
        >>> values, observed = encoding.encode(table)
        >>> observed
        array([[ True,  True],
               [ True,  True],
               [False,  True],
               [ True, False]])
        >>> encoding.decode(np.zeros((4, 2)), table)
        array([[1.0, 'a'],
               [3.0, 'b'],
               [2.0, 'b'],
               [2.0, 'b']], dtype=object)
    """

    def __init__(
        self,
        schema: Schema,
        parts: Sequence[ColumnEncoding],
        missing_values: Any = np.nan,
        frame: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema, self.frame = schema, frame
        self.parts = dict(zip(schema, parts, strict=True))
        self.missing_values = missing_values
        ends = np.cumsum([0, *(part.width for part in parts)]).tolist()
        self.width: int = ends[-1]
        self.sections = {
            label: slice(start, end)
            for label, start, end in zip(schema, ends[:-1], ends[1:], strict=True)
        }
        self.idle = tuple(k for k, part in self.parts.items() if part.empty or part.constant)

    @classmethod
    def fit(
        cls,
        schema: Schema | Mapping[Any, ColumnSpec | str] | None,
        table: Any,
        *,
        missing_values: Any = np.nan,
        weights: Array | None = None,
    ) -> Encoding:
        """Fit scales and code points to the observed cells of a table.

        Filled numbers and dates lie between the bounds of their column or, without bounds, within
        the observed range.

        Args:
            schema: the kinds of all columns, or of some of them; others are inferred.
            table: an array, nested sequences or a frame.
            missing_values: what marks missing cells besides NaN, None, NaT and NA.
            weights: how often every row counts; None for once.

        Raises:
            ValueError: for infinite cells, or columns and cells that do not fit the schema.
            TypeError: for cells that are no numbers, strings, booleans or dates.
        """
        opened = open_table(table, missing_values)
        if not isinstance(schema, Schema):
            schema = Schema.infer(opened, schema, missing_values=missing_values)
        schema.check(opened.labels)
        opened.hide_unreadable(schema.dates(list(schema)))
        columns = _relabel(opened.columns(), schema)
        schema = schema.resolve(columns)
        parts = [_fit_column(schema[column.label], column, weights) for column in columns]
        dtypes = [opened.dtype_name(position) for position in range(len(columns))]
        frame = None
        if opened.library is not None:
            frame = {"library": opened.library, "dtypes": dtypes}
            # Floats of frames may be integers with gaps; arrays of floats are numbers.
            parts = [p.rounding_few() if isinstance(p, NumericEncoding) else p for p in parts]
        return cls(schema, _with_joint_codes(parts, columns, weights), missing_values, frame)

    def encode(self, table: Any) -> tuple[Array, Mask]:
        """The matrix of a table, and which of its entries are evidence.

        Missing cells and unknown categories are no evidence; numbers further than ten standard
        deviations from the mean count as ten.

        Args:
            table: a table with the columns that were fitted.

        Returns:
            Values `(rows, width)`, 0 where there is no evidence, and the mask of the same shape.

        Raises:
            ValueError: for infinite cells, or other columns than those fitted.
        """
        opened = self._open(table)
        return self.encode_columns(_relabel(opened.columns(), self.schema), opened.rows)

    def encode_columns(self, columns: Sequence[Column], rows: int) -> tuple[Array, Mask]:
        """The matrix of some columns, under the labels of the schema; all others are missing.

        Raises:
            ValueError: for a column that holds what it did not in fitting.
        """
        values = np.zeros((self.width, rows))
        observed = np.zeros((self.width, rows), dtype=bool)
        for column in columns:
            check_storage(self.schema[column.label], column)
            section = self.sections[column.label]
            values[section], observed[section] = self.parts[column.label].encode(column)
        return values.T, observed.T

    def evidence(self, table: Any, columns: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Some columns of a table's matrix, and which of their entries are evidence.

        Idle columns, such as constant ones, are no evidence.
        """
        return self.without_idle(*self.encode(table), columns)

    def training_matrix(self, table: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The matrix of a table to fit a model to, and which of its entries are evidence.

        As `evidence`, but the code points of columns with many categories are computed without the
        cells of their own row, which a model would learn to read off them.
        """
        return self.weighted_matrix(table)[:2]

    def weighted_matrix(
        self, table: Any, weights: Array | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """As `training_matrix`, and the rows of the table that its rows are, and their weights.

        A row that counts several times may have several code points, as equal rows have. It then
        is several rows with parts of its weight.
        """
        opened = self._open(table)
        columns = _relabel(opened.columns(), self.schema)
        values, observed = self.encode_columns(columns, opened.rows)
        used = [k for k in self.sections if k not in self.idle]

        def others(label: Label) -> list[tuple[Array, Mask]]:
            chosen = [self.sections[k] for k in used if k != label]
            return [(values[:, s].T, observed[:, s].T) for s in chosen]

        computed: dict[Label, tuple[CategoricalEncoding, Array]] = {}
        for column in columns:
            part = self.parts[column.label]
            if isinstance(part, CategoricalEncoding) and part.is_computed:
                places = category_indices(column, part.categories)
                places = places if weights is None else np.where(weights > 0.0, places, -1)
                computed[column.label] = part, places
        rows = np.arange(opened.rows)
        if weights is not None and computed:
            split = np.zeros(opened.rows, dtype=bool)
            for label, (_, members) in computed.items():
                split |= (members >= 0) & ~find_equal_rows(members, others(label))[1]
            rows, weights = split_weights(weights, split)
            values, observed = values[rows], observed[rows]
        fitted = values.copy()
        for label, (part, members) in computed.items():
            own, rest = members[rows], others(label)
            codes = cross_fitted_codes(part.points, own, part.counts, rest, weights)
            fitted[:, self.sections[label]] = codes.T
        matrix = self.without_idle(fitted, observed, range(self.width))
        often = None if weights is None else torch.from_numpy(weights)
        return *matrix, torch.from_numpy(rows), often

    def without_idle(
        self, values: Array, observed: Mask, columns: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Some columns of a matrix as tensors; idle columns are no evidence."""
        for label in self.idle:
            observed[:, self.sections[label]] = False
        chosen = list(columns)
        return torch.from_numpy(values[:, chosen]), torch.from_numpy(observed[:, chosen])

    def few_valued(self, columns: Sequence[int]) -> dict[int, Array]:
        """The values, standardised, of few-valued columns by their places among `columns`."""
        place, values = {column: k for k, column in enumerate(columns)}, {}
        for label, part in self.parts.items():
            at = place.get(self.sections[label].start)
            if at is not None and isinstance(part, NumericEncoding) and part.values is not None:
                values[at] = part.standardise(np.array(part.values))
        return values

    def filling_values(self, columns: Sequence[int]) -> Encoding:
        """The same encoding, where some columns of the matrix are filled with their values."""
        parts = [
            replace(part, fills_values=self.sections[label].start in columns)
            if isinstance(part, NumericEncoding) and part.values is not None
            else part
            for label, part in self.parts.items()
        ]
        return Encoding(self.schema, parts, self.missing_values, self.frame)

    def widened(self, table: Any) -> Encoding:
        """The same encoding, whose ranges of numbers contain those of a further table, too.

        Bounds of the schema stay. Categories that are new stay unknown.
        """
        opened = self._open(table)
        columns = _relabel(opened.columns(), self.schema)
        parts = [
            part.widened(self.schema[column.label], column)
            if isinstance(part, NumericEncoding) and not (part.empty or part.constant)
            else part
            for part, column in zip(self.parts.values(), columns, strict=True)
        ]
        return Encoding(self.schema, parts, self.missing_values, self.frame)

    def reaching(
        self,
        columns: Sequence[int],
        ends: Array,
        *,
        turns_positive: bool = False,
        lines: Mask | None = None,
    ) -> Encoding:
        """The same encoding, where numbers are filled up to standardised ends `(2, columns)`.

        The columns are those of the matrix; ends that are nan change nothing. `turns_positive` and
        `lines`, `(2, columns)`, are those of `NumericEncoding.reaching`.
        """

        def reach(label: Label, part: NumericEncoding, at: int) -> NumericEncoding:
            low, high = map(float, ends[:, at])
            own = None if lines is None else (bool(lines[0, at]), bool(lines[1, at]))
            return part.reaching(self.schema[label], low, high, turns_positive, own)

        return self._with_numbers(columns, reach)

    def seeing_further(self, columns: Sequence[int], lines: Mask, exact: Mask) -> Encoding:
        """The same encoding, which sees further; see `NumericEncoding.seeing_further`.

        `lines` and `exact` are those of the columns of the matrix.
        """

        def see(label: Label, part: NumericEncoding, at: int) -> NumericEncoding:
            which = {"line": bool(lines[at]), "exact": bool(exact[at])}
            return part.seeing_further(self.schema[label], **which)

        return self._with_numbers(columns, see)

    def _with_numbers(
        self,
        columns: Sequence[int],
        change: Callable[[Label, NumericEncoding, int], NumericEncoding],
    ) -> Encoding:
        """The same encoding with changed columns of numbers, by their places among `columns`."""
        place = {column: at for at, column in enumerate(columns)}
        parts = [
            change(label, part, place[self.sections[label].start])
            if isinstance(part, NumericEncoding) and self.sections[label].start in place
            else part
            for label, part in self.parts.items()
        ]
        return Encoding(self.schema, parts, self.missing_values, self.frame)

    def places(self, label: Label) -> range:
        """The columns of the matrix that a column of the table becomes."""
        return range(self.sections[label].start, self.sections[label].stop)

    @property
    def unordered(self) -> torch.Tensor:
        """Which columns of the matrix are parts of code points, which have no order."""
        flags = torch.zeros(self.width, dtype=torch.bool)
        for label, section in self.sections.items():
            flags[section] = self.schema[label].name in ("categorical", "boolean")
        return flags

    def decode(self, values: Array, like: Any) -> Any:
        """A copy of a table whose missing cells are filled from a matrix.

        Observed cells stay bit for bit, unknown categories included; so do columns without
        missing cells, and dtypes. Columns without any observed cell in fitting, and those of
        identifiers or free text, are not filled.

        Args:
            values: the matrix `(rows, width)`, read only where cells are missing.
            like: the table with missing cells.

        Returns:
            A table of the same kind; nested sequences come back as an array.

        Raises:
            ValueError: for a matrix of another shape, or one that is not finite at a missing cell.
        """
        opened = self._open(like)
        return opened.replace_cells(self.decode_cells(values, opened))

    def decode_cells(self, values: Array, opened: Table) -> dict[int, tuple[Mask, Array]]:
        """What `decode` fills in: by position of a column which cells, and with what."""
        matrix = np.asarray(values, dtype=np.float64)
        if matrix.shape != (opened.rows, self.width):
            raise ValueError(
                f"the matrix must have the shape {(opened.rows, self.width)}, rows and encoded "
                f"columns, but has {matrix.shape}"
            )
        fills: dict[int, tuple[Mask, Array]] = {}
        for position, (label, part) in enumerate(self.parts.items()):
            column = opened.column(position)
            missing = column.missing
            if part.fillable and missing.any():
                chosen = matrix[missing, self.sections[label]]
                if not part.constant and not np.isfinite(chosen).all():
                    raise ValueError(
                        f"the matrix must be finite where column {label!r} is filled from it"
                    )
                cells = part.decode(chosen)
                if isinstance(part, NumericEncoding) and part.clock is not None:
                    cells = part.clock.cells_of(cells, column)
                fills[position] = missing, cells
        return fills

    def to_dict(self) -> dict[str, Any]:
        """Everything but arrays, ready for JSON."""
        marker = None if is_absent(self.missing_values) else self.missing_values
        return {
            "schema": self.schema.to_dict(),
            "missing_values": marker,
            "parts": [part.to_dict() for part in self.parts.values()],
            **({} if self.frame is None else {"frame": dict(self.frame)}),
        }

    def state(self) -> dict[str, Array]:
        """The arrays, by the position of their column and their name."""
        return {
            f"{position}.{key}": array
            for position, part in enumerate(self.parts.values())
            for key, array in part.state().items()
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any], state: Mapping[str, Array]) -> Encoding:
        """The inverse of `to_dict` and `state`.

        Raises:
            ValueError: for a description that does not fit the arrays.
        """
        parts = []
        for position, part in enumerate(description["parts"]):
            start = f"{position}."
            arrays = {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
            check_choice("the encoding of a column", part["name"], tuple(RESTORE))
            parts.append(RESTORE[part["name"]](part, arrays))
        marker = description["missing_values"]
        schema = Schema.from_dict(description["schema"])
        marker = np.nan if marker is None else marker
        return cls(schema, parts, marker, description.get("frame"))

    def _open(self, table: Any) -> Table:
        opened = open_table(table, self.missing_values)
        self.schema.check(opened.labels)
        opened.hide_unreadable(
            {
                place: part.clock.template
                for place, part in enumerate(self.parts.values())
                if isinstance(part, NumericEncoding) and part.clock is not None
            }
        )
        return opened


def _relabel(columns: list[Column], schema: Schema) -> list[Column]:
    """The columns under the labels of the schema, which may be names where a table has none."""
    return [replace(c, label=label) for label, c in zip(schema, columns, strict=True)]


def _fit_column(spec: ColumnSpec, column: Column, weights: Array | None) -> ColumnEncoding:
    if isinstance(spec, Continuous | Integer | Date):
        return NumericEncoding.fit(spec, column, weights)
    if isinstance(spec, Identifier):
        return IdentifierEncoding()
    if isinstance(spec, Empty):
        return NumericEncoding(empty=True)
    known = (False, True) if isinstance(spec, Boolean) else getattr(spec, "categories", ())
    categories = tuple(known or ())
    places = category_indices(column, categories)
    unknown = column.values[(places < 0) & ~column.missing]
    if len(unknown):
        raise ValueError(
            f"column {column.label!r} holds {as_objects(unknown[:1])[0]!r}, which is not among its "
            f"categories {quote(categories)}; add it, or mark such cells as missing"
        )
    counts = np.bincount(places[places >= 0], minlength=len(categories))
    if weights is not None and counts.any():
        rows, own = int(counts.sum()), weights[places >= 0]
        counts = np.bincount(places[places >= 0], own, minlength=len(categories))
        counts *= max(1.0, rows / counts.sum())  # rows of small weights are still so many
    if isinstance(spec, Ordinal):
        return OrdinalEncoding.fit(categories, counts)
    seen = np.flatnonzero(counts)
    return CategoricalEncoding.fit(tuple(categories[place] for place in seen), counts[seen])


def _with_joint_codes(
    parts: Sequence[ColumnEncoding], columns: Sequence[Column], weights: Array | None
) -> list[ColumnEncoding]:
    """The encodings, where columns of many categories have points computed from all others."""
    many = {place: part for place, part in enumerate(parts) if _is_open(part)}
    members = [category_indices(columns[place], part.categories) for place, part in many.items()]
    others = [part.encode(c) for part, c in zip(parts, columns, strict=True) if not _is_open(part)]
    points = joint_codes(members, [part.counts for part in many.values()], others, weights)
    complete = list(parts)
    for (place, part), own in zip(many.items(), points, strict=True):
        complete[place] = replace(part, points=own)
    return complete


def _is_open(part: ColumnEncoding) -> TypeGuard[CategoricalEncoding]:
    return isinstance(part, CategoricalEncoding) and part.open
