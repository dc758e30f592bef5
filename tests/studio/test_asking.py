"""Questions, and the pages that answer them."""

import json
import math
import re
import shlex
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from imputation.mixed_tables import linear, numbers

from vfg.studio import ask
from vfg.studio.asking.cards import choose_names
from vfg.studio.asking.model import open_model
from vfg.studio.asking.state import PageState, Question, render, update


def test_undo_goes_back_step_by_step():
    question = Question().give("a", 1).give("b", 2).take("a").replace({})
    steps = [question]
    while steps[-1].past:
        steps.append(steps[-1].undo())
    assert [step.given for step in steps] == [{}, {"b": 2}, {"a": 1, "b": 2}, {"a": 1}, {}]
    assert steps[-1].undo() == steps[-1]


def test_dragging_a_slider_is_one_step():
    question = Question().give("a", 1)
    for value in range(50):
        question = question.give("b", value)
    assert question.undo().given == {"a": 1}


def test_questions_travel_as_json():
    question = Question().give("a", 1).give("b", "x").take("a")
    assert Question.from_dict(question.to_dict()) == question
    state = PageState(question, "a", "se", 3, "no", "root", ("a … z",), (("a", 1),))
    assert PageState.from_dict(state.to_dict()) == state


def test_the_command_line_has_every_piece_of_evidence(mixed_opened):
    line = mixed_opened.ask({"city": "Bern", "height": 171.0}).command("age")
    words = shlex.split(line)
    assert words[:3] == ["vfg", "query", "model.vfg"]
    assert "city=Bern" in words
    assert words[-2:] == ["--infer", "age"]


def test_the_command_line_gives_what_the_page_shows(tmp_path, mixed_imputer):
    typer_testing = pytest.importorskip("typer.testing")
    cli = pytest.importorskip("vfg.cli.app", reason="the command line is not there yet")
    import vfg

    vfg.save(mixed_imputer.model_, tmp_path / "m.vfg")
    found = ask(tmp_path / "m.vfg", {"city": "Bern", "height": 171.0})
    words = [*shlex.split(found.command("age"))[1:], "--json"]
    result = typer_testing.CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    (answer,) = json.loads(result.output)["answers"]
    assert answer["value"] == pytest.approx(found["age"].mean, abs=1e-3)


