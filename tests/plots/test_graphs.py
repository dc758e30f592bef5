"""Drawings of graphs: what is marked, written and connected."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vfg
from vfg import plots
from vfg.plots import positions

DAG = vfg.Graph(
    [vfg.Node("a", 2), vfg.Node("b", 2), vfg.Node("h", 2, aggregation="mean"), vfg.Node("r", 2)],
    [vfg.Edge("a", "h"), vfg.Edge("b", "h"), vfg.Edge("h", "r", kind="identity")],
)
WIDE = vfg.Graph.tree({f"x{k}": 1 for k in range(200)}, arity=5)


def collection(ax, kind):
    return next(part for part in ax.collections if part.get_gid() == kind)


def spots(ax, kind):
    return {tuple(map(float, spot)) for spot in collection(ax, kind).get_offsets()}


@pytest.mark.parametrize("graph", [DAG, WIDE, vfg.Graph.star({"a": 1, "b": 1, "c": 1})])
def test_every_node_is_drawn_once_at_its_position(graph):
    ax = plots.graph(graph)
    kinds = ("leaf", "latent", "aggregation")
    drawn = [
        tuple(map(float, spot))
        for part in ax.collections
        if part.get_gid() in kinds
        for spot in part.get_offsets()
    ]
    assert sorted(drawn) == sorted(plots.positions(graph).values())


def test_leaves_aggregation_nodes_and_others_are_told_apart():
    ax, places = plots.graph(DAG), plots.positions(DAG)
    assert spots(ax, "leaf") == {places["a"], places["b"]}
    assert spots(ax, "aggregation") == spots(ax, "plus") == {places["h"]}
    assert spots(ax, "latent") == {places["r"]}


def test_flows_and_identities_are_lines_between_child_and_parent():
    ax, places = plots.graph(DAG), plots.positions(DAG)
    flows = [np.array(line).tolist() for line in collection(ax, "flow").get_segments()]
    assert flows == [[list(places[c]), list(places["h"])] for c in "ab"]
    assert len(collection(ax, "identity").get_segments()) == 1
    assert collection(ax, "identity").get_linestyle() != collection(ax, "flow").get_linestyle()


def test_labels_name_width_and_aggregation():
    texts = [text.get_text() for text in plots.graph(DAG).texts]
    assert sorted(texts) == ["a (2)", "b (2)", "h (2), mean", "r (2)"]


def test_evidence_and_targets_differ():
    ax, places = plots.graph(DAG, observed=["a", "r"]), plots.positions(DAG)
    assert spots(ax, "evidence") == {places["a"]}
    assert spots(ax, "target") == {places["b"]}
    assert spots(ax, "latent, evidence") == {places["r"]}


def test_two_hundred_leaves_are_counted_instead_of_named_and_do_not_touch():
    ax = plots.graph(WIDE)
    texts = [text.get_text() for text in ax.texts]
    assert "200 leaves" in texts
    assert not any(text.startswith("x1") for text in texts)
    left, right = ax.get_xlim()
    room = 72 * ax.figure.get_size_inches()[0] / (right - left)
    assert max(collection(ax, "leaf").get_sizes()) ** 0.5 < room


def test_crowded_leaves_have_upright_labels_inside_the_picture():
    graph = vfg.Graph.star({f"a column called {k}": 1 for k in range(24)})
    ax = plots.graph(graph)
    ax.figure.draw_without_rendering()
    leaves = [text for text in ax.texts if "column" in text.get_text()]
    assert len(leaves) == 24
    assert {text.get_rotation() for text in leaves} == {90.0}
    assert min(text.get_window_extent().y0 for text in leaves) > 0


def test_it_draws_on_the_axes_that_are_given():
    ax = plt.figure().subplots()
    assert plots.graph(DAG, ax) is ax


def test_an_unknown_observed_node_is_refused():
    with pytest.raises(ValueError, match="no node 'q'"):
        plots.graph(DAG, observed=["q"])


def test_labels_and_legend_of_a_narrow_drawing_stay_inside():
    ax = plots.graph(DAG, observed=["a", "r"])
    ax.figure.draw_without_rendering()
    width = ax.figure.bbox.width
    for part in [*ax.texts, ax.get_legend()]:
        extent = part.get_window_extent()
        assert extent.x0 >= 0
        assert extent.x1 <= width
        assert extent.y0 >= 0
    lowest = min(text.get_window_extent().y0 for text in ax.texts)
    assert ax.get_legend().get_window_extent().y1 <= lowest


TREES = [
    vfg.Graph.star({"a": 1, "b": 1, "c": 1}),
    vfg.Graph.tree({f"x{k}": 1 for k in range(13)}, arity=3),
    vfg.Graph.blocks(8, 8, rows=4, columns=4, arity=4),
    vfg.Graph.from_edges([("a", "h"), ("b", "h"), ("h", "r"), ("c", "r"), ("d", "r")], 2),
]
DAGS = [
    vfg.Graph.from_bayesian_network([("A", "C"), ("B", "C"), ("B", "D"), ("A", "F"), ("D", "F")]),
    vfg.Graph.from_edges([("a", "r"), ("b", "r"), ("a", "s"), ("c", "s")], 1),
    vfg.Graph.from_edges([("a", "h"), ("h", "r"), ("b", "s"), ("a", "s")], 1),
]


def crossings(graph, places):
    """Pairs of edges without a common end whose open segments meet, by orientation of triangles."""

    def side(p, q, r):
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    def cross(one, other):
        (a, b), (c, d) = one, other
        return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0

    lines = [(places[edge.child], places[edge.parent]) for edge in graph.edges]
    return sum(cross(one, other) for one, other in combinations(lines, 2))


@pytest.mark.parametrize("graph", TREES + DAGS)
def test_leaves_are_at_the_bottom_roots_on_top_and_parents_above_their_children(graph):
    places = positions(graph)
    assert list(places) == [node.name for node in graph.nodes]
    assert {places[leaf][1] for leaf in graph.leaves} == {0.0}
    assert {places[root][1] for root in graph.roots} == {len(graph.layers) - 1.0}
    assert all(places[edge.child][1] < places[edge.parent][1] for edge in graph.edges)


@pytest.mark.parametrize("graph", TREES + DAGS)
def test_neighbours_of_a_layer_are_at_least_one_apart(graph):
    for (first, low), (second, high) in combinations(positions(graph).values(), 2):
        assert low != high or abs(first - second) >= 1.0 - 1e-9


@pytest.mark.parametrize("graph", TREES)
def test_edges_of_trees_do_not_cross(graph):
    assert crossings(graph, positions(graph)) == 0


@given(st.permutations("abcd"))
def test_a_dag_that_can_be_drawn_without_crossings_is(order):
    pairs = [("a", "r"), ("b", "r"), ("b", "s"), ("c", "s"), ("c", "t"), ("d", "t")]
    graph = vfg.Graph.from_edges(sorted(pairs, key=lambda pair: order.index(pair[0])), 1)
    assert crossings(graph, positions(graph)) == 0
