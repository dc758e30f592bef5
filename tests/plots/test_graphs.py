"""Drawings of graphs: what is marked, written and connected."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import vfg
from vfg import plots

DAG = vfg.Graph(
    [vfg.Node("a", 2), vfg.Node("b", 2), vfg.Node("h", 2, aggregation="mean"), vfg.Node("r", 2)],
    [vfg.Edge("a", "h"), vfg.Edge("b", "h"), vfg.Edge("h", "r", kind="identity")],
)
WIDE = vfg.Graph.tree({f"x{k}": 1 for k in range(200)}, arity=5)


def collection(ax, kind):
    return next(part for part in ax.collections if part.get_gid() == kind)


def spots(ax, kind):
    return {tuple(map(float, spot)) for spot in collection(ax, kind).get_offsets()}


@pytest.mark.parametrize("graph", [DAG, WIDE, vfg.Graph.star({"a": 1, "b": 1, "c": 1})])
def test_every_node_is_drawn_once_at_its_position(graph):
    ax = plots.graph(graph)
    kinds = ("leaf", "latent", "aggregation")
    drawn = [
        tuple(map(float, spot))
        for part in ax.collections
        if part.get_gid() in kinds
        for spot in part.get_offsets()
    ]
    assert sorted(drawn) == sorted(plots.positions(graph).values())


def test_leaves_aggregation_nodes_and_others_are_told_apart():
    ax, places = plots.graph(DAG), plots.positions(DAG)
    assert spots(ax, "leaf") == {places["a"], places["b"]}
    assert spots(ax, "aggregation") == spots(ax, "plus") == {places["h"]}
    assert spots(ax, "latent") == {places["r"]}


def test_flows_and_identities_are_lines_between_child_and_parent():
    ax, places = plots.graph(DAG), plots.positions(DAG)
    flows = [np.array(line).tolist() for line in collection(ax, "flow").get_segments()]
    assert flows == [[list(places[c]), list(places["h"])] for c in "ab"]
    assert len(collection(ax, "identity").get_segments()) == 1
    assert collection(ax, "identity").get_linestyle() != collection(ax, "flow").get_linestyle()


def test_labels_name_width_and_aggregation():
    texts = [text.get_text() for text in plots.graph(DAG).texts]
    assert sorted(texts) == ["a (2)", "b (2)", "h (2), mean", "r (2)"]


def test_given_and_asked_leaves_differ():
    ax, places = plots.graph(DAG, observed=["a", "r"]), plots.positions(DAG)
    assert spots(ax, "given") == {places["a"]}
    assert spots(ax, "asked for") == {places["b"]}
    assert spots(ax, "latent, given") == {places["r"]}


def test_two_hundred_leaves_are_counted_instead_of_named_and_do_not_touch():
    ax = plots.graph(WIDE)
    texts = [text.get_text() for text in ax.texts]
    assert "200 leaves" in texts
    assert not any(text.startswith("x1") for text in texts)
    left, right = ax.get_xlim()
    room = 72 * ax.figure.get_size_inches()[0] / (right - left)
    assert max(collection(ax, "leaf").get_sizes()) ** 0.5 < room


def test_crowded_leaves_have_upright_labels_inside_the_picture():
    graph = vfg.Graph.star({f"a column called {k}": 1 for k in range(24)})
    ax = plots.graph(graph)
    ax.figure.draw_without_rendering()
    leaves = [text for text in ax.texts if "column" in text.get_text()]
    assert len(leaves) == 24
    assert {text.get_rotation() for text in leaves} == {90.0}
    assert min(text.get_window_extent().y0 for text in leaves) > 0


def test_it_draws_on_the_axes_that_are_given():
    ax = plt.figure().subplots()
    assert plots.graph(DAG, ax) is ax


def test_an_unknown_observed_node_is_refused():
    with pytest.raises(ValueError, match="no node 'q'"):
        plots.graph(DAG, observed=["q"])


def test_labels_and_legend_of_a_narrow_drawing_stay_inside():
    ax = plots.graph(DAG, observed=["a", "r"])
    ax.figure.draw_without_rendering()
    width = ax.figure.bbox.width
    for part in [*ax.texts, ax.get_legend()]:
        extent = part.get_window_extent()
        assert extent.x0 >= 0
        assert extent.x1 <= width
        assert extent.y0 >= 0
    lowest = min(text.get_window_extent().y0 for text in ax.texts)
    assert ax.get_legend().get_window_extent().y1 <= lowest
