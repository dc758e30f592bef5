r"""Stacking: how the parts of a table's model are combined, and the calibration of draws.

The parts are the nonlinear members, the mixtures, the linear model, and the row mixtures
("neighbours"), plain and corrected. Let $\bar y_i$ be the average mean of the parts of kind i, each
clipped to the observed range of its column, with 0 at the mean of a column. Cell $c$ is filled with
$f_c \sum_i w_i \bar y_i$. Weights and factors are fitted by least squares at held-out cells. So a
table of independent columns is filled with means. Draws are calibrated at the same cells: they are
scaled to be as wide as the errors.

No part may depart from the linear model by much more than at held-out cells. A small component of a
mixture may explain a row that is unlike all rows of the table, and predict anything there. Such
rows are filled nearer to the linear model: see `extrapolation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import scipy
import torch
from torch import Tensor

from vfg.imputation.categories import CategoryColumn, fit_pooling
from vfg.imputation.extrapolation import ensemble_trust, held_levels, usual_distance
from vfg.imputation.held_out import (
    held_out_categories,
    held_out_draws,
    hide_further,
    hold_out_cells,
    observed_range,
)
from vfg.imputation.parts import (
    KINDS,
    DrawWidths,
    FarRows,
    HeldOutCells,
    MeanWeights,
    Parts,
    Stacking,
    clip,
    drawing_shares,
)
from vfg.imputation.relations import EXACT, Relations, follow_relations
from vfg.imputation.resources import Turn
from vfg.imputation.row_mixture import Labels
from vfg.imputation.trees import chances_of_gain
from vfg.tables.cells import Array
from vfg.training.losses import draw_rows

AVERAGING_PRIOR = 20.0
"""Weight of the prior that averaging changes nothing, in products of unit variance."""
START = (0.5, 1.0, 0.0, 0.5, 1.0)
"""Prior weights, in proportion, of the kinds that are present."""
START_LINEAR = (0.0, 0.0, 1.0, 0.0, 0.0)
"""The other prior: the linear model alone."""
ODDS_OF_LINEAR = 5.0
"""How many times as probable the other prior is before the held-out cells are seen. Against the
better one of both, squared errors of 17 simulated and real tables of 60 and 150 rows changed by
-0.4 % on average (-2.3 to 0.8 %); with 20 those of tables that are not linear grew."""
START_PRIOR = 100.0
"""Weight of the prior weights, in cells of unit variance."""
PRIOR = 20.0
"""Weight of the prior factor 1, in cells of unit variance."""
COLUMN_PRIOR = 60.0
"""Weight of the common factor in the factor of one column, in cells of unit variance."""
SPREAD_PRIOR = 20.0
"""Weight of the common spread in that of one column, in cells of unit variance."""
SPREADS = (0.5, 2.0)
"""Bounds of the spread factors; a lower bound of 0.05 made draws of the glass table worse."""
TAIL = 0.9
"""The level at which the quantiles of draws and of errors are matched."""
TAIL_FACTORS = (0.8, 1.1)
"""Bounds of the correction for tails."""
FEWEST_CELLS_OF_TAIL = 100
"""The fewest held-out cells from which a tail is estimated."""
DEPARTURE = 1.5
"""How many times further a part may depart from the linear model than at held-out cells. On four
tables a factor of 1 cost up to 1.1 % of squared error, 1.5 up to 0.2 % and 2 nothing. The
California task, whose test rows lie elsewhere, has 1.47, 1.50 and 1.56 with these on one seed, and
2.2 without limit."""
DEPARTURE_ROWS = 512
"""Rows of a member that are predicted again with further cells hidden, which bounds the time."""
FEWEST_DEPARTURES = 100
"""Held-out cells below which a column takes the largest departure of all columns: the largest of
about 20 cells of the glass table was too small, and cost 2 % of squared error."""
FEWEST_CELLS_OF_COVERAGE = 20
"""The fewest held-out cells of a column that show whether its draws hold them: a share of a tenth
then has a standard error of 0.07."""
TRUST_PRIOR = 20.0
"""Weight of all columns in what one column says about the linear model, in cells of the usual
error: about as many as small tables have held-out cells of a column."""
NORMAL_MEDIAN = 0.4549
"""The median of the square of a standard Normal variable."""
LEAST_USE = 0.1
"""By which share a noisy relation must reduce squared errors, so that none is used by chance."""
LEAST_DEVIATION = 1e-6
"""Deviations below this count as 0."""
TARGET_WEIGHT, TARGET_PRIOR, TARGET_COLUMN_PRIOR = 0.2, 30.0, 25.0
"""Prior weight of means by metrics of columns, and its weight in the common one and that of the
common one in a column's, in cells whose predictions differ by a deviation. With 100 and 50 the
squared errors of airfoil were 2.5 % larger on six masks, those of five other tables for tuning
equal within 0.1 %."""
LEAST_TARGET_GAIN, TARGET_ERRORS = 0.005, 1.5
"""Share of the squared errors at held-out cells that metrics must remove, and how many standard
errors of this gain, or they are not used: tables of independent columns gain by chance."""


def averaging_matrix(single: Tensor, mean: Tensor) -> Tensor:
    """The effect of averaging on products of single predictions: $L$ with $L S L^T = M$.

    $S$ are sums of products of the predictions of single parts, `(kinds, kinds)`, $M$ those of the
    means of all parts. $L$ makes nothing larger and is nearer to the identity the fewer products
    there are.

    Example:
        >>> single = torch.tensor([[8e6, 2e6], [2e6, 2e6]], dtype=torch.float64)
        >>> mean = torch.tensor([[4e6, 2e6], [2e6, 2e6]], dtype=torch.float64)
        >>> averaging = averaging_matrix(single, mean)
        >>> (averaging @ single @ averaging.T / 1e6).round(decimals=3).tolist()
        [[4.0, 2.0], [2.0, 2.0]]
    """
    prior = AVERAGING_PRIOR * torch.eye(len(single), dtype=single.dtype)
    root = torch.linalg.cholesky(single + prior)
    inner = torch.linalg.solve_triangular(root, mean + prior, upper=False)
    inner = torch.linalg.solve_triangular(root, inner.mT, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (inner + inner.mT))
    half = vectors * values.clamp(0.0, 1.0).sqrt() @ vectors.mT
    averaging: Tensor = torch.linalg.solve_triangular(root, root @ half, upper=False, left=False)
    return averaging


def averaging_of_kinds(single: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The same for `KINDS`, of which the linear model is one part, so that nothing changes it.

    Averaging acts on what other kinds predict beyond a multiple of the linear model's prediction.
    Returned with the matrix is by how much that multiple is larger for the average than for the
    single part, `(kinds,)`: parts of a kind are not all alike.
    """
    place = KINDS.index("linear")
    others = [k for k in range(len(single)) if k != place]
    slopes, rests = [], []
    for products in (single, mean):
        across = products[others, place]
        slopes.append(across / (products[place, place] + AVERAGING_PRIOR))
        rests.append(products[others][:, others] - torch.outer(slopes[-1], across))
    inner = averaging_matrix(*rests)
    whole = torch.eye(len(single), dtype=single.dtype)
    whole[torch.tensor(others)[:, None], torch.tensor(others)] = inner
    whole[others, place] = slopes[1] - inner @ slopes[0]
    change = torch.zeros_like(single[0])
    change[others] = slopes[1] - slopes[0]
    return whole, change


