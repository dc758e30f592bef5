"""Intervals by what is known: made tables whose last column has a known law given the others.

Fitted to 500 rows with a fifth of the cells missing. In 500 others the last column is missing,
given all others or nothing. Errors, widths and scores stand beside those of the true law.

    python -m experiments.benchmarks.imputation.intervals            about a minute
    python -m experiments.benchmarks.imputation.intervals --quick    `effort="fast"`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from vfg.imputation.plan import EFFORTS
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array

from ...results import Arguments, arguments
from .methods import LEVEL
from .metrics import coverage, crps, intervals

Record = dict[str, Any]
LAWS: dict[str, Callable[[Array, Array], Array]] = {
    "parabola": lambda x, noise: np.square(x[0]) + 0.1 * noise,
    "wave": lambda x, noise: np.sin(2.0 * x[0]) + 0.05 * noise,
    "line": lambda x, noise: x[0] + 0.5 * x[1] + 0.5 * noise,
    "growing noise": lambda x, noise: x[1] + np.exp(x[0] - 1.0) * noise,
    "two branches": lambda x, noise: 2.0 * x[0] * np.sign(noise) + 0.2 * x[1],
    "skewed": lambda x, noise: np.exp(x[0] + 0.5 * noise),
    "independent": lambda x, noise: noise,
}
"""The last column given the others and a standard Normal number."""
ROWS, MISSING, DRAWS = 500, 0.2, 200


def make(name: str, random: np.random.Generator) -> Array:
    """A table of two independent Normal columns and one that depends on them."""
    x = random.standard_normal((2, 2 * ROWS))
    return np.column_stack([*x, LAWS[name](x, random.standard_normal(2 * ROWS))])


def measure(name: str, seed: int, effort: str) -> Iterator[Record]:
    """Coverage, widths and scores by what is known."""
    random = np.random.default_rng([seed, list(LAWS).index(name)])
    table = make(name, random)
    fitted, others = table[:ROWS], table[ROWS:]
    hidden = random.random(fitted.shape) < MISSING
    hidden[hidden.all(1)] = False
    imputer = VFGImputer(effort=effort, random_state=seed).fit(np.where(hidden, np.nan, fitted))
    scale = float(fitted[:, 2].std())
    for given in ("all", "nothing"):
        rows, missing = np.full_like(others, np.nan), np.zeros(others.shape, dtype=bool)
        missing[:, 2] = True
        if given == "all":
            rows[:, :2] = others[:, :2]
        noise = random.standard_normal((DRAWS, ROWS))
        causes = others[:, :2].T if given == "all" else random.standard_normal((2, DRAWS, ROWS))
        true = np.repeat(others[None], DRAWS, axis=0)
        true[..., 2] = LAWS[name](causes, noise)
        low, high = map(np.asarray, imputer.predict_interval(rows, LEVEL))
        drawn = np.asarray(imputer.sample(rows, 40, proper=False))
        filled = np.asarray(imputer.transform(rows))[:, 2]
        held = coverage(low, high, others, missing)
        ends = intervals(true[..., 2], LEVEL)
        yield {
            "table": name,
            "given": given,
            "seed": seed,
            "method": f"vfg-{effort}",
            "rmse": float(np.sqrt(np.square(filled - others[:, 2]).mean())) / scale,
            "true_rmse": float(true[..., 2].std(axis=0).mean()) / scale,
            "coverage": held["coverage"],
            "coverage_by_width": held["coverage_by_width"],
            "width": float(np.mean(high - low, where=missing)) / scale,
            "true_width": float((ends[1] - ends[0]).mean()) / scale,
            "crps": crps(drawn, others, missing) / scale,
            "true_crps": crps(true, others, missing) / scale,
        }


def main() -> None:
    given: Arguments = arguments(
        __doc__,
        tables={"nargs": "+", "choices": list(LAWS), "default": list(LAWS)},
        efforts={"nargs": "+", "choices": list(EFFORTS), "default": ["fast", "balanced"]},
    )
    torch.set_num_threads(1)
    efforts = ["fast"] if given.quick else given.efforts
    found: list[Record] = []
    for seed in given.chosen(full=3, quick=1):
        for table in given.tables:
            for effort in efforts:
                for record in measure(table, seed, effort):
                    found.append(record)
                    print(record, flush=True)
                    given.write("intervals", {"records": found})


if __name__ == "__main__":
    main()
