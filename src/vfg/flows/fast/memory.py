"""What flows store for the derivative: everything, the states between layers, or the last one.

A layer's derivative needs its intermediate values. They can be computed again from its input, and
the input from its output, since layers are invertible.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows.base import Flow, of_kind, temporarily_set
from vfg.flows.conditioners import Conditioner
from vfg.flows.fast.primitives import is_ordinary

MEMORIES = ("store", "recompute", "invert")
Gradients = tuple[Tensor | None, ...]


@contextmanager
def keeping(model: nn.Module, memory: str) -> Iterator[None]:
    """Within this context the flows of a model store less for the derivative.

    Derivatives are equal with `"recompute"`, and equal up to rounding with `"invert"`.

    Args:
        model: a model or flow.
        memory: `"store"` keeps all that the derivative needs; `"recompute"` the states between
            layers; `"invert"` only input and output, whatever the depth.

    Raises:
        ValueError: for an unknown word.

    Example:
        >>> from vfg.flows import Coupling
        >>> flow = Coupling(blocks=8, hidden=8).build(edges=3, width=4)
        >>> with keeping(flow, "invert"):
        ...     flow(torch.ones(3, 5, 4))[0].sum().backward()
    """
    check_memory(memory)
    with temporarily_set(of_kind(model, Flow), "memory", memory):
        yield


def check_memory(memory: str) -> None:
    """Refuse an unknown word."""
    if memory not in MEMORIES:
        raise ValueError(f"memory is one of {', '.join(MEMORIES)}, but got {memory!r}")


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
    draws = any(_has_dropout(flow) for flow in flows)
    if draws and x.is_cuda:
        warnings.warn(
            f"memory={memory!r} is for flows without dropout on a GPU, where it cannot be drawn "
            "again; everything is stored for these flows",
            stacklevel=2,
        )
        return apply_in_order(flows, x, inverse=inverse)
    call = _Call(list(flows), inverse, memory == "invert", draws)
    parameters = [p for flow in flows for p in flow.parameters()]
    result: tuple[Tensor, Tensor] = _Checkpoint.apply(call, x, *parameters)  # type: ignore[no-untyped-call]
    return result


def _has_dropout(flow: Flow) -> bool:
    """Whether a flow draws random numbers."""
    networks = (module for module in flow.modules() if isinstance(module, Conditioner))
    return any(network.training and network.dropout > 0.0 for network in networks)


def _step(flow: Flow, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
    return flow.inverse(x) if inverse else flow.forward(x)


@dataclass(frozen=True)
class _Call:
    """Flows in the order in which they are applied, and how their derivative is computed."""

    flows: list[Flow]
    inverse: bool
    inverts: bool
    draws: bool


class _Checkpoint(torch.autograd.Function):
    """Flows one by one, whose derivative recomputes intermediate values."""

    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        states, streams = [], []
        log_det = x.new_zeros(x.shape[:2])
        y = x
        for flow in call.flows:
            streams.append(torch.get_rng_state() if call.draws else None)
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
        call: _Call = ctx.call
        states, parameters = ctx.saved_tensors[: ctx.states], ctx.saved_tensors[ctx.states :]
        if torch.is_grad_enabled():
            if call.draws:
                raise RuntimeError(
                    "flows with dropout in training mode can be differentiated only once"
                )
            return None, *differentiate(call.flows, states[0], parameters, gradients, call.inverse)
        gradient, logarithm = gradients
        by_parameter: list[Tensor | None] = []
        state = states[-1]  # the output, if the states are inverted
        for number in reversed(range(len(call.flows))):
            flow, stream = call.flows[number], ctx.streams[number]
            if call.inverts:
                with torch.no_grad(), _replay(stream):
                    state = _step(flow, state, inverse=not call.inverse)[0]
            else:
                state = states[number]
            with _replay(stream):
                gradient, own = _differentiate(flow, state, gradient, logarithm, call.inverse)
            by_parameter = own + by_parameter
        return None, gradient, *by_parameter


def _differentiate(
    flow: Flow, x: Tensor, gradient: Tensor | None, logarithm: Tensor | None, inverse: bool
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of one flow's input and of its parameters."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        outputs = _step(flow, x, inverse=inverse)
    wanted = [p for p in flow.parameters() if p.requires_grad]
    pairs = [
        (output, g)
        for output, g in zip(outputs, (gradient, logarithm), strict=True)
        if g is not None and output.requires_grad
    ]
    if not pairs:
        return None, [None for _ in flow.parameters()]
    ends, given = zip(*pairs, strict=True)
    grads = iter(torch.autograd.grad(ends, [x, *wanted], given, allow_unused=True))
    return next(grads), [next(grads) if p.requires_grad else None for p in flow.parameters()]


@contextmanager
def _replay(stream: Tensor | None) -> Iterator[None]:
    """Repeat the draws that began at a state of the generator, then restore the generator."""
    with nullcontext() if stream is None else torch.random.fork_rng(devices=[]):
        if stream is not None:
            torch.set_rng_state(stream)
        yield


def differentiate(
    flows: Sequence[Flow],
    x: Tensor,
    parameters: Sequence[Tensor],
    gradients: Gradients,
    inverse: bool,
) -> Gradients:
    """The derivative layer by layer, which can be differentiated again."""
    outputs = apply_in_order(flows, x, inverse=inverse)
    pairs = [(out, g) for out, g in zip(outputs, gradients, strict=True) if g is not None]
    wanted = [t for t in (x, *parameters) if t.requires_grad]
    grads = iter(
        torch.autograd.grad(
            [out for out, _ in pairs],
            wanted,
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(grads) if t.requires_grad else None for t in (x, *parameters))
