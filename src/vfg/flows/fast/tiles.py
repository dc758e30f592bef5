"""Affine couplings of a few edges and rows at a time, forwards and backwards, without autograd.

Inside a tile states are stored as `(edges, coordinates + 1, rows)`: with the rows last, splits and
joins are copies of long rows, and a last coordinate that is always 1 makes the first bias a part of
the first product. Hidden layers are `(edges, rows, hidden)`. They are by far the largest tensors:
on a CPU a tile of them fits into a cache, and the derivative computes them again unless they are
few; a GPU keeps them if memory allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vfg.flows.conditioners import ACTIVATIONS
from vfg.flows.fast import fused
from vfg.flows.fast.primitives import drop, multiply_over_rows

TILE = 1 << 18
"""Entries of a hidden layer per tile and thread: 1 MB in float32, which stays in a core's cache."""
ROWS = 512
"""Most rows of a tile, unless edges are few; the same for any number of threads."""
ROOM = 1 / 16
"""The share of a GPU's memory for the hidden layers of one flow; a model has several."""
FEW = 1 << 20
"""Most entries of all hidden layers of a flow that are kept on a CPU: 4 MB in float32.

Four couplings with two hidden layers of 64 and 128 rows train 8 to 10 % faster with 4 edges and 1
to 7 % with 16; from four times as many entries on, computing them again is faster.
"""