def shares_of_exact_parts(weights: Tensor, present: Tensor) -> Tensor | None:
    """How often parts draw, where exact ones draw instead of members; None without exact parts.

    Exact parts draw much faster than members. Draws of all parts are moved to the stacked means and
    calibrated, so that parts give no more than the shape of a distribution.

    Example:
        >>> weights = torch.tensor([0.5, 0.3, 0.0, 0.1, 0.1])
        >>> shares_of_exact_parts(weights, torch.ones(5).bool()).tolist()
        [0.0, 0.800000011920929, 0.0, 0.20000000298023224]
    """
    if not bool(present[1]) and not bool(present[3]):
        return None
    exact = weights.clone()
    exact[0] = 0.0
    # Mixtures, like members, do not know the rows themselves.
    exact[1 if present[1] else 4] += weights[0]
    return drawing_shares(exact)


@dataclass
class Sums:
    """Sums over held-out cells by column: of the truth x and the predictions p."""

    xx: Tensor
    xp: Tensor  # (kinds, columns); of single parts that did not see the cells
    pp: Tensor  # (kinds, kinds, columns); of two different parts, or of one with itself

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@torch.no_grad()
def fit_stacking(
    parts: Parts,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
    *,
    categories: Sequence[CategoryColumn] = (),
    labels: Labels | None = None,
    seed: int = 0,
    turn: Turn | None = None,
    weights: Tensor | None = None,
) -> Stacking:
    """Fit the combination to the held-out cells `held` of every member; of few in a limited `turn`.

    Errors in rows count by their `weights`.

    The prediction of a part that did not see a cell stands for all parts of its kind. How much less
    their mean varies is measured at the missing cells of the table, which no part saw: the held-out
    cells were seen by all but one.
    """
    reach = observed_range(values, observed)
    own_turn = turn or Turn()
    held_out = hold_out_cells(parts, values, observed, reach, held, seed, own_turn, weights)
    parts.held_out = held_out
    total = _averaged_sums(held_out)
    cells = torch.stack([one.counted.sum(0) for one in held_out]).sum(0)
    combined = _weights(total, parts.present, float(cells.sum()))
    factors, errors = _factors(total, combined, cells)
    draws = _draw_widths(parts, held_out, combined, factors, errors, len(values), seed)
    pooling = None
    if categories and labels is not None and parts.neighbours:
        pooling = _pool_categories(parts, held_out, combined, factors, categories, labels)
    departures = _departures(parts, held_out, reach, len(values), seed)
    useful = _useful_relations(parts.relations, held_out, combined, factors)
    number_held = float(cells.sum())
    error = math.sqrt(max(float(errors.sum()), 0.0) / max(number_held, 1.0))
    far = _far_rows(parts, held_out, total, errors, number_held, categories)
    means = MeanWeights(combined, factors, departures)
    stacking = Stacking(means, draws, reach, far, pooling, useful, error)
    targeted = _target_weights(stacking, parts, held_out)
    return replace(stacking, means=replace(means, targeted=targeted))


