"""Edges and nodes: spreading states, collecting messages, and choosing rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vfg.flows import times

STEP = 8
"""The number of chosen rows is a multiple of this, if the batch is large enough."""
WORTH = 0.8
"""Above this share of a batch, choosing rows costs more than it saves."""


class EdgeRows(NamedTuple):
    """Equally many rows of a batch for every edge.

    Example:
        >>> wanted = torch.zeros(2, 32, dtype=torch.bool)
        >>> wanted[0, 3] = wanted[1, 30] = True
        >>> rows = choose_rows(wanted)
        >>> rows.select(torch.arange(64.0).view(2, 32, 1))[:, 0, 0]
        tensor([ 3., 62.])
    """

    positions: Tensor
    """In the batches of all edges, one after the other, `(edges * rows,)`."""
    edges: int
    batch: int

    def select(self, states: Tensor) -> Tensor:
        """`(edges, batch, width)` to `(edges, rows, width)`."""
        chosen: Tensor = _Move.apply(states, self, True)  # type: ignore[no-untyped-call]
        return chosen

    def place(self, states: Tensor) -> Tensor:
        """`(edges, rows, width)` to `(edges, batch, width)`, 0 in the other rows."""
        placed: Tensor = _Move.apply(states, self, False)  # type: ignore[no-untyped-call]
        return placed


def choose_rows(wanted: Tensor) -> EdgeRows | None:
    """Choose rows that contain all wanted ones of every edge; None if all rows are as good.

    Their number depends on the data, and reading it would wait for a GPU: there, and in compiled
    programs, the result is None.
    """
    if torch.compiler.is_compiling() or wanted.is_cuda:
        return None
    edges, batch = wanted.shape
    most = int(wanted.sum(1).max()) if edges else 0
    count = min(batch, max(STEP, -(-most // STEP) * STEP))
    if count > WORTH * batch:
        return None
    order = wanted.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :count]
    starts = torch.arange(0, edges * batch, batch)
    return EdgeRows((order + starts[:, None]).flatten(), edges, batch)


class _Move(torch.autograd.Function):
    """Take rows or put them back; no row is chosen twice, so each is the other's derivative."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, rows: EdgeRows, takes: bool) -> Tensor:
        ctx.rows, ctx.takes = rows, takes
        return _move(states, rows, takes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _move(gradients[0], ctx.rows, not ctx.takes), None, None


def _move(states: Tensor, rows: EdgeRows, takes: bool) -> Tensor:
    edges, _, width = states.shape
    flat = states.reshape(-1, width)
    if takes:
        return flat.index_select(0, rows.positions).view(edges, -1, width)
    whole = states.new_zeros(edges * rows.batch, width)
    return whole.index_copy_(0, rows.positions, flat).view(edges, rows.batch, width)


class Incidence(nn.Module):
    """One end of every edge of a group: the `rows` of their nodes in a block of so many `nodes`.

    `spread` copies node states to edges, `collect` sums edge messages at nodes. The common cases
    (one node, one edge per node, equally many neighbouring edges per node) need no index at all;
    the others use a padded index, because scattered additions are not reproducible on a GPU.

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
        self.fan = max(len(own) for own in members)
        flat = [edge for own in members for edge in own]
        self.is_aligned = rows == tuple(range(nodes))
        self.is_regular = flat == list(range(nodes * self.fan))
        padded = [own + [0] * (self.fan - len(own)) for own in members]
        present = [[True] * len(own) + [False] * (self.fan - len(own)) for own in members]
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


def add_all(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors that broadcast; at least one.

    Example:
        >>> add_all([torch.ones(2, 1), torch.ones(1, 2)]).sum().item()
        8.0
    """
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
