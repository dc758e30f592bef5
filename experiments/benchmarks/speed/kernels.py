"""Where the time of a step goes, kernel by kernel."""

from __future__ import annotations

from typing import Any

from torch.profiler import ProfilerActivity, profile

from .clock import Where, settle
from .steps import MODELS, run_of, step_of

MOST = 10
"""How many kernels are named."""
REPEATS = 3


def measured(where: Where) -> list[dict[str, Any]]:
    """The largest shares of two models, as they are and rounded."""
    names = list(MODELS)[:1] if where.quick else list(MODELS)[:2]
    precisions = ("float32", "bf16") if where.is_cuda else ("float32",)
    batch = 64 if where.quick else 65_536 if where.is_cuda else 512
    return [_case(name, precision, batch, where) for name in names for precision in precisions]


def _case(name: str, precision: str, batch: int, where: Where) -> dict[str, Any]:
    model, table = MODELS[name](max(batch, 2000))
    run = run_of(model, table, batch, where.device, beta=0.0, precision=precision)
    work = step_of(run)
    kind = ProfilerActivity.CUDA if where.is_cuda else ProfilerActivity.CPU
    with profile(activities=[kind]) as profiled:
        for _ in range(REPEATS):
            work()
        settle(where.device)
    times = [(event, _own_time(event, where)) for event in profiled.key_averages()]
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
