"""Part 1: sibling edges as one stack, against other libraries in a loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows import Composition, Coupling
from vfg.training.capture import Recorder, Replayed

from .clock import Work, side_by_side
from .rivals import BLOCKS, HIDDEN, Looped, installed

EDGES, WIDTHS, BATCHES = (4, 16, 64), (8, 32), (128, 4096)
MANY = (256, 8, 128)
"""One case with more edges, which loops take seconds for."""


def measured(device: torch.device, *, quick: bool) -> list[dict[str, Any]]:
    """Seconds by number of edges, width, batch and library."""
    cases = [(k, w, b) for w in WIDTHS for b in BATCHES for k in EDGES]
    cases = [(4, 8, 128), (16, 8, 128)] if quick else [*cases, MANY]
    return [_case(*case, device, quick) for case in cases]


def _case(edges: int, width: int, batch: int, device: torch.device, quick: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(edges, batch, width, device=device)
    flows: dict[str, Any] = {"vfg": _ours(edges, width).to(device)}
    flows |= {name: Looped(name, edges, width).to(device) for name in installed()}
    budget = 0.5 if quick else 3.0 if device.type == "cpu" else 0.5
    found: dict[str, Any] = {"edges": edges, "width": width, "batch": batch}
    for kind, make in (("forward and backward", _training), ("inverse", _inverse)):
        works: dict[str, Work] = {name: make(flow, x) for name, flow in flows.items()}
        if device.type == "cuda":
            works = _recorded(works, device)
        found[kind] = side_by_side(works, device, budget)
    return found


def _ours(edges: int, width: int) -> Composition:
    coupling = Coupling(blocks=BLOCKS, hidden=HIDDEN, layers=3)
    return Composition(coupling.layers_of(edges, width, torch.Generator().manual_seed(0)))


def _training(flow: nn.Module, x: Tensor) -> Callable[[], None]:
    def work() -> None:
        y, log_det = flow(x)
        flow.zero_grad(set_to_none=True)
        (0.5 * y.square().sum() - log_det.sum()).backward()

    return work


def _inverse(flow: Any, x: Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def work() -> None:
        flow.inverse(x)

    return work


def _recorded(works: dict[str, Work], device: torch.device) -> dict[str, Work]:
    """Every library's work as one CUDA graph, which is its best setting; as it is if it cannot."""
    found: dict[str, Work] = {}
    for name, work in works.items():
        replayed = Replayed(work, Recorder(device, []))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                replayed()
        fails = any("not recorded" in str(warning.message) for warning in said)
        found[name if fails else f"{name}, recorded"] = replayed
    return found
