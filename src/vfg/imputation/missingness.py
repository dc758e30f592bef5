r"""Why cells are missing: a model of cells that are missing because of their own value.

The log-odds of the event that a cell of column j is missing are $a_j + b_j z$ for its standardised
value $z$. Parts of an ensemble are fitted to cells that are observed, so they predict
$p(z_m \mid z_o)$ as if the missing cells m had been observed. By Bayes' rule the missing cells have
the density

$$p(z_m \mid z_o, \text{missing}) \propto p(z_m \mid z_o) \exp(b_m^\top z_m),$$

so that a Normal with the covariance $\Sigma_m$ keeps it and moves by $\Sigma_m b_m$. The chance of
a cell to be missing, given the other cells of its row, has the log-odds
$a_j + b_j \mu_j + b_j^2 s_j^2 / 2$ for the mean $\mu_j$ and deviation $s_j$ that others predict.
Slopes are fitted to that: cells are missing more often where large values are predicted. They are
shrunk to a common slope, and that to 0. The competing explanation is that missing cells depend on
the other columns, which needs no tilt; marginal likelihoods decide between the two. Where no common
slope is found, every column is judged for itself: its cells are missing completely at random, by
their own value, or by the other columns. The shares of the three are unknown and integrated out, so
that columns learn from each other which of them is usual in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import ExactMeans
from vfg.gaussian.parameters import factors_of
from vfg.imputation.missing_at_random import (
    COMMON_SPREAD,
    FEWEST,
    MARGIN,
    are_blocks,
    are_monotone,
    evidence_of_a_driver,
    evidence_of_one,
    evidence_of_others,
    evidence_of_rivals,
    explain_by_complete_columns,
    explain_by_masks,
    log_probs,
    masks_beyond,
)
from vfg.imputation.parameter_draws import NormalModel, fit_normal
from vfg.imputation.rubin import Pooled
from vfg.imputation.selection import LOGISTIC, Selection, fit_selection, fit_step
from vfg.tables.cells import Array, Label, Mask
from vfg.training.losses import draw_rows

ROWS = 4000
"""Rows that slopes are fitted to, at most: the common slope of 5 columns is then known to 0.04."""
COLUMNS = 60
"""Columns whose slopes are fitted, at most, which bounds the time; others get the common slope."""
SPREADS = (0.05, 0.3)
"""Deviations of the slopes of columns from the common slope, among which the evidence chooses. With
1, slopes of single columns made errors up to four times as large on eight UCI tables."""
STEEPEST = 3.0
"""The steepest slope: an odds ratio of 20 per deviation."""
FURTHEST = 2.0
"""How far missing entries of a row move together, at most, in deviations of their joint
distribution: the odds of a logistic model do not grow for ever. On seven UCI tables 1.5 and 2 were
best or within 2 % of it, 1 cost up to 8 %, and no limit up to 6 %."""
WIDENING = 1.25
"""Factor of the deviations of tilted draws: the largest values are missing most often, so that the
tail of what is observed is too light. On three tuning tables 90 % intervals held 74 to 82 % with 1,
80 to 91 % with 1.3."""
NARROWING = (1.0, 1.5)
"""Bounds of the factors by which deviations change with a selection model. On five tuning tables
with slopes of 1, 90 % intervals held 84 to 93 %, and 79 to 91 % where they could get narrower."""
OPEN_SHARE = 0.6
"""The share of the missing cells of a column that must be expected beyond its observed range, for
the range to be left. Where every value above the mean was missing it was 0.5 to 0.98 in half of the
columns of eight tables; where values were missing with odds that grow, at most 0.54, but for
columns that pile up at an end."""
FURTHEST_FILL = 4.0
"""How far beyond the observed range cells are filled, at most, in deviations of observed cells: all
is known there from the shape of a Normal variable alone. Where every value above the mean was
missing, 2 made errors up to twice as large on six tables, and no limit 4 times on one."""
PILE = 3.0
"""How many times as often as the values next to it, on average, the end of a range may occur. More
is a pile of cells at a bound, such as 0."""
ROUNDS, STEPS = 6, 3
"""Rounds in which the tilt by other missing cells is computed anew, and Newton steps in each."""
SHARE = 0.8
"""How much of what the other columns explain, as logarithms of Bayes factors, slopes that are alike
must explain. On these tables it was at most 0.6 where cells were missing by other columns, and 0.9
or more where they were missing by their value. Slopes that differ by column must explain more than
the other columns: some set of them nearly always explains as much."""

DRIVER_MARGIN = 4.0
"""By how much they must explain more than one column that drives all missing cells. Without it 15
of 120 simulated tables of 100 rows with such a column got slopes that are alike, with it none; four
got slopes of single columns."""
COLUMN_MARGIN = 6.0
"""Logarithm of the Bayes factor of the slope of a single column, below which it has none."""
DOUBT = 1.0
"""Logarithm of the odds, before seeing a table, that cells of a column depend on other columns and
not on their own value. In tables of two columns the two are the same, and 0 would accept every
other one. With 1, slopes were found in 4 of 225 simulated tables of 100 to 2,000 rows whose cells
were missing at random, and in none of 50 such UCI tables; `experiments.benchmarks.mechanisms` has
mechanisms of these kinds."""
STEEP_TILT = 1.5
"""The slope from which the cells of a column beyond a value may all be missing. It was 1.7 to 2.7
where they were and others predict the column, and at most 1.4 where the log-odds of its own value
grew by 1.5 per deviation."""
STEP_COST = 4.0
"""Penalty of a step, as a logarithm of a Bayes factor, since its slope has no prior of its own. In
tables of two columns, where it says the same as the other column, it explained 1.4 to 3.1 more."""
MOST_STEPS = 3
"""Columns that are tried for that, at most, which bounds the time."""
ONE_MARGIN, ONE_SHARE = 1.0, 0.05
"""By how much the own value must explain more than one other column, at least and as a share, since
the two are the same where that column alone predicts it: the own value then explained at most 0.1
more. In curved tables of three columns, of which two are missing by the third, it explained up to
3 % more."""
SKEWED = 1.0
"""The skewness of a column from which its normal scores are examined, too."""
SCORED_COLUMNS, SCORED_ROWS = 40, 5
"""The most columns, and the fewest rows per column, of tables whose scores are examined."""
GRID = (np.arange(40.0) + 0.5) / 40.0
"""Shares over which those of the three explanations are integrated."""


@dataclass(frozen=True)
class Mechanism:
    """What was found about missing cells."""

    slopes: Tensor | None = None  # of log-odds by standardised value, per column; None: ignorable
    evidence: float = 0.0  # log Bayes factor of slopes against none
    rival: float = 0.0  # the same of a dependence on other columns
    reach: Tensor | None = None  # ends of what is filled beyond observed ranges, (2, columns)
    selection: Tensor | None = None  # `Selection.pack` of a model fitted together with slopes
    judged: int = 0  # columns of numbers with missing cells
    unseen: int = 0  # those of them whose slope could not be seen, if there were one
    categories: bool = False  # whether categories are missing, which have no slopes

    def to_dict(self) -> dict[str, float]:
        """The evidence, ready for JSON; nothing if none was looked for."""
        if not (self.evidence or self.judged or self.categories) and self.slopes is None:
            return {}
        numbers = {"judged": self.judged, "unseen": self.unseen, "categories": self.categories}
        return {
            "evidence": round(self.evidence, 2),
            "rival": round(self.rival, 2),
            **{name: float(number) for name, number in numbers.items() if number},
        }


def describe_mechanism(slopes: Tensor | None, mechanism: Mapping[str, float]) -> str:
    """A sentence about why cells are missing, from the slopes and `Mechanism.to_dict`.

    Example:
        >>> describe_mechanism(None, {"evidence": 60.0, "rival": 400.0})
        'which cells are missing depends on other columns, so they are filled as missing at random'
    """
    said = _describe_numbers(slopes, mechanism)
    if not mechanism.get("categories"):
        return said
    beside = "why categories are missing is not modelled: they are filled as missing at random"
    return f"{said}; {beside}" if slopes is not None or mechanism.get("judged") else beside


def _describe_numbers(slopes: Tensor | None, mechanism: Mapping[str, float]) -> str:
    """What was found about columns of numbers."""
    if slopes is not None:
        own = slopes[slopes != 0.0]
        above, below = int((own > 0.0).sum()), int((own < 0.0).sum())
        if min(above, below) > 0:
            return (
                f"large values of {_count(above)} and small values of {_count(below)} are missing "
                f"more often than others: the log-odds change by {float(own.min()):+.2f} to "
                f"{float(own.max()):+.2f} per standard deviation, which filled cells take into "
                "account"
            )
        common = float(own.median()) if len(own) else 0.0
        size = "large" if common > 0.0 else "small"
        return (
            f"{size} values are missing more often than others: the log-odds change by "
            f"{common:+.2f} per standard deviation ({float(own.min()):+.2f} to "
            f"{float(own.max()):+.2f} by column), which filled cells take into account"
        )
    judged, unseen = (int(mechanism.get(name, 0)) for name in ("judged", "unseen"))
    if not mechanism:
        return "missing cells are filled as missing at random"
    rival = mechanism.get("rival", 0.0)
    if rival > MARGIN and mechanism["evidence"] > SHARE * rival:
        return (
            "which cells are missing depends on other columns or on their own value, which this "
            "table does not distinguish, so they are filled as missing at random"
        )
    if rival > MARGIN:
        return (
            "which cells are missing depends on other columns, so they are filled as missing at "
            "random"
        )
    if judged and unseen == judged:
        return (
            "whether cells are missing because of their value cannot be detected in this table, "
            "since columns hardly predict each other or few cells are missing, so they are filled "
            "as missing at random"
        )
    said = "there is no evidence that cells are missing because of their value"
    if unseen:
        said += (
            f", but in {unseen} of {judged} columns it could not be detected, since other columns "
            "hardly predict them or few of their cells are missing"
        )
    return said


def _count(columns: int) -> str:
    return f"{columns} column" + "s" * (columns != 1)


class _Factors(NamedTuple):
    """A linear model in the units of the matrix: u = loadings e + offsets + noise."""

    loadings: Array
    offsets: Array
    variances: Array

    @classmethod
    def of(cls, linear: GaussianVFG) -> _Factors:
        with torch.no_grad():
            factors = factors_of(linear.structure, linear.linear.values())
        loadings, offsets, scales = (x[0].cpu().double().numpy() for x in factors[1:])
        location, scale = (
            x.cpu().double().numpy() for x in (linear.scaling.location, linear.scaling.scale)
        )
        return cls(loadings * scale[:, None], offsets * scale + location, (scales * scale) ** 2)

    @classmethod
    def of_normal(cls, model: NormalModel) -> _Factors:
        """Those of any Normal model: as many innovations as columns, and little noise."""
        levels, vectors = np.linalg.eigh(model.covariance.numpy())
        noise = max(0.5 * float(levels[0]), 1e-6)
        loadings = vectors * np.sqrt(np.maximum(levels - noise, 0.0))
        return cls(loadings, model.mean.numpy(), np.full(len(levels), noise))


@dataclass
class _Predictions:
    """What the other cells of a row predict for every cell, `(rows, columns)`."""

    means: Array
    variances: Array
    expected: Array  # values, and conditional means of missing cells
    ratio: Array  # squared factor by which covariances are recalibrated, per column
    factors: _Factors
    innovations: Array  # covariances given the observed cells, (rows, innovations, innovations)
    explained: Array  # variances of what innovations explain, (rows, columns)
    observed: Mask

    @classmethod
    def of(cls, factors: _Factors, values: Array, observed: Mask) -> _Predictions:
        """Predictions by a linear model, recalibrated at observed cells."""
        loadings, offsets, variances = factors
        squares = (loadings[:, :, None] * loadings[:, None]).reshape(len(loadings), -1)
        weights = observed / variances
        size = loadings.shape[1]
        precision = (weights @ squares).reshape(-1, size, size) + np.eye(size)
        covariance = np.linalg.inv(precision)
        residual = np.where(observed, values - offsets, 0.0)
        states = np.einsum("nij,nj->ni", covariance, (weights * residual) @ loadings)
        explained = covariance.reshape(len(values), -1) @ squares.T
        fitted = states @ loadings.T
        own = 1.0 / variances - explained / variances**2
        means = np.where(observed, values - (residual - fitted) / variances / own, fitted + offsets)
        spread = np.where(observed, 1.0 / own, explained + variances)
        expected = np.where(observed, values, means)
        made = cls(
            means, spread, expected, np.ones(len(offsets)), factors, covariance, explained, observed
        )
        made._recalibrate(values)
        return made

    def _recalibrate(self, values: Array) -> None:
        """Regress observed cells on their predictions, since those of EM are not about them."""
        count = self.observed.sum(0)
        x, y = (np.where(self.observed, z, 0.0) for z in (self.means, values))
        middle = np.stack([x.sum(0), y.sum(0)]) / np.maximum(count, 1)
        dx, dy = (np.where(self.observed, z - m, 0.0) for z, m in zip((x, y), middle, strict=True))
        # Five cells' worth of the prediction as it is.
        slope = ((dx * dy).sum(0) + 5.0) / ((dx * dx).sum(0) + 5.0)
        slope = np.clip(slope, 0.0, 1.2)
        self.means = middle[1] + slope * (self.means - middle[0])
        errors = np.where(self.observed, values - self.means, 0.0)
        implied = np.where(self.observed, self.variances, 0.0).sum(0)
        self.ratio = ((errors**2).sum(0) + 5.0) / (implied + 5.0)
        self.variances = self.variances * self.ratio

    def tilted(self, slopes: Array) -> Array:
        """The means, moved by what other missing cells of the row say by being missing."""
        loadings, _, variances = self.factors
        pulls = np.where(self.observed, 0.0, slopes * np.sqrt(self.ratio))
        moved = np.einsum("nij,nj->ni", self.innovations, pulls @ loadings) @ loadings.T
        # Covariances with an observed cell are those before it was observed.
        seen = moved / (1.0 - self.explained / variances)
        moved = np.where(self.observed, seen, moved - self.explained * pulls)
        return np.asarray(self.means + np.sqrt(self.ratio) * moved)


@dataclass
class _Fit:
    """Intercepts and slopes of columns, and how well they explain which cells are missing."""

    slopes: Array
    common: float
    evidence: float
    factors: Array  # log Bayes factors of the fitted columns: the slope, or none
    by_column: Array  # the same of their slopes alone, integrated
    logits: Array  # of missing cells, (rows, fitted columns)

    def shares(self) -> tuple[Array, float]:
        """Probabilities that fitted columns have a slope, and that another one has."""
        share = 0.5
        for _ in range(50):
            own = scipy.special.expit(np.log(share / (1.0 - share)) + self.factors)
            share = float((1.0 + own.sum()) / (3.0 + len(own)))
        return own, share


@dataclass(frozen=True)
class Sensitivity:
    """How results change if missing cells differ from what is filled in.

    Attributes:
        delta: shifts of the missing cells, in standard deviations of their columns.
        columns: numeric columns with missing cells.
        filled: mean of the filled cells by shift and column, in units of the column.
        low: mean of the lower ends of their intervals.
        high: mean of the upper ends.
        means: mean of the whole column, observed and filled.
        pooled: results of the statistic by shift, pooled over draws; empty without one.
    """

    delta: tuple[float, ...]
    columns: tuple[Label, ...]
    filled: Array
    low: Array
    high: Array
    means: Array
    pooled: tuple[Pooled, ...] = ()

    def __str__(self) -> str:
        lines = [f"{'column':<24}{'shift':>8}{'filled':>12}{'low':>12}{'high':>12}{'mean':>12}"]
        for place, column in enumerate(self.columns):
            for row, shift in enumerate(self.delta):
                numbers = [x[row, place] for x in (self.filled, self.low, self.high, self.means)]
                shown = "".join(f"{number:>12.5g}" for number in numbers)
                lines.append(f"{str(column)[:23]:<24}{shift:>8.3g}{shown}")
        for shift, one in zip(self.delta, self.pooled, strict=False):
            pairs = zip(np.ravel(one.estimate), np.ravel(one.std), strict=True)
            shown = ", ".join(f"{estimate:.5g} ± {error:.2g}" for estimate, error in pairs)
            lines.append(f"{'statistic':<24}{shift:>8.3g}  {shown}")
        return "\n".join(lines)


def check_shifts(delta: Any) -> tuple[float, ...]:
    """Shifts as numbers; refuses anything else, and none."""
    try:
        given = np.atleast_1d(np.asarray(delta, dtype=object))
        flags = any(isinstance(shift, bool | np.bool_) for shift in given.ravel())
        shifts = () if flags else tuple(float(shift) for shift in given.astype(float))
    except (TypeError, ValueError):
        shifts = ()
    if not shifts or not np.isfinite(shifts).all():
        raise ValueError(
            f"delta must be finite numbers of standard deviations, such as [-1, 0, 1], but is "
            f"{delta!r}"
        )
    return shifts


def find_mechanism(
    linear: GaussianVFG,
    values: Tensor,
    observed: Tensor,
    unordered: Tensor,
    *,
    assumed: str = "auto",
    seed: int = 0,
    weights: Tensor | None = None,
) -> Mechanism:
    """Find out whether cells of a matrix are missing because of their value.

    The matrix is 0 where nothing is known. Columns that are `unordered` have no slope. If `assumed`
    is "ignorable" they are not; if it is "self" slopes are fitted whatever the evidence. Rows are
    repeated by their `weights`.
    """
    if assumed == "ignorable":
        return Mechanism()
    x, seen = (each.numpy() for each in _some_rows(values, observed, seed, weights))
    absent = (~seen).sum(0)
    ordered = ~unordered.numpy() & (absent > 0)
    usable = np.flatnonzero(ordered & (absent >= FEWEST) & (len(x) - absent >= FEWEST))
    empty = Mechanism(
        judged=int(ordered.sum()),
        unseen=int(ordered.sum()),
        categories=bool((unordered.numpy() & (absent > 0)).any()),
    )
    if not len(usable):
        return empty
    chosen = usable[np.unique(np.linspace(0, len(usable) - 1, COLUMNS).round().astype(int))]
    predictions = _Predictions.of(_Factors.of(linear), x, seen)
    visible = _expected_evidence(predictions)[usable] > COLUMN_MARGIN
    known = replace(empty, unseen=empty.judged - int(visible.sum()))
    scored = None if assumed == "self" else _predict_scores(x, seen, ordered)
    found = _find_in_views(predictions, scored, x, ordered, chosen, assumed)
    return replace(found, judged=known.judged, unseen=known.unseen, categories=known.categories)


def _expected_evidence(predictions: _Predictions) -> Array:
    """log Bayes factors that slopes of 1 would have by column, nearly."""
    share = predictions.observed.mean(0)
    information = len(predictions.means) * share * (1.0 - share) * predictions.means.var(0)
    return np.asarray(0.5 * (information - np.log1p(information)))


def _find_in_views(
    predictions: _Predictions,
    scored: _Predictions | None,
    x: Array,
    ordered: Mask,
    chosen: Array,
    assumed: str,
) -> Mechanism:
    """Slopes of values, or else of scores."""
    seen = predictions.observed
    views = [predictions.expected, *([] if scored is None else [scored.expected])]
    found = _find_slopes(predictions, views, x, ordered, chosen, assumed)
    if found.slopes is not None or scored is None:
        return found
    # No steps of all columns: columns of few values have no scores that a Normal model describes.
    by_rank = _find_slopes(scored, views, scored.expected, ordered, chosen, assumed, steps=False)
    if by_rank.slopes is None:
        return found
    # Odds per deviation of scores, as odds per deviation of values.
    slopes = by_rank.slopes.numpy() * _slopes_of_scores(x, scored.expected, seen)
    return replace(by_rank, slopes=torch.from_numpy(slopes))


def _find_slopes(
    predictions: _Predictions,
    views: list[Array],
    x: Array,
    ordered: Mask,
    chosen: Array,
    assumed: str,
    *,
    steps: bool = True,
) -> Mechanism:
    """Slopes of values as predictions have them, or none.

    `views` are completed values among which those are that missing cells may depend on instead.
    With `steps`, a step in all columns is tried where slopes explain too little.
    """
    seen = predictions.observed
    offsets, masks = explain_by_masks(seen, chosen)
    alike, different = (_fit_slopes(predictions, chosen, offsets, spread) for spread in SPREADS)
    best, rival = max(alike, different, key=lambda fit: fit.evidence), 0.0
    if assumed != "self":
        if are_blocks(seen, chosen, masks):
            return Mechanism(None, best.evidence, float(masks.sum()))
        is_common = best.evidence > MARGIN
        if is_common:
            others = evidence_of_others(views, seen, chosen, offsets)
            driver = evidence_of_a_driver(views, seen, chosen, offsets)
            total = float(others.clip(0.0).sum())
            rival, most = max(total, driver), max(total, driver / SHARE)
            is_common = alike.evidence > max(MARGIN, SHARE * total, driver + DRIVER_MARGIN)
            is_common = is_common or best.evidence > most + MARGIN
            # Slopes without offsets say which cells are missing together, as that cause does.
            shared = explain_by_complete_columns(views, seen, chosen)
            whole = alike if offsets is None else _fit_slopes(predictions, chosen, None, SPREADS[0])
            is_common &= whole.evidence > shared.evidence + DRIVER_MARGIN
        # One column is like no other; nor is the only one that the others tell about.
        beside = alike.by_column.sum() - alike.by_column.max()
        if beside <= COLUMN_MARGIN or not is_common:
            judged = _judge_columns(predictions, views, x, chosen, offsets, masks)
            steps = steps and best.evidence > MARGIN and not are_monotone(seen)
            if judged is None and steps:
                judged = _find_step(predictions, views, x, chosen, offsets, masks, alike.common)
            return Mechanism(None, best.evidence, rival) if judged is None else judged
    # A column that the others do not predict follows those that they do, as far as these agree.
    own, other = (np.ones(len(chosen)), 1.0) if assumed == "self" else best.shares()
    slopes = np.where(ordered, other * best.common, 0.0)
    slopes[chosen] = own * best.slopes[chosen]
    return Mechanism(torch.from_numpy(slopes.clip(-STEEPEST, STEEPEST)), best.evidence, rival)


def _judge_columns(
    predictions: _Predictions,
    views: list[Array],
    x: Array,
    chosen: Array,
    offsets: Array | None,
    masks: Array,
) -> Mechanism | None:
    """Slopes of the columns that are missing by their own value, each judged for itself.

    `masks` is the evidence of the offsets by column. If slopes explain which cells are missing
    together, the other explanations need it, and the slopes need no offsets.
    """
    observed = predictions.observed
    fit = _fit_slopes(predictions, chosen, None, COMMON_SPREAD, 0.0)
    is_explained = offsets is None or (
        masks_beyond(fit.logits, observed, chosen) <= MARGIN and not are_monotone(observed)
    )
    if not is_explained:
        fit = _fit_slopes(predictions, chosen, offsets, COMMON_SPREAD, 0.0)
    if fit.by_column.max() <= COLUMN_MARGIN:
        return None
    rivals = evidence_of_rivals(views, observed, chosen, offsets)
    if is_explained and offsets is not None:
        alone = evidence_of_rivals(views, observed, chosen, None)
        rivals = np.maximum(alone, masks + rivals.clip(0.0))
    shared = explain_by_complete_columns(views, observed, chosen).by_column
    rivals = np.maximum(rivals, shared if is_explained else shared - masks)
    own, steep = _with_steps(fit, x, observed, chosen, offsets, is_explained)
    # Columns without evidence of either say nothing about why cells of others are missing.
    told, chance = np.maximum(own, rivals) > COLUMN_MARGIN, np.zeros(len(chosen))
    chance[told] = _chances(own[told], rivals[told] + DOUBT)
    found = (chance > 0.5) & (fit.by_column > COLUMN_MARGIN)
    # A column that predicts alone is as simple, wherever it stands.
    alone = evidence_of_one(views, observed, chosen, None if is_explained else offsets)
    margin = np.maximum(ONE_MARGIN, ONE_SHARE * own)
    found &= own > alone + np.log(max(1, observed.shape[1] - 1)) + margin
    if not found.any():
        return None
    slopes = np.zeros(observed.shape[1])
    slopes[chosen] = np.where(
        found, np.where(steep != 0.0, steep, chance * fit.slopes[chosen]), 0.0
    )
    evidence, rival = own[found].sum(), rivals[found].clip(0.0).sum()
    slopes = slopes.clip(-STEEPEST, STEEPEST)
    return Mechanism(torch.from_numpy(slopes), float(evidence), float(rival))


def _with_steps(
    fit: _Fit,
    x: Array,
    observed: Mask,
    chosen: Array,
    offsets: Array | None,
    is_explained: bool,
) -> tuple[Array, Array]:
    """Evidence of columns by their own value, if all cells beyond a value may be missing.

    Second, the slopes of those where that explains more, else 0.
    """
    own, steep = fit.by_column.copy(), np.zeros(len(chosen))
    if offsets is not None and not is_explained:
        return own, steep
    likely = (own > COLUMN_MARGIN) & (np.abs(fit.slopes[chosen]) > STEEP_TILT)
    known, seen = torch.from_numpy(np.where(observed, x, 0.0)), torch.from_numpy(observed)
    for place in np.flatnonzero(likely)[np.argsort(-own[likely])][:MOST_STEPS]:
        fitted = torch.zeros(observed.shape[1], dtype=torch.bool)
        fitted[int(chosen[place])] = True
        sign = 1.0 if fit.slopes[chosen[place]] > 0.0 else -1.0
        found = fit_step(known, seen, sign, fitted)
        if found is not None and found[1] - STEP_COST > own[place]:
            own[place] = found[1] - STEP_COST
            steep[place] = float(found[0][int(chosen[place])].clamp(-STEEPEST, STEEPEST))
    return own, steep


def _predict_scores(x: Array, observed: Mask, ordered: Mask) -> _Predictions | None:
    """Predictions of values with normal scores in the place of skewed columns; None without any."""
    rows, size = x.shape
    if size > SCORED_COLUMNS or rows < SCORED_ROWS * size:
        return None
    scores, is_skewed = x.copy(), False
    for column in np.flatnonzero(ordered | observed.all(0)):
        cells = x[observed[:, column], column]
        if len(cells) < FEWEST or abs(scipy.stats.skew(cells)) < SKEWED:
            continue
        ranks = scipy.stats.rankdata(cells)
        scores[observed[:, column], column] = scipy.special.ndtri((ranks - 0.5) / len(cells))
        is_skewed = True
    if not is_skewed:
        return None
    known = torch.from_numpy(np.where(observed, scores, 0.0))
    model = fit_normal(known, torch.from_numpy(observed))
    return _Predictions.of(_Factors.of_normal(model), known.numpy(), observed)


def _slopes_of_scores(x: Array, scores: Array, observed: Mask) -> Array:
    """The slopes of normal scores by the values of their columns."""
    slopes = np.ones(x.shape[1])
    for column in range(x.shape[1]):
        rows = observed[:, column]
        values = x[rows, column] - x[rows, column].mean()
        slopes[column] = values @ scores[rows, column] / max(values @ values, 1e-12)
    return slopes


def _find_step(
    predictions: _Predictions,
    views: list[Array],
    values: Array,
    chosen: Array,
    offsets: Array | None,
    masks: Array,
    common: float,
) -> Mechanism | None:
    """Steep slopes of all columns, if nothing else explains the missing cells better.

    Where all values beyond a threshold are missing, odds do not grow as slopes of tilts say.
    """
    observed = predictions.observed
    fitted = torch.zeros(values.shape[1], dtype=torch.bool)
    fitted[torch.from_numpy(chosen)] = True
    known, seen = torch.from_numpy(np.where(observed, values, 0.0)), torch.from_numpy(observed)
    found = fit_step(known, seen, 1.0 if common > 0.0 else -1.0, fitted)
    if found is None:
        return None
    slopes, evidence = found
    rival = evidence_of_rivals(views, observed, chosen, None).clip(0.0).sum()
    rival = max(float(rival), evidence_of_a_driver(views, observed, chosen, None))
    rival = max(rival, explain_by_complete_columns(views, observed, chosen).evidence)
    if offsets is not None:
        beside = evidence_of_rivals(views, observed, chosen, offsets).clip(0.0).sum()
        beside = max(beside, evidence_of_a_driver(views, observed, chosen, offsets))
        rival = max(rival, float(masks.clip(0.0).sum() + beside))
    return Mechanism(slopes, evidence, rival) if evidence > rival + MARGIN else None


def _chances(own: Array, others: Array) -> Array:
    """Probabilities that the cells of columns are missing by their own value.

    Arguments are log Bayes factors against cells missing completely at random. The share of those
    has a uniform prior; that of own values among the others is near 0 or near 1, since columns of a
    table are usually missing for like reasons: a Beta distribution of parameters 1/2.
    """
    # The squared sine of a uniform angle has that distribution.
    share, none = (x.ravel() for x in np.meshgrid(np.sin(0.5 * np.pi * GRID) ** 2, GRID))
    priors = np.log([none, (1.0 - none) * share, (1.0 - none) * (1.0 - share)])
    logs = priors[:, :, None] + np.stack([np.zeros_like(own), own, others])[:, None]
    total = np.logaddexp.reduce(logs, axis=0)
    weights = np.exp(total.sum(1) - total.sum(1).max())
    return np.asarray(weights @ np.exp(logs[1] - total) / weights.sum())


def fit_together(
    mechanism: Mechanism,
    values: Tensor,
    observed: Tensor,
    seed: int = 0,
    weights: Tensor | None = None,
) -> Mechanism:
    """The same mechanism with slopes that are fitted together with a Normal model of the columns.

    Arguments are as of `find_mechanism`. A mechanism without slopes is unchanged.
    """
    if mechanism.slopes is None:
        return mechanism
    x, seen = _some_rows(values, observed, seed, weights)
    absent = (~seen).sum(0)
    few = (absent < FEWEST) | (len(x) - absent < FEWEST)
    found = fit_selection(torch.where(seen, x, 0.0), seen, mechanism.slopes, few)
    if found is None:
        return mechanism
    return replace(mechanism, slopes=LOGISTIC * found.slopes, selection=found.pack())


def _some_rows(
    values: Tensor, observed: Tensor, seed: int, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """At most `ROWS` rows, repeated by their weights."""
    rows = draw_rows(observed.any(1), ROWS, seed)
    rows = rows if weights is None else rows.repeat_interleave(_copies(weights[rows], ROWS, seed))
    return values[rows].double(), observed[rows]


def _copies(weights: Tensor, most: int, seed: int) -> Tensor:
    """How often every row is repeated, in proportion to its weight, `most` times in all at most."""
    start = torch.rand((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ends = weights.cumsum(0) * min(1.0, most / float(weights.sum()))
    # Sums of whole weights are whole but for rounding.
    return (ends + start + 1e-9).floor().diff(prepend=start.new_zeros(1)).long()


@dataclass(frozen=True)
class Tilt:
    """How missing entries of some rows move, because they are missing."""

    shift: Tensor  # of means, (rows, columns)
    centre: Tensor  # the means before
    pulls: Tensor | None = None  # tilts of the marginals; None moves draws like means
    draws: Tensor | None = None  # that the marginals are known from, sorted, (draws, rows, columns)
    widths: Tensor | float = 1.0  # factors of deviations beside `WIDENING`
    is_exact: bool = False  # whether moved means are those of the linear model, and no others

    def __call__(self, draws: Tensor) -> Tensor:
        """Draws or quantiles `(number, rows, columns)` of the tilted and widened distribution."""
        moved = draws + self.shift if self.pulls is None else self._moved(draws)
        centre = self.centre + self.shift
        wider = centre + WIDENING * self.widths * (moved - centre)
        return torch.where(self.shift == 0.0, draws, wider)

    def _moved(self, draws: Tensor) -> Tensor:
        """Draws of the tilted marginals with the same ranks."""
        assert self.pulls is not None
        assert self.draws is not None
        known = self.draws.shape[0]
        weights = (self.pulls * (self.draws - self.draws.mean(0))).softmax(0)
        levels = weights.cumsum(0) - 0.5 * weights
        by_entry = [x.reshape(known, -1).T.contiguous() for x in (self.draws, levels)]
        own = draws.reshape(len(draws), -1).T.contiguous()
        ranks = torch.searchsorted(by_entry[0], own).double()
        ranks = 0.5 * (ranks + torch.searchsorted(by_entry[0], own, right=True))
        wanted = (ranks / known).clamp(0.5 / known, 1.0 - 0.5 / known)
        above = torch.searchsorted(by_entry[1], wanted).clamp(1, known - 1)
        ends = [[x.gather(1, above - k) for k in (1, 0)] for x in by_entry]
        (low, high), (start, end) = ends
        share = ((wanted - start) / (end - start).clamp(min=1e-12)).clamp(0.0, 1.0)
        return (low + share * (high - low)).T.reshape(draws.shape)


def tilt_by_rows(
    exact: ExactMeans,
    values: Tensor,
    observed: Tensor,
    slopes: Tensor,
    draws: Tensor | None,
    selection: Tensor | None = None,
    ends: Tensor | None = None,
) -> Tilt:
    """The tilt of the missing entries of rows, from draws of an ensemble or of the linear model.

    Correlations are those of the linear model, deviations those of the draws. Every marginal is
    tilted by itself, so that it keeps to the values that it may have. With a `selection` model they
    move as the linear model moves to that, which then keeps to the `ends` that an ensemble has.
    """
    if selection is not None:
        return _tilt_to(Selection.unpack(selection), exact, values, observed, draws, ends)
    wide = slopes.expand(observed.shape)
    if draws is None:
        shift = exact.times_covariance(observed, wide)
        return Tilt(shift * _shrink(shift * wide, observed), exact(values, observed))
    deviations = draws.std(0)
    scale = deviations / exact.deviations(values, observed).clamp(min=1e-9)
    scale = torch.where(observed, 0.0, scale)
    shift = scale * exact.times_covariance(observed, scale * wide)
    shift = shift * _shrink(shift * wide, observed)
    pulls = torch.where(slopes == 0.0, 0.0, shift / deviations.square().clamp(min=1e-12))
    known, centre = draws.sort(0).values, draws.mean(0)
    weights = (pulls * (known - centre)).softmax(0)
    return Tilt(
        torch.where(pulls == 0.0, 0.0, (weights * known).sum(0) - centre), centre, pulls, known
    )


def _tilt_to(
    selection: Selection,
    exact: ExactMeans,
    values: Tensor,
    observed: Tensor,
    draws: Tensor | None,
    ends: Tensor | None,
) -> Tilt:
    """What a selection model says beside the linear model, in variances of the draws."""
    means, deviations = selection.given(values, observed)
    usual, plain = exact(values, observed), exact.deviations(values, observed).clamp(min=1e-9)
    # Rows whose missing cells have no slope stay as they are.
    moves = ((selection.slopes != 0.0) & ~observed).any(1, keepdim=True) & ~observed
    usual = usual if ends is None else torch.where(observed, usual, usual.clamp(*ends))
    shift = torch.where(moves, means - usual, 0.0)
    widths = torch.where(moves, deviations / plain, 1.0).clamp(*NARROWING)
    if draws is None:
        return Tilt(shift, usual, widths=widths, is_exact=True)
    # A tilt moves means by a multiple of variances.
    scale = (draws.std(0) / plain).clamp(max=1.0).square()
    return Tilt(scale * shift, draws.mean(0), widths=widths)


def find_reach(
    linear: GaussianVFG,
    values: Tensor,
    observed: Tensor,
    mechanism: Mechanism,
    seed: int = 0,
) -> Tensor | None:
    """The least and the greatest of what cells are expected to be, `(2, columns)`.

    It is nan where that is no reason to leave the observed range: a range is left if most missing
    cells are expected beyond it, since then its end is where cells begin to be missing.
    """
    slopes = mechanism.slopes
    if slopes is None:
        return None
    rows = draw_rows(observed.any(1), ROWS, seed)
    values, observed = values[rows].double(), observed[rows]
    exact, infinity = ExactMeans(linear), torch.tensor(torch.inf, dtype=torch.float64)
    low = torch.where(observed, values, infinity).amin(0)
    high = torch.where(observed, values, -infinity).amax(0)
    tilt = tilt_by_rows(exact, values, observed, slopes, None, mechanism.selection)
    moved = tilt.shift + (tilt.centre if tilt.is_exact else tilt.centre.clamp(low, high))
    reach = torch.full((2, len(slopes)), torch.nan, dtype=torch.float64)
    for side, end in enumerate((low, high)):
        beyond = (moved < end if side == 0 else moved > end) & ~observed
        is_left = beyond.sum(0) > OPEN_SHARE * (~observed).sum(0)
        for column in (is_left & (slopes != 0.0)).nonzero()[:, 0].tolist():
            is_left[column] = not _piles_up(values[observed[:, column], column].numpy(), side)
        is_left &= slopes != 0.0
        furthest = torch.where(beyond, moved, end).clamp(end - FURTHEST_FILL, end + FURTHEST_FILL)
        furthest = furthest.amin(0) if side == 0 else furthest.amax(0)
        reach[side] = torch.where(is_left, furthest, torch.nan)
    return None if bool(reach.isnan().all()) else reach


def _piles_up(cells: Array, side: int) -> bool:
    """Whether the least (side 0) or greatest (1) cell occurs more often than its neighbours."""
    counts = np.unique(cells, return_counts=True)[1]
    counts = counts if side == 0 else counts[::-1]
    return bool(counts[0] > PILE * np.append(counts[1:6], 1).mean())


def _shrink(products: Tensor, observed: Tensor) -> Tensor:
    """Factors of rows that keep shifts below `FURTHEST`."""
    length = torch.zeros(len(products), 1, dtype=torch.float64)
    for column in torch.where(observed, 0.0, products).split(1, dim=1):
        length = length + column  # one by one, since the bits of sums depend on the shape
    return (FURTHEST / length.clamp(min=1e-12).sqrt()).clamp(max=1.0)


def _fit_slopes(
    predictions: _Predictions,
    chosen: Array,
    offsets: Array | None,
    spread: float,
    common_spread: float = COMMON_SPREAD,
) -> _Fit:
    """Slopes with a given deviation from the common one, by Newton steps.

    The common slope has a given deviation from 0.
    """
    certainty = common_spread**-2 if common_spread else np.inf
    missing = ~predictions.observed[:, chosen]
    share = missing.mean(0)
    start = np.log(share / (1.0 - share)) + np.zeros(missing.shape) if offsets is None else offsets
    slopes = np.zeros(predictions.means.shape[1])
    intercepts, variances = start.copy(), predictions.variances[:, chosen]
    information = np.ones(len(chosen))
    common = 0.0
    for _ in range(ROUNDS):
        means = (predictions.tilted(slopes) if offsets is None else predictions.means)[:, chosen]
        for _ in range(STEPS):
            own = slopes[chosen]
            chance = scipy.special.expit(intercepts + own * means + 0.5 * own**2 * variances)
            left, weight = missing - chance, chance * (1.0 - chance)
            inputs = means + own * variances
            total = weight.sum(0) + 1e-9
            centre = (weight * inputs).sum(0) / total
            information = (weight * (inputs - centre) ** 2).sum(0) + 1e-9
            score = (left * (inputs - centre)).sum(0)
            free = own + score / information
            shared = information / (1.0 + spread**2 * information)
            common = float((shared * free).sum() / (shared.sum() + certainty))
            wanted = (information * free + common / spread**2) / (information + spread**-2)
            change = np.clip(wanted - own, -0.5, 0.5)
            slopes[chosen] = own + change
            intercepts = intercepts + left.sum(0) / total - centre * change
    own = slopes[chosen]
    logits = intercepts + own * means + 0.5 * own**2 * variances
    gains = log_probs(logits, missing).sum(0) - log_probs(start, missing).sum(0)
    gain = log_probs(logits, missing).sum() - log_probs(start, missing).sum()
    # Cells of a row that are missing together count as the fewer observations that they are.
    by_row = ((missing - scipy.special.expit(logits)) * (inputs - centre)).sum(1)
    clustering = max(1.0, float((by_row**2).sum() / information.sum()))
    penalties = (own - common) ** 2 / spread**2 + np.log1p(spread**2 * information)
    penalty = ((own - common) ** 2).sum() / spread**2 + np.log1p(spread**2 * information).sum()
    if common_spread:
        penalty += (common / common_spread) ** 2 + np.log1p(common_spread**2 * shared.sum())
    towards = common if spread == SPREADS[0] else own
    factors = 0.5 * information * (free**2 - (free - towards) ** 2) / clustering
    evidence = float(gain / clustering - 0.5 * penalty)
    return _Fit(slopes, common, evidence, factors, gains - 0.5 * penalties, logits)
