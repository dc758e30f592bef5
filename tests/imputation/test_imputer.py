"""VFGImputer: what its contract says about cells, rows and columns."""

import pickle

import numpy as np
import pandas as pd
import pytest
from imputation.mixed_tables import light, linear, mixed, numbers
from optional import polars as pl
from sklearn.base import clone
from tables.frames_of_every_kind import ARRAYS, FRAMES, cells_of, dtypes_of

from vfg.imputation.table_model import TableModel
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer
from vfg.tables.frames import open_table

# Gaps are filled, and nothing else is touched.


@pytest.mark.parametrize(("name", "kind", "frame"), FRAMES, ids=[name for name, _, _ in FRAMES])
def test_frames_of_every_kind_keep_their_dtypes_and_cells(name, kind, frame):
    filled = linear().fit_transform(frame)
    assert type(filled) is type(frame)
    assert dtypes_of(filled) == dtypes_of(frame)
    missing = open_table(frame).column(0).missing
    assert not open_table(filled).column(0).missing.any()
    before, after = cells_of(frame, "x"), cells_of(filled, "x")
    kept = [place for place in range(len(before)) if not missing[place]]
    assert [after[place] for place in kept] == [before[place] for place in kept]
    assert cells_of(filled, "y") == cells_of(frame, "y")


@pytest.mark.parametrize(("name", "kind", "array"), ARRAYS, ids=[name for name, _, _ in ARRAYS])
def test_arrays_of_every_kind_keep_their_dtype_and_cells(name, kind, array):
    filled = linear().fit_transform(array)
    assert filled.dtype == array.dtype
    missing = open_table(array).column(0).missing
    assert not open_table(filled).column(0).missing.any()
    assert (filled[~missing] == array[~missing]).all()


def test_observed_cells_come_back_bit_for_bit(fitted):
    table = numbers()[1]
    table[0, 0], table[1, 1], table[2, 2] = -0.0, 1e-320, 0.1 + 0.2
    filled = fitted.transform(table)
    seen = ~np.isnan(table)
    assert (filled[seen].view(np.int64) == table[seen].view(np.int64)).all()
    assert not np.isnan(filled).any()


def test_a_mixed_frame_is_filled_in_kind(every_kind):
    frame = mixed()
    filled = every_kind.transform(frame)
    assert not filled.isna().any(axis=None)
    assert list(filled.dtypes) == list(frame.dtypes)
    assert filled.index.equals(frame.index)
    assert filled.where(frame.notna()).equals(frame.where(frame.notna()))
    assert set(filled["city"]) <= {"Bern", "Oslo", "Rome"}
    for name in ("height", "age", "since"):
        assert filled[name].min() == frame[name].min(), "within the observed range"
        assert filled[name].max() == frame[name].max()


@pytest.mark.parametrize(
    "make", [lambda f: f, lambda f: pl.from_pandas(f)], ids=["pandas", "polars"]
)
def test_a_complete_frame_comes_back_as_it_is(make, every_kind):
    whole = make(mixed(share=0.0))
    same = every_kind.transform(whole)
    assert type(same) is type(whole)
    assert dtypes_of(same) == dtypes_of(whole)
    assert same.equals(whole)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "object"])
def test_a_complete_array_comes_back_as_it_is(dtype, fitted):
    whole = (100.0 * numbers()[0]).round().clip(-999, 999).astype(dtype)
    same = fitted.transform(whole)
    assert same.dtype == whole.dtype
    np.testing.assert_array_equal(same, whole)


def test_the_table_itself_is_not_touched(fitted):
    table = numbers()[1]
    before = table.copy()
    fitted.transform(table)
    fitted.sample(table, 2)
    np.testing.assert_array_equal(table, before)


def test_filled_cells_are_better_than_means():
    whole, table = numbers(rows=300)
    gaps = np.isnan(table)
    spread = np.nanstd(table, 0)
    filled = linear().fit_transform(table)
    mean = np.where(gaps, np.nanmean(table, 0), table)
    error, baseline = (np.square(((x - whole) / spread)[gaps]).mean() for x in (filled, mean))
    assert error < 0.7 * baseline


