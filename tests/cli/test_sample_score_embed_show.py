"""`vfg sample`, `score`, `embed` and `show`: the same numbers as the library gives."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import torch

import vfg
from vfg.cli.commands.sample import draw_rows
from vfg.cli.model_files import read_names

KINDS = ["table", "exact", "deep", "sampled"]


@pytest.fixture(scope="module")
def models(tmp_path_factory, store):
    """A model file of every kind, each of the columns a, b and c but for the first."""
    folder = tmp_path_factory.mktemp("models")
    nodes = [vfg.Node("a", 1, columns=("a",)), vfg.Node("bc", 2, columns=("b", "c"))]
    graph = vfg.Graph([*nodes, vfg.Node("r", 3)], [vfg.Edge("a", "r"), vfg.Edge("bc", "r")])
    made = {
        "exact": vfg.GaussianVFG(graph),
        "deep": vfg.VFG(graph, flow=vfg.Linear()),
        "sampled": vfg.VFG(graph, flow=vfg.Linear(), states="sampled"),
    }
    for name, model in made.items():
        vfg.save(model, folder / f"{name}.vfg")
    pd.DataFrame({"c": [1.0, 2.0], "x": ["u", "v"], "a": [0.5, None], "b": [3.0, -1.0]}).to_csv(
        folder / "table.csv", index=False
    )
    paths = {name: folder / f"{name}.vfg" for name in made}
    return {**paths, "table": store.model}, folder / "table.csv"


def table_for(kind, models, store):
    return store.gaps if kind == "table" else models[1]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_columns_of_the_model(kind, models, commands):
    said = commands.succeed("sample", models[0][kind], "-n", 7, "--seed", 1)
    drawn = pd.read_csv(io.StringIO(said))
    expected = (
        ["height", "visits", "shirt", "member", "since"] if kind == "table" else ["a", "b", "c"]
    )
    assert list(drawn.columns) == expected
    assert drawn.shape[0] == 7
    assert not drawn.isna().to_numpy().any()
    assert said == commands.succeed("sample", models[0][kind], "-n", 7, "--seed", 1)
    assert said != commands.succeed("sample", models[0][kind], "-n", 7, "--seed", 2)


@pytest.mark.parametrize("kind", ["table", "exact"])
def test_samples_do_not_depend_on_how_they_are_cut(kind, models):
    model = vfg.load(models[0][kind])
    name = "height" if kind == "table" else "a"
    whole = draw_rows(model, 6, {}, seed=0)[name]
    parts = [draw_rows(model, 3, {}, seed=0, first=first)[name] for first in (0, 3)]
    assert np.allclose(whole, np.concatenate(parts))


@pytest.mark.parametrize("kind", KINDS)
def test_samples_given_evidence_do_not_depend_on_how_they_are_cut(kind, models):
    model = vfg.load(models[0][kind])
    given, name = ({"shirt": "S"}, "height") if kind == "table" else ({"a": 1.0}, "c")
    whole = draw_rows(model, 6, given, seed=0)[name]
    parts = [draw_rows(model, 3, given, seed=0, first=first)[name] for first in (0, 3)]
    assert np.allclose(whole, np.concatenate(parts), atol=1e-5)
    assert len(set(whole.tolist())) == 6


@pytest.mark.parametrize("kind", ["deep", "sampled"])
def test_a_vfg_without_evidence_draws_from_its_prior(kind, models):
    model = vfg.load(models[0][kind])
    drawn = draw_rows(model, 5, {}, seed=2)
    table = model.sample(5, seed=2).double().numpy()
    assert np.array_equal(np.stack(list(drawn.values()), 1), table)
    later = draw_rows(model, 5, {}, seed=2, first=5)
    assert not np.isin(later["a"], drawn["a"]).any()


def test_samples_of_the_exact_model_given_evidence_follow_infer(models):
    model = vfg.load(models[0]["exact"])
    drawn = draw_rows(model, 4000, {"a": 1.0}, seed=0)
    assert set(drawn["a"]) == {1.0}
    answer = model.infer({"a": 1.0}, targets=["b"])
    mean, deviation = answer.mean["b"].item(), answer.std["b"].item()
    assert drawn["b"].mean() == pytest.approx(mean, abs=4 * deviation / 4000**0.5)
    assert drawn["b"].std() == pytest.approx(deviation, rel=0.05)


def test_scores_are_those_of_the_library(models, store, commands):
    table = pd.read_csv(models[1])[["a", "b", "c"]]
    said = pd.read_csv(io.StringIO(commands.succeed("score", models[1], "-m", models[0]["exact"])))
    expected = vfg.load(models[0]["exact"]).log_prob(table)
    assert said["log_prob"].to_numpy() == pytest.approx(expected.numpy())
    found = json.loads(
        commands.succeed(
            "score", store.gaps, "-m", store.model, "-o", models[1].parent / "s.csv", "--json"
        )
    )
    scores = pd.read_csv(models[1].parent / "s.csv")["log_prob"]
    assert (found["rows"], found["mean"]) == (120, pytest.approx(scores.mean()))


@pytest.mark.parametrize(
    ("kind", "name"), [("deep", "surrogate"), ("sampled", "log_likelihood"), ("table", "log_prob")]
)
def test_scores_say_what_they_are(kind, name, models, store, commands):
    said = commands.succeed("score", table_for(kind, models, store), "-m", models[0][kind])
    scores = pd.read_csv(io.StringIO(said))
    assert list(scores.columns) == [name]
    assert np.isfinite(scores[name]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_are_states_of_the_roots(kind, models, store, commands):
    said = commands.succeed(
        "embed", table_for(kind, models, store), "-m", models[0][kind], "--json"
    )
    rows = [json.loads(line) for line in said.splitlines()]
    assert len(rows) == (120 if kind == "table" else 2)
    if kind == "deep":
        table = torch.tensor([[0.5, 3.0, 1.0], [torch.nan, -1.0, 2.0]])
        expected = vfg.load(models[0][kind]).embed(table).numpy()
        assert np.array([list(row.values()) for row in rows]) == pytest.approx(expected, abs=1e-6)
        assert list(rows[0]) == ["r0", "r1", "r2"]


@pytest.mark.parametrize("kind", KINDS)
def test_show_describes_every_kind(kind, models, here, commands):
    found = json.loads(commands.succeed("show", models[0][kind], "--json"))
    names = {"table": "TableModel", "exact": "GaussianVFG"}
    assert found["kind"] == names.get(kind, "VFG")
    words = commands.succeed("show", models[0][kind], "--graph-to", "graph.json")
    graph = vfg.Graph.from_dict(json.loads((here / "graph.json").read_text()))
    assert repr(graph) in words
    assert graph == vfg.Graph.from_dict(found["graph"])
    for column in found["columns"]:
        assert column["name"] in words


def test_show_takes_graphs_too(here, commands):
    (here / "g.txt").write_text("a h\nb h\n")
    assert commands.succeed("show", "g.txt").startswith("Graph: 2 leaves, 1 latent node, 2 edges\n")


def test_a_model_of_nothing_has_no_latent_space(here, commands):
    (here / "t.csv").write_text("a,b\n1,\n1,\n")
    commands.succeed("fit", "t.csv", "-o", "m.vfg", "--linear")
    assert "no latent space" in commands.fail("embed", "t.csv", "-m", "m.vfg")
    assert commands.succeed("sample", "m.vfg", "-n", 1) == "a,b\n1,\n"
    words = commands.succeed("query", "m.vfg", "--draws", 10)
    assert "always 1" in words
    assert "b  (never observed)" in words


def test_a_table_without_the_model_s_columns_is_refused(store, models, commands):
    words = commands.fail("score", models[1], "-m", store.model)
    assert "the table lacks the column 'height', which the model needs" in words


def test_text_in_place_of_numbers_is_refused(store, here, commands):
    pd.read_csv(store.gaps).assign(height="tall").to_csv("t.csv", index=False)
    assert "the column 'height' was continuous" in commands.fail(
        "score", "t.csv", "-m", store.model
    )
    pd.read_csv(store.gaps).assign(member="maybe").to_csv("t.csv", index=False)
    assert "the column 'member' was boolean" in commands.fail("score", "t.csv", "-m", store.model)


@pytest.mark.parametrize("kind", KINDS)
def test_names_for_completion_come_from_the_header(kind, models):
    expected = ["height", "visits", "shirt", "member", "since"]
    assert read_names(models[0][kind]) == (
        expected if kind == "table" else ["a", "b", "c", "bc", "r"]
    )


def test_completion_of_files_that_are_no_models_is_empty(here):
    (here / "x.vfg").write_bytes(b"\xff" * 100)
    assert read_names("x.vfg") == read_names("none.vfg") == []
