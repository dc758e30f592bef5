"""How good imputations are: errors of points, scores of draws, coverage of intervals."""

from __future__ import annotations

import numpy as np

from vfg.tables.cells import Array, Mask


def point_errors(point: Array, truth: Array, missing: Mask) -> dict[str, float]:
    """Mean squared and mean absolute error over the missing cells."""
    errors = (point - truth)[missing]
    return {"mse": float(np.square(errors).mean()), "mae": float(np.abs(errors).mean())}


def crps(draws: Array, truth: Array, missing: Mask) -> float:
    """Continuous ranked probability score, mean over the missing cells.

    The pairs are weighted by 1/(n(n-1)), so that the score does not depend on how many draws there
    are, in expectation.
    """
    values = np.sort(draws[:, missing], axis=0)
    count = len(values)
    distance = np.abs(values - truth[missing]).mean(axis=0)
    # In sorted order the sum of all pairwise distances is a weighted sum of the values.
    weights = 2.0 * np.arange(1, count + 1) - count - 1.0
    spread = weights @ values / (count * (count - 1))
    return float((distance - spread).mean())


def energy(draws: Array, truth: Array, missing: Mask) -> float:
    """Energy score of each row's missing cells taken together, mean over rows that miss any."""
    rows = missing.any(axis=1)
    hidden = missing[rows]
    values = np.where(hidden, draws[:, rows], 0.0)
    target = np.where(hidden, truth[rows], 0.0)
    count = len(values)
    distance = np.linalg.norm(values - target, axis=2).mean(axis=0)
    spread = np.zeros_like(distance)
    for first in range(count):
        spread += np.linalg.norm(values[first + 1 :] - values[first], axis=2).sum(axis=0)
    return float((distance - spread / (count * (count - 1))).mean())


def intervals(draws: Array, level: float) -> tuple[Array, Array]:
    """Central intervals from draws.

    Quantiles are read at i/(n+1), so that 19 draws or more have the level on average; with
    fewer, least and most of them stand for the ends, and the interval is too narrow.
    """
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0, method="weibull")
    return low, high


def coverage(low: Array, high: Array, truth: Array, missing: Mask) -> dict[str, object]:
    """Share of missing cells inside their intervals, also by thirds of width, and mean width."""
    lower, upper, values = low[missing], high[missing], truth[missing]
    inside = (lower <= values) & (values <= upper)
    width = upper - lower
    thirds = np.array_split(np.argsort(width, kind="stable"), 3)
    return {
        "coverage": float(inside.mean()),
        "width": float(width.mean()),
        "coverage_by_width": [float(inside[third].mean()) for third in thirds],
    }
