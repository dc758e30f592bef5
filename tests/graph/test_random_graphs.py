"""Random graphs, against networkx."""

import itertools
import json

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfg.graph import Edge, Graph, Node


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
