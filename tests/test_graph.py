"""Nodes, edges and graphs: layers, checks, builders, exchange formats and drawings."""

import copy
import itertools
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import networkx
import numpy
import pandas
import polars
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vfg import graph as graph_module
from vfg.graph import Edge, Graph, Node
from vfg.graph.clustering import collapse, rank_correlations

SOURCES = Path(graph_module.__file__).parent.parent

APPENDIX = [
    *[("1", "4"), ("2", "4"), ("2", "5"), ("3", "5")],
    *[("4", "6"), ("5", "6"), ("5", "7"), ("6", "7")],
]


def appendix_graph():
    return Graph.from_edges(APPENDIX, widths=2)


def names(edges):
    return [edge.name for edge in edges]


# Nodes and edges


def test_node_turns_sequences_and_numpy_integers_into_plain_tuples():
    node = Node("a", numpy.int64(2), columns=[numpy.int64(0), 1])
    assert node == Node("a", 2, columns=(0, 1))
    assert type(node.width) is int
    assert [type(column) for column in node.columns] == [int, int]
    assert Node("a", 3, columns="colour").columns == ("colour",)


def test_edge_has_a_name_and_tuples_for_coordinates():
    edge = Edge("a", "h", coordinates=range(2))
    assert edge.name == "a->h"
    assert edge.coordinates == (0, 1)


def test_nodes_and_edges_keep_their_dataclass_representation():
    assert repr(Node("a", 1)) == "Node(name='a', width=1, columns=None, aggregation=None)"
    assert repr(Edge("a", "h")) == "Edge(child='a', parent='h', kind='flow', coordinates=None)"


@pytest.mark.parametrize(
    ("build", "culprit", "remedy"),
    [
        (lambda: Node("", 1), "''", "not empty"),
        (lambda: Node(3, 1), "got 3", "string"),
        (lambda: Node("a->b", 1), "'a->b'", "rename"),
        (lambda: Node("a", 0), "'a' is an empty section", "1 or more"),
        (lambda: Node("a", 2.5), "'a' has width 2.5", "integer"),
        (lambda: Node("a", True), "'a' has width True", "integer"),
        (lambda: Node("a", 3, columns=("x", "y")), "'a' has width 3 but 2", "one column per"),
        (lambda: Node("a", 2, columns=()), "'a' has width 2 but 0", "None"),
        (lambda: Node("a", 2, columns=("x", 1)), "'a' has columns", "either names"),
        (lambda: Node("a", 2, columns=("x", "x")), "'a' claims column 'x' twice", "once"),
        (lambda: Node("a", 2, aggregation=3), "'a' has aggregation 3", "name of one"),
        (lambda: Edge("a", "a"), "'a->a' is a self loop", "another node"),
        (lambda: Edge("a", "h", kind="spline"), "'a->h' has the unknown kind 'spline'", "identity"),
        (lambda: Edge("a", "h", coordinates=()), "'a->h' covers no coordinates", "None for all"),
        (lambda: Edge("a", "h", coordinates=(0, -1)), "'a->h' has coordinates", "0 or more"),
        (lambda: Edge("a", "h", coordinates=(0.5,)), "'a->h' has coordinates", "integers"),
        (lambda: Edge("a", "h", coordinates=(1, 1)), "'a->h' repeats coordinate 1", "once"),
    ],
)
def test_impossible_nodes_and_edges_name_culprit_and_remedy(build, culprit, remedy):
    with pytest.raises(ValueError, match=re.escape(culprit)) as caught:
        build()
    assert remedy in str(caught.value)


# Graphs


def two_leaves(*, first=None, second=None, root=None):
    nodes = [Node("a", 1, columns=first), Node("b", 1, columns=second), Node("h", 1, columns=root)]
    return Graph(nodes, [Edge("a", "h"), Edge("b", "h")])


def widths_of_one(*nodes):
    return [Node(name, 1) for name in nodes]


