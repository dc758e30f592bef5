"""`vfg learn` and `vfg query --do`: from a table with missing cells to an intervention."""

import json

import numpy as np
import pandas as pd
import pytest

import vfg
from vfg.structure import LearnedGraph


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """A table in which age causes dose and pressure, and dose lowers pressure by 6."""
    generator = np.random.default_rng(0)
    age = generator.normal(50, 12, 500)
    dose = 1 + 0.04 * (age - 50) + 0.6 * generator.normal(size=500)
    pressure = 120 + 0.5 * (age - 50) - 6 * dose + 3 * generator.normal(size=500)
    table = pd.DataFrame({"age": age, "dose": dose, "pressure": pressure})
    path = tmp_path_factory.mktemp("trial") / "trial.csv"
    table.mask(generator.random(table.shape) < 0.2).to_csv(path, index=False)
    return path


@pytest.mark.filterwarnings("ignore:Matplotlib")
def test_three_commands_from_a_table_to_an_intervention(trial, here, commands):
    said = commands.succeed(
        "learn", trial, "-o", "graph.json", "--tier", "age", "--tier", "dose", "--tier",
        "pressure", "--plot", "graph.png", "--linear",
    )  # fmt: skip
    assert "dose -> pressure" in said
    assert (here / "graph.png").stat().st_size > 5000
    commands.succeed("fit", trial, "-o", "model.vfg", "--linear", "-q")
    at = []
    for dose in (0, 2):
        setting = ("--do", f"dose={dose}", "--dag", "graph.json")
        said = commands.succeed("query", "model.vfg", *setting, "--infer", "pressure", "--json")
        answers = json.loads(said)
        assert answers["do"] == {"dose": dose}
        at.append(answers["answers"][0]["value"])
    assert at[1] - at[0] == pytest.approx(-12.0, abs=2.0)


def test_edges_for_other_programs_and_knowledge(trial, here, commands):
    said = commands.succeed(
        "learn", trial, "-o", "edges.csv", "--require", "pressure,age", "--linear", "--json"
    )
    assert (here / "edges.csv").read_text().startswith("cause,effect\n")
    assert ("pressure", "age") in LearnedGraph.load(here / "edges.csv").edges
    assert {entry["cause"] for entry in json.loads(said)["edges"]} <= {"age", "dose", "pressure"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "graph.txt"], "must end in .json or .csv"),
        (["-o", "graph.csv", "--tree"], "must end in .json"),
        (["-o", "graph.json", "--require", "age"], "CAUSE,EFFECT"),
        (["-o", "graph.json", "--forbid", "age,size"], "no column"),
        (["-o", "graph.json", "--require", "age,dose", "--forbid", "age,dose"], "also forbidden"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words, trial, here, commands):
    assert words in commands.fail("learn", trial, *arguments, code=2)


def test_an_intervention_needs_a_dag(store, here, commands):
    said = commands.fail("query", store.model, "--do", "height=170", code=2)
    assert "--dag" in said
    (here / "edges.csv").write_text("cause,effect\nheight,weight\n")
    said = commands.fail("query", store.model, "--do", "height=170", "--dag", "edges.csv", code=2)
    assert "'weight'" in said
    said = commands.fail("query", store.model, "--dag", "edges.csv", code=2)
    assert "--do" in said


def test_a_column_is_given_or_set(store, here, commands):
    (here / "edges.csv").write_text("cause,effect\nheight,city\n")
    typed = ("--given", "height=170", "--do", "height=170", "--dag", "edges.csv")
    said = commands.fail("query", store.model, *typed, code=2)
    assert "'height' is both given and set" in said


