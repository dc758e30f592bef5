"""Draws of a tile of rows: roots from their posterior, decoded, and the noise of the leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from vfg.distributions.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
)
from vfg.inference.propagation import Belief
from vfg.passing.aggregation import State, aggregation
from vfg.utils.random import normal, uniform

if TYPE_CHECKING:
    from vfg.model import VFG

INTERNAL = 64
"""Fixed draws of the roots behind the mean and variance of decoded states: exact for affine edges
with up to half as many root coordinates."""
GROUP = 32
"""How many draws of padded tiles are decoded together: always this many, so that a draw has the
same bits in every request."""


def is_joint(model: VFG) -> bool:
    """Whether every root carries a precision, so that draws include the latent uncertainty.

    Example:
        >>> import vfg
        >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
        >>> is_joint(vfg.VFG(graph, aggregation="mean")), is_joint(vfg.VFG(graph))
        (False, True)
    """
    roots = [block for block in model.passing.schedule.blocks if block.is_root]
    return all(aggregation(block.treatment).carries != "none" for block in roots)


def root_factor(state: State) -> Tensor:
    """S with S Sᵀ = P⁻¹: `(nodes, batch, width)` for a diagonal P, else `(..., width, width)`."""
    if state.precision is None:
        raise RuntimeError("these roots carry no precision")
    if state.precision.ndim == state.value.ndim:
        return state.precision.rsqrt()
    factor, _ = torch.linalg.cholesky_ex(state.precision)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    wide = identity.expand_as(factor)
    inverse: Tensor = torch.linalg.solve_triangular(factor, wide, upper=False)
    return inverse.mT


def internal_normals(model: VFG) -> dict[int, Tensor]:
    """The fixed draws behind means and deviations: by root block `(draws, nodes, 1, width)`.

    The second half is the first with the opposite sign, and if there are few enough coordinates
    their sample covariance is the identity: for affine edges their mean and covariance are exact.
    """
    blocks = model.passing.schedule.blocks
    chosen = {index: block for index, block in enumerate(blocks) if block.is_root}
    sizes = [len(block.nodes) * block.width for block in chosen.values()]
    some = next(model.parameters())
    parts = _balanced_normals(sum(sizes)).to(some).split(sizes, dim=1)
    return {
        index: part.view(INTERNAL, len(block.nodes), 1, block.width)
        for (index, block), part in zip(chosen.items(), parts, strict=True)
    }


@lru_cache(maxsize=8)
def _balanced_normals(coordinates: int) -> Tensor:
    half = INTERNAL // 2
    zero = torch.zeros(1, dtype=torch.long)
    drawn = normal(0, zero, torch.arange(half), 0, torch.arange(coordinates))[:, 0]
    if coordinates <= half:
        values, vectors = torch.linalg.eigh(drawn.mT @ drawn / half)
        drawn = drawn @ (vectors * values.rsqrt()) @ vectors.mT
    return torch.cat([drawn, -drawn])


def decode(
    model: VFG, belief: Belief, normals: dict[int, Tensor], temperature: Tensor
) -> list[Tensor]:
    """Backward states of all blocks, `(draws, nodes, rows, width)`, for draws around the roots.

    `normals` are by root block `(draws, nodes, 1 or rows, width)`.
    """
    count, rows = next(iter(normals.values())).shape[0], belief.converged.shape[1]

    def side_by_side(states: Tensor) -> Tensor:
        return states.movedim(0, 1).flatten(1, 2)

    tops, known = {}, {}
    for block, state in belief.roots.items():
        factor, drawn = root_factor(state), normals[block]
        if factor.ndim == drawn.ndim:
            drawn = drawn.movedim(0, -1).expand(-1, factor.shape[1], -1, -1)
            offset = (factor @ drawn).movedim(-1, 0)
        else:
            offset = factor * drawn
        tops[block] = side_by_side(belief.backward[block] + offset * temperature.rsqrt())
        has = state.observed.any(-1, keepdim=True)
        known[block] = side_by_side(has.expand(count, *has.shape))
    evidence = {
        block: side_by_side(given.expand(count, *given.shape))
        for block, given in belief.evidence.items()
    }
    backward, _, _ = model.passing.backward_pass(tops, known, evidence)
    for block, deviations in belief.deviations.items():
        fixed = side_by_side(belief.backward[block].expand(count, *deviations.shape))
        completed = ~side_by_side(deviations.expand(count, *deviations.shape)).isnan()
        backward[block] = torch.where(completed, fixed, backward[block])
    return [states.unflatten(1, (count, rows)).movedim(1, 0) for states in backward]


def internal_states(model: VFG, belief: Belief, temperature: Tensor) -> list[Tensor]:
    """The internal draws decoded, by block `(64, nodes, rows, width)`."""
    normals = internal_normals(model)
    parts = [
        {block: part[first : first + GROUP] for block, part in normals.items()}
        for first in range(0, INTERNAL, GROUP)
    ]
    groups = [decode(model, belief, part, temperature) for part in parts]
    return [torch.cat(same) for same in zip(*groups, strict=True)]


def centred_states(
    model: VFG, belief: Belief, temperature: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Internal draws about the backward states, and by how much they were shifted, by block.

    If roots carry no precision, one draw at the backward states.
    """
    centres = belief.backward
    if not is_joint(model):
        return [x[None] for x in centres], [torch.zeros_like(x) for x in centres]
    drawn = internal_states(model, belief, temperature)
    shifts = [centre - x.mean(0) for x, centre in zip(drawn, centres, strict=True)]
    return [x + shift for x, shift in zip(drawn, shifts, strict=True)], shifts


