"""The whole battery of scikit-learn's checks, on its own tables and on the same ones with gaps."""

import os

import numpy as np
import pytest
from numpy.exceptions import ComplexWarning
from sklearn.utils.estimator_checks import estimator_checks_generator

import vfg
from vfg.sklearn import VFGImputer
from vfg.tables.frames import is_frame

LIGHT = {
    "members": 1,
    "mixtures": 1,
    "steps": 1,
    "width": 4,
    "flow": vfg.Coupling(blocks=1, hidden=4, layers=1),
}
"""As bent as any imputer, but quickly trained."""


class Blanked(VFGImputer):
    """An imputer that loses a fifth of the cells of every table before it looks at it.

    Which cells a row loses depends on the row alone, so that whatever holds of an estimator whose
    rows are independent must hold of this one too.
    """

    def fit(self, X, y=None):
        return super().fit(blanked(X), y)

    def transform(self, X):
        return super().transform(blanked(X))

    def score_samples(self, X):
        return super().score_samples(blanked(X))


def blanked(X):
    """The table with gaps; what is no clean table is left to the imputer's own checks."""
    try:
        table = X if is_frame(X) else np.asarray(X)
        numbers = np.asarray(table)
        numbers = numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)
    except (TypeError, ValueError, ComplexWarning):
        return X
    if numbers.ndim != 2 or not numbers.size or not np.isfinite(numbers).all():
        return X
    turns = np.sin(1e3 * numbers.sum(1, keepdims=True) + 2.4 * np.arange(numbers.shape[1]))
    gaps = (1e4 * turns) % 1.0 < 0.2
    return X.mask(gaps) if is_frame(X) else np.where(gaps, numbers.dtype.type(np.nan), numbers)


def checks(imputer):
    """Every check with the name that it has in scikit-learn; none is expected to fail."""
    result = estimator_checks_generator(imputer, legacy=True)
    return [pytest.param(*pair, id=getattr(pair[1], "func", pair[1]).__name__) for pair in result]


def run(estimator, check):
    if "array_api" in str(check) and os.environ.get("SCIPY_ARRAY_API") != "1":
        pytest.skip("scipy has to be told about the array API before it is imported")
    check(estimator)


@pytest.mark.parametrize(("estimator", "check"), checks(VFGImputer(bend=False)))
def test_the_linear_imputer_passes(estimator, check):
    run(estimator, check)


@pytest.mark.parametrize(("estimator", "check"), checks(Blanked(bend=False)))
def test_the_linear_imputer_passes_with_missing_values(estimator, check):
    run(estimator, check)


@pytest.mark.parametrize(("estimator", "check"), checks(VFGImputer(**LIGHT)))
def test_the_nonlinear_imputer_passes(estimator, check):
    run(estimator, check)


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), checks(Blanked(**LIGHT)))
def test_the_nonlinear_imputer_passes_with_missing_values(estimator, check):
    run(estimator, check)


def test_the_tables_of_the_battery_do_lose_a_fifth_of_their_cells():
    table = np.random.default_rng(0).normal(size=(500, 6))
    gaps = np.isnan(blanked(table))
    assert 0.15 < gaps.mean() < 0.25
    np.testing.assert_array_equal(gaps[::-1], np.isnan(blanked(table[::-1])))
    np.testing.assert_array_equal(np.isnan(blanked(table[7:9])), gaps[7:9])


def test_light_imputers_have_nonlinear_members():
    table = np.random.default_rng(0).normal(size=(30, 3))
    assert len(VFGImputer(**LIGHT).fit(table).model_.member_models) == 1
