r"""A Normal model of the columns, fitted together with the reason why their cells are missing.

Rows are $z \sim N(\mu, \Sigma)$, and a cell is missing with the probability
$\Phi(\alpha_j + \beta_j z_j)$, a probit that is nearly the logistic function of slope
$1.7\, \beta_j$. EM alternates three steps. Missing cells of a row get the mean and covariance of

$$p(z_m \mid z_o, \text{missing}) \propto
p(z_m \mid z_o) \prod_{j \in m} \Phi(\alpha_j + \beta_j z_j)$$

by expectation propagation: every factor is replaced by a Normal one that gives its cell the right
mean and variance, which has a closed form. Mean and covariance are those of the completed rows.
Intercepts and slopes maximise the probability of what is missing given the *other* cells of the
row,

$$P(\text{missing}_j \mid \text{others}) =
\Phi\Bigl(\frac{\alpha_j + \beta_j m_j}{\sqrt{1 + \beta_j^2 v_j}}\Bigr)$$

for the mean $m_j$ and variance $v_j$ that these predict. Observed values of the column itself are
not used there: the shape of a skewed column looks like one of whose values some are missing. On
tables of skewed columns the likelihood of everything made slopes of 25 out of slopes of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vfg.imputation.parameter_draws import Gaps, NormalModel, fit_normal

LOGISTIC = 1.702
"""Slope of the logistic function that is nearest to a probit."""
STEEPEST = 6.0
"""The steepest slope of a probit. Steeper ones are steps: all cells beyond a value are missing."""
STEEP = 2.0
"""The slope from which a probit is a step, which is no further out than the observed range ends.
Slopes were 2.9 to 6 in tables whose values above the mean were missing, and at most 0.9 in tables
with other mechanisms."""
SPREADS = (0.1, 0.2)
"""Deviations of slopes from their common one: where all have one sign, and else. With 0.2 one of
four slopes had the wrong sign on a tuning table whose values above the mean were all missing."""
COMMON_SPREAD = 2.0
"""Deviation of the common slope in its prior."""
ROUNDS, SITE_STEPS, NEWTON_STEPS = 60, 2, 3
"""Rounds of EM, and steps of expectation propagation and of scoring in each."""
FINAL_STEPS = 15
"""Steps of expectation propagation from its start."""
DAMPING = 0.7
"""How far sites move in a step, since all of a row move at once."""
SETTLED = 1e-3
"""A change of slopes and means that ends EM."""
PSEUDO_ROWS = 1.0
"""Pseudo-rows of variance 1 per column. In tables of 351 rows and 24 columns with clipped cells,
missing by their value, squared errors were 5 to 7 % smaller than with hardly any in four of five
settings, and equal in one, with one seed each."""
LARGEST = 1e6
"""The most of rows times squared columns that are fitted, which bounds the time."""
ROWS_PER_COLUMN = 5.0
"""The fewest rows per column that a covariance of all columns is fitted to."""


@dataclass(frozen=True)
class Selection:
    """A Normal model, and probits of the event that a cell is missing."""

    model: NormalModel
    intercepts: Tensor
    slopes: Tensor

    def pack(self) -> Tensor:
        """All parameters as one matrix, `(columns + 3, columns)`."""
        rows = self.model.mean, self.intercepts, self.slopes
        return torch.cat([self.model.covariance, torch.stack(rows)])

    @classmethod
    def unpack(cls, packed: Tensor) -> Selection:
        """The inverse of `pack`."""
        mean, intercepts, slopes = packed[-3:]
        return cls(NormalModel(mean, packed[:-3]), intercepts, slopes)

    def given(self, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Means and deviations of missing entries, given those observed and that they are missing.

        Observed entries are unchanged. Answers about a row do not depend on other rows.

        Example:
            >>> one = torch.ones(1, dtype=torch.float64)
            >>> made = Selection(NormalModel(0.0 * one, one.diag()), 0.0 * one, one)
            >>> means, _ = made.given(torch.zeros(1, 1).double(), torch.zeros(1, 1).bool())
            >>> round(float(means), 4)  # 1 / sqrt(pi)
            0.5642
        """
        found = _Sites.start(Gaps.of(observed)).find(self, values, FINAL_STEPS)
        return found.means, found.variances.sqrt()


