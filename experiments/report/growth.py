"""The pictures of growth: time and memory against rows, columns and depth, one per device."""

from __future__ import annotations

from dataclasses import dataclass
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

from ..results import save, slug

Found = dict[str, Any]
Curve = tuple[str, str, str]
"""A series, what of it is drawn, and what it is called."""
GRID = "#E6E6E6"


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x: str
    y: str
    curves: tuple[Curve, ...]


ROWS = (
    ("rows", "", "fill, VFG"),
    ("rows, GaussianVFG", " to fit", "fit, GaussianVFG"),
    ("rows, GaussianVFG", " to fill", "fill, GaussianVFG"),
    ("rows, VFGImputer", " to fit", "fit, imputer*"),
    ("rows, VFGImputer", " to fill", "fill, imputer*"),
)
DEPTHS = (
    ("depth", "affine"),
    ("depth, inverted", "affine, inverted"),
    ("depth, splines, store", "splines"),
    ("depth, splines, recompute", "splines, recomputed"),
    ("depth, splines, invert", "splines, inverted"),
)
PANELS = (
    Panel("rows", "seconds", tuple((a, f"seconds{b}", name) for a, b, name in ROWS)),
    Panel(
        "columns",
        "seconds",
        (
            ("columns", "seconds to build", "build, VFG"),
            ("columns", "seconds per step", "step, VFG"),
            ("columns, GaussianVFG", "seconds to fit", "fit, GaussianVFG"),
            ("columns, GaussianVFG", "seconds to infer", "infer, GaussianVFG"),
        ),
    ),
    Panel(
        "couplings per edge", "seconds per step",
        tuple((a, "seconds per step", name) for a, name in DEPTHS),
    ),
    Panel("rows", "MiB", tuple((a, f"MiB{b}", name) for a, b, name in ROWS)),
    Panel(
        "columns",
        "MiB",
        (
            ("columns", "MiB", "step, VFG"),
            ("columns, GaussianVFG", "MiB", "fit, GaussianVFG"),
        ),
    ),
    Panel("couplings per edge", "MiB", tuple((a, "MiB", name) for a, name in DEPTHS)),
)  # fmt: skip


def picture_name(device: str) -> str:
    """The name of a device's picture, without its ending.

    Example:
        >>> picture_name("NVIDIA H200")
        'growth-nvidia-h200'
    """
    return f"growth-{slug(device)}"


def draw(parts: list[Found], *, quick: bool, output: Path | None) -> list[Path]:
    """Draw every device on which growth was measured."""
    import matplotlib

    matplotlib.use("Agg")
    chosen = [part for part in parts if part["part"] == "growth"]
    return [
        save(growth(part["found"]), picture_name(part["name"]), quick=quick, output=output)
        for part in chosen
    ]


def growth(found: Found) -> Any:
    """Time above, memory below, both axes logarithmic, slopes beside the names."""
    figure = new_figure(13.0, 6.6, rows=2, columns=3)
    for axis, panel in zip(figure.axes, PANELS, strict=True):
        looks = _looks(panel.x)
        drawn = [curve for curve in panel.curves if len(_points(found, curve)) > 1]
        for series, what, name in drawn:
            colour, marker = looks[name]
            slope = found[series]["slopes"][what]
            axis.plot(
                *zip(*_points(found, (series, what, name)), strict=True),
                color=colour,
                marker=marker,
                markersize=4,
                linewidth=LINE,
                label=f"{name}  {slope:.2f}",
            )
        axis.set(xscale="log", yscale="log")
        _scaled(axis, [found[series]["sizes"] for series, _, _ in drawn])
        tidy(axis, x=panel.x, y=panel.y)
        _proportional(axis)
        if drawn:
            axis.legend(fontsize=SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _looks(x: str) -> dict[str, tuple[str, str]]:
    """Colour and marker of every name against `x`; the same in time and memory."""
    names = dict.fromkeys(name for panel in PANELS if panel.x == x for *_, name in panel.curves)
    return dict(zip(names, zip(CATEGORIES, MARKERS, strict=True), strict=False))


def _points(found: Found, curve: Curve) -> list[tuple[float, float]]:
    """Sizes and what to draw there, as far as it was measured and can be drawn."""
    series, what, _ = curve
    known = found.get(series, {"sizes": [], "points": []})
    pairs = zip(known["sizes"], known["points"], strict=True)
    return [(size, point[what]) for size, point in pairs if point.get(what, 0.0) > 0.0]


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
