"""Part 3: how many rows per second are filled, next to scikit-learn's imputers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vfg
from vfg.data import mcar, uci
from vfg.flows.base import of_kind
from vfg.flows.conditioners import StackedLinear
from vfg.flows.fast.primitives import PRECISIONS, conditioners_in
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array
from vfg.training.acceleration import Recorder, Replayed

from ..imputation.methods import IMPUTERS, Task, timed
from .clock import Where, medians, seconds
from .steps import letter

MISSING = 0.3


def measured(where: Where) -> dict[str, Any]:
    """Rows per second by imputer."""
    device, quick = where.device, where.quick
    if device.type == "cuda":
        return {"device": _on_device(device) | {"imputer": _imputer_on(device, quick)}}
    table = letter_table(400 if quick else 20_000)
    rows = 100 if quick else 2000
    train, test = _gaps(table[rows:], 0), _gaps(table[:rows], 1)
    found: dict[str, Any] = {"rows": rows, "columns": table.shape[1]}
    works = _scikit(train, test, quick) | _ours(train, test, quick)
    times = medians(works, device, 0.1 if quick else 8.0)
    found["rows per second"] = {name: rows / value for name, value in times.items()}
    return found


def letter_table(rows: int) -> Array:
    """The letters, or a table of their shape where they are not at hand."""
    try:
        values, _ = uci("letter")
    except FileNotFoundError:
        values = letter(20_000)[1][:, :16].double().numpy()
    scaled: Array = (values - values.mean(0)) / values.std(0)
    return scaled[:rows]


def _gaps(table: Array, seed: int) -> Array:
    return np.where(mcar(table.shape, MISSING, seed), np.nan, table)


def _scikit(train: Array, test: Array, quick: bool) -> dict[str, Callable[[], object]]:
    """The neighbours and trees of the accuracy tables; the trees learn from a part of the rows."""
    task = Task(train, test, 0, torch.get_num_threads())
    nearest = IMPUTERS["knn"](task).fit(train)
    trees, _ = timed(IMPUTERS["extratrees"](task).fit, train[: 300 if quick else 4000])
    return {
        "KNNImputer": lambda: nearest.transform(test),
        "IterativeImputer(ExtraTrees)": lambda: trees.transform(test),
    }


def _ours(train: Array, test: Array, quick: bool) -> dict[str, Callable[[], object]]:
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(train.shape[1])}, width=8)
    exact = vfg.GaussianVFG(graph)
    exact.fit(train[:2000], iterations=20)
    steps, some = (25, train[:300]) if quick else (None, train)
    deep = VFGImputer(steps=steps, device="cpu", random_state=0).fit(some)
    return {
        "GaussianVFG": lambda: exact.infer(test).mean,
        "VFGImputer": lambda: deep.transform(test),
    }


def _on_device(device: torch.device) -> dict[str, Any]:
    """The deep members of an imputer of letters on a GPU, data resident, as one recorded call."""
    rows = 131_072
    model, table = letter(rows)
    model = _bent(model).to(device).eval()
    cells = table.to(device)
    seen = torch.rand(cells.shape, device=device) > MISSING
    members = cells.shape[1] // 16
    by_precision: dict[str, dict[str, float]] = {}
    exact: Tensor | None = None
    for precision in PRECISIONS:
        for manner in ("as it is", "compiled"):
            found, best = _filled(model, cells, seen, precision, manner == "compiled")
            exact = found if exact is None else exact
            apart = (found - exact)[~seen]
            by_precision[f"{precision}, {manner}"] = {
                "rows per second": rows / best,
                "rows per second and member": members * rows / best,
                "mean difference": float(apart.square().mean().sqrt()),
                "largest difference": float(apart.abs().max()),
            }
            print(precision, manner, by_precision[f"{precision}, {manner}"], flush=True)
    return {"members": members, "manners": by_precision}


def _imputer_on(device: torch.device, quick: bool) -> dict[str, Any]:
    """A whole imputer of letters on a GPU: members, mixtures and neighbours, arrays in and out."""
    train = letter_table(400 if quick else 20_000)
    rows = 1000 if quick else 131_072
    test = _gaps(np.resize(train, (rows, train.shape[1])), 1)
    imputer = VFGImputer(steps=25 if quick else None, device=device, random_state=0)
    imputer.fit(_gaps(train, 0))
    model = imputer.model_
    best = medians({"fill": lambda: imputer.transform(test)}, device, 0.1 if quick else 8.0)
    filled = imputer.transform(test[:2000])
    model.cpu()
    return {
        "parts": [len(model.members), len(model.mixtures), len(model.neighbours)],
        "rows": rows,
        "rows per second": rows / best["fill"],
        "largest difference to a CPU": float(np.abs(filled - imputer.transform(test[:2000])).max()),
    }


def _bent(model: vfg.VFG) -> vfg.VFG:
    """The model with numbers in its conditioners, all 0 in a linear start, that can be rounded."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in of_kind(model, StackedLinear):
            noise = torch.randn(layer.weight.shape, generator=generator)
            layer.weight.add_(0.1 * noise / layer.weight.shape[-2] ** 0.5)
    return model


def _filled(
    model: vfg.VFG, cells: Tensor, seen: Tensor, precision: str, compiled: bool
) -> tuple[Tensor, float]:
    """What every cell is filled with, and the seconds that it takes."""
    result = torch.empty_like(cells)

    def fill(cells: Tensor, seen: Tensor) -> Tensor:
        return model.sections.join(model.leaf_means(model(cells, seen).backward))

    torch.compiler.reset()
    fast = torch.compile(fill) if compiled else fill

    @torch.no_grad()
    def work() -> None:
        result.copy_(fast(cells, seen))

    with conditioners_in(model, precision):
        replayed = Replayed(work, Recorder(cells.device, []))
        for _ in range(4):
            replayed()
        best = float(np.median([seconds(replayed, cells.device) for _ in range(20)]))
    return result.clone(), best
