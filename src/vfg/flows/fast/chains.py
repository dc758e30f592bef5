"""Affine couplings in a row as one function with a derivative of its own.

Most of the time of training goes through here. Layer by layer, autograd would write every hidden
layer to memory and read it back several times; tile by tile (see `tiles`) they never leave the
cache, and nothing but states as narrow as the flow is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from vfg.flows.base import Flow
from vfg.flows.conditioners import StackedLinear
from vfg.flows.couplings import AffineCoupling, coupling_split
from vfg.flows.fast.memory import checkpointed, differentiable
from vfg.flows.fast.primitives import (
    dropout_factor,
    is_ordinary,
    random_bytes,
    rounded,
    tensor_cores,
)
from vfg.flows.fast.tiles import (
    Block,
    Moves,
    Noise,
    Workspace,
    has_room,
    move,
    move_back,
    tiles,
    with_one,
)

LEAST = 1 << 15
"""Smaller hidden layers stay in a CPU's cache by themselves, and tiles would only take time."""


def apply_flows(
    flows: Sequence[Flow], x: Tensor, *, inverse: bool, memory: str = "store"
) -> tuple[Tensor, Tensor]:
    """One flow after the other, affine couplings in a row as one function.

    Args:
        flows: in the order in which data pass them forwards.
        x: `(edges, batch, width)`.
        inverse: whether to go backwards.
        memory: what to keep for the derivative; see `keeping`.

    Returns:
        The result and the logarithm of the determinant of the direction computed.
    """
    ordered = list(reversed(flows)) if inverse else list(flows)
    log_det: Tensor | None = None
    for is_chain, members in groupby(ordered, key=lambda flow: _fits(flow, x, memory)):
        if is_chain:
            couplings = [flow for flow in members if isinstance(flow, AffineCoupling)]
            x, term = _chained(couplings, x, inverse, memory)
        else:
            x, term = checkpointed(list(members), x, memory, inverse=inverse)
        log_det = term if log_det is None else log_det + term
    if log_det is None:
        raise ValueError("there is no flow to go through")
    return x, log_det


def _fits(flow: Flow, x: Tensor, memory: str) -> bool:
    """Whether a flow is a coupling whose derivative is known here."""
    return (
        type(flow) is AffineCoupling
        and flow.local is None
        and len(flow.kept) > 0
        and len(flow.conditioner.hidden_layers) > 0
        and all(type(layer) is StackedLinear for layer in _layers(flow))
        and flow.conditioner.last.weight.dtype == x.dtype
        and (x.is_cuda or memory != "store" or _hidden_numbers([flow], x) >= LEAST)
        and is_ordinary(x)
    )


def _layers(flow: AffineCoupling) -> list[StackedLinear]:
    conditioner = flow.conditioner
    return [*conditioner.hidden_layers, conditioner.last]


@dataclass(frozen=True)
class _Call:
    """The couplings in the order in which they are applied, and what was drawn for this time."""

    flows: list[AffineCoupling]
    inverse: bool
    learns: bool
    keeps: bool
    """Whether hidden layers are kept for the derivative."""
    inverts: bool
    """Whether the derivative goes back from the result rather than along states that were kept."""
    noise: list[Noise]
    """What decides about the dropout of every coupling, for all edges and rows."""
    precision: str

    def noise_at(self, number: int, edges: slice, rows: slice) -> Noise:
        rate, layers = self.noise[number]
        return Noise(rate, [layer[edges, rows] for layer in layers])


def _chained(
    flows: list[AffineCoupling], x: Tensor, inverse: bool, memory: str
) -> tuple[Tensor, Tensor]:
    noise = [_noise(flow, x) for flow in flows]
    learns = torch.is_grad_enabled()
    keeps = learns and memory == "store" and has_room(_hidden_numbers(flows, x), x.device)
    precision = flows[0].conditioner.precision
    call = _Call(flows, inverse, learns, keeps, learns and memory == "invert", noise, precision)
    parameters = [
        p for flow in flows for layer in _layers(flow) for p in (layer.weight, layer.bias)
    ]
    result: tuple[Tensor, Tensor] = _Chain.apply(call, x, *parameters)  # type: ignore[no-untyped-call]
    return result


def _hidden_numbers(flows: list[AffineCoupling], x: Tensor) -> int:
    widths = [layer.weight.shape[-1] for flow in flows for layer in _layers(flow)[:-1]]
    return x.shape[0] * x.shape[1] * sum(widths)


def _noise(flow: AffineCoupling, x: Tensor) -> Noise:
    rate = _rate(flow)
    widths = [layer.weight.shape[-1] for layer in _layers(flow)[:-1]] if rate else []
    return Noise(rate, [random_bytes((*x.shape[:2], width), x.device) for width in widths])