class Moments(NamedTuple):
    """Over the internal draws of a tile, by block."""

    shifts: list[Tensor]
    """From the mean of decoded draws to the backward state, `(nodes, rows, width)`."""
    variances: list[Tensor]
    chances: dict[int, Tensor]
    """Probabilities of discrete leaves: of 1, or of every category."""


@dataclass
class Tile:
    """A tile of rows and their draws."""

    model: VFG
    belief: Belief
    noise: Tensor
    """Deviations of the leaves' noise in the model's units, `(rows, columns)`."""
    temperature: Tensor
    """What the roots' precision is multiplied by."""
    row_ids: Tensor
    seed: int
    remembered: dict[int, Moments]
    """A cache of moments, by the first id of their tile."""

    @property
    def joint(self) -> bool:
        """Whether draws include the uncertainty of the roots."""
        return is_joint(self.model)

    @property
    def moments(self) -> Moments:
        """Mean and variance over the internal draws, by block `(nodes, rows, width)`."""
        first = int(self.row_ids[0])
        if first not in self.remembered:
            self.remembered[first] = self._moments()
        return self.remembered[first]

    def _moments(self) -> Moments:
        states, shifts = centred_states(self.model, self.belief, self.temperature)
        pairs = zip(states, self.belief.backward, strict=True)
        variances = [(x - centre).square().mean(0) for x, centre in pairs]
        result = {}
        for block, noise in self.model.sections.split(self.noise).items():
            likelihood = self.model.likelihood_at(block)
            if isinstance(likelihood, BernoulliLikelihood | CategoricalLikelihood):
                result[block] = average_chances(likelihood, states[block], noise)
        return Moments(shifts, variances, result)

    def expected(self) -> Tensor:
        """Expected data, `(rows, columns)`; the probability of 1, or the most probable code."""
        parts = self.model.leaf_means(self.belief.backward)
        for block, chances in self.moments.chances.items():
            is_code = isinstance(self.model.likelihood_at(block), CategoricalLikelihood)
            parts[block] = chances.argmax(-1, keepdim=True).to(chances) if is_code else chances
        return self.model.scaling.undo(self.model.sections.join(parts))

    def states(self, draws: Tensor) -> list[Tensor]:
        """Backward states for draws by their numbers, by block `(draws, nodes, rows, width)`."""
        if not self.joint:
            return self._repeat_states(len(draws))
        drawn = decode(self.model, self.belief, self.root_normals(draws), self.temperature)
        return [x + shift for x, shift in zip(drawn, self.moments.shifts, strict=True)]

    def levels(self, draws: Tensor) -> Tensor:
        """Uniform numbers behind the leaves' draws, `(draws, rows, columns)`."""
        return uniform(self.seed, self.row_ids, draws, *column_counters(self.model))

    def plain_quantiles(self, levels: Tensor) -> Tensor:
        """Quantiles of the leaves given the backward states alone, `(levels, rows, columns)`."""
        shape = (len(levels), len(self.row_ids), self.model.sections.columns)
        states = self._repeat_states(len(levels))
        return self.at_levels(states, levels[:, None, None].expand(shape))

    def deviations(self) -> Tensor:
        """Standard deviations of the leaves in data units, `(rows, columns)`."""
        noise, moments = self.model.sections.split(self.noise), self.moments
        parts = {
            block: deviation(
                self.model.likelihood_at(block),
                self.belief.backward[block],
                moments.variances[block],
                noise[block],
            )
            for block in noise
            if block not in moments.chances
        }
        for block, chances in moments.chances.items():
            # Codes have no order, so they have no deviation.
            is_code = isinstance(self.model.likelihood_at(block), CategoricalLikelihood)
            unknown = torch.full_like(chances[..., :1], torch.nan)
            parts[block] = unknown if is_code else (chances * (1.0 - chances)).sqrt()
        return self.model.sections.join(parts).double() * self.model.scaling.scale

    def state_deviations(self, block: int) -> Tensor:
        """Standard deviations of latent states, `(nodes, rows, width)`; NaN if unknown."""
        if not self.joint:
            return torch.full_like(self.belief.backward[block], torch.nan)
        if block not in self.belief.roots:
            return self.moments.variances[block].sqrt()
        factor = root_factor(self.belief.roots[block])
        wide = factor.ndim > self.belief.backward[block].ndim
        return (factor.square().sum(-1).sqrt() if wide else factor) * self.temperature.rsqrt()

    def _repeat_states(self, count: int) -> list[Tensor]:
        return [states.expand(count, *states.shape) for states in self.belief.backward]

    def root_normals(self, draws: Tensor) -> dict[int, Tensor]:
        """Standard Normal draws of the roots, by block `(draws, nodes, rows, width)`."""
        order = {node.name: place for place, node in enumerate(self.model.graph.nodes)}
        normals = {}
        for index in self.belief.roots:
            block = self.model.passing.schedule.blocks[index]
            nodes = torch.tensor([order[name] for name in block.nodes])
            coordinates = torch.arange(block.width).repeat(len(nodes))
            nodes = nodes.repeat_interleave(block.width)
            drawn = normal(self.seed, self.row_ids, draws, nodes, coordinates)
            shaped = drawn.unflatten(-1, (len(block.nodes), block.width)).movedim(2, 1)
            normals[index] = shaped.to(self.belief.backward[index])
        return normals

    def at_levels(self, states: list[Tensor], numbers: Tensor) -> Tensor:
        """The leaves' quantiles at `numbers (draws, rows, columns)`, in data units."""
        turned = [state.movedim(0, 1) for state in states]
        return data_at_levels(self.model, turned, numbers, self.noise)


