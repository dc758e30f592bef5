"""The compiled passes against a loop written from the formulas, and against closed forms."""

import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import all_masks, by_leaf, graphs, models, perturbed, rows_for

import vfg

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@settings(max_examples=40)
@given(model=models())
@torch.no_grad()
def test_passes_equal_the_formulas_for_every_mask(model):
    masks = all_masks(model.sections.columns)
    table = rows_for(model, masks)
    passes = model(torch.where(masks, table, 0.0), masks)
    place = model.passing.schedule.place
    for b in range(len(masks)):
        cells = torch.where(masks[b], table[b], 0.0)
        row = reference.passes(model, by_leaf(model, cells), by_leaf(model, masks[b]))
        for node, (block, k) in place.items():
            state = passes.forward[block]
            seen = row.o[node]
            assert torch.equal(state.observed[k, b], seen)
            torch.testing.assert_close(state.value[k, b][seen], row.h[node][seen], **CLOSE)
            torch.testing.assert_close(passes.backward[block][k, b], row.hat[node], **CLOSE)
            if node in row.precision:
                expected = row.precision[node]
                if model.graph.node(node).aggregation == "precision":
                    expected = expected.diagonal()
                torch.testing.assert_close(state.precision[k, b], expected, **CLOSE)
                torch.testing.assert_close(state.information[k, b], row.eta[node], **CLOSE)


@settings(max_examples=25)
@given(model=models(), data=st.data())
@torch.no_grad()
def test_latent_evidence_fixes_both_states_as_the_formulas_say(model, data):
    graph = model.graph
    latent = [node for node in graph.nodes if node.name not in graph.leaves]
    node = data.draw(st.sampled_from(latent))
    masks = all_masks(model.sections.columns)
    table = torch.where(masks, rows_for(model, masks), torch.nan)
    generator = torch.Generator().manual_seed(1)
    evidence = torch.randn(len(masks), node.width, generator=generator, dtype=torch.float64)
    evidence[torch.rand(evidence.shape, generator=generator) < 0.4] = torch.nan
    states = model.encode(table, evidence={node.name: evidence})
    for b in range(len(masks)):
        cells = torch.where(masks[b], table[b], 0.0)
        row = reference.passes(
            model,
            by_leaf(model, cells),
            by_leaf(model, masks[b]),
            evidence={node.name: evidence[b]},
        )
        for name in states:
            seen = row.o[name]
            assert torch.equal(states.observed[name][b], seen)
            torch.testing.assert_close(
                states[name][b][seen], row.h[name][seen], rtol=1e-7, atol=1e-7
            )


@settings(max_examples=15)
@given(graph=graphs())
def test_an_edge_is_in_exactly_one_group_and_a_node_in_one_block(graph):
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=1, hidden=2))
    schedule = model.passing.schedule
    edges = [edge for group in schedule.groups for edge in group.edges]
    assert sorted(edge.name for edge in edges) == sorted(edge.name for edge in graph.edges)
    nodes = [node for block in schedule.blocks for node in block.nodes]
    assert sorted(nodes) == sorted(node.name for node in graph.nodes)


def test_siblings_of_equal_shape_are_one_group():
    graph = vfg.Graph.star({f"x{i}": 2 for i in range(64)}, width=8)
    assert len(vfg.VFG(graph).passing.schedule.groups) == 1


# Gaussian and precision messages against the closed form of the linear-Gaussian tree.


def linear_tree(kind, aggregation, seed=0):
    """A 3-layer tree with linear edges and random precisions, in float64."""
    sections = dict.fromkeys("abcd", 2)
    graph = vfg.Graph.tree(sections, arity=2, width=2)
    model = vfg.VFG(graph, flow=vfg.Linear(kind), aggregation=aggregation).double()
    model = perturbed(model, seed)
    generator = torch.Generator().manual_seed(seed)
    for index, group in enumerate(model.passing.schedule.groups):
        stack = model.passing.group(index)
        if kind == "lu":
            size = (len(group.edges), 2, 2)
            matrices = torch.randn(size, generator=generator, dtype=torch.float64)
            matrices = matrices + 2 * torch.eye(2, dtype=torch.float64)
            stack.flow.set_matrix(matrices, torch.randn(size[:2], generator=generator).double())
    return model


