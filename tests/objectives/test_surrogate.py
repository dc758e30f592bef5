"""The surrogate, term by term, against the formulas; consistency where it must vanish."""

import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import all_masks, by_leaf, models, perturbed, rows_for

import vfg

CLOSE = {"rtol": 1e-9, "atol": 1e-10}


@settings(max_examples=40)
@given(model=models(), data=st.data())
@torch.no_grad()
def test_every_term_equals_its_formula_for_every_mask(model, data):
    masks = all_masks(model.sections.columns)
    table = rows_for(model, masks)
    labelled = model.prior_spec.name == "per_label" and data.draw(st.booleans())
    labels = torch.arange(len(masks)) % 4 - 1 if labelled else None
    objective = model.surrogate(torch.where(masks, table, torch.nan), labels=labels, beta=0.3)
    for b in range(len(masks)):
        cells = by_leaf(model, torch.where(masks[b], table[b], 0.0))
        seen = by_leaf(model, masks[b])
        label = None if labels is None else int(labels[b])
        row = reference.passes(model, cells, seen, label)
        terms = reference.surrogate(model, row, cells, seen, label)
        for kind in ("reconstruction", "kl", "edge"):
            found = getattr(objective, kind)
            assert sorted(found) == sorted(terms[kind])
            for name, expected in terms[kind].items():
                torch.testing.assert_close(found[name][b], expected, **CLOSE)
        torch.testing.assert_close(objective.root[b], torch.as_tensor(terms["root"]), **CLOSE)
        torch.testing.assert_close(
            objective.constants[b], torch.as_tensor(terms["constants"]), **CLOSE
        )
        total = sum(terms["reconstruction"].values()) - 0.3 * (
            sum(terms["kl"].values())
            + sum(terms["edge"].values())
            - terms["root"]
            + terms["constants"]
        )
        torch.testing.assert_close(objective.total[b], torch.as_tensor(total), **CLOSE)


def test_the_image_tree_has_nine_constants_of_its_width():
    graph = vfg.Graph.blocks(28, 28, rows=2, columns=2, arity=2)
    model = vfg.VFG(
        graph, flow=vfg.Coupling(blocks=1, hidden=4), likelihood="bernoulli", prior="laplace"
    )
    objective = model.surrogate(torch.zeros(2, 784), beta=0.1)
    assert objective.constants.tolist() == pytest.approx([9 * 196 * math.log(2)] * 2, rel=1e-5)


def test_hidden_cells_are_scored_without_being_seen():
    model = perturbed(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2)).double(), 0)
    cells = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    seen, hidden = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    one = model.objective(cells, seen, hidden, None, 1.0)
    other = model.objective(cells * torch.tensor([1.0, 5.0]), seen, hidden, None, 1.0)
    assert one.reconstruction["a"].item() == 0.0
    assert one.reconstruction["b"].item() != other.reconstruction["b"].item()
    assert one.root.item() == other.root.item()


def test_an_empty_row_has_no_terms():
    model = perturbed(vfg.VFG(vfg.Graph.tree({"a": 1, "b": 2, "c": 1}, width=3)).double(), 0)
    objective = model.surrogate(torch.full((1, 4), torch.nan, dtype=torch.float64))
    assert objective.total.item() == 0.0
    assert objective.constants.item() == 0.0


# Consistency.


@pytest.mark.parametrize("width", [2, 6])
@torch.no_grad()
def test_every_distance_vanishes_on_a_model_built_to_be_consistent(width):
    """Leaves that the model itself generates from one root agree wherever messages meet."""
    sections = {"a": 2, "b": 2, "c": 2, "d": 2, "e": 2}
    graph = vfg.Graph.tree(sections, arity=2, width=width)
    model = perturbed(
        vfg.VFG(graph, flow=vfg.Coupling(2, hidden=8), aggregation="mean").double(), 1
    )
    if width > 2:
        # Without lifting constants of its own, a leaf's image is not the whole space: take
        # states of the wide space that the leaves' images share.
        for index in range(len(model.passing.schedule.groups)):
            stack = model.passing.group(index)
            for layer in stack.flow.flows:
                for parameter in layer.parameters():
                    parameter.copy_(parameter[:1].expand_as(parameter))
            if stack.lifting is not None:
                stack.lifting.constants.copy_(
                    stack.lifting.constants[:1].expand_as(stack.lifting.constants)
                )
        x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()
        table = x.repeat(1, 4)
        graph = vfg.Graph.star(dict.fromkeys("abcd", 2), width=width)
        other = vfg.VFG(graph, flow=vfg.Coupling(2, hidden=8), aggregation="mean").double()
        other = perturbed(other, 1)
        stack = other.passing.group(0)
        for parameter in stack.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
        model = other
    else:
        root = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()
        made = model.decode({"root": root})
        table = torch.cat([made[leaf] for leaf in sections], dim=1)
    found = model.consistency(table)
    for node, distance in found.items():
        assert distance.abs().max() < 1e-12, node
    objective = model.surrogate(table)
    assert objective.kl.sum().abs().max() < 1e-10
    assert objective.edge.sum().abs().max() < 1e-10
    torch.testing.assert_close(model.reconstruct(table), table, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_consistency_sees_a_disagreement_where_it_is():
    graph = vfg.Graph.tree({"a": 1, "b": 1, "c": 1, "d": 1}, arity=2, width=1)
    model = vfg.VFG(graph, flow=vfg.Linear("affine"), aggregation="mean").double()
    table = torch.tensor([[1.0, 3.0, 2.0, 2.0]], dtype=torch.float64)
    found = model.consistency(table)
    assert found["a"].item() == pytest.approx(1.0)
    assert found["c"].item() == pytest.approx(0.0)
    assert found["node1_1"].item() == pytest.approx(2 / 3)  # two edges off by 1, its parent agrees
    assert found["root"].item() == pytest.approx(0.0)


def test_terms_name_what_exists():
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
    with pytest.raises(KeyError, match=r"no term 'c'; the terms are a, b"):
        model.surrogate(torch.zeros(1, 2)).reconstruction["c"]
    assert "constants=" in repr(model.surrogate(torch.zeros(1, 2)))
