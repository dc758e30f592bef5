"""The imputers that are compared, behind one signature, and which of them is run on which table."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vfg.imputation.baselines import BASELINES, AveragedImputers, chained_ridge
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array

from ...baselines import miwae
from ...baselines.external import EXTERNAL, run_external
from .metrics import intervals

DRAWS = 20
LEVEL = 0.9


@dataclass(frozen=True)
class Task:
    """What a method is given: rows to fit on, rows to fill (None: the same), seed and threads."""

    shown: Array
    unseen: Array | None
    seed: int
    threads: int

    @property
    def target(self) -> Array:
        return self.shown if self.unseen is None else self.unseen


@dataclass(frozen=True)
class Filled:
    """What a method gives back for the rows to fill, and its times in seconds."""

    point: Array
    fit_seconds: float
    transform_seconds: float | None = None
    draws: Array | None = None
    low: Array | None = None
    high: Array | None = None
    draw_seconds: float | None = None
    peak_mb: float | None = None
    median: Array | None = None
    """A second point imputation, made for absolute errors."""


Method = Callable[[Task], Filled]
Make = Callable[[Task], Any]
"""A task to an imputer with scikit-learn's interface."""


def timed(action: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    # Time of the processor, so that other processes do not count.
    begun = time.process_time()
    with warnings.catch_warnings():
        # Iterative imputers stopped after their rounds say so; the rounds are part of the method.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = action(*arguments)
    return found, time.process_time() - begun


def fill(imputer: Any, task: Task) -> Filled:
    """The point imputation of anything with scikit-learn's interface."""
    if task.unseen is None:
        point, seconds = timed(imputer.fit_transform, task.shown)
        return Filled(point, seconds)
    _, fit_seconds = timed(imputer.fit, task.shown)
    point, transform_seconds = timed(imputer.transform, task.unseen)
    return Filled(point, fit_seconds, transform_seconds)


def with_draws(found: Filled, draws: Array, seconds: float | None = None) -> Filled:
    """The same with draws, and their medians and intervals."""
    low, high = intervals(draws, LEVEL)
    spread = {"low": low, "high": high, "median": np.median(draws, axis=0)}
    return replace(found, draws=draws, draw_seconds=seconds, **spread)


def ridge(task: Task) -> Filled:
    """The point, and draws from a second fit with posterior sampling."""

    def draw() -> Array:
        sampler = chained_ridge(task.shown, task.seed, sample_posterior=True).fit(task.shown)
        # Every transform draws anew along the fitted chain.
        return np.stack([sampler.transform(task.target) for _ in range(DRAWS)])

    return with_draws(fill(chained_ridge(task.shown, task.seed), task), *timed(draw))


def baseline(name: str) -> Make:
    """A baseline by name."""
    return lambda task: BASELINES[name](task.shown, task.seed, task.threads)


def average(*names: str) -> Make:
    """The mean of what several baselines fill in."""
    return lambda task: AveragedImputers([baseline(name)(task) for name in names])


CLASSICAL = ("knn", "ridge", "extratrees", "missforest", "boosting", "linear", "softimpute")
IMPUTERS: dict[str, Make] = {
    **{name: baseline(name) for name in BASELINES if name != "ridge"},
    "classical": average(*CLASSICAL),
}
"""Baselines that answer with a point alone."""
EFFORTS = ("fast", "balanced", "best")


def ours(variant: str) -> Method:
    """This library's imputer with an effort, or by default with so many seconds to fit."""
    chosen = {"effort": variant} if variant in EFFORTS else {"budget": float(variant)}

    def method(task: Task) -> Filled:
        imputer = VFGImputer(random_state=task.seed, **chosen)
        found = fill(imputer, task)
        draws, seconds = timed(imputer.sample, task.target, DRAWS)
        low, high = map(np.asarray, imputer.predict_interval(task.target, LEVEL))
        median = np.asarray(imputer.set_params(estimate="median").transform(task.target))
        spread = {"low": low, "high": high, "median": median}
        return replace(found, draws=np.asarray(draws), draw_seconds=seconds, **spread)

    return method


def outside(name: str) -> Method:
    """A method that runs in the baselines' own environment."""

    def method(task: Task) -> Filled:
        answer = run_external(name, task.shown, task.unseen, task.seed, task.threads)
        found = Filled(
            answer["point"],
            float(answer["fit_seconds"]),
            None if task.unseen is None else float(answer["transform_seconds"]),
            peak_mb=float(answer["peak_mb"]),
        )
        return with_draws(found, answer["draws"]) if "draws" in answer else found

    return method


def fill_with_miwae(task: Task) -> Filled:
    """A single model of MIWAE; unseen rows are filled along with the fit's time."""
    (point,), seconds = timed(miwae.impute, [task.shown], [task.target], [task.seed])
    return Filled(point, seconds)


METHODS: dict[str, Method] = {
    "vfg": ours("balanced"),
    "ridge": ridge,
    "miwae": fill_with_miwae,
    **{name: lambda task, make=make: fill(make(task), task) for name, make in IMPUTERS.items()},
    **{name: outside(name) for name in EXTERNAL},
}

LIMITS = {
    "extratrees": 20_000_000,
    "missforest": 800_000,
    "classical": 800_000,
    "miceforest": 200_000,
    "miceforest40": 100_000,
    "hyperimpute": 200_000,
    "utrees": 200_000,
    "forestdiffusion": 20_000,
    "miwae": 800_000,
}
"""A method is run where rows x columns x columns is at most this: a forest is grown per column, and
its cost is about rows x columns."""


def is_ours(name: str) -> bool:
    """Whether a method is this library's, with whatever effort or budget."""
    return name == "vfg" or name.startswith("vfg-")


def method_named(name: str) -> Method:
    """A method of `METHODS`, or `vfg-EFFORT` or `vfg-SECONDS` for this library's imputer."""
    return ours(name.removeprefix("vfg-")) if name.startswith("vfg-") else METHODS[name]


def allowed(name: str, rows: int, columns: int) -> bool:
    """Whether the rule of `LIMITS` lets a method run on a table of this size."""
    return rows * columns**2 <= LIMITS.get(name, np.inf)


def missing_requirement(name: str) -> str | None:
    """Why a method cannot run here, None if it can."""
    if name not in METHODS and not is_ours(name):
        return f"not among {', '.join(METHODS)}"
    if name in EXTERNAL and "VFG_BASELINES_PYTHON" not in os.environ:
        return "VFG_BASELINES_PYTHON does not name the interpreter of the baselines' environment"
    return None
