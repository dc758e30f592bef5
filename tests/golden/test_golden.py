"""Model files of earlier versions load, and answer as they did."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from golden.asking import answers, assert_same, facts, plain, table_to_score
from golden.make_golden import MODELS

import vfg
from vfg import GaussianVFG, TableModel
from vfg.distributions.likelihoods import LikelihoodSpec
from vfg.distributions.priors import PriorSpec
from vfg.flows.specs import FlowSpec
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.trees import Forest
from vfg.modelfile import container, dumps, loads
from vfg.modelfile.container import SCHEMA, read_contents
from vfg.sampling.samplers import StatesSpec
from vfg.tables.schema import ColumnSpec

FOLDER = Path(__file__).parent / "v1"
GOLDEN = json.loads((FOLDER / "answers.json").read_text())
ROWWISE = ("log_prob", "embed")
TABLES = [name for name in GOLDEN if name.startswith("table_")]
SPECS = (ColumnSpec, FlowSpec, LikelihoodSpec, PriorSpec, StatesSpec)
FIELDS = {
    "causes", "constraints", "departures", "drawing", "following", "forest", "held_levels",
    "limited", "measured", "mechanism", "noisy", "origin", "pooled", "pooling", "products",
    "regressed", "relations", "sets", "sharpness", "slopes", "summary", "trust", "usual_distance",
    "weighted",
}  # fmt: skip
"""Fields of model files that not every file has: each was added after the first files."""
PARTS_OF_TABLES = (
    TableModel(),
    Forest([0], 1, 1, [2], ([0], []), trees=1, nodes=1, outputs=1),
    RowMixture(1, GaussianVFG(vfg.Graph.star({"a": 1}, width=1))),
    GaussianVFG(vfg.Graph.star({"a": 1}, width=1)),
)
"""Modules with tensors that not every file has."""


def expected(name):
    """All answers, but those that `TableModel` gives about tables as they are."""
    found = GOLDEN[name]["answers"]
    return {key: found[key] for key in found if name not in TABLES or key not in ROWWISE}


def test_every_schema_has_files():
    """Files of every schema that was ever released are kept."""
    folders = {path.name for path in Path(__file__).parent.glob("v*") if path.is_dir()}
    assert folders == {f"v{number}" for number in range(1, SCHEMA + 1)}
    for path in FOLDER.glob("*.vfg"):
        with path.open("rb") as file:
            assert read_contents(file, path.stat().st_size).fields["schema"] == 1


def test_a_file_takes_every_step_from_its_schema_to_the_newest(monkeypatch):
    path, taken = FOLDER / "gaussian_affine.vfg", []

    def step(fields):
        taken.append(fields["schema"])
        return {**fields, "schema": fields["schema"] + 1}

    monkeypatch.setattr(container, "UPGRADES", (step, step))
    monkeypatch.setattr(container, "SCHEMA", 3)
    found = vfg.load(path)
    assert set(taken) == {1, 2}
    assert taken == [1, 2] * (len(taken) // 2)
    taken.clear()
    again = loads(dumps(found))
    assert taken == []
    monkeypatch.undo()
    assert dumps(again) == dumps(vfg.load(path))


def test_every_file_has_answers():
    assert sorted(path.stem for path in FOLDER.glob("*.vfg")) == sorted(GOLDEN)
    assert sorted(GOLDEN) == sorted(MODELS)


def test_every_kind_of_part_and_every_field_is_in_some_file():
    """A new kind or field needs a golden file: see `make_golden.py`."""
    found = set()
    for path in FOLDER.glob("*.vfg"):
        with path.open("rb") as file:
            found |= words(read_contents(file, path.stat().st_size).fields)
    kinds = {spec.name for base in SPECS for spec in named(base) if is_ours(spec)}
    assert kinds - found == set()
    assert FIELDS - found == set()


@pytest.mark.parametrize("part", PARTS_OF_TABLES, ids=lambda part: type(part).__name__)
def test_every_tensor_that_a_model_may_lack_is_in_some_file(part):
    """A new one needs a golden file: those of earlier versions load without it."""
    optional = {name for name, tensor in part._buffers.items() if tensor is None}
    assert optional
    found = set()
    for path in FOLDER.glob("*.vfg"):
        with path.open("rb") as file:
            entries = read_contents(file, path.stat().st_size).entries
        found |= {name.rsplit(".", 1)[-1] for name in entries}
    assert optional - found == set()


def named(base):
    """All specs below a base that files can name."""
    return [
        one for kind in base.__subclasses__() for one in (kind, *named(kind)) if "name" in vars(one)
    ]


def is_ours(spec):
    """Whether a spec belongs to the library; other tests define some of their own."""
    return spec.__module__.startswith("vfg.")


def words(fields):
    """All texts and names of fields in a description, also in JSON inside JSON."""
    if isinstance(fields, dict):
        return set(fields).union(*map(words, fields.values()))
    if isinstance(fields, list):
        return set().union(*map(words, fields))
    if isinstance(fields, str):
        return words(json.loads(fields)) if fields.startswith("{") else {fields}
    return set()


@pytest.mark.filterwarnings("ignore:missing values of column 'plate' stay missing")
@pytest.mark.filterwarnings("ignore:the column 'city' holds categories that did not occur")
@pytest.mark.parametrize("name", GOLDEN)
def test_a_file_answers_as_it_did(name):
    model = vfg.load(FOLDER / f"{name}.vfg")
    assert_same(answers(model, GOLDEN[name]["given"]), expected(name), name)


@pytest.mark.parametrize("name", [name for name in GOLDEN if "facts" in GOLDEN[name]])
def test_a_file_knows_what_it_knew(name):
    """Kinds of columns, causes, slopes of missingness, constraints, thresholds of sets, trees."""
    found = facts(vfg.load(FOLDER / f"{name}.vfg"))
    assert_same(found, GOLDEN[name]["facts"], name)


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_a_table_have_the_log_p_and_the_embedding_that_they_had(name):
    model = vfg.load(FOLDER / f"{name}.vfg")
    table, found = table_to_score(GOLDEN[name]["given"]), GOLDEN[name]["answers"]
    assert_same(plain(model.log_prob(table)), found["log_prob"], name)
    assert_same(plain(model.embed(table)), found["embed"], name, atol=2e-5)


@pytest.mark.parametrize("name", ["vfg_mixture_prior", "vfg_flowed_prior", "table_linear"])
def test_files_load_in_a_process_that_imports_nothing_else(name):
    code = f"import vfg; vfg.load({str(FOLDER / (name + '.vfg'))!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
