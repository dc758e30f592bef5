"""Draws of missing cells: from a saturated Gaussian, then from the additive model of a graph."""

from __future__ import annotations

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
GRID = 32
"""Points of the conditional density of a missing cell, within the observed range."""


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
    r"""Gibbs draws of missing numbers under a graph of additive regressions with Gaussian noise.

    Each missing cell is drawn from its density given all others, $p(x_j \mid pa) \prod_c
    p(x_c \mid pa_c)$, on a grid over the observed range. Columns of categories keep the draws that
    they have.

    Args:
        dag: `dag[i, j]` for i -> j.
        score: whose moments give the regressions.
        features: of the variables.
        values: the observed cells' matrix, for the ranges.
        observed: which of its cells are observed.
    """

    def __init__(
        self, dag: Mask, score: MomentScore, features: Features, values: Array, observed: Mask
    ) -> None:
        self.features, self.order = features, topological_order(dag)
        self.children = [np.flatnonzero(row).tolist() for row in dag]
        self.numbers = [len(own) == 1 for own in features.places]
        self.weights: list[dict[int, Array]] = []
        self.variances: list[float] = []
        for node in range(len(dag)):
            parents = tuple(np.flatnonzero(dag[:, node]).tolist())
            chosen, weights, variance = score.regression(node, parents)
            ends = np.cumsum([0, *map(len, chosen)])
            self.weights.append(
                {k: weights[a:b] for k, a, b in zip(parents, ends[:-1], ends[1:], strict=True)}
            )
            self.variances.append(max(variance, 1e-6))
        self.grids = [
            np.linspace(*_range(values[:, own[0]], observed[:, own[0]]), GRID)
            for own in features.places
        ]

    def sweep(self, cells: Array, missing: Mask, generator: np.random.Generator) -> None:
        """Draw the missing numbers of every variable once, in place, parents first.

        Args:
            cells: a completed matrix.
            missing: which of its cells are drawn.
            generator: of the draws.
        """
        means = [self._mean(node, cells) for node in range(len(self.weights))]
        for node in self.order:
            place = self.features.places[node][0]
            rows = np.flatnonzero(missing[:, place])
            if not len(rows) or not self.numbers[node]:
                continue
            grid = self.grids[node]
            log_p = self._fit(node, grid, means[node][rows, None])
            old = {}
            for child in self.children[node]:
                if not self.numbers[child]:
                    continue
                old[child] = self._effect(child, node, cells[rows, place])
                rest = means[child][rows] - old[child]
                own = cells[rows, self.features.places[child][0]]
                effects = self._effect(child, node, grid)
                log_p = log_p + self._fit(child, own[:, None], rest[:, None] + effects)
            drawn = _draw_from_grid(log_p, grid, generator)
            cells[rows, place] = drawn
            for child, before in old.items():
                means[child][rows] += self._effect(child, node, drawn) - before

    def _mean(self, node: int, cells: Array) -> Array:
        mean = np.zeros(len(cells))
        for parent, weights in self.weights[node].items():
            own = self.features.places[parent]
            if len(own) == 1:
                mean += self._effect(node, parent, cells[:, own[0]])
            else:
                block = self.features.blocks[parent]
                standard = (cells[:, own] - self.features.location[block]) / self.features.scale[
                    block
                ]
                mean += standard @ weights
        return mean

    def _effect(self, node: int, parent: int, values: Array) -> Array:
        """What a parent adds to the expected value of a node, in standard units."""
        weights = self.weights[node][parent]
        effect: Array = self.features.of_variable(parent, values)[:, : len(weights)] @ weights
        return effect

    def _fit(self, node: int, values: Array, mean: Array) -> Array:
        place = self.features.blocks[node][0]
        standard = (values - self.features.location[place]) / self.features.scale[place]
        fit: Array = -0.5 * (standard - mean) ** 2 / self.variances[node]
        return fit


def _range(values: Array, observed: Mask) -> tuple[float, float]:
    cells = values[observed]
    return (float(cells.min()), float(cells.max())) if len(cells) else (0.0, 0.0)


def _draw_from_grid(log_p: Array, grid: Array, generator: np.random.Generator) -> Array:
    """One draw per row from densities on a grid, spread evenly within its cells."""
    shares = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    sums = shares.cumsum(axis=1)
    level = generator.random(len(sums)) * sums[:, -1]
    chosen = grid[(sums < level[:, None]).sum(axis=1).clip(max=len(grid) - 1)]
    step = grid[1] - grid[0]
    drawn: Array = chosen + step * (generator.random(len(chosen)) - 0.5)
    return drawn.clip(grid[0], grid[-1])
