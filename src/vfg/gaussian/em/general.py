"""The E-step on incomplete rows: expected moments of families."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.gaussian.factors import Masks, condition, group_masks, image_moments
from vfg.gaussian.parameters import Values, factors_of, innovation_map
from vfg.gaussian.structure import Clique, Structure
from vfg.gaussian.tree_messages import clique_moments, prefers_tree, tree_pass

NUMBERS_AT_ONCE = 2**24
"""Numbers in the covariances of one chunk of rows, which bounds memory."""
BLOCK = 2**18
"""Rows within which rows with equal masks are sorted together."""


class Chunk(NamedTuple):
    """Some rows of the leaves' values, 0 where unobserved, and their masks."""

    values: Tensor
    masks: Masks
    weights: Tensor | None = None
    """How often every row counts; None for once."""

    @property
    def number(self) -> float:
        """How many rows it counts as."""
        return len(self.values) if self.weights is None else float(self.weights.sum())

    def weigh(self, numbers: Tensor) -> Tensor:
        """Numbers of rows `(rows, ...)` times the weights of the rows."""
        if self.weights is None:
            return numbers
        return numbers * self.weights.reshape(-1, *[1] * (numbers.ndim - 1))


class LatentMoments(NamedTuple):
    """Expected sums over the rows in which something is observed; z is (latent coordinates, 1)."""

    squares: Tensor
    """Of z z'."""
    products: Tensor
    """Of the explained value times z."""
    totals: Tensor
    """Of the explained value squared."""
    counts: Tensor
    """Of 1."""


@dataclass(frozen=True)
class Expected:
    """Expected moments of all families: the result of an E-step."""

    log_likelihood: Tensor
    """Sum over the rows."""
    weights: Tensor
    """Expected number of rows by component."""
    leaves: list[LatentMoments]
    """By clique of leaves: `(components, columns, ...)`."""
    nodes: list[Tensor]
    """By clique of a latent node: z z' `(n + 1, n + 1)`."""
    roots: Tensor
    """z z' of the roots by component."""

    def __add__(self, other: Expected) -> Expected:
        return Expected(
            self.log_likelihood + other.log_likelihood,
            self.weights + other.weights,
            [
                LatentMoments(*(a + b for a, b in zip(first, second, strict=True)))
                for first, second in zip(self.leaves, other.leaves, strict=True)
            ],
            [a + b for a, b in zip(self.nodes, other.nodes, strict=True)],
            self.roots + other.roots,
        )


def mask_order(seen: Tensor) -> Tensor:
    """The rows of a mask, equal ones side by side where there are many.

    Block by block: larger groups would save nothing, and gathering from a whole table takes longer.
    """
    orders = [group_masks(block).groups.argsort(stable=True) for block in seen.split(BLOCK)]
    return torch.cat([order + place * BLOCK for place, order in enumerate(orders)])