class Workspace:
    """Memory for the large tensors of a tile, used again by the next one.

    Allocating it for every tile would take longer than filling it. Unless `reused`, every tensor
    gets its own.
    """

    def __init__(self, *, reused: bool) -> None:
        self.reused = reused
        self.tensors: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor with undefined content; tensors of one name share memory."""
        if not self.reused:
            return like.new_empty(shape)
        size = math.prod(shape)
        if name not in self.tensors or self.tensors[name].numel() < size:
            self.tensors[name] = like.new_empty(size)
        return self.tensors[name][:size].view(shape)


class Noise(NamedTuple):
    """Dropout: its rate and, unless that is 0, random bytes for every hidden layer."""

    rate: float
    layers: list[Tensor]


class Hidden(NamedTuple):
    """A hidden layer, dropout included, and the values that its derivative needs."""

    value: Tensor
    before: Tensor
    """The layer before its activation; for ReLU the value itself, which has the same signs."""


class CouplingBlock(NamedTuple):
    """The tensors of one coupling, arranged for tiles; their first axis is the edges."""

    activation: str
    first: Tensor
    """Weights and, as the last row, bias of the first layer, `(edges, kept + 1, hidden)`."""
    inner: tuple[tuple[Tensor, Tensor], ...]
    """Weights and biases of the hidden layers after it."""
    last: Tensor
    """Weights of the last layer, `(edges, 2 moved, hidden)`: of the scales, then of the shifts."""
    bias: Tensor
    """Its bias, `(edges, 2 moved, 1)`, as precise as states are; the others may be rounded."""

    def of(self, edges: slice) -> CouplingBlock:
        """The tensors of some edges."""
        is_all = edges == slice(0, len(self.first))
        return self if is_all else self._map(lambda tensor: tensor[edges])

    def zeros(self) -> CouplingBlock:
        """Zeros in which the derivatives with respect to all of them are summed."""
        return self._map(lambda tensor: torch.zeros_like(tensor, dtype=self.bias.dtype))

    def _map(self, change: Callable[[Tensor], Tensor]) -> CouplingBlock:
        inner = tuple((change(weight), change(bias)) for weight, bias in self.inner)
        return CouplingBlock(
            self.activation, change(self.first), inner, change(self.last), change(self.bias)
        )


class Moves(NamedTuple):
    """What the derivative of one coupling of a tile needs."""

    kept: Tensor
    """Input of the conditioner, `(edges, kept + 1, rows)`."""
    moved: Tensor
    """The moved coordinates where they are multiplied: before a scaling, after its inverse."""
    log_scale: Tensor
    noise: Noise
    hidden: list[Hidden]
    """The hidden layers if they were kept; else they are computed again."""


def has_room(numbers: int, device: torch.device) -> bool:
    """Whether hidden layers with this many entries may be kept for the derivative."""
    if device.type != "cuda":
        return numbers <= FEW
    return 4 * numbers < ROOM * torch.cuda.get_device_properties(device).total_memory


def tiles(edges: int, rows: int, hidden: int, is_cpu: bool) -> list[tuple[slice, slice]]:
    """Slices of edges and of rows that together cover everything.

    Example:
        >>> tiles(3, 600, 64, is_cpu=False)
        [(slice(0, 3, None), slice(0, 600, None))]
    """
    if not is_cpu:
        return [(slice(0, edges), slice(0, rows))]
    # Few edges get taller tiles, since every tile costs the same number of calls.
    tall = min(2 * TILE // (edges * hidden), TILE // hidden)
    height = min(rows, max(ROWS, tall)) or 1
    together = max(1, torch.get_num_threads() * TILE // (height * hidden))
    return [
        (slice(e, min(e + together, edges)), slice(r, min(r + height, rows)))
        for e in range(0, edges, together)
        for r in range(0, max(rows, 1), height)
    ]


def append_one(x: Tensor) -> Tensor:
    """`(edges, rows, coordinates)` to `(edges, coordinates + 1, rows)`, the last one 1."""
    state = x.new_empty(x.shape[0], x.shape[2] + 1, x.shape[1])
    state[:, :-1] = x.mT
    state[:, -1] = 1.0
    return state


def move(
    kept: Tensor,
    moved: Tensor,
    block: CouplingBlock,
    noise: Noise,
    bound: float,
    room: Workspace,
    *,
    inverse: bool,
    keeps: bool,
) -> tuple[Tensor, Moves]:
    """One coupling: the moved coordinates afterwards, and what its derivative needs."""
    layers, hidden = _kernel_layers(kept, block, noise), []
    if layers is not None:
        numbers = fused.forward(kept, layers)
    else:
        hidden = _hidden(kept, block, noise, room)
        numbers = torch.bmm(block.last, hidden[-1].value.mT).to(kept.dtype).add_(block.bias)
    log_scale, shift = numbers.split(numbers.shape[1] // 2, dim=1)
    log_scale = log_scale.div_(bound).tanh_().mul_(bound)
    result = torch.empty_like(moved)
    result[:, -1] = 1.0
    x, y = moved[:, :-1], result[:, :-1]
    if inverse:
        torch.sub(x, shift, out=y).mul_(torch.neg(log_scale).exp_())
        return result, Moves(kept, result, log_scale, noise, hidden if keeps else [])
    torch.addcmul(shift, x, log_scale.exp(), out=y)
    return result, Moves(kept, moved, log_scale, noise, hidden if keeps else [])


def move_back(
    gradient_kept: Tensor,
    gradient_moved: Tensor,
    gradient_log: Tensor | None,
    moves: Moves,
    block: CouplingBlock,
    derivatives: CouplingBlock,
    bound: float,
    room: Workspace,
    *,
    inverse: bool,
) -> Tensor:
    """The derivative of `move`: the gradient with respect to the moved coordinates before it.

    The conditioner's part is added to `gradient_kept`, and this tile's derivatives with respect to
    the tensors of the coupling to `derivatives`, in place. `gradient_log` is `(edges, 1, rows)`.
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
    _network_backward(gradient_kept, numbers, moves, block, derivatives, room)
    return before


def _kernel_layers(kept: Tensor, block: CouplingBlock, noise: Noise) -> fused.Layers | None:
    """The conditioner as a kernel takes it; None if no kernel fits."""
    if not fused.USED or len(block.inner) > 1:
        return None
    inner, shift = block.inner[0] if block.inner else (None, None)
    layers = fused.Layers(block.first, inner, shift, block.last, block.bias, *noise)
    return layers if fused.fits(kept, layers, block.activation) else None


def _hidden(kept: Tensor, block: CouplingBlock, noise: Noise, room: Workspace) -> list[Hidden]:
    """The hidden layers, from the first to the last."""
    edges, _, rows = kept.shape
    out = room.take("hidden 0", (edges, rows, block.first.shape[-1]), block.first)
    before = torch.bmm(kept.mT.to(block.first.dtype), block.first, out=out)
    layers = [_activate(before, block.activation, noise, 0, room)]
    for number, (weight, bias) in enumerate(block.inner, start=1):
        out = room.take(f"hidden {number}", (edges, rows, weight.shape[-1]), weight)
        before = torch.baddbmm(bias, layers[-1].value, weight, out=out)
        layers.append(_activate(before, block.activation, noise, number, room))
    return layers


