"""Whether pooled intervals of regression coefficients hold what they state.

    python -m experiments.benchmarks.multiple_imputation --seeds 200

Five columns, the last a regression on the others; 40 % of the cells missing completely at random,
or at random given the first column. 20 imputations are analysed and pooled by `vfg.pool`. The fast
preset is `VFGImputer(bend=False)`; `ridge` draws from chained Bayesian regressions.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy.special import expit

import vfg
from vfg.imputation.baselines import chained_ridge
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array

from ..results import arguments

TRUTH = np.array([0.0, 1.0, 0.5, -0.5, 0.0])
IMPUTATIONS = 20


def simulate(rows: int, mechanism: str, seed: int) -> tuple[Array, Array]:
    """A complete table, and the same with missing cells."""
    generator = np.random.default_rng(seed)
    inputs = generator.multivariate_normal(np.zeros(4), 0.5 + 0.5 * np.eye(4), rows)
    target = inputs @ TRUTH[1:] + generator.normal(size=rows)
    table = np.column_stack([inputs, target])
    if mechanism == "mcar":
        missing = generator.random(table.shape) < 0.4
    else:
        missing = generator.random(table.shape) < expit(inputs[:, :1] - 0.4)
        missing[:, 0] = False
    return table, np.where(missing, np.nan, table)


def least_squares(table: Array) -> tuple[Array, Array]:
    """Coefficients of the last column on the others, and their covariance."""
    design = np.column_stack([np.ones(len(table)), table[:, :-1]])
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse @ design.T @ table[:, -1]
    left = table[:, -1] - design @ weights
    return weights, inverse * (left @ left) / (len(table) - len(weights))


def impute(method: str, table: Array, seed: int) -> Array:
    """Several filled tables."""
    if method == "ridge":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = chained_ridge(table, seed, sample_posterior=True).fit(table)
            return np.stack([sampler.transform(table) for _ in range(IMPUTATIONS)])
    options: dict[str, Any] = {"bend": False} if method.startswith("linear") else {}
    imputer = VFGImputer(random_state=seed, **options).fit(table)
    proper = not method.endswith("improper")
    return np.asarray(imputer.sample(table, IMPUTATIONS, proper=proper, random_state=seed))


def measure(method: str, rows: int, mechanism: str, seeds: list[int]) -> dict[str, Any]:
    held, estimates, complete, seconds = [], [], [], 0.0
    for seed in seeds:
        whole, table = simulate(rows, mechanism, seed)
        begun = time.process_time()
        tables = impute(method, table, seed)
        seconds += time.process_time() - begun
        pooled = vfg.pool([least_squares(one) for one in tables], complete_df=rows - 5)
        low, high = pooled.interval(0.95)
        held.append((low <= TRUTH) & (high >= TRUTH))
        estimates.append(pooled.estimate)
        complete.append(least_squares(whole)[0])
    coverage = np.mean(held, axis=0)
    return {
        "method": method,
        "rows": rows,
        "mechanism": mechanism,
        "repetitions": len(seeds),
        "coverage": coverage.round(3).tolist(),
        "mean_coverage": round(float(coverage.mean()), 4),
        "estimate": np.mean(estimates, axis=0).round(4).tolist(),
        "complete": np.mean(complete, axis=0).round(4).tolist(),
        "processor_seconds": round(seconds / len(seeds), 3),
    }


def main() -> None:
    options = arguments(
        __doc__,
        methods={"nargs": "+", "default": ["linear", "linear-improper", "ridge"]},
        rows={"nargs": "+", "type": int, "default": [100, 300]},
    )
    seeds = options.chosen(full=200, quick=2)
    results = []
    for rows in options.rows:
        for mechanism in ("mcar", "mar"):
            for method in options.methods:
                results.append(measure(method, rows, mechanism, seeds))
                print(results[-1], flush=True)
    options.write("multiple_imputation", {"truth": TRUTH.tolist(), "settings": results})


if __name__ == "__main__":
    main()
