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
LLOYD = 20
"""Iterations of the clustering."""


def start_values(
    parameters: Parameters, table: Tensor, seen: Tensor, generator: torch.Generator
) -> Values:
    """Initial values for EM from the leaves' values; those of the parameters are not used."""
    structure = parameters.structure
    components = len(parameters.log_weights)
    single = Parameters(structure, 1, "root", parameters.noise_floor, generator)
    single = single.to(table.device)
    values = single.values()
    whole = bool((single.learned_loadings == 1.0).all())
    if len(structure.nodes) == 1 and whole:
        values = _from_eigenvectors(values, table, seen, parameters.noise_floor, generator)
    else:
        values = values._replace(offsets=pairwise_covariance(table, seen)[0][None])
    if components == 1:
        return values
    some = torch.randperm(len(table), generator=generator)[:CLUSTERING_ROWS].to(table.device)
    chunks = chunks_of(structure, 1, table[some], seen[some])
    expect = expectation(single, chunks)
    for _ in range(FIRST_ITERATIONS):
        values = m_step(single, values, expect(values))
    belief = condition(factors_of(structure, values), table[some], group_masks(seen[some]))
    maps, middles = innovation_map(structure, values)
    roots = structure.root_width
    points = belief.mean[:, 0] @ maps[0, :roots].mT + middles[0, :roots]
    centres, counts = _clusters(points, components, generator)
    return _split(parameters, values, centres, counts, generator)


def _from_eigenvectors(
    values: Values, table: Tensor, seen: Tensor, floor: float, generator: torch.Generator
) -> Values:
    """The leading eigenvectors as loadings, and what they leave as noise."""
    mean, covariance = pairwise_covariance(table, seen)
    sizes, vectors = torch.linalg.eigh(covariance)
    # The signs depend on the solver, and with the small random start they would change results.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    width = values.loadings.shape[-1]
    used = min(width, len(sizes))
    rest = sizes[: len(sizes) - used].clamp(min=0.0)
    noise = float(rest.mean()) if len(rest) else 0.0
    strengths = (sizes[-used:] - noise).clamp(min=1e-4).sqrt()
    # Coordinates without an eigenvector start small; at 0 they would stay there.
    loadings = 1e-2 * torch.randn(1, len(sizes), width, generator=generator, dtype=torch.float64)
    loadings = loadings.to(table.device)
    loadings[0, :, :used] += (vectors[:, -used:] * strengths).flip(-1)
    left = covariance.diagonal() - loadings[0].square().sum(-1)
    least = (0.05 * covariance.diagonal()).clamp(min=floor**2)
    scales = torch.maximum(left, least).sqrt()
    return values._replace(loadings=loadings, offsets=mean[None], scales=scales[None])


def _clusters(points: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
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
        sizes = member.sum(0)
        centres = torch.where(
            sizes[:, None] > 0, member.mT @ points / sizes.clamp(min=1.0)[:, None], centres
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