@dataclass(frozen=True)
class _Found:
    """What the rows say under a selection model, `(rows, columns)`."""

    means: Tensor
    variances: Tensor  # 0 of observed entries
    covariance: Tensor  # of missing entries, summed over rows
    others: Tensor  # what the other cells of the row predict
    spread: Tensor  # the variance of that


class _Sites:
    """Normal factors in the place of probits, by group of rows; kept from round to round."""

    def __init__(self, gaps: Gaps, precisions: list[Tensor], shifts: list[Tensor]) -> None:
        self.gaps, self.precisions, self.shifts = gaps, precisions, shifts

    @classmethod
    def start(cls, gaps: Gaps) -> _Sites:
        """Factors that say nothing."""
        both = [[group.places.new_zeros(group.places.shape).double() for group in gaps.groups]
                for _ in range(2)]  # fmt: skip
        return cls(gaps, *both)

    def find(self, selection: Selection, values: Tensor, steps: int) -> _Found:
        """Improve the factors; return the moments that follow."""
        model, observed = selection.model, self.gaps.observed
        precision = torch.linalg.inv(model.covariance)
        residual = torch.where(observed, values - model.mean, 0.0)
        sides = -_times(residual, precision)
        spread = (1.0 / precision.diagonal()).expand(values.shape).clone()
        others, centred = spread * sides + residual, residual.clone()
        variances = torch.zeros_like(values)
        total = torch.zeros_like(precision)
        every = torch.cat([precision.flatten(), precision.new_tensor([0.0, 1.0])])
        padded, wide = nn.functional.pad(sides, (0, 1)), len(precision) + 1
        for place, group in enumerate(self.gaps.groups):
            systems = every.take(group.systems)
            known = [_take(x, group.places) for x in (selection.intercepts, selection.slopes)]
            known[0] = known[0] + known[1] * _take(model.mean, group.places)
            moments = self._improve(place, systems, padded.take(group.cells), known, steps)
            mean, covariance, cavity, width = moments
            for entries, table in zip(
                (mean, covariance.diagonal(dim1=1, dim2=2), cavity, width),
                (centred, variances, others, spread),
                strict=True,
            ):
                whole = torch.zeros_like(padded)
                group.put(entries, whole)
                seen = observed[group.rows]
                table[group.rows] = torch.where(seen, table[group.rows], whole[group.rows, :-1])
            rows = nn.functional.pad(precision, (0, 0, 0, 1))[group.places]
            # Without its own value an observed cell is predicted less precisely, and nearer to it.
            explained = (rows * (covariance @ rows)).sum(1)
            own = 1.0 / (precision.diagonal() - explained).clamp(min=1e-9)
            apart = residual[group.rows] - own * _times(centred[group.rows], precision)
            seen = observed[group.rows]
            spread[group.rows] = torch.where(seen, own, spread[group.rows])
            others[group.rows] = torch.where(seen, apart, others[group.rows])
            sums = torch.bincount(group.entries.flatten(), covariance.flatten(), wide * wide)
            total += sums.view(wide, wide)[:-1, :-1]
        means = torch.where(observed, values, model.mean + centred)
        return _Found(means, variances, total, model.mean + others, spread)

    def _improve(
        self, place: int, systems: Tensor, sides: Tensor, probits: list[Tensor], steps: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means and covariances of a group, and means and variances without a cell's own factor."""
        precisions, shifts = self.precisions[place], self.shifts[place]
        intercepts, slopes = probits
        for step in range(steps + 1):
            factors = torch.linalg.cholesky(systems + torch.diag_embed(precisions))
            covariance = torch.cholesky_inverse(factors)
            mean = _times_each(covariance, sides + shifts)
            variance = covariance.diagonal(dim1=1, dim2=2)
            width = 1.0 / (1.0 / variance - precisions).clamp(min=1e-9)
            cavity = width * (mean / variance - shifts)
            if step == steps:
                break
            scale = (1.0 + slopes.square() * width).sqrt()
            level = (intercepts + slopes * cavity) / scale
            ratio = _hazard(level)
            wanted = cavity + width * slopes * ratio / scale
            shrunk = (ratio * (level + ratio)).clamp(0.0, 1.0)
            narrowed = width * (1.0 - width * (slopes / scale).square() * shrunk).clamp(min=1e-6)
            precisions = torch.lerp(
                precisions, (1.0 / narrowed - 1.0 / width).clamp(min=0.0), DAMPING
            )
            shifts = torch.lerp(shifts, wanted / narrowed - cavity / width, DAMPING)
        self.precisions[place], self.shifts[place] = precisions, shifts
        return mean, covariance, cavity, width


def fit_selection(
    values: Tensor, observed: Tensor, slopes: Tensor, few: Tensor
) -> Selection | None:
    """Fit to a matrix, from logistic slopes that were found; columns with 0 have none.

    Columns with too `few` cells get the common slope. None if there are too many columns for the
    rows, or too few rows.
    """
    size = values.shape[1]
    most = int(LARGEST / size**2)
    values, observed = values[:most], observed[:most]
    fitted = (slopes != 0.0) & ~few
    if len(values) < ROWS_PER_COLUMN * size or not bool(fitted.any()):
        return None
    common = torch.where(slopes == 0.0, 0.0, slopes[fitted].mean())
    starts = [(common, SPREADS[0])]
    if float(slopes.amin() * slopes.amax()) < 0.0:
        starts.append((slopes, SPREADS[1]))
    found = [_fit(values, observed, start / LOGISTIC, fitted, spread) for start, spread in starts]
    return max(found, key=lambda one: one[1])[0]


def fit_step(
    values: Tensor, observed: Tensor, sign: float, fitted: Tensor
) -> tuple[Tensor, float] | None:
    """Logistic slopes if they are steep in all fitted columns, and the log Bayes factor of these.

    It is against cells missing completely at random. None if slopes are not steep, or there are too
    few rows.
    """
    size = values.shape[1]
    most = int(LARGEST / size**2)
    values, observed = values[:most], observed[:most]
    if len(values) < ROWS_PER_COLUMN * size:
        return None
    start = torch.where(fitted, sign / LOGISTIC, torch.zeros(size, dtype=torch.float64))
    found, evidence = _fit(values, observed, start, fitted, SPREADS[0])
    if float((sign * found.slopes)[fitted].min()) < STEEP:
        return None
    missing = (~observed[:, fitted]).double()
    share = missing.mean(0)
    nothing = (torch.special.entr(share) + torch.special.entr(1.0 - share)).sum() * len(missing)
    return LOGISTIC * found.slopes, evidence + float(nothing)


def _fit(
    values: Tensor, observed: Tensor, slopes: Tensor, fitted: Tensor, spread: float
) -> tuple[Selection, float]:
    """A selection model with a given deviation of slopes, and its evidence."""
    rows, size = values.shape
    share = (~observed).double().mean(0).clamp(0.5 / rows, 1.0 - 0.5 / rows)
    found = Selection(fit_normal(values, observed), torch.special.ndtri(share), slopes)
    sites, ridge = _Sites.start(Gaps.of(observed)), PSEUDO_ROWS * size
    missing, infinity = (~observed).double(), torch.tensor(torch.inf, dtype=torch.float64)
    ends = torch.stack(
        [values.where(observed, infinity).amin(0), values.where(observed, -infinity).amax(0)]
    )
    for _ in range(ROUNDS):
        moments = sites.find(found, values, SITE_STEPS)
        mean = moments.means.mean(0)
        centred = moments.means - mean
        squares = centred.mT @ centred + moments.covariance
        squares = squares + ridge * torch.eye(size, dtype=torch.float64)
        model, before = NormalModel(mean, squares / (rows + ridge)), found
        found, evidence = _fit_probits(
            replace(found, model=model), moments, missing, fitted, spread, ends
        )
        moved = torch.cat([found.slopes - before.slopes, found.model.mean - before.model.mean])
        if float(moved.abs().max()) < SETTLED:
            break
    return found, evidence


def _fit_probits(
    selection: Selection,
    found: _Found,
    missing: Tensor,
    fitted: Tensor,
    spread: float,
    ends: Tensor,
) -> tuple[Selection, float]:
    """Intercepts and slopes by Fisher scoring, given what other cells predict, and the evidence.

    Slopes are shrunk to a common one, which is integrated out of their prior. `ends` are those of
    the observed ranges, `(2, columns)`.
    """
    intercepts, slopes = selection.intercepts, selection.slopes
    means, variances = found.others, found.spread
    for _ in range(NEWTON_STEPS):
        scale = (1.0 + slopes.square() * variances).sqrt()
        level = ((intercepts + slopes * means) / scale).clamp(-6.0, 6.0)
        chance = torch.special.ndtr(level)
        density = torch.exp(-0.5 * level.square()) / math.sqrt(2.0 * math.pi)
        weight = density.square() / (chance * (1.0 - chance))
        left = (missing - chance) * density / (chance * (1.0 - chance))
        of_intercept = 1.0 / scale
        of_slope = (means - intercepts * slopes * variances) / scale**3
        base = (weight * of_intercept.square()).sum(0) + 1e-9
        cross = (weight * of_intercept * of_slope).sum(0) / base
        information = (weight * (of_slope - cross * of_intercept).square()).sum(0) + 1e-9
        score = (left * (of_slope - cross * of_intercept)).sum(0)
        free = slopes + score / information
        shared = torch.where(fitted, information / (1.0 + spread**2 * information), 0.0)
        common = (shared * free).sum() / (shared.sum() + COMMON_SPREAD**-2)
        wanted = (information * free + common / spread**2) / (information + spread**-2)
        wanted = torch.where(fitted, wanted, torch.where(slopes == 0.0, 0.0, common))
        change = (wanted - slopes).clamp(-0.3, 0.3)
        change = (slopes + change).clamp(-STEEPEST, STEEPEST) - slopes
        intercepts = intercepts + (left * of_intercept).sum(0) / base - cross * change
        slopes = slopes + change
    intercepts = torch.where(slopes > STEEP, intercepts.maximum(-slopes * ends[1]), intercepts)
    intercepts = torch.where(slopes < -STEEP, intercepts.maximum(-slopes * ends[0]), intercepts)
    gain = missing * chance.log() + (1.0 - missing) * (1.0 - chance).log()
    penalty = ((slopes - common) / spread).square() + torch.log1p(spread**2 * information)
    evidence = float(gain[:, fitted].sum() - 0.5 * penalty[fitted].sum())
    return Selection(selection.model, intercepts, slopes), evidence


def _hazard(level: Tensor) -> Tensor:
    """Density over distribution function of a standard Normal."""
    logs = -0.5 * level.square() - 0.5 * math.log(2.0 * math.pi)
    ratio: Tensor = (logs - torch.special.log_ndtr(level)).exp()
    return ratio


def _take(vector: Tensor, places: Tensor) -> Tensor:
    """Entries of a vector of columns, 0 as padding."""
    return nn.functional.pad(vector, (0, 1)).take(places)


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Rows times a matrix, one column after the other: bits of products depend on the shape."""
    total = torch.zeros_like(rows)
    for column in range(len(matrix)):
        total = total + rows[:, column : column + 1] * matrix[column]
    return total


def _times_each(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Every matrix times its vector, in the same order for any number of them."""
    total = torch.zeros_like(vectors)
    for column in range(vectors.shape[1]):
        total = total + matrices[:, :, column] * vectors[:, column : column + 1]
    return total
