"""Whole tables, filled shard by shard."""

import json
import os

import pyarrow as pa
import pytest
from bigtable.tables_on_disk import mixed, one_batch
from typer.testing import CliRunner

import vfg
from vfg.bigtable import (
    Filling,
    Sink,
    filled_batch,
    impute,
    open_table,
    text_files,
    write_table,
)
from vfg.cli import app
from vfg.sklearn import VFGImputer

ROWS = 100


@pytest.fixture
def table(tmp_path):
    """The path of a table with gaps."""
    found = mixed(ROWS, seed=1)
    write_table(found.to_batches(), found.schema, tmp_path / "gaps.parquet")
    return tmp_path / "gaps.parquet"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


@pytest.mark.parametrize("shard_rows", [30, 64, ROWS])
def test_shards_together_are_the_filled_table(tmp_path, table, model, shard_rows):
    done = impute(table, model, tmp_path / "filled", shard_rows=shard_rows)
    assert (done.rows, done.found) == (ROWS, 0)
    found = open_table(tmp_path / "filled").read().combine_chunks()
    expected = pa.Table.from_batches([filled_batch(model, one_batch(mixed(ROWS, seed=1)))])
    assert found.equals(expected)
    assert len(contents(tmp_path / "filled")) == -(-ROWS // shard_rows)
    manifest = json.loads((tmp_path / "filled" / "_manifest.json").read_text())
    assert manifest["rows"] == sum(manifest["shards"].values()) == ROWS


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl.gz"])
def test_one_file_is_the_filled_table_whatever_the_shards(tmp_path, table, model, suffix):
    impute(table, model, tmp_path / f"one.{suffix}", shard_rows=33)
    impute(table, model, tmp_path / f"two.{suffix}", shard_rows=ROWS)
    one, two = (open_table(tmp_path / f"{name}.{suffix}").read() for name in ("one", "two"))
    assert one.equals(two)
    assert one.num_rows == ROWS
    assert one["c0"].null_count == 0


def test_a_text_file_keeps_what_the_model_does_not_know_to_the_letter(tmp_path, model):
    before = (
        mixed(40)
        .drop_columns(["note"])
        .append_column("note", pa.array(["NA", "1.50", "007", "x"] * 10))
    )
    write_table(before.to_batches(), before.schema, tmp_path / "gaps.csv")
    impute(tmp_path / "gaps.csv", model, tmp_path / "filled.csv", shard_rows=16)
    old = [line.split(",")[-2:] for line in (tmp_path / "gaps.csv").read_text().splitlines()]
    new = [line.split(",")[-2:] for line in (tmp_path / "filled.csv").read_text().splitlines()]
    assert new == old


def test_a_finished_job_has_nothing_left_to_do(tmp_path, table, model):
    impute(table, model, tmp_path / "filled", shard_rows=50)
    before = contents(tmp_path / "filled")
    done = impute(table, model, tmp_path / "filled", shard_rows=50)
    assert done.found == ROWS
    assert contents(tmp_path / "filled") == before


def test_an_interrupted_job_goes_on_and_ends_the_same(tmp_path, table, model, monkeypatch):
    impute(table, model, tmp_path / "whole", shard_rows=20)
    written = []
    plain = Sink.write

    def failing(self, batch):
        written.append(batch.num_rows)
        if len(written) == 3:
            raise OSError("no space")
        plain(self, batch)

    monkeypatch.setattr(Sink, "write", failing)
    with pytest.raises(OSError, match="no space"):
        impute(table, model, tmp_path / "filled", shard_rows=20)
    assert sorted(contents(tmp_path / "filled")) == ["part-00000.parquet", "part-00001.parquet"]
    (tmp_path / "filled" / "part-00000.parquet").unlink()
    done = impute(table, model, tmp_path / "filled", shard_rows=20)
    assert done.found == 20
    assert contents(tmp_path / "filled") == contents(tmp_path / "whole")


def test_progress_is_told(tmp_path, table, model):
    seen = []
    for target in ("folder", "file.csv"):
        impute(
            table,
            model,
            tmp_path / target,
            shard_rows=40,
            filling=Filling(draws=2),
            progress=lambda done, rows: seen.append((done, rows)),
        )
    steps = [(40, ROWS), (80, ROWS), (ROWS, ROWS)]
    assert seen == [(0, ROWS), *steps, (0, ROWS), *steps]


def test_models_may_be_imputers_or_files(tmp_path, table, model):
    vfg.save(model, tmp_path / "model.vfg")
    for name, given in (("a", model), ("b", tmp_path / "model.vfg")):
        impute(table, given, tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    with pytest.raises(TypeError, match="neither"):
        impute(table, VFGImputer(), tmp_path / "c")
    small = pa.table({"c0": [1.0]})
    write_table(small.to_batches(), small.schema, tmp_path / "small.csv")
    with pytest.raises(ValueError, match="lacks the column"):
        impute(tmp_path / "small.csv", model, tmp_path / "d")
    assert not os.path.exists(tmp_path / "d")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shard_rows": 60}, "rows per shard"),
        ({"filling": Filling(flag=True)}, "options have changed"),
        ({"format": "csv"}, "format has changed"),
    ],
)
def test_other_settings_are_refused_in_the_same_folder(tmp_path, table, model, change, words):
    impute(table, model, tmp_path / "filled", shard_rows=50)
    with pytest.raises(ValueError, match=words):
        impute(table, model, tmp_path / "filled", **{"shard_rows": 50, **change})


