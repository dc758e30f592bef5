"""The paper's synthetic data (7.1.1): eight columns made from two numbers, four of them missing.

10 seeds, 1000 rows to train and 300 to test, where x3, x4, x7 and x8 are missing. The paper's model
is one mean node of width 2 over four sections of two variables, 3 coupling layers each. It does not
say which two variables share a section. Here they are the equal ones, (x1, x2), (x3, x4), (x5, x6)
and (x7, x8): then the missing cells are two whole sections, as the method requires.

Ours is the same graph with the sections lifted into a root of width 8, once with the paper's mean
and once with messages that carry precision matrices.

    python -m experiments.paper.synthetic            10 minutes on one core
    python -m experiments.paper.synthetic --quick    2 seeds, few epochs: half a minute
"""

from __future__ import annotations

from statistics import mean, stdev

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

import vfg
from vfg.data import synthetic
from vfg.plots.style import tidy
from vfg.training.model_stack import forest

from ..baselines.imputers import Array, imputers
from ..results import Arguments, arguments, box_plots, plain_ticks, subplots, versions

TRAIN, TEST = 1000, 300
MISSING = [2, 3, 6, 7]
SECTIONS = [vfg.Node(f"x{k + 1}, x{k + 2}", 2, columns=(k, k + 1)) for k in (0, 2, 4, 6)]

MODELS = {
    "VFG, width 2 (the paper's)": (2, "mean", 0.1, 400),
    "VFG, width 8": (8, "mean", 0.001, 200),
    "VFG, width 8, gaussian": (8, "gaussian", 0.001, 200),
}
"""Width of the root, aggregation, β and epochs: the paper's model takes longest to settle."""

Found = dict[str, list[float]]


def ours(name: str, tables: list[Tensor], quick: bool) -> list[Tensor]:
    """The filled test rows of every table.

    The tables of all seeds stand side by side, each under a star of its own, so that one batched
    program trains all of them; the stars share nothing, and draw their start and masks apart.
    """
    width, aggregation, beta, epochs = MODELS[name]
    stars = forest(vfg.Graph.star(SECTIONS, width=width), len(tables))
    model = vfg.VFG(stars, **vfg.paper_settings(blocks=3).model | {"aggregation": aggregation})
    rows = torch.cat(tables, dim=1)
    vfg.fit(
        model,
        rows[:TRAIN],
        masking=vfg.Masking(rate=1.0),
        beta=beta,
        rate=5e-3,
        weight_decay=0.0,
        clip=len(tables) ** 0.5,  # of the gradients of all stars together
        validation=0.0,  # a held-out section is a row less at the ends, where errors are largest
        epochs=20 if quick else epochs,
        batch=100,
        device="cpu",
    )
    gaps = torch.cat([with_gaps(table)[TRAIN:] for table in tables], dim=1)
    return list(model.reconstruct(gaps).split(8, dim=1))


def with_gaps(table: Tensor) -> Tensor:
    """The table with x3, x4, x7 and x8 of the test rows missing."""
    shown = table.clone()
    shown[TRAIN:, MISSING] = torch.nan
    return shown


def theirs(tables: list[Tensor]) -> Found:
    """Errors of the baselines, by name and seed."""
    found: Found = {}
    for seed, table in enumerate(track(tables, description="baselines")):
        # Exact copies among the columns leave posterior draws without any spread to draw with.
        jitter = 1e-5 * np.random.default_rng(seed).standard_normal(table.shape)
        shown: Array = with_gaps(table).numpy().astype(np.float64) + jitter
        for name, fill in imputers(MISSING, seed).items():
            filled = fill(shown[:TRAIN], shown[TRAIN:])
            found.setdefault(name, []).append(error(torch.from_numpy(filled), table))
    return found


def error(filled: Tensor, table: Tensor) -> float:
    return float((filled - table[TRAIN:])[:, MISSING].square().mean())


def draw(found: Found, given: Arguments) -> None:
    """Box plots as in the paper, on a logarithmic axis."""
    figure, axis = subplots(figsize=(8, 3.6))
    box_plots(axis, found)
    plain_ticks(axis.xaxis, (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0))
    count = len(next(iter(found.values())))
    tidy(axis, x=f"mean squared error of the missing cells, {count} seeds; less is better")
    given.save(figure, "synthetic")


def main() -> None:
    given = arguments(__doc__)
    seeds = given.chosen(full=10, quick=2)
    tables = [synthetic(TRAIN + TEST, seed=seed) for seed in seeds]
    found = theirs(tables)
    for name in MODELS:
        print(name)
        filled = ours(name, tables, given.quick)
        found[name] = [error(each, table) for each, table in zip(filled, tables, strict=True)]
        print(found[name])
    described = {"seeds": seeds, "versions": versions("scikit-learn")}
    draw(found, given)
    print(given.write("synthetic", {**described, "mse": found}))
    for name, values in found.items():
        spread = stdev(values) if len(values) > 1 else 0.0
        ends = f"({min(values):.3f} to {max(values):.3f})"
        print(f"{name:28} {mean(values):8.3f} ± {spread:.3f}  {ends}")


if __name__ == "__main__":
    main()
