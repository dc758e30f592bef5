"""Tables of any kind, read column by column and written back in their own kind and dtypes."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Number, Real
from typing import Any

import numpy as np
from torch import Tensor

from vfg.graph.checks import suggestion
from vfg.tables.cells import (
    STORAGE_OF_KIND,
    Array,
    Column,
    Label,
    Mask,
    as_cells,
    as_objects,
    can_hold,
    cast,
    hide_missing_texts,
    hide_unreadable,
    is_absent,
    marked_cells,
    read_cells,
)

BLOCK = 4096
"""Rows of an array that are transposed at once: a block fits into a cache."""


def is_frame(table: Any) -> bool:
    """Whether a table has named columns and is neither an array nor a mapping.

    Example:
        >>> is_frame(np.zeros((2, 2))), is_frame({"a": [1.0]})
        (False, False)
    """
    plain = isinstance(table, Tensor | np.ndarray | Mapping | Sequence | Real)
    return not plain and hasattr(table, "columns")


class Table(ABC):
    """A table that can be read column by column and copied with other cells.

    Missing are all cells that stand for nothing (NaN, None, NaT, NA, null), and besides those that
    equal `marker`, as `missing_values` in scikit-learn.
    """

    def __init__(self, labels: Sequence[Label], rows: int, marker: Any) -> None:
        self.labels = tuple(labels)
        self.rows = rows
        self.marker = marker
        self._columns: dict[int, Column] = {}

    def column(self, position: int) -> Column:
        """One column, read once."""
        if position not in self._columns:
            self._columns[position] = hide_missing_texts(self._read(position))
        return self._columns[position]

    def hide_unreadable(self, templates: Mapping[int, str | None]) -> None:
        """Count cells of text columns of dates that are no dates as missing, with a warning.

        The templates of dates, by position, are those of fitting, or None.
        """
        for position, template in templates.items():
            column = self.column(position)
            readable = hide_unreadable(column, template)
            if readable is not column:
                self._columns[position] = readable
                self.__dict__.pop("missing", None)

    @abstractmethod
    def _read(self, position: int) -> Column:
        """Read one column."""

    @abstractmethod
    def dtype_name(self, position: int) -> str:
        """The name of the dtype of one column in its own library."""

    @property
    def library(self) -> str | None:
        """The library of the frame, such as `"polars"`; None for arrays."""
        return None

    @abstractmethod
    def replace_cells(self, fills: Mapping[int, tuple[Mask, Array]]) -> Any:
        """A copy of the table with new values in the masked cells of some columns, by position."""

    @cached_property
    def missing(self) -> Mask:
        """Which cells are missing, `(rows, columns)`."""
        masks = [self.column(position).missing for position in range(len(self.labels))]
        return np.stack(masks, axis=1) if masks else np.zeros((self.rows, 0), dtype=bool)

    def columns(self) -> list[Column]:
        """Read every column, and refuse infinite numbers."""
        columns = [self.column(position) for position in range(len(self.labels))]
        infinite = [column.label for column in columns if _has_infinity(column)]
        if infinite:
            raise ValueError(
                f"the table contains infinity in column {quote(infinite)}; replace it by a "
                "number, or mark it as missing"
            )
        return columns


class ArrayTable(Table):
    """A numpy array with two axes; its columns are called by their positions."""

    def __init__(self, array: Array, marker: Any) -> None:
        super().__init__(range(array.shape[1]), array.shape[0], marker)
        self.array = array

    @cached_property
    def by_column(self) -> Array:
        """The array with its columns in one piece each."""
        transposed = np.empty(self.array.shape[::-1], dtype=self.array.dtype)
        # In blocks that fit into a cache this is several times faster than in one go.
        for start in range(0, self.rows, BLOCK):
            transposed[:, start : start + BLOCK] = self.array[start : start + BLOCK].T
        return transposed

    def _read(self, position: int) -> Column:
        cells = self.by_column[position]
        if cells.dtype.kind == "O":
            return read_cells(position, cells, self.marker)
        storage = STORAGE_OF_KIND[cells.dtype.kind]
        missing = marked_cells(cells, self.marker)
        if storage == "float":
            values = cells.astype(np.float64, copy=False)
            return Column(position, storage, values, missing | np.isnan(values))
        if storage in ("date", "duration"):
            missing = missing | np.isnat(cells)
        return Column(position, storage, cells, missing)

    def dtype_name(self, position: int) -> str:
        return str(self.array.dtype)

    def replace_cells(self, fills: Mapping[int, tuple[Mask, Array]]) -> Array:
        written = {
            position: self._written(values, self.array[~missing, position])
            for position, (missing, values) in fills.items()
        }
        dtype = self.array.dtype
        if dtype.kind in "fiubU":
            # Texts may be longer than an array of texts has room for, and do not fit among numbers.
            wider = [values.dtype for values in written.values() if values.dtype.kind in "UO"]
            dtype = np.result_type(dtype, *wider)
        result = np.array(self.array, dtype=dtype)
        for position, values in written.items():
            result[fills[position][0], position] = values
        return result

    def _written(self, values: Array, cells: Array) -> Array:
        """New cells in the dtype of the array, or in the type that its objects have."""
        if values.dtype.kind != "f" and not can_hold(cells.dtype.kind, values):
            return as_objects(values)
        if cells.dtype.kind != "O":
            return cast(values, cells.dtype)
        return as_cells(values, cells[~read_cells(0, cells, self.marker).missing])


class TableView(Table):
    """Some columns of a table, in any order, and with some of their cells hidden.

    `hidden` is `(rows, columns of the view)`.

    Example:
        >>> view = TableView(open_table([[1.0, 2.0], [3.0, 4.0]]), [1], np.array([[True], [False]]))
        >>> view.column(0).observed
        array([4.])
        >>> view.replace_cells({0: (view.missing[:, 0], np.array([9.0]))})
        array([[1., 9.],
               [3., 4.]])
    """

    def __init__(
        self,
        table: Table,
        positions: Sequence[int],
        hidden: Mask | None = None,
        labels: Sequence[Label] | None = None,
    ) -> None:
        own = [table.labels[k] for k in positions] if labels is None else labels
        super().__init__(own, table.rows, table.marker)
        self.table, self.positions, self.hidden = table, list(positions), hidden

    def _read(self, position: int) -> Column:
        column = self.table.column(self.positions[position])
        if self.hidden is None:
            return column
        return replace(column, missing=column.missing | self.hidden[:, position])

    @property
    def library(self) -> str | None:
        return self.table.library

    def dtype_name(self, position: int) -> str:
        return self.table.dtype_name(self.positions[position])

    def replace_cells(self, fills: Mapping[int, tuple[Mask, Array]]) -> Any:
        return self.table.replace_cells({self.positions[k]: fill for k, fill in fills.items()})


def hide_cells(table: Table, hidden: Mask) -> Table:
    """A table some of whose cells count as missing, `(rows, columns)`."""
    return TableView(table, range(len(table.labels)), hidden)


def as_cell_mask(observed: Any, table: Table) -> Mask:
    """Which cells of a table may be used: a boolean array or frame, or truth values by column.

    Of a mapping, what is not named may not be used.
    """
    shape = (table.rows, len(table.labels))
    if isinstance(observed, Mapping):
        mask = np.zeros(shape, dtype=bool)
        places = {label: place for place, label in enumerate(table.labels)}
        for name, part in observed.items():
            if name not in places:
                known = suggestion(str(name), map(str, table.labels))
                raise ValueError(f"the mask names {name!r}, which is no column; {known}")
            mask[:, places[name]] = np.asarray(part, dtype=bool)
        return mask
    mask = np.asarray(observed)
    if mask.shape != shape or mask.dtype != bool:
        raise ValueError(
            f"observed must be a boolean mask of shape {shape}, but is {mask.dtype} of shape "
            f"{mask.shape}"
        )
    return mask


def open_table(table: Any, missing_values: Any = np.nan) -> Table:
    """A table of any supported kind, ready to be read and written.

    Args:
        table: an array, nested sequences, or a frame of pandas or a library that narwhals supports.
        missing_values: a number or a string that marks a missing cell besides NaN, None, NaT, NA
            and null, which always do.

    Example:
        >>> table = open_table([[1, "a"], [None, "b"]])
        >>> table.column(0).missing
        array([False,  True])
    """
    if not (isinstance(missing_values, str | Number) or is_absent(missing_values)):
        raise TypeError(
            f"missing_values must be a number, a string, NaN or None, but is {missing_values!r}"
        )
    if isinstance(table, Table):
        return table
    if not is_frame(table):
        return ArrayTable(_as_array(table), missing_values)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        from vfg.tables.pandas_frames import PandasTable

        return PandasTable(table, missing_values)
    from vfg.tables.narwhals_frames import NarwhalsTable

    return NarwhalsTable(table, missing_values)


def quote(labels: Sequence[Label]) -> str:
    """Labels in quotes for a message: the first six, and how many more there are.

    Example:
        >>> quote("abcdefgh")
        "'a', 'b', 'c', 'd', 'e', 'f' and 2 more"
    """
    more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
    return ", ".join(map(repr, labels[:6])) + more


def _as_array(table: Any) -> Array:
    array = table if isinstance(table, np.ndarray) else _from_sequences(table)
    if array.ndim != 2:
        raise ValueError(
            f"a table needs two axes, rows and columns: Expected 2D array, got {array.ndim}D array "
            "instead; Reshape your data, for example with array.reshape(-1, 1) for one column"
        )
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: a table holds real numbers; split it in two")
    if array.dtype.kind not in STORAGE_OF_KIND and array.dtype.kind != "O":
        raise TypeError(
            f"an array of dtype {array.dtype} is no table; convert it, for example to object"
        )
    return array


def _from_sequences(table: Any) -> Array:
    """Numbers as an array of numbers, anything else as objects, so that each column is its own."""
    if not isinstance(table, Sequence):
        return np.asarray(table)
    objects = np.array(table, dtype=object)
    types = set(map(type, objects.ravel().tolist()))
    numbers = bool not in types and all(issubclass(kind, int | float) for kind in types)
    return np.asarray(table) if numbers or types == {bool} else objects


def _has_infinity(column: Column) -> bool:
    is_float = column.values.dtype.kind == "f"
    return is_float and bool((np.isinf(column.values) & ~column.missing).any())
