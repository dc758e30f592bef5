"""Draws of columns that end at a limit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from imputation.mixed_tables import light, linear
from scipy.stats import norm

from vfg.imputation.limits import cut_normal_draws, keep_within_limits


def skewed(seed=0, rows=300, sign=1.0):
    """Two columns of one sign that go together, one of either, and a third of their cells gone."""
    generator = np.random.default_rng(seed)
    normals = generator.multivariate_normal(np.zeros(3), 0.5 + 0.5 * np.eye(3), rows)
    whole = np.column_stack([sign * np.exp(normals[:, :2]), normals[:, 2]])
    missing = generator.random(whole.shape) < 0.3
    missing[:, 2] = False
    return whole, np.where(missing, np.nan, whole)


@pytest.mark.parametrize("make", [light, linear])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_proper_draws_keep_the_sign_of_a_column_and_follow_its_tail(make, sign):
    whole, table = skewed(sign=sign)
    missing = np.isnan(table)
    drawn = np.stack(make().fit(table).sample(table, 20))
    for column in range(2):
        own = sign * drawn[:, missing[:, column], column]
        # None is cut at 0, where 13 to 19 % of them were.
        assert (own > 0.0).all()
        assert (own < 0.01).mean() < 0.06
        truth = sign * whole[missing[:, column], column]
        assert np.quantile(own, 0.25) == pytest.approx(np.quantile(truth, 0.25), abs=0.5)


def test_draws_of_an_ensemble_keep_the_sign_of_a_column():
    _, table = skewed()
    missing, imputer = np.isnan(table), light().fit(table)
    drawn = np.stack(imputer.sample(table, 20, proper=False))
    assert (drawn[:, missing] > 0.0)[:, np.nonzero(missing)[1] < 2].all()
    low, _ = imputer.predict_interval(table)
    assert (low[missing] > 0.0).all()
    few = imputer.sample(table, 2, proper=False)
    assert np.array_equal(few, imputer.sample(table, 5, proper=False)[:2])


def test_intervals_of_skewed_columns_hold_small_values():
    generator = np.random.default_rng(0)
    table = np.column_stack([generator.gamma(0.7, 2.0, 300), generator.normal(size=300)])
    imputer = light().fit(table)
    new, truth = np.full((500, 2), np.nan), generator.gamma(0.7, 2.0, 500)
    new[:, 1] = generator.normal(size=500)
    low, high = (ends[:, 0] for ends in imputer.predict_interval(new))
    assert np.mean((low <= truth) & (truth <= high)) > 0.84
    assert np.mean(truth < low) < 0.12


def test_a_limit_that_cells_attain_may_be_drawn():
    """Rain is often exactly 0."""
    whole, table = skewed()
    table[:, :2] = np.where(whole[:, :2] < 0.7, 0.0, table[:, :2])
    table[::4, 0] = np.nan
    drawn = np.stack(linear().fit(table).sample(table, 20))
    assert (drawn[:, np.isnan(table[:, 0]), 0] == 0.0).mean() > 0.1


def test_moments_are_kept_and_other_cells_too():
    levels = torch.special.ndtri((torch.arange(1000).double() + 0.5) / 1000)[:, None, None]
    means = torch.tensor([[2.0, 2.0, 2.0]], dtype=torch.float64)
    deviations = torch.tensor([[1.5, 0.3, 1.5]], dtype=torch.float64)
    draws = means + deviations * levels
    limits = torch.tensor([[0.0, 0.0, -torch.inf], [torch.inf] * 3], dtype=torch.float64)
    kept = keep_within_limits(draws, levels, means, deviations, draws[[0, -1]], limits)
    assert torch.equal(kept[..., 1:], draws[..., 1:])
    assert bool((kept[..., 0] > 0.0).all())
    assert float(kept[..., 0].mean()) == pytest.approx(2.0, rel=0.02)
    assert float(kept[..., 0].std()) == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("mean", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("sides", [(0.0, np.inf), (-np.inf, 4.0), (0.0, 2.5)])
def test_cut_normal_draws_have_the_mean_of_uncut_ones(mean, sides):
    limits = torch.tensor(sides, dtype=torch.float64)[:, None, None]
    mean, one = torch.full((1, 1), mean, dtype=torch.float64), torch.ones(1, 1).double()
    levels = torch.from_numpy(norm.ppf((np.arange(4000) + 0.5) / 4000))[:, None, None]
    cut = cut_normal_draws(mean + levels, limits, mean, one)
    assert limits[0].item() <= cut.min()
    assert cut.max() <= limits[1].item()
    assert cut.mean().item() == pytest.approx(mean.item(), abs=0.01)
    few = cut_normal_draws((mean + levels)[:7], limits, mean, one)
    assert torch.equal(few, cut[:7]), "the move depends on the cells alone"


@pytest.mark.parametrize("make", [light, linear])
@pytest.mark.parametrize("proper", [False, True])
def test_draws_of_counts_have_the_mean_of_their_cells(make, proper):
    generator = np.random.default_rng(0)
    other = generator.normal(size=(400, 1))
    spent = np.exp(3.0 + 0.5 * generator.normal(size=(400, 1)))
    table = np.hstack([other, np.where(generator.random((400, 1)) < 0.3, spent, 0.0)])
    missing = generator.random(400) < 0.4
    table[missing, 1] = np.nan
    imputer = make().fit(table)
    drawn = np.stack(imputer.sample(table, 20, proper=proper))[:, missing, 1]
    assert (drawn >= 0.0).all()
    expected = imputer.transform(table)[missing, 1].mean()
    # The mean of 3,200 draws; cut without a move they had 1.3 times the mean.
    assert drawn.mean() == pytest.approx(expected, rel=0.12)


def test_draws_and_interval_ends_at_zero_are_exact_zeros():
    generator = np.random.default_rng(3)
    other = generator.normal(size=300)
    for scale in (0.7, 3.0, 11.0):
        spent = np.where(other > 0.5, scale * np.exp(0.3 * generator.normal(size=300)), 0.0)
        table = np.column_stack([other, spent])
        table[generator.random(300) < 0.25, 1] = np.nan
        imputer, missing = linear().fit(table), np.isnan(table[:, 1])
        drawn = np.stack(imputer.sample(table, 20))[:, missing, 1]
        ends = imputer.predict_interval(table)[0][missing, 1]
        for found in (drawn, ends):
            assert found.min() == 0.0
            assert not np.signbit(found).any()
            assert (found[found > 0.0] > 1e-9).all()
