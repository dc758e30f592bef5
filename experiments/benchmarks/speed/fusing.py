"""Conditioners as one kernel against layer by layer, on a GPU."""

from __future__ import annotations

from typing import Any

from vfg.flows.fast import fused
from vfg.flows.fast.primitives import PRECISIONS

from .clock import Where, Work, medians
from .steps import MODELS, run_of, step_of

MANNERS = {"layer by layer": False, "one kernel": True}


def measured(where: Where) -> list[dict[str, Any]]:
    """Seconds per step by model, batch and precision; nothing without a GPU and triton."""
    if not where.is_cuda or not fused.TRITON:
        return []
    batches = (64,) if where.quick else (65_536, 2048)
    cases = [(n, b, p) for n in MODELS if n != "MNIST tree" for b in batches for p in PRECISIONS]
    return [_case(*case, where) for case in cases if where.has_time]


def _case(name: str, batch: int, precision: str, where: Where) -> dict[str, Any]:
    case: dict[str, Any] = {"model": name, "batch": batch, "precision": precision}
    before = fused.USED, fused.FLOAT32
    fused.FLOAT32 = fused.FLOAT32 or "tf32x3"  # so that there is something to compare
    try:
        case["difference"] = _difference(name, precision, where)
        works = {manner: _work(name, batch, precision, manner, where) for manner in MANNERS}
        case |= medians(works, where.device, 0.2 if where.quick else 0.6)
    except Exception as error:  # compilers fail in many ways, and that is a result too
        case["error"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        fused.USED, fused.FLOAT32 = before
    print(case, flush=True)
    return case


def _work(name: str, batch: int, precision: str, manner: str, where: Where) -> Work:
    """A step that is recorded, so that it stays what it is."""
    fused.USED = MANNERS[manner]
    model, table = MODELS[name](max(batch, 2000))
    return step_of(run_of(model, table, batch, where.device, beta=0.0, precision=precision))


def _difference(name: str, precision: str, where: Where) -> float:
    """How far gradients of a first step are apart, relative to the largest."""
    found = []
    for manner in MANNERS:
        fused.USED = MANNERS[manner]
        model, table = MODELS[name](2000)
        run = run_of(model, table, 1000, where.device, beta=0.0, precision=precision)
        run.steps._begin(0, 0.0)
        run.model.train()
        run.steps._step(False, 0)
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    largest = max(float(g.abs().max()) for g in found[0])
    pairs = zip(*found, strict=True)
    return max(float((one - two).abs().max()) for one, two in pairs) / largest
