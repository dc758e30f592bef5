"""Scores of families from moments of the columns and of their spline features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from vfg.tables.cells import Array, Mask

KNOTS = 6
"""Of the natural cubic splines of a parent. On simulated additive graphs 4 knots missed half of
the functions with two bends."""
FEWEST_VALUES = 8
"""Distinct numbers from which on a column has spline features; with fewer they are collinear."""
ROWS_PER_FEATURE = 3
"""Rows that a family needs for each feature of its parents; with fewer it may fit by chance."""
RIDGE = 1e-6
"""Relative to the variance of a feature: keeps collinear parents solvable, and is far below the
residual variances that decide."""
LEAST_VARIANCE = 1e-4
"""Share of a variance below which what is left of a column counts as nothing. A copy of a column,
or a sum of others, is found once; without this bound, more and more parents fit the rounding
errors of collinear columns. A search over 40 columns of rank 4 takes 80 s with it."""


@dataclass(frozen=True)
class Features:
    """What families are regressed on: the encoded columns of each variable, and its splines.

    Attributes:
        places: the columns of the encoded matrix of each variable.
        knots: of the splines of each variable; None for variables without.
        location: of all features, from the observed cells.
        scale: of all features.
    """

    places: tuple[tuple[int, ...], ...]
    knots: tuple[Array | None, ...]
    location: Array
    scale: Array

    @classmethod
    def fit(cls, values: Array, observed: Mask, places: Sequence[Sequence[int]]) -> Features:
        """Knots at quantiles of the observed cells, and standard units."""
        knots = tuple(_knots(values[:, own], observed[:, own]) for own in places)
        raw = cls(tuple(map(tuple, places)), knots, np.zeros(1), np.ones(1))
        seen = np.concatenate(
            [
                np.repeat(observed[:, own[:1]], len(b), 1)
                for own, b in zip(places, raw.blocks, strict=True)
            ],
            axis=1,
        )
        features = np.where(seen, raw.of(values), np.nan)
        scale = np.nanstd(features, axis=0)
        location = np.nanmean(features, axis=0)
        return cls(raw.places, knots, location, np.where(scale > 0.0, scale, 1.0))

    @cached_property
    def blocks(self) -> tuple[Array, ...]:
        """The features of every variable, its encoded columns first."""
        sizes = [
            len(own) if knots is None else len(own) + len(knots) - 2
            for own, knots in zip(self.places, self.knots, strict=True)
        ]
        ends = np.cumsum([0, *sizes])
        return tuple(np.arange(a, b) for a, b in pairwise(ends))

    @property
    def widths(self) -> tuple[int, ...]:
        """How many features of every variable are its encoded columns."""
        return tuple(map(len, self.places))

    def of(self, values: Array) -> Array:
        """The standardised features of a completed matrix, `(rows, features)`."""
        parts = []
        for own, knots in zip(self.places, self.knots, strict=True):
            parts.append(values[:, own])
            if knots is not None:
                parts.append(_splines(values[:, own[0]], knots))
        return (np.concatenate(parts, axis=1) - self.location) / self.scale

    def of_variable(self, variable: int, values: Array) -> Array:
        """The standardised features of cells `(rows, columns)` of one variable."""
        knots, block = self.knots[variable], self.blocks[variable]
        parts = [values] + ([] if knots is None else [_splines(values[:, 0], knots)])
        return (np.concatenate(parts, axis=1) - self.location[block]) / self.scale[block]


def _knots(values: Array, observed: Mask) -> Array | None:
    """Knots of a variable of one column with enough distinct numbers, else None."""
    if values.shape[1] > 1:
        return None
    cells = values[observed[:, 0], 0]
    if len(np.unique(cells)) < FEWEST_VALUES:
        return None
    knots = np.unique(np.quantile(cells, np.linspace(0.02, 0.98, KNOTS)))
    return knots if len(knots) > 2 else None


def _splines(values: Array, knots: Array) -> Array:
    """The curved functions of a basis of natural cubic splines, `(rows, knots - 2)`."""
    cubes = np.maximum(values[:, None] - knots, 0.0) ** 3
    last, span = knots[-1] - knots[-2], knots[-1] - knots[0]
    towards_last = (knots[-1] - knots[:-2]) / last
    towards_other = (knots[-2] - knots[:-2]) / last
    curved: Array = cubes[:, :-2] - cubes[:, -2:-1] * towards_last + cubes[:, -1:] * towards_other
    curved /= span**2
    return curved


class MomentScore:
    r"""A penalised Gaussian score of families, computed from one matrix of moments.

    $$s(y, P) = -\frac{n}{2} \log\det \Sigma_{y \mid f(P)} - w_y \sum_{p \in P} \lambda_{yp} w_p$$

    for the residual covariance of the columns of y in a regression on features of its parents.
    $w_p$ counts the features: the encoded columns of a parent, and its splines if they gain. With
    linear features alone, graphs with the same independences score the same.

    Args:
        moments: covariance of all features.
        rows: n.
        blocks: the features of every variable, its own columns first.
        widths: how many of them are its own columns.
        penalty: $\lambda$, symmetric, `(variables, variables)`.
    """

    def __init__(
        self,
        moments: Array,
        rows: float,
        blocks: Sequence[Array],
        widths: Sequence[int],
        penalty: Array,
    ) -> None:
        self.moments = moments + np.diag(RIDGE * np.diag(moments) + 1e-12)
        self.rows, self.blocks, self.penalty = rows, tuple(blocks), penalty
        self.own = tuple(block[:width] for block, width in zip(blocks, widths, strict=True))
        self._padded = [_pad(parts) for parts in (self.own, self.blocks)]
        self._curves = _pad([b[len(o) :] for o, b in zip(self.own, self.blocks, strict=True)])
        self._sizes = np.array(list(map(len, self.own)))
        self._known: dict[tuple[int, tuple[int, ...]], tuple[float, tuple[bool, ...]]] = {}

    def family(self, node: int, parents: tuple[int, ...]) -> float:
        """The score of a node given its parents."""
        return self.fit_family(node, parents)[0]

    def fit_family(self, node: int, parents: tuple[int, ...]) -> tuple[float, tuple[bool, ...]]:
        """The score of a family, and which parents have splines: those that gain, best first."""
        key = node, parents
        if key not in self._known:
            self._known[key] = self._fit_family(node, np.array(parents, dtype=int))
        return self._known[key]

    def _fit_family(self, node: int, parents: Array) -> tuple[float, tuple[bool, ...]]:
        own, penalty = self.own[node], self.penalty[node, parents]
        places, real = (part[parents] for part in self._curves)
        curved = np.zeros(len(parents), dtype=bool)
        while True:
            features = self._features(parents, curved)
            if ROWS_PER_FEATURE * len(features) > self.rows:
                return -np.inf, tuple(curved.tolist())
            left = real & ~curved[:, None]
            fit, added = self._fits(own, features, places, left)
            fits = ROWS_PER_FEATURE * (len(features) + left.sum(1)) <= self.rows
            gains = np.where(fits, added - len(own) * penalty * left.sum(1), -np.inf)
            if not (left.any(1) & (gains > 0.0)).any():
                break
            curved[gains.argmax()] = True
        sizes = self._sizes[parents] + curved * real.sum(1)
        return float(fit - len(own) * penalty @ sizes), tuple(curved.tolist())

    def _features(self, parents: Sequence[int] | Array, curved: Sequence[bool] | Mask) -> Array:
        """The features of all parents."""
        return np.concatenate([np.zeros(0, dtype=int), *self.columns(parents, curved)])

    def columns(self, parents: Sequence[int] | Array, curved: Sequence[bool] | Mask) -> list[Array]:
        """The features of each parent."""
        return [
            self.blocks[k] if bent else self.own[k] for k, bent in zip(parents, curved, strict=True)
        ]

    def _fits(self, own: Array, features: Array, places: Array, real: Mask) -> tuple[float, Array]:
        """The log-likelihood of columns given features, and what further blocks of them add.

        Args:
            own: the columns.
            features: what they are regressed on.
            places: further features, `(blocks, features)`.
            real: which of these count.
        """
        # Plain indices, since np.ix_ takes longer than the small systems here.
        inner = self.moments[features[:, None], features]
        weights = np.linalg.solve(inner, self.moments[features[:, None], own])
        variance = self.moments[own[:, None], own]
        variance = variance - self.moments[own[:, None], features] @ weights
        fit = -0.5 * self.rows * float(_log_det(variance[None])[0])
        added = np.zeros(len(places))
        if not real.any():
            return fit, added
        rows = real.any(1)
        places, real = places[rows], real[rows]
        between = self.moments[features[:, None, None], places]
        cross = self.moments[own[:, None, None], places]
        cross = cross - np.tensordot(weights.T, between, 1)
        inner = self.moments[places[:, :, None], places[:, None, :]] - _project(inner, between)
        inner = np.where(real[:, :, None] & real[:, None, :], inner, np.eye(real.shape[1]))
        own_cross = np.where(real, cross, 0.0).transpose(1, 2, 0)
        left = variance - own_cross.transpose(0, 2, 1) @ np.linalg.solve(inner, own_cross)
        added[rows] = -0.5 * self.rows * _log_det(left) - fit
        return fit, added

    def gains(self, node: int, parents: tuple[int, ...]) -> Array:
        """What each further parent adds to the score, `(variables,)`, as far as one step tells."""
        own, features = self.own[node], self._features(parents, self.fit_family(node, parents)[1])
        is_new = np.ones(len(self.blocks), dtype=bool)
        is_new[[node, *parents]] = False  # what is left of a parent is singular
        gains = np.full(len(self.blocks), -np.inf)
        for places, real in self._padded:
            added = self._fits(own, features, places, real & is_new[:, None])[1]
            cost = self.penalty[node] * real.sum(1) * len(own)
            fits = is_new & (ROWS_PER_FEATURE * (len(features) + real.sum(1)) <= self.rows)
            gains = np.maximum(gains, np.where(fits, added - cost, -np.inf))
        return gains

    def regression(self, node: int, parents: tuple[int, ...]) -> tuple[list[Array], Array, Array]:
        """Features of each parent, all coefficients, and the residual covariance."""
        chosen = self.columns(parents, self.fit_family(node, parents)[1])
        features, own = np.concatenate([np.zeros(0, dtype=int), *chosen]), self.own[node]
        cross = self.moments[np.ix_(features, own)]
        weights = np.linalg.solve(self.moments[np.ix_(features, features)], cross)
        return chosen, weights, self.moments[np.ix_(own, own)] - cross.T @ weights


def _pad(blocks: Sequence[Array]) -> tuple[Array, Mask]:
    """Blocks of different sizes as one array, and which entries are real."""
    size = max(map(len, blocks))
    places = np.zeros((len(blocks), size), dtype=int)
    real = np.zeros((len(blocks), size), dtype=bool)
    for k, block in enumerate(blocks):
        places[k, : len(block)], real[k, : len(block)] = block, True
    return places, real


def _project(inner: Array, between: Array) -> Array:
    """What features explain of the covariances inside of blocks, `(blocks, size, size)`."""
    count, blocks, size = between.shape
    solved = np.linalg.solve(inner, between.reshape(count, blocks * size)).reshape(between.shape)
    return between.transpose(1, 2, 0) @ solved.transpose(1, 0, 2)


def _log_det(matrices: Array) -> Array:
    """Log-determinants of covariances in standard units, of variances not below the least."""
    if matrices.shape[1] == 1:
        return np.log(np.maximum(matrices[:, 0, 0], LEAST_VARIANCE))
    values: Array = np.linalg.eigvalsh(matrices)
    return np.asarray(np.log(np.maximum(values, LEAST_VARIANCE)).sum(1))


def pair_penalties(observed: Mask, variables: Sequence[int], factor: float = 1.0) -> Array:
    r"""The penalty of a feature in each pair of variables, for a score of all rows.

    $$\lambda_{yp} = \frac{n}{m_{yp}} \cdot \frac{\log m_{yp} + \log d}{2}, \qquad
      m_{yp} = n (n_{yp} / n)^{5/4}$$

    with the $n_{yp}$ rows in which both are observed and d variables: an edge must gain in m
    complete rows what the extended BIC (with $\gamma = 1/2$) asks of it. The exponent is above 1
    since other parents have missing cells as well: with 30 % missing, the variance of partial
    correlations given one or two columns is that of 0.39 n to 0.47 n complete rows, while $n_{yp}$
    is 0.49 n. The penalty is symmetric, so that the score is that of an equivalence class.

    Args:
        observed: which cells are observed, `(rows, columns)`.
        variables: one column of every variable.
        factor: of all penalties.
    """
    common = _complete_rows(observed, variables)
    nats: Array = 0.5 * (np.log(common) + np.log(len(variables)))
    return factor * nats * len(observed) / common


def pair_information(observed: Mask, variables: Sequence[int]) -> float:
    r"""The mean of $m_{yp} / n$ over all pairs: what a nat of a score of all rows is worth.

    Args:
        observed: which cells are observed, `(rows, columns)`.
        variables: one column of every variable.
    """
    shares = _complete_rows(observed, variables) / len(observed)
    return float(shares[~np.eye(len(shares), dtype=bool)].mean())


def _complete_rows(observed: Mask, variables: Sequence[int]) -> Array:
    """How many complete rows would tell as much about each pair, m of `pair_penalties`."""
    seen = observed[:, variables].astype(np.float64)
    rows: Array = len(seen) * (np.maximum(seen.T @ seen, 2.0) / len(seen)) ** 1.25
    return rows
