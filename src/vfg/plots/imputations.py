"""Drawings of tables: missing cells, filled cells, held-out cells, coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfg.inference.variables import days_of
from vfg.plots.style import (
    BAND,
    FILLED,
    HAIRLINE,
    INK,
    LINE,
    OBSERVED,
    PAPER,
    REFERENCE,
    SMALL,
    axes_or_new,
    inches,
    legend,
    new_figure,
    plain,
    shorten,
    tidy,
    to_array,
)
from vfg.tables.cells import Column, Label
from vfg.tables.frames import Table, open_table, quote
from vfg.utils.extras import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vfg.imputation.missingness import Sensitivity


Array = NDArray[Any]
Mask = NDArray[np.bool_]


def open_any(table: Any) -> Table:
    """A frame, array, tensor or nested sequences as a table with columns."""
    return open_table(to_array(table) if isinstance(table, Tensor) else table)


def column_index(table: Table, column: Label) -> int:
    """The place of a column."""
    if column not in table.labels:
        raise ValueError(f"there is no column {column!r}; there are {quote(table.labels)}")
    return table.labels.index(column)


def is_category(column: Column) -> bool:
    """Whether a column holds names or truth values, which have no place on a line."""
    return column.categories is not None or column.storage not in (
        "float", "integer", "date", "duration",
    )  # fmt: skip


def as_floats(column: Column) -> Array:
    """The cells as floats, NaN where missing; dates and durations in days."""
    values = days_of(column.values) if column.storage in ("date", "duration") else column.values
    return np.where(column.missing, np.nan, np.asarray(values, dtype=np.float64))


def check_mask(hidden: Any, shape: tuple[int, int]) -> Mask:
    """A boolean mask of that shape."""
    mask = to_array(hidden).astype(bool)
    if mask.shape != shape:
        raise ValueError(
            f"the mask of hidden cells must have the shape {shape} of the table, but has "
            f"{mask.shape}"
        )
    return mask


def check_same_shape(table: Table, other: Table, what: str) -> None:
    """Refuse two tables that cannot be compared cell by cell."""
    shape, result = (table.rows, len(table.labels)), (other.rows, len(other.labels))
    if shape != result:
        raise ValueError(f"{what} must have the shape {shape} of the table, but has {result}")


BANDS = 400
"""Longer tables are drawn as this many bands of rows, each in the shade of its missing share."""
COLUMNS_NAMED = 60
"""Tables with more columns have them numbered."""


def missingness(table: Any, ax: Axes | None = None) -> Axes:
    """Draw which cells of a table are missing: rows from top to bottom, columns side by side.

    The names of the columns come with the share of their missing cells. A table of more than 400
    rows is drawn in bands of rows, in shades.

    Args:
        table: frame, array, tensor or nested sequences; missing cells are those that
            `VFGImputer` fills.
        ax: where to draw; None makes a new figure.

    Returns:
        The axes; its image holds the share of missing cells by band and column.

    Raises:
        ValueError: if the table has no rows or columns.

    Example:
        >>> ax = missingness([[1.0, None], [2.0, 3.0]])
        >>> ax.images[0].get_array().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    with needs("plot"):
        from matplotlib.colors import LinearSegmentedColormap
    source = open_any(table)
    if not source.rows or not source.labels:
        raise ValueError("the table has no cells to draw; pass one with rows and columns")
    gaps = np.stack([column.missing for column in source.columns()], axis=1)
    rows, columns = gaps.shape
    ax = axes_or_new(ax, width=min(11.0, max(3.4, 1.2 + 0.32 * columns)), height=3.6)
    shades = LinearSegmentedColormap.from_list("missing", [PAPER, FILLED])
    ax.imshow(
        missing_bands(gaps, BANDS), aspect="auto", interpolation="nearest", vmin=0.0, vmax=1.0,
        cmap=shades, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
    tidy(ax, y="row", title=f"{gaps.mean():.1%} of {rows:,} × {columns:,} cells missing")
    _name_columns(ax, [str(label) for label in source.labels], gaps.mean(axis=0))
    return ax


def missing_bands(missing: Mask, most: int) -> Array:
    """The share of missing cells in bands of neighbouring rows, `(bands, columns)`.

    Example:
        >>> missing_bands(np.array([[True], [False], [True], [True]]), 2)
        array([[0.5],
               [1. ]])
    """
    bands = np.array_split(missing, min(len(missing), most))
    return np.stack([band.mean(axis=0) for band in bands])


def _name_columns(ax: Axes, labels: list[str], shares: Array) -> None:
    if len(labels) > COLUMNS_NAMED:
        ax.set_xlabel("column", fontsize=SMALL + 1)
        return
    texts = [f"{plain(label)}  {share:.0%}" for label, share in zip(labels, shares, strict=True)]
    ax.set_xticks(range(len(labels)), labels=texts, rotation=90, color=INK, fontsize=SMALL)
    ax.tick_params(axis="x", length=0)
    for edge in range(1, len(labels)):
        ax.axvline(edge - 0.5, color="white", linewidth=1.0)


LEVELS = tuple(k / 10 for k in range(1, 10))
"""Levels of the intervals whose coverage is drawn."""
CATEGORIES_SHOWN = 12
"""More categories than these are drawn without the rarest."""
CATEGORY_LETTERS = 20
"""Longer categories are cut in the middle."""
LETTER = 0.07
"""Width of a letter of a label, in inches."""
MOST_DATES = 5
"""How many dates are named on an axis; more would touch in a small picture."""


def distribution(table: Any, filled: Any, column: Label, ax: Axes | None = None) -> Axes:
    """Draw the observed cells of a column next to those that were filled in.

    Their distributions may differ: cells are seldom missing completely at random, and means vary
    less than data do. Numbers and dates are histograms of equal area, categories are bars that sum
    to 1.

    Args:
        table: the table with missing values.
        filled: the same table, filled.
        column: its name, or its position in an array.
        ax: where to draw; None makes a new figure.

    Raises:
        ValueError: if the shapes differ, or the column is unknown or has no observed cells.

    Example:
        >>> ax = distribution([[1.0], [2.0], [None]], [[1.0], [2.0], [1.5]], column=0)
        >>> ax.get_legend_handles_labels()[1]
        ['observed (2)', 'filled (1)']
    """
    before, after = open_any(table), open_any(filled)
    check_same_shape(before, after, "the filled table")
    place = column_index(before, column)
    gaps, result = before.column(place), after.column(place)
    if gaps.missing.all():
        raise ValueError(f"nothing of column {column!r} is observed, so there is nothing to draw")
    ax = tidy(axes_or_new(ax), x=str(column), y="share")
    if is_category(gaps):
        _bars(ax, gaps, result)
    else:
        _histograms(ax, gaps, result)
    legend(ax)
    return ax


def distributions(table: Any, filled: Any, columns: Sequence[Label] | None = None) -> Figure:
    """Draw `distribution` for several columns side by side, one axes per column.

    Args:
        table: the table with missing values.
        filled: the same table, filled.
        columns: which; None takes those with missing and observed cells.

    Raises:
        ValueError: if no column has missing values.

    Example:
        >>> figure = distributions([[1.0, None], [2.0, 3.0]], [[1.0, 2.5], [2.0, 3.0]])
        >>> [ax.get_xlabel() for ax in figure.axes]
        ['1']
    """
    gaps = {column.label: column.missing for column in open_any(table).columns()}
    partly = [label for label, missing in gaps.items() if missing.any() and not missing.all()]
    chosen = partly if columns is None else list(columns)
    if not chosen:
        raise ValueError(
            "no column has both missing and observed cells, so there is nothing to draw"
        )
    across = min(4, len(chosen))
    down = math.ceil(len(chosen) / across)
    figure = new_figure(0.6 + 2.5 * across, 0.3 + 2.0 * down, rows=down, columns=across)
    for ax, column in zip(figure.axes, chosen, strict=False):
        distribution(table, filled, column, ax).set_ylabel("")
    figure.supylabel("share", fontsize=SMALL + 1)
    for spare in figure.axes[len(chosen) :]:
        spare.remove()
    return figure


def _histograms(ax: Axes, gaps: Column, found: Column) -> None:
    """Two histograms over the same bins; the filled one has no body, so that both show."""
    with needs("plot"):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    seen, put = as_floats(gaps)[~gaps.missing], as_floats(found)[gaps.missing]
    every = np.concatenate([seen, put[np.isfinite(put)]])
    edges = np.histogram_bin_edges(every, bins=min(30, max(5, round(math.sqrt(len(every))))))
    for values, colour, word, solid in (
        (seen, OBSERVED, "observed", True),
        (put, FILLED, "filled", False),
    ):
        if len(values):
            heights = np.histogram(values, edges)[0] / len(values)
            ax.stairs(
                heights, edges, fill=solid, color=colour, alpha=0.35 if solid else 1.0,
                linewidth=LINE, label=f"{word} ({len(values)})",
            )  # fmt: skip
    if gaps.storage == "date":
        locator = AutoDateLocator(minticks=2, maxticks=MOST_DATES)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_formatter(formatter)
    elif gaps.storage == "duration":
        ax.set_xlabel(plain(f"{gaps.label}, days"))


def _bars(ax: Axes, gaps: Column, found: Column) -> None:
    """Pairs of bars, the most frequent category first unless they have an order."""
    seen = [str(cell) for cell in gaps.observed]
    put = [str(cell) for cell in found.values[gaps.missing]]
    counted = {name: seen.count(name) + put.count(name) for name in dict.fromkeys(seen + put)}
    names = sorted(counted, key=lambda name: (-counted[name], name))[:CATEGORIES_SHOWN]
    if gaps.ordered and gaps.categories is not None:
        names = [str(name) for name in gaps.categories if str(name) in names]
    for shift, cells, colour, word in (
        (-0.2, seen, OBSERVED, "observed"),
        (0.2, put, FILLED, "filled"),
    ):
        if cells:
            heights = [cells.count(name) / len(cells) for name in names]
            ax.bar(
                np.arange(len(names)) + shift, heights, width=0.38, label=f"{word} ({len(cells)})",
                color=colour if word == "observed" else "white", edgecolor=colour,
                alpha=0.6 if word == "observed" else 1.0, linewidth=LINE,
            )  # fmt: skip
    labels = [plain(shorten(name, CATEGORY_LETTERS)) for name in names]
    room = inches(ax)[0] / (LETTER * max(len(names), 1))
    upright = room < max(map(len, labels), default=0) + 1
    ax.set_xticks(range(len(names)), labels=labels, rotation=90 if upright else 0)


def hidden_cells(
    truth: Any,
    filled: Any,
    hidden: Any,
    ax: Axes | None = None,
    *,
    column: Label | None = None,
    intervals: tuple[Any, Any] | None = None,
) -> Axes:
    """Draw the filled values of hidden cells against the true ones.

    Args:
        truth: the table before cells were hidden.
        filled: the same table with the hidden cells filled.
        hidden: which cells were hidden.
        ax: where to draw; None makes a new figure.
        column: a single one, in its own units; None draws all columns of numbers, each in standard
            deviations from its mean.
        intervals: lower and upper ends, as from `VFGImputer.predict_interval`.

    Returns:
        The axes; its first collection of points holds (truth, filled).

    Raises:
        ValueError: if shapes differ, or no number was hidden.

    Example:
        >>> ax = hidden_cells([[1.0], [3.0]], [[1.0], [2.5]], [[False], [True]], column=0)
        >>> ax.collections[0].get_offsets().tolist()
        [[3.0, 2.5]]
    """
    whole = open_any(truth)
    mask = check_mask(hidden, (whole.rows, len(whole.labels)))
    places = _numeric(whole) if column is None else [column_index(whole, column)]
    tables = [whole, open_any(filled), *(open_any(end) for end in intervals or ())]
    for other in tables[1:]:
        check_same_shape(whole, other, "every other table")
    scales = [_scale(whole, place) if column is None else (0.0, 1.0) for place in places]
    x, y, *ends = (_select_cells(table, mask, places, scales) for table in tables)
    if not len(x):
        raise ValueError("no number was hidden, so there is nothing to draw")
    unit = "standard deviations" if column is None else str(column)
    ax = tidy(axes_or_new(ax, 3.9, 3.6), x=f"hidden truth, {unit}", y="filled")
    ax.scatter(x, y, s=9, color=FILLED, alpha=0.7, linewidths=0, zorder=3, label="filled")
    if len(ends) == 2:
        faint = min(0.6, max(0.2, 60.0 / len(x)))
        ax.vlines(
            x, ends[0], ends[1], color=FILLED, alpha=faint, linewidth=HAIRLINE, label="interval"
        )
    span = [float(np.nanmin(x)), float(np.nanmax(x))]
    ax.plot(span, span, color=REFERENCE, linewidth=LINE, linestyle="--", label="truth")
    legend(ax)
    return ax


def _numeric(table: Table) -> list[int]:
    return [place for place, column in enumerate(table.columns()) if not is_category(column)]


def _scale(table: Table, place: int) -> tuple[float, float]:
    """Mean and standard deviation of a column; 1 for a constant one."""
    values = as_floats(table.column(place))
    return float(np.nanmean(values)), float(np.nanstd(values)) or 1.0


def _select_cells(
    table: Table, mask: Mask, places: list[int], scales: list[tuple[float, float]]
) -> Array:
    """The masked cells of some columns, one column after the other, scaled."""
    parts = [
        (as_floats(table.column(place))[mask[:, place]] - mean) / deviation
        for place, (mean, deviation) in zip(places, scales, strict=True)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def coverage(
    truth: Any,
    draws: Sequence[Any] | Array | Tensor,
    hidden: Any,
    ax: Axes | None = None,
    *,
    levels: Sequence[float] = LEVELS,
) -> Axes:
    """Draw the share of intervals that contain the true value against their level.

    The band is two standard errors of a share on either side, as if cells were independent.

    Args:
        truth: the table before cells were hidden.
        draws: the table with the hidden cells drawn, several times, as from `VFGImputer.sample`.
        hidden: which cells were hidden.
        ax: where to draw; None makes a new figure.
        levels: of the central intervals; those that n draws cannot resolve, beyond
            (n − 1) / (n + 1), are left out.

    Returns:
        The axes; its first line holds (level, share of hidden numbers inside).

    Raises:
        ValueError: if there are fewer than 2 draws, shapes differ, or no number was hidden.

    Example:
        >>> draws = [[[0.0]], [[1.0]], [[2.0]], [[3.0]]]
        >>> ax = coverage([[1.5]], draws, [[True]], levels=[0.5])
        >>> ax.lines[0].get_ydata().tolist()
        [1.0]
    """
    whole = open_any(truth)
    mask = check_mask(hidden, (whole.rows, len(whole.labels)))
    tables = [open_any(draw) for draw in draws]
    if len(tables) < 2:
        raise ValueError(f"coverage needs at least 2 draws, but got {len(tables)}")
    for table in tables:
        check_same_shape(whole, table, "every draw")
    places = _numeric(whole)
    plain = [(0.0, 1.0)] * len(places)
    target = _select_cells(whole, mask, places, plain)
    if not len(target):
        raise ValueError("no number was hidden, so there is nothing to draw")
    drawn = np.stack([_select_cells(table, mask, places, plain) for table in tables])
    finest = (len(tables) - 1) / (len(tables) + 1)
    known = np.array([level for level in levels if level <= finest])
    low = np.quantile(drawn, 0.5 - known / 2, axis=0, method="weibull")
    high = np.quantile(drawn, 0.5 + known / 2, axis=0, method="weibull")
    shares = ((low <= target) & (target <= high)).mean(axis=1)
    ax = tidy(axes_or_new(ax, 3.9, 3.6), x="level of the interval", y="hidden cells inside")
    ax.plot(known, shares, "o-", color=FILLED, linewidth=LINE, markersize=4, label="found")
    ideal = np.linspace(0.0, 1.0, 101)
    reach = 2.0 * np.sqrt(ideal * (1.0 - ideal) / len(target))
    ax.fill_between(
        ideal, ideal - reach, ideal + reach, color=REFERENCE, alpha=BAND, linewidth=0,
        label=f"chance, {len(target)} cells",
    )  # fmt: skip
    ax.plot(ideal, ideal, color=REFERENCE, linewidth=HAIRLINE, linestyle="--", label="ideal")
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    legend(ax)
    return ax


def sensitivity(result: Sensitivity, *, ax: Axes | None = None) -> Axes:
    """Draw how far the means of columns move when their missing cells are shifted.

    Args:
        result: of `VFGImputer.sensitivity`.
        ax: where to draw; None makes new axes.

    Returns:
        The axes.

    Raises:
        TypeError: for anything but such a result.
    """
    from vfg.imputation.missingness import Sensitivity
    from vfg.imputation.settings import check_type

    check_type("result", result, Sensitivity, "what VFGImputer.sensitivity returns")
    ax = axes_or_new(ax)
    order = np.argsort(result.delta)
    shifts = np.asarray(result.delta)[order]
    middle = result.means[int(np.argmin(np.abs(result.delta)))]
    for column, label in enumerate(result.columns):
        ax.plot(shifts, result.means[order, column] - middle[column], label=str(label), lw=LINE)
    ax.axhline(0.0, color=REFERENCE, lw=HAIRLINE)
    legend(ax)
    return tidy(ax, x="shift of missing cells, in deviations", y="change of the column's mean")