def test_a_fitted_model_keeps_the_causes_that_it_learned(trial, here, commands):
    commands.succeed("fit", trial, "-o", "model.vfg", "--learn-graph", "--linear", "-q")
    network = vfg.load(here / "model.vfg").graph.network
    learned = vfg.learn_graph(pd.read_csv(trial))
    assert network.edges == learned.edges
    assert network.undirected == learned.undirected
    said = commands.succeed("show", "model.vfg")
    assert str(network) in said
    assert "family:" not in said
    described = json.loads(commands.succeed("show", "model.vfg", "--json"))
    assert len(described["graph"]["causes"]["edges"]) == len(learned.edges)
    said = commands.fail("fit", trial, "-o", "m.vfg", "--learn-graph", "--sections", "age", code=2)
    assert "excludes" in said


def test_a_fit_that_learns_keeps_to_what_is_known(trial, here, commands):
    known = ("--tier", "age", "--tier", "dose,pressure", "--require", "pressure,dose")
    fit = ("fit", trial, "-o", "model.vfg", "--learn-graph", "--linear", "-q")
    commands.succeed(*fit, *known)
    network = vfg.load(here / "model.vfg").graph.network
    same = vfg.learn_graph(
        pd.read_csv(trial), tiers=[["age"], ["dose", "pressure"]], required=[("pressure", "dose")]
    )
    assert ("pressure", "dose") in network.edges
    assert network.edges == same.edges
    assert network.undirected == same.undirected == ()
    commands.succeed(*fit, "--forbid", "age,dose", "--forbid", "dose,age")
    edges = vfg.load(here / "model.vfg").graph.network.edges
    assert not {("age", "dose"), ("dose", "age")} & set(edges)
    assert "no column" in commands.fail(*fit, "--tier", "size", code=2)
    assert "also forbidden" in commands.fail(
        *fit, "--require", "age,dose", "--forbid", "age,dose", code=2
    )


def test_knowledge_without_a_search_is_refused(trial, here, commands):
    said = commands.fail("fit", trial, "-o", "m.vfg", "--tier", "age", code=2)
    assert "--tier restricts --learn-graph" in said


@pytest.mark.filterwarnings("default:the table does not determine")
def test_an_intervention_names_the_edges_without_a_known_direction(here, commands):
    generator = np.random.default_rng(0)
    a = generator.normal(size=200)
    b = a + generator.normal(size=200)  # linear and Gaussian: both directions fit
    pd.DataFrame({"a": a, "b": b, "c": generator.normal(size=200)}).to_csv("pair.csv", index=False)
    commands.succeed("fit", "pair.csv", "-o", "model.vfg", "--learn-graph", "--linear", "-q")
    (edge,) = vfg.load(here / "model.vfg").graph.network.undirected
    assert set(edge) == {"a", "b"}
    found = commands.invoke("query", "model.vfg", "--do", "a=1", "--infer", "b")
    assert found.exit_code == 0
    assert f"direction of these edges, taken as {' -> '.join(edge)};" in found.stderr


def test_a_learned_graph_goes_into_a_fit(trial, here, commands):
    """The fit keeps the DAG for interventions, and has the parts of a fit without it."""
    tiers = ("--tier", "age", "--tier", "dose", "--tier", "pressure")
    commands.succeed("learn", trial, "-o", "graph.json", *tiers, "--linear", "-q")
    said = commands.succeed("show", "graph.json")
    assert "dose -> pressure" in said
    assert "family:" not in said
    options = ("--effort", "fast", "-q")
    commands.succeed("fit", trial, "-o", "model.vfg", "--graph", "graph.json", *options)
    commands.succeed("fit", trial, "-o", "plain.vfg", *options)
    model, plain = (vfg.load(here / name) for name in ("model.vfg", "plain.vfg"))
    table = pd.read_csv(trial)
    assert model.fill(table).equals(plain.fill(table))
    typed = ("--do", "dose=2", "--infer", "pressure", "--json")
    kept = json.loads(commands.succeed("query", "model.vfg", *typed))
    stated = json.loads(commands.succeed("query", "plain.vfg", *typed, "--dag", "graph.json"))
    assert kept["answers"] == stated["answers"]