def chunks_of(
    structure: Structure,
    components: int,
    values: Tensor,
    seen: Tensor,
    weights: Tensor | None = None,
) -> list[Chunk]:
    """Cut a table into chunks of rows in the order of their masks."""
    innovations = structure.root_width + len(structure.noisy_inner)
    size = max(64, NUMBERS_AT_ONCE // (components * max(innovations, 8) ** 2))
    order = mask_order(seen)
    values, seen = values[order], seen[order]
    starts = range(0, len(values), size)
    own = [None] * len(starts) if weights is None else weights[order].split(size)
    return [
        Chunk(part, group_masks(mask), some)
        for part, mask, some in zip(values.split(size), seen.split(size), own, strict=True)
    ]


def e_step(structure: Structure, values: Values, chunks: Sequence[Chunk]) -> Expected:
    """Expected moments of all families given the observed cells of all rows."""
    return total(part.expected for part in _parts(structure, values, chunks))


def e_step_with_pulls(
    structure: Structure, values: Values, chunks: Sequence[Chunk]
) -> tuple[Expected, Tensor]:
    """The same, and the derivative of log p by every leaf's value, rows in the chunks' order."""
    parts = list(_parts(structure, values, chunks))
    cliques = structure.leaf_cliques
    pulls = [
        _pulls(values, chunk, part.shares, cliques, part.leaves)
        for chunk, part in zip(chunks, parts, strict=True)
    ]
    return total(part.expected for part in parts), torch.cat(pulls)


def total(parts: Iterable[Expected]) -> Expected:
    """The sum over several chunks."""
    return functools.reduce(operator.add, parts)


class _Part(NamedTuple):
    """Expected moments of one chunk."""

    expected: Expected
    shares: Tensor
    leaves: list[tuple[Tensor, Tensor]]
    """Moments of the cliques of leaves."""


def _parts(structure: Structure, values: Values, chunks: Sequence[Chunk]) -> Iterator[_Part]:
    cliques = needed_cliques(structure)
    for chunk in chunks:
        log_probs, moments = family_moments(structure, values, chunk.values, chunk.masks, cliques)
        scores = log_probs + values.log_weights
        shares = chunk.weigh(scores.softmax(-1))
        expected = expected_moments(structure, chunk, shares, moments)
        expected = replace(expected, log_likelihood=chunk.weigh(scores.logsumexp(-1)).sum())
        yield _Part(expected, shares, moments[: len(structure.leaf_cliques)])


def needed_cliques(structure: Structure) -> list[Clique]:
    """Coordinates whose moments EM needs: those of leaves, of latent nodes, and of the roots."""
    root_clique = Clique(tuple(range(structure.root_width)), (), (), structure.nodes[0])
    return [*structure.leaf_cliques, *structure.node_cliques, root_clique]


def expected_moments(
    structure: Structure, chunk: Chunk, shares: Tensor, moments: Sequence[tuple[Tensor, Tensor]]
) -> Expected:
    """Sums over the rows of a chunk, all but the log-likelihood, which is 0.

    Shares are the probabilities of components, times the weights of rows; moments those of the
    cliques in `needed_cliques`.
    """
    leaf_cliques = structure.leaf_cliques
    leaves = [
        _leaf_moments(chunk, shares, mean, covariance, clique)
        for clique, (mean, covariance) in zip(leaf_cliques, moments, strict=False)
    ]
    groups = chunk.masks.groups
    others = [_squares(shares, groups, *pair) for pair in moments[len(leaf_cliques) :]]
    nodes = [other.sum(0) for other in others[:-1]]
    return Expected(shares.new_zeros(()), shares.sum(0), leaves, nodes, others[-1])


def family_moments(
    structure: Structure, values: Values, table: Tensor, masks: Masks, cliques: Sequence[Clique]
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """log p by row and component, and the moments of every clique."""
    if prefers_tree(structure):
        result = tree_pass(structure, values, table, masks)
        return result.log_probs, [clique_moments(structure, result, clique) for clique in cliques]
    maps, centres = innovation_map(structure, values)
    belief = condition(factors_of(structure, values), table, masks)
    components = len(values.log_weights)
    maps, centres = maps.expand(components, -1, -1), centres.expand(components, -1)
    # In a star the leaves and the root share one clique.
    distinct = dict.fromkeys(clique.coordinates for clique in cliques)
    moments = {k: image_moments(belief, maps[:, list(k)], centres[:, list(k)]) for k in distinct}
    return belief.log_probs, [moments[clique.coordinates] for clique in cliques]


def _pulls(
    values: Values,
    chunk: Chunk,
    shares: Tensor,
    cliques: Sequence[Clique],
    moments: Sequence[tuple[Tensor, Tensor]],
) -> Tensor:
    """Residuals of the expected causes, over the variances of the noise."""
    result = torch.zeros_like(chunk.values)
    components = shares.shape[1]
    for clique, (mean, _) in zip(cliques, moments, strict=True):
        columns, parents = list(clique.columns), list(clique.parents)
        loadings = values.loadings[:, columns][..., parents].expand(components, -1, -1)
        expected = torch.einsum("nci,cki->nck", mean, loadings) + values.offsets[:, columns]
        left = (expected - chunk.values[:, None, columns]) / values.scales[:, columns].square()
        result[:, columns] = (shares[..., None] * left).sum(1)
    return result * chunk.masks.distinct[chunk.masks.groups]


def _with_one(mean: Tensor) -> Tensor:
    return F.pad(mean, (0, 1), value=1.0)


def _by_group(weights: Tensor, groups: Tensor, count: int) -> Tensor:
    """Weights of rows added up over their groups."""
    if count == len(weights):
        return weights
    return weights.new_zeros(count, *weights.shape[1:]).index_add(0, groups, weights)


def _squares(shares: Tensor, groups: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """Expected sums of z z' by component."""
    z = _with_one(mean).movedim(1, 0)
    outer = z.mT @ (shares.mT[..., None] * z)
    weights = _by_group(shares, groups, len(covariance))
    spread = torch.einsum("uc,ucij->cij", weights, covariance.expand(-1, shares.shape[1], -1, -1))
    return outer + F.pad(spread, (0, 1, 0, 1))


def _leaf_moments(
    chunk: Chunk, shares: Tensor, mean: Tensor, covariance: Tensor, clique: Clique
) -> LatentMoments:
    columns = list(clique.columns)
    rows, components, _ = mean.shape
    if bool(chunk.masks.distinct[:, columns].all()):
        return _whole_leaf_moments(chunk.values[:, columns], chunk.masks, shares, mean, covariance)
    observed = chunk.masks.distinct[:, columns].to(mean)[chunk.masks.groups]
    weights = (shares[:, :, None] * observed[:, None]).movedim(1, 0)
    values = chunk.values[:, columns]
    z = _with_one(mean).movedim(1, 0)
    size = z.shape[-1]
    outer = z[..., :, None] * z[..., None, :]
    spread = covariance.expand(-1, components, -1, -1).movedim(1, 0)
    if len(covariance) == rows:
        outer[..., :-1, :-1] += spread
    squares = (weights.mT @ outer.flatten(2)).unflatten(-1, (size, size))
    if len(covariance) != rows:
        by_group = _by_group(weights.movedim(0, 1), chunk.masks.groups, len(covariance))
        extra = (by_group.movedim(0, 1).mT @ spread.flatten(2)).unflatten(-1, (size - 1, size - 1))
        squares = squares + F.pad(extra, (0, 1, 0, 1))
    weighted = weights * values
    return LatentMoments(squares, weighted.mT @ z, (weighted * values).sum(1), weights.sum(1))


def _whole_leaf_moments(
    values: Tensor, masks: Masks, shares: Tensor, mean: Tensor, covariance: Tensor
) -> LatentMoments:
    """The same where nothing is missing: all columns share the squares of z."""
    columns, z = values.shape[1], _with_one(mean).movedim(1, 0)
    weighted = shares.mT[..., None] * z
    squares = _squares(shares, masks.groups, mean, covariance)
    return LatentMoments(
        squares[:, None].expand(-1, columns, -1, -1),
        values.mT @ weighted,
        shares.mT @ values.square(),
        shares.sum(0)[:, None].expand(-1, columns),
    )
