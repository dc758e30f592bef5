r"""Draws of cells and parameters for tables whose columns follow others in curves.

A Normal model has straight relations alone, and draws of an ensemble scatter about curves that are
too flat, since cells on both sides of them are missing. Here some columns, the curved ones, are
regressions on those before them,

$$z_c = \beta_0 + \sum_{j < c} \beta_j z_j + \sum_k \gamma_k\, t_k(z) + \sigma_c \varepsilon,$$

with products, squares and hinges $\max(z_j - q, 0)$ as terms $t_k$; all other columns are jointly
Normal. Terms are found at cells that are observed, one after the other, as long as their log Bayes
factors are large. Data augmentation alternates between drawing the parameters given completed rows,
each regression from the posterior of least squares, and drawing missing cells one column at a time.
A cell has the density that the columns before it give, times the likelihood of the curved columns
after it. If it is in terms of those, it is drawn on a grid: x given y = x² has two modes. A curved
column that is missing says nothing about those before it, and is left out there, so that draws of
single curves are exact. With no curved column this would be the Normal model.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vfg.imputation.limits import keep_within_limits
from vfg.imputation.parameter_draws import (
    OUTER_LEVEL,
    CategoryDraw,
    FittedRows,
    Gaps,
    NormalModel,
    draw_categories,
    draw_levels,
    draw_posterior,
    gaps_by_column,
    move_nearer,
    share_of_pairs,
)

LEAST_EVIDENCE = 6.0
"""Log Bayes factor that a term must have, beside the logarithm of the number of candidates."""
LEAST_SHARE = 0.03
"""The share of the variance that is left that a first term must explain."""
MOST_TERMS = 6
"""Terms of a column, at most."""
FEWEST_ROWS = 60
"""Rows with the cells of a term below which it is not tried."""
KNOTS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Quantiles of a column at which hinges bend."""
HINGE_COST = 3.0
"""Log Bayes factor by which a hinge must be better than a square, since its knot is chosen."""
PRODUCTS = 12
"""Columns of numbers up to which products of two of them are candidates."""
TRIMMED = 0.99
"""Cells up to this quantile of the size of a term must support the term by themselves: a few
outlying cells look like a curve."""
GRID, FINE_GRID = 96, 288
"""Points of the grid that a missing cell is drawn on, and where a curved column follows the cell
closely."""
CLOSE = 0.2
"""The deviation of a curved column about its curve below which the grid is fine."""
HEAVIEST = 10.0
"""The kurtosis up to which columns, and noise about curves, are drawn as Normal: with heavier
tails, draws would lose the shape that those of an ensemble have. Exponential variables have 9,
lognormal ones far more."""
UNEVEN = 0.4
"""The correlation of the size of residuals with the prediction up to which noise about a curve
counts as constant."""
MARGIN, OUTSIDE = 0.25, -1e3
"""Deviations beyond the range of a completed column from which its log density is that low."""
REACH = 4.0
"""Deviations from the mean up to which grids reach: cells that are missing by another column may
all lie beyond those observed."""
SHAPE_BOUND = 3.0
"""Bound of the logarithm of the density of a column relative to a Normal one."""
SWEEPS = 6
"""How often every missing cell of a row is drawn, with given parameters."""
BURN_IN, THINNING = (12, 40), (2, 12)
"""Bounds of the steps before the first draw of parameters, and of those between draws."""
CORRELATED = 0.02
"""The greatest correlation of parameters of successive draws. That of successive steps is the share
of the information that is missing."""
COMPLETED = 4
"""Draws of the fitted rows that are compared with what an ensemble predicts."""
ROWS_AND_DRAWS = 2**13
"""Pairs of a row and a draw that are swept together, so that grids fit into the cache of a CPU."""


class Term(NamedTuple):
    """The product of two columns or of one with itself, or a hinge of a column at a knot."""

    column: int
    other: int
    knot: float | None = None

    def has(self, column: int) -> bool:
        return column in (self.column, self.other)

    def of(self, table: Tensor) -> Tensor:
        """Its values, `(..., rows)`, in a table `(..., rows, columns)`."""
        if self.knot is not None:
            return (table[..., self.column] - self.knot).clamp(min=0.0)
        return table[..., self.column] * table[..., self.other]

    def along(self, column: int, points: Tensor, table: Tensor) -> Tensor:
        """Its values if a column had those of some points, `(..., rows or 1, points)`."""
        if self.knot is not None:
            return (points - self.knot).clamp(min=0.0)[None]
        if self.column == self.other:
            return points.square()[None]
        partner = self.other if self.column == column else self.column
        return table[..., partner, None] * points


