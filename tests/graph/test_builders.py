"""Stars, trees, covers, image blocks and networks."""

import networkx
import numpy
import pandas
import polars
import pytest

from vfg.graph import Edge, Graph, Node


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
