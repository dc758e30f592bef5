"""MIWAE in every setting of the tables that it is run on, on a GPU if there is one.

    python -m experiments.benchmarks.imputation.miwae --tables yacht glass

All masks and seeds of a table and setting are trained together, a model each, so that these cells
have no seconds that compare with those of other methods. A single model is `miwae` among the
methods of the benchmark.
"""

from __future__ import annotations

import itertools
import time

import torch

from ...baselines import miwae
from ...results import arguments
from .__main__ import CELLS, HELD_BACK, TUNING
from .cells import MECHANISMS, SETTINGS, SHAPES, Cell, prepare, scores, write
from .methods import Filled, allowed

TABLES = [table for table in (*HELD_BACK, *TUNING) if allowed("miwae", *SHAPES[table])]


def measure(table: str, setting: str, seeds: list[int], device: str) -> list[Cell]:
    """Fit and fill all masks and seeds of a table, and write their cells."""
    cells = [
        Cell(table, mechanism, setting, seed, "miwae")
        for mechanism, seed in itertools.product(MECHANISMS, seeds)
    ]
    prepared = [prepare(cell, 1) for cell in cells]
    points = miwae.impute(
        [task.shown for task, _, _ in prepared],
        [task.target for task, _, _ in prepared],
        [cell.seed for cell in cells],
        device,
    )
    for cell, point, (_, values, missing) in zip(cells, points, prepared, strict=True):
        found = scores(Filled(point, 0.0), values, missing)
        write(cell, found, CELLS, torch.get_num_threads(), len(cells), gpu=True)
    return cells


def main() -> None:
    options = arguments(
        __doc__,
        tables={"nargs": "+", "choices": TABLES, "default": TABLES},
        settings={"nargs": "+", "choices": SETTINGS, "default": SETTINGS},
        epochs={"type": int},
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    miwae.EPOCHS = options.epochs or miwae.EPOCHS
    CELLS.mkdir(parents=True, exist_ok=True)
    for table, setting in itertools.product(options.tables, options.settings):
        begun = time.time()
        done = measure(table, setting, options.chosen(full=3, quick=1), device)
        print(f"{table} {setting}: {len(done)} cells, {time.time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
