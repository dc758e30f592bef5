"""Model: what every kind of model can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from vfg.graph import Graph
from vfg.inference.answers import Answer
from vfg.inference.variables import Variable
from vfg.inputs import Name


@runtime_checkable
class Model(Protocol):
    """A model that answers questions about a table: `VFG`, `GaussianVFG` or `TableModel`.

    Tables go in and come out in the units of the data. A `TableModel` takes columns of any kind,
    the other two take numbers. `vfg.fit` fits, `vfg.save` and `vfg.load` keep every kind.

    Example:
        >>> import vfg
        >>> isinstance(vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1})), Model)
        True
    """

    @property
    def graph(self) -> Graph:
        """The nodes and edges."""

    @property
    def variables(self) -> Mapping[str, Variable]:
        """The columns of the table by the names that `infer` takes."""

    def infer(
        self,
        given: Any,
        targets: Name | Sequence[Name] | None = None,
        *,
        observed: Any = None,
        seed: int = 0,
        row_ids: Any = None,
        padded: bool = True,
    ) -> Answer:
        """Any targets given any evidence.

        Args:
            given: values by name, a list of such mappings, a frame with some of the columns, or a
                table with missing values.
            targets: columns or nodes by name; None means all columns.
            observed: which cells of a table may be used.
            seed: of the draws.
            row_ids: distinct integers from 0 on that draws depend on; None means the position.
            padded: False is faster for a few rows; numbers are the same up to rounding.
        """

    def sample(self, rows: int, /, *, seed: int = 0) -> Any:
        """New rows, as a table."""

    def log_prob(self, table: Any, *, observed: Any = None) -> Any:
        """log p of the observed cells of every row.

        Raises:
            ValueError: where it is not defined, with what to use instead.
        """

    def embed(self, table: Any, *, observed: Any = None) -> Any:
        """The states of the roots, `(rows, width)`."""

    def fill(self, table: Any, *, row_ids: Any = None) -> Any:
        """A copy of a table whose missing cells are what the model expects."""

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON."""

    @classmethod
    def from_dict(cls, description: Mapping[str, Any], /) -> Self:
        """A new model with the configuration that `to_dict` returned."""
