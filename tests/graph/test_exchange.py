"""Other formats, drawings, and the same in every process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import networkx
import pytest
from graph.examples import APPENDIX, appendix_graph

from vfg import graph as graph_module
from vfg.graph import Edge, Graph, Node

SOURCES = Path(graph_module.__file__).parent.parent


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
