r"""Probabilities of categories, and the categories of draws.

A category $c$ with the frequency $\pi_c$ is a code point $m_c$ of its column's section. Let the
model expect the mean $\mu$ with the covariance $\Sigma$ there given the evidence, and $\mu_0$,
$\Sigma_0$ without any. Then

$$P(c) \propto \pi_c\, N(m_c; \mu, \Sigma) / N(m_c; \mu_0, \Sigma_0),$$

which is Bayes' rule for the likelihood of the evidence given the point, and $\pi_c$ without
evidence. Columns of up to nine categories have probabilities that are linear in $\mu$.

A draw $v$ of the section becomes a category with the probability

$$P(c \mid v) \propto P(c)\, N(v; m_c, S) / N(m_c; \mu, \Sigma + S), \quad S = \tfrac12 \Sigma,$$

so that it goes with the other columns of the draw. Categories have the shares $P(c)$ among draws
but for the variation of the normaliser, for which a factor per category makes up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from vfg.tables.categorical import CategoricalEncoding, spread_codes
from vfg.tables.cells import Array

KERNEL = 0.5
"""Size of S next to Σ: small enough that a category goes with the other columns of its draw, large
enough that several categories compete for it."""
SCALINGS = 8, 32
"""Steps in which the factors of categories are fitted, for every row and without evidence."""
POINTS = 256, 4096
"""Fixed points, spread like a standard Normal, that the factors are fitted to, likewise."""
MOST_SCALED = 64
"""Categories up to which every row has factors of its own, which would take long for more of them;
above, all rows have those without evidence."""
LEAST_VARIANCE = 1e-6
"""Added to variances, so that sections that follow from others have a density."""
TINY = 1e-12
"""Added to shares and probabilities before logarithms."""
CHUNK = 2**22
"""Numbers of draws, rows and categories that are computed together, which bounds memory."""


@dataclass(frozen=True)
class Section:
    """What is expected in the section of a column of categories.

    Args:
        part: the encoding of the column.
        means: of the section, `(rows, width)`.
        covariances: of the section, `(rows, width, width)`.
        prior: the same without evidence, one row; None if this is it.
    """

    part: CategoricalEncoding
    means: Array
    covariances: Array
    prior: Section | None = None

    @cached_property
    def probabilities(self) -> Array:
        """The probability of every category, `(rows, categories)`."""
        if self.part.is_simplex:
            return self.part.probabilities(self.means)
        counts = np.log(self.part.counts) + np.zeros((len(self.means), 1))
        if self.prior is not None:
            counts += 0.5 * (self.prior.whitened**2).sum(1) - 0.5 * (self.whitened**2).sum(1)
        return np.asarray(special.softmax(counts, axis=1))

    @cached_property
    def whitened(self) -> Array:
        """Points of categories in coordinates in which the Normal of a row is standard.

        Their shape is `(rows, width, categories)`.
        """
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
            some = Section(self.part, self.means[rows], self.covariances[rows], self.prior)
            centred = (draws[:, rows] - some.means).transpose(1, 2, 0)
            drawn = np.linalg.solve(some._roots, centred).transpose(0, 2, 1)
            logs = drawn @ (some.whitened / KERNEL) + (some._logs + some.factors)[:, None]
            below = special.softmax(logs, axis=-1).cumsum(-1)
            levels = uniforms[:, rows].T[..., None] * below[..., -1:]
            chosen[:, rows] = (below < levels).sum(-1).T
        return np.asarray(self.part.points[chosen.clip(max=len(self.part.points) - 1)])

    @cached_property
    def factors(self) -> Array:
        """Logarithms of factors that give categories their shares, `(rows, categories)`."""
        factors = np.zeros((1, 1)) if self.prior is None else self.prior.factors
        if self.prior is not None and len(self.part.points) > MOST_SCALED:
            return factors
        kind = int(self.prior is None)
        points = spread_codes(POINTS[kind], self.part.width)
        base = points @ (self.whitened / KERNEL) + self._logs[:, None]
        for _ in range(SCALINGS[kind]):
            shares = special.softmax(base + factors[:, None], axis=-1).mean(1)
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
        noise = LEAST_VARIANCE * np.eye(self.part.width)
        return np.asarray(np.linalg.cholesky(self.covariances + noise))