def _rate(flow: AffineCoupling) -> float:
    return flow.conditioner.dropout if flow.conditioner.training else 0.0


def _tiles(flow: AffineCoupling, x: Tensor) -> list[tuple[slice, slice]]:
    hidden = flow.conditioner.last.weight.shape[1]
    return tiles(x.shape[0], x.shape[1], hidden, x.device.type == "cpu")


class _Chain(torch.autograd.Function):
    """The couplings of a call, tile by tile."""

    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        blocks = [_arranged(flow) for flow in call.flows]
        y, log_det = x.new_empty(x.shape), x.new_empty(x.shape[:2])
        moves, room = [], Workspace(reused=not call.keeps)
        with tensor_cores(call.precision, x.device):
            for edges, rows in _tiles(call.flows[0], x):
                part, logarithm, steps = _forwards(call, blocks, x[edges, rows], edges, rows, room)
                y[edges, rows], log_det[edges, rows] = part, logarithm
                if call.learns:
                    moves.append(steps)
        if call.learns:
            ctx.save_for_backward(x, y if call.inverts else x, *parameters)
            ctx.call, ctx.blocks, ctx.moves = call, blocks, moves
            ctx.set_materialize_grads(False)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, *_derived_again(ctx.call, x, parameters, gradients)
        gradient = torch.zeros_like(x) if gradients[0] is None else gradients[0]
        found = [block.zeros() for block in ctx.blocks]
        back, room = x.new_empty(x.shape), Workspace(reused=True)
        with tensor_cores(ctx.call.precision, x.device):
            for (edges, rows), steps in zip(_tiles(ctx.call.flows[0], x), ctx.moves, strict=True):
                logarithm = None if gradients[1] is None else gradients[1][edges, rows]
                part = gradient[edges, rows], logarithm
                blocks, own = ([b.of(edges) for b in each] for each in (ctx.blocks, found))
                if ctx.call.inverts:
                    undoing = _undoing(ctx.call, blocks, y[edges, rows], edges, rows, room)
                else:
                    undoing = reversed(steps)
                back[edges, rows] = _backwards(ctx.call, blocks, own, undoing, room, *part)
        return (
            None,
            back,
            *(g for pair in zip(ctx.call.flows, found, strict=True) for g in _given(*pair)),
        )


def _forwards(
    call: _Call, blocks: list[Block], x: Tensor, edges: slice, rows: slice, room: Workspace
) -> tuple[Tensor, Tensor, list[Moves]]:
    """The result of a tile, its log-determinant, and what the derivative needs."""
    steps: list[Moves] = []
    kept = moved = with_one(x)
    logarithm = x.new_zeros(x.shape[:2])
    for number, flow in enumerate(call.flows):
        kept, moved = _split(call.flows, number, kept, moved)
        noise = call.noise_at(number, edges, rows)
        block = blocks[number].of(edges)
        moved, step = move(
            kept, moved, block, noise, flow.bound, room, inverse=call.inverse, keeps=call.keeps
        )
        logarithm.add_(step.log_scale.sum(1), alpha=-1.0 if call.inverse else 1.0)
        if not call.inverts:
            steps.append(step)
    state = torch.cat([kept[:, :-1], moved[:, :-1]], dim=1)
    return state.index_select(1, call.flows[-1].places).mT, logarithm, steps


def _backwards(
    call: _Call,
    blocks: list[Block],
    found: list[Block],
    steps: Iterator[Moves],
    room: Workspace,
    gradient: Tensor,
    logarithm: Tensor | None,
) -> Tensor:
    """The gradient of a tile's input; those of the couplings' tensors are added to `found`.

    The steps come from the last to the first.
    """
    flows = call.flows
    state = gradient.mT
    kept, moved = (state.index_select(1, i) for i in (flows[-1].kept, flows[-1].moved))
    row = None if logarithm is None else logarithm[:, None]
    for number in reversed(range(len(flows))):
        flow, one = flows[number], (blocks[number], found[number])
        moved = move_back(
            kept, moved, row, next(steps), *one, flow.bound, room, inverse=call.inverse
        )
        kept, moved = _unsplit(flows, number, kept, moved)
    state = torch.cat([kept, moved], dim=1)
    return state.index_select(1, flows[0].places).mT


def _undoing(
    call: _Call, blocks: list[Block], y: Tensor, edges: slice, rows: slice, room: Workspace
) -> Iterator[Moves]:
    """What the derivative of every coupling of a tile needs, found on the way back from `y`."""
    flows, state = call.flows, with_one(y)
    kept, moved = (state.index_select(1, i) for i in (flows[-1].kept_one, flows[-1].moved_one))
    for number in reversed(range(len(flows))):
        noise, bound = call.noise_at(number, edges, rows), flows[number].bound
        moved, step = move(
            kept, moved, blocks[number], noise, bound, room, inverse=not call.inverse, keeps=True
        )
        yield step
        kept, moved = _left(flows, number, kept, moved)


