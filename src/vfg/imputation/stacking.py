r"""How the parts of a table's model join in one answer.

The parts are the bent members, the mixtures, the linear model, and the neighbours, plain and
corrected. With $\bar y_i$ what those of kind i expect on average, each no further out than the
known cells of a column reach, and all 0 at the mean of a column, cell $c$ is filled with
$f_c \sum_i w_i \bar y_i$. The weights and the factors are least squares at cells that were kept
from the models, so a table whose columns say nothing about each other is filled with means, and
one too small to be bent with the linear model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import concat_leaves, exact_means
from vfg.imputation.calibration import DRAWS, SPREADS, mean_of_draws, spread_factors, tails_of
from vfg.imputation.mixtures import Mixture, side_by_side
from vfg.imputation.model_stack import repeat_columns, stack_models
from vfg.imputation.row_mixture import MeanPair, RowMixture
from vfg.model import VFG

AVERAGING_PRIOR = 20.0
"""How many products of unit variance count for averaging that changes nothing."""


def averaging_of(single: Tensor, mean: Tensor) -> Tensor:
    r"""What averaging over parts does to products of what single ones say: $L$ with $L S L^T = M$.

    Args:
        single: $S$, sums of products of what single parts say, `(kinds, kinds)`.
        mean: $M$, the same of the means of all parts.

    Returns:
        $L$, which makes nothing larger, and less of a difference the fewer products there are.

    Example:
        >>> single = torch.tensor([[8e6, 2e6], [2e6, 2e6]], dtype=torch.float64)
        >>> mean = torch.tensor([[4e6, 2e6], [2e6, 2e6]], dtype=torch.float64)
        >>> averaging = averaging_of(single, mean)
        >>> (averaging @ single @ averaging.T / 1e6).round(decimals=3).tolist()
        [[4.0, 2.0], [2.0, 2.0]]
    """
    prior = AVERAGING_PRIOR * torch.eye(len(single), dtype=single.dtype)
    root = torch.linalg.cholesky(single + prior)
    inner = torch.linalg.solve_triangular(root, mean + prior, upper=False)
    inner = torch.linalg.solve_triangular(root, inner.mT, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (inner + inner.mT))
    half = vectors * values.clamp(0.0, 1.0).sqrt() @ vectors.mT
    found: Tensor = torch.linalg.solve_triangular(root, root @ half, upper=False, left=False)
    return found


GOLDEN = 0.6180339887498949
"""Its multiples come to everyone as often as they should, however many there are."""


def drawing_shares(weights: Tensor) -> Tensor:
    """How often members, mixtures, linear model and neighbours draw, from the weights of `KINDS`.

    Example:
        >>> drawing_shares(torch.tensor([0.5, 0.0, 0.0, 0.2, 0.3])).tolist()
        [0.5, 0.0, 0.0, 0.5]
        >>> drawing_shares(torch.zeros(5)).tolist()
        [0.0, 0.0, 1.0, 0.0]
    """
    shares = torch.cat([weights[:3], weights[3:].sum(0, keepdim=True)])
    if float(shares.sum()) < 1e-3:
        # Nothing says anything beyond the means: the linear model, about the means.
        shares = torch.tensor([0.0, 0.0, 1.0, 0.0]).to(weights)
    return shares / shares.sum()


def corrected_share(weights: Tensor) -> float:
    """How much of the correction of neighbours counts, from the weights of `KINDS`.

    Example:
        >>> corrected_share(torch.tensor([0.0, 0.0, 0.0, 0.1, 0.3]))
        0.75
    """
    plain, corrected = weights[3:].tolist()
    return float(corrected / (plain + corrected)) if plain + corrected > 0 else 1.0


def allocate_draws(weights: Tensor, counts: Sequence[int], number: int) -> dict[int, list[int]]:
    """Which draws each part makes, by its place among members, mixtures, linear, neighbours.

    The first turns are the same for every number.

    Args:
        weights: of the `KINDS`.
        counts: how many members, mixtures, linear models and neighbours there are.
        number: of draws.

    Example:
        >>> allocate_draws(torch.tensor([0.5, 0.0, 0.0, 0.0, 0.5]), [1, 0, 1, 2], 8)
        {0: [1, 3, 6], 2: [0, 2, 5], 3: [4, 7]}
    """
    shares = [
        float(share) / count
        for share, count in zip(drawing_shares(weights), counts, strict=True)
        for _ in range(count)
    ]
    ends = np.cumsum(shares)
    levels = (0.5 + np.arange(number) * GOLDEN) % 1.0 * ends[-1]
    who = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
    return {int(part): np.flatnonzero(who == part).tolist() for part in np.unique(who)}


KINDS = ("members", "mixtures", "linear", "neighbours", "corrected neighbours")
"""What the weights are of."""
START = (0.5, 1.0, 0.0, 0.5, 1.0)
"""What they start from, in proportion, where there is such a part."""
ROWS = 2048
"""How many rows with kept cells are looked at, about; of every member equally many."""
FEWEST_ROWS = 256
"""How many of a member at least."""
FEWEST_MEMBERS = 2
"""The cells of how many members are looked at in a hurry."""
CLIP = 6.0
"""Deviations from the mean of a column beyond which a cell counts as lying there, so that a few far
out do not decide for all."""
START_PRIOR = 100.0
"""How many cells of unit variance the start weighs."""
PRIOR = 20.0
"""The same for the factor 1."""
COLUMN_PRIOR = 60.0
"""The same for what the factor of one column starts from: that of all columns."""


@dataclass(frozen=True)
class Stacking:
    """The numbers that join the parts of a model.

    Attributes:
        weights: of the parts, in the order of `KINDS`.
        factors: by which the sum is drawn to the mean, per column.
        spread: by which draws are drawn together or apart, per column.
        reach: the least and the most known value of every column, `(2, columns)`.
    """

    weights: Tensor
    factors: Tensor
    spread: Tensor
    reach: Tensor

    @classmethod
    def of_members(cls, columns: int) -> Stacking:
        """The mean of the bent members as it is."""
        ones = torch.ones(columns, dtype=torch.float64)
        weights = torch.zeros(len(KINDS), dtype=torch.float64)
        weights[0] = 1.0
        return cls(weights, ones, ones, torch.stack([-torch.inf * ones, torch.inf * ones]))


@dataclass
class Parts:
    """All that may have a say.

    Attributes:
        members: the bent members.
        linears: the linear models that they started from, or None.
        mixtures: of which the first ones kept the cells of the members aside, too.
        neighbours: which kept no cells aside; a row does not hear itself.
        stack: the members as one model, if there is one already.
    """

    members: list[VFG]
    linears: list[GaussianVFG] | None
    mixtures: list[Mixture]
    neighbours: list[RowMixture]
    stack: VFG | None = None

    @cached_property
    def stacked_members(self) -> VFG:
        """The members as one model in evaluation mode."""
        return (stack_models(self.members) if self.stack is None else self.stack).eval()

    @property
    def present(self) -> Tensor:
        """Which of the `KINDS` there are."""
        near = bool(self.neighbours)
        return torch.tensor([True, bool(self.mixtures), self.linears is not None, near, near])


@dataclass
class HeldOutCells:
    """Rows with cells that one member kept aside."""

    place: int
    ids: Tensor
    values: Tensor
    shown: Tensor
    counted: Tensor
    """1 at the kept cells, else 0."""
    single: Tensor
    """What parts that did not see these cells say, `(kinds, rows, columns)`."""
    at_gaps: Tensor
    """Sums of products, like `Sums.pp`, at gaps of the table, which no part saw: of what those of
    `single` say, and of what all parts of a kind say on average, `(2, kinds, kinds)`."""
    near: RowMixture | None
    """Neighbours whose linear model did not see these cells."""


@dataclass
class Sums:
    """Sums over kept cells by column: of the truth x and the guesses p."""

    xx: Tensor
    xp: Tensor
    """`(kinds, columns)`; what single parts say, who did not see the cells."""
    pp: Tensor
    """`(kinds, kinds, columns)`; of two different parts, or of one with itself."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@torch.no_grad()
