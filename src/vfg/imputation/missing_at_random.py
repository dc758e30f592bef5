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
COMPLETE = 0.95
"""The share of observed cells from which a column counts as complete."""
MONOTONE = 0.9
"""The share of missing cells whose rows also miss the next column, from which cells are missing
monotonely."""
THRESHOLDS = 39
"""Thresholds that are tried."""
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


def are_monotone(observed: Mask) -> bool:
    """Whether a row that misses a column also misses those that are missing more often.

    So it is where rows drop out for good.

    Example:
        >>> observed = np.arange(4) < np.array([4, 3, 2, 4, 1])[:, None]
        >>> are_monotone(observed), are_monotone(observed[:, [0, 3]])
        (True, False)
    """
    missing = ~observed
    order = _by_missing(missing)
    before, after = missing[:, order[:-1]], missing[:, order[1:]]
    return len(order) > 1 and bool((before & after).sum() >= MONOTONE * before.sum())


def _by_missing(missing: Mask) -> Array:
    """Columns with missing cells, in the order of their numbers."""
    order = np.argsort(missing.sum(0), kind="stable")
    return np.asarray(order[missing[:, order].any(0)])


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

    With one slope for all columns, it is as simple as slopes of their own values. Where rows drop
    out for good, every column has its own: the last one before it.
    """
    return max(
        max(
            _evidence_of_a_driver_in(view, observed, chosen, offsets),
            _evidence_of_the_last(view, observed, chosen, offsets),
        )
        for view in views
    )


def _evidence_of_a_driver_in(
    values: Array, observed: Mask, chosen: Array, offsets: Array | None
) -> float:
    """The same of one column for all others, of columns as a view has them."""
    missing = (~observed[:, chosen]).astype(float)
    values = (values - values.mean(0)).clip(-4.0, 4.0)
    scores = ((missing - missing.mean(0)).T @ values) / (values.std(0) + 1e-9)
    scores[range(len(chosen)), chosen] = 0.0
    best = -np.inf
    for driver in np.argsort(-np.abs(scores.sum(0)), kind="stable")[:DRIVERS]:
        own = chosen != driver
        if not own.any():
            continue
        start = None if offsets is None else offsets[:, own]
        inputs = np.repeat(values[:, driver, None], own.sum(), axis=1)
        found = _fit_shared(inputs[..., None], missing[:, own], start)
        best = max(best, found.evidence - np.log(values.shape[1]))
    return float(best)


def _evidence_of_the_last(
    values: Array, observed: Mask, chosen: Array, offsets: Array | None
) -> float:
    """log Bayes factor of the model that rows drop out by their last value before that.

    It is -inf unless missing cells are monotone.
    """
    missing = ~observed
    if not are_monotone(observed):
        return -np.inf
    order = _by_missing(missing)
    first = np.flatnonzero(~missing.any(0))
    last = dict(zip(order[1:], order[:-1], strict=True))
    if len(first):  # the complete column that goes most with the first one that is not
        absent = missing[:, order[0]] - missing[:, order[0]].mean()
        likeness = np.abs(absent @ values[:, first]) / (values[:, first].std(0) + 1e-9)
        last[order[0]] = first[likeness.argmax()]
    places = [place for place, column in enumerate(chosen) if column in last]
    if not places:
        return -np.inf
    parents = [last[chosen[place]] for place in places]
    inputs = (values - values.mean(0)).clip(-4.0, 4.0)[:, parents]
    start = None if offsets is None else offsets[:, places]
    found = _fit_shared(inputs[..., None], missing[:, chosen[places]].astype(float), start)
    return found.evidence - float(np.log(max(1, len(first))))


class SharedCause(NamedTuple):
    """What complete columns say about the missing cells of all others together."""

    evidence: float  # log Bayes factor against cells missing completely at random
    by_column: Array


def explain_by_complete_columns(views: list[Array], observed: Mask, chosen: Array) -> SharedCause:
    """The model that all columns are missing by the same function of columns that are complete.

    The log-odds of all columns rise with one linear combination of them, or their missing cells are
    more where that, or one of the columns, is above a threshold. It also says which cells are
    missing together.
    """
    missing = (~observed[:, chosen]).astype(float)
    complete = np.flatnonzero(observed.mean(0) > COMPLETE)
    complete = np.setdiff1d(complete, chosen)
    nothing = SharedCause(-np.inf, np.full(len(chosen), -np.inf))
    if not len(complete) or len(chosen) < 2:
        return nothing
    found = [nothing]
    for view in views:
        values = view[:, complete]
        values = ((values - values.mean(0)) / (values.std(0) + 1e-9)).clip(-4.0, 4.0)
        scores = np.abs((missing - missing.mean(0)).sum(1) @ values)
        values = values[:, np.argsort(-scores, kind="stable")[:PREDICTORS]]
        linear = _fit_shared(values[:, None], missing, None)
        found.append(SharedCause(linear.evidence, linear.by_column))
        indices = [values @ linear.weights, *values.T[:DRIVERS]]
        steps = [_evidence_of_thresholds(index, missing) for index in indices]
        found += [SharedCause(one.evidence - np.log(len(complete)), one.by_column) for one in steps]
    return max(found, key=lambda one: one.evidence)


def _evidence_of_thresholds(index: Array, missing: Array) -> SharedCause:
    """Cells are missing at other rates above a threshold than below, integrated over thresholds."""
    order = np.argsort(index, kind="stable")
    rows, sums = len(index), missing[order].cumsum(0)
    ends = np.unique(np.linspace(0, rows, THRESHOLDS + 2).round().astype(int)[1:-1])
    ends = ends[(ends > 0) & (index[order][ends - 1] < index[order][np.minimum(ends, rows - 1)])]
    if not len(ends):
        return SharedCause(-np.inf, np.full(missing.shape[1], -np.inf))
    below, sizes = sums[ends - 1], ends[:, None]
    gains = _log_marginal(below, sizes) + _log_marginal(sums[-1] - below, rows - sizes)
    gains = gains - _log_marginal(sums[-1], rows)
    total = gains.sum(1)
    evidence = float(np.logaddexp.reduce(total) - np.log(len(ends)))
    return SharedCause(evidence, gains[total.argmax()])


def _log_marginal(count: Array, number: Array | int) -> Array:
    """log-probability of which of a number of cells are missing, of an unknown rate."""
    return np.asarray(
        scipy.special.betaln(count + 0.5, number - count + 0.5) - scipy.special.betaln(0.5, 0.5)
    )


class _Shared(NamedTuple):
    """A logistic regression of missing cells with the same weights for all columns."""

    weights: Array
    evidence: float  # log Bayes factor against the start
    by_column: Array


def _fit_shared(inputs: Array, missing: Array, offsets: Array | None) -> _Shared:
    """Weights of inputs `(rows, columns or 1, weights)`, beside intercepts of columns."""
    share = missing.mean(0)
    start = np.log(share / (1.0 - share)) + np.zeros(missing.shape) if offsets is None else offsets
    size, certainty = inputs.shape[2], COMMON_SPREAD**-2
    flat, is_same = inputs.reshape(-1, size), inputs.shape[1] == 1
    weights, logits = np.zeros(size), start.copy()
    for _ in range(6):
        chance = scipy.special.expit(logits)
        left, weight = missing - chance, chance * (1.0 - chance)
        total = weight.sum(0) + 1e-9
        together = weight.sum(1) if is_same else weight.ravel()
        centre = np.einsum("nc,nck->ck", weight, np.broadcast_to(inputs, (*missing.shape, size)))
        centre /= total[:, None]
        information = (flat.T * together) @ flat - (centre.T * total) @ centre
        score = flat.T @ (left.sum(1) if is_same else left.ravel()) - centre.T @ left.sum(0)
        change = np.linalg.solve(
            information + certainty * np.eye(size), score - certainty * weights
        )
        weights = weights + change
        logits = logits + inputs @ change + left.sum(0) / total - centre @ change
    gains = log_probs(logits, missing).sum(0) - log_probs(start, missing).sum(0)
    # Cells of a row that are missing together count as the fewer observations that they are.
    left = missing - scipy.special.expit(logits)
    by_row = np.einsum("nc,nck->nk", left, inputs - centre)
    ratio = np.linalg.solve(information + certainty * np.eye(size), by_row.T @ by_row)
    clustering = max(1.0, float(np.trace(ratio)) / size)
    penalty = certainty * weights @ weights
    penalty += np.linalg.slogdet(np.eye(size) + information / certainty)[1]
    by_column = gains / clustering - 0.5 * penalty / len(gains)
    return _Shared(weights, float(by_column.sum()), by_column)


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
