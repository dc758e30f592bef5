"""Whether pooled intervals of regression coefficients hold what they state.

    python -m experiments.benchmarks.multiple_imputation --seeds 200

Five columns, the last a regression on the others, with Normal errors or, for logistic regression,
of two categories; 40 % of the cells missing completely at random, or at random given the first
column. 20 imputations are analysed and pooled by `vfg.pool`: least squares, regression of the upper
quartile, logistic regression. The fast preset is `VFGImputer(bend=False)`; `ridge` draws from
chained Bayesian regressions, and `mice` is the package of R with its defaults, if `Rscript` finds
it. Methods are measured one after the other, each by the time limit of `--limit` for a setting.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import norm

import vfg
from vfg.imputation.baselines import chained_ridge
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array

from ..results import arguments

TRUTH = np.array([0.0, 1.0, 0.5, -0.5, 0.0])
IMPUTATIONS = 20
QUANTILE = 0.75
NAMES = ["a", "b", "c", "d", "y"]
Estimate = tuple[Array, Array]


def simulate(rows: int, mechanism: str, seed: int, *, binary: bool) -> tuple[Array, Array]:
    """A complete table, and the same with missing cells."""
    generator = np.random.default_rng(seed)
    inputs = generator.multivariate_normal(np.zeros(4), 0.5 + 0.5 * np.eye(4), rows)
    mean = inputs @ TRUTH[1:]
    if binary:
        target = (generator.random(rows) < expit(mean)).astype(float)
    else:
        target = mean + generator.normal(size=rows)
    table = np.column_stack([inputs, target])
    if mechanism == "mcar":
        missing = generator.random(table.shape) < 0.4
    else:
        missing = generator.random(table.shape) < expit(inputs[:, :1] - 0.4)
        missing[:, 0] = False
    return table, np.where(missing, np.nan, table)


def _design(table: Array) -> Array:
    return np.column_stack([np.ones(len(table)), table[:, :-1]])


def least_squares(table: Array) -> Estimate:
    """Coefficients of the last column on the others, and their covariance."""
    design = _design(table)
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse @ design.T @ table[:, -1]
    left = table[:, -1] - design @ weights
    return weights, inverse * (left @ left) / (len(table) - len(weights))


def quantile_regression(table: Array) -> Estimate:
    """The same of the upper quartile, by weighted least squares; densities at 0 by a kernel."""
    design, target = _design(table), table[:, -1]
    weights = least_squares(table)[0]
    weights[0] += np.quantile(target - design @ weights, QUANTILE)
    for _ in range(60):
        left = target - design @ weights
        own = np.where(left > 0.0, QUANTILE, 1.0 - QUANTILE) / np.maximum(np.abs(left), 1e-4)
        weights = np.linalg.solve((design.T * own) @ design, (design.T * own) @ target)
    left = target - design @ weights
    # Hall and Sheather's bandwidth.
    level = norm.ppf(QUANTILE)
    width = len(left) ** (-1 / 3) * norm.ppf(0.975) ** (2 / 3)
    width *= (1.5 * norm.pdf(level) ** 2 / (2.0 * level**2 + 1.0)) ** (1 / 3)
    reach = norm.ppf(min(0.999, QUANTILE + width)) - norm.ppf(QUANTILE - width)
    reach *= min(left.std(), np.subtract(*np.quantile(left, [0.75, 0.25])) / 1.34)
    inside = norm.pdf(left / (0.5 * reach)) / (0.5 * reach)
    inverse = np.linalg.inv((design.T * inside) @ design)
    return weights, QUANTILE * (1.0 - QUANTILE) * inverse @ design.T @ design @ inverse


def logistic_regression(table: Array) -> Estimate:
    """The same of a logistic regression, by Newton steps."""
    design, weights = _design(table), np.zeros(table.shape[1])
    for _ in range(25):
        chance = expit(design @ weights)
        information = (design.T * (chance * (1.0 - chance))) @ design
        weights = weights + np.linalg.solve(information, design.T @ (table[:, -1] - chance))
    return weights, np.linalg.inv(information)


ANALYSES: dict[str, Callable[[Array], Estimate]] = {
    "linear": least_squares,
    "quantile": quantile_regression,
    "logistic": logistic_regression,
}


def truth_of(analysis: str) -> Array:
    """The coefficients that an analysis estimates."""
    start = norm.ppf(QUANTILE) if analysis == "quantile" else 0.0
    return np.asarray(TRUTH + start * (np.arange(len(TRUTH)) == 0))


def impute(method: str, table: Array, seed: int, *, binary: bool) -> Array:
    """Several filled tables."""
    if method == "ridge":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = chained_ridge(table, seed, sample_posterior=True).fit(table)
            tables = np.stack([sampler.transform(table) for _ in range(IMPUTATIONS)])
        if binary:
            tables[..., -1] = tables[..., -1] > 0.5
        return tables
    options: dict[str, Any] = {"effort": "fast"} if method.startswith("fast") else {"bend": False}
    frame = pd.DataFrame(table, columns=NAMES)
    if binary:
        frame["y"] = frame["y"].map({0.0: "no", 1.0: "yes"})
    imputer = VFGImputer(random_state=seed, **options).fit(frame)
    proper = not method.endswith("improper")
    frames = imputer.sample(frame, IMPUTATIONS, proper=proper, random_state=seed)
    if binary:
        frames = [one.assign(y=(one["y"] == "yes").astype(float)) for one in frames]
    return np.stack([one.to_numpy(dtype=float) for one in frames])


class Tally:
    """What the repetitions of one setting found."""

    def __init__(self, analysis: str) -> None:
        self.truth = truth_of(analysis)
        self.held: list[Array] = []
        self.estimates: list[Array] = []
        self.complete: list[Array] = []

    def add(self, estimate: Array, low: Array, high: Array, complete: Array) -> None:
        self.held.append((low <= self.truth) & (high >= self.truth))
        self.estimates.append(estimate)
        self.complete.append(complete)

    def summary(self) -> dict[str, Any]:
        coverage = np.mean(self.held, axis=0)
        return {
            "repetitions": len(self.held),
            "coverage": coverage.round(3).tolist(),
            "mean_coverage": round(float(coverage.mean()), 4),
            "estimate": np.mean(self.estimates, axis=0).round(4).tolist(),
            "complete": np.mean(self.complete, axis=0).round(4).tolist(),
        }


def measure(
    method: str, rows: int, mechanism: str, seeds: list[int], *, binary: bool, limit: float
) -> list[dict[str, Any]]:
    """All analyses of the tables of one setting, until the processor time is spent."""
    names = ["logistic"] if binary else ["linear", "quantile"]
    tallies, seconds, done = {name: Tally(name) for name in names}, 0.0, 0
    for seed in seeds:
        whole, table = simulate(rows, mechanism, seed, binary=binary)
        begun = time.process_time()
        tables = impute(method, table, seed, binary=binary)
        seconds, done = seconds + time.process_time() - begun, done + 1
        for name, tally in tallies.items():
            analyse = ANALYSES[name]
            pooled = vfg.pool([analyse(one) for one in tables], complete_df=rows - 5)
            tally.add(pooled.estimate, *pooled.interval(0.95), analyse(whole)[0])
        if seconds > limit:
            break
    setting = {"method": method, "rows": rows, "mechanism": mechanism}
    return [
        {**setting, "analysis": name, **tally.summary(), "processor_seconds": seconds / done}
        for name, tally in tallies.items()
    ]


R_SCRIPT = """
suppressMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
tables <- read.csv(arguments[1])
binary <- arguments[3] == "TRUE"
results <- NULL
for (seed in unique(tables$seed)) {
  one <- tables[tables$seed == seed, c("a", "b", "c", "d", "y")]
  if (binary) one$y <- factor(one$y)
  drawn <- mice(one, m = as.integer(arguments[4]), printFlag = FALSE, seed = seed + 1)
  fits <- if (binary) with(drawn, glm(y ~ a + b + c + d, family = binomial()))
          else with(drawn, lm(y ~ a + b + c + d))
  pooled <- summary(pool(fits), conf.int = TRUE)
  results <- rbind(results, data.frame(seed = seed, estimate = pooled$estimate,
                                       low = pooled[, ncol(pooled) - 1],
                                       high = pooled[, ncol(pooled)]))
}
write.csv(results, arguments[2], row.names = FALSE)
"""


def measure_mice(
    rows: int, mechanism: str, seeds: list[int], *, binary: bool
) -> list[dict[str, Any]]:
    """The same by R's mice; nothing if it is not installed."""
    name = "logistic" if binary else "linear"
    tally, pairs = Tally(name), [simulate(rows, mechanism, k, binary=binary) for k in seeds]
    frames = [
        pd.DataFrame(table, columns=NAMES).assign(seed=seed)
        for seed, (_, table) in zip(seeds, pairs, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, target, script = (Path(folder) / one for one in ("in.csv", "out.csv", "run.R"))
        pd.concat(frames).to_csv(source, index=False)
        script.write_text(R_SCRIPT)
        begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        options = [str(source), str(target), str(binary).upper(), str(IMPUTATIONS)]
        subprocess.run(["Rscript", "--vanilla", script, *options], check=True)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun
        found = pd.read_csv(target)
    for seed, (whole, _) in zip(seeds, pairs, strict=True):
        own = found[found["seed"] == seed]
        ends = own["low"].to_numpy(), own["high"].to_numpy()
        tally.add(own["estimate"].to_numpy(), *ends, ANALYSES[name](whole)[0])
    setting = {"method": "mice", "rows": rows, "mechanism": mechanism, "analysis": name}
    return [{**setting, **tally.summary(), "processor_seconds": seconds / len(seeds)}]


def find_mice() -> str | None:
    """Why mice cannot be measured; None if it can."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    said = subprocess.run(["Rscript", "-e", "library(mice)"], capture_output=True, check=False)
    return "the package mice of R is not installed" if said.returncode else None


def main() -> None:
    options = arguments(
        __doc__,
        methods={"nargs": "+", "default": ["linear", "linear-improper", "ridge", "mice"]},
        rows={"nargs": "+", "type": int, "default": [100, 300]},
        limit={"type": float, "default": 600.0, "help": "processor seconds per setting"},
        targets={"nargs": "+", "default": ["numbers", "categories"]},
        fewer={"type": int, "help": "repetitions of all methods but the first"},
    )
    seeds = options.chosen(full=200, quick=2)
    results: list[dict[str, Any]] = []
    reason = find_mice() if "mice" in options.methods else None
    for place, method in enumerate(options.methods):
        own = seeds[: options.fewer] if place and options.fewer else seeds
        for binary in [kind == "categories" for kind in options.targets]:
            for rows in options.rows:
                for mechanism in ("mcar", "mar"):
                    if method == "mice" and reason is None:
                        results += measure_mice(rows, mechanism, own, binary=binary)
                    elif method != "mice":
                        results += measure(
                            method, rows, mechanism, own, binary=binary, limit=options.limit
                        )
                    print(*results[-2:], sep="\n", flush=True)
                    found = {"truth": TRUTH.tolist(), "settings": results}
                    options.write("multiple_imputation", found | {"without_mice": reason})


if __name__ == "__main__":
    main()
