"""Contributions of observed cells: against regression, brute force over orders, and symmetry."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest

from vfg.imputation.explanation import Explanation, show_value
from vfg.sklearn import VFGImputer


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    size = generator.normal(size=240)
    frame = pd.DataFrame(
        {
            "size": size,
            "weight": 2.0 * size + 0.3 * generator.normal(size=240),
            "kind": np.where(size + 0.3 * generator.normal(size=240) > 0, "large", "small"),
            "noise": generator.normal(size=240),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.round(30 * size), "D"),
        }
    )
    return frame.mask(generator.random(frame.shape) < 0.1)


@pytest.fixture(scope="module")
def numbers(table):
    return table[["size", "weight", "noise"]].dropna().reset_index(drop=True)


@pytest.fixture(scope="module")
def ensemble(table):
    return VFGImputer(members=1, mixtures=1, neighbours=1, steps=20, random_state=0).fit(table)


def test_a_linear_model_is_explained_by_its_regression(numbers):
    """Coefficients of the conditional Gaussian, from the covariance of the fitted rows."""
    imputer = VFGImputer(bend=False).fit(numbers)
    why = imputer.explain(numbers, 3, "weight")
    model = imputer.model_
    base = {"size": 0.0, "noise": 0.0}
    start = model.infer([base]).mean["weight"][0]
    slopes = {n: model.infer([base | {n: 1.0}]).mean["weight"][0] - start for n in base}
    means = {n: model.infer([{}]).mean[n][0] for n in base}
    for name in base:
        expected = slopes[name] * (numbers[name][3] - means[name])
        assert why.contributions[name] == pytest.approx(expected, abs=1e-6)
    assert why.method.startswith("closed form")
    assert next(iter(why.contributions)) == "size"


@pytest.mark.parametrize("column", ["size", "weight", "kind", "noise", "since"])
@pytest.mark.parametrize("evaluations", [512, 15])
def test_contributions_add_up(ensemble, table, column, evaluations):
    """Exact Shapley values and sampled orders, of numbers, categories and dates."""
    complete = table.dropna().index[0]
    why = ensemble.explain(table, complete, column, evaluations=evaluations)
    assert set(why.contributions) == set(table.columns) - {column}
    assert sum(why.contributions.values()) == pytest.approx(why.total - why.start, abs=1e-6)
    assert ("exact" in why.method) == (evaluations == 512)


def test_shapley_values_are_means_over_all_orders(ensemble, table):
    complete = table.dropna().index[1]
    why = ensemble.explain(table, complete, "weight")
    model, row = ensemble.model_, table.loc[complete].drop("weight").to_dict()

    def ask(known):
        return model.infer([{n: row[n] for n in known}], ["weight"], padded=True).mean["weight"][0]

    sizes = dict.fromkeys(row, 0.0)
    orders = list(itertools.permutations(row))
    for order in orders:
        for k, name in enumerate(order):
            sizes[name] += (ask(order[: k + 1]) - ask(order[:k])) / len(orders)
    for name, size in sizes.items():
        assert why.contributions[name] == pytest.approx(size, abs=1e-6)


def test_sampled_orders_are_near_the_exact_values(ensemble, table):
    complete = table.dropna().index[2]
    exact = ensemble.explain(table, complete, "weight")
    some = ensemble.explain(table, complete, "weight", evaluations=15, random_state=1)
    again = ensemble.explain(table, complete, "weight", evaluations=15, random_state=1)
    assert some.contributions == again.contributions
    for name, size in exact.contributions.items():
        assert some.contributions[name] == pytest.approx(size, abs=0.5)


def test_what_is_filled_is_what_is_explained(ensemble, table):
    row = int(np.flatnonzero(table["weight"].isna())[0])
    why = ensemble.explain(table, row, "weight")
    assert why.value == pytest.approx(ensemble.transform(table)["weight"][row])
    assert set(why.contributions) <= set(table.columns[table.loc[row].notna()])


def test_similar_rows_are_training_rows(ensemble, table):
    why = ensemble.explain(table, int(table.dropna().index[0]), "weight")
    weights = [weight for weight, _ in why.similar]
    assert weights == sorted(weights, reverse=True)
    assert 0 < sum(weights) <= 1.0 + 1e-6
    for _, cells in why.similar:
        alike = np.ones(len(table), dtype=bool)
        for name, cell in cells.items():
            own = table[name]
            alike &= (
                np.isclose(own, cell, atol=0.05)
                if name in ("size", "weight", "noise")
                else (own == cell)
            )
        assert alike.any(), cells


def is_row(cells, row):
    """Whether listed cells are all observed cells of a row."""
    known = row.dropna()
    return set(cells) == set(known.index) and all(
        np.isclose(cell, known[name], atol=1e-3) if isinstance(cell, float) else cell == known[name]
        for name, cell in cells.items()
    )


@pytest.mark.parametrize("explained", ["weight", "kind"])
def test_similar_rows_are_others(ensemble, table, explained):
    complete = int(table.dropna().index[0])
    missing = int(np.flatnonzero(table["weight"].isna())[0])
    for row in (complete, missing):
        why = ensemble.explain(table, row, explained)
        assert len(why.similar) == 5
        assert not any(is_row(cells, table.loc[row]) for _, cells in why.similar)
    # A row that is not of the fitted table, for it has a cell more or less, has no copy there.
    other = table.loc[[complete]].reset_index(drop=True)
    other.loc[0, "noise"] = np.nan
    similar = ensemble.explain(other, 0, "weight").similar
    assert any(is_row(cells, table.loc[complete]) for _, cells in similar)


def test_similar_rows_may_be_copies():
    rows = pd.DataFrame({"a": np.arange(60) % 20 * 1.0, "b": np.arange(60) % 20 * 2.0})
    rows = rows.assign(c=np.where(rows.index % 20 < 10, "low", "high"))
    fitted = VFGImputer(members=1, mixtures=0, neighbours=1, steps=5, random_state=0).fit(rows)
    similar = fitted.explain(rows, 5, "b").similar
    assert [is_row(cells, rows.loc[5]) for _, cells in similar[:3]] == [True, True, False]


def test_sentences(ensemble, table):
    complete = int(table.dropna().index[0])
    number = ensemble.explain(table, complete, "weight").sentence
    assert number.startswith("weight is filled with ")
    assert "size = " in number
    category = ensemble.explain(table, complete, "kind")
    assert category.value in ("large", "small")
    assert "its probability is" in category.sentence
    empty = table.copy()
    empty.loc[0] = None
    nothing = ensemble.explain(empty, 0, "weight")
    assert nothing.contributions == {}
    assert nothing.sentence.startswith(
        f"weight is filled with {show_value(nothing.value)}, since no"
    )
    assert nothing.sentence.endswith(f"without evidence it would be {show_value(nothing.value)}.")


@pytest.mark.parametrize(
    ("scale", "shown"),
    [(1.0, ("+17.5", "−0.3", "68.5")), (1e-4, ("+0.00175", "−0.00003", "0.00685"))],
)
def test_sentences_round_to_what_matters(scale, shown):
    parts, cells = {1: 17.4642 * scale, 2: -0.3146 * scale}, {1: 1.0, 2: 2.0}
    why = Explanation(0, 1.0, 68.5389 * scale, 85.6885 * scale, parts, cells, "Shapley")
    larger, smaller, start = shown
    assert f"because column 1 = 1 ({larger}) and column 2 = 2 ({smaller});" in why.sentence
    assert why.sentence.startswith("column 0 is filled with 1,")
    assert why.sentence.endswith(f"without evidence it would be {start}.")


def test_a_frame_lists_the_contributions(ensemble, table):
    why = ensemble.explain(table, int(table.dropna().index[0]), "weight")
    frame = why.to_frame()
    assert list(frame["column"]) == list(why.contributions)
    assert frame["contribution"].abs().is_monotonic_decreasing


def test_nonsense_is_refused(ensemble, table):
    with pytest.raises(IndexError, match="240 rows, but row 240"):
        ensemble.explain(table, 240, "weight")
    with pytest.raises(ValueError, match=r"column 'wieght' cannot be explained.*weight"):
        ensemble.explain(table, 0, "wieght")
    with pytest.raises(ValueError, match="evaluations"):
        ensemble.explain(table, 0, "weight", evaluations=0)


def test_similar_rows_have_no_negative_zero():
    counts = pd.DataFrame({"a": np.arange(60) % 5 - 2.0, "b": np.arange(60) % 5 * 1.0})
    counts.loc[0, "a"] = np.nan
    counts.loc[5, "b"] = np.nan
    why = (
        VFGImputer(members=1, mixtures=0, neighbours=1, steps=5).fit(counts).explain(counts, 5, "b")
    )
    zeros = [row["a"] for _, row in why.similar if row.get("a") == 0.0]
    assert not np.signbit(zeros).any()
    assert "-0" not in str(why.similar)


def test_values_are_those_of_transform_for_every_kind(table):
    frame = table.assign(
        year=np.where(table["size"] > 0, 2008.0, 1999.0),
        whole=np.round(5 * table["size"]),
        span=table["since"] - pd.Timestamp("2020-01-01"),
    )
    frame.loc[3] = np.nan
    frame.loc[4, ["year", "whole", "span", "since"]] = np.nan
    imputer = VFGImputer(effort="fast", random_state=0).fit(frame)
    filled = imputer.transform(frame)
    for row in (3, 4):
        for column in ("year", "whole", "span", "since"):
            why = imputer.explain(frame, row, column)
            assert why.value == filled[column][row], column
    date = r"without evidence it would be \d{4}-\d\d-\d\d\.$"
    assert re.search(date, imputer.explain(frame, 3, "since").sentence)
    assert "days" in imputer.explain(frame, 3, "span").sentence


def test_columns_of_arrays_are_named_by_position(numbers):
    cells = numbers.to_numpy().copy()
    cells[0, 1] = np.nan
    model = VFGImputer(bend=False).fit(cells).model_
    frame = pd.DataFrame(cells, columns=["0", "1", "2"])
    assert model.explain(frame, 0, 1).value == model.explain(cells, 0, 1).value


def test_explanations_are_printed_as_a_sentence_and_a_short_table():
    parts = {f"c{k}": 10.0 - k for k in range(11)}
    evidence = dict.fromkeys(parts, 2.5)
    why = Explanation("income", 12.0, 10.0, 65.0, parts, evidence, "Shapley")
    lines = str(why).splitlines()
    assert lines[0] == why.sentence
    assert lines[1].split() == ["column", "value", "contribution"]
    assert lines[2].split() == ["c0", "2.5", "+10"]
    assert len(lines) == 2 + 8 + 1
    assert lines[-1].split() == ["3", "more", "+3"], "2 + 1 + 0"
    assert max(map(len, lines[1:])) <= 60
