"""In which precision the products inside conditioners are computed; all else keeps its own.

A conditioner sees the coordinates that a coupling keeps, the same in both directions. So whatever
rounding it has, it rounds alike there and back, and the coupling stays invertible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows.base import of_kind, temporarily_set

PRECISIONS = ("float32", "tf32", "bf16")
"""The model's own dtype, whichever it is; on GPUs with 10 bits of mantissa; hidden layers of 7."""


class Rounding(nn.Module):
    """A network whose products may be rounded; `precision` says how and is not saved."""

    precision: str = "float32"


@contextmanager
def conditioners_in(model: nn.Module, precision: str) -> Iterator[None]:
    """Let the conditioners of a model compute in another precision for a while.

    Parameters, states, log-determinants, sums and solves keep theirs.

    Args:
        model: a model or flow.
        precision: `"float32"` for that of the parameters; `"tf32"` for products on a GPU's tensor
            cores, elsewhere the same as the first; `"bf16"` for products and hidden layers in half
            of the memory.

    Raises:
        ValueError: for another word.

    Example:
        >>> from vfg.flows import Coupling
        >>> flow = Coupling(hidden=8).build(edges=3, width=4)
        >>> with conditioners_in(flow, "bf16"):
        ...     y, _ = flow(torch.ones(3, 5, 4))
        >>> y.dtype
        torch.float32
    """
    check_precision(precision)
    with temporarily_set(of_kind(model, Rounding), "precision", precision):
        yield


def check_precision(precision: str) -> None:
    """Refuse what is no precision."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}, but got {precision!r}")


def rounded(x: Tensor, precision: str) -> Tensor:
    """A factor of a product as the product takes it."""
    return x.bfloat16() if precision == "bf16" else x


@contextmanager
def tensor_cores(precision: str, device: torch.device) -> Iterator[None]:
    """Let a GPU multiply float32 numbers in TF32, if that is the precision."""
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
    """The name of torch's setting of TF32, its value for it, and its value now."""
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
    x, weight = rounded(x, precision), rounded(weight, precision)
    if precision == "tf32" and x.is_cuda:
        if torch.compiler.is_compiling():  # compilers do not see settings of torch change
            from vfg.flows.fast.operators import product_tf32

            found: Tensor = product_tf32(x, weight)
            return found
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
