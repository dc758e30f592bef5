"""Weights of rows and rows in parts: `sample_weight` and `partial_fit` of the imputer."""

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import light, linear, mixed, numbers

from vfg.imputation.parameter_draws import FittedRows, draw_parameters
from vfg.imputation.plan import ROW_MIXTURE_KINDS
from vfg.imputation.row_mixture import fit_row_mixture
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer


def often(rows, seed=0):
    return np.random.default_rng(seed).integers(0, 4, rows)


# Weights.


def test_weights_of_numbers_equal_repeated_rows():
    table = numbers(rows=120)[1]
    weights = often(120)
    repeated = np.repeat(table, weights, axis=0)
    weighted, other = linear().fit(table, sample_weight=weights), linear().fit(repeated)
    np.testing.assert_allclose(weighted.transform(table), other.transform(table), rtol=1e-8)
    for ours, theirs in zip(
        weighted.predict_interval(table), other.predict_interval(table), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    scores = weighted.score_samples(table), other.score_samples(table)
    np.testing.assert_allclose(*scores, rtol=1e-8)


def test_weights_of_a_mixed_table_equal_repeated_rows():
    frame = mixed(rows=100)
    schema, weights = linear().fit(frame).schema_, often(100)
    repeated = frame.iloc[np.repeat(np.arange(100), weights)]
    weighted = linear(schema=schema).fit(frame, sample_weight=weights)
    other = linear(schema=schema).fit(repeated)
    pd.testing.assert_frame_equal(weighted.transform(frame), other.transform(frame), rtol=1e-8)
    for column, chances in weighted.predict_proba(frame).items():
        pd.testing.assert_frame_equal(chances, other.predict_proba(frame)[column], rtol=1e-8)


@pytest.mark.parametrize("numeric", [True, False], ids=["numbers too", "categories only"])
def test_weights_equal_repeated_rows_where_columns_have_many_categories(numeric):
    """Their code points in fitting come from other rows, and copies are no other rows."""
    generator = np.random.default_rng(0)
    place = generator.integers(0, 12, 160)
    x = generator.normal(size=12)[place] + 0.5 * generator.normal(size=160)
    y = x + 0.5 * generator.normal(size=160)
    frame = pd.DataFrame({
        "town": [f"town {k}" for k in place],
        "shop": [f"shop {k}" for k in (place + generator.integers(0, 4, 160)) % 14],
        "sign": np.where(x > 0.0, "plus", "minus"),
        "size": np.array(["low", "mid", "high"])[np.digitize(y, [-0.3, 0.3])],
    })  # fmt: skip
    frame = frame.assign(x=x, y=y) if numeric else frame
    frame = frame.mask(generator.random(frame.shape) < 0.15)
    weights = generator.integers(0, 9, 160)
    repeated = frame.iloc[np.repeat(np.arange(160), weights)]
    weighted, other = linear().fit(frame, sample_weight=weights), linear().fit(repeated)
    pd.testing.assert_frame_equal(weighted.transform(frame), other.transform(frame), rtol=1e-8)
    for column, chances in weighted.predict_proba(frame).items():
        pd.testing.assert_frame_equal(chances, other.predict_proba(frame)[column], rtol=1e-8)
    assert weighted.fitted_sample_.rows == other.fitted_sample_.rows


@pytest.mark.parametrize("make", [linear, light], ids=["linear", "nonlinear"])
def test_rows_of_weight_0_are_left_out(make):
    table = numbers(rows=60)[1]
    weights = np.where(np.arange(60) < 45, 2.0, 0.0)
    ours = make().fit(table, sample_weight=weights).transform(table)
    np.testing.assert_array_equal(
        ours, make().fit(table[:45], sample_weight=weights[:45]).transform(table)
    )


def two_worlds(rows=200):
    """Rows where b follows a, and as many where it is the opposite."""
    generator = np.random.default_rng(0)
    a = generator.normal(size=rows)
    sign = np.where(np.arange(rows) < rows // 2, 1.0, -1.0)
    return np.stack([a, sign * a + 0.2 * generator.normal(size=rows), a**2], axis=1), sign


@pytest.mark.parametrize("parts", [
    {"mixtures": 0, "neighbours": 0, "members": 2, "steps": 150},
    {"mixtures": 2, "neighbours": 0},
    {"mixtures": 0, "neighbours": 2},
], ids=["members", "mixtures", "neighbours"])  # fmt: skip
def test_every_part_follows_the_weights(parts):
    table, sign = two_worlds()
    asked = np.array([[1.5, np.nan, 2.25], [-1.5, np.nan, 2.25]])
    for wanted in (1.0, -1.0):
        weights = np.where(sign == wanted, 1.0, 1e-4)
        filled = light(**parts).fit(table, sample_weight=weights).transform(asked)[:, 1]
        # Without weights both are about 0.
        assert wanted * filled[0] > 0.5
        assert wanted * filled[1] < -0.5


def test_trees_follow_the_weights():
    table, sign = two_worlds(300)
    frame = pd.DataFrame(table, columns=list("abc"))
    frame["kind"] = np.where(table[:, 1] > 0.0, "high", "low")
    weights = np.where(sign == 1.0, 1.0, 0.01)
    imputer = light(trees=20, neighbours=0).fit(frame, sample_weight=weights)
    forest = imputer.model_.forest
    assert forest is not None
    asked = pd.DataFrame({"a": [1.5, -1.5], "b": [1.5, -1.5], "c": 2.25, "kind": [None, None]})
    rows = imputer.model_.encode(asked)
    shares = forest.votes(imputer.model_.means(*rows)).shares
    places = [list(imputer.schema_["kind"].categories).index(k) for k in ("high", "low")]
    assert (shares[[0, 1], places] > 0.8).all()


def test_components_of_row_mixtures_have_weights():
    """A row of weight 3 attracts new rows like three copies of it."""
    table = torch.from_numpy(numbers(rows=60)[0] / 10.0 ** np.arange(4))
    known = torch.ones_like(table, dtype=torch.bool)
    options = {"unordered": torch.zeros(4).bool(), "width": 2, "seed": 0}
    weights = torch.ones(60, dtype=torch.float64)
    weights[7] = 3.0
    model = fit_row_mixture(table, known, ROW_MIXTURE_KINDS[0], weights=weights, **options)
    one = model.shares_of_rows(table[:5], known[:5])
    model.log_often = None
    plain = model.shares_of_rows(table[:5], known[:5])
    wanted = plain * weights
    torch.testing.assert_close(one, (wanted / wanted.sum(1, keepdim=True)).float())


def test_weighted_models_are_kept_in_files():
    table = numbers(rows=60)[1]
    imputer = light(neighbours=1).fit(table, sample_weight=often(60) + 0.5)
    loaded = loads(dumps(imputer.model_))
    np.testing.assert_array_equal(loaded.fill(table), imputer.model_.fill(table))


def test_parameters_are_drawn_by_weights():
    """With weights of 4 deviations of the mean are half as large."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    known = torch.ones_like(values, dtype=torch.bool)
    spreads = []
    for weights in (None, torch.full((100,), 4.0, dtype=torch.float64)):
        _, drawn = draw_parameters(values, known, 200, 0, weights=weights)
        spreads.append(float(torch.stack([one.mean for one in drawn]).std(0).mean()))
    assert spreads[0] / spreads[1] == pytest.approx(2.0, rel=0.15)


def test_small_weights_are_warned_of():
    table = numbers(rows=60)[1]
    with pytest.warns(UserWarning, match="weights of 60 rows add up to 1, so the table counts"):
        linear().fit(table, sample_weight=np.full(60, 1 / 60))


@pytest.mark.parametrize(("weights", "message"), [
    (np.ones(59), "one number for each of the 60 rows"),
    (-np.ones(60), "row 0 has -1.0"),
    (np.zeros(60), "zero for all rows"),
])  # fmt: skip
def test_wrong_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        linear().fit(numbers(rows=60)[1], sample_weight=weights)


# Rows in parts.


def test_parts_of_a_table_give_the_model_of_all_rows():
    whole, table = numbers(rows=600)
    parts = linear()
    for start in range(0, 600, 150):
        parts.partial_fit(table[start : start + 150])
    filled, other = parts.transform(table), linear().fit_transform(table)
    gaps = np.isnan(table)
    apart = ((filled - other) / whole.std(0))[gaps]
    first = ((linear().fit(table[:150]).transform(table) - other) / whole.std(0))[gaps]
    assert (
        np.sqrt(np.mean(apart**2)) < 0.02
    )  # scales and shrinkage are those of the first rows and as usual
    assert np.sqrt(np.mean(apart**2)) < 0.1 * np.sqrt(np.mean(first**2))
    draws = parts.sample(table, 3)
    assert np.isfinite(draws).all()
    assert parts.fitted_sample_.rows == pytest.approx(600)


def test_mixed_tables_in_parts():
    frame = mixed(rows=200)
    parts = linear()
    for rows in np.array_split(np.arange(200), 3):
        parts.partial_fit(frame.iloc[rows])
    filled = parts.transform(frame)
    assert not filled.isna().any().any()
    other = linear().fit_transform(frame)
    gaps = frame["height"].isna()
    assert np.abs(filled["height"] - other["height"])[gaps].max() < 3.0
    assert (filled["city"] == other["city"]).mean() > 0.95


def test_ranges_follow_further_rows_and_broken_relations_are_dropped():
    generator = np.random.default_rng(0)
    first = generator.normal(size=(100, 2))
    first = np.column_stack([first, first.sum(1)])
    later = 10.0 + generator.normal(size=(100, 3))
    parts = linear().partial_fit(first)
    exact = parts.transform([[1.0, 1.0, np.nan]])
    assert exact[0, 2] == pytest.approx(2.0)
    parts.partial_fit(later)
    assert parts.transform([[10.0, 10.0, np.nan]])[0, 2] > 8.0
    assert parts.model_.relations is None or not len(parts.model_.relations)


def test_sums_are_kept_in_files():
    table = numbers(rows=200)[1]
    parts = linear().partial_fit(table[:100])
    loaded = loads(dumps(parts.model_))
    loaded.settings = parts.model_.settings
    loaded.partial_fit(table[100:])
    parts.partial_fit(table[100:])
    np.testing.assert_allclose(loaded.fill(table), parts.model_.fill(table), rtol=1e-9)


def test_parts_follow_a_fit():
    table = numbers(rows=200)[1]
    ours = linear().fit(table[:100]).partial_fit(table[100:]).transform(table)
    parts = linear().partial_fit(table[:100]).partial_fit(table[100:])
    np.testing.assert_allclose(ours, parts.transform(table), rtol=1e-9)


def test_what_cannot_be_fitted_in_parts_is_refused():
    table = numbers(rows=60)[1]
    expected = r"^partial_fit adds sums over rows, which exist for the linear model alone; use VFG"
    with pytest.raises(AttributeError, match=expected):
        VFGImputer().partial_fit(table)
    assert not hasattr(VFGImputer(), "partial_fit")
    assert hasattr(linear(), "partial_fit")
    with pytest.raises(ValueError, match="fitted by fit, which keeps no sums"):
        linear().fit(table).model_.partial_fit(table)
    with pytest.raises(ValueError, match="exist for the linear model alone"):
        light().fit(table).model_.partial_fit(table)
    with pytest.raises(ValueError, match="one number for each of the 60 rows"):
        linear().partial_fit(table, sample_weight=[1.0])


def test_samples_of_fitted_rows_are_joined(monkeypatch):
    monkeypatch.setattr("vfg.imputation.parameter_draws.ROWS", 50)
    values = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(120, 2).bool()
    first, second = FittedRows.of(values, seen, 0), FittedRows.of(values[:30] + 9.0, seen[:30], 0)
    assert first is not None
    joined = first.plus(second, 0)
    assert joined.rows == 150
    assert len(joined.values) == 50
    assert joined.weights.sum() == pytest.approx(150.0)
    assert 0.05 < (joined.values[:, 0] > 4.5).mean() < 0.4  # a fifth of the rows
