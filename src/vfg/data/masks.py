"""Masks that hide cells; `True` marks a missing one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def mcar(shape: tuple[int, int], rate: float, seed: int) -> Mask:
    """Cells missing completely at random: each with the same probability, whatever the values.

    Args:
        shape: of the table.
        rate: the probability of a cell to be missing.
        seed: of the draws.

    Returns:
        The mask, `True` where a cell is missing.

    Example:
        >>> mcar((2, 4), 0.5, seed=0)
        array([[False,  True,  True,  True],
               [False, False, False, False]])
    """
    _check_rate(rate)
    return np.random.default_rng(seed).random(shape) < rate


def mar(table: Array, rate: float, seed: int) -> Mask:
    r"""Cells missing at random: whether they are depends on columns that are always observed.

    A random third of the columns (at least one) is never missing. With their standardised values
    $z$, column $j$ of the others is missing with probability
    $\sigma(w_j^\top z / s_j + b_j)$, where $w_j$ is drawn from a standard Normal, $s_j$ scales
    the logits to standard deviation 1, and $b_j$ makes the mean probability equal to the rate.

    Args:
        table: the complete table, with two columns or more.
        rate: the expected share of missing cells in every column that may be missing.
        seed: of the draws.

    Returns:
        The mask, `True` where a cell is missing.

    Example:
        >>> mask = mar(np.random.default_rng(0).normal(size=(1000, 3)), 0.3, seed=0)
        >>> mask.mean(axis=0).round(1)
        array([0.3, 0.3, 0. ])
    """
    _check_rate(rate)
    rows, columns = table.shape
    if columns < 2:
        raise ValueError(f"mar needs a table with at least two columns, but it has {columns}")
    generator = np.random.default_rng(seed)
    shown = np.sort(generator.permutation(columns)[: max(1, columns // 3)])
    hidden = np.setdiff1d(np.arange(columns), shown)
    weights = generator.normal(size=(len(shown), len(hidden)))
    logits = _standardise(_standardise(table[:, shown]) @ weights)
    mask = np.zeros((rows, columns), dtype=bool)
    mask[:, hidden] = generator.random(logits.shape) < _calibrate(logits, rate)
    return mask


def mnar_self(table: Array, rate: float, seed: int) -> Mask:
    r"""Cells missing not at random: large values are missing more often.

    A cell with standardised value $z$ in column $j$ is missing with probability
    $\sigma(z + b_j)$, where $b_j$ makes the mean probability of the column equal to the rate.

    Args:
        table: the complete table.
        rate: the expected share of missing cells in every column.
        seed: of the draws.

    Returns:
        The mask, `True` where a cell is missing.

    Example:
        >>> table = np.random.default_rng(0).normal(size=(1000, 1))
        >>> mask = mnar_self(table, 0.3, seed=0)
        >>> bool(table[mask].mean() > table[~mask].mean())
        True
    """
    _check_rate(rate)
    logits = _standardise(table)
    return np.random.default_rng(seed).random(table.shape) < _calibrate(logits, rate)


def _check_rate(rate: float) -> None:
    if not 0.0 < rate < 1.0:
        raise ValueError(f"the rate of missing cells must lie strictly between 0 and 1, not {rate}")


def _standardise(table: Array) -> Array:
    """Columns with mean 0 and standard deviation 1; constant columns become 0."""
    spread = table.std(axis=0)
    centred: Array = table - table.mean(axis=0)
    return centred / np.where(spread > 0, spread, 1.0)


def _calibrate(logits: Array, rate: float) -> Array:
    """Probabilities by a logistic whose intercept per column makes their mean the rate."""
    from scipy.optimize import brentq
    from scipy.special import expit

    def excess(intercept: float, column: Array) -> float:
        return float(expit(column + intercept).mean() - rate)

    # At these ends every single probability is beyond the rate, so they enclose the intercept.
    reach = float(np.abs(logits).max(initial=0.0) + abs(np.log(rate / (1.0 - rate))) + 1.0)
    intercepts = [brentq(excess, -reach, reach, args=(column,)) for column in logits.T]
    probabilities: Array = expit(logits + np.array(intercepts))
    return probabilities