class _Candidates(NamedTuple):
    """Terms that may be tried, their values in completed rows, and where these are observed."""

    terms: list[Term]
    values: Tensor  # (rows, terms)
    known: Tensor  # (rows, terms)

    @classmethod
    def of(cls, terms: list[Term], completed: Tensor, observed: Tensor) -> _Candidates:
        if not terms:
            return cls(terms, completed[:, :0], observed[:, :0])
        pairs = torch.tensor([term[:2] for term in terms])
        known = observed[:, pairs[:, 0]] & observed[:, pairs[:, 1]]
        return cls(terms, torch.stack([term.of(completed) for term in terms], dim=1), known)

    def among(self, rows: Tensor, without: Sequence[int]) -> _Candidates:
        """Some rows, without the terms that have some columns."""
        places = [
            place
            for place, term in enumerate(self.terms)
            if not any(term.has(at) for at in without)
        ]
        values, known = (table[rows][:, places] for table in self[1:])
        return _Candidates([self.terms[place] for place in places], values, known)


class Curve(NamedTuple):
    """A curved column, the columns before it, and its terms."""

    column: int
    inputs: tuple[int, ...]
    terms: tuple[Term, ...]

    def design(self, table: Tensor) -> Tensor:
        parts = [torch.ones_like(table[:, :1]), table[:, list(self.inputs)]]
        return torch.cat([*parts, *(term.of(table)[:, None] for term in self.terms)], dim=1)

    def bends(self, column: int) -> bool:
        return any(term.has(column) for term in self.terms)


class Grid(NamedTuple):
    """Points that cells of a column are drawn at, and the kernel of their density."""

    points: Tensor
    width: float
    kernel: Tensor  # densities at points of those at others, (points, points)

    @classmethod
    def of(cls, points: Tensor, width: float) -> Grid:
        apart = (points[:, None] - points) / width
        return cls(points, width, torch.exp(-0.5 * apart.square()) / width)

    def shape(self, cells: Tensor, often: Tensor) -> Tensor:
        """The log density of cells at the points, beside that of a Normal variable.

        It is that of completed columns: the cells that are observed are a biased part of a column
        whose cells are missing by another one, and end before it does.
        """
        points, start, step = self.points, self.points[0], self.points[1] - self.points[0]
        places = ((cells - start) / step).round().long().clamp(0, len(points) - 1)
        count, total = torch.bincount(places, often, len(points)), often.sum()
        density = self.kernel @ count / total
        mean = often @ cells / total
        spread = (often @ (cells - mean).square() / total + self.width**2).sqrt()
        usual = torch.exp(-0.5 * ((points - mean) / spread).square()) / spread
        ratio = ((density + 1e-4).log() - (usual + 1e-4).log()).clamp(-SHAPE_BOUND, SHAPE_BOUND)
        inside = (points >= cells.amin() - MARGIN) & (points <= cells.amax() + MARGIN)
        return torch.where(inside, ratio, OUTSIDE)


@dataclass(frozen=True)
class Curves:
    """Curved columns in order, all other columns, and grids of those that are in terms."""

    plain: tuple[int, ...]
    curved: tuple[Curve, ...]
    grids: dict[int, Grid]

    def shapes(self, table: Tensor, often: Tensor) -> dict[int, Tensor]:
        """The shapes of the columns in terms, in completed rows that count so often."""
        return {at: grid.shape(table[:, at], often) for at, grid in self.grids.items()}

    def after(self, column: int) -> list[int]:
        """Places of the curved columns that have a column among their inputs."""
        return [k for k, one in enumerate(self.curved) if column in one.inputs]


@dataclass(frozen=True)
class CurvedModel:
    """Parameters: a Normal model of all columns, one of those without curves, and regressions."""

    normal: NormalModel
    plain: NormalModel
    weights: tuple[Tensor, ...]
    variances: tuple[float, ...]
    shapes: dict[int, Tensor]  # of columns in terms, at the points of their grids

    def nearer(self, draw: CurvedModel, share: float) -> CurvedModel:
        """A draw at a share of its distance from these."""
        pairs = zip(self.weights, draw.weights, strict=True)
        spreads = zip(self.variances, draw.variances, strict=True)
        return CurvedModel(
            move_nearer(self.normal, draw.normal, share),
            move_nearer(self.plain, draw.plain, share),
            tuple(torch.lerp(a, b, share) for a, b in pairs),
            tuple(a + share * (b - a) for a, b in spreads),
            {at: torch.lerp(self.shapes[at], shape, share) for at, shape in draw.shapes.items()},
        )


