"""Answers of models with sampled states: draws of the latent nodes given what is observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from vfg.distributions.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
)
from vfg.inference.answers import (
    DRAWS_FOR_QUANTILES,
    OTHER_TILE,
    TILE,
    ByName,
    GraphAnswer,
    TableAndStates,
    Target,
    discrete_quantiles,
    sorted_quantiles,
)
from vfg.inference.calibration import discrete_columns, likelihood_scales
from vfg.inference.draws import GROUP, column_counters, data_at_levels, deviation
from vfg.inference.propagation import place_batch
from vfg.sampling.noise import counted_noise
from vfg.sampling.state_sampler import draw_states, log_weights
from vfg.utils.random import uniform

if TYPE_CHECKING:
    from vfg.model import VFG


DRAWS_FOR_MEANS = 256
"""Draws behind means without importance weights: their error is a sixteenth of a deviation."""


class Pool(NamedTuple):
    """Draws of the states of a tile of rows, and how much each counts."""

    states: list[Tensor]
    """By block `(nodes, draws, rows, width)`."""
    shares: Tensor
    """Weights that sum to 1 for every row, `(draws, rows)`."""

    def average(self, part: Tensor) -> Tensor:
        """The mean of `(nodes, draws, rows, width)`, `(nodes, rows, width)`."""
        return (part * self.shares[None, :, :, None]).sum(1)


@dataclass
class SampledTile:
    """Rows at consecutive ids and the draws of their states."""

    model: VFG
    cells: Tensor
    """A table in the model's units, `(rows, columns)`."""
    seen: Tensor
    labels: Tensor | None
    evidence: dict[int, Tensor]
    """Given latent states by block, NaN where free."""
    row_ids: Tensor
    seed: int
    importance: int
    """How many draws are weighed; 0 for none."""

    @cached_property
    def weighed(self) -> tuple[list[Tensor], Tensor]:
        """The draws behind means, by block, and their log-weights `(draws, rows)`."""
        return self._first(self.importance or DRAWS_FOR_MEANS)

    @property
    def pool(self) -> Pool:
        """The draws behind means with their shares: alike, unless they are weighed."""
        states, weights = self.weighed
        even = torch.zeros_like(weights)
        return Pool(states, (weights if self.importance else even).softmax(0).to(self.cells))

    def states(self, count: int) -> list[Tensor]:
        """The first `count` draws by block; if weighed, drawn again from the weighed ones."""
        return self._resample(count) if self.importance else self._first(count)[0]

    def data(self, states: list[Tensor]) -> Tensor:
        """Draws of the leaves given states, in data units, `(draws, rows, columns)`."""
        draws = torch.arange(states[0].shape[1])
        levels = uniform(self.seed, self.row_ids, draws, *column_counters(self.model))
        return data_at_levels(self.model, states, levels, likelihood_scales(self.model))

    def _first(self, count: int) -> tuple[list[Tensor], Tensor]:
        """The first draws by block and their log-weights, in groups that have always one size."""
        model, result, weights = self.model, [], []
        for first in range(0, count, GROUP):
            draws = torch.arange(first, first + GROUP)
            noise = counted_noise(model.passing.schedule, self.row_ids, draws, self.seed)
            evidence = self.cells, self.seen, self.labels, self.evidence
            draw = draw_states(model, *evidence, noise, GROUP)
            result.append(draw.states)
            weights.append(log_weights(model, draw, self.cells, self.seen))
        states = [torch.cat(parts, dim=1)[:, :count] for parts in zip(*result, strict=True)]
        return states, torch.cat(weights)[:count]

    def _resample(self, count: int) -> list[Tensor]:
        states, weights = self.weighed
        below = weights.softmax(0).cumsum(0)[:-1]
        # A node that the graph has not, so that these numbers are used nowhere else.
        node, zero = len(self.model.graph.nodes), torch.zeros(1, dtype=torch.long)
        numbers = uniform(self.seed, self.row_ids, torch.arange(count), node, zero)[..., 0]
        chosen = (numbers[:, None] > below[None]).sum(1)
        return [
            state.gather(1, chosen[None, :, :, None].expand(len(state), -1, -1, state.shape[-1]))
            for state in states
        ]


