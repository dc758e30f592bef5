"""Discrete columns one after another: their probabilities given all before, and joint draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vfg.gaussian.category_points import CategoryPoints
from vfg.gaussian.factors import LOG_TWO_PI, Belief, Factors, Masks, Side, by_group, condition
from vfg.gaussian.tiles import DRAWS, Tile
from vfg.utils.random import normal, uniform


class Predictive(NamedTuple):
    """What is believed of the coordinates of one unit, component by component."""

    mean: Tensor
    """`(rows, components, coordinates)`."""
    precision: Tensor
    """`(groups, components, coordinates, coordinates)`."""
    log_volume: Tensor
    """log of the density's normaliser, `(groups, components)`."""
    crossed: Tensor
    """Covariances with the innovations, `(groups, components, innovations, coordinates)`."""


def no_evidence(factors: Factors) -> Belief:
    """The innovations before anything is observed, one row."""
    components, _, innovations = factors.loadings.shape
    zeros = factors.loadings.new_zeros(1, components, innovations)
    groups = torch.zeros_like(zeros[:, 0, 0]).long()
    return Belief(zeros[..., 0], zeros, lambda: torch.ones_like(zeros).diag_embed(), groups)


def predict(factors: Factors, belief: Belief, places: slice) -> Predictive:
    """Means, covariances and precisions of some coordinates given what is believed."""
    loadings, scales = factors.loadings[:, places], factors.scales[:, places]
    crossed = belief.covariance @ loadings.mT
    factor = torch.linalg.cholesky(loadings @ crossed + scales.square().diag_embed())
    log_volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_volume = log_volume + 0.5 * LOG_TWO_PI * scales.shape[-1]
    mean = torch.einsum("nci,cki->nck", belief.mean, loadings) + factors.offsets[:, places]
    return Predictive(mean, torch.cholesky_inverse(factor), log_volume, crossed)


def point_densities(found: Predictive, groups: Tensor, points: Tensor) -> Tensor:
    """log N of every point `(categories, coordinates)`, `(rows, components, categories)`."""
    # By products of matrices alone, so that many categories do not take much more memory.
    squares = (points[:, :, None] * points[:, None, :]).flatten(1)
    own = found.precision.flatten(-2) @ squares.mT + 2.0 * found.log_volume[..., None]
    turned = by_group(found.precision, found.mean, groups)
    rest = (turned * found.mean).sum(-1, keepdim=True)
    return -0.5 * (own[groups] - 2.0 * (turned @ points.mT) + rest)


def category_scores(
    factors: Factors, belief: Belief, found: Predictive, codes: CategoryPoints, unit: int
) -> Tensor:
    r"""log P(c | what is believed) for every category of a unit, `(rows, categories)`.

    $$P(c \mid o) \propto \pi_c \Bigl((1 - \delta_c) \frac{p(e_c \mid o)}{p(e_c)} + \delta_c\Bigr)$$

    with the frequency $\pi_c$, the (mixture) densities of the point $e_c$ given o and nothing,
    and the probability $\delta_c$ that the category may be anywhere.

    Args:
        factors: the model.
        belief: about the innovations.
        found: what follows from it for the unit.
        codes: of the discrete columns.
        unit: which of them.
    """
    points = codes.points_at(unit)

    def density(about: Belief, here: Predictive) -> Tensor:
        by_component = point_densities(here, about.groups, points)
        shares = (factors.log_weights + about.log_probs).log_softmax(-1)
        return (by_component + shares[..., None]).logsumexp(1)

    before = no_evidence(factors)
    marginal = density(before, predict(factors, before, codes.units[unit].places))
    doubts = codes.doubts_at(unit)
    ratio = density(belief, found) - marginal
    ratio = torch.logaddexp((1.0 - doubts).log() + ratio, doubts.log())
    return (codes.log_frequencies_at(unit) + ratio).log_softmax(-1)


def observe(belief: Belief, found: Predictive, values: Tensor, seen: Tensor) -> Belief:
    """What is believed after some coordinates were observed too.

    Args:
        belief: about the innovations so far.
        found: what follows from it for the coordinates.
        values: `(rows, coordinates)`.
        seen: in which groups of rows they are observed, `(groups,)`.
    """
    left = (values[:, None] - found.mean) * seen[belief.groups][:, None, None]
    gain = found.crossed @ found.precision
    distance = (by_group(found.precision, left, belief.groups) * left).sum(-1)
    constants = (found.log_volume * seen[:, None])[belief.groups]

    def spread() -> Tensor:
        return belief.covariance - gain @ found.crossed.mT * seen[:, None, None, None]

    return Belief(
        belief.log_probs - 0.5 * distance - constants,
        belief.mean + by_group(gain, left, belief.groups),
        spread,
        belief.groups,
    )