def closed_form(model, row, mask):
    """Posterior of every latent node by explicit matrices: root N(μ, I), noise at leaves only.

    Each node is an affine image T r + t of the root; leaf edge (j, i) observes f(x_j) as its
    parent's state with precision Λ_j.
    """
    graph = model.graph
    images = {"root": (torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))}
    for layer in reversed(graph.layers[1:-1]):
        for node in layer:
            (edge,) = graph.edges_from(node)
            stack, k = reference.edge_parts(model, edge)
            matrix = torch.linalg.inv(stack.flow.linear_part()[k])
            shift = reference.apply(model, edge, torch.zeros(2, dtype=torch.float64))
            above, offset = images[edge.parent]
            images[node] = (matrix @ above, matrix @ (offset - shift))
    precision = torch.eye(2, dtype=torch.float64)
    eta = reference.prior_mean(model, "root", None).clone()
    for leaf in graph.leaves:
        (edge,) = graph.edges_from(leaf)
        if not mask[leaf].any():
            continue
        stack, k = reference.edge_parts(model, edge)
        own = stack.precision()[k]
        own = torch.diag(own) if own.ndim == 1 else own
        image, offset = images[edge.parent]
        message = reference.apply(model, edge, row[leaf])
        precision = precision + image.T @ own @ image
        eta = eta + image.T @ own @ (message - offset)
    mean = torch.linalg.solve(precision, eta)
    return {node: image @ mean + offset for node, (image, offset) in images.items()}, precision


@pytest.mark.parametrize(
    ("kind", "aggregation"),
    [("lu", "gaussian"), ("householder", "gaussian"), ("affine", "precision")],
)
@torch.no_grad()
def test_informed_messages_are_the_exact_posterior_of_the_linear_tree(kind, aggregation):
    model = linear_tree(kind, aggregation)
    masks = all_masks(4).repeat_interleave(2, dim=1)
    table = rows_for(model, masks)
    passes = model(torch.where(masks, table, 0.0), masks)
    for b in range(len(masks)):
        means, precision = closed_form(model, by_leaf(model, table[b]), by_leaf(model, masks[b]))
        for node, expected in means.items():
            block, k = model.passing.schedule.place[node]
            torch.testing.assert_close(passes.backward[block][k, b], expected, **CLOSE)
        found = passes.forward[-1].precision[0, b]
        expected = precision if found.ndim == 2 else precision.diagonal()
        torch.testing.assert_close(found, expected, **CLOSE)


@torch.no_grad()
def test_precision_messages_are_exact_through_permutations():
    model = linear_tree("lu", "precision")
    swap = torch.tensor([[0.0, -2.0], [0.5, 0.0]], dtype=torch.float64)
    for index, group in enumerate(model.passing.schedule.groups):
        model.passing.group(index).flow.set_matrix(swap.expand(len(group.edges), 2, 2))
    masks = all_masks(4).repeat_interleave(2, dim=1)
    table = rows_for(model, masks)
    passes = model(torch.where(masks, table, 0.0), masks)
    for b in range(len(masks)):
        means, _ = closed_form(model, by_leaf(model, table[b]), by_leaf(model, masks[b]))
        for node, expected in means.items():
            block, k = model.passing.schedule.place[node]
            torch.testing.assert_close(passes.backward[block][k, b], expected, **CLOSE)


# Lemma 1.


@pytest.mark.parametrize("width", [2, 5])
@pytest.mark.parametrize(("source", "target"), [("a", "b"), ("a", "c"), ("d", "a"), ("e", "a")])
@torch.no_grad()
def test_one_observed_leaf_reaches_another_through_their_common_ancestor(source, target, width):
    sections = {"a": 2, "b": 1, "c": 2, "d": 2, "e": 1}
    graph = vfg.Graph.tree(sections, arity=2, width=width)
    flow = vfg.Coupling(blocks=3, hidden=8)
    model = perturbed(vfg.VFG(graph, flow=flow, aggregation="mean").double(), 3)
    x = torch.randn(7, sections[source], generator=torch.Generator().manual_seed(0)).double()
    filled = model.decode(model.encode({source: x}))[target]
    ancestor = graph.common_ancestor(source, target)
    for b in range(len(x)):
        state = x[b]
        for edge in graph.path(source, ancestor):
            state = reference.apply(model, edge, state)
        for edge in reversed(graph.path(target, ancestor)):
            state = reference.invert(model, edge, state)
        torch.testing.assert_close(filled[b], state, **CLOSE)


# The DAG of the appendix, by hand.


