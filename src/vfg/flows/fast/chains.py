"""Consecutive affine couplings as one function with a derivative of its own.

Most of the time of training is spent here. Layer by layer, autograd would write every hidden
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
from vfg.flows.conditioners import Conditioner, StackedLinear
from vfg.flows.couplings import AffineCoupling, coupling_split
from vfg.flows.fast.memory import checkpointed, differentiate
from vfg.flows.fast.primitives import (
    dropout_factor,
    is_ordinary,
    random_bytes,
    round_to,
    tensor_cores,
)
from vfg.flows.fast.tiles import (
    CouplingBlock,
    Moves,
    Noise,
    Workspace,
    append_one,
    has_room,
    move,
    move_back,
    tiles,
)

LEAST = 1 << 21
"""Fewest entries of all hidden layers of consecutive couplings for tiles on a CPU; autograd takes
fewer calls for smaller ones. Of four couplings with two hidden layers of 64, 128 rows and width 8
or 32, 4 edges train in 3.8 and 4.3 ms instead of 5.0 and 5.7, and 16 in 8.9 and 11.4 instead of 9.2
and 13.2; inverses of 4 take 1.5 and 1.7 ms instead of 2.0 and 2.4."""


def apply_flows(
    flows: Sequence[Flow], x: Tensor, *, inverse: bool, memory: str = "store"
) -> tuple[Tensor, Tensor]:
    """Apply one flow after the other, consecutive affine couplings as one function.

    Returns the result and the logarithm of the determinant of the direction computed.
    """
    ordered = list(reversed(flows)) if inverse else list(flows)
    log_det: Tensor | None = None
    for is_chain, members in groupby(ordered, key=lambda flow: _fits(flow, x)):
        some = list(members)
        couplings = [flow for flow in some if isinstance(flow, AffineCoupling)]
        if is_chain and _is_small(couplings, x, memory):
            x, term = _apply_couplings(couplings, x, inverse=inverse)
        elif is_chain and all(_has_derivative(flow, x) for flow in couplings):
            layers = [layer for flow in couplings for layer in _layers(flow)]
            parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
            x, term = _Chain.apply(_call(couplings, x, inverse, memory), x, *parameters)  # type: ignore[no-untyped-call]
        else:
            x, term = checkpointed(some, x, memory, inverse=inverse)
        log_det = term if log_det is None else log_det + term
    if log_det is None:
        raise ValueError("there is no flow to apply")
    return x, log_det


def _fits(flow: Flow, x: Tensor) -> bool:
    """Whether a flow is a coupling with a fully connected conditioner of kept coordinates."""
    return (
        is_ordinary(x)  # first, since exporters have no numbers of rows to compare
        and type(flow) is AffineCoupling
        and flow.local is None
        and isinstance(flow.conditioner, Conditioner)
        and len(flow.kept) > 0
        and len(flow.conditioner.hidden_layers) > 0
    )


def _has_derivative(flow: AffineCoupling, x: Tensor) -> bool:
    """Whether the derivative of a coupling that fits is implemented here."""
    stacked = all(type(layer) is StackedLinear for layer in _layers(flow))
    return stacked and flow.conditioner.last.weight.dtype == x.dtype


def _is_small(flows: list[AffineCoupling], x: Tensor, memory: str) -> bool:
    """Whether couplings are left to autograd."""
    return memory == "store" and not x.is_cuda and _hidden_numbers(flows, x) < LEAST


def _apply_couplings(
    flows: list[AffineCoupling], x: Tensor, *, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Couplings in the order in which they are applied, whose halves are joined at the end."""
    kept, moved = (x.index_select(-1, half) for half in (flows[0].kept, flows[0].moved))
    log_det: Tensor | None = None
    for number, flow in enumerate(flows):
        if number:
            changed = _change_halves(flows[number - 1], flow, kept.mT, moved.mT, has_one=False)
            kept, moved = (half.mT for half in changed)
        moved, slopes = flow.move(kept, moved, inverse=inverse)
        log_det = slopes.sum(-1) if log_det is None else log_det + slopes.sum(-1)
    assert log_det is not None
    return torch.cat([kept, moved], dim=-1).index_select(-1, flows[-1].places), log_det


def _layers(flow: AffineCoupling) -> list[StackedLinear]:
    conditioner = flow.conditioner
    return [*conditioner.hidden_layers, conditioner.last]


@dataclass(frozen=True)
class _Call:
    """The couplings in the order in which they are applied, and the random bytes of this call."""

    flows: list[AffineCoupling]
    inverse: bool
    learns: bool
    keeps: bool
    """Whether hidden layers are kept for the derivative."""
    inverts: bool
    """Whether the derivative inverts the result rather than reading stored states."""
    noise: list[Noise]
    """Dropout of every coupling, for all edges and rows."""
    precision: str

    def noise_at(self, number: int, edges: slice, rows: slice) -> Noise:
        rate, layers = self.noise[number]
        return Noise(rate, [layer[edges, rows] for layer in layers])


