"""Affine couplings of a few edges and rows at a time, forwards and backwards, without autograd.

Inside a tile states are kept as `(edges, coordinates + 1, rows)`: with the rows last, splits and
joins are copies of long rows, and a last coordinate that is always 1 makes the first bias a part of
the first product. Hidden layers are `(edges, rows, hidden)`. They are not stored for the derivative
but computed again: they are by far the largest tensors, and a tile of them fits into a cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .dropout import drop

TILE = 1 << 17
"""How many numbers of a hidden layer a tile has per thread, so that it stays in a core's cache."""
ROWS = 512
"""How many rows a tile has at most; the same for any number of threads."""


class Noise(NamedTuple):
    """What decides about dropout: a rate, and, unless it is 0, bytes for every hidden layer."""

    rate: float
    layers: list[Tensor]


class Block(NamedTuple):
    """The tensors of one coupling, arranged for tiles; every one begins with the edges."""

    first: Tensor
    """Weights and, as the last row, bias of the first layer, `(edges, kept + 1, hidden)`."""
    inner: tuple[tuple[Tensor, Tensor], ...]
    """Weights and biases of the hidden layers after it."""
    last: Tensor
    """Weights of the last layer, `(edges, 2 moved, hidden)`: of the scales, then of the shifts."""
    bias: Tensor
    """Its bias, `(edges, 2 moved, 1)`."""

    def of(self, edges: slice) -> Block:
        """The tensors of some edges."""
        inner = tuple((weight[edges], bias[edges]) for weight, bias in self.inner)
        return Block(self.first[edges], inner, self.last[edges], self.bias[edges])

    def zeros(self) -> Block:
        """Room for the derivatives with respect to all of them."""
        inner = tuple((torch.zeros_like(w), torch.zeros_like(b)) for w, b in self.inner)
        return Block(
            torch.zeros_like(self.first),
            inner,
            torch.zeros_like(self.last),
            torch.zeros_like(self.bias),
        )


class Moves(NamedTuple):
    """What the derivative of one coupling of a tile needs."""

    kept: Tensor
    """What the conditioner saw, `(edges, kept + 1, rows)`."""
    moved: Tensor
    """The moved coordinates where they are multiplied: before a scaling, after its inverse."""
    log_scale: Tensor
    noise: Noise


