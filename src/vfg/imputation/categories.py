r"""Probabilities of categories, and the categories of draws.

A category $c$ with the frequency $\pi_c$ is a code point $m_c$ of its column's section. Let the
model expect the mean $\mu$ with the covariance $\Sigma$ there given the evidence, and $\mu_0$,
$\Sigma_0$ without any. Then

$$P(c) \propto \pi_c\, N(m_c; \mu, \Sigma) / N(m_c; \mu_0, \Sigma_0),$$

which is Bayes' rule for the likelihood of the evidence given the point, and $\pi_c$ without
evidence. Columns of up to nine categories without order have probabilities that are linear in
$\mu$. For others let $V(c)$ be the share of $c$ among similar rows (see
`vfg.imputation.row_mixture`). Both are pooled,

$$\log P^*(c) = \log \pi_c + a_1 \log \frac{P(c)}{P_0(c)}
    + a_2 \log \frac{V(c)}{V_0(c)} + \text{const},$$

where $P_0$ and $V_0$ are those without evidence, with weights of every column that maximise the
likelihood of held-out cells. A second stage changes these probabilities further. Let $e$ be the
share of the other columns that is known, $Q(c)$ the share of $c$ among trees, $R(c)$ the
probability by a logistic regression, both mixed with a little of $\pi_c$, and $l_X$ the logarithm
of $X(c) / \pi_c$:

$$\log P^{**}(c) = \log \pi_c + (1 - e) \frac{l_{P^*} + l_R}{2}
    + e (b_1 l_{P^*} + b_2 l_Q + b_3 l_R) + \text{const}.$$

Their weights are fitted alike; see `vfg.imputation.trees`. Columns of more than nine categories
have no regression; there $l_{P^*}$ stands for $l_R$, and $b_3$ is 0. Filled cells have the most
probable category.

A draw $v$ of the section becomes a category with the probability

$$P(c \mid v) \propto P(c)\, N(v; m_c, S) / N(m_c; \mu, \Sigma + S), \quad S = \tfrac12 \Sigma,$$

so that it goes with the other columns of the draw. Categories have the shares $P(c)$ among draws
but for the variation of the normaliser, for which a factor per category makes up. Where draws are
no Normal variables, shares of later draws make up for those of earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from vfg.tables.categorical import CategoricalEncoding, OrdinalEncoding, softmax, spread_codes
from vfg.tables.cells import Array, Label, Mask
from vfg.tables.encoding import Encoding

MODEL_ALONE = (1.0, 0.0)
"""Weights of columns whose probabilities are linear in the means, which hold the votes. With
fitted weights, log scores of few categories were 1 to 3 % worse in three of four mixed tables."""
POOLING = (0.6, 0.4)
"""Prior weights of the model and of the votes for other columns: about those of large tables."""
POOLING_PRIOR = 20.0
"""Weight of prior weights, in cells whose log probabilities differ by 1."""
SMOOTHING = 0.1
"""The share of the frequencies in the shares of trees, so that no category is impossible because 50
trees have no vote for it. Of 0.05, 0.1 and 0.2 none was clearly best on ten mixed tables."""
REGRESSION_SMOOTHING = 0.02
"""The same in the probabilities of regressions, which are 0 for no category."""
SET_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
"""Levels at which thresholds of sets are kept; those between are interpolated."""
SET_PRIOR = 30.0
"""Weight, in cells, of the other columns in the thresholds of sets. On ten mixed tables for tuning,
two fits each, sets of the level 90 % held 91.1, 90.7, 90.4 and 90.1 % with 0, 10, 30 and 100, and
between 88 and 93 % in 8, 11, 12 and 10 fits."""
KERNEL = 0.5
"""Size of S next to Σ: small enough that a category goes with the other columns of its draw, large
enough that several categories compete for it."""
GAIN, RARE_GAIN = 3.0, 0.5
"""How much a category that was drawn once too seldom gains in log probability: 3, or 0.5 / P(c) for
rare ones, whose share is then off by a part of itself. From 2 / P(c) on shares would oscillate."""
SCALINGS = 8, 32
"""Steps in which the factors of categories are fitted, for every row and without evidence."""
POINTS = 256, 4096
"""Fixed points, spread like a standard Normal, that the factors are fitted to, likewise."""
ATOMS = 0.8
"""The share of draws that are assumed to lie at code points, by the probabilities of these, as
those of row mixtures do; the others are Normal."""
RARE = 0.05
"""Probability below which a category is drawn whatever the other columns of the draw are."""
MOST_SCALED, FEWEST_POINTS = 64, 32
"""Categories up to which all of these points are used, fewer in proportion above, which bounds the
time; and the fewest."""
LEAST_VARIANCE = 1e-6
"""Added to variances, so that sections that follow from others have a density."""
TINY = 1e-12
"""Added to shares and probabilities before logarithms."""
CHUNK = 2**22
"""Numbers of draws, rows and categories that are computed together, which bounds memory."""


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories in a matrix."""

    part: CategoricalEncoding | OrdinalEncoding
    places: list[int]  # the columns of its section

    @property
    def frequencies(self) -> Array:
        """The shares of the categories, none of them 0."""
        counts = np.maximum(self.part.counts, TINY)
        return np.asarray(counts / counts.sum())