def _derived_again(
    call: _Call, x: Tensor, parameters: list[Tensor], gradients: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    if any(noise.rate for noise in call.noise):
        raise RuntimeError("flows with dropout in training mode can be differentiated only once")
    return differentiable(call.flows, x, parameters, gradients, call.inverse)


@cache
def _turn(before: int, after: int, width: int) -> str:
    """How the halves of a coupling become those of the next: the same, swapped or drawn anew."""
    one, two = coupling_split(before, width), coupling_split(after, width)
    return "same" if one == two else "swapped" if one == two[::-1] else "anew"


def _split(
    flows: list[AffineCoupling], number: int, kept: Tensor, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """The halves for a coupling, from those that the one before left or from the whole."""
    flow = flows[number]
    turn = "first" if number == 0 else _turn(flows[number - 1].block, flow.block, flow.width)
    if turn == "same":
        return kept, moved
    if turn == "swapped":
        return moved, kept
    if not number:
        return kept.index_select(1, flow.kept_one), kept.index_select(1, flow.moved_one)
    state, places = torch.cat([kept[:, :-1], moved], dim=1), flows[number - 1].places_one
    return _drawn_anew(state, places, flow.kept_one, flow.moved_one)


def _left(
    flows: list[AffineCoupling], number: int, kept: Tensor, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """The halves that the coupling before left, from those that a coupling got."""
    known = _same_halves(flows, number, kept, moved)
    if known is not None:
        return known
    flow, before = flows[number], flows[number - 1]
    state = torch.cat([kept[:, :-1], moved], dim=1)
    return _drawn_anew(state, flow.places_one, before.kept_one, before.moved_one)


def _unsplit(
    flows: list[AffineCoupling], number: int, kept: Tensor, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the halves that the coupling before left."""
    known = _same_halves(flows, number, kept, moved)
    if known is not None:
        return known
    flow, before = flows[number], flows[number - 1]
    return _drawn_anew(torch.cat([kept, moved], dim=1), flow.places, before.kept, before.moved)


def _drawn_anew(
    state: Tensor, places: Tensor, kept: Tensor, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """The halves of a state whose coordinates are at `places`; states are copied only once."""
    one, two = (state.index_select(1, places.index_select(0, half)) for half in (kept, moved))
    return one, two


def _same_halves(
    flows: list[AffineCoupling], number: int, kept: Tensor, moved: Tensor
) -> tuple[Tensor, Tensor] | None:
    """The halves of the coupling before if they are these, in this order or the other."""
    if number == 0:
        return kept, moved
    flow = flows[number]
    turn = _turn(flows[number - 1].block, flow.block, flow.width)
    if turn == "same":
        return kept, moved
    return (moved, kept) if turn == "swapped" else None


def _arranged(flow: AffineCoupling) -> Block:
    """A coupling's tensors as tiles want them, with the factor that dropout asks for."""
    first, *inner, last = _layers(flow)
    factor, precision = dropout_factor(_rate(flow)), flow.conditioner.precision
    edges, hidden, numbers = last.weight.shape
    weight = rounded(_times(last.weight, factor), precision).view(edges, hidden, numbers // 2, 2)
    return Block(
        flow.conditioner.activation,
        rounded(torch.cat([first.weight, first.bias], dim=1), precision),
        tuple(
            (rounded(_times(layer.weight, factor), precision), rounded(layer.bias, precision))
            for layer in inner
        ),
        weight.permute(0, 3, 2, 1).reshape(edges, numbers, hidden),
        last.bias.view(edges, numbers // 2, 2).mT.reshape(edges, numbers, 1),
    )


def _given(flow: AffineCoupling, found: Block) -> list[Tensor]:
    """Derivatives with respect to a coupling's parameters from those of its arranged tensors."""
    factor = dropout_factor(_rate(flow))
    edges, numbers, hidden = found.last.shape
    weight = found.last.view(edges, 2, numbers // 2, hidden).permute(0, 3, 2, 1)
    bias = found.bias.view(edges, 2, numbers // 2).mT
    inner = [part for w, b in found.inner for part in (_times(w, factor), b)]
    return [
        found.first[:, :-1],
        found.first[:, -1:],
        *inner,
        _times(weight.reshape(edges, hidden, numbers), factor),
        bias.reshape(edges, 1, numbers),
    ]


def _times(x: Tensor, factor: float) -> Tensor:
    """The product; without dropout there is nothing to copy."""
    return x if factor == 1.0 else x * factor
