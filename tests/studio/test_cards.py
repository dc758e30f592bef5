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
    density_marks,
    editor,
    few_values,
    latent_card,
    outside,
)
from vfg.studio.asking.graph_drawing import (
    graph_svg,
    node_details,
    place_nodes,
    view_of,
)
from vfg.studio.asking.model import open_model
from vfg.studio.exploring.analysis import consistency
from vfg.studio.filling.opened_tables import open_table
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
    text = card(given_marginal(SIZE, 1.5), normal(0.0, 1.0), Markup("<div></div>"))
    assert "size: given as 1.5" in text
    assert 'class="card given selected"' in text
    assert 'class="posterior"' not in text


def test_bars_show_both_probabilities():
    after = Marginal(CITY, "b", probabilities=np.array([0.1, 0.7, 0.2]))
    before = Marginal(CITY, "a", probabilities=np.array([0.5, 0.25, 0.25]))
    text = choice_bars(after, before)
    assert re.findall(r"width:([\d.]+)%", text) == ["25.0", "70.0", "25.0", "20.0", "50.0", "10.0"]


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


def test_unknown_pixels_are_transparent():
    known = np.array([[True, False]])
    data = base64.b64decode(png(np.array([[0.0, 1.0]]), known).partition(",")[2])
    assert data[25] == 4  # grey with an alpha channel
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    assert list(zlib.decompress(data[start : start + size])) == [0, 0, 255, 255, 0]


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


def sizes_of(view):
    boxes = [*(node.name for node in view.graph.nodes), *view.alone]
    return dict.fromkeys(view.places, (24.0, 12.0)) | dict.fromkeys(boxes, (100.0, 40.0))


def test_layers_are_drawn_one_above_the_other():
    graph = vfg.Graph.tree({f"x{k}": 1 for k in range(9)}, arity=3, width=2)
    view = view_of(graph)
    placed = place_nodes(view, sizes_of(view), 1000.0)
    assert set(placed) == {node.name for node in graph.nodes}
    for edge in graph.edges:
        assert placed[edge.parent][1] < placed[edge.child][1]


@pytest.mark.parametrize("width", [200.0, 400.0, 1000.0])
def test_nothing_overlaps(width):
    network = vfg.Graph.from_bayesian_network(
        [("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")], variables=["lonely"]
    )
    star = vfg.Graph.star({f"x{k}": 1 for k in range(30)}, width=4)
    for graph in (network, star):
        view = view_of(graph)
        placed = place_nodes(view, sizes_of(view), width)
        placed = [placed[name] for name in placed if name in graph.leaves or name == "root"]
        for k, (x, y) in enumerate(placed):
            for other_x, other_y in placed[k + 1 :]:
                assert abs(x - other_x) >= 100 or abs(y - other_y) >= 40


def test_narrow_drawings_stand_in_rows():
    view = view_of(vfg.Graph.star({f"x{k}": 1 for k in range(30)}, width=4))
    for width in (300.0, 1000.0):
        placed = place_nodes(view, sizes_of(view), width)
        across = [x for x, _ in placed.values()]
        assert max(across) - min(across) + 100.0 <= width + 1.0


def test_hundreds_of_leaves_are_grouped_until_opened():
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(300)}, width=4)
    closed = view_of(graph)
    assert [node.name for node in closed.graph.nodes] == ["x0 … x299", "root"]
    assert len(closed.groups["x0 … x299"]) == 300
    assert len(view_of(graph, ("x0 … x299",)).graph.nodes) == 301


def test_large_trees_are_grouped_by_branches():
    graph = vfg.Graph.tree({f"x{k}": 1 for k in range(300)}, arity=4, width=2)
    closed = view_of(graph)
    assert len(closed.groups) <= 40
    assert [leaf for members in closed.groups.values() for leaf in members] == list(graph.leaves)
    name, members = next(iter(closed.groups.items()))
    opened = view_of(graph, (name,))
    assert set(members) <= {node.name for node in opened.graph.nodes}
    assert set(opened.groups) == set(closed.groups) - {name}


