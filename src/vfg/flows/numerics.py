"""Random streams and precision: the two ways in which global state could leak into a flow."""

from __future__ import annotations

import torch
from torch import Tensor


def private_generator(generator: torch.Generator | None) -> torch.Generator:
    """The given generator or a fresh one with seed 0: the global stream stays untouched."""
    return torch.Generator().manual_seed(0) if generator is None else generator


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    """Draw a tensor uniformly from [-bound, bound]."""
    unit = torch.rand(shape, generator=generator, device=generator.device)
    return (2 * unit - 1) * bound


def normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw a tensor of standard normal numbers."""
    return torch.randn(shape, generator=generator, device=generator.device)


def without_autocast(x: Tensor) -> torch.autocast:
    """A context in which matrix products keep the dtype of their operands."""
    return torch.autocast(device_type=x.device.type, enabled=False)
