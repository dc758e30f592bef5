"""Maps of leaves fitted with everything else: exact gradients for them, M-steps for the rest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.gaussian.em.general import Chunk, chunks_of, e_step_with_pulls, mask_order
from vfg.gaussian.em.m_step import m_step
from vfg.gaussian.parameters import Values

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

POINTS = 256
"""Quantiles that stand for a column while its map is made Normal."""
NORMAL_STEPS = 60
RATE = 0.1
"""How far a coordinate of a map moves in one step at first."""
PATIENCE = 10
"""Steps between two looks at the score; the rate halves if it has hardly grown."""
LEAST_RATE = 0.01
STIFFNESS = 8.0
"""Precision of the prior of a map's raw numbers, which keeps sparse tails from turning steep."""
SLOW = 10
"""How much less than a step of EM a step may gain for its cost: maps bend on and on."""


class Adam:
    """Adam with its usual averages, for a few small tensors.

    `torch.optim` imports a compiler when it is first used, which takes longer than most fits.

    Args:
        parameters: what is changed in place by `step`, after which gradients are gone.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> optimiser = Adam([x])
        >>> for _ in range(100):
        ...     x.square().sum().backward()
        ...     optimiser.step(0.1)
        >>> bool(x.abs() < 0.1)
        True
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self, rate: float, kept: float = 0.9, kept_squares: float = 0.99) -> None:
        """Move against the gradients."""
        self.steps += 1
        moments = zip(self.parameters, self.means, self.squares, strict=True)
        for parameter, mean, square in moments:
            if parameter.grad is None:
                continue
            mean.lerp_(parameter.grad, 1.0 - kept)
            square.lerp_(parameter.grad.square(), 1.0 - kept_squares)
            size = (square / (1.0 - kept_squares**self.steps)).sqrt() + 1e-10
            parameter.sub_(rate / (1.0 - kept**self.steps) * mean / size)
            parameter.grad = None


def make_normal(model: GaussianVFG, cells: Tensor, seen: Tensor) -> None:
    """Make every leaf on its own as Normal as its map can.

    Args:
        model: whose maps are changed.
        cells: scaled cells `(rows, columns)`.
        seen: which of them are observed.
    """
    rows = max(len(cells), 1)
    if model.leaves.is_elementwise:
        cells, seen = _quantiles(cells, seen), seen.new_ones(POINTS, cells.shape[1])
    optimiser = Adam(model.leaves.parameters())
    for step in range(NORMAL_STEPS):
        values, log_slopes = model.leaves(cells, seen)
        loss = (0.5 * values.square() * seen - log_slopes).sum() / len(cells)
        (loss + _bentness(model) / rows).backward()
        optimiser.step(RATE * (1.0 - step / NORMAL_STEPS))


def bend(
    model: GaussianVFG,
    cells: Tensor,
    seen: Tensor,
    *,
    steps: int,
    tolerance: float,
    shrinkage: float,
    score: Callable[[], float] | None,
) -> list[float]:
    """Ascend in the maps of the leaves and in all other parameters at once.

    The derivative of log p by a leaf's value is what its expected causes leave unexplained over
    the noise's variance, so one E-step serves both the gradient of the maps and the M-step.

    Args:
        model: fitted by EM with its maps as they are; it ends in the best state seen.
        cells: scaled cells `(rows, columns)`.
        seen: which of them are observed.
        steps: how many, at the most.
        tolerance: gain per step below which the steps become smaller, then end.
        shrinkage: as in `m_step`.
        score: of the model as it stands, which decides; None means the likelihood.

    Returns:
        The log-likelihoods per row in data units, every tenth step.
    """
    order = mask_order(seen)
    cells, seen = cells[order], seen[order]
    chunks = chunks_of(model.structure, model.components, cells, seen)
    optimiser, rate = Adam(model.leaves.parameters()), RATE
    values = _detached(model.linear.values())
    best, state, trace = -math.inf, copy.deepcopy(model.state_dict()), list[float]()
    for step in range(steps + 1):
        log_likelihood, following = _step(model, values, cells, seen, chunks, shrinkage)
        if step % PATIENCE == 0 or step == steps:
            trace.append(log_likelihood)
            model.linear.assign(values)
            reached = log_likelihood if score is None else score()
            rate = rate if reached > best + SLOW * PATIENCE * tolerance else 0.5 * rate
            if reached > best:
                best, state = reached, copy.deepcopy(model.state_dict())
            if rate < LEAST_RATE:
                break
        values = following
        optimiser.step(rate)
    model.load_state_dict(state)
    return trace


def _step(
    model: GaussianVFG,
    values: Values,
    cells: Tensor,
    seen: Tensor,
    chunks: list[Chunk],
    shrinkage: float,
) -> tuple[float, Values]:
    """log p per row of what is, gradients for the maps, and the values that should follow."""
    leaves, log_slopes = model.leaves(cells, seen)
    with torch.no_grad():
        parts = leaves.detach().split([len(chunk.values) for chunk in chunks])
        here = [Chunk(part, chunk.masks) for part, chunk in zip(parts, chunks, strict=True)]
        expected, pulls = e_step_with_pulls(model.structure, values, here)
        following = m_step(model.linear, values, expected, shrinkage)
        total = expected.log_likelihood + log_slopes.sum() - model.log_volumes(seen).sum()
    rows = max(len(cells), 1)
    ((_bentness(model) - (pulls * leaves + log_slopes).sum()) / rows).backward()
    return float(total) / rows, following


def _bentness(model: GaussianVFG) -> Tensor:
    """Minus the logarithm of a Normal prior around maps that do not bend."""
    squares = [
        layer.square().sum() for name, layer in model.leaves.named_parameters() if "raw_" in name
    ]
    return 0.5 * STIFFNESS * torch.stack(squares).sum() if squares else torch.zeros(())


def _detached(values: Values) -> Values:
    return Values(*(value.detach() for value in values))


def _quantiles(cells: Tensor, seen: Tensor) -> Tensor:
    """Equally probable points of every column, `(POINTS, columns)`."""
    levels = (torch.arange(POINTS, dtype=cells.dtype, device=cells.device) + 0.5) / POINTS
    known = torch.where(seen, cells, torch.nan)
    return known.nanquantile(levels, dim=0).nan_to_num(0.0)
