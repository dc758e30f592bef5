"""The pictures of growth: time and memory against rows, columns and depth, one per device."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path
from typing import Any

from vfg.plots.style import (
    CATEGORIES,
    HAIRLINE,
    LINE,
    MARKERS,
    REFERENCE,
    SMALL,
    new_figure,
    tidy,
)

from ..results import Arguments, slug

Found = dict[str, Any]
GRID = "#E6E6E6"
AXES = {"rows": "rows", "columns": "columns", "depth": "couplings per edge"}
"""What grows, by the beginning of a series' name."""
KINDS = ("seconds", "MiB")


def picture_name(device: str) -> str:
    """The name of a device's picture, without its ending.

    Example:
        >>> picture_name("NVIDIA H200")
        'growth-nvidia-h200'
    """
    return f"growth-{slug(device)}"


def draw(parts: list[Found], given: Arguments) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    chosen = [part for part in parts if part["part"] == "growth"]
    return [given.save(growth(part["found"]), picture_name(part["name"])) for part in chosen]


def growth(found: Found) -> Any:
    """Time above, memory below, both axes logarithmic, slopes beside the names."""
    figure = new_figure(13.0, 6.6, rows=2, columns=3)
    for axis, (kind, grown) in zip(figure.axes, product(KINDS, AXES), strict=True):
        chosen = {name: series for name, series in found.items() if name.partition(",")[0] == grown}
        looks = zip(cycle(CATEGORIES), cycle(MARKERS), strict=False)
        for name, series in chosen.items():
            for measure in (what for what in series["slopes"] if what.startswith(kind)):
                _plot(axis, name, series, measure, *next(looks))
        axis.set(xscale="log", yscale="log")
        _scaled(axis, [series["sizes"] for series in chosen.values()])
        tidy(axis, x=AXES[grown], y=kind)
        _proportional(axis)
        if axis.lines[:-1]:
            axis.legend(
                title="grows with exponent (dashed: 1)", alignment="left", title_fontsize=SMALL,
                fontsize=SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False,
            )  # fmt: skip
    return figure


def _plot(axis: Any, name: str, series: Found, measure: str, colour: str, marker: str) -> None:
    """A line with its slope, as far as it was measured and can be drawn."""
    pairs = zip(series["sizes"], series["points"], strict=True)
    points = [(size, point[measure]) for size, point in pairs if point.get(measure, 0.0) > 0.0]
    if len(points) > 1:
        model, (_, _, rest) = name.partition(", ")[2] or "VFG", measure.partition(" ")
        label = f"{model}{', ' * bool(rest)}{rest}  {series['slopes'][measure]:.2f}"
        style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": LINE}
        axis.plot(*zip(*points, strict=True), label=label, **style)


def _scaled(axis: Any, sizes: list[list[int]]) -> None:
    """Ticks as plain numbers, at every size if there are few, and a quiet grid."""
    from matplotlib.ticker import LogLocator, NullLocator

    (low, high), every = axis.get_ylim(), sorted({size for each in sizes for size in each})
    steps = (1.0,) if high > 100.0 * low else (1.0, 2.0, 5.0)
    axis.yaxis.set_major_locator(LogLocator(subs=steps))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_xticks(every, [_short(size) for size in every])
    for each in (axis.xaxis, axis.yaxis):
        each.set_minor_locator(NullLocator())
    axis.grid(color=GRID, linewidth=HAIRLINE)


def _short(size: int) -> str:
    """A size as a label: powers of ten from 1,000 on as such.

    Example:
        >>> _short(2048), _short(1000)
        ('2,048', '$10^3$')
    """
    power = len(str(size)) - 1
    return f"$10^{power}$" if power > 2 and size == 10**power else f"{size:,}"


def _proportional(axis: Any) -> None:
    """A dashed line of slope 1 through the middle of the axes, which stay as they are."""
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    middle = (left * right) ** 0.5, (low * high) ** 0.5
    ends = [middle[1] * x / middle[0] for x in (left, right)]
    axis.plot([left, right], ends, color=REFERENCE, linewidth=HAIRLINE, dashes=(4, 3), zorder=0)
    axis.set(xlim=(left, right), ylim=(low, high))
