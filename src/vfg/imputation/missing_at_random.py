"""How well other columns explain which cells are missing: the rivals of their own values.

Which cells of a column are missing may depend on other columns and on which cells of these are
missing. Logistic regressions say how much; their evidence, a logarithm of a Bayes factor against
cells that are missing completely at random, is by Laplace's method.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from vfg.tables.cells import Array, Mask

FEWEST = 20
"""Missing and observed cells of a column below which its slope is the common one."""
COMMON_SPREAD = 1.0
"""Deviation of the common slope in its prior."""
PREDICTORS = 20
"""Columns that may explain the missing cells of another one, at most, which bounds the time."""
DRIVERS = 5
"""Columns of which each is tried as the one that all missing cells depend on."""
RIDGES = (1.0, 10.0, 100.0)
"""Prior precisions of their coefficients, among which the evidence chooses for every column."""
BLOCKED = 0.68
"""How much of what there is to explain masks of other columns may explain. Above it columns are
missing in blocks, and a reason that they have in common looks like slopes. It was 0.70 to 0.97 for
blocks of two and three columns and 100 to 2,000 rows, and at most 0.66 for cells missing by their
value on seven tables."""
MARGIN = 10.0
"""Logarithm of the Bayes factor above which cells count as missing by their value. On 14 UCI tables
it was below 0 for cells missing completely at random, also in blocks, and 28 to 950 for cells
missing by their value, one table of independent columns aside."""
HEAVIEST = 10.0
"""The most that a missing cell may count that stands for observed ones, in average cells."""


def explain_by_masks(observed: Mask, chosen: Array) -> tuple[Array | None, Array]:
    """Log-odds of missing cells given which other cells are missing; None if they are independent.

    Cells that are missing together say nothing about values. Second, the evidence by column.
    """
    missing = (~observed).astype(float)
    found = [_explain(np.delete(missing, column, axis=1), missing[:, column]) for column in chosen]
    evidence = np.array([one.evidence for one in found])
    if sum(max(0.0, one.evidence) for one in found) <= MARGIN:
        return None, evidence
    return np.stack([one.logits for one in found], axis=1), evidence


def are_blocks(observed: Mask, chosen: Array, evidence: Array) -> bool:
    """Whether columns are missing together, so that nothing is left for their values to explain.

    The evidence is that of masks of other columns, by column.
    """
    share = (~observed[:, chosen]).mean(0)
    most = len(observed) * (scipy.special.entr(share) + scipy.special.entr(1.0 - share))
    return bool(np.median(evidence / most) > BLOCKED)


def weigh_as_observed(completed: Array, observed: Mask) -> Array:
    """Weights of missing cells with which their rows are like those where the column is observed.

    They are the odds that a cell is observed given the other columns, relative to their mean.

    Example:
        >>> completed = np.repeat([[0.0, 0.0], [0.0, 1.0]], 200, axis=0)
        >>> observed = np.arange(400)[:, None] % [4, 1] >= [1, 0]
        >>> observed[200:, 0] = np.arange(200) % 4 == 0
        >>> weights = weigh_as_observed(completed, observed)[:, 0]
        >>> [round(float(weights[rows].max()), 1) for rows in (slice(200), slice(200, None))]
        [2.9, 0.4]
    """
    weights = (~observed).astype(float)
    for column in np.flatnonzero((~observed).sum(0) >= FEWEST):
        missing = ~observed[:, column]
        found = _explain(np.delete(completed, column, axis=1), missing.astype(float))
        odds = np.exp(-found.logits[missing])
        weights[missing, column] = np.minimum(odds / odds.mean(), HEAVIEST)
    return weights


def masks_beyond(logits: Array, observed: Mask, chosen: Array) -> float:
    """log Bayes factor of the model that masks of other columns matter beside some logits."""
    missing = (~observed).astype(float)
    return sum(
        max(0.0, _explain(np.delete(missing, column, axis=1), missing[:, column], own).evidence)
        for column, own in zip(chosen, logits.T, strict=True)
    )


def evidence_of_rivals(
    views: list[Array], observed: Mask, chosen: Array, offsets: Array | None
) -> Array:
    """log Bayes factors of columns: their missing cells depend on one or all other columns."""
    return np.maximum(
        evidence_of_others(views, observed, chosen, offsets),
        evidence_of_one(views, observed, chosen, offsets),
    )


def evidence_of_others(
    views: list[Array], observed: Mask, chosen: Array, offsets: Array | None
) -> Array:
    """log Bayes factors of columns: their missing cells depend on the other columns."""
    views = [(values - values.mean(0)).clip(-4.0, 4.0) for values in views]
    found = []
    for place, column in enumerate(chosen):
        missing = (~observed[:, column]).astype(float)
        start = None if offsets is None else offsets[:, place]
        fits = [_explain(np.delete(view, column, axis=1), missing, start) for view in views]
        found.append(max(fit.evidence for fit in fits))
    return np.array(found)


def evidence_of_one(
    views: list[Array], observed: Mask, chosen: Array, offsets: Array | None
) -> Array:
    """log Bayes factors of columns: their missing cells depend on one of the other columns."""
    found = [_evidence_of_one_in(view, observed, chosen, offsets) for view in views]
    return np.asarray(np.max(found, axis=0))


def _evidence_of_one_in(
    values: Array, observed: Mask, chosen: Array, offsets: Array | None
) -> Array:
    """The same, of columns as a view has them."""
    values = values.clip(-4.0, 4.0)
    values = (values - values.mean(0)) / (values.std(0) + 1e-9)
    found = []
    for place, column in enumerate(chosen):
        missing = (~observed[:, column]).astype(float)
        share = missing.mean()
        logits = np.log(share / (1.0 - share)) if offsets is None else offsets[:, place]
        start = np.zeros(len(missing)) + logits
        scores = np.abs((missing - scipy.special.expit(start)) @ values)
        scores[column] = -1.0
        fits = [
            _logistic(np.stack([values[:, k], np.ones(len(missing))], 1), missing, start, 1.0)
            for k in np.argsort(-scores, kind="stable")[: min(2, len(scores) - 1)]
        ]
        best = max((fit.evidence for fit in fits), default=0.0)
        found.append(best - np.log(max(1, values.shape[1] - 1)))
    return np.array(found)


def evidence_of_a_driver(
    views: list[Array], observed: Mask, chosen: Array, offsets: Array | None
) -> float:
    """log Bayes factor of the model that the missing cells of all columns depend on one of them.

    With one slope for all columns, it is as simple as slopes of their own values.
    """
    return max(_evidence_of_a_driver_in(view, observed, chosen, offsets) for view in views)


def _evidence_of_a_driver_in(
    values: Array, observed: Mask, chosen: Array, offsets: Array | None
) -> float:
    """The same, of columns as a view has them."""
    missing = (~observed[:, chosen]).astype(float)
    values = (values - values.mean(0)).clip(-4.0, 4.0)
    scores = ((missing - missing.mean(0)).T @ values) / (values.std(0) + 1e-9)
    scores[range(len(chosen)), chosen] = 0.0
    best = -np.inf
    for driver in np.argsort(-np.abs(scores.sum(0)), kind="stable")[:DRIVERS]:
        own = chosen != driver
        inputs, share = values[:, driver, None], missing[:, own].mean(0)
        start = np.log(share / (1.0 - share)) if offsets is None else offsets[:, own]
        intercepts, slope = start.copy(), 0.0
        for _ in range(6):
            chance = scipy.special.expit(intercepts + slope * inputs)
            left, weight = missing[:, own] - chance, chance * (1.0 - chance)
            total = weight.sum(0) + 1e-9
            centre = (weight * inputs).sum(0) / total
            information = float((weight * (inputs - centre) ** 2).sum())
            score = float((left * (inputs - centre)).sum()) - slope / COMMON_SPREAD**2
            change = score / (information + COMMON_SPREAD**-2)
            slope += change
            intercepts = intercepts + left.sum(0) / total - centre * change
        logits = intercepts + slope * inputs
        gain = log_probs(logits, missing[:, own]).sum() - log_probs(start, missing[:, own]).sum()
        by_row = ((missing[:, own] - scipy.special.expit(logits)) * (inputs - centre)).sum(1)
        clustering = max(1.0, float((by_row**2).sum()) / max(information, 1e-9))
        penalty = (slope / COMMON_SPREAD) ** 2 + np.log1p(COMMON_SPREAD**2 * information)
        best = max(best, float(gain / clustering - 0.5 * penalty - np.log(values.shape[1])))
    return best


class _Explained(NamedTuple):
    """A logistic regression of missing cells."""

    logits: Array
    evidence: float  # log Bayes factor against the start


def _explain(inputs: Array, missing: Array, start: Array | None = None) -> _Explained:
    """The logistic regression on some of the inputs with the ridge of most evidence."""
    share = missing.mean()
    start = np.full(len(missing), np.log(share / (1.0 - share))) if start is None else start
    inputs = inputs - inputs.mean(0)
    scores = (missing - scipy.special.expit(start)) @ inputs / (inputs.std(0) + 1e-9)
    design = inputs[:, np.argsort(-np.abs(scores), kind="stable")[:PREDICTORS]]
    design = np.concatenate([design, np.ones((len(design), 1))], axis=1)
    fits = [_logistic(design, missing, start, ridge) for ridge in RIDGES]
    return max([_Explained(start, 0.0), *fits], key=lambda fit: fit.evidence)


def _logistic(design: Array, missing: Array, start: Array, ridge: float) -> _Explained:
    """A logistic regression beside fixed logits, with its evidence by Laplace's method."""
    prior = np.append(np.full(design.shape[1] - 1, ridge), 0.0)
    weights = np.zeros(design.shape[1])
    for _ in range(5):
        chance = scipy.special.expit(start + design @ weights)
        curvature = (design * (chance * (1.0 - chance))[:, None]).T @ design + np.diag(prior + 1e-9)
        weights += np.linalg.solve(curvature, design.T @ (missing - chance) - prior * weights)
    logits = start + design @ weights
    gain = log_probs(logits, missing).sum() - log_probs(start, missing).sum()
    volume = np.linalg.slogdet(curvature[:-1, :-1])[1] - (len(prior) - 1) * np.log(ridge)
    return _Explained(logits, float(gain - 0.5 * (prior * weights**2).sum() - 0.5 * volume))


def log_probs(logits: Array, missing: Array) -> Array:
    """log-probabilities of what is missing and what is not."""
    return np.asarray(missing * logits - np.logaddexp(0.0, logits))
