"""Part 4: time and memory against rows, columns and depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import vfg
from vfg.flows.keeping import MEMORIES
from vfg.training.loop import Run

from .clock import PeakMemory, Where, seconds, slope
from .steps import run_of

Measure = Callable[[int, torch.device], dict[str, float]]
ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (8, 32, 128, 512, 2048)
DEPTHS = (2, 4, 8, 16, 32)


def measured(where: Where) -> dict[str, Any]:
    """Times, memory and slopes."""
    device, quick = where.device, where.quick
    most = 10_000 if quick else 1_000_000 if device.type == "cpu" else 10_000_000
    columns, depths = (COLUMNS[:2], DEPTHS[:2]) if quick else (COLUMNS, DEPTHS)
    kinds: dict[str, tuple[Sequence[int], Measure]] = {
        "rows": ([rows for rows in ROWS if rows <= most], _by_rows),
        "columns": (columns, partial(_by_columns, aggregation="gaussian")),
        "columns, mean": (columns, partial(_by_columns, aggregation="mean")),
        "columns, GaussianVFG": (columns, _by_columns_exactly),
        "depth": (depths, partial(_by_depth, kind="affine", memory="store")),
        "depth, inverted": (depths, partial(_by_depth, kind="affine", memory="invert")),
    }
    for memory in MEMORIES:
        kinds[f"depth, splines, {memory}"] = (
            depths[:4],
            partial(_by_depth, kind="spline", memory=memory),
        )
    found = {name: _series(name, *kind, where) for name, kind in kinds.items()}
    return {name: series for name, series in found.items() if series is not None}


def _series(
    name: str, sizes: Sequence[int], measure: Measure, where: Where
) -> dict[str, Any] | None:
    """Points by size, each kept as a cell, and the slopes of what is positive everywhere.

    None if the time was up before the last one.
    """
    points = []
    for size in sizes:
        key = {"against": name, "size": size}
        found = where.cells.get(key)
        if found is None:
            if not where.has_time:
                return None
            found = {"point": measure(size, where.device)}
            where.cells.add(key, found)
            print(key, found["point"], flush=True)
        points.append(found["point"])
    slopes = {
        what: slope([float(size) for size in sizes], [point[what] for point in points])
        for what in points[0]
        if min(point[what] for point in points) > 0.0
    }
    return {"sizes": list(sizes), "points": points, "slopes": slopes}


def _by_rows(rows: int, device: torch.device) -> dict[str, float]:
    """Filling a table of 8 columns in chunks."""
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(8)}, width=8)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=32, layers=2)).to(device).eval()
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(rows, 8, generator=generator)
    table[torch.rand(rows, 8, generator=generator) < 0.3] = torch.nan
    table = table.to(device)
    size = 65_536 if device.type == "cuda" else 8192
    filled = torch.empty_like(table)

    def fill() -> None:
        for part, place in zip(table.split(size), filled.split(size), strict=True):
            place.copy_(model.reconstruct(part))

    model.reconstruct(table[:size])
    with PeakMemory(device) as memory:
        time = seconds(fill, device)
    return {"seconds": time, "MiB": memory.mebibytes}


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
    run.steps._begin(0, 0.0)
    run.model.train()
    work = run.steps._kind(0)
    with PeakMemory(device) as memory:
        work()
    slow = seconds(work, device) > 1.0
    for _ in range(0 if slow else 2):
        work()
    times = sorted(seconds(work, device) for _ in range(5 if slow else 7))
    return {"seconds per step": times[len(times) // 2], "MiB": memory.mebibytes}
