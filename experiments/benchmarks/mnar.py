"""Cells that are missing because of their own value, with right and wrong mechanisms.

    python -m experiments.benchmarks.mnar --tables concrete airfoil --seeds 2

Tables are z-scored; errors are mean squared errors of missing cells. `logistic` is the mechanism
of the model: the log-odds grow by 1 per deviation, 30 % missing. Of the others, `other_tail` hides
small values, `per_column` has slopes drawn from a standard Normal, `threshold` hides 60 % of the
cells above the median, `one_column` hides cells of the first column alone, `opposite` has slopes
of 1 and -1, `left_out` follows a column that the imputer does not see, `half` is the protocol of
not-MIWAE (every value above the mean of the first half of the columns); `mcar` and `mar` hide
nothing by value.

    python -m experiments.benchmarks.mnar --effort linear --protocol

measures that protocol on the six tables of its paper.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from vfg.data import mar, mcar, mnar_self
from vfg.imputation.baselines import BASELINES
from vfg.sklearn import VFGImputer
from vfg.tables.cells import Array, Mask

from ..results import arguments
from .imputation.cells import load

RATE = 0.3


def with_rate(logits: Array, seed: int) -> Mask:
    """Cells missing with these log-odds, moved so that the share of every column is the rate."""

    def excess(shift: float, column: Array) -> float:
        return float(expit(column + shift).mean() - RATE)

    shifts = [brentq(excess, -90.0, 90.0, args=(column,)) for column in logits.T]
    return np.random.default_rng(seed).random(logits.shape) < expit(logits + np.array(shifts))


def per_column(table: Array, seed: int) -> Mask:
    return with_rate(table * np.random.default_rng([seed, 1]).normal(size=table.shape[1]), seed)


def threshold(table: Array, seed: int) -> Mask:
    chance = np.random.default_rng(seed).random(table.shape)
    return (table > np.median(table, axis=0)) & (chance < 2.0 * RATE)


def one_column(table: Array, seed: int) -> Mask:
    missing = mnar_self(table, RATE, seed)
    missing[:, 1:] = False
    return missing


def opposite(table: Array, seed: int) -> Mask:
    return with_rate(table * np.resize([1.0, -1.0], table.shape[1]), seed)


def left_out(table: Array, seed: int) -> Mask:
    """By the last column, which is then missing everywhere."""
    missing = with_rate(np.repeat(table[:, -1:], table.shape[1], axis=1), seed)
    missing[:, -1] = True
    return missing


def half(table: Array, seed: int) -> Mask:
    missing = table > table.mean(0)
    missing[:, table.shape[1] // 2 :] = False
    return missing


MECHANISMS: dict[str, Callable[[Array, int], Mask]] = {
    "logistic": lambda table, seed: mnar_self(table, RATE, seed),
    "other_tail": lambda table, seed: mnar_self(-table, RATE, seed),
    "per_column": per_column,
    "threshold": threshold,
    "one_column": one_column,
    "opposite": opposite,
    "left_out": left_out,
    "half": half,
    "mcar": lambda table, seed: mcar(table.shape, RATE, seed),
    "mar": lambda table, seed: mar(table, RATE, seed),
}
METHODS = ("ignorable", "auto", "self")
PROTOCOL = ("banknote", "concrete", "wine_red", "wine_white", "yeast", "breast_wdbc")
"""The tables of the paper of not-MIWAE."""


def measure(table: str, mechanism: str, seed: int, method: str, effort: str) -> dict[str, Any]:
    truth = load(table)
    missing = MECHANISMS[mechanism](truth, seed)
    shown = ~missing.all(0)
    truth, missing = truth[:, shown], missing[:, shown]
    masked = np.where(missing, np.nan, truth)
    described = {"table": table, "mechanism": mechanism, "seed": seed, "method": method}
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method not in METHODS:
            filled = BASELINES[method](masked, seed, 1).fit_transform(masked)
            errors = (filled - truth)[missing]
            return {**described, "mse": float(np.square(errors).mean())}
        chosen: dict[str, Any] = {"bend": False} if effort == "linear" else {"effort": effort}
        imputer = VFGImputer(missingness=method, random_state=seed, **chosen).fit(masked)
        filled = imputer.transform(masked)
    seconds = time.process_time() - begun
    low, high = imputer.predict_interval(masked, 0.9)
    inside = ((low <= truth) & (truth <= high))[missing]
    slopes = imputer.model_.slopes
    return {
        **described,
        "effort": effort,
        "mse": float(np.square((filled - truth)[missing]).mean()),
        "coverage": float(inside.mean()),
        "slope": None if slopes is None else float(slopes[slopes != 0.0].median()),
        **imputer.model_.mechanism,
        "processor_seconds": round(seconds, 2),
    }


def main() -> None:
    options = arguments(
        __doc__,
        tables={"nargs": "+", "default": ["concrete", "airfoil", "glass", "banknote", "energy"]},
        mechanisms={"nargs": "+", "choices": list(MECHANISMS), "default": list(MECHANISMS)},
        methods={"nargs": "+", "default": ["ignorable", "auto", "ridge"]},
        effort={"default": "fast", "help": "linear, fast, balanced or best"},
        protocol={"action": "store_true", "help": "the protocol of not-MIWAE alone"},
    )
    if options.protocol:
        options.tables, options.mechanisms = list(PROTOCOL), ["half"]
        options.methods = ["mean", "ignorable", "auto", "self"]
    cells = [
        measure(table, mechanism, seed, method, options.effort)
        for table in options.tables
        for mechanism in options.mechanisms
        for seed in options.chosen(full=1, quick=1)
        for method in options.methods
    ]
    name = "not_miwae" if options.protocol else "mnar"
    options.write(f"{name}_{options.effort}", {"cells": cells})
    for mechanism in options.mechanisms:
        for method in options.methods:
            own = [c for c in cells if (c["mechanism"], c["method"]) == (mechanism, method)]
            errors = [cell["mse"] for cell in own]
            held = np.mean([cell.get("coverage", np.nan) for cell in own])
            print(mechanism, method, f"{np.exp(np.mean(np.log(errors))):.3f}", f"{held:.3f}")


if __name__ == "__main__":
    main()
