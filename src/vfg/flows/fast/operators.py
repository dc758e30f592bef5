"""Operators of compiled steps on a GPU, which compilers do not look into.

`torch.compile` sees these as single operators with a derivative: conditioners as one kernel each
(see `fused`), products on tensor cores, and the random bytes of dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vfg.flows.fast import fused
from vfg.flows.fast.primitives import dropout_factor, random_bytes, round_to, tensor_cores

_OPERANDS = (
    "Tensor inputs, Tensor first, Tensor? inner, Tensor? shift, Tensor last, Tensor bias, "
    "Tensor[] noise, float rate, str precision"
)


def apply_conditioner(
    x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], rate: float, precision: str
) -> Tensor:
    """The numbers of a conditioner with one or two hidden layers, by a kernel.

    The layers are weights `(edges, inputs, outputs)` and biases `(edges, 1, outputs)`.
    """
    (first, first_bias), *between, (last, last_bias) = layers
    factor = dropout_factor(rate)
    inner, shift = between[0] if between else (None, None)
    numbers: Tensor = conditioner(
        torch.cat([x, torch.ones_like(x[..., :1])], dim=-1).mT.contiguous(),
        torch.cat([first, first_bias], dim=1),
        None if inner is None else inner * factor,
        shift,
        (last * factor).mT.contiguous(),
        last_bias.mT.contiguous(),
        [bytes_for(x, first.shape[2], number) for number in range(len(layers) - 1) if rate],
        rate,
        precision,
    )
    return numbers.mT


@torch.library.custom_op("vfg::conditioner", mutates_args=(), schema=f"({_OPERANDS}) -> Tensor")
def conditioner(inputs: Tensor, *operands: Any) -> Tensor:
    """The numbers of `fused.forward`; weights are rounded here, so that gradients are not."""
    with tensor_cores(operands[-1], inputs.device):
        return fused.forward(inputs, _round_layers(*operands))


@torch.library.custom_op(
    "vfg::conditioner_back",
    mutates_args=(),
    schema=f"(Tensor gradient, {_OPERANDS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def conditioner_back(gradient: Tensor, inputs: Tensor, *operands: Any) -> tuple[Tensor, ...]:
    """The derivatives of `fused.backward`; those of absent layers are empty."""
    layers = _round_layers(*operands)
    with tensor_cores(operands[-1], inputs.device):
        by_inputs, by_first, by_last, *rest = fused.backward(inputs, gradient, layers)
    none = inputs.new_empty(0)
    by_inner, by_shift = rest or (none, none.clone())
    return by_inputs, by_first, by_last, by_inner, by_shift


def _round_layers(
    first: Tensor,
    inner: Tensor | None,
    shift: Tensor | None,
    last: Tensor,
    bias: Tensor,
    noise: list[Tensor],
    rate: float,
    precision: str,
) -> fused.Layers:
    first, last = round_to(first, precision), round_to(last, precision)
    if inner is not None and shift is not None:
        inner, shift = round_to(inner, precision), round_to(shift, precision)
    return fused.Layers(first, inner, shift, last, bias, rate, noise)


@conditioner.register_fake
def _(inputs: Tensor, first: Tensor, inner: Any, shift: Any, last: Tensor, *_: Any) -> Tensor:
    return inputs.new_empty(inputs.shape[0], last.shape[1], inputs.shape[2])


@conditioner_back.register_fake
def _(
    gradient: Tensor,
    inputs: Tensor,
    first: Tensor,
    inner: Any,
    shift: Any,
    last: Tensor,
    *_: Any,
) -> tuple[Tensor, ...]:
    none = first.new_empty(0)
    return (
        inputs.new_empty(inputs.shape),
        first.new_empty(first.shape),
        last.new_empty(last.shape),
        none if inner is None else inner.new_empty(inner.shape),
        first.new_empty(0) if shift is None else shift.new_empty(shift.shape),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, first, inner, shift, last, bias, noise, ctx.rate, ctx.precision = inputs
    ctx.save_for_backward(x, first, inner, shift, last, bias, *noise)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    x, first, inner, shift, last, bias, *noise = ctx.saved_tensors
    gradient = gradient.contiguous()
    by_x, by_first, by_last, by_inner, by_shift = conditioner_back(
        gradient, x, first, inner, shift, last, bias, noise, ctx.rate, ctx.precision
    )
    has = inner is not None
    weights = by_first, by_inner if has else None, by_shift if has else None, by_last
    return by_x, *weights, gradient.sum(-1, keepdim=True), [None] * len(noise), None, None


conditioner.register_autograd(_differentiate, setup_context=_save)


@torch.library.custom_op(
    "vfg::product_tf32", mutates_args=(), schema="(Tensor x, Tensor weight) -> Tensor"
)
def product_tf32(x: Tensor, weight: Tensor) -> Tensor:
    """A product of stacks of matrices in TF32; its derivatives are such products too."""
    with tensor_cores("tf32", x.device):
        return torch.bmm(x, weight)


@product_tf32.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], weight.shape[2])


def _factors(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _products(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    return product_tf32(gradient, weight.mT), product_tf32(x.mT, gradient)


product_tf32.register_autograd(_products, setup_context=_factors)


@torch.library.custom_op(
    "vfg::bytes_for",
    mutates_args=(),
    schema="(Tensor x, int width, int number) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
def bytes_for(x: Tensor, width: int, number: int) -> Tensor:
    """A random byte for every entry of a hidden layer of `x (edges, rows, ...)`.

    The layer's number and `x` distinguish the calls: compilers merge calls with equal arguments.
    """
    return random_bytes((x.shape[0], x.shape[1], width), x.device)


@bytes_for.register_fake
def _(x: Tensor, width: int, number: int) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], width, dtype=torch.uint8)
