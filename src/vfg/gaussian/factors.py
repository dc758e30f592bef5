"""Factor models, to which every linear-Gaussian graph reduces, for any mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from vfg.distributions.likelihoods import LOG_TWO_PI

Side = Literal["latent", "leaf"]


class Factors(NamedTuple):
    r"""A mixture of factor models $u = L_c e + b_c + s_c \varepsilon$, e and ε standard Normal."""

    log_weights: Tensor
    """`(components,)`, normalised."""
    loadings: Tensor
    """`(components, columns, innovations)`."""
    offsets: Tensor
    """`(components, columns)`."""
    scales: Tensor
    """`(components, columns)`, standard deviations."""


@dataclass(frozen=True)
class FactorPosterior:
    """The innovations given the observed columns, component by component."""

    log_probs: Tensor
    """log p(observed | component), `(rows, components)`."""
    mean: Tensor
    """`(rows, components, innovations)`."""
    spread: Callable[[], Tensor]
    """Computes the covariances, which take longer than all else and are not always needed."""
    groups: Tensor
    """The group of every row, `(rows,)`."""

    @cached_property
    def covariance(self) -> Tensor:
        """`(groups, components, innovations, innovations)`; rows with equal masks share one."""
        return self.spread()


class Masks(NamedTuple):
    """The masks of a table; equal ones are stored once where that saves time."""

    distinct: Tensor
    """`(groups, columns)`."""
    groups: Tensor
    """The group of every row, `(rows,)`."""


def group_masks(seen: Tensor) -> Masks:
    """Gather rows with equal masks, unless most of them differ.

    Example:
        >>> group_masks(torch.tensor([[True, False]] * 3)).distinct
        tensor([[ True, False]])
    """
    rows = len(seen)
    packed = _pack(seen)
    if packed.shape[1] == 1:
        result, groups = packed[:, 0].unique(return_inverse=True)
    else:
        result, groups = packed.unique(dim=0, return_inverse=True)
    if 2 * len(result) > rows:
        return Masks(seen, torch.arange(rows, device=seen.device))
    first = torch.zeros(len(result), dtype=torch.long, device=seen.device)
    first[groups] = torch.arange(rows, device=seen.device)
    return Masks(seen[first], groups)


def condition(
    factors: Factors, values: Tensor, masks: Masks, side: Side | None = None
) -> FactorPosterior:
    r"""The posterior of the innovations given the observed columns, other values being finite.

    On the latent side with $P = I + L^\top \mathrm{diag}(o / s^2) L$, on the leaf side with the
    covariance of the observed columns; both give the same numbers. None takes the smaller matrices.

    Example:
        >>> one = torch.ones(1, 2, 1)
        >>> factors = Factors(torch.zeros(1), one, torch.zeros(1, 2), torch.ones(1, 2))
        >>> masks = group_masks(torch.tensor([[True, False]]))
        >>> condition(factors, torch.tensor([[2.0, 0.0]]), masks).mean
        tensor([[[1.]]])
    """
    observed = masks.distinct.to(values)
    residual = (values[:, None] - factors.offsets) * observed[masks.groups][:, None]
    _, columns, innovations = factors.loadings.shape
    side = side or ("latent" if innovations <= columns else "leaf")
    solve = _on_latent_side if side == "latent" else _on_leaf_side
    mean, spread, volume, distance = solve(factors, residual, observed, masks.groups)
    constants = 0.5 * LOG_TWO_PI * observed.sum(-1, keepdim=True) + volume
    return FactorPosterior(-0.5 * distance - constants[masks.groups], mean, spread, masks.groups)


def log_volume(factor: Tensor) -> Tensor:
    """Half the log-determinants of matrices with the Cholesky factors `(..., n, n)`."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def log_mixture(factors: Factors, belief: FactorPosterior) -> Tensor:
    """log p(observed) `(rows,)`."""
    return (factors.log_weights + belief.log_probs).logsumexp(-1)


def responsibilities(factors: Factors, belief: FactorPosterior) -> Tensor:
    """Probabilities of the components given the observed columns, `(rows, components)`."""
    return (factors.log_weights + belief.log_probs).softmax(-1)


