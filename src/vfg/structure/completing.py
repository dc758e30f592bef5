"""Draws of missing cells: from a saturated Gaussian, then from the additive model of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from vfg.structure.pdag import topological_order
from vfg.structure.scores import Features, MomentScore
from vfg.tables.cells import Array, Mask

PATTERNS_AT_ONCE = 1024
"""Masks whose matrices are inverted together, which bounds memory."""
ITERATIONS, TOLERANCE = 200, 1e-4
"""Of EM: changes of standardised covariances below 1e-4 change no decision of a search."""
SHRINKAGE = 3.0
"""Rows without correlations that EM adds, so that tables of few rows have a regular covariance."""
GRID, MARGIN = 48, 0.25
"""Points of the conditional density of a missing cell, and how far beyond the observed range they
go, as a share of it: cells that are missing for being large would else pile up at its end."""


def fit_covariance(values: Array, observed: Mask) -> tuple[Array, Array]:
    """Mean and covariance of a Gaussian by EM over the observed cells, `(columns,)` and a matrix.

    Values are standardised. The covariance has no structure, so that it favours no graph.
    """
    cells = torch.from_numpy(np.where(observed, values, 0.0))
    rows, columns = cells.shape
    masks, pattern = torch.from_numpy(observed).unique(dim=0, return_inverse=True)
    mean = torch.zeros(columns, dtype=torch.float64)
    covariance = torch.eye(columns, dtype=torch.float64)
    for _ in range(ITERATIONS):
        first, second = torch.zeros_like(mean), torch.zeros_like(covariance)
        for start in range(0, len(masks), PATTERNS_AT_ONCE):
            here = masks[start : start + PATTERNS_AT_ONCE]
            weights, left = _regress(here, covariance)
            own = ((pattern >= start) & (pattern < start + len(here))).nonzero()[:, 0]
            which = pattern[own] - start
            for part in own.split(4 * PATTERNS_AT_ONCE):
                index = pattern[part] - start
                centred = (cells[part] - mean) * here[index]
                filled = centred * here[index] + _apply(weights, index, centred)
                first += filled.sum(0)
                second += filled.T @ filled
            counts = torch.bincount(which, minlength=len(here)).double()
            second += torch.einsum("m,mij->ij", counts, left)
        shift = first / rows
        new = (second - rows * torch.outer(shift, shift)) + SHRINKAGE * torch.diag(
            covariance.diagonal()
        )
        new = new / (rows + SHRINKAGE)
        change = max(float((new - covariance).abs().max()), float(shift.abs().max()))
        mean, covariance = mean + shift, new
        if change < TOLERANCE:
            break
    return mean.numpy(), covariance.numpy()


def _apply(weights: torch.Tensor, index: torch.Tensor, centred: torch.Tensor) -> torch.Tensor:
    return (weights[index] @ centred[:, :, None])[:, :, 0]


def _regress(masks: torch.Tensor, covariance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients of missing on observed cells and what they leave, each `(masks, c, c)`."""
    seen = masks.double()
    both = seen[:, :, None] * seen[:, None, :]
    inner = covariance * both + torch.diag_embed(1.0 - seen)
    inverse = torch.linalg.inv(inner) * both
    free = 1.0 - seen
    weights = (covariance @ inverse) * free[:, :, None]
    left = (covariance - weights @ covariance) * free[:, :, None] * free[:, None, :]
    return weights, left


def draw_gaussian(
    values: Array, observed: Mask, copies: int, generator: np.random.Generator
) -> Array:
    """Completed copies of a table one below the other, `(copies * rows, columns)`."""
    mean, covariance = fit_covariance(values, observed)
    filled = np.where(observed, values, mean)
    drawn = np.repeat(filled[None], copies, axis=0)
    masks, pattern = torch.from_numpy(observed).unique(dim=0, return_inverse=True)
    for number, mask in enumerate(masks.numpy()):
        if mask.all():
            continue
        own = np.flatnonzero(pattern.numpy() == number)
        weights, left = _regress(torch.from_numpy(mask)[None], torch.from_numpy(covariance))
        free = np.flatnonzero(~mask)
        root = np.linalg.cholesky(left[0].numpy()[np.ix_(free, free)] + 1e-9 * np.eye(len(free)))
        centre = mean[free] + (filled[own] - mean) @ weights[0].numpy()[free].T
        noise = generator.normal(size=(copies, len(own), len(free))) @ root.T
        drawn[np.ix_(np.arange(copies), own, free)] = centre + noise
    return drawn.reshape(-1, values.shape[1])


