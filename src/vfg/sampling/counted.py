"""Noise of drawn states that depends on where it is used, and on nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from vfg.passing.schedule import Schedule
from vfg.utils.random import normal


class CountedNoise:
    """Numbers that depend on seed, row id, draw, node and coordinate, and on nothing else.

    Args:
        schedule: which nodes each block has.
        row_ids: the ids of the rows, `(rows,)`.
        draws: the numbers of the draws, `(draws,)`.
        seed: any integer.
    """

    def __init__(self, schedule: Schedule, row_ids: Tensor, draws: Tensor, seed: int) -> None:
        self.schedule, self.row_ids, self.draws, self.seed = schedule, row_ids, draws, seed
        self.order = {node.name: place for place, node in enumerate(schedule.graph.nodes)}

    def __call__(self, block: int, like: Tensor) -> Tensor:
        nodes, _, _, width = like.shape
        places = torch.tensor([self.order[name] for name in self.schedule.blocks[block].nodes])
        found = normal(
            self.seed,
            self.row_ids,
            self.draws,
            places.repeat_interleave(width),
            torch.arange(width).repeat(nodes),
        )
        return found.view(*found.shape[:2], nodes, width).movedim(2, 0).to(like)
