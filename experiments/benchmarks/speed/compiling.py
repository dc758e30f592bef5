"""Compiled steps: what compiling takes, and after how many steps it has paid.

There is no quick version: compiling even a small step takes a minute.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import vfg
from vfg.flows.fast.primitives import PRECISIONS

from .clock import Where, Work, medians, seconds
from .steps import BATCHES, MODELS, beta_of, run_of

FLOWS = {
    "affine couplings (tiles)": vfg.Coupling(blocks=4, hidden=64, layers=2),
    "spline couplings": vfg.Coupling(blocks=4, hidden=64, layers=2, kind="spline"),
    "shared conditioners": vfg.Coupling(blocks=4, hidden=64, layers=2, shared=8),
    "convolutions": vfg.Coupling(blocks=4, hidden=64, layers=2, image=(4, 4)),
}
BATCH = 256
RECORDED = 3
"""After so many calls a GPU has recorded a step."""


def measured(where: Where) -> list[dict[str, Any]]:
    """Seconds per step as it is and compiled: of real models on a GPU, of flows on a CPU."""
    keys = [] if where.quick else _models() if where.is_cuda else _stars()
    for key in keys:
        if where.cells.get(key) is None and where.has_time:
            where.cells.add(key, _case(key, where))
            print(where.cells.get(key), flush=True)
    cells = [(key, where.cells.get(key)) for key in keys]
    return [{**key, **cell} for key, cell in cells if cell is not None]


def _stars() -> list[dict[str, Any]]:
    return [{"flow": name, "batch": BATCH} for name in FLOWS]


def _models() -> list[dict[str, Any]]:
    """Those that say most first, as each takes a minute: large models, least and most rounded."""
    keys = [
        {"model": name, "batch": batch, "precision": precision}
        for batch in reversed(BATCHES)
        for precision in PRECISIONS
        for name in MODELS
    ]
    return sorted(keys, key=lambda k: (k["precision"] == "tf32", k["model"] == "gaussian network"))


def _case(key: dict[str, Any], where: Where) -> dict[str, Any]:
    works: dict[str, Work] = {}
    first: dict[str, float] = {}
    torch.compiler.reset()
    for manner in ("as it is", "compiled"):
        model, table = _subject(key)
        run = run_of(
            model, table, key["batch"], where.device, beta=beta_of(key.get("model", "")),
            compile=manner == "compiled", precision=key.get("precision", "float32"),
        )  # fmt: skip
        run.steps._begin(0, 1.0)
        run.model.train()
        works[manner] = run.steps._kind(0)
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
