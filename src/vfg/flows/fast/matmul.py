"""Many rows times small matrices, whose derivatives by the matrices are long sums.

Such a sum has few results: in one piece few of a GPU's processors would work on it, so there the
rows are cut into parts, each with a copy of the matrix, and the copies' derivatives are added.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vfg.flows.fast.precision import product

PRODUCTS = 1024
"""How many parts there are at most, of all stacks together."""
ROWS = 512
"""How many rows a part has at least."""


def times(x: Tensor, matrices: Tensor, precision: str = "float32") -> Tensor:
    """`x (stack, rows, a)` times `matrices (stack, a, b)`.

    Example:
        >>> times(torch.ones(1, 2, 3), torch.ones(1, 3, 1)).flatten()
        tensor([3., 3.])
    """
    learns = torch.is_grad_enabled() and matrices.requires_grad
    parts = parts_of(x.shape[0], x.shape[1]) if x.is_cuda and learns else 1
    return times_in_parts(x, matrices, precision, parts)


def times_in_parts(x: Tensor, matrices: Tensor, precision: str, parts: int) -> Tensor:
    """`times` with the rows cut into so many equal parts.

    Example:
        >>> times_in_parts(torch.ones(1, 4, 3), torch.ones(1, 3, 1), "float32", 2).flatten()
        tensor([3., 3., 3., 3.])
    """
    if parts == 1:
        return product(x, matrices, precision)
    stack, rows, a = x.shape
    copies = matrices[:, None].expand(-1, parts, -1, -1).flatten(0, 1)
    pieces = x.reshape(stack * parts, rows // parts, a)
    return product(pieces, copies, precision).view(stack, rows, matrices.shape[2])


def over_rows(left: Tensor, right: Tensor) -> Tensor:
    """`(stack, a, rows)` times `(stack, rows, b)`, on a GPU in parts that are added afterwards."""
    stack, a, rows = left.shape
    parts = parts_of(stack, rows) if left.is_cuda else 1
    if parts == 1:
        return torch.bmm(left, right)
    pieces = left.unflatten(2, (parts, -1)).transpose(1, 2).reshape(stack * parts, a, -1)
    products = torch.bmm(pieces, right.reshape(stack * parts, -1, right.shape[2]))
    return products.view(stack, parts, a, -1).sum(1)


def parts_of(stack: int, rows: int) -> int:
    """How many equal parts a sum over rows is cut into.

    Example:
        >>> parts_of(4, 4096), parts_of(4, 1000), parts_of(1024, 4096)
        (8, 1, 1)
    """
    parts = 1
    while rows % (2 * parts) == 0 and rows >= 2 * ROWS * parts and stack * parts < PRODUCTS:
        parts *= 2
    return parts