def category_columns(encoding: Encoding, columns: Sequence[int]) -> dict[Label, CategoryColumn]:
    """The columns of categories among the modelled columns of a matrix, by label."""
    place = {column: k for k, column in enumerate(columns)}
    return {
        label: CategoryColumn(part, [place[column] for column in encoding.places(label)])
        for label, part in encoding.parts.items()
        if isinstance(part, CategoricalEncoding | OrdinalEncoding)
        and label not in encoding.idle
        and encoding.sections[label].start in place
    }


@dataclass(frozen=True)
class SecondStage:
    """Categories as trees and regressions predict them from filled rows, and their weights."""

    shares: Array  # of the categories among trees, (rows, categories)
    trust: Array  # the share of the other columns that is known, (rows, 1)
    weights: tuple[float, ...]  # of other parts, of trees, of the regression
    """Files of earlier versions have two, or that of trees alone."""
    regression: Array | None = None  # probabilities, (rows, categories); None without one

    def pool(self, others: Array, frequencies: Array) -> Array:
        """Probabilities `(rows, categories)` by the second stage and by all other parts."""
        if len(self.weights) == 1:
            mixed = np.minimum(self.weights[0] * self.trust, 1.0)
            return np.asarray(others + mixed * (self.shares - others))
        base, gains = self.gains(others, frequencies)
        pooled = softmax(base + pool(gains, self.weights))
        return np.where(self.trust > 0.0, pooled, others)  # the same bits without evidence

    def gains(self, others: Array, frequencies: Array) -> tuple[Array, tuple[Array, ...]]:
        """Logarithms without the second stage's weights, and what the weights multiply."""
        base = np.log(frequencies)
        model = np.log(others + TINY) - base
        trees = _smooth(self.shares, frequencies, SMOOTHING) - base
        if self.regression is None:
            return base + (1.0 - self.trust) * model, (self.trust * model, self.trust * trees)
        regression = _smooth(self.regression, frequencies, REGRESSION_SMOOTHING) - base
        start = base + (1.0 - self.trust) * 0.5 * (model + regression)
        return start, (self.trust * model, self.trust * trees, self.trust * regression)

    def select(self, rows: slice) -> SecondStage:
        """Some of the rows."""
        regression = None if self.regression is None else self.regression[rows]
        return SecondStage(self.shares[rows], self.trust[rows], self.weights, regression)


def _smooth(shares: Array, frequencies: Array, share: float) -> Array:
    return np.asarray(np.log((1.0 - share) * shares + share * frequencies))


