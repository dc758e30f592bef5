"""Evaluation: hidden cells, and errors counted by hand."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import linear, mixed, numbers

from vfg.imputation.evaluation import ColumnScore, Evaluation, evaluate, hold_out
from vfg.imputation.relations import find_copies
from vfg.tables.frames import open_table


@pytest.fixture(scope="module")
def fitted():
    return linear().fit(numbers(rows=400)[1])


def test_errors_are_those_of_the_hidden_cells(fitted):
    table, model = open_table(numbers(rows=400)[1]), fitted.model_
    cells = hold_out(table, 0.2, 3)
    found = evaluate(model, table, cells, level=0.8, seed=3)
    values, observed = model.encode(table)
    hidden = torch.from_numpy(cells[:, model.columns])
    guess = model.means(values, observed & ~hidden)
    low, high = model.quantiles(values, observed & ~hidden, [0.1, 0.9], seed=3)
    for label, score in enumerate(found.columns):
        assert score.column == label
        place = model.columns.index(label)
        rows = hidden[:, place]
        truth, own = values[rows, place], guess[rows, place]
        assert score.hidden == int(rows.sum())
        assert score.rmse == pytest.approx(float((truth - own).square().mean().sqrt()))
        assert score.mae == pytest.approx(float((truth - own).abs().mean()))
        assert score.baseline == pytest.approx(float(truth.square().mean().sqrt()))
        inside = (low[rows, place] <= truth) & (truth <= high[rows, place])
        assert score.coverage == pytest.approx(float(inside.double().mean()))
        assert np.isnan(score.accuracy)
    errors = (values - guess)[hidden]
    assert found.rmse == pytest.approx(float(errors.square().mean().sqrt()))
    assert found.mae == pytest.approx(float(errors.abs().mean()))


def test_intervals_have_their_nominal_coverage(fitted):
    fresh = numbers(rows=1000, seed=1)[0]
    found = fitted.evaluate(fresh, share=0.3, level=0.8)
    assert 0.75 < found.coverage < 0.85
    assert found.rmse < 0.8 * found.baseline
    assert 0.9 < found.baseline < 1.1


def test_rows_keep_something_and_sections_are_hidden_as_a_whole():
    frame = mixed(rows=200)
    model = linear().fit(frame).model_
    table = open_table(frame)
    cells = hold_out(table, 0.9, seed=0)
    assert not (cells & table.missing).any()
    assert ((~table.missing & ~cells).any(1) | table.missing.all(1)).all()
    found = evaluate(model, table, cells, level=0.9, seed=0)
    assert [score.hidden for score in found.columns] == cells.sum(0).tolist()
    assert cells.mean() > 0.4


def test_columns_keep_cells_to_learn_from():
    table = open_table([[1.0, k if k < 3 else None] for k in range(40)])
    for seed in range(20):
        hidden = hold_out(table, 0.5, seed, keep=2)
        assert ((~table.missing & ~hidden).sum(0) >= 2).all()


def test_categories_have_accuracies_and_numbers_have_coverage():
    generator = np.random.default_rng(0)
    sign = generator.random(300) < 0.5
    frame = pd.DataFrame(
        {
            "x": np.where(sign, 3.0, -3.0) + generator.normal(size=300),
            "kind": np.where(sign, "plus", "minus").astype(object),
            "flag": sign,
        }
    )
    scores = {score.column: score for score in linear().fit(frame).evaluate(frame).columns}
    assert scores["kind"].accuracy > 0.95
    assert scores["flag"].accuracy > 0.95
    assert np.isnan(scores["kind"].coverage)
    assert np.isnan(scores["x"].accuracy)
    assert scores["x"].coverage > 0.7


def test_a_seed_decides_what_is_hidden(fitted):
    table = numbers(rows=400)[1]
    first, again, other = (fitted.evaluate(table, random_state=seed) for seed in (1, 1, 2))
    assert str(first) == str(again)
    assert str(first) != str(other)


def test_overall_numbers_weigh_columns_by_their_hidden_cells():
    nan = float("nan")
    columns = (
        ColumnScore("a", 3, 1.0, 0.5, 1.0, 0.9, 2.0, nan),
        ColumnScore("b", 1, 3.0, 2.5, 2.0, nan, nan, 0.5),
        ColumnScore("c", 0, nan, nan, nan, nan, nan, nan),
    )
    found = Evaluation(0.9, columns)
    assert found.rmse == pytest.approx(np.sqrt((3 * 1.0 + 9.0) / 4))
    assert found.mae == pytest.approx(1.0)
    assert found.baseline == pytest.approx(np.sqrt((3 + 4) / 4))
    assert found.coverage == 0.9


def test_an_evaluation_can_be_printed_and_stored(fitted):
    found = fitted.evaluate(numbers(rows=400)[1])
    lines = str(found).splitlines()
    assert len(lines) == 6
    assert lines[-1].startswith("all")
    described = json.loads(json.dumps(found.to_dict()))
    assert described["rmse"] == found.rmse
    assert [column["column"] for column in described["columns"]] == [0, 1, 2, 3]


def test_nothing_to_hide_is_no_error():
    one_column = linear().fit([[1.0], [2.0], [3.0]]).evaluate([[1.0], [np.nan]])
    assert "nothing to compare: every row keeps one known cell" in str(one_column)
    assert one_column.columns[0].hidden == 0
    assert np.isnan(one_column.rmse)
    assert linear().fit([[1.0, np.nan]]).evaluate([[1.0, np.nan]]).columns == ()


@pytest.mark.parametrize("name", ["share", "level"])
def test_shares_and_levels_are_checked(fitted, name):
    with pytest.raises(ValueError, match=f"{name} must be a number between 0 and 1, but is 1.5"):
        fitted.evaluate(numbers()[1], **{name: 1.5})


def test_patterns_hide_what_their_names_say():
    values = np.random.default_rng(0).normal(size=(100, 4))
    table = open_table(np.where(np.arange(400).reshape(100, 4) % 7 == 0, np.nan, values))
    known = ~table.missing
    by_column = hold_out(table, 0.5, 0, pattern="columns")
    assert by_column.sum(1).max() == 1
    assert by_column.any(0).all()
    assert 25 < by_column.any(1).sum() < 60
    half = hold_out(table, 0.5, 0, pattern="half")
    lost = half.any(0)
    assert lost.sum() == 2
    rows = half.any(1)
    assert (half[rows][:, lost] | ~known[rows][:, lost]).mean() > 0.9
    like_table = hold_out(table, 0.5, 0, pattern="table")
    patterns = {tuple(row) for row in ~known}
    for row, own in zip(like_table, known, strict=True):
        assert not row.any() or any((np.array(p) & own == row).all() for p in patterns)
    with pytest.raises(ValueError, match="no cell of the table is missing"):
        hold_out(open_table(np.ones((5, 2))), 0.5, 0, pattern="table")


class TestCopies:
    def tables(self, seed):
        """Rows of which some are copies, with missing cells of their own; and who is whose copy."""
        generator = np.random.default_rng(seed)
        rows = np.hstack([generator.normal(size=(60, 4)), generator.integers(3, size=(60, 2))])
        whose = generator.integers(60, size=90)
        observed = generator.random((90, 6)) < 0.8
        return rows[whose], observed, whose

    @pytest.mark.parametrize("seed", range(5))
    def test_rows_that_agree_are_copies(self, seed):
        table, observed, whose = self.tables(seed)
        found = find_copies(table, observed)
        assert (whose[found] == whose).all(), "no other rows"
        for first in range(90):
            for second in range(first):
                both = observed[first] & observed[second]
                if whose[first] == whose[second] and both[:4].sum() >= 2 and both.sum() >= 4:
                    assert found[first] == found[second]

    def test_rows_that_have_little_in_common_are_no_copies(self):
        table = np.random.default_rng(0).normal(size=(100, 6))
        table[50:, :3] = table[:50, :3]
        observed = np.ones(table.shape, dtype=bool)
        observed[:50, 3:] = False
        assert find_copies(table, observed).tolist() == list(range(100))

    def test_columns_of_few_values_make_no_copies(self):
        table = np.random.default_rng(0).integers(3, size=(100, 4)).astype(float)
        assert find_copies(table, np.ones((100, 4), dtype=bool)).tolist() == list(range(100))

    def test_copies_are_hidden_together(self):
        frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=list("abc"))
        frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(range(50), "D")
        frame["name"] = [f"name {k % 7}" for k in range(50)]
        twice = pd.concat([frame, frame], ignore_index=True)
        hidden = hold_out(open_table(twice), 0.3, seed=0)
        assert np.array_equal(hidden[:50], hidden[50:])
        assert 0.2 < hidden.mean() < 0.4


def test_dates_that_are_text_are_scored():
    days = np.arange("2020-01-10", "2020-03-10", dtype="M8[D]").astype(str)
    frame = pd.DataFrame({"x": np.arange(60.0), "when": days.astype(object)})
    frame.loc[3, "when"] = "n/a"
    with pytest.warns(UserWarning, match="such as 'n/a'"):
        found = linear().fit(frame).evaluate(frame, share=0.2)
    assert {score.column for score in found.columns if score.hidden} == {"x", "when"}
    assert found.rmse < 0.05


@pytest.mark.filterwarnings("ignore:column 'day' holds dates")
def test_cells_that_are_no_dates_are_not_scored_and_do_not_stop_explanations():
    days = pd.date_range("2021-01-01", periods=120).strftime("%Y-%m-%d").to_list()
    x = np.random.default_rng(0).normal(size=120)
    table = pd.DataFrame({"x": x, "day": days})
    table.loc[5, "day"] = "2021-13-45"
    imputer = linear().fit(table)
    assert np.isfinite(imputer.score(table))
    assert imputer.explain(table, 5, "day").contributions
