r"""Medians of cells: likely values of their columns, given what the ensemble predicts.

Means are the best fills in squared error. Where the cells of a column are skewed, repeat or pile up
at an end, or where errors are skewed, the median of a cell is elsewhere. Let $m$ be the mean that
is predicted for a cell, $d$ the distance of the median of its draws from their mean, and $\tau$ the
size of errors. Let $v_k$ be the known cells of the column, and $r_k$ the shares of their rows in a
mixture with a component at every row (`row_mixture`). Candidates are both centres $c = m$ and
$c = m + d$, and for each of them the medians of the values $v_k$ in proportion to

$$r_k^a \exp\left(-\frac{(v_k - c)^2}{2 (t \tau)^2}\right)$$

with some $a$ and $t$. If c lies beyond all values, the step to the median of the outermost one is
used, which fades in the same way, so that lines go on. That is Bayes' rule for a prediction with
Normal errors, where the prior is the distribution of the column for $a = 0$, and nearer to that of
similar rows for larger $a$. The average of its candidates is the median of a cell. They are weighed
by their posterior probabilities, column by column, given their errors at held-out cells, which have
a Laplace distribution of the size of those of the mean. How often a candidate is the best one is
learned from all columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from vfg.imputation.calibration import width_factors
from vfg.imputation.held_out import held_out_draws
from vfg.imputation.parts import HeldOutCells, Parts, clip
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.trees import HeldOutRows
from vfg.tables.cells import Array
from vfg.tables.numeric import nearest_values

POWERS, WIDTHS = (0.0, 0.5), (0.35, 0.7)
"""The a and t of candidates. Absolute errors were 0.960 (standard error 0.018) of those of medians
of draws on six tables for tuning, 16 masks, and 0.983 (0.011) on seven made ones. With 0.2 and 0.5
as further t they were 0.961 and 0.985, with 0 as the only a 0.980 and 0.983."""
SHAPES = 1 + len(POWERS) * len(WIDTHS)
"""Candidates with one centre: itself, and the medians of likely values."""
CENTRES = 2
"""The mean, and the mean moved as draws are skewed. Without the second, absolute errors of seven
tables for tuning were larger by 0.1 %, and those of the made ones by 0.7 %. Next to medians of
draws they were 1.5 to 3.3 % larger where noise is skewed, and are 0 to 1 % larger with it."""
STEPS = 20
"""Steps of the shares of columns that candidates are best for, which then change little."""
PRIOR = 1.0
"""Weight of equal shares of the candidates in these, in columns. With 0.5 and 10 absolute errors of
tables for tuning and of made ones were the same within 0.2 %. With equal shares, and the errors of
40 cells like all others in those of a column, they were 0.1 and 0.2 % larger."""
SIZE_PRIOR = 5.0
"""Weight of the usual size of errors in that of a column, in cells."""
LEAST_SIZE = 1e-6
"""The least size of errors, in deviations of a column."""
LEAST_SHARE = 1e-30
"""Shares of components below this count as this, so that their logarithms are finite."""
MOST_VALUES = 1500
"""Known cells of a column that are compared at most, which bounds the time."""
CELLS, CELLS_OF_COLUMN = 2000, 100
"""Held-out cells that are used at most, about, in all and by column, whichever is more."""
DRAWS = 24
"""Draws of a held-out cell of every kind of part, all of which count. With 12, 16 and 48 absolute
errors of a few tables differed in both directions. Held-out medians take 2 to 3 % of a fit."""
SELDOM = 0.1
"""The share of the draws below which a kind of part is left out there, which saves time."""


def likely_medians(
    mixture: RowMixture,
    rows: tuple[Tensor, Tensor, Tensor],
    wanted: Tensor,
    centres: Tensor,
    sizes: Tensor,
    own: Tensor | None = None,
) -> Tensor:
    """Candidates for the medians of wanted entries, `(centres * shapes, rows, columns)`.

    Args:
        mixture: whose components are rows of the table.
        rows: values, which of them are observed, and ids.
        wanted: which entries are needed, `(rows, columns)`; others are their centres.
        centres: `(centres, rows, columns)`.
        sizes: of the errors of means by column.
        own: components that rows are, left out for them with their copies; -1 for none.
    """
    candidates = centres.repeat_interleave(SHAPES, 0)
    logs = mixture.shares_of_rows(*rows, own).clamp(min=LEAST_SHARE).log()
    left_out = None if own is None else mixture.left_out(own)
    for column in wanted.any(0).nonzero()[:, 0].tolist():
        components, values = mixture.known_values(column, MOST_VALUES)
        if not len(components):
            continue
        asked = wanted[:, column].nonzero()[:, 0]
        cells = asked[:, None], components
        near, often = logs[cells], torch.zeros_like(values)
        if mixture.log_often is not None:
            often = mixture.log_often[components]
        priors = [power * near + (1.0 - power) * often for power in POWERS]
        if left_out is not None:
            priors = [prior.masked_fill(left_out[cells], -torch.inf) for prior in priors]
        size = max(float(sizes[column]), LEAST_SIZE)
        for which, centre in enumerate(centres[:, asked, column]):
            # Beyond all values nothing is known of likely ones, and all of them lie on one side.
            start = centre.clamp(float(values[0]), float(values[-1]))
            beyond = ((centre - start) / size).square()
            squares = ((values - start[:, None]) / size).float().square()
            shapes = product(priors, WIDTHS)
            for place, (prior, width) in enumerate(shapes, start=which * SHAPES + 1):
                weights = torch.add(prior, squares, alpha=-0.5 / width**2)
                step = weighted_medians(values, weights) - start
                candidates[place, asked, column] += (-0.5 * beyond / width**2).exp() * step
    return candidates


def weighted_medians(values: Tensor, logs: Tensor) -> Tensor:
    """Medians of sorted values with weights, of which logarithms are given, `(cells, values)`.

    Example:
        >>> values, weights = torch.tensor([-1.0, 0.0, 5.0]), torch.tensor([[3.0, 1.0, 1.0]])
        >>> weighted_medians(values, weights.log()), weighted_medians(values, -weights.log())
        (tensor([-1.], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    below = (logs - logs.amax(1, keepdim=True)).exp_().cumsum(1)
    place = torch.searchsorted(below, 0.5 * below[:, -1:])[:, 0]
    return values[place.clamp(max=len(values) - 1)].double()


@torch.no_grad()
def fit_medians(
    parts: Parts,
    held_out: Sequence[HeldOutRows],
    unordered: Tensor,
    few_valued: Mapping[int, Array],
    table_rows: int,
    seed: int,
) -> Tensor | None:
    """Sizes of errors and weights of candidates by column, `(1 + candidates, columns)`.

    None without row mixtures or held-out cells.

    Args:
        parts: with their held-out cells and calibrated draws.
        held_out: rows of these cells, as the whole ensemble predicts them.
        unordered: columns that have no medians.
        few_valued: the values of few-valued columns, whose medians are such values.
        table_rows: the number of rows of the fitted table.
        seed: of draws.
    """
    if not parts.neighbours or parts.combination is None:
        return None
    sizes = _sizes_of_errors(held_out)
    losses = sizes.new_zeros(CENTRES * SHAPES, len(sizes))
    number, step = torch.zeros_like(sizes), _step_of_rows(parts.held_out)
    for whole, expected in zip(parts.held_out, held_out, strict=True):
        rows = torch.arange(0, len(whole.ids), step)
        one, means = whole.select(rows), expected.means[rows]
        steps = _skewness_of_draws(parts, one, table_rows, seed)
        assert one.row_mixture is not None
        own = one.row_mixture.components_of(one.ids, table_rows)
        table = one.values, one.shown, torch.arange(len(rows))
        wanted, centres = (one.counted > 0) & ~unordered, torch.stack([means, means + steps])
        candidates = likely_medians(one.row_mixture, table, wanted, centres, sizes, own)
        for column, values in few_valued.items():
            nearest = nearest_values(candidates[..., column].numpy(), values)
            candidates[..., column] = torch.from_numpy(nearest)
        losses += ((candidates - one.values).abs() * one.counted * wanted).sum(1)
        number += (one.counted * wanted).sum(0)
    if not bool(number.sum() > 0):
        return None
    return torch.cat([sizes[None], weigh_candidates(losses, number)])


def _step_of_rows(held_out: Sequence[HeldOutCells]) -> int:
    """Every how many rows are used, so that there are not too many cells."""
    cells = sum(int((one.counted > 0).sum()) for one in held_out)
    columns = held_out[0].values.shape[1] if held_out else 1
    return -(-cells // max(CELLS, CELLS_OF_COLUMN * columns)) or 1


def _skewness_of_draws(parts: Parts, one: HeldOutCells, table_rows: int, seed: int) -> Tensor:
    """From the means of draws at held-out cells to their medians, 0 elsewhere."""
    assert parts.combination is not None
    stacking, cells = parts.combination, one.counted > 0
    shares, columns = stacking.shares, cells.nonzero()[:, 1]
    kinds, weights = (shares > SELDOM).nonzero()[:, 0].tolist(), stacking.means.weights
    drawn, centres = held_out_draws(parts, one, kinds, weights, table_rows, seed, DRAWS)
    apart = (drawn - clip(shares @ centres))[kinds].flatten(0, 1)
    often = (shares[kinds] / shares[kinds].sum() / DRAWS).repeat_interleave(DRAWS)
    step = _weighted_median(apart, often) - often @ apart
    if stacking.draws.widths is not None:
        deviations = (often @ apart.square()).sqrt()
        factors = width_factors(deviations, stacking.draws.widths[:, columns])
        step = step * factors.nan_to_num(1.0)
    steps = torch.zeros_like(one.values, dtype=torch.float64)
    steps[cells] = step
    return steps


def _weighted_median(draws: Tensor, weights: Tensor) -> Tensor:
    """Medians `(cells,)` of draws `(draws, cells)` with some weights."""
    ordered, order = draws.T.sort(dim=1)
    below = weights[order].cumsum(1)
    place = torch.searchsorted(below, 0.5 * below[:, -1:]).clamp(max=len(draws) - 1)
    return ordered.gather(1, place)[:, 0]


def _sizes_of_errors(held_out: Sequence[HeldOutRows]) -> Tensor:
    """Root mean squares of the errors of means by column."""
    errors = [clip(one.values - one.means).square() * one.counted for one in held_out]
    squares, number = torch.cat(errors).sum(0), torch.cat([x.counted for x in held_out]).sum(0)
    usual = squares.sum() / number.sum().clamp(min=1.0)
    return ((squares + SIZE_PRIOR * usual) / (number + SIZE_PRIOR)).sqrt()


def weigh_candidates(losses: Tensor, number: Tensor) -> Tensor:
    """Posterior probabilities of candidates by column, `(candidates, columns)`.

    Prior probabilities are the shares of the columns that candidates are best for, which all
    columns together tell: where no column is predicted clearly better by one of the others than by
    the mean, small gains are chance.

    Args:
        losses: sums of absolute errors; those of the mean come first.
        number: of cells by column.

    Example:
        >>> losses = torch.full((10, 2), 40.0, dtype=torch.float64)
        >>> losses[3] = 30.0
        >>> weigh_candidates(losses, torch.tensor([50.0, 50.0]))[:4, 0].round(decimals=2)
        tensor([0., 0., 0., 1.], dtype=torch.float64)
    """
    usual, some = losses[0].sum() / number.sum().clamp(min=1.0), (number > 0).double()
    sizes = (losses[0] + SIZE_PRIOR * usual) / (number + SIZE_PRIOR)
    evidence = -losses / sizes.clamp(min=LEAST_SIZE)
    chances = evidence.softmax(0)
    for _ in range(STEPS):
        shares = (chances @ some + PRIOR / len(losses)) / (some.sum() + PRIOR)
        chances = (evidence + shares.log()[:, None]).softmax(0)
    return chances


def average_candidates(candidates: Tensor, medians: Tensor) -> Tensor:
    """The weighted average of candidates; `medians` are those of `fit_medians`."""
    total = torch.zeros_like(candidates[0])
    for candidate, weights in zip(candidates, medians[1:], strict=True):
        total = total + weights * candidate  # in order, so that bits do not depend on other rows
    return total
