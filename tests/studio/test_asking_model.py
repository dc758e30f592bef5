"""Any model behind one interface: what it finds is what the model says."""

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import light, linear, mixed, numbers

import vfg
from vfg.inference.variables import days_of
from vfg.studio import ask
from vfg.studio.asking.cards import pixels_of
from vfg.studio.asking.model import open_model


def test_answers_of_a_network_are_those_of_infer(network, network_opened):
    answered = network_opened.ask({"A": 1.0, "D": -0.5})
    answer = network.infer({"A": 1.0, "D": -0.5}, targets=["B", "C", "root"])
    low, high = (answer.quantile(level) for level in (0.05, 0.95))
    for name in ("B", "C"):
        marginal = answered[name]
        assert marginal.mean == pytest.approx(answer.mean[name].item())
        assert marginal.std == pytest.approx(answer.std[name].item())
        assert marginal.low == pytest.approx(low[name].item())
        assert marginal.high == pytest.approx(high[name].item())
    np.testing.assert_allclose(answered.latent["root"].mean, answer.mean["root"][0].numpy())
    assert answered["A"].given
    assert answered["A"].mean == 1.0


def test_answers_of_a_deep_model_are_those_of_infer(deep):
    answered = open_model(deep).ask({"a[1]": 0.3, "c": -1.0})
    table = torch.tensor([[torch.nan, 0.3, torch.nan, -1.0]], dtype=torch.float64)
    answer = deep.infer(table)
    assert answered["a[0]"].mean == pytest.approx(answer.mean["a"][0, 0].item(), abs=1e-5)
    assert answered["b"].std == pytest.approx(answer.std["b"].item(), rel=1e-4)


def test_answers_of_a_table_are_what_the_imputer_fills_in(mixed_imputer, mixed_opened):
    frame = mixed().iloc[:1].copy()
    hidden = [name not in ("height", "city") for name in frame.columns]
    frame = frame.mask(np.array([hidden])).assign(height=180.0, city="Rome")
    filled = mixed_imputer.transform(frame).iloc[0]
    answered = mixed_opened.ask({"height": 180.0, "city": "Rome"})
    assert answered["age"].value == filled["age"]
    assert round(answered["age"].mean) == filled["age"]
    assert answered["grade"].value == filled["grade"]
    assert bool(answered["member"].value) == bool(filled["member"])
    days = days_of(np.array([filled["since"].to_datetime64()]))[0]
    assert answered["since"].mean == pytest.approx(days)
    for name in ("age", "since"):
        assert answered[name].low <= answered[name].mean <= answered[name].high


def test_probabilities_sum_to_one(mixed_opened):
    answered = mixed_opened.ask({"height": 150.0})
    for name in ("city", "grade", "member"):
        assert answered[name].probabilities.sum() == pytest.approx(1.0)
        assert len(answered[name].probabilities) == len(answered[name].variable.categories)


def test_linear_tables_answer_in_closed_form(linear_opened):
    model = linear_opened.model
    found = linear_opened.ask({"0": 0.5})["1"]
    values, observed = model.encode(np.array([[0.5, np.nan, np.nan, np.nan]]))
    answer = model.linear.infer(values, observed=observed)
    part = model.encoding.parts[1]
    place = model.columns.index(model.encoding.sections[1].start)
    mean = float(torch.cat(list(answer.mean.values()), 1)[0, place])
    std = float(torch.cat(list(answer.std.values()), 1)[0, place])
    assert found.mean == pytest.approx(mean * part.deviation + part.centre)
    assert part.floor < found.low < found.high < part.ceiling
    assert found.high - found.low == pytest.approx(2 * 1.645 * std * part.deviation, rel=0.005)


def test_taking_evidence_away_tells_its_influence(network_opened):
    both = network_opened.ask({"A": 2.0, "B": 0.0})
    alone = network_opened.ask({"B": 0.0})
    spread = network_opened.marginal.variables["C"].std
    moved = abs(both.variables["C"].mean - alone.variables["C"].mean) / spread
    assert both.influence["A"]["C"] == pytest.approx(moved)
    assert both.rank_evidence()[0][0] == "A"
    assert "B" not in both.influence["A"]


def test_unknown_names_and_impossible_values_are_refused(mixed_opened):
    with pytest.raises(ValueError, match="there is no 'weight'"):
        mixed_opened.ask({"weight": 1})
    with pytest.raises(ValueError, match="'city' is one of"):
        mixed_opened.ask({"city": "Paris"})


def test_constant_columns_are_idle():
    table = numbers()[1]
    table[:, 1] = 7.0
    opened = open_model(light(members=1, mixtures=1).fit(table))
    assert opened.variables["1"].idle
    assert opened.ask({"0": 0.1}).variables["1"].value == 7.0


