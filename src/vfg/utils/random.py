"""Counter-based random numbers: each is a function of seed, row, draw, node and coordinate."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# The odd multipliers of the splitmix64 finaliser, and 2^64 / golden ratio, as signed integers.
_FIRST, _SECOND, _GOLDEN = (
    number - 2**64 for number in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15)
)


def uniform(
    seed: int, row_ids: Tensor, draws: Tensor, nodes: Tensor | int, coordinates: Tensor
) -> Tensor:
    r"""Float64 numbers in (0, 1) `(draws, rows, coordinates)`, each a hash of five integers.

    $$u = (\lfloor \mathrm{hash}(\text{seed}, \text{row}, \text{draw}, \text{node},
      \text{coordinate}) / 2^{12} \rfloor + \tfrac12) / 2^{52}$$

    A number does not depend on which others are drawn with it, nor on the device. Seeds that differ
    by a multiple of 2⁶⁴ are the same; `nodes` is one integer, or one per coordinate.

    Example:
        >>> two = uniform(0, torch.arange(3), torch.arange(2), 0, torch.arange(4))
        >>> one = uniform(0, torch.tensor([2]), torch.tensor([1]), 0, torch.tensor([3]))
        >>> two.shape, bool(two[1, 2, 3] == one[0, 0, 0])
        (torch.Size([2, 3, 4]), True)
    """
    signed = (seed + 2**63) % 2**64 - 2**63
    state = _absorb(_mix(torch.tensor(signed, device=row_ids.device) + _GOLDEN), row_ids)
    state = _absorb(state, draws.to(row_ids)[:, None])[..., None]
    state = _absorb(state, torch.as_tensor(nodes).to(row_ids))
    state = _absorb(state, coordinates.to(row_ids))
    # 52 bits and a half are exact in float64, and neither 0 nor 1.
    return (_shift_right(state, 12).double() + 0.5) * 2.0**-52


def normal(
    seed: int, row_ids: Tensor, draws: Tensor, nodes: Tensor | int, coordinates: Tensor
) -> Tensor:
    """Standard Normal numbers: the Normal quantiles of `uniform` with the same arguments.

    Example:
        >>> many = normal(0, torch.arange(100), torch.arange(100), 0, torch.arange(1))
        >>> round(many.mean().item(), 1), round(many.std().item(), 1)
        (0.0, 1.0)
    """
    quantiles: Tensor = torch.special.ndtri(uniform(seed, row_ids, draws, nodes, coordinates))
    return quantiles


_GLOBAL_GENERATOR = threading.RLock()
"""Held while torch's global generator has the state of another one."""


@contextmanager
def as_global_generator(generator: torch.Generator) -> Iterator[None]:
    """Within this context torch's global generator of the CPU draws the numbers of another one.

    For code that takes no generator: compiled code and modules of users. Threads take turns.

    Example:
        >>> own = torch.Generator().manual_seed(0)
        >>> before = torch.get_rng_state()
        >>> with as_global_generator(own):
        ...     drawn = torch.rand(2)
        >>> bool(torch.equal(drawn, torch.rand(2, generator=torch.Generator().manual_seed(0))))
        True
        >>> bool(torch.equal(before, torch.get_rng_state()))
        True
    """
    with _GLOBAL_GENERATOR:
        before = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)


def _absorb(state: Tensor, value: Tensor) -> Tensor:
    """Add one integer to the hash; the order of integers matters."""
    return _mix((state ^ _mix(value + _GOLDEN)) + _GOLDEN)


def _mix(value: Tensor) -> Tensor:
    """A bijection of 64-bit integers in which every bit depends on every bit."""
    value = (value ^ _shift_right(value, 30)) * _FIRST
    value = (value ^ _shift_right(value, 27)) * _SECOND
    return value ^ _shift_right(value, 31)


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; `>>` of signed integers would copy the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
