"""Stars, trees, covers, image blocks and networks; dictionaries and networkx, and back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import networkx
import numpy
import pandas
import pytest
from graph.examples import APPENDIX, appendix_graph
from optional import polars

from vfg import graph as graph_module
from vfg.graph import Edge, Graph, Node


@pytest.mark.parametrize(
    ("widths", "expected"),
    [((2, 2), 8), ((2, 9), 11), ((1,) * 12, 12), ((1,) * 40, 16), ((20, 2), 20), ((196,) * 4, 196)],
)
def test_narrow_sections_are_lifted_by_default(widths, expected):
    sections = {f"s{k}": width for k, width in enumerate(widths)}
    assert Graph.star(sections).node("root").width == expected
    assert Graph.tree(sections).node("root").width == expected


def test_star_has_the_width_and_the_root_that_are_given():
    graph = Graph.star({"a": 2, "b": 5})
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
    widths = {node.width for node in graph.nodes[count:]}
    assert widths == {min(max(8, sum(graph.sections.values())), 16)}
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
        "root (16)",
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
