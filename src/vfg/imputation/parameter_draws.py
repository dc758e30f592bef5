r"""Draws of the parameters of a Normal model, for multiple imputation that is proper.

Data augmentation alternates between drawing the missing cells given mean $\mu$ and covariance
$\Sigma$, and drawing those given the completed rows from their posterior,

$$\Sigma \sim W^{-1}(S, n - p), \qquad \mu \sim N(\bar z, \Sigma / n),$$

where $S$ sums the squares about the mean $\bar z$ of the n rows of p columns. With $n - p$ degrees
of freedom, the posterior of the regression of any column on all others is that of least squares:
Student's t with $n - p$ degrees of freedom about its coefficients. Jeffreys' prior has $n - 1$,
which is right for single columns, but gives regressions residual variances that are too small, and
data augmentation amplifies that. Short tables have $n - 1$. The chain starts where EM ends. A few
pseudo-rows of variance 1 keep wide tables regular.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vfg.imputation.limits import (
    cut_at_limits,
    cut_normal_draws,
    keep_within_limits,
    levels_by_rank,
)
from vfg.tables.cells import Array, Mask
from vfg.training.losses import draw_rows

M = TypeVar("M")
ROWS = 2000
"""Rows that parameters are drawn from, at most. Draws for larger tables are taken nearer to the
estimate, as much as the posterior of all rows is narrower."""
MOST_COLUMNS = 64
"""Columns up to which parameters are drawn: a step solves a system of this size for every row."""
FEWEST_CELLS = 20
"""Missing cells of a column from which departures of an ensemble are taken apart."""
USUAL_SLOPE = 0.1
"""Deviation of the slopes of linear departures in their prior. Regularisation makes slopes of up to
this size on linear tables of 300 rows."""
NOISE_FACTORS = (0.7, 1.5)
"""Bounds of the factors that scale the draws of an ensemble."""
CURVED = 0.1
"""The share of the variance of a Normal model that nonlinear departures must explain, for missing
entries of a row to go together as the ensemble says, not as the Normal model does. On linear tables
of 300 rows it is up to 0.04, with a squared variable and a sine 0.3 to 0.6."""
CHANCE_CELLS = 8.0
"""How large the squares of nonlinear departures of a column may be by chance, added up and relative
to the variance of the Normal model: below it they are left out, from twice that on they count
whole. On linear tables of 100 to 3,000 rows with 40 % missing it was up to 6. Departures that only
chance made weaken relations: slopes of defaults were 2 to 6 % too small."""
LEAST_SHARE = 1e-3
"""Shares of categories, and probabilities of an ensemble where logarithms compare them, are taken
for at least this."""
OUTER_LEVEL = 2.4
"""The outermost draw of 60 from a Normal model, in deviations."""
EM_STEPS = 40
"""Iterations of EM before the first draw."""
BURN_IN, THINNING = (12, 40), (2, 12)
"""Bounds of the steps before the first draw, and of those between draws."""
CORRELATED = 0.02
"""The greatest correlation of parameters of successive draws. That of successive steps is the share
of the information that is missing."""
PSEUDO_ROWS, NARROW = 0.5, 0.5
"""Pseudo-rows of variance 1 per tenth of a column and row, and columns per row below which there
are still fewer of them: hardly any in long tables. With 40 % of five columns and 100 rows missing,
data augmentation amplifies them: a quarter of a pseudo-row made coefficients 5 % smaller."""
LONG = 15.0
"""Rows per column from which the covariance has rows - columns degrees of freedom; tables with
fewer have rows - 1. With five columns and 40 % of the cells missing, 95 % intervals of coefficients
held 92 % (100 rows, 500 repetitions) with rows - 1 and 95 % with rows - columns, but 95 and 98 % of
50 rows. Draws of cells are right with rows - 1 up to 10 rows per column, then with both."""


class _Group(NamedTuple):
    """Rows with similar numbers of missing entries.

    Tables and matrices that entries are read from and written to have one more column, and
    matrices one more row, which are padding.
    """

    rows: Tensor
    places: Tensor  # of missing entries, (rows, width)
    cells: Tensor  # the same in a flat table of all rows, (rows, width)
    entries: Tensor  # of pairs of them in a flat matrix, (rows, width, width)
    systems: Tensor  # the same in a flat matrix with 0 and 1 at its end, which are padding

    def put(self, entries: Tensor, table: Tensor) -> None:
        """Write missing entries to a table of all rows, with padding."""
        table.view(-1).scatter_(0, self.cells.flatten(), entries.flatten())


@dataclass(frozen=True)
class Gaps:
    """Where entries of rows are missing, grouped so that systems have few equations.

    A system of a row has 4, 8, 16, ... equations, the least of these that its missing entries
    need, whatever the other rows are. With a quarter of 16 columns missing, that takes a third of
    the time of 16 equations.
    """

    observed: Tensor
    groups: tuple[_Group, ...]

    @classmethod
    def of(cls, observed: Tensor) -> Gaps:
        """Group the rows of a mask."""
        size, counts, groups, done = observed.shape[1], (~observed).sum(1), [], 0
        most, width = int(counts.max()) if len(counts) else 0, min(4, size)
        while done < most:
            rows = ((counts > done) & (counts <= width)).nonzero()[:, 0]
            if len(rows):
                order = observed[rows].int().argsort(dim=1, stable=True)[:, :width]
                slots = torch.arange(width)
                places = torch.where(slots < counts[rows, None], order, size)
                entries = places[:, :, None] * (size + 1) + places[:, None, :]
                known = (places < size)[:, :, None] & (places < size)[:, None, :]
                ends = size * size + torch.eye(width, dtype=torch.long)
                systems = torch.where(known, places[:, :, None] * size + places[:, None, :], ends)
                cells = rows[:, None] * (size + 1) + places
                groups.append(_Group(rows, places, cells, entries, systems))
            done, width = width, min(2 * width, size)
        return cls(observed, tuple(groups))


@dataclass(frozen=True)
class NormalModel:
    """Mean and covariance of the columns of a matrix."""

    mean: Tensor
    covariance: Tensor

    def given(self, values: Tensor, gaps: Gaps) -> ConditionalNormals:
        """The Normals of missing entries given those observed in their rows."""
        sides, systems = self._systems(values, gaps)
        moved, factors = torch.zeros_like(sides), []
        for group in gaps.groups:
            factors.append(torch.linalg.cholesky(systems.take(group.systems)))
            group.put(torch.cholesky_solve(sides.take(group.cells)[..., None], factors[-1]), moved)
        means = torch.where(gaps.observed, values, self.mean + moved[:, :-1])
        return ConditionalNormals(means, gaps, factors)

    def conditional_means(self, values: Tensor, observed: Tensor) -> Tensor:
        """Means of every entry given those observed in its row, which are unchanged."""
        return self.given(values, Gaps.of(observed)).means

    def draw(self, values: Tensor, gaps: Gaps, noise: Tensor) -> Tensor:
        """Entries drawn given those observed, from standard Normal noise of the same shape.

        As `given` with its `noise`, in fewer steps.
        """
        sides, systems = self._systems(values, gaps)
        levels, moved = nn.functional.pad(noise, (0, 1)), torch.zeros_like(sides)
        for group in gaps.groups:
            factors = torch.linalg.cholesky(systems.take(group.systems))
            own, level = (x.take(group.cells)[..., None] for x in (sides, levels))
            half = torch.linalg.solve_triangular(factors, own, upper=False) + level
            group.put(torch.linalg.solve_triangular(factors.mT, half, upper=True), moved)
        return torch.where(gaps.observed, values, self.mean + moved[:, :-1])

    def _systems(self, values: Tensor, gaps: Gaps) -> tuple[Tensor, Tensor]:
        """Right sides of all entries, with padding, and the precision, flat, before 0 and 1."""
        precision = torch.linalg.inv(self.covariance)
        residual = torch.where(gaps.observed, values - self.mean, 0.0)
        systems = torch.cat([precision.flatten(), precision.new_tensor([0.0, 1.0])])
        return nn.functional.pad(-(residual @ precision), (0, 1)), systems


@dataclass(frozen=True)
class ConditionalNormals:
    """The Normals of the missing entries of rows."""

    means: Tensor  # of every entry; observed ones are unchanged
    gaps: Gaps
    factors: list[Tensor]  # Cholesky factors of the precision matrices by group

    def noise(self, levels: Tensor) -> Tensor:
        """Draws minus means, from standard Normal noise; 0 at observed entries."""
        padded = nn.functional.pad(levels, (0, 1))
        result = torch.zeros_like(padded)
        for group, factors in zip(self.gaps.groups, self.factors, strict=True):
            own = padded.take(group.cells)[..., None]
            group.put(torch.linalg.solve_triangular(factors.mT, own, upper=True), result)
        return result[:, :-1]

    def deviations(self) -> Tensor:
        """Standard deviations of every entry, 0 of those observed."""
        result = nn.functional.pad(torch.zeros_like(self.means), (0, 1))
        for group, factors in zip(self.gaps.groups, self.factors, strict=True):
            inverse = torch.cholesky_inverse(factors)
            group.put(inverse.diagonal(dim1=1, dim2=2).sqrt(), result)
        return result[:, :-1]

    def covariances(self, places: Sequence[int]) -> Tensor:
        """Covariance matrices of some columns, 0 where they are observed, `(rows, n, n)`."""
        wide, chosen = self.means.shape[1] + 1, torch.tensor(places)
        result = self.means.new_zeros(len(self.means), len(places), len(places))
        for group, factors in zip(self.gaps.groups, self.factors, strict=True):
            inverse = torch.cholesky_inverse(factors).flatten(1)
            whole = factors.new_zeros(len(factors), wide * wide)
            whole = whole.scatter_(1, group.entries.flatten(1), inverse).unflatten(1, (wide, wide))
            result[group.rows] = whole[:, chosen[:, None], chosen]
        return result

    def sum_covariances(self, often: Tensor) -> Tensor:
        """Sum of the covariance matrices of the rows, which count so often."""
        wide = self.means.shape[1] + 1
        total = torch.zeros(wide, wide, dtype=torch.float64)
        for group, factors in zip(self.gaps.groups, self.factors, strict=True):
            own = often[group.rows, None, None] * torch.cholesky_inverse(factors)
            sums = torch.bincount(group.entries.flatten(), own.flatten(), wide * wide)
            total += sums.view(wide, wide)
        return total[:-1, :-1]


class CategoryDraw(NamedTuple):
    """A column of categories that is drawn by Bayes' rule."""

    places: list[int]  # its section of the matrix
    points: Tensor  # (categories, width)
    shares: Tensor  # of the categories among observed cells

    def shares_by(self, model: NormalModel) -> Tensor:
        """Shares of the categories in the whole column, which the mean of a model implies.

        Those of observed cells differ if cells are missing at random given other columns. Code
        points that are no corners of a simplex imply none.

        Example:
            >>> column = CategoryDraw([0], torch.tensor([[-1.0], [1.0]]).double(), torch.ones(2))
            >>> one = torch.ones(1, dtype=torch.float64)
            >>> column.shares_by(NormalModel(0.5 * one, one.diag())).tolist()
            [0.25, 0.75]
        """
        number, width = self.points.shape
        if width != number - 1:
            return self.shares
        corners = torch.cat([self.points, torch.ones_like(self.points[:, :1])], dim=1)
        mean = torch.cat([model.mean[self.places], model.mean.new_ones(1)])
        shares: Tensor = torch.linalg.solve(corners.mT, mean).clamp(min=LEAST_SHARE)
        return shares / shares.sum()

    def missing_rows(self, observed: Tensor) -> Tensor:
        """Rows where it is missing."""
        return (~observed[:, self.places].any(1)).nonzero()[:, 0]


