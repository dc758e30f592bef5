"""Dropout by random bytes: a random number for every entry would take longer than its layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEVELS = 256
"""How many values a byte has: rates are rounded to a multiple of one over this."""


def random_bytes(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A byte for every entry, from torch's global random stream.

    Example:
        >>> random_bytes((2, 3), torch.device("cpu")).dtype
        torch.uint8
    """
    size = math.prod(shape)
    words = torch.empty(-(-size // 8), dtype=torch.int64, device=device).random_(-(2**63), None)
    return words.view(torch.uint8)[:size].view(shape)


def drop(x: Tensor, noise: Tensor, rate: float, room: Tensor | None = None) -> Tensor:
    """Set the entries with a small byte to 0, in place; what is left is not scaled up.

    Args:
        x: what to change.
        noise: a random byte for every entry.
        rate: the share of bytes that are small.
        room: shaped like `x`, may be overwritten; None takes new memory.

    Example:
        >>> drop(torch.ones(3), torch.tensor([10, 100, 200], dtype=torch.uint8), rate=0.25)
        tensor([0., 1., 1.])
    """
    level = dropped_levels(rate)
    if x.device.type != "cpu":
        return x.mul_(noise >= level)
    # On a CPU products with booleans take several times as long as with numbers.
    kept = torch.empty_like(x) if room is None else room
    return x.mul_(torch.ge(noise, level, out=kept))


def dropout_factor(rate: float) -> float:
    """By how much what is left has to be scaled up; 1 at rate 0.

    Example:
        >>> dropout_factor(0.5)
        2.0
    """
    return LEVELS / (LEVELS - dropped_levels(rate)) if rate else 1.0


def dropped_levels(rate: float) -> int:
    """How many of a byte's values mean that an entry is dropped."""
    return min(max(round(rate * LEVELS), 1), LEVELS - 1)
