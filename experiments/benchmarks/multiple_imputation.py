"""Coverage of pooled intervals of regression coefficients.

    python -m experiments.benchmarks.multiple_imputation --preset fast --jobs 16
    python -m experiments.benchmarks.multiple_imputation --preset default --jobs 16
    python -m experiments.benchmarks.multiple_imputation --preset baselines --jobs 2
    python -m experiments.benchmarks.multiple_imputation --collect

Five columns, the last a regression on the others, with Normal errors or, for logistic regression,
of two categories, or with a square of the first column (`curves`); 40 % of the cells missing
completely at random, or at random given the first column; or cells of the first column alone, at
random given the last (`target`). 20 imputations are analysed and pooled by
`vfg.pool`: least squares, regression of the upper quartile, logistic regression. `linear` is
`VFGImputer(bend=False)`, `default` has no options,
`ridge` draws from chained Bayesian regressions, `miceforest` is run by the interpreter that
VFG_BASELINES_PYTHON names, and `mice` is the package of R with its defaults.

A repetition is a line of a file under outputs/multiple_imputation. What lies there is not measured
again; files of several machines may lie there. `--minutes` ends a run in time, `--first` and
`--seeds` divide repetitions among runs. `--collect` writes
docs/results/multiple_imputation.json, keeps its settings of which no repetition lies there, and
adds repetitions to those that it has of smaller seeds.
Repetitions of all settings go on side by side, so that a run that was stopped has about equally
many of each.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from scipy import special
from scipy.stats import norm
from scipy.stats import t as student

import vfg
from vfg.imputation.baselines import chained_ridge
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array

from ..baselines.external import run_external
from ..cells import Cell, Cells
from ..results import FOLDER, TRIALS, arguments

MEASURED = TRIALS / "multiple_imputation"
TRUTH = np.array([0.0, 1.0, 0.5, -0.5, 0.0])
IMPUTATIONS = 20
QUANTILE = 0.75
CURVATURE = 0.7
"""The coefficient of the square of the first column, of tables with curves."""
NAMES = ["a", "b", "c", "d", "y"]
Estimate = tuple[Array, Array]


def simulate(
    rows: int, mechanism: str, seed: int, *, binary: bool, curvature: float = 0.0
) -> tuple[Array, Array]:
    """A complete table, and the same with missing cells."""
    generator = np.random.default_rng(seed)
    inputs = generator.multivariate_normal(np.zeros(4), 0.5 + 0.5 * np.eye(4), rows)
    mean = inputs @ TRUTH[1:] + curvature * inputs[:, 0] ** 2
    if binary:
        target = (generator.random(rows) < special.expit(mean)).astype(float)
    else:
        target = mean + generator.normal(size=rows)
    table = np.column_stack([inputs, target])
    if mechanism == "mcar":
        missing = generator.random(table.shape) < 0.4
    elif mechanism == "target":
        level = 2.0 * (target - target.mean()) / target.std() - 0.3
        missing = generator.random(table.shape) < special.expit(level)[:, None]
        missing[:, 1:] = False
    else:
        missing = generator.random(table.shape) < special.expit(inputs[:, :1] - 0.4)
        missing[:, 0] = False
    return table, np.where(missing, np.nan, table)


def _design(table: Array) -> Array:
    return np.column_stack([np.ones(len(table)), table[:, :-1]])


def least_squares(table: Array) -> Estimate:
    """Coefficients of the last column on the others, and their covariance."""
    return _least_squares(_design(table), table)


def parabola(table: Array) -> Estimate:
    """The same with the square of the first column."""
    return _least_squares(np.column_stack([_design(table), table[:, 0] ** 2]), table)


def _least_squares(design: Array, table: Array) -> Estimate:
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
        chance = special.expit(design @ weights)
        information = (design.T * (chance * (1.0 - chance))) @ design
        weights = weights + np.linalg.solve(information, design.T @ (table[:, -1] - chance))
    return weights, np.linalg.inv(information)


ANALYSES: dict[str, Callable[[Array], Estimate]] = {
    "linear": least_squares,
    "quantile": quantile_regression,
    "logistic": logistic_regression,
    "parabola": parabola,
}


def truth_of(analysis: str) -> Array:
    """The coefficients that an analysis estimates."""
    if analysis == "parabola":
        return np.append(TRUTH, CURVATURE)
    start = norm.ppf(QUANTILE) if analysis == "quantile" else 0.0
    return np.asarray(TRUTH + start * (np.arange(len(TRUTH)) == 0))


class Preset(NamedTuple):
    """Methods, sizes of tables and the number of repetitions."""

    methods: tuple[str, ...]
    rows: tuple[int, ...]
    repetitions: int


PRESETS = {
    "fast": Preset(("linear",), (100, 300, 1000), 1000),
    "default": Preset(("default",), (300,), 200),
    "baselines": Preset(("ridge", "mice", "miceforest"), (100, 300, 1000), 100),
}
MECHANISMS = ("mcar", "mar", "target")
TARGETS = {"numbers": ("linear", "quantile"), "categories": ("logistic",), "curves": ("parabola",)}
"""Kinds of the last column, and the analyses of tables with them."""
MEANS = ("coverage", "mean_coverage", "complete_coverage", "estimate", "complete",
         "processor_seconds")  # fmt: skip
"""Numbers of a setting that are means over its repetitions."""
BLOCK = 10
"""Repetitions that a process measures before it writes them: R starts once for these."""
OPTIONS: dict[str, dict[str, Any]] = {
    "linear": {"bend": False},
    "linear-improper": {"bend": False},
    "fast": {"effort": "fast"},
    "default": {},
}
"""Methods of ours, and the options of `VFGImputer`."""


class Setting(NamedTuple):
    """Tables of one kind, and a method."""

    method: str
    rows: int
    mechanism: str
    target: str

    @property
    def binary(self) -> bool:
        return self.target == "categories"

    def key(self, seed: int) -> Cell:
        """The key of a repetition."""
        return {**self._asdict(), "seed": seed}

    def simulate(self, seed: int) -> tuple[Array, Array]:
        """A complete table, and the same with missing cells."""
        curvature = CURVATURE if self.target == "curves" else 0.0
        return simulate(self.rows, self.mechanism, seed, binary=self.binary, curvature=curvature)


def impute_with_ridge(table: Array, seed: int, *, binary: bool) -> Array:
    """Several tables filled by chained Bayesian regressions, with classes cut at one half."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = chained_ridge(table, seed, sample_posterior=True).fit(table)
        tables = np.stack([sampler.transform(table) for _ in range(IMPUTATIONS)])
    if binary:
        tables[..., -1] = tables[..., -1] > 0.5
    return tables


