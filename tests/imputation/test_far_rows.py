"""Rows far outside the data: fills, intervals and draws agree."""

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


def test_draws_and_intervals_reach_no_further_than_fills(imputer, table):
    """Centres keep to the observed range; draws may pass it by their own spread alone."""
    width = float(np.ptp(table["b"].dropna()))
    inside, outside = rows_far_outside([0.5, 59.5]), rows_far_outside()
    for proper in (True, False):
        near = np.stack([one["b"] for one in imputer.sample(inside, 40, proper=proper)])
        far = np.stack([one["b"] for one in imputer.sample(outside, 40, proper=proper)])
        spread = max(np.std(near, axis=0).max(), 0.05 * width)
        low, high = table["b"].min() - 4.0 * spread, table["b"].max() + 4.0 * spread
        assert low < far.min()
        assert far.max() < high
    low, high = (ends["b"] for ends in imputer.predict_interval(outside))
    assert (low > table["b"].min() - 0.25 * width).all()
    assert (high < table["b"].max() + 0.25 * width).all()


def test_fills_keep_to_the_observed_range(imputer, table):
    for estimate in ("mean", "median"):
        filled = imputer.set_params(estimate=estimate).transform(rows_far_outside())["b"]
        assert filled.between(table["b"].min() - 1e-9, table["b"].max() + 1e-9).all()
    imputer.set_params(estimate="mean")


def test_answers_by_name_agree_with_tables(imputer):
    model = imputer.model_
    for a in FAR:
        answer = model.infer({"a": a}, ["b"])
        low, high = (float(end["b"][0]) for end in answer.interval(0.9))
        mean, drawn = float(answer.mean["b"][0]), answer.samples(60)["b"][:, 0]
        assert low <= mean <= high
        assert np.quantile(drawn, 0.02) <= mean <= np.quantile(drawn, 0.98)


def test_rows_within_the_data_draw_as_before(imputer):
    """The same rows, alone and beside rows far outside, have the same bits."""
    inside = rows_far_outside([10.0, 30.0, 50.0])
    alone = imputer.predict_interval(inside)
    together = imputer.predict_interval(pd.concat([inside, rows_far_outside()]))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one["b"], other["b"][:3])
