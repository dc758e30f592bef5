"""Systems of linear equations with many small positive matrices, and means in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)
"""Whether a program is traced to leave Python; torch 2.6 does not say so."""


def mean_in_order(tables: Sequence[Tensor] | Tensor) -> Tensor:
    """The mean of tables of one shape, added up one by one.

    The bits of `torch.mean` depend on the number of rows on some processors; these do not.

    Example:
        >>> mean_in_order(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        tensor([2., 4.])
    """
    total = tables[0]
    for table in tables[1:]:
        total = total + table
    return total / len(tables)


def positive_solve(matrix: Tensor, right: Tensor) -> Tensor:
    r"""$A^{-1} b$ for symmetric positive A `(..., width, width)`, by one Cholesky factor each.

    The derivative $\bar b = A^{-1} \bar x$, $\bar A = -\bar b x^\top$ uses the same factor again;
    deriving the factorisation itself would take several times as long. Positivity is not
    checked, which would wait for the device: without it the solution is meaningless.

    Example:
        >>> positive_solve(torch.tensor([[[2.0, 1.0], [1.0, 2.0]]]), torch.tensor([[3.0, 3.0]]))
        tensor([[1., 1.]])
    """
    if is_exporting():  # other runtimes have no Cholesky factors
        return (invert(matrix)[0] @ right[..., None])[..., 0]
    solution: Tensor = _PositiveSolve.apply(matrix, right)  # type: ignore[no-untyped-call]
    return solution


class _PositiveSolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, right: Tensor) -> Tensor:
        factor: Tensor = torch.linalg.cholesky_ex(matrix).L
        solution = _substitute(factor, right)
        ctx.save_for_backward(matrix, factor, solution)
        return solution

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        matrix, factor, solution = ctx.saved_tensors
        # Compiled programs need no second derivative.
        again = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        right = positive_solve(matrix, *gradients) if again else _substitute(factor, *gradients)
        return -right[..., :, None] * solution[..., None, :], right


def _substitute(factor: Tensor, right: Tensor) -> Tensor:
    """The solutions from the factors."""
    return factored_solve(factor, right[..., None])[..., 0]


def factored_solve(factor: Tensor, right: Tensor) -> Tensor:
    r"""$(L L^\top)^{-1} B$ for lower factors L `(..., width, width)` and sides B in columns.

    Example:
        >>> factored_solve(2.0 * torch.eye(2), torch.ones(2, 1))
        tensor([[0.2500],
                [0.2500]])
    """
    if factor.device.type != "cuda":
        return torch.cholesky_solve(right, factor)
    # On GPUs cholesky_solve allocates in a way that CUDA graphs do not allow.
    half = torch.linalg.solve_triangular(factor, right, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return solved


def invert(matrices: Tensor) -> tuple[Tensor, Tensor]:
    r"""Inverses and log-determinants of symmetric positive matrices `(..., n, n)`, unrolled.

    Matrices are scaled to unit diagonals. Then n sweeps $B \leftarrow B - (b_k - e_k)(b_k' +
    e_k)^\top / B_{kk}$, with $b_k$ and $b_k'$ the k-th column and row, turn each into its inverse.
    It takes longer than a Cholesky factor, but consists of operations that every runtime has.

    Example:
        >>> inverse, log_determinant = invert(torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double())
        >>> inverse.round(decimals=4), round(log_determinant.exp().item(), 4)
        (tensor([[ 0.6667, -0.3333],
                [-0.3333,  0.6667]], dtype=torch.float64), 3.0)
    """
    size = matrices.shape[-1]
    root = matrices.diagonal(dim1=-2, dim2=-1).sqrt()
    scales = root[..., :, None] * root[..., None, :]
    inverse, log_volume = matrices / scales, 2.0 * root.log().sum(-1)
    unit = torch.eye(size, dtype=matrices.dtype)
    pivots = []
    for k in range(size):
        row, column = inverse.narrow(-2, k, 1), inverse.narrow(-1, k, 1)
        pivots.append(row.narrow(-1, k, 1))
        along, across = unit.narrow(0, k, 1), unit.narrow(1, k, 1)
        inverse = inverse - (column - across) * ((row + along) / pivots[-1])
    log_volume = log_volume + torch.cat(pivots, dim=-1).log().sum(-1)[..., 0]
    return inverse / scales, log_volume