def impute_with_vfg(method: str, table: Array, seed: int, *, binary: bool) -> Array:
    """Several tables filled by this package."""
    given: Any = table
    if binary:
        given = pd.DataFrame(table, columns=NAMES)
        given["y"] = given["y"].map({0.0: "no", 1.0: "yes"})
    imputer = VFGImputer(random_state=seed, **OPTIONS[method]).fit(given)
    proper = not method.endswith("improper")
    drawn = imputer.sample(given, IMPUTATIONS, proper=proper, random_state=seed)
    if binary:
        drawn = [one.assign(y=(one["y"] == "yes").astype(float)).to_numpy(float) for one in drawn]
    return np.stack(drawn)


def impute(method: str, table: Array, seed: int, *, binary: bool) -> tuple[Array, float]:
    """Several filled tables, and the seconds of the processor."""
    begun = time.process_time()
    if method == "ridge":
        tables = impute_with_ridge(table, seed, binary=binary)
    elif method == "miceforest":
        found = run_external("miceforest20", table, None, seed, 1)
        return found["draws"], float(found["fit_seconds"])
    else:
        tables = impute_with_vfg(method, table, seed, binary=binary)
    return tables, time.process_time() - begun


R_SCRIPT = """
suppressMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
tables <- read.csv(arguments[1])
results <- NULL
for (seed in unique(tables$seed)) {
  one <- tables[tables$seed == seed, c("a", "b", "c", "d", "y")]
  if (arguments[3] == "TRUE") one$y <- factor(one$y)
  drawn <- mice(one, m = as.integer(arguments[4]), printFlag = FALSE, seed = seed + 1)
  filled <- complete(drawn, "long")
  if (arguments[3] == "TRUE") filled$y <- as.numeric(as.character(filled$y))
  results <- rbind(results, cbind(filled[, c("a", "b", "c", "d", "y")], seed = seed))
}
write.csv(results, arguments[2], row.names = FALSE)
"""


