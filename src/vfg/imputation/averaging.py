"""What averaging does: how much less means of several parts vary than the parts."""

from __future__ import annotations

import torch
from torch import Tensor

PRIOR = 20.0
"""How many products of unit variance count for averaging that changes nothing."""


def averaging_of(single: Tensor, mean: Tensor) -> Tensor:
    r"""What averaging over parts does to products of what single ones say: $L$ with $L S L^T = M$.

    Args:
        single: $S$, sums of products of what single parts say, `(kinds, kinds)`.
        mean: $M$, the same of the means of all parts.

    Returns:
        $L$, which makes nothing larger, and less of a difference the fewer products there are.

    Example:
        >>> single = torch.tensor([[8e6, 2e6], [2e6, 2e6]], dtype=torch.float64)
        >>> mean = torch.tensor([[4e6, 2e6], [2e6, 2e6]], dtype=torch.float64)
        >>> averaging = averaging_of(single, mean)
        >>> (averaging @ single @ averaging.T / 1e6).round(decimals=3).tolist()
        [[4.0, 2.0], [2.0, 2.0]]
    """
    prior = PRIOR * torch.eye(len(single), dtype=single.dtype)
    root = torch.linalg.cholesky(single + prior)
    inner = torch.linalg.solve_triangular(root, mean + prior, upper=False)
    inner = torch.linalg.solve_triangular(root, inner.mT, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (inner + inner.mT))
    half = vectors * values.clamp(0.0, 1.0).sqrt() @ vectors.mT
    found: Tensor = torch.linalg.solve_triangular(root, root @ half, upper=False, left=False)
    return found
