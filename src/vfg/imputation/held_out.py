"""Held-out cells: what the parts that did not see them predict, and how they draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import concat_leaves, exact_means
from vfg.imputation.categories import CategoryColumn, HeldOutCategories, Section
from vfg.imputation.mixtures import map_in_threads
from vfg.imputation.parts import (
    KINDS,
    ExactAtHeldOut,
    HeldOutCells,
    Parts,
    clip,
    corrected_share,
    member_means,
)
from vfg.imputation.resources import Turn
from vfg.imputation.row_mixture import METRIC_SETS, Labels, RowMeans, RowMixture
from vfg.imputation.trees import HeldOutRows
from vfg.inputs import Name
from vfg.model import VFG
from vfg.tables.cells import Array
from vfg.training.losses import draw_rows
from vfg.training.model_stack import stack_models

ROWS = 2048
"""Rows with held-out cells that are used, about, equally many of every member: bounds the time."""
FEWEST_ROWS = 400
"""The fewest rows of a member."""
FEWEST_MEMBERS = 2
"""How many members' held-out cells are used under a budget."""
FURTHER_SETS = 3.0
"""How many times longer than the first set of held-out cells another one takes under a budget, with
what is fitted to both: 1.6 to 3 times on four tables."""
DRAWS = 8
"""Draws of every kind that calibration uses; more take longer."""


