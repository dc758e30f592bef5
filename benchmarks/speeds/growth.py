"""Part 4: time and memory against rows, columns and depth."""

from __future__ import annotations

from typing import Any

import torch

import vfg

from .clock import PeakMemory, seconds, slope
from .steps import run_of

ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (8, 32, 128, 512, 2048)
DEPTHS = (2, 4, 8, 16, 32)


def measured(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Times, memory and slopes."""
    most = 10_000 if quick else 1_000_000 if device.type == "cpu" else 10_000_000
    return {
        "rows": _series([rows for rows in ROWS if rows <= most], _by_rows, device),
        "columns": _series(COLUMNS[:2] if quick else COLUMNS, _by_columns, device),
        "depth": _series(DEPTHS[:2] if quick else DEPTHS, _by_depth, device),
    }


def _series(sizes: Any, measure: Any, device: torch.device) -> dict[str, Any]:
    points = [measure(size, device) for size in sizes]
    slopes = {
        name: slope(list(sizes), [point[name] for point in points])
        for name in points[0]
        if min(point[name] for point in points) > 0.0
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


def _by_columns(columns: int, device: torch.device) -> dict[str, float]:
    """Building a star over so many leaves, and one training step."""
    found: dict[str, Any] = {}

    def build() -> None:
        graph = vfg.Graph.star({f"x{k}": 1 for k in range(columns)}, width=8)
        flow = vfg.Coupling(blocks=2, hidden=32, layers=2)
        found["model"] = vfg.VFG(graph, flow=flow, aggregation="gaussian").to(device)

    built = seconds(build, device)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(256, columns, generator=generator)
    run = run_of(found["model"], table, 256, device, beta=0.0)
    return {"seconds to build": built, **_step(run, device)}


def _by_depth(blocks: int, device: torch.device) -> dict[str, float]:
    """A training step of a star over 16 leaves with so many couplings per edge."""
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(16)}, width=16)
    flow = vfg.Coupling(blocks=blocks, hidden=64, layers=2)
    model = vfg.VFG(graph, flow=flow, aggregation="gaussian").to(device)
    generator = torch.Generator().manual_seed(0)
    run = run_of(model, torch.randn(2048, 16, generator=generator), 2048, device, beta=0.0)
    return _step(run, device)


def _step(run: Any, device: torch.device) -> dict[str, float]:
    run.steps._begin(0, 0.0)
    run.model.train()
    work = run.steps._kind(0)
    with PeakMemory(device) as memory:
        work()
    for _ in range(3):
        work()
    times = sorted(seconds(work, device) for _ in range(7))
    return {"seconds per step": times[3], "MiB": memory.mebibytes}
