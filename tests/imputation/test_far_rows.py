"""Rows far outside the data: fills stop at the observed range and lie in their intervals."""

import numpy as np
import pandas as pd
import pytest

from vfg.sklearn import VFGImputer

FAR = (120.0, 90.0, -60.0)


def make_table(kind: str) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.uniform(0.0, 60.0, 300)
    shapes = {
        "line": 1.2 * a - 30.0 + rng.normal(0.0, 4.0, 300),
        "saturation": 60.0 * (1.0 - np.exp(-a / 15.0)) + rng.normal(0.0, 1.0, 300),
    }
    table = pd.DataFrame({"a": a, "b": shapes[kind]})
    return table.mask(rng.random(table.shape) < 0.15)


def rows_far_outside(where=FAR) -> pd.DataFrame:
    return pd.DataFrame({"a": list(where), "b": np.nan})


@pytest.fixture(scope="module", params=["line", "saturation"])
def table(request):
    return make_table(request.param)


@pytest.fixture(scope="module", params=[{"bend": False}, {"effort": "fast"}], ids=["linear", "all"])
def imputer(request, table):
    return VFGImputer(random_state=0, **request.param).fit(table)


@pytest.mark.parametrize("estimate", ["mean", "median"])
def test_intervals_contain_what_is_filled_in(imputer, estimate):
    asked = imputer.set_params(estimate=estimate)
    filled = asked.transform(rows_far_outside())["b"]
    low, high = (ends["b"] for ends in asked.predict_interval(rows_far_outside()))
    imputer.set_params(estimate="mean")
    assert (low <= filled).all()
    assert (filled <= high).all()


def test_fills_keep_to_the_observed_range(imputer, table):
    for estimate in ("mean", "median"):
        filled = imputer.set_params(estimate=estimate).transform(rows_far_outside())["b"]
        assert filled.between(table["b"].min() - 1e-9, table["b"].max() + 1e-9).all()
    imputer.set_params(estimate="mean")


def test_rows_within_the_data_draw_as_before(imputer):
    """The same rows, alone and beside rows far outside, have the same bits."""
    inside = rows_far_outside([10.0, 30.0, 50.0])
    alone = imputer.predict_interval(inside)
    together = imputer.predict_interval(pd.concat([inside, rows_far_outside()]))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one["b"], other["b"][:3])