def test_the_network_of_the_user_is_drawn(network_opened):
    text = graph_svg(network_opened.ask({}), 1000.0)
    assert set(re.findall(r'data-node="([^"]+)"', text)) == set("ABCD")
    assert text.count('class="edge flow"') == 3
    edges = [("A", "B"), ("B", "C")]
    graph = vfg.Graph.from_bayesian_network(edges, variables=["Z"])
    assert list(graph.network.edges) == edges
    assert view_of(graph).alone == ("Z",)
    assert vfg.Graph.tree({f"x{k}": 1 for k in range(9)}, arity=3).network is None


def test_edges_of_a_network_pass_beside_other_nodes():
    """A chain with a shortcut: every layer has one node, and none may hide the shortcut."""
    edges = [("A", "B"), ("B", "C"), ("A", "C")]
    model = vfg.GaussianVFG(vfg.Graph.from_bayesian_network(edges, variables="ABC"))
    model.fit(np.random.default_rng(0).normal(size=(50, 3)))
    text = graph_svg(open_model(model).ask({}), 1000.0)
    assert text.count('class="edge flow"') == 3
    (path,) = re.findall(r'<path d="([^"]+)" class="edge', text)
    boxes = dict(re.findall(r'translate\(([-\d.]+) [-\d.]+\)"[^>]*data-node="([^"]+)"', text))
    boxes = {name: float(x) for x, name in boxes.items()}
    middle = re.findall(r"([-\d.]+) [-\d.]+C", path)[0]
    assert abs(float(middle) - boxes["B"]) > 32.0  # half of the width of a box
    chain = vfg.GaussianVFG(vfg.Graph.from_bayesian_network([("A", "B")], variables="AB"))
    chain.fit(np.random.default_rng(0).normal(size=(50, 2)))
    assert graph_svg(open_model(chain).ask({}), 380.0).count('class="edge flow"') == 1


def test_leaves_show_their_distributions(mixed_opened):
    answered = mixed_opened.ask({"age": 30})
    text = graph_svg(answered, 1000.0, selected="city")
    assert 'class="node leaf given"' in text
    assert 'class="node leaf chosen"' in text
    best = int(answered["city"].probabilities.argmax())
    assert f'data-set="city" data-value="{best}"' in text
    assert 'aria-label="leaf age: given as 30"' in text
    small = graph_svg(answered, 380.0, distributions=False)
    assert "data-set" not in small
    assert 'class="mini"' not in small


def test_nodes_tell_width_flow_and_consistency(deep):
    opened = open_model(deep)
    table = np.random.default_rng(0).normal(size=(5, 4))
    distances = consistency(opened, open_table(opened, table))
    leaf, root = (node_details(opened, name, distances) for name in ("a", "root"))
    assert "3 children by gaussian" not in leaf
    assert "3 children by gaussian" in root
    assert "coupling blocks 2 hidden 8" in leaf
    assert "mean distance" in leaf
    text = graph_svg(opened.ask({}), 1000.0)
    assert 'class="node latent aggregation"' in text
    assert "2 columns" in text


def test_numbers_that_take_few_values_are_bars():
    doors = Variable("doors", "integer", "doors", 2.0, 5.0)
    before = Marginal(doors, 4, mean=3.5, low=2, high=5, draws=np.array([2.0, 3.0, 4.0, 5.0]))
    after = Marginal(doors, 4, mean=4.0, low=3, high=5, draws=np.array([4.0, 4.0, 4.0, 5.0]))
    text = "".join(density_marks(after, before))
    assert "<path" not in text
    heights = [
        [float(h) for h in re.findall(rf'height="([\d.]+)" class="{kind}"', text)]
        for kind in ("marginal", "posterior")
    ]
    assert np.array(heights[0]) / heights[0][0] == pytest.approx([1, 1, 1, 1])
    assert np.array(heights[1]) / heights[0][0] == pytest.approx([0, 0, 3, 1], abs=0.01)
    assert few_values(normal(0.0, 1.0)) is None