@pytest.mark.parametrize(
    ("build", "culprit", "remedy"),
    [
        (lambda: Graph([], []), "got none", "at least"),
        (lambda: Graph(["a"], []), "'a'", "Node(name, width)"),
        (lambda: Graph(widths_of_one("a", "h"), [("a", "h")]), "('a', 'h')", "Edge(child, parent)"),
        (lambda: Graph(widths_of_one("a", "a"), []), "'a' appears twice", "own name"),
        (
            lambda: Graph(widths_of_one("a", "root"), [Edge("a", "rot")]),
            "'a->rot' names the unknown node 'rot'",
            "did you mean 'root'?",
        ),
        (
            lambda: Graph(widths_of_one("a", "root"), [Edge("zzz", "root")]),
            "unknown node 'zzz'",
            "choose one of 'a', 'root'",
        ),
        (
            lambda: Graph(widths_of_one("a", "h"), [Edge("a", "h"), Edge("a", "h", "identity")]),
            "'a->h' appears twice",
            "keep one",
        ),
        (
            lambda: Graph(
                widths_of_one("x", "a", "b", "c"),
                [Edge("x", "b"), Edge("b", "c"), Edge("c", "a"), Edge("a", "b")],
            ),
            "cycle a -> b -> c -> a;",
            "remove one",
        ),
        (
            lambda: Graph(widths_of_one("a", "b"), [Edge("a", "b"), Edge("b", "a")]),
            "cycle a -> b -> a;",
            "remove one",
        ),
        (
            lambda: Graph(widths_of_one("a", "h", "lone"), [Edge("a", "h")]),
            "'lone' is isolated",
            "connect it",
        ),
        (
            lambda: Graph(widths_of_one("a", "h"), [Edge("a", "h", coordinates=(1,))]),
            "'a->h' covers coordinate 1, but 'h' has width 1",
            "coordinates 0 to 0",
        ),
        (lambda: two_leaves(first=["x"]), "'b' has no columns", "all or none"),
        (lambda: two_leaves(first=["x"], second=["x"]), "'x' is claimed twice", "one of them"),
        (lambda: two_leaves(first=["x"], second=[0]), "'x' of 'a' is a name", "everywhere"),
        (lambda: two_leaves(first=[0], second=[2]), "'b' claims position 2", "without gaps"),
        (lambda: two_leaves(first=[-1], second=[0]), "'a' claims position -1", "0 to 1"),
        (lambda: two_leaves(root=["x"]), "'h' has columns but also children", "leaf"),
    ],
)
def test_impossible_graphs_name_culprit_and_remedy(build, culprit, remedy):
    with pytest.raises(ValueError, match=re.escape(culprit)) as caught:
        build()
    assert remedy in str(caught.value)


def test_appendix_graph_has_the_layers_of_the_paper():
    graph = appendix_graph()
    assert graph.layers == (("1", "2", "3"), ("4", "5"), ("6",), ("7",))
    assert graph.leaves == ("1", "2", "3")
    assert graph.roots == ("7",)
    assert [graph.layer_of(name) for name in "1467"] == [0, 1, 2, 3]
    assert not graph.is_tree


def test_layers_keep_insertion_order_inside():
    graph = Graph(
        widths_of_one("r", "z", "b", "a"), [Edge("a", "r"), Edge("z", "r"), Edge("b", "r")]
    )
    assert graph.layers == (("z", "b", "a"), ("r",))
    assert graph.children("r") == ("a", "z", "b")


def test_neighbours_follow_the_order_of_the_edges():
    graph = appendix_graph()
    assert graph.children("7") == ("5", "6")
    assert graph.parents("5") == ("6", "7")
    assert names(graph.edges_into("5")) == ["2->5", "3->5"]
    assert names(graph.edges_from("2")) == ["2->4", "2->5"]
    assert graph.node("5") == Node("5", 2)


def test_ancestors_are_complete_and_lower_layers_come_first():
    graph = appendix_graph()
    assert graph.ancestors("2") == ("4", "5", "6", "7")
    assert graph.ancestors("3") == ("5", "6", "7")
    assert graph.ancestors("7") == ()


def test_unknown_names_come_with_suggestions():
    with pytest.raises(ValueError, match="no node 'rooot'; did you mean 'root'"):
        Graph.star({"a": 1}).children("rooot")


def test_paths_and_common_ancestors_on_a_tree():
    graph = Graph.tree(dict.fromkeys("abcde", 1))
    assert graph.is_tree
    assert graph.common_ancestor("a", "b") == "node1_1"
    assert graph.common_ancestor("a", "d") == "node2_1"
    assert graph.common_ancestor("e", "a") == "root"
    assert graph.common_ancestor("a", "node1_1") == "node1_1"
    assert graph.common_ancestor("a", "a") == "a"
    assert names(graph.path("a", "root")) == ["a->node1_1", "node1_1->node2_1", "node2_1->root"]
    assert graph.path("a", "a") == ()


