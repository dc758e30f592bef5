"""Products of two features, for columns that depend on both together."""

import numpy as np
import pandas as pd
import pytest

from vfg.imputation.interactions import Products
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer


def features(rows, seed):
    """Two numbers, two columns of two categories, and a column that has no products."""
    generator = np.random.default_rng(seed)
    signs = generator.choice([-1.0, 1.0], size=(rows, 2))
    return np.column_stack([generator.normal(size=(rows, 2)), signs, generator.normal(size=rows)])


def chosen(features, truth, own=(), weights=None):
    products = Products(features, np.arange(5), [4], [2, 3])
    excluded = np.isin(np.arange(5), own)
    pairs = products.choose(np.arange(len(features)), truth, excluded, weights)
    return [tuple(pair) for pair in pairs.tolist()]


def test_products_of_a_number_and_a_category_are_chosen():
    x, noise = features(300, 0), np.random.default_rng(1).normal(size=300)
    truth = (x[:, 0] * x[:, 2] + x[:, 1] + 0.5 * noise)[:, None]
    assert chosen(x, truth) == [(0, 2)]
    assert chosen(x, truth, own=[2]) == []
    truth = (np.sign(x[:, 0] * x[:, 1]) > 0)[:, None]
    assert chosen(x, np.hstack([truth, ~truth])) == [(0, 1)]


def test_products_of_excluded_columns_are_not_chosen():
    x = features(300, 2)
    assert chosen(x, (x[:, 0] * x[:, 4])[:, None]) == []


def test_chance_chooses_no_products():
    draws = np.random.default_rng(3).normal(size=(200, 150, 1))
    found = [chosen(features(150, seed), truth) for seed, truth in enumerate(draws)]
    assert sum(map(bool, found)) <= 6  # 2 % of the columns on average, with few pairs


def test_noise_that_grows_is_no_product():
    """The size of errors depends on a number; their mean does not."""
    x = features(2000, 4)
    noise = np.random.default_rng(5).normal(size=(50, 2000)) * np.exp(x[:, 0] * x[:, 2])
    assert sum(bool(chosen(x, own[:, None])) for own in noise) <= 4


def test_weights_count_as_repeated_rows():
    x, generator = features(120, 6), np.random.default_rng(7)
    truth = (0.5 * x[:, 0] * x[:, 2] + generator.normal(size=120))[:, None]
    often = generator.integers(1, 5, size=120)
    repeated = np.repeat(np.arange(120), often)
    assert chosen(x, truth, weights=often.astype(float)) == chosen(x[repeated], truth[repeated])


def test_few_rows_have_no_products():
    x = features(30, 8)
    assert chosen(x, (x[:, 0] * x[:, 2])[:, None]) == []


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_sign_that_a_category_decides_is_filled():
    """Beside a column of 15 levels, which products do not have. Without them, .45 to .6 here."""
    generator = np.random.default_rng(9)
    number, place = generator.normal(size=400), generator.integers(2, size=400)
    table = pd.DataFrame(
        {
            "u": number,
            "sign": np.array(["minus", "plus"], dtype=object)[place],
            "level": [f"level {k}" for k in generator.integers(15, size=400)],
            "v": np.where(place, number, -number) + 0.2 * generator.normal(size=400),
        }
    )
    hidden = generator.random(400) < 0.25
    shown = table.assign(v=table["v"].mask(hidden))
    imputer = VFGImputer(effort="fast", random_state=0).fit(shown)
    filled = imputer.transform(shown)
    error = (filled["v"] - table["v"])[hidden]
    assert (error**2).mean() < 0.15 * table["v"].var()
    again = loads(dumps(imputer.model_)).fill(shown)
    pd.testing.assert_frame_equal(again, filled)
