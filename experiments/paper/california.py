"""California housing (7.1.2): the room counts of a block from everything else.

Of the last 640 rows AveRooms and AveBedrms are missing. The paper tests on 100 of them without
saying which; a few blocks with dozens of rooms decide their squared error. So there are 50 draws of
100, all 640, and all but the 6 furthest from the mean. The paper's model is a tree with two mean
nodes under a third; ours are `GaussianVFG` with splines, a deep model over single columns, and
`VFGImputer` with its defaults.

    python -m experiments.paper.california            a download, or the file of VFG_DATA=folder
    python -m experiments.paper.california --quick    1,600 simulated rows

`--only imputer` measures some of the groups of methods again; the others stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track

import vfg
from vfg.data import california
from vfg.plots.style import OBSERVED, legend, tidy
from vfg.sklearn import VFGImputer

from ..baselines.imputers import Array, imputers
from ..results import (
    FOLDER,
    QUIET,
    Arguments,
    arguments,
    box_plots,
    plain_ticks,
    subplots,
    versions,
)

TEST = 640
DRAWS, SIZE = 50, 100
MISSING = [2, 3]
SECTIONS = {"income, age": 2, "rooms, bedrooms": 2, "population, occupancy": 2, "place": 2}
COLUMNS = {f"x{k}": 1 for k in range(8)}


@dataclass(frozen=True)
class Recipe:
    """A model with coupling layers, and how it is trained."""

    graph: vfg.Graph
    aggregation: str
    masked: float
    """Share of the steps that use Algorithm 2."""
    beta: float


DEEP = {
    "VFG (the paper's tree)": Recipe(
        vfg.Graph.tree(SECTIONS, arity=2, width=2), "mean", masked=0.5, beta=0.1
    ),
    "VFG, columns lifted to width 16": Recipe(
        vfg.Graph.star(COLUMNS, width=16), "gaussian", masked=1.0, beta=0.001
    ),
}
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 3.0, 5.0, 10.0)


Answers = Iterator[tuple[str, Array]]
"""Names of methods, and what each puts into the missing cells of the test rows."""


def baselines(train: Array, gaps: Array, seed: int, quick: bool) -> Answers:
    """scikit-learn's imputers."""
    for name, fill in imputers(MISSING, seed, leaf=5).items():
        yield name, fill(train, gaps)[:, MISSING]


def deep(train: Array, gaps: Array, seed: int, quick: bool) -> Answers:
    """The models with coupling layers."""
    for name, recipe in DEEP.items():
        yield name, reconstructed(recipe, train, gaps, seed, 3 if quick else 20)


def imputer(train: Array, gaps: Array, seed: int, quick: bool) -> Answers:
    """`VFGImputer` with its defaults, and its medians."""
    fitted = VFGImputer(random_state=seed).fit(train)
    for estimate in ("mean", "median"):
        filled = np.asarray(fitted.set_params(estimate=estimate).transform(gaps))
        yield f"VFGImputer, {estimate}", filled[:, MISSING]


def reconstructed(recipe: Recipe, train: Array, gaps: Array, seed: int, epochs: int) -> Array:
    """The backward messages at the missing cells."""
    paper = vfg.paper_settings()
    model = vfg.VFG(recipe.graph, **paper.model | {"aggregation": recipe.aggregation}, seed=seed)
    vfg.fit(
        model,
        torch.tensor(train, dtype=torch.float32),
        paper.fit,
        masking=vfg.Masking(rate=recipe.masked),
        beta=recipe.beta,
        epochs=epochs,
        batch=500,
        seed=seed,
        progress=False,
    )
    where = next(model.parameters()).device
    filled = model.reconstruct(torch.tensor(gaps, dtype=torch.float32, device=where))
    return np.asarray(filled.cpu().double())[:, MISSING]


def exact(train: Array, gaps: Array, seed: int, quick: bool) -> Answers:
    """The conditional mean and median of the exact model with a monotone spline per column."""
    graph = vfg.Graph.star(COLUMNS, width=len(COLUMNS))
    model = vfg.GaussianVFG(graph, leaf="spline", seed=seed)
    model.fit(train, seed=seed)
    answer = model.infer(gaps)
    for what, found in (("mean", answer.mean), ("median", answer.quantile(0.5))):
        cells = [np.asarray(found[f"x{column}"]) for column in MISSING]
        yield f"GaussianVFG, {what}", np.concatenate(cells, axis=1)


GROUPS: dict[str, Callable[[Array, Array, int, bool], Answers]] = {
    "baselines": baselines,
    "deep": deep,
    "exact": exact,
    "imputer": imputer,
}


