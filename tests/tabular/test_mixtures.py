"""Mixtures of a table: their sizes, their order, and budgets."""

import time

import pytest
import torch

from vfg.tabular.linear import star, with_all_columns
from vfg.tabular.mixtures import (
    LOOK_SECONDS,
    MOST,
    MixturePlan,
    fit_mixtures,
    planned_mixtures,
    side_by_side,
)

CPU = torch.device("cpu")


def table(rows: int = 120, columns: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64).cumsum(1)
    observed = torch.rand(rows, columns, generator=generator) < 0.8
    return torch.where(observed, values, 0.0), observed


@pytest.mark.parametrize(
    ("rows", "columns"), [(20, 2), (300, 60), (5_000, 11), (20_000, 16), (1_000_000, 8)]
)
@pytest.mark.parametrize("known", [0.05, 0.5, 1.0])
def test_plans_can_be_used(rows, columns, known):
    plan = planned_mixtures(rows, columns, known=known, width=12, large=rows > 15_000)
    assert 1 <= plan.number <= MOST
    assert 2 <= plan.components <= rows
    assert 1 <= plan.rows <= rows


def test_less_knowledge_means_fewer_components():
    found = [
        planned_mixtures(800, 8, known=share, width=10, large=False).components
        for share in (0.1, 0.3, 0.9)
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_hurried_plans_take_about_the_seconds_that_they_have():
    plan = MixturePlan(4, 64, 5_000, 11, 11)
    hurried = plan.within(1.0)
    assert hurried.components < plan.components
    assert hurried.rows < plan.rows
    assert hurried.work * LOOK_SECONDS < 2.0
    assert plan.within(1e6) == plan


def test_mixtures_do_not_depend_on_the_number_of_threads():
    values, observed = table()
    held = [torch.zeros_like(observed)] * 3
    plan = MixturePlan(3, 3, 100, 4, 4)
    found, threads = [], torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(
            fit_mixtures(
                star([1] * 4, 4), values, observed, held, plan, seed=5, deadline=None, device=CPU
            )
        )
    torch.set_num_threads(threads)
    for first, second in zip(*found, strict=True):
        a, b = (model.infer(values, observed=observed).mean["0"] for model in (first, second))
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_nothing_begins_after_the_deadline():
    values, observed = table()
    held = [torch.zeros_like(observed)] * 2
    past = time.monotonic() - 1.0
    plan = MixturePlan(2, 3, 100, 4, 4)
    options = {"seed": 0, "deadline": past, "device": CPU}
    assert fit_mixtures(star([1] * 4, 4), values, observed, held, plan, **options) == []


def test_held_cells_make_no_difference():
    values, observed = table()
    held = torch.zeros_like(observed)
    held[:30, 1] = observed[:30, 1]
    other = torch.where(held, values + 100.0, values)
    plan = MixturePlan(1, 2, 120, 4, 4)
    options = {"seed": 1, "deadline": None, "device": CPU}
    models = [
        fit_mixtures(star([1] * 4, 4), cells, observed, [held], plan, **options)[0]
        for cells in (values, other)
    ]
    states = [model.state_dict() for model in models]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_column_without_known_cells_shows_one():
    seen = torch.tensor([[True, False], [True, False]])
    assert with_all_columns(seen).tolist() == [[True, True], [True, False]]


def test_results_come_in_the_order_of_the_items():
    assert side_by_side(lambda k: k * k, range(20)) == [k * k for k in range(20)]
