"""log p of observed cells: one Normal (mixture) for real columns, a chain for discrete ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from vfg.distributions.likelihoods import LOG_TWO_PI
from vfg.gaussian.category_points import CategoryPoints
from vfg.gaussian.em.general import Chunk
from vfg.gaussian.em.paired import ComponentNormals, IndexedRows, all_scores, supports_pairs
from vfg.gaussian.factors import (
    FactorPosterior,
    Factors,
    Masks,
    by_group,
    condition,
    group_masks,
    log_mixture,
    log_volume,
)
from vfg.gaussian.parameters import factors_of
from vfg.gaussian.tree_messages import prefers_tree, tree_pass

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

ROWS_AT_ONCE = 4096
"""Rows that are scored together, which bounds memory."""
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
    """log p of scaled cells in data units, `(rows,)`; differentiable; given cells do not count."""
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
    values, masks = model.linear.values(), group_masks(encoded.seen)
    if prefers_tree(model.structure):
        log_probs = tree_pass(model.structure, values, encoded.values, masks).log_probs
        return (values.log_weights + log_probs).logsumexp(-1)
    factors = factors_of(model.structure, values)
    if not torch.is_grad_enabled() and supports_pairs(model.linear):
        cells = IndexedRows.of(Chunk(encoded.values, masks))
        return torch.from_numpy(all_scores(ComponentNormals.of(factors), cells)).logsumexp(-1)
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
    whole = group_masks(torch.cat([at_first, given, later], dim=1))
    parts = whole.distinct.split([width, width, later.shape[1]], dim=1)
    belief = condition(factors, encoded.values, Masks(parts[0], whole.groups))
    total = log_mixture(factors, belief)
    if bool(parts[1].any()):
        known = condition(factors, encoded.values, Masks(parts[1], whole.groups))
        total = total - log_mixture(factors, known)
    return total + chain_scores(factors, belief, codes, cells, parts[2])


class Predictive(NamedTuple):
    """The predictive distribution of the coordinates of one unit, component by component."""

    mean: Tensor
    """`(rows, components, coordinates)`."""
    precision: Tensor
    """`(groups, components, coordinates, coordinates)`."""
    log_volume: Tensor
    """log of the density's normaliser, `(groups, components)`."""
    crossed: Tensor
    """Covariances with the innovations, `(groups, components, innovations, coordinates)`."""


def no_evidence(factors: Factors) -> FactorPosterior:
    """The innovations before anything is observed, one row."""
    components, _, innovations = factors.loadings.shape
    zeros = factors.loadings.new_zeros(1, components, innovations)
    groups = torch.zeros_like(zeros[:, 0, 0]).long()
    return FactorPosterior(
        zeros[..., 0], zeros, lambda: torch.ones_like(zeros).diag_embed(), groups
    )


def predict(factors: Factors, belief: FactorPosterior, places: slice) -> Predictive:
    """Means, covariances and precisions of some coordinates given a belief."""
    loadings, scales = factors.loadings[:, places], factors.scales[:, places]
    crossed = belief.covariance @ loadings.mT
    factor = torch.linalg.cholesky(loadings @ crossed + scales.square().diag_embed())
    volume = log_volume(factor) + 0.5 * LOG_TWO_PI * scales.shape[-1]
    mean = torch.einsum("nci,cki->nck", belief.mean, loadings) + factors.offsets[:, places]
    return Predictive(mean, torch.cholesky_inverse(factor), volume, crossed)


def point_densities(found: Predictive, groups: Tensor, points: Tensor) -> Tensor:
    """log N of every point `(categories, coordinates)`, `(rows, components, categories)`."""
    # By products of matrices alone, so that many categories do not take much more memory.
    squares = (points[:, :, None] * points[:, None, :]).flatten(1)
    own = found.precision.flatten(-2) @ squares.mT + 2.0 * found.log_volume[..., None]
    turned = by_group(found.precision, found.mean, groups)
    rest = (turned * found.mean).sum(-1, keepdim=True)
    return -0.5 * (own[groups] - 2.0 * (turned @ points.mT) + rest)


def category_scores(
    factors: Factors, belief: FactorPosterior, found: Predictive, codes: CategoryPoints, unit: int
) -> Tensor:
    r"""log P(c | evidence) for every category of a unit, `(rows, categories)`.

    $$P(c \mid o) \propto \pi_c \Bigl((1 - \delta_c) \frac{p(e_c \mid o)}{p(e_c)} + \delta_c\Bigr)$$

    with the frequency $\pi_c$, the (mixture) densities of the point $e_c$ given o and nothing,
    and the probability $\delta_c$ that the category may be anywhere. `found` is what follows from
    the belief for the unit.
    """
    points = codes.points_at(unit)

    def density(about: FactorPosterior, here: Predictive) -> Tensor:
        by_component = point_densities(here, about.groups, points)
        shares = (factors.log_weights + about.log_probs).log_softmax(-1)
        return (by_component + shares[..., None]).logsumexp(1)

    before = no_evidence(factors)
    marginal = density(before, predict(factors, before, codes.units[unit].places))
    doubts = codes.doubts_at(unit)
    ratio = density(belief, found) - marginal
    ratio = torch.logaddexp((1.0 - doubts).log() + ratio, doubts.log())
    return (codes.log_frequencies_at(unit) + ratio).log_softmax(-1)


def observe(
    belief: FactorPosterior, found: Predictive, values: Tensor, seen: Tensor
) -> FactorPosterior:
    """The belief after some coordinates are observed too, in the groups of rows that are `seen`."""
    left = (values[:, None] - found.mean) * seen[belief.groups][:, None, None]
    gain = found.crossed @ found.precision
    distance = (by_group(found.precision, left, belief.groups) * left).sum(-1)
    constants = (found.log_volume * seen[:, None])[belief.groups]

    def spread() -> Tensor:
        return belief.covariance - gain @ found.crossed.mT * seen[:, None, None, None]

    return FactorPosterior(
        belief.log_probs - 0.5 * distance - constants,
        belief.mean + by_group(gain, left, belief.groups),
        spread,
        belief.groups,
    )


def chain_scores(
    factors: Factors, belief: FactorPosterior, codes: CategoryPoints, cells: Tensor, seen: Tensor
) -> Tensor:
    """Sums of log P of the units, each given the belief and those before it, `(rows,)`.

    `seen` says which units are scored, `(groups of the belief, units)`.
    """
    total = torch.zeros_like(belief.log_probs[:, 0])
    for index, unit in enumerate(codes.units):
        here = seen[:, index]
        if not bool(here.any()):
            continue
        values = cells[:, unit.column]
        result = predict(factors, belief, unit.places)
        scores = category_scores(factors, belief, result, codes, index)
        own = codes.pick(index, scores, values)
        total = total + torch.where(here[belief.groups], own, 0.0)
        belief = observe(belief, result, codes.point_of(index, values), here.to(total))
    return total
