"""The paper's synthetic data (7.1.1): eight columns made from two numbers, four of them missing.

10 seeds, 1000 rows to train and 300 to test, where x3, x4, x7 and x8 are missing. The paper's model
is one mean node of width 2 over four sections of two variables, 3 coupling layers each. It does not
say which two variables share a section. Here they are the equal ones, (x1, x2), (x3, x4), (x5, x6)
and (x7, x8): then the missing cells are two whole sections, as the method requires.

Ours is the same graph with the sections lifted into a root of width 8, once with the paper's mean
and once with messages that carry precision matrices; and `VFGImputer` with its defaults.

The pattern is one plain regression, so regressions for this one question are compared too. The
second task is what they cannot do with one model: any sections from any others, in all 14 patterns.

    python -m experiments.paper.synthetic            10 minutes on one core
    python -m experiments.paper.synthetic --quick    2 seeds, few epochs: half a minute
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import mean, stdev

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

import vfg
from vfg.data import synthetic
from vfg.plots.style import tidy
from vfg.sklearn import VFGImputer
from vfg.training.model_stack import forest

from ..baselines.imputers import Array, imputers, regressions
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

PATTERNS = [
    [2 * section + k for section in chosen for k in (0, 1)]
    for count in (1, 2, 3)
    for chosen in combinations(range(4), count)
]
"""The columns that are missing in each of the 14 patterns of sections."""
PATTERN_SEEDS = 3
EVERY_PATTERN = ("mean", "kNN (k = 5)", "kNN, tuned", "iterative, ExtraTrees", "RBF kernel ridge")
"""Baselines of the second task. Tuned neighbours and regressions are fitted for every pattern."""

Found = dict[str, list[float]]


def ours(name: str, tables: list[Tensor], quick: bool) -> tuple[list[Tensor], Found]:
    """The filled test rows of every table, and the errors of all patterns by table.

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

    def fill(missing: list[int]) -> list[Tensor]:
        gaps = torch.cat([with_gaps(table, missing)[TRAIN:] for table in tables], dim=1)
        return list(model.reconstruct(gaps).split(8, dim=1))

    by_pattern = zip(*(fill(missing) for missing in PATTERNS), strict=True)
    errors = [
        pattern_errors(filled, table) for filled, table in zip(by_pattern, tables, strict=True)
    ]
    return fill(MISSING), {name: errors[:PATTERN_SEEDS]}


def with_gaps(table: Tensor, missing: list[int] = MISSING) -> Tensor:
    """The table with some columns of the test rows missing."""
    shown = table.clone()
    shown[TRAIN:, missing] = torch.nan
    return shown


def theirs(tables: list[Tensor], quick: bool) -> tuple[Found, Found]:
    """Errors of baselines and of `VFGImputer` by name and seed: the paper's pattern, and all."""
    found: Found = {}
    patterns: Found = {}
    for seed, table in enumerate(track(tables, description="baselines")):
        # Exact copies among the columns leave posterior draws without any spread to draw with.
        jitter = 1e-5 * np.random.default_rng(seed).standard_normal(table.shape)
        rows: Array = table.numpy().astype(np.float64) + jitter
        imputer = VFGImputer(random_state=seed, steps=20 if quick else None).fit(rows[:TRAIN])
        for name, filled in fill_by_all(rows, MISSING, imputer, seed).items():
            found.setdefault(name, []).append(error(filled, table))
        if seed < PATTERN_SEEDS:
            by_pattern = [fill_by_all(rows, missing, imputer, seed) for missing in PATTERNS]
            for name in by_pattern[0]:
                each = pattern_errors([filled[name] for filled in by_pattern], table)
                patterns.setdefault(name, []).append(each)
    return found, patterns


def fill_by_all(
    rows: Array, missing: list[int], imputer: VFGImputer, seed: int
) -> dict[str, Tensor]:
    """The test rows without some columns, filled by every baseline and a fitted imputer."""
    train, gaps = rows[:TRAIN], rows[TRAIN:].copy()
    gaps[:, missing] = np.nan
    fills = {**imputers(missing, seed), **regressions(missing)}
    names = fills if missing is MISSING else EVERY_PATTERN
    filled = {name: fills[name](train, gaps) for name in names}
    filled["VFGImputer"] = imputer.transform(gaps)
    return {name: torch.from_numpy(each) for name, each in filled.items()}


def error(filled: Tensor, table: Tensor) -> float:
    return float((filled - table[TRAIN:])[:, MISSING].square().mean())


def pattern_errors(filled: Sequence[Tensor], table: Tensor) -> float:
    """The mean over patterns of the squared error of missing cells, in standard deviations."""
    scale = table[:TRAIN].std(dim=0)
    errors = [
        ((rows - table[TRAIN:]) / scale)[:, missing].square().mean()
        for rows, missing in zip(filled, PATTERNS, strict=True)
    ]
    return float(torch.stack(errors).mean())


def draw(found: Found, given: Arguments) -> None:
    """Box plots as in the paper, on a logarithmic axis."""
    figure, axis = subplots(figsize=(8, 3.6))
    box_plots(axis, found)
    plain_ticks(axis.xaxis, (1e-8, 1e-6, 1e-4, 0.01, 0.1, 1.0, 10.0))
    count = len(next(iter(found.values())))
    tidy(axis, x=f"mean squared error of the missing cells, {count} seeds; less is better")
    given.save(figure, "synthetic")


def main() -> None:
    given = arguments(__doc__)
    seeds = given.chosen(full=10, quick=2)
    tables = [synthetic(TRAIN + TEST, seed=seed) for seed in seeds]
    found, patterns = theirs(tables, given.quick)
    for name in MODELS:
        print(name)
        filled, of_patterns = ours(name, tables, given.quick)
        patterns |= of_patterns
        found[name] = [error(each, table) for each, table in zip(filled, tables, strict=True)]
        print(found[name])
    described = {"seeds": seeds, "versions": versions("scikit-learn")}
    draw(found, given)
    print(given.write("synthetic", {**described, "mse": found, "patterns": patterns}))
    for name, values in found.items():
        spread = stdev(values) if len(values) > 1 else 0.0
        ends = f"({min(values):.3f} to {max(values):.3f})"
        print(f"{name:28} {mean(values):8.3f} ± {spread:.3f}  {ends}")


if __name__ == "__main__":
    main()