def find_curves(
    estimate: NormalModel, fitted: FittedRows, numeric: Sequence[int], limits: Tensor
) -> Curves | None:
    """Columns of numbers that follow others in curves, in a fitted table; None if none does.

    `limits` are those of `keep_within_limits`.
    """
    values, observed = fitted.table
    if len(values) < FEWEST_ROWS or len(numeric) < 2:
        return None
    drawn = [values[observed[:, at], at] for at in numeric if not bool(observed[:, at].all())]
    if any(len(cells) and _kurtosis(cells - cells.mean()) > HEAVIEST for cells in drawn):
        return None
    completed = estimate.conditional_means(values, observed)
    often = torch.from_numpy(fitted.often) * (len(values) / fitted.rows)
    candidates = _Candidates.of(_candidate_terms(values, observed, numeric), completed, observed)
    given = candidates, completed, observed, often
    found = {column: _select_terms(column, *given) for column in numeric}
    kept: dict[int, tuple[Term, ...]] = {}
    for column in sorted(found, key=lambda column: -found[column][1]):
        terms = found[column][0]
        if kept and terms and not any(term.has(at) for term in terms for at in kept):
            # Given a curved column, those that it follows look curved.
            terms = _select_terms(column, *given, without=tuple(kept))[0]
        if terms and not any(_leads(column, at, kept) for term in terms for at in term[:2]):
            kept[column] = terms
    fits = {column: _fit(column, terms, completed, observed) for column, terms in kept.items()}
    kept = {column: terms for column, terms in kept.items() if _is_even(*fits[column])}
    if not kept:
        return None
    order = _in_order(kept)
    plain = tuple(j for j in range(values.shape[1]) if j not in kept)
    curved = tuple(
        Curve(column, (*plain, *order[:place]), kept[column]) for place, column in enumerate(order)
    )
    grids = {}
    for at in sorted({at for terms in kept.values() for term in terms for at in term[:2]}):
        is_close = any(one.bends(at) and fits[one.column][1].std() < CLOSE for one in curved)
        usual = float(estimate.mean[at]), float(estimate.covariance[at, at].sqrt())
        grids[at] = _grid(values[observed[:, at], at], usual, limits[:, at], is_close)
    return Curves(plain, curved, grids)


def _candidate_terms(values: Tensor, observed: Tensor, numeric: Sequence[int]) -> list[Term]:
    """Terms that may be tried."""
    terms = []
    for column in numeric:
        cells = values[observed[:, column], column]
        distinct = cells.unique()
        if len(distinct) < 3 or len(cells) < FEWEST_ROWS:
            continue
        terms.append(Term(column, column))
        if len(distinct) > 2 * len(KNOTS):
            knots = torch.quantile(cells, torch.tensor(KNOTS, dtype=cells.dtype))
            terms += [Term(column, column, knot) for knot in knots.unique().tolist()]
    if len(numeric) <= PRODUCTS:
        terms += [Term(*pair) for pair in itertools.combinations(numeric, 2)]
    return terms


def _select_terms(
    column: int,
    candidates: _Candidates,
    completed: Tensor,
    observed: Tensor,
    often: Tensor,
    without: tuple[int, ...] = (),
) -> tuple[tuple[Term, ...], float]:
    """Terms of a column, one after the other, and the log Bayes factor of all of them.

    Linear predictors may be filled in; the cells of a term that is tried, and its own, may not.
    Columns `without` which it must do are no predictors.
    """
    left_out = (column, *without)
    rows = observed[:, column].nonzero()[:, 0]
    tried, inputs, known = candidates.among(rows, left_out)
    if not tried or len(rows) < FEWEST_ROWS:
        return (), 0.0
    table, target = completed[rows], completed[rows, column]
    others = [j for j in range(completed.shape[1]) if j not in left_out]
    root = often[rows].sqrt()[:, None]
    design = torch.cat([torch.ones_like(table[:, :1]), table[:, others]], dim=1)
    groups = _group_terms(tried, known)
    enough = known.sum(0) >= FEWEST_ROWS
    simplicity = HINGE_COST * torch.tensor([term.knot is not None for term in tried]).double()
    chosen: list[int] = []
    total = 0.0
    for _ in range(MOST_TERMS):
        left, apart = _residuals(root * design, root * target[:, None], root * inputs, groups)
        left, apart = (torch.where(known, both, 0.0) for both in (left, apart))
        gains, shares = _gains(apart, left, known, len(tried))
        gains = torch.where(enough, gains - simplicity, -torch.inf)
        best = int(gains.argmax())
        if best in chosen or float(gains[best]) < LEAST_EVIDENCE:
            break
        if not chosen and float(shares[best]) < LEAST_SHARE:
            break
        size = apart[:, best].abs()
        within = known[:, best] & (size <= torch.quantile(size[known[:, best]], TRIMMED))
        kept = within[:, None]
        trimmed, _ = _gains(apart[:, [best]] * kept, left[:, [best]] * kept, kept, 1)
        if float(trimmed[0]) < 0.0:
            break
        chosen.append(best)
        total += float(gains[best])
        design = torch.cat([design, inputs[:, best, None]], dim=1)
    return _with_squares([tried[place] for place in chosen], tried), total


