"""Monotone maps that bring columns halfway to a Normal form, so that tails and lumps weigh less."""

from __future__ import annotations

import torch
from torch import Tensor, nn

KNOTS = 128
"""How many knots a map has."""
FURTHEST = 1e4
"""Scores beyond this are looked for as if they were there."""
SHARE = 0.5
"""How far a column goes from its own values, 0, to its normal scores, 1."""


class NormalScores(nn.Module):
    r"""Piecewise linear maps $x \mapsto (1 - a) x + a \Phi^{-1}(F(x))$, one per column.

    F is the distribution of a column's known cells. Beyond them slopes are 1.

    Args:
        columns: how many.

    Example:
        >>> values = torch.tensor([[1.0], [2.0], [100.0]], dtype=torch.float64)
        >>> ranks = NormalScores.of(values, torch.ones(3, 1, dtype=torch.bool), torch.tensor([1.0]))
        >>> [round(score, 2) for score in ranks(values)[:, 0].tolist()]
        [-0.97, 0.0, 0.97]
        >>> ranks.inverse(ranks(values))[:, 0].tolist()
        [1.0, 2.0, 100.0]
    """

    knots: Tensor
    scores: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        line = torch.linspace(-1.0, 1.0, KNOTS, dtype=torch.float64).repeat(columns, 1)
        self.register_buffer("knots", line)
        self.register_buffer("scores", line.clone())

    @classmethod
    def of(cls, values: Tensor, observed: Tensor, shares: Tensor) -> NormalScores:
        """Maps by the known cells of a matrix.

        Args:
            values: the matrix, `(rows, columns)`.
            observed: which of its entries are known.
            shares: how far each column goes to its normal scores; 0 leaves it as it is.
        """
        made = cls(values.shape[1])
        for column, share in enumerate(shares.tolist()):
            found = _knots(values[observed[:, column], column].double(), share)
            if found is not None:
                made.knots[column], made.scores[column] = found
        return made

    def forward(self, values: Tensor) -> Tensor:
        """Scores of values `(rows, columns)`."""
        return _interpolated(values, self.knots, self.scores)

    def inverse(self, scores: Tensor) -> Tensor:
        """Values of scores `(..., columns)`."""
        flat = scores.reshape(-1, scores.shape[-1])
        return _interpolated(flat, self.scores, self.knots).view(scores.shape)

    def inverse_at(self, scores: Tensor, columns: Tensor) -> Tensor:
        """Values of scores, each of a column of its own.

        Args:
            scores: of any shape.
            columns: of the same shape.
        """
        # One search in all columns at once, each moved to a place of its own.
        lines = torch.arange(len(self.scores), dtype=torch.float64) * (2.0 * FURTHEST)
        ends = self.scores.clamp(-FURTHEST, FURTHEST) + lines[:, None]
        keys = (scores.clamp(-FURTHEST, FURTHEST) + lines[columns]).contiguous()
        right = torch.searchsorted(ends.view(-1), keys) - columns * KNOTS
        place = right.clamp(1, KNOTS - 1) + columns * KNOTS
        start, end = self.scores.view(-1)[place - 1], self.scores.view(-1)[place]
        low, high = self.knots.view(-1)[place - 1], self.knots.view(-1)[place]
        share = (scores - start) / (end - start)
        return (1.0 - share) * low + share * high


def _knots(cells: Tensor, share: float) -> tuple[Tensor, Tensor] | None:
    """Values and scores of one column; nothing if it has a single value or stays as it is."""
    values, counts = cells.unique(return_counts=True)
    if len(values) < 2 or share == 0.0:
        return None
    numbers = counts.double()
    below = (numbers.cumsum(0) - 0.5 * numbers) / numbers.sum()
    scores = (1.0 - share) * values + share * torch.special.ndtri(below)
    inner = KNOTS - 2
    if len(values) > inner:
        chosen = torch.linspace(0.0, len(values) - 1.0, inner, dtype=torch.float64).round().long()
        values, scores = values[chosen], scores[chosen]
    # The outer knots are a deviation apart: two cells that are nearly alike say nothing of others.
    steps = torch.arange(1.0, KNOTS - len(values), dtype=torch.float64)
    ends = [torch.cat([part[:1] - 1.0, part, part[-1] + steps]) for part in (values, scores)]
    return ends[0], ends[1]


def _interpolated(values: Tensor, knots: Tensor, scores: Tensor) -> Tensor:
    columns = values.T.contiguous()
    right = torch.searchsorted(knots, columns).clamp(1, knots.shape[1] - 1)
    left = right - 1
    start, end = knots.gather(1, left), knots.gather(1, right)
    low, high = scores.gather(1, left), scores.gather(1, right)
    # As a sum of both ends, so that a knot has exactly its score.
    share = (columns - start) / (end - start)
    return ((1.0 - share) * low + share * high).T.contiguous()
