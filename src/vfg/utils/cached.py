"""Modules with cached properties that are dropped when the state changes."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from torch import nn


class CachedModule(nn.Module):
    """A module with cached properties that follow from its parameters and buffers.

    Example:
        >>> import torch
        >>> from functools import cached_property
        >>> class Square(CachedModule):
        ...     cached = ("area",)
        ...
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("side", torch.tensor(2.0))
        ...
        ...     @cached_property
        ...     def area(self):
        ...         return self.side**2
        >>> square = Square()
        >>> square.area.dtype, square.double().area.dtype
        (torch.float32, torch.float64)
    """

    cached: ClassVar[tuple[str, ...]] = ()
    """Names of the cached properties."""

    def forget(self) -> None:
        """Drop the cached properties."""
        for name in self.cached:
            self.__dict__.pop(name, None)

    # Both are called for every module of a tree, whichever of them is moved or loaded.

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.forget()
        return self

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.forget()
