"""Operations that conditioners and couplings are made of: dropout, matrix products, split, join.

Dropout uses random bytes: a random float for every entry would take longer than its layer.

A conditioner sees the coordinates that a coupling keeps, the same in both directions. Rounded
products therefore round alike forwards and backwards, and the coupling stays invertible.

The derivative of many rows times a small matrix is a long sum with few results, which would occupy
few of a GPU's processors. There the rows are cut into parts, each with a copy of the matrix.

The derivative of a choice of coordinates would add into zeros by atomic operations. No coordinate
is chosen twice, so `split` and `join` copy instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows.base import of_kind, temporarily_set
from vfg.flows.checks import check_choice
from vfg.utils.linalg import is_exporting

LEVELS = 256
"""Values of a byte; dropout rates are rounded to multiples of 1/256."""


def random_bytes(
    shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """A byte for every entry; without a generator from torch's global one."""
    size = math.prod(shape)
    words = torch.empty(-(-size // 8), dtype=torch.int64, device=device)
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8)[:size].view(shape)


def drop(x: Tensor, noise: Tensor, rate: float, room: Tensor | None = None) -> Tensor:
    """Set the share `rate` of entries, those with a small byte, to 0, in place; none are scaled up.

    `noise` has a random byte per entry; `room` is memory shaped like `x` that may be overwritten.

    Example:
        >>> drop(torch.ones(3), torch.tensor([10, 100, 200], dtype=torch.uint8), rate=0.25)
        tensor([0., 1., 1.])
    """
    level = dropped_levels(rate)
    if x.device.type != "cpu":
        return x.mul_(noise >= level)
    # On a CPU products with booleans take several times as long as with numbers.
    kept = torch.empty_like(x) if room is None else room
    return x.mul_(torch.ge(noise, level, out=kept))


def dropout_factor(rate: float) -> float:
    """The factor that makes up for dropped entries; 1 at rate 0.

    Example:
        >>> dropout_factor(0.5)
        2.0
    """
    return LEVELS / (LEVELS - dropped_levels(rate)) if rate else 1.0


def dropped_levels(rate: float) -> int:
    """The number of byte values for which an entry is dropped."""
    return min(max(round(rate * LEVELS), 1), LEVELS - 1)


PRECISIONS = ("float32", "tf32", "bf16")
"""The dtype of the parameters; 10 bits of mantissa on GPUs; 7 bits, in hidden layers too."""


class Rounding(nn.Module):
    """A network whose products may be rounded to `precision`; neither attribute is saved."""

    precision: str = "float32"
    generator: torch.Generator | None = None
    """Where dropout draws from; None for torch's global generator, as compiled code needs it."""


@contextmanager
def conditioners_in(model: nn.Module, precision: str) -> Iterator[None]:
    """Within this context the conditioners of a model compute in another precision.

    Parameters, states, log-determinants, sums and solves keep theirs.

    Args:
        model: a model or flow.
        precision: `"float32"` for that of the parameters; `"tf32"` for products on a GPU's tensor
            cores, elsewhere the same as the first; `"bf16"` for products and hidden layers in half
            of the memory.

    Raises:
        ValueError: for an unknown precision.

    Example:
        >>> from vfg.flows import Coupling
        >>> flow = Coupling(hidden=8).build(edges=3, width=4)
        >>> with conditioners_in(flow, "bf16"):
        ...     y, _ = flow(torch.ones(3, 5, 4))
        >>> y.dtype
        torch.float32
    """
    check_choice("conditioners_in", "precision", precision, PRECISIONS)
    with temporarily_set(of_kind(model, Rounding), "precision", precision):
        yield


def round_to(x: Tensor, precision: str) -> Tensor:
    """A factor of a product in the dtype that the precision asks for."""
    return x.bfloat16() if precision == "bf16" else x


@contextmanager
def tensor_cores(precision: str, device: torch.device) -> Iterator[None]:
    """Within this context a GPU multiplies float32 numbers in TF32, if that is the precision."""
    if precision != "tf32" or device.type != "cuda":
        yield
        return
    matmul: Any = torch.backends.cuda.matmul
    name, fast, before = _setting(matmul)
    setattr(matmul, name, fast)
    try:
        yield
    finally:
        setattr(matmul, name, before)


def is_tf32(device: torch.device) -> bool:
    """Whether a device multiplies float32 numbers in TF32 now."""
    if device.type != "cuda":
        return False
    _, fast, now = _setting(torch.backends.cuda.matmul)
    return bool(now == fast)


def _setting(matmul: Any) -> tuple[str, bool | str, bool | str]:
    """The name of torch's TF32 setting, the value that enables it, and its present value."""
    try:
        return "allow_tf32", True, matmul.allow_tf32
    except RuntimeError:  # the newer setting is in use, and torch refuses a mixture of both
        return "fp32_precision", "tf32", matmul.fp32_precision


def product(x: Tensor, weight: Tensor, precision: str) -> Tensor:
    """`x @ weight` of stacks of matrices, derivatives included.

    Example:
        >>> product(torch.ones(1, 2, 3), torch.ones(1, 3, 1), "bf16").flatten()
        tensor([3., 3.], dtype=torch.bfloat16)
    """
    x, weight = round_to(x, precision), round_to(weight, precision)
    if precision == "tf32" and x.is_cuda:
        if torch.compiler.is_compiling():  # compilers do not see settings of torch change
            # Lazily: torch 2.6 cannot register an operator with tags.
            from vfg.flows.fast.operators import product_tf32

            compiled: Tensor = product_tf32(x, weight)
            return compiled
        result: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
        return result
    return torch.bmm(x, weight)


class _Product(torch.autograd.Function):
    """A product in TF32 whose derivatives are such products too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with tensor_cores("tf32", x.device):
            return torch.bmm(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        return (
            _Product.apply(gradient, weight.mT),  # type: ignore[no-untyped-call]
            _Product.apply(x.mT, gradient),  # type: ignore[no-untyped-call]
        )


PRODUCTS = 1024
"""Most parts of all stacks together: enough to occupy a GPU."""
ROWS = 512
"""Fewest rows of a part, since each part costs a copy of the matrix."""


def times(
    x: Tensor, matrices: Tensor, precision: str = "float32", parts: int | None = None
) -> Tensor:
    """`x (stack, rows, a)` times `matrices (stack, a, b)`, the rows cut into equal `parts`.

    Example:
        >>> times(torch.ones(1, 4, 3), torch.ones(1, 3, 1), parts=2).flatten()
        tensor([3., 3., 3., 3.])
    """
    if parts is None:
        learns = torch.is_grad_enabled() and matrices.requires_grad
        parts = count_parts(x.shape[0], x.shape[1]) if x.is_cuda and learns else 1
    if parts == 1:
        return product(x, matrices, precision)
    stack, rows, a = x.shape
    copies = matrices[:, None].expand(-1, parts, -1, -1).flatten(0, 1)
    pieces = x.reshape(stack * parts, rows // parts, a)
    return product(pieces, copies, precision).view(stack, rows, matrices.shape[2])


def multiply_over_rows(left: Tensor, right: Tensor) -> Tensor:
    """`(stack, a, rows)` times `(stack, rows, b)`, on a GPU in parts that are added afterwards."""
    stack, a, rows = left.shape
    parts = count_parts(stack, rows) if left.is_cuda else 1
    if parts == 1:
        return torch.bmm(left, right)
    pieces = left.unflatten(2, (parts, -1)).transpose(1, 2).reshape(stack * parts, a, -1)
    products = torch.bmm(pieces, right.reshape(stack * parts, -1, right.shape[2]))
    return products.view(stack, parts, a, -1).sum(1)


def count_parts(stack: int, rows: int) -> int:
    """The number of equal parts that a sum over rows is cut into.

    Example:
        >>> count_parts(4, 4096), count_parts(4, 1000), count_parts(1024, 4096)
        (8, 1, 1)
    """
    parts = 1
    while rows % (2 * parts) == 0 and rows >= 2 * ROWS * parts and stack * parts < PRODUCTS:
        parts *= 2
    return parts


def is_ordinary(x: Tensor) -> bool:
    """Whether a tensor is outside compilers, autocast, functorch and forward differentiation."""
    return not (
        torch.compiler.is_compiling()
        or torch.is_autocast_enabled(x.device.type)
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
        or torch.autograd.forward_ad._current_level >= 0
    )


def split(x: Tensor, one: Tensor, two: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinates `one` and `two`, which together are all, of `x (..., width)`.

    `places` is the position of each coordinate after the halves are concatenated.

    Example:
        >>> one, two, places = torch.tensor([2]), torch.tensor([0, 1]), torch.tensor([1, 2, 0])
        >>> split(torch.tensor([10.0, 11.0, 12.0]), one, two, places)
        (tensor([12.]), tensor([10., 11.]))
    """
    if not _is_derived_backwards(x):
        return x.index_select(-1, one), x.index_select(-1, two)
    halves: tuple[Tensor, Tensor] = _Split.apply(x, one, two, places)  # type: ignore[no-untyped-call]
    return halves


def join(x: Tensor, y: Tensor, one: Tensor, two: Tensor, places: Tensor) -> Tensor:
    """The inverse of `split`.

    Example:
        >>> one, two, places = torch.tensor([2]), torch.tensor([0, 1]), torch.tensor([1, 2, 0])
        >>> join(torch.tensor([12.0]), torch.tensor([10.0, 11.0]), one, two, places)
        tensor([10., 11., 12.])
    """
    if not _is_derived_backwards(x):
        return torch.cat([x, y], dim=-1).index_select(-1, places)
    whole: Tensor = _Join.apply(x, y, one, two, places)  # type: ignore[no-untyped-call]
    return whole


def _is_derived_backwards(x: Tensor) -> bool:
    """Whether a tensor may be differentiated in reverse mode only."""
    if is_exporting():  # exported programs have no derivatives
        return False
    return torch.compiler.is_compiling() or is_ordinary(x)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, one: Tensor, two: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(places)
        return x.index_select(-1, one), x.index_select(-1, two)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        return torch.cat(gradients, dim=-1).index_select(-1, places), None, None, None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, one: Tensor, two: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(one, two)
        return torch.cat([x, y], dim=-1).index_select(-1, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        one, two = ctx.saved_tensors
        (gradient,) = gradients
        return gradient.index_select(-1, one), gradient.index_select(-1, two), None, None, None