def test_transform_never_refits(fitted):
    before = dumps(fitted.model_)
    first = fitted.transform(numbers()[1])
    fitted.transform(1e3 * numbers(seed=1)[1])
    fitted.sample(numbers(seed=2)[1], 2)
    fitted.evaluate(numbers(seed=3)[1])
    np.testing.assert_array_equal(fitted.transform(numbers()[1]), first)
    assert dumps(fitted.model_) == before


# Rows.


def test_rows_do_not_influence_each_other(fitted):
    table = numbers()[1]
    whole = fitted.transform(table)
    units = np.nanstd(table, 0)
    for other in (table[::-1], table[7:20], table[3:4]):
        place = [int(np.flatnonzero((row == table).all(1) | _same(row, table))[0]) for row in other]
        np.testing.assert_allclose(fitted.transform(other) / units, whole[place] / units, atol=1e-6)


def _same(row, table):
    return np.array([np.array_equal(row, one, equal_nan=True) for one in table])


def test_a_row_in_the_same_place_has_the_same_bits_whatever_its_neighbours(fitted):
    table, other = numbers()[1], numbers(seed=5)[1]
    kept = [3, 8, 40]
    other[kept] = table[kept]
    np.testing.assert_array_equal(fitted.transform(other)[kept], fitted.transform(table)[kept])
    np.testing.assert_array_equal(fitted.transform(other[:41])[kept], fitted.transform(table)[kept])
    drawn, again = fitted.sample(other, 3), fitted.sample(table, 3)
    np.testing.assert_array_equal(drawn[:, kept], again[:, kept])
    ends, again = (np.stack(fitted.predict_interval(cells)) for cells in (other[:41], table))
    np.testing.assert_array_equal(ends[:, kept], again[:, kept])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_long_arrays_are_filled_part_by_part_to_the_same_bits(fitted, dtype, monkeypatch):
    table = np.tile(numbers()[1], (20, 1))[:1500].astype(dtype)
    filled = fitted.transform(table)
    monkeypatch.setattr("vfg.imputation.imputer.ROWS_OF_A_PART", 1000)
    predictions, asked = TableModel.predictions, []

    def noted(model, values, observed, ids):
        asked.append(ids)
        return predictions(model, values, observed, ids)

    monkeypatch.setattr(TableModel, "predictions", noted)
    again = fitted.transform(table)
    assert again.dtype == filled.dtype
    np.testing.assert_array_equal(again, filled)
    assert len(asked) == 2
    np.testing.assert_array_equal(np.concatenate(asked), np.isnan(table).any(1).nonzero()[0])


def test_rows_without_observed_cells_are_what_is_expected_without_evidence(fitted):
    table = numbers()[1]
    table[[0, 9]] = np.nan
    filled = fitted.transform(table)
    np.testing.assert_allclose(filled[0], filled[9], rtol=1e-6)
    inside = np.abs(filled[0] - np.nanmean(table, 0)) < 0.5 * np.nanstd(table, 0)
    assert inside.all()