def tiles(edges: int, rows: int, hidden: int, is_cpu: bool) -> list[tuple[slice, slice]]:
    """Slices of edges and of rows that together cover everything.

    Example:
        >>> tiles(3, 600, 64, is_cpu=False)
        [(slice(0, 3, None), slice(0, 600, None))]
    """
    if not is_cpu:
        return [(slice(0, edges), slice(0, rows))]
    height = min(rows, ROWS) or 1
    together = max(1, torch.get_num_threads() * TILE // (height * hidden))
    return [
        (slice(e, min(e + together, edges)), slice(r, min(r + height, rows)))
        for e in range(0, edges, together)
        for r in range(0, max(rows, 1), height)
    ]


def with_one(x: Tensor) -> Tensor:
    """`(edges, rows, coordinates)` to `(edges, coordinates + 1, rows)`, the last one 1."""
    state = x.new_empty(x.shape[0], x.shape[2] + 1, x.shape[1])
    state[:, :-1] = x.mT
    state[:, -1] = 1.0
    return state


def move(
    kept: Tensor, moved: Tensor, block: Block, noise: Noise, bound: float, inverse: bool
) -> tuple[Tensor, Moves]:
    """One coupling: the moved coordinates afterwards, and what its derivative needs."""
    hidden = _hidden(kept, block, noise)[-1]
    numbers = torch.bmm(block.last, hidden.mT).add_(block.bias)
    log_scale, shift = numbers.split(numbers.shape[1] // 2, dim=1)
    log_scale = log_scale.div_(bound).tanh_().mul_(bound)
    result = torch.empty_like(moved)
    result[:, -1] = 1.0
    x, y = moved[:, :-1], result[:, :-1]
    if inverse:
        torch.sub(x, shift, out=y).mul_(torch.neg(log_scale).exp_())
        return result, Moves(kept, result, log_scale, noise)
    torch.addcmul(shift, x, log_scale.exp(), out=y)
    return result, Moves(kept, moved, log_scale, noise)


def move_back(
    gradient_kept: Tensor,
    gradient_moved: Tensor,
    gradient_log: Tensor | None,
    moves: Moves,
    block: Block,
    found: Block,
    bound: float,
    inverse: bool,
) -> Tensor:
    """The derivative of `move`.

    Args:
        gradient_kept: with respect to the kept coordinates; what the conditioner adds to it is
            added in place.
        gradient_moved: with respect to the moved coordinates afterwards.
        gradient_log: with respect to the logarithm of the determinant, `(edges, 1, rows)`.
        moves: what `move` returned.
        block: the coupling.
        found: derivatives with respect to its tensors, to which this tile's are added.
        bound: of the logarithms of the scales.
        inverse: whether the coupling was inverted.

    Returns:
        The gradient with respect to the moved coordinates before.
    """
    sign = -1.0 if inverse else 1.0
    moved, log_scale = moves.moved[:, :-1], moves.log_scale
    before = gradient_moved * (sign * log_scale).exp_()
    numbers = log_scale.new_empty(len(log_scale), 2 * log_scale.shape[1], log_scale.shape[2])
    scale, shift = numbers.split(log_scale.shape[1], dim=1)
    if inverse:
        torch.mul(gradient_moved, moved, out=scale).neg_()
        torch.neg(before, out=shift)
    else:
        torch.mul(before, moved, out=scale)
        shift.copy_(gradient_moved)
    if gradient_log is not None:
        scale.add_(gradient_log, alpha=sign)
    scale.addcmul_(scale, log_scale.square(), value=-1.0 / bound**2)
    _through_network(gradient_kept, numbers, moves, block, found)
    return before


def _hidden(kept: Tensor, block: Block, noise: Noise) -> list[Tensor]:
    """The hidden layers, from the first to the last."""
    found = [_rectified(torch.bmm(kept.mT, block.first), noise, 0)]
    for number, (weight, bias) in enumerate(block.inner, start=1):
        found.append(_rectified(torch.baddbmm(bias, found[-1], weight), noise, number))
    return found


def _rectified(x: Tensor, noise: Noise, number: int) -> Tensor:
    """ReLU and dropout, in place."""
    x.relu_()
    return drop(x, noise.layers[number], noise.rate) if noise.rate else x


def _through_network(
    gradient_kept: Tensor, numbers: Tensor, moves: Moves, block: Block, found: Block
) -> None:
    """From the gradient of the conditioner's numbers to those of its input and its tensors."""
    hidden = _hidden(moves.kept, block, moves.noise)
    gradient = torch.bmm(numbers.mT, block.last)
    found.last.baddbmm_(numbers, hidden[-1])
    found.bias.add_(numbers.sum(-1, keepdim=True))
    for number in reversed(range(len(block.inner))):
        _unrectified(gradient, hidden[number + 1])
        weight, _ = block.inner[number]
        found.inner[number][0].baddbmm_(hidden[number].mT, gradient)
        found.inner[number][1].add_(gradient.sum(1, keepdim=True))
        gradient = torch.bmm(gradient, weight.mT)
    _unrectified(gradient, hidden[0])
    found.first.baddbmm_(moves.kept, gradient)
    gradient_kept.baddbmm_(block.first[:, :-1], gradient.mT)


def _unrectified(gradient: Tensor, hidden: Tensor) -> None:
    # What was dropped is 0 like what was below 0, so one look tells both.
    torch.ops.aten.threshold_backward.grad_input(gradient, hidden, 0.0, grad_input=gradient)
