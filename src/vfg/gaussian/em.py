"""Expectation maximisation on incomplete rows: expected moments of families, then regressions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.gaussian.factors import Masks, condition, grouped_masks, image_moments
from vfg.gaussian.parameters import EXCESS, Parameters, Values, factors_of, innovation_map
from vfg.gaussian.structure import Clique, Structure
from vfg.gaussian.trees import clique_moments, prefers_tree, tree_pass

NUMBERS_AT_ONCE = 2**24
"""How many numbers the covariances of one chunk of rows may take."""
RIDGE = 1e-9
"""What is added to the diagonal of regressions, relative to the number of rows."""


class Chunk(NamedTuple):
    """Some rows of the leaves' values, 0 where unobserved, and their masks."""

    values: Tensor
    masks: Masks


class Moments(NamedTuple):
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
    """What an E-step gathers."""

    log_likelihood: Tensor
    """Sum over the rows."""
    weights: Tensor
    """Expected number of rows by component."""
    leaves: list[Moments]
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
                Moments(*(a + b for a, b in zip(first, second, strict=True)))
                for first, second in zip(self.leaves, other.leaves, strict=True)
            ],
            [a + b for a, b in zip(self.nodes, other.nodes, strict=True)],
            self.roots + other.roots,
        )


def mask_order(seen: Tensor) -> Tensor:
    """The rows of a mask, equal ones side by side where there are many."""
    return grouped_masks(seen).groups.argsort(stable=True)


def chunks_of(structure: Structure, components: int, values: Tensor, seen: Tensor) -> list[Chunk]:
    """Cut a table into chunks of rows in the order of their masks."""
    innovations = structure.root_width + len(structure.noisy_inner)
    size = max(64, NUMBERS_AT_ONCE // (components * max(innovations, 8) ** 2))
    order = mask_order(seen)
    values, seen = values[order], seen[order]
    return [
        Chunk(part, grouped_masks(mask))
        for part, mask in zip(values.split(size), seen.split(size), strict=True)
    ]


def e_step(structure: Structure, values: Values, chunks: Sequence[Chunk]) -> Expected:
    """Expected moments of all families given the observed cells of all rows."""
    return total(part.expected for part in _parts(structure, values, chunks))


def e_step_with_pulls(
    structure: Structure, values: Values, chunks: Sequence[Chunk]
) -> tuple[Expected, Tensor]:
    """The same, and the derivative of log p by every leaf's value, rows in the chunks' order."""
    parts = list(_parts(structure, values, chunks))
    cliques = structure.leaf_cliques()
    pulls = [
        _pulls(values, chunk, part.shares, cliques, part.leaves)
        for chunk, part in zip(chunks, parts, strict=True)
    ]
    return total(part.expected for part in parts), torch.cat(pulls)


def m_step(
    parameters: Parameters, values: Values, expected: Expected, shrinkage: float = 0.0
) -> Values:
    """The values that maximise the expected log-likelihood.

    Args:
        parameters: which entries are learned, and the floor of the noises.
        values: those of the E-step.
        expected: what it gathered.
        shrinkage: pseudo-rows that pull loadings to 0 and noises to 1, and the covariances of
            mixed roots to their average.
    """
    values = _with_leaves(parameters, values, expected, shrinkage)
    values = _with_nodes(parameters, values, expected)
    weights = expected.weights + shrinkage
    values = values._replace(log_weights=(weights / weights.sum()).clamp(min=1e-12).log())
    if parameters.mixes_roots:
        return _with_roots(parameters, values, expected, shrinkage)
    return _rescaled(parameters.structure, values, expected)


def total(parts: Iterable[Expected]) -> Expected:
    """What several chunks give together."""
    return functools.reduce(operator.add, parts)


class _Part(NamedTuple):
    """What is expected of one chunk."""

    expected: Expected
    shares: Tensor
    leaves: list[tuple[Tensor, Tensor]]
    """Moments of the cliques of leaves."""


def _parts(structure: Structure, values: Values, chunks: Sequence[Chunk]) -> Iterator[_Part]:
    cliques = needed_cliques(structure)
    for chunk in chunks:
        log_probs, moments = family_moments(structure, values, chunk.values, chunk.masks, cliques)
        scores = log_probs + values.log_weights
        shares = scores.softmax(-1)
        expected = expected_moments(structure, chunk, shares, moments)
        expected = replace(expected, log_likelihood=scores.logsumexp(-1).sum())
        yield _Part(expected, shares, moments[: len(structure.leaf_cliques())])


def needed_cliques(structure: Structure) -> list[Clique]:
    """Coordinates whose moments EM needs: those of leaves, of latent nodes, and of the roots."""
    root_clique = Clique(tuple(range(structure.root_width)), (), (), structure.nodes[0])
    return [*structure.leaf_cliques(), *structure.node_cliques(), root_clique]


def expected_moments(
    structure: Structure, chunk: Chunk, shares: Tensor, moments: Sequence[tuple[Tensor, Tensor]]
) -> Expected:
    """Sums over the rows of a chunk, all but the log-likelihood, which is 0.

    Args:
        structure: of the model.
        chunk: the rows.
        shares: probabilities of the components, `(rows, components)`.
        moments: of the cliques in `needed_cliques`.
    """
    leaf_cliques = structure.leaf_cliques()
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
        found = tree_pass(structure, values, table, masks)
        return found.log_probs, [clique_moments(structure, found, clique) for clique in cliques]
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
    """What the expected causes leave unexplained, over the noises' variances."""
    found = torch.zeros_like(chunk.values)
    components = shares.shape[1]
    for clique, (mean, _) in zip(cliques, moments, strict=True):
        columns, parents = list(clique.columns), list(clique.parents)
        loadings = values.loadings[:, columns][..., parents].expand(components, -1, -1)
        expected = torch.einsum("nci,cki->nck", mean, loadings) + values.offsets[:, columns]
        left = (expected - chunk.values[:, None, columns]) / values.scales[:, columns].square()
        found[:, columns] = (shares[..., None] * left).sum(1)
    return found * chunk.masks.distinct[chunk.masks.groups]


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
) -> Moments:
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
    else:
        by_group = _by_group(weights.movedim(0, 1), chunk.masks.groups, len(covariance))
        extra = (by_group.movedim(0, 1).mT @ spread.flatten(2)).unflatten(-1, (size - 1, size - 1))
        squares = (weights.mT @ outer.flatten(2)).unflatten(-1, (size, size))
        squares = squares + F.pad(extra, (0, 1, 0, 1))
    weighted = weights * values
    return Moments(
        squares,
        weighted.mT @ z,
        (weighted * values).sum(1),
        weights.sum(1),
    )


