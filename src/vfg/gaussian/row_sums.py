r"""A table as a few weighted rows that have the same likelihood under every linear-Gaussian model.

The likelihood of n rows with the same observed columns depends on their sum and their sums of
products alone. With mean m and covariance $C = \sum_k l_k l_k^\top$ of r columns, the 2 r rows
$m \pm \sqrt{r}\, l_k$ of weight n / 2 r have the same. So sums of further rows can be added without
the earlier rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vfg.gaussian.factors import group_masks

MOST_ROWS = 50_000
"""Rows that a summary has, at most: with many different masks there is nothing to sum up. Beyond it
rows are drawn by their weights."""


class Summary(NamedTuple):
    """Weighted rows in place of a table."""

    cells: Tensor  # 0 where unobserved
    seen: Tensor
    weights: Tensor

    @property
    def packed(self) -> Tensor:
        """All in one matrix: cells, NaN where unobserved, and weights in the last column."""
        known = torch.where(self.seen, self.cells, torch.nan)
        return torch.cat([known, self.weights[:, None]], dim=1)

    @classmethod
    def unpack(cls, packed: Tensor) -> Summary:
        """The inverse of `packed`."""
        known = packed[:, :-1]
        return cls(known.nan_to_num(), ~known.isnan(), packed[:, -1])

    def plus(self, other: Summary, seed: int = 0) -> Summary:
        """The summary of both."""
        parts = (torch.cat(pair) for pair in zip(self, other, strict=True))
        return summarise(*parts, seed=seed)


def summarise(cells: Tensor, seen: Tensor, weights: Tensor, *, seed: int = 0) -> Summary:
    """Sum up the rows of every mask that more rows have than the summary needs.

    Example:
        >>> table = torch.randn(50, 3, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> short = summarise(table, torch.ones(50, 3).bool(), torch.ones(50, dtype=torch.float64))
        >>> len(short.cells), bool(torch.allclose(short.weights @ short.cells, table.sum(0)))
        (6, True)
    """
    masks, cells = group_masks(seen), torch.where(seen, cells.double(), 0.0)
    order = masks.groups.argsort(stable=True)
    sizes = masks.groups.bincount(minlength=len(masks.distinct)).tolist()
    parts = [
        _sum_up(cells[rows], mask, weights[rows])
        for mask, rows in zip(masks.distinct, order.split(sizes), strict=True)
    ]
    summary = Summary(*(torch.cat(part) for part in zip(*parts, strict=True)))
    return summary if len(summary.cells) <= MOST_ROWS else _draw(summary, seed)


def _sum_up(cells: Tensor, mask: Tensor, weights: Tensor) -> Summary:
    """The rows of one mask."""
    known = mask.nonzero()[:, 0]
    if not len(known) or len(cells) <= 2 * len(known):
        keep = len(cells) if len(known) else 0  # rows without any cell say nothing
        return Summary(cells[:keep], mask.expand(keep, -1), weights[:keep])
    total, here = weights.sum(), cells[:, known]
    mean = weights @ here / total
    centred = here - mean
    sizes, vectors = torch.linalg.eigh(centred.mT @ (weights[:, None] * centred) / total)
    steps = (vectors * (len(known) * sizes.clamp(min=0.0)).sqrt()).mT
    rows = cells.new_zeros(2 * len(known), cells.shape[1])
    rows[:, known] = torch.cat([mean + steps, mean - steps])
    return Summary(rows, mask.expand(len(rows), -1), (total / len(rows)).expand(len(rows)))


def _draw(summary: Summary, seed: int) -> Summary:
    """Rows at equal distances of the cumulative weights, from a random start, of equal weights."""
    total = summary.weights.sum()
    start = torch.rand((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    levels = (torch.arange(MOST_ROWS, dtype=torch.float64) + start) * (total / MOST_ROWS)
    ends = summary.weights.cumsum(0)
    rows = torch.searchsorted(ends, levels.to(ends)).clamp(max=len(ends) - 1)
    chosen, counts = rows.unique(return_counts=True)
    own = counts.to(ends) * (total / MOST_ROWS)
    return Summary(summary.cells[chosen], summary.seen[chosen], own)
