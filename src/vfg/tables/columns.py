"""The contract of a column's encoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from vfg.tables.cells import Array, Column, Mask


class ColumnEncoding(ABC):
    """How one column of a table becomes one to eight columns of real numbers, and back.

    How to write a new one: make a frozen dataclass that sets `name`, implement the methods below,
    and let `vfg.tables.encoding` fit and restore it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def width(self) -> int:
        """How many columns of real numbers it becomes."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether no cell was observed, so that there is nothing to fill gaps from."""

    @property
    @abstractmethod
    def constant(self) -> bool:
        """Whether what a model says of the column does not matter."""

    @abstractmethod
    def encode(self, column: Column) -> tuple[Array, Mask]:
        """Numbers and which of them are evidence, both `(width, rows)`."""

    @abstractmethod
    def decode(self, values: Array, scale: float | None = None) -> Array:
        """Cells from numbers `(rows, width)`; `scale` is the deviation of the numbers' errors."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything but arrays, ready for JSON."""

    def state(self) -> dict[str, Array]:
        """The arrays."""
        return {}

    def probabilities(self, values: Array, scale: float | None = None) -> Array:
        """The probability of every category, `(rows, categories)`."""
        raise ValueError(f"a column of kind {self.name} has no categories")
