"""The contract of every invertible function: one stack of flows, one flow per edge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Flow(nn.Module, ABC):
    r"""A stack of invertible functions $f_k: \mathbb{R}^w \to \mathbb{R}^w$, one per edge.

    Equal-shaped edges of a graph are evaluated together, so a flow never sees a single
    edge: it maps tensors of shape `(edges, batch, width)`, and edge `k` of the output depends on
    edge `k` of the input and of the parameters alone.

    How to write a new one:

    1. Subclass `Flow`, call `super().__init__(edges, width)` and give every parameter the leading
       axis `edges`, so that a stack of K flows is exactly K separate flows.
    2. Implement `_forward(x) -> (y, log_det)` and `_inverse(y) -> (x, log_det)`. Shapes and types
       have been checked by then. `log_det` has shape `(edges, batch)` and is the logarithm of the
       absolute Jacobian determinant *of the direction computed*. Each direction runs its
       conditioner once. Return the dtype that came in, also under autocast.
    3. If the flow is linear or ends or begins with a linear map, override `linear_part`.
       If it can set itself up from data, override `_initialise`.
    4. Add one line to the registry of `tests/flows/test_contract.py`.

    Args:
        edges: number of flows in the stack, at least 1.
        width: dimension of the space that each flow acts on, at least 1.
    """

    memory: str = "store"
    """What is stored for the derivative; see `FitSettings.memory`. Not saved."""

    def __init__(self, edges: int, width: int) -> None:
        super().__init__()
        if edges < 1 or width < 1:
            raise ValueError(
                f"a flow needs at least one edge and width 1, but got edges={edges}, width={width}"
            )
        self.edges = edges
        self.width = width

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map children to parents: `x` of shape `(edges, batch, width)` to `(y, log_det)`."""
        self._check(x)
        return self._forward(x)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Map parents back to children: `y` of shape `(edges, batch, width)` to `(x, log_det)`."""
        self._check(y)
        return self._inverse(y)

    def leading(self, x: Tensor, count: int) -> Tensor:
        """The first `count` coordinates of `forward(x)`."""
        return self.forward(x)[0][..., :count]

    def leading_inverse(self, y: Tensor, count: int) -> Tensor:
        """The first `count` coordinates of `inverse(y)`."""
        return self.inverse(y)[0][..., :count]

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set data-dependent parameters from a first batch `x` and return the flow's output."""
        self._check(x)
        return self._initialise(x)

    def linear_part(self) -> Tensor:
        """The product of the linear layers, `(edges, width, width)`; others count as identity.

        A row vector is mapped as `x @ A.mT`, so `A` is the Jacobian of an affine flow.
        """
        some = next(self.parameters(), torch.empty(0))
        identity = torch.eye(self.width, dtype=some.dtype, device=some.device)
        return identity.expand(self.edges, -1, -1)

    @abstractmethod
    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

    @abstractmethod
    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]: ...

    def _initialise(self, x: Tensor) -> Tensor:
        return self._forward(x)[0]

    def _check(self, x: Tensor) -> None:
        if x.ndim != 3 or x.shape[0] != self.edges or x.shape[2] != self.width:
            raise ValueError(
                f"{type(self).__name__} expects a tensor of shape (edges={self.edges}, batch, "
                f"width={self.width}), but got {tuple(x.shape)}"
            )
        if not x.is_floating_point():
            raise TypeError(
                f"{type(self).__name__} expects floating-point input, but got {x.dtype}; "
                "convert it with x.float()"
            )

    def extra_repr(self) -> str:
        return f"edges={self.edges}, width={self.width}"


def of_kind(model: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    """All modules of a kind in a model, itself included."""
    return [module for module in model.modules() if isinstance(module, kind)]


@contextmanager
def temporarily_set(modules: Iterable[nn.Module], name: str, value: object) -> Iterator[None]:
    """Set an attribute of modules, and restore it afterwards."""
    others = [module for module in modules if getattr(module, name) != value]
    before = [getattr(module, name) for module in others]
    for module in others:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, former in zip(others, before, strict=True):
            setattr(module, name, former)
