"""What an effort of `VFGImputer` costs and brings, in seconds of the processor and one thread.

- `cost`: half of the cells missing; squared errors and seconds against chained ExtraTrees, of 100
  trees in ten rounds, and as in the other benchmarks.
- `gaps`: fitted to complete rows, other rows have every column missing in turn, fixed pairs, or a
  fixed half; squared and absolute errors against the baselines that run in this process.
- `growth`: seconds to fit and to fill made tables of several sizes, milliseconds of a single row,
  and how many times as long as filling intervals and twenty draws take, the first ones, which begin
  with draws of the parameters, and later ones.

    python -m experiments.benchmarks.imputation.effort            hours, with VFG_DATA
    python -m experiments.benchmarks.imputation.effort --quick    growth of small tables

Parts, tables, sizes and efforts can be measured one by one with `--output`, each into a folder of
its own, and put together by `--collect FOLDER`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from vfg.imputation.baselines import BASELINES
from vfg.imputation.plan import EFFORTS
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array, Mask

from ...results import Arguments, arguments
from .cells import PUBLISHED, SHAPES, hide, load, split
from .methods import Filled, Task, allowed, fill, method_named, timed

TABLES = tuple(table for table, (rows, _) in SHAPES.items() if rows < 2000)
"""For gaps: the small tables."""
EVERY_TABLE = tuple(table for table in SHAPES if table != PUBLISHED[1])
"""For cost."""
SIZES = (
    *((rows, 10) for rows in (100, 1_000, 10_000, 100_000, 1_000_000)),
    *((1_000, columns) for columns in (5, 20, 50, 100, 200, 500)),
    (20_000, 16),
)
FILLED, SOME, SINGLE = 10_000, 1_000, 20
"""Rows that are filled at most, that intervals and draws are made for, and that are filled one by
one."""
DRAWS = 20
PAIRS = 3
FOR_GAPS = tuple(name for name in BASELINES if name != "missforest")
"""missForest has no forests for columns that were complete in fitting."""
Record = dict[str, Any]


def cost(table: str, seed: int, efforts: list[str]) -> Iterator[Record]:
    """Errors and seconds with half of the cells missing."""
    values = load(table)
    missing = hide(values, "mcar50", seed)
    task = Task(np.where(missing, np.nan, values), None, seed, 1)
    for method in ("trees100", "extratrees", *(f"vfg-{effort}" for effort in efforts)):
        filled = one_method(method, task)
        error = float(np.square(filled.point - values)[missing].mean())
        yield {
            "table": table, "seed": seed, "method": method, "mse": error,
            "seconds": filled.fit_seconds,
        }  # fmt: skip


def one_method(method: str, task: Task) -> Filled:
    """The point imputation of a method, without draws."""
    if method == "trees100":
        return hundred_trees(task)
    if method.startswith("vfg-"):
        imputer = VFGImputer(effort=method.removeprefix("vfg-"), random_state=task.seed)
        return fill(imputer, task)
    return method_named(method)(task)


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
    """Errors of whole columns that are missing in new rows; every method is fitted once."""
    values = load(table)
    fitted, others = split(len(values), seed)
    shown, rows = values[fitted], values[others]
    baselines = [name for name in FOR_GAPS if allowed(name, *values.shape)]
    for method in (*baselines, *(f"vfg-{effort}" for effort in efforts)):
        imputer = imputer_named(method, shown, seed).fit(shown)
        for name, chosen in patterns(values.shape[1], seed).items():
            filled, medians = zip(
                *(fill_columns(imputer, rows, each) for each in chosen), strict=True
            )
            truth = np.concatenate([rows[:, each].ravel() for each in chosen])
            errors, distances = (np.concatenate(each) - truth for each in (filled, medians))
            yield {
                "table": table, "seed": seed, "gaps": name, "method": method,
                "mse": float(np.square(errors).mean()), "mae": float(np.abs(distances).mean()),
            }  # fmt: skip


def imputer_named(method: str, shown: Array, seed: int) -> Any:
    """A baseline, or this library's imputer with an effort, for one thread."""
    if method in BASELINES:
        return BASELINES[method](shown, seed, 1)
    return VFGImputer(effort=method.removeprefix("vfg-"), random_state=seed)


def fill_columns(imputer: Any, rows: Array, missing: Mask) -> tuple[Array, Array]:
    """What some columns of rows are filled with, for squared and for absolute errors."""
    shown = np.where(missing, np.nan, rows)
    filled = np.asarray(imputer.transform(shown))[:, missing].ravel()
    if not isinstance(imputer, VFGImputer) or not imputer.bend:
        return filled, filled
    medians = np.asarray(imputer.set_params(estimate="median").transform(shown))[:, missing]
    imputer.set_params(estimate="mean")
    return filled, medians.ravel()


