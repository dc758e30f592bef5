"""The M-step: regressions on expected moments."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.gaussian.em.general import Expected, LatentMoments
from vfg.gaussian.parameters import EXCESS, ROOT_FLOOR, Parameters, Values
from vfg.gaussian.structure import Structure

RIDGE = 1e-9
"""Added to the diagonal of regressions, relative to the number of rows: keeps them regular."""


def m_step(
    parameters: Parameters, values: Values, expected: Expected, shrinkage: float = 0.0
) -> Values:
    """The values that maximise the expected log-likelihood; shrinkage as in `GaussianSettings`."""
    values = _with_leaves(parameters, values, expected, shrinkage)
    values = _with_nodes(parameters, values, expected)
    weights = expected.weights + shrinkage
    values = values._replace(log_weights=(weights / weights.sum()).clamp(min=1e-12).log())
    if parameters.mixes_roots:
        return _with_roots(parameters, values, expected, shrinkage)
    return _rescale_roots(parameters.structure, values, expected)


def _regress(
    moments: LatentMoments, learned: Tensor, fixed: Tensor, shrinkage: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients, offset and variance of the best explanation by z; those not learned are fixed.

    In the pseudo-rows of `shrinkage` everything explained has variance 1 and no cause.
    """
    start, mask = F.pad(fixed, (0, 1)), F.pad(learned, (0, 1), value=1.0)
    ridge = RIDGE * moments.counts[..., None] + F.pad(0 * learned + shrinkage, (0, 1)) + 1e-12
    squares = moments.squares + ridge.diag_embed()
    products = moments.products - (moments.squares @ start[..., None])[..., 0]
    system = squares * mask[..., :, None] * mask[..., None, :] + (1.0 - mask).diag_embed()
    result = torch.linalg.solve(system, (products * mask)[..., None])[..., 0] * mask
    whole = result + start
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
    for clique, moments in zip(parameters.structure.leaf_cliques, expected.leaves, strict=True):
        if shared:
            moments = LatentMoments(*(part.sum(0, keepdim=True) for part in moments))
        columns, parents = list(clique.columns), list(clique.parents)
        learned = parameters.learned_loadings.double()[columns][:, parents]
        fixed = parameters.fixed_loadings.double()[columns][:, parents]
        result, offset, variance = _regress(moments, learned, fixed, shrinkage)
        where = torch.tensor(columns, device=result.device)
        loadings[:, where[:, None], torch.tensor(parents, device=result.device)] = result
        offsets[:, columns] = offset
        scales[:, columns] = _deviation(parameters, variance)
    return values._replace(loadings=loadings, offsets=offsets, scales=scales)


def _with_nodes(parameters: Parameters, values: Values, expected: Expected) -> Values:
    edges, shifts, noises = values.edges.clone(), values.shifts.clone(), values.noises.clone()
    for clique, squares in zip(parameters.structure.node_cliques, expected.nodes, strict=True):
        own, parents = list(clique.explained), list(clique.parents)
        count = len(own)
        moments = LatentMoments(
            squares[count:, count:].expand(count, -1, -1),
            squares[:count, count:],
            squares.diagonal()[:count],
            squares[-1, -1].expand(count),
        )
        learned = parameters.learned_edges.double()[own][:, parents]
        fixed = parameters.fixed_edges.double()[own][:, parents]
        result, shift, variance = _regress(moments, learned, fixed, 0.0)
        where = torch.tensor(own, device=result.device)
        edges[where[:, None], torch.tensor(parents, device=result.device)] = result
        shifts[own], noises[own] = shift, _deviation(parameters, variance)
    return values._replace(edges=edges, shifts=shifts, noises=noises)


def _with_roots(
    parameters: Parameters, values: Values, expected: Expected, shrinkage: float
) -> Values:
    mean, covariance = _root_moments(expected.roots)
    if shrinkage:  # pseudo-rows of every component have the average covariance
        counts = expected.weights[:, None, None]
        average = (counts * covariance).sum(0) / counts.sum()
        covariance = (counts * covariance + shrinkage * average) / (counts + shrinkage)
    blocks = parameters.root_mask.double()
    blocks = blocks + blocks.mT - blocks.diagonal().diag_embed()
    factors, failed = torch.linalg.cholesky_ex(covariance * blocks)
    if bool((failed > 0).any()):
        floor = max(parameters.noise_floor, ROOT_FLOOR) ** 2 * (1.0 + EXCESS)
        identity = torch.eye(len(blocks), dtype=mean.dtype, device=mean.device)
        factors = torch.linalg.cholesky(covariance * blocks + floor * identity)
    return values._replace(root_means=mean, root_factors=factors)


def _rescale_roots(structure: Structure, values: Values, expected: Expected) -> Values:
    """Give the roots the expected moments, then move those into the edges below them.

    The roots stay standard Normal. Maximising over the larger model makes EM converge faster.
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


def _deviation(parameters: Parameters, variance: Tensor) -> Tensor:
    floor = parameters.noise_floor**2 * (1.0 + EXCESS)
    return variance.clamp(min=floor).sqrt()
