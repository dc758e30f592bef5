r"""EM of stars with many leaves and one set of loadings: what components share is done once.

Given the observed columns o of a row, the root h has in component c the precision matrix
$P_c + \sum_{j \in o} l_j l_j^\top / s_j^2$, whose sum is the same for all components; and the
regressions of the leaves need the moments of h added up over them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.gaussian.em.general import Chunk, Expected, Moments
from vfg.gaussian.factors import LOG_TWO_PI
from vfg.gaussian.parameters import Parameters, Values
from vfg.gaussian.trees import prefers_tree


def is_wide_star(parameters: Parameters) -> bool:
    """Whether this is the model, and on a CPU, where sums by position are reproducible."""
    structure = parameters.structure
    on_cpu = parameters.offsets.device.type == "cpu"
    star = len(structure.nodes) == 1 and structure.width <= structure.columns
    return on_cpu and star and len(parameters.loadings) == 1 and not prefers_tree(structure)


class Pairs(NamedTuple):
    """The root by pairs of a row and a component."""

    scores: Tensor
    """log of weight times density, `(pairs,)`."""
    mean: Tensor
    """`(pairs, width)`."""
    factor: Tensor
    """Cholesky factors of the precision matrices, `(pairs, width, width)`."""


def root_of(values: Values, chunk: Chunk, rows: Tensor, components: Tensor) -> Pairs:
    """Solve the systems of some pairs.

    Args:
        values: of the equations.
        chunk: the rows.
        rows: of the pairs.
        components: likewise.
    """
    loadings, variances = values.loadings[0], values.scales[0].square()
    seen = chunk.masks.distinct[chunk.masks.groups].to(loadings)
    weights = seen / variances
    residual = (chunk.values - values.offsets) * seen
    squares = weights @ (loadings[:, :, None] * loadings[:, None, :]).flatten(1)
    information = (residual * weights) @ loadings
    precision = torch.cholesky_inverse(values.root_factors)
    centres = (precision @ values.root_means[..., None])[..., 0]
    system = squares.unflatten(1, precision.shape[1:])[rows] + precision[components]
    factor = torch.linalg.cholesky(system)
    sides = information[rows] + centres[components]
    mean = torch.cholesky_solve(sides[..., None], factor)[..., 0]
    # The residual form has no cancellation, however small the noises are.
    left = (residual[rows] - mean @ loadings.mT).square() * weights[rows]
    moved = (mean - values.root_means[components])[..., None]
    identity = torch.eye(mean.shape[1], dtype=mean.dtype)
    inverse = torch.linalg.solve_triangular(values.root_factors, identity, upper=False)
    distance = left.sum(-1) + (inverse[components] @ moved)[..., 0].square().sum(-1)
    by_row = seen @ (values.scales[0].log() + 0.5 * LOG_TWO_PI)
    by_component = _log_volume(values.root_factors) - values.log_weights
    volume = _log_volume(factor) + by_row[rows] + by_component[components]
    return Pairs(-0.5 * distance - volume, mean, factor)


def root_moments(
    values: Values, chunk: Chunk, active: Tensor | None = None
) -> tuple[Expected, Tensor]:
    """Expected moments of a chunk, those of leaves summed over components.

    Args:
        values: of the equations.
        chunk: the rows.
        active: which components count, `(rows, components)`, of every row one at least; None means
            all.

    Returns:
        The moments, and the logs of weight times density, -inf for what does not count.
    """
    if active is None:
        active = torch.ones(len(chunk.values), len(values.log_weights), dtype=torch.bool)
    rows, components = active.nonzero(as_tuple=True)
    pairs = root_of(values, chunk, rows, components)
    scores = chunk.values.new_full(active.shape, -torch.inf)
    scores[rows, components] = pairs.scores
    shares = scores.softmax(-1)[rows, components]
    z = F.pad(pairs.mean, (0, 1), value=1.0)
    squares = z[:, :, None] * z[:, None, :]
    squares[:, :-1, :-1] += torch.cholesky_inverse(pairs.factor)
    squares *= shares[:, None, None]
    size = squares.shape[1:]
    roots = squares.new_zeros(active.shape[1], *size).index_add(0, components, squares)
    by_row = squares.new_zeros(len(active), *size).index_add(0, rows, squares)
    seen = chunk.masks.distinct[chunk.masks.groups].to(z)
    known = seen * chunk.values
    leaves = Moments(
        (seen.mT @ by_row.flatten(1)).unflatten(1, size),
        known.mT @ by_row[:, -1],
        (known * chunk.values).sum(0),
        seen.sum(0),
    )
    leaves = Moments(*(part[None] for part in leaves))
    expected = Expected(scores.logsumexp(-1).sum(), roots[:, -1, -1], [leaves], [], roots)
    return expected, scores


def _log_volume(factors: Tensor) -> Tensor:
    return factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
