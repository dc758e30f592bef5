"""A known Bayesian network (7.1.3): bnlearn's Gaussian network of seven variables, F missing.

The true graph is given to the paper's model (one mean node per family), to the exact `GaussianVFG`
and to pgmpy; SPFlow and least squares do without. Errors are raw and standardised, next to the
noise of F. Then what the paper does not do: every variable missing in turn, and 30 % at random.

    python -m experiments.paper.gaussian            minutes on one core; bnlearn's rows if
                                                    gaussian_test.npz is in VFG_DATA, else simulated
    python -m experiments.paper.gaussian --quick    600 simulated rows
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.progress import track

import vfg
from vfg.data import NETWORK, gaussian_network
from vfg.data.archives import archive
from vfg.plots.style import CATEGORIES, HAIRLINE, MARKERS, PAPER, REFERENCE, legend, tidy

from ..baselines.graphical import (
    Array,
    Fill,
    Mask,
    bayesian_network,
    least_squares,
    sum_product_network,
)
from ..results import Arguments, arguments, plain_ticks, subplots, versions

NOISE = 1.0
"""The variance of F given all other variables."""
RANDOM = "30 % at random"
EXACT, FLOWS = "GaussianVFG", "VFG (the paper's)"


def exact(train: Array, names: tuple[str, ...]) -> Fill:
    model = vfg.GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK, variables=names))
    model.fit(train)
    return lambda gaps: model.infer(gaps).to_frame().to_numpy(copy=True)


def flows(train: Array, names: tuple[str, ...], epochs: int) -> Fill:
    """The paper's model on the graph of the network, trained by Algorithms 1 and 2."""
    graph = vfg.Graph.from_bayesian_network(NETWORK, variables=names, width=8)
    paper = vfg.paper_settings()
    model = vfg.VFG(graph, **paper.model)
    fixed = {"epochs": epochs, "batch": 128, "device": "cpu", "progress": False}
    vfg.fit(model, torch.tensor(train, dtype=torch.float32), paper.fit, beta=0.01, **fixed)

    def fill(gaps: Array) -> Array:
        filled = model.reconstruct(torch.tensor(gaps, dtype=torch.float32))
        return np.asarray(filled.double())

    return fill


def methods(train: Array, names: tuple[str, ...], quick: bool) -> dict[str, Callable[[], Fill]]:
    """How to fit each method, by name."""
    return {
        "mean": lambda: lambda gaps: np.where(np.isnan(gaps), train.mean(0), gaps),
        "least squares": partial(least_squares, train),
        "Bayesian network (pgmpy)": partial(bayesian_network, train, names, NETWORK),
        "sum-product network (SPFlow)": partial(
            sum_product_network, train, (200,) if quick else (100, 300)
        ),
        FLOWS: partial(flows, train, names, 2 if quick else 40),
        EXACT: partial(exact, train, names),
    }


def cases(test: Array, names: tuple[str, ...], seeds: list[int]) -> dict[str, list[Mask]]:
    """Masks of missing cells, by what is asked; several of those that are random."""
    single = {f"{name} missing": [np.zeros(test.shape, dtype=bool)] for name in names}
    for column, masks in enumerate(single.values()):
        masks[0][:, column] = True
    drawn = [np.random.default_rng(seed).random(test.shape) < 0.3 for seed in seeds]
    for mask in drawn:
        mask[mask.all(axis=1), 0] = False  # a row that shows nothing asks for the mean
    return {**single, RANDOM: drawn}


def measured(fill: Fill, test: Array, masks: list[Mask], spread: Array) -> dict[str, float]:
    """Mean and variance of the squared errors of the missing cells, on both scales."""
    raw, standard = [], []
    for mask in masks:
        error = fill(np.where(mask, np.nan, test)) - test
        raw.append(np.square(error)[mask])
        standard.append(np.square(error / spread)[mask])
    found = {"raw": np.concatenate(raw), "standardised": np.concatenate(standard)}
    return {
        f"{measure}, {scale}": float(reduce(errors))
        for scale, errors in found.items()
        for measure, reduce in (("mse", np.mean), ("variance", np.var))
    }


def draw(found: dict[str, dict[str, dict[str, float]]], given: Arguments) -> None:
    """Errors by what is missing, relative to least squares."""
    shown = [name for name in found if name not in ("mean", "least squares")]
    asked = list(next(iter(found.values())))
    figure, axis = subplots(figsize=(8, 3.6))
    for place, name in enumerate(shown):
        ratios = [
            found[name][case]["mse, raw"] / found["least squares"][case]["mse, raw"]
            for case in asked
        ]
        places = np.arange(len(asked)) + (place - (len(shown) - 1) / 2) * 0.16
        look = {"color": CATEGORIES[place], "marker": MARKERS[place]}
        axis.scatter(places, ratios, label=name, s=30, **look)
    axis.axhline(1.0, color=REFERENCE, lw=HAIRLINE, zorder=0)
    axis.set_yscale("log")
    plain_ticks(axis.yaxis, (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0))
    axis.set_xticks(range(len(asked)), asked)
    axis.grid(axis="y", color=PAPER, lw=HAIRLINE)
    axis.set_axisbelow(True)
    tidy(axis, x="what is missing", y="squared error, least squares = 1")
    legend(axis)
    given.save(figure, "gaussian")


def main() -> None:
    given = arguments(__doc__)
    seeds = given.chosen(full=5, quick=1)
    table, names = gaussian_network(600 if given.quick else 5000)
    train, test = np.split(table.numpy(), [len(table) * 9 // 10])
    asked, spread = cases(test, names, seeds), train.std(0)
    found: dict[str, dict[str, dict[str, float]]] = {}
    missing: dict[str, str] = {}
    fitting = methods(train, names, given.quick).items()
    for name, fit in track(fitting, description="methods", total=len(fitting)):
        try:
            fill = fit()
        except ImportError as error:
            missing[name] = f"not installed here ({error})"
            continue
        found[name] = {case: measured(fill, test, masks, spread) for case, masks in asked.items()}
    floor = {"raw": NOISE, "standardised": NOISE / float(spread[names.index("F")]) ** 2}
    described: dict[str, Any] = {
        "data": "simulated" if archive("gaussian_test.npz") is None else "bnlearn's gaussian.test",
        "seeds": seeds,
        "rows": [len(train), len(test)],
        "versions": versions("pgmpy", "spflow"),
        "noise of F": floor,
        "methods": found,
        "not run": missing,
    }
    draw(found, given)
    print(given.write("gaussian", described))
    print(f"noise of F: raw {floor['raw']:.4f}, standardised {floor['standardised']:.4f}")
    for name, answers in found.items():
        shown = ", ".join(f"{key} {value:.4f}" for key, value in answers["F missing"].items())
        print(f"{name:30} F: {shown}")
    for name, reason in missing.items():
        print(f"{name:30} {reason}")


if __name__ == "__main__":
    main()