def _averaged_sums(held_out: Sequence[HeldOutCells]) -> Sums:
    """Sums over all held-out cells, as if averages of all parts of a kind had predicted them."""
    total = _sums(held_out[0])
    for one in held_out[1:]:
        total = total + _sums(one)
    products = torch.stack([one.at_missing for one in held_out]).sum(0)
    averaging, change = averaging_of_kinds(*products)
    total.xp = total.xp + change[:, None] * total.xp[KINDS.index("linear")]
    total.pp = torch.einsum("ij,jkc,lk->ilc", averaging, total.pp, averaging)
    return total


def _draw_widths(
    parts: Parts,
    held_out: Sequence[HeldOutCells],
    weights: Tensor,
    factors: Tensor,
    errors: Tensor,
    table_rows: int,
    seed: int,
) -> DrawWidths:
    """Which parts draw, and the factors of their draws; before `calibration`."""
    drawing = shares_of_exact_parts(weights, parts.present)
    shares = drawing_shares(weights) if drawing is None else drawing
    spread = _spread(parts, held_out, weights, shares, factors, errors, table_rows, seed)
    return DrawWidths(spread, drawing, torch.ones_like(spread))


def _far_rows(
    parts: Parts,
    held_out: Sequence[HeldOutCells],
    total: Sums,
    errors: Tensor,
    cells: float,
    categories: Sequence[CategoryColumn],
) -> FarRows:
    """Trust in the ensemble far from the fitted rows, which holds for columns of numbers alone."""
    trust = linear_errors = None
    if parts.linears is not None:
        trust, linear_errors = _trust(total, errors, cells), _linear_errors(held_out)
        trust[[place for column in categories for place in column.places]] = torch.inf
    distances = [one.distances for one in held_out if one.distances is not None]
    usual = usual_distance(torch.cat(distances)) if distances else None
    held = None if trust is None else held_levels(trust)
    return FarRows(trust, usual, held, linear_errors)


