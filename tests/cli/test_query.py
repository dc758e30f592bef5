"""`vfg query`: evidence as it is typed, answers for people and for scripts."""

import json

import numpy as np
import pytest
import torch

import vfg
from vfg.cli.commands.query import choose_targets, describe, parse_evidence, repeat_options
from vfg.cli.commands.sample import draw_rows
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
    assert list(repeat_options(typed)) == [*expected, "--seed", "3"]


def test_a_model_may_follow_the_evidence():
    assert list(repeat_options(["--given", "A=1", "m.vfg"])) == ["--given", "A=1", "m.vfg"]


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
    assert "'AB' takes 2 values with commas between them" in commands.fail(
        "query", path, "--given", "AB=1", code=2
    )


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
    assert [answer["name"] for answer in asked["answers"]] == ["B", "C"]
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


def test_evidence_moves_answers_of_every_kind(store, commands):
    def ask(height):
        options = ["--infer", "shirt", "since", "visits", "--draws", 100, "--json"]
        said = commands.succeed("query", store.model, "--given", f"height={height}", *options)
        return json.loads(said)["answers"]

    low, high = ask(155), ask(185)
    assert (low[0]["value"], high[0]["value"]) == ("S", "L")
    assert low[1]["value"] < high[1]["value"]
    assert low[2]["value"] < high[2]["value"]
    assert sum(high[0]["probabilities"].values()) == pytest.approx(1.0)


def test_answers_have_the_keys_of_their_kind(store, commands):
    said = json.loads(commands.succeed("query", store.model, "--draws", 100, "--json"))
    keys = {found["name"]: list(found) for found in said["answers"]}
    number, choice = ["name", "value", "deviation", "interval"], ["name", "value", "probabilities"]
    assert keys == {
        "height": number,
        "visits": number,
        "shirt": choice,
        "member": choice,
        "since": ["name", "value", "interval"],
    }
    since = next(found for found in said["answers"] if found["name"] == "since")
    for text in (since["value"], *since["interval"]):
        assert str(np.datetime64(text, "D")) == text


def test_integers_are_answered_with_their_mean_before_it_is_rounded(store):
    model = vfg.load(store.model)
    answer = model.infer({"height": 180.0}, ["visits"])
    found = describe(answer.marginals(draws=100)["visits"])
    assert found["value"] == pytest.approx(answer.mean["visits"][0])
    assert found["value"] != round(found["value"])


def test_times_of_day_are_kept(here, commands):
    rows = "".join(f"{k % 7},2024-03-01 {8 + k % 7:02d}:30:00\n" for k in range(40))
    (here / "t.csv").write_text(f"x,at\n{rows}")
    commands.succeed("fit", "t.csv", "-o", "m.vfg", "--linear")
    said = commands.succeed("query", "m.vfg", "--given", "x=3", "--infer", "at", "--json")
    (found,) = json.loads(said)["answers"]
    assert found["value"].startswith("2024-03-01T11:")
    said = commands.succeed("query", "m.vfg", "--given", "at=2024-03-01 12:30:00", "--json")
    assert json.loads(said)["answers"][0]["value"] == pytest.approx(4.0, abs=0.2)


def test_intervals_grow_with_their_level(store, commands):
    def interval(level):
        options = ["--infer", "height", "--draws", 100, "--level", level, "--json"]
        said = commands.succeed("query", store.model, *options)
        return json.loads(said)["answers"][0]["interval"]

    narrow, wide = interval(0.5), interval(0.9)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_what_is_given_is_certain_in_conditional_samples(store):
    drawn = draw_rows(vfg.load(store.model), 20, {"shirt": "S"}, seed=0)
    assert drawn["shirt"].tolist() == ["S"] * 20
    assert np.mean(drawn["height"]) < 170


def test_what_is_typed_becomes_a_value_of_its_column(store):
    model = vfg.load(store.model)
    given = {"height": "180", "shirt": "L", "member": "no", "since": "2021-06-01", "visits": "3"}
    assert parse_evidence(model, given) == {
        "height": 180.0,
        "shirt": "L",
        "member": False,
        "since": "2021-06-01",
        "visits": 3,
    }
    assert choose_targets(model, [], {"height": 1.0, "since": ""}) == ["visits", "shirt", "member"]


