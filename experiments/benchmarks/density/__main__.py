"""Held-out log-likelihood of continuous tables, next to mixtures, sum-product networks and flows.

    python -m experiments.benchmarks.density --jobs 16    every cell that is not measured yet

    --quick      the first configurations on one small table
    --collect    docs/results/density.json from what has been measured

The tables are the continuous columns of uci_tabular.npz in the folder that VFG_DATA names (see
tables.py). Every method has 8 configurations; the validation rows choose one. A cell is one
configuration on one split, a line of a file under outputs/density; files of several machines may
lie there. Baselines that are not installed are left out and named.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import time
from typing import Any

import joblib
import numpy as np
import torch

from ...cells import Cell, Cells
from ...results import TRIALS, arguments
from .models import BUDGET, CONFIGURATIONS, FITS, MARGINAL, REQUIRED
from .tables import split, tables

MEASURED = TRIALS / "density"
SEEDS = (3, 4, 5)
"""Of the splits; 0 to 2 served to develop."""
QUICK = "breast_wdbc"
"""A table that scikit-learn brings along."""


def measure(key: Cell) -> Cell:
    """Mean log p per row of validation and test rows, and of test rows with missing values."""
    torch.set_num_threads(1)
    rows, begun = split(key["table"], key["seed"]), time.perf_counter()
    found: Cell = {}
    try:
        fit = FITS[key["method"]]
        log_prob = fit(rows.train, rows.validation, key["setting"], key["seed"])
        found["validation"] = float(log_prob(rows.validation).mean())
        found["test"] = float(log_prob(rows.test).mean())
        if key["method"] in MARGINAL:
            shown = np.where(rows.hidden, np.nan, rows.test)
            found["missing"] = float(log_prob(shown).mean())
    except (RuntimeError, ValueError, IndexError, np.linalg.LinAlgError) as error:
        # A configuration that breaks on a table is not chosen there.
        found["error"] = f"{type(error).__name__}: {error}"[:200]
    return {**found, "seconds": round(time.perf_counter() - begun, 2)}


def keys(table: str, method: str, seed: int) -> list[Cell]:
    """The cells of a method on a split, one per configuration."""
    key = {"table": table, "method": method, "seed": seed}
    return [{**key, "setting": setting} for setting in CONFIGURATIONS[method]]


def run(waiting: list[Cell], cells: Cells, jobs: int) -> None:
    """Measure cells, several at a time, and write each as soon as it is there."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    calls = (joblib.delayed(lambda key: (key, measure(key)))(key) for key in waiting)
    results = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
    for number, (key, result) in enumerate(results, start=1):
        cells.add(key, result)
        print(f"{number}/{len(waiting)}", *key.values(), result["seconds"], "s", flush=True)


def chosen(cells: Cells, table: str, seed: int, method: str) -> Any:
    """The configuration that is best on the validation rows; None unless all were measured."""
    found = [cells.get(key) for key in keys(table, method, seed)]
    usable = [cell for cell in found if cell and np.isfinite(cell.get("validation", np.nan))]
    if not usable or None in found:
        return None
    return max(usable, key=lambda cell: cell["validation"])


def collect(cells: Cells) -> dict[str, Any]:
    """By table and method what every seed's choice reached."""
    found = dict[str, Any]()
    for table, values in tables().items():
        methods = {}
        for method in CONFIGURATIONS:
            picks = [chosen(cells, table, seed, method) for seed in SEEDS]
            if all(pick is not None for pick in picks):
                methods[method] = {
                    "test": [round(pick["test"], 4) for pick in picks],
                    "missing": [round(pick["missing"], 4) for pick in picks if method in MARGINAL],
                    "chosen": [pick["key"]["setting"] for pick in picks],
                }
        found[table] = {"rows": len(values), "columns": values.shape[1], "methods": methods}
    seconds = dict.fromkeys(CONFIGURATIONS, 0.0)
    for cell in cells.known.values():
        seconds[cell["key"]["method"]] += cell["seconds"]
    taken = {method: round(total) for method, total in seconds.items()}
    return {"seeds": list(SEEDS), "budget": BUDGET, "core_seconds": taken, "tables": found}


def installed(baselines: list[str]) -> list[str]:
    """The methods that can run; baselines that are not installed are named."""
    found = {name: importlib.util.find_spec(REQUIRED[name]) is not None for name in baselines}
    for name in (name for name, is_there in found.items() if not is_there):
        print(f"{name}: {REQUIRED[name]} is not installed")
    return [name for name in FITS if name not in REQUIRED or found.get(name)]


def main() -> None:
    given = arguments(
        __doc__,
        tables={"nargs": "+", "choices": list(tables()), "default": list(tables())},
        baselines={"nargs": "*", "choices": list(REQUIRED), "default": list(REQUIRED)},
        jobs={"type": int, "default": os.cpu_count(), "help": "cells at a time, a thread each"},
        collect={"action": "store_true", "help": "measure nothing, write the results"},
    )
    methods = installed(given.baselines)
    if given.quick:
        first = [keys(QUICK, method, SEEDS[0])[0] for method in methods]
        found = [{**key, **measure(key)} for key in first]
        print(given.write("density", {"seeds": list(SEEDS[:1]), "cells": found}))
        return
    file = MEASURED / f"{platform.node()}-{int(time.time())}.jsonl"
    cells = Cells(file, sorted(MEASURED.glob("*.jsonl")))
    if not given.collect:
        # What takes longest comes first, so that no core waits for another at the end.
        waiting = [
            key
            for table in sorted(given.tables, key=lambda name: -tables()[name].size)
            for method in reversed(methods)
            for seed in SEEDS
            for key in keys(table, method, seed)
        ]
        run([key for key in waiting if cells.get(key) is None], cells, given.jobs)
    if given.collect:
        print(given.write("density", collect(cells)))


if __name__ == "__main__":
    main()
