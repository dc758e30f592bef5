"""Nodes and edges, and what they refuse."""

import re

import numpy
import pytest

from vfg.graph import Edge, Node


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
