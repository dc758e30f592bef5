"""One cell of the benchmark: table, mechanism, setting, seed, method; measured once and kept."""

from __future__ import annotations

import json
import os
import resource
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import threadpoolctl
import torch
from numpy.typing import NDArray
from sklearn.datasets import fetch_california_housing

from vfg.data import california, mar, mcar, mnar_self, uci
from vfg.data.archives import archive
from vfg.tables.cells import Array, Mask

from ...results import commit
from .methods import Filled, Task, is_ours, method_named
from .metrics import coverage, crps, energy, point_errors

MECHANISMS = {"mcar50": 0.5, "mcar30": 0.3, "mar30": 0.3, "mnar30": 0.3}
PROTOCOL = {"mar43": 0.3 / 0.7}
"""A mechanism of PUBLISHED alone: 30 % of all cells, of which a third of the columns has none."""
SETTINGS = ("in_sample", "unseen")
FITTED = "fitted"
"""A third setting, for the protocol of PUBLISHED: the fitted 70 % of the rows are filled."""
SHAPES = {
    "airfoil": (1503, 5),
    "banknote": (1372, 4),
    "blood_transfusion": (748, 4),
    "breast_wdbc": (569, 30),
    "california": (20640, 8),
    "california9": (20640, 9),
    "climate_crashes": (540, 18),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "glass": (214, 9),
    "ionosphere": (351, 33),
    "letter": (20000, 16),
    "sonar": (208, 60),
    "spambase": (4601, 57),
    "wine_red": (1599, 11),
    "wine_white": (4898, 11),
    "yacht": (308, 6),
    "yeast": (1484, 8),
}
"""Rows and columns of the tables, without columns of a single value."""
PUBLISHED = ("letter", "california9")
"""Tables as in the paper on DiffPuter: California with totals and with the value of the house."""


@dataclass(frozen=True)
class Cell:
    """What is measured."""

    table: str
    mechanism: str
    setting: str
    seed: int
    method: str

    def path(self, folder: Path) -> Path:
        parts = [self.table, self.mechanism, self.setting, str(self.seed), self.method]
        return folder / f"{'__'.join(parts)}.json"


def load(table: str) -> Array:
    """A complete table, without constant columns, z-scored by its own means and spreads."""
    values, _ = california() if table.startswith("california") else uci(table)
    if table == "california9":
        values = np.column_stack([counts(values), house_values()])
    values = values[:, values.std(axis=0) > 0]
    scaled: Array = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled


def counts(features: Array) -> Array:
    """California's features with totals of rooms, bedrooms and households instead of averages."""
    income, age, rooms, bedrooms, people, occupants, *place = features.T
    households = people / occupants
    return np.column_stack(
        [income, age, rooms * households, bedrooms * households, people, households, *place]
    )


def house_values() -> Array:
    """The target of California housing."""
    arrays = archive("california_housing.npz")
    if arrays is None:
        arrays = {"target": fetch_california_housing().target}
    target: Array = arrays["target"]
    return target


def hide(values: Array, mechanism: str, seed: int) -> Mask:
    rate = {**MECHANISMS, **PROTOCOL}[mechanism]
    if mechanism.startswith("mcar"):
        return mcar(values.shape, rate, seed)
    return (mar if mechanism.startswith("mar") else mnar_self)(values, rate, seed)


def split(rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """70 % of the rows to fit on, the others to fill."""
    order = np.random.default_rng([seed, 1]).permutation(rows)
    cut = round(0.7 * rows)
    return np.sort(order[:cut]), np.sort(order[cut:])


def prepare(cell: Cell, threads: int) -> tuple[Task, Array, Mask]:
    """What a method is given, the rows to be filled in full, and which of their cells it misses."""
    values = load(cell.table)
    missing = hide(values, cell.mechanism, cell.seed)
    masked = np.where(missing, np.nan, values)
    if cell.setting == "in_sample":
        task = Task(masked, None, cell.seed, threads)
    else:
        fitted, others = split(len(values), cell.seed)
        filled = fitted if cell.setting == FITTED else others
        unseen = None if cell.setting == FITTED else masked[others]
        task = Task(masked[fitted], unseen, cell.seed, threads)
        values, missing = values[filled], missing[filled]
    return task, values, missing


def measure(cell: Cell, threads: int) -> dict[str, Any]:
    """Run the method and score what it filled in."""
    task, values, missing = prepare(cell, threads)
    start = resident_mb()
    found = method_named(cell.method)(task)
    if found.point.shape != values.shape or not np.isfinite(found.point).all():
        raise ValueError("the filled table has another shape or cells that are not finite")
    return {
        **scores(found, values, missing),
        **times(found),
        "missing_cells": int(missing.sum()),
        "peak_mb": round(found.peak_mb or resident_mb(), 1),
        "peak_mb_at_start": round(start, 1) if found.peak_mb is None else None,
    }


def scores(found: Filled, truth: Array, missing: Mask) -> dict[str, Any]:
    """All metrics that the method's answer allows."""
    kept: dict[str, Any] = dict(point_errors(found.point, truth, missing))
    if found.median is not None:
        kept["mae_median"] = point_errors(found.median, truth, missing)["mae"]
    if found.draws is not None:
        kept["draws"] = len(found.draws)
        kept["crps"] = crps(found.draws, truth, missing)
        kept["energy"] = energy(found.draws, truth, missing)
    if found.low is not None and found.high is not None:
        kept.update(coverage(found.low, found.high, truth, missing))
    return kept


def times(found: Filled) -> dict[str, float | None]:
    """Seconds to fit and to draw, rows filled per second (None where fitting fills)."""
    seconds = found.transform_seconds
    return {
        "fit_seconds": found.fit_seconds,
        "transform_rows_per_second": len(found.point) / seconds if seconds else None,
        "draw_seconds": found.draw_seconds,
    }


def resident_mb() -> float:
    """The most memory that this process held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def run(cell: Cell, folder: Path, threads: int, jobs: int) -> None:
    """Measure a cell and write its file; a method that fails leaves its reason there."""
    torch.set_num_threads(threads)
    with threadpoolctl.threadpool_limits(threads):
        try:
            found = measure(cell, threads)
        except Exception as error:
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
    write(cell, found, folder, threads, jobs, gpu=is_ours(cell.method))


def write(
    cell: Cell, found: dict[str, Any], folder: Path, threads: int, jobs: int, *, gpu: bool
) -> None:
    """Write the file of a cell, with the circumstances; `gpu` says that one is used if there is."""
    circumstances = {
        "threads": threads,
        "jobs": jobs,
        "cores": os.cpu_count(),
        "gpu": gpu and torch.cuda.is_available(),
        "sklearn": sklearn.__version__,
        "torch": torch.__version__,
        "code": commit(),
    }
    path = cell.path(folder)
    # Renaming is atomic, so a run that is cut off leaves no half file behind.
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps({**asdict(cell), **found, **circumstances}, indent=1) + "\n")
    partial.replace(path)
