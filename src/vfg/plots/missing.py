"""Where cells are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfg.plots.style import FILLED, INK, PAPER, SMALL, axes_or_new, tidied
from vfg.tables.cells import Column, Label
from vfg.tables.frames import Table, open_table, quote

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


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
        raise ValueError(f"there is no column {column!r}; there are {quote(table.labels)}")
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


BANDS = 400
"""Longer tables are drawn as this many bands of rows, each in the shade of its missing share."""
COLUMNS_NAMED = 60
"""Tables with more columns have them numbered."""


def missingness(table: Any, ax: Axes | None = None) -> Axes:
    """Draw which cells of a table are missing: rows from top to bottom, columns side by side.

    The names of the columns come with the share of their missing cells. A table of more than 400
    rows is drawn in bands of rows, in shades.

    Args:
        table: frame, array, tensor or nested sequences; what counts as missing is what
            `VFGImputer` fills.
        ax: where; None makes a new figure.

    Returns:
        The axes; its image holds the share of missing cells by band and column.

    Raises:
        ValueError: if the table has no rows or columns.

    Example:
        >>> ax = missingness([[1.0, None], [2.0, 3.0]])
        >>> ax.images[0].get_array().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    source = opened(table)
    if not source.rows or not source.labels:
        raise ValueError("the table has no cells to draw; pass one with rows and columns")
    gaps = np.stack([column.missing for column in source.columns()], axis=1)
    rows, columns = gaps.shape
    ax = axes_or_new(ax, width=min(11.0, max(3.4, 1.2 + 0.32 * columns)), height=3.6)
    ax.imshow(
        _bands(gaps), aspect="auto", interpolation="nearest", vmin=0.0, vmax=1.0, cmap=_shades(),
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
    tidied(ax, y="row", title=f"{gaps.mean():.1%} of {rows:,} × {columns:,} cells missing")
    _name_columns(ax, [str(label) for label in source.labels], gaps.mean(axis=0))
    return ax


def _shades() -> Colormap:
    """From present to missing."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("missing", [PAPER, FILLED])


def _bands(gaps: Mask) -> Array:
    """Shares of missing cells in bands of neighbouring rows."""
    if len(gaps) <= BANDS:
        return gaps.astype(np.float64)
    return np.stack([band.mean(axis=0) for band in np.array_split(gaps, BANDS)])


def _name_columns(ax: Axes, labels: list[str], shares: Array) -> None:
    if len(labels) > COLUMNS_NAMED:
        ax.set_xlabel("column", fontsize=SMALL + 1)
        return
    texts = [f"{label}  {share:.0%}" for label, share in zip(labels, shares, strict=True)]
    ax.set_xticks(range(len(labels)), labels=texts, rotation=90, color=INK, fontsize=SMALL)
    ax.tick_params(axis="x", length=0)
    for edge in range(1, len(labels)):
        ax.axvline(edge - 0.5, color="white", linewidth=1.0)