def chain_scores(
    factors: Factors, belief: Belief, codes: CategoryPoints, cells: Tensor, seen: Tensor
) -> Tensor:
    """Sums of log P of the observed units, each given the belief and those before it, `(rows,)`.

    Args:
        factors: the model.
        belief: given everything else.
        codes: of the discrete columns.
        cells: the table `(rows, columns)`.
        seen: which units are scored, `(groups of the belief, units)`.
    """
    total = torch.zeros_like(belief.log_probs[:, 0])
    for index, unit in enumerate(codes.units):
        here = seen[:, index]
        if not bool(here.any()):
            continue
        values = cells[:, unit.column]
        found = predict(factors, belief, unit.places)
        scores = category_scores(factors, belief, found, codes, index)
        own = codes.picked(index, scores, values)
        total = total + torch.where(here[belief.groups], own, 0.0)
        belief = observe(belief, found, codes.point_of(index, values), here.to(total))
    return total


@dataclass(frozen=True)
class CodedTile(Tile):
    """A tile that knows its evidence, so that discrete columns can be drawn in turn."""

    codes: CategoryPoints
    observing: Factors
    values: Tensor
    """What is observed, `(rows, coordinates)`, with latent ones if there are any."""
    mask: Tensor
    side: Side | None

    def probabilities(self, unit: int) -> Tensor:
        """Of the categories of a unit given the evidence, `(rows, categories)`."""
        found = predict(self.readout, self.belief, self.codes.units[unit].places)
        return category_scores(self.readout, self.belief, found, self.codes, unit).exp()

    def coded_draws(self, group: int) -> tuple[Tensor, Tensor]:
        """Coordinates as `draws` has them, and categories `(DRAWS, rows, units)`.

        Real columns are drawn together; then every unit given those and the units before it; then
        the latent coordinates given all.
        """
        found = self.draws(group)
        if not self.codes.units:
            return found, found[..., :0]
        numbers = torch.arange(group * DRAWS, (group + 1) * DRAWS, device=found.device)
        belief = self._given_reals(found)
        categories = []
        levels = self._levels(numbers, 3, len(self.codes.units))
        for index, unit in enumerate(self.codes.units):
            here = predict(self.readout, belief, unit.places)
            chances = category_scores(self.readout, belief, here, self.codes, index).exp()
            drawn = (chances.cumsum(-1)[:, :-1] < levels[:, index, None]).sum(-1)
            categories.append(drawn)
            free = (~self.mask[:, unit.span.start]).to(found)
            belief = observe(belief, here, self.codes.points_at(index)[drawn], free)
        latent = self._latents(belief, numbers).unflatten(0, (DRAWS, -1))
        found = torch.cat([found[..., : self.codes.width], latent], dim=-1)
        return found, torch.stack(categories, dim=-1).unflatten(0, (DRAWS, -1)).to(found)

    def _given_reals(self, drawn: Tensor) -> Belief:
        """What is believed of every draw, `(DRAWS * rows, ...)`, given its real columns."""
        places = self.codes.real_places
        mask = self.mask.index_fill(1, places, True)
        filled = torch.where(self.mask, self.values, 0.0).expand(DRAWS, -1, -1)
        known = torch.where(self.mask, self.values, drawn[..., : self.mask.shape[1]])
        filled = filled.index_copy(-1, places, known.index_select(-1, places))
        groups = torch.arange(len(mask), device=mask.device).repeat(DRAWS)
        return condition(self.observing, filled.flatten(0, 1), Masks(mask, groups), self.side)

    def _levels(self, numbers: Tensor, kind: int, size: int) -> Tensor:
        return uniform(self.seed, self.row_ids, numbers, kind, torch.arange(size)).flatten(0, 1)

    def _latents(self, belief: Belief, numbers: Tensor) -> Tensor:
        """Latent coordinates drawn from what is believed, `(DRAWS * rows, coordinates)`."""
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
        found = torch.einsum("nci,cki->nck", innovations, loadings[:, below:]) + offsets[:, below:]
        every = torch.arange(len(found), device=found.device)
        return found[every, chosen]
