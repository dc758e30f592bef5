"""Graphs in files: every format, and contents that are no graph."""

import contextlib
import json

import networkx
import pytest

import vfg
from vfg.graph import Edge, Graph, Node
from vfg.graph.files import LARGEST, edges_as_graph, read_graph, states_arrows, write_graph

GRAPHS = {
    "star": Graph.star({"a": 1, "b": 2}, width=3),
    "cover": Graph.cover(n=7, m=3),
    "network": Graph.from_bayesian_network([("A", "C"), ("B", "C"), ("A", "B")]),
    "marked": Graph(
        [
            Node("a b", 2, columns=("x", "y")),
            Node("é", 1, columns=("z",)),
            Node("h", 2, aggregation="mean"),
        ],
        [Edge("a b", "h", kind="identity"), Edge("é", "h")],
    ),
}
ASIA = """
network unknown { }
// smoking causes much
variable asia { type discrete [ 2 ] { yes, no }; }
variable "lung cancer" { type discrete [ 2 ] { yes, no }; }
variable smoke { type discrete [ 2 ] { yes, no }; }
variable either { type discrete [ 2 ] { yes, no }; }
probability ( asia ) { table 0.01, 0.99; }
probability ( smoke ) { table 0.5, 0.5; }
probability ( "lung cancer" | smoke ) { (yes) 0.1, 0.9; (no) 0.01, 0.99; }
/* probability ( asia | smoke ) { } */
probability ( either | "lung cancer", asia ) { (yes, yes) 1.0, 0.0; }
"""


@pytest.mark.parametrize("suffix", [".json", ".graphml"])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_written_is_read_again(name, suffix, tmp_path):
    write_graph(GRAPHS[name], tmp_path / f"graph{suffix}")
    assert read_graph(tmp_path / f"graph{suffix}") == GRAPHS[name]


@pytest.mark.parametrize(
    "text",
    ["a -> h\nb->h\n", "a h\nb\th\n", "child,parent\na,h\nb,h", "# edges\n\n'a', \"h\"\n b ,h\n"],
)
def test_edge_lists_in_every_spelling(text, tmp_path):
    path = tmp_path / "graph.edges"
    path.write_text(text)
    assert read_graph(path, width=4) == Graph(
        [Node("a", 1), Node("h", 4), Node("b", 1)], [Edge("a", "h"), Edge("b", "h")]
    )


