"""Conditioners with one or two hidden layers as one GPU kernel: hidden layers stay in registers.

Layer by layer a hidden layer is written to memory and read again some fifteen times, which is most
of a step on a GPU. Here only states as narrow as the flow, and the random bytes of dropout, are
read; the derivative computes hidden layers again.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vfg.flows.fast.primitives import dropped_levels, is_tf32

USED = os.environ.get("VFG_FUSED", "1") != "0"
"""Whether kernels are used where they fit; `VFG_FUSED=0` disables them."""
FLOAT32: str | None = None
"""How triton multiplies float32 numbers that must not be rounded; None uses separate layers.

`"ieee"` is slower than layers. `"tf32x3"` is faster and as exact, but with eight warps and two
hidden layers of 64 triton's code read out of bounds, so it is not the default.
"""
TRITON = find_spec("triton") is not None
"""Whether triton is installed, so that kernels can be compiled."""
WIDEST = 128
"""The widest hidden layer that stays in registers, and the most inputs and outputs."""
INNER = 64
"""The widest two hidden layers."""
FEW = 48
"""Up to this many inputs and outputs together, four warps suffice for wide hidden layers."""
PROGRAMS = 1024
"""About how many programs share the sums over rows: enough to occupy a GPU."""


class Layers(NamedTuple):
    """What a kernel reads beside its inputs; the first axis of every tensor is the edges.

    The layout is that of `tiles.Block`: the first bias is the last row of the first weights.
    """

    first: Tensor
    inner: Tensor | None
    """Weights of the second hidden layer."""
    shift: Tensor | None
    """Its bias."""
    last: Tensor
    bias: Tensor
    rate: float
    """Of dropout."""
    noise: list[Tensor]
    """A byte for every entry of every hidden layer, if there is dropout."""


def fits(inputs: Tensor, layers: Layers, activation: str) -> bool:
    """Whether there is a kernel for these layers."""
    hidden = [w.shape[2] for w in (layers.first, layers.inner) if w is not None]
    is_half = layers.first.dtype == torch.bfloat16
    precision = "bf16" if is_half else "tf32" if is_tf32(inputs.device) else "float32"
    ends = layers.first.shape[1], layers.last.shape[1]
    return suits(inputs, ends, hidden, activation, precision)


def suits(
    inputs: Tensor, ends: tuple[int, int], hidden: list[int], activation: str, precision: str
) -> bool:
    """The same by sizes; `ends` are the numbers of inputs, the constant 1 included, and outputs."""
    return (
        USED
        and TRITON
        and inputs.is_cuda
        and inputs.dtype == torch.float32
        and (precision != "float32" or FLOAT32 is not None)
        and activation == "relu"
        and max(ends) <= WIDEST
        and hidden in ([hidden[0]], [hidden[0]] * 2)
        and hidden[0] <= (WIDEST if len(hidden) == 1 else INNER)
    )


def forward(inputs: Tensor, layers: Layers) -> Tensor:
    """The conditioner's numbers `(edges, outputs, rows)` for inputs `(edges, inputs, rows)`."""
    from vfg.flows.fast.kernels import conditioner_forward

    edges, _, rows = inputs.shape
    numbers = inputs.new_empty(edges, layers.last.shape[1], rows)
    sizes = _sizes(inputs, layers)
    grid = (-(-rows // sizes["BLOCK"]), edges)
    conditioner_forward[grid](*_operands(inputs, layers), numbers, rows, **sizes)
    return numbers


def backward(inputs: Tensor, gradient: Tensor, layers: Layers) -> tuple[Tensor, ...]:
    """Derivatives from one by the numbers, `(edges, outputs, rows)`.

    Those by the inputs, the first and last weights, and a second hidden layer's weights and bias.
    """
    from vfg.flows.fast.kernels import conditioner_backward

    edges, count, rows = inputs.shape
    hidden, outputs = layers.first.shape[2], layers.last.shape[1]
    sizes = _sizes(inputs, layers)
    parts = max(1, min(-(-rows // sizes["BLOCK"]), PROGRAMS // edges))
    by_inputs = torch.empty_like(inputs)
    by_first = inputs.new_empty(parts, edges, count, hidden)
    by_last = inputs.new_empty(parts, edges, outputs, hidden)
    inner = hidden if layers.inner is not None else 0
    by_inner = inputs.new_empty(parts, edges, inner, inner)
    by_shift = inputs.new_empty(parts, edges, 1, inner)
    results = (by_inputs, by_first, by_last, by_inner, by_shift)
    operands = _operands(inputs, layers)
    conditioner_backward[parts, edges](*operands, gradient.contiguous(), *results, rows, **sizes)
    sums = [part.sum(0) for part in results[1:]]
    return by_inputs, *(sums if layers.inner is not None else sums[:2])


def _operands(inputs: Tensor, layers: Layers) -> tuple[Tensor, ...]:
    """All tensors that a kernel takes; any tensor stands in for one that is not read."""
    first = layers.first.contiguous()
    noise = [layer.contiguous() for layer in layers.noise] or [first]
    inner = first if layers.inner is None else layers.inner.contiguous()
    shift = first if layers.shift is None else layers.shift.contiguous()
    tensors = (inputs.contiguous(), first, inner, shift, layers.last.contiguous())
    return *tensors, layers.bias.contiguous(), noise[0], noise[-1]


def _sizes(inputs: Tensor, layers: Layers) -> dict[str, Any]:
    """The constants that a kernel is compiled with."""
    inputs_, hidden, outputs = inputs.shape[1], layers.first.shape[2], layers.last.shape[1]
    ends = _round_up(inputs_) + _round_up(outputs)
    return {
        "LEVEL": dropped_levels(layers.rate) if layers.rate else 0,
        "INPUTS": inputs_,
        "HIDDEN": hidden,
        "OUTPUTS": outputs,
        "INPUTS_UP": _round_up(inputs_),
        "HIDDEN_UP": _round_up(hidden),
        "OUTPUTS_UP": _round_up(outputs),
        "HAS_INNER": layers.inner is not None,
        "BLOCK": 64 if max(inputs_, outputs) <= 64 else 32,
        "PRECISION": "tf32" if is_tf32(inputs.device) else FLOAT32 or "ieee",
        "num_warps": 8 if hidden > 64 and ends > FEW else 4,
    }


def _round_up(size: int) -> int:
    """The next power of two, at least 16, which products of tiles need."""
    return max(16, 1 << (size - 1).bit_length())