@dataclass(frozen=True)
class Section:
    """What is expected in the section of a column of categories."""

    column: CategoryColumn
    means: Array  # (rows, width)
    covariances: Array | None  # (rows, width, width); None if they are not needed
    prior: Section | None = None  # the same without evidence, one row; None if this is it
    votes: Array | None = None  # shares of categories among similar rows, (rows, categories)
    pooling: tuple[float, float] = MODEL_ALONE  # weights of Bayes' rule and of the votes
    own_points: tuple[Array, Array] | None = None  # categories of rows, and points for them
    second: SecondStage | None = None

    @property
    def part(self) -> CategoricalEncoding | OrdinalEncoding:
        """The encoding of the column."""
        return self.column.part

    @cached_property
    def probabilities(self) -> Array:
        """The probability of every category, `(rows, categories)`."""
        if self.second is None:
            return self._pooled
        return self.second.pool(self._pooled, self.column.frequencies)

    @cached_property
    def _pooled(self) -> Array:
        """Probabilities by the model and the votes, without the second stage."""
        if self.votes is None or self.pooling == MODEL_ALONE:
            return self.model_probabilities
        base = np.log(self.column.frequencies) + np.zeros((len(self.means), 1))
        gains = 0.0 if self.prior is None else pool(self.gains, self.pooling)
        return softmax(base + gains)

    @property
    def gains(self) -> tuple[Array, Array]:
        """Log probabilities next to those without evidence, of the model and of the votes."""
        start = self.prior
        assert start is not None
        assert self.votes is not None
        assert start.votes is not None
        model = np.log(self.model_probabilities + TINY) - np.log(start.model_probabilities + TINY)
        return model, np.log(self.votes + TINY) - np.log(start.votes + TINY)

    @cached_property
    def model_probabilities(self) -> Array:
        """Probabilities by the means of the section, without votes."""
        if self.part.is_simplex:
            return self.part.probabilities(self.means)
        logs = np.log(self.column.frequencies) + np.zeros((len(self.means), 1))
        if self.prior is not None:
            squares = (self.prior.whitened**2).sum(1) - (self.whitened**2).sum(1)
            if self.own_points is not None:
                places, points = self.own_points
                squares[np.arange(len(points)), places] = sum(
                    sign
                    * (np.linalg.solve(at._roots, (points - at.means)[..., None]) ** 2).sum((1, 2))
                    for sign, at in ((1.0, self.prior), (-1.0, self))
                )
            logs += 0.5 * squares
        return softmax(logs)

    @property
    def most_probable(self) -> Array:
        """The code points of the most probable categories, `(rows, width)`."""
        return np.asarray(self.part.points[self.probabilities.argmax(1)])

    @cached_property
    def whitened(self) -> Array:
        """Points of categories where a row's Normal is standard, `(rows, width, categories)`."""
        return np.asarray(np.linalg.solve(self._roots, self.part.points.T - self.means[..., None]))

    def choose(self, draws: Array, uniforms: Array) -> Array:
        """The code points of the categories that draws become, `(draws, rows, width)`.

        Args:
            draws: of the section, `(draws, rows, width)`.
            uniforms: numbers in (0, 1), `(draws, rows)`.
        """
        chosen = np.empty(draws.shape[:2], dtype=np.int64)
        size = max(1, CHUNK // (max(len(draws), POINTS[0]) * len(self.part.points)))
        for start in range(0, len(self.means), size):
            rows = slice(start, start + size)
            some = self.select(rows)
            centred = (draws[:, rows] - some.means).transpose(1, 2, 0)
            drawn = np.linalg.solve(some._roots, centred).transpose(0, 2, 1)
            logs = drawn @ (some.whitened / KERNEL) + (some._logs + some.factors)[:, None]
            due = np.zeros_like(some.probabilities)
            gains = np.maximum(GAIN, RARE_GAIN / (some.probabilities + TINY))
            rare = some.probabilities < np.minimum(RARE, some.probabilities.max(1, keepdims=True))
            seldom = np.where(rare, some.probabilities, 0.0)
            likely = 1.0 - seldom.sum(1, keepdims=True)
            for draw, uniform in enumerate(uniforms[:, rows]):
                # Rare categories do not depend on the draw, so that their shares are exact.
                common = np.where(rare, -np.inf, logs[:, draw] + gains * due)
                shares = softmax(common) * likely + seldom
                due += some.probabilities - shares
                below = shares.cumsum(-1)
                chosen[draw, rows] = (below < uniform[:, None] * below[:, -1:]).sum(-1)
        return np.asarray(self.part.points[chosen.clip(max=len(self.part.points) - 1)])

    def select(self, rows: slice) -> Section:
        """Some of the rows."""
        assert self.covariances is not None
        votes = None if self.votes is None else self.votes[rows]
        inner = self.means[rows], self.covariances[rows]
        second = None if self.second is None else self.second.select(rows)
        return Section(self.column, *inner, self.prior, votes, self.pooling, second=second)

    @cached_property
    def factors(self) -> Array:
        """Logarithms of factors that give categories their shares, `(rows, categories)`."""
        factors = np.zeros((1, 1)) if self.prior is None else self.prior.factors
        kind = int(self.prior is None)
        fewer = max(1, len(self.part.points) // MOST_SCALED)
        points = spread_codes(
            POINTS[kind] // min(fewer, POINTS[kind] // FEWEST_POINTS), self.part.width
        )
        slopes, offsets = self.whitened / KERNEL, self._logs[:, None]
        base, atoms = points @ slopes + offsets, self.whitened.transpose(0, 2, 1) @ slopes + offsets
        for _ in range(SCALINGS[kind]):
            spread = softmax(base + factors[:, None]).mean(1)
            there = softmax(atoms + factors[:, None])
            shares = (self.probabilities[:, None] @ there)[:, 0]
            shares = ATOMS * shares + (1.0 - ATOMS) * spread
            factors = factors + np.log((self.probabilities + TINY) / (shares + TINY))
        return factors

    @cached_property
    def _logs(self) -> Array:
        """log P(c) − log N(m; μ, Σ + S) + log N(v; m, S) where v is the mean, but for constants."""
        squares = (self.whitened**2).sum(1)
        inner = 1.0 / (1.0 + KERNEL) - 1.0 / KERNEL
        return np.asarray(np.log(self.probabilities + TINY) + 0.5 * inner * squares)

    @cached_property
    def _roots(self) -> Array:
        assert self.covariances is not None
        noise = LEAST_VARIANCE * np.eye(self.part.width)
        return np.asarray(np.linalg.cholesky(self.covariances + noise))


def pool(sources: Iterable[Array], weights: Sequence[float]) -> Array:
    """Weighted sums of logarithms of probabilities, `(rows, categories)`.

    There may be more weights than sources.
    """
    return np.asarray(sum(weight * own for own, weight in zip(sources, weights, strict=False)))


@dataclass(frozen=True)
class HeldOutCategories:
    """Held-out cells of a column of categories."""

    base: Array  # logarithms of the frequencies, (categories,), or (cells, categories)
    sources: tuple[Array, ...]  # log probabilities next to those without evidence, alike
    truth: Array  # the places of the categories, (cells,)

    @classmethod
    def of(cls, section: Section, truth: Array) -> HeldOutCategories:
        """From what is expected at held-out cells, and what is there."""
        return cls(np.log(section.column.frequencies), section.gains, truth)

    def loss(self, weights: Array) -> tuple[float, Array]:
        """Minus the sum of log probabilities of the truth, and its gradient."""
        logs = scipy.special.log_softmax(self.base + pool(self.sources, weights.tolist()), axis=1)
        rows, shares, slopes = np.arange(len(self.truth)), np.exp(logs), np.zeros(len(weights))
        for place, own in enumerate(self.sources):
            slopes[place] = (shares * own).sum() - own[rows, self.truth].sum()
        return float(-logs[rows, self.truth].sum()), slopes


def fit_pooling(
    columns: Sequence[Sequence[HeldOutCategories] | None],
    start: tuple[float, ...] = POOLING,
    priors: tuple[float, float] = (POOLING_PRIOR, POOLING_PRIOR),
) -> Array:
    """The weights of the sources for every column, `(columns, sources)`.

    Weights of all columns together are shrunk to `start`, those of a column to these; `priors` are
    the weights of both in cells. Columns that are None use the model alone.
    """
    every = [cells for column in columns for cells in column or ()]
    common = _fit_weights(every, np.array(start), priors[0])
    weights = [
        MODEL_ALONE if own is None else _fit_weights(own, common, priors[1]) for own in columns
    ]
    return np.array(weights).reshape(-1, len(start))


def _fit_weights(held_out: Sequence[HeldOutCategories], centre: Array, prior: float) -> Array:
    def loss(weights: Array) -> tuple[float, Array]:
        away = weights - centre
        total, slope = 0.5 * prior * float(away @ away), prior * away
        for cells in held_out:
            one, own = cells.loss(weights)
            total, slope = total + one, slope + own
        return total, slope

    result = scipy.optimize.minimize(
        loss, centre, jac=True, method="L-BFGS-B", bounds=[(0.0, 2.0)] * len(centre)
    )
    return np.asarray(result.x)


def fit_set_thresholds(columns: Sequence[Sequence[tuple[Array, Array]]]) -> Array:
    r"""The least probability of the categories in a set, `(columns, levels)`, by `SET_LEVELS`.

    Held-out cells of every column are given as probabilities `(cells, categories)` and places of
    the true categories. Let $G(p)$ be how often cells of a column have a category that is less
    probable than $p$, if its probabilities are right. The score of a cell is $G$ at the probability
    of its true category. It is uniform in every column where probabilities are right, so cells of
    all columns can be pooled: those of a column count once each, and those of all others as
    `SET_PRIOR` cells at most. The threshold of a level $L$ is where $G$ is the $1 - L$ quantile of
    the scores. One more cell, with the score 0, makes up for the number of cells being finite, as
    in split-conformal prediction; so few cells give sets of all categories. Columns without
    held-out cells have NaN.
    """
    known = [k for k, cells in enumerate(columns) if cells]
    scored = [_score_cells(columns[k]) for k in known]
    thresholds = np.full((len(columns), len(SET_LEVELS)), np.nan)
    for place, (own, values, missed) in enumerate(scored):
        others = [scores for k, (scores, _, _) in enumerate(scored) if k != place]
        quantiles = _pooled_quantiles(own, np.concatenate([np.zeros(0), *others]))
        first = np.searchsorted(missed, quantiles - TINY).clip(max=len(values) - 1)
        # With too few cells all categories are in a set, but for those of observed cells.
        thresholds[known[place]] = np.where(quantiles > TINY, values[first], TINY)
    return thresholds


def _score_cells(cells: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """G at the true categories; all probabilities in order, and G at each of them."""
    shares, truth = (np.concatenate(part) for part in zip(*cells, strict=True))
    values = np.sort(shares.ravel())
    sums = np.concatenate([np.zeros(1), np.cumsum(values)]) / len(shares)
    true = shares[np.arange(len(truth)), truth]
    scores, missed = (sums[np.searchsorted(values, at)] for at in (true, values))
    return scores, values, missed


def _pooled_quantiles(own: Array, others: Array) -> Array:
    """Quantiles of the scores of a column at 1 minus the levels, `(levels,)`."""
    every = np.concatenate([np.zeros(1), own, others])
    weights = np.ones(len(every))
    weights[len(own) + 1 :] = min(1.0, SET_PRIOR / max(len(others), 1))
    order = np.argsort(every, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(below, 1.0 - np.array(SET_LEVELS) + TINY, side="right")
    return np.asarray(every[order[places.clip(max=len(order) - 1)]])


def without_own(column: CategoryColumn, shares: Array, truth: Array) -> Array:
    """Probabilities at held-out cells as if these had not been counted in the frequencies.

    A category that occurs once is then impossible, as it is where its only cell is missing. Columns
    of up to nine categories without order have probabilities that hardly depend on the counts.
    """
    if column.part.is_simplex:
        return shares
    counts, rows, less = np.asarray(column.part.counts)[truth], np.arange(len(truth)), shares.copy()
    less[rows, truth] *= np.maximum(counts - 1.0, 0.0) / np.maximum(counts, TINY)
    return np.asarray(less / np.maximum(less.sum(1, keepdims=True), TINY))


def choose_sets(shares: Array, level: float, thresholds: Array | None = None) -> Mask:
    """Which categories are in the sets of a level, `(rows, categories)`.

    These are all categories that are at least as probable as the threshold, and the most probable
    one. Without thresholds they are the fewest whose probabilities sum to the level.

    Example:
        >>> shares = np.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25]])
        >>> choose_sets(shares, 0.8).tolist()
        [[True, True, False], [True, True, True]]
        >>> choose_sets(shares, 0.9, np.full(len(SET_LEVELS), 0.3)).tolist()
        [[True, False, False], [True, True, False]]
    """
    if thresholds is None or np.isnan(thresholds).any():
        order = np.sort(shares, axis=1)[:, ::-1]
        last = np.argmax(order.cumsum(1) >= min(level, 1.0 - TINY) - TINY, axis=1)
        return np.asarray(shares >= order[np.arange(len(shares)), last, None])
    highest = SET_LEVELS[-1]
    least = np.interp(level, SET_LEVELS, thresholds)
    least *= min(1.0, (1.0 - level) / (1.0 - highest))  # beyond the highest level
    return np.asarray(shares >= np.minimum(least, shares.max(1, keepdims=True)))