class SampledAnswer(GraphAnswer):
    """What a model with sampled states infers, from draws of its latent nodes.

    Latent nodes are drawn from q given the observed sections, nodes without observed descendants
    from their parents; the leaves follow by their likelihoods. Means and deviations are those of
    the 256 first draws, or, if `importance` draws are weighed, of those with self-normalised
    importance weights; quantiles come from 256 draws. Draws are joint; if draws are weighed, they
    are chosen among the weighed ones by their weights.

    Example:
        >>> import vfg
        >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
        >>> model = vfg.VFG(graph, states="sampled")
        >>> answer = model.infer({"a": [1.0, 2.0]}, targets=["b"], importance=200)
        >>> answer.mean["b"].shape, answer.effective_sample_size.shape
        (torch.Size([2, 1]), torch.Size([2]))
    """

    _model: VFG

    def __init__(self, model: VFG, *shared: Any, labels: Tensor | None, importance: int) -> None:
        super().__init__(model, *shared)
        self._labels, self._importance = labels, importance

    def _own_arguments(self, rows: Tensor) -> dict[str, Any]:
        labels = None if self._labels is None else self._labels[rows]
        return {"labels": labels, "importance": self._importance}

    @cached_property
    def effective_sample_size(self) -> Tensor:
        """How many equally weighed draws the draws behind the means are worth, `(rows,)`.

        Far below their number, q is far from the posterior, and weighing helps more than it costs
        only if the number itself is large.
        """
        # (Σ w)² / Σ w² of the importance weights.
        return self._by_row(lambda tile: 1.0 / tile.weighed[1].softmax(0).square().sum(0))

    @cached_property
    def mean(self) -> ByName:
        return self._with_evidence(self._moments_by_name[0])

    @cached_property
    def std(self) -> ByName:
        return self._with_evidence(self._moments_by_name[1], certain=0.0)

    def __repr__(self) -> str:
        if not self._importance or not self._given.rows:
            return super().__repr__()
        least = float(self.effective_sample_size.min())
        return (
            f"{super().__repr__()}; effective sample size {least:.0f} or more of {self._importance}"
        )

    # Private.

    @cached_property
    def _moments_by_name(self) -> list[ByName]:
        return self._collect(self._moments_of, (), ())

    def _moments_of(self, tile: SampledTile) -> tuple[TableAndStates, TableAndStates]:
        """Means and deviations over the pool."""
        model, pool = self._model, tile.pool
        centres = [pool.average(state) for state in pool.states]
        spreads = [
            pool.average((state - centre[:, None]).square())
            for state, centre in zip(pool.states, centres, strict=True)
        ]
        means, deviations = {}, {}
        for block in model._blocks_of(model.likelihoods):
            means[block], deviations[block] = self._leaf_moments(pool, block, spreads[block])
        table = model.scaling.undo(model.sections.join(means))
        wide = model.sections.join(deviations).double() * model.scaling.scale
        roots = [variance.sqrt() for variance in spreads]
        return TableAndStates(table, self._states(centres)), TableAndStates(
            wide, self._states(roots)
        )

    def _leaf_moments(self, pool: Pool, block: int, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of a leaf block in the model's units, `(nodes, rows, columns)`."""
        likelihood, states = self._model.likelihood_at(block), pool.states[block]
        if isinstance(likelihood, CategoricalLikelihood):
            codes = _code_shares(pool, likelihood, states).argmax(-1, keepdim=True).to(states)
            return codes, torch.full_like(codes, torch.nan)
        flat = states.flatten(1, 2)
        each = likelihood.mean(flat).unflatten(1, states.shape[1:3])
        mean = pool.average(each)
        if isinstance(likelihood, GaussianLikelihood):
            return mean, (variance + likelihood.scale().square()).sqrt()
        if isinstance(likelihood, BernoulliLikelihood):
            return mean, (mean * (1.0 - mean)).clamp(min=0.0).sqrt()
        own = deviation(likelihood, flat, torch.zeros_like(flat), torch.zeros_like(flat))
        squares = own.square().unflatten(1, states.shape[1:3]) + each.square()
        return mean, (pool.average(squares) - mean.square()).clamp(min=0.0).sqrt()

    def _quantiles(self, tile: SampledTile, levels: Tensor) -> TableAndStates:
        """Quantiles from draws; of Bernoulli leaves from their probability; NaN of codes."""
        drawn = self._draw(tile, DRAWS_FOR_QUANTILES).map(lambda x: sorted_quantiles(x, levels))
        mean, deviation = self._moments_of(tile)
        discrete = discrete_quantiles(mean.table, deviation.table, levels).to(drawn.table)
        table = torch.where(discrete_columns(self._model), discrete, drawn.table)
        return TableAndStates(table, drawn.states)

    def _draw(self, tile: SampledTile, count: int) -> TableAndStates:
        states = tile.states(count)
        return TableAndStates(
            tile.data(states), self._states([state.movedim(1, 0) for state in states])
        )

    def _tiles(self) -> Iterator[tuple[Tensor, Tensor, SampledTile]]:
        given, size = self._given, TILE.get(self._row_ids.device.type, OTHER_TILE)
        for rows, positions, ids in self._own_tiles(size):
            batch = place_batch(given, self._labels, rows, positions, len(ids))
            tile = SampledTile(
                self._model, *batch, row_ids=ids, seed=self._seed, importance=self._importance
            )
            yield rows, positions, tile

    def _shares(self, tile: SampledTile, target: Target) -> Tensor:
        block, row = self._model.passing.schedule.place[target.node]
        likelihood = self._model.likelihood_at(block)
        assert isinstance(likelihood, CategoricalLikelihood)
        return _code_shares(tile.pool, likelihood, tile.pool.states[block])[row]


def _code_shares(pool: Pool, likelihood: CategoricalLikelihood, states: Tensor) -> Tensor:
    """Probabilities of every code, `(nodes, rows, categories)`."""
    logits = likelihood.logits(states.flatten(1, 2)).softmax(-1)
    return pool.average(logits.unflatten(1, states.shape[1:3]))
