"""Padded tiles of rows: their posteriors, draws, quantiles and quadratures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vfg.gaussian.category_points import CategoryPoints
from vfg.gaussian.factors import (
    FactorPosterior,
    Factors,
    Masks,
    Side,
    by_group,
    column_means,
    column_moments,
    condition,
    image_moments,
    mixed_covariance,
    responsibilities,
)
from vfg.gaussian.log_prob import category_scores, observe, predict
from vfg.utils.random import normal, uniform

SMALLEST = 64
"""The fewest rows of a tile."""
LARGEST, NUMBERS = {"cpu": 512}, {"cpu": 2**18}
"""The most rows, and the numbers in their posteriors, about, by device: what a cache holds."""
OTHER_LARGEST, OTHER_NUMBERS = 4096, 2**26
DRAWS = 16
"""Draws that are made together."""
NODES = 8
"""Points of the quadrature on every piece of a map."""
FIXED = (-8.0, -3.0, 0.0, 3.0, 8.0)
"""Deviations at which quadrature is cut besides the knots of a map."""
POINTS_AT_ONCE = 2**20
"""How many points of the quadrature are mapped together, about."""
BISECTIONS = 80
"""Enough to exhaust the precision of float64."""
ROOTS_AT_ONCE = 2**14
"""How many matrices get their roots together: GPU libraries fail at some hundred thousand."""
GATHERED, FEW = 1024, 8
"""Up to how many numbers the loadings of a component are copied for every draw, and up to how many
components they are not: 60 draws of 20 columns by one component take a tenth of the time then."""


def rows_of_a_tile(readout: Factors) -> int:
    """How many rows are computed together, whatever the table, so that their bits are the same.

    Small models are called rarely and large ones stay in the cache of a CPU. A single row costs a
    whole tile, so tiles have a bound.

    Example:
        >>> readout = Factors(*[torch.zeros(size) for size in (2, (2, 9, 3), (2, 9), (2, 9))])
        >>> rows_of_a_tile(readout)
        512
    """
    components, columns, innovations = readout.loadings.shape
    kind = readout.loadings.device.type
    size, numbers = LARGEST.get(kind, OTHER_LARGEST), NUMBERS.get(kind, OTHER_NUMBERS)
    most = numbers // (components * (columns + innovations**2))
    while size > max(SMALLEST, most):
        size //= 2
    return size


@dataclass(frozen=True)
class EvidenceTile:
    """Rows whose ids are consecutive, padded by rows without evidence, and their evidence."""

    readout: Factors
    """Table columns, then latent coordinates."""
    belief: FactorPosterior
    row_ids: Tensor
    seed: int
    codes: CategoryPoints
    observing: Factors
    values: Tensor
    """What is observed, `(rows, coordinates)`, with latent ones if there are any."""
    mask: Tensor
    side: Side | None

    @cached_property
    def shares(self) -> Tensor:
        """Probabilities of the components, `(rows, components)`."""
        return responsibilities(self.readout, self.belief)

    @cached_property
    def means(self) -> Tensor:
        """Means of all columns and latent coordinates, `(rows, columns + coordinates)`."""
        return (self.shares[..., None] * column_means(self.belief, self.readout)).sum(1)

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Means and variances of all columns and latent coordinates, by component."""
        return column_moments(self.belief, self.readout)

    def draws(self, group: int, wanted: int = DRAWS) -> Tensor:
        """The draws of one group, `(DRAWS, rows, columns + coordinates)`, in the leaves' units.

        Those after the first `wanted` repeat the first one: random numbers take half of the time,
        and bits depend on the shape of products.
        """
        device, count = self.row_ids.device, self.readout.loadings.shape[-1]
        numbers = torch.arange(group * DRAWS, group * DRAWS + wanted, device=device)
        repeated = torch.arange(DRAWS, device=device)
        repeated[wanted:] = 0

        def noise(kind: int, size: int) -> Tensor:
            drawn = normal(self.seed, self.row_ids, numbers, kind, torch.arange(size))
            return drawn[repeated]

        level = uniform(self.seed, self.row_ids, numbers, 2, torch.arange(1))
        chosen = (level > self.shares.cumsum(-1)[:, :-1]).sum(-1)[repeated]
        innovations = self._innovations(chosen, noise(0, count))
        errors = noise(1, self.readout.offsets.shape[-1])
        return self._read_out(chosen, innovations, errors)

    def _read_out(self, chosen: Tensor, innovations: Tensor, errors: Tensor) -> Tensor:
        """Columns and coordinates as the chosen components make them."""
        _, loadings, offsets, scales = self.readout
        if loadings[0].numel() <= GATHERED and len(loadings) > FEW:
            result = (loadings[chosen] @ innovations[..., None])[..., 0]
            return result + offsets[chosen] + scales[chosen] * errors
        # Never by the rows of a component: what a row gets must not depend on other rows.
        each = (
            innovations @ loadings[component].mT + offsets[component] + scales[component] * errors
            for component in range(len(loadings))
        )
        result = next(each)
        for component, here in enumerate(each, start=1):
            result = torch.where((chosen == component)[..., None], here, result)
        return result

    def _innovations(self, chosen: Tensor, noise: Tensor) -> Tensor:
        """Drawn from the chosen components `(DRAWS, rows)`, of which rows have few."""
        rows, components = self.shares.shape
        if components == 1:
            # All draws of a row at once, for which roots need not be copied.
            spread = (self._only_roots @ noise.movedim(0, -1)).movedim(-1, 0)
            return self.belief.mean[:, 0] + spread
        every = torch.arange(rows, device=chosen.device)
        pairs, places = (every * components + chosen).unique(return_inverse=True)
        row, component = pairs // components, pairs % components
        roots = _square_roots(self.belief.covariance[row, component])
        spread = (roots[places] @ noise[..., None])[..., 0]
        return self.belief.mean[row, component][places] + spread

    @cached_property
    def _only_roots(self) -> Tensor:
        """Roots of the covariances of a model of one component, which all draws use."""
        return _square_roots(self.belief.covariance[: len(self.shares), 0])

    def probabilities(self, unit: int) -> Tensor:
        """Of the categories of a unit given the evidence, `(rows, categories)`."""
        result = predict(self.readout, self.belief, self.codes.units[unit].places)
        return category_scores(self.readout, self.belief, result, self.codes, unit).exp()

    def coded_draws(self, group: int, wanted: int) -> tuple[Tensor, Tensor]:
        """Coordinates as `draws` has them, and categories `(DRAWS, rows, units)`.

        Real columns are drawn together; then every unit given those and the units before it; then
        the latent coordinates given all.
        """
        result = self.draws(group, DRAWS if self.codes.units else wanted)
        if not self.codes.units:
            return result, result[..., :0]
        numbers = torch.arange(group * DRAWS, (group + 1) * DRAWS, device=result.device)
        belief = self._given_reals(result)
        categories = []
        levels = self._levels(numbers, 3, len(self.codes.units))
        for index, unit in enumerate(self.codes.units):
            here = predict(self.readout, belief, unit.places)
            probabilities = category_scores(self.readout, belief, here, self.codes, index).exp()
            drawn = (probabilities.cumsum(-1)[:, :-1] < levels[:, index, None]).sum(-1)
            categories.append(drawn)
            free = (~self.mask[:, unit.span.start]).to(result)
            belief = observe(belief, here, self.codes.points_at(index)[drawn], free)
        latent = self._latents(belief, numbers).unflatten(0, (DRAWS, -1))
        result = torch.cat([result[..., : self.codes.width], latent], dim=-1)
        return result, torch.stack(categories, dim=-1).unflatten(0, (DRAWS, -1)).to(result)

    def _given_reals(self, drawn: Tensor) -> FactorPosterior:
        """The posterior of every draw, `(DRAWS * rows, ...)`, given its real columns."""
        places = self.codes.real_places
        mask = self.mask.index_fill(1, places, True)
        filled = torch.where(self.mask, self.values, 0.0).expand(DRAWS, -1, -1)
        known = torch.where(self.mask, self.values, drawn[..., : self.mask.shape[1]])
        filled = filled.index_copy(-1, places, known.index_select(-1, places))
        groups = torch.arange(len(mask), device=mask.device).repeat(DRAWS)
        return condition(self.observing, filled.flatten(0, 1), Masks(mask, groups), self.side)

    def _levels(self, numbers: Tensor, kind: int, size: int) -> Tensor:
        return uniform(self.seed, self.row_ids, numbers, kind, torch.arange(size)).flatten(0, 1)

    def _latents(self, belief: FactorPosterior, numbers: Tensor) -> Tensor:
        """Latent coordinates drawn from the posterior, `(DRAWS * rows, coordinates)`."""
        shares = (self.readout.log_weights + belief.log_probs).softmax(-1)
        chosen = (self._levels(numbers, 4, 1) > shares.cumsum(-1)[:, :-1]).sum(-1)
        places = torch.arange(belief.mean.shape[-1])
        noise = normal(self.seed, self.row_ids, numbers, 5, places).flatten(0, 1)
        sizes, vectors = torch.linalg.eigh(belief.covariance)
        roots = (vectors * sizes.clamp(min=0.0).sqrt()[..., None, :]) @ vectors.mT
        innovations = belief.mean + by_group(
            roots, noise[:, None].expand_as(belief.mean), belief.groups
        )
        _, loadings, offsets, _ = self.readout
        below = self.codes.width
        result = torch.einsum("nci,cki->nck", innovations, loadings[:, below:]) + offsets[:, below:]
        every = torch.arange(len(result), device=result.device)
        return result[every, chosen]


