"""The linear model and its nonlinear members."""

import numpy as np
import pytest
import torch

import vfg
from vfg.imputation.fitting import MatrixFit, _hold_out_sections, fit_members
from vfg.imputation.held_out import _means_without_own_row
from vfg.imputation.mixtures import fit_linear, star
from vfg.imputation.parts import member_means
from vfg.imputation.plan import MixturePlan, NeighbourPlan, Plan
from vfg.imputation.resources import Resources, Turn
from vfg.training.model_stack import stack_models

ORDERED = torch.zeros(3, dtype=torch.bool)


def matrix(rows=120, columns=3, seed=0, share=0.2):
    """Standardised correlated columns, 0 where they are not observed."""
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    values = factor + 0.5 * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    values = (values - values.mean(0)) / values.std(0)
    observed = torch.rand(rows, columns, generator=generator) >= share
    return torch.where(observed, values, 0.0), observed


def plan(**changes):
    flow = vfg.Coupling(blocks=1, hidden=4, layers=1)
    settings = {"members": 2, "width": 4, "flow": flow, "steps": 2, "batch": 32} | changes
    return Plan(**settings)


def trained(values, observed, graph=None, seed=3, budget=None, **changes):
    parts = fit_members(
        star([1] * values.shape[1], 4) if graph is None else graph,
        values,
        observed,
        plan(**changes),
        seed=seed,
        resources=Resources(budget),
        device=torch.device("cpu"),
    )
    return parts, parts.combination


def test_the_linear_model_finds_the_correlations():
    values, observed = matrix(rows=2000)
    model = fit_linear(star([1, 1, 1], 4), values, observed, seed=0)
    found = model.infer([[1.0, float("nan"), 1.0]]).mean["1"]
    # Correlations of 0.8 between all three: the regression on two of them.
    expected = 2 * 0.8 / (1 + 0.8)
    assert found.item() == pytest.approx(expected, abs=0.05)


def test_a_column_without_entries_is_its_mean():
    values, observed = matrix()
    observed[:, 1], values[:, 1] = False, 0.0
    model = fit_linear(star([1, 1, 1], 4), values, observed, seed=0)
    assert model.infer([[1.0, float("nan"), 1.0]]).mean["1"].item() == pytest.approx(0.0, abs=0.1)


def test_very_long_tables_are_fitted_to_some_rows(monkeypatch):
    monkeypatch.setattr("vfg.imputation.mixtures.START_ROWS", 50)
    values, observed = matrix(rows=400)
    graph = star([1, 1, 1], 4)
    some, others = (fit_linear(graph, values, observed, seed=seed) for seed in (0, 1))
    again = fit_linear(graph, values, observed, seed=0)
    assert torch.equal(some.linear.loadings, again.linear.loadings)
    assert not torch.allclose(some.log_prob(values), others.log_prob(values), atol=1e-3)


def test_held_out_cells_are_whole_sections_and_leave_something_of_every_column():
    graph = star([2, 1], 4)
    observed = torch.ones(200, 3, dtype=torch.bool)
    observed[5:, 2] = False
    held = _hold_out_sections(graph, observed, 0.5, seed=0)
    assert torch.equal(held[1:, 0], held[1:, 1])
    assert 0.35 < held[:, 0].double().mean() < 0.65
    assert not bool((held & ~observed).any())
    assert bool((observed & ~_hold_out_sections(graph, observed, 1.0, seed=0)).any(0).all())


def test_members_differ_and_the_seed_decides_how():
    values, observed = matrix(rows=40)
    parts, again = (trained(values, observed)[0] for _ in range(2))
    one, two = (torch.cat([p.flatten() for p in m.parameters()]) for m in parts.members)
    assert not torch.equal(one, two)
    assert torch.equal(one, torch.cat([p.flatten() for p in again.members[0].parameters()]))


def test_training_draws_from_no_global_generator(untouched_generators):
    trained(*matrix())


def test_member_means_are_those_of_the_members():
    values, observed = matrix()
    members = trained(values, observed)[0].members
    found = member_means(stack_models(members), 2, values, observed)
    for place, member in enumerate(members):
        own = torch.cat(list(member.infer(values, observed=observed).mean.values()), dim=1)
        known = observed.any(1)
        assert torch.equal(found[place][known], own[known].double())
        # Without evidence `infer` starts from where training left the roots.
        torch.testing.assert_close(found[place][~known], own[~known].double(), atol=0.01, rtol=0)


def test_trees_of_latent_nodes_get_nonlinear_members():
    values, observed = matrix(columns=4)
    tree = vfg.Graph.tree({str(k): 1 for k in range(4)}, arity=2, width=3)
    members = trained(values, observed, graph=tree)[0].members
    assert members[0].infer(values, observed=observed).mean["2"].isfinite().all()


def test_a_section_without_any_evidence_does_no_harm():
    values, observed = matrix(columns=4)
    values[:, 1], observed[:, 1] = 0.0, False
    parts, combination = trained(values, observed)
    assert parts.members[0].infer(values, observed=observed).mean["0"].isfinite().all()
    assert combination.draws.spread.isfinite().all()


