"""`vfg impute`: what is filled, what stays, and what is said about it."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vfg
from vfg.bigtable import Filling, filled_batch, open_table
from vfg.bigtable.fill_batch import with_parameters
from vfg.bigtable.fill_job import count_missing
from vfg.cli.commands.impute import ReportSubject, evaluate_held_out
from vfg.cli.fitting import FitOptions
from vfg.imputation.evaluation import hold_out
from vfg.tables.frames import open_table as opened

COLUMNS = ["id", "height", "visits", "shirt", "member", "since"]


@pytest.fixture(scope="module")
def gaps(store):
    return pd.read_csv(store.gaps)


def test_everything_is_filled_and_nothing_else_touched(store, gaps, here, commands):
    said = commands.succeed("impute", store.gaps, "-m", store.model, "-o", "filled.csv")
    filled = pd.read_csv("filled.csv")
    missing = gaps.isna()
    assert said == f"filled.csv: 120 rows, {int(missing.to_numpy().sum())} cells filled\n"
    assert list(filled.columns) == COLUMNS
    assert not filled.isna().to_numpy().any()
    with open(store.gaps) as before, open("filled.csv") as after:
        rows = [
            (a.strip().split(","), b.strip().split(",")) for a, b in zip(before, after, strict=True)
        ]
    kept = [(a, b) for old, new in rows for a, b in zip(old, new, strict=True) if a]
    assert [(a, b) for a, b in kept if a.lower() != b.lower() and float(a) != float(b)] == []


def test_standard_streams_are_as_good_as_files(store, here, commands):
    commands.succeed("impute", store.gaps, "-m", store.model, "-o", "filled.csv")
    said = commands.succeed("impute", "-", "-m", store.model, stdin=store.gaps.read_text())
    assert said == (here / "filled.csv").read_text()


@pytest.mark.parametrize("name", ["f.tsv", "f.parquet", "f.feather", "f.jsonl", "f.csv.gz"])
def test_every_format_holds_the_same_table(name, store, here, commands):
    commands.succeed("impute", store.gaps, "-m", store.model, "-o", name)
    commands.succeed("impute", name, "-m", store.model, "-o", "again.csv")
    said = commands.succeed("impute", store.gaps, "-m", store.model)
    first, again = (pd.read_csv(source) for source in (io.StringIO(said), "again.csv"))
    pd.testing.assert_frame_equal(first, again)


def test_flags_and_intervals_are_columns(store, gaps, here, commands):
    options = ["--flag", "--intervals", "0.8", "-o", "f.csv"]
    commands.succeed("impute", store.gaps, "-m", store.model, *options)
    filled = pd.read_csv("f.csv")
    missing = gaps["height"].isna()
    assert (filled["height_filled"] == missing).all()
    assert (filled["height_low"] <= filled["height"]).all()
    assert (filled["height"] <= filled["height_high"]).all()
    assert (filled["height_low"] == filled["height_high"])[~missing].all()
    assert "shirt_low" not in filled


def test_draws_repeat_rows_with_other_gaps(store, gaps, here, commands):
    commands.succeed("impute", store.gaps, "-m", store.model, "--draws", 3, "-o", "f.parquet")
    filled = pd.read_parquet("f.parquet")
    assert filled["draw"].tolist() == [1, 2, 3] * 120
    spread = filled.groupby("id")["height"].std()
    missing = gaps.set_index("id")["height"].isna()
    assert (spread[missing] > 0).all()
    assert np.allclose(spread[~missing], 0.0)


def test_seeds_decide_about_draws_alone(store, commands):
    def drawn(seed, *options):
        return commands.succeed("impute", store.gaps, "-m", store.model, "--seed", seed, *options)

    assert drawn(1, "--draws", 1) == drawn(1, "--draws", 1) != drawn(2, "--draws", 1)
    assert drawn(1) == drawn(2)


def test_one_command_learns_fills_and_keeps_the_model(store, here, commands):
    options = ["--linear", "--exclude", "id", "--save", "kept.vfg", "--json"]
    said = json.loads(commands.succeed("impute", store.gaps, *options, "-o", "f.csv"))
    assert (said["rows"], said["left"], said["output"]) == (120, 0, "f.csv")
    assert (here / "kept.vfg").read_bytes() == store.model.read_bytes()
    commands.succeed("impute", store.gaps, "-m", "kept.vfg", "-o", "g.csv")
    assert (here / "f.csv").read_text() == (here / "g.csv").read_text()


def test_json_on_standard_output_is_lines_of_rows(store, commands):
    lines = commands.succeed("impute", store.gaps, "-m", store.model, "--json").splitlines()
    assert len(lines) == 120
    assert list(json.loads(lines[0])) == COLUMNS


def test_shards_of_any_size_hold_the_same_rows(store, here, commands):
    for rows in (50, 120):
        options = ["-o", f"shards{rows}", "--shard-rows", rows]
        commands.succeed("impute", store.gaps, "-m", store.model, *options)
    parts = sorted((here / "shards50").glob("*.parquet"))
    assert len(parts) == 3
    whole = pq.read_table(here / "shards120" / parts[0].name)
    assert pa.concat_tables(map(pq.read_table, parts)).equals(whole)
    again = commands.succeed(
        "impute", store.gaps, "-m", store.model, "-o", "shards50", "--shard-rows", 50
    )
    assert "120 rows were done before" in again


def test_columns_without_a_single_cell_keep_their_gaps(here, commands):
    (here / "t.csv").write_text("a,b,c\n1,2,\n2,,\n3,6,\n")
    found = commands.invoke("impute", "t.csv", "--linear")
    assert found.exit_code == 0
    assert (
        found.stderr == "vfg: columns: 2 integer (a, b), 1 empty (c)\n"
        "vfg: 3 missing values are left, since these columns have no observed cell: c\n"
    )
    assert found.stdout.splitlines()[2] == "2,4,"


def test_a_column_with_one_value_is_filled_with_it(here, commands):
    (here / "t.csv").write_text("a,b\n1,5\n2,5\n3,\n4,5\n")
    assert commands.succeed("impute", "t.csv", "--linear").splitlines()[3] == "3,5"


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--draws", "2", "--intervals", "0.9"], "draws and level exclude each other", 2),
        (["--intervals", "90"], "must lie between 0 and 1", 2),
        (["--engine", "spark"], "engine must be one of local, ray", 2),
        (["--exclude", "id"], "--exclude: the model is fitted already", 2),
        (["--constraint", "x <= 1", "--linear"], "--constraint, --linear: the model is fitted", 2),
        (["-o", "no/where.csv"], "the folder 'no' does not exist", 1),
        (["-o", "f.xls/f.csv"], "does not exist", 1),
        (["--report", "no/r.html"], "the folder 'no' does not exist", 1),
        (["--from", "odd"], "the format must be one of", 2),
        (["--to", "odd"], "the format must be one of", 2),
        (["--seed", str(10**30)], "seed must be from 0 to", 2),
        (["--processes", "100000"], "processes are too many", 2),
    ],
)
def test_wrong_options_are_told_in_one_sentence(arguments, words, code, store, here, commands):
    arguments = ["impute", store.gaps, "-m", store.model, *arguments]
    assert words in commands.fail(*arguments, code=code)


def test_tables_that_do_not_fit_the_model(store, here, commands):
    (here / "other.csv").write_text("a,b\n1,\n")
    assert "lacks the column" in commands.fail("impute", "other.csv", "-m", store.model)
    text = store.gaps.read_text().replace("p000,", "p000,tall", 1)
    (here / "text.csv").write_text(text)
    words = commands.fail("impute", "text.csv", "-m", store.model)
    assert "the column 'height' was continuous in fitting, but now holds string" in words


def test_models_without_a_table_cannot_fill(here, commands, store):
    vfg.save(vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1)), "g.vfg")
    words = commands.fail("impute", store.gaps, "-m", "g.vfg")
    assert "needs a model of a table" in words


@pytest.mark.parametrize("command", ["impute", "evaluate"])
def test_a_known_model_is_asked_for_a_device_that_is_there(command, here, commands, store):
    words = commands.fail(command, store.gaps, "-m", store.model, "--device", "tpu9", code=2)
    assert "the device 'tpu9' is not available" in words


def test_nan_counts_as_a_gap():
    batch = pa.record_batch({"a": [1.0, float("nan"), None], "b": ["x", None, "y"]})
    assert count_missing(batch, ["a", "b"]) == 3
    assert count_missing(batch, []) == 0


@pytest.mark.slow
def test_the_report_is_one_page_that_needs_nothing_else(store, here, commands):
    pytest.importorskip("matplotlib")
    options = ["--linear", "--exclude", "id", "-o", "f.csv", "--report", "r.html"]
    commands.succeed("impute", store.gaps, *options)
    page = (here / "r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("<img ") == 2 + len(COLUMNS[1:])  # one of every column
    for heading in ("Missing values", "Errors on held-out cells", "The graph"):
        assert f"<h2>{heading}</h2>" in page
    for column in COLUMNS[1:]:
        assert f"<td>{column}</td>" in page
    assert '<tr><td>seed</td><td class="text">0</td></tr>' in page
    assert "a second model was fitted without them" in page
    commands.succeed("impute", store.gaps, *options)
    assert (here / "r.html").read_text() == page


@pytest.mark.parametrize(("bend", "budget"), [(False, None), (True, 5.0)])
def test_reported_scores_are_of_cells_that_were_not_learned(monkeypatch, bend, budget):
    generator = np.random.default_rng(0)
    cause = generator.normal(size=(60, 1))
    values = cause + 0.3 * generator.normal(size=(60, 3))
    table = pa.table({name: values[:, k] for k, name in enumerate("abc")})
    options = FitOptions(members=1, mixtures=0, steps=1) if bend else FitOptions(bend=False)
    fitted, fit = [], vfg.TableModel.fit

    def watched(model, table):
        fitted.append((table.missing, model.settings))
        return fit(model, table)

    monkeypatch.setattr(vfg.TableModel, "fit", watched)
    subject = ReportSubject(None, None, None, options, 2.0, Filling())
    found, words = evaluate_held_out(subject, table)
    hidden = hold_out(opened(table), 0.1, 0, keep=2)
    ((missing, settings),) = fitted
    np.testing.assert_array_equal(missing, hidden)
    assert sum(score.hidden for score in found.columns) == hidden.sum()
    assert found.rmse < 0.8 * found.baseline
    assert settings.budget == budget
    assert "second model was fitted without them, to 60 rows" in words


def test_a_model_from_a_file_is_asked_itself_and_said_to_be(store):
    model = vfg.load(store.model)
    table = open_table(store.gaps).read().select([str(name) for name in model.encoding.schema])
    subject = ReportSubject(None, model, Path("m.vfg"), FitOptions(), 0.0, Filling())
    found, words = evaluate_held_out(subject, table)
    assert sum(score.hidden for score in found.columns) > 0
    assert words.startswith("The model was read from a file. If it was fitted to these cells")


def test_a_table_with_nothing_to_hide_has_no_scores():
    subject = ReportSubject(None, None, None, FitOptions(), 0.0, Filling())
    assert evaluate_held_out(subject, pa.table({"a": [1.0, None]})) == (None, "")


# How tables are read.


def semicolons(folder):
    lines = [f"{k},5;{2 * k if k % 7 else '?'};x{k % 3}" for k in range(40)]
    (folder / "t.csv").write_text("a;b;c\n" + "\n".join(lines) + "\n")


def test_dialects_are_detected_told_and_kept(here, commands):
    semicolons(here)
    found = commands.invoke("impute", "t.csv", "--linear", "-o", "f.csv")
    assert found.exit_code == 0
    said = found.stderr.splitlines()
    assert said[0] == "vfg: read as: ';' between cells, decimal comma"
    assert "the text column 'b' looks like numbers with '?'" in said[1]
    assert said[2].startswith("vfg: columns: 1 continuous (a), ")
    assert (here / "f.csv").read_bytes() == (here / "t.csv").read_bytes()


@pytest.mark.filterwarnings("default:the text column 'a' looks like numbers")
def test_numbers_with_signs_are_named(here, commands):
    lines = [f"{k % 15}%,{k}" for k in range(90)]
    (here / "t.csv").write_text("\n".join(["a,b", *lines, ",5"]) + "\n")
    found = commands.invoke("impute", "t.csv", "--linear", "-o", "f.csv")
    assert found.exit_code == 0
    assert "the text column 'a' looks like numbers, with cells such as '0%'" in found.stderr


def test_marks_of_missing_values_are_filled(here, commands):
    semicolons(here)
    found = commands.invoke("impute", "t.csv", "--linear", "-o", "f.csv", "--missing", "?,-999")
    assert "6 cells filled" in found.stdout
    assert "'?'" not in found.stderr
    lines = (here / "f.csv").read_text().splitlines()
    assert lines[2] == "1,5;2;x1"
    assert "?" not in "".join(lines)


def test_quiet_says_nothing(here, commands):
    semicolons(here)
    assert commands.invoke("impute", "t.csv", "--linear", "-o", "f.csv", "-q").stderr == ""


def test_settings_of_csv_files_are_refused_for_others(store, here, commands):
    commands.succeed("impute", store.gaps, "-m", store.model, "-o", "f.parquet")
    words = commands.fail("impute", "f.parquet", "-m", store.model, "--delimiter", ";", code=2)
    assert "are settings of CSV files" in words


def test_an_index_of_pandas_is_no_column(here, commands):
    frame = pd.DataFrame({"a": [1.0, 2.0, None] * 10, "b": [1.0, 2.0, 3.0] * 10})
    frame.index = pd.Index(list(range(129, 99, -1)), name="key")
    frame.to_parquet(here / "t.parquet")
    found = commands.invoke("fit", "t.parquet", "--linear", "-o", "m.vfg")
    assert "the pandas index 'key' is left out of the fit" in found.stderr
    assert list(vfg.load(here / "m.vfg").variables) == ["a", "b"]
    commands.succeed("impute", "t.parquet", "-m", "m.vfg", "-o", "f.parquet")
    assert pd.read_parquet(here / "f.parquet")["key"].tolist() == list(range(129, 99, -1))
    commands.succeed("fit", "t.parquet", "--linear", "-o", "m.vfg", "--columns", "key,a,b")
    assert list(vfg.load(here / "m.vfg").variables) == ["a", "b", "key"]


def test_estimates_are_means_or_medians(store, here, commands):
    mean, median = (
        commands.succeed("impute", store.gaps, "-m", store.model, "--estimate", kind)
        for kind in ("mean", "median")
    )
    assert mean == commands.succeed("impute", store.gaps, "-m", store.model)
    assert len(median.splitlines()) == len(mean.splitlines())
    words = commands.fail("impute", store.gaps, "-m", store.model, "--estimate", "mode", code=2)
    assert "it must be mean or median, but is 'mode'" in words


def test_draws_of_a_table_that_is_fitted_draw_parameters_too(store, here, commands):
    own = ["impute", store.gaps, "--linear", "--exclude", "id", "--draws", 20]
    commands.succeed(*own, "-o", "proper.parquet")
    commands.succeed("impute", store.gaps, "-m", store.model, "--draws", 20, "-o", "same.parquet")
    proper, same = (pd.read_parquet(f"{name}.parquet") for name in ("proper", "same"))
    observed = same.groupby("id")["height"].std() == 0.0
    spread = [table.groupby("id")["height"].std() for table in (proper, same)]
    assert (spread[0][observed] == 0.0).all()
    assert not np.allclose(*spread)
    source = open_table(store.gaps)
    filling = Filling(draws=20, proper=True)
    filling = with_parameters(vfg.load(store.model), source.read(), source.rows, filling)
    expected = filled_batch(vfg.load(store.model), source.read().to_batches()[0], 0, filling)
    assert np.allclose(proper["height"], expected["height"].to_numpy())


def test_a_warning_is_printed_once(here, commands):
    """The table is read for fitting and for filling."""
    days = [f"2020-01-{k + 1:02d}" for k in range(28)]
    table = pd.DataFrame({"day": [*days, "soon"], "x": [None, *range(28)]})
    table.to_csv("days.csv", index=False)
    result = commands.invoke("impute", "days.csv", "-o", "filled.csv", "--effort", "fast")
    assert result.stderr.count("cannot be read as such") == 1
