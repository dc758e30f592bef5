"""The posterior of one target, given evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vfg.inference import Answer
from vfg.inputs import Name
from vfg.plots.style import (
    BAND,
    FILLED,
    LINE,
    REFERENCE,
    axes_or_new,
    legend,
    plain,
    tidy,
    to_array,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
LEVELS = (0.5 + 0.5 * np.sin(np.linspace(-0.5, 0.5, 202)[1:-1] * np.pi)).tolist()
"""Of the quantiles behind a curve, closer to each other in the tails."""
BINS = 30
"""Of histograms; with 1000 draws a bin in the middle then varies by about 15 %."""
DRAWS = 1000
"""How many draws the histogram of an answer is made of."""


def answer(
    answer: Answer,
    target: Name,
    ax: Axes | None = None,
    *,
    row: int = 0,
    coordinate: int = 0,
    level: float = 0.9,
    marginal: Any = None,
) -> Axes:
    """Draw the distribution of one target in one row: density, mean and central interval.

    The density is a curve if quantiles have closed forms, else a histogram of draws. Categories
    have bars with their probabilities, and grey bars with the shares of the marginal.

    Args:
        answer: what `infer` returned.
        target: one of its targets.
        ax: where to draw; None makes a new figure.
        row: which row of the evidence.
        coordinate: which coordinate of the target.
        level: of the interval.
        marginal: values to compare with, such as the column of the training table; in grey.

    Raises:
        ValueError: if the row or the coordinate does not exist, or draws are unknown.

    Example:
        >>> import vfg
        >>> model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
        >>> ax = answer(model.infer({"a": 2.0}, targets=["b"]), "b")
        >>> ax.get_legend_handles_labels()[1]
        ['density', '90 % interval', 'mean']
    """
    if target in answer.categories and target in answer.probabilities:
        return _bars(answer, target, ax, row, marginal)
    exact = answer.exact_quantiles
    values = answer.quantile(LEVELS)[target] if exact else answer.samples(DRAWS)[target]
    draws = _entry(values, row, coordinate, target)
    if np.isnan(draws).any():
        raise ValueError(f"the spread of {target!r} is unknown; see answer.joint")
    ends = answer.quantile([0.5 - level / 2, 0.5 + level / 2])[target]
    low, high = _entry(ends, row, coordinate, target)
    mean = float(_entry(answer.mean[target][None], row, coordinate, target)[0])
    ax = tidy(axes_or_new(ax, height=3.0), x=str(target), y="density")
    others = np.empty(0) if marginal is None else to_array(marginal).astype(np.float64).ravel()
    others = others[np.isfinite(others)]
    edges = np.histogram_bin_edges(np.concatenate([draws, others]), bins=BINS)
    if len(others):
        heights = np.histogram(others, edges, density=True)[0]
        ax.stairs(heights, edges, fill=True, color=REFERENCE, alpha=BAND, label="without evidence")
    if exact:  # between two quantiles lies a known share
        middles, heights = (draws[1:] + draws[:-1]) / 2, np.diff(LEVELS) / np.diff(draws)
        ax.plot(middles, heights, color=FILLED, linewidth=LINE, label="density")
    else:
        heights = np.histogram(draws, edges, density=True)[0]
        ax.stairs(heights, edges, color=FILLED, linewidth=LINE, label="draws")
    words = f"{100 * level:g} % interval"
    ax.axvspan(low, high, color=FILLED, alpha=BAND / 2, linewidth=0, label=words)
    ax.axvline(mean, color=FILLED, linewidth=LINE, linestyle="--", label="mean")
    legend(ax)
    return ax


def _bars(answer: Answer, target: Name, ax: Axes | None, row: int, marginal: Any) -> Axes:
    """The probabilities of categories, from top to bottom."""
    names = [str(name) for name in answer.categories[target]]
    every = to_array(answer.probabilities[target]).reshape(-1, len(names))
    if not 0 <= row < len(every):
        raise ValueError(f"target {target!r} has {len(every)} rows, but row {row} was requested")
    shares, places = every[row], np.arange(len(names))
    ax = tidy(axes_or_new(ax, height=max(1.6, 0.8 + 0.3 * len(names))), x="probability")
    if marginal is not None:
        given = [str(value) for value in to_array(marginal).ravel().tolist()]
        known = np.array([given.count(name) for name in names], dtype=np.float64)
        ax.barh(places, known / max(known.sum(), 1.0), color=REFERENCE, alpha=BAND, height=0.9,
                label="without evidence")  # fmt: skip
    ax.barh(places, shares, color=FILLED, height=0.5, label=str(target))
    ax.set_yticks(places, [plain(name) for name in names])
    ax.invert_yaxis()
    legend(ax)
    return ax


def _entry(values: Any, row: int, coordinate: int, target: Name) -> Array:
    """One coordinate of one row of `(levels, rows)` or `(levels, rows, width)`."""
    values = to_array(values)  # tensors of graphs, arrays of tables
    values = values[..., None] if values.ndim == 2 else values
    if not (0 <= row < values.shape[1] and 0 <= coordinate < values.shape[2]):
        raise ValueError(
            f"target {target!r} has {values.shape[1]} rows and {values.shape[2]} coordinates, but "
            f"row {row} and coordinate {coordinate} were requested"
        )
    result: Array = values[:, row, coordinate].astype(np.float64)
    return result
