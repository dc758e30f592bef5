"""How wide draws are: as wide as errors at cells that were kept from the models."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vfg.tables.cells import Array

DRAWS = 8
"""How many draws of every kind the spread of draws is fitted to."""
PRIOR = 20.0
"""How many cells of unit variance the spread of all columns weighs in that of one."""
SPREADS = (0.5, 2.0)
"""The least and the most by which draws are drawn together or apart."""
TAIL = 0.9
"""The share of draws, and of errors, that should lie equally far out."""
TAILS = (0.8, 1.1)
"""The least and the most by which the spread gives way to that."""
FEWEST_CELLS = 100
"""Below so many kept cells their tail is not looked at."""
LEAST = 1e-6
"""Deviations below this are none."""


def mean_of_draws(found: Tensor, shares: Tensor) -> Tensor:
    """The mean over kinds, by their shares, and draws of `(kinds, draws, ...)`.

    Example:
        >>> found = torch.tensor([[[1.0], [3.0]], [[10.0], [10.0]]])
        >>> mean_of_draws(found, torch.tensor([0.75, 0.25])).tolist()
        [4.0]
    """
    return torch.einsum("k,kd...->...", shares / found.shape[1], found)


def spread_factors(errors: Tensor, drawn: Tensor) -> Tensor:
    """The factor that makes draws as wide as errors, by column.

    Args:
        errors: sums of their squares.
        drawn: sums of squares of what draws differ by from their mean.

    Example:
        >>> errors, drawn = torch.tensor([4000.0, 1000.0]), torch.tensor([4000.0, 2000.0])
        >>> spread_factors(errors, drawn).round(decimals=2).tolist()
        [1.0, 0.71]
    """
    if not bool(drawn.sum() > 0):
        # No kept cells, or nobody who drew them.
        return torch.ones_like(errors)
    pooled = errors.sum() / drawn.sum().clamp(min=1e-9)
    share = (errors + PRIOR * pooled) / (drawn + PRIOR)
    return share.clamp(min=0.0).sqrt().clamp(*SPREADS)


def tails_of(errors: Tensor, drawn: Tensor, shares: Tensor) -> float:
    """By how much intervals that hold 90 % should be wider or narrower than variances say.

    Errors often have heavier tails than draws; draws of their variance then hold too many of them.
    Both are compared in units of the deviation of a cell's draws.

    Args:
        errors: at kept cells, `(cells,)`.
        drawn: what draws differ by from their mean there, `(kinds, draws, cells)`.
        shares: of the kinds.

    Example:
        >>> drawn = torch.linspace(-1.0, 1.0, 8).expand(200, 8).T[None]
        >>> few_are_large = torch.where(torch.arange(200) < 10, 9.0, 1.0)
        >>> tails_of(few_are_large, drawn, torch.ones(1))
        0.8
    """
    deviations = mean_of_draws(drawn.square(), shares).sqrt()
    told = deviations > LEAST
    if int(told.sum()) < FEWEST_CELLS:
        return 1.0
    missed = (errors[told] / deviations[told]).abs().numpy()
    distances = (drawn[..., told] / deviations[told]).abs().numpy()
    weighing = np.broadcast_to(shares[:, None, None].numpy(), distances.shape)
    ours = _far_out(missed, np.ones_like(missed))
    theirs = _far_out(distances.ravel(), weighing.ravel())
    return float(np.clip(ours / max(theirs, LEAST), *TAILS))


def _far_out(distances: Array, weighing: Array) -> float:
    """How far out the `TAIL` of distances lies, in units of their root mean square."""
    order = np.argsort(distances)
    below = np.cumsum(weighing[order])
    end = order[np.searchsorted(below, TAIL * below[-1])]
    scale = np.sqrt(np.average(np.square(distances), weights=weighing))
    return float(distances[end] / max(scale, LEAST))