def _activate(x: Tensor, activation: str, noise: Noise, number: int, room: Workspace) -> Hidden:
    """Activation and dropout; ReLU is applied in place."""
    value = x.relu_() if activation == "relu" else ACTIVATIONS[activation](x)
    return Hidden(_drop(value, noise, number, room), x)


def _drop(x: Tensor, noise: Noise, number: int, room: Workspace) -> Tensor:
    if not noise.rate:
        return x
    return drop(x, noise.layers[number], noise.rate, room.take("kept", tuple(x.shape), x))


def _network_backward(
    gradient_kept: Tensor,
    numbers: Tensor,
    moves: Moves,
    block: CouplingBlock,
    derivatives: CouplingBlock,
    room: Workspace,
) -> None:
    """From the gradient of the conditioner's numbers to those of its input and its tensors."""
    derivatives.bias.add_(numbers.sum(-1, keepdim=True))
    layers = _kernel_layers(moves.kept, block, moves.noise)
    if layers is not None:
        by_inputs, by_first, by_last, *rest = fused.backward(moves.kept, numbers, layers)
        gradient_kept.add_(by_inputs[:, :-1])
        derivatives.first.add_(by_first)
        derivatives.last.add_(by_last)
        for mine, other in zip(derivatives.inner[0] if rest else (), rest, strict=True):
            mine.add_(other)
        return
    hidden = moves.hidden or _hidden(moves.kept, block, moves.noise, room)
    shape = tuple(hidden[-1].value.shape)
    numbers = numbers.to(block.last.dtype)
    gradient = torch.bmm(numbers.mT, block.last, out=room.take("gradient 0", shape, numbers))
    _add_over_rows(derivatives.last, numbers, hidden[-1].value)
    for number in reversed(range(len(block.inner))):
        gradient = _activation_backward(
            gradient, hidden[number + 1], block, moves.noise, number + 1, room
        )
        weight, _ = block.inner[number]
        _add_over_rows(derivatives.inner[number][0], hidden[number].value.mT, gradient)
        derivatives.inner[number][1].add_(
            gradient.sum(1, keepdim=True, dtype=derivatives.bias.dtype)
        )
        name = f"gradient {len(block.inner) - number}"
        out = room.take(name, tuple(hidden[number].value.shape), numbers)
        gradient = torch.bmm(gradient, weight.mT, out=out)
    gradient = _activation_backward(gradient, hidden[0], block, moves.noise, 0, room)
    kept = moves.kept.to(gradient.dtype)
    _add_over_rows(derivatives.first, kept, gradient)
    if gradient.dtype == gradient_kept.dtype:
        gradient_kept.baddbmm_(block.first[:, :-1], gradient.mT)
    else:
        gradient_kept.add_(torch.bmm(block.first[:, :-1], gradient.mT))


def _add_over_rows(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add `(edges, a, rows)` times `(edges, rows, b)`; on a CPU the product adds by itself."""
    if not left.is_cuda and left.dtype == total.dtype:
        total.baddbmm_(left, right)
    else:
        total.add_(multiply_over_rows(left, right))


def _activation_backward(
    gradient: Tensor,
    hidden: Hidden,
    block: CouplingBlock,
    noise: Noise,
    number: int,
    room: Workspace,
) -> Tensor:
    """The gradient before dropout and activation; it is overwritten."""
    if block.activation == "relu":
        # Dropped entries are 0 like those below 0, so one comparison covers both.
        torch.ops.aten.threshold_backward.grad_input(
            gradient, hidden.value, 0.0, grad_input=gradient
        )
        return gradient
    return BACKWARD[block.activation](_drop(gradient, noise, number, room), hidden.before)


BACKWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": torch.ops.aten.silu_backward,
    "gelu": torch.ops.aten.gelu_backward,
    "tanh": lambda gradient, before: torch.ops.aten.tanh_backward(gradient, before.tanh()),
}
"""Derivatives of activations other than ReLU, from a gradient and the layer before."""