def test_neighbours_take_part_of_a_budget():
    values, observed = matrix(rows=3000)
    sizes = NeighbourPlan(2, 3000, 3)
    clocks = Resources(None), Resources(2.0)
    clocks[1].left = lambda part: 0.2  # whatever the machine
    clocks[1].turn = lambda part, show=None: Turn(None, show)
    table, sized = (star([1] * 3, 3), values, observed, ORDERED, None), plan(neighbours=sizes)
    free, under_budget = (
        MatrixFit(*table, sized, 0, clock).fit_row_mixtures([]) for clock in clocks
    )
    assert [len(near.centres) for near in free] == [3000, 3000]
    assert [len(near.centres) for near in under_budget] == [sizes.within(0.2).components] * 2
    assert sizes.within(0.2).components < 1500


def test_row_mixtures_do_not_use_held_out_cells():
    """Held-out cells of a row do not change how they are predicted."""
    values, observed = matrix(rows=60)
    parts, _ = trained(values, observed, neighbours=NeighbourPlan(2, 60, 3))
    held = _hold_out_sections(star([1] * 3, 4), observed, 0.3, seed=0)
    row = held.any(1).nonzero()[3]
    other = values.clone()
    other[row] = torch.where(held[row], values[row] + 0.5, values[row])
    shown = (observed & ~held)[row]
    found = []
    for cells in (values, other):
        near = parts.neighbours[0].without(cells, observed, held)
        found.append(_means_without_own_row(near, cells[row], shown, row, 60))
    assert all(
        torch.equal(a[~shown], b[~shown])
        for a, b in zip(*(pair[:2] for pair in found), strict=True)
    )


@pytest.mark.slow
def test_nonlinear_members_learn_what_no_linear_model_can():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(800, 1, generator=generator, dtype=torch.float64)
    values = torch.cat([x, x.square(), x + 0.1 * torch.randn(800, 1, generator=generator)], dim=1)
    values = (values - values.mean(0)) / values.std(0)
    observed = torch.rand(values.shape, generator=generator) >= 0.2
    members = trained(
        torch.where(observed, values, 0.0),
        observed,
        steps=400,
        flow=vfg.Coupling(blocks=2, hidden=32, layers=1),
        batch=128,
    )[0].members
    asked = torch.tensor([[True, False, True]]).expand(len(values), 3)
    guess = member_means(stack_models(members), 2, values, asked).mean(0)[:, 1]
    assert (guess - values[:, 1]).square().mean() < 0.3


def test_members_with_much_weight_are_trained_further(monkeypatch):
    values, observed = matrix()
    for least, epochs in ((0.0, 4), (2.0, 1)):
        monkeypatch.setattr("vfg.imputation.fitting.EXTENDED_WEIGHT", least)
        parts, _ = trained(values, observed, steps=25, more_steps=100)
        assert len(parts.history) == epochs


def test_members_are_trained_where_a_step_to_the_linear_model_pays(monkeypatch):
    values, observed = matrix()
    sizes = {"mixtures": MixturePlan(2, 2, 100, 4, 3), "steps": 2}
    for least, members in ((0.0, 2), (1.1, 0)):
        monkeypatch.setattr("vfg.imputation.fitting.LEAST_GAIN", least)
        parts, _ = trained(values, observed, adaptive=True, **sizes)
        assert len(parts.members) == members
        assert parts.combination.error is not None
        assert len(trained(values, observed, **sizes)[0].members) == 2, "as the plan says"


def test_members_that_do_not_calibrate_copy_the_first():
    values, observed = matrix()
    parts, _ = trained(values, observed, calibrated=1)
    first, second = (member.spread.state_dict() for member in parts.members)
    assert all(torch.equal(first[name], second[name]) for name in first)
    parts, _ = trained(values, observed)
    first, second = (member.spread.state_dict() for member in parts.members)
    assert not all(torch.equal(first[name], second[name]) for name in first)


def test_copies_of_a_cell_are_held_out_together():
    observed = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) < 0.8
    copies = torch.arange(60) % 20
    held = _hold_out_sections(star([1] * 3, 4), observed, 0.5, seed=0, copies=copies)
    first = observed.int().argmax(0).tolist()
    assert held.any()
    for row in range(60):
        for column in range(3):
            alike = held[copies == copies[row], column] | ~observed[copies == copies[row], column]
            if held[row, column] and row % 20 not in [place % 20 for place in first]:
                assert alike.all()


def test_intervals_of_new_rows_hold_although_the_table_has_every_row_three_times():
    generator = np.random.default_rng(0)

    def draw(rows):
        cause = generator.normal(size=(rows, 1))
        return np.hstack([cause, cause + generator.normal(size=(rows, 2))])

    table = np.tile(draw(100), (3, 1))
    table[generator.random(table.shape) < 0.15] = np.nan
    new = draw(400)
    hidden = np.where(generator.random(new.shape) < 0.3, np.nan, new)
    model = vfg.TableModel(seed=0, members=1, steps=20, mixtures=1, neighbours=2)
    model.fit(table)
    answer = model.infer(hidden)
    low, high = (np.stack(list(ends.values()), axis=1) for ends in answer.interval(0.9))
    missing = np.isnan(hidden)
    assert 0.83 < ((low <= new) & (new <= high))[missing].mean() < 0.97
