"""Where the randomness of drawn states comes from, and Normal densities of states."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vfg.distributions.priors import HALF_LOG_TWO_PI
from vfg.passing.schedule import Schedule
from vfg.utils.linalg import factored_solve
from vfg.utils.random import normal

Noise = Callable[[int, Tensor], Tensor]
"""Standard Normal numbers for the block at an index, in the shape, dtype and place of a tensor
`(nodes, draws, rows, numbers)`."""


def no_noise(block: int, like: Tensor) -> Tensor:
    """No noise: every draw is at its centre."""
    return torch.zeros_like(like)


def generated_noise(generator: torch.Generator | None) -> Noise:
    """From a generator on the device of the model, in the order in which blocks are drawn.

    None stands for torch's global generator, the only one that compiled code can draw from.
    """

    def noise(block: int, like: Tensor) -> Tensor:
        if generator is None:
            return torch.randn_like(like)
        return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)

    return noise


def counted_noise(schedule: Schedule, row_ids: Tensor, draws: Tensor, seed: int) -> Noise:
    """Numbers that depend on seed, row id, draw, node and coordinate, and on nothing else."""
    order = {node.name: place for place, node in enumerate(schedule.graph.nodes)}

    def noise(block: int, like: Tensor) -> Tensor:
        nodes, _, _, width = like.shape
        places = torch.tensor([order[name] for name in schedule.blocks[block].nodes])
        coordinates = torch.arange(width).repeat(nodes)
        numbers = normal(seed, row_ids, draws, places.repeat_interleave(width), coordinates)
        return numbers.view(*numbers.shape[:2], nodes, width).movedim(2, 0).to(like)

    return noise


Solve = Callable[[Tensor, Tensor], Tensor]


def add_diagonal(precision: Tensor, vector: Tensor, diagonal: Tensor) -> Tensor:
    """Λ + D for a diagonal D, whether Λ is a matrix or itself a diagonal like `vector`."""
    return precision + (diagonal if precision.ndim == vector.ndim else torch.diag_embed(diagonal))


def factorise(precision: Tensor, vector: Tensor) -> Tensor:
    """L with L Lᵀ = Λ: the root of a diagonal, or a Cholesky factor."""
    if precision.ndim == vector.ndim:
        return precision.sqrt()
    # cholesky_ex does not look at the result, so nothing waits for the device.
    factor: Tensor = torch.linalg.cholesky_ex(precision)[0]
    return factor


def solve_factored(factor: Tensor, vector: Tensor) -> Tensor:
    """Λ⁻¹ v."""
    if factor.ndim == vector.ndim:
        return vector / factor.square()
    return _by_columns(factor, vector, factored_solve)


def scale_noise(factor: Tensor, noise: Tensor) -> Tensor:
    """L⁻ᵀ ε, whose covariance is Λ⁻¹ if that of ε is the identity."""
    if factor.ndim == noise.ndim:
        return noise / factor
    return _by_columns(
        factor,
        noise,
        lambda left, right: torch.linalg.solve_triangular(left.mT, right, upper=True),
    )


def unscale(factor: Tensor, scaled: Tensor) -> Tensor:
    """Lᵀ x, which undoes `scale_noise`."""
    if factor.ndim == scaled.ndim:
        return scaled * factor
    return (factor.mT @ scaled[..., None])[..., 0]


def log_density(factor: Tensor, noise: Tensor) -> Tensor:
    """log of the density of L⁻ᵀ ε in parts that sum over coordinates, shaped like ε."""
    is_diagonal = factor.ndim == noise.ndim
    scale = factor if is_diagonal else factor.diagonal(dim1=-2, dim2=-1)
    return scale.log() - 0.5 * noise.square() - HALF_LOG_TWO_PI


def pass_through_noise(
    information: Tensor, precision: Tensor, above: Tensor
) -> tuple[Tensor, Tensor]:
    r"""(η, Λ) of the mean of a state, given those of the state, whose noise has the precision S.

    $(S (\Lambda + S)^{-1} \eta, S (\Lambda + S)^{-1} \Lambda)$, which is 0 if Λ is.
    """
    if precision.ndim == information.ndim:
        share = above / (precision + above)
        return share * information, share * precision
    factor = factorise(add_diagonal(precision, information, above), information)
    carried = above[..., None] * factored_solve(factor, precision)
    eta = above * factored_solve(factor, information[..., None])[..., 0]
    return eta, 0.5 * (carried + carried.mT)


def _by_columns(factor: Tensor, vector: Tensor, solve: Solve) -> Tensor:
    if factor.shape[1] == vector.shape[1]:
        return solve(factor, vector[..., None])[..., 0]
    together = vector.movedim(1, -1)
    return solve(factor[:, 0], together).movedim(-1, 1)
