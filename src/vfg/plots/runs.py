"""Training histories, log-likelihoods, and the consistency of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from vfg.gaussian import LikelihoodHistory
from vfg.plots.style import (
    FILLED,
    HAIRLINE,
    INK,
    LINE,
    MARKERS,
    OBSERVED,
    REFERENCE,
    SMALL,
    axes_or_new,
    legend,
    plain,
    tidy,
)
from vfg.training import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(history: History, ax: Axes | None = None) -> Axes:
    """Draw a training run: the loss, the held-out loss, and the epoch that was kept.

    Args:
        history: what `vfg.fit` returned.
        ax: where to draw; None makes a new figure.

    Returns:
        The axes of the loss; those of the held-out loss, if there is one, share its epochs.

    Raises:
        ValueError: if there are no epochs.

    Example:
        >>> from vfg.training.history import Epoch
        >>> run = History()
        >>> _ = run.add(Epoch(0, -3.0, -1.0, 0.5, 0.5, -1.0, 0.0, 1.2, 1e-3, 1.0, 0.1))
        >>> history(run).get_ylabel()
        'minus objective'
    """
    if not len(history):
        raise ValueError("the history has no epochs; train a model with vfg.fit first")
    ax = tidy(axes_or_new(ax), x="epoch", y="minus objective")
    numbers = [epoch.number for epoch in history]
    lines = ax.plot(
        numbers, [-epoch.objective for epoch in history], color=OBSERVED, linewidth=LINE,
        label="training",
    )  # fmt: skip
    scores = [epoch.validation for epoch in history if epoch.validation is not None]
    if len(scores) == len(numbers):
        other = ax.twinx()
        other.spines["top"].set_visible(False)
        other.tick_params(labelsize=SMALL)
        other.set_ylabel("held-out loss of a cell", fontsize=SMALL + 1)
        lines += other.plot(
            numbers, scores, color=FILLED, linewidth=LINE, linestyle="--", label="held out"
        )
        best = history.best or 0  # the epoch whose state the model has
        lines += other.plot(
            [best], [scores[best]], marker="o", linestyle="none", color=FILLED, label="kept"
        )
    legend(ax, lines)
    return ax


def likelihoods(history: LikelihoodHistory, ax: Axes | None = None) -> Axes:
    """Draw the fit of an exact model: the mean log-likelihood of a row, iteration by iteration.

    Args:
        history: what `GaussianVFG.fit` returned.
        ax: where to draw; None makes a new figure.

    Example:
        >>> ax = likelihoods(LikelihoodHistory(log_likelihoods=[-3.0, -2.0]))
        >>> ax.lines[0].get_ydata().tolist()
        [-3.0, -2.0]
    """
    ax = tidy(axes_or_new(ax), x="iteration", y="log-likelihood of a row")
    result = history.log_likelihoods
    ax.plot(range(1, len(result) + 1), result, color=OBSERVED, linewidth=LINE, label="EM")
    if history.steps:
        later = [len(result) + place + 1 for place in range(len(history.steps))]
        ax.plot(
            later, history.steps, color=FILLED, linewidth=LINE, linestyle="--", label="gradient"
        )
    legend(ax)
    return ax


def consistency(distances: Mapping[str, Tensor], ax: Axes | None = None) -> Axes:
    """Draw how far forward and backward states are apart, node by node, the first on top.

    A dot is the mean over rows, a line the range between their 5 % and 95 % quantiles.

    Args:
        distances: what `VFG.consistency` returned: `(rows,)` by node.
        ax: where to draw; None makes a new figure.

    Raises:
        ValueError: if there are no nodes.

    Example:
        >>> import torch
        >>> ax = consistency({"a": torch.tensor([1.0, 3.0]), "root": torch.zeros(2)})
        >>> ax.lines[0].get_xdata().tolist()
        [2.0, 0.0]
    """
    if not distances:
        raise ValueError("there are no nodes to draw; pass what model.consistency(X) returned")
    values = [value.detach().cpu().double().numpy() for value in distances.values()]
    places = np.arange(len(values))
    ax = tidy(
        axes_or_new(ax, height=min(9.0, 0.9 + 0.22 * len(values))),
        x="distance of forward and backward states",
    )
    low, high = np.array([np.nanquantile(value, [0.05, 0.95]) for value in values]).T
    ax.hlines(places, low, high, color=REFERENCE, linewidth=2.5 * HAIRLINE, label="5 to 95 %")
    means = [float(np.nanmean(value)) for value in values]
    ax.plot(means, places, "o", color=OBSERVED, markersize=5, label="mean over rows")
    ax.set_yticks(places, labels=[plain(node) for node in distances])
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.set_xlim(left=0.0)
    legend(ax)
    return ax


def cost(scores: Mapping[str, Sequence[tuple[float, float]]], ax: Axes | None = None) -> Axes:
    """Draw the errors of methods against their seconds, which have a logarithmic axis.

    Args:
        scores: seconds and errors of every method, one pair per repetition; the mean is marked, and
            a line spans the errors. The first method is emphasised.
        ax: where to draw; None makes a new figure.

    Raises:
        ValueError: if there are no scores.

    Example:
        >>> cost({"vfg": [(2.0, 0.5), (3.0, 0.6)], "mean": [(0.01, 1.0)]}).get_xlabel()
        'seconds'
    """
    if not any(len(pairs) for pairs in scores.values()):
        raise ValueError("there are no scores to draw; give pairs of seconds and errors by method")
    ax = tidy(axes_or_new(ax), x="seconds", y="error")
    ax.set_xscale("log")
    ax.margins(x=0.2)
    marks = {}
    for place, (method, pairs) in enumerate(scores.items()):
        seconds, errors = np.array(pairs, dtype=float).reshape(-1, 2).T
        at = float(np.exp(np.log(seconds.clip(min=1e-3)).mean()))
        color = FILLED if place == 0 else OBSERVED
        ax.plot([at, at], [errors.min(), errors.max()], color=color, linewidth=LINE)
        ax.plot(at, errors.mean(), MARKERS[place % len(MARKERS)], color=color, markersize=6)
        marks[plain(method)] = at, float(errors.mean())
    _label_marks(ax, marks)
    return ax


def _label_marks(ax: Axes, marks: Mapping[str, tuple[float, float]]) -> None:
    """Write names beside marks, higher or lower where they would cover another name."""
    ax.autoscale_view()  # else the limits are not those of the marks yet
    point = ax.figure.dpi / 72.0
    boxes: list[tuple[float, float, float]] = []  # left and right end, middle
    for name, mark in sorted(marks.items(), key=lambda item: item[1]):
        left, middle = ax.transData.transform(mark)
        right = left + (6.0 + 0.6 * SMALL * len(name)) * point
        for lift in (3.0, 3.0 + 1.3 * SMALL, 3.0 - 1.3 * SMALL, 3.0 + 2.6 * SMALL):
            height = middle + lift * point
            if all(
                left > end or right < start or abs(height - other) > 1.2 * SMALL * point
                for start, end, other in boxes
            ):
                break
        boxes.append((left, right, height))
        ax.annotate(
            name, mark, xytext=(6, lift), textcoords="offset points", fontsize=SMALL, color=INK
        )
