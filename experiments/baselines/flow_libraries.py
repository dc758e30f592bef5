"""Four affine couplings as other libraries have them: one model per edge, in a loop over edges.

And as fifteen lines of torch batch them: stacked weights and `baddbmm`, or one flow under `vmap`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

BLOCKS, HIDDEN = 4, 64
"""Couplings per flow; width of the two hidden layers of every conditioner."""

Mapped = Callable[[Any, Tensor], tuple[Tensor, Tensor]]
"""A model and `(batch, width)` to the result and its log-determinant."""


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, outputs),
    )


class _WithContext(nn.Module):
    """A conditioner that is also told a context, which is none."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.network = network(inputs, outputs)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        result: Tensor = self.network(x)
        return result


def freia(width: int) -> nn.Module:
    """FrEIA's fastest coupling block, which moves one half."""
    from FrEIA.framework import SequenceINN
    from FrEIA.modules import AllInOneBlock

    flow = SequenceINN(width)
    for _ in range(BLOCKS):
        flow.append(AllInOneBlock, subnet_constructor=network)
    return flow  # type: ignore[no-any-return]


def zuko_flow(width: int) -> nn.Module:
    from zuko.flows import NICE

    return NICE(width, transforms=BLOCKS, hidden_features=(HIDDEN, HIDDEN))