def hold_out_cells(
    parts: Parts,
    values: Tensor,
    observed: Tensor,
    reach: Tensor,
    held: Sequence[Tensor],
    seed: int,
    turn: Turn,
    weights: Tensor | None,
) -> list[HeldOutCells]:
    """What the parts predict at held-out cells that they did not see, for every set of them.

    Under a budget sets are two at most, and as many as the `turn` has time for.
    """
    number = min(len(held), len(parts.mixtures)) if parts.mixtures else len(held)
    number = min(number, FEWEST_MEMBERS) if turn.is_limited else number
    most = FEWEST_ROWS if turn.is_limited else max(FEWEST_ROWS, ROWS // number)
    stack = parts.stack
    if stack is None and parts.members:
        stack = stack_models(parts.members)
    if stack is not None:
        stack.eval()
    nearest = [place * len(parts.neighbours) // number for place in range(number)]
    table, held_out = (values, observed, reach), list[HeldOutCells]()
    for place in range(number):
        if held_out and turn.is_limited and turn.left < FURTHER_SETS * turn.spent:
            break
        held_out.append(
            _held_out_cells(parts, stack, *table, held[place], place, nearest[place], most, seed)
        )
        turn.show(0.5 * len(held_out) / number)
    if weights is not None:
        for one in held_out:
            one.counted = one.counted * weights[one.ids, None]
    return held_out


def held_out_categories(
    parts: Parts,
    held_out: Sequence[HeldOutCells],
    weights: Tensor,
    factors: Tensor,
    column: CategoryColumn,
    place: int,
    labels: Labels,
) -> list[HeldOutCategories]:
    """What is expected at the held-out cells of a column of categories, and what is there."""
    cells = []
    for one in held_out:
        if one.votes is not None and one.row_mixture and parts.linears is not None:
            means = factors * clip(torch.einsum("k,krc->rc", weights, one.single))
            rows, truth = _cells_of(one, column, place, labels)
            if len(rows):
                section = _section(parts, one, rows, means[rows], column, place, labels)
                cells.append(HeldOutCategories.of(section, truth.numpy()))
    return cells


def _cells_of(
    one: HeldOutCells, column: CategoryColumn, place: int, labels: Labels
) -> tuple[Tensor, Tensor]:
    """Rows with held-out cells of a column of categories, and the places of these."""
    truth = labels.places[one.ids, place]
    rows = ((one.counted[:, column.places[0]] > 0) & (truth >= 0)).nonzero()[:, 0]
    return rows, truth[rows]


def _section(
    parts: Parts,
    one: HeldOutCells,
    rows: Tensor,
    means: Tensor,
    column: CategoryColumn,
    place: int,
    labels: Labels,
) -> Section:
    """What is expected in the section of a column of categories at some held-out rows."""
    expected = means[:, column.places].numpy()
    if column.part.is_simplex:
        return Section(column, expected, None)
    assert parts.linears is not None
    linear, inner = parts.linears[one.place], (one.values[rows], one.shown[rows])
    nothing = torch.zeros_like(inner[0][:1])
    covariances = _covariances(linear, *inner, column)
    alone = _covariances(linear, nothing, nothing.bool(), column)
    votes, base = None, None
    if one.votes is not None and one.row_mixture is not None:
        votes = one.votes.split(labels.sizes, dim=1)[place][rows].numpy()
        without = one.row_mixture.means(nothing, nothing.bool(), torch.zeros(1).long()).votes
        base = without.split(labels.sizes, dim=1)[place].numpy()
    start = Section(column, np.zeros((1, column.part.width)), alone, None, base)
    # Points of the rows' own categories that do not come from these rows; see `Encoding`.
    own = labels.places[one.ids[rows], place].numpy(), inner[0][:, column.places].numpy()
    return Section(column, expected, covariances, start, votes, own_points=own)


@torch.no_grad()
def held_out_rows(
    parts: Parts, categories: Sequence[CategoryColumn], labels: Labels
) -> list[HeldOutRows]:
    """What the stacked parts predict at the held-out cells that they were fitted to."""
    stacking = parts.combination
    assert stacking is not None
    held_out = []
    for one in parts.held_out:
        means, known = stacking.predict(one), list[Any]()
        for place, column in enumerate(categories):
            rows, truth = _cells_of(one, column, place, labels)
            if not len(rows) or (parts.linears is None and not column.part.is_simplex):
                known.append(None)
                continue
            section = _section(parts, one, rows, means[rows], column, place, labels)
            if stacking.pooling is not None:
                first, second = stacking.pooling[place].tolist()
                section = replace(section, pooling=(first, second))
            known.append((rows.numpy(), section.probabilities, truth.numpy()))
        row = one.ids, one.values, one.shown, one.counted
        held_out.append(HeldOutRows(*row, means, known))
    return held_out


def _covariances(
    linear: GaussianVFG, values: Tensor, observed: Tensor, column: CategoryColumn
) -> Array:
    names: list[Name] = list(linear.variables)
    chosen = [names[place] for place in column.places]
    return linear.infer(values, chosen, observed=observed).covariance(chosen).numpy()


def observed_range(values: Tensor, observed: Tensor) -> Tensor:
    """The smallest and the largest known value of every column, `(2, columns)`; 0 if none is known.

    Example:
        >>> values = torch.tensor([[1.0, 5.0], [3.0, 0.0]])
        >>> observed_range(values, torch.tensor([[True, False], [True, False]])).tolist()
        [[1.0, 0.0], [3.0, 0.0]]
    """
    known = observed.any(0)
    low = torch.where(observed, values, torch.inf).amin(0)
    high = torch.where(observed, values, -torch.inf).amax(0)
    return torch.where(known, torch.stack([low, high]), 0.0).double()


def _exact_at_held_out(
    parts: Parts,
    table: tuple[Tensor, Tensor],
    own: Tensor,
    cells: tuple[Tensor, Tensor, Tensor],
    place: int,
    nearest: int,
) -> ExactAtHeldOut:
    """The same at some rows, whose values, mask and places in the table are `cells`."""
    (x, shown, rows), number = cells, len(table[0])
    mixtures, linear, row_mixture, alone, targeted = None, None, None, None, None
    if parts.mixtures:
        ids = torch.arange(len(x))
        by_mixture = map_in_threads(lambda mixture: mixture.means(x, shown, ids), parts.mixtures)
        mixtures = torch.stack(by_mixture)
    if parts.linears is not None:
        linear = exact_means(parts.linears[place], x, shown)[None]
    others = [_means_without_own_row(one, x, shown, rows, number) for one in parts.neighbours]
    if parts.neighbours:
        row_mixture = parts.neighbours[nearest].without(*table, own)
        alone = _means_without_own_row(row_mixture, x, shown, rows, number)
        if place < METRIC_SETS:
            targeted = _targeted_means(row_mixture, x, shown, rows, number, own[rows])
    return ExactAtHeldOut(mixtures, linear, others, row_mixture, alone, targeted)


def _held_out_cells(
    parts: Parts,
    stack: VFG | None,
    values: Tensor,
    observed: Tensor,
    reach: Tensor,
    own: Tensor,
    place: int,
    nearest: int,
    most: int,
    seed: int,
) -> HeldOutCells:
    rows = draw_rows(own.any(1), most, seed)
    x, shown = values[rows], (observed & ~own)[rows]
    key = place, nearest, most
    if key not in parts.exact_at_held:
        table, cells = (values, observed), (x, shown, rows)
        parts.exact_at_held[key] = _exact_at_held_out(parts, table, own, cells, place, nearest)
    exact = parts.exact_at_held[key]
    nothing = torch.zeros(1, *x.shape, dtype=torch.float64)
    means, unseen = [nothing] * len(KINDS), [0] * len(KINDS)
    if stack is not None:
        means[0], unseen[0] = member_means(stack, len(parts.members), x, shown), place
    if exact.mixtures is not None:
        means[1], unseen[1] = exact.mixtures, place
    if exact.linear is not None:
        means[2] = exact.linear
    votes, distances = None, None
    if exact.neighbours:
        means[3:] = [torch.stack([pair[k] for pair in exact.neighbours]) for k in range(2)]
        unseen[3:] = nearest, nearest
        distances = torch.stack([pair.distances for pair in exact.neighbours]).mean(0)
    means = [clip(each.clamp(*reach)) for each in means]
    single = torch.stack([each[chosen] for each, chosen in zip(means, unseen, strict=True)])
    mean = torch.stack([each.mean(0) for each in means])
    missing = ~observed[rows]
    at_missing = torch.stack([each[:, missing] @ each[:, missing].T for each in (single, mean)])
    if exact.alone is not None:
        single[3:], votes = clip(torch.stack(exact.alone[:2]).clamp(*reach)), exact.alone.votes
    counted = own[rows].double()
    means_of_all = single, at_missing
    targeted = None if exact.targeted is None else clip(exact.targeted.clamp(*reach))
    return HeldOutCells(
        place, rows, x, shown, counted, *means_of_all, exact.row_mixture, votes, distances, targeted
    )


def hide_further(parts: Parts, held_out: HeldOutCells, table_rows: int, seed: int) -> HeldOutCells:
    """The same cells, predicted with a random share of the other cells of their rows hidden."""
    assert parts.linears is not None
    generator = torch.Generator().manual_seed(seed * 1009 + held_out.place)
    widths = torch.tensor(list(parts.linears[0].graph.sections.values()))
    x, place = held_out.values, held_out.place
    share = torch.rand(len(x), 1, generator=generator)
    kept = torch.rand(len(x), len(widths), generator=generator) >= share
    shown = held_out.shown & kept.repeat_interleave(widths, dim=1)
    single = torch.zeros(len(KINDS), *x.shape, dtype=torch.float64)
    if parts.members:
        single[0] = concat_leaves(parts.members[place].infer(x, observed=shown).mean)
    if parts.mixtures:
        single[1] = parts.mixtures[place].means(x, shown, torch.arange(len(x)))
    single[2] = exact_means(parts.linears[place], x, shown)
    if held_out.row_mixture is not None:
        pair = _means_without_own_row(held_out.row_mixture, x, shown, held_out.ids, table_rows)
        single[3:] = torch.stack(pair[:2])
    targeted = held_out.targeted
    if targeted is not None and held_out.row_mixture is not None:
        rows = x, shown, held_out.ids, table_rows, held_out.counted > 0
        targeted = _targeted_means(held_out.row_mixture, *rows)
    return replace(held_out, shown=shown, single=single, targeted=targeted)


def _targeted_means(
    mixture: RowMixture, x: Tensor, shown: Tensor, rows: Tensor, table_rows: int, wanted: Tensor
) -> Tensor | None:
    """Means of the wanted cells by the metrics of their columns, every row without itself."""
    if mixture.metric is None:
        return None
    own = mixture.components_of(rows, table_rows)
    return mixture.targeted_means(x, shown, torch.arange(len(x)), wanted, own)


def _means_without_own_row(
    row_mixture: RowMixture, values: Tensor, shown: Tensor, rows: Tensor, table_rows: int
) -> RowMeans:
    own = row_mixture.components_of(rows, table_rows)
    return row_mixture.means(values, shown, torch.arange(len(values)), own)


def held_out_draws(
    parts: Parts,
    held_out: HeldOutCells,
    kinds: Sequence[int],
    weights: Tensor,
    table_rows: int,
    seed: int,
    number: int = DRAWS,
) -> tuple[Tensor, Tensor]:
    """Draws of some kinds at held-out cells, `(4, draws, cells)`, and means of all, `(4, cells)`.

    Draws of other kinds are 0.
    """
    share_corrected, cells = corrected_share(weights), held_out.counted > 0
    nearest = held_out.single[3] + share_corrected * (held_out.single[4] - held_out.single[3])
    centres = torch.stack([*held_out.single[:3], nearest])[:, cells]
    draws = torch.zeros(len(centres), number, centres.shape[1], dtype=torch.float64)
    samplers = _samplers(parts, held_out, share_corrected, table_rows, seed)
    for kind in kinds:
        draws[kind] = clip(samplers[kind](number))[:, cells]
    return draws, centres


def _samplers(
    parts: Parts, held_out: HeldOutCells, share_corrected: float, table_rows: int, seed: int
) -> list[Callable[[int], Tensor]]:
    """Samplers of the rows of a member: it, a mixture, the linear model, a row mixture."""
    x, shown, place = held_out.values, held_out.shown, held_out.place
    every = torch.arange(len(x))

    def sample(model: VFG | GaussianVFG, number: int) -> Tensor:
        return concat_leaves(model.infer(x, observed=shown, seed=seed).samples(number))

    def neighbours(number: int) -> Tensor:
        model = held_out.row_mixture
        assert model is not None
        own = model.components_of(held_out.ids, table_rows)
        return model.samples(
            x, shown, number, seed=seed, ids=every, corrected=share_corrected, own=own
        )

    return [
        lambda number: sample(parts.members[place], number),
        lambda number: parts.mixtures[place].samples(x, shown, number, seed=seed, ids=every),
        lambda number: sample((parts.linears or [])[place], number),
        neighbours,
    ]