def _whole_leaf_moments(
    values: Tensor, masks: Masks, shares: Tensor, mean: Tensor, covariance: Tensor
) -> Moments:
    """The same where nothing is missing: all columns share the squares of z."""
    columns, z = values.shape[1], _with_one(mean).movedim(1, 0)
    weighted = shares.mT[..., None] * z
    squares = _squares(shares, masks.groups, mean, covariance)
    return Moments(
        squares[:, None].expand(-1, columns, -1, -1),
        values.mT @ weighted,
        shares.mT @ values.square(),
        shares.sum(0)[:, None].expand(-1, columns),
    )


def _regress(
    moments: Moments, learned: Tensor, fixed: Tensor, shrinkage: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients, offset and variance of the best explanation by z.

    Args:
        moments: with any leading axes.
        learned: which coefficients are learned, `(explained, n)`.
        fixed: the values of those that are not.
        shrinkage: pseudo-rows in which everything explained has variance 1 and no cause.
    """
    start, mask = F.pad(fixed, (0, 1)), F.pad(learned, (0, 1), value=1.0)
    ridge = RIDGE * moments.counts[..., None] + F.pad(0 * learned + shrinkage, (0, 1)) + 1e-12
    squares = moments.squares + ridge.diag_embed()
    products = moments.products - (moments.squares @ start[..., None])[..., 0]
    system = squares * mask[..., :, None] * mask[..., None, :] + (1.0 - mask).diag_embed()
    found = torch.linalg.solve(system, (products * mask)[..., None])[..., 0] * mask
    whole = found + start
    explained = (whole * moments.products).sum(-1)
    size = ((squares @ whole[..., None])[..., 0] * whole).sum(-1)
    left = moments.totals - 2.0 * explained + size + shrinkage
    return whole[..., :-1], whole[..., -1], left / (moments.counts + shrinkage + 1e-12)


def _with_leaves(
    parameters: Parameters, values: Values, expected: Expected, shrinkage: float
) -> Values:
    loadings = torch.zeros_like(values.loadings)
    offsets, scales = torch.zeros_like(values.offsets), torch.zeros_like(values.scales)
    shared = len(values.loadings) == 1
    for clique, moments in zip(parameters.structure.leaf_cliques(), expected.leaves, strict=True):
        if shared:
            moments = Moments(*(part.sum(0, keepdim=True) for part in moments))
        columns, parents = list(clique.columns), list(clique.parents)
        learned = parameters.learned_loadings.double()[columns][:, parents]
        fixed = parameters.fixed_loadings.double()[columns][:, parents]
        found, offset, variance = _regress(moments, learned, fixed, shrinkage)
        where = torch.tensor(columns, device=found.device)
        loadings[:, where[:, None], torch.tensor(parents, device=found.device)] = found
        offsets[:, columns] = offset
        scales[:, columns] = _deviation(parameters, variance)
    return values._replace(loadings=loadings, offsets=offsets, scales=scales)


def _with_nodes(parameters: Parameters, values: Values, expected: Expected) -> Values:
    edges, shifts, noises = values.edges.clone(), values.shifts.clone(), values.noises.clone()
    for clique, squares in zip(parameters.structure.node_cliques(), expected.nodes, strict=True):
        own, parents = list(clique.explained), list(clique.parents)
        count = len(own)
        moments = Moments(
            squares[count:, count:].expand(count, -1, -1),
            squares[:count, count:],
            squares.diagonal()[:count],
            squares[-1, -1].expand(count),
        )
        learned = parameters.learned_edges.double()[own][:, parents]
        fixed = parameters.fixed_edges.double()[own][:, parents]
        found, shift, variance = _regress(moments, learned, fixed, 0.0)
        where = torch.tensor(own, device=found.device)
        edges[where[:, None], torch.tensor(parents, device=found.device)] = found
        shifts[own], noises[own] = shift, _deviation(parameters, variance)
    return values._replace(edges=edges, shifts=shifts, noises=noises)


def _with_roots(
    parameters: Parameters, values: Values, expected: Expected, shrinkage: float
) -> Values:
    mean, covariance = _root_moments(expected.roots)
    if shrinkage:
        covariance = _drawn_together(covariance, expected.weights, shrinkage)
    blocks = parameters.root_mask.double()
    blocks = blocks + blocks.mT - blocks.diagonal().diag_embed()
    factors, failed = torch.linalg.cholesky_ex(covariance * blocks)
    if bool((failed > 0).any()):
        floor = parameters.noise_floor**2 * (1.0 + EXCESS)
        identity = torch.eye(len(blocks), dtype=mean.dtype, device=mean.device)
        factors = torch.linalg.cholesky(covariance * blocks + floor * identity)
    return values._replace(root_means=mean, root_factors=factors)


def _rescaled(structure: Structure, values: Values, expected: Expected) -> Values:
    """Give the roots the moments that were found, then move those into the edges below them.

    The roots stay standard Normal; maximising over the larger model is what makes EM fast.
    """
    mean, covariance = _root_moments(expected.roots.sum(0, keepdim=True))
    loadings, edges = values.loadings.clone(), values.edges.clone()
    offsets, shifts = values.offsets, values.shifts
    for root in structure.free_roots():
        span = slice(structure.spans[root].start, structure.spans[root].stop)
        factor, info = torch.linalg.cholesky_ex(covariance[0, span, span])
        if int(info):
            continue
        offsets = offsets + loadings[..., span] @ mean[0, span]
        shifts = shifts + edges[:, span] @ mean[0, span]
        loadings[..., span] = loadings[..., span] @ factor
        edges[:, span] = edges[:, span] @ factor
    return values._replace(loadings=loadings, edges=edges, offsets=offsets, shifts=shifts)


def _root_moments(squares: Tensor) -> tuple[Tensor, Tensor]:
    """Means and covariances from sums of z z' by component."""
    counts = (squares[:, -1, -1] + 1e-12)[:, None]
    mean = squares[:, :-1, -1] / counts
    spread = squares[:, :-1, :-1] - counts[..., None] * mean[..., :, None] * mean[..., None, :]
    return mean, 0.5 * (spread + spread.mT) / counts[..., None]


def _drawn_together(covariance: Tensor, counts: Tensor, shrinkage: float) -> Tensor:
    """Every component's covariance with pseudo-rows that have the average one."""
    counts = counts[:, None, None]
    average = (counts * covariance).sum(0) / counts.sum()
    return (counts * covariance + shrinkage * average) / (counts + shrinkage)


def _deviation(parameters: Parameters, variance: Tensor) -> Tensor:
    floor = parameters.noise_floor**2 * (1.0 + EXCESS)
    return variance.clamp(min=floor).sqrt()
