"""Embeddings, traversals, samples, calibration and history: data, then figures of it."""

import json

import numpy as np
import pandas as pd
import pytest
from imputation.mixed_tables import mixed

pytest.importorskip("dash", reason="figures need the extra studio")
from vfg.inference.variables import Variable
from vfg.plots.latents import principal_components
from vfg.studio import components as figures
from vfg.studio.asking.model import open_model
from vfg.studio.exploring.analysis import (
    calibration,
    consistency,
    draw_rows,
    embedding,
    history_beside,
    read_history,
    samples,
    traversal,
)
from vfg.studio.filling.opened_tables import comparison, open_table
from vfg.training.history import Epoch, History


@pytest.fixture(scope="module")
def table(mixed_opened):
    return open_table(mixed_opened, mixed())


@pytest.fixture
def history():
    found = History()
    for k in range(3):
        found.add(Epoch(k, -3.0 + k, -1.0, 0.5, 0.5, -1.0, 0.0, 1.2 - 0.1 * k, 1e-3, 1.0, 0.1))
    return found


def test_embeddings_are_of_the_roots_states(mixed_imputer, mixed_opened, table):
    rows, places, _ = embedding(mixed_opened, table, "PCA")
    np.testing.assert_array_equal(rows, np.arange(60))
    np.testing.assert_allclose(
        places, principal_components(mixed_imputer.embed(mixed()))[0], atol=1e-9
    )


def test_tsne_is_reproducible(network_opened):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4)), columns=list("ABCD"))
    table = open_table(network_opened, frame)
    first, again = (embedding(network_opened, table, "t-SNE")[1] for _ in range(2))
    assert first.shape == (40, 2)
    np.testing.assert_allclose(first, again)


def test_rows_are_drawn_by_seed():
    assert draw_rows(3, 10).tolist() == [0, 1, 2]
    rows = draw_rows(10_000, 400)
    assert len(set(rows.tolist())) == 400
    np.testing.assert_array_equal(rows, draw_rows(10_000, 400))
    assert abs(rows.mean() - 5000) < 500
    assert len(set((rows % 25).tolist())) == 25


def test_consistency_does_not_depend_on_the_order_of_rows(deep):
    """The first rows of a sorted table say little about the others."""
    opened = open_model(deep)
    table = np.random.default_rng(0).normal(size=(2000, 4))
    table[1000:] *= 20.0
    found = consistency(opened, open_table(opened, table))
    for node, distance in deep.consistency(table).items():
        assert found[node] == pytest.approx(float(distance.mean()), rel=0.3)


def test_traversals_of_deep_models_are_those_of_the_model(deep):
    found = traversal(open_model(deep), "root", 1, [-1.0, 0.0, 1.0])
    wanted = deep.traverse(np.full((1, 4), np.nan), "root", 1, [-1.0, 0.0, 1.0])[0].numpy()
    np.testing.assert_allclose(found.values["c"], wanted[:, 3])
    assert found.pixels is None


def test_traversals_of_exact_models_fix_the_state(network, network_opened):
    width = network.graph.node("root").width
    found = traversal(network_opened, "root", 0, [0.0, 2.0])
    state = np.zeros((2, width))
    state[1, 0] = 2.0
    answer = network.infer({"root": state})
    np.testing.assert_allclose(found.values["C"], answer.mean["C"].numpy().ravel(), atol=1e-6)


@pytest.mark.parametrize("start", [None, 0])
def test_traversals_of_tables_have_every_column(mixed_opened, table, start):
    row = None if start is None else table.frame.slice(0, 1)
    found = traversal(mixed_opened, "root", 0, [-2.0, 0.0, 2.0], row)
    assert list(found.values) == list(mixed_opened.variables)
    assert all(np.isfinite(values).all() for values in found.values.values())
    assert ((found.values["member"] >= 0) & (found.values["member"] <= 1)).all()


def test_images_are_traversed_as_pictures(picture_model):
    opened = open_model(picture_model)
    found = traversal(opened, "root", 0, [0.0, 1.0])
    assert found.pixels.shape == (2, 4, 6)
    frame, pixels = samples(opened, 3)
    assert pixels.shape == (3, 4, 6)
    assert frame.shape == (3, 24)


def test_samples_have_the_kinds_of_the_table(mixed_opened):
    frame, pixels = samples(mixed_opened, 7, seed=1)
    assert pixels is None
    assert frame.shape == (7, 6)
    assert set(frame["city"]) <= {"Bern", "Oslo", "Rome"}
    pd.testing.assert_frame_equal(frame, samples(mixed_opened, 7, seed=1)[0])