def test_categories_that_look_like_numbers_stay_text(here, commands):
    codes = ["00701", "10115", "02139"]
    rows = "".join(f"{codes[k % 3]},{k % 3}\n" for k in range(60))
    (here / "t.csv").write_text(f"zip,x\n{rows}")
    commands.succeed("fit", "t.csv", "-o", "m.vfg", "--linear")
    asked = ["query", "m.vfg", "--given", "zip=00701", "--infer", "x", "--json"]
    (found,) = json.loads(commands.succeed(*asked))["answers"]
    assert found["value"] == pytest.approx(0.0, abs=0.3)
    words = commands.fail("query", "m.vfg", "--given", "zip=701", code=2)
    assert "'zip' is one of 00701, 02139, 10115, but got '701'; did you mean '00701'?" in words


def test_values_of_a_leaf_are_given_in_its_order():
    nodes = [vfg.Node("ba", 2, columns=("b", "a")), vfg.Node("c", 1, columns=("c",))]
    graph = vfg.Graph([*nodes, vfg.Node("r", 2)], [vfg.Edge("ba", "r"), vfg.Edge("c", "r")])
    model = vfg.GaussianVFG(graph)
    assert parse_evidence(model, {"ba": "1,2", "r": "3,4"}) == {"b": 1.0, "a": 2.0, "r": [[3, 4]]}
    assert choose_targets(model, ["r", "ba"], {}) == ["r", "b", "a"]


def test_values_of_a_section_are_given_in_its_order(store, here, commands):
    options = ["--linear", "--exclude", "id", "-o", "m.vfg", "--sections", "shirt,height"]
    commands.succeed("fit", store.gaps, *options)
    model = vfg.load("m.vfg")
    assert parse_evidence(model, {"shirt+height": "S,160"}) == {"shirt": "S", "height": 160.0}
    words = commands.fail("query", "m.vfg", "--given", "root=1")
    assert "'root' is a latent node" in words


def test_columns_without_names_may_be_called_by_their_positions(tmp_path, commands):
    nodes = [vfg.Node("p", 2, columns=(1, 2)), vfg.Node("q", 1, columns=(0,)), vfg.Node("r", 2)]
    graph = vfg.Graph(nodes, [vfg.Edge("p", "r"), vfg.Edge("q", "r")])
    vfg.save(vfg.GaussianVFG(graph), tmp_path / "m.vfg")
    said = commands.succeed("query", tmp_path / "m.vfg", "--given", "2=5", "--infer", "0", "--json")
    by_label = commands.succeed(
        "query", tmp_path / "m.vfg", "--given", "p[1]=5", "--infer", "q", "--json"
    )
    assert json.loads(said)["answers"] == json.loads(by_label)["answers"]


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
        (["--given", "heigt=1"], "there is no column or node 'heigt'; did you mean 'height'", 2),
        (["--given", "height=tall"], "'height' takes a number such as", 2),
        (["--given", "height=nan"], "'height' takes a number such as", 2),
        (["--given", "visits=2.5"], "'visits' takes a whole number such as", 2),
        (["--given", "shirt=XXL"], "'shirt' is one of L, M, S, but got 'XXL'", 2),
        (["--given", "since=soon"], "'since' takes a date such as 202", 2),
        (["--given", "member=perhaps"], "'member' is one of False, True, but got 'perhaps'", 2),
        (["--infer", "age"], "there is no column or node 'age'", 2),
        (["--given", "height"], "--given takes NAME=VALUE, but got 'height'", 2),
        (["--given", "height=1", "height=2"], "--given names 'height' twice", 2),
        (["--level", "1"], "must lie between 0 and 1", 2),
    ],
)
def test_wrong_questions_are_answered_in_one_sentence(arguments, words, code, store, commands):
    assert words in commands.fail("query", store.model, *arguments, code=code)


def test_targets_may_have_commas_between_them(store, commands):
    words = ["query", "-m", store.model, "--given", "height=180", "--json", "--infer"]
    apart, joined = (
        commands.succeed(*words, "shirt", "visits"),
        commands.succeed(*words, "shirt,visits"),
    )
    assert json.loads(joined) == json.loads(apart)
    assert [answer["name"] for answer in json.loads(joined)["answers"]] == ["shirt", "visits"]


