"""What flows store for the derivative: everything, the states between layers, or the last one.

A layer's derivative needs its intermediate values. They can be computed again from its input, and
the input from its output, since layers are invertible.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vfg.flows.base import Flow
from vfg.flows.conditioners import Conditioner
from vfg.flows.fast.primitives import is_ordinary
from vfg.flows.image_networks import GatedResidual

MEMORIES = ("store", "recompute", "invert")
"""Everything; the states between layers, from which the rest is computed again; input and output,
whatever the depth, from which the rest is computed up to rounding."""
Gradients = tuple[Tensor | None, ...]


def apply_in_order(flows: Sequence[Flow], x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
    """Apply flows in the given order; return the result and the log-determinant."""
    x, log_det = _step(flows[0], x, inverse=inverse)
    for flow in flows[1:]:
        x, term = _step(flow, x, inverse=inverse)
        log_det = log_det + term
    return x, log_det


def checkpointed(
    flows: Sequence[Flow], x: Tensor, memory: str, *, inverse: bool
) -> tuple[Tensor, Tensor]:
    """The same, storing no more than `memory` allows."""
    if memory == "store" or not torch.is_grad_enabled() or not is_ordinary(x):
        return apply_in_order(flows, x, inverse=inverse)
    generator = _dropout_generator(flows)
    if generator is not None and x.is_cuda:
        warnings.warn(
            f"memory={memory!r} does not support flows with dropout on a GPU, since dropout cannot "
            "be drawn again there; everything is stored for these flows",
            stacklevel=2,
        )
        return apply_in_order(flows, x, inverse=inverse)
    call = _CheckpointedCall(list(flows), inverse, memory == "invert", generator)
    parameters = [p for flow in flows for p in flow.parameters()]
    result: tuple[Tensor, Tensor] = _Checkpoint.apply(call, x, *parameters)  # type: ignore[no-untyped-call]
    return result


def _dropout_generator(flows: Sequence[Flow]) -> torch.Generator | None:
    """Where the dropout of flows draws from; None if they draw nothing."""
    kinds = (Conditioner, GatedResidual)
    networks = (m for flow in flows for m in flow.modules() if isinstance(m, kinds))
    for network in networks:
        if network.training and network.dropout > 0.0:
            return network.generator or torch.default_generator
    return None


def _step(flow: Flow, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
    return flow.inverse(x) if inverse else flow.forward(x)


@dataclass(frozen=True)
class _CheckpointedCall:
    """Flows in the order in which they are applied, and how their derivative is computed."""

    flows: list[Flow]
    inverse: bool
    inverts: bool
    generator: torch.Generator | None
    """Where dropout draws from, if there is any."""


class _Checkpoint(torch.autograd.Function):
    """Flows one by one, whose derivative recomputes intermediate values."""

    @staticmethod
    def forward(
        ctx: Any, call: _CheckpointedCall, x: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        states, streams = [], []
        log_det = x.new_zeros(x.shape[:2])
        y = x
        for flow in call.flows:
            streams.append(None if call.generator is None else call.generator.get_state())
            if not call.inverts:
                states.append(y)
            y, term = _step(flow, y, inverse=call.inverse)
            log_det = log_det + term
        kept = [x, y] if call.inverts else states
        ctx.save_for_backward(*kept, *parameters)
        ctx.call, ctx.streams, ctx.states = call, streams, len(kept)
        ctx.set_materialize_grads(False)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Gradients:
        call: _CheckpointedCall = ctx.call
        states, parameters = ctx.saved_tensors[: ctx.states], ctx.saved_tensors[ctx.states :]
        if torch.is_grad_enabled():
            return None, *differentiate(
                call.flows,
                states[0],
                parameters,
                gradients,
                call.inverse,
                draws=call.generator is not None,
            )
        gradient, logarithm = gradients
        by_parameter: list[Tensor | None] = []
        state = states[-1]  # the output, if the states are inverted
        for number in reversed(range(len(call.flows))):
            flow, stream = call.flows[number], ctx.streams[number]
            if call.inverts:
                with torch.no_grad(), _replay(call.generator, stream):
                    state = _step(flow, state, inverse=not call.inverse)[0]
            else:
                state = states[number]
            with torch.enable_grad(), _replay(call.generator, stream):
                gradient, *own = differentiate(
                    [flow],
                    state.detach().requires_grad_(),
                    list(flow.parameters()),
                    (gradient, logarithm),
                    call.inverse,
                    again=False,
                )
            by_parameter = own + by_parameter
        return None, gradient, *by_parameter


@contextmanager
def _replay(generator: torch.Generator | None, stream: Tensor | None) -> Iterator[None]:
    """Repeat the draws that began at a state of the generator, then restore the generator."""
    if generator is None or stream is None:
        yield
        return
    before = generator.get_state()
    generator.set_state(stream)
    try:
        yield
    finally:
        generator.set_state(before)


def differentiate(
    flows: Sequence[Flow],
    x: Tensor,
    parameters: Sequence[Tensor],
    gradients: Gradients,
    inverse: bool,
    *,
    again: bool = True,
    draws: bool = False,
) -> Gradients:
    """The derivative by `x` and the parameters, layer by layer, from those by the two outputs.

    With `again` it can be differentiated again, unless the flows draw dropout.
    """
    if draws:
        raise RuntimeError("flows with dropout in training mode can be differentiated only once")
    outputs = apply_in_order(flows, x, inverse=inverse)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if gradient is not None and output.requires_grad
    ]
    tensors = (x, *parameters)
    if not pairs:
        return tuple(None for _ in tensors)
    ends, given = zip(*pairs, strict=True)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    grads = iter(torch.autograd.grad(ends, wanted, given, create_graph=again, allow_unused=True))
    return tuple(next(grads) if tensor.requires_grad else None for tensor in tensors)
