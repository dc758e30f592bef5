"""Any model behind one interface: what it finds is what the model says."""

import numpy as np
import pytest
import torch
from tabular.mixed_tables import light, mixed, numbers

import vfg
from vfg.studio import ask
from vfg.studio.subjects import open_subject
from vfg.studio.variables import days_of


def test_findings_of_a_network_are_those_of_infer(network, network_subject):
    findings = network_subject.answer({"A": 1.0, "D": -0.5})
    answer = network.infer({"A": 1.0, "D": -0.5}, targets=["B", "C", "root"])
    low, high = (answer.quantile(level) for level in (0.05, 0.95))
    for name in ("B", "C"):
        finding = findings.variables[name]
        assert finding.mean == pytest.approx(answer.mean[name].item())
        assert finding.std == pytest.approx(answer.std[name].item())
        assert finding.low == pytest.approx(low[name].item())
        assert finding.high == pytest.approx(high[name].item())
    np.testing.assert_allclose(findings.latent["root"].mean, answer.mean["root"][0].numpy())
    assert findings.variables["A"].given
    assert findings.variables["A"].mean == 1.0


def test_findings_of_a_deep_model_are_those_of_infer(deep):
    findings = open_subject(deep).answer({"a[1]": 0.3, "c": -1.0})
    table = torch.tensor([[torch.nan, 0.3, torch.nan, -1.0]], dtype=torch.float64)
    answer = deep.infer(table)
    assert findings.variables["a[0]"].mean == pytest.approx(answer.mean["a"][0, 0].item(), abs=1e-5)
    assert findings.variables["b"].std == pytest.approx(answer.std["b"].item(), rel=1e-4)


def test_findings_of_a_table_are_what_the_imputer_fills_in(mixed_imputer, mixed_subject):
    frame = mixed().iloc[:1].copy()
    hidden = [name not in ("height", "city") for name in frame.columns]
    frame = frame.mask(np.array([hidden])).assign(height=180.0, city="Rome")
    filled = mixed_imputer.transform(frame).iloc[0]
    findings = mixed_subject.answer({"height": 180.0, "city": "Rome"}).variables
    assert findings["age"].value == filled["age"]
    assert round(findings["age"].mean) == filled["age"]
    assert findings["grade"].value == filled["grade"]
    assert bool(findings["member"].value) == bool(filled["member"])
    days = days_of(np.array([filled["since"].to_datetime64()]))[0]
    assert findings["since"].mean == pytest.approx(days)
    for name in ("age", "since"):
        assert findings[name].low <= findings[name].mean <= findings[name].high


def test_probabilities_sum_to_one(mixed_subject):
    findings = mixed_subject.answer({"height": 150.0}).variables
    for name in ("city", "grade", "member"):
        assert findings[name].probabilities.sum() == pytest.approx(1.0)
        assert len(findings[name].probabilities) == len(findings[name].variable.categories)


def test_linear_tables_answer_in_closed_form(linear_subject):
    model = linear_subject.model
    found = linear_subject.answer({"0": 0.5}).variables["1"]
    values, observed = model.encode(linear_subject.table([{"0": 0.5}]))
    answer = model.linear.infer(values, observed=observed)
    part = model.encoding.parts[1]
    place = model.columns.index(model.encoding.sections[1].start)
    mean = float(torch.cat(list(answer.mean.values()), 1)[0, place])
    std = float(torch.cat(list(answer.std.values()), 1)[0, place])
    assert found.mean == pytest.approx(mean * part.deviation + part.centre)
    assert part.floor < found.low < found.high < part.ceiling
    assert found.high - found.low == pytest.approx(2 * 1.645 * std * part.deviation, rel=0.005)


