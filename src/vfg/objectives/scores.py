"""Numbers of the paper's training objective about tables: the surrogate, and consistency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from vfg.inputs import ArrayLike, as_labels, as_table
from vfg.objectives import surrogate as objective
from vfg.objectives.surrogate import Surrogate, Terms, in_data_units

if TYPE_CHECKING:
    from vfg.model import VFG


def surrogate(
    model: VFG,
    table: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    beta: float = 1.0,
) -> Surrogate:
    """The objective of Algorithm 1 per row, in named parts; differentiable.

    It trains models with deterministic states but is not a bound on the likelihood: such states
    have no q, and their log q, which is infinite, is left out. `bound` is one.

    Args:
        model: the model.
        table: the data; NaN is unobserved.
        observed: which cells may be used.
        labels: label per row, −1 for none, if the prior has labels.
        beta: weight of the KL and prior terms.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> found = model.surrogate(torch.zeros(3, 2))
        >>> found.total.shape, list(found.edge)
        (torch.Size([3]), ['a->root', 'b->root'])
    """
    cells, seen, like = as_table(model, table, observed)
    found = model.objective(cells, seen, seen, as_labels(model, labels, len(cells)), beta)
    units = in_data_units(model, found.reconstruction, seen)
    return replace(found, reconstruction=units).to(like)


@torch.no_grad()
def consistency(model: VFG, table: ArrayLike, *, observed: ArrayLike | None = None) -> Terms:
    """How far forward and backward states are apart, by node; 0 where the paper's rules hold.

    Args:
        model: the model.
        table: the data; NaN is unobserved.
        observed: which cells may be used.

    Returns:
        By node the mean absolute difference per coordinate, `(rows,)`.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 2, "b": 2}))  # all edges start as identities
        >>> model.consistency(torch.tensor([[1.0, 2.0, 1.0, 2.0]]))["root"].item()
        0.0
    """
    passes, like = model._pass(table, observed, None, None)
    return objective.consistency(model.passing, passes).to(like)