def _call(flows: list[AffineCoupling], x: Tensor, inverse: bool, memory: str) -> _Call:
    noise = [_noise(flow, x) for flow in flows]
    learns = torch.is_grad_enabled()
    keeps = learns and memory == "store" and has_room(_hidden_numbers(flows, x), x.device)
    precision = flows[0].conditioner.precision
    return _Call(flows, inverse, learns, keeps, learns and memory == "invert", noise, precision)


def _hidden_numbers(flows: list[AffineCoupling], x: Tensor) -> int:
    widths = [layer.weight.shape[-1] for flow in flows for layer in _layers(flow)[:-1]]
    return x.shape[0] * x.shape[1] * sum(widths)


def _noise(flow: AffineCoupling, x: Tensor) -> Noise:
    rate = _rate(flow)
    widths = [layer.weight.shape[-1] for layer in _layers(flow)[:-1]] if rate else []
    generator = flow.conditioner.generator
    layers = [random_bytes((*x.shape[:2], width), x.device, generator) for width in widths]
    return Noise(rate, layers)


def _rate(flow: AffineCoupling) -> float:
    return flow.conditioner.dropout if flow.conditioner.training else 0.0


def _tiles(flow: AffineCoupling, x: Tensor) -> list[tuple[slice, slice]]:
    hidden = flow.conditioner.last.weight.shape[1]
    return tiles(x.shape[0], x.shape[1], hidden, x.device.type == "cpu")


class _Chain(torch.autograd.Function):
    """The couplings of a call, tile by tile."""

    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        blocks = [_arrange(flow) for flow in call.flows]
        y, log_det = x.new_empty(x.shape), x.new_empty(x.shape[:2])
        moves, room = [], Workspace(reused=not call.keeps)
        with tensor_cores(call.precision, x.device):
            for edges, rows in _tiles(call.flows[0], x):
                part, logarithm, steps = _run_forward(
                    call, blocks, x[edges, rows], edges, rows, room
                )
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
            draws = any(noise.rate for noise in ctx.call.noise)
            call = ctx.call
            return None, *differentiate(
                call.flows, x, parameters, gradients, call.inverse, draws=draws
            )
        gradient = torch.zeros_like(x) if gradients[0] is None else gradients[0]
        derivatives = [block.zeros() for block in ctx.blocks]
        back, room = x.new_empty(x.shape), Workspace(reused=True)
        with tensor_cores(ctx.call.precision, x.device):
            for (edges, rows), steps in zip(_tiles(ctx.call.flows[0], x), ctx.moves, strict=True):
                logarithm = None if gradients[1] is None else gradients[1][edges, rows]
                part = gradient[edges, rows], logarithm
                blocks, own = ([b.of(edges) for b in each] for each in (ctx.blocks, derivatives))
                if ctx.call.inverts:
                    moves_back = _recompute_moves(
                        ctx.call, blocks, y[edges, rows], edges, rows, room
                    )
                else:
                    moves_back = reversed(steps)
                back[edges, rows] = _run_backward(ctx.call, blocks, own, moves_back, room, *part)
        return (
            None,
            back,
            *(
                g
                for pair in zip(ctx.call.flows, derivatives, strict=True)
                for g in _parameter_gradients(*pair)
            ),
        )


def _run_forward(
    call: _Call, blocks: list[CouplingBlock], x: Tensor, edges: slice, rows: slice, room: Workspace
) -> tuple[Tensor, Tensor, list[Moves]]:
    """The result of a tile, its log-determinant, and what the derivative needs."""
    steps: list[Moves] = []
    flows, state = call.flows, append_one(x)
    kept, moved = (state.index_select(1, i) for i in (flows[0].kept_one, flows[0].moved_one))
    logarithm = x.new_zeros(x.shape[:2])
    for number, flow in enumerate(flows):
        if number:
            kept, moved = _change_halves(flows[number - 1], flow, kept, moved, has_one=True)
        noise = call.noise_at(number, edges, rows)
        block = blocks[number].of(edges)
        moved, step = move(
            kept, moved, block, noise, flow.bound, room, inverse=call.inverse, keeps=call.keeps
        )
        logarithm.add_(step.log_scale.sum(1), alpha=-1.0 if call.inverse else 1.0)
        if not call.inverts:
            steps.append(step)
    state = torch.cat([kept[:, :-1], moved[:, :-1]], dim=1)
    return state.index_select(1, flows[-1].places).mT, logarithm, steps


