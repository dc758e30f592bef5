"""What all pictures share: a colour-blind-safe palette, sizes, and plain axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfg.utils.extras import needs

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# After Okabe and Ito: distinct for the colour-blind, and of different lightness in grey print.
OBSERVED = "#0072B2"
"""What was seen: data, evidence, training."""
FILLED = "#D55E00"
"""What was inferred: filled cells, answers, held-out scores."""
REFERENCE = "#8C8C8C"
"""What to compare with: truth, ideal lines, marginals."""
INK = "#333333"
"""Text, borders and edges of graphs."""
PAPER = "#F2F2F2"
"""The quiet colour of large areas."""
CATEGORIES = (OBSERVED, FILLED, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
"""Colours of categories, in turn."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Markers of categories, in turn, so that they differ without colour too."""
SHADES = "cividis"
"""Shades of numbers."""
GREYS = "gray"
"""Shades of images."""

SMALL = 8.0
"""Size of labels, in points."""
LINE = 1.6
"""Width of lines that carry data, in points."""
HAIRLINE = 0.8
"""Width of all other lines."""
BAND = 0.22
"""Opacity of bands and intervals."""


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Figure:
    """A figure with a grid of axes, in inches; the axes are in `figure.axes`, row by row.

    Example:
        >>> len(new_figure(4, 3, rows=2, columns=2).axes)
        4
    """
    with needs("plot"):
        import matplotlib.pyplot as plt
    figure, _ = plt.subplots(
        rows, columns, figsize=(width, height), layout="constrained", squeeze=False
    )
    return figure


def axes_or_new(ax: Axes | None, width: float = 4.6, height: float = 3.4) -> Axes:
    """The axes that were given, or those of a new figure."""
    return new_figure(width, height).axes[0] if ax is None else ax


def tidy(ax: Axes, *, x: str = "", y: str = "", title: str = "") -> Axes:
    """The axes with their labels, without the lines that carry nothing."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=SMALL)
    ax.set_xlabel(plain(x), fontsize=SMALL + 1)
    ax.set_ylabel(plain(y), fontsize=SMALL + 1)
    if title:
        ax.set_title(plain(title), fontsize=SMALL + 2)
    return ax


def plain(text: Any) -> str:
    r"""A text that matplotlib draws as it is: a dollar sign begins no formula.

    Example:
        >>> plain("US$")
        'US\\$'
    """
    return str(text).replace("$", r"\$")


def shorten(name: str, letters: int) -> str:
    """A name of at most so many letters, cut in the middle: names often differ at their ends only.

    Example:
        >>> shorten("expression_of_gene_07", 12)
        'expres…ne_07'
    """
    after = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[: letters - 1 - after]}…{name[-after:]}"


def blank(ax: Axes) -> Axes:
    """The axes without ticks and borders, as pictures want them."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def legend(ax: Axes, handles: Sequence[Artist] | None = None) -> None:
    """A legend in a line above the axes, where it hides nothing, if it has several entries."""
    entries = ax.get_legend_handles_labels()[0] if handles is None else list(handles)
    if len(entries) > 1:
        ax.legend(
            handles=entries, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, frameon=False,
            fontsize=SMALL, handlelength=1.4, handletextpad=0.4, columnspacing=1.2, borderpad=0.2,
        )  # fmt: skip


def to_array(values: Any) -> NDArray[Any]:
    """Values of any kind on the CPU."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes on paper."""
    size = ax.get_position()
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("the axes belong to no figure; make them with plt.subplots")
    width, height = figure.get_size_inches()
    return float(size.width * width), float(size.height * height)
