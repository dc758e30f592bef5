"""Plans: what is given is kept, the rest follows from the table's shape."""

import itertools

import numpy as np
import pytest

import vfg
from vfg.imputation.plan import WORK, Plan, make_plan
from vfg.sklearn import VFGImputer

SHAPES = [(20, 2), (500, 8), (1_500, 60), (20_000, 10), (1_000_000, 8), (400, 1_000)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_given_sizes_are_kept(rows, columns):
    flow = vfg.Coupling(blocks=1, hidden=4)
    plan = make_plan(rows, columns, members=3, width=5, flow=flow, steps=7)
    assert (plan.members, plan.width, plan.flow, plan.steps) == (3, 5, flow, 7)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_planned_sizes_are_valid(rows, columns):
    plan = make_plan(rows, columns)
    assert isinstance(plan, Plan)
    assert min(plan.members, plan.width, plan.steps, plan.batch) >= 1
    assert plan.batch <= rows
    assert 0.0 < plan.held_out < 0.5


def test_larger_tables_get_fewer_members():
    members = [make_plan(rows, 8, effort="best").members for rows in (500, 10_000, 1_000_000)]
    assert members == sorted(members, reverse=True)
    assert members[0] > members[-1]


def test_more_columns_get_wider_roots_up_to_a_limit():
    widths = [make_plan(1000, columns).width for columns in (2, 20, 200, 2000)]
    assert widths == sorted(widths)
    assert widths[-1] == widths[-2]


def test_the_columns_of_wide_tables_share_their_conditioner_unless_there_are_more_members():
    assert make_plan(1000, 1000).flow.shared > 0
    assert make_plan(1000, 1000, members=2).flow.shared == 0
    assert make_plan(1000, 100).flow.shared == 0


def test_wide_small_tables_learn_for_fewer_steps_not_for_longer():
    narrow, wide = (make_plan(200, columns, effort="best") for columns in (15, 30))
    assert wide.members == narrow.members == 2
    assert wide.steps < narrow.steps
    assert wide.members * 30 * wide.batch * wide.steps <= WORK


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_less_effort_fits_no_more_parts_and_trains_no_longer(rows, columns):
    plans = [make_plan(rows, columns, effort=effort) for effort in ("fast", "balanced", "best")]
    sizes = [(p.members, p.steps, p.mixtures.number, p.neighbours.number) for p in plans]
    for less, more in itertools.pairwise(sizes):
        assert all(small <= large for small, large in zip(less, more, strict=True))
    assert plans[1].more_steps in (0, plans[2].steps)


def test_fast_fits_have_members_only_where_there_is_nothing_else():
    assert make_plan(500, 8, effort="fast").members == 0
    assert make_plan(500, 8, effort="fast", members=1).members == 1
    widest = make_plan(500, 400, effort="fast")
    assert (widest.members, widest.mixtures.number, widest.neighbours.number) == (1, 0, 0)


@pytest.mark.parametrize("effort", ["fast", "balanced", "best"])
def test_given_counts_take_precedence_over_the_effort(effort):
    plan = make_plan(500, 8, effort=effort, members=5, mixtures=9, neighbours=7, steps=300)
    assert (plan.members, plan.steps, plan.more_steps) == (5, 300, 0)
    assert (plan.mixtures.number, plan.neighbours.number) == (9, 7)


def test_tables_with_very_many_columns_are_refused(monkeypatch):
    monkeypatch.setattr("vfg.imputation.plan.MOST_FITTED", 3)
    table = np.arange(20.0).reshape(5, 4)
    with pytest.raises(ValueError, match=r"has 4 encoded .* at most 3 are .*VFG_MOST_COLUMNS"):
        VFGImputer(bend=False).fit(table)
    monkeypatch.setenv("VFG_MOST_COLUMNS", "4")
    VFGImputer(bend=False).fit(table)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_there_are_as_many_sets_of_held_out_cells_as_members(members):
    assert make_plan(500, 8, members=members).sets == members
    assert make_plan(500, 8, members=members, mixtures=0).sets == members


def test_small_tables_with_categories_have_a_set_of_held_out_cells_per_mixture():
    plan = make_plan(500, 8, categories=True)
    assert (plan.members, plan.mixtures.number, plan.sets) == (2, 4, 4)
    assert make_plan(500, 8, categories=True, mixtures=3).sets == 3
    assert make_plan(500, 8, effort="fast", categories=True).sets == 2
    assert make_plan(500, 8, categories=True, members=2).sets == 2, "members are always trained"
    assert make_plan(5000, 8, categories=True).sets == make_plan(500, 8).sets == 2