@pytest.mark.parametrize("make", [linear, light])
def test_training_on_a_table_without_complete_rows(make):
    whole, _ = numbers(rows=200)
    gaps = (
        np.eye(4, dtype=bool)[np.arange(200) % 4] | np.eye(4, dtype=bool)[np.arange(200) // 4 % 4]
    )
    table = np.where(gaps, np.nan, whole)
    assert np.isnan(table).any(1).all()
    filled = make().fit_transform(table)
    errors = ((filled - whole) / whole.std(0))[gaps]
    assert np.sqrt((errors**2).mean()) < 0.9


@pytest.mark.parametrize("make", [linear, light])
@pytest.mark.parametrize(
    "table",
    [[[1.0, np.nan, 2.0]], [[1.0], [np.nan], [2.0]], [[np.nan], [3.0]], [[5, 6], [5, 6]]],
    ids=["one row", "one column", "one cell", "constant"],
)
def test_the_smallest_tables(make, table):
    imputer = make(keep_empty_features=True).fit(table)
    filled = imputer.transform(table)
    assert not np.isnan(filled).any()
    assert imputer.sample(table, 2).shape == (2, *filled.shape)
    assert imputer.score_samples(table).shape == (len(table),)
    constant = imputer.transform(np.full((1, filled.shape[1]), np.nan))
    if table == [[5, 6], [5, 6]]:
        assert constant.tolist() == [[5.0, 6.0]]


# Kinds of columns.


def test_integers_stay_integers_and_bounds_are_kept():
    frame = mixed(rows=120, share=0.3)
    bounds = {"age": (30, 50), "since": ("2019-12-01", "2020-02-01"), "height": (165, None)}
    imputer = linear(bounds=bounds).fit(frame)
    for filled in (imputer.transform(frame), *imputer.sample(frame, 5)):
        gaps = frame["age"].isna()
        assert filled["age"].dtype == "Int64"
        assert filled["age"][gaps].between(30, 50).all()
        assert filled["since"][frame["since"].isna()].between("2019-12-01", "2020-02-01").all()
        assert (filled["height"][frame["height"].isna()] >= 165).all()
    low, high = imputer.predict_interval(frame)
    assert low["age"][gaps].between(30, 50).all()
    assert high["age"][gaps].between(30, 50).all()


def test_bounds_may_be_wider_than_what_was_observed():
    table = np.column_stack([np.arange(50.0), 2.0 * np.arange(50.0)])
    asked = [[100.0, np.nan]]
    assert linear().fit(table).transform(asked)[0, 1] == 200.0, "the columns have a relation"
    assert linear(bounds={1: (None, 150.0)}).fit(table).transform(asked)[0, 1] == 150.0
    table[:, 1] += 8.0 * np.random.default_rng(0).normal(size=50)
    assert linear().fit(table).transform(asked)[0, 1] == pytest.approx(200.0, abs=15.0)
    highest, bounds = table[:, 1].max(), {1: (None, 150.0)}
    assert highest < linear(bounds=bounds).fit(table).transform(asked)[0, 1] <= 150.0


def test_kinds_of_columns_can_be_given():
    table = np.column_stack([np.arange(40.0) % 3, np.arange(40.0) % 3 + 0.1])
    table[5, 0] = np.nan
    imputer = linear(schema={0: "categorical"}).fit(table)
    assert imputer.schema_[0].name == "categorical"
    assert imputer.transform(table)[5, 0] == 2.0
    assert linear(schema={0: "integer"}).fit_transform(table)[5, 0] in (0.0, 1.0, 2.0)
    with pytest.raises(ValueError, match="there is no column 'z'"):
        linear(schema={"z": "integer"}).fit(table)


@pytest.mark.filterwarnings("ignore:the column 'city' holds categories that did not occur")
def test_unseen_categories_stay_and_are_no_evidence(every_kind):
    frame = mixed(rows=8, seed=3)
    strange = frame.assign(city="Atlantis")
    blank = frame.assign(city=None)
    filled = every_kind.transform(strange)
    assert (filled["city"] == "Atlantis").all()
    rest = [name for name in frame.columns if name != "city"]
    expected = every_kind.transform(blank)
    for name in rest:
        assert filled[name].equals(expected[name])


@pytest.mark.filterwarnings("ignore:the column 'kind' holds categories that did not occur")
def test_a_filled_category_may_be_new_to_the_dtype_of_a_later_table():
    frame = pd.DataFrame({"kind": ["a", "b"] * 20, "x": [0.0, 5.0] * 20}).astype(
        {"kind": "category"}
    )
    later = pd.DataFrame({"kind": pd.Categorical([None, "z"]), "x": [5.0, 0.0]})
    filled = linear().fit(frame).transform(later)
    assert filled["kind"].tolist() == ["b", "z"]
    enum = pl.DataFrame({"kind": pl.Series([None, "z"], dtype=pl.Enum(["z"])), "x": [5.0, 0.0]})
    assert linear().fit(pl.from_pandas(frame)).transform(enum)["kind"].to_list() == ["b", "z"]


def test_a_later_table_may_lack_a_column_altogether(every_kind):
    frame = mixed()
    nothing = frame.assign(city=None, age=pd.array([pd.NA] * len(frame), dtype="Int64"))
    assert not every_kind.transform(nothing).isna().any(axis=None)
    nulls = pl.DataFrame({name: [None, None] for name in frame.columns})
    assert every_kind.transform(nulls).null_count().sum_horizontal().item() == 0


def test_evidence_beyond_a_hundred_deviations_of_a_line_counts_as_a_hundred():
    table = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 0.9], [0.0, 0.4]])
    imputer = linear(bounds={1: (-1e9, 1e9)}).fit(table)
    centre, spread = table[:, 0].mean(), table[:, 0].std()
    within, at_limit, far, further = imputer.transform(
        [[centre + k * spread, np.nan] for k in (50, 100, 500)] + [[1e300, np.nan]]
    )[:, 1]
    assert within < 0.6 * at_limit
    assert at_limit == pytest.approx(far, rel=1e-6)
    assert far == pytest.approx(further, rel=1e-6)