def test_path_is_a_shortest_one_on_a_dag():
    assert names(appendix_graph().path("2", "7")) == ["2->5", "5->7"]


def test_path_to_a_node_that_is_not_above_names_the_ancestors():
    with pytest.raises(ValueError, match=r"'a' is not above 'root'.*it has none"):
        Graph.star({"a": 1}).path("root", "a")
    with pytest.raises(ValueError, match=r"'b' is not above 'a'.*root"):
        Graph.star({"a": 1, "b": 1}).path("a", "b")


@pytest.mark.parametrize(
    "graph", [appendix_graph(), Graph.from_edges([("a", "r"), ("b", "s")], widths=1)]
)
def test_common_ancestor_refuses_graphs_that_are_not_trees(graph):
    first, second = graph.leaves[:2]
    with pytest.raises(ValueError, match=f"'{first}' and '{second}'.*trees only"):
        graph.common_ancestor(first, second)


def test_sections_and_columns():
    assert two_leaves().columns is None
    assert two_leaves(first=["y"], second=["x"]).columns == ("y", "x")
    assert two_leaves(first=[1], second=[0]).columns == (0, 1)
    coded = Graph.star([Node("colour", 3, columns=["colour"]), Node("size", 1, columns=["size"])])
    assert coded.columns == ("colour", "size")
    assert coded.sections == {"colour": 3, "size": 1}


def test_graphs_are_equal_and_hash_by_content():
    assert appendix_graph() == appendix_graph()
    assert hash(appendix_graph()) == hash(appendix_graph())
    assert appendix_graph() != Graph.from_edges(APPENDIX, widths=3)
    assert Graph.star({"a": 1, "b": 1}) != Graph.star({"b": 1, "a": 1})


def test_graphs_cannot_be_changed():
    with pytest.raises(AttributeError):
        appendix_graph().nodes = ()


def test_graphs_survive_pickle_and_copy():
    graph = appendix_graph()
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert copy.deepcopy(graph).layers == graph.layers


def test_long_chains_do_not_exhaust_the_stack():
    count = 3000
    graph = Graph.from_edges([(f"n{k}", f"n{k + 1}") for k in range(count)], widths=1)
    assert len(graph.layers) == count + 1
    assert "more lines" in repr(graph)


# Builders


def test_star_takes_the_widest_section_by_default():
    graph = Graph.star({"a": 2, "b": 5})
    assert graph.node("root").width == 5
    assert graph.edges == (Edge("a", "root"), Edge("b", "root"))
    assert Graph.star({"a": 2}, width=7, root="top").node("top").width == 7