def _square_roots(covariance: Tensor) -> Tensor:
    """Symmetric square roots of covariances `(matrices, n, n)`, which may be singular.

    An odd n is padded by zeros: LAPACK rounds by the alignment of a matrix in memory, which would
    depend on its place among the others.
    """
    size = covariance.shape[-1]
    padding = size % 2

    def roots(some: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(functional.pad(some, (0, padding, 0, padding)))
        result: Tensor = (vectors * values.clamp(min=0.0).sqrt()[..., None, :]) @ vectors.mT
        return result[:, :size, :size]

    return torch.cat([roots(some) for some in covariance.split(ROOTS_AT_ONCE)])


def mixture_covariance(tile: EvidenceTile, chosen: list[int]) -> Tensor:
    """The covariance of some columns or coordinates, `(rows, n, n)`."""
    _, loadings, offsets, scales = tile.readout
    mean, covariance = image_moments(tile.belief, loadings[:, chosen], offsets[:, chosen])
    covariance = covariance + scales[:, chosen].square().diag_embed()
    return mixed_covariance(tile.shares, mean, covariance)


def mixture_quantiles(shares: Tensor, mean: Tensor, variance: Tensor, levels: Tensor) -> Tensor:
    """Quantiles `(levels, rows, columns)` of mixtures of Normals, by bisection if need be."""
    deviation = variance.sqrt()
    by_component = mean + deviation * torch.special.ndtri(levels)[:, None, None, None]
    low, high = by_component.amin(2), by_component.amax(2)
    if shares.shape[1] == 1:
        return cast(Tensor, low)
    safe = deviation.clamp(min=1e-300)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        reached = torch.special.ndtr((middle[:, :, None] - mean) / safe)
        below = (shares[..., None] * reached).sum(2) < levels[:, None, None]
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return cast(Tensor, 0.5 * (low + high))


def normal_moments(
    mean: Tensor, deviation: Tensor, breaks: Tensor, change: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Mean and variance of a column-wise map of Normal values that is smooth between its breaks.

    Gauss-Legendre quadrature on every piece, so that knots `(columns, breaks)` cost no accuracy.

    Example:
        >>> one = torch.ones(1, 1)
        >>> found = normal_moments(0 * one, one, torch.zeros(1, 1), torch.abs)
        >>> [round(part.item(), 4) for part in found]
        [0.7979, 0.3634]
    """
    fixed = torch.tensor(FIXED, dtype=mean.dtype, device=mean.device)
    ends = ((breaks - mean[..., None]) / deviation[..., None].clamp(min=1e-300)).clamp(-8.0, 8.0)
    ends = torch.cat([ends, fixed.expand(*ends.shape[:-1], -1)], dim=-1).sort(-1).values
    centre = change(mean)
    sums = mean.new_zeros(3, *mean.shape)
    pieces = max(1, POINTS_AT_ONCE // max(1, NODES * mean.numel()))
    for some in range(0, ends.shape[-1] - 1, pieces):
        positions, shares = _legendre(ends[..., some : some + pieces + 1])
        left = change(mean + positions * deviation) - centre
        first = shares * left
        sums += torch.stack([shares.sum(0), first.sum(0), (first * left).sum(0)])
    mass, first, second = sums
    first, second = first / mass, second / mass
    return centre + first, (second - first.square()).clamp(min=0.0)


def _legendre(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Points between the ends `(..., pieces + 1)` and their Normal weights, `(points, ...)`."""
    points, weights = (ends.new_tensor(x) for x in np.polynomial.legendre.leggauss(NODES))
    start, length = ends[..., :-1, None], ends.diff(dim=-1)[..., None]
    positions = start + length * (0.5 + 0.5 * points)
    shares = 0.5 * weights * length * (-0.5 * positions.square()).exp()
    return positions.flatten(-2).movedim(-1, 0), shares.flatten(-2).movedim(-1, 0)
