r"""How the members of an ensemble and the linear model join in one answer.

With $\bar y$ the mean of the members and $l$ the linear model, both 0 at the mean of a column, cell
$c$ is filled with $f_c\,(w_1 \bar y + w_2 l)$. The weights and the factors are least squares at
cells that were kept from the models, so a table whose columns say nothing about each other is
filled with means, and one too small to be bent with the linear model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.model import VFG

from .forest import tiled

ROWS = 1024
"""How many rows with kept cells are looked at per member, at most."""
PRIOR = 20.0
"""How many cells of unit variance the start weighs: weight 1 for the members, factor 1."""
COLUMN_PRIOR = 60.0
"""The same for what the factor of one column starts from: that of all columns."""


@dataclass(frozen=True)
class Combination:
    """The numbers that join members and linear model.

    Attributes:
        weights: of the members' mean and of the linear model.
        factors: by which the sum is drawn to the mean, per column.
        shrinkage: by which the draws of a member are drawn together, since the answer errs less
            than a member does, per column.
    """

    weights: Tensor
    factors: Tensor
    shrinkage: Tensor

    @classmethod
    def of_members(cls, columns: int) -> Combination:
        """The mean of the members as it is."""
        ones = torch.ones(columns, dtype=torch.float64)
        return cls(torch.tensor([1.0, 0.0], dtype=torch.float64), ones, ones.clone())


@dataclass
class Sums:
    """Sums over kept cells by column: of products of the truth x, members y, linear model l."""

    xx: Tensor
    xy: Tensor
    xl: Tensor
    yy: Tensor
    yl: Tensor
    ll: Tensor
    one: Tensor
    """Squared errors of single members."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def combine(
    model: VFG,
    linears: Sequence[GaussianVFG] | None,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
) -> Combination:
    """Fit the combination to the cells that every member kept aside.

    What a member says of a cell that it never saw stands for what all of them would say; how much
    their mean varies is known from all of them.

    Args:
        model: the members, stacked.
        linears: the linear models that they started from, or None.
        values: the matrix, 0 where nothing is known.
        observed: which of its entries are known.
        held: which of them each member kept aside.
    """
    parts = [
        _sums(model, place, None if linears is None else linears[place], values, observed, held)
        for place in range(len(held))
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    weights = _weights(total)
    products = weights[0] * total.xy + weights[1] * total.xl
    squares = (
        weights[0] ** 2 * total.yy
        + 2.0 * weights[0] * weights[1] * total.yl
        + weights[1] ** 2 * total.ll
    )
    # Where columns have few kept cells, the factor of all columns together.
    overall = _ratio(products.sum() + PRIOR, squares.sum() + PRIOR)
    size = COLUMN_PRIOR * squares.sum() / total.xx.sum().clamp(min=1e-9)
    factors = _ratio(products + size * overall, squares + size).clamp(0.0, 1.2)
    errors = total.xx - 2.0 * factors * products + factors.square() * squares
    pooled = _ratio(errors.sum(), total.one.sum())
    share = _ratio(errors + PRIOR * pooled, total.one + PRIOR)
    return Combination(weights, factors, share.clamp(0.25, 1.2).sqrt())


def member_means(
    model: VFG, members: int, values: Tensor, observed: Tensor, row_ids: Tensor | None = None
) -> Tensor:
    """What every member expects of every entry of a matrix, `(members, rows, columns)`."""
    answer = model.infer(tiled(values, members), observed=tiled(observed, members), row_ids=row_ids)
    found = torch.cat(list(answer.mean.values()), dim=1)
    return found.view(len(values), members, -1).transpose(0, 1).double()


@torch.no_grad()
def _sums(
    model: VFG,
    place: int,
    linear: GaussianVFG | None,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
) -> Sums:
    own = held[place]
    rows = own.any(1).nonzero()[:ROWS, 0]
    x, shown, counted = values[rows], (observed & ~own)[rows], own[rows].double()
    guesses = member_means(model, len(held), x, shown)
    y, mean, line = guesses[place], guesses.mean(0), torch.zeros_like(x)
    if linear is not None:
        answer = linear.infer(x, observed=shown)
        line = torch.cat(list(answer.mean.values()), dim=1)
    products = (
        x * x, x * y, x * line, mean * mean, mean * line, line * line, (x - y).square()
    )  # fmt: skip
    return Sums(*((product * counted).sum(0) for product in products))


def _weights(total: Sums) -> Tensor:
    """Non-negative least squares for two weights, drawn to (1, 0) by a prior."""
    yy, yl, ll = (float(part.sum()) for part in (total.yy, total.yl, total.ll))
    xy, xl = float(total.xy.sum()) + PRIOR, float(total.xl.sum())
    yy, ll = yy + PRIOR, ll + PRIOR
    determinant = max(yy * ll - yl * yl, 1e-9)
    first, second = (xy * ll - xl * yl) / determinant, (xl * yy - xy * yl) / determinant
    if second < 0.0:
        first, second = xy / yy, 0.0
    if first < 0.0:
        first, second = 0.0, max(xl / ll, 0.0)
    return torch.tensor([first, second], dtype=torch.float64)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return above / below.clamp(min=1e-9)