def test_sections_may_be_pairs_or_nodes():
    assert Graph.star([("a", 2), ("b", 5)]) == Graph.star({"a": 2, "b": 5})
    assert Graph.star([Node("a", 1, columns=["x"]), Node("b", 1, columns=["y"])]).columns == (
        "x",
        "y",
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Graph.star({}), "no sections; pass at least one"),
        (lambda: Graph.star({"root": 1}), "'root' is taken by a section; choose another"),
        (lambda: Graph.star([("a", 1), ("a", 1)]), "'a' appears twice; give each"),
        (lambda: Graph.star(["ab"]), r"pair \(name, width\), got 'ab'"),
        (lambda: Graph.star({"a": 0}), "'a' is an empty section"),
        (lambda: Graph.tree({"a": 1}, arity=1), "at least 2 nodes at a time, got arity=1"),
        (lambda: Graph.cover(2, 3), "n=2 and m=3; choose a root no wider"),
        (lambda: Graph.cover(2, 0), "n=2 and m=0"),
        (lambda: Graph.blocks(28, 28, rows=3), "height 28 cannot be cut into 3.*choose rows"),
        (lambda: Graph.blocks(28, 28, columns=5), "width 28 cannot be cut into 5"),
        (lambda: Graph.blocks(28, 28, rows=0), "height 28 cannot be cut into 0"),
        (lambda: Graph.blocks(4, 4, arity=3), "by 2 .* or by 4 .*, got arity=3"),
        (lambda: Graph.from_edges([("a", "h")], widths={"a": 1}), "no entry for node 'h'; add"),
        (lambda: Graph.from_edges([("a", "h")], {"a": 1, "h": 1, "z": 1}), "names 'z'.*remove"),
        (lambda: Graph.from_edges(["ah"], widths=1), r"pair \(child, parent\), got 'ah'"),
        (lambda: Graph.from_bayesian_network([]), "no variables; pass"),
        (lambda: Graph.from_bayesian_network([("A",)]), r"pair \(parent, child\), got \('A',\)"),
        (lambda: Graph.from_bayesian_network([("A", "B")] * 2), r"\('A', 'B'\) appears twice"),
        (
            lambda: Graph.from_bayesian_network([("A", "B"), ("B", "C"), ("C", "A")]),
            "cycle A -> B -> C -> A; remove",
        ),
        (lambda: Graph.from_bayesian_network([("A", "A")]), "cycle A -> A; remove"),
        (lambda: Graph.from_bayesian_network(networkx.Graph([("A", "B")])), "DiGraph"),
        (lambda: Graph.from_data(numpy.zeros(3)), r"shape \(3,\); reshape"),
        (lambda: Graph.from_data(numpy.zeros((3, 0))), r"shape \(3, 0\)"),
        (lambda: Graph.from_data(numpy.zeros((3, 2)), arity=1), "got arity=1"),
        (lambda: Graph.from_data([["a"]]), "not numbers; encode"),
        (lambda: Graph.from_data(pandas.DataFrame({"c": ["a", "b"]})), "'c' is not numeric; enc"),
        (lambda: Graph.from_data(polars.DataFrame({"c": ["a", "b"]})), "'c' is not numeric; enc"),
        (
            lambda: Graph.from_data(pandas.DataFrame(numpy.zeros((2, 2)), columns=["c", "c"])),
            "two columns named 'c'; rename",
        ),
    ],
)
def test_builders_name_what_is_wrong_and_what_to_do(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("count", range(1, 18))
@pytest.mark.parametrize("arity", [2, 3, 4])
def test_tree_joins_neighbours_and_has_no_inner_node_with_one_child(count, arity):
    graph = Graph.tree({f"s{k}": k % 3 + 1 for k in range(count)}, arity=arity)
    assert graph.is_tree
    assert graph.leaves == tuple(f"s{k}" for k in range(count))
    assert {node.width for node in graph.nodes[count:]} == {min(count, 3)}
    assert descend(graph, "root") == list(graph.leaves)
    for node in graph.nodes[count:]:
        assert min(count, 2) <= len(graph.children(node.name)) <= arity
    depth = 1
    while arity**depth < count:
        depth += 1
    assert len(graph.layers) == depth + 1


def descend(graph, name):
    below = graph.children(name)
    return [leaf for child in below for leaf in descend(graph, child)] if below else [name]


def test_tree_moves_a_leftover_node_up():
    graph = Graph.tree(dict.fromkeys("abcde", 1))
    assert graph.children("root") == ("node2_1", "e")
    assert graph.layers == (tuple("abcde"), ("node1_1", "node1_2"), ("node2_1",), ("root",))


def test_automatic_names_give_way_to_sections():
    graph = Graph.tree({"root": 1, "node1_1": 1, "c": 1})
    assert graph.leaves == ("root", "node1_1", "c")
    assert graph.roots == ("root_",)
    assert graph.parents("root") == ("node1_1_",)


@pytest.mark.parametrize("n", range(1, 10))
def test_cover_partitions_the_data_and_covers_the_root(n):
    for m in range(1, n + 1):
        graph = Graph.cover(n, m)
        rest = n % m
        leaves = [graph.node(leaf) for leaf in graph.leaves]
        assert [column for leaf in leaves for column in leaf.columns] == list(range(n))
        assert len(leaves) == n // m + bool(rest)
        covered = [edge.coordinates or tuple(range(m)) for edge in graph.edges_into("root")]
        assert [len(coordinates) for coordinates in covered] == [leaf.width for leaf in leaves]
        counts = numpy.bincount(numpy.concatenate(covered), minlength=m)
        assert len(counts) == m
        assert counts.min() >= 1
        assert all(leaf.width == m for leaf in leaves[: -2 if rest else None])
        if rest:
            shared = [coordinate for coordinate in covered[-2] if coordinate in covered[-1]]
            assert len(shared) == rest
            assert covered[-2][0] == 0
            assert covered[-1][-1] == m - 1
            assert leaves[-2].width - leaves[-1].width == (m + rest) % 2


@pytest.mark.parametrize("arity", [2, 4])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (3, 1), (3, 5), (4, 4)])
def test_blocks_hold_the_pixels_of_their_rectangles(shape, arity):
    rows, columns = shape
    height, width = 2 * rows, 3 * columns
    image = numpy.arange(height * width).reshape(height, width)
    graph = Graph.blocks(height, width, rows=rows, columns=columns, arity=arity)
    expected = {
        f"block{row}_{column}": image[2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
        for row in range(rows)
        for column in range(columns)
    }
    assert graph.leaves == tuple(expected)
    for leaf, pixels in expected.items():
        assert graph.node(leaf).columns == tuple(pixels.ravel())
    assert graph.is_tree
    assert graph.columns == tuple(range(height * width))
    assert {node.width for node in graph.nodes} == {6}
    assert sorted(descend(graph, "root")) == sorted(expected)


def test_blocks_pair_horizontally_first_then_vertically():
    graph = Graph.blocks(28, 28, latent=50)
    assert graph.children("node1_1") == ("block0_0", "block0_1")
    assert graph.children("node1_2") == ("block1_0", "block1_1")
    assert graph.children("root") == ("node1_1", "node1_2")
    assert graph.node("root").width == 50
    assert [len(layer) for layer in Graph.blocks(4, 4, 4, 4).layers] == [16, 8, 4, 2, 1]


def test_blocks_of_arity_four_are_a_quad_tree():
    graph = Graph.blocks(4, 4, rows=4, columns=4, arity=4)
    assert graph.children("node1_1") == ("block0_0", "block0_1", "block1_0", "block1_1")
    assert graph.children("root") == ("node1_1", "node1_2", "node1_3", "node1_4")
    odd = Graph.blocks(3, 3, rows=3, columns=3, arity=4)
    assert odd.children("root") == ("node1_1", "node1_2", "node1_3", "block2_2")


def test_bayesian_network_has_a_node_per_family():
    graph = Graph.from_bayesian_network([("A", "C"), ("B", "C"), ("C", "D")], variables=["E", "B"])
    assert graph.leaves == ("E", "B", "A", "C", "D")
    assert graph.columns == graph.leaves
    assert graph.roots == ("root",)
    assert graph.children("root") == ("family:E", "family:C", "family:D")
    assert graph.children("family:C") == ("C", "A", "B")
    assert graph.children("family:D") == ("D", "C")
    assert graph.children("family:E") == ("E",)
    assert {graph.node(name).width for name in (*graph.children("root"), "root")} == {6}
    assert Graph.from_bayesian_network([("A", "B")], width=3).node("root").width == 3


def test_bayesian_network_reads_networkx_graphs():
    network = networkx.DiGraph([("A", "C"), ("B", "C")])
    network.add_node("E")
    pairs = [("A", "C"), ("B", "C")]
    expected = Graph.from_bayesian_network(pairs, variables=["A", "C", "B", "E"])
    assert Graph.from_bayesian_network(network) == expected


def test_bayesian_network_names_give_way_to_variables():
    graph = Graph.from_bayesian_network([("family:A_", "A"), ("family:A", "A"), ("root", "A_")])
    assert graph.roots == ("root_",)
    assert len(graph.children("root_")) == 2


def test_edges_may_be_mixed_and_nodes_follow_first_appearance():
    graph = Graph.from_edges(
        [("b", "h"), Edge("a", "h", "identity"), ("h", "r")],
        widths={"r": 4, "h": 3, "a": 2, "b": 1},
    )
    assert [(node.name, node.width) for node in graph.nodes] == [
        ("b", 1),
        ("h", 3),
        ("a", 2),
        ("r", 4),
    ]
    assert graph.edges[1].kind == "identity"


# Structure from data


def correlated_table(rows=200, gaps=0.0):
    generator = numpy.random.default_rng(0)
    causes = generator.normal(size=(rows, 3))
    table = numpy.repeat(causes, 3, axis=1) + 0.3 * generator.normal(size=(rows, 9))
    table[:, 4] = -numpy.exp(table[:, 4])
    table[generator.random(table.shape) < gaps] = numpy.nan
    return table


def test_rank_correlations_equal_spearman_without_gaps():
    table = correlated_table().round(1)
    expected = scipy.stats.spearmanr(table).statistic
    numpy.testing.assert_allclose(rank_correlations(table), expected, atol=1e-12)


def test_rank_correlations_stay_close_to_pairwise_ranking_with_gaps():
    table = correlated_table(rows=400, gaps=0.3)
    correlations = rank_correlations(table)
    for first in range(9):
        for second in range(first):
            both = ~numpy.isnan(table[:, [first, second]]).any(axis=1)
            exact = scipy.stats.spearmanr(table[both][:, [first, second]]).statistic
            assert correlations[first, second] == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_data_tree_finds_groups_of_columns(gaps):
    graph = Graph.from_data(correlated_table(gaps=gaps), arity=3)
    found = [graph.children(parent) for parent in graph.children("root")]
    assert found == [("x0", "x1", "x2"), ("x3", "x4", "x5"), ("x6", "x7", "x8")]
    assert graph.columns == tuple(range(9))
    assert graph.node("root").width == 6
    assert Graph.from_data(correlated_table(), width=5).node("root").width == 5


@pytest.mark.parametrize("arity", [2, 3, 4, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 20])
def test_data_tree_keeps_the_arity_and_the_column_order(count, arity):
    table = numpy.random.default_rng(count).normal(size=(30, count))
    graph = Graph.from_data(table, arity=arity)
    assert graph.is_tree
    assert graph.leaves == tuple(f"x{k}" for k in range(count))
    for node in graph.nodes[count:]:
        assert min(count, 2) <= len(graph.children(node.name)) <= arity


def test_data_tree_tolerates_empty_constant_and_hardly_observed_columns():
    table = correlated_table()
    table[:, 0] = numpy.nan
    table[:, 3] = 1.0
    table[2:, 6] = numpy.nan
    correlations = rank_correlations(table)
    assert numpy.isfinite(correlations).all()
    assert not correlations[[0, 3, 6]].any()
    assert len(Graph.from_data(table).leaves) == 9


def test_data_tree_is_the_same_for_every_kind_of_table():
    table = correlated_table(gaps=0.1)
    expected = Graph.from_data(table)
    assert Graph.from_data(torch.tensor(table, requires_grad=True)) == expected
    assert Graph.from_data(pandas.DataFrame(table)) == expected
    labels = [f"column {k}" for k in range(9)]
    frame = pandas.DataFrame(table, columns=labels)
    named = Graph.from_data(frame)
    assert named.columns == tuple(labels)
    assert named.layers[1:] == expected.layers[1:]
    assert Graph.from_data(polars.DataFrame(table, schema=labels)) == named
    assert Graph.from_data(frame.convert_dtypes()) == named


@pytest.mark.parametrize("library", [pandas.DataFrame, polars.DataFrame])
def test_data_tree_reads_missing_integers_and_booleans(library):
    frame = library(
        {"a": [1, None, 3, 4], "b": [True, False, None, True], "c": [4.0, 3.0, 2.0, None]}
    )
    assert Graph.from_data(frame).leaves == ("a", "b", "c")


def test_collapse_opens_the_highest_merge_first():
    merges = [(0, 1), (2, 3), (4, 6), (7, 5)]
    assert collapse(merges, count=5, arity=2) == [[0, 1], [2, 3], [6, 4], [5, 7]]
    assert collapse(merges, count=5, arity=3) == [[0, 1], [2, 3], [5, 6, 4]]
    assert collapse(merges, count=5, arity=4) == [[0, 1], [5, 2, 3, 4]]
    assert collapse(merges, count=5, arity=5) == [[0, 1, 2, 3, 4]]


# Exchange


def detailed_graph():
    return Graph(
        [
            Node("r", 4, aggregation="precision"),
            Node("a", 2, columns=["x", "y"]),
            Node("b", 3, columns=["z"]),
            Node("s", 3),
        ],
        [
            Edge("b", "s", "identity"),
            Edge("a", "r", coordinates=(3, 1)),
            Edge("b", "r"),
            Edge("s", "r"),
        ],
    )


@pytest.mark.parametrize("graph", [detailed_graph(), appendix_graph(), Graph.cover(7, 3)])
def test_exchange_formats_return_the_same_graph(graph):
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    assert Graph.from_networkx(graph.to_networkx()) == graph


def test_networkx_graph_has_edges_from_child_to_parent_and_all_attributes():
    digraph = detailed_graph().to_networkx()
    assert digraph.nodes["r"] == {"width": 4, "aggregation": "precision"}
    assert digraph.nodes["a"] == {"width": 2, "columns": ("x", "y")}
    assert digraph.edges["a", "r"]["coordinates"] == (3, 1)
    assert digraph.edges["b", "s"]["kind"] == "identity"


def test_networkx_graphs_made_by_hand_can_be_read():
    digraph = networkx.DiGraph()
    digraph.add_node("a", width=2, colour="red")
    digraph.add_node("h", width=2)
    digraph.add_edge("a", "h", weight=3)
    assert Graph.from_networkx(digraph) == Graph.from_edges([("a", "h")], widths=2)


def test_networkx_graphs_without_widths_or_directions_are_refused():
    with pytest.raises(ValueError, match="'a' has no attribute 'width'; set it"):
        Graph.from_networkx(networkx.DiGraph([("a", "h")]))
    with pytest.raises(ValueError, match=r"not directed; pass a networkx\.DiGraph"):
        Graph.from_networkx(networkx.Graph([("a", "h")]))


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ([], "the description of a graph must be a dictionary"),
        ({"nodes": []}, "lacks the key 'edges'; add it"),
        ({"nodes": [], "edges": [], "edgse": []}, "unknown key 'edgse'; did you mean 'edges'"),
        ({"nodes": {}, "edges": []}, "'nodes' must be a list of dictionaries"),
        ({"nodes": ["a"], "edges": []}, "node number 0 must be a dictionary .* got 'a'"),
        ({"nodes": [{"name": "a"}], "edges": []}, "node number 0 lacks the key 'width'"),
        ({"nodes": [{"name": "a", "width": 1, "column": []}], "edges": []}, "'columns'"),
        ({"nodes": [{"name": "a", "width": 1, "columns": 3}], "edges": []}, "columns 3; pass a"),
        ({"nodes": [], "edges": [{"child": "a"}]}, "edge number 0 lacks the key 'parent'"),
        (
            {"nodes": [], "edges": [{"child": "a", "parent": "h", "coordinates": 1}]},
            "coordinates 1; pass a list",
        ),
        ({"nodes": [], "edges": []}, "needs nodes"),
    ],
)
def test_malformed_descriptions_are_refused(description, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_dict(description)


# Drawings


def test_drawing_shows_widths_kinds_columns_and_coordinates_and_shared_nodes_once():
    assert repr(detailed_graph()) == "\n".join(
        [
            "Graph: 2 leaves, 2 latent nodes, 4 edges",
            "r (4), precision",
            "├── a (2), covers 3 1, columns x y",
            "├── b (3), column z",
            "└── s (3)",
            "    └── b (above), identity",
        ]
    )


def test_drawing_shows_every_root_and_edge():
    graph = Graph.from_edges([("a", "r"), ("b", "r"), ("b", "s")], widths=1)
    assert repr(graph).splitlines()[1:] == [
        "r (1)",
        "├── a (1)",
        "└── b (1)",
        "s (1)",
        "└── b (above)",
    ]


def test_drawing_abbreviates_many_leaves():
    few = Graph.star({f"s{k}": 1 for k in range(40)})
    assert len(repr(few).splitlines()) == 42
    many = Graph.star({f"s{k}": 1 for k in range(41)})
    assert repr(many).splitlines()[1:] == [
        "root (1)",
        "├── s0 (1)",
        "├── s1 (1)",
        "├── s2 (1)",
        "└── ... 38 more",
    ]


def test_drawing_shortens_long_lists_of_columns():
    assert "block0_0 (196), columns 0 1 2 ... 377" in repr(Graph.blocks(28, 28))


# Every process, every hash seed


PRINTING = """
import json
from vfg.graph import Graph
graphs = [
    Graph.from_edges({edges!r}, widths=2),
    Graph.tree({{name: 1 for name in "gfedcba"}}, arity=3),
    Graph.from_bayesian_network([("q", "w"), ("e", "w"), ("w", "r")], variables=["t", "z"]),
    Graph.from_data([[1, 2, 3, 1, 0], [2, 1, 3, 1, 5], [3, 3, 1, 1, 2], [4, 0, 2, 1, 9]], arity=2),
    Graph.blocks(6, 6, rows=3, columns=3, arity=4),
]
for graph in graphs:
    print(graph.layers, json.dumps(graph.to_dict()), repr(graph), sep="\\n")
    print([graph.ancestors(leaf) for leaf in graph.leaves])
    try:
        Graph(graph.nodes, graph.edges + tuple(type(e)(e.parent, e.child) for e in graph.edges))
    except ValueError as error:
        print(error)
"""

STUB = f"""
import sys, types
package = types.ModuleType("vfg")
package.__path__ = [{str(SOURCES)!r}]
sys.modules["vfg"] = package
"""


def run(script, **environment):
    encoding = {"PYTHONIOENCODING": "utf-8"}
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **encoding, **environment},
        capture_output=True,
        check=True,
    )
    return finished.stdout.decode()