def test_a_far_outlier_does_not_spoil_a_column():
    whole, table = numbers(rows=200)
    table[0, 1] = 1e9
    filled = linear().fit_transform(table)
    assert filled[0, 1] == 1e9
    gaps = np.isnan(table)
    errors = ((filled - whole) / whole.std(0))[gaps]
    assert np.sqrt((errors**2).mean()) < 0.9


def test_heavy_tails_stay_within_the_observed_range():
    generator = np.random.default_rng(0)
    table = generator.standard_t(1.1, size=(200, 3)) + generator.normal(size=(200, 1))
    gappy = np.where(generator.random(table.shape) < 0.3, np.nan, table)
    filled = linear().fit_transform(gappy)
    assert (filled.min(0) >= np.nanmin(gappy, 0)).all()
    assert (filled.max(0) <= np.nanmax(gappy, 0)).all()
    bounds = dict.fromkeys(range(3), (-20.0, 20.0))
    within = linear(bounds=bounds).fit(np.clip(gappy, -20.0, 20.0))
    for drawn in within.sample(gappy, 3):
        assert (np.abs(drawn[np.isnan(gappy)]) <= 20.0).all(), "draws keep to bounds"


@pytest.mark.parametrize("marker", [-1, np.int64(-1), "?", None, pd.NA])
def test_markers_of_missing_values(marker):
    cells = np.array([[k % 7, k % 5] for k in range(60)], dtype=object)
    cells[::6, 0] = marker
    imputer = linear(missing_values=marker).fit(cells)
    filled = imputer.transform(cells)
    assert all(isinstance(cell, int) and 0 <= cell < 7 for cell in filled[:, 0])
    again = pickle.loads(pickle.dumps(imputer)).transform(cells)
    assert (again == filled).all()


def test_infinities_are_refused_with_their_columns(straight):
    table = pd.DataFrame(numbers()[1], columns=list("abcd"))
    table.loc[3, "c"] = np.inf
    with pytest.raises(ValueError, match="infinity in column 'c'"):
        linear().fit(table)
    with pytest.raises(ValueError, match="infinity in column 2"):
        straight.transform(table.to_numpy())


# Symmetries.


def test_scaling_a_table_scales_the_answer():
    table = numbers()[1]
    factors, shifts = np.array([3.0, 1e-3, 1e4, 7.0]), np.array([5.0, 0.0, -1e3, 1.0])
    expected = linear().fit_transform(table) * factors + shifts
    result = linear().fit_transform(table * factors + shifts)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_scaling_a_table_scales_the_nonlinear_answer():
    table = numbers()[1]
    units = np.nanstd(table, 0)
    first = light().fit_transform(table) / units
    second = (light().fit_transform(4.0 * table + 8.0) - 8.0) / 4.0 / units
    other = light(random_state=1).fit_transform(table) / units
    assert np.abs(second - first).max() <= np.abs(other - first).max()


