"""The table and its sections: which columns make up which leaf."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import LikelihoodSpec
from vfg.graph import Graph
from vfg.passing.schedule import Schedule


class Sections(nn.Module):
    """Cuts a table `(rows, columns)` into leaf blocks `(leaves, rows, columns)`, and joins them.

    Leaves that name their columns by position take those; all others take consecutive columns in
    the order of the leaves. The likelihood of a leaf determines its number of columns.
    """

    leaf_of_column: Tensor

    def __init__(self, schedule: Schedule, likelihoods: Mapping[str, LikelihoodSpec]) -> None:
        super().__init__()
        positions = column_positions(schedule.graph, likelihoods)
        self.positions = positions
        self.columns = sum(map(len, positions.values()))
        self.blocks: list[int] = []
        flat: list[int] = []
        for index, block in enumerate(schedule.blocks):
            if block.is_leaf:
                chosen = [positions[leaf] for leaf in block.nodes]
                self.blocks.append(index)
                flat += [column for columns in chosen for column in columns]
                self.register_buffer(f"chosen{index}", torch.tensor(chosen), persistent=False)
        back = torch.tensor(flat).argsort()
        self.register_buffer("back", back, persistent=False)
        owner = torch.empty(self.columns, dtype=torch.long)
        for number, columns in enumerate(positions.values()):
            owner[list(columns)] = number
        self.register_buffer("leaf_of_column", owner, persistent=False)

    def split(self, table: Tensor) -> dict[int, Tensor]:
        """`(rows, columns)` to one `(leaves, rows, columns)` per leaf block."""
        parts = {}
        for index in self.blocks:
            chosen = self.get_buffer(f"chosen{index}")
            part = table.index_select(1, chosen.flatten())
            parts[index] = part.unflatten(1, chosen.shape).movedim(1, 0)
        return parts

    def join(self, blocks: Mapping[int, Tensor]) -> Tensor:
        """The inverse of `split`."""
        parts = [blocks[index].movedim(0, 1).flatten(1) for index in self.blocks]
        return torch.cat(parts, dim=1).index_select(1, self.get_buffer("back"))


class Scaling(nn.Module):
    """Location, scale and range of every column: the model works on `(x − location) / scale`.

    All are kept in float64 whatever the model's dtype, because subtracting a large location is
    where precision is lost. A new model scales nothing.

    Example:
        >>> scaling = Scaling(1)
        >>> scaling.set(torch.tensor([3.0]), torch.tensor([2.0]))
        >>> scaling.apply_to(torch.tensor([[5.0]])), scaling.undo(torch.tensor([[1.0]]))
        (tensor([[1.]], dtype=torch.float64), tensor([[5.]], dtype=torch.float64))
    """

    location: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    is_fitted: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(columns, dtype=torch.float64))
        self.register_buffer("low", torch.full((columns,), -torch.inf, dtype=torch.float64))
        self.register_buffer("high", torch.full((columns,), torch.inf, dtype=torch.float64))
        self.register_buffer("is_fitted", torch.tensor(False))

    def set(self, location: Tensor, scale: Tensor) -> None:
        """Set both, `(columns,)` each."""
        self.location.copy_(location)
        self.scale.copy_(scale)
        self.is_fitted.fill_(True)

    def apply_to(self, table: Tensor) -> Tensor:
        """Data to the model's units, `(rows, columns)` in float64."""
        return (table.double() - self.location) / self.scale

    def undo(self, table: Tensor) -> Tensor:
        """The model's units to data."""
        return table.double() * self.scale + self.location

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Scaling:
        exact = {name: self.get_buffer(name) for name in ("location", "scale", "low", "high")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # Follow the move to another device, but not the change to a coarser dtype.
        for name, value in exact.items():
            setattr(self, name, value.to(self.get_buffer(name).device))
        return self


def column_positions(
    graph: Graph, likelihoods: Mapping[str, LikelihoodSpec]
) -> dict[str, tuple[int, ...]]:
    """The table columns of every leaf.

    Example:
        >>> from vfg.distributions.likelihoods import Gaussian
        >>> graph = Graph.star({"a": 2, "b": 1})
        >>> column_positions(graph, {"a": Gaussian(), "b": Gaussian()})
        {'a': (0, 1), 'b': (2,)}
    """
    positions: dict[str, tuple[int, ...]] = {}
    start = 0
    for leaf in graph.leaves:
        node = graph.node(leaf)
        count = likelihoods[leaf].columns(node.width)
        if node.columns is not None and len(node.columns) != count:
            raise ValueError(
                f"leaf {leaf!r} of width {node.width} is {likelihoods[leaf].name} and needs "
                f"{count} columns, but it names {len(node.columns)}: {node.columns}"
            )
        positions[leaf] = tuple(range(start, start + count))
        if node.columns is not None:
            by_position = tuple(column for column in node.columns if isinstance(column, int))
            positions[leaf] = by_position or positions[leaf]
        start += count
    return positions