def test_everything_is_the_same_in_every_process():
    script = STUB + PRINTING.format(edges=APPENDIX)
    outputs = [run(script, PYTHONHASHSEED=str(seed)) for seed in range(3)]
    assert "root" in outputs[0]
    assert "cycle" in outputs[0]
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]


def test_importing_the_graph_module_loads_no_other_package():
    heavy = ["torch", "numpy", "scipy", "networkx", "pandas"]
    script = f"{STUB}\nimport vfg.graph\nprint([n for n in {heavy} if n in sys.modules])"
    assert run(script).strip() == "[]"


# Random graphs


@st.composite
def random_graphs(draw):
    count = draw(st.integers(2, 9))
    order = draw(st.permutations(range(count)))
    pairs = [(low, high) for high in range(count) for low in range(high)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=20, unique=True))
    edges = [
        Edge(f"n{low}", f"n{high}", draw(st.sampled_from(["flow", "identity"])))
        for low, high in chosen
    ]
    touched = [end for pair in chosen for end in pair]
    nodes = [Node(f"n{k}", draw(st.integers(1, 5))) for k in order if k in touched]
    return Graph(nodes, edges)


def longest_path_down(graph, name):
    return max((1 + longest_path_down(graph, child) for child in graph.children(name)), default=0)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(random_graphs())
