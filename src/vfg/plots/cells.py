"""Tables of any kind as the plain arrays that pictures are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfg.tables.cells import Column, Label
from vfg.tables.frames import Table, listed, open_table

Array = NDArray[Any]
Mask = NDArray[np.bool_]
DAY = np.timedelta64(1, "D")


def opened(table: Any) -> Table:
    """A frame, array, tensor or nested sequences as a table with columns."""
    return open_table(table.detach().cpu().numpy() if isinstance(table, Tensor) else table)


def position(table: Table, column: Label) -> int:
    """The place of a column.

    Raises:
        ValueError: if there is none of that name.
    """
    if column not in table.labels:
        raise ValueError(f"there is no column {column!r}; there are {listed(table.labels)}")
    return table.labels.index(column)


def is_category(column: Column) -> bool:
    """Whether a column holds names or truth values, which have no place on a line."""
    return column.categories is not None or column.storage not in (
        "float", "integer", "date", "duration",
    )  # fmt: skip


def numbers(column: Column) -> Array:
    """The cells as floats, NaN where missing; dates and durations in days."""
    values = column.values
    if column.storage == "date":
        values = (values - np.datetime64("1970-01-01")) / DAY
    elif column.storage == "duration":
        values = values / DAY
    return np.where(column.missing, np.nan, np.asarray(values, dtype=np.float64))


def mask_of(hidden: Any, shape: tuple[int, int]) -> Mask:
    """A boolean mask of that shape.

    Raises:
        ValueError: for another shape.
    """
    mask = np.asarray(hidden.cpu() if isinstance(hidden, Tensor) else hidden, dtype=bool)
    if mask.shape != shape:
        raise ValueError(
            f"the mask of hidden cells must have the shape {shape} of the table, but has "
            f"{mask.shape}"
        )
    return mask


def same_shape(table: Table, other: Table, what: str) -> None:
    """Refuse two tables that cannot be compared cell by cell."""
    shape, found = (table.rows, len(table.labels)), (other.rows, len(other.labels))
    if shape != found:
        raise ValueError(f"{what} must have the shape {shape} of the table, but has {found}")