def impute_with_mice(tables: dict[int, Array], *, binary: bool) -> tuple[dict[int, Array], float]:
    """Several filled tables by seed, and the seconds of the processor for one of them."""
    frames = [pd.DataFrame(one, columns=NAMES).assign(seed=k) for k, one in tables.items()]
    with tempfile.TemporaryDirectory() as folder:
        source, target, script = (Path(folder) / one for one in ("in.csv", "out.csv", "run.R"))
        pd.concat(frames).to_csv(source, index=False)
        script.write_text(R_SCRIPT)
        begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        options = [str(source), str(target), str(binary).upper(), str(IMPUTATIONS)]
        subprocess.run(["Rscript", "--vanilla", script, *options], check=True)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun
        found = pd.read_csv(target)
    filled = {}
    for seed, one in tables.items():
        own = found.loc[found["seed"] == seed, NAMES].to_numpy(dtype=float)
        filled[seed] = own.reshape(IMPUTATIONS, *one.shape)
    return filled, seconds / len(tables)


def find_mice() -> str | None:
    """Why mice cannot be measured; None if it can."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    said = subprocess.run(["Rscript", "-e", "library(mice)"], capture_output=True, check=False)
    return "the package mice of R is not installed" if said.returncode else None


def analyse(setting: Setting, whole: Array, tables: Array) -> dict[str, Any]:
    """By analysis: pooled estimate and interval, and those of the complete table."""
    found = {}
    for name in TARGETS[setting.target]:
        estimate, freedom = ANALYSES[name], setting.rows - len(truth_of(name))
        pooled = vfg.pool([estimate(one) for one in tables], complete_df=freedom)
        value, covariance = estimate(whole)
        half = student.ppf(0.975, freedom) * np.sqrt(np.diag(covariance))
        found[name] = {
            "estimate": _plain(pooled.estimate),
            "interval": [_plain(end) for end in pooled.interval(0.95)],
            "complete": _plain(value),
            "complete_interval": [_plain(value - half), _plain(value + half)],
        }
    return found


def _plain(numbers: Array) -> list[float]:
    return [float(f"{x:.5g}") for x in numbers]


def measure(setting: Setting, seeds: list[int], end: float) -> list[tuple[Cell, Cell]]:
    """The repetitions of a setting that begin before the end, by key."""
    torch.set_num_threads(1)
    pairs = {seed: setting.simulate(seed) for seed in seeds}
    found = []
    if setting.method == "mice":
        if time.time() > end:
            return []
        known = {seed: table for seed, (_, table) in pairs.items()}
        filled, seconds = impute_with_mice(known, binary=setting.binary)
        done = {seed: (tables, seconds) for seed, tables in filled.items()}
    for seed, (whole, table) in pairs.items():
        if setting.method == "mice":
            tables, seconds = done[seed]
        elif time.time() > end:
            break
        else:
            tables, seconds = impute(setting.method, table, seed, binary=setting.binary)
        result = {**analyse(setting, whole, tables), "seconds": round(seconds, 3)}
        found.append((setting.key(seed), result))
    return found


def run(settings: list[Setting], repetitions: range, cells: Cells, jobs: int, end: float) -> None:
    """Measure what is not known yet, several blocks at a time; write each when it is there."""
    waiting = []
    for first in range(0, len(repetitions), BLOCK):
        for setting in settings:
            block = repetitions[first : first + BLOCK]
            seeds = [seed for seed in block if cells.get(setting.key(seed)) is None]
            waiting += [(setting, seeds, end)] if seeds else []
    calls = (joblib.delayed(measure)(*one) for one in waiting)
    blocks = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
    for number, block in enumerate(blocks, start=1):
        for key, result in block:
            cells.add(key, result)
        if block:
            print(f"{number}/{len(waiting)}", *block[0][0].values(), flush=True)


def _held(intervals: Array, truth: Array) -> Array:
    """The share of the repetitions that holds the truth, by coefficient."""
    held: Array = ((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean(0)
    return held


def summarise(setting: Setting, analysis: str, found: list[Cell]) -> dict[str, Any]:
    """Coverage and mean estimates of one analysis over the repetitions of a setting."""
    own = {
        name: np.array([one[analysis][name] for one in found])
        for name in ("estimate", "interval", "complete", "complete_interval")
    }
    truth = truth_of(analysis)
    coverage = _held(own["interval"], truth)
    return {
        "method": setting.method,
        "rows": setting.rows,
        "mechanism": setting.mechanism,
        "analysis": analysis,
        "repetitions": len(found),
        "seeds": [
            min(one["key"]["seed"] for one in found),
            max(one["key"]["seed"] for one in found),
        ],
        "coverage": coverage.round(3).tolist(),
        "mean_coverage": round(float(coverage.mean()), 4),
        "complete_coverage": round(float(_held(own["complete_interval"], truth).mean()), 4),
        "estimate": own["estimate"].mean(0).round(4).tolist(),
        "complete": own["complete"].mean(0).round(4).tolist(),
        "processor_seconds": round(float(np.mean([one["seconds"] for one in found])), 3),
    }


def collect(cells: Cells) -> list[dict[str, Any]]:
    """All settings that were measured: by analysis, size, mechanism and method."""
    by_setting = defaultdict(list)
    for cell in cells.known.values():
        by_setting[Setting(*(cell["key"][name] for name in Setting._fields))].append(cell)
    found = [
        summarise(setting, analysis, own)
        for setting, own in by_setting.items()
        for analysis in TARGETS[setting.target]
    ]
    return sorted(found, key=_order)


def _order(one: dict[str, Any]) -> tuple[int, ...]:
    methods = [method for preset in PRESETS.values() for method in preset.methods]
    methods += [name for name in OPTIONS if name not in methods]
    return (
        list(ANALYSES).index(one["analysis"]),
        one["rows"],
        MECHANISMS.index(one["mechanism"]),
        methods.index(one["method"]),
    )


def with_earlier(found: list[dict[str, Any]], file: Path) -> list[dict[str, Any]]:
    """Settings that were measured, and those of a file of results that were not, in order."""

    def name(one: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(one[key] for key in ("analysis", "rows", "mechanism", "method"))

    earlier = json.loads(file.read_text())["settings"] if file.exists() else []
    known = {name(one): one for one in earlier}
    known |= {name(one): combined(known.get(name(one)), one) for one in found}
    return sorted(known.values(), key=_order)


def combined(earlier: dict[str, Any] | None, later: dict[str, Any]) -> dict[str, Any]:
    """Means over the repetitions of both; the later alone, if seeds of the earlier are among its.

    Example:
        >>> one = {"repetitions": 300, "seeds": [0, 299], "mean_coverage": 0.94}
        >>> combined(one, {"repetitions": 100, "seeds": [300, 399], "mean_coverage": 0.98})
        {'repetitions': 400, 'seeds': [0, 399], 'mean_coverage': 0.95}
    """
    if earlier is None or "seeds" not in earlier or earlier["seeds"][1] >= later["seeds"][0]:
        return later
    counts = [earlier["repetitions"], later["repetitions"]]
    result = {
        **later,
        "repetitions": sum(counts),
        "seeds": [earlier["seeds"][0], later["seeds"][1]],
    }
    for key, value in later.items():
        if key not in MEANS:
            continue
        mean = np.average([earlier[key], value], axis=0, weights=counts)
        result[key] = np.round(mean, 4).tolist()
    return result


def main() -> None:
    options = arguments(
        __doc__,
        preset={"choices": list(PRESETS), "default": "fast"},
        methods={"nargs": "+", "help": "instead of those of the preset"},
        rows={"nargs": "+", "type": int, "help": "instead of those of the preset"},
        targets={"nargs": "+", "choices": list(TARGETS), "default": ["numbers", "categories"]},
        mechanisms={"nargs": "+", "choices": MECHANISMS, "default": list(MECHANISMS[:2])},
        first={"type": int, "default": 0, "help": "the first repetition"},
        jobs={"type": int, "default": os.cpu_count(), "help": "processes, a thread each"},
        minutes={"type": float, "default": float("inf"), "help": "when to end"},
        collect={"action": "store_true", "help": "measure nothing, write the results"},
    )
    preset, folder = PRESETS[options.preset], MEASURED
    if options.quick or options.output:
        folder = (options.output or TRIALS) / "multiple_imputation"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{platform.node()}-{int(time.time())}-{os.getpid()}.jsonl"
    cells = Cells(file, sorted(folder.glob("*.jsonl")))
    methods = options.methods or list(preset.methods)
    reason = find_mice() if "mice" in methods and not options.collect else None
    if not options.collect:
        methods = [name for name in methods if name != "mice" or reason is None]
        chosen = itertools.product(
            methods, options.rows or preset.rows, options.mechanisms, options.targets
        )
        settings = [Setting(*one) for one in chosen]
        number = len(options.chosen(full=preset.repetitions, quick=2))
        repetitions = range(options.first, options.first + number)
        run(settings, repetitions, cells, options.jobs, time.time() + 60.0 * options.minutes)
    settings_found = collect(cells)
    if options.collect and not options.quick and options.output is None:
        settings_found = with_earlier(settings_found, FOLDER / "multiple_imputation.json")
    found = {"truth": TRUTH.tolist(), "settings": settings_found, "without_mice": reason}
    if options.collect or options.quick:
        print(options.write("multiple_imputation", found))


if __name__ == "__main__":
    main()