def is_far(truth: Array, train: Array) -> NDArray[np.bool_]:
    """Which test rows are the one in a hundred furthest from the mean of the training rows."""
    distance = np.square((truth - train.mean(0)) / train.std(0)).sum(1)
    return np.asarray(distance >= np.sort(distance)[-max(1, len(truth) // 100)])


def measured(filled: Array, truth: Array, spread: Array, far: NDArray[np.bool_]) -> dict[str, Any]:
    """Errors on all rows, on all but the far ones, and on draws that all methods share."""
    error = filled - truth
    cells = {
        "mse, raw": np.square(error),
        "mae, raw": np.abs(error),
        "mse, standardised": np.square(error / spread),
        "mae, standardised": np.abs(error / spread),
    }
    generator = np.random.default_rng(0)
    chosen = [generator.choice(len(truth), SIZE, replace=False) for _ in range(DRAWS)]
    return {
        name: {
            "all": float(values.mean()),
            "near": float(values[~far].mean()),
            "draws": [float(values[rows].mean()) for rows in chosen],
        }
        for name, values in cells.items()
    }


def simulated(rows: int, seed: int = 0) -> Array:
    """A stand-in for quick runs: eight columns that depend on each other, with long tails."""
    generator = np.random.default_rng(seed)
    causes = generator.standard_normal((rows, 3)) @ generator.standard_normal((3, 8))
    return np.exp(0.5 * causes + 0.1 * generator.standard_normal((rows, 8)))


def draw(found: dict[str, Any], given: Arguments) -> None:
    """The 50 draws as box plots, and all rows as a mark."""
    figure, axes = subplots(1, 2, figsize=(9.5, 3.8))
    titles = {"mse, raw": "mean squared error", "mae, raw": "mean absolute error"}
    for axis, (measure, title) in zip(axes, titles.items(), strict=True):
        values = {name: method[measure] for name, method in found.items()}
        box_plots(axis, {name: value["draws"] for name, value in values.items()})
        everything = [value["all"] for value in values.values()]
        places = range(1, len(values) + 1)
        axis.plot(everything, places, "D", color=OBSERVED, markersize=5, label="all test rows")
        plain_ticks(axis.xaxis, TICKS)
        tidy(axis, x=f"{title} of the room counts; less is better")
    axes[1].set_yticklabels([""] * len(found))
    axes[0].plot([], [], "s", color=QUIET, markersize=8, label=f"{DRAWS} draws of {SIZE} test rows")
    legend(axes[0])
    given.save(figure, "california")


def averaged(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over seeds of everything that was measured."""
    return {
        name: {
            "all": mean(run[name]["all"] for run in runs),
            "by seed": [run[name]["all"] for run in runs],
            "near": mean(run[name]["near"] for run in runs),
            "draws": [
                mean(each) for each in zip(*(run[name]["draws"] for run in runs), strict=True)
            ],
        }
        for name in runs[0]
    }


def main() -> None:
    given = arguments(
        __doc__, only={"nargs": "+", "choices": list(GROUPS), "default": list(GROUPS)}
    )
    seeds = given.chosen(full=3, quick=1)
    table = simulated(1600) if given.quick else california()[0]
    train, test = table[:-TEST], table[-TEST:]
    gaps = test.copy()
    gaps[:, MISSING] = np.nan
    truth, known = test[:, MISSING], train[:, MISSING]
    far = is_far(truth, known)
    described: dict[str, Any] = {
        "data": "simulated" if given.quick else "California housing",
        "rows": [len(train), len(test)],
        "far": int(far.sum()),
        "versions": versions("scikit-learn"),
    }
    file = (given.output or FOLDER) / "california.json"
    before = {} if len(given.only) == len(GROUPS) else json.loads(file.read_text())["methods"]
    runs: dict[str, list[dict[str, Any]]] = {}
    for count, seed in enumerate(seeds, start=1):
        for group in track(given.only, description=f"seed {seed}"):
            for name, filled in GROUPS[group](train, gaps, seed, given.quick):
                runs.setdefault(name, []).append(measured(filled, truth, known.std(0), far))
        found = before | {name: averaged(each) for name, each in runs.items()}
        results = {**described, "seeds": seeds[:count], "methods": found}
        print(given.write("california", results))
    draw(found, given)
    for name, method in found.items():
        for measure, value in method.items():
            ends = f"{min(value['draws']):.3f} to {max(value['draws']):.3f}"
            shown = f"all {value['all']:.3f}, draws {median(value['draws']):.3f} ({ends})"
            print(f"{name:32} {measure:18} {shown}")


if __name__ == "__main__":
    main()