def test_layers_of_random_graphs_are_longest_paths(graph):
    assert [name for layer in graph.layers for name in layer] == sorted(
        (node.name for node in graph.nodes),
        key=lambda name: longest_path_down(graph, name),
    )
    assert all(
        graph.layer_of(name) == longest_path_down(graph, name) == number
        for number, layer in enumerate(graph.layers)
        for name in layer
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(random_graphs())
def test_relations_of_random_graphs_agree_with_networkx(graph):
    digraph = graph.to_networkx()
    for node in graph.nodes:
        above = graph.ancestors(node.name)
        assert sorted(above) == sorted(networkx.descendants(digraph, node.name))
        for ancestor in above:
            steps = graph.path(node.name, ancestor)
            assert len(steps) == networkx.shortest_path_length(digraph, node.name, ancestor)
            assert [edge.child for edge in steps][1:] == [edge.parent for edge in steps][:-1]
            assert (steps[0].child, steps[-1].parent) == (node.name, ancestor)
    assert graph.is_tree == (len(graph.roots) == 1 and networkx.is_arborescence(digraph.reverse()))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(random_graphs())
def test_random_graphs_survive_every_format_and_are_drawn_edge_by_edge(graph):
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    assert Graph.from_networkx(graph.to_networkx()) == graph
    assert len(repr(graph).splitlines()) == 1 + len(graph.roots) + len(graph.edges)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(random_graphs(), st.data())
def test_closing_any_loop_is_refused_with_a_real_cycle(graph, data):
    below = data.draw(st.sampled_from(graph.leaves))
    above = graph.ancestors(below)[-1]
    with pytest.raises(ValueError, match="cycle") as caught:
        Graph(graph.nodes, [*graph.edges, Edge(above, below)])
    cycle = str(caught.value).split("cycle ")[1].split(";")[0].split(" -> ")
    assert cycle[0] == cycle[-1]
    present = [*((edge.child, edge.parent) for edge in graph.edges), (above, below)]
    assert all(step in present for step in itertools.pairwise(cycle))
