"""Code points: whitened, distinct, and close where categories are alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from vfg.tables.category_points import (
    category_means,
    drawn_in,
    joint_codes,
    optimal_codes,
    placed,
    simplex_codes,
    spread_codes,
)


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
    points = optimal_codes(means, np.full(60, 5))
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
    np.testing.assert_array_equal(drawn_in(points), points)


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
    section, seen = placed(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, -1]))
    assert section.tolist() == [[3.0, 0.0], [4.0, 0.0]]
    assert seen.tolist() == [[True, False], [True, False]]
