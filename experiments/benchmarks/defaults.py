"""`vfg.VFG(graph)` and `vfg.fit(model, table)` as they are, against settings chosen by hand.

Squared errors of missing cells, of the paper's synthetic columns and California in their units,
else of standardised columns. By hand: couplings, of width 8 (synthetic, network) or 16, gaussian
messages, 2,000 steps of 100 rows at the rate 0.005; California 800 of 500 rows at 0.002.
Masks and β are the defaults. Seconds are those of the processor.

    python -m experiments.benchmarks.defaults            half an hour on one core, with VFG_DATA
    python -m experiments.benchmarks.defaults --quick    synthetic columns alone, few steps
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import vfg
from vfg.data import NETWORK, california, gaussian_network, synthetic
from vfg.data.archives import archive

from ..paper.california import TEST
from ..paper.synthetic import MISSING, SECTIONS, TRAIN
from ..results import arguments

TABLES = ("concrete", "wine_red", "airfoil")
HAND = {"epochs": 80, "steps": 25, "batch": 100, "rate": 5e-3}
LONG = {"epochs": 32, "steps": 25, "batch": 500, "rate": 2e-3}


class Task(NamedTuple):
    train: Tensor
    shown: Tensor
    truth: Tensor
    default: vfg.Graph
    wide: vfg.Graph


def tasks(quick: bool) -> Iterator[tuple[str, Task]]:
    """The paper's three tasks, and tables of which 30 % of the cells are missing."""
    rows = synthetic(TRAIN + 300, seed=0)
    graphs = vfg.Graph.star(SECTIONS), vfg.Graph.star(SECTIONS, width=8)
    yield "synthetic", Task(rows[:TRAIN], hide(rows[TRAIN:], MISSING), rows[TRAIN:], *graphs)
    if quick:
        return
    rows, names = gaussian_network(5000)
    rows = (rows - rows[:4500].mean(0)) / rows[:4500].std(0)
    graph = vfg.Graph.from_bayesian_network(NETWORK, variables=names)
    shown = torch.cat([hide(rows[4500:], [column]) for column in range(7)])
    yield "network", Task(rows[:4500], shown, rows[4500:].repeat(7, 1), graph, graph)
    stored = archive("uci_tabular.npz") or {}
    for name in TABLES if stored else ():
        rows = torch.tensor(stored[f"{name}__X"], dtype=torch.float32)
        rows = (rows - rows.mean(0)) / rows.std(0)
        hidden = torch.rand(rows.shape, generator=torch.Generator().manual_seed(0)) < 0.3
        shown = torch.where(hidden, torch.nan, rows)
        yield name, Task(shown, shown, rows, *stars(rows.shape[1]))
    rows = torch.tensor(california()[0], dtype=torch.float32)
    train, test = rows[:-TEST], rows[-TEST:]
    yield "california", Task(train, hide(test, [2, 3]), test, *stars(8))


def hide(rows: Tensor, columns: list[int]) -> Tensor:
    return rows.index_fill(1, torch.tensor(columns), torch.nan)


def stars(columns: int) -> tuple[vfg.Graph, vfg.Graph]:
    leaves = {f"x{k}": 1 for k in range(columns)}
    return vfg.Graph.star(leaves), vfg.Graph.star(leaves, width=16)


def measure(task: Task, model: vfg.VFG, **options: Any) -> dict[str, float]:
    begun = time.process_time()
    vfg.fit(model, task.train, progress=False, **options)
    seconds = time.process_time() - begun
    error = (model.cpu().reconstruct(task.shown) - task.truth)[task.shown.isnan()].square().mean()
    return {"mse": float(error), "seconds": seconds}


def main() -> None:
    given = arguments(__doc__)
    found: dict[str, dict[str, Any]] = {}
    for name, task in tasks(given.quick):
        short: dict[str, Any] = {"epochs": 2} if given.quick else {}
        model = vfg.VFG(task.wide, flow=vfg.Coupling(hidden=64), aggregation="gaussian")
        found[name] = {
            "defaults": measure(task, vfg.VFG(task.default), **short),
            "by hand": measure(task, model, **(LONG if name == "california" else HAND) | short),
        }
        found[name]["ratio"] = found[name]["defaults"]["mse"] / found[name]["by hand"]["mse"]
        print(name, found[name], given.write("defaults", {"tasks": found}), flush=True)


if __name__ == "__main__":
    main()
