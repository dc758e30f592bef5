"""`vfg score`: how likely the rows of a table are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vfg.cli.options import ModelFile, with_groups
from vfg.cli.tables import RowByRow

if TYPE_CHECKING:
    from vfg import Model

IMPORTANCE = 200
"""Draws per row behind the log-likelihood of sampled states."""


@with_groups
def score(model: ModelFile, options: RowByRow) -> None:
    """Score the rows of a table: log p of what is observed, one number per row.

    Models with deterministic states have no likelihood; they get the surrogate, and the column is
    called so.
    """
    import vfg

    known: Model = vfg.load(model)
    total = 0.0

    def work(table: Any) -> dict[str, Any]:
        nonlocal total
        found = score_rows(known, table)
        total += float(sum(scores.sum() for scores in found.values()))
        return found

    rows = options.write(known, work)
    options.tell({"rows": rows, "mean": total / rows})


def score_rows(model: Model, table: Any) -> dict[str, Any]:
    """One number per row, by what it is: log_prob, log_likelihood or surrogate.

    Args:
        model: of any kind.
        table: with the columns of the model.
    """
    import numpy as np
    import torch

    import vfg

    if not isinstance(model, vfg.VFG):
        return {"log_prob": np.asarray(model.log_prob(table), dtype=np.float64)}
    with torch.no_grad():
        if model.states == "sampled":
            found = model.log_likelihood(table, samples=IMPORTANCE)
            return {"log_likelihood": found.double().numpy()}
        return {"surrogate": model.surrogate(table).total.double().numpy()}
