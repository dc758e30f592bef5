"""Without padding, a table's model says about a few rows what it says in padded tiles."""

import numpy as np
import pytest
from imputation.mixed_tables import light, linear, mixed

GIVEN = [{"height": 171.0, "age": 30}, {"city": "Oslo"}, {}]


@pytest.fixture(scope="module", params=["members", "linear"])
def model(request):
    imputer = light(mixtures=1) if request.param == "members" else linear()
    return imputer.fit(mixed()).model_


def test_few_rows_are_answered_alike(model):
    padded, plain = (model.infer(GIVEN, seed=3, padded=is_padded) for is_padded in (True, False))
    wanted = padded.expectations()
    for name, values in plain.expectations().items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_single_rows_are_drawn_alike(model, row):
    padded, plain = (model.infer(GIVEN, seed=3, padded=is_padded) for is_padded in (True, False))
    wanted, result = (answer.select([row])._draws(30) for answer in (padded, plain))
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("draws", [0, 64])
def test_marginals_have_the_ends_of_intervals(model, draws):
    result = model.infer({"height": 171.0}).marginals(draws=draws)
    many = model.infer({"height": 171.0}).marginals(draws=2000)
    for name in ("age", "since"):
        width = many[name].high - many[name].low
        assert result[name].low == pytest.approx(many[name].low, abs=0.2 * width)
        assert result[name].high == pytest.approx(many[name].high, abs=0.2 * width)
        assert len(result[name].draws) == (draws or 2)
