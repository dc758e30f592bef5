"""Invertible linear maps: scales, permutations, LU factors, products of reflections."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vfg.flows.base import Flow
from vfg.flows.checks import check_count, private_generator, without_autocast
from vfg.flows.fast.primitives import times
from vfg.utils.linalg import is_exporting


class ElementwiseAffine(Flow):
    r"""A positive scale and a shift per edge and coordinate.

    $y = x \, e^{\text{log\_scale}} + \text{shift}$, the identity at the start.

    Example:
        >>> flow = ElementwiseAffine(1, 2)
        >>> _ = torch.nn.init.constant_(flow.shift, 3.0)
        >>> flow(torch.zeros(1, 1, 2))
        (tensor([[[3., 3.]]], grad_fn=<AddBackward0>), tensor([[0.]], grad_fn=<ExpandBackward0>))
    """

    def __init__(self, edges: int, width: int) -> None:
        super().__init__(edges, width)
        self.log_scale = nn.Parameter(torch.zeros(edges, width))
        self.shift = nn.Parameter(torch.zeros(edges, width))

    def linear_part(self) -> Tensor:
        """The scales on the diagonal."""
        return self.log_scale.exp().diag_embed()

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self._parameters_like(x)
        return x * log_scale.exp() + shift, log_scale.sum(-1).expand(-1, x.shape[1])

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self._parameters_like(y)
        return (y - shift) * (-log_scale).exp(), -log_scale.sum(-1).expand(-1, y.shape[1])

    def _parameters_like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_scale.to(x.dtype).unsqueeze(1), self.shift.to(x.dtype).unsqueeze(1)


class ActivationNormalisation(ElementwiseAffine):
    """An elementwise affine flow whose first batch comes out with mean 0 and variance 1.

    Until `initialise` is called it is the identity; afterwards scale and shift are learned like any
    other parameters. A coordinate that is constant over the batch is centred and keeps its scale.

    Example:
        >>> flow = ActivationNormalisation(1, 1)
        >>> flow.initialise(torch.tensor([[[1.0], [3.0], [5.0], [7.0]]])).var(correction=0).round()
        tensor(1.)
    """

    def _initialise(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(x, dim=1, correction=0)
        # Rounding alone gives a constant coordinate a deviation of a few units in the last place.
        noise = 16 * torch.finfo(x.dtype).eps * mean.abs() + torch.finfo(x.dtype).tiny
        log_scale = torch.where(deviation > noise, -deviation.clamp_min(noise).log(), 0.0)
        self.log_scale.copy_(log_scale)
        self.shift.copy_(-mean * log_scale.exp())
        return self._forward(x)[0]


FEW = 4
"""Up to this many reflections, substitution is faster than a triangular solver."""
NARROW = 64
"""Up to this width a product with a whole matrix takes no longer than reading the states."""


class Permutation(Flow):
    r"""A fixed reordering of the coordinates, $y_i = x_{\text{order}_i}$.

    Args:
        edges, width: of the stack, as in `Flow`.
        order: the coordinates in their new order, `(width,)` or one order per edge
            `(edges, width)`; None reverses them.

    Raises:
        ValueError: if `order` is not a permutation of the coordinates.

    Example:
        >>> Permutation(1, 3, order=[2, 0, 1])(torch.tensor([[[10.0, 11.0, 12.0]]]))[0]
        tensor([[[12., 10., 11.]]])
    """

    order: Tensor

    def __init__(self, edges: int, width: int, order: Tensor | Sequence[int] | None = None) -> None:
        super().__init__(edges, width)
        given = torch.arange(width).flip(0) if order is None else torch.as_tensor(order)
        coordinates = torch.arange(width, device=given.device)
        fits = tuple(given.shape) in [(width,), (edges, width)]
        if not fits or not bool((given.sort(-1).values == coordinates).all()):
            raise ValueError(
                f"Permutation expects an order of the coordinates 0 to {width - 1}, of shape "
                f"({width},) or ({edges}, {width}), but got {given.tolist()}"
            )
        self.register_buffer("order", given.long().expand(edges, width).clone())

    def linear_part(self) -> Tensor:
        """The permutation matrix of each edge."""
        return functional.one_hot(self.order, self.width).to(torch.get_default_dtype())

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return _reorder(x, self.order), x.new_zeros(x.shape[:-1])

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return _reorder(y, self.order.argsort(-1)), y.new_zeros(y.shape[:-1])


class LULinear(Flow):
    r"""A full matrix per edge, kept as triangular factors, plus a shift.

    $y = P L U x + b$ with $P$ a fixed permutation, $L$ unit lower triangular and $U$ upper
    triangular with the diagonal $\pm e^{d}$, so no step of an optimiser can make it singular. It
    starts as the identity. `factors` packs all three: $L$ below its diagonal, $d$ on it, $U$ above.

    Args:
        edges, width: of the stack, as in `Flow`.
        bias: whether there is a shift.

    Example:
        >>> flow = LULinear(1, 2)
        >>> flow.set_matrix(torch.tensor([[[0.0, 2.0], [1.0, 0.0]]]))
        >>> flow(torch.tensor([[[3.0, 5.0]]]))[0]
        tensor([[[10.,  3.]]], grad_fn=<BaddbmmBackward0>)
    """

    sign: Tensor
    order: Tensor

    def __init__(self, edges: int, width: int, *, bias: bool = True) -> None:
        super().__init__(edges, width)
        self.factors = nn.Parameter(torch.zeros(edges, width, width))
        self.shift = nn.Parameter(torch.zeros(edges, width)) if bias else None
        self.register_buffer("sign", torch.ones(edges, width))
        self.register_buffer("order", torch.arange(width).repeat(edges, 1))

    @torch.no_grad()
    def set_matrix(self, matrix: Tensor, shift: Tensor | None = None) -> None:
        """Load invertible matrices, factorised with pivoting, and a shift.

        Args:
            matrix: the matrices $W$ of $y = W x + b$, shape `(edges, width, width)`.
            shift: the vectors $b$, shape `(edges, width)`; None sets them to zero.

        Raises:
            ValueError: if a shape is wrong, a matrix is singular or not finite, or a shift is
                given to a flow that was built with `bias=False`.
        """
        self._check_matrix(matrix, shift)
        permutation, lower, upper = torch.linalg.lu(matrix.double())
        diagonal = upper.diagonal(dim1=-2, dim2=-1)
        bad = ~((diagonal != 0) & diagonal.isfinite()).all(-1)
        if bad.any():
            raise ValueError(
                f"LULinear.set_matrix expects invertible finite matrices, but those of the edges "
                f"{bad.nonzero().flatten().tolist()} are not"
            )
        log_diagonal = diagonal.abs().log().diag_embed()
        self.factors.copy_(lower.tril(-1) + log_diagonal + upper.triu(1))
        self.sign.copy_(diagonal.sign())
        self.order.copy_(permutation.argmax(-1))
        if self.shift is not None:
            self.shift.copy_(torch.zeros_like(self.shift) if shift is None else shift)

    def linear_part(self) -> Tensor:
        """The matrices $P L U$."""
        return self._matrix(self.factors.dtype)

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        matrix = self._matrix(x.dtype)
        with without_autocast(x):
            if x.is_cuda:
                return self._shift_like(x) + times(x, matrix.mT), self._log_det(x)
            y = torch.baddbmm(self._shift_like(x), x, matrix.mT)
        return y, self._log_det(x)

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self._lower_upper(y.dtype)
        x = _reorder(y - self._shift_like(y), self.order.argsort(-1))
        if is_exporting():  # other runtimes solve no triangular systems
            unit = torch.eye(self.width, dtype=y.dtype).expand_as(lower)
            inner = torch.linalg.solve_triangular(lower.mT, unit, upper=True, unitriangular=True)
            return x @ inner @ torch.linalg.inv(upper.mT), -self._log_det(y)
        x = torch.linalg.solve_triangular(lower.mT, x, upper=True, left=False, unitriangular=True)
        x = torch.linalg.solve_triangular(upper.mT, x, upper=False, left=False)
        return x, -self._log_det(y)

    def _lower_upper(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        factors = self.factors.to(dtype)
        unit = torch.eye(self.width, dtype=dtype, device=factors.device)
        diagonal = self.sign.to(dtype) * factors.diagonal(dim1=-2, dim2=-1).exp()
        return factors.tril(-1) + unit, factors.triu(1) + diagonal.diag_embed()

    def _matrix(self, dtype: torch.dtype) -> Tensor:
        lower, upper = self._lower_upper(dtype)
        with without_autocast(lower):
            return (lower @ upper).take_along_dim(self.order.unsqueeze(-1), dim=-2)

    def _log_det(self, x: Tensor) -> Tensor:
        log_diagonal = self.factors.to(x.dtype).diagonal(dim1=-2, dim2=-1)
        return log_diagonal.sum(-1, keepdim=True).expand(-1, x.shape[1])

    def _shift_like(self, x: Tensor) -> Tensor:
        if self.shift is None:
            return x.new_zeros(self.edges, 1, self.width)
        return self.shift.to(x.dtype).unsqueeze(1)

    def _check_matrix(self, matrix: Tensor, shift: Tensor | None) -> None:
        if shift is not None and self.shift is None:
            raise ValueError(
                "LULinear.set_matrix got a shift for a flow without one; build it with bias=True"
            )
        shape = (self.edges, self.width, self.width)
        for what, given, expected in (("matrices", matrix, shape), ("shifts", shift, shape[:2])):
            if given is not None and tuple(given.shape) != expected:
                raise ValueError(
                    f"LULinear.set_matrix expects {what} of shape {expected}, "
                    f"but got {tuple(given.shape)}"
                )


class Householder(Flow):
    r"""An orthogonal matrix per edge, a product of reflections.

    $y = H_1 H_2 \cdots H_r x$ with $H = I - 2 v v^\top / v^\top v$; a vector of length zero
    reflects nothing. The vectors start in equal pairs, whose reflections cancel, so an even number
    of them starts as the identity. All reflections are applied at once, as $I - V^\top S^{-1} V$
    with the unit vectors as rows of $V$ and $S$ upper triangular: $1/2$ on the diagonal and
    $V V^\top$ above.

    Args:
        edges, width: of the stack, as in `Flow`.
        reflections: number of reflections; None means the largest even number up to the width, at
            least 2, which is enough for every rotation.
        generator: source of the random start; None means a fresh one with seed 0.

    Raises:
        TypeError, ValueError: if `reflections` is not an integer above 0.

    Example:
        >>> matrix = Householder(1, 3, reflections=1).linear_part()
        >>> torch.allclose(matrix @ matrix, torch.eye(3), atol=1e-6)
        True
    """

    def __init__(
        self,
        edges: int,
        width: int,
        *,
        reflections: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(edges, width)
        if reflections is None:
            reflections = max(2, width - width % 2)
        check_count("Householder", "reflections", reflections, 1)
        generator, pairs = private_generator(generator), (reflections + 1) // 2
        start = torch.randn(edges, pairs, width, generator=generator, device=generator.device)
        self.vectors = nn.Parameter(start.repeat_interleave(2, dim=1)[:, :reflections].clone())

    def linear_part(self) -> Tensor:
        """The orthogonal matrices."""
        unit, mixed = self._factors(self.vectors.dtype)
        identity = torch.eye(self.width, dtype=unit.dtype, device=unit.device)
        with without_autocast(unit):
            return identity - unit.mT @ mixed

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        unit, mixed = self._factors(x.dtype)
        with without_autocast(x):
            return _rotate(x, mixed, unit), x.new_zeros(x.shape[:-1])

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        unit, mixed = self._factors(y.dtype)
        with without_autocast(y):
            return _rotate(y, unit, mixed), y.new_zeros(y.shape[:-1])

    def _factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The unit vectors V, or zero, and S^{-1} V."""
        vectors = self.vectors.to(dtype)
        square = vectors.square().sum(-1, keepdim=True)
        # Below this length the derivative of the unit vector leaves single precision's range.
        long = square > 1e-24
        unit = vectors * torch.where(long, square, 1.0).rsqrt() * long
        half = torch.eye(unit.shape[1], dtype=dtype, device=unit.device) / 2
        with without_autocast(unit):
            triangle = (unit @ unit.mT).triu(1) + half
        if unit.shape[1] <= FEW:
            return unit, _substitute(triangle, unit)
        return unit, torch.linalg.solve_triangular(triangle, unit, upper=True)


def _rotate(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """`x - (x @ first.mT) @ second`, on a GPU by one matrix, so that states are read once."""
    if not x.is_cuda or x.shape[-1] > NARROW:
        return x - (x @ first.mT) @ second
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return times(x, identity - first.mT @ second)


def _substitute(triangle: Tensor, right: Tensor) -> Tensor:
    """Solve with upper triangular matrices that have 1/2 on their diagonal, row by row."""
    solved: list[Tensor] = []
    for k in reversed(range(triangle.shape[-1])):
        row = right[:, k]
        for place, other in enumerate(reversed(solved), start=k + 1):
            row = row - triangle[:, k, place, None] * other
        solved.append(2.0 * row)
    return torch.stack(solved[::-1], dim=1)


def _reorder(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(-1, order.unsqueeze(1).expand_as(x))
