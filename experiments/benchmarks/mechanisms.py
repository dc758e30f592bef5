"""In how many simulated tables a mechanism is found that is there, and one that is not.

    python -m experiments.benchmarks.mechanisms --seeds 4

Tables of Normal columns: exchangeable ones, two factors, a chain, and two columns alone. Cells are
missing completely at random; at random, given one column, several, or other ones for every column;
or by their own value: in one column, in one beside others at random, in all columns, in all with
slopes of either sign, and by a threshold. `VFGImputer(bend=False)` with `missingness="auto"` finds
slopes or not; where it does, squared errors are compared with those of `"ignorable"`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

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


TABLES: dict[str, Callable[[int, Generator], Array]] = {
    "exchangeable": exchangeable,
    "factors": factors,
    "chain": chain,
    "two": lambda rows, generator: exchangeable(rows, generator, 2),
}


def _one(logits: Array, table: Array, column: int, seed: int) -> Mask:
    missing = np.zeros(table.shape, dtype=bool)
    missing[:, column] = with_rate(logits[:, None], seed)[:, 0]
    return missing


def by_one_column(table: Array, generator: Generator, seed: int) -> Mask:
    """One column is missing by another one."""
    column, driver = generator.permutation(table.shape[1])[:2]
    return _one(generator.choice([-1.5, 1.5]) * table[:, driver], table, int(column), seed)


def by_several(table: Array, generator: Generator, seed: int) -> Mask:
    """One column is missing by a random sum of the others."""
    others = table[:, 1:] @ generator.normal(size=table.shape[1] - 1)
    return _one(others / others.std(), table, 0, seed)


def driven(table: Array, generator: Generator, seed: int) -> Mask:
    """All columns are missing by one of them."""
    driver = generator.integers(table.shape[1])
    missing = with_rate(np.repeat(table[:, [driver]], table.shape[1], axis=1), seed)
    missing[:, driver] = False
    return missing


def own_of_one(table: Array, generator: Generator, seed: int) -> Mask:
    column = int(generator.integers(table.shape[1]))
    return _one(generator.choice([-1.5, 1.5]) * table[:, column], table, column, seed)


def own_beside_random(table: Array, generator: Generator, seed: int) -> Mask:
    missing, own = mcar(table.shape, RATE, seed), own_of_one(table, generator, seed)
    missing[:, own.any(0)] = own[:, own.any(0)]
    return missing


def opposite(table: Array, generator: Generator, seed: int) -> Mask:
    return with_rate(table * np.resize([1.0, -1.0], table.shape[1]), seed)


def threshold_of_one(table: Array, generator: Generator, seed: int) -> Mask:
    missing = np.zeros(table.shape, dtype=bool)
    above = table[:, 0] > np.median(table[:, 0])
    missing[:, 0] = above & (generator.random(len(table)) < 2.0 * RATE)
    return missing


MECHANISMS: dict[str, Callable[[Array, Generator, int], Mask]] = {
    "mcar": lambda table, generator, seed: mcar(table.shape, RATE, seed),
    "mar": lambda table, generator, seed: mar(table, RATE, seed),
    "by_one_column": by_one_column,
    "by_several": by_several,
    "driven": driven,
    "own_of_one": own_of_one,
    "own_beside_random": own_beside_random,
    "threshold_of_one": threshold_of_one,
    "opposite": opposite,
    "own": lambda table, generator, seed: mnar_self(table, RATE, seed),
}


def measure(table: str, mechanism: str, rows: int, seed: int) -> dict[str, Any]:
    """Whether slopes are found, and squared errors relative to those of filling without."""
    places = list(TABLES).index(table), list(MECHANISMS).index(mechanism)
    generator = np.random.default_rng([seed, rows, *places])
    truth = TABLES[table](rows, generator)
    missing = MECHANISMS[mechanism](truth, generator, seed)
    masked = np.where(missing, np.nan, truth)
    ratio = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = VFGImputer(bend=False, random_state=0).fit(masked)
        found = imputer.model_.slopes is not None
        if found:
            plain = VFGImputer(bend=False, missingness="ignorable", random_state=0).fit(masked)
            errors = [
                np.square((one.transform(masked) - truth)[missing]).mean()
                for one in (imputer, plain)
            ]
            ratio = float(errors[0] / errors[1])
    setting = {"table": table, "mechanism": mechanism, "rows": rows, "seed": seed}
    return {**setting, "found": found, "ratio": round(ratio, 4)}


def main() -> None:
    options = arguments(
        __doc__,
        tables={"nargs": "+", "choices": list(TABLES), "default": list(TABLES)},
        mechanisms={"nargs": "+", "choices": list(MECHANISMS), "default": list(MECHANISMS)},
        rows={"nargs": "+", "type": int, "default": [100, 400, 2000]},
    )
    cells = []
    for mechanism in options.mechanisms:
        for rows in options.rows:
            own = [
                measure(table, mechanism, rows, seed)
                for table in options.tables
                for seed in options.chosen(full=4, quick=1)
            ]
            cells += own
            ratio = np.exp(np.mean([np.log(cell["ratio"]) for cell in own]))
            print(mechanism, rows, f"{sum(c['found'] for c in own)} of {len(own)}", f"{ratio:.3f}")
    options.write("mechanisms", {"cells": cells})


if __name__ == "__main__":
    main()