def normflows_flow(width: int) -> nn.Module:
    """normflows' affine couplings, halves swapped in between."""
    from normflows.flows import AffineCouplingBlock, Permute
    from normflows.nets import MLP

    flow = nn.ModuleList()
    for _ in range(BLOCKS):
        flow.append(AffineCouplingBlock(MLP([width // 2, HIDDEN, HIDDEN, 2 * (width // 2)])))
        flow.append(Permute(width, mode="swap"))
    return flow


def nflows_flow(width: int) -> nn.Module:
    """nflows' affine couplings, alternating masks."""
    from nflows.transforms import AffineCouplingTransform, CompositeTransform
    from nflows.utils import create_alternating_binary_mask

    masks = [create_alternating_binary_mask(width, even=k % 2 == 0) for k in range(BLOCKS)]
    return CompositeTransform([AffineCouplingTransform(mask, _WithContext) for mask in masks])  # type: ignore[no-any-return]


def _through(layers: Iterable[Callable[..., Any]], x: Tensor) -> tuple[Tensor, Tensor]:
    """Maps one after the other, with the sum of their log-determinants."""
    total: Tensor = x.new_zeros(len(x))
    for layer in layers:
        x, term = layer(x)
        total = total + term
    return x, total


LIBRARIES: dict[str, tuple[Callable[[int], nn.Module], Mapped, Mapped]] = {
    "FrEIA": (freia, lambda flow, x: flow(x), lambda flow, y: flow(y, rev=True)),
    "zuko": (
        zuko_flow,
        lambda flow, x: flow().transform.call_and_ladj(x),
        lambda flow, y: flow().transform.inv.call_and_ladj(y),
    ),
    "normflows": (
        normflows_flow,
        lambda flow, x: _through(flow, x),
        lambda flow, y: _through([layer.inverse for layer in reversed(flow)], y),
    ),
    "nflows": (nflows_flow, lambda flow, x: flow(x), lambda flow, y: flow.inverse(y)),
}
"""How to build one, to map with it, and to map back."""


class Couplings(nn.Module):
    """Affine couplings of halves that take turns, in plain torch, for one edge or a stack of them.

    With `edges` every weight has a leading axis of edges, and layers are calls of `baddbmm`.
    """

    def __init__(self, width: int, edges: int | None = None) -> None:
        super().__init__()
        lead = () if edges is None else (edges,)
        sizes = [width // 2, HIDDEN, HIDDEN, 2 * (width // 2)]
        self.blocks = nn.ModuleList()
        for _ in range(BLOCKS):
            block = nn.ParameterList()
            for inputs, outputs in pairwise(sizes):
                block.append(nn.Parameter(torch.randn(*lead, inputs, outputs) * inputs**-0.5))
                block.append(nn.Parameter(torch.zeros(*lead, 1, outputs)))
            self.blocks.append(block)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = x.chunk(2, dim=-1)
        total = x.new_zeros(x.shape[:-1])
        for block in self.blocks:
            scale, shift = self._affine(block, kept)
            kept, moved = moved * scale.exp() + shift, kept
            total = total + scale.sum(-1)
        return torch.cat([kept, moved], dim=-1), total

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = y.chunk(2, dim=-1)
        total = y.new_zeros(y.shape[:-1])
        for block in reversed(self.blocks):
            scale, shift = self._affine(block, moved)
            kept, moved = moved, (kept - shift) * (-scale).exp()
            total = total - scale.sum(-1)
        return torch.cat([kept, moved], dim=-1), total

    def _affine(self, block: Any, h: Tensor) -> tuple[Tensor, Tensor]:
        multiply = torch.baddbmm if h.dim() == 3 else torch.addmm
        for k in range(0, 6, 2):
            h = multiply(block[k + 1], h if k == 0 else h.relu(), block[k])
        scale, shift = h.chunk(2, dim=-1)
        return scale.tanh(), shift


class MappedFlow(nn.Module):
    """One flow in plain torch, mapped over the edges by `torch.func.vmap`."""

    def __init__(self, width: int, edges: int) -> None:
        super().__init__()
        flows = [Couplings(width) for _ in range(edges)]
        self.one = [_Both(flows[0], (lambda flow, x: flow(x), lambda flow, y: flow.inverse(y)))]
        values, _ = stack_module_state([_Both(flow, ()) for flow in flows])
        self.names = list(values)
        self.values = nn.ParameterList([nn.Parameter(value.detach()) for value in values.values()])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._map(x, back=False)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self._map(y, back=True)

    def _map(self, x: Tensor, *, back: bool) -> tuple[Tensor, Tensor]:
        def call(values: dict[str, Tensor], part: Tensor) -> tuple[Tensor, Tensor]:
            return functional_call(self.one[0], values, (part, back))  # type: ignore[no-any-return]

        values = dict(zip(self.names, self.values, strict=True))
        return vmap(call)(values, x)  # type: ignore[no-any-return]


BATCHED: dict[str, Callable[[int, int], nn.Module]] = {"baddbmm": Couplings, "vmap": MappedFlow}
"""Stacks of flows in plain torch, by width and number of edges."""


def installed() -> list[str]:
    """The libraries that can be imported here, and the stacks in plain torch."""
    return [*BATCHED, *(name for name in LIBRARIES if find_spec(name) is not None)]


class Looped(nn.Module):
    """A flow per edge of one library, evaluated one after the other.

    If compiled, one flow serves every edge with the edge's own parameters: a loop over compiled
    flows would be compiled once per edge, which takes minutes.
    """

    def __init__(self, library: str, edges: int, width: int, *, compiled: bool = False) -> None:
        super().__init__()
        build, *self.maps = LIBRARIES[library]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.flows = nn.ModuleList([build(width) for _ in range(edges)])
        self.compiled = _compiled(library, width) if compiled else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(edges, batch, width)` to the results and log-determinants, stacked."""
        return self._each(x, back=False)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self._each(y, back=True)

    def _each(self, x: Tensor, *, back: bool) -> tuple[Tensor, Tensor]:
        pairs = zip(self.flows, x, strict=True)
        if self.compiled is None:
            parts = [self.maps[back](flow, part) for flow, part in pairs]
        else:
            parts = [self.compiled(_tensors(flow), part, back) for flow, part in pairs]
        values, terms = zip(*parts, strict=True)
        return torch.stack(values), torch.stack(terms)


@cache
def _compiled(library: str, width: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """A flow of a library as a compiled function of its parameters, for any number of edges."""
    build, *maps = LIBRARIES[library]
    one = _Both(build(width), maps)

    def call(values: dict[str, Tensor], x: Tensor, back: bool) -> tuple[Tensor, Tensor]:
        return functional_call(one, values, (x, back))  # type: ignore[no-any-return]

    torch._dynamo.config.recompile_limit = 64  # all libraries and directions count together
    return torch.compile(call, dynamic=False)


class _Both(nn.Module):
    """A flow with both directions in one function."""

    def __init__(self, flow: nn.Module, maps: Sequence[Mapped]) -> None:
        super().__init__()
        self.flow, self.maps = flow, maps

    def forward(self, x: Tensor, back: bool) -> tuple[Tensor, Tensor]:
        return self.maps[back](self.flow, x)


def _tensors(flow: nn.Module) -> dict[str, Tensor]:
    named = [*flow.named_parameters(), *flow.named_buffers()]
    return {f"flow.{name}": value for name, value in named}