def test_names_may_contain_blanks_where_something_else_divides(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("house age -> the root\n")
    assert read_graph(path).leaves == ("house age",)


def test_the_structure_of_a_bayesian_network_is_read(tmp_path):
    path = tmp_path / "asia.BIF"
    path.write_text(ASIA)
    edges = [("smoke", "lung cancer"), ("lung cancer", "either"), ("asia", "either")]
    expected = Graph.from_bayesian_network(edges, None, ["asia", "lung cancer", "smoke", "either"])
    assert read_graph(path) == expected


def test_widths_that_a_file_does_not_say(tmp_path):
    path = tmp_path / "g.graphml"
    edge = '<edge source="a" target="h"/><edge source="b" target="h"/>'
    nodes = '<node id="a"/><node id="b"/><node id="h"/>'
    space = 'xmlns="http://graphml.graphdrawing.org/xmlns"'
    path.write_text(
        f'<graphml {space}><graph edgedefault="directed">{nodes}{edge}</graph></graphml>'
    )
    assert read_graph(path, width=5).sections == {"a": 1, "b": 1}
    assert read_graph(path, width=5).node("h").width == 5
    assert read_graph(path).node("h").width == 8


WRONG = {
    "a.json": ("{", "it is not JSON"),
    "b.json": ("[" * 100_000, "it is not JSON"),
    "c.json": ("[1]", "must be a dictionary"),
    "d.json": (json.dumps({"nodes": [], "edges": []}), "a graph needs nodes"),
    "a.graphml": ("<graphml", "it is not GraphML"),
    "b.graphml": ("<html></html>", "it is not GraphML"),
    "a.bif": ("network x {}", "it declares no variable"),
    "b.bif": ("variable A {} probability ( A | B ) {}", "'B' has a probability but no declaration"),
    "a.txt": ("a b c\n", "line 1 must be a child and a parent"),
    "b.txt": ("# nothing\n", "it has no edges"),
    "c.txt": ("a b\nb a\n", "cycle"),
}


@pytest.mark.parametrize("name", WRONG)
def test_contents_that_are_no_graph(name, tmp_path):
    content, words = WRONG[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_graph(tmp_path / name)
    assert name in str(caught.value)


def test_undirected_graphs_are_refused(tmp_path):
    path = tmp_path / "u.graphml"
    nodes = '<node id="a"/><node id="h"/><edge source="a" target="h"/>'
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'<graph edgedefault="undirected">{nodes}</graph></graphml>'
    )
    with pytest.raises(ValueError, match="not directed"):
        read_graph(path)


def test_names_that_say_nothing_about_the_format(tmp_path):
    with pytest.raises(ValueError, match=r"end in \.json, \.graphml, \.bif"):
        read_graph(tmp_path / "graph.doc")
    with pytest.raises(ValueError, match=r"as \.json or \.graphml"):
        write_graph(GRAPHS["star"], tmp_path / "graph.bif")
    with pytest.raises(FileNotFoundError, match="there is no graph file"):
        read_graph(tmp_path / "graph.json")


def test_files_that_are_no_text_or_too_large(tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not text in UTF-8"):
        read_graph(tmp_path / "bytes.txt")
    with open(tmp_path / "huge.txt", "wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(ValueError, match="larger than 64 MiB"):
        read_graph(tmp_path / "huge.txt")


def test_edges_alone_make_a_graph():
    graph = edges_as_graph([("a", "h"), ("b", "h"), ("h", "r")])
    assert graph.sections == {"a": 1, "b": 1}
    assert (graph.node("h").width, graph.node("r").width) == (8, 8)


# Where arrows lead.

NETWORK = [("A", "C"), ("B", "C"), ("C", "D")]


def test_causes_and_effects_make_a_bayesian_network(tmp_path):
    expected = Graph.from_bayesian_network(NETWORK)
    (tmp_path / "g.txt").write_text("A -> C\nB -> C\nC -> D\n")
    assert read_graph(tmp_path / "g.txt", arrows="cause-effect") == expected
    (tmp_path / "g.csv").write_text("cause,effect\nA,C\nB,C\nC,D\n")
    assert read_graph(tmp_path / "g.csv") == expected
    networkx.write_graphml(networkx.DiGraph(NETWORK), tmp_path / "g.graphml")
    found = read_graph(tmp_path / "g.graphml", arrows="cause-effect")
    assert (found.roots, sorted(found.leaves)) == (expected.roots, sorted(expected.leaves))
    assert read_graph(tmp_path / "g.txt") != expected  # to latent nodes, as ever
    assert vfg.read_graph(tmp_path / "g.txt") == read_graph(tmp_path / "g.txt")


def test_files_say_where_their_arrows_lead_or_not(tmp_path):
    write_graph(GRAPHS["star"], tmp_path / "ours.graphml")
    networkx.write_graphml(networkx.DiGraph(NETWORK), tmp_path / "any.graphml")
    (tmp_path / "any.txt").write_text("A C\n")
    (tmp_path / "said.txt").write_text("child parent\nA C\n")
    assert [
        states_arrows(tmp_path / name)
        for name in ("ours.graphml", "any.graphml", "any.txt", "said.txt")
    ] == [True, False, False, True]


def test_arrows_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "g.txt").write_text("A C\n")
    with pytest.raises(ValueError, match="arrows"):
        read_graph(tmp_path / "g.txt", arrows="up")
    (tmp_path / "g.bif").write_text("variable A { }")
    with pytest.raises(ValueError, match="are fixed"):
        read_graph(tmp_path / "g.bif", arrows="cause-effect")


@pytest.mark.parametrize(
    "part", ['probability ( "', "probability ( a ", "/* ", 'variable "', "probability (", '" ( ']
)
def test_damaged_networks_are_read_in_one_pass(tmp_path, part):
    # Expressions that look ahead from every place would take minutes for these.
    (tmp_path / "g.bif").write_text("variable A { }\n" + part * (420_000 // len(part)))
    with contextlib.suppress(ValueError):
        assert read_graph(tmp_path / "g.bif").leaves[0] == "A"