def fit_stacking(
    parts: Parts,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
    *,
    seed: int = 0,
    hurried: bool = False,
) -> Stacking:
    """Fit the combination to the cells that every member kept aside.

    What a part says of a cell that it never saw stands for what others of its kind would say. How
    much less their mean varies is read from the gaps of the table, which nobody saw: at kept cells
    all but one of them know the answer.

    Args:
        parts: members, mixtures, linear models and neighbours.
        values: the matrix, 0 where nothing is known.
        observed: which of its entries are known.
        held: which of them each member kept aside.
        seed: of the draws to which their spread is fitted.
        hurried: whether to look at the cells of few members and at few rows.
    """
    number = min(len(held), len(parts.mixtures)) if parts.mixtures else len(held)
    number = min(number, FEWEST_MEMBERS) if hurried else number
    most = FEWEST_ROWS if hurried else max(FEWEST_ROWS, ROWS // number)
    reach = observed_range(values, observed)
    stack = parts.stacked_members
    nearest = [place * len(parts.neighbours) // number for place in range(number)]
    kept = [
        _held_out_cells(
            parts, stack, values, observed, held[place], place, nearest[place], most, reach
        )
        for place in range(number)
    ]
    total = _sums(kept[0])
    for one in kept[1:]:
        total = total + _sums(one)
    averaging = averaging_of(*torch.stack([one.at_gaps for one in kept]).sum(0))
    total.pp = torch.einsum("ij,jkc,lk->ilc", averaging, total.pp, averaging)
    weights = _weights(total, parts.present)
    products = (weights[:, None] * total.xp).sum(0)
    squares = (weights[:, None, None] * weights[:, None] * total.pp).sum((0, 1))
    # Where columns have few kept cells, the factor of all columns together.
    overall = _ratio(products.sum() + PRIOR, squares.sum() + PRIOR)
    size = COLUMN_PRIOR * squares.sum() / total.xx.sum().clamp(min=1e-9)
    factors = _ratio(products + size * overall, squares + size).clamp(0.0, 1.2)
    errors = total.xx - 2.0 * factors * products + factors.square() * squares
    spread = _spread(parts, kept, weights, factors, errors, len(values), seed)
    return Stacking(weights, factors, spread, reach)


def observed_range(values: Tensor, observed: Tensor) -> Tensor:
    """The least and the most known value of every column, `(2, columns)`; 0 where none is known.

    Example:
        >>> values = torch.tensor([[1.0, 5.0], [3.0, 0.0]])
        >>> observed_range(values, torch.tensor([[True, False], [True, False]])).tolist()
        [[1.0, 0.0], [3.0, 0.0]]
    """
    known = observed.any(0)
    low = torch.where(observed, values, torch.inf).amin(0)
    high = torch.where(observed, values, -torch.inf).amax(0)
    return torch.where(known, torch.stack([low, high]), 0.0).double()


def member_means(
    model: VFG, members: int, values: Tensor, observed: Tensor, row_ids: Tensor | None = None
) -> Tensor:
    """What every member expects of every entry of a matrix, `(members, rows, columns)`."""
    answer = model.infer(
        repeat_columns(values, members), observed=repeat_columns(observed, members), row_ids=row_ids
    )
    return concat_leaves(answer.mean).view(len(values), members, -1).transpose(0, 1)


def _held_out_cells(
    parts: Parts,
    stack: VFG,
    values: Tensor,
    observed: Tensor,
    own: Tensor,
    place: int,
    nearest: int,
    most: int,
    reach: Tensor,
) -> HeldOutCells:
    rows = own.any(1).nonzero()[:most, 0]
    x, shown = values[rows], (observed & ~own)[rows]
    ids = torch.arange(len(x))
    nothing = torch.zeros(1, *x.shape, dtype=torch.float64)
    said, unseen = [nothing] * len(KINDS), [0] * len(KINDS)
    said[0], unseen[0] = member_means(stack, len(parts.members), x, shown), place
    if parts.mixtures:
        mixed = side_by_side(lambda mixture: mixture.expected(x, shown, ids), parts.mixtures)
        said[1], unseen[1] = torch.stack(mixed), place
    if parts.linears is not None:
        said[2] = exact_means(parts.linears[place], x, shown)[None]
    near, alone = None, None
    if parts.neighbours:
        others = [_without_themselves(one, x, shown, rows, len(values)) for one in parts.neighbours]
        said[3:] = [torch.stack(each) for each in zip(*others, strict=True)]
        unseen[3:] = nearest, nearest
        near = parts.neighbours[nearest].without(values, observed, own)
        alone = _without_themselves(near, x, shown, rows, len(values))
    said = [clip(each.clamp(*reach)) for each in said]
    single = torch.stack([each[chosen] for each, chosen in zip(said, unseen, strict=True)])
    mean = torch.stack([each.mean(0) for each in said])
    gaps = ~observed[rows]
    at_gaps = torch.stack([each[:, gaps] @ each[:, gaps].T for each in (single, mean)])
    if alone is not None:
        single[3:] = clip(torch.stack(alone).clamp(*reach))
    return HeldOutCells(place, rows, x, shown, own[rows].double(), single, at_gaps, near)


def _without_themselves(
    near: RowMixture, values: Tensor, shown: Tensor, rows: Tensor, table_rows: int
) -> MeanPair:
    own = near.components_of(rows, table_rows)
    return near.expected(values, shown, torch.arange(len(values)), own)


def _sums(kept: HeldOutCells) -> Sums:
    x, single = clip(kept.values), clip(kept.single)
    products = (x * x, x * single, single[:, None] * single)
    return Sums(*((product * kept.counted).sum(-2) for product in products))


def clip(said: Tensor) -> Tensor:
    """Values no further than `CLIP` deviations from the mean."""
    return said.clamp(-CLIP, CLIP)


def _weights(total: Sums, present: Tensor) -> Tensor:
    """Non-negative least squares, drawn to equal weights of some parts by a prior."""
    start = torch.tensor(START, dtype=torch.float64) * present
    start = start / start.sum()
    left = total.pp.sum(-1) + START_PRIOR * torch.eye(len(KINDS), dtype=torch.float64)
    right = total.xp.sum(-1) + START_PRIOR * start
    factor = np.linalg.cholesky(left.numpy()).T
    found, _ = nnls(factor, np.linalg.solve(factor.T, right.numpy()))
    return torch.from_numpy(found) * present


def _spread(
    parts: Parts,
    kept: Sequence[HeldOutCells],
    weights: Tensor,
    factors: Tensor,
    errors: Tensor,
    table_rows: int,
    seed: int,
) -> Tensor:
    """By how much draws are to be drawn together or apart, by column."""
    shares, moved = drawing_shares(weights), corrected_share(weights)
    drawn = [_distances(parts, one, shares, moved, table_rows, seed) for one in kept]
    distances = torch.cat(drawn, dim=-1)
    columns = torch.cat([one.counted.nonzero()[:, 1] for one in kept])
    squares = mean_of_draws(distances.square(), shares)
    spread = spread_factors(errors, torch.zeros_like(errors).index_add(0, columns, squares))
    missed = torch.cat([_errors(one, weights, factors) for one in kept])
    # Intervals want the tail of errors, scores of draws their variance: half way between.
    half_way = math.sqrt(tails_of(missed, distances, shares))
    return (half_way * spread).clamp(*SPREADS)


def _distances(
    parts: Parts, kept: HeldOutCells, shares: Tensor, moved: float, table_rows: int, seed: int
) -> Tensor:
    """Draws less what all who draw expect together, at kept cells: `(kinds, draws, cells)`."""
    nearest = kept.single[3] + moved * (kept.single[4] - kept.single[3])
    centres = [*kept.single[:3], nearest]
    centre = clip(sum(share * mean for share, mean in zip(shares, centres, strict=True)))
    cells = kept.counted > 0
    found = torch.zeros(len(shares), DRAWS, int(cells.sum()), dtype=torch.float64)
    drawers = _drawers(parts, kept, moved, table_rows)
    for own, share, draw in zip(found, shares, drawers, strict=True):
        if draw is not None and share > 0:
            own.copy_((clip(draw(seed)) - centre)[:, cells])
    return found


def _errors(kept: HeldOutCells, weights: Tensor, factors: Tensor) -> Tensor:
    """Of what all parts expect that did not see the kept cells, there."""
    said = factors * clip(torch.einsum("k,krc->rc", weights, kept.single))
    return (clip(kept.values) - said)[kept.counted > 0]


def _drawers(
    parts: Parts, kept: HeldOutCells, moved: float, table_rows: int
) -> list[Callable[[int], Tensor] | None]:
    """Who draws the rows of a member from a seed: it, a mixture, the linear model, neighbours."""
    x, shown, place, near = kept.values, kept.shown, kept.place, kept.near
    every = torch.arange(len(x))

    def answered(model: VFG | GaussianVFG) -> Callable[[int], Tensor]:
        return lambda seed: concat_leaves(model.infer(x, observed=shown, seed=seed).samples(DRAWS))

    def mixture(seed: int) -> Tensor:
        return parts.mixtures[place].samples(x, shown, DRAWS, seed=seed, ids=every)

    def neighbours(seed: int) -> Tensor:
        assert near is not None
        own = near.components_of(kept.ids, table_rows)
        return near.samples(x, shown, DRAWS, seed=seed, ids=every, corrected=moved, own=own)

    return [
        answered(parts.members[place]),
        mixture if parts.mixtures else None,
        None if parts.linears is None else answered(parts.linears[place]),
        None if near is None else neighbours,
    ]


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return above / below.clamp(min=1e-9)
