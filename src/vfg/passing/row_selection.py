"""Computing only the rows that matter: another choice of a batch's rows for every edge."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

STEP = 8
"""The number of rows that are computed is a multiple of this, as far as the batch has so many."""
WORTH = 0.8
"""The share of a batch beyond which choosing rows costs more than it spares."""


class Rows(NamedTuple):
    """Equally many rows of a batch for every edge.

    Example:
        >>> wanted = torch.zeros(2, 32, dtype=torch.bool)
        >>> wanted[0, 3] = wanted[1, 30] = True
        >>> rows = chosen_rows(wanted)
        >>> rows.select(torch.arange(64.0).view(2, 32, 1))[:, 0, 0]
        tensor([ 3., 62.])
    """

    positions: Tensor
    """In the batches of all edges, one after the other, `(edges * rows,)`."""
    edges: int
    batch: int

    def select(self, states: Tensor) -> Tensor:
        """`(edges, batch, width)` to `(edges, rows, width)`."""
        chosen: Tensor = _Select.apply(states, self.positions)  # type: ignore[no-untyped-call]
        return chosen

    def place(self, states: Tensor) -> Tensor:
        """`(edges, rows, width)` to `(edges, batch, width)`, 0 in the other rows."""
        placed: Tensor = _Place.apply(states, self.positions, self.batch)  # type: ignore[no-untyped-call]
        return placed


def chosen_rows(wanted: Tensor) -> Rows | None:
    """Rows that hold all that is wanted of every edge, and a few more; None if all are as good.

    How many they are depends on the data, so a GPU would have to be waited for: there, as in
    compiled programs, the answer is None.

    Args:
        wanted: `(edges, batch)`, boolean.
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
    return Rows((order + starts[:, None]).flatten(), edges, batch)


class _Select(torch.autograd.Function):
    """No row is chosen twice, so gradients are copied back rather than added up."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, positions: Tensor) -> Tensor:
        ctx.positions, ctx.batch = positions, states.shape[1]
        return _taken(states, positions)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _put(gradients[0], ctx.positions, ctx.batch), None


class _Place(torch.autograd.Function):
    """The other way round."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, positions: Tensor, batch: int) -> Tensor:
        ctx.positions = positions
        return _put(states, positions, batch)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _taken(gradients[0], ctx.positions), None, None


def _taken(states: Tensor, positions: Tensor) -> Tensor:
    edges, _, width = states.shape
    return states.reshape(-1, width).index_select(0, positions).view(edges, -1, width)


def _put(states: Tensor, positions: Tensor, batch: int) -> Tensor:
    edges, _, width = states.shape
    whole = states.new_zeros(edges * batch, width)
    return whole.index_copy_(0, positions, states.reshape(-1, width)).view(edges, batch, width)