def data_at_levels(model: VFG, states: list[Tensor], levels: Tensor, noise: Tensor) -> Tensor:
    """Quantiles of the leaves in data units at levels `(draws, rows, columns)`.

    States are by block `(nodes, draws, rows, width)`; for the noise see `quantile`.
    """
    sections = model.sections
    spread = sections.split(noise.expand(levels.shape).flatten(0, 1))
    parts = {
        block: quantile(
            model.likelihood_at(block), states[block].flatten(1, 2), level, spread[block]
        )
        for block, level in sections.split(levels.flatten(0, 1)).items()
    }
    return model.scaling.undo(sections.join(parts)).view(levels.shape)


def chances(
    likelihood: BernoulliLikelihood | CategoricalLikelihood, state: Tensor, softness: Tensor
) -> Tensor:
    """Probabilities of 1 `(nodes, batch, width)`, or of the codes `(nodes, batch, categories)`.

    Logits are divided by the softness `(nodes, batch, columns)`, which is 1 before calibration.
    """
    logits: Tensor = likelihood.logits(state) / softness
    return logits.sigmoid() if isinstance(likelihood, BernoulliLikelihood) else logits.softmax(-1)


def average_chances(
    likelihood: BernoulliLikelihood | CategoricalLikelihood, states: Tensor, softness: Tensor
) -> Tensor:
    """The mean of `chances` over draws `(draws, nodes, batch, width)`."""
    count = len(states)
    flat = states.movedim(0, 1).flatten(1, 2)
    wide = softness[:, None].expand(-1, count, -1, -1).flatten(1, 2)
    each: Tensor = chances(likelihood, flat, wide).unflatten(1, (count, -1))
    return each.mean(1)


def column_counters(model: VFG) -> tuple[Tensor, Tensor]:
    """Node and coordinate of every table column, as the generator counts them."""
    order = {node.name: place for place, node in enumerate(model.graph.nodes)}
    nodes = torch.zeros(model.sections.columns, dtype=torch.long)
    coordinates = torch.zeros_like(nodes)
    for leaf, columns in model.sections.positions.items():
        nodes[list(columns)] = order[leaf]
        coordinates[list(columns)] = torch.arange(len(columns))
    return nodes, coordinates


@singledispatch
def quantile(likelihood: object, state: Tensor, level: Tensor, noise: Tensor) -> Tensor:
    """The data of leaves at a level in (0, 1); at uniform levels these are draws.

    Args:
        likelihood: of the leaves; a new kind registers its own function with `quantile.register`.
        state: `(nodes, batch, width)`.
        level: `(nodes, batch, columns)`.
        noise: the deviation of continuous noise, shaped like `level`; the softness of discrete
            leaves, by which their logits are divided.
    """
    raise TypeError(f"no draws are known for {type(likelihood).__name__}; register them")


@quantile.register
def _(likelihood: GaussianLikelihood, state: Tensor, level: Tensor, noise: Tensor) -> Tensor:
    standard: Tensor = torch.special.ndtri(level)
    return state + noise * standard.to(state)


@quantile.register
def _(likelihood: BernoulliLikelihood, state: Tensor, level: Tensor, noise: Tensor) -> Tensor:
    return (level > 1.0 - chances(likelihood, state, noise)).to(state)


@quantile.register
def _(likelihood: CategoricalLikelihood, state: Tensor, level: Tensor, noise: Tensor) -> Tensor:
    below = chances(likelihood, state.double(), noise.double()).cumsum(-1)[..., :-1]
    return (level > below).sum(-1, keepdim=True).to(state)


@singledispatch
def deviation(likelihood: object, state: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """The standard deviation of leaves, `(nodes, batch, columns)`; NaN if there is none.

    Arguments and registration as in `quantile`; `variance` is that of the state.
    """
    raise TypeError(f"no deviations are known for {type(likelihood).__name__}; register them")


@deviation.register
def _(likelihood: GaussianLikelihood, state: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    return (variance + noise.square()).sqrt()