def image_moments(belief: FactorPosterior, maps: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Means `(rows, components, n)` and covariances `(groups, components, n, n)` of linear maps."""
    mean = torch.einsum("nci,cki->nck", belief.mean, maps) + offsets
    return mean, maps @ belief.covariance @ maps.mT


def column_means(belief: FactorPosterior, factors: Factors) -> Tensor:
    """Conditional means of all columns, `(rows, components, columns)`."""
    return torch.einsum("nci,cki->nck", belief.mean, factors.loadings) + factors.offsets


def column_moments(belief: FactorPosterior, factors: Factors) -> tuple[Tensor, Tensor]:
    """Conditional means and variances of all columns, `(rows, components, columns)` each."""
    spread = ((factors.loadings @ belief.covariance) * factors.loadings).sum(-1)
    variance = (spread.clamp(min=0.0) + factors.scales.square())[belief.groups]
    return column_means(belief, factors), variance


def mixed_moments(weights: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of a mixture from those of its components on axis 1.

    Example:
        >>> weights = torch.tensor([[0.5, 0.5]])
        >>> mixed_moments(weights, torch.tensor([[[0.0], [2.0]]]), torch.zeros(1, 2, 1))
        (tensor([[1.]]), tensor([[1.]]))
    """
    weights = weights[..., None]
    centre = (weights * mean).sum(1)
    return centre, (weights * (variance + (mean - centre[:, None]).square())).sum(1)


def mixed_covariance(shares: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """The covariance `(rows, n, n)` of mixtures from means and covariances of their components."""
    left = mean - (shares[..., None] * mean).sum(1, keepdim=True)
    whole = covariance + left[..., :, None] * left[..., None, :]
    return (shares[..., None, None] * whole).sum(1)


Solution = tuple[Tensor, Callable[[], Tensor], Tensor, Tensor]


def _on_latent_side(
    factors: Factors, residual: Tensor, observed: Tensor, groups: Tensor
) -> Solution:
    loadings, innovations = factors.loadings, factors.loadings.shape[-1]
    weights = observed[:, None] / factors.scales.square()
    identity = torch.eye(innovations, dtype=residual.dtype, device=residual.device)
    factor = torch.linalg.cholesky(identity + _weighted_squares(loadings, weights))
    weighted = residual * weights[groups]
    information = torch.einsum("nck,cki->nci", weighted, loadings)
    mean = _solve(factor, information, groups)
    # The residual form has no cancellation, however small the noises are.
    left = residual - torch.einsum("nci,cki->nck", mean, loadings) * (weights[groups] != 0.0)
    distance = (left.square() * weights[groups]).sum(-1) + mean.square().sum(-1)
    volume = log_volume(factor) + observed @ factors.scales.log().mT
    return mean, lambda: torch.cholesky_inverse(factor), volume, distance


def _on_leaf_side(factors: Factors, residual: Tensor, observed: Tensor, groups: Tensor) -> Solution:
    loadings, innovations = factors.loadings, factors.loadings.shape[-1]
    pairs = observed[:, None, :, None] * observed[:, None, None, :]
    whole = loadings @ loadings.mT + factors.scales.square().diag_embed()
    factor = torch.linalg.cholesky(pairs * whole + (1.0 - observed).diag_embed()[:, None])
    seen = loadings * observed[:, None, :, None]
    solved = _solve(factor, residual, groups)
    mean = torch.einsum("nck,cki->nci", solved, loadings)

    def spread() -> Tensor:
        half = torch.linalg.solve_triangular(factor, seen, upper=False)
        identity = torch.eye(innovations, dtype=residual.dtype, device=residual.device)
        result: Tensor = identity - half.mT @ half
        return result

    return mean, spread, log_volume(factor), (solved * residual).sum(-1)


def _solve(factor: Tensor, vectors: Tensor, groups: Tensor) -> Tensor:
    """The inverse of L L' times the vector of each row, `(rows, components, n)`."""
    if len(factor) == len(vectors):
        return torch.cholesky_solve(vectors[..., None], factor)[..., 0]
    return by_group(torch.cholesky_inverse(factor), vectors, groups)


def _weighted_squares(loadings: Tensor, weights: Tensor) -> Tensor:
    """L' diag(w) L for every group and component."""
    components, columns, innovations = loadings.shape
    if innovations > len(weights):
        return (loadings * weights[..., None]).mT @ loadings
    squares = loadings[..., :, None] * loadings[..., None, :]
    flat = squares.reshape(components, columns, innovations * innovations)
    result: Tensor = (weights.movedim(1, 0) @ flat).movedim(0, 1)
    return cast(Tensor, result.unflatten(-1, (innovations, innovations)))


def by_group(matrices: Tensor, vectors: Tensor, groups: Tensor) -> Tensor:
    """The matrix of each row's group times the row's vector, `(rows, components, n)`."""
    if len(matrices) == 1:
        return torch.einsum("cij,ncj->nci", matrices[0], vectors)
    return (matrices[groups] @ vectors[..., None])[..., 0]


def _pack(seen: Tensor) -> Tensor:
    """Masks as integers of 62 bits, `(rows, words)`."""
    words = seen.split(62, dim=1)
    bits = 2 ** torch.arange(62, device=seen.device)
    return torch.stack([(word * bits[: word.shape[1]]).sum(1) for word in words], dim=1)
