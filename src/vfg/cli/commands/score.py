"""`vfg score`: log-likelihoods of the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vfg.cli.options import with_groups
from vfg.cli.table_files import RowOptions

if TYPE_CHECKING:
    from vfg import Model

IMPORTANCE = 200
"""Importance samples per row; more tighten the bound on the log-likelihood, and take longer."""


@with_groups
def score(options: RowOptions) -> None:
    """Compute the log-likelihood of the observed cells of every row.

    Models with deterministic states have no likelihood; the column `surrogate` has their training
    objective instead.

    vfg score table.csv -m model.vfg
    """
    options, known = options.load("score")
    total = 0.0

    def work(table: Any) -> dict[str, Any]:
        nonlocal total
        result = score_rows(known, table)
        total += float(sum(scores.sum() for scores in result.values()))
        return result

    rows = options.write(known, work)
    options.print_summary({"rows": rows, "mean": total / rows})


def score_rows(model: Model, table: Any) -> dict[str, Any]:
    """One number per row, by what it is: log_prob, log_likelihood or surrogate."""
    import numpy as np
    import torch

    import vfg

    if not isinstance(model, vfg.VFG):
        return {"log_prob": np.asarray(model.log_prob(table), dtype=np.float64)}
    with torch.no_grad():
        if model.states == "sampled":
            result = model.log_likelihood(table, samples=IMPORTANCE)
            return {"log_likelihood": result.double().numpy()}
        return {"surrogate": model.surrogate(table).total.double().numpy()}
