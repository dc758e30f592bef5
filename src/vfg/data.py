"""Data for examples, experiments and tests; everything here needs no download."""

from __future__ import annotations

import torch
from torch import Tensor


def synthetic(rows: int = 1300, *, seed: int = 0) -> Tensor:
    r"""The eight columns of the paper's first experiment.

    With $z_1 \sim N(0, 1)$ and $z_2 \sim N(1, 2^2)$: $x_1 = x_2 = z_1$, $x_3 = x_4 = 2 \sin z_1$,
    $x_5 = x_6 = z_2$ and $x_7 = x_8 = z_2^2$.

    Args:
        rows: how many.
        seed: of the draws.

    Returns:
        A table `(rows, 8)`.

    Example:
        >>> synthetic(5).shape
        torch.Size([5, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(rows, generator=generator)
    second = 1.0 + 2.0 * torch.randn(rows, generator=generator)
    columns = [first, 2.0 * first.sin(), second, second.square()]
    return torch.stack([column for column in columns for _ in range(2)], dim=1)
