"""Rows unlike the fitted ones: fitted to the first rows of sorted tables, the others are filled.

Tables are sorted along their first principal component, in both directions. The first 70 % of the
rows are complete, three cells of ten of the others missing. There are made tables, too, sorted by
their first column, whose last column is missing. Squared errors are in deviations of the fitted
rows; coverage is that of 90 % intervals.

    python -m experiments.benchmarks.imputation.shifts            some minutes, with VFG_DATA
    python -m experiments.benchmarks.imputation.shifts --quick    made tables, `effort="fast"`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import BayesianRidge

from vfg.imputation.baselines import BASELINES
from vfg.imputation.plan import EFFORTS
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array, Mask

from ...results import Arguments, arguments
from .cells import load
from .methods import LEVEL, timed

MADE = ("line", "saturation", "share", "tails", "parabola")
"""Relations of the last column to the first: straight, bounded, of heavy tails, turning back."""
TABLES = ("concrete", "glass", "wine_red", "yacht", "banknote", "climate_crashes")
"""The first three are for choosing defaults."""
FITTED, MISSING, ROWS = 0.7, 0.3, 700
Record = dict[str, Any]
Case = tuple[str, Array, Array, Mask]
"""What rows are sorted by, the fitted rows, the others, and which of their cells are missing."""


def make(name: str, seed: int) -> Array:
    """A table of three columns, the last a function of the first two."""
    random = np.random.default_rng([seed, MADE.index(name)])
    x, z, noise = random.standard_normal((3, ROWS))
    last = {
        "line": 2.0 * x + 0.3 * noise,
        "saturation": np.tanh(1.5 * x) + 0.1 * noise,
        "share": 1.0 / (1.0 + np.exp(-1.5 * x - 0.5 * z - 0.3 * noise)),
        "tails": 0.3 * x + 0.5 * z + 0.5 * random.standard_t(2.0, ROWS),
        "parabola": np.square(x) + 0.5 * z + 0.3 * noise,
    }
    return np.column_stack([x, z, last[name]])


def cases(table: str, seed: int) -> Iterator[Case]:
    """The ways in which a table is sorted."""
    values = make(table, seed) if table in MADE else load(table)
    cut, columns = round(FITTED * len(values)), values.shape[1]
    random = np.random.default_rng([seed, 4])
    if table in MADE:
        order = values[:, 0].argsort()
        missing = np.arange(columns) == columns - 1
        shape = len(values) - cut, columns
        yield (
            "first column",
            values[order[:cut]],
            values[order[cut:]],
            np.broadcast_to(missing, shape),
        )
        return
    component = values @ np.linalg.svd(values, full_matrices=False)[2][0]
    for sign in (1.0, -1.0):
        order = (sign * component).argsort(kind="stable")
        others = values[order[cut:]]
        yield (
            f"component {sign:+.0f}",
            values[order[:cut]],
            others,
            random.random(others.shape) < MISSING,
        )


def imputers(seed: int, efforts: list[str]) -> dict[str, Any]:
    """Functions from fitted rows to imputers, by name; the ridge regressions have no limits."""
    baselines = "mean", "knn", "extratrees"
    return {
        **{name: lambda x, name=name: BASELINES[name](x, seed, 1) for name in baselines},
        "ridge": lambda x: IterativeImputer(BayesianRidge(), random_state=seed),
        **{f"vfg-{e}": lambda x, e=e: VFGImputer(effort=e, random_state=seed) for e in efforts},
    }


def measure(table: str, seed: int, efforts: list[str]) -> Iterator[Record]:
    """Errors and coverage of all methods."""
    for order, fitted, others, missing in cases(table, seed):
        scale = fitted.std(axis=0).clip(min=1e-9)
        rows = np.where(missing, np.nan, others)
        for method, build in imputers(seed, efforts).items():
            imputer, _ = timed(build(fitted).fit, fitted)
            filled, _ = timed(imputer.transform, rows)
            error = float(np.square((filled - others) / scale)[missing].mean())
            record = {"table": table, "seed": seed, "order": order, "method": method, "mse": error}
            if method.startswith("vfg"):
                low, high = map(np.asarray, imputer.predict_interval(rows, LEVEL))
                record["coverage"] = float(((low <= others) & (others <= high))[missing].mean())
            yield record


def main() -> None:
    given: Arguments = arguments(
        __doc__,
        tables={
            "nargs": "+",
            "default": [*MADE, *TABLES],
            "help": "made ones or those of VFG_DATA",
        },
        efforts={"nargs": "+", "choices": list(EFFORTS), "default": ["fast", "balanced"]},
    )
    torch.set_num_threads(1)
    tables = MADE if given.quick else given.tables
    efforts = ["fast"] if given.quick else given.efforts
    found: list[Record] = []
    for seed in given.chosen(full=1, quick=1):
        for table in tables:
            for record in measure(table, seed, efforts):
                found.append(record)
                print(record, flush=True)
                given.write("shifts", {"records": found})


if __name__ == "__main__":
    main()
