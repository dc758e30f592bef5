"""Columns of categories: code points, scores and probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from vfg.tables.categorical import (
    CategoricalEncoding,
    OrdinalEncoding,
    category_indices,
    normal_scores,
)
from vfg.tables.category_points import optimal_codes
from vfg.tables.cells import Column


def column(cells, storage="text", missing=None):
    values = np.asarray(cells) if storage != "text" else np.array([*cells, None], dtype=object)[:-1]
    gone = np.zeros(len(values), dtype=bool) if missing is None else np.array(missing)
    return Column("x", storage, values, gone)


def many(counts, columns=5):
    counts = np.asarray(counts)
    means = np.random.default_rng(0).normal(size=(len(counts), columns))
    names = tuple(f"c{place}" for place in range(len(counts)))
    return CategoricalEncoding(names, counts, optimal_codes(means, counts))


@pytest.mark.parametrize(
    ("found", "categories", "expected"),
    [
        (column(["b", "a", "z"]), ("a", "b"), [1, 0, -1]),
        (column(["b", "a"], missing=[True, False]), ("a", "b"), [-1, 0]),
        (column([1, "1", 2]), (1, "1"), [0, 1, -1]),
        (column([3.0, np.nan, 1.0], "float"), (1, 3), [1, -1, 0]),
        (column([3, 7, 1], "integer"), (3, 1), [0, -1, 1]),
        (column([3, 7, 1], "integer"), ("3", "1"), [-1, -1, -1]),
        (column([True, False], "boolean"), (False, True), [1, 0]),
        (column([1.0, 0.0, 2.0], "float"), (False, True), [1, 0, -1]),
        (column([1, 2], "integer"), (), [-1, -1]),
    ],
)
def test_cells_are_found_among_categories(found, categories, expected):
    assert category_indices(found, categories).tolist() == expected


@given(st.lists(st.integers(1, 40), min_size=2, max_size=9), st.data())
def test_the_mean_of_corners_gives_the_probabilities_back(counts, data):
    counts = np.array(counts)
    codes = CategoricalEncoding.fit(tuple(range(len(counts))), counts)
    raw = data.draw(st.lists(st.floats(0.01, 1.0), min_size=len(counts), max_size=len(counts)))
    truth = np.array(raw) / np.sum(raw)
    np.testing.assert_allclose(codes.probabilities(truth[None] @ codes.points)[0], truth, atol=1e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("counts", [[5, 1], [3, 3, 9], list(range(1, 21))])
def test_probabilities_with_a_scale_are_bayes_rule_with_normal_errors(counts, scale):
    counts = np.array(counts)
    codes = (
        CategoricalEncoding.fit(tuple(range(len(counts))), counts)
        if len(counts) < 10
        else many(counts)
    )
    values = np.random.default_rng(1).normal(size=(7, codes.width))
    density = norm.pdf(values[:, None], codes.points[None], scale).prod(axis=2) * counts
    expected = density / density.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(codes.probabilities(values, scale), expected, rtol=1e-9)


@pytest.mark.parametrize("count", [2, 3, 9])
def test_the_corners_of_a_simplex_decode_to_their_categories(count):
    codes = CategoricalEncoding.fit(tuple("abcdefghi"[:count]), np.arange(1, count + 1))
    assert codes.decode(codes.points).tolist() == list(codes.categories)
    assert codes.decode(codes.points, 0.1).tolist() == list(codes.categories)


def test_thousands_of_categories_decode_to_the_most_frequent_or_nearest():
    counts = np.random.default_rng(0).integers(1, 9, 6000)
    codes = many(counts)
    assert codes.width == 8
    known = np.sort(np.argsort(-counts, kind="stable")[:4096])
    assert codes.decode(codes.points[known], 1e-3).tolist() == [f"c{place}" for place in known]
    rare = np.setdiff1d(np.arange(6000), known)[:5]
    assert not {f"c{place}" for place in rare} & set(codes.decode(codes.points[rare], 1e-3))


def test_without_evidence_the_most_frequent_category_is_filled_in():
    codes = CategoricalEncoding.fit(("a", "b", "c"), np.array([2, 7, 4]))
    assert codes.decode(np.zeros((1, 2))).tolist() == ["b"]
    np.testing.assert_allclose(codes.probabilities(np.zeros((1, 2)))[0], [2 / 13, 7 / 13, 4 / 13])


def test_an_unknown_category_is_no_evidence():
    codes = CategoricalEncoding.fit(("a", "b"), np.array([1, 1]))
    values, observed = codes.encode(column(["a", "new", "b"]))
    assert observed[0].tolist() == [True, False, True]
    np.testing.assert_allclose(values[0], [-1.0, 0.0, 1.0])


def test_a_constant_column_is_filled_with_its_value():
    codes = CategoricalEncoding.fit(("a",), np.array([4]))
    assert codes.constant
    values, observed = codes.encode(column(["a", "b"]))
    assert values.tolist() == [[0.0, 0.0]]
    assert observed.tolist() == [[True, False]]
    assert codes.decode(np.full((2, 1), np.nan)).tolist() == ["a", "a"]


def test_a_column_without_cells_has_nothing_to_fill_with():
    codes = CategoricalEncoding.fit((), np.zeros(0, dtype=int))
    assert codes.empty
    assert not codes.constant
    values, observed = codes.encode(column(["a"]))
    assert values.shape == observed.shape == (1, 1)
    assert not observed.any()
    assert codes.decode(np.zeros((2, 1))).tolist() == [None, None]


def test_many_categories_of_which_none_was_seen_twice_say_nothing():
    names = tuple(f"n{place:02}" for place in range(30))
    codes = CategoricalEncoding.fit(names, np.ones(30, dtype=int))
    assert codes.constant
    assert codes.width == 1
    values, observed = codes.encode(column(names))
    assert not observed.any()
    assert not values.any()
    assert codes.decode(np.zeros((1, 1))).tolist() == ["n00"]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40).filter(any))
def test_scores_of_levels_rise_and_are_standardised(counts):
    counts = np.array(counts)
    scores = normal_scores(counts)
    assert (np.diff(scores) > 0).all()
    rows = np.repeat(scores, counts)
    np.testing.assert_allclose(rows.mean(), 0.0, atol=1e-9)
    if (counts > 0).sum() > 1:
        np.testing.assert_allclose(rows.std(), 1.0, rtol=1e-9)


def test_levels_decode_to_the_nearest_one_observed():
    levels = OrdinalEncoding.fit(("a", "b", "c", "d", "e"), np.array([0, 3, 0, 4, 0]))
    values, observed = levels.encode(column(["a", "b", "c", "d", "e", "f"]))
    assert observed[0].tolist() == [True] * 5 + [False]
    assert levels.decode(values[:, :5].T).tolist() == ["b", "b", "c", "d", "d"]
    assert levels.decode(np.array([[-99.0], [99.0]])).tolist() == ["b", "d"]


def test_levels_of_numbers_decode_to_numbers():
    levels = OrdinalEncoding.fit((1, 2, 5), np.array([3, 3, 3]))
    found = levels.decode(levels.scores[:, None] + 0.1)
    assert found.dtype == np.int64
    assert found.tolist() == [1, 2, 5]


def test_probabilities_of_levels_are_those_of_a_normal_between_the_cuts():
    levels = OrdinalEncoding.fit(("a", "b", "c"), np.array([3, 4, 5]))
    cuts = (levels.scores[1:] + levels.scores[:-1]) / 2
    draws = np.random.default_rng(0).normal(0.3, 0.7, 400_000)
    expected = np.bincount(np.searchsorted(cuts, draws), minlength=3) / len(draws)
    np.testing.assert_allclose(levels.probabilities([[0.3]], 0.7)[0], expected, atol=3e-3)


def test_levels_outside_the_observed_ones_have_no_probability():
    levels = OrdinalEncoding.fit(("a", "b", "c"), np.array([0, 4, 5]))
    found = levels.probabilities(np.array([[-50.0], [0.0]]), 0.1)
    np.testing.assert_allclose(found[:, 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_constant_and_empty_levels():
    constant = OrdinalEncoding.fit(("a", "b"), np.array([0, 4]))
    assert constant.constant
    assert constant.encode(column(["a", "b"]))[0].tolist() == [[0.0, 0.0]]
    assert constant.decode(np.array([[-5.0]])).tolist() == ["b"]
    empty = OrdinalEncoding.fit(("a", "b"), np.array([0, 0]))
    assert empty.empty
    assert not empty.encode(column(["a"]))[1].any()
    assert OrdinalEncoding.fit((), np.zeros(0, dtype=int)).encode(column(["a"]))[0].shape == (1, 1)
