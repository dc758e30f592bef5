"""Draws of columns that end at a limit which no cell attains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from imputation.mixed_tables import light, linear

from vfg.imputation.limits import keep_within_limits


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
        assert np.quantile(own, 0.25) == pytest.approx(np.quantile(truth, 0.25), abs=0.4)


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
