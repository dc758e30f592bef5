"""What an effort of `VFGImputer` costs and brings, in seconds of the processor and one thread.

- `cost`: half of the cells missing; squared errors and seconds against chained ExtraTrees, of 100
  trees in ten rounds, and as in the other benchmarks.
- `gaps`: fitted to complete rows, other rows have every column missing in turn, fixed pairs, or a
  fixed half; squared errors against chained ExtraTrees, boosted trees and ridge regressions.
- `growth`: seconds to fit and to fill made tables of several sizes.

    python -m experiments.benchmarks.imputation.effort            about an hour, with VFG_DATA
    python -m experiments.benchmarks.imputation.effort --quick    growth of small tables
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from vfg.imputation.plan import EFFORTS
from vfg.tables.cells import Array, Mask

from ...results import Arguments, arguments
from .cells import hide, load, split
from .methods import Filled, Task, fill, method_named

TABLES = ("concrete", "glass", "wine_red", "yacht", "banknote", "climate_crashes")
"""The first three are for choosing defaults."""
SIZES = ((100, 10), (1_000, 10), (10_000, 10), (1_000, 5), (1_000, 20), (1_000, 50))
PAIRS = 3
Record = dict[str, Any]


def cost(table: str, seed: int, efforts: list[str]) -> Iterator[Record]:
    """Errors and seconds with half of the cells missing."""
    values = load(table)
    missing = hide(values, "mcar50", seed)
    task = Task(np.where(missing, np.nan, values), None, seed, 1)
    for method in ("trees100", "extratrees", *(f"vfg-{effort}" for effort in efforts)):
        run = hundred_trees if method == "trees100" else method_named(method)
        filled = run(task)
        spent = filled.fit_seconds + (filled.transform_seconds or 0.0)
        error = float(np.square(filled.point - values)[missing].mean())
        yield {"table": table, "seed": seed, "method": method, "mse": error, "seconds": spent}


def hundred_trees(task: Task) -> Filled:
    """Chained ExtraTrees of 100 trees, the usual number, in ten rounds."""
    trees = ExtraTreesRegressor(100, random_state=task.seed, n_jobs=1)
    return fill(IterativeImputer(trees, max_iter=10, random_state=task.seed), task)


def patterns(columns: int, seed: int) -> dict[str, list[Mask]]:
    """Which columns are missing together."""
    order = np.random.default_rng([seed, 2]).permutation(columns)
    every = [np.arange(columns) == k for k in range(columns)]
    pairs = [np.isin(np.arange(columns), order[2 * k : 2 * k + 2]) for k in range(PAIRS)]
    return {
        "columns": every,
        "pairs": [pair for pair in pairs if pair.sum() == 2],
        "half": [np.isin(np.arange(columns), order[: columns // 2])],
    }


def gaps(table: str, seed: int, efforts: list[str]) -> Iterator[Record]:
    """Errors of whole columns that are missing in new rows."""
    values = load(table)
    fitted, others = split(len(values), seed)
    for name, chosen in patterns(values.shape[1], seed).items():
        rows = np.concatenate([values[others]] * len(chosen))
        missing = np.repeat(np.stack(chosen), len(others), axis=0)
        task = Task(values[fitted], np.where(missing, np.nan, rows), seed, 1)
        for method in ("extratrees", "boosting", "ridge", *(f"vfg-{e}" for e in efforts)):
            filled = method_named(method)(task)
            error = float(np.square(filled.point - rows)[missing].mean())
            yield {
                "table": table, "seed": seed, "gaps": name, "method": method, "mse": error
            }  # fmt: skip


def growth(rows: int, columns: int, seed: int, efforts: list[str]) -> Iterator[Record]:
    """Seconds of made tables."""
    shown = made(rows, columns, seed)
    for effort in efforts:
        filled = method_named(f"vfg-{effort}")(Task(shown, shown, seed, 1))
        yield {
            "rows": rows, "columns": columns, "effort": effort,
            "fit": filled.fit_seconds, "transform": filled.transform_seconds,
            "draws": filled.draw_seconds,
        }  # fmt: skip


def made(rows: int, columns: int, seed: int) -> Array:
    """A table of curved functions of a few causes, three cells of ten missing."""
    random = np.random.default_rng([seed, rows, columns])
    causes = random.normal(size=(rows, max(3, columns // 4)))
    first, second = random.normal(size=(2, causes.shape[1], columns))
    values = np.tanh(causes @ first / 2) + 0.1 * np.square(causes @ second)
    values += 0.3 * random.normal(size=values.shape)
    return np.where(random.random(values.shape) < 0.3, np.nan, values)


def main() -> None:
    given: Arguments = arguments(
        __doc__,
        parts={"nargs": "+", "choices": ("cost", "gaps", "growth"), "help": "what to measure"},
        tables={"nargs": "+", "default": list(TABLES), "help": "for cost and gaps"},
        efforts={"nargs": "+", "choices": list(EFFORTS), "default": ["fast", "balanced"]},
    )
    torch.set_num_threads(1)
    parts = given.parts or (["growth"] if given.quick else ["cost", "gaps", "growth"])
    found: dict[str, list[Record]] = {part: [] for part in parts}
    for seed in given.chosen(full=1, quick=1):
        for part in parts:
            sizes = SIZES[:1] if given.quick else SIZES
            chosen = sizes if part == "growth" else [(table,) for table in given.tables]
            for one in chosen:
                measure: Any = {"cost": cost, "gaps": gaps, "growth": growth}[part]
                for record in measure(*one, seed, given.efforts):
                    found[part].append(record)
                    print(record, flush=True)
                    given.write("effort", found)


if __name__ == "__main__":
    main()