def test_taking_evidence_away_tells_its_influence(network_subject):
    both = network_subject.answer({"A": 2.0, "B": 0.0})
    alone = network_subject.answer({"B": 0.0})
    spread = network_subject.marginal.variables["C"].std
    moved = abs(both.variables["C"].mean - alone.variables["C"].mean) / spread
    assert both.influence["A"]["C"] == pytest.approx(moved)
    assert both.ranked()[0][0] == "A"
    assert "B" not in both.influence["A"]


def test_unknown_names_and_impossible_values_are_refused(mixed_subject):
    with pytest.raises(ValueError, match="there is no 'weight'"):
        mixed_subject.answer({"weight": 1})
    with pytest.raises(ValueError, match="'city' is one of"):
        mixed_subject.answer({"city": "Paris"})


def test_constant_columns_are_idle():
    table = numbers()[1]
    table[:, 1] = 7.0
    subject = open_subject(light(members=1, mixtures=1).fit(table))
    assert subject.variables["1"].idle
    assert subject.answer({"0": 0.1}).variables["1"].value == 7.0


def test_evidence_far_outside_is_answered(mixed_subject):
    finding = mixed_subject.answer({"height": 1e6}).variables["age"]
    assert np.isfinite(finding.mean)


def test_models_come_from_files_too(tmp_path, network):
    path = tmp_path / "net.vfg"
    vfg.save(network, path)
    subject = open_subject(path)
    assert subject.file == str(path)
    assert "GaussianVFG · 4 columns" in subject.summary


@pytest.mark.parametrize(
    ("given", "error"), [("nowhere.vfg", ValueError), (3, TypeError), (None, TypeError)]
)
def test_what_is_no_model_is_refused(given, error):
    with pytest.raises(error):
        open_subject(given)


def test_copied_python_gives_the_same_numbers(tmp_path, network, capsys, mixed_imputer):
    vfg.save(network, tmp_path / "net.vfg")
    found = ask(tmp_path / "net.vfg", {"A": 1.0})
    scope = {}
    exec(found.python("C"), scope)
    assert scope["answer"].mean["C"].item() == pytest.approx(found["C"].mean)
    vfg.save(mixed_imputer.model_, tmp_path / "table.vfg")
    table = ask(tmp_path / "table.vfg", {"height": 170.0, "city": "Oslo", "since": "2020-03-01"})
    exec(table.python("age"), scope)
    assert scope["answer"]["age"].mean == table["age"].mean
    capsys.readouterr()


@pytest.mark.parametrize("leaf", ["a[1]", "b"])
def test_copied_python_of_a_deep_model_runs(tmp_path, deep, leaf, capsys):
    vfg.save(deep, tmp_path / "deep.vfg")
    found = ask(tmp_path / "deep.vfg", {leaf: 0.25})
    scope = {}
    exec(found.python(), scope)
    assert scope["answer"].mean["c"].item() == pytest.approx(found["c"].mean, abs=1e-5)
    capsys.readouterr()


def test_pictures_are_asked_by_pixels(picture_model):
    subject = open_subject(picture_model)
    assert subject.picture == (4, 6)
    findings = subject.answer({"block0_0[0]": 1, "block0_0[1]": 0})
    assert findings.variables["block0_0[0]"].given
    assert "infer({0: 1.0, 1: 0.0})" in subject.python({"block0_0[0]": 1, "block0_0[1]": 0}, None)


def test_maps_of_whole_sections_are_asked_leaf_by_leaf():
    graph = vfg.Graph.star({"a": 2, "b": 1}, width=2)
    model = vfg.GaussianVFG(graph, leaf=vfg.Coupling(blocks=1, hidden=4))
    subject = open_subject(model)
    found = subject.answer({"a[0]": 0.5, "a[1]": 1.0})
    assert list(found.influence) == ["a"]
    exact = model.infer({"a": [[0.5, 1.0]]}, targets=["b"])
    assert found.variables["b"].mean == pytest.approx(exact.mean["b"].item(), abs=1e-6)
    with pytest.raises(ValueError, match="observed in part"):
        subject.answer({"a[0]": 0.5})
