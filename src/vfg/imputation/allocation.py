"""Who draws, and how often: the parts of a table's model take turns by their weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

GOLDEN = 0.6180339887498949
"""Its multiples come to everyone as often as they should, however many there are."""


def drawing_shares(weights: Tensor) -> Tensor:
    """How often members, mixtures, linear model and neighbours draw, from the weights of `KINDS`.

    Example:
        >>> drawing_shares(torch.tensor([0.5, 0.0, 0.0, 0.2, 0.3])).tolist()
        [0.5, 0.0, 0.0, 0.5]
        >>> drawing_shares(torch.zeros(5)).tolist()
        [0.0, 0.0, 1.0, 0.0]
    """
    shares = torch.cat([weights[:3], weights[3:].sum(0, keepdim=True)])
    if float(shares.sum()) < 1e-3:
        # Nothing says anything beyond the means: the linear model, about the means.
        shares = torch.tensor([0.0, 0.0, 1.0, 0.0]).to(weights)
    return shares / shares.sum()


def corrected_share(weights: Tensor) -> float:
    """How much of the correction of neighbours counts, from the weights of `KINDS`.

    Example:
        >>> corrected_share(torch.tensor([0.0, 0.0, 0.0, 0.1, 0.3]))
        0.75
    """
    plain, corrected = weights[3:].tolist()
    return float(corrected / (plain + corrected)) if plain + corrected > 0 else 1.0


def allocate_draws(weights: Tensor, counts: Sequence[int], number: int) -> dict[int, list[int]]:
    """Which draws each part makes, by its place among members, mixtures, linear, neighbours.

    The first turns are the same for every number.

    Args:
        weights: of the `KINDS`.
        counts: how many members, mixtures, linear models and neighbours there are.
        number: of draws.

    Example:
        >>> allocate_draws(torch.tensor([0.5, 0.0, 0.0, 0.0, 0.5]), [1, 0, 1, 2], 8)
        {0: [1, 3, 6], 2: [0, 2, 5], 3: [4, 7]}
    """
    shares = [
        float(share) / count
        for share, count in zip(drawing_shares(weights), counts, strict=True)
        for _ in range(count)
    ]
    ends = np.cumsum(shares)
    levels = (0.5 + np.arange(number) * GOLDEN) % 1.0 * ends[-1]
    who = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
    return {int(part): np.flatnonzero(who == part).tolist() for part in np.unique(who)}
