r"""Conditionals for interventions, fitted to the rows that a table's model keeps.

The parts of an ensemble are smoothed and weighed to fill single cells given all others. Averages of
$E[y \mid x, z]$ over the causes z need less smoothing, since errors average out, and values of x
that are rare for most z. So $p(\text{child} \mid \text{causes})$ is a mixture of linear models of
the columns of this family alone, with as many components as predict held-out rows best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.imputation.mixtures import Mixture, star, with_all_columns
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.stacking import Parts, Stacking
from vfg.tables.numeric import NormalScores

COMPONENTS = (1, 3, 9, 27)
"""Numbers of components that are tried in turn, until the next is no better. On simulated systems
of 2,000 rows, 1 serves linear families and 8 to 32 curved ones."""
SHRINKAGE = 0.5
"""Pseudo-rows that shrink components to their average. With the 2 to 4 of the mixtures that fill
cells, curves were flattened: errors of E[y | do(x)] were 1.2 and 1.6 times as large."""
ITERATIONS, TRIAL_ITERATIONS = 80, 40
"""Iterations of EM of the final fit and of those that choose its size."""
NEGLIGIBLE = 1e-2
"""Probability of a component given a row below which EM passes over it."""
HELD_OUT = 0.25
"""Share of the rows that choose the number of components."""
STANDARD_ERRORS = 0.5
"""By how many standard errors more components must predict the held-out rows better."""
FEWEST_ROWS = 50
"""Rows with a known child below which the ensemble's own conditional is used."""
WIDEST = 16
"""The widest root of a family."""


def kept_rows(model: RowMixture) -> tuple[Tensor, Tensor]:
    """The rows of the fitted table that a row mixture keeps, and which cells were observed."""
    observed = model.doubts.cpu() == 0.0
    values = model.ranks.inverse(model.centres.double()).cpu()
    return torch.where(observed, values, 0.0), observed


@torch.no_grad()
def fit_family(
    values: Tensor, observed: Tensor, widths: Sequence[int], seed: int = 0
) -> Parts | None:
    """The parts of a model of a family, whose first section is the child; None for few rows."""
    known = observed[:, : widths[0]].all(1)
    if int(known.sum()) < FEWEST_ROWS:
        return None
    used = observed.any(1)
    values, observed, known = values[used], observed[used], known[used]
    numbers = np.random.default_rng(seed).random(len(values))
    held = known & torch.from_numpy(numbers < HELD_OUT)
    best: tuple[int, Tensor] | None = None
    for components in COMPONENTS:
        trial = _fit(values[~held], observed[~held], widths, components, TRIAL_ITERATIONS, seed)
        cells = torch.where(observed, values, torch.nan)[held]
        others = [str(k) for k in range(1, len(widths))]
        scores = trial.conditional_log_prob(cells, others) if others else trial.log_prob(cells)
        if best is not None and not _is_better(scores - best[1]):
            break
        best = components, scores
    assert best is not None
    model = _fit(values, observed, widths, best[0], ITERATIONS, seed)
    if best[0] == 1:
        return Parts(linear=model)
    columns = values.shape[1]
    weights = Stacking.of_members(columns)
    weights.weights.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]))
    linear = _fit(values, observed, widths, 1, TRIAL_ITERATIONS, seed)
    return Parts(
        linear=linear, mixtures=[Mixture(model, NormalScores(columns))], combination=weights
    )


def _is_better(gains: Tensor) -> bool:
    error = float(gains.std()) / max(len(gains), 1) ** 0.5
    return bool(float(gains.mean()) > STANDARD_ERRORS * error)


def _fit(
    values: Tensor,
    observed: Tensor,
    widths: Sequence[int],
    components: int,
    iterations: int,
    seed: int,
) -> GaussianVFG:
    graph = star(list(widths), min(sum(widths), WIDEST))
    model = GaussianVFG(graph, components, noise_floor=0.03, seed=seed)
    model.fit(
        values,
        observed=with_all_columns(observed),
        finish="none",
        iterations=iterations,
        restarts=1,
        shrinkage=SHRINKAGE,
        negligible=NEGLIGIBLE if components > 1 else 0.0,
        seed=seed,
    )
    return model
