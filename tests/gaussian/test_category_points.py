"""Discrete leaves: code points, encodings, and how they start."""

import math

import numpy as np
import pytest
import torch

import vfg
from vfg.gaussian.category_points import (
    CategoryPoints,
    canonical_points,
    code_width,
    informative_means,
    spread_points,
)

POSITIONS = {"a": (3,), "b": (1, 2), "c": (0,)}
LIKELIHOODS = {"a": vfg.Gaussian(), "b": vfg.Bernoulli(), "c": vfg.Categorical(4)}


def mixed_codes():
    return CategoryPoints(POSITIONS, LIKELIHOODS)


@pytest.mark.parametrize("categories", range(2, 10))
def test_spread_points_are_a_regular_simplex(categories):
    points = spread_points(categories).numpy()
    assert points.shape == (categories, categories - 1)
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.testing.assert_allclose(apart, math.sqrt(2 * categories) * (1 - np.eye(categories)))
    np.testing.assert_allclose(points.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(points.T @ points / categories, np.eye(categories - 1), atol=1e-12)


@pytest.mark.parametrize("categories", [2, 3, 9, 10, 40])
@pytest.mark.parametrize("quantities", [0, 1, 30])
def test_canonical_points_have_mean_zero_and_unit_covariance(categories, quantities):
    generator = torch.Generator().manual_seed(categories)
    frequencies = torch.rand(categories, generator=generator, dtype=torch.float64) + 0.05
    frequencies /= frequencies.sum()
    means = torch.randn(categories, quantities, generator=generator, dtype=torch.float64)
    points = canonical_points(frequencies, means)
    assert points.shape == (categories, code_width(categories))
    np.testing.assert_allclose(frequencies @ points, 0.0, atol=1e-10)
    covariance = points.mT @ (frequencies[:, None] * points)
    np.testing.assert_allclose(covariance, np.eye(points.shape[1]), atol=1e-10)


def test_the_first_coordinate_of_canonical_points_follows_the_means():
    means = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]
    points = canonical_points(torch.full((12,), 1 / 12, dtype=torch.float64), means)
    assert abs(np.corrcoef(points[:, 0], means[:, 0])[0, 1]) == pytest.approx(1.0)


def category_sums(shift, rows=2000, categories=200, quantities=6):
    """Counts, sums and squares of quantities of which the first differs between categories."""
    generator = torch.Generator().manual_seed(0)
    category = torch.randint(categories, (rows,), generator=generator)
    values = torch.randn(rows, quantities, generator=generator, dtype=torch.float64)
    effect = torch.randn(categories, generator=generator, dtype=torch.float64)
    values[:, 0] += shift * effect[category]
    member = torch.nn.functional.one_hot(category, categories).double()
    return effect, (member.sum(0), member.mT @ values, values.mT @ values)


def test_categories_without_meaning_tell_nothing():
    _, sums = category_sums(0.0)
    assert informative_means(*sums).shape == (200, 0)


def test_the_telling_direction_is_found_and_its_means_are_shrunk():
    effect, sums = category_sums(1.0)
    found = informative_means(*sums)
    assert found.shape == (200, 1)
    own = found[:, 0] * found[:, 0].dot(effect).sign()
    plain = sums[1][:, 0] / sums[0]
    errors = [(guess - effect).square().mean().item() for guess in (own, plain)]
    assert errors[0] < 0.95 * errors[1]


def test_one_row_per_category_tells_nothing():
    assert informative_means(torch.ones(5), torch.randn(5, 2), torch.eye(2)).shape == (5, 0)


def test_columns_keep_the_order_of_the_table():
    codes = mixed_codes()
    assert codes.positions == {"a": (5,), "b": (3, 4), "c": (0, 1, 2)}
    assert [unit.column for unit in codes.units] == [0, 1, 2]
    assert [unit.categories for unit in codes.units] == [4, 2, 2]


def test_encoding_puts_points_in_place_and_narrowing_takes_real_columns_back():
    codes = mixed_codes()
    cells = torch.tensor([[2.0, 0.0, 1.0, 0.7], [0.0, 1.0, 0.25, -3.0]], dtype=torch.float64)
    seen = torch.tensor([[True, False, True, True], [False, True, True, False]])
    wide, mask = codes.encode(cells, seen)
    np.testing.assert_allclose(wide[:, :3].detach(), spread_points(4)[[2, 0]])
    np.testing.assert_allclose(wide[:, 3:5].detach(), [[-1.0, 1.0], [1.0, -0.5]])
    assert mask.tolist() == [[True] * 3 + [False, True, True], [False] * 3 + [True, True, False]]
    assert codes.narrow(wide)[:, 3].tolist() == [0.7, -3.0]
    assert codes.narrow(wide)[:, :3].eq(0.0).all()


def test_real_tables_stay_as_they_are():
    codes = CategoryPoints({"a": (0,), "b": (1,)}, dict.fromkeys("ab", vfg.Gaussian()))
    cells, seen = torch.randn(3, 2), torch.ones(3, 2).bool()
    assert codes.encode(cells, seen) == (cells, seen)
    assert codes.narrow(cells) is cells
    assert not list(codes.parameters())


def test_started_codes_have_mean_zero_unit_covariance_and_the_frequencies():
    generator = torch.Generator().manual_seed(0)
    codes = CategoryPoints({"x": (0,), "c": (1,)}, {"x": vfg.Gaussian(), "c": vfg.Categorical(5)})
    category = torch.multinomial(
        torch.tensor([0.4, 0.3, 0.2, 0.08, 0.02]), 20000, True, generator=generator
    )
    real = category + torch.randn(20000, generator=generator)
    cells = torch.stack([real - real.mean(), category], dim=1).double()
    seen = torch.rand(cells.shape, generator=generator) < 0.9
    codes.start(cells, seen)
    wide, mask = codes.encode(cells, seen)
    coded = wide[mask[:, 1], 1:].detach()
    np.testing.assert_allclose(coded.mean(0), 0.0, atol=1e-3)
    np.testing.assert_allclose(coded.T.cov(), np.eye(4), atol=5e-3)
    shares = np.bincount(category[seen[:, 1]], minlength=5) / int(seen[:, 1].sum())
    np.testing.assert_allclose(codes.log_frequencies_at(0).softmax(0).detach(), shares, atol=1e-4)
    # The direction that the real column knows is the first coordinate, which makes noise diagonal.
    products = (coded * cells[seen[:, 1], :1] * seen[seen[:, 1], :1]).mean(0)
    assert products[0].abs() > 0.5
    assert products[1:].abs().max() < 0.02


def test_a_category_that_never_occurs_has_a_finite_point():
    codes = CategoryPoints({"c": (0,), "d": (1,)}, dict.fromkeys("cd", vfg.Categorical(20)))
    cells = torch.zeros(50, 2, dtype=torch.float64)
    codes.start(cells, torch.ones(50, 2).bool())
    assert all(bool(codes.points_at(unit).isfinite().all()) for unit in (0, 1))


def test_unknown_likelihoods_are_refused_by_name():
    class Odd(vfg.distributions.likelihoods.LikelihoodSpec):
        name = "odd"

    with pytest.raises(ValueError, match="leaf 'a' is 'odd'"):
        CategoryPoints({"a": (0,)}, {"a": Odd()})
