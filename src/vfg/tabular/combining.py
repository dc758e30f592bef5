r"""How bent members, mixtures and the linear model join in one answer.

With $\bar y$ the mean of the bent members, $\bar m$ that of the mixtures and $l$ the linear model,
all 0 at the mean of a column, cell $c$ is filled with
$f_c\,(w_1 \bar y + w_2 \bar m + w_3 l)$. The weights and the factors are least squares at cells
that were kept from the models, so a table whose columns say nothing about each other is filled
with means, and one too small to be bent with the linear model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.model import VFG

from .forest import tiled
from .mixtures import side_by_side
from .rowwise import exact_means

ROWS = 2048
"""How many rows with kept cells are looked at, about; of every member equally many."""
FEWEST_ROWS = 256
"""How many of a member at least."""
PRIOR = 20.0
"""How many cells of unit variance the start weighs: half members, half mixtures, factor 1."""
COLUMN_PRIOR = 60.0
"""The same for what the factor of one column starts from: that of all columns."""


@dataclass(frozen=True)
class Combination:
    """The numbers that join bent members, mixtures and linear model.

    Attributes:
        weights: of the members' mean, the mixtures' mean, and the linear model.
        factors: by which the sum is drawn to the mean, per column.
        shrinkage: by which draws are drawn together, since the answer errs less than a single
            member does: of bent members and of mixtures, `(2, columns)`.
    """

    weights: Tensor
    factors: Tensor
    shrinkage: Tensor

    @classmethod
    def of_members(cls, columns: int) -> Combination:
        """The mean of the bent members as it is."""
        ones = torch.ones(columns, dtype=torch.float64)
        weights = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        return cls(weights, ones, torch.stack([ones, ones]))


@dataclass
class Sums:
    """Sums over kept cells by column: of the truth x and three guesses p."""

    xx: Tensor
    xp: Tensor
    """`(3, columns)`; what single members say, who did not see the cells."""
    pp: Tensor
    """`(3, 3, columns)`; of means over members, which vary less."""
    one: Tensor
    """Squared errors of single bent members."""
    expected: Tensor
    """Squared errors that single mixtures expect."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def combine(
    model: VFG,
    mixtures: Sequence[GaussianVFG],
    linears: Sequence[GaussianVFG] | None,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
) -> Combination:
    """Fit the combination to the cells that every member kept aside.

    What a member says of a cell that it never saw stands for what all of them would say; how much
    their mean varies is known from all of them.

    Args:
        model: the bent members, stacked.
        mixtures: mixtures, of which the first ones kept the same cells aside as the members.
        linears: the linear models that the members started from, or None.
        values: the matrix, 0 where nothing is known.
        observed: which of its entries are known.
        held: which of them each member kept aside.
    """
    places = range(min(len(held), len(mixtures)) if mixtures else len(held))
    parts = [
        _sums(
            model, mixtures, None if linears is None else linears[place], values, observed, held,
            place, max(FEWEST_ROWS, ROWS // len(places)),
        )
        for place in places
    ]  # fmt: skip
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    weights = _weights(total, torch.tensor([True, bool(mixtures), linears is not None]))
    products = (weights[:, None] * total.xp).sum(0)
    squares = (weights[:, None, None] * weights[:, None] * total.pp).sum((0, 1))
    # Where columns have few kept cells, the factor of all columns together.
    overall = _ratio(products.sum() + PRIOR, squares.sum() + PRIOR)
    size = COLUMN_PRIOR * squares.sum() / total.xx.sum().clamp(min=1e-9)
    factors = _ratio(products + size * overall, squares + size).clamp(0.0, 1.2)
    errors = total.xx - 2.0 * factors * products + factors.square() * squares
    shrinkage = [
        _shrinkage(errors, total.one, 1.2),
        _shrinkage(errors, total.expected, 4.0) if mixtures else torch.ones_like(factors),
    ]
    return Combination(weights, factors, torch.stack(shrinkage))


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
    mixtures: Sequence[GaussianVFG],
    linear: GaussianVFG | None,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
    place: int,
    most: int,
) -> Sums:
    own = held[place]
    rows = own.any(1).nonzero()[:most, 0]
    x, shown, counted = values[rows], (observed & ~own)[rows], own[rows].double()
    bent = member_means(model, len(held), x, shown)
    nothing = torch.zeros_like(x)
    line = nothing if linear is None else exact_means(linear, x, shown)
    single, mean = [bent[place], nothing, line], [bent.mean(0), nothing, line]
    expected = nothing
    if mixtures:
        mixed = torch.stack(side_by_side(lambda mixture: exact_means(mixture, x, shown), mixtures))
        single[1], mean[1] = mixed[place], mixed.mean(0)
        spread = mixtures[place].infer(x, observed=shown).std
        expected = torch.cat(list(spread.values()), dim=1).double().square()
    guesses, means = torch.stack(single), torch.stack(mean)
    products = (
        x * x, x * guesses, means[:, None] * means, (x - bent[place]).square(), expected
    )  # fmt: skip
    return Sums(*((product * counted).sum(-2) for product in products))


def _weights(total: Sums, present: Tensor) -> Tensor:
    """Non-negative least squares, drawn to equal weights of members and mixtures by a prior."""
    start = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64) * present
    start = start / start.sum()
    left = total.pp.sum(-1) + PRIOR * torch.eye(3, dtype=torch.float64)
    right = total.xp.sum(-1) + PRIOR * start
    factor = np.linalg.cholesky(left.numpy()).T
    found, _ = nnls(factor, np.linalg.solve(factor.T, right.numpy()))
    return torch.from_numpy(found) * present


def _shrinkage(errors: Tensor, single: Tensor, most: float) -> Tensor:
    pooled = _ratio(errors.sum(), single.sum())
    share = _ratio(errors + PRIOR * pooled, single + PRIOR)
    return share.clamp(0.25, most).sqrt()


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return above / below.clamp(min=1e-9)
