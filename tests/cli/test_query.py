"""`vfg query`: evidence as it is typed, answers for people and for scripts."""

import json

import numpy as np
import pytest
import torch

import vfg
from vfg.cli.asking import Question, respondent
from vfg.cli.query import repeated
from vfg.data import gaussian_network


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """A fitted exact model with a wide leaf, and its file."""
    torch.manual_seed(0)
    table = gaussian_network(200)[0][:, :3]
    nodes = [
        vfg.Node("AB", 2, columns=("A", "B")),
        vfg.Node("C", 1, columns=("C",)),
        vfg.Node("root", 2),
    ]
    model = vfg.GaussianVFG(vfg.Graph(nodes, [vfg.Edge("AB", "root"), vfg.Edge("C", "root")]))
    model.fit(table)
    path = tmp_path_factory.mktemp("exact") / "exact.vfg"
    vfg.save(model, path)
    return model, path


def test_several_values_may_follow_one_option():
    typed = ["m", "--given", "A=-1", "B=2", "--infer", "C", "D", "--seed", "3"]
    expected = ["m", "--given", "A=-1", "--given", "B=2", "--infer", "C", "--infer", "D"]
    assert list(repeated(typed)) == [*expected, "--seed", "3"]


def test_a_model_may_follow_the_evidence():
    assert list(repeated(["--given", "A=1", "m.vfg"])) == ["--given", "A=1", "m.vfg"]


def test_answers_of_the_exact_model_are_those_of_infer(exact, commands):
    model, path = exact
    said = json.loads(
        commands.succeed(
            "query", path, "--given", "A=1.5", "B=3", "--infer", "C", "--draws", 50, "--json"
        )
    )
    answer = model.infer({"A": 1.5, "B": 3.0}, targets=["C"])
    (found,) = said["answers"]
    assert found["value"] == pytest.approx(answer.mean["C"].item())
    assert found["deviation"] == pytest.approx(answer.std["C"].item())
    ends = [answer.quantile(level)["C"].item() for level in (0.05, 0.95)]
    assert found["interval"] == pytest.approx(ends)


def test_wide_nodes_take_and_give_several_numbers(exact, commands):
    model, path = exact
    said = json.loads(
        commands.succeed(
            "query", path, "--given", "AB=1,2", "--infer", "root", "C", "--draws", 50, "--json"
        )
    )
    assert [answer["name"] for answer in said["answers"]] == ["root[0]", "root[1]", "C"]
    expected = model.infer({"AB": torch.tensor([[1.0, 2.0]])}, targets=["C"]).mean["C"].item()
    assert said["answers"][2]["value"] == pytest.approx(expected)
    assert "'AB' takes 2 numbers" in commands.fail("query", path, "--given", "AB=1")


def test_latent_nodes_can_be_given(exact, commands):
    model, path = exact
    said = json.loads(
        commands.succeed(
            "query", path, "--given", "root=0.5,-1", "--infer", "C", "--draws", 50, "--json"
        )
    )
    expected = model.infer({"root": torch.tensor([[0.5, -1.0]])}, targets=["C"])
    assert said["answers"][0]["value"] == pytest.approx(expected.mean["C"].item(), abs=1e-6)


def test_without_targets_all_that_is_not_given_is_answered(exact, store, commands):
    asked = json.loads(
        commands.succeed("query", exact[1], "--given", "A=1", "--draws", 50, "--json")
    )
    assert [answer["name"] for answer in asked["answers"]] == ["C"]
    asked = json.loads(
        commands.succeed("query", store.model, "--given", "height=180", "--draws", 50, "--json")
    )
    assert [answer["name"] for answer in asked["answers"]] == ["visits", "shirt", "member", "since"]


def test_columns_of_every_kind_are_evidence_and_answer(store, commands):
    given = ["height=185", "shirt=L", "member=yes", "since=2021-06-01"]
    words = commands.succeed("query", store.model, "--given", *given, "--draws", 50)
    assert words.startswith("given height = 185, shirt = L, member = yes, since = 2021-06-01\n")
    assert "visits  " in words
    assert "90 % within" in words
    assert "█" in words


def test_evidence_moves_answers_of_every_kind(store):
    asked = respondent(store.model)
    low, high = (
        asked.ask({"height": h}, ["shirt", "since", "visits"], Question(draws=100))
        for h in ("155", "185")
    )
    assert (low[0].value, high[0].value) == ("S", "L")
    assert low[1].value < high[1].value
    assert low[2].value < high[2].value
    assert sum(high[0].shares.values()) == pytest.approx(1.0)


def test_intervals_grow_with_their_level(store):
    asked = respondent(store.model)
    narrow, wide = (
        asked.ask({}, ["height"], Question(level, draws=100))[0].interval for level in (0.5, 0.9)
    )
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_what_is_given_is_certain_in_conditional_samples(store):
    drawn = respondent(store.model).sample(20, {"shirt": "S"}, seed=0, first=0)
    assert drawn["shirt"].tolist() == ["S"] * 20
    assert np.mean(drawn["height"]) < 170


@pytest.mark.parametrize("edges", ["linear", "sampled", "bernoulli"])
def test_deep_models_answer_too(edges, tmp_path, commands):
    settings = {
        "linear": {},
        "sampled": {"states": "sampled"},
        "bernoulli": {"likelihood": {"b": "bernoulli", "*": "gaussian"}},
    }
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    vfg.save(vfg.VFG(graph, flow=vfg.Linear(), **settings[edges]), tmp_path / "deep.vfg")
    said = json.loads(
        commands.succeed("query", tmp_path / "deep.vfg", "--given", "a=1", "--draws", 50, "--json")
    )
    (found,) = said["answers"]
    assert found["name"] == "b"
    assert ("probabilities" in found) == (edges == "bernoulli")
    assert isinstance(found["value"], int if edges == "bernoulli" else float)


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--given", "heigt=1"], "there is no column 'heigt'; did you mean 'height'", 1),
        (["--given", "height=tall"], "the value of 'height' must be a number, but is 'tall'", 1),
        (["--given", "height=nan"], "the value of 'height' must be finite", 1),
        (["--given", "shirt=XXL"], "'shirt' is never 'XXL'", 1),
        (["--given", "since=soon"], "the value of 'since' must be a date", 1),
        (["--given", "member=perhaps"], "the value of 'member' must be true or false", 1),
        (["--infer", "age"], "there is no column 'age'", 1),
        (["--given", "height"], "--given takes NAME=VALUE, but got 'height'", 2),
        (["--given", "height=1", "height=2"], "--given names 'height' twice", 2),
        (["--level", "1"], "must lie between 0 and 1", 2),
    ],
)
def test_wrong_questions_are_answered_in_one_sentence(arguments, words, code, store, commands):
    assert words in commands.fail("query", store.model, *arguments, code=code)