def growth(rows: int, columns: int, seed: int, efforts: list[str]) -> Iterator[Record]:
    """Seconds of made tables."""
    shown = made(rows, columns, seed)
    for effort in efforts:
        imputer = VFGImputer(effort=effort, random_state=seed)
        _, seconds = timed(imputer.fit, shown)
        yield {
            "rows": rows,
            "columns": columns,
            "effort": effort,
            "fit": seconds,
            **use(imputer, shown),
        }


def use(imputer: VFGImputer, shown: Array) -> dict[str, float]:
    """Seconds of a single row, of one among many, and of intervals and draws over filling."""
    imputer.transform(shown[:SINGLE])  # what is computed once
    single = [timed(imputer.transform, row[None])[1] for row in shown[:SINGLE]]
    many, some = shown[:FILLED], shown[:SOME]
    filling = timed(imputer.transform, some)[1]
    return {
        "single": float(np.median(single)),
        "per_row": timed(imputer.transform, many)[1] / len(many),
        "interval": timed(imputer.predict_interval, some)[1] / filling,
        "draws": timed(imputer.sample, some, DRAWS)[1] / filling,
        "again": timed(imputer.sample, some, DRAWS)[1] / filling,
    }


def made(rows: int, columns: int, seed: int) -> Array:
    """A table of curved functions of a few causes, three cells of ten missing."""
    random = np.random.default_rng([seed, rows, columns])
    causes = random.normal(size=(rows, max(3, columns // 4)))
    first, second = random.normal(size=(2, causes.shape[1], columns))
    values = np.tanh(causes @ first / 2) + 0.1 * np.square(causes @ second)
    values += 0.3 * random.normal(size=values.shape)
    return np.where(random.random(values.shape) < 0.3, np.nan, values)


def collect(folder: Path) -> dict[str, Any]:
    """The records of all files below a folder, of the same case those of the newest.

    With the machine of the newest file, and the seconds of all.
    """
    newest: dict[str, dict[tuple[Any, ...], Record]] = {}
    module = "experiments.benchmarks.imputation.effort"
    described: dict[str, Any] = {"command": f"python -m {module} --collect FOLDER", "seconds": 0.0}
    for path in sorted(folder.rglob("effort.json"), key=lambda path: path.stat().st_mtime):
        found = json.loads(path.read_text())
        described["machine"] = found.get("machine")
        described["seconds"] += found.get("seconds", 0.0)
        for part in PARTS:
            for record in found.get(part, ()):
                keys = ("rows", "columns", "table", "gaps", "seed", "method", "effort")
                case = tuple(record.get(key) for key in keys)
                newest.setdefault(part, {})[case] = record
    return described | {part: list(newest[part].values()) for part in PARTS if part in newest}


def size(text: str) -> tuple[int, int]:
    """Rows and columns from `1000x20`."""
    rows, columns = map(int, text.split("x"))
    return rows, columns


PARTS = {"cost": cost, "gaps": gaps, "growth": growth}


def main() -> None:
    given: Arguments = arguments(
        __doc__,
        parts={"nargs": "+", "choices": list(PARTS), "help": "what to measure"},
        tables={"nargs": "+", "help": "for cost and gaps"},
        sizes={"nargs": "+", "type": size, "default": list(SIZES), "help": "for growth: 1000x20"},
        efforts={"nargs": "+", "choices": list(EFFORTS), "default": ["fast", "balanced"]},
        only_seeds={"nargs": "+", "type": int, "help": "these seeds, where runs share them"},
        collect={"type": Path, "help": "put the files below a folder together instead"},
    )
    torch.set_num_threads(1)
    if given.collect:
        given.write("effort", collect(given.collect))
        return
    parts = given.parts or (["growth"] if given.quick else list(PARTS))
    found: dict[str, list[Record]] = {part: [] for part in parts}
    begun = time.monotonic()
    for seed in given.only_seeds or given.chosen(full=1, quick=1):
        for part in parts:
            tables = given.tables or (EVERY_TABLE if part == "cost" else TABLES)
            sizes = SIZES[:1] if given.quick else given.sizes
            chosen = sizes if part == "growth" else [(table,) for table in tables]
            for one in chosen:
                measure: Any = PARTS[part]
                for record in measure(*one, seed, given.efforts):
                    found[part].append(record)
                    print(f"{time.monotonic() - begun:.0f} s", record, flush=True)
                    given.write("effort", found)


if __name__ == "__main__":
    main()
