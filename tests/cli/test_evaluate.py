"""`vfg evaluate`: hidden cells are hidden from everyone, and errors are what they say."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import vfg
from vfg.bigtable import open_table as read
from vfg.cli.commands.evaluate import BASELINES, PATTERNS, parse_names
from vfg.imputation import evaluation
from vfg.imputation.baselines import BASELINES as KNOWN
from vfg.imputation.evaluation import evaluate, hold_out
from vfg.modelfile import dumps
from vfg.plots import style
from vfg.plots.style import new_figure
from vfg.tables.frames import hide_cells, open_table


@pytest.fixture(scope="module")
def numbers():
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=150)
    return pa.table({f"x{k}": hidden + 0.3 * generator.normal(size=150) for k in range(4)})


def with_nulls(table, hidden):
    """The same Arrow table with nulls in the hidden cells."""
    columns = [
        pc.if_else(pa.array(hidden[:, place]), pa.scalar(None, column.type), column)
        for place, column in enumerate(table.columns)
    ]
    return pa.table(columns, schema=table.schema)


def test_hidden_cells_are_known_and_leave_something(numbers):
    table = with_nulls(numbers, np.random.default_rng(1).random((150, 4)) < 0.4)
    known = ~table.to_pandas().isna().to_numpy()
    hidden = hold_out(open_table(table), 0.5, seed=0, keep=2)
    assert hidden.any()
    assert not (hidden & ~known).any()
    assert ((known & ~hidden).any(1) == known.any(1)).all()
    assert ((known & ~hidden).sum(0) >= 2).all()


def test_gaps_made_with_the_same_seed_are_not_the_cells_to_hide(numbers):
    from vfg.data import mcar

    table = open_table(with_nulls(numbers, mcar((150, 4), 0.1, seed=0)))
    assert hold_out(table, 0.1, seed=0, keep=2).sum() > 20


def test_cells_are_hidden_and_the_others_stay(numbers):
    hidden = hold_out(open_table(numbers), 0.2, seed=0, keep=2)
    left = hide_cells(open_table(numbers), hidden)
    assert (left.missing == hidden).all()
    for place, column in enumerate(left.columns()):
        assert (column.observed == numbers.column(place).to_numpy()[~hidden[:, place]]).all()


def test_nothing_of_hidden_cells_is_learned(store):
    table = read(store.gaps).read().drop_columns("id")
    hidden = hold_out(open_table(table), 0.3, seed=0, keep=2)
    view, nulls = (vfg.TableModel(bend=False) for _ in range(2))
    view.fit(hide_cells(open_table(table), hidden))
    nulls.fit(with_nulls(table, hidden))
    assert dumps(view) == dumps(nulls)


def test_a_table_too_small_to_hide_anything_is_refused(here, commands):
    (here / "t.csv").write_text("a,b\n1.0,2.0\n2.0,3.0\n")
    words = commands.fail("evaluate", "t.csv", "--share", 0.5, "--linear")
    assert "no cell can be held out; use more rows, or a larger --share" in words


def test_a_single_column_is_refused_with_the_reason(here, commands):
    (here / "t.csv").write_text("a\n" + "1.0\n2.0\n" * 50)
    words = commands.fail("evaluate", "t.csv", "--linear")
    assert "no row has two known cells" in words
    assert "use a table with two columns or more" in words


def test_errors_are_those_of_the_filled_cells(numbers):
    table = open_table(numbers)
    hidden = hold_out(table, 0.2, seed=0, keep=2)
    model = vfg.TableModel(bend=False)
    model.fit(hide_cells(table, hidden))
    found = evaluate(model, table, hidden, level=0.9, seed=0)
    filled = model.fill(with_nulls(numbers, hidden)).to_pandas().to_numpy()
    truth = numbers.to_pandas().to_numpy()
    for place, score in enumerate(found.columns):
        rows = hidden[:, place]
        deviation = np.std(truth[~rows, place])
        error = np.sqrt(np.mean((filled[rows, place] - truth[rows, place]) ** 2)) / deviation
        # Filled cells keep to the observed range, which scores do not look at.
        assert score.rmse == pytest.approx(error, rel=0.01)
        assert score.hidden == rows.sum()


def test_baselines_fill_the_same_cells(numbers, here, commands):
    numbers.to_pandas().to_csv("t.csv", index=False)
    options = ["--linear", "--share", "0.2", "--baselines", "all", "--json"]
    said = json.loads(commands.succeed("evaluate", "t.csv", *options))
    methods = {entry["method"]: entry for entry in said["methods"]}
    assert list(methods) == ["vfg", *BASELINES]
    counts = [[column["hidden"] for column in entry["columns"]] for entry in said["methods"]]
    assert all(count == counts[0] for count in counts)
    assert methods["mean"]["rmse"] == pytest.approx(methods["vfg"]["baseline"], rel=0.02)
    assert methods["vfg"]["rmse"] < 0.6 * methods["mean"]["rmse"]
    assert 0.75 < methods["vfg"]["coverage"] <= 1.0
    assert methods["knn"]["coverage"] is None


def test_a_given_model_is_not_fitted_again(store, commands):
    words = commands.succeed("evaluate", store.gaps, "--model", store.model, "--rivals", "mean")
    lines = words.splitlines()
    assert lines[0].split() == [
        "column",
        "hidden",
        "error",
        "of",
        "the",
        "mean",
        "covered",
        "right",
    ]
    assert [line.split()[0] for line in lines[1:7]] == [
        "height", "visits", "shirt", "member", "since", "all",
    ]  # fmt: skip
    assert lines[-4].split()[0] == "vfg"
    assert lines[-1].endswith("take the nearest category")


@pytest.mark.parametrize("share", ["0", "1", "-3"])
def test_shares_lie_between_0_and_1(share, store, commands):
    assert "--share" in commands.fail("evaluate", store.gaps, "--share", share, code=2)


def test_baselines_by_name():
    assert parse_names(" knn , mean", BASELINES, "--baselines") == ["knn", "mean"]
    assert parse_names("iterative", BASELINES, "--baselines") == ["ridge"]
    assert parse_names("all", BASELINES, "--baselines") == list(KNOWN)
    assert PATTERNS == evaluation.PATTERNS


def test_all_patterns_of_a_complete_table_are_those_that_it_has(numbers, here, commands):
    numbers.to_pandas().to_csv("t.csv", index=False)
    options = ["--linear", "--share", "0.2", "--patterns"]
    said = json.loads(commands.succeed("evaluate", "t.csv", *options, "all", "--json"))
    assert [entry["pattern"] for entry in said["methods"]] == ["cells", "columns", "half"]
    words = commands.fail("evaluate", "t.csv", *options, "table")
    assert "no cell of the table is missing" in words
    words = commands.fail("evaluate", "t.csv", "--plot", "cost.doc", code=2)
    assert "--plot writes .png, .svg or .pdf, but got cost.doc" in words
    assert "folder" in commands.fail("evaluate", "t.csv", "--plot", "none/cost.png")


def test_patterns_and_seeds_are_averaged_and_drawn(numbers, here, commands):
    numbers.to_pandas().to_csv("t.csv", index=False)
    options = ["--linear", "--baselines", "mean,boosting", "--patterns", "cells,half"]
    more = ["--share", "0.2", "--seeds", "2", "--plot", "cost.png"]
    words = commands.succeed("evaluate", "t.csv", *options, *more)
    assert Path("cost.png").stat().st_size > 5000
    shown, told = words.splitlines()[:-2], words.splitlines()[-1]
    assert told.endswith("error minus that of vfg, ± the standard error")
    lines = [line.split() for line in shown[-7:]]
    assert lines[0][:6] == ["method", "pattern", "error", "absolute", "right", "seconds"]
    names = [(method, pattern) for method, pattern, *_ in lines[1:]]
    wanted = [(m, p) for p in ("cells", "half") for m in ("vfg", "mean", "boosting")]
    assert sorted(names) == sorted(wanted)
    said = json.loads(commands.succeed("evaluate", "t.csv", *options, *more[:4], "--json"))
    own = [e["rmse"] for e in said["methods"] if (e["method"], e["pattern"]) == ("vfg", "half")]
    assert len(own) == 2
    assert float(next(line[2] for line in lines if line[:2] == ["vfg", "half"])) == pytest.approx(
        sum(own) / 2, rel=0.01
    )
    others = [e["rmse"] for e in said["methods"] if (e["method"], e["pattern"]) == ("mean", "half")]
    gaps = np.subtract(others, own)
    line = next(line for line in lines if line[:2] == ["mean", "half"])
    assert line[-3:] == [f"{gaps.mean():+.4f}", "±", f"{gaps.std(ddof=1) / 2**0.5:.4f}"]


def test_the_picture_has_panels_for_numbers_and_categories_of_each_pattern(
    here, commands, monkeypatch
):
    generator = np.random.default_rng(0)
    a = generator.normal(size=120)
    kind = np.where(a > 0, "high", "low")
    pd.DataFrame({"a": a, "b": a + generator.normal(size=120), "kind": kind}).to_csv("t.csv")
    drawn = []

    def keep(*size, **grid):
        drawn.append(new_figure(*size, **grid))
        return drawn[-1]

    monkeypatch.setattr(style, "new_figure", keep)
    options = ["--columns", "a,b,kind", "--linear", "--baselines", "mean", "--share", "0.2"]
    commands.succeed(
        "evaluate", "t.csv", *options, "--patterns", "cells,columns", "--plot", "c.png"
    )
    [figure] = drawn
    assert [axes.get_title() for axes in figure.axes] == ["cells", "columns"] * 2
    numbers, _, categories, _ = (axes.get_ylabel() for axes in figure.axes)
    assert numbers == "error of numbers, in standard deviations"
    assert categories == "share of wrong categories"
    for axes in figure.axes:
        assert {text.get_text() for text in axes.texts} == {"vfg", "mean"}
        assert max(line.get_ydata().max() for line in axes.lines) < 3.0


def test_tables_come_with_gaps_on_request(here, commands):
    commands.succeed("data", "iris", "-o", "whole.csv")
    commands.succeed("data", "iris", "--missing", "0.3", "--seed", 5, "-o", "gaps.csv")
    whole, gaps = pd.read_csv("whole.csv"), pd.read_csv("gaps.csv")
    assert whole.shape == gaps.shape == (150, 4)
    assert gaps.isna().to_numpy().mean() == pytest.approx(0.3, abs=0.05)
    known = gaps.notna().to_numpy()
    assert (whole.to_numpy()[known] == gaps.to_numpy()[known]).all()


@pytest.mark.parametrize("mechanism", ["mar", "mnar"])
def test_mechanisms_of_missing_cells(mechanism, commands):
    arguments = ["synthetic", "-n", 50, "--missing", 0.4, "--mechanism", mechanism]
    assert ",," in commands.succeed("data", *arguments)


def test_tables_are_listed(commands):
    names = commands.succeed("data").splitlines()
    assert {"california", "gaussian_network", "iris", "synthetic"} <= set(names)
    assert json.loads(commands.succeed("data", "--json")) == names
    assert "--mechanism takes mcar, mar, mnar" in commands.fail("data", "--mechanism", "x", code=2)


def test_a_model_of_these_rows_is_told_from_one_of_others(store, here, commands):
    """The model was fitted to the table with gaps, so its errors there are too small."""
    words = "rows of this table are among those that the model was fitted to"
    assert words in commands.invoke("evaluate", store.gaps, "-m", store.model).stderr
    (here / "part.csv").write_text("".join(store.gaps.read_text().splitlines(True)[:40]))
    assert words in commands.invoke("evaluate", "part.csv", "-m", store.model, "-q").stderr
    other = pd.read_csv(store.gaps)
    other.assign(height=150.0 + other.index / 4).to_csv("other.csv", index=False)
    found = commands.invoke("evaluate", "other.csv", "-m", store.model)
    assert found.exit_code == 0
    assert words not in found.stderr
    assert words not in commands.invoke("evaluate", store.gaps, "--linear").stderr


def test_a_model_reads_as_its_fit_did(here, commands):
    """Marks of missing values, delimiter and decimals of the fit hold for later tables."""
    rows = [f"{k / 8:.3f}:{-999 if k % 9 == 0 else f'{k * 0.33:.2f}'}" for k in range(90)]
    (here / "t.csv").write_text("a:b\n" + "\n".join(rows) + "\n")
    commands.succeed("fit", "t.csv", "-o", "m.vfg", "--linear", "--missing=-999", "--delimiter=:")
    (here / "n.csv").write_text("a:b\n1:-999\n2:5\n")
    lines = commands.succeed("impute", "n.csv", "-m", "m.vfg").splitlines()
    assert lines[::2] == ["a:b", "2:5"]
    assert float(lines[1].removeprefix("1:")) == pytest.approx(2.64, abs=0.3)
    assert "." in lines[1]
    for command in ("score", "embed", "evaluate"):
        found = commands.invoke(command, "n.csv", "-m", "m.vfg")
        assert "lacks the column" not in found.stderr
