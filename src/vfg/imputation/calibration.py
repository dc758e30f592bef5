r"""How wide the draws of a cell are, as a function of what is known of its row.

The parts of an ensemble smooth over similar rows, so that their draws are too wide where much of a
cell is known, and not where nothing is. Let d be the deviation of a cell's draws from the parts,
in those of its column. They are scaled about their mean by

$$f = a \min(d / 0.85, 1)^p.$$

Level a and power p of a column minimise the continuous ranked probability score, over $d^{1.6}$, at
held-out cells. These are predicted twice more with random shares of the other cells of their rows
hidden, so that some are known well and others not at all. The power is 0 where the linear model
draws. A constant then makes 90 % intervals of all cells hold enough of them.

A linear model draws with the same width everywhere. Let t be the deviation of the trees of a column
from each other, which is larger where cells are noisy: leaves are means of a few cells. Let e be
the share of the row that is known, and n the mean of $\log t$. Draws of columns whose errors follow
t clearly are scaled by $\exp(r e (\log t - n))$, too, with a power r of the column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.imputation.extrapolation import NUMBERS, predict_from_others
from vfg.imputation.gaussian_processes import LeftOut
from vfg.imputation.held_out import held_out_draws, hide_further
from vfg.imputation.parts import KINDS, WIDE, HeldOutCells, Parts, Stacking, allocate_draws, clip
from vfg.imputation.resources import Turn
from vfg.imputation.trees import Forest, HeldOutRows, Unseen, move_means
from vfg.training.losses import draw_rows

LEVELS = tuple(1.08**step for step in range(5))
"""Levels a among which held-out cells choose. Where nothing is known the draws are those of the
column; scaled down about their mean they would miss the small values of a skewed one."""
POWERS = (0.0, 0.12, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
"""Powers p among which held-out cells choose."""
PRIOR = 6.0
"""Weight of the mean score of all columns in that of one, in cells."""
ROWS = 512
"""Rows of a set of held-out cells that are used, which bounds the time."""
FIRST_ROWS, LEAST_ROWS = 96, 16
"""Rows that are used at first where time is limited, and the fewest later on."""
CELLS_SHARE = 0.9
"""The share of the time for cells; the rest is for widths and for the noise that trees find."""
MOST_CELLS = 20_000
"""Cells that are used at most, which bounds memory."""
HIDINGS = 2
"""How often held-out cells are predicted with further cells hidden."""
FEWEST_CELLS = 60
"""Held-out cells, seen with all hidings, below which widths are not fitted."""
LEAST = 0.02
"""The least deviation of draws that counts."""
DRAWS = 24
"""Draws of a cell, of all kinds together: at least 19 have the ends of 90 % intervals."""
HELD = 0.92
"""The share of held-out cells in 90 % intervals: new rows have larger errors than the fitted ones.
With 0.9, 83 to 87 % of the cells of new rows were in 90 % intervals on five of 18 tables."""
LEAST_GAIN = 0.04
"""The share of the score that other drawing parts must gain: parabolas gain 5 %, and tables of
the benchmark up to 3 % that new rows do not have."""
STEADY = 100.0
"""Weight of the prior that draws need no change, in cells."""
NARROW = 1.6
"""The power of d that scores are divided by, so that narrow cells count: with 1 intervals of two
made curves were 7 and 9 % wider."""
TREE_POWERS = (0.25, 0.5, 0.75, 1.0)
"""Powers r of the noise that trees find."""
EVIDENCE = 5.0
"""The gain of the log-likelihood of all cells by which noise counts as found."""
NOISE_ROWS = 1000
"""Rows whose cells tell of noise, which bounds the time."""
LINEAR_SHARE = 0.5
"""The share of the linear model in draws from which on the power is 0, since it does not smooth:
with powers that a few held-out cells chose, 90 % intervals of a made line held 81 % once in three.
Noise is looked for from there on, too: draws of other parts are wider where cells are noisy by
themselves."""
MOST_NOISE = 1.0
"""How far the logarithm of noise may lie from its mean."""
LEVELS_OF_ENDS = (0.05, 0.95)
CONSTANTS = (1.0, 1.1)
"""Bounds of the constant: scaling draws about their mean displaces two separate values."""


def width_factors(deviations: Tensor, widths: Tensor) -> Tensor:
    """Factors of draws `(rows, columns)` by the deviations of these; `widths` is `(2, columns)`.

    Example:
        >>> widths = torch.tensor([[1.2], [2.0]])
        >>> width_factors(torch.tensor([[0.425], [1.0]]), widths)
        tensor([[0.3000],
                [1.2000]])
    """
    level, power = widths
    factors: Tensor = level * (deviations.clamp(min=LEAST) / WIDE).clamp(max=1.0) ** power
    return factors


def noise_factors(deviations: Tensor, trust: Tensor, widths: Tensor) -> Tensor:
    """Factors of draws by deviations of trees, `(..., columns)`, and trust in these.

    `widths` are powers and means of logarithms, `(2, columns)`.

    Example:
        >>> one = torch.ones(2, 1)
        >>> noise_factors(torch.tensor([[1.0], [9.0]]), one, torch.tensor([[0.5], [0.0]]))
        tensor([[1.0000],
                [1.6487]])
    """
    power, mean = widths
    apart = (deviations.clamp(min=LEAST).log() - mean).clamp(-MOST_NOISE, MOST_NOISE)
    factors: Tensor = (power * trust * apart).exp()
    return factors


class Cells(NamedTuple):
    """Held-out cells, and what parts that did not see them draw there."""

    draws: Tensor  # (kinds, draws, cells)
    centres: Tensor  # means of the kinds, (kinds, cells)
    errors: Tensor  # cells minus what is predicted
    columns: Tensor
    often: Tensor  # weights of the rows

    def apart(self, shares: Tensor) -> Tensor:
        """Draws minus their mean, `(draws, cells)`, if kinds draw with some shares."""
        by_kind = allocate_draws(shares, [1] * len(shares), self.draws.shape[1])
        drawn = torch.cat([self.draws[kind, : len(own)] for kind, own in by_kind.items()])
        return drawn - clip(shares @ self.centres)


@torch.no_grad()
def calibrate_draws(
    parts: Parts,
    not_seen: tuple[Unseen | None, LeftOut | None],
    ordered: Tensor,
    table: tuple[Tensor, Tensor],
    seed: int,
    turn: Turn | None = None,
) -> Stacking | None:
    """The stacking with widths of `ordered` columns, and with the shares of the kinds that draw.

    Widths of other columns are nan. It is unchanged where there are too few cells, no linear
    model, or too little time in the `turn`, in which fewer cells are used, too. `not_seen` says
    which trees did not see which rows, and what Gaussian processes predict of rows that are left
    out; the `table` are the fitted values, and which of them are observed. Shares are chosen for
    complete tables alone: rows that were fitted with missing cells draw from their own components,
    which held-out cells do not show.
    """
    stacking, turn = parts.combination, turn or Turn()
    if stacking is None or parts.linears is None:
        return stacking
    exact, shares = stacking.draws.drawing is not None, stacking.shares
    complete, table_rows = bool(table[1].all()), len(table[0])
    candidates = _candidates(shares, parts.present) if exact and complete else [shares]
    unseen, drawing = not_seen[0], torch.stack(candidates).sum(0) > 0
    own_turn = turn.first(CELLS_SHARE)
    cells = _cells(parts, drawing, not_seen, ordered, table_rows, seed, own_turn)
    if cells is None:
        if own_turn.is_past:
            turn.give_up()
        return stacking
    found = [_losses(cells, own, candidates[0], len(ordered)) for own in candidates]
    scores = [float(own.flatten(0, 1).gather(0, _best(own, cells)[None]).sum()) for own in found]
    chosen = int(np.argmin(scores))
    chosen = chosen if scores[chosen] < (1.0 - LEAST_GAIN) * scores[0] else 0
    is_linear = float(candidates[chosen][KINDS.index("linear")]) >= LINEAR_SHARE
    losses = found[chosen][:, :1] if is_linear else found[chosen]
    widths, noise = fit_widths(cells, candidates[chosen], losses), None
    looks = is_linear and not turn.is_past
    if looks and parts.forest is not None and unseen is not None and parts.linear is not None:
        noise = fit_noise(parts.forest, unseen, parts.linear, table, ordered, seed)
    if noise is not None:
        widths[0] *= noise[0]
    draws = replace(
        stacking.draws,
        widths=torch.where(ordered, widths, torch.nan),
        drawing=candidates[chosen] if exact else None,
        tree_widths=None if noise is None else noise[1],
    )
    return replace(stacking, draws=draws)


def _candidates(shares: Tensor, present: Tensor) -> list[Tensor]:
    """Shares of the kinds that draw: as they are, single kinds, mixtures and neighbours alike."""
    there = [kind for kind in (1, 2, 3) if bool(present[kind])]
    single = [torch.eye(4, dtype=shares.dtype)[kind] for kind in there]
    both = [0.5 * (single[there.index(1)] + single[-1])] if 1 in there and 3 in there else []
    return [shares, *single, *both]


def _cells(
    parts: Parts,
    drawing: Tensor,
    not_seen: tuple[Unseen | None, LeftOut | None],
    ordered: Tensor,
    table_rows: int,
    seed: int,
    turn: Turn,
) -> Cells | None:
    """The held-out cells of all hidings; None for too few."""
    assert parts.combination is not None
    kinds, weights = drawing.nonzero()[:, 0].tolist(), parts.combination.means.weights
    pieces = []
    for one in _hidings(parts, table_rows, seed, turn):
        cells, errors = one.counted > 0, one.values - _means(parts, one, *not_seen)
        places = cells.nonzero()[:, 1]
        drawn = held_out_draws(parts, one, kinds, weights, table_rows, seed, DRAWS)
        piece = *drawn, clip(errors)[cells], places, one.counted[cells]
        pieces.append([part[..., ordered[places]] for part in piece])
    if 0 < len(pieces) <= HIDINGS:  # some hidings would be missing
        return None
    joined = [torch.cat(each, dim=-1) for each in zip(*pieces, strict=True)]
    number = len(joined[-1]) if joined else 0
    if number < FEWEST_CELLS:
        return None
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(number, generator=generator)[:MOST_CELLS]
    return Cells(*(part[..., kept] for part in joined))


def _hidings(parts: Parts, table_rows: int, seed: int, turn: Turn) -> Iterator[HeldOutCells]:
    """Held-out cells as they are, and with further cells of their rows hidden.

    Rows are fewer where those of all hidings would take too long, and there are none where there is
    no time for one set of held-out cells.
    """
    number, used = len(parts.held_out) * (1 + HIDINGS), list[int]()
    for one in parts.held_out:
        for hiding in range(-1, HIDINGS):
            most = _rows_in_time(used, number - len(used), turn)
            if not most:
                return
            few = one.select(torch.arange(min(most, len(one.ids))))
            used.append(len(few.ids))
            own = seed * HIDINGS + hiding
            yield few if hiding < 0 else hide_further(parts, few, table_rows, own)
            turn.show(len(used) / number)


def _rows_in_time(used: Sequence[int], ahead: int, turn: Turn) -> int:
    """How many rows to use next, if some were used and so many hidings are ahead; 0 to stop."""
    if not turn.is_limited:
        return ROWS
    if turn.is_past:
        return 0
    if not used:
        return min(FIRST_ROWS, ROWS)
    affordable = turn.left * sum(used) / max(turn.spent, 1e-9) / ahead
    return int(min(max(affordable, LEAST_ROWS), ROWS))


def _means(
    parts: Parts, one: HeldOutCells, unseen: Unseen | None, left_out: LeftOut | None
) -> Tensor:
    """Predictions of what did not see the held-out cells."""
    assert parts.combination is not None
    means = parts.combination.predict(one)
    rows = HeldOutRows(one.ids, one.values, one.shown, one.counted, means, [])
    if parts.forest is not None and unseen is not None:
        rows = replace(rows, means=move_means(parts.forest, unseen, rows))
    return rows.means if left_out is None else left_out.move(rows).means


def _losses(cells: Cells, shares: Tensor, usual: Tensor, number: int) -> Tensor:
    """Sums of scores over deviations, `(levels, powers, columns)`, if kinds draw with shares.

    Deviations are those of draws with the `usual` shares, so that scores can be compared.
    """
    drawn = cells.apart(shares)
    deviations, scale = _deviations(drawn), _deviations(cells.apart(usual))
    half = half_distance(drawn)
    losses = torch.zeros(len(LEVELS), len(POWERS), number, dtype=torch.float64)
    for place, power in enumerate(POWERS):
        shape = (deviations / WIDE).clamp(max=1.0) ** power
        for step, level in enumerate(LEVELS):
            factor = level * shape
            score = (factor * drawn - cells.errors).abs().mean(0) - factor * half
            losses[step, place].index_add_(0, cells.columns, cells.often * score / scale**NARROW)
    return losses


def _deviations(drawn: Tensor) -> Tensor:
    return drawn.square().mean(0).sqrt().clamp(min=LEAST)


def _best(losses: Tensor, cells: Cells) -> Tensor:
    """The best level and power of every column, as one index."""
    common = losses.sum(-1, keepdim=True) / cells.often.sum()
    levels, powers = (torch.tensor(x).double() for x in (LEVELS, POWERS[: losses.shape[1]]))
    levels = levels.log()
    prior = 0.14 * levels[:, None].square() + 0.005 * powers.square()
    return (losses + PRIOR * common + STEADY * prior[..., None]).flatten(0, 1).argmin(0)


def fit_widths(cells: Cells, shares: Tensor, losses: Tensor) -> Tensor:
    """Levels and powers of columns, `(2, columns)`, from scores of all, or the first, of them."""
    best, number = _best(losses, cells), losses.shape[1]
    levels, powers = torch.tensor(LEVELS).double(), torch.tensor(POWERS).double()
    widths = torch.stack([levels[best // number], powers[best % number]])
    drawn = cells.apart(shares)
    scaled = drawn * width_factors(_deviations(drawn), widths[:, cells.columns])
    widths[0] *= interval_constant(scaled, cells.errors)
    return widths


@torch.no_grad()
def fit_noise(
    forest: Forest,
    unseen: Unseen,
    linear: GaussianVFG,
    table: tuple[Tensor, Tensor],
    ordered: Tensor,
    seed: int,
) -> tuple[Tensor, Tensor] | None:
    """Levels of draws by column, and powers and means of the noise that trees find, `(2, columns)`.

    The linear model predicts every observed cell from the others of its row; trees are those that
    did not see the row. None where no column has such noise.
    """
    most = min(NOISE_ROWS, max(FEWEST_CELLS, NUMBERS // table[0].shape[1] ** 2))
    rows = draw_rows(table[1].any(1), most, seed)
    values, observed = table[0][rows], table[1][rows]
    predicted = predict_from_others(linear, values, observed)
    filled = torch.where(observed, values, predicted)
    used = {target: trees[rows] > 0 for target, trees in unseen.trees.items()}
    deviations = forest.votes(filled, observed, used, spread=True).deviations
    assert deviations is not None
    # The cell itself does not count as known.
    trust = ((observed[:, forest.starts].sum(1) - 1.0) / max(len(forest.starts) - 1, 1)).double()
    errors = clip(values - predicted).abs()
    levels = torch.ones_like(values[0], dtype=torch.float64)
    noise = torch.zeros(2, len(levels), dtype=torch.float64)
    for column in forest.numbers:
        own = observed[:, column] & (deviations[:, column] > 0.0)
        if bool(ordered[column]) and int(own.sum()) >= FEWEST_CELLS:
            cells = errors[own, column], deviations[own, column], trust[own]
            levels[column], *found = _noise_of(*cells)
            noise[:, column] = torch.tensor(found, dtype=torch.float64)
    return (levels, noise) if bool((noise[0] > 0.0).any()) else None


def _noise_of(errors: Tensor, deviations: Tensor, trust: Tensor) -> tuple[float, float, float]:
    """Level, power and mean of a column; 1, 0 and 0 without clear evidence.

    The size of errors has a Laplace distribution, of which outliers do not decide the fit.
    """
    mean = float(deviations.clamp(min=LEAST).log().mean())
    sizes, scores = [], []
    for power in (0.0, *TREE_POWERS):
        factors = noise_factors(deviations, trust, torch.tensor([power, mean]).double())
        sizes.append(float((errors / factors).mean().clamp(min=1e-9)))
        scores.append(math.log(sizes[-1]) + float(factors.log().mean()))
    best = int(np.argmin(scores))
    if len(errors) * (scores[0] - scores[best]) < EVIDENCE:
        return 1.0, 0.0, 0.0
    return sizes[best] / sizes[0], TREE_POWERS[best - 1], mean


def half_distance(draws: Tensor) -> Tensor:
    """Half the mean distance of two different draws, `(cells,)`.

    Example:
        >>> half_distance(torch.tensor([[0.0], [1.0]]))
        tensor([0.5000])
    """
    number = len(draws)
    ranks = 2.0 * torch.arange(1, number + 1).to(draws) - number - 1.0
    return ranks @ draws.sort(0).values / (number * (number - 1.0))


def interval_constant(drawn: Tensor, errors: Tensor) -> float:
    """The factor of draws with which 90 % intervals hold the share `HELD` of the errors."""
    ends = torch.from_numpy(np.quantile(drawn.numpy(), LEVELS_OF_ENDS, axis=0, method="weibull"))
    low, high = ends[0].clamp(max=-1e-6), ends[1].clamp(min=1e-6)
    ratios = torch.where(errors < 0.0, errors / low, errors / high)
    return float(np.clip(np.quantile(ratios.numpy(), HELD), *CONSTANTS))