def _group_terms(terms: list[Term], known: Tensor) -> list[tuple[Tensor, list[int]]]:
    """Places of terms that are tried together, and the rows that these are tried in.

    Squares and hinges of a column are tried where it is observed. Where it is filled in by a
    straight relation to a column that it bends, the relation looks straight. Products, and terms of
    wide tables, are tried beside a regression in all rows, which takes less time.
    """
    rows: dict[int, tuple[Tensor, list[int]]] = {}
    every = torch.ones_like(known[:, 0])
    is_wide = len({at for term in terms for at in term[:2]}) > PRODUCTS
    for place, term in enumerate(terms):
        is_alone = term.column == term.other and not is_wide and not bool(known[:, place].all())
        own = known[:, place] if is_alone else every
        rows.setdefault(term.column if is_alone else -1, (own, []))[1].append(place)
    return list(rows.values())


def _residuals(
    design: Tensor, target: Tensor, inputs: Tensor, groups: list[tuple[Tensor, list[int]]]
) -> tuple[Tensor, Tensor]:
    """What regressions on a design leave of a target and of inputs, both by input."""
    left, apart = torch.empty_like(inputs), torch.empty_like(inputs)
    for rows, places in groups:
        used = rows[:, None]
        basis = torch.linalg.qr(torch.where(used, design, 0.0)).Q
        both = torch.where(used, torch.cat([target, inputs[:, places]], dim=1), 0.0)
        both = both - basis @ (basis.mT @ both)
        left[:, places], apart[:, places] = both[:, :1], both[:, 1:]
    return left, apart


def _with_squares(terms: list[Term], candidates: list[Term]) -> tuple[Term, ...]:
    """Terms, and the squares of their columns that are candidates.

    A parabola whose one arm is missing by the curved column looks like a hinge, or like a product
    with a column that it goes with, where it is observed. The draws of the coefficients decide.

    Example:
        >>> candidates = [Term(0, 0), Term(0, 0, 0.5), Term(0, 1)]
        >>> [term.knot for term in _with_squares(candidates[1:], candidates)]
        [0.5, None, None]
    """
    squares = [Term(at, at) for term in terms for at in term[:2]]
    return tuple(dict.fromkeys([*terms, *(one for one in squares if one in candidates)]))