def _target_weights(
    stacking: Stacking, parts: Parts, held_out: Sequence[HeldOutCells]
) -> Tensor | None:
    """Weights of means by the metrics of columns; None without them, or if they gain little."""
    metrics = [one.metric for one in parts.neighbours if one.metric is not None]
    if not metrics or all(one.targeted is None for one in held_out):
        return None
    has_metric = torch.stack([metric.any(1) for metric in metrics]).all(0)
    cells = []  # errors without metrics, and the steps to the means by these
    for one in held_out:
        if one.targeted is not None:
            means, root = stacking.predict(one), one.counted.sqrt()
            pair = clip(one.values) - means, has_metric * (one.targeted - means)
            cells.append(torch.stack(pair) * root)
    left, step = torch.cat(cells, dim=1)
    products, squares = (left * step).sum(0), step.square().sum(0)
    common = (products.sum() + TARGET_PRIOR * TARGET_WEIGHT) / (squares.sum() + TARGET_PRIOR)
    common = common.clamp(0.0, 1.0)
    weights = (products + TARGET_COLUMN_PRIOR * common) / (squares + TARGET_COLUMN_PRIOR)
    weights = weights.clamp(0.0, 1.0) * has_metric
    gains = left.square() - (left - weights * step).square()
    least = LEAST_TARGET_GAIN * left.square().sum(), TARGET_ERRORS * gains.square().sum().sqrt()
    return weights if gains.sum() >= max(least) else None


def _pool_categories(
    parts: Parts,
    held_out: Sequence[HeldOutCells],
    combined: Tensor,
    factors: Tensor,
    categories: Sequence[CategoryColumn],
    labels: Labels,
) -> Tensor:
    """The weights by which probabilities of many or ordered categories are pooled."""
    cells = [
        None
        if column.part.is_simplex
        else held_out_categories(parts, held_out, combined, factors, column, place, labels)
        for place, column in enumerate(categories)
    ]
    return torch.from_numpy(fit_pooling(cells))


def _trust(total: Sums, errors: Tensor, cells: float) -> Tensor:
    """Trust in the ensemble far from the fitted rows, by column, from errors of the ensemble."""
    place = KINDS.index("linear")
    linear = total.xx - 2.0 * total.xp[place] + total.pp[place, place]
    return ensemble_trust(linear, errors, TRUST_PRIOR * float(errors.sum()) / max(cells, 1.0))


def _linear_errors(held_out: Sequence[HeldOutCells]) -> Tensor:
    """Squared errors of the linear model by column, as those of a Normal variable of their median.

    A mean would be that of the rows that tell least about the column. Columns with few cells have
    the median of all.
    """
    place, lists = KINDS.index("linear"), []
    for one in held_out:
        squares = (clip(one.values) - clip(one.single[place])).square()
        lists.append(torch.where(one.counted > 0, squares, torch.nan))
    squares = torch.cat(lists)
    medians, common = squares.nanmedian(0).values, squares.nanmedian()
    few = (~squares.isnan()).sum(0) < FEWEST_CELLS_OF_COVERAGE
    return torch.where(few, common, medians).nan_to_num(0.0) / NORMAL_MEDIAN


