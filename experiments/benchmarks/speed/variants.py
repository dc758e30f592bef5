"""One training step in other ways: compiled, as one kernel, rounded; and where its time goes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d
from torch.profiler import ProfilerActivity, profile

import vfg
from vfg.data import binarized_mnist
from vfg.flows.fast import fused
from vfg.flows.fast.primitives import PRECISIONS
from vfg.training.history import Progress

from .clock import Where, Work, medians, seconds, settle
from .filling import letter_table
from .steps import (
    BATCHES,
    MODELS,
    beta_of,
    letter_members,
    run_of,
    step_of,
    tree_of_quarters,
)

FLOWS = {
    "affine couplings (tiles)": vfg.Coupling(blocks=4, hidden=64, layers=2),
    "spline couplings": vfg.Coupling(blocks=4, hidden=64, layers=2, kind="spline"),
    "shared conditioners": vfg.Coupling(blocks=4, hidden=64, layers=2, shared=8),
    "convolutions": vfg.Coupling(blocks=4, hidden=64, layers=2, image=(4, 4)),
}
BATCH = 256
STARS = [{"flow": name, "batch": BATCH} for name in FLOWS]
RECORDED = 3
"""After so many calls a GPU has recorded a step."""


def compiled(where: Where) -> list[dict[str, Any]]:
    """Seconds per step as it is and compiled: of real models on a GPU, of flows on a CPU.

    There is no quick version: compiling even a small step takes a minute.
    """
    keys = [] if where.quick else _models() if where.is_cuda else STARS
    cells = [(key, where.cell(key, lambda key=key: _compiled(key, where))) for key in keys]
    return [{**key, **cell} for key, cell in cells if cell is not None]


def _models() -> list[dict[str, Any]]:
    """Those that say most first, as each takes a minute: large models, least and most rounded."""
    keys = [
        {"model": name, "batch": batch, "precision": precision}
        for batch in reversed(BATCHES)
        for precision in PRECISIONS
        for name in MODELS
    ]
    return sorted(keys, key=lambda k: (k["precision"] == "tf32", k["model"] == "gaussian network"))


def _compiled(key: dict[str, Any], where: Where) -> dict[str, Any]:
    works: dict[str, Work] = {}
    first: dict[str, float] = {}
    torch.compiler.reset()
    for manner in ("as it is", "compiled"):
        model, table = _subject(key)
        run = run_of(
            model, table, key["batch"], where.device, beta=beta_of(key.get("model", "")),
            compile=manner == "compiled", precision=key.get("precision", "float32"),
        )  # fmt: skip
        works[manner] = step_of(run, calls=0)
        calls = [seconds(works[manner], where.device) for _ in range(RECORDED)]
        first[manner] = calls[0]
    times = medians(works, where.device, 0.6 if where.is_cuda else 2.0)
    saved = times["as it is"] - times["compiled"]
    compiling = first["compiled"] - first["as it is"]
    return {
        "seconds to compile": compiling,
        "as it is": times["as it is"],
        "compiled": times["compiled"],
        "steps until it pays": math.ceil(compiling / saved) if saved > 0.0 else None,
    }


def _subject(key: dict[str, Any]) -> tuple[vfg.VFG, Tensor]:
    if "model" in key:
        return MODELS[key["model"]](max(key["batch"], 2000))
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(16)}, width=16)
    table = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(0))
    return vfg.VFG(graph, flow=FLOWS[key["flow"]], aggregation="mean"), table


MANNERS = {"layer by layer": False, "one kernel": True}


def as_one_kernel(where: Where) -> list[dict[str, Any]]:
    """Seconds per step by model, batch and precision; nothing without a GPU and triton."""
    if not where.is_cuda or not fused.TRITON:
        return []
    batches = (64,) if where.quick else (65_536, 2048)
    cases = [(n, b, p) for n in MODELS if n != "MNIST tree" for b in batches for p in PRECISIONS]
    return [_fused(*case, where) for case in cases if where.has_time]


def _fused(name: str, batch: int, precision: str, where: Where) -> dict[str, Any]:
    case: dict[str, Any] = {"model": name, "batch": batch, "precision": precision}
    before = fused.USED, fused.FLOAT32
    fused.FLOAT32 = fused.FLOAT32 or "tf32x3"  # so that there is something to compare
    try:
        case["difference"] = _gradient_difference(name, precision, where)
        works = {manner: _fused_step(name, batch, precision, manner, where) for manner in MANNERS}
        case |= medians(works, where.device, 0.2 if where.quick else 0.6)
    except Exception as error:  # compilers fail in many ways, and that is a result too
        case["error"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        fused.USED, fused.FLOAT32 = before
    print(case, flush=True)
    return case


def _fused_step(name: str, batch: int, precision: str, manner: str, where: Where) -> Work:
    """A step that is recorded, so that it stays what it is."""
    fused.USED = MANNERS[manner]
    model, table = MODELS[name](max(batch, 2000))
    return step_of(run_of(model, table, batch, where.device, beta=0.0, precision=precision))


def _gradient_difference(name: str, precision: str, where: Where) -> float:
    """How far gradients of a first step are apart, relative to the largest."""
    found = []
    for manner in MANNERS:
        fused.USED = MANNERS[manner]
        model, table = MODELS[name](2000)
        run = run_of(model, table, 1000, where.device, beta=0.0, precision=precision)
        run.steps.begin(0, 0.0)
        run.model.train()
        run.steps.step(False, 0)
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    largest = max(float(g.abs().max()) for g in found[0])
    pairs = zip(*found, strict=True)
    return max(float((one - two).abs().max()) for one, two in pairs) / largest


MOST = 10
"""How many kernels are named."""
REPEATS = 3


def profiled(where: Where) -> list[dict[str, Any]]:
    """The largest shares of two models, as they are and rounded."""
    names = list(MODELS)[:1] if where.quick else list(MODELS)[:2]
    precisions = ("float32", "bf16") if where.is_cuda else ("float32",)
    batch = 64 if where.quick else 65_536 if where.is_cuda else 512
    return [_profile(name, precision, batch, where) for name in names for precision in precisions]


def _profile(name: str, precision: str, batch: int, where: Where) -> dict[str, Any]:
    model, table = MODELS[name](max(batch, 2000))
    run = run_of(model, table, batch, where.device, beta=0.0, precision=precision)
    work = step_of(run)
    kind = ProfilerActivity.CUDA if where.is_cuda else ProfilerActivity.CPU
    with profile(activities=[kind]) as trace:
        for _ in range(REPEATS):
            work()
        settle(where.device)
    times = [(event, _own_time(event, where)) for event in trace.key_averages()]
    total = sum(time for _, time in times) or 1.0
    largest = sorted(times, key=lambda pair: -pair[1])[:MOST]
    kernels = [
        {"name": event.key[:80], "calls": event.count // REPEATS, "share": time / total}
        for event, time in largest
    ]
    described = {"model": name, "precision": precision, "batch": batch}
    return {**described, "microseconds": total / REPEATS, "kernels": kernels}


def _own_time(event: Any, where: Where) -> float:
    return float(event.self_device_time_total if where.is_cuda else event.self_cpu_time_total)


SEEDS = (0, 1)
TRAINED = {"letter imputer": (3e-3, 0.0), "MNIST tree": (2e-3, 1.0)}
"""Learning rate and weight of the KL terms."""


def rounded(where: Where) -> list[dict[str, Any]]:
    """Held-out losses by seed, and seconds per step, by model and precision."""
    return [case for name in TRAINED for case in _rounded(name, where)]


def _rounded(name: str, where: Where) -> list[dict[str, Any]]:
    batches = (64,) if where.quick else (2048, 65_536) if where.is_cuda else (512,)
    times = {batch: _times(name, batch, where) for batch in batches}
    found = []
    for precision in PRECISIONS:
        losses = [_loss(name, precision, seed, where) for seed in SEEDS]
        steps = {str(batch): times[batch][precision] for batch in batches}
        found.append({"model": name, "precision": precision, "losses": losses, "step": steps})
        print(found[-1], flush=True)
    return found


def _times(name: str, batch: int, where: Where) -> dict[str, float]:
    works: dict[str, Work] = {}
    beta = TRAINED[name][1]
    for precision in PRECISIONS:
        model, table = _model(name, batch, 0, quick=True)
        run = run_of(model, table, batch, where.device, beta=beta, precision=precision)
        works[precision] = step_of(run)
    return medians(works, where.device, 0.2 if where.quick else 1.0)


def _loss(name: str, precision: str, seed: int, where: Where) -> float:
    """The held-out loss, in float32, of a model trained in a precision."""
    batch, epochs, steps = (64, 1, 3) if where.quick else (512, 4, 200 if where.is_cuda else 50)
    model, table = _model(name, batch if where.quick else 20_000, seed, quick=where.quick)
    rate, beta = TRAINED[name]
    run = run_of(
        model, table, batch, where.device, beta=beta, precision=precision, rate=rate,
        epochs=epochs, steps=steps, validation=0.1, seed=seed,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[where.device] if where.is_cuda else []):
        history = run.train(Progress(epochs, visible=False))
    return float(history[-1].validation or 0.0)


def _model(name: str, rows: int, seed: int, *, quick: bool) -> tuple[vfg.VFG, Tensor]:
    if name == "MNIST tree":
        return tree_of_quarters(seed), _images(rows, quick=quick)
    table = torch.as_tensor(letter_table(max(rows, 2000))).float()
    table = table.repeat(-(-max(rows, 2000) // len(table)), 1)
    return letter_members(table, seed)


def _images(rows: int, *, quick: bool) -> Tensor:
    """Binarized MNIST, or blots where it is not at hand."""
    if not quick:
        try:
            return torch.as_tensor(binarized_mnist().train[:rows]).float()
        except FileNotFoundError:
            pass
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(rows, 1, 36, 36, generator=generator)
    return (avg_pool2d(noise, 9, stride=1).flatten(1) > 0.1).float()
