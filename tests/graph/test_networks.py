"""Causes and effects that a graph keeps beside its latent nodes."""

import pytest

from vfg.graph import Graph, Network

EDGES = (("a", "b"), ("b", "c"))


def star(causes=None):
    graph = Graph.star({"a": 1, "b": 1, "c": 1}, width=3)
    return Graph(graph.nodes, graph.edges, causes)


def test_causes_are_part_of_a_graph_and_of_its_description():
    graph = star(Network(EDGES, EDGES[:1]))
    assert graph.network == Network(EDGES, EDGES[:1])
    assert graph != star()
    again = Graph.from_dict(graph.to_dict())
    assert again == graph
    assert again.network.undirected == EDGES[:1]
    assert "causes" not in star().to_dict()
    assert star().network is None


def test_the_network_of_families_is_read_from_their_names():
    graph = Graph.from_bayesian_network(EDGES, variables="abcd")
    assert graph.network == Network(EDGES)
    assert Graph.from_dict(graph.to_dict()).network == Network(EDGES)
    stated = Graph(graph.nodes, graph.edges, Network(EDGES, EDGES))
    assert stated.network.undirected == EDGES


@pytest.mark.parametrize(
    ("causes", "message"),
    [
        ({"edges": ["ab"]}, "pair"),
        ({"edges": [["a"]]}, "pair"),
        ({"edges": [["a", "b"]], "undirected": [["b", "a"]]}, "not among the edges"),
        ({"undirected": []}, "lacks the key 'edges'"),
        ({"edges": [], "arrows": []}, "unknown key 'arrows'"),
        ([["a", "b"]], "must be a dictionary"),
    ],
)
def test_damaged_causes_are_refused(causes, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_dict({**star().to_dict(), "causes": causes})
