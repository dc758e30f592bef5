"""Which cells of a table are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vfg.plots.cells import Array, Mask, opened
from vfg.plots.style import FILLED, INK, PAPER, SMALL, axes_or_new, tidied

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

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
