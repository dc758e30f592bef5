"""Mixtures of a table: their sizes, their order, and budgets."""

import numpy as np
import pytest
import torch

from vfg.gaussian.conditional_means import concat_leaves
from vfg.gaussian.parameters import factors_of
from vfg.imputation.mixtures import (
    SHARES,
    Mixture,
    fit_mixtures,
    map_in_threads,
    star,
    with_all_columns,
)
from vfg.imputation.plan import MOST_MIXTURES, PAIR_SECONDS, MixturePlan, plan_mixtures
from vfg.imputation.resources import Turn, now
from vfg.tables.numeric import NormalScores

ORDERED = torch.zeros(4, dtype=torch.bool)


def table(rows: int = 120, columns: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64).cumsum(1)
    observed = torch.rand(rows, columns, generator=generator) < 0.8
    return torch.where(observed, values, 0.0), observed


@pytest.mark.parametrize(
    ("rows", "columns"), [(20, 2), (300, 60), (5_000, 11), (20_000, 16), (1_000_000, 8)]
)
@pytest.mark.parametrize("known", [0.05, 0.5, 1.0])
def test_planned_mixtures_are_valid(rows, columns, known):
    plan = plan_mixtures(rows, columns, known=known, width=12, large=rows > 15_000)
    assert 1 <= plan.number <= MOST_MIXTURES
    assert 2 <= plan.components <= rows
    assert 1 <= plan.rows <= rows


def test_fewer_known_cells_give_fewer_components():
    result = [
        plan_mixtures(800, 8, known=share, width=10, large=False).components
        for share in (0.1, 0.3, 0.9)
    ]
    assert result == sorted(result)
    assert result[0] < result[-1]


def test_plans_under_a_budget_take_about_its_seconds():
    plan = MixturePlan(4, 64, 5_000, 11, 11)
    under_budget = plan.within(1.0)
    assert under_budget.components < plan.components
    assert under_budget.rows < plan.rows
    assert under_budget.work * PAIR_SECONDS < 2.0
    assert plan.within(1e6) == plan


def test_mixtures_do_not_depend_on_the_number_of_threads():
    values, observed = table()
    held = [torch.zeros_like(observed)] * 3
    plan = MixturePlan(3, 3, 100, 4, 4)
    result, threads = [], torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        result.append(
            fit_mixtures(
                star([1] * 4, 4),
                values,
                observed,
                held,
                plan,
                unordered=ORDERED,
                seed=5,
            )
        )
    torch.set_num_threads(threads)
    for first, second in zip(*result, strict=True):
        a, b = (model.means(values, observed, torch.arange(120)) for model in (first, second))
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_no_mixture_is_fitted_after_the_end():
    values, observed = table()
    held = [torch.zeros_like(observed)] * 2
    plan = MixturePlan(2, 3, 100, 4, 4)
    options = {"unordered": ORDERED, "seed": 0, "turn": Turn(now() - 1.0)}
    assert fit_mixtures(star([1] * 4, 4), values, observed, held, plan, **options) == []


def test_held_out_cells_do_not_change_a_mixture():
    values, observed = table()
    held = torch.zeros_like(observed)
    held[:30, 1] = observed[:30, 1]
    other = torch.where(held, values + 100.0, values)
    plan = MixturePlan(1, 2, 120, 4, 4)
    options = {"unordered": ORDERED, "seed": 1}
    models = [
        fit_mixtures(star([1] * 4, 4), cells, observed, [held], plan, **options)[0]
        for cells in (values, other)
    ]
    states = [model.state_dict() for model in models]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def fitted(unordered: torch.Tensor = ORDERED) -> tuple[Mixture, torch.Tensor, torch.Tensor]:
    values, observed = table(200)
    skewed, held = torch.where(observed, values.exp(), 0.0), [torch.zeros_like(observed)]
    mixture = fit_mixtures(
        star([1] * 4, 4), skewed, observed, held, MixturePlan(1, 3, 150, 4, 4),
        unordered=unordered, seed=1,
    )[0]  # fmt: skip
    return mixture, skewed, observed


def test_normal_scores_are_fitted_without_held_out_cells():
    mixture, values, observed = fitted()
    ranks = NormalScores.of(values, observed, torch.full((4,), SHARES[0]))
    assert torch.equal(mixture.ranks.knots, ranks.knots)
    assert torch.equal(mixture.ranks.scores, ranks.scores)