@pytest.mark.parametrize("make", [linear, light])
def test_the_order_of_columns_does_not_matter(make):
    table = numbers(rows=60, columns=5)[1]
    units, order = np.nanstd(table, 0), [3, 0, 4, 1, 2]
    first = make().fit_transform(table) / units
    second = make().fit_transform(table[:, order]) / units[order]
    np.testing.assert_allclose(second, first[:, order], atol=1e-5)


def test_the_order_of_mixed_columns_does_not_matter():
    frame = mixed()
    turned = frame[frame.columns[::-1]]
    assert linear().fit_transform(turned)[frame.columns].equals(linear().fit_transform(frame))


def test_filled_cells_have_the_decimals_of_the_fitted_column():
    generator = np.random.default_rng(0)
    v = generator.normal(size=200)
    frame = pd.DataFrame(
        {"u": np.round(80.0 + 10.0 * v + generator.normal(size=200), 1), "v": v, "few": 0.0}
    )
    frame["few"] = (v > 0.0).astype(float)
    imputer = linear().fit(frame)
    alone = pd.DataFrame({"u": [np.nan], "v": [0.5], "few": [np.nan]})
    filled = imputer.transform(alone).iloc[0]
    assert filled["u"] == round(filled["u"], 1)
    assert filled["few"] in (0.0, 1.0), "floats of frames may be integers with gaps"
    array = linear().fit(frame.to_numpy()).transform(alone.to_numpy())[0, 2]
    assert 0.0 < array < 1.0, "rounding to the step of a coarse column would lose accuracy"
    assert array == round(array, 2)
    for dtype in ("Int64", "float64", object):
        beside = pd.DataFrame({"u": pd.array([None, 75], dtype=dtype), "v": 0.5, "few": 1.0})
        both = imputer.transform(beside.assign(few=[np.nan, 1.0]))
        assert float(both["u"][0]) == filled["u"], dtype


def test_identifiers_and_free_text_stay_missing_with_a_warning():
    frame = numbers(rows=40)[1]
    named = pd.DataFrame(frame, columns=list("abcd"))
    named["id"] = [f"row {k}" for k in range(38)] + ["row 0", None]
    imputer = linear().fit(named)
    with pytest.warns(UserWarning, match="missing values of column 'id' stay missing"):
        filled = imputer.transform(named)
    assert filled["id"].isna().tolist() == [False] * 39 + [True]
    assert not filled[list("abcd")].isna().any(axis=None)
    # Warnings are errors here: a model tells it once per column.
    assert imputer.sample(named, 1)[0]["id"].isna().sum() == 1
    with pytest.warns(UserWarning, match="'id' stay missing"):
        linear().fit(named).transform(named)
    assert imputer.model_.infer({"a": 1.0}).mean["id"].tolist() == [None]


@pytest.mark.parametrize("make", [linear, light])
def test_exact_relations_come_out_exact(make):
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 120)) * [[3.0], [1.0]]
    whole = np.stack([a, b, 2.0 * a - b + 1.0, -0.5 * a], axis=1)
    table = np.where(generator.random(whole.shape) < 0.15, np.nan, whole)
    imputer = make(bounds=dict.fromkeys(range(4), (-99, 99))).fit(table)
    gappy = whole.copy()
    gappy[:, 2:] = np.nan
    np.testing.assert_allclose(imputer.transform(gappy), whole, atol=1e-6)
    low, high = imputer.predict_interval(gappy)
    np.testing.assert_allclose(low, high, atol=1e-6)
    assert ((low <= whole) & (whole <= high)).all()
    again = loads(dumps(imputer.model_))
    np.testing.assert_array_equal(again.fill(gappy), imputer.transform(gappy))
    answer = again.infer({"0": 2.0})
    assert answer.std["3"] == 0.0
    assert answer.mean["3"][0] == pytest.approx(-1.0, abs=1e-6)
    assert answer.std["1"] > 0.1


