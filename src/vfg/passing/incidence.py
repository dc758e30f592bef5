"""How the edges of a group meet the nodes of a block: spreading and collecting, without loops."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vfg.flows.fast.matmul import times


class Incidence(nn.Module):
    """One end of every edge of a group, as rows of a block of nodes.

    `spread` copies node states to edges, `collect` sums edge messages at nodes. The common cases
    (one node, one edge per node, equally many neighbouring edges per node) need no index at all;
    the others use a padded index, because scattered additions are not reproducible on a GPU.

    Args:
        rows: for every edge the row of its node.
        nodes: number of nodes in the block.

    Example:
        >>> ends = Incidence((0, 0, 2), nodes=3)
        >>> ends.spread(torch.tensor([[1.0], [2.0], [3.0]])).tolist()
        [[1.0], [1.0], [3.0]]
        >>> ends.collect(torch.tensor([[1.0], [2.0], [3.0]])).tolist()
        [[3.0], [0.0], [3.0]]
    """

    rows: Tensor
    padded: Tensor
    present: Tensor

    def __init__(self, rows: tuple[int, ...], nodes: int) -> None:
        super().__init__()
        self.nodes = nodes
        self.edges = len(rows)
        members: list[list[int]] = [[] for _ in range(nodes)]
        for edge, row in enumerate(rows):
            members[row].append(edge)
        self.fan = max(len(found) for found in members)
        flat = [edge for found in members for edge in found]
        self.is_aligned = rows == tuple(range(nodes))
        self.is_regular = flat == list(range(nodes * self.fan))
        padded = [found + [0] * (self.fan - len(found)) for found in members]
        present = [[True] * len(found) + [False] * (self.fan - len(found)) for found in members]
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("padded", torch.tensor(padded).flatten(), persistent=False)
        self.register_buffer("present", torch.tensor(present).flatten(), persistent=False)

    def spread(self, states: Tensor) -> Tensor:
        """`(nodes, ...)` to `(edges, ...)`."""
        if self.is_aligned:
            return states
        if self.nodes == 1:
            return states.expand(self.edges, *states.shape[1:])
        return states.index_select(0, self.rows)

    def collect(self, messages: Tensor) -> Tensor:
        """Sum `(edges, ...)` to `(nodes, ...)`; a node without edges gets zero."""
        if self.is_aligned:
            return messages
        return self.by_node(messages).sum(1)

    def collect_weighted(self, weights: Tensor, constants: Tensor) -> Tensor:
        """Sum `weights (edges, batch)` times `constants (edges, size)` to `(nodes, batch, size)`.

        One matrix product per node; the summands are never written out.
        """
        return times(self.by_node(weights).mT, self.by_node(constants))

    def by_node(self, messages: Tensor) -> Tensor:
        """`(edges, ...)` to `(nodes, fan, ...)`, padded with zeros."""
        if self.is_regular:
            return messages.view(self.nodes, self.fan, *messages.shape[1:])
        present = self.present.view(-1, *[1] * (messages.ndim - 1))
        chosen = torch.where(present, messages.index_select(0, self.padded), 0.0)
        return chosen.view(self.nodes, self.fan, *messages.shape[1:])


def added(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors that broadcast; at least one.

    Example:
        >>> added([torch.ones(2, 1), torch.ones(1, 2)]).sum().item()
        8.0
    """
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
