"""How well missing cells of seventeen tables are filled, next to other imputers.

    python -m experiments.benchmarks.imputation --jobs 16    every cell that is not measured yet

    --quick      the smallest cells only
    --collect    docs/results/imputation.json from all cells, these and those of docs/results/cells

Errors are those of z-scored cells. Each cell (table, mechanism, setting, seed, method) runs in a
process of its own and leaves one file under outputs/imputation, so a run that is cut off goes on
where it stopped; cells that docs/results/cells has are measured again only with --again. Held-back
tables of few rows come first, then tuning tables, then large ones, seed by seed. `in_sample` fills
the table that was fitted; `unseen` fits 70 % of the rows and fills the others, and `fitted`, which
is measured only if it is asked for, fills those 70 %. Tables come from the folder that VFG_DATA
names; methods of other libraries run by the interpreter that VFG_BASELINES_PYTHON names (see
experiments/baselines/external_worker.py).
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from dataclasses import asdict
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ...results import TRIALS, Arguments, arguments, commit
from .cells import FITTED, MECHANISMS, PROTOCOL, PUBLISHED, SETTINGS, SHAPES, Cell, run
from .methods import METHODS, allowed, missing_requirement
from .summary import LOG, Key, collect, key_of, merged

CELLS = TRIALS / "imputation"
TUNING = [
    "airfoil",
    "blood_transfusion",
    "breast_wdbc",
    "concrete",
    "glass",
    "letter",
    "wine_red",
    "yeast",
]
"""Tables for choosing defaults, of ours and of baselines; the others are for judging them."""
HELD_BACK = [name for name in SHAPES if name not in (*TUNING, *PUBLISHED)]
SMALL = 2000
"""Rows below which a table is small: these are measured first."""
QUICK = ["vfg-10", "mean", "knn", "boosting", "linear", "softimpute", "boosting+linear"]


def seeds_of(table: str, number: int | None, first: int = 0) -> list[int]:
    """Five seeds for small tables, three for others; `first` is the least of them."""
    return list(range(first, first + (number or (5 if SHAPES[table][0] < 1000 else 3))))


def rank(cell: Cell) -> tuple[bool, bool, int, float]:
    """The order of measuring: what matters first, then seed by seed, the long cells ahead."""
    rows, columns = SHAPES[cell.table]
    return rows >= SMALL, cell.table in TUNING, cell.seed, -float(rows * columns**2)


def cells(options: Arguments) -> list[Cell]:
    """All cells that the command line asks for, by rank."""
    found = [
        Cell(table, mechanism, setting, seed, method)
        for table in options.tables
        for mechanism, setting in itertools.product(options.mechanisms, options.settings)
        for seed in seeds_of(table, options.seeds, options.first)
        for method in options.methods
        if allowed(method, *SHAPES[table])
    ]
    return sorted(found, key=rank)


def able(methods: list[str]) -> list[str]:
    """The methods that can run here; the others are named with the reason."""
    reasons = {method: missing_requirement(method) for method in methods}
    for method, reason in reasons.items():
        if reason is not None:
            print(f"left out: {method}: {reason}")
    return [method for method in methods if reasons[method] is None]


def measure_all(
    waiting: list[Cell], folder: Path, options: Arguments, last: float, end: float
) -> None:
    """Keep `--jobs` processes busy, one cell each, until all is measured or the time is up.

    No cell is begun after `last`; those under way at `end` are given up.
    """
    commit()  # read before processes are forked, so that all of them have that of the start
    jobs, together = options.jobs, options.jobs + options.beside
    threads = 1 if jobs > 1 else options.threads
    forked = multiprocessing.get_context("fork")
    running: dict[BaseProcess, tuple[Cell, float]] = {}
    total, done = len(waiting), 0
    queue = iter(waiting)
    while time.time() < end:
        free = jobs - len(running) if time.time() < last else 0
        for cell in itertools.islice(queue, free):
            process = forked.Process(target=run, args=(cell, folder, threads, together))
            process.start()
            running[process] = cell, time.time()
        if not running:
            break
        wait(
            [process.sentinel for process in running],
            timeout=min(60.0, max(0.0, end - time.time())),
        )
        for ended in [process for process in running if process.exitcode is not None]:
            cell, begun = running.pop(ended)
            done += 1
            fate = "" if ended.exitcode == 0 else f"  ended with status {ended.exitcode}"
            took = time.time() - begun
            print(f"{done}/{total} {took:7.1f} s  {cell.path(Path()).stem}{fate}", flush=True)
    for unfinished in running:
        unfinished.terminate()
    if done < total:
        print(f"the time is up: {total - done} cells are left")


def main() -> None:
    options = arguments(
        __doc__,
        tables={"nargs": "+", "choices": list(SHAPES), "default": [*TUNING, *HELD_BACK]},
        methods={"nargs": "+", "help": "also vfg-SECONDS, a budget"},
        mechanisms={"nargs": "+", "choices": [*MECHANISMS, *PROTOCOL], "default": list(MECHANISMS)},
        settings={"nargs": "+", "choices": [*SETTINGS, FITTED], "default": list(SETTINGS)},
        jobs={"type": int, "default": 1, "help": "cells at a time; more than one: a thread each"},
        threads={"type": int, "default": 1, "help": "threads of a cell if --jobs is 1"},
        first={"type": int, "default": 0, "help": "the least seed"},
        beside={"type": int, "default": 0, "help": "other processes of one core on the machine"},
        seconds={"type": float, "help": "begin no cell after so long"},
        minutes={"type": float, "help": "stop after so long; cells under way are given up"},
        retry={"action": "store_true", "help": "measure cells again that ended with an error"},
        again={"action": "store_true", "help": "measure cells again that docs/results/cells has"},
        list={"action": "store_true", "help": "print the cells to be measured, and no more"},
        collect={"action": "store_true", "help": "merge all cells into docs/results"},
        keep_seconds={
            "action": "store_true",
            "help": "with --collect, from a machine of another speed: merge errors, not seconds",
        },
    )
    if options.quick:
        options.tables, options.seeds = ["breast_wdbc"], 1
        options.mechanisms, options.settings = ["mcar30"], list(SETTINGS)
    folder = CELLS.with_name("imputation_quick") if options.quick else CELLS
    folder.mkdir(parents=True, exist_ok=True)
    if options.collect:
        print(collect(folder, TUNING, HELD_BACK, options))
        return
    options.methods = able(options.methods or (QUICK if options.quick else list(METHODS)))
    log = None if options.quick or options.again else LOG
    known = {key_of(cell): cell for cell in merged(folder, log)}
    waiting = [cell for cell in cells(options) if not measured(cell, known, options.retry)]
    if options.list:
        print(*[cell.path(Path()).stem for cell in waiting], sep="\n")
        return
    begun, never = time.time(), float("inf")
    last = begun + options.seconds if options.seconds else never
    end = begun + 60.0 * options.minutes if options.minutes else never
    measure_all(waiting, folder, options, last, end)


def measured(cell: Cell, known: dict[Key, dict[str, Any]], retry: bool) -> bool:
    """Whether the cell was measured, and without an error if those are tried again."""
    found = known.get(key_of(asdict(cell)))
    return found is not None and not (retry and "error" in found)


if __name__ == "__main__":
    main()
