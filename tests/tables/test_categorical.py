"""Columns of categories: code points, scores and probabilities."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import norm

from vfg.tables.categorical import (
    RAREST,
    CategoricalEncoding,
    OrdinalEncoding,
    category_indices,
    category_means,
    joint_codes,
    normal_scores,
    optimal_codes,
    place_codes,
    shrink_far_points,
    simplex_codes,
    spread_codes,
)
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
    assume(counts.min() >= RAREST * counts.sum())  # rarer ones are counted as more frequent
    assume((truth > 1.0 / (counts.sum() + 1)).all())  # less than one more cell would say is raised
    np.testing.assert_allclose(codes.probabilities(truth[None] @ codes.points)[0], truth, atol=1e-9)


def test_no_category_that_occurred_is_less_likely_than_one_more_cell_would_say():
    codes = CategoricalEncoding.fit(("a", "b"), np.array([1, 1]))
    # The mean of corners says 8/9 and 1/9; of two cells one is b, and its floor is half of a third.
    shares = codes.probabilities(np.array([8.0, 1.0])[None] / 9.0 @ codes.points)[0]
    np.testing.assert_allclose(shares, np.array([8 / 9, 1 / 6]) / (8 / 9 + 1 / 6))


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


def test_thousands_of_categories_decode_to_the_most_probable_of_the_frequent():
    counts = np.random.default_rng(0).integers(1, 9, 6000)
    codes = many(counts)
    assert codes.width == 8
    known = np.sort(np.argsort(-counts, kind="stable")[:4096])
    rare = np.setdiff1d(np.arange(6000), known)[:50]
    points = codes.points[[*known[:50], *rare]]
    likeliest = known[codes.probabilities(points)[:, known].argmax(axis=1)]
    assert codes.decode(points).tolist() == [f"c{place}" for place in likeliest]


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
    assert not codes.fillable
    assert codes.decode(np.zeros((1, 1))).tolist() == [None]


def test_a_few_repeated_names_are_still_identifiers():
    counts = np.ones(30, dtype=int)
    counts[:3] = 2
    names = tuple(f"n{place:02}" for place in range(30))
    assert not CategoricalEncoding.fit(names, counts).fillable
    counts[:15] = 2
    assert CategoricalEncoding.fit(names, counts).open


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


def moments(points, counts):
    rows = np.repeat(points, counts, axis=0)
    return rows.mean(axis=0), np.cov(rows.T, bias=True).reshape(points.shape[1], -1)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=9))
def test_a_simplex_is_whitened_over_the_rows(counts):
    counts = np.array(counts)
    counts = np.maximum(counts, -(-counts.sum() // 50))
    points = simplex_codes(counts)
    assert points.shape == (len(counts), len(counts) - 1)
    mean, covariance = moments(points, counts)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(covariance, np.eye(len(counts) - 1), atol=1e-12)


@pytest.mark.parametrize("count", range(2, 10))
def test_equally_frequent_categories_are_a_regular_simplex(count):
    distances = pdist(simplex_codes(np.full(count, 3)))
    np.testing.assert_allclose(distances, np.sqrt(2 * count), rtol=1e-12)


def test_the_second_of_two_categories_lies_above_the_first():
    low, high = simplex_codes(np.array([30, 10]))[:, 0]
    np.testing.assert_allclose([low, high], [-np.sqrt(1 / 3), np.sqrt(3)])


@pytest.mark.parametrize("counts", [[1, 1_000_000], [1, 1, 10_000, 10_000]])
def test_no_corner_of_a_simplex_lies_far_out(counts):
    points = simplex_codes(np.array(counts))
    assert np.linalg.norm(points, axis=1).max() <= 10.2
    assert pdist(points).min() > 0.1


@pytest.mark.parametrize("count", [10, 100, 5000])
def test_spread_points_are_distinct_and_fixed(count):
    points = spread_codes(count, 8)
    assert len(np.unique(points.round(9), axis=0)) == count
    np.testing.assert_array_equal(points, spread_codes(count, 8))
    assert np.abs(np.corrcoef(points.T) - np.eye(8)).max() < (1.0 if count < 100 else 0.3)


def test_means_of_categories_ignore_gaps_and_trust_single_cells_not_at_all():
    members = np.array([0, 0, 0, 1, -1, 2])
    values = np.array([[1.0, 3.0, 9.0, 5.0, 7.0, 9.0]])
    observed = np.array([[True, True, False, True, True, False]])
    found = category_means(members, 3, values, observed)
    np.testing.assert_allclose(found[:, 0], [2.0 * 1 / 11, 0.0, 0.0])


@pytest.mark.parametrize("columns", [0, 1, 3, 20, 400])
@pytest.mark.parametrize("count", [10, 300])
def test_code_points_are_whitened_and_distinct(columns, count):
    generator = np.random.default_rng(0)
    counts = generator.integers(5, 30, count)
    means = generator.normal(size=(count, columns))
    points = optimal_codes(means, counts)
    assert points.shape == (count, 8)
    mean, covariance = moments(points, counts)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(covariance, np.eye(8), atol=1e-9)
    assert pdist(points).min() > 1e-4


def test_equal_categories_have_close_but_distinct_points():
    groups = np.arange(60) % 12
    means = np.random.default_rng(0).normal(size=(12, 9))[groups]
    points = optimal_codes(means, np.full(60, 500))  # what is unknown of rare ones is random
    distances = pdist(points)
    same = pdist(groups[:, None]) == 0
    assert distances[same].min() > 0
    assert distances[same].max() < 0.3 * distances[~same].min()


def test_the_leading_direction_is_the_one_in_which_categories_differ_most():
    generator = np.random.default_rng(0)
    truth = generator.normal(size=200)
    means = np.outer(truth, [3.0, -4.0]) + 0.01 * generator.normal(size=(200, 2))
    points = optimal_codes(means, np.ones(200))
    assert abs(np.corrcoef(points[:, 0], truth)[0, 1]) > 0.99


def test_a_rare_category_is_drawn_in():
    counts = np.array([1_000_000] + [1] * 9)
    points = optimal_codes(np.random.default_rng(0).normal(size=(10, 8)), counts)
    distances = np.linalg.norm(points, axis=1)
    assert distances.max() < 10 + np.log(1e6)
    assert pdist(points).min() > 0.1


def test_points_within_ten_stay_where_they_are():
    points = np.random.default_rng(0).normal(size=(50, 8))
    np.testing.assert_array_equal(shrink_far_points(points), points)


def test_two_columns_of_many_categories_see_each_other():
    generator = np.random.default_rng(0)
    first = generator.integers(0, 40, 4000)
    second = first // 2
    counts = [np.bincount(first), np.bincount(second)]
    codes, others = joint_codes([first, second], counts, [])
    distances = np.linalg.norm(codes[:, None] - codes[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    assert np.mean(nearest // 2 == np.arange(40) // 2) > 0.95
    assert others.shape == (20, 8)


def test_rows_without_a_category_have_no_point():
    section, seen = place_codes(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, -1]))
    assert section.tolist() == [[3.0, 0.0], [4.0, 0.0]]
    assert seen.tolist() == [[True, False], [True, False]]