def test_exact_models_are_calibrated_on_their_own_draws(network, network_opened):
    frame = pd.DataFrame(network.sample(400, seed=3).numpy(), columns=list(network.graph.columns))
    found = calibration(network_opened, open_table(network_opened, frame), share=0.3)
    np.testing.assert_allclose(found.coverage, found.levels, atol=0.08)
    assert all(error < 1.2 * plain for _, _, error, plain, _ in found.columns)


def test_calibration_of_tables_hides_numbers_only(mixed_opened, table):
    found = calibration(mixed_opened, table)
    assert {name for name, *_ in found.columns} <= {"height", "age", "since"}
    assert (np.diff(found.coverage) >= 0).all()


def test_calibration_needs_known_numbers(mixed_opened):
    empty = mixed().mask(np.ones((60, 6), dtype=bool))
    with pytest.raises(ValueError, match="too few known numbers"):
        calibration(mixed_opened, open_table(mixed_opened, empty))


def test_histories_are_read_and_found(tmp_path, history):
    history.save(tmp_path / "m.history.json")
    assert history_beside(str(tmp_path / "m.vfg")) == history
    assert history_beside(str(tmp_path / "other.vfg")) is None
    for broken in (b"{}", b"[1]", b"no", b'{"epochs": 3}'):
        with pytest.raises(ValueError, match="not a training history"):
            read_history(broken)


def test_figures_are_plain_json(mixed_opened, table, history):
    rows, places, _ = embedding(mixed_opened, table, "PCA")
    variables = mixed_opened.variables
    marginal = mixed_opened.ask({"age": 30}).variables["since"]
    found = [
        figures.missingness(table),
        figures.empty("nothing"),
        figures.history_lines(history),
        figures.calibration_curve(calibration(mixed_opened, table)),
        figures.traversal_lines(traversal(mixed_opened, "root", 0, [0.0, 1.0]), variables),
        figures.cell_draws(variables["since"], marginal.draws, marginal.mean, (marginal.low,)),
        figures.shares(("a", "b"), np.array([0.25, 0.75])),
        figures.scatter(places, rows, "", [None] * 60, "component"),
    ]
    for name, variable in variables.items():
        found.append(figures.distributions(variable, comparison(table, table, name)))
    for figure in found:
        json.dumps(figure)
        assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"


def test_scatters_have_a_trace_per_category_and_missing_is_none():
    figure = figures.scatter(np.zeros((3, 2)), np.arange(3), "city", ["a", "b", None], "PCA")
    assert sorted(trace["name"] for trace in figure["data"]) == ["a", "b", "missing"]
    colours = {trace["name"]: trace["marker"]["color"] for trace in figure["data"]}
    assert colours["missing"] == figures.GREY
    assert figures.GREY not in (colours["a"], colours["b"])


def test_scatters_of_numbers_leave_missing_rows_grey():
    figure = figures.scatter(np.zeros((3, 2)), np.arange(3), "age", [1.0, None, 3.0], "PCA")
    grey, shaded = figure["data"]
    assert grey["customdata"] == [1]
    assert shaded["marker"]["color"] == [1.0, 3.0]


def test_names_are_no_links_in_figures(mixed_opened, table):
    link = '<a href="https://example.org">x</a>'
    figure = figures.scatter(np.zeros((2, 2)), np.arange(2), link, [link, "b"], "PCA")
    assert "<a" not in json.dumps(figure)
    variable = Variable(link, "number", link)
    for made in (
        figures.distributions(variable, {"observed": np.zeros(2)}),
        figures.shares((link, "b"), np.array([0.5, 0.5])),
        figures.empty(link),
        figures.cell_draws(variable, np.zeros(3), 0.0, (0.0, 1.0)),
    ):
        assert "<a" not in json.dumps(made)


def test_calibration_has_the_band_of_chance(mixed_opened, table):
    found = calibration(mixed_opened, table)
    band = figures.calibration_curve(found)["data"][0]
    middle = band["x"].index(0.5)
    assert band["y"][middle] == pytest.approx(0.5 - 1.0 / np.sqrt(found.cells))


def test_bars_are_sorted():
    figure = figures.shares(("a", "b", "c"), np.array([0.2, 0.5, 0.3]))
    assert figure["data"][0]["x"] == ["b", "c", "a"]
