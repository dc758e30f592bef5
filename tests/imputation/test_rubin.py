"""Rubin's rules against values computed by hand and cell by cell."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import vfg

numbers = st.floats(-1e3, 1e3)
positive = st.floats(0.01, 1e3)


def test_three_scalars_by_hand():
    pooled = vfg.pool([10.0, 12.0, 11.0], [4.0, 5.0, 6.0])
    assert pooled.estimate == 11.0
    assert pooled.within == 5.0
    assert pooled.between == 1.0
    assert pooled.variance == pytest.approx(5.0 + 4.0 / 3.0)
    assert pooled.std == pytest.approx(math.sqrt(19.0 / 3.0))
    assert pooled.missing_information == pytest.approx(4.0 / 19.0)
    assert pooled.degrees_of_freedom == pytest.approx(2.0 * (1.0 + 15.0 / 4.0) ** 2)  # 45.125
    low, high = pooled.interval(0.95)
    assert (low + high) / 2 == pytest.approx(11.0)
    # The 97.5 % point of Student's t with 45.125 degrees of freedom.
    assert (high - low) / 2 == pytest.approx(2.01398 * math.sqrt(19.0 / 3.0), rel=1e-4)


@given(st.lists(st.tuples(numbers, positive, numbers, positive), min_size=2, max_size=6))
def test_arrays_are_pooled_entry_by_entry(results):
    estimates = np.array([[a, c] for a, _, c, _ in results])
    variances = np.array([[b, d] for _, b, _, d in results])
    whole = vfg.pool(estimates[:, None], variances[:, None])
    assert whole.estimate.shape == whole.degrees_of_freedom.shape == (1, 2)
    for entry in range(2):
        own = vfg.pool(estimates[:, entry], variances[:, entry])
        for name in ("estimate", "variance", "between", "degrees_of_freedom"):
            np.testing.assert_allclose(getattr(whole, name)[0, entry], getattr(own, name))
        tables = len(results)
        mean = math.fsum(estimates[:, entry]) / tables
        between = math.fsum((x - mean) ** 2 for x in estimates[:, entry]) / (tables - 1)
        total = math.fsum(variances[:, entry]) / tables + between * (tables + 1) / tables
        np.testing.assert_allclose(own.variance, total, rtol=1e-9)


def test_imputations_that_agree_leave_the_normal_interval():
    pooled = vfg.pool([3.0, 3.0, 3.0], [0.25, 0.25, 0.25])
    assert pooled.degrees_of_freedom == np.inf
    assert pooled.missing_information == 0.0
    reach = stats.norm.ppf(0.95) * 0.5
    np.testing.assert_allclose(pooled.interval(0.9), (3.0 - reach, 3.0 + reach))


def test_certain_estimates_that_disagree_are_all_missing_information():
    pooled = vfg.pool([1.0, 2.0], [0.0, 0.0])
    assert pooled.missing_information == 1.0
    assert pooled.degrees_of_freedom == 1.0
    nothing = vfg.pool([1.0, 1.0], [0.0, 0.0])
    assert (nothing.variance, nothing.missing_information) == (0.0, 0.0)


def test_intervals_of_pooled_means_have_their_nominal_coverage():
    generator = np.random.default_rng(0)
    tables, runs, share = 5, 4000, 0.4
    # A mean of known variance 1 of which a share is missing: proper draws of the missing part.
    known = generator.normal(0.0, math.sqrt(1.0 - share), runs)
    guess = generator.normal(0.0, math.sqrt(share), runs)
    drawn = guess + generator.normal(0.0, math.sqrt(share), (tables, runs))
    pooled = vfg.pool(known + drawn, np.full((tables, runs), 1.0 - share))
    low, high = pooled.interval(0.9)
    assert 0.86 < np.mean((low < 0.0) & (high > 0.0)) < 0.94


@pytest.mark.parametrize(
    ("estimates", "variances", "message"),
    [
        ([1.0, 2.0], [1.0], r"one variance per estimate.*\(2,\) and \(1,\)"),
        (1.0, 1.0, "one row per imputed table"),
        ([1.0], [1.0], "at least 2 imputed tables, but got 1"),
        ([1.0, np.nan], [1.0, 1.0], "finite"),
        ([1.0, 2.0], [1.0, -0.5], r"the smallest is -0\.5"),
    ],
)
def test_what_cannot_be_pooled_is_refused(estimates, variances, message):
    with pytest.raises(ValueError, match=message):
        vfg.pool(estimates, variances)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_levels_lie_between_0_and_1(level):
    with pytest.raises(ValueError, match="level is a share between 0 and 1"):
        vfg.pool([1.0, 2.0], [1.0, 1.0]).interval(level)