def test_a_copy_of_a_column_is_not_shrunk_in_a_small_table():
    a = np.random.default_rng(0).normal(size=20)
    imputer = linear(bounds={0: (-9, 9), 1: (-9, 9)}).fit(np.stack([a, a], axis=1))
    assert imputer.transform([[1.0, np.nan]])[0, 1] == pytest.approx(1.0, abs=1e-9)


def test_marks_that_agree_by_chance_are_no_relation():
    table = np.random.default_rng(0).normal(size=(60, 3))
    table[:, :2] = 0.0
    table[7, :2] = 1.0
    assert linear().fit(table).model_.relations is None


def skewed(rows, seed):
    """Two columns; the second is log-normal given the first, far from its mean."""
    generator = np.random.default_rng(seed)
    first = generator.normal(size=rows)
    return np.stack([first, np.exp(0.5 * first + generator.normal(size=rows))], axis=1)


def test_medians_are_better_in_absolute_error_and_means_in_squared():
    train, truth = skewed(600, 0), skewed(2000, 1)
    settings = {"members": 1, "mixtures": 2, "neighbours": 1, "steps": 20, "random_state": 0}
    mean = VFGImputer(**settings).fit(train)
    median = clone(mean).set_params(estimate="median").fit(train)
    asked = truth.copy()
    asked[:, 1] = np.nan
    means, medians = (imputer.transform(asked)[:, 1] for imputer in (mean, median))
    exact = np.exp(0.5 * truth[:, 0])  # the median of a log-normal variable
    # Medians are those of draws, which are at least as wide as held-out cells ask for.
    assert np.abs(medians - exact).mean() < 0.7 * np.abs(means - exact).mean()
    absolute, squared = (
        [np.mean(np.abs(filled - truth[:, 1]) ** power) for filled in (means, medians)]
        for power in (1, 2)
    )
    assert absolute[1] < 0.99 * absolute[0]
    assert squared[0] < squared[1]
    np.testing.assert_array_equal(median.transform(asked)[:, 0], truth[:, 0])


def test_medians_of_the_linear_model_are_its_means():
    table = numbers()[1]
    means = VFGImputer(bend=False, random_state=0).fit_transform(table)
    medians = VFGImputer(bend=False, estimate="median", random_state=0).fit_transform(table)
    np.testing.assert_array_equal(means, medians)
    with pytest.raises(ValueError, match="estimate must be 'mean' or 'median', but is 'mode'"):
        VFGImputer(estimate="mode").fit(table)


def test_switches_are_true_or_false():
    table = numbers()[1]
    imputer = linear().fit(table)
    for value in ("x", None):
        with pytest.raises(TypeError, match=f"proper must be True or False, but is {value!r}"):
            imputer.sample(table, 2, proper=value)
    with pytest.raises(TypeError, match="refit must be True or False, but is 'x'"):
        imputer.evaluate(table, refit="x")
    for name in ("add_indicator", "keep_empty_features", "warm_start"):
        with pytest.raises(TypeError, match=f"{name} must be True or False, but is 'x'"):
            linear(**{name: "x"}).fit(table)


def test_independent_columns_are_filled_as_by_their_means():
    random = np.random.default_rng(0)
    truth = random.normal(size=(400, 12))
    hidden = random.random(truth.shape) < 0.4
    table = np.where(hidden, np.nan, truth)
    filled = VFGImputer(random_state=0).fit_transform(table)
    means = np.broadcast_to(np.nanmean(table, axis=0), truth.shape)
    errors = [np.square(each - truth)[hidden].mean() for each in (filled, means)]
    assert errors[0] < 1.012 * errors[1], "held-out cells that metrics were fitted to: 1.03"