def _run_backward(
    call: _Call,
    blocks: list[CouplingBlock],
    derivatives: list[CouplingBlock],
    steps: Iterator[Moves],
    room: Workspace,
    gradient: Tensor,
    logarithm: Tensor | None,
) -> Tensor:
    """The gradient of a tile's input, from the last step to the first.

    Those of the couplings' tensors are added to `derivatives`.
    """
    flows = call.flows
    state = gradient.mT
    kept, moved = (state.index_select(1, i) for i in (flows[-1].kept, flows[-1].moved))
    row = None if logarithm is None else logarithm[:, None]
    for number in reversed(range(len(flows))):
        flow, one = flows[number], (blocks[number], derivatives[number])
        moved = move_back(
            kept, moved, row, next(steps), *one, flow.bound, room, inverse=call.inverse
        )
        if number:
            kept, moved = _change_halves(flow, flows[number - 1], kept, moved, has_one=False)
    state = torch.cat([kept, moved], dim=1)
    return state.index_select(1, flows[0].places).mT


def _recompute_moves(
    call: _Call, blocks: list[CouplingBlock], y: Tensor, edges: slice, rows: slice, room: Workspace
) -> Iterator[Moves]:
    """What the derivative of every coupling of a tile needs, by inverting from `y`."""
    flows, state = call.flows, append_one(y)
    kept, moved = (state.index_select(1, i) for i in (flows[-1].kept_one, flows[-1].moved_one))
    for number in reversed(range(len(flows))):
        flow, noise = flows[number], call.noise_at(number, edges, rows)
        back = not call.inverse
        moved, step = move(
            kept, moved, blocks[number], noise, flow.bound, room, inverse=back, keeps=True
        )
        yield step
        if number:
            kept, moved = _change_halves(flow, flows[number - 1], kept, moved, has_one=True)


@cache
def _compare_halves(before: int, after: int, width: int) -> str:
    """Whether the halves of a coupling are those of the next, swapped ones, or others."""
    one, two = coupling_split(before, width), coupling_split(after, width)
    return "same" if one == two else "swapped" if one == two[::-1] else "others"


def _change_halves(
    own: AffineCoupling, other: AffineCoupling, kept: Tensor, moved: Tensor, *, has_one: bool
) -> tuple[Tensor, Tensor]:
    """From the halves of one coupling, which may end with a constant 1, to those of another."""
    halves = _compare_halves(own.block, other.block, own.width)
    if halves != "others":
        return (kept, moved) if halves == "same" else (moved, kept)
    if has_one:
        state, places = torch.cat([kept[:, :-1], moved], dim=1), own.places_one
        chosen = other.kept_one, other.moved_one
    else:
        state, places = torch.cat([kept, moved], dim=1), own.places
        chosen = other.kept, other.moved
    one, two = (state.index_select(1, places.index_select(0, half)) for half in chosen)
    return one, two


def _arrange(flow: AffineCoupling) -> CouplingBlock:
    """A coupling's tensors in the layout of tiles, scaled by the factor of dropout."""
    first, *inner, last = _layers(flow)
    factor, precision = dropout_factor(_rate(flow)), flow.conditioner.precision
    edges, hidden, numbers = last.weight.shape
    weight = round_to(_scale(last.weight, factor), precision).view(edges, hidden, numbers // 2, 2)
    return CouplingBlock(
        flow.conditioner.activation,
        round_to(torch.cat([first.weight, first.bias], dim=1), precision),
        tuple(
            (round_to(_scale(layer.weight, factor), precision), round_to(layer.bias, precision))
            for layer in inner
        ),
        weight.permute(0, 3, 2, 1).reshape(edges, numbers, hidden),
        last.bias.view(edges, numbers // 2, 2).mT.reshape(edges, numbers, 1),
    )


def _parameter_gradients(flow: AffineCoupling, derivatives: CouplingBlock) -> list[Tensor]:
    """Derivatives with respect to a coupling's parameters from those of its arranged tensors."""
    factor = dropout_factor(_rate(flow))
    edges, numbers, hidden = derivatives.last.shape
    weight = derivatives.last.view(edges, 2, numbers // 2, hidden).permute(0, 3, 2, 1)
    bias = derivatives.bias.view(edges, 2, numbers // 2).mT
    inner = [part for w, b in derivatives.inner for part in (_scale(w, factor), b)]
    return [
        derivatives.first[:, :-1],
        derivatives.first[:, -1:],
        *inner,
        _scale(weight.reshape(edges, hidden, numbers), factor),
        bias.reshape(edges, 1, numbers),
    ]


def _scale(x: Tensor, factor: float) -> Tensor:
    """The product; without dropout nothing is copied."""
    return x if factor == 1.0 else x * factor
