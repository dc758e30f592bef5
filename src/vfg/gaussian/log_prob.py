"""log p of observed cells: one Normal (mixture) for real columns, a chain for discrete ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from vfg.gaussian.discrete_chain import chain_scores
from vfg.gaussian.em.e_step import suits
from vfg.gaussian.em.general import Chunk
from vfg.gaussian.em.paired import Cells, Normals, all_scores
from vfg.gaussian.factors import Masks, condition, grouped_masks, log_mixture
from vfg.gaussian.parameters import factors_of
from vfg.gaussian.trees import prefers_tree, tree_pass

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

ROWS_AT_ONCE = 4096
NUMBERS_AT_ONCE = 2**24
"""How many scores of categories are computed together at the most."""


class Encoded(NamedTuple):
    """A table in the coordinates of the leaves."""

    values: Tensor
    """`(rows, coordinates)`; any finite number where unobserved."""
    seen: Tensor
    """Which are observed."""
    log_slopes: Tensor
    """log |dg/dx| by table column, `(rows, columns)`, 0 where unobserved."""


def chunk_size(model: GaussianVFG) -> int:
    """How many rows to score together."""
    most = max((unit.categories for unit in model.codes.units), default=1)
    return max(64, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // (most * model.components)))


def row_scores(model: GaussianVFG, cells: Tensor, seen: Tensor, given: Tensor | None) -> Tensor:
    """log p of scaled cells in data units, `(rows,)`; differentiable.

    Args:
        model: the model.
        cells: `(rows, columns)`, finite everywhere.
        seen: which are observed.
        given: which of those are given and not scored; None means none.
    """
    encoded = model.encode(cells, seen)
    scored = seen if given is None else seen & ~given
    slopes = (encoded.log_slopes * scored).sum(-1) - model.log_volumes(scored)
    if model.codes.units:
        return _chained_scores(model, cells, encoded, scored) + slopes
    total = _normal_scores(model, encoded)
    if given is not None:
        total = total - _normal_scores(model, encoded._replace(seen=seen & given))
    return total + slopes


def _normal_scores(model: GaussianVFG, encoded: Encoded) -> Tensor:
    values, masks = model.linear.values(), grouped_masks(encoded.seen)
    if prefers_tree(model.structure):
        log_probs = tree_pass(model.structure, values, encoded.values, masks).log_probs
        return (values.log_weights + log_probs).logsumexp(-1)
    factors = factors_of(model.structure, values)
    if not torch.is_grad_enabled() and suits(model.linear):
        cells = Cells.of(Chunk(encoded.values, masks))
        return torch.from_numpy(all_scores(Normals.of(factors), cells)).logsumexp(-1)
    return log_mixture(factors, condition(factors, encoded.values, masks))


def _chained_scores(model: GaussianVFG, cells: Tensor, encoded: Encoded, scored: Tensor) -> Tensor:
    """Real columns given what is given, then discrete ones in the order of the table."""
    codes = model.codes
    factors = factors_of(model.structure, model.linear.values())
    later = scored[:, [unit.column for unit in codes.units]]
    waiting = scored.index_select(1, codes.owner)
    given = encoded.seen & ~waiting
    at_first = encoded.seen.index_fill(1, codes.coded_places, False) | given
    width = codes.width
    # Rows share a factorisation if all three masks are equal.
    whole = grouped_masks(torch.cat([at_first, given, later], dim=1))
    parts = whole.distinct.split([width, width, later.shape[1]], dim=1)
    belief = condition(factors, encoded.values, Masks(parts[0], whole.groups))
    total = log_mixture(factors, belief)
    if bool(parts[1].any()):
        known = condition(factors, encoded.values, Masks(parts[1], whole.groups))
        total = total - log_mixture(factors, known)
    return total + chain_scores(factors, belief, codes, cells, parts[2])
