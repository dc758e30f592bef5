"""Graphs: layers, paths, sections, equality, and what they refuse."""

import copy
import pickle
import re

import pytest
from graph.examples import APPENDIX, appendix_graph, names

from vfg.graph import Edge, Graph, Node


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
