"""Held-out log-likelihood of continuous tables, next to mixtures, sum-product networks and flows.

    python -m experiments.benchmarks.density --jobs 16    every cell that is not measured yet

    --quick      the first configurations on one small table
    --collect    docs/results/density.json from what has been measured

The tables are those of uci_tabular.npz in the folder that VFG_DATA names, and of those the
continuous columns: more than 20 distinct values, none of them in over 10 % of the rows, no
correlation above 0.98 with a column before; tables with at least 3 of these. Equal rows are kept
once, and rounding is undone by uniform noise (see tables.py). 60 % of the rows train,
20 % choose, 20 % test; everything is z-scored by the training rows. Every method has 8
configurations, and may stop early by the validation rows, which also choose the configuration.

A cell is one configuration on one split. Cells are lines of the files under outputs/density, to
which a run adds one of its own; so runs can be cut off, and those of several machines merge by
copying files there. Rivals that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import time
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch

from ...results import TRIALS, write
from .models import BUDGET, CONFIGURATIONS, FITS, MARGINAL, REQUIRED
from .tables import split, tables

MEASURED = TRIALS / "density"
SEEDS = (3, 4, 5)
"""Of the splits; 0 to 2 served to develop."""


class Cell(NamedTuple):
    """One configuration of a method on one split of a table."""

    table: str
    seed: int
    method: str
    setting: str
    """The configuration as JSON: one that changes is another cell."""


def measure(cell: Cell) -> dict[str, Any]:
    """Mean log p per row of validation and test rows, and of test rows with gaps."""
    torch.set_num_threads(1)
    rows, begun = split(cell.table, cell.seed), time.perf_counter()
    found: dict[str, Any] = cell._asdict()
    try:
        setting = json.loads(cell.setting)
        log_prob = FITS[cell.method](rows.train, rows.validation, setting, cell.seed)
        found["validation"] = float(log_prob(rows.validation).mean())
        found["test"] = float(log_prob(rows.test).mean())
        if cell.method in MARGINAL:
            gaps = np.where(rows.hidden, np.nan, rows.test)
            found["missing"] = float(log_prob(gaps).mean())
    except (RuntimeError, ValueError, IndexError, np.linalg.LinAlgError) as error:
        # A configuration that breaks on a table is not chosen there.
        found["error"] = f"{type(error).__name__}: {error}"[:200]
    return {**found, "seconds": round(time.perf_counter() - begun, 2)}


def measured() -> dict[Cell, dict[str, Any]]:
    """All cells of all runs."""
    found = {}
    for path in sorted(MEASURED.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            result = json.loads(line)
            found[Cell(*(result[name] for name in Cell._fields))] = result
    return found


def run(cells: list[Cell], jobs: int) -> None:
    """Measure cells, several at a time, and write each as soon as it is there."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    path = MEASURED / f"{platform.node()}-{int(time.time())}.jsonl"
    calls = (joblib.delayed(measure)(cell) for cell in cells)
    results = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
    with path.open("w") as file:
        for number, result in enumerate(results, start=1):
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{number}/{len(cells)}", *list(result.values())[:4], result["seconds"], "s")


def settings(method: str) -> list[str]:
    """The configurations of a method as JSON."""
    return [json.dumps(setting) for setting in CONFIGURATIONS[method]]


def chosen(cells: dict[Cell, dict[str, Any]], table: str, seed: int, method: str) -> Any:
    """The configuration that is best on the validation rows; None unless all were measured."""
    wanted = [Cell(table, seed, method, setting) for setting in settings(method)]
    if any(cell not in cells for cell in wanted):
        return None
    usable = [c for c in (cells[w] for w in wanted) if np.isfinite(c.get("validation", np.nan))]
    return max(usable, key=lambda cell: cell["validation"]) if usable else None


def collect() -> dict[str, Any]:
    """By table and method what every seed's choice reached."""
    cells, found = measured(), dict[str, Any]()
    for table, values in tables().items():
        methods = {}
        for method in CONFIGURATIONS:
            picks = [chosen(cells, table, seed, method) for seed in SEEDS]
            if all(pick is not None for pick in picks):
                methods[method] = {
                    "test": [round(pick["test"], 4) for pick in picks],
                    "missing": [round(pick["missing"], 4) for pick in picks if method in MARGINAL],
                    "chosen": [json.loads(pick["setting"]) for pick in picks],
                }
        found[table] = {"rows": len(values), "columns": values.shape[1], "methods": methods}
    seconds = {
        method: round(sum(cell["seconds"] for key, cell in cells.items() if key.method == method))
        for method in CONFIGURATIONS
    }
    return {"seeds": list(SEEDS), "budget": BUDGET, "core_seconds": seconds, "tables": found}


def show(results: dict[str, Any], measure: str) -> None:
    """A table of means on the screen."""
    print(f"\n{measure:16}" + "".join(f"{method:>18}" for method in CONFIGURATIONS))
    for table, found in results["tables"].items():
        values = [found["methods"].get(method, {}).get(measure) for method in CONFIGURATIONS]
        print(f"{table:16}" + "".join(f"{np.mean(v):18.3f}" if v else f"{'-':>18}" for v in values))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tables", nargs="+", choices=list(tables()), default=list(tables()))
    add("--rivals", nargs="*", choices=list(REQUIRED), default=list(REQUIRED))
    add("--jobs", type=int, default=os.cpu_count(), help="cells at a time, a thread each")
    add("--collect", action="store_true", help="measure nothing, write the results")
    add("--quick", action="store_true", help="the first configuration on one small table")
    return parser.parse_args()


def installed(rivals: list[str]) -> list[str]:
    """The methods that can run, those beside the rivals included."""
    for name in rivals:
        if importlib.util.find_spec(REQUIRED[name]) is None:
            print(f"{name}: {REQUIRED[name]} is not installed")
    missing = {name for name in REQUIRED if importlib.util.find_spec(REQUIRED[name]) is None}
    return [n for n in FITS if n not in REQUIRED or (n in rivals and n not in missing)]


def save(results: dict[str, Any], quick: bool) -> None:
    """Write the results; measuring does without what this imports."""
    print(write("density", results, quick=quick))


def main() -> None:
    """Measure what is missing, show what has been measured."""
    asked = arguments()
    methods = installed(asked.rivals)
    if asked.quick:
        cells = [Cell("banknote", SEEDS[0], name, settings(name)[0]) for name in methods]
        found = [measure(cell) for cell in cells]
        save({"seeds": list(SEEDS[:1]), "cells": found}, quick=True)
        return
    if not asked.collect:
        known = measured()
        # What takes longest comes first, so that no core waits for another at the end.
        cells = [
            Cell(table, seed, method, setting)
            for table in sorted(asked.tables, key=lambda name: -tables()[name].size)
            for method in reversed(methods)
            for setting in settings(method)
            for seed in SEEDS
        ]
        run([cell for cell in cells if cell not in known], asked.jobs)
    results = collect()
    for name in ("test", "missing"):
        show(results, name)
    if asked.collect:
        save(results, quick=False)


if __name__ == "__main__":
    main()
