"""Data-parallel training under torchrun: who we are among how many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def agree(self, value: float, device: torch.device) -> float:
        """The first process's value, so that all take the same decision."""
        if self.size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=device)
        dist.broadcast(shared, src=0)
        return float(shared)


@contextmanager
def joined_world(device: torch.device) -> Iterator[World]:
    """The processes that torchrun started, or this one alone.

    A process group that exists already is used and left alone; otherwise one is made (gloo on
    CPUs, nccl on GPUs) and taken down again.
    """
    if dist.is_available() and dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size())
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        try:
            yield World(dist.get_rank(), dist.get_world_size())
        finally:
            dist.destroy_process_group()
    else:
        yield World()


def chosen_device(device: str | torch.device | None) -> torch.device:
    """The device to train on: the one named, else this process's GPU, else the CPU."""
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")
