"""Part 1: sibling edges as one stack, against plain stacks and other libraries in a loop."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows import Composition, Coupling
from vfg.training.acceleration import Recorder, Replayed

from ...baselines.flow_libraries import BATCHED, BLOCKS, HIDDEN, Looped, installed
from .attempts import attempt
from .clock import Where, Work, in_turns, load

Case = tuple[int, int, int]
"""Edges, width, batch."""
EDGES, WIDTHS, BATCHES = (4, 16, 64, 256), (8, 32), (128, 4096)
CASES: list[Case] = [(k, w, b) for b in BATCHES for w in WIDTHS for k in EDGES]
COMPILED: list[Case] = [
    *[(k, 8, b) for k in (4, 16) for b in BATCHES],
    (64, 8, 128),
    (64, 32, 128),
    (16, 32, 128),
    (64, 8, 4096),
]
"""Where all libraries are also compiled, once all else is done: it takes minutes."""

KEPT = ("vfg", *BATCHED)


def measured(where: Where) -> list[dict[str, Any]]:
    """Seconds by number of edges, width, batch and library."""
    cases = [(4, 8, 128), (16, 8, 128)] if where.quick else CASES
    names = ["vfg", *installed()]
    for case in cases:
        _measure(case, names, where)
    compiled = [] if where.is_cuda or where.quick else [f"{name}, compiled" for name in names]
    for case in COMPILED if compiled else []:
        _measure_apart(case, compiled, where)
    found = [
        {
            **_case(case, [*names, *compiled], where),
            "kept": {name: _kept(name, case) for name in KEPT},
        }
        for case in cases
    ]
    return [case for case in found if all(case[kind] for kind in KINDS)]


def _measure(case: Case, names: list[str], where: Where) -> None:
    """Some libraries in turns, without those that were measured before."""
    for kind, make in KINDS.items():
        missing = [name for name in names if where.cells.get(_key(case, name, kind)) is None]
        for name, cell in _cells(missing if where.has_time else [], case, make, where).items():
            where.cells.add(_key(case, name, kind), cell)
            print(*case, kind, name, cell, flush=True)


def _measure_apart(case: Case, names: list[str], where: Where) -> None:
    """Libraries one by one, each in a process of its own."""
    for key in (_key(case, name, kind) for name in names for kind in KINDS):
        where.cell(key, lambda key=key: attempt(key, torch.get_num_threads()))


def measured_here(key: dict[str, Any], where: Where) -> dict[str, Any]:
    """One library, kind of work and size in this process."""
    case = (key["edges"], key["width"], key["batch"])
    return _cells([key["library"]], case, KINDS[key["kind"]], where)[key["library"]]


def _case(case: Case, names: list[str], where: Where) -> dict[str, Any]:
    """What is known about a case."""
    sizes = zip(("edges", "width", "batch"), case, strict=True)
    found: dict[str, Any] = {**dict(sizes), "repeats": {}, "errors": {}}
    for kind in KINDS:
        cells = {name: where.cells.get(_key(case, name, kind)) or {} for name in names}
        fine = {
            f"{name}, recorded" if cell["recorded"] else name: cell
            for name, cell in cells.items()
            if "seconds" in cell
        }
        found[kind] = {name: cell["seconds"] for name, cell in fine.items()}
        found["repeats"][kind] = {name: cell["repeats"] for name, cell in fine.items()}
        failed = {name: cell["error"] for name, cell in cells.items() if "error" in cell}
        found["errors"][kind] = failed
    return found


def _kept(name: str, case: Case) -> int:
    """Bytes that are held between the passes, beside weights, data and results.

    What autograd saves is seen by its hooks, what a derivative of our own holds by the collector of
    garbage, which knows every tensor of Python.
    """
    edges, width, batch = case
    stack, x = _flow(name, edges, width), torch.zeros(edges, batch, width)
    before = _storages()
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved.update(_storage(tensor))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        results = stack(x)
    held = _storages() | saved
    own = {*before, *(address for result in results for address in _storage(result))}
    return sum(size for address, size in held.items() if address not in own)


def _storages() -> dict[int, int]:
    """Bytes of all tensors that Python holds, by address."""
    gc.collect()
    # Compilers leave tensors of types of their own behind, which hold no memory.
    tensors = [one for one in gc.get_objects() if type(one) in (Tensor, torch.nn.Parameter)]
    return {address: size for one in tensors for address, size in _storage(one).items()}


def _storage(tensor: Tensor) -> dict[int, int]:
    storage = tensor.untyped_storage()
    return {storage.data_ptr(): storage.nbytes()}


def _key(case: Case, library: str, kind: str) -> dict[str, Any]:
    sizes = zip(("edges", "width", "batch"), case, strict=True)
    return {"library": library, "kind": kind, **dict(sizes)}


def _cells(
    names: list[str], case: Case, make: Callable[..., Work], where: Where
) -> dict[str, dict[str, Any]]:
    """What the libraries take for one kind of work."""
    torch.manual_seed(0)
    edges, width, batch = case
    x = torch.randn(edges, batch, width, device=where.device)
    found: dict[str, dict[str, Any]] = {}
    works: dict[str, Work] = {}
    for name in names:
        try:
            works[name] = _warm(make(_flow(name, edges, width).to(where.device), x), where)
        except Exception as error:  # compilers fail in many ways, and that is a result too
            found[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    cap = 0.2 if where.quick else 0.25 if where.is_cuda else 2.0
    for name, times in in_turns(works, where.device, cap).items():
        found[name] = {
            "seconds": median(times),
            "fastest": min(times),
            "repeats": len(times),
            "recorded": _is_recorded(works[name]),
            "load": load(),
        }
    return found


def _flow(name: str, edges: int, width: int) -> nn.Module:
    library, _, manner = name.partition(", ")
    if library == "vfg":
        coupling = Coupling(blocks=BLOCKS, hidden=HIDDEN, layers=3)
        stack = Composition(coupling.layers_of(edges, width, torch.Generator().manual_seed(0)))
        return _compiled(stack) if manner else stack
    if library in BATCHED:
        stack = BATCHED[library](width, edges)
        return _compiled(stack) if manner else stack
    return Looped(library, edges, width, compiled=bool(manner))


def _compiled(stack: Any) -> nn.Module:
    """A stack, each way compiled as one program."""
    compiled = torch.compile(stack, fullgraph=True)
    compiled.inverse = torch.compile(stack.inverse, fullgraph=True)
    return compiled


def _training(flow: nn.Module, x: Tensor) -> Work:
    def work() -> None:
        y, log_det = flow(x)
        flow.zero_grad(set_to_none=True)
        (0.5 * y.square().sum() - log_det.sum()).backward()

    return work


def _inverse(flow: Any, x: Tensor) -> Work:
    @torch.no_grad()
    def work() -> None:
        flow.inverse(x)

    return work


KINDS: dict[str, Callable[..., Work]] = {"forward and backward": _training, "inverse": _inverse}


def _warm(work: Work, where: Where) -> Work:
    """The work, on a GPU as one CUDA graph, which is every library's best setting."""
    if not where.is_cuda:
        work()
        return work
    replayed = Replayed(work, Recorder(where.device, []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be recorded runs as it is
        for _ in range(3):
            replayed()
    return replayed


def _is_recorded(work: Work) -> bool:
    return isinstance(work, Replayed) and work.is_recorded