class Page(HTMLParser):
    """What a page loads from elsewhere, and whether its elements close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loaded = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)
        self.loaded += [value for key, value in attributes if key in ("src", "href")]

    def handle_startendtag(self, tag, attributes):
        self.loaded += [value for key, value in attributes if key in ("src", "href")]

    def handle_endtag(self, tag):
        if tag != "meta":
            assert self.open.pop() == tag


def test_the_exported_page_stands_alone(mixed_opened, tmp_path):
    found = mixed_opened.ask({"height": 171.0, "city": "Oslo"})
    found.save(tmp_path / "answer.html")
    text = (tmp_path / "answer.html").read_text()
    page = Page(text)
    assert page.open == []
    assert page.loaded == []
    assert "http://" not in text
    assert "https://" not in text
    assert "<script" not in text
    for name in mixed_opened.variables:
        assert f">{name}</h3>" in text


def test_names_are_escaped_everywhere(picture_model):
    import pandas as pd
    from imputation.mixed_tables import linear

    nasty = "<img src=x onerror=alert(1)>"
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=[nasty, "b"])
    frame["c"] = np.array(["<b>x</b>", "y"])[(frame["b"] > 0).astype(int)]
    opened = open_model(linear().fit(frame))
    state = update(opened, PageState(), {"kind": "set", "name": nasty, "value": "0.5"})
    shown = render(opened, state)
    text = "".join(
        shown[part] for part in ("answers", "evidence", "graph", "large", "node", "code")
    )
    text += opened.ask({nasty: 1.0}).to_html()
    assert "<img src=x" not in text
    assert "<b>x" not in text


def test_the_page_says_what_is_impossible_and_keeps_the_rest(mixed_opened):
    state = update(mixed_opened, PageState(), {"kind": "set", "name": "age", "value": "30"})
    bad = update(mixed_opened, state, {"kind": "set", "name": "age", "value": "old"})
    assert bad.question == state.question
    assert "whole number" in render(mixed_opened, bad)["error"]
    again = update(mixed_opened, bad, {"kind": "set", "name": "age", "value": "31"})
    assert again.error == ""
    assert again.question.given == {"age": 31}


def test_choosing_what_is_chosen_leaves_the_editor_alone(mixed_opened):
    """A new editor would take away what is being typed into the old one."""
    state = update(mixed_opened, PageState(), {"kind": "select", "name": "age"})
    again = update(mixed_opened, state, {"kind": "select", "name": "age"})
    assert again == state
    other = update(mixed_opened, state, {"kind": "select", "name": "city"})
    assert (other.selected, other.revision) == ("city", state.revision + 1)


@pytest.mark.parametrize(
    "action",
    [
        {"kind": "set", "name": "nobody", "value": "1"},
        {"kind": "dance"},
        {"kind": "row", "leaf": "age", "row": 1},
        {"kind": "select", "name": "nobody"},
    ],
)
def test_actions_that_cannot_be_leave_a_message(mixed_opened, action):
    state = update(mixed_opened, PageState(), action)
    assert state.error
    assert state.question == Question()


def test_actions_follow_each_other(mixed_opened):
    state = PageState()
    for action in (
        {"kind": "node", "name": "city"},
        {"kind": "set", "name": "city", "value": "1", "choice": True},
        {"kind": "set", "name": "height", "value": "171.5"},
        {"kind": "remove", "name": "city"},
    ):
        state = update(mixed_opened, state, action)
        assert state.error == ""
    assert state.question.given == {"height": 171.5}
    undone = update(mixed_opened, state, {"kind": "undo"})
    assert undone.question.given == {"city": "Oslo", "height": 171.5}
    row = update(
        mixed_opened, undone, {"kind": "row", "leaf": "age", "row": 2}, lambda row: {"age": row}
    )
    assert row.question.given["age"] == 2
    found = update(mixed_opened, row, {"kind": "find", "text": "gra"})
    shown = render(mixed_opened, found)
    assert re.findall(r'data-select="(\w+)" data-mean', shown["answers"]) == ["grade"]
    assert shown["values"] == {"city": "Oslo", "height": "171.5", "age": "2"}


def test_cards_carry_the_numbers_and_say_them(mixed_opened):
    shown = render(
        mixed_opened, update(mixed_opened, PageState(), {"kind": "set", "name": "age", "value": 30})
    )
    marginal = mixed_opened.ask({"age": 30}).variables["height"]
    card = re.search(r"<div[^>]*data-select=\"height\"[^>]*>", shown["answers"])[0]
    assert f'data-mean="{marginal.mean!r}"' in card
    assert 'role="button"' in card
    assert f"height: {marginal.text}" in card


def editor_key(shown):
    return re.search(r'class="editor" data-key="([^"]+)"', shown["answers"])[1]


def test_the_editor_stays_while_a_slider_moves(mixed_opened):
    state = update(mixed_opened, PageState(), {"kind": "select", "name": "height"})
    keys = []
    for value in (170, 171):
        state = update(mixed_opened, state, {"kind": "set", "name": "height", "value": value})
        keys.append(editor_key(render(mixed_opened, state)))
    assert keys[0] == keys[1]
    undone = update(mixed_opened, state, {"kind": "undo"})
    assert editor_key(render(mixed_opened, undone)) != keys[1]


def count_cards(text):
    return len(re.findall(r'<div [^>]*class="card[ "]', text))


def test_notebooks_show_cards(network_opened, linear_opened):
    found = network_opened.ask({"A": 1.0})
    assert "<script" not in found._repr_html_()
    assert "given A = 1.0" in str(found)
    assert len(found.latent) == 3
    # Families of a known network are not what its user gave.
    assert count_cards(found._repr_html_()) == 4
    assert count_cards(linear_opened.ask({})._repr_html_()) == 4 + 1


def test_columns_that_never_varied_take_no_room_from_others(monkeypatch):
    table = numbers()[1]
    table[:, 1] = 7.0
    opened = open_model(linear().fit(table))
    monkeypatch.setattr("vfg.studio.asking.cards.MOST_CARDS", 3)
    assert choose_names(opened.ask({}), None, "") == ["0", "1", "2"]
    assert choose_names(opened.ask({"3": 0.0}), None, "") == ["0", "1", "3"]


def test_narrow_windows_have_a_narrow_drawing(mixed_opened):
    wide = render(mixed_opened, PageState())
    state = update(mixed_opened, PageState(), {"kind": "window", "narrow": True})
    narrow = render(mixed_opened, state)
    assert (wide["narrow"], narrow["narrow"]) == (False, True)
    widths = [
        float(re.search(r'viewBox="\S+ \S+ (\S+)', one["large"])[1]) for one in (wide, narrow)
    ]
    assert widths[1] < 500.0 < widths[0]
    assert PageState.from_dict(state.to_dict()) == state


def test_addresses_and_saved_cases_are_loaded(mixed_opened):
    values = {"city": "Rome", "height": "171.5", "since": "2021-03-04"}
    state = update(mixed_opened, PageState(), {"kind": "load", "evidence": values})
    assert state.error == ""
    shown = render(mixed_opened, state)["values"]
    assert update(mixed_opened, PageState(), {"kind": "load", "evidence": shown}) == state
    bad = update(mixed_opened, state, {"kind": "load", "evidence": {"nobody": "1"}})
    assert "there is no 'nobody'" in bad.error
    assert bad.question == state.question


def test_two_cases_are_compared(mixed_opened):
    first = update(mixed_opened, PageState(), {"kind": "set", "name": "age", "value": "30"})
    pinned = update(mixed_opened, first, {"kind": "compare"})
    second = update(mixed_opened, pinned, {"kind": "set", "name": "age", "value": "60"})
    shown = render(mixed_opened, second)
    assert shown["baseline"] == "given age = 30"
    alone = render(mixed_opened, update(mixed_opened, second, {"kind": "compare"}))
    assert alone["baseline"] == "without evidence"
    grey = r'data-select="height".*?<path d="([^"]+)" class="marginal"'
    assert re.search(grey, shown["answers"])[1] != re.search(grey, alone["answers"])[1]


def test_choosing_a_category_again_takes_it_back(mixed_opened):
    action = {"kind": "set", "name": "city", "value": 1, "choice": True}
    state = update(mixed_opened, PageState(), action)
    assert state.question.given == {"city": "Oslo"}
    assert update(mixed_opened, state, action).question.given == {}


def test_evidence_is_ranked_by_what_it_does_to_the_selected_variable(mixed_opened):
    answered = mixed_opened.ask({"age": 30, "city": "Rome"})
    ranked = answered.rank_evidence("height")
    assert [moved for _, moved, _ in ranked] == sorted(
        (moves["height"] for moves in answered.influence.values()), reverse=True
    )
    state = PageState()
    for name, value in (("age", "30"), ("city", "Rome")):
        state = update(mixed_opened, state, {"kind": "set", "name": name, "value": value})
    state = update(mixed_opened, state, {"kind": "select", "name": "height"})
    assert "moved height by" in render(mixed_opened, state)["evidence"]


def test_pixels_are_painted_in_one_step(picture_model):
    opened = open_model(picture_model)
    stroke = {"kind": "paint", "ink": "white", "pixels": [0, 7]}
    state = update(opened, PageState(), stroke)
    names = list(opened.variables)
    assert state.question.given == {names[0]: 1, names[7]: 1}
    erased = update(opened, state, {"kind": "paint", "ink": "unknown", "pixels": [7]})
    assert erased.question.given == {names[0]: 1}
    dark = update(opened, erased, {"kind": "paint", "ink": "black", "pixels": [0]})
    assert dark.question.given == {names[0]: 0}
    assert update(opened, dark, {"kind": "undo"}).question == erased.question
    shown = render(opened, state)["answers"]
    assert "data-paint" in shown
    assert "data-select" not in shown
    assert (
        "data-select"
        in render(opened, update(opened, state, {"kind": "find", "text": "[1]"}))["answers"]
    )


def test_the_first_page_has_a_question_that_is_answered(mixed_opened):
    shown = render(mixed_opened, PageState())["introduction"]
    evidence = json.loads(unescape(re.search(r'data-evidence="([^"]+)"', shown)[1]))
    state = update(mixed_opened, PageState(), {"kind": "load", "evidence": evidence})
    assert state.error == ""
    name, target = re.findall(r"<strong>(\w+)</strong>", shown)
    assert [name] == list(state.question.given)
    assert f"{mixed_opened.ask(state.question.given)[target].text}" in shown
    assert render(mixed_opened, state)["introduction"] == ""


def test_the_probability_of_the_evidence_is_told(network, network_opened):
    names = list(network.graph.columns)
    given = {"A": 0.5, "D": -1.0}
    row = np.array([[given.get(name, np.nan) for name in names]])
    wanted = float(network.log_prob(row)[0])
    spread = network.infer({}, targets=["A"])
    one = network_opened.log_prob({"A": 0.5})
    mean, std = float(spread.mean["A"]), float(spread.std["A"])
    closed = -0.5 * ((0.5 - mean) / std) ** 2 - math.log(std * math.sqrt(2 * math.pi))
    assert one == pytest.approx(closed, abs=1e-6)
    assert network_opened.log_prob(given) == pytest.approx(wanted)
    state = update(network_opened, PageState(), {"kind": "load", "evidence": given})
    assert "log p of the evidence" in render(network_opened, state)["evidence"]


def test_values_are_observed_or_set(network_opened):
    """C follows from A and B: to observe it tells about A, to set it does not."""
    state = update(network_opened, PageState(), {"kind": "set", "name": "C", "value": "2"})
    observed = network_opened.ask({"C": 2.0})
    assert observed["A"].mean > network_opened.marginal["A"].mean + 0.4
    state = update(network_opened, state, {"kind": "intervene"})
    assert not state.error
    assert PageState.from_dict(json.loads(json.dumps(state.to_dict()))).intervening
    found = network_opened.ask({"C": 2.0}, intervene=True)
    assert found["A"].mean == pytest.approx(network_opened.marginal["A"].mean, abs=0.1)
    expected = network_opened.model.infer({}, ["D"], do={"C": 2.0}).mean["D"][0]
    assert found["D"].mean == pytest.approx(expected)
    assert found["D"].mean == pytest.approx(-2.0, abs=0.3)
    shown = render(network_opened, state)
    assert "set to 2" in shown["answers"]
    assert shown["mode"] == "intervene"
    assert "log p" not in shown["evidence"]
    assert shown["graph"].count("edge flow cut") == 2  # those of A and B into C
    assert "do={'C': 2.0}" in shown["code"] or "do={&#x27;C&#x27;: 2.0}" in shown["code"]
    assert "--do C=2.0" in shown["code"]
    back = render(network_opened, update(network_opened, state, {"kind": "observe"}))
    assert back["mode"] == "observe"
    assert "edge flow cut" not in back["graph"]


def test_observing_can_be_compared_with_setting(network_opened):
    state = update(network_opened, PageState(), {"kind": "set", "name": "C", "value": "2"})
    for kind in ("compare", "intervene"):
        state = update(network_opened, state, {"kind": kind})
    shown = render(network_opened, state)
    assert shown["baseline"] == "given C = 2.0"
    state = update(
        network_opened, update(network_opened, state, {"kind": "compare"}), {"kind": "compare"}
    )
    assert render(network_opened, state)["baseline"] == "when setting C = 2.0"


def test_influence_of_values_that_are_set(network_opened):
    found = network_opened.ask({"C": 2.0, "A": 3.0}, intervene=True)
    assert found.influence["C"]["D"] > 0.5
    assert found.influence["A"]["D"] == pytest.approx(0.0, abs=0.05)  # C is set, whatever A is


def test_interventions_need_causes_and_say_what_is_far_out(mixed_opened, network_opened):
    state = update(mixed_opened, PageState(), {"kind": "intervene"})
    assert "vfg fit --learn-graph" in state.error
    assert not state.intervening
    found = network_opened.ask({"C": 30.0}, intervene=True)
    assert "extrapolated" in found.notes[0]
    assert "extrapolated" in found.to_html()


def test_evidence_far_out_has_a_note(network_opened):
    found = network_opened.ask({"C": 30.0})
    assert len(found.notes) == 1
    assert "the evidence has 'C' = 30" in found.notes[0]
    assert "extrapolated" in found.to_html()
    assert not network_opened.ask({"C": 2.0}).notes