def _factors(total: Sums, weights: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of weighted means by column, and their squared errors."""
    products = (weights[:, None] * total.xp).sum(0)
    squares = (weights[:, None, None] * weights[:, None] * total.pp).sum((0, 1))
    # Columns with few held-out cells get the factor of all columns together.
    overall = _ratio(products.sum() + PRIOR, squares.sum() + PRIOR)
    size = COLUMN_PRIOR * squares.sum() / total.xx.sum().clamp(min=1e-9)
    factors = _ratio(products + size * overall, squares + size).clamp(0.0, 1.2)
    gains = factors * (2.0 * products - factors * squares)
    factors = factors * chances_of_gain(gains, total.xx, cells)
    return factors, total.xx - 2.0 * factors * products + factors.square() * squares


def gain_towards_linear(parts: Parts) -> float:
    """The share of squared errors at held-out cells that a step to the linear model removes.

    Each cell is predicted by one part of a kind. Members start at the linear model, so there is
    little for them to add where its predictions do not even reduce the variance of single parts.
    1 without a combination or a linear model.
    """
    stacking = parts.combination
    if stacking is None or parts.linears is None:
        return 1.0
    sums = torch.zeros(3, dtype=torch.float64)  # of products, and squares of both
    for one in parts.held_out:
        stacked = stacking.predict(one)
        left, step = clip(one.values) - stacked, one.single[KINDS.index("linear")] - stacked
        for place, product in enumerate((left * step, step * step, left * left)):
            sums[place] += (product * one.counted).sum()
    products, squares, errors = sums.clamp(min=0.0).tolist()
    return float(products**2 / max(squares * errors, 1e-12))


def _departures(
    parts: Parts, held_out: Sequence[HeldOutCells], reach: Tensor, table_rows: int, seed: int
) -> Tensor | None:
    """How far parts may lie from the linear model, `(kinds, columns)`.

    Cells are predicted as they are held out, and again with a random share of the other cells of
    their rows hidden: parts depart further where a copy of the missing column is missing, too.
    """
    if parts.linears is None:
        return None
    largest = torch.zeros(len(KINDS), reach.shape[1], dtype=torch.float64)
    counts = torch.zeros_like(largest[0])
    for one in held_out:
        rows = draw_rows(torch.ones(len(one.ids), dtype=torch.bool), DEPARTURE_ROWS, seed)
        again = hide_further(parts, one.select(rows), table_rows, seed)
        single = clip(again.single.clamp(*reach))
        for means, counted in ((one.single, one.counted > 0), (single, again.counted > 0)):
            distances = (means - means[2]).abs() * counted
            largest = torch.maximum(largest, distances.amax(1))
        counts += one.counted.sum(0)
    overall = largest.amax(1, keepdim=True)
    return DEPARTURE * torch.where(counts >= FEWEST_DEPARTURES, largest, overall)


def _useful_relations(
    relations: Relations | None, held_out: Sequence[HeldOutCells], weights: Tensor, factors: Tensor
) -> Tensor | None:
    """Which relations reduce the errors at held-out cells with all their other columns shown."""
    if relations is None:
        return None
    useful = relations.noise == 0.0
    for place in (~useful).nonzero()[:, 0].tolist():
        one, change, before = relations.select(torch.tensor([place])), 0.0, 0.0
        involved = one.coefficients[0, :-1].abs() > EXACT
        for held in held_out:
            alone = (~held.shown & involved).sum(1, keepdim=True) == 1
            cells = alone & involved & (held.counted > 0)
            stacked = factors * torch.einsum("k,krc->rc", weights, held.single)
            table = torch.where(held.shown, held.values, stacked)
            moved = follow_relations(one, table, held.shown)
            errors, others = ((x - held.values)[cells].square().sum() for x in (table, moved))
            before, change = before + float(errors), change + float(others - errors)
        useful[place] = change < -LEAST_USE * before
    return useful


def _sums(held_out: HeldOutCells) -> Sums:
    x, single = clip(held_out.values), clip(held_out.single)
    products = (x * x, x * single, single[:, None] * single)
    return Sums(*((product * held_out.counted).sum(-2) for product in products))


def _weights(total: Sums, present: Tensor, cells: float) -> Tensor:
    """Non-negative least squares with a prior at fixed weights, and at the linear model alone.

    Both are averaged by their probabilities given the errors at held-out cells: few cells neither
    move the weights to a linear model that is nearly true, nor tell which prior is the better one.
    """
    usual, linear = (torch.tensor(x, dtype=torch.float64) * present for x in (START, START_LINEAR))
    squares, products = total.pp.sum(-1), total.xp.sum(-1)
    left = squares + START_PRIOR * torch.eye(len(KINDS), dtype=torch.float64)
    factor = np.linalg.cholesky(left.numpy()).T
    candidates = []
    for start in (usual, linear):
        if float(start.sum()) > 0:
            right = products + START_PRIOR * start / start.sum()
            found, _ = scipy.optimize.nnls(factor, np.linalg.solve(factor.T, right.numpy()))
            candidates.append(torch.from_numpy(found) * present)
    if len(candidates) == 1:
        return candidates[0]
    known = float(total.xx.sum())
    errors = [known + float(w @ squares @ w - 2.0 * w @ products) for w in candidates]
    share = share_of_linear(errors[0], errors[1], cells)
    return (1.0 - share) * candidates[0] + share * candidates[1]


def share_of_linear(usual: float, linear: float, cells: float) -> float:
    """The probability of the prior at the linear model, from sums of squared errors at cells.

    Example:
        >>> [round(share_of_linear(50.0, x, 100.0), 3) for x in (47.0, 50.0, 55.0)]
        [0.992, 0.833, 0.033]
    """
    variance = max(min(usual, linear) / max(cells, 1.0), 1e-9)
    evidence = (usual - linear) / (2.0 * variance) + math.log(ODDS_OF_LINEAR)
    return float(scipy.special.expit(evidence))


def _spread(
    parts: Parts,
    held_out: Sequence[HeldOutCells],
    weights: Tensor,
    shares: Tensor,
    factors: Tensor,
    errors: Tensor,
    table_rows: int,
    seed: int,
) -> Tensor:
    """The factors that scale draws about their mean, by column."""
    drawing, drawn = shares.nonzero()[:, 0].tolist(), []
    for one in held_out:
        draws, centres = held_out_draws(parts, one, drawing, weights, table_rows, seed)
        drawn.append(draws - clip(shares @ centres))
    distances = torch.cat(drawn, dim=-1)
    columns = torch.cat([one.counted.nonzero()[:, 1] for one in held_out])
    errors_there = torch.cat([_errors(one, weights, factors) for one in held_out])
    squares = mean_of_draws(distances.square(), shares)
    often = torch.cat([one.counted[one.counted > 0] for one in held_out])
    squares = squares * often
    spread = spread_factors(errors, torch.zeros_like(errors).index_add(0, columns, squares))
    # Intervals need the tail of errors, scores of draws their variance: the geometric mean. Never
    # narrower: errors of new rows are larger than those at held-out cells of the fitted rows.
    half_way = max(1.0, math.sqrt(tail_factor(errors_there, distances, shares)))
    spread = (half_way * spread).clamp(*SPREADS)
    used = distances[shares > 0], shares[shares > 0]
    return keep_coverage(spread, errors_there, *used, columns)


def keep_coverage(
    spread: Tensor, errors: Tensor, drawn: Tensor, shares: Tensor, columns: Tensor
) -> Tensor:
    """Spread factors below 1, raised where scaled draws leave out too many held-out cells.

    A few large values decide the variance of a skewed column. Draws that are scaled down about
    their mean then miss the many small ones. A tenth of the cells should lie beyond the outer
    twentieths of the draws, or 2 / (n + 1) of them if there are few draws, n.

    Args:
        spread: factors by column.
        errors: held-out cells minus what is predicted there, `(cells,)`.
        drawn: draws minus their mean there, `(kinds, draws, cells)`.
        shares: how often kinds draw; all positive.
        columns: the columns of the cells.

    Example:
        >>> drawn = torch.linspace(-1.0, 1.0, 8).expand(100, 8).T[None]
        >>> errors, columns = torch.full((100,), -0.8), torch.zeros(100, dtype=torch.long)
        >>> keep_coverage(torch.tensor([0.5]), errors, drawn, torch.ones(1), columns)
        tensor([0.8500])
        >>> keep_coverage(torch.tensor([0.5]), errors / 2, drawn, torch.ones(1), columns)
        tensor([0.5000])
    """
    kept, weights = spread.clone(), shares / shares.sum() / drawn.shape[1]
    number = 1.0 / float(drawn.shape[1] * weights.square().sum())
    chance = max(1.0 - TAIL, 2.0 / (number + 1.0))
    for column in (spread < 1.0).nonzero()[:, 0].tolist():
        own = columns == column
        count = int(own.sum())
        if count < FEWEST_CELLS_OF_COVERAGE:
            continue
        doubt = math.sqrt(chance * (1.0 - chance) / count)
        factor, most = float(spread[column]), chance + 2.0 * doubt
        while (
            factor < 1.0 and _share_outside(factor * drawn[..., own], errors[own], weights) > most
        ):
            # Once the draws are shown to be too narrow, they are widened until all is well.
            factor, most = min(1.0, factor + 0.05), chance
        kept[column] = factor
    return kept


def _share_outside(drawn: Tensor, errors: Tensor, weights: Tensor) -> float:
    """The share of errors beyond the outer twentieths of the draws, which count by kind."""
    below = torch.einsum("k,kdc->c", weights, (drawn < errors).to(weights))
    outer = 0.5 * (1.0 - TAIL)
    return float(((below < outer) | (below > 1.0 - outer)).double().mean())


def _errors(held_out: HeldOutCells, weights: Tensor, factors: Tensor) -> Tensor:
    """Errors of the stacked parts that did not see the held-out cells, there."""
    predicted = factors * clip(torch.einsum("k,krc->rc", weights, held_out.single))
    return (clip(held_out.values) - predicted)[held_out.counted > 0]


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return above / below.clamp(min=1e-9)


def mean_of_draws(draws: Tensor, shares: Tensor) -> Tensor:
    """The mean over kinds, by their shares, and draws of `(kinds, draws, ...)`.

    Example:
        >>> draws = torch.tensor([[[1.0], [3.0]], [[10.0], [10.0]]])
        >>> mean_of_draws(draws, torch.tensor([0.75, 0.25])).tolist()
        [4.0]
    """
    return torch.einsum("k,kd...->...", shares / draws.shape[1], draws)


def spread_factors(errors: Tensor, drawn: Tensor) -> Tensor:
    """The factor that makes draws as wide as errors, by column, from sums of squares of both.

    Example:
        >>> errors, drawn = torch.tensor([4000.0, 1000.0]), torch.tensor([4000.0, 2000.0])
        >>> spread_factors(errors, drawn).round(decimals=2).tolist()
        [1.0, 0.71]
    """
    if not bool(drawn.sum() > 0):
        # There are no held-out cells, or no draws of them.
        return torch.ones_like(errors)
    pooled = errors.sum() / drawn.sum().clamp(min=1e-9)
    share = (errors + SPREAD_PRIOR * pooled) / (drawn + SPREAD_PRIOR)
    return share.clamp(min=0.0).sqrt().clamp(*SPREADS)


def tail_factor(errors: Tensor, drawn: Tensor, shares: Tensor) -> float:
    """The factor by which 90 % intervals should differ from those that variances imply.

    Errors `(cells,)` often have heavier tails than draws; draws of their variance then hold too
    many of them. Both are compared in units of the deviation of a cell's draws, which are given as
    distances from their mean, `(kinds, draws, cells)`.

    Example:
        >>> drawn = torch.linspace(-1.0, 1.0, 8).expand(200, 8).T[None]
        >>> few_are_large = torch.where(torch.arange(200) < 10, 9.0, 1.0)
        >>> tail_factor(few_are_large, drawn, torch.ones(1))
        0.8
    """
    deviations = mean_of_draws(drawn.square(), shares).sqrt()
    positive = deviations > LEAST_DEVIATION
    if int(positive.sum()) < FEWEST_CELLS_OF_TAIL:
        return 1.0
    errors_there = (errors[positive] / deviations[positive]).abs().numpy()
    distances = (drawn[..., positive] / deviations[positive]).abs().numpy()
    weighing = np.broadcast_to(shares[:, None, None].numpy(), distances.shape)
    ours = _tail_quantile(errors_there, np.ones_like(errors_there))
    theirs = _tail_quantile(distances.ravel(), weighing.ravel())
    return float(np.clip(ours / max(theirs, LEAST_DEVIATION), *TAIL_FACTORS))


def _tail_quantile(distances: Array, weighing: Array) -> float:
    """The `TAIL` quantile of distances, in units of their root mean square."""
    order = np.argsort(distances)
    below = np.cumsum(weighing[order])
    end = order[np.searchsorted(below, TAIL * below[-1])]
    scale = np.sqrt(np.average(np.square(distances), weights=weighing))
    return float(distances[end] / max(scale, LEAST_DEVIATION))