def test_evidence_far_outside_is_answered(mixed_opened):
    marginal = mixed_opened.ask({"height": 1e6}).variables["age"]
    assert np.isfinite(marginal.mean)


def test_models_come_from_files_too(tmp_path, network):
    path = tmp_path / "net.vfg"
    vfg.save(network, path)
    opened = open_model(path)
    assert opened.file == str(path)
    assert "GaussianVFG · 4 columns" in opened.summary


@pytest.mark.parametrize(
    ("given", "error"), [("nowhere.vfg", ValueError), (3, TypeError), (None, TypeError)]
)
def test_what_is_no_model_is_refused(given, error):
    with pytest.raises(error):
        open_model(given)


def test_copied_python_gives_the_same_numbers(tmp_path, network, capsys, mixed_imputer):
    vfg.save(network, tmp_path / "net.vfg")
    found = ask(tmp_path / "net.vfg", {"A": 1.0})
    scope = {}
    exec(found.python("C"), scope)
    assert scope["answer"].mean["C"].item() == pytest.approx(found["C"].mean)
    vfg.save(mixed_imputer.model_, tmp_path / "table.vfg")
    table = ask(tmp_path / "table.vfg", {"height": 170.0, "city": "Oslo", "since": "2020-03-01"})
    exec(table.python("age"), scope)
    assert scope["answer"].mean["age"].item() == pytest.approx(table["age"].mean, rel=1e-5)
    capsys.readouterr()


@pytest.mark.parametrize("leaf", ["a[1]", "b"])
def test_copied_python_of_a_deep_model_runs(tmp_path, deep, leaf, capsys):
    vfg.save(deep, tmp_path / "deep.vfg")
    found = ask(tmp_path / "deep.vfg", {leaf: 0.25})
    scope = {}
    exec(found.python(), scope)
    assert scope["answer"].mean["c"].item() == pytest.approx(found["c"].mean, abs=1e-5)
    capsys.readouterr()


def test_pictures_are_asked_by_pixels(picture_model, monkeypatch):
    opened = open_model(picture_model)
    assert opened.picture == (4, 6)
    answered = opened.ask({"block0_0[0]": 1, "block0_0[1]": 0})
    assert answered["block0_0[0]"].given
    assert "infer({'block0_0[0]': 1, 'block0_0[1]': 0})" in answered.python()
    monkeypatch.setattr("vfg.studio.asking.model.MOST_PIECES", 3)
    given = {"block0_0[0]": 1, "block0_0[1]": 0, "block1_0[0]": 1, "block1_0[1]": 0}
    assert list(opened.ask(given).influence) == ["block0_0", "block1_0"]


def test_the_expected_image_is_that_of_reconstruct(picture_model):
    opened = open_model(picture_model)
    row = torch.full((1, 24), torch.nan)
    row[0, 3] = 1.0
    name = list(opened.variables)[3]
    expected = picture_model.reconstruct(row)[0]
    np.testing.assert_allclose(opened.expected_pixels(opened.ask({name: 1})), expected, atol=1e-6)
    shown, given = pixels_of(opened.ask({name: 1}))
    assert (shown[given] == 1.0).all()  # as it was painted, whatever the model makes of it
    np.testing.assert_allclose(shown[~given], expected[~given], atol=1e-6)


def test_maps_of_whole_sections_are_asked_leaf_by_leaf():
    graph = vfg.Graph.star({"a": 2, "b": 1}, width=2)
    model = vfg.GaussianVFG(graph, leaf=vfg.Coupling(blocks=1, hidden=4))
    opened = open_model(model)
    found = opened.ask({"a[0]": 0.5, "a[1]": 1.0})
    assert list(found.influence) == ["a"]
    exact = model.infer({"a": [[0.5, 1.0]]}, targets=["b"])
    assert found.variables["b"].mean == pytest.approx(exact.mean["b"].item(), abs=1e-6)
    with pytest.raises(ValueError, match="observed in part"):
        opened.ask({"a[0]": 0.5})


def test_examples_are_values_that_people_type():
    size = np.random.default_rng(0).normal(size=80)
    frame = pd.DataFrame({"count": np.round(10 * size).astype(int), "size": 3.3 * size})
    example = open_model(linear().fit(frame)).example
    (value,) = example.evidence.values()
    assert value == round(value, 2)


def test_without_evidence_the_page_shows_the_frequencies_of_the_table():
    generator = np.random.default_rng(0)
    shares = np.array([0.2, 0.18, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01])
    place = generator.choice(len(shares), size=500, p=shares)
    frame = pd.DataFrame(
        {
            "region": [f"district {k}" for k in place],
            "size": 0.5 * place + generator.normal(size=500),
        }
    )
    seen = frame["region"].value_counts(normalize=True)
    answer = open_model(linear().fit(frame)).ask({})
    for name, share in answer["region"].shares.items():
        assert share == pytest.approx(seen[name], abs=0.01)