class AdditiveSampler:
    r"""Gibbs draws of missing cells under a graph of additive regressions with Gaussian noise.

    Each missing cell is drawn from its density given all others, $p(x_j \mid pa) \prod_c
    p(x_c \mid pa_c)$: numbers on a grid, categories among their codes,
    where the density counts relative to that without causes, times their frequency.

    Args:
        dag: `dag[i, j]` for i -> j.
        score: whose moments give the regressions.
        features: of the variables.
        centre: means of the features that the moments are about.
        values: the observed cells' matrix, for the ranges and codes.
        observed: which of its cells are observed.
        numbers: which variables are numbers.
    """

    def __init__(
        self,
        dag: Mask,
        score: MomentScore,
        features: Features,
        centre: Array,
        values: Array,
        observed: Mask,
        numbers: Sequence[bool],
    ) -> None:
        self.features, self.centre, self.order = features, centre, topological_order(dag)
        self.children = [np.flatnonzero(row).tolist() for row in dag]
        self.weights: list[dict[int, Array]] = []
        self.precisions: list[Array] = []
        for node in range(len(dag)):
            parents = tuple(np.flatnonzero(dag[:, node]).tolist())
            chosen, weights, covariance = score.regression(node, parents)
            ends = np.cumsum([0, *map(len, chosen)])
            self.weights.append(
                {k: weights[a:b] for k, (a, b) in zip(parents, pairwise(ends), strict=True)}
            )
            self.precisions.append(np.linalg.inv(covariance + 1e-6 * np.eye(len(covariance))))
        self.choices = [
            _choices(values[np.ix_(observed[:, own[0]], own)], is_number)
            for own, is_number in zip(map(np.array, features.places), numbers, strict=True)
        ]
        for node, is_number in enumerate(numbers):
            if not is_number:
                self.choices[node][1][:] -= self._fit(node, self.choices[node][0], 0.0, own=False)

    def sweep(self, cells: Array, missing: Mask, generator: np.random.Generator) -> None:
        """Draw the missing cells of every variable once, in place, parents first.

        Args:
            cells: a completed matrix.
            missing: which of its cells are drawn.
            generator: of the draws.
        """
        places = [np.array(own) for own in self.features.places]
        means = [self._mean(node, cells) for node in range(len(places))]
        for node in self.order:
            rows = np.flatnonzero(missing[:, places[node][0]])
            if not len(rows):
                continue
            points, base, step = self.choices[node]
            log_p = base + self._fit(node, points[None], means[node][rows, None])
            whole = np.ix_(rows, places[node])
            old = {child: self._effect(child, node, cells[whole]) for child in self.children[node]}
            for child, before in old.items():
                rest = (means[child][rows] - before)[:, None]
                own = cells[np.ix_(rows, places[child])][:, None]
                log_p = log_p + self._fit(child, own, rest + self._effect(child, node, points))
            drawn = _draw(log_p, points, step, generator)
            cells[whole] = drawn
            for child, before in old.items():
                means[child][rows] += self._effect(child, node, drawn) - before

    def _mean(self, node: int, cells: Array) -> Array:
        """What the parents of a node lead to expect, in standard units, `(rows, columns)`."""
        mean = np.zeros((len(cells), len(self.features.places[node])))
        for parent in self.weights[node]:
            mean += self._effect(node, parent, cells[:, list(self.features.places[parent])])
        return mean

    def _effect(self, node: int, parent: int, values: Array) -> Array:
        """What a parent adds to the expected value of a node, in standard units."""
        weights = self.weights[node][parent]
        centre = self.centre[self.features.blocks[parent]]
        features = self.features.of_variable(parent, values) - centre
        effect: Array = features[:, : len(weights)] @ weights
        return effect

    def _fit(self, node: int, values: Array, mean: Any, own: bool = True) -> Array:
        """The log density of values `(..., columns)`, up to a constant; `own` given the parents."""
        places = self.features.blocks[node][: len(self.features.places[node])]
        standard = (values - self.features.location[places]) / self.features.scale[places]
        left = standard - self.centre[places] - mean
        precision = self.precisions[node] if own else np.eye(len(places))
        fit: Array = -0.5 * ((left @ precision) * left).sum(-1)
        return fit


def _choices(cells: Array, is_number: bool) -> tuple[Array, Array, float]:
    """What a missing cell may be, `(choices, columns)`, log weights, and the step of a grid."""
    if is_number:
        more = MARGIN * (cells.max() - cells.min())
        grid = np.linspace(cells.min() - more, cells.max() + more, GRID)[:, None]
        return grid, np.zeros(GRID), float(grid[1, 0] - grid[0, 0])
    codes, counts = np.unique(cells.round(9), axis=0, return_counts=True)
    return codes, np.log(counts / counts.sum()), 0.0


def _draw(log_p: Array, points: Array, step: float, generator: np.random.Generator) -> Array:
    """One of the points per row, numbers spread evenly within the cells of their grid."""
    shares = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    sums = shares.cumsum(axis=1)
    level = generator.random(len(sums)) * sums[:, -1]
    drawn: Array = points[(sums < level[:, None]).sum(axis=1).clip(max=len(points) - 1)]
    drawn = drawn + step * (generator.random((len(drawn), 1)) - 0.5)
    return drawn.clip(points.min(0), points.max(0))
