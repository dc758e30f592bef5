"""Spreading and collecting against a loop, for every way in which edges can meet nodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vfg
from vfg.passing import incidence as rows
from vfg.passing.incidence import STEP, Incidence, choose_rows


@given(data=st.data(), nodes=st.integers(1, 5))
def test_spread_and_collect_equal_a_loop(data, nodes):
    rows = tuple(data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=8)))
    ends = Incidence(rows, nodes)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(nodes, 3, 2, generator=generator)
    messages = torch.randn(len(rows), 3, 2, generator=generator)
    assert torch.equal(ends.spread(states), torch.stack([states[row] for row in rows]))
    expected = torch.zeros(nodes, 3, 2)
    for message, row in zip(messages, rows, strict=True):
        expected[row] += message
    torch.testing.assert_close(ends.collect(messages), expected)
    weights, constants = torch.rand(len(rows), 3), torch.rand(len(rows), 4)
    expected = torch.zeros(nodes, 3, 4)
    for k, row in enumerate(rows):
        expected[row] += weights[k][:, None] * constants[k]
    torch.testing.assert_close(ends.collect_weighted(weights, constants), expected)


@pytest.mark.parametrize(
    ("rows", "nodes", "aligned", "regular"),
    [
        ((0, 1, 2), 3, True, True),
        ((0, 0, 0), 1, False, True),
        ((0, 0, 1, 1), 2, False, True),
        ((0, 1, 1), 2, False, False),
        ((1, 0), 2, False, False),
    ],
)
def test_the_common_cases_need_no_index(rows, nodes, aligned, regular):
    ends = Incidence(rows, nodes)
    assert (ends.is_aligned, ends.is_regular) == (aligned, regular)


def test_a_broken_message_stays_at_its_own_node():
    ends = Incidence((0, 2, 2), nodes=3)
    collected = ends.collect(torch.tensor([[torch.inf], [1.0], [2.0]]))
    assert collected[1:].flatten().tolist() == [0.0, 3.0]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_chosen_rows_hold_everything_wanted(share: float) -> None:
    wanted = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) < share
    found = choose_rows(wanted)
    assert found is not None
    chosen = torch.zeros(5 * 64, dtype=torch.bool)
    chosen[found.positions] = True
    assert chosen.view(5, 64)[wanted].all()
    assert len(found.positions) == len(set(found.positions.tolist()))
    assert len(found.positions) // 5 % STEP == 0


def test_nothing_is_chosen_where_nearly_all_is_wanted() -> None:
    assert choose_rows(torch.ones(2, 64, dtype=torch.bool)) is None


def test_place_undoes_select_and_leaves_zeros() -> None:
    wanted = torch.zeros(3, 40, dtype=torch.bool)
    wanted[0, :3] = wanted[2, 30:] = True
    found = choose_rows(wanted)
    assert found is not None
    states = torch.randn(3, 40, 2, generator=torch.Generator().manual_seed(0)) + 9.0
    back = found.place(found.select(states))
    assert torch.equal(back[wanted], states[wanted])
    assert set((back != 0).any(-1).sum(1).tolist()) == {16}


def test_gradients_of_both_directions_are_those_of_the_map() -> None:
    wanted = torch.rand(2, 30, generator=torch.Generator().manual_seed(1)) < 0.3
    found = choose_rows(wanted)
    assert found is not None
    states = torch.randn(2, 30, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(found.select, states)
    few = found.select(states).detach().requires_grad_()
    assert torch.autograd.gradcheck(found.place, few)


@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
@pytest.mark.parametrize("shape", ["star", "tree", "network"])
def test_objective_and_gradients_do_not_depend_on_what_is_spared(
    shape: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = {
        "star": vfg.Graph.star({"a": 1, "b": 2, "c": 1}, width=4),
        "tree": vfg.Graph.tree({"a": 2, "b": 2, "c": 2, "d": 2}, arity=2, width=3),
        "network": vfg.Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("a", "b")]),
    }[shape]
    model = vfg.VFG(graph, aggregation=aggregation, seed=1).double()
    columns = sum(graph.sections.values())
    generator = torch.Generator().manual_seed(0)
    cells = torch.randn(64, columns, dtype=torch.float64, generator=generator)
    seen = torch.rand(64, columns, generator=generator) < 0.3
    scored = torch.rand(64, columns, generator=generator) < 0.3

    def found() -> list[torch.Tensor]:
        model.zero_grad()
        total = model.objective(cells, seen, scored, None, 0.5).total
        total.sum().backward()
        return [total.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    spared = found()
    monkeypatch.setattr(rows, "WORTH", 0.0)
    whole = found()
    for few, all_ in zip(spared, whole, strict=True):
        torch.testing.assert_close(few, all_, rtol=1e-9, atol=1e-9)
