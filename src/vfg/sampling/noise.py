"""Where the randomness of drawn states comes from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Noise = Callable[[int, Tensor], Tensor]
"""Standard Normal numbers for the block at an index, in the shape, dtype and place of a tensor
`(nodes, draws, rows, numbers)`."""


def fresh_noise(block: int, like: Tensor) -> Tensor:
    """From torch's global random stream, as training wants it."""
    return torch.randn_like(like)


def no_noise(block: int, like: Tensor) -> Tensor:
    """None at all: every draw is at its centre."""
    return torch.zeros_like(like)


class GeneratedNoise:
    """From a generator, in the order in which blocks ask.

    Args:
        generator: on the device of the model.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __call__(self, block: int, like: Tensor) -> Tensor:
        return torch.randn(
            like.shape, dtype=like.dtype, device=like.device, generator=self.generator
        )