def draw_categories(
    model: NormalModel,
    values: Tensor,
    observed: Tensor,
    columns: Sequence[CategoryDraw],
    uniforms: Sequence[Tensor],
    gaps: Sequence[Gaps] | None = None,
    departures: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Values and mask with missing categories drawn one after the other, as if they were known.

    Category c with the code point $e_c$ and the share $\pi_c$ has the probability
    $P(c \mid o) \propto \pi_c\, p(e_c \mid o) / p(e_c)$ given the known entries o. Probabilities
    that are linear in o, and cut at 0 and 1, would weaken the effects of categories. Uniform
    numbers are `(rows,)` for every column. `gaps` are those of `gaps_by_column`, if known;
    `departures` are added to log probabilities, `(rows where it is missing, categories)` for every
    column.
    """
    values, observed = values.clone(), observed.clone()
    gaps = gaps_by_column(observed, columns) if gaps is None else gaps
    for place, (column, numbers) in enumerate(zip(columns, uniforms, strict=True)):
        rows, places = column.missing_rows(observed), torch.tensor(column.places)
        if not len(rows):
            continue
        logs = log_probabilities(model, values[rows], gaps[place], column)
        logs = logs if departures is None else logs + departures[place]
        below = logs.softmax(1).cumsum(1)
        most = len(column.points) - 1
        chosen = (below < numbers[rows, None] * below[:, -1:]).sum(1).clamp(max=most)
        values[rows[:, None], places] = column.points[chosen]
        observed[rows[:, None], places] = True
    return values, observed


def log_probabilities(
    model: NormalModel, values: Tensor, gaps: Gaps, column: CategoryDraw
) -> Tensor:
    """log P(category | known entries) but for a constant of every row, by Bayes' rule."""
    places, points, _ = column
    given = model.given(values, gaps)
    logs = _log_densities(points, given.means[:, places], given.covariances(places))
    prior = model.covariance[places][:, places][None]
    shares = column.shares_by(model)
    return logs - _log_densities(points, model.mean[places][None], prior) + shares.log()


def gaps_by_column(observed: Tensor, columns: Sequence[CategoryDraw]) -> list[Gaps]:
    """The gaps of the rows where a category is drawn, by column, and of all rows afterwards."""
    known, gaps = observed.clone(), []
    for column in columns:
        rows = column.missing_rows(known)
        gaps.append(Gaps.of(known[rows]))
        known[rows[:, None], torch.tensor(column.places)] = True
    return [*gaps, Gaps.of(known)]


def draw_entries(
    parameters: Sequence[NormalModel],
    values: Tensor,
    observed: Tensor,
    levels: Tensor,
    columns: Sequence[CategoryDraw],
    uniforms: Tensor,
    limits: Tensor,
    attained: Tensor,
) -> Tensor:
    """Missing entries drawn with each of some parameters, `(parameters, rows, columns)`.

    `levels` are standard Normal noise of that shape, `uniforms` uniform numbers
    `(parameters, rows, columns of categories)`, `limits` those of `keep_within_limits`, and
    `attained` those of `cut_at_limits`.
    """
    gaps, draws = gaps_by_column(observed, columns), torch.empty_like(levels)
    for place, one in enumerate(parameters):
        numbers = uniforms[place].unbind(1)
        known, _ = draw_categories(one, values, observed, columns, numbers, gaps)
        given = one.given(known, gaps[-1])
        noise, wide = given.noise(levels[place]), given.deviations()
        ends = given.means + OUTER_LEVEL * torch.stack([-wide, wide])
        moments = noise / wide.clamp(min=1e-12), given.means, wide
        free = keep_within_limits(given.means + noise, *moments, ends, limits)
        free = cut_normal_draws(free, attained, given.means, wide)
        draws[place] = torch.where(gaps[-1].observed, known, free)
    return draws


def _log_densities(points: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """log-densities of Normals at points but for a constant of every row, `(rows, points)`."""
    factors = torch.linalg.cholesky(covariances)
    apart = (points - means[:, None]).mT
    distances: Tensor = torch.linalg.solve_triangular(factors, apart, upper=False)
    return -0.5 * distances.square().sum(1)


def fit_normal(values: Tensor, observed: Tensor, weights: Tensor | None = None) -> NormalModel:
    """The mean and covariance of greatest likelihood, nearly, by EM."""
    often = values.new_ones(len(values)) if weights is None else weights
    count, size = float(often.sum()), values.shape[1]
    ridge = pseudo_rows(count, size)
    model = NormalModel(values.new_zeros(size), torch.eye(size, dtype=torch.float64))
    gaps = Gaps.of(observed)
    for _ in range(EM_STEPS):
        given = model.given(values, gaps)
        mean = often @ given.means / count
        centred = given.means - mean
        squares = centred.mT @ (often[:, None] * centred) + given.sum_covariances(often)
        squares = squares + ridge * torch.eye(size, dtype=torch.float64)
        model = NormalModel(mean, squares / (count + ridge))
    return model


def draw_parameters(
    values: Tensor,
    observed: Tensor,
    number: int,
    seed: int,
    rows: float | None = None,
    weights: Tensor | None = None,
) -> tuple[NormalModel, list[NormalModel]]:
    """The estimate, and draws from the posterior given a matrix, which is 0 where unknown.

    `rows` is how many there are in the table of which the matrix has some; rows count as often as
    `weights` say. The first draws are the same for every number.
    """
    estimate = fit_normal(values, observed, weights)
    draws = _augment_data(estimate, values, observed, seed, rows, weights)
    return estimate, list(itertools.islice(draws, number))


def _augment_data(
    estimate: NormalModel,
    values: Tensor,
    observed: Tensor,
    seed: int,
    rows: float | None,
    weights: Tensor | None,
) -> Iterator[NormalModel]:
    """Draws from the posterior, without end; arguments as of `draw_parameters`."""
    generator = torch.Generator().manual_seed(seed)
    often = values.new_ones(len(values)) if weights is None else weights
    count = float(often.sum())
    share = (count / max(count, rows or 0)) ** 0.5
    incomplete = (~observed.all(1)).nonzero()[:, 0]
    known, gaps = values[incomplete], Gaps.of(observed[incomplete])
    current, table = estimate, values.clone()
    burn_in, thinning = chain_lengths(observed)
    for step in itertools.count():
        levels = torch.randn(known.shape, generator=generator, dtype=torch.float64)
        table[incomplete] = current.draw(known, gaps, levels)
        current = draw_posterior(table, generator, often)
        if step >= burn_in and (step - burn_in) % thinning == 0:
            yield move_nearer(estimate, current, share)


def chain_lengths(observed: Tensor) -> tuple[int, int]:
    """Steps before the first draw and between draws, by the pair of columns that is known least.

    Example:
        >>> columns = torch.arange(100)[:, None] + torch.tensor([0, 50])
        >>> [chain_lengths(columns % 100 >= count) for count in (0, 10, 25, 45)]
        [(12, 2), (12, 3), (24, 6), (40, 12)]
    """
    seen = observed.double()
    together = float((seen.mT @ seen).amin()) / max(len(seen), 1)
    unknown = min(max(1.0 - together, 0.01), 0.99)
    thinning = math.ceil(math.log(CORRELATED) / math.log(unknown))
    thinning = min(max(thinning, THINNING[0]), THINNING[1])
    return min(max(4 * thinning, BURN_IN[0]), BURN_IN[1]), thinning


class FittedRows(NamedTuple):
    """Some rows of the encoded table that was fitted, and how many there were."""

    values: Array  # 0 where unknown
    observed: Mask
    rows: float
    weights: Array | None = None  # how often these rows count

    @property
    def table(self) -> tuple[Tensor, Tensor]:
        """Values, and which are observed."""
        return torch.from_numpy(self.values), torch.from_numpy(self.observed)

    @classmethod
    def of(
        cls, values: Tensor, observed: Tensor, seed: int, weights: Tensor | None = None
    ) -> FittedRows | None:
        """At most `ROWS` rows with observed cells; None if there are too many columns, or none."""
        if not 1 <= values.shape[1] <= MOST_COLUMNS or not bool(observed.any()):
            return None
        used = observed.any(1) if weights is None else observed.any(1) & (weights > 0.0)
        rows = draw_rows(used, ROWS, seed)
        known = torch.where(observed[rows], values[rows].double(), 0.0)
        count = float(used.sum()) if weights is None else float(weights[used].sum())
        own = None if weights is None else weights[rows].numpy()
        return cls(known.cpu().numpy(), observed[rows].cpu().numpy(), count, own)

    @property
    def often(self) -> Array:
        """Weights of these rows that add up to the number of all rows."""
        if self.weights is None:
            return np.full(len(self.values), self.rows / len(self.values))
        return np.asarray(self.weights * (self.rows / self.weights.sum()))

    def plus(self, other: FittedRows | None, seed: int) -> FittedRows:
        """These and further rows: at most `ROWS`, of either as many as its share."""
        if other is None:
            return self
        parts, total = (self, other), self.rows + other.rows
        values = np.concatenate([one.values for one in parts])
        observed = np.concatenate([one.observed for one in parts])
        weights = np.concatenate([one.often for one in parts])
        if len(values) > ROWS:
            chances = np.random.default_rng(seed).exponential(size=len(values)) / weights
            kept = np.sort(np.argsort(chances, kind="stable")[:ROWS])
            values, observed, weights = values[kept], observed[kept], np.full(ROWS, total / ROWS)
        return FittedRows(values, observed, total, weights)


class Posterior:
    """The posterior of the parameters given fitted rows, which keeps what it computed.

    The draws of a seed go on where those before ended, so that further ones take few steps each.
    """

    def __init__(self, fitted: FittedRows) -> None:
        self.fitted = fitted
        self._seed: int | None = None
        self._drawn: list[NormalModel] = []
        self._chain: Iterator[NormalModel] = iter(())
        self._departures: tuple[object, Departures] | None = None
        # Of the ensemble at the fitted rows: means, and mean squares of draws about them.
        self.moments: tuple[Tensor, Tensor] | None = None
        self.ensemble_draws: object = None  # `EnsembleDraws` of these rows, if they are kept
        self.curved: object = None  # a `CurvedPosterior`, False if no column is curved
        self._lock = threading.Lock()  # of the chain, which may be asked by several threads

    @cached_property
    def estimate(self) -> NormalModel:
        """The mean and covariance of greatest likelihood."""
        return fit_normal(*self.fitted.table, self._weights)

    def draw(self, number: int, seed: int) -> list[NormalModel]:
        """The first draws of a seed."""
        with self._lock:
            if seed != self._seed:
                rows = *self.fitted.table, seed, self.fitted.rows, self._weights
                self._chain = _augment_data(self.estimate, *rows)
                self._seed, self._drawn = seed, []
            self._drawn += itertools.islice(self._chain, max(0, number - len(self._drawn)))
            return self._drawn[:number]

    def departures(self, model: M, fit: Callable[[M, Posterior], Departures]) -> Departures:
        """How an ensemble departs from the estimate, fitted once for every ensemble."""
        known = self._departures
        if known is None or known[0] is not model:
            known = self._departures = model, fit(model, self)
        return known[1]

    @property
    def _weights(self) -> Tensor | None:
        return None if self.fitted.weights is None else torch.from_numpy(self.fitted.weights)


@dataclass(frozen=True)
class Departures:
    """How an ensemble departs from a Normal model, without what only shrinks its relations.

    Departures are taken apart by a regression on the completed rows: a linear part, which is what
    regularisation does to the linear relations of a table, and the rest, which is nonlinear.
    """

    estimate: NormalModel
    linear: Tensor  # coefficients by column, (columns, columns)
    centres: Tensor  # of the completed rows where a column is missing, (columns, columns)
    noise: Tensor  # factors that give draws the variance of the Normal model, per column
    counted: Tensor  # how much of the rest counts, since chance makes some, per column
    categories: tuple[CategoryDepartures, ...] = ()
    is_curved: bool = False  # whether much of what the ensemble says is nonlinear

    def draw(
        self,
        parameters: Sequence[NormalModel],
        values: Tensor,
        observed: Tensor,
        levels: Tensor,
        means: Tensor,
        plain: Tensor,
        limits: Tensor,
        attained: Tensor,
        chosen: Sequence[CategoryDraw] = (),
        probabilities: Sequence[Tensor] = (),
        uniforms: Tensor | None = None,
    ) -> Tensor:
        """Missing entries drawn with each of some parameters, `(parameters, rows, columns)`.

        `levels` are standard Normal noise of that shape, `means` and `plain` the means and draws of
        the ensemble, `limits` those of `keep_within_limits`, `attained` those of `cut_at_limits`.
        Columns of categories are drawn first, and other entries given them. They have the
        ensemble's `probabilities` where they are missing, and `uniforms` as of `draw_entries`.
        """
        gaps = Gaps.of(observed)
        start = self.estimate.given(values, gaps)
        nonlinear, usual = self.nonlinear(start.means, means), start.deviations().clamp(min=1e-12)
        known, draws = (plain - means).sort(0).values, torch.empty_like(levels)
        spread, outer = self.noise * known.std(0), self.noise * known[[0, -1]]
        ends = attained.isfinite().any(0).any(0).nonzero()[:, 0]
        steps, moved = (
            gaps_by_column(observed, chosen),
            self.of_categories(values, observed, chosen, probabilities),
        )
        for place, one in enumerate(parameters):
            numbers = () if uniforms is None else uniforms[place].unbind(1)
            table, _ = draw_categories(one, values, observed, chosen, numbers, steps, moved)
            given = one.given(table, steps[-1])
            wide = given.deviations()
            noise, centre = given.noise(levels[place]), given.means + nonlinear
            if self.is_curved:
                noise = wide * self.levels_together(levels[place], plain - means, known)
            free = centre + self.shape(noise, wide, known) * (wide / usual)
            moments = noise / wide.clamp(min=1e-12), centre, spread * (wide / usual)
            free = keep_within_limits(free, *moments, centre + outer * (wide / usual), limits)
            # A third of the draws tells how far to move: all would take as long as all else.
            apart = self.noise[ends] * known[1::3, :, ends] * (wide / usual)[:, ends]
            cut = attained[..., ends], centre[:, ends] + apart
            free[:, ends] = cut_at_limits(free[:, ends], *cut)
            draws[place] = torch.where(steps[-1].observed, table, free)
        return draws

    def of_categories(
        self,
        values: Tensor,
        observed: Tensor,
        chosen: Sequence[CategoryDraw],
        probabilities: Sequence[Tensor],
    ) -> list[Tensor]:
        """Departures of the ensemble's log probabilities, without what only shrinks them."""
        pairs = log_probability_pairs(self.estimate, values, observed, chosen, probabilities)
        return [
            found.counted * found.left(gains, apart)
            for (gains, apart), found in zip(pairs, self.categories, strict=True)
        ]

    def levels_together(self, levels: Tensor, plain: Tensor, known: Tensor) -> Tensor:
        """Levels of a draw of the ensemble, chosen for every row, among those of its entries.

        Missing entries of a row then go together as the ensemble says, in curves too. The first of
        the `levels` of a row chooses the draw. `known` are the draws `plain`, sorted.
        """
        chosen = (torch.special.ndtr(levels[:, :1]) * len(plain)).long().clamp(max=len(plain) - 1)
        return levels_by_rank(plain.take_along_dim(chosen[None], 0), known)[0]

    def shape(self, noise: Tensor, deviations: Tensor, known: Tensor) -> Tensor:
        """Normal noise of given deviations with the marginals of an ensemble's draws.

        Noise is `(rows, columns)`, and draws are `(number, rows, columns)`, sorted and about 0. The
        noise keeps its ranks, so that missing entries of a row go together as in the Normal model.
        """
        levels = torch.special.ndtr(noise / deviations.clamp(min=1e-12))
        place = (levels * len(known) - 0.5).clamp(0.0, len(known) - 1.0)
        below = place.floor().long().clamp(max=len(known) - 2)[None]
        low, high = known.gather(0, below)[0], known.gather(0, below + 1)[0]
        return self.noise * torch.lerp(low, high, place - below[0])

    @classmethod
    def fit(
        cls,
        estimate: NormalModel,
        table: FittedRows,
        means: Tensor,
        spread: Tensor,
        chosen: Sequence[CategoryDraw] = (),
        probabilities: Sequence[Tensor] = (),
    ) -> Departures:
        """Fit to an ensemble's means of rows, and its mean squared deviations by entry.

        Columns of categories have its `probabilities` in the rows where they are missing.
        """
        values, observed = table.table
        given = estimate.given(values, Gaps.of(observed))
        completed, variances = given.means, given.deviations().square()
        size, curves = values.shape[1], _curves(completed)
        linear, centres = torch.zeros(2, size, size, dtype=torch.float64)
        noise, counted = torch.ones(2, size, dtype=torch.float64)
        explained = torch.zeros(2, dtype=torch.float64)
        for column in range(size):
            rows = ~observed[:, column]
            if int(rows.sum()) < FEWEST_CELLS:
                continue
            centres[column] = completed[rows].mean(0)
            own = (means - completed)[rows, column]
            inputs, own = completed[rows] - centres[column], own - own.mean()
            linear[column] = _linear_part(inputs, curves[rows] - curves[rows].mean(0), own)
            left = (own - inputs @ linear[column]).square().mean()
            usual = variances[rows, column].mean()
            counted[column] = _beyond_chance(float(left / usual.clamp(min=1e-9) * len(own)))
            total = spread[rows, column].mean() + counted[column] ** 2 * left
            noise[column] = (usual / total.clamp(min=1e-9)).sqrt()
            explained += torch.stack([left, usual])
        pairs = log_probability_pairs(estimate, values, observed, chosen, probabilities)
        categories = tuple(
            CategoryDepartures.fit(gains, apart, shares)
            for (gains, apart), shares in zip(pairs, probabilities, strict=True)
        )
        factors, is_curved = noise.clamp(*NOISE_FACTORS), bool(explained[0] > CURVED * explained[1])
        return cls(estimate, linear, centres, factors, counted, categories, is_curved)

    def nonlinear(self, completed: Tensor, means: Tensor) -> Tensor:
        """Departures of means without their linear part, `(rows, columns)`."""
        moved = completed @ self.linear.mT - (self.centres * self.linear).sum(1)
        return self.counted * (means - completed - moved)


class CategoryDepartures(NamedTuple):
    """How log probabilities of categories depart from those of a Normal model."""

    slope: float = 0.0  # on what the other cells of a row say, by the Normal model
    centre: Tensor | float = 0.0  # the mean of the rest, by category
    counted: float = 1.0  # how much of what is left counts

    def left(self, gains: Tensor, apart: Tensor) -> Tensor:
        """Departures without what only shrinks probabilities, or moves all of them."""
        return apart - self.slope * gains - self.centre

    @classmethod
    def fit(cls, gains: Tensor, apart: Tensor, shares: Tensor) -> CategoryDepartures:
        """Fit to rows where the column is missing, with the `shares` that an ensemble gives."""
        if len(gains) < FEWEST_CELLS:
            return cls()
        gains, apart = (x - x.mean(1, keepdim=True) for x in (gains, apart))
        slope = float((gains * apart).sum() / gains.square().sum().clamp(min=1e-9))
        found = cls(slope, (apart - slope * gains).mean(0))
        left = found.left(gains, apart)
        left = left - (shares * left).sum(1, keepdim=True)
        return found._replace(counted=_beyond_chance(float((shares * left.square()).sum())))


def _linear_part(inputs: Tensor, curves: Tensor, departures: Tensor) -> Tensor:
    """Coefficients of departures on inputs; beside curves, these are not taken for lines."""
    size, both = inputs.shape[1], torch.cat([inputs, curves], dim=1)
    ridge = torch.ones(2 * size, dtype=torch.float64)
    ridge[:size] += departures.square().mean() / USUAL_SLOPE**2
    found: Tensor = torch.linalg.solve(both.mT @ both + ridge.diag(), both.mT @ departures)
    return found[:size]


def _beyond_chance(squares: float) -> float:
    """How much departures count, whose squares add up to a multiple of their variance.

    Example:
        >>> [_beyond_chance(squares) for squares in (6.0, 12.0, 100.0)]
        [0.0, 0.5, 1.0]
    """
    return min(1.0, max(0.0, squares / CHANCE_CELLS - 1.0))


def _curves(table: Tensor) -> Tensor:
    """Squares of columns without what is linear in these, `(rows, columns)`.

    Example:
        >>> table = torch.tensor([[0.0], [1.0], [5.0], [6.0]], dtype=torch.float64)
        >>> _curves(table)[:, 0].tolist()
        [2.5, -2.5, -2.5, 2.5]
    """
    centred = table - table.mean(0)
    squares = centred.square()
    variances = squares.mean(0)
    return squares - variances - (centred * squares).mean(0) / variances.clamp(min=1e-9) * centred


def log_probability_pairs(
    estimate: NormalModel,
    values: Tensor,
    observed: Tensor,
    chosen: Sequence[CategoryDraw],
    probabilities: Sequence[Tensor],
) -> list[tuple[Tensor, Tensor]]:
    """By column: what a Normal model's log probabilities gain where it is missing, and departures.

    Gains are over the shares of the categories. Both are `(rows where it is missing, categories)`.
    """
    pairs = []
    for column, shares in zip(chosen, probabilities, strict=True):
        rows = column.missing_rows(observed)
        logs = log_probabilities(estimate, values[rows], Gaps.of(observed[rows]), column)
        logs = logs.log_softmax(1)
        gains = logs - column.shares_by(estimate).log()
        pairs.append((gains, shares.clamp(min=LEAST_SHARE).log() - logs))
    return pairs


def pseudo_rows(rows: float, columns: int) -> float:
    """Rows of variance 1 beside those of a table, which keep its covariance regular."""
    share = columns / max(rows, 1.0)
    return PSEUDO_ROWS * 10.0 * share * min(1.0, share / NARROW)


def _degrees_of_freedom(rows: float, columns: int) -> float:
    """Those of the covariance given complete rows.

    Example:
        >>> [_degrees_of_freedom(rows, 5) for rows in (100.0, 72.0, 50.0, 4.0)]
        [95.0, 70.0, 49.0, 6.0]
    """
    return max(
        rows - columns,
        min(rows - 1.0, (LONG - 1.0) * columns),
        columns + 1.0,
    )


def draw_posterior(table: Tensor, generator: torch.Generator, often: Tensor) -> NormalModel:
    """Mean and covariance drawn given complete rows, which count so often."""
    rows, size = float(often.sum()), table.shape[1]
    mean = often @ table / rows
    centred = table - mean
    ridge = pseudo_rows(rows, size)
    squares = centred.mT @ (often[:, None] * centred) + max(ridge, 1e-6) * torch.eye(
        size, dtype=torch.float64
    )
    freedom = _degrees_of_freedom(rows, size)
    normals = torch.randn(size, size, generator=generator, dtype=torch.float64).tril(-1)
    shapes = 0.5 * (freedom - torch.arange(size, dtype=torch.float64))
    squared = 2.0 * _gamma(shapes, generator)  # chi-squared variables
    lower = normals + squared.sqrt().diag()
    # With S = C C', the covariance is C (A A')^-1 C' for the factor A of a standard Wishart.
    factor = torch.linalg.solve_triangular(lower, torch.linalg.cholesky(squares).mT, upper=False)
    covariance = factor.mT @ factor
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    return NormalModel(mean + factor.mT @ noise / rows**0.5, covariance)


def draw_chi_squared(freedom: Tensor, generator: torch.Generator) -> Tensor:
    """Chi-squared variables."""
    return 2.0 * _gamma(0.5 * freedom, generator)


def _gamma(shapes: Tensor, generator: torch.Generator) -> Tensor:
    """Gamma variables, by numpy: those of torch take no generator."""
    seed = int(torch.randint(2**62, (), generator=generator))
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_gamma(shapes.numpy())
    return torch.from_numpy(drawn)


def move_nearer(estimate: NormalModel, draw: NormalModel, share: float) -> NormalModel:
    """A draw at a share of its distance from the estimate."""
    return NormalModel(
        torch.lerp(estimate.mean, draw.mean, share),
        torch.lerp(estimate.covariance, draw.covariance, share),
    )
