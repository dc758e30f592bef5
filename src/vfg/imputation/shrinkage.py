r"""How much the linear model of a small table is shrunk: chosen at held-out cells.

The pseudo-rows of `GaussianSettings.shrinkage` pull correlations to 0 and add to the noise of every
column. With independent columns several are best, and with columns that nearly determine each other
a small part of one: a tenth of a row in a hundred may double the smallest eigenvalue of the
correlations. So the linear model is fitted with several numbers of them without some cells. With
$e_k$ the sum of squared errors at these cells and $\sigma^2$ the smallest mean of them, number k
has the probability $\propto e^{-e_k / 2 \sigma^2}$, and the mean of its logarithm is used: where
few cells tell little, it is in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vfg.gaussian.conditional_means import exact_means
from vfg.graph import Graph
from vfg.imputation.mixtures import LINEAR_SETTINGS, fit_linear
from vfg.imputation.parts import clip
from vfg.imputation.resources import Turn

SHRINKAGES = (4.0, 1.0, 0.25, 0.06)
"""Pseudo-rows that are tried. Six columns, of which one is the sum of the others and noise, have
0.81 of the squared error with 0.1 instead of 1 in 60 rows, and 0.89 in 200; six weakly correlated
ones in 40 rows have 0.96 of it with 3."""
SETS, SHARE = 4, 0.15
"""How many times cells are held out, and their share. Of tables with 40 and 100 rows, simulated and
real, two sets left more to chance; a share of 0.25 shrank too much."""
ITERATIONS = 10
"""Iterations of EM, which starts at eigenvectors: errors are compared, and need not be least."""
ROWS = (20, 300)
"""Fewest and most rows of tables for which it is chosen. In larger ones it changes little: with
limits of 2,000 rows the squared error of the table energy (768 rows) was 1.8 % larger on one mask,
those of airfoil, concrete and yeast equal within 0.1 %, for up to 0.7 s of a fit."""
MOST_COLUMNS = 60
"""The most columns, which bounds the time."""
TIME_SHARE = 0.05
"""The share of a budget that the choice may take."""


def deserves_choice(rows: float, columns: int) -> bool:
    """Whether shrinkage is chosen for a table of so many rows and columns.

    Example:
        >>> deserves_choice(100, 3), deserves_choice(5, 3)
        (True, False)
    """
    fewest, most = ROWS
    return fewest <= rows <= most and 2 <= columns <= MOST_COLUMNS


@torch.no_grad()
def choose_shrinkage(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
    seed: int,
    weights: Tensor | None = None,
    turn: Turn | None = None,
) -> float:
    """Pseudo-rows of the linear model, by its errors at sets of held-out cells.

    They are as usual if there are no such cells, or no time for a set of them.
    """
    turn, cells = turn or Turn(), 0.0
    errors = torch.zeros(len(SHRINKAGES), dtype=torch.float64)
    for done, own in enumerate(held):
        if not turn.has_time_for_another(done):
            break
        rows, shown = own.any(1), observed & ~own
        often = own[rows].double() * (1.0 if weights is None else weights[rows, None])
        truth = clip(values[rows])
        for place, shrinkage in enumerate(SHRINKAGES):
            model = fit_linear(
                graph, values, shown, seed,
                weights=weights, shrinkage=shrinkage, iterations=ITERATIONS,
            )  # fmt: skip
            means = clip(exact_means(model, values[rows], shown[rows]))
            errors[place] += (often * (means - truth).square()).sum()
        cells += float(often.sum())
    if cells == 0.0:
        return LINEAR_SETTINGS.shrinkage
    logarithms = torch.tensor(SHRINKAGES, dtype=torch.float64).log()
    return float((probabilities(errors, cells) @ logarithms).exp())


def probabilities(errors: Tensor, cells: float) -> Tensor:
    """The probabilities of `SHRINKAGES` by their sums of squared errors at some cells.

    Example:
        >>> probabilities(torch.tensor([90.0, 80.0, 60.0, 40.0]), 100.0).round(decimals=3).tolist()
        [0.0, 0.0, 0.0, 1.0]
        >>> probabilities(torch.tensor([41.0, 40.0, 40.0, 41.0]), 100.0).round(decimals=3).tolist()
        [0.111, 0.389, 0.389, 0.111]
    """
    variance = float(errors.min()) / max(cells, 1.0)
    return (-errors.double() / (2.0 * max(variance, 1e-9))).softmax(0)