def test_another_input_or_model_is_refused_in_the_same_folder(tmp_path, table, model):
    impute(table, model, tmp_path / "filled", shard_rows=50)
    other = VFGImputer(bend=False, random_state=1).fit(mixed(200).drop_columns(["id", "note"]))
    with pytest.raises(ValueError, match="model has changed"):
        impute(table, other, tmp_path / "filled", shard_rows=50)
    changed = mixed(ROWS, seed=2)
    write_table(changed.to_batches(), changed.schema, table)
    with pytest.raises(ValueError, match="input has changed"):
        impute(table, model, tmp_path / "filled", shard_rows=50)


# One file, whose pieces wait in a hidden folder.


class Failing:
    """An engine that works on so many parts and then fails, counting what it worked on."""

    def __init__(self, after):
        self.after, self.done = after, 0

    def run(self, work, parts):
        for part in parts:
            if self.done == self.after:
                raise RuntimeError("enough")
            self.done += 1
            yield work(part)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl.gz"])
def test_one_file_goes_on_from_its_pieces_and_ends_the_same(tmp_path, table, model, suffix):
    target = tmp_path / f"one.{suffix}"
    with pytest.raises(RuntimeError, match="enough"):
        impute(table, model, target, shard_rows=30, engine=Failing(2))
    pieces = tmp_path / f".one.{suffix}.pieces"
    assert not target.exists()
    assert sorted(path.name for path in pieces.glob("piece-*")) == ["piece-00000", "piece-00001"]
    rest = Failing(100)
    done = impute(table, model, target, shard_rows=30, engine=rest)
    assert (done.rows, done.found, rest.done) == (ROWS, 60, 2)
    assert not pieces.exists()
    impute(table, model, tmp_path / f"undisturbed.{suffix}", shard_rows=30)
    assert target.read_bytes() == (tmp_path / f"undisturbed.{suffix}").read_bytes()


def test_pieces_of_another_job_are_refused_and_left_alone(tmp_path, table, model):
    target = tmp_path / "one.csv"
    with pytest.raises(RuntimeError, match="enough"):
        impute(table, model, target, shard_rows=30, engine=Failing(1))
    other = VFGImputer(bend=False, random_state=1).fit(mixed(80).drop_columns(["id", "note"]))
    with pytest.raises(ValueError, match=r"the model has changed; .* remove it"):
        impute(table, other, target, shard_rows=30)
    changed = mixed(ROWS, seed=2)
    write_table(changed.to_batches(), changed.schema, table)
    with pytest.raises(ValueError, match="the input has changed"):
        impute(table, model, target, shard_rows=30)
    assert (tmp_path / ".one.csv.pieces" / "piece-00000").exists()
    assert not target.exists()


def test_a_file_that_fails_at_once_leaves_nothing(tmp_path, table, model):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="enough"):
        impute(table, model, tmp_path / "one.csv", shard_rows=30, engine=Failing(0))
    assert sorted(tmp_path.iterdir()) == before


# How often a CSV file is read.


def csv_of_mixed(folder):
    table = mixed(300)
    write_table(table.to_batches(), table.schema, folder / "table.csv")
    return folder / "table.csv"


def run(*arguments):
    found = CliRunner().invoke(app, [str(part) for part in arguments])
    assert found.exit_code == 0, found.output


def test_a_csv_file_is_parsed_once_to_learn_and_once_to_fill(tmp_path, csv_work):
    path = csv_of_mixed(tmp_path)
    command = ["impute", path, "-o", tmp_path / "out.csv", "--linear", "--shard-rows", 100]
    run(*command, "--exclude", "id,note")
    assert (csv_work.opens, csv_work.parses) == (3, 2)  # one open is for the names


@pytest.mark.parametrize("watched", [False, True])
def test_a_csv_file_is_parsed_once_for_its_types_and_once_to_fill(
    tmp_path, model, csv_work, monkeypatch, watched
):
    path = csv_of_mixed(tmp_path)
    vfg.save(model, tmp_path / "model.vfg")
    monkeypatch.setattr("vfg.cli.commands.impute.is_watched", lambda quiet: watched)
    run("impute", path, "-m", tmp_path / "model.vfg", "-o", tmp_path / "out.csv")
    assert (csv_work.opens, csv_work.parses) == (3, 2)


# Inputs that change.


def cut(path):
    path.write_bytes(path.read_bytes()[:-3000])


def append(path):
    path.write_bytes(path.read_bytes() * 2)


@pytest.mark.parametrize("target", ["filled", "filled.csv"])
@pytest.mark.parametrize("change", [cut, append])
def test_a_job_whose_input_changes_fails_and_resumes_once_it_is_whole(
    tmp_path, model, monkeypatch, target, change
):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 4000)
    before = mixed(400, seed=1)
    path = tmp_path / "gaps.csv"
    write_table(before.to_batches(), before.schema, path)
    known = path.read_bytes()
    impute(path, model, tmp_path / f"undisturbed-{target}", shard_rows=50)

    def disturb(done, rows):
        if done == 100:
            change(path)

    with pytest.raises(ValueError, match="has changed since it was opened"):
        impute(path, model, tmp_path / target, shard_rows=50, progress=disturb)
    assert not (tmp_path / target).is_file()
    path.write_bytes(known)
    done = impute(path, model, tmp_path / target, shard_rows=50)
    assert done.found >= 100
    if target == "filled":
        assert contents(tmp_path / target) == contents(tmp_path / f"undisturbed-{target}")
    else:
        assert (tmp_path / target).read_bytes() == (tmp_path / f"undisturbed-{target}").read_bytes()


def test_a_damaged_shard_is_written_again(tmp_path, table, model):
    impute(table, model, tmp_path / "filled", shard_rows=30)
    known = contents(tmp_path / "filled")
    shard = tmp_path / "filled" / "part-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.warns(UserWarning, match=r"part-00001.parquet was damaged"):
        done = impute(table, model, tmp_path / "filled", shard_rows=30)
    assert done.found == ROWS - 30
    assert contents(tmp_path / "filled") == known