def test_columns_without_an_order_stay_as_they_are():
    mixture, values, _ = fitted(torch.tensor([False, True, False, True]))
    scores = mixture.ranks(values)
    moved = (scores - values).abs().amax(0) > 0.1
    assert moved.tolist() == [True, False, True, False]


def test_means_of_components_are_mapped_to_data_units():
    """The fast way, the slow one, and numpy with one component at a time."""
    mixture, values, observed = fitted()
    every = torch.arange(len(values))
    result = mixture.means(values, observed, every)
    assert torch.equal(result[observed], values[observed])
    scores = mixture.ranks(values)
    answer = mixture.exact.infer(scores, observed=observed, row_ids=every)
    slow = concat_leaves(answer.mean_through(mixture.ranks.inverse))
    torch.testing.assert_close(result[~observed], slow[~observed], rtol=1e-5, atol=1e-5)
    shares = mixture.exact.infer(scores, observed=observed).responsibilities
    by_hand = torch.zeros_like(values)
    for component, mean in enumerate(component_means(mixture, scores, observed)):
        for column in range(4):
            back = np.interp(mean[:, column], *knots_of(mixture.ranks, column))
            by_hand[:, column] += shares[:, component] * torch.from_numpy(back)
    torch.testing.assert_close(slow[~observed], by_hand[~observed], rtol=1e-9, atol=1e-9)


def component_means(mixture, scores, observed):
    """Conditional means by one Normal distribution after the other."""
    location, scale = mixture.exact.scaling.location.numpy(), mixture.exact.scaling.scale.numpy()
    loadings, offsets, deviations = (
        part.detach().numpy() for part in factors_of(
            mixture.exact.structure, mixture.exact.linear.values()
        )[1:]
    )  # fmt: skip
    cells = (scores.numpy() - location) / scale
    for lines, offset, deviation in zip(loadings, offsets, deviations, strict=True):
        covariance = lines @ lines.T + np.diag(deviation**2)
        result = np.empty_like(cells)
        for row, seen in enumerate(observed.numpy()):
            known = covariance[np.ix_(seen, seen)]
            left = np.linalg.solve(known, cells[row, seen] - offset[seen])
            result[row] = offset + covariance[:, seen] @ left
        yield result * scale + location


def knots_of(ranks, column):
    """Scores and values, with a knot far out at both ends, since `interp` is flat beyond."""
    scores, values = ranks.scores[column].numpy(), ranks.knots[column].numpy()
    return [np.concatenate([x[:1] - 50.0, x, x[-1:] + 50.0]) for x in (scores, values)]


def test_draws_are_draws_of_scores():
    mixture, values, observed = fitted()
    ids = torch.arange(10)
    drawn = mixture.samples(values[:10], observed[:10], 3, seed=4, ids=ids, direct=False)
    answer = mixture.exact.infer(
        mixture.ranks(values[:10]), observed=observed[:10], seed=4, row_ids=ids
    )
    scores = mixture.ranks(drawn.reshape(-1, 4)).view(3, 10, 4)
    torch.testing.assert_close(scores, concat_leaves(answer.samples(3)), rtol=1e-8, atol=1e-8)


def test_direct_draws_have_the_distribution_of_draws_of_the_root():
    mixture, values, observed = fitted()
    rows = values[:10], observed[:10], 4000
    direct, other = (
        mixture.samples(*rows, seed=4, ids=torch.arange(10), direct=way) for way in (True, False)
    )
    free = ~observed[:10]
    assert free.any()
    assert torch.equal(direct[:, ~free], values[:10][~free].expand(4000, -1))
    # Maps are monotone, so scores tell everything about values.
    first, second = (
        mixture.ranks(x.reshape(-1, 4)).view(x.shape)[:, free] for x in (direct, other)
    )
    error = (first.mean(0) - second.mean(0)) / second.std(0)
    assert error.abs().max() < 0.09
    assert (first.std(0) / second.std(0)).log().abs().max() < 0.09


def test_a_column_without_known_cells_has_one_marked():
    seen = torch.tensor([[True, False], [True, False]])
    assert with_all_columns(seen).tolist() == [[True, True], [True, False]]


def test_results_come_in_the_order_of_the_items():
    assert map_in_threads(lambda k: k * k, range(20)) == [k * k for k in range(20)]
