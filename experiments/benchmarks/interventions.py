"""Errors of E[y | do(x)] on ten simulated systems with missing cells, against baselines.

    python -m experiments.benchmarks.interventions [--seeds 10] [--skip 0] [--jobs 2]
        [--seconds 1500] [--methods vfg DoWhy ...]    some of them, by how names begin

All methods know the DAG. Baselines regress y on x and its adjustment set (the causes of x), and
average the prediction at do(x) over the rows: boosted trees on complete rows, on the whole table
(they take missing cells), and on iteratively filled tables; linear regression on filled tables; and
boosted trees without adjustment. DoWhy's graphical causal models and the networks of pgmpy, which
take no missing cells, are fitted to complete rows and to filled tables by the interpreter that
VFG_GRAPHS_PYTHON names (see experiments/baselines/graph_worker.py). Truth is simulated with 200,000
rows. Categories are columns of 0 and 1 for baselines. Settings of vfg were chosen on other seeds,
50 to 55, of the first seven systems; the last three were added later, and nothing was changed after
they were run. Every cell is kept in
docs/results/cells/interventions.jsonl, so that a run that was stopped goes on.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LinearRegression

import vfg
from vfg.structure.completing import fit_covariance

from ..baselines.graph_methods import own_worker
from ..cells import Cell, Cells
from ..results import FOLDER, arguments, as_they_end, machine, positive, versions

ROWS, MISSING = 2000, 0.3
Columns = dict[str, Any]
Draw = Callable[[np.random.Generator, int, float | None], Columns]


def triangle(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """One confounder; everything is curved."""
    z = g.normal(size=n)
    own = np.tanh(1.5 * z) + 0.7 * g.normal(size=n) if x is None else np.full(n, x)
    return {"z": z, "x": own, "y": np.sin(1.5 * own) + z**2 / 2 + z + 0.4 * g.normal(size=n)}


def mediated(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """x acts by way of m alone; z confounds x and y."""
    z = g.normal(size=n)
    own = 0.8 * z + 0.6 * g.normal(size=n) if x is None else np.full(n, x)
    m = np.tanh(own) + 0.3 * own + 0.4 * g.normal(size=n)
    return {"z": z, "x": own, "m": m, "y": 1.5 * m - z + 0.5 * g.normal(size=n)}


def interacting(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """The effect of x depends on a confounder."""
    z, w = g.normal(size=(2, n))
    own = 0.7 * z - 0.5 * w + 0.6 * g.normal(size=n) if x is None else np.full(n, x)
    y = own * (1 + 0.7 * z) + w + 0.3 * w**2 + 0.5 * g.normal(size=n)
    return {"z": z, "w": w, "x": own, "y": y}


def linear(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """Linear, with two confounders that are related."""
    z = g.normal(size=n)
    w = 0.7 * z + 0.7 * g.normal(size=n)
    own = z + 0.5 * w + g.normal(size=n) if x is None else np.full(n, x)
    return {"z": z, "w": w, "x": own, "y": 0.8 * own - z + 1.2 * w + g.normal(size=n)}


def skewed(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """A skewed confounder, and an effect that saturates."""
    z = g.gamma(2.0, size=n) - 2.0
    own = 0.6 * z + 0.8 * g.normal(size=n) if x is None else np.full(n, x)
    return {"z": z, "x": own, "y": 2 / (1 + np.exp(-2 * own)) + 0.8 * z + 0.4 * g.normal(size=n)}


def chained(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """Two mediators in a row, the second of them curved; z confounds x and y."""
    z = g.normal(size=n)
    own = 0.9 * z + 0.7 * g.normal(size=n) if x is None else np.full(n, x)
    m = 0.8 * own + 0.5 * g.normal(size=n)
    k = np.exp(0.5 * m) + 0.3 * g.normal(size=n)
    return {"z": z, "x": own, "m": m, "k": k, "y": k - 0.8 * z + 0.4 * g.normal(size=n)}


def threshold(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """Two confounders, of which one acts beyond a threshold alone, and an effect with a bend."""
    z, w = g.normal(size=(2, n))
    z = 0.6 * w + 0.8 * z
    own = 0.6 * z + 0.6 * w + 0.8 * g.normal(size=n) if x is None else np.full(n, x)
    y = np.abs(own) + np.maximum(z, 0.0) * 1.5 - w + 0.5 * g.normal(size=n)
    return {"z": z, "w": w, "x": own, "y": y}


def grouped(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """Three groups, a confounder of categories, of which each has its own effect of x."""
    code = g.choice(3, n, p=[0.5, 0.3, 0.2])
    z = 0.5 * code + g.normal(size=n)
    own = np.array([-0.8, 0.2, 1.0])[code] + 0.4 * z + g.normal(size=n)
    own = own if x is None else np.full(n, x)
    slope, start = np.array([1.0, -0.3, 0.4])[code], np.array([0.0, 1.5, -1.0])[code]
    y = start + slope * own + 0.6 * np.tanh(2 * z) + 0.5 * g.normal(size=n)
    return {"group": np.array(["north", "south", "west"], dtype=object)[code], "z": z} | {
        "x": own,
        "y": y,
    }


def heavy(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """Heavy tails (Student, three degrees of freedom) of the confounder and of all noise."""
    z = g.standard_t(3, n)
    own = 0.6 * z + 0.7 * g.standard_t(3, n) if x is None else np.full(n, x)
    return {"z": z, "x": own, "y": 2 * np.tanh(own) - 0.8 * z + 0.6 * g.standard_t(3, n)}


def uneven(g: np.random.Generator, n: int, x: float | None) -> Columns:
    """A wave of a uniform confounder, and noise that grows with x."""
    w = g.uniform(-2, 2, n)
    own = 0.8 * w + 0.8 * g.normal(size=n) if x is None else np.full(n, x)
    m = own**2 / 2 - own + (0.2 + 0.3 * np.abs(own)) * g.normal(size=n)
    return {"w": w, "x": own, "m": m, "y": m + 1.5 * np.sin(2 * w) + 0.5 * g.normal(size=n)}


SYSTEMS: dict[str, tuple[Draw, list[tuple[str, str]], list[str]]] = {
    "triangle": (triangle, [("z", "x"), ("z", "y"), ("x", "y")], ["z"]),
    "mediated": (mediated, [("z", "x"), ("x", "m"), ("m", "y"), ("z", "y")], ["z"]),
    "interacting": (
        interacting,
        [("z", "x"), ("w", "x"), ("z", "y"), ("w", "y"), ("x", "y")],
        ["z", "w"],
    ),
    "linear": (
        linear,
        [("z", "w"), ("z", "x"), ("w", "x"), ("z", "y"), ("w", "y"), ("x", "y")],
        ["z", "w"],
    ),
    "skewed": (skewed, [("z", "x"), ("z", "y"), ("x", "y")], ["z"]),
    "chained": (
        chained,
        [("z", "x"), ("x", "m"), ("m", "k"), ("k", "y"), ("z", "y")],
        ["z"],
    ),
    "threshold": (
        threshold,
        [("w", "z"), ("z", "x"), ("w", "x"), ("z", "y"), ("w", "y"), ("x", "y")],
        ["z", "w"],
    ),
    "grouped": (
        grouped,
        [("group", "z"), ("group", "x"), ("z", "x"), ("group", "y"), ("z", "y"), ("x", "y")],
        ["group", "z"],
    ),
    "heavy": (heavy, [("z", "x"), ("z", "y"), ("x", "y")], ["z"]),
    "uneven": (uneven, [("w", "x"), ("x", "m"), ("m", "y"), ("w", "y")], ["w"]),
}
"""How rows are drawn, the DAG, and the causes of x."""


def table_model(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    model = vfg.TableModel(effort="fast")
    model.fit(columns)
    return model.infer({}, "y", do={"x": at}, dag=dag).mean["y"]


def gaussian_mixture(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    names = list(columns)
    model = vfg.GaussianVFG(vfg.Graph.star(dict.fromkeys(names, 1), width=len(names)), 16)
    model.fit(np.column_stack(list(columns.values())), shrinkage=2.0, restarts=1)
    return model.infer({}, "y", do={"x": at}, dag=dag).mean["y"]


def gaussian_likelihood(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    """The maximum of a Gaussian likelihood of all observed cells: the bound for linear systems."""
    table, target = split(columns, adjust)
    table = np.column_stack([target, table])
    centre, scale = np.nanmean(table, 0), np.nanstd(table, 0)
    seen = ~np.isnan(table)
    mean, covariance = fit_covariance(np.where(seen, (table - centre) / scale, 0.0), seen)
    slope = np.linalg.solve(covariance[1:, 1:], covariance[1:, 0])[0]
    place = (np.asarray(at) - centre[1]) / scale[1] - mean[1]
    return centre[0] + scale[0] * (mean[0] + slope * place)


def averaged(model: Any, table: Any, target: Any, at: Any) -> Any:
    """The adjustment formula: predictions at x, the first column, averaged over the rows."""
    model.fit(table, target)
    means = []
    for x in at:
        changed = table.copy()
        changed[:, 0] = x
        means.append(model.predict(changed).mean())
    return np.array(means)


def boosted() -> Any:
    return HistGradientBoostingRegressor(max_iter=200, learning_rate=0.05, random_state=0)


def split(columns: Columns, adjust: list[str]) -> tuple[Any, Any]:
    return np.column_stack([columns["x"], *(columns[k] for k in adjust)]), columns["y"]


def boosting_complete(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    table, target = split(columns, adjust)
    kept = ~np.isnan(table).any(1) & ~np.isnan(target)
    return averaged(boosted(), table[kept], target[kept], at)


def boosting_missing(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    table, target = split(columns, adjust)
    kept = ~np.isnan(target)
    return averaged(boosted(), table[kept], target[kept], at)


def filled(columns: Columns) -> Columns:
    matrix = IterativeImputer(random_state=0).fit_transform(np.column_stack(list(columns.values())))
    return dict(zip(columns, matrix.T, strict=True))


def boosting_filled(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    return averaged(boosted(), *split(filled(columns), adjust), at)


def regression_filled(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    return averaged(LinearRegression(), *split(filled(columns), adjust), at)


def conditioning(columns: Columns, dag: Any, at: Any, adjust: Any) -> Any:
    return boosting_complete(columns, dag, at, [])


def complete_rows(columns: Columns) -> Columns:
    kept = ~np.isnan(np.column_stack(list(columns.values()))).any(1)
    return {name: values[kept] for name, values in columns.items()}


def by_worker(
    name: str, way: Callable[[Columns], Columns], columns: Columns, dag: Any, at: Any, adjust: Any
) -> Any:
    """The answer of another library that is fitted to a table without missing cells."""
    given = way(columns)
    table = np.column_stack(list(given.values()))
    return own_worker().ask(name, limit=600.0, names=list(given), table=table, edges=dag, at=at)


METHODS: dict[str, Callable[[Columns, Any, Any, Any], Any]] = {
    "vfg.TableModel": table_model,
    "vfg.GaussianVFG, 16 components": gaussian_mixture,
    "boosted trees, complete rows": boosting_complete,
    "boosted trees, missing cells": boosting_missing,
    "boosted trees, filled table": boosting_filled,
    "regression, filled table": regression_filled,
    "bound: Gaussian likelihood": gaussian_likelihood,
    "boosted trees, no adjustment": conditioning,
    **{
        f"{title}, {words}": partial(by_worker, name, way)
        for name, title in (
            ("DoWhy-GCM", "DoWhy-GCM"),
            ("pgmpy-gaussian", "pgmpy, linear Gaussian"),
            ("pgmpy-bins", "pgmpy, five bins"),
        )
        for way, words in ((complete_rows, "complete rows"), (filled, "filled table"))
    },
}
"""Means of y at do(x) by every method; those of other libraries with their processor seconds."""


EARLIER = "vfg.TableModel, families by mixtures"
"""Cells of a version whose families were mixtures of linear models, kept for comparison."""


def tables(system: str, seed: int) -> tuple[Columns, Any, Any, float]:
    """Columns with missing cells, values of x between its outer deciles, E[y | do(x)] at these, and
    the deviation of y."""
    draw = SYSTEMS[system][0]
    columns = draw(np.random.default_rng(seed), ROWS, None)
    at = np.quantile(columns["x"], np.linspace(0.1, 0.9, 9))
    truth = np.array([draw(np.random.default_rng(999), 200_000, x)["y"].mean() for x in at])
    generator = np.random.default_rng(100 + seed)
    gaps = {}
    for name, own in columns.items():
        hidden = generator.random(ROWS) < MISSING
        gaps[name] = np.where(hidden, None if own.dtype == object else np.nan, own)
    return gaps, at, truth, columns["y"].std()


def with_indicators(columns: Columns, dag: Any, adjust: Any) -> tuple[Columns, Any, Any]:
    """Categories as columns of 0 and 1 but for the first, in the DAG and the adjustment set too."""
    parts: dict[str, list[str]] = {}
    table: Columns = {}
    for name, own in columns.items():
        if own.dtype != object:
            parts[name], table[name] = [name], own
            continue
        missing = np.array([cell is None for cell in own])
        categories = sorted(set(own[~missing]))[1:]
        parts[name] = [f"{name}_{category}" for category in categories]
        for key, category in zip(parts[name], categories, strict=True):
            table[key] = np.where(missing, np.nan, (own == category).astype(float))
    edges = [(a, b) for cause, effect in dag for a in parts[cause] for b in parts[effect]]
    return table, edges, [key for name in adjust for key in parts[name]]


def measure(system: str, seed: int, method: str) -> tuple[Cell, Cell]:
    """The key of a cell, and the root mean squared error over the values of x."""
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    key = {"system": system, "seed": seed, "method": method}
    columns, at, truth, scale = tables(system, seed)
    dag: Any = SYSTEMS[system][1]
    adjust = SYSTEMS[system][2]
    if method != "vfg.TableModel":
        columns, dag, adjust = with_indicators(columns, dag, adjust)
    start = time.process_time()
    try:
        answer = METHODS[method](columns, dag, at, adjust)
    except RuntimeError as error:  # of another library
        return key, {"error": str(error)}
    seconds = time.process_time() - start
    if isinstance(answer, dict):
        answer, seconds = answer["means"], seconds + answer["seconds"]
    rmse = float(np.sqrt(np.mean((answer - truth) ** 2)) / scale)
    return key, {"rmse": round(rmse, 4), "seconds": round(seconds, 2)}


def summarise(cells: Cells) -> dict[str, list[dict[str, Any]]]:
    """For every system and seed what each method found."""
    found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in SYSTEMS}
    for cell in cells.known.values():
        key = cell["key"]
        if key["method"] in (*METHODS, EARLIER) and "error" not in cell:
            own = found[key["system"]].setdefault(key["seed"], {})
            own[key["method"]] = {k: v for k, v in cell.items() if k != "key"}
    return {
        system: [
            {method: own[method] for method in (*METHODS, EARLIER) if method in own}
            for _, own in sorted(by_seed.items())
        ]
        for system, by_seed in found.items()
    }


def main() -> None:
    chosen = arguments(
        __doc__,
        jobs={"type": positive, "default": 1, "help": "processes, of one thread each"},
        seconds={"type": float, "default": float("inf"), "help": "after which no cell is begun"},
        skip={"type": int, "default": 0, "help": "how many of the first seeds are left out"},
        methods={"nargs": "+", "default": [""], "help": "how their names begin"},
    )
    folder = chosen.output or FOLDER / "cells"
    cells = Cells(None if chosen.quick else folder / "interventions.jsonl")
    tasks = [
        (system, seed, method)
        for seed in chosen.chosen(full=10, quick=1)[chosen.skip :]
        for system in SYSTEMS
        for method in METHODS
        if method.startswith(tuple(chosen.methods))
        and cells.get({"system": system, "seed": seed, "method": method}) is None
    ]
    for key, cell in as_they_end(measure, tasks, chosen.jobs, chosen.seconds):
        cells.add(key, cell)
        print(json.dumps(cells.get(key)), flush=True)
    chosen.write(
        "interventions",
        {
            "rows": ROWS,
            "missing": MISSING,
            "machine": machine(),
            "versions": versions("scikit-learn"),
            "seconds": round(sum(cell.get("seconds", 0.0) for cell in cells.known.values()), 1),
            "systems": summarise(cells),
        },
    )


if __name__ == "__main__":
    main()
