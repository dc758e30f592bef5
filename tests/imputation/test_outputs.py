"""What comes back besides filled gaps: empty columns, indicators and names."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from imputation.mixed_tables import linear, mixed, numbers
from optional import polars as pl
from tables.frames_of_every_kind import dtypes_of


def frame_with_empty_columns():
    frame = mixed()
    return frame.assign(
        empty=np.nan,
        whole=pd.array([pd.NA] * len(frame), dtype="Int64"),
        blank=pd.Series([None] * len(frame), dtype=object, index=frame.index),
        text=pd.Series([None] * len(frame), dtype="string", index=frame.index),
        when=pd.NaT,
    )


def with_an_empty_column(array):
    return np.insert(array, 1, np.nan, axis=1)


def test_empty_columns_are_dropped():
    table = with_an_empty_column(numbers()[1])
    imputer = linear().fit(table)
    with pytest.warns(UserWarning, match="column 1 are not filled: no cell was observed"):
        assert imputer.transform(table).shape == (80, 4)
    np.testing.assert_array_equal(imputer.transform(table), linear().fit_transform(numbers()[1]))
    assert imputer.get_feature_names_out().tolist() == ["x0", "x2", "x3", "x4"]
    with pytest.warns(UserWarning, match="'blank'.* are not filled: no cell was observed"):
        filled = linear().fit_transform(frame_with_empty_columns())
    assert list(filled.columns) == list(mixed().columns)


def test_filling_by_the_model_keeps_empty_columns_and_warns_of_them_alike():
    table = with_an_empty_column(numbers()[1])
    imputer = linear().fit(table)
    with pytest.warns(UserWarning, match="column 1 are not filled: no cell was observed"):
        filled = imputer.model_.fill(table)
    assert np.isnan(filled[:, 1]).all()
    np.testing.assert_array_equal(np.delete(filled, 1, axis=1), imputer.transform(table))


def test_empty_columns_are_dropped_even_if_they_are_filled_later():
    imputer = linear().fit(with_an_empty_column(numbers()[1]))
    assert imputer.transform(np.ones((2, 5))).shape == (2, 4)


def test_empty_columns_that_are_kept_hold_0_if_they_are_numbers():
    table = with_an_empty_column(numbers()[1])
    imputer = linear(keep_empty_features=True).fit(table)
    assert (imputer.transform(table)[:, 1] == 0.0).all()
    assert len(imputer.get_feature_names_out()) == 5
    later = imputer.transform(np.array([[1.0, 7.0, 1.0, 1.0, 1.0], [np.nan] * 5]))
    assert later[:, 1].tolist() == [7.0, 0.0]


def test_empty_columns_of_frames_that_are_kept_keep_their_dtypes():
    frame = frame_with_empty_columns()
    with pytest.warns(UserWarning, match="'blank'.* are not filled: no cell was observed"):
        filled = linear(keep_empty_features=True).fit_transform(frame)
    assert list(filled.dtypes) == list(frame.dtypes)
    for name in ("empty", "whole"):
        assert (filled[name] == 0).all()
    assert filled["blank"].isna().all()
    assert filled["text"].isna().all()
    assert filled["when"].isna().all()


def test_markers_of_empty_columns_that_are_kept_become_0():
    table = np.where(np.isnan(numbers()[1]), -999.0, numbers()[1])
    table[:, 2] = -999.0
    filled = linear(missing_values=-999, keep_empty_features=True).fit_transform(table)
    assert (filled[:, 2] == 0.0).all()
    assert (filled != -999.0).all()


@pytest.mark.parametrize("keep", [True, False])
def test_a_polars_column_of_nothing_but_nulls(keep):
    frame = pl.DataFrame({"nothing": [None] * 3, "x": [1.0, None, 2.0]})
    with pytest.warns(UserWarning, match="'nothing' are not filled: no cell was observed"):
        filled = linear(keep_empty_features=keep).fit_transform(frame)
    assert filled.columns == (["nothing", "x"] if keep else ["x"])
    assert filled["x"].null_count() == 0
    assert not keep or filled["nothing"].null_count() == 3


@pytest.mark.parametrize("keep", [True, False])
def test_a_table_without_any_cell(keep):
    table = np.full((3, 2), np.nan)
    imputer = linear(keep_empty_features=keep).fit(table)
    expected = np.zeros((3, 2 if keep else 0))
    with nullcontext() if keep else pytest.warns(UserWarning, match="columns 0, 1 are not filled"):
        np.testing.assert_array_equal(imputer.transform(table), expected)
    assert imputer.sample(table, 2).shape == (2, *expected.shape)
    assert imputer.predict_interval(table)[0].shape == expected.shape
    assert imputer.score_samples(table).tolist() == [0.0] * 3
    assert imputer.embed(table).shape == (3, 0)


# Indicators.


def test_indicators_mark_missing_cells_of_columns_that_had_some_in_fitting():
    whole, table = numbers()
    table[:, 0] = whole[:, 0]
    imputer = linear(add_indicator=True).fit(table)
    later = table.copy()
    later[3, 0] = np.nan
    filled = imputer.transform(later)
    assert filled.shape == (80, 7)
    np.testing.assert_array_equal(filled[:, 4:], np.isnan(later[:, 1:]))
    assert imputer.get_feature_names_out().tolist()[4:] == [
        f"missingindicator_x{k}" for k in (1, 2, 3)
    ]


def test_indicators_of_dropped_columns_stay():
    imputer = linear(add_indicator=True).fit(with_an_empty_column(numbers()[1]))
    names = imputer.get_feature_names_out().tolist()
    assert "x1" not in names
    assert "missingindicator_x1" in names


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f,
        lambda f: pl.from_pandas(f),
        lambda f: pa.Table.from_pandas(f, preserve_index=False),
    ],
    ids=["pandas", "polars", "arrow"],
)
def test_indicators_of_frames_are_columns_of_truth_values(make):
    frame = make(mixed())
    filled = linear(add_indicator=True).fit_transform(frame)
    assert type(filled) is type(frame)
    names = filled.column_names if isinstance(filled, pa.Table) else list(filled.columns)
    assert names == [*mixed().columns, *(f"missingindicator_{name}" for name in mixed().columns)]
    assert all("bool" in str(kind).lower() for kind in dtypes_of(filled)[6:])
    marked = np.column_stack([np.asarray(filled[name]) for name in names[6:]])
    np.testing.assert_array_equal(marked, mixed().isna().to_numpy())


def test_indicators_keep_the_index_of_a_frame():
    filled = linear(add_indicator=True).fit_transform(mixed())
    assert filled.index.equals(mixed().index)


def test_frames_without_names_get_those_of_scikit_learn_with_indicators():
    frame = pd.DataFrame(numbers()[1])
    assert list(linear().fit_transform(frame).columns) == [0, 1, 2, 3]
    imputer = linear(add_indicator=True)
    filled = imputer.fit_transform(frame)
    assert list(filled.columns) == imputer.get_feature_names_out().tolist()
    assert list(filled.columns)[:5] == ["x0", "x1", "x2", "x3", "missingindicator_x0"]


def test_indicators_of_integers_are_integers_and_of_objects_are_truth_values():
    table = np.arange(40).reshape(20, 2)
    table[::3, 0] = -1
    filled = linear(missing_values=-1, add_indicator=True).fit_transform(table)
    assert filled.dtype == table.dtype
    assert filled[:2, 2].tolist() == [1, 0]
    days = table.astype("datetime64[D]")
    days[::3, 0] = "NaT"
    filled = linear(add_indicator=True).fit_transform(days)
    assert filled[0, 2] is True
    texts = np.array([["a", "?"], ["b", "x"], ["a", "y"]] * 4)
    filled = linear(missing_values="?", add_indicator=True).fit_transform(texts)
    assert filled[0].tolist() == ["a", filled[0, 1], True]


def test_draws_and_intervals_have_no_indicators():
    imputer = linear(add_indicator=True).fit(numbers()[1])
    assert imputer.sample(numbers()[1], 2).shape == (2, 80, 4)
    assert imputer.predict_interval(numbers()[1])[0].shape == (80, 4)


def test_names_that_are_asked_for_must_be_those_of_the_table():
    imputer = linear().fit(mixed())
    assert imputer.get_feature_names_out().tolist() == list(mixed().columns)
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        imputer.get_feature_names_out(list("abcdef"))
    unnamed = linear().fit(numbers()[1])
    assert unnamed.get_feature_names_out(list("abcd")).tolist() == list("abcd")
