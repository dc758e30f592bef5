"""Compiled steps: what compiling takes, and after how many steps it has paid.

There is no quick version: compiling even a small step takes a minute.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import vfg

from .clock import Where, Work, medians, seconds
from .steps import run_of

FLOWS = {
    "affine couplings (tiles)": vfg.Coupling(blocks=4, hidden=64, layers=2),
    "spline couplings": vfg.Coupling(blocks=4, hidden=64, layers=2, kind="spline"),
    "shared conditioners": vfg.Coupling(blocks=4, hidden=64, layers=2, shared=8),
    "convolutions": vfg.Coupling(blocks=4, hidden=64, layers=2, image=(4, 4)),
}
BATCH = 256


def measured(where: Where) -> list[dict[str, Any]]:
    """Seconds per step as it is and compiled, by the flows of a star over 16 leaves."""
    for name in [] if where.quick else FLOWS:
        key = {"flow": name, "batch": BATCH}
        if where.cells.get(key) is None and where.has_time:
            where.cells.add(key, _case(name, where))
            print(where.cells.get(key), flush=True)
    cells = [(name, where.cells.get({"flow": name, "batch": BATCH})) for name in FLOWS]
    return [{"flow": name, **cell} for name, cell in cells if cell is not None]


def _case(name: str, where: Where) -> dict[str, Any]:
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(16)}, width=16)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(BATCH, 16, generator=generator)
    works: dict[str, Work] = {}
    first: dict[str, float] = {}
    for manner in ("as it is", "compiled"):
        model = vfg.VFG(graph, flow=FLOWS[name], aggregation="mean")
        compiles = manner == "compiled"
        run = run_of(model, table, BATCH, where.device, beta=1.0, compile=compiles)
        run.steps._begin(0, 1.0)
        run.model.train()
        works[manner] = run.steps._kind(0)
        first[manner] = seconds(works[manner], where.device)
    times = medians(works, where.device, 2.0)
    saved = times["as it is"] - times["compiled"]
    return {
        "seconds to compile": first["compiled"] - first["as it is"],
        "as it is": times["as it is"],
        "compiled": times["compiled"],
        "steps until it pays": (
            math.ceil((first["compiled"] - first["as it is"]) / saved) if saved > 0.0 else None
        ),
    }
