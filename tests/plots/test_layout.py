"""Where the nodes of drawings stand."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vfg
from vfg.plots import positions

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
