"""Part 4: time and memory against rows, columns and depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import vfg
from vfg.flows.fast.memory import MEMORIES
from vfg.sklearn import VFGImputer
from vfg.training.loop import Run

from .clock import LEAST, PeakMemory, Where, Work, seconds, slope
from .steps import run_of, step_of

Measure = Callable[[int, torch.device], dict[str, float]]
ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (8, 32, 128, 512, 2048)
DEPTHS = (2, 4, 8, 16, 32)
ENOUGH = 10.0
"""Seconds after which nothing is repeated where rows grow."""


def measured(where: Where) -> dict[str, Any]:
    """Times, memory and slopes."""
    most = 2 if where.quick else None
    rows, columns, depths = ROWS[:most], COLUMNS[:most], DEPTHS[:most]
    kinds: dict[str, tuple[Sequence[int], Measure]] = {
        "rows": (rows, _by_rows),
        "columns": (columns, partial(_by_columns, aggregation="gaussian")),
        "columns, mean": (columns, partial(_by_columns, aggregation="mean")),
        "depth": (depths, partial(_by_depth, kind="affine", memory="store")),
        "depth, inverted": (depths, partial(_by_depth, kind="affine", memory="invert")),
    }
    for memory in MEMORIES:
        kinds[f"depth, splines, {memory}"] = (
            depths[:4],
            partial(_by_depth, kind="spline", memory=memory),
        )
    if not where.is_cuda:  # these answer on a CPU
        kinds["rows, VFGImputer"] = rows, _by_rows_imputed
        kinds["rows, GaussianVFG"] = rows, _by_rows_exactly
        kinds["columns, GaussianVFG"] = columns, _by_columns_exactly
    found = {name: _series(name, *kind, where) for name, kind in kinds.items()}
    return {name: series for name, series in found.items() if len(series["sizes"]) > 1}


def _series(name: str, sizes: Sequence[int], measure: Measure, where: Where) -> dict[str, Any]:
    """Points by size, each kept as a cell, and the slopes of what is positive."""
    points: dict[int, dict[str, float]] = {}
    for size in sizes:
        key = {"against": name, "size": size}
        known = where.cell(key, lambda size=size: {"point": measure(size, where.device)})
        if known is not None:
            points[size] = known["point"]
    slopes = {}
    for what in next(iter(points.values()), {}):
        # Little memory may go unnoticed, and 0 has no logarithm.
        found = {float(size): point[what] for size, point in points.items() if point[what] > 0.0}
        if len(found) > 1:
            slopes[what] = slope(list(found), list(found.values()))
    return {"sizes": list(points), "points": list(points.values()), "slopes": slopes}


def _by_rows(rows: int, device: torch.device) -> dict[str, float]:
    """Filling a table of 8 columns in chunks."""
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(8)}, width=8)
    flow = vfg.Coupling(blocks=2, hidden=32, layers=2)
    model = vfg.VFG(graph, flow=flow, aggregation="mean").to(device).eval()
    table = _gaps(rows).to(device)
    size = 65_536 if device.type == "cuda" else 8192

    def fill() -> None:
        filled = torch.empty_like(table)
        for part, place in zip(table.split(size), filled.split(size), strict=True):
            place.copy_(model.reconstruct(part))

    model.reconstruct(table[:size])
    time, memory = _once_or_more(fill, device)
    return {"seconds": time, "MiB": memory}


def _by_rows_exactly(rows: int, _: torch.device) -> dict[str, float]:
    """Three iterations of the exact model on all rows, and the means of all cells."""
    model = vfg.GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(8)}, width=3))
    table = _gaps(rows)
    fit = partial(model.fit, table, iterations=3, tolerance=0.0)
    return _fit_and_fill(fit, lambda: model.infer(table).mean)


def _by_rows_imputed(rows: int, _: torch.device) -> dict[str, float]:
    """An imputer without bent members: it learns from 200,000 rows at most, and fills all."""
    imputer = VFGImputer(bend=False, device="cpu", random_state=0)
    table = _gaps(rows).numpy()
    return _fit_and_fill(lambda: imputer.fit(table), lambda: imputer.transform(table))


def _fit_and_fill(fit: Work, fill: Work) -> dict[str, float]:
    to_fit, fitting = _once_or_more(fit, torch.device("cpu"))
    to_fill, filling = _once_or_more(fill, torch.device("cpu"))
    return {
        "seconds to fit": to_fit,
        "MiB to fit": fitting,
        "seconds to fill": to_fill,
        "MiB to fill": filling,
    }


def _once_or_more(work: Work, device: torch.device) -> tuple[float, float]:
    """Seconds of the fastest call, of several if they are short, and memory of the first."""
    with PeakMemory(device) as memory:
        times = [seconds(work, device)]
    while len(times) < LEAST and sum(times) < ENOUGH:
        times.append(seconds(work, device))
    return min(times), memory.mebibytes


def _gaps(rows: int) -> Tensor:
    """Eight columns with three causes, three cells in ten missing."""
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(3, 8, generator=generator)
    table = torch.randn(rows, 3, generator=generator) @ loadings
    table += 0.3 * torch.randn(rows, 8, generator=generator)
    table[torch.rand(rows, 8, generator=generator) < 0.3] = torch.nan
    return table


def _by_columns(columns: int, device: torch.device, *, aggregation: str) -> dict[str, float]:
    """Building a star over so many leaves, and one training step."""
    found: dict[str, Any] = {}

    def build() -> None:
        graph = vfg.Graph.star({f"x{k}": 1 for k in range(columns)}, width=8)
        flow = vfg.Coupling(blocks=2, hidden=32, layers=2)
        found["model"] = vfg.VFG(graph, flow=flow, aggregation=aggregation).to(device)

    built = seconds(build, device)
    run = run_of(found["model"], _table(256, columns), 256, device, beta=0.0)
    return {"seconds to build": built, **_step(run, device)}


def _by_columns_exactly(columns: int, device: torch.device) -> dict[str, float]:
    """Five iterations of the exact model, and the means of its latent node."""
    model = vfg.GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(columns)}, width=8))
    table = _table(1000, columns)
    table[torch.rand(table.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = torch.nan
    on = torch.device("cpu")
    with PeakMemory(on) as memory:
        fitting = seconds(lambda: model.fit(table, iterations=5), on)
    asking = sorted(seconds(lambda: model.infer(table).mean, on) for _ in range(6))[2]
    return {"seconds to fit": fitting, "seconds to infer": asking, "MiB": memory.mebibytes}


def _by_depth(blocks: int, device: torch.device, *, kind: str, memory: str) -> dict[str, float]:
    """A training step of a star over 16 leaves with so many couplings per edge."""
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(16)}, width=16)
    flow = vfg.Coupling(blocks=blocks, hidden=64, layers=2, kind=kind)
    model = vfg.VFG(graph, flow=flow, aggregation="gaussian").to(device)
    rows = 128 if kind == "spline" and device.type == "cpu" else 2048
    run = run_of(model, _table(rows, 16), rows, device, beta=0.0, memory=memory)
    return _step(run, device)


def _table(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))


def _step(run: Run, device: torch.device) -> dict[str, float]:
    work = step_of(run, calls=0)
    with PeakMemory(device) as memory:
        work()
    slow = seconds(work, device) > 1.0
    for _ in range(0 if slow else 2):
        work()
    times = sorted(seconds(work, device) for _ in range(5 if slow else 7))
    return {"seconds per step": times[len(times) // 2], "MiB": memory.mebibytes}
