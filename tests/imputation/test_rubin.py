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


@pytest.mark.parametrize("level", [0.0, 1.0, 95, "x", None, True])
def test_levels_lie_between_0_and_1(level):
    with pytest.raises(ValueError, match="level must be a number between 0 and 1, but is"):
        vfg.pool([1.0, 2.0], [1.0, 1.0]).interval(level)


def test_small_samples_have_the_degrees_of_freedom_of_barnard_and_rubin():
    # m = 3, u = 5, b = 1: lambda = 4/19, nu = 2 (19/4)^2 = 45.125; nu_c = 20 gives
    # nu_o = 20 (15/19) (21/23) = 14.4165.
    pooled = vfg.pool([10.0, 12.0, 11.0], [4.0, 5.0, 6.0], complete_df=20)
    observed = 20 * (15 / 19) * 21 / 23
    assert pooled.degrees_of_freedom == pytest.approx(1 / (1 / 45.125 + 1 / observed))
    ratio = 4 / 15
    wanted = (ratio + 2 / (float(pooled.degrees_of_freedom) + 3)) / (ratio + 1)
    assert pooled.gamma == pytest.approx(wanted)
    agreeing = vfg.pool([3.0, 3.0], [0.25, 0.25], complete_df=20)
    assert agreeing.degrees_of_freedom == pytest.approx(20 * 21 / 23)
    assert agreeing.gamma == 0.0


class Result:
    """What statsmodels returns, as far as it is used."""

    df_resid = 20.0

    def __init__(self, params, covariance):
        self.params, self.covariance = np.asarray(params), np.asarray(covariance)

    def cov_params(self):
        return self.covariance


def test_results_and_pairs_are_pooled_like_numbers():
    generator = np.random.default_rng(0)
    params = generator.normal(size=(4, 3))
    roots = generator.normal(size=(4, 3, 3))
    covariances = roots @ roots.swapaxes(1, 2)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    numbers = vfg.pool(params, variances, complete_df=20.0)
    results = vfg.pool([Result(*pair) for pair in zip(params, covariances, strict=True)])
    pairs = vfg.pool(list(zip(params, covariances, strict=True)))
    for name in ("estimate", "variance", "degrees_of_freedom", "gamma"):
        np.testing.assert_allclose(getattr(results, name), getattr(numbers, name))
    np.testing.assert_allclose(pairs.variance, numbers.variance)
    by_hand = covariances.mean(0) + 1.25 * sum(
        np.outer(x - params.mean(0), x - params.mean(0)) for x in params
    ) / 3  # fmt: skip
    np.testing.assert_allclose(results.covariance, by_hand)


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "at least 2 imputed tables"),
        ([1.0, 2.0], "params and cov_params"),
        ([([1.0, 2.0], np.eye(2)), ([1.0], np.eye(1))], "a covariance matrix of 2 x 2"),
        ([([1.0], np.eye(1))], "at least 2 imputed tables"),
        ([("a", 1.0)], "estimates must be numbers, .*, but are 'a'"),
        ([(1.0, "a"), (2.0, 1.0)], "covariances must be numbers, .*, but are 'a'"),
    ],
)
def test_results_that_are_none_are_refused(results, words):
    with pytest.raises(ValueError, match=words):
        vfg.pool(results)
    with pytest.raises(TypeError, match=r"estimates must be a list .*, but is None"):
        vfg.pool(None)


@pytest.mark.parametrize("value", [0, -1.0, "x", True, [1]])
def test_degrees_of_freedom_are_positive(value):
    with pytest.raises(ValueError, match="complete_df must be a positive number or None, but is"):
        vfg.pool([1.0, 2.0], [1.0, 1.0], complete_df=value)
