r"""Draws of the parameters of a Normal model, for multiple imputation that is proper.

Data augmentation alternates between drawing the missing cells given mean $\mu$ and covariance
$\Sigma$, and drawing those given the completed rows from their posterior,

$$\Sigma \sim W^{-1}(S, n - p), \qquad \mu \sim N(\bar z, \Sigma / n),$$

where $S$ sums the squares about the mean $\bar z$ of the n rows of p columns. With $n - p$ degrees
of freedom, the posterior of the regression of any column on all others is that of least squares:
Student's t with $n - p$ degrees of freedom about its coefficients. Jeffreys' prior has $n - 1$,
which is right for single columns, but gives regressions residual variances that are too small, and
data augmentation amplifies that. Short tables have $n - 1$. A few pseudo-rows of variance 1 keep
wide tables regular.

Every draw has a chain of its own, and several chains run as one batch. A chain starts with
parameters drawn about those of EM, as if a share s of the rows was complete and no other was there.
It is the share of the information that is known about the parameter that is known least: an
iteration of EM leaves $1 - s$ of the distance to its end. The start is thus as wide as the
posterior of that parameter, and too wide for all others. For one of which a share f is known, k
steps leave $(f / s - 1) (1 - f)^{2k}$ of its variance to be corrected, at most 3 % with
$k = 1 / s$.
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
WIDTHS = 4
"""Sizes of systems of equations are multiples of it. With a tenth to half of 50 columns missing,
powers of 2 took 1.0 to 2.3 times as long, and multiples of 2 as long."""
EM_STEPS = 40
"""Iterations of EM before the first draw."""
STEPS = (2, 24)
"""Bounds of the steps of a chain. With 1 / s steps of them, variances of means, covariances,
regressions and eigenvalues were 0.98 to 1.04 times those of a chain of 3,000 to 7,500 steps, on
average over these, on ten tables of 40 to 1,000 rows with 10 to 50 % missing. Means were 0.03 to
0.09 deviations off, which is about what they are by chance."""
CONVERGED = 1e-10
"""Changes of parameters by an iteration of EM below which it ends."""
START_ROWS = 3.0
"""Rows per column that the start of a chain has at least, if the table has them."""
CHAINS, NUMBERS_AT_ONCE = 10, 2**20
"""Chains that run together, at most, and entries of their systems of equations, which should fit
into a cache. They are the same for any number of draws."""
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
        """Write missing entries to tables of all rows, with padding."""
        flat, own = table.flatten(-2), entries.reshape(*table.shape[:-2], -1)
        flat.scatter_(-1, self.cells.flatten().expand_as(own), own)


def _take(matrices: Tensor, places: Tensor) -> Tensor:
    """Entries of flat matrices `(..., entries)` at places, `(..., *places)`."""
    # As index_select and take, in a fraction of their time.
    chosen = places.flatten().expand(*matrices.shape[:-1], -1)
    taken: Tensor = matrices.gather(-1, chosen).unflatten(-1, places.shape)
    return taken


@dataclass(frozen=True)
class Gaps:
    """Where entries of rows are missing, grouped so that systems have few equations.

    A system of a row has 4, 8, 12, ... equations, the least of these that its missing entries
    need, whatever the other rows are.
    """

    observed: Tensor
    groups: tuple[_Group, ...]

    @classmethod
    def of(cls, observed: Tensor) -> Gaps:
        """Group the rows of a mask."""
        size, counts, groups, done = observed.shape[1], (~observed).sum(1), [], 0
        most, width = int(counts.max()) if len(counts) else 0, min(WIDTHS, size)
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
            done, width = width, min(width + WIDTHS, size)
        return cls(observed, tuple(groups))


@dataclass(frozen=True)
class NormalModel:
    """Mean and covariance of the columns of a matrix, or of several in leading dimensions."""

    mean: Tensor
    covariance: Tensor

    def given(self, values: Tensor, gaps: Gaps) -> ConditionalNormals:
        """The Normals of missing entries given those observed in their rows."""
        sides, systems = self._systems(values, gaps)
        moved, factors = torch.zeros_like(sides), []
        for group in gaps.groups:
            factors.append(torch.linalg.cholesky(_take(systems, group.systems)))
            own = _take(sides.flatten(-2), group.cells)[..., None]
            group.put(torch.cholesky_solve(own, factors[-1]), moved)
        means = torch.where(gaps.observed, values, self.mean + moved[:, :-1])
        return ConditionalNormals(means, gaps, factors)

    def split(self) -> list[NormalModel]:
        """Every one of several models."""
        return list(map(NormalModel, self.mean, self.covariance))

    def distance(self, other: NormalModel) -> float:
        """Root of the squared differences of all parameters."""
        apart = self.mean - other.mean, self.covariance - other.covariance
        return math.hypot(*(float(torch.linalg.vector_norm(x)) for x in apart))

    def conditional_means(self, values: Tensor, observed: Tensor) -> Tensor:
        """Means of every entry given those observed in its row, which are unchanged."""
        return self.given(values, Gaps.of(observed)).means

    def draw(self, values: Tensor, gaps: Gaps, noise: Tensor) -> Tensor:
        """Entries drawn given those observed, from standard Normal noise of the same shape.

        As `given` with its `noise`, in fewer steps. Several models have noise of their own.
        """
        sides, systems = self._systems(values, gaps)
        levels, moved = nn.functional.pad(noise, (0, 1)), torch.zeros_like(sides)
        for group in gaps.groups:
            factors = torch.linalg.cholesky(_take(systems, group.systems))
            own, level = (_take(x.flatten(-2), group.cells)[..., None] for x in (sides, levels))
            half = torch.linalg.solve_triangular(factors, own, upper=False) + level
            group.put(torch.linalg.solve_triangular(factors.mT, half, upper=True), moved)
        return torch.where(gaps.observed, values, self.mean[..., None, :] + moved[..., :-1])

    def _systems(self, values: Tensor, gaps: Gaps) -> tuple[Tensor, Tensor]:
        """Right sides of all entries, with padding, and the precision, flat, before 0 and 1."""
        precision = torch.linalg.inv(self.covariance)
        residual = torch.where(gaps.observed, values - self.mean[..., None, :], 0.0)
        ends = precision.new_tensor([0.0, 1.0]).expand(*precision.shape[:-2], 2)
        systems = torch.cat([precision.flatten(-2), ends], dim=-1)
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
            own = _take(padded.flatten(), group.cells)[..., None]
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
    return fit_by_em(values, observed, weights)[0]


def fit_by_em(
    values: Tensor, observed: Tensor, weights: Tensor | None = None
) -> tuple[NormalModel, float]:
    """The same, and the share of what is apart from the end that an iteration leaves."""
    often = values.new_ones(len(values)) if weights is None else weights
    count, size = float(often.sum()), values.shape[1]
    ridge = pseudo_rows(count, size)
    model = NormalModel(values.new_zeros(size), torch.eye(size, dtype=torch.float64))
    gaps, change, rate = Gaps.of(observed), math.inf, 0.0
    for _ in range(EM_STEPS):
        given = model.given(values, gaps)
        mean = often @ given.means / count
        centred = given.means - mean
        squares = centred.mT @ (often[:, None] * centred) + given.sum_covariances(often)
        squares = squares + ridge * torch.eye(size, dtype=torch.float64)
        before, model = model, NormalModel(mean, squares / (count + ridge))
        last, change = change, model.distance(before)
        if change < CONVERGED:
            break
        rate = change / last
    return model, min(rate, 1.0)


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
    found = fit_by_em(values, observed, weights)
    draws = _augment_data(found, (values, observed), seed, rows, weights)
    return found[0], list(itertools.islice(draws, number))


def _augment_data(
    fitted: tuple[NormalModel, float],
    table: tuple[Tensor, Tensor],
    seed: int,
    rows: float | None,
    weights: Tensor | None,
) -> Iterator[NormalModel]:
    """Draws from the posterior, without end, given what `fit_by_em` found and a table."""
    (estimate, rate), (values, observed) = fitted, table
    often = values.new_ones(len(values)) if weights is None else weights
    chains = Chains(estimate, known_share(observed, rate), values, observed, often)
    share = (chains.rows / max(chains.rows, rows or 0)) ** 0.5
    for first in itertools.count(0, chains.together):
        drawn = chains.draw(seed, range(first, first + chains.together))
        for one in drawn.split():
            yield move_nearer(estimate, one, share)


def known_share(observed: Tensor, rate: float) -> float:
    """The share of the information that is known about what is known least.

    It is that of the pair of columns that is known least, or less, if EM converges more slowly.

    Example:
        >>> columns = torch.arange(100)[:, None] + torch.tensor([0, 50])
        >>> [known_share(columns % 100 >= count, 0.4) for count in (0, 10, 25, 45)]
        [0.6, 0.6, 0.5, 0.1]
    """
    return max(min(share_of_pairs(observed), 1.0 - rate), 0.01)


def share_of_pairs(observed: Tensor) -> float:
    """The share of the rows that have both cells of the pair of columns that is known least."""
    seen = observed.double()
    return float((seen.mT @ seen).amin()) / max(len(seen), 1)


def chain_length(share: float) -> int:
    """Steps of a chain that starts with such a share of the information.

    Example:
        >>> [chain_length(share) for share in (1.0, 0.45, 0.25, 0.01)]
        [2, 3, 4, 24]
    """
    return min(max(math.ceil(1.0 / share), STEPS[0]), STEPS[1])


@dataclass(frozen=True)
class Chains:
    """Data augmentation of some rows, several chains at once."""

    estimate: NormalModel
    share: float  # of the information, of what is known least
    values: Tensor
    observed: Tensor
    often: Tensor

    @cached_property
    def rows(self) -> float:
        """How many rows there are."""
        return float(self.often.sum())

    @cached_property
    def together(self) -> int:
        """Chains that run at once."""
        entries = max(len(self.values), 1) * self.values.shape[1] ** 2
        return max(1, min(CHAINS, NUMBERS_AT_ONCE // entries))

    def start(self, generators: Sequence[np.random.Generator]) -> NormalModel:
        """Parameters as wide as what is known least, or wider."""
        size = len(self.estimate.mean)
        rows = max(self.share * self.rows, min(self.rows, START_ROWS * size))
        noise = ParameterNoise.draw(rows, size, generators)
        return noise.parameters(self.estimate.mean, rows * self.estimate.covariance, rows)

    def draw(self, seed: int, places: Sequence[int]) -> NormalModel:
        """The draws at some places among those of a seed, as one model of several."""
        generators = [np.random.default_rng((seed, place)) for place in places]
        incomplete = (~self.observed.all(1)).nonzero()[:, 0]
        known, gaps = self.values[incomplete], Gaps.of(self.observed[incomplete])
        missing = (~gaps.observed).flatten().nonzero()[:, 0]
        levels = torch.zeros(len(places), known.numel(), dtype=torch.float64)
        table = self.values.repeat(len(places), 1, 1)
        current = self.start(generators)
        for _ in range(chain_length(self.share)):
            levels[:, missing] = draw_levels(generators, len(missing))
            drawn = current.draw(known, gaps, levels.unflatten(1, known.shape))
            table[:, incomplete] = drawn
            current = draw_posterior(table, generators, self.often)
        return current


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

    The draws of a seed are kept, so that further ones are added to them.
    """

    def __init__(self, fitted: FittedRows) -> None:
        self.fitted = fitted
        self._seed: int | None = None
        self._drawn: list[NormalModel] = []
        self._draws: Iterator[NormalModel] = iter(())
        self._departures: tuple[object, Departures] | None = None
        # Of the ensemble at the fitted rows: means, and mean squares of draws about them.
        self.moments: tuple[Tensor, Tensor] | None = None
        self.ensemble_draws: object = None  # `EnsembleDraws` of these rows, if they are kept
        self.curved: object = None  # a `CurvedPosterior`, False if no column is curved
        self._lock = threading.Lock()  # of the chain, which may be asked by several threads

    @cached_property
    def _fit(self) -> tuple[NormalModel, float]:
        return fit_by_em(*self.fitted.table, self._weights)

    @property
    def estimate(self) -> NormalModel:
        """The mean and covariance of greatest likelihood."""
        return self._fit[0]

    def draw(self, number: int, seed: int) -> list[NormalModel]:
        """The first draws of a seed."""
        with self._lock:
            if seed != self._seed:
                rows = self.fitted.table, seed, self.fitted.rows, self._weights
                self._draws = _augment_data(self._fit, *rows)
                self._seed, self._drawn = seed, []
            self._drawn += itertools.islice(self._draws, max(0, number - len(self._drawn)))
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


