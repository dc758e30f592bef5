"""Splitting states into two halves and joining them again, each the other's derivative.

What autograd makes of a choice of coordinates adds into zeros, atom by atom; but no coordinate is
chosen twice, so copies will do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vfg.flows.fast.memory import is_ordinary


def split(x: Tensor, one: Tensor, two: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinates `one` and `two`, which together are all, of `x (..., width)`.

    Args:
        x: the states.
        one: numbers of coordinates.
        two: numbers of the others.
        places: where each coordinate lies once the halves are side by side.

    Example:
        >>> one, two, places = torch.tensor([2]), torch.tensor([0, 1]), torch.tensor([1, 2, 0])
        >>> split(torch.tensor([10.0, 11.0, 12.0]), one, two, places)
        (tensor([12.]), tensor([10., 11.]))
    """
    if not _is_derived_backwards(x):
        return x.index_select(-1, one), x.index_select(-1, two)
    halves: tuple[Tensor, Tensor] = _Split.apply(x, one, two, places)  # type: ignore[no-untyped-call]
    return halves


def join(x: Tensor, y: Tensor, one: Tensor, two: Tensor, places: Tensor) -> Tensor:
    """The inverse of `split`.

    Example:
        >>> one, two, places = torch.tensor([2]), torch.tensor([0, 1]), torch.tensor([1, 2, 0])
        >>> join(torch.tensor([12.0]), torch.tensor([10.0, 11.0]), one, two, places)
        tensor([10., 11., 12.])
    """
    if not _is_derived_backwards(x):
        return torch.cat([x, y], dim=-1).index_select(-1, places)
    whole: Tensor = _Join.apply(x, y, one, two, places)  # type: ignore[no-untyped-call]
    return whole


def _is_derived_backwards(x: Tensor) -> bool:
    """Whether reverse differentiation is all that may happen to a tensor."""
    return torch.compiler.is_compiling() or is_ordinary(x)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, one: Tensor, two: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(places)
        return x.index_select(-1, one), x.index_select(-1, two)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        return torch.cat(gradients, dim=-1).index_select(-1, places), None, None, None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, one: Tensor, two: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(one, two)
        return torch.cat([x, y], dim=-1).index_select(-1, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        one, two = ctx.saved_tensors
        (gradient,) = gradients
        return gradient.index_select(-1, one), gradient.index_select(-1, two), None, None, None
