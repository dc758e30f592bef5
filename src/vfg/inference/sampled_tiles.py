"""Draws of the latent states of a tile of rows, plain or weighed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from vfg.inference.calibration import likelihood_scales
from vfg.inference.draws import GROUP, column_counters, quantile
from vfg.sampling.counted import CountedNoise
from vfg.sampling.weights import drawn, log_weights
from vfg.utils.random import uniform

if TYPE_CHECKING:
    from vfg.model import VFG

DRAWS_FOR_MEANS = 256
"""How many draws means and deviations are averaged over, if none are weighed."""


class Pool(NamedTuple):
    """Draws of the states of a tile of rows, and how much each counts."""

    states: list[Tensor]
    """By block `(nodes, draws, rows, width)`."""
    shares: Tensor
    """Weights that sum to 1 for every row, `(draws, rows)`."""

    def average(self, part: Tensor) -> Tensor:
        """The mean of `(nodes, draws, rows, width)`, `(nodes, rows, width)`."""
        return (part * self.shares[None, :, :, None]).sum(1)


class SampledTile:
    """Rows at consecutive ids and the draws of their states.

    Args:
        model: the model.
        cells: a table in the model's units `(rows, columns)`.
        seen: which of its cells are observed.
        labels: label per row, or None.
        evidence: given latent states by block, NaN where free.
        row_ids: the ids of the rows.
        seed: of the draws.
        importance: how many draws are weighed; 0 for none.
    """

    def __init__(
        self,
        model: VFG,
        cells: Tensor,
        seen: Tensor,
        labels: Tensor | None,
        evidence: dict[int, Tensor],
        *,
        row_ids: Tensor,
        seed: int,
        importance: int,
    ) -> None:
        self.model, self.cells, self.seen, self.labels = model, cells, seen, labels
        self.evidence, self.row_ids, self.seed = evidence, row_ids, seed
        self.importance = importance

    @cached_property
    def weighed(self) -> tuple[list[Tensor], Tensor]:
        """The draws behind means, by block, and their log-weights `(draws, rows)`."""
        count = self.importance or DRAWS_FOR_MEANS
        groups = [self._group(number) for number in range(-(-count // GROUP))]
        states = [
            torch.cat(parts, dim=1)[:, :count]
            for parts in zip(*(states for states, _ in groups), strict=True)
        ]
        return states, torch.cat([weights for _, weights in groups])[:count]

    @property
    def pool(self) -> Pool:
        """The draws behind means with their shares: alike, unless they are weighed."""
        states, weights = self.weighed
        even = torch.zeros_like(weights)
        return Pool(states, (weights if self.importance else even).softmax(0).to(self.cells))

    def effective_sample_size(self) -> Tensor:
        """(Σ w)² / Σ w² of the importance weights, `(rows,)`."""
        shares = self.weighed[1].softmax(0)
        return 1.0 / shares.square().sum(0)

    def states(self, count: int) -> list[Tensor]:
        """The first `count` draws by block; if weighed, drawn again from the weighed ones."""
        if self.importance:
            return self._resampled(count)
        groups = [self._group(number)[0] for number in range(-(-count // GROUP))]
        return [torch.cat(parts, dim=1)[:, :count] for parts in zip(*groups, strict=True)]

    def data(self, states: list[Tensor]) -> Tensor:
        """Draws of the leaves given states, in data units, `(draws, rows, columns)`."""
        model, count = self.model, states[0].shape[1]
        nodes, coordinates = column_counters(model)
        draws = torch.arange(count)
        levels = uniform(self.seed, self.row_ids, draws, nodes, coordinates)
        noise = likelihood_scales(model).expand(levels.shape).flatten(0, 1)
        split = model.sections.split(noise)
        found = {
            block: quantile(
                model.likelihood_at(block), states[block].flatten(1, 2), level, split[block]
            )
            for block, level in model.sections.split(levels.flatten(0, 1)).items()
        }
        return model.scaling.undo(model.sections.join(found)).view(levels.shape)

    def _group(self, number: int) -> tuple[list[Tensor], Tensor]:
        """One group of draws: always as many, so that each has the same bits in every request."""
        model, draws = self.model, torch.arange(number * GROUP, (number + 1) * GROUP)
        noise = CountedNoise(model.passing.schedule, self.row_ids, draws, self.seed)
        found = drawn(model, self.cells, self.seen, self.labels, self.evidence, noise, GROUP)
        return found.states, log_weights(model, found, self.cells, self.seen)

    def _resampled(self, count: int) -> list[Tensor]:
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