class ParameterNoise(NamedTuple):
    """What parameters given complete rows are drawn from, of several draws."""

    factors: Tensor  # lower factors of Wishart matrices of unit scale, (draws, size, size)
    levels: Tensor  # standard Normal, (draws, size)

    @classmethod
    def draw(
        cls, rows: float, size: int, generators: Sequence[np.random.Generator]
    ) -> ParameterNoise:
        """Noise for so many rows, by the decomposition of Bartlett."""
        shapes = 0.5 * (_degrees_of_freedom(rows, size) - np.arange(size))
        squared = np.stack([2.0 * one.standard_gamma(shapes) for one in generators])
        normals = draw_levels(generators, size, size).tril(-1)
        factors = normals + torch.from_numpy(squared).sqrt().diag_embed()
        return cls(factors, draw_levels(generators, size))

    def parameters(self, mean: Tensor, squares: Tensor, rows: float) -> NormalModel:
        """Those given so many rows with a mean and squares about it."""
        # With S = C C', the covariance is C (A A')^-1 C' for the factor A of a standard Wishart.
        scales = torch.linalg.cholesky(squares).mT.expand_as(self.factors)
        root = torch.linalg.solve_triangular(self.factors, scales, upper=False)
        moved = (root.mT @ self.levels[..., None])[..., 0]
        return NormalModel(mean + moved / rows**0.5, root.mT @ root)


def draw_levels(generators: Sequence[np.random.Generator], *shape: int) -> Tensor:
    """Standard Normal noise of every generator, `(generators, *shape)`."""
    return torch.from_numpy(np.stack([one.standard_normal(shape) for one in generators]))


def draw_posterior(
    tables: Tensor, generators: Sequence[np.random.Generator], often: Tensor
) -> NormalModel:
    """Means and covariances drawn given tables of complete rows, which count so often."""
    rows, size = float(often.sum()), tables.shape[-1]
    mean = often @ tables / rows
    centred = tables - mean[:, None]
    ridge = max(pseudo_rows(rows, size), 1e-6) * torch.eye(size, dtype=torch.float64)
    squares = centred.mT @ (often[:, None] * centred) + ridge
    return ParameterNoise.draw(rows, size, generators).parameters(mean, squares, rows)


def move_nearer(estimate: NormalModel, draw: NormalModel, share: float) -> NormalModel:
    """A draw at a share of its distance from the estimate."""
    return NormalModel(
        torch.lerp(estimate.mean, draw.mean, share),
        torch.lerp(estimate.covariance, draw.covariance, share),
    )