@torch.no_grad()
def test_the_dag_of_the_appendix_by_hand():
    names = "1234567"
    edges = [
        ("1", "4"),
        ("2", "4"),
        ("2", "5"),
        ("3", "5"),
        ("4", "6"),
        ("5", "6"),
        ("5", "7"),
        ("6", "7"),
    ]
    graph = vfg.Graph.from_edges(edges, widths=dict.fromkeys(names, 1))
    assert graph.layers == (("1", "2", "3"), ("4", "5"), ("6",), ("7",))
    model = vfg.VFG(graph, flow=vfg.Linear("affine"), aggregation="mean").double()
    slope = {}
    for index, group in enumerate(model.passing.schedule.groups):
        for k, edge in enumerate(group.edges):
            slope[edge.child + edge.parent] = 1.0 + 0.25 * edges.index((edge.child, edge.parent))
            model.passing.group(index).flow.log_scale[k] = math.log(slope[edge.child + edge.parent])
    x1, x2, x3 = 1.0, -2.0, 0.5
    h4 = (slope["14"] * x1 + slope["24"] * x2) / 2
    h5 = (slope["25"] * x2 + slope["35"] * x3) / 2
    h6 = (slope["46"] * h4 + slope["56"] * h5) / 2
    h7 = (slope["57"] * h5 + slope["67"] * h6) / 2
    b6 = h7 / slope["67"]
    b5 = (h7 / slope["57"] + b6 / slope["56"]) / 2
    b4 = b6 / slope["46"]
    b1, b2, b3 = b4 / slope["14"], (b4 / slope["24"] + b5 / slope["25"]) / 2, b5 / slope["35"]
    table = torch.tensor([[x1, x2, x3]], dtype=torch.float64)
    states = model.encode(table)
    assert [states[n].item() for n in "4567"] == pytest.approx([h4, h5, h6, h7], abs=1e-12)
    assert model.reconstruct(table)[0].tolist() == pytest.approx([b1, b2, b3], abs=1e-12)
    objective = model.surrogate(table)
    assert objective.kl["4"].item() == pytest.approx(abs(h4 - b6 / slope["46"]))
    assert objective.kl["5"].item() == pytest.approx(
        0.5 * abs(h5 - h7 / slope["57"]) + 0.5 * abs(h5 - b6 / slope["56"])
    )
    assert objective.kl["6"].item() == pytest.approx(abs(h6 - h7 / slope["67"]))
    assert objective.edge["2->5"].item() == pytest.approx(abs(slope["25"] * x2 - b5))
    # 3 inner nodes and 8 edges with log 2 each, and a Normal root.
    expected = 11 * torch.tensor(2.0).log() + 0.5 * torch.tensor(2 * torch.pi).log()
    assert objective.constants.item() == pytest.approx(expected.item())


# Building blocks that only some graphs reach.


@torch.no_grad()
def test_backward_prefers_parents_with_evidence_beneath_their_roots():
    edges = [("a", "r"), ("b", "r"), ("b", "s"), ("c", "s")]
    graph = vfg.Graph.from_edges(edges, widths=1)
    model = perturbed(vfg.VFG(graph, flow=vfg.Linear("affine")).double(), 0)
    nan = float("nan")
    table = torch.tensor([[1.0, nan, nan], [nan, nan, nan]], dtype=torch.float64)
    filled = model.reconstruct(table)
    alone = model.decode({"r": model.encode(table)["r"][:1]})
    prior = model.decode(dict.fromkeys("rs", torch.full((1, 1), nan, dtype=torch.float64)))
    edge = graph.edges_from("b")[0]
    expected = reference.invert(model, edge, model.encode(table)["r"][0])
    assert filled[0, 1].item() == pytest.approx(expected.item(), abs=1e-12)
    assert filled[1].tolist() == pytest.approx([prior[leaf].item() for leaf in "abc"], abs=1e-12)
    assert alone["a"].item() == pytest.approx(filled[0, 0].item(), abs=1e-12)


def test_a_section_wider_than_its_parent_is_refused_with_a_remedy():
    graph = vfg.Graph.star({"wide": 5, "narrow": 1}, width=3)
    with pytest.raises(ValueError, match=r"'wide' of width 5.*'root'.*Graph.cover"):
        vfg.VFG(graph)


def test_concatenation_needs_the_sum_of_the_widths():
    graph = vfg.Graph.star({"a": 2, "b": 1}, width=4)
    with pytest.raises(ValueError, match=r"'root' concatenates .*\[2, 1\].*width 3.*width 4"):
        vfg.VFG(graph, aggregation="concatenation")


def test_concatenation_puts_children_side_by_side():
    graph = vfg.Graph.star({"a": 2, "b": 1}, width=3)
    model = vfg.VFG(graph, aggregation="concatenation")
    table = torch.tensor([[1.0, 2.0, 3.0]])
    torch.testing.assert_close(model.encode(table)["root"], table)
    torch.testing.assert_close(model.reconstruct(table), table)
