"""The start of EM: eigenvectors for stars, else small random loadings; clusters for mixtures."""

from __future__ import annotations

import torch
from torch import Tensor

from vfg.gaussian.em.e_step import expectation
from vfg.gaussian.em.general import chunks_of
from vfg.gaussian.em.m_step import m_step
from vfg.gaussian.factors import condition, group_masks
from vfg.gaussian.parameters import Parameters, Values, factors_of, innovation_map
from vfg.inputs import pairwise_covariance

FIRST_ITERATIONS = 20
"""Iterations of EM with one component, whose latent means are then clustered."""
CLUSTERING_ROWS = 4096
"""Rows that are clustered, which bounds the time."""
EXACT_COLUMNS = 1000
"""Columns up to which all eigenvectors are computed: 1,000 take 0.2 s, 5,000 took half a minute."""
SPARE_DIRECTIONS, POWERS = 10, 8
"""Directions beyond those wanted and steps of subspace iteration, which is a start only."""
LLOYD = 20
"""Iterations of the clustering."""


def start_values(
    parameters: Parameters,
    table: Tensor,
    seen: Tensor,
    generator: torch.Generator,
    weights: Tensor | None = None,
) -> Values:
    """Initial values for EM from the leaves' values; those of the parameters are not used."""
    structure = parameters.structure
    components = len(parameters.log_weights)
    single = Parameters(structure, 1, "root", parameters.noise_floor, generator)
    single = single.to(table.device)
    values = single.values()
    whole = bool((single.learned_loadings == 1.0).all())
    if len(structure.nodes) == 1 and whole:
        moments = pairwise_covariance(table, seen, weights)
        values = _from_eigenvectors(values, *moments, parameters.noise_floor, generator)
    else:
        values = values._replace(offsets=pairwise_covariance(table, seen, weights)[0][None])
    if components == 1:
        return values
    some = torch.randperm(len(table), generator=generator)[:CLUSTERING_ROWS].to(table.device)
    own = None if weights is None else weights[some]
    chunks = chunks_of(structure, 1, table[some], seen[some], own)
    expect = expectation(single, chunks)
    for _ in range(FIRST_ITERATIONS):
        values = m_step(single, values, expect(values))
    belief = condition(factors_of(structure, values), table[some], group_masks(seen[some]))
    maps, middles = innovation_map(structure, values)
    roots = structure.root_width
    points = belief.mean[:, 0] @ maps[0, :roots].mT + middles[0, :roots]
    centres, counts = _clusters(points, components, generator, own)
    return _split(parameters, values, centres, counts, generator)


def leading_eigenvectors(covariance: Tensor, used: int) -> tuple[Tensor, Tensor, float]:
    """The largest eigenvalues, ascending, their eigenvectors, and the mean of the others.

    Of wide matrices they are approximate, by subspace iteration; EM improves what starts there.

    Example:
        >>> sizes, vectors, rest = leading_eigenvectors(torch.tensor([3.0, 9.0, 1.0]).diag(), 1)
        >>> sizes, vectors[:, 0].abs(), rest
        (tensor([9.]), tensor([0., 1., 0.]), 2.0)
    """
    columns = len(covariance)
    if columns <= EXACT_COLUMNS:
        sizes, vectors = torch.linalg.eigh(covariance)
        rest = sizes[: columns - used].clamp(min=0.0)
        return sizes[-used:], vectors[:, -used:], float(rest.mean()) if len(rest) else 0.0
    generator = torch.Generator().manual_seed(0)
    shape = columns, min(used + SPARE_DIRECTIONS, columns)
    basis = torch.randn(shape, generator=generator, dtype=covariance.dtype).to(covariance.device)
    for _ in range(POWERS):
        basis = torch.linalg.qr(covariance @ basis)[0]
    sizes, turned = torch.linalg.eigh(basis.mT @ (covariance @ basis))
    sizes, vectors = sizes[-used:], basis @ turned[:, -used:]
    rest = float(covariance.diagonal().sum() - sizes.clamp(min=0.0).sum())
    return sizes, vectors, max(0.0, rest) / max(1, columns - used)


def _from_eigenvectors(
    values: Values, mean: Tensor, covariance: Tensor, floor: float, generator: torch.Generator
) -> Values:
    """The leading eigenvectors as loadings, and what they leave as noise."""
    width = values.loadings.shape[-1]
    used = min(width, len(covariance))
    sizes, vectors, noise = leading_eigenvectors(covariance, used)
    # The signs depend on the solver, and with the small random start they would change results.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    strengths = (sizes - noise).clamp(min=1e-4).sqrt()
    # Coordinates without an eigenvector start small; at 0 they would stay there.
    loadings = 1e-2 * torch.randn(1, len(mean), width, generator=generator, dtype=torch.float64)
    loadings = loadings.to(mean.device)
    loadings[0, :, :used] += (vectors * strengths).flip(-1)
    left = covariance.diagonal() - loadings[0].square().sum(-1)
    least = (0.05 * covariance.diagonal()).clamp(min=floor**2)
    scales = torch.maximum(left, least).sqrt()
    return values._replace(loadings=loadings, offsets=mean[None], scales=scales[None])


def _clusters(
    points: Tensor, count: int, generator: torch.Generator, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Centres and sizes of clusters: spread-out starts, then alternating means."""
    centres = points[torch.randint(len(points), (1,), generator=generator).to(points.device)]
    nearest = torch.full_like(points[:, 0], torch.inf)
    while len(centres) < count:
        nearest = torch.minimum(nearest, torch.cdist(points, centres[-1:])[:, 0])
        distance = nearest.square() + 1e-12
        drawn = torch.multinomial(distance.cpu(), 1, generator=generator).to(points.device)
        centres = torch.cat([centres, points[drawn]])
    for _ in range(LLOYD):
        nearest = torch.cdist(points, centres).argmin(1)
        member = torch.nn.functional.one_hot(nearest, count).to(points)
        member = member if weights is None else member * weights[:, None]
        sizes = member.sum(0)
        centres = torch.where(
            sizes[:, None] > 0, member.mT @ points / sizes.clamp(min=1e-12)[:, None], centres
        )
    return centres, sizes + 1.0


def _split(
    parameters: Parameters,
    values: Values,
    centres: Tensor,
    counts: Tensor,
    generator: torch.Generator,
) -> Values:
    """Components around the clusters of the roots."""
    values = values._replace(log_weights=(counts / counts.sum()).log())
    count, roots = centres.shape
    if parameters.mixes_roots:
        identity = torch.eye(roots, dtype=centres.dtype, device=centres.device)
        return values._replace(
            root_means=centres, root_factors=0.7 * identity.expand(count, -1, -1)
        )
    shape = (count, *values.loadings.shape[1:])
    noise = torch.randn(shape, generator=generator, dtype=torch.float64).to(centres.device)
    learned = parameters.learned_loadings.double()
    loadings = values.loadings + 0.05 * noise * learned
    maps, _ = innovation_map(parameters.structure, values)
    # Where the latent coordinates are if the roots are at a centre.
    moved = centres @ maps[0, :, :roots].mT
    offsets = values.offsets + moved @ values.loadings[0].mT
    return values._replace(
        loadings=loadings, offsets=offsets, scales=values.scales.expand(count, -1).clone()
    )