def test_labels_stand_below_their_bars():
    clutch = Variable("clutch", "number", "clutch", 1.0, 2.0)
    one = Marginal(clutch, 2.0, mean=1.9, low=1, high=2, draws=np.repeat([1.0, 2.0], [4, 36]))
    text = density_drawing(one, one)
    first, last = (
        float(x) + float(w) / 2
        for x, w in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)[:2]
    )
    widths = re.findall(r'<span style="width:([\d.]+)%">', text)
    # A label in the middle of a span at either end of the axis.
    assert [float(w) / 2 for w in widths] == pytest.approx(
        [100 * first / 240, 100 - 100 * last / 240]
    )


def test_values_too_rare_for_a_draw_have_their_place():
    pixel = Variable("pixel", "number", "pixel", 0.0, 2.0)
    np.testing.assert_array_equal(few_values(Marginal(pixel, 0.0, draws=np.zeros(40))), [0.0, 2.0])
    shade = Variable("shade", "integer", "shade", 0.0, 16.0)
    assert len(few_values(Marginal(shade, 0, draws=np.linspace(0.0, 16.0, 90)))) == 17


def test_columns_that_never_varied_have_no_drawing():
    idle = Variable("idle", "number", "idle", 7.0, 7.0, idle=True)
    text = card(Marginal(idle, 7.0, mean=7.0), Marginal(idle, 7.0, mean=7.0))
    assert "never varied" in text
    assert "<svg" not in text


def test_groups_name_their_ends():
    names = [f"measurement_{k:02d}_of_sensor" for k in range(50)]
    graph = vfg.Graph.star(dict.fromkeys(names, 1), width=2)
    model = vfg.GaussianVFG(graph)
    model.fit(np.random.default_rng(0).normal(size=(60, 50)))
    text = graph_svg(open_model(model).ask({}), 380.0)
    labels = re.findall(r'class="label">([^<]+)<', text)
    assert labels == ["50 leaves", names[0], "…", names[-1], "root"]


def test_the_legend_has_the_marks_that_are_drawn(network_opened):
    pytest.importorskip("dash")
    from vfg.studio.asking.page import legend_of, node_names

    assert [kind for kind, _ in legend_of(network_opened.graph)] == ["leaf", "given", "arrow"]
    assert sorted(node_names(network_opened.graph)) == list("ABCD")
    star = vfg.Graph.star({f"x{k}": 1 for k in range(50)}, width=2)
    assert [kind for kind, _ in legend_of(star)] == ["leaf", "given", "aggregation", "group"]
    assert len(node_names(star)) == 51


def test_evidence_outside_the_data_is_told():
    assert outside(given_marginal(SIZE, 99.0)) == "outside the data, −4 to 4"
    assert outside(given_marginal(SIZE, 3.0)) == ""
    assert "outside the data" in card(given_marginal(SIZE, 99.0), normal(0.0, 1.0))


def test_all_categories_are_offered_by_probability(mixed_opened):
    text = editor(mixed_opened.ask({"city": "Rome"}), "city")
    order = [int(k) for k in re.findall(r'data-set="city" data-value="(\d+)"', text)]
    shares = mixed_opened.marginal["city"].probabilities
    assert order == np.argsort(-shares, kind="stable").tolist()
    assert text.count('aria-pressed="true"') == 1
    answered = mixed_opened.ask({"height": 190.0})
    text = editor(answered, "city")
    order = [int(k) for k in re.findall(r'data-set="city" data-value="(\d+)"', text)]
    assert order == np.argsort(-answered["city"].probabilities, kind="stable").tolist()
    assert order != np.argsort(-shares, kind="stable").tolist()