def _gains(apart: Tensor, left: Tensor, known: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Log Bayes factors of terms, nearly, and the shares of the variance that they explain."""
    count = known.sum(0).double()
    products = (apart * left).sum(0)
    squares = apart.square().sum(0) * left.square().sum(0)
    shares = (products.square() / squares.clamp(min=1e-12)).clamp(max=1.0 - 1e-9)
    gains = -0.5 * count * torch.log1p(-shares) - 0.5 * count.clamp(min=1.0).log()
    return gains - math.log(number), shares


def _leads(start: int, end: int, terms: dict[int, tuple[Term, ...]]) -> bool:
    """Whether a column is among those that another one is made of, or is that."""
    if start == end:
        return True
    return any(_leads(start, at, terms) for term in terms.get(end, ()) for at in term[:2])


def _in_order(terms: dict[int, tuple[Term, ...]]) -> list[int]:
    """Curved columns, each after those that are in its terms."""
    order: list[int] = []

    def add(column: int) -> None:
        for term in terms[column]:
            for at in term[:2]:
                if at in terms and at not in order:
                    add(at)
        if column not in order:
            order.append(column)

    for column in reversed(terms):
        add(column)
    return order


def _fit(
    column: int, terms: tuple[Term, ...], completed: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor]:
    """What a regression with terms predicts and leaves, where the cells of these are observed."""
    rows = observed[:, [column, *(at for term in terms for at in term[:2])]].all(1)
    others = tuple(j for j in range(completed.shape[1]) if j != column)
    design = Curve(column, others, terms).design(completed[rows])
    target = completed[rows, column, None]
    fitted = design @ torch.linalg.lstsq(design, target).solution
    return fitted[:, 0], (target - fitted)[:, 0]


def _is_even(fitted: Tensor, left: Tensor) -> bool:
    """Whether what is left is like Normal noise, and about as large everywhere."""
    sizes = torch.stack([fitted, left.abs()])
    return _kurtosis(left) <= HEAVIEST and abs(float(torch.corrcoef(sizes)[0, 1])) <= UNEVEN


def _kurtosis(numbers: Tensor) -> float:
    """The fourth moment of numbers about 0 over the squared second."""
    squares = numbers.square()
    return float(squares.square().mean() / squares.mean().square().clamp(min=1e-24))


def _grid(cells: Tensor, usual: tuple[float, float], limits: Tensor, is_fine: bool) -> Grid:
    """The grid of a column whose mean and deviation an estimate knows."""
    low, high = float(cells.amin()), float(cells.amax())
    below = max(MARGIN, low - usual[0] + REACH * usual[1])
    above = max(MARGIN, usual[0] + REACH * usual[1] - high)
    # Beyond the outermost cells, but not up to a limit that no cell attains.
    low = low - min(below, 0.5 * (low - float(limits[0])))
    high = high + min(above, 0.5 * (float(limits[1]) - high))
    points = torch.linspace(low, high, FINE_GRID if is_fine else GRID, dtype=torch.float64)
    return Grid.of(points, 0.9 * float(cells.std()) * len(cells) ** -0.2)


class _Parameters(NamedTuple):
    """Parameters that were drawn, side by side, as sweeps need them.

    Columns are in the order of sweeps, curved ones last; `terms` are all terms of all curves.
    """

    intercepts: Tensor  # of the curves, (draws, curves)
    slopes: Tensor  # of the curves, -1 for their own columns, (draws, curves, columns)
    terms: Tensor  # coefficients of terms, (draws, curves, terms)
    variances: Tensor  # of the curves, (draws, curves)
    precisions: Tensor  # of cells given the columns before them, (draws, columns)
    pulls: Tensor  # slopes of minus log densities, but for terms, (draws, columns, states)
    starts: Tensor  # the same at 0, (draws, columns)
    weights: Tensor  # precisions that curves add, but for terms, (draws, columns, curves)
    shapes: dict[int, Tensor]  # by column, (draws, points)

    @classmethod
    def of(cls, layout: _Layout, models: Sequence[CurvedModel]) -> _Parameters:
        """Those of some models."""
        curves, draws, size = layout.curves, len(models), len(layout.order)
        count, plain = len(curves.curved), len(curves.plain)
        slopes = torch.zeros(draws, count, size, dtype=torch.float64)
        terms = torch.zeros(draws, count, len(layout.terms), dtype=torch.float64)
        intercepts = torch.zeros(draws, count, dtype=torch.float64)
        for k, one in enumerate(curves.curved):
            own, inputs = torch.stack([model.weights[k] for model in models]), len(one.inputs)
            intercepts[:, k] = own[:, 0]
            # The inputs of a curve are the columns before it.
            slopes[:, k, :inputs], slopes[:, k, inputs] = own[:, 1 : 1 + inputs], -1.0
            terms[:, k, layout.places[k]] = own[:, 1 + inputs :]
        variances = torch.tensor([model.variances for model in models], dtype=torch.float64)
        precision = torch.linalg.inv(torch.stack([model.plain.covariance for model in models]))
        mean = torch.stack([model.plain.mean for model in models])
        straight = torch.where(layout.bends, 0.0, slopes)
        straight[:, range(count), range(plain, size)] = 0.0
        straight, own = (straight / variances[..., None]).mT, (1.0 / variances).diag_embed()
        pulls = torch.zeros(draws, size, size + 2 * count, dtype=torch.float64)
        pulls[:, :plain, :plain], pulls[:, plain:, size + count :] = precision, own
        pulls[:, :, size : size + count] = -straight
        starts = torch.zeros(draws, size, dtype=torch.float64)
        starts[:, :plain] = (precision @ mean[..., None])[..., 0]
        precisions = torch.cat([precision.diagonal(dim1=1, dim2=2), 1.0 / variances], dim=1)
        shapes = {
            layout.order.index(at): torch.stack([model.shapes[at] for model in models])
            for at in curves.grids
        }
        return cls(
            intercepts, slopes, terms, variances, precisions, pulls, starts,
            straight * slopes.mT, shapes,
        )  # fmt: skip


class _Layout:
    """Columns in the order of sweeps, and the terms of all curves."""

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self.order = [*curves.plain, *(one.column for one in curves.curved)]
        at = {column: place for place, column in enumerate(self.order)}
        own = [
            [Term(at[term.column], at[term.other], term.knot) for term in one.terms]
            for one in curves.curved
        ]
        self.terms = list(dict.fromkeys(term for terms in own for term in terms))
        # Of the terms of every curve, among all.
        self.places = [[self.terms.index(term) for term in terms] for terms in own]
        # Which curves bend along which columns, (curves, columns).
        self.bends = torch.tensor(
            [[any(term.has(j) for term in terms) for j in range(len(at))] for terms in own]
        )
        self.grids = {at[column]: grid for column, grid in curves.grids.items()}
        # Rows of `design`: those of curved columns, and of what they are regressed on.
        self.targets = [1 + at[one.column] for one in curves.curved]
        first = 1 + len(at)
        self.inputs = [
            torch.tensor([*range(target), *(first + place for place in places)])
            for target, places in zip(self.targets, self.places, strict=True)
        ]

    def design(self, table: Tensor) -> Tensor:
        """Constants, columns and terms of rows, `(1 + columns + terms, rows)`."""
        columns = table[:, self.order].T
        return torch.cat([torch.ones_like(columns[:1]), columns, self.values_of_terms(columns)])

    def values_of_terms(self, table: Tensor) -> Tensor:
        """All terms, `(..., terms, rows)`, of a table `(..., columns, rows)`."""
        by_row = table.mT
        return torch.stack([term.of(by_row) for term in self.terms], dim=-2)


@dataclass
class _State:
    """What changes from column to column of a sweep.

    `states` has the columns, the residuals of curves where they count, and all residuals, `(draws,
    columns + 2 curves, rows)`.
    """

    states: Tensor
    terms: Tensor  # (draws, terms, rows)


@dataclass(frozen=True)
class _MissingRows:
    """Rows with missing cells, which are drawn one column at a time, with several parameters.

    Every call is for all rows and parameters, since most would be for few numbers else: a sweep of
    1,000 rows of 20 columns took 6 ms with calls for the missing cells of each.
    """

    layout: _Layout
    missing: Tensor  # 1 where a cell is missing, else 0, (columns, rows)
    rows: list[Tensor]  # where a column is missing
    counts: Tensor  # 1 where a curved column or one after it is observed, else 0, (curves, rows)

    @classmethod
    def of(cls, layout: _Layout, observed: Tensor) -> _MissingRows:
        known = observed[:, layout.order].T
        seen = known[len(layout.curves.plain) :]
        counts = torch.stack([seen[place:].any(0) for place in range(len(seen))]).double()
        rows = [own.nonzero()[:, 0] for own in ~known]
        return cls(layout, (~known).double(), rows, counts)

    def sweep(
        self, model: _Parameters, table: Tensor, levels: Tensor, limits: Tensor | None = None
    ) -> Tensor:
        """Every missing cell drawn once, given the other cells of its row.

        Tables and levels are `(draws, columns, rows)`, in the order of sweeps.
        """
        size, count = len(self.missing), len(self.counts)
        terms = self.layout.values_of_terms(table)
        residuals = -(model.slopes @ table + model.terms @ terms + model.intercepts[..., None])
        state = _State(torch.cat([table, self.counts * residuals, residuals], dim=1), terms)
        precisions = model.precisions[..., None] + model.weights @ self.counts
        steps = self.missing / precisions
        moves = self.missing * levels * precisions.rsqrt() + steps * model.starts[..., None]
        for at in range(size):
            if not len(self.rows[at]):
                continue
            own, pull = state.states[:, at], (model.pulls[:, at, None] @ state.states)[:, 0]
            if at in self.layout.grids:
                centre = own - steps[:, at] * (pull - model.starts[:, at, None])
                change = self._on_grid(state, model, at, centre, precisions[:, at], levels[:, at])
            else:
                change = torch.addcmul(moves[:, at], steps[:, at], pull, value=-1.0)
                if limits is not None:
                    deviations = precisions[:, at].rsqrt()
                    centre = own + change - deviations * levels[:, at]
                    moments = levels[:, at], centre, deviations
                    drawn = _within(own + change, *moments, limits[:, self.layout.order[at]])
                    change = self.missing[at] * (drawn - own)
            self._update(state, model, at, change, size, count)
        return state.states[:, :size]

    def _update(
        self, state: _State, model: _Parameters, at: int, change: Tensor, size: int, count: int
    ) -> None:
        """What follows from a change of the missing cells of a column."""
        counted, every = state.states[:, size : size + count], state.states[:, size + count :]
        state.states[:, at] += change
        every.addcmul_(model.slopes[:, :, at, None], change[:, None], value=-1.0)
        for place, term in enumerate(self.layout.terms):
            if term.has(at):
                now = term.of(state.states.mT)
                moved, state.terms[:, place] = now - state.terms[:, place], now
                every.addcmul_(model.terms[:, :, place, None], moved[:, None], value=-1.0)
        torch.mul(self.counts, every, out=counted)

    def _on_grid(
        self,
        state: _State,
        model: _Parameters,
        at: int,
        centre: Tensor,
        precisions: Tensor,
        levels: Tensor,
    ) -> Tensor:
        """Changes of the cells of a column that is in terms, `(draws, rows)`.

        The Normals that all other columns give have some centres and precisions.
        """
        rows, points = self.rows[at], self.layout.grids[at].points
        some = state.states[:, :, rows].mT
        variance = (1.0 / model.precisions[:, at]).clamp(max=1.0)
        # What the others explain of a column has a shape of its own.
        logs = (variance[:, None] * model.shapes[at])[:, None] - 0.5 * precisions[:, rows, None] * (
            points - centre[:, rows, None]
        ).square()
        count = len(self.counts)
        for k in self.layout.bends[:, at].nonzero()[:, 0].tolist():
            slope = model.slopes[:, k, at, None]
            start = some[..., k - count] + slope * some[..., at]
            moved = slope[..., None] * points
            for place in self.layout.places[k]:
                term, weight = self.layout.terms[place], model.terms[:, k, place, None]
                if term.has(at):
                    moved = moved + weight[..., None] * term.along(at, points, some)
                    start = start + weight * state.terms[:, place, rows]
            weight = 0.5 * self.counts[k, rows] / model.variances[:, k, None]
            logs = logs - weight[..., None] * (start[..., None] - moved).square()
        below = (logs - logs.amax(-1, keepdim=True)).exp_().cumsum(-1)
        wanted = torch.special.ndtr(levels[:, rows])[..., None] * below[..., -1:]
        chosen = torch.searchsorted(below, wanted).clamp(max=len(points) - 1)
        upper = below.gather(-1, chosen)
        lower = torch.where(chosen > 0, below.gather(-1, (chosen - 1).clamp(min=0)), 0.0)
        share = ((wanted - lower) / (upper - lower).clamp(min=1e-300)).clamp(0.0, 1.0) - 0.5
        step = points[1] - points[0]
        drawn = (points[chosen] + share * step).clamp(points[0], points[-1])[..., 0]
        change = torch.zeros_like(levels)
        change[:, rows] = drawn - some[..., at]
        return change


def _within(
    drawn: Tensor, levels: Tensor, centre: Tensor, deviation: Tensor, limits: Tensor
) -> Tensor:
    """Draws of a column within its limits, `(2,)`."""
    if not bool(limits.isfinite().any()):
        return drawn
    ends = centre + OUTER_LEVEL * torch.stack([-deviation, deviation])
    moments = levels[..., None], centre[..., None], deviation[..., None], ends[..., None]
    return keep_within_limits(drawn[..., None], *moments, limits[:, None])[..., 0]


def _draw_curved(
    layout: _Layout, table: Tensor, often: Tensor, generator: np.random.Generator, *, whole: bool
) -> tuple[CurvedModel, CurvedModel]:
    """Parameters drawn given completed rows, and estimates of them.

    The Normal model of all columns is drawn for the `whole` of them.
    """
    curves, count = layout.curves, float(often.sum())
    design = often.sqrt() * layout.design(table)
    products, bests, factors = design @ design.mT, list[Tensor](), list[Tensor]()
    left = design[layout.targets].clone()
    for k, (at, own) in enumerate(zip(layout.targets, layout.inputs, strict=True)):
        squares = products[own[:, None], own]
        squares.diagonal().add_(1e-6)
        factors.append(torch.linalg.cholesky(squares))
        bests.append(torch.cholesky_solve(products[own, at, None], factors[-1])[:, 0])
        left[k] -= bests[-1] @ design[own]
    weights, variances, usual = [], [], []
    for best, factor, squared in zip(bests, factors, left.square().sum(1).tolist(), strict=True):
        freedom = max(count - len(best), 2.0)
        variance = squared / generator.chisquare(freedom)
        noise = draw_levels([generator], len(best)).mT
        moved = torch.linalg.solve_triangular(factor.mT, noise, upper=True)[:, 0]
        weights.append(best + variance**0.5 * moved)
        variances.append(max(variance, 1e-8))
        usual.append(max(squared / freedom, 1e-8))
    plain = draw_posterior(table[None, :, list(curves.plain)], [generator], often).split()[0]
    normal = draw_posterior(table[None], [generator], often).split()[0] if whole else plain
    shapes = curves.shapes(table, often)
    drawn = CurvedModel(normal, plain, tuple(weights), tuple(variances), shapes)
    return drawn, CurvedModel(normal, plain, tuple(bests), tuple(usual), shapes)


def augment_curved(
    curves: Curves, estimate: NormalModel, fitted: FittedRows, seed: int
) -> Iterator[tuple[CurvedModel, Tensor]]:
    """Draws from the posterior of the parameters, and completed rows with each, without end."""
    values, observed = fitted.table
    generator = np.random.default_rng(seed)
    often = torch.ones(len(values)).double()
    often = often if fitted.weights is None else torch.from_numpy(fitted.weights)
    count = float(often.sum())
    share = (count / max(count, fitted.rows)) ** 0.5
    incomplete = (~observed.all(1)).nonzero()[:, 0]
    known, seen = values[incomplete], observed[incomplete]
    layout, table = _Layout(curves), values.clone()
    cells = _MissingRows.of(layout, seen)
    levels = draw_levels([generator], *known.shape)[0]
    table[incomplete] = estimate.draw(known, Gaps.of(seen), levels)
    middle: CurvedModel | None = None
    burn_in, thinning = chain_lengths(observed)
    for step in itertools.count():
        is_middle = share < 1.0 and burn_in // 2 <= step < burn_in
        is_kept = step >= burn_in and (step - burn_in) % thinning == 0
        whole = is_middle or is_kept
        current, usual = _draw_curved(layout, table, often, generator, whole=whole)
        levels = draw_levels([generator], *known.shape)[0]
        parameters = _Parameters.of(layout, [current])
        moved = (x[:, layout.order].T[None] for x in (table[incomplete], levels))
        table[incomplete[:, None], torch.tensor(layout.order)] = cells.sweep(parameters, *moved)[
            0
        ].T
        if is_middle:
            own = 1.0 / (step - burn_in // 2 + 1.0)
            middle = usual if middle is None else middle.nearer(usual, own)
        if is_kept:
            yield current if middle is None else middle.nearer(current, share), table.clone()


def draw_curved_entries(
    curves: Curves,
    parameters: Sequence[CurvedModel],
    values: Tensor,
    observed: Tensor,
    levels: Sequence[Tensor],
    columns: Sequence[CategoryDraw],
    uniforms: Tensor,
    limits: Tensor,
    departures: Sequence[Tensor] | None = None,
) -> Tensor:
    """Missing entries drawn with each of some parameters, `(parameters, rows, columns)`.

    Arguments are as of `parameter_draws.draw_entries`, `levels` those of `SWEEPS` + 1 draws.
    """
    draws, layout = torch.empty_like(levels[0]), _Layout(curves)
    gaps = gaps_by_column(observed, columns)
    seen = gaps[-1].observed
    for place, one in enumerate(parameters):
        numbers = uniforms[place].unbind(1)
        known, _ = draw_categories(one.normal, values, observed, columns, numbers, gaps, departures)
        draws[place] = one.normal.draw(known, gaps[-1], levels[0][place])
    every, order = _Parameters.of(layout, parameters), torch.tensor(layout.order)
    for rows in torch.arange(len(seen)).split(max(1, ROWS_AND_DRAWS // len(parameters))):
        cells = _MissingRows.of(layout, seen[rows])
        table = draws[:, rows[:, None], order].mT
        for sweep in range(SWEEPS):
            last = limits if sweep == SWEEPS - 1 else None
            table = cells.sweep(every, table, levels[1 + sweep][:, rows[:, None], order].mT, last)
        draws[:, rows[:, None], order] = table.mT
    return draws


def chain_lengths(observed: Tensor) -> tuple[int, int]:
    """Steps before the first draw and between draws, by the pair of columns that is known least.

    Example:
        >>> columns = torch.arange(100)[:, None] + torch.tensor([0, 50])
        >>> [chain_lengths(columns % 100 >= count) for count in (0, 10, 25, 45)]
        [(12, 2), (12, 3), (24, 6), (40, 12)]
    """
    unknown = min(max(1.0 - share_of_pairs(observed), 0.01), 0.99)
    thinning = math.ceil(math.log(CORRELATED) / math.log(unknown))
    thinning = min(max(thinning, THINNING[0]), THINNING[1])
    return min(max(4 * thinning, BURN_IN[0]), BURN_IN[1]), thinning


class CurvedPosterior:
    """The posterior of curved columns given fitted rows, which keeps what it computed."""

    def __init__(self, curves: Curves, estimate: NormalModel, fitted: FittedRows) -> None:
        self.curves, self._given = curves, (curves, estimate, fitted)
        self._seed: int | None = None
        self._drawn: list[CurvedModel] = []
        self._completed: list[Tensor] = []
        self._chain: Iterator[tuple[CurvedModel, Tensor]] = iter(())
        self._lock = threading.Lock()

    def draw(self, number: int, seed: int) -> list[CurvedModel]:
        """The first draws of a seed."""
        with self._lock:
            self._draw_further(number, seed)
            return self._drawn[:number]

    def draw_fitted(self, limits: Tensor, number: int = COMPLETED) -> Tensor:
        """Draws of the fitted rows, `(draws, rows, columns)`, by the chain of the parameters."""
        with self._lock:
            self._draw_further(number, 0)
            return torch.stack(self._completed[:number]).clamp(*limits)

    def _draw_further(self, number: int, seed: int) -> None:
        if seed != self._seed:
            self._chain = augment_curved(*self._given, seed)
            self._seed, self._drawn, self._completed = seed, [], []
        for model, table in itertools.islice(self._chain, max(0, number - len(self._drawn))):
            self._drawn.append(model)
            if len(self._completed) < COMPLETED:
                self._completed.append(table)