def test_a_model_is_named_once(store, commands):
    first = commands.succeed("query", store.model, "--infer", "shirt", "--json")
    assert commands.succeed("query", "-m", store.model, "--infer", "shirt", "--json") == first
    words = ["query", store.model, "-m", store.model]
    assert "the model is named twice" in commands.fail(*words, code=2)
    assert "no model is named; add -m MODEL" in commands.fail("query", code=2)
    assert "no model is named; add -m MODEL" in commands.fail("score", store.gaps, code=2)


@pytest.mark.parametrize("command", ["score", "embed"])
def test_the_old_order_still_works_with_a_warning(store, commands, command):
    old = commands.invoke(command, store.model, store.gaps)
    new = commands.invoke(command, store.gaps, "-m", store.model)
    assert (old.exit_code, new.exit_code, new.stderr) == (0, 0, "")
    assert old.stdout == new.stdout
    assert old.stderr == (
        f"vfg: warning: a model before the table is deprecated; use: vfg {command} TABLE -m MODEL\n"
    )


@pytest.fixture
def chain(here, commands):
    """A model of a table with dates of days first, and its causes and effects."""
    generator = np.random.default_rng(0)
    a = generator.uniform(0.0, 60.0, 120).round(2)
    b = (1.2 * a + generator.normal(0.0, 4.0, 120)).round(2)
    days = np.datetime64("2020-01-01") + (10 * a).astype(int)
    dates = [f"{day.day}/{day.month}/{day.year}" for day in days.astype(object)]
    rows = "".join(f"{x},{y},{date}\n" for x, y, date in zip(a, b, dates, strict=True))
    (here / "t.csv").write_text(f"a,b,day\n{rows}")
    (here / "dag.csv").write_text("cause,effect\na,b\n")
    commands.succeed("fit", "t.csv", "-o", "m.vfg", "--linear")
    return "m.vfg"


@pytest.mark.filterwarnings("default:the evidence has")
@pytest.mark.parametrize("typed", ["a=1e9", "day=2031-03-04"])
def test_evidence_outside_the_data_is_answered_with_a_warning(chain, typed, commands):
    found = commands.invoke("query", chain, "--given", typed, "--infer", "b", "--json")
    assert found.exit_code == 0
    assert found.stderr.count("\n") == 1
    assert "the table has values from" in found.stderr
    assert ("to 59.8" if typed[0] == "a" else "to 2021-08-2") in found.stderr
    inside = commands.invoke("query", chain, "--given", "a=30", "--infer", "b", "--json")
    assert inside.stderr == ""


@pytest.mark.filterwarnings("default:do sets")
def test_dates_that_are_set_outside_the_data_are_warned_of(chain, commands):
    words = ["query", chain, "--do", "day=2031-03-04", "--dag", "dag.csv", "--infer", "b", "--json"]
    found = commands.invoke(*words)
    assert found.exit_code == 0
    assert "do sets 'day' to 2031-03-04, but the table has values from 2020" in found.stderr


def test_dates_are_given_as_the_table_had_them(chain, commands):
    """The fourth of March is as far in the year as 43 of a."""
    answers = [
        json.loads(commands.succeed("query", chain, "--given", given, "--infer", "a", "--json"))
        for given in ("day=4/3/2021", "day=04/03/2021", "day=2021-03-04")
    ]
    values = [answer["answers"][0]["value"] for answer in answers]
    assert values[0] == values[1] == values[2] == pytest.approx(42.8, abs=0.5)
    assert "takes a date such as" in commands.fail(
        "query", chain, "--given", "day=4.3.2021", code=2
    )


def test_given_effects_of_what_is_set_are_refused_with_what_to_do(chain, commands):
    words = ["query", chain, "--given", "b=20", "--do", "a=20", "--dag", "dag.csv"]
    said = commands.fail(*words, code=2)
    assert "'b' is given, but it is an effect of 'a'" in said
    assert "leave it out of --given" in said
    assert "model.counterfactual(row, do)" in said
