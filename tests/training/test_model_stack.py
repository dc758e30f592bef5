"""Stacked models compute what their members compute, bit for bit."""

import pytest
import torch
from strategies import perturbed

import vfg
from vfg.training.model_stack import forest, repeat_columns, stack_models, unstack_models

GRAPHS = {
    "star": vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=3),
    "mixed widths": vfg.Graph.star({"a": 2, "b": 1, "c": 2, "d": 1}, width=4),
    "named positions": vfg.Graph.star(
        [vfg.Node("a", 2, (3, 0)), vfg.Node("b", 2, (1, 2))], width=3
    ),
    "tree": vfg.Graph.tree({"a": 1, "b": 1, "c": 1, "d": 1}, arity=2, width=2),
}


def members_on(graph, count=3):
    """Bent members that started from linear models of different tables."""
    members = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        columns = sum(graph.sections.values())
        table = torch.randn(60, columns, generator=generator, dtype=torch.float64)
        linear = vfg.GaussianVFG(graph, inner_noise=False, seed=seed)
        mixed = table @ torch.randn(columns, columns, generator=generator).double()
        linear.fit(mixed, iterations=3, finish="none")
        flow = vfg.Coupling(blocks=2, hidden=8, layers=1)
        member = vfg.VFG.from_gaussian(linear, flow=flow, seed=seed).float()
        members.append(perturbed(member, seed, size=0.05).eval())
    return members


def table_with_gaps(graph, rows=40):
    """A table from which whole sections are missing."""
    generator = torch.Generator().manual_seed(5)
    columns = [node.columns or () for node in map(graph.node, graph.leaves)]
    places = [k for found in columns for k in found] or range(sum(graph.sections.values()))
    table = torch.randn(rows, len(places), generator=generator, dtype=torch.float64)
    widths = torch.tensor(list(graph.sections.values()))
    seen = torch.zeros(table.shape, dtype=torch.bool)
    drawn = torch.rand(rows, len(widths), generator=generator) < 0.6
    seen[:, list(places)] = drawn.repeat_interleave(widths, dim=1)
    return table, seen


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_stacked_model_equals_its_members_bit_for_bit(graph):
    members = members_on(graph)
    table, seen = table_with_gaps(graph)
    whole = stack_models(members).infer(repeat_columns(table, 3), observed=repeat_columns(seen, 3))
    for place, member in enumerate(members):
        own = member.infer(table, observed=seen)
        for leaf in graph.leaves:
            assert torch.equal(whole.mean[f"{place}/{leaf}"], own.mean[leaf])


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_unstack_inverts_stacked(graph):
    members, others = members_on(graph), members_on(graph)
    before = [member.state_dict() for member in members]
    model = stack_models(members)
    for other in others:
        perturbed(other, 9)
    unstack_models(model, others)
    for state, other in zip(before, others, strict=True):
        after = other.state_dict()
        for name, tensor in state.items():
            if not name.startswith("spread."):
                assert torch.equal(tensor, after[name]), name


def test_what_is_trained_in_a_stack_reaches_the_members():
    members = members_on(GRAPHS["star"])
    model = perturbed(stack_models(members), 3)
    unstack_models(model, members)
    table, seen = table_with_gaps(GRAPHS["star"])
    whole = model.infer(repeat_columns(table, 3), observed=repeat_columns(seen, 3)).mean["2/b"]
    assert torch.equal(whole, members[2].infer(table, observed=seen).mean["b"])


def test_one_member_is_a_stack_too():
    (member,) = members_on(GRAPHS["star"], 1)
    table, seen = table_with_gaps(GRAPHS["star"])
    whole = stack_models([member]).infer(table, observed=seen).mean["0/a"]
    assert torch.equal(whole, member.infer(table, observed=seen).mean["a"])


def test_members_keep_their_dtype():
    assert {p.dtype for p in stack_models(members_on(GRAPHS["star"])).parameters()} == {
        torch.float32
    }


def test_a_forest_has_separate_copies_with_shifted_columns():
    graph = forest(GRAPHS["named positions"], 2)
    assert graph.leaves == ("0/a", "0/b", "1/a", "1/b")
    assert graph.node("1/a").columns == (7, 4)
    assert graph.roots == ("0/root", "1/root")
    assert len(graph.edges) == 4


def test_tiled_tables_stand_side_by_side():
    table = torch.arange(6.0).view(2, 3)
    assert torch.equal(repeat_columns(table, 2), torch.cat([table, table], dim=1))
