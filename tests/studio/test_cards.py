"""Cards, pictures and graphs: the data that are drawn."""

import base64
import re
import struct
import zlib

import numpy as np
import pytest

import vfg
from vfg.inference.variables import Marginal, Variable, given_marginal
from vfg.studio.asking.cards import (
    LatentMarginal,
    axis,
    card,
    choice_bars,
    density,
    density_drawing,
    latent_card,
)
from vfg.studio.asking.graph import elements, group_name, place_nodes, sibling_groups, stylesheet
from vfg.studio.asking.model import open_model
from vfg.studio.exploring.analysis import consistency
from vfg.studio.filling.tables import open_table
from vfg.studio.markup import Markup, concat, element, picture_shape, png, stretch

SIZE = Variable("size", "number", "size", -4.0, 4.0)
CITY = Variable("city", "choice", "city", categories=("a", "b", "c"))


def normal(mean, std):
    draws = np.random.default_rng(0).normal(mean, std, 400)
    return Marginal(SIZE, mean, False, mean, std, mean - 1.645 * std, mean + 1.645 * std, draws)


def test_densities_are_near_the_truth():
    draws = np.random.default_rng(0).normal(0.5, 1.0, 4000)
    places = np.linspace(-4, 4, 97)
    truth = np.exp(-0.5 * (places - 0.5) ** 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(density(draws, -4.0, 4.0), truth, atol=0.03)


def test_densities_of_repeated_draws_are_smooth_and_finite():
    assert np.isfinite(density(np.zeros(10), -1.0, 1.0)).all()
    assert density(np.array([0.0, 1.0] * 20), -1.0, 2.0).max() < 20


def test_the_axis_holds_everything():
    assert axis(SIZE, normal(0.0, 1.0)) == (-4.0, 4.0)
    assert axis(SIZE, given_marginal(SIZE, 9.0))[1] == 9.0
    low, high = axis(Variable("x", "number", "x", 1.0, 1.0))
    assert low < 1.0 < high


def test_the_interval_is_drawn_where_it_lies():
    text = density_drawing(normal(1.0, 0.5), normal(0.0, 1.0))
    x1, x2 = re.search(r'<line x1="([\d.]+)" x2="([\d.]+)"[^>]*class="interval"', text).groups()
    assert float(x1) == pytest.approx((1.0 - 0.8225 + 4) / 8 * 240, abs=0.01)
    assert float(x2) == pytest.approx((1.0 + 0.8225 + 4) / 8 * 240, abs=0.01)


def test_given_cards_say_so():
    text = card(given_marginal(SIZE, 1.5), normal(0.0, 1.0), selected=True)
    assert "size: given as 1.5" in text
    assert 'class="card given selected"' in text
    assert 'class="posterior"' not in text


def test_bars_show_both_probabilities():
    after = Marginal(CITY, "b", probabilities=np.array([0.1, 0.7, 0.2]))
    before = Marginal(CITY, "a", probabilities=np.array([0.5, 0.25, 0.25]))
    text = choice_bars(after, before)
    assert re.findall(r"width:([\d.]+)%", text) == ["50.0", "10.0", "25.0", "70.0", "25.0", "20.0"]


def test_latent_nodes_without_a_spread_have_dots_alone():
    unknown = LatentMarginal("h", np.array([1.0, -1.0]), np.full(2, np.nan))
    text = latent_card(unknown, unknown)
    assert text.count("<circle") == 2
    assert "<rect" not in text


def test_markup_escapes_what_is_not_markup():
    assert element("p", "<b>", Markup("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'
    assert concat("&", None) == "&amp;"


def test_pictures_are_the_pixels():
    pixels = np.array([[0.0, 1.0, 0.5], [1.0, 0.25, 0.0]])
    data = base64.b64decode(png(pixels).partition(",")[2])
    width, height = struct.unpack(">II", data[16:24])
    assert (height, width) == (2, 3)
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    rows = np.frombuffer(zlib.decompress(data[start : start + size]), np.uint8).reshape(2, 4)
    np.testing.assert_array_equal(rows[:, 1:], np.rint(pixels * 255))


@pytest.mark.parametrize(
    ("height", "width", "rows", "columns"), [(28, 28, 4, 4), (8, 12, 2, 3), (6, 6, 3, 1)]
)
def test_shapes_of_images_are_found(height, width, rows, columns):
    graph = vfg.Graph.blocks(height, width, rows=rows, columns=columns)
    assert picture_shape(graph) == (height, width)


def test_levels_are_stretched_only_where_needed():
    inside = np.array([0.2, 0.4])
    assert stretch(inside) is inside
    stretched = stretch(np.linspace(-1.0, 3.0, 1001))
    assert stretched.min() == pytest.approx(-0.02, abs=0.01)
    assert stretched.max() == pytest.approx(1.02, abs=0.01)


def test_layers_are_drawn_one_above_the_other():
    graph = vfg.Graph.tree({f"x{k}": 1 for k in range(9)}, arity=3, width=2)
    placed = {spot.name: spot for spot in place_nodes(graph)}
    assert list(placed) == [node for layer in graph.layers for node in layer]
    for edge in graph.edges:
        assert placed[edge.parent].y < placed[edge.child].y
    leaves = [placed[leaf] for leaf in graph.leaves]
    assert len({(spot.x, spot.y) for spot in leaves}) == 9


def test_nothing_overlaps():
    graph = vfg.Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")])
    for per_row in (2, 4, 10):
        placed = place_nodes(graph, per_row)
        for k, one in enumerate(placed):
            for other in placed[k + 1 :]:
                assert abs(one.x - other.x) >= 64 or abs(one.y - other.y) >= 34


def test_hundreds_of_leaves_are_grouped_until_opened():
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(300)}, width=4)
    closed = place_nodes(graph)
    assert [spot.name for spot in closed] == ["x0 … x299", "root"]
    assert len(closed[0].members) == 300
    opened = place_nodes(graph, expanded=[group_name(sibling_groups(graph)[("root",)])])
    assert len(opened) == 301
    assert len({spot.y for spot in opened}) > 20


def test_drawn_nodes_tell_width_flow_and_consistency(deep):
    opened = open_model(deep)
    table = np.random.default_rng(0).normal(size=(5, 4))
    distances = consistency(opened, open_table(opened, table))
    found = elements(opened, consistency=distances)
    data = {one["data"]["id"]: one["data"] for one in found}
    assert data["root"]["kind"] == "aggregation"
    assert "joins</dt><dd>3 children by gaussian" not in data["a"]["details"]
    assert "3 children by gaussian" in data["root"]["details"]
    assert "coupling blocks 2 hidden 8" in data["a"]["details"]
    assert "off by" in data["a"]["details"]
    assert data["a->root"]["target"] == "root"


def test_every_kind_of_node_has_a_look_in_both_themes():
    for theme in ("light", "dark"):
        selectors = " ".join(rule["selector"] for rule in stylesheet(theme))
        for kind in ("leaf", "group", "aggregation", "latent", "identity"):
            assert f".{kind}" in selectors
