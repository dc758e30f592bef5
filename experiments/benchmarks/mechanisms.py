"""In how many simulated tables a mechanism is found, if there is one and if there is none.

    python -m experiments.benchmarks.mechanisms --seeds 4 --jobs 2

Tables of Normal columns: exchangeable ones, two factors, a chain, two columns alone, and one column
with a single predictor among others; of lognormal ones, with a square, with counts and a flag, and
many that are clipped to their bounds. Cells are missing completely at random; at random, given one
column, several, or other ones for every column, above a threshold of one, by the sum of two, or
from the last column on that was observed; or by their own value: in one column, in one beside
others at random, in all columns, in all with slopes of either sign, and by a threshold.
`VFGImputer(bend=False)` with `missingness="auto"` finds slopes or not; where it does, squared
errors are compared with those of `"ignorable"`.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import torch

from vfg.data import mar, mcar, mnar_self
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array, Mask

from ..results import arguments
from .mnar import RATE, with_rate

Generator = np.random.Generator


def exchangeable(rows: int, generator: Generator, columns: int = 5) -> Array:
    covariance = 0.6 + 0.4 * np.eye(columns)
    return np.asarray(generator.multivariate_normal(np.zeros(columns), covariance, rows))


def factors(rows: int, generator: Generator) -> Array:
    table = generator.normal(size=(rows, 2)) @ generator.normal(size=(2, 6))
    table += 0.6 * generator.normal(size=table.shape)
    return np.asarray(table / table.std(0))


def chain(rows: int, generator: Generator) -> Array:
    table = generator.normal(size=(rows, 6))
    for place in range(1, 6):
        table[:, place] = 0.7 * table[:, place - 1] + 0.51**0.5 * table[:, place]
    return table


def one_predictor(rows: int, generator: Generator) -> Array:
    """The second column follows the first, others follow nothing."""
    table = generator.normal(size=(rows, 4))
    table[:, 1] = 0.8 * table[:, 0] + 0.6 * table[:, 1]
    return table


def skewed(rows: int, generator: Generator) -> Array:
    return np.exp(exchangeable(rows, generator))


def curved(rows: int, generator: Generator) -> Array:
    """The last column follows a square of the first and the second."""
    table = generator.normal(size=(rows, 4))
    table[:, 1] += 0.7 * table[:, 0]
    table[:, 2] += table[:, 0] - 0.5 * table[:, 1]
    table[:, 3] = 0.7 * table[:, 0] ** 2 + 0.5 * table[:, 1] + 0.5 * table[:, 3]
    return table


def counts_and_flag(rows: int, generator: Generator) -> Array:
    """Three Normal columns, counts and a flag that go together."""
    table = exchangeable(rows, generator)
    table[:, 3] = generator.poisson(np.exp(0.7 * table[:, 3] + 0.5))
    table[:, 4] = table[:, 4] > 0.3
    return table


def clipped(rows: int, generator: Generator) -> Array:
    """Many columns of a few factors, each clipped so that a fifth lies at its bounds."""
    table = generator.normal(size=(rows, 4)) @ generator.normal(size=(4, 24))
    table = table / table.std(0) + 0.7 * generator.normal(size=table.shape)
    return np.asarray(np.clip(table, *np.quantile(table, [0.1, 0.9], axis=0)))


TABLES: dict[str, Callable[[int, Generator], Array]] = {
    "exchangeable": exchangeable,
    "factors": factors,
    "chain": chain,
    "two": lambda rows, generator: exchangeable(rows, generator, 2),
    "predictor": one_predictor,
    "skewed": skewed,
    "curved": curved,
    "counts": counts_and_flag,
    "clipped": clipped,
}


def _one(logits: Array, table: Array, column: int, seed: int) -> Mask:
    missing = np.zeros(table.shape, dtype=bool)
    missing[:, column] = with_rate(logits[:, None], seed)[:, 0]
    return missing


def by_one_column(table: Array, generator: Generator, seed: int) -> Mask:
    """One column is missing by another one."""
    column, driver = generator.permutation(table.shape[1])[:2]
    logits = generator.choice([-1.5, 1.5]) * _z_scores(table)[:, driver]
    return _one(logits, table, int(column), seed)


def by_predictor(table: Array, generator: Generator, seed: int) -> Mask:
    """The second column is missing by the first, the third completely at random."""
    missing = _one(generator.choice([-1.5, 1.5]) * _z_scores(table)[:, 0], table, 1, seed)
    if table.shape[1] > 2:
        missing[:, 2] = generator.random(len(table)) < RATE
    return missing


def beyond(table: Array, generator: Generator, seed: int) -> Mask:
    """All cells of one column beyond a threshold are missing."""
    column, sign = int(generator.integers(table.shape[1])), generator.choice([-1.0, 1.0])
    missing = np.zeros(table.shape, dtype=bool)
    own = sign * table[:, column]
    missing[:, column] = own > np.quantile(own, 1.0 - RATE)
    return missing


def _z_scores(table: Array) -> Array:
    return np.asarray((table - table.mean(0)) / table.std(0))


def by_several(table: Array, generator: Generator, seed: int) -> Mask:
    """One column is missing by a random sum of the others."""
    others = _z_scores(table)[:, 1:] @ generator.normal(size=table.shape[1] - 1)
    return _one(others / others.std(), table, 0, seed)


def driven(table: Array, generator: Generator, seed: int) -> Mask:
    """All columns are missing by one of them."""
    driver = generator.integers(table.shape[1])
    values = _z_scores(table)[:, [driver]]
    missing = with_rate(np.repeat(values, table.shape[1], axis=1), seed)
    missing[:, driver] = False
    return missing


def own_of_one(table: Array, generator: Generator, seed: int) -> Mask:
    column = int(generator.integers(table.shape[1]))
    logits = generator.choice([-1.5, 1.5]) * _z_scores(table)[:, column]
    return _one(logits, table, column, seed)


def own_beside_random(table: Array, generator: Generator, seed: int) -> Mask:
    missing, own = mcar(table.shape, RATE, seed), own_of_one(table, generator, seed)
    missing[:, own.any(0)] = own[:, own.any(0)]
    return missing


def opposite(table: Array, generator: Generator, seed: int) -> Mask:
    return with_rate(_z_scores(table) * np.resize([1.0, -1.0], table.shape[1]), seed)


def threshold_of_one(table: Array, generator: Generator, seed: int) -> Mask:
    missing = np.zeros(table.shape, dtype=bool)
    above = table[:, 0] > np.median(table[:, 0])
    missing[:, 0] = above & (generator.random(len(table)) < 2.0 * RATE)
    return missing


def above_another(table: Array, generator: Generator, seed: int) -> Mask:
    """All columns but two are missing where one of these is high."""
    missing = generator.random(table.shape) < 0.8
    return missing & _from_third(table) & (table[:, [0]] > np.quantile(table[:, 0], 0.6))


def by_sum_of_two(table: Array, generator: Generator, seed: int) -> Mask:
    """All columns but two are missing by the sum of these."""
    total = _z_scores(table)[:, :2].sum(1, keepdims=True)
    chance = 1.0 / (1.0 + np.exp(1.0 - 2.0 * total / total.std()))
    return (generator.random(table.shape) < chance) & _from_third(table)


def _from_third(table: Array) -> Mask:
    return np.broadcast_to(np.arange(table.shape[1]) >= min(2, table.shape[1] - 1), table.shape)


def dropout(table: Array, generator: Generator, seed: int) -> Mask:
    """A row that is high in a column is likely to be missing in all later ones."""
    scores = _z_scores(table)
    chance = np.where(scores[:, :-1] > 0.7, 0.6, 0.03)
    leaves = generator.random(chance.shape) < chance
    missing = np.zeros(table.shape, dtype=bool)
    missing[:, 1:] = np.logical_or.accumulate(leaves, axis=1)
    return missing


MECHANISMS: dict[str, Callable[[Array, Generator, int], Mask]] = {
    "mcar": lambda table, generator, seed: mcar(table.shape, RATE, seed),
    "mar": lambda table, generator, seed: mar(table, RATE, seed),
    "by_one_column": by_one_column,
    "by_several": by_several,
    "by_predictor": by_predictor,
    "driven": driven,
    "own_of_one": own_of_one,
    "own_beside_random": own_beside_random,
    "threshold_of_one": threshold_of_one,
    "beyond": beyond,
    "opposite": opposite,
    "own": lambda table, generator, seed: mnar_self(table, RATE, seed),
    "above_another": above_another,
    "by_sum_of_two": by_sum_of_two,
    "dropout": dropout,
}


def measure(table: str, mechanism: str, rows: int, seed: int) -> dict[str, Any]:
    """Whether slopes are found, and squared errors relative to those of filling without."""
    places = list(TABLES).index(table), list(MECHANISMS).index(mechanism)
    generator = np.random.default_rng([seed, rows, *places])
    truth = TABLES[table](rows, generator)
    missing = MECHANISMS[mechanism](truth, generator, seed)
    masked = np.where(missing, np.nan, truth)
    scale = truth.std(0)
    ratio = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = VFGImputer(bend=False, random_state=0).fit(masked)
        found = imputer.model_.slopes is not None
        if found:
            plain = VFGImputer(bend=False, missingness="ignorable", random_state=0).fit(masked)
            errors = [
                np.square(((one.transform(masked) - truth) / scale)[missing]).mean()
                for one in (imputer, plain)
            ]
            ratio = float(errors[0] / errors[1])
        low, high = imputer.predict_interval(masked, level=0.9)
        covered = float(((low <= truth) & (truth <= high))[missing].mean())
    setting = {"table": table, "mechanism": mechanism, "rows": rows, "seed": seed}
    evidence = {name: float(x) for name, x in imputer.model_.mechanism.items()}
    return {**setting, "found": found, "ratio": round(ratio, 4), "covered": round(covered, 3)} | (
        evidence
    )


def _measure_before(end: float, *setting: Any) -> dict[str, Any] | None:
    """A cell, if it begins before the end."""
    torch.set_num_threads(1)
    return measure(*setting) if time.time() < end else None


def main() -> None:
    options = arguments(
        __doc__,
        tables={"nargs": "+", "choices": list(TABLES), "default": list(TABLES)},
        mechanisms={"nargs": "+", "choices": list(MECHANISMS), "default": list(MECHANISMS)},
        rows={"nargs": "+", "type": int, "default": [100, 400, 2000]},
        jobs={"type": int, "default": 1, "help": "processes, a thread each"},
        minutes={"type": float, "default": float("inf"), "help": "when to end"},
    )
    end = time.time() + 60.0 * options.minutes
    chosen = itertools.product(
        options.chosen(full=4, quick=1), options.rows, options.tables, options.mechanisms
    )
    calls = (
        joblib.delayed(_measure_before)(end, table, mechanism, rows, seed)
        for seed, rows, table, mechanism in chosen
    )
    blocks = joblib.Parallel(n_jobs=options.jobs, return_as="generator")(calls)
    cells = [cell for cell in blocks if cell is not None]
    for mechanism, rows in itertools.product(options.mechanisms, options.rows):
        own = [c for c in cells if c["mechanism"] == mechanism and c["rows"] == rows]
        if own:
            ratio = np.exp(np.mean([np.log(cell["ratio"]) for cell in own]))
            print(mechanism, rows, f"{sum(c['found'] for c in own)} of {len(own)}", f"{ratio:.3f}")
    options.write("mechanisms", {"cells": cells})


if __name__ == "__main__":
    main()
