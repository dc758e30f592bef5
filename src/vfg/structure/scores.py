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
    $w_p$ counts the features: either the encoded columns of a parent alone, or these and its
    splines, whichever scores better. With linear features alone, graphs with the same independences
    score the same.

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
        self._known: dict[tuple[int, tuple[int, ...]], tuple[float, tuple[bool, ...]]] = {}

    def family(self, node: int, parents: tuple[int, ...]) -> float:
        """The score of a node given its parents."""
        return self.fit_family(node, parents)[0]

    def fit_family(self, node: int, parents: tuple[int, ...]) -> tuple[float, tuple[bool, ...]]:
        """The score of a family, and which parents have splines; less useful ones are dropped."""
        key = node, parents
        if key in self._known:
            return self._known[key]
        curved = [len(self.blocks[k]) > len(self.own[k]) for k in parents]
        score = self._score(node, parents, curved)
        while any(curved):
            trials = []
            for place in np.flatnonzero(curved):
                fewer = [c and k != place for k, c in enumerate(curved)]
                trials.append((self._score(node, parents, fewer), fewer))
            best = max(trials, key=lambda pair: pair[0])
            if best[0] < score:
                break
            score, curved = best
        self._known[key] = score, tuple(curved)
        return self._known[key]

    def columns(self, parents: Sequence[int], curved: Sequence[bool]) -> list[Array]:
        """The features of each parent."""
        return [
            self.blocks[k] if bent else self.own[k] for k, bent in zip(parents, curved, strict=True)
        ]

    def _score(self, node: int, parents: Sequence[int], curved: Sequence[bool]) -> float:
        chosen = self.columns(parents, curved)
        if ROWS_PER_FEATURE * sum(map(len, chosen)) > self.rows:
            return -np.inf
        own = self.own[node]
        residual = self.moments[own[:, None], own]
        if chosen:
            features = np.concatenate(chosen)
            # Plain indices, since np.ix_ takes longer than the small systems here.
            cross = self.moments[features[:, None], own]
            inner = self.moments[features[:, None], features]
            residual = residual - cross.T @ np.linalg.solve(inner, cross)
        cost = sum(
            self.penalty[node, k] * len(own_features)
            for k, own_features in zip(parents, chosen, strict=True)
        )
        return float(-0.5 * self.rows * _log_det(residual[None])[0] - len(own) * cost)

    def gains(self, node: int, parents: tuple[int, ...]) -> Array:
        """What each further parent adds to the score, `(variables,)`, as far as one step tells."""
        own = self.own[node]
        kept = self.columns(parents, self.fit_family(node, parents)[1])
        features = np.concatenate([np.zeros(0, dtype=int), *kept])
        weights = np.linalg.solve(self.moments[np.ix_(features, features)], self.moments[features])
        cross = self.moments[own] - self.moments[np.ix_(own, features)] @ weights
        variance = cross[:, own]
        before = -0.5 * self.rows * _log_det(variance[None])[0]
        gains = np.full(len(self.blocks), -np.inf)
        is_new = np.ones(len(self.blocks), dtype=bool)
        is_new[[node, *parents]] = False
        for places, real in self._padded:
            inner = self.moments[places[:, :, None], places[:, None, :]]
            inner = inner - np.einsum(
                "fpi,fpj->pij", self.moments[features][:, places], weights[:, places]
            )
            real = real & is_new[:, None]  # what is left of a parent is singular
            inner = np.where(real[:, :, None] & real[:, None, :], inner, np.eye(real.shape[1]))
            own_cross = np.where(real, cross[:, places], 0.0).transpose(1, 2, 0)
            solved = np.linalg.solve(inner, own_cross)
            left = variance - own_cross.transpose(0, 2, 1) @ solved
            after = -0.5 * self.rows * _log_det(left)
            cost = self.penalty[node] * real.sum(1) * len(own)
            fits = ROWS_PER_FEATURE * (len(features) + real.sum(1)) <= self.rows
            gains = np.maximum(gains, np.where(fits, after - before - cost, -np.inf))
        return np.where(is_new, gains, -np.inf)

    def regression(self, node: int, parents: tuple[int, ...]) -> tuple[list[Array], Array, Array]:
        """Features of each parent, all coefficients, and the residual covariance."""
        chosen = self.columns(parents, self.fit_family(node, parents)[1])
        features = np.concatenate([np.zeros(0, dtype=int), *chosen])
        own = self.own[node]
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


def _log_det(matrices: Array) -> Array:
    """Log-determinants of small covariances, which rounding may have made slightly negative."""
    if matrices.shape[1] == 1:
        return np.log(np.maximum(matrices[:, 0, 0], 1e-12))
    values: Array = np.linalg.eigvalsh(matrices)
    return np.asarray(np.log(np.maximum(values, 1e-12)).sum(1))


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
    seen = observed[:, variables].astype(np.float64)
    common = len(seen) * (np.maximum(seen.T @ seen, 2.0) / len(seen)) ** 1.25
    nats: Array = 0.5 * (np.log(common) + np.log(len(variables)))
    return factor * nats * len(seen) / common
