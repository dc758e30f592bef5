"""Reading and writing tables of every kind."""

import datetime
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from optional import polars as pl
from tables.frames_of_every_kind import ARRAYS, FRAMES, GAPS, ROWS, cells_of, dtypes_of, objects

from vfg.tables.cells import absent_cells
from vfg.tables.frames import TableView, as_cell_mask, open_table

GAP_MASK = np.isin(np.arange(ROWS), GAPS)


@pytest.mark.parametrize(("name", "kind", "frame"), FRAMES, ids=[name for name, _, _ in FRAMES])
def test_a_frame_keeps_dtypes_and_observed_cells_when_gaps_are_filled(name, kind, frame):
    table = open_table(frame)
    column = table.column(0)
    assert column.label == "x"
    np.testing.assert_array_equal(column.missing, GAP_MASK)
    before = cells_of(frame, "x")
    filled = table.replace_cells({0: (column.missing, column.values[[0, 1, 2, 4, 5]])})
    assert type(filled) is type(frame)
    assert dtypes_of(filled) == dtypes_of(frame)
    after = cells_of(filled, "x")
    expected = list(before)
    for gap, source in zip(GAPS, (0, 1, 2, 4, 5), strict=True):
        expected[gap] = before[source]
    assert after == expected
    assert cells_of(filled, "y") == cells_of(frame, "y")
    assert repr(cells_of(frame, "x")) == repr(before), "the table itself must stay as it is"
    if isinstance(frame, pd.DataFrame):
        assert filled.index.equals(frame.index)


@pytest.mark.parametrize(("name", "kind", "array"), ARRAYS, ids=[name for name, _, _ in ARRAYS])
def test_an_array_keeps_dtype_and_observed_cells_when_gaps_are_filled(name, kind, array):
    table = open_table(array)
    column = table.column(0)
    np.testing.assert_array_equal(column.missing, GAP_MASK)
    filled = table.replace_cells({0: (column.missing, column.values[[0, 1, 2, 4, 5]])})
    assert filled.dtype == array.dtype
    expected = array.copy()
    expected[list(GAPS), 0] = array[[0, 1, 2, 4, 5], 0]
    assert repr(filled.tolist()) == repr(expected.tolist())
    assert not np.shares_memory(filled, array)


@pytest.mark.parametrize(
    ("cells", "storage"),
    [
        ([1, 2, None], "integer"),
        ([1, 2.5, None], "float"),
        ([1, True, float("nan")], "integer"),
        ([2**70, 1, None], "integer"),
        ([Decimal("1.5"), None, 2], "float"),
        ([True, None, np.True_], "boolean"),
        (["a", 1, None], "text"),
        (["a", "b", pd.NA], "text"),
        ([datetime.date(2020, 1, 1), pd.NaT, datetime.datetime(2020, 1, 2)], "date"),
        ([pd.Timestamp("2020-01-01"), None, None], "date"),
        ([datetime.timedelta(1), None, None], "duration"),
        ([None, float("nan"), pd.NA], "empty"),
        ([], "empty"),
    ],
)
def test_objects_are_what_all_their_cells_are(cells, storage):
    column = open_table(objects(cells)[:, None]).column(0)
    assert column.storage == storage
    expected = [cell is None or cell is pd.NA or cell is pd.NaT or cell != cell for cell in cells]
    assert column.missing.tolist() == expected


@pytest.mark.parametrize(
    ("table", "marker", "missing"),
    [
        (np.array([[1, -1], [-1, 2]]), -1, [[False, True], [True, False]]),
        (np.array([[1.0, -1.0], [np.nan, 2.0]]), -1, [[False, True], [True, False]]),
        (np.array([["a", "?"], ["b", "c"]]), "?", [[False, True], [False, False]]),
        ([["a", 1], ["?", -1]], "?", [[False, False], [True, False]]),
        ([["a", 1], ["?", "?"]], "?", [[False, False], [True, True]]),
        ([[True, 1], [False, 0]], 1, [[False, True], [False, False]]),
        ([[True, 1.0], [None, 0.0]], None, [[False, False], [True, False]]),
        (pd.DataFrame({"a": [1, -1], "b": [-1, 1]}), -1, [[False, True], [True, False]]),
        (pd.DataFrame({"a": [1.0, np.nan], "b": ["x", "?"]}), "?", [[False] * 2, [True] * 2]),
        (
            pd.DataFrame({"a": pd.Categorical(["?", "x"]), "b": [True, False]}),
            "?",
            [[True, False], [False, False]],
        ),
        (pd.DataFrame({"a": pd.array([1, None])}), pd.NA, [[False], [True]]),
    ],
)
def test_a_marker_marks_missing_cells_besides_those_that_stand_for_nothing(table, marker, missing):
    found = np.stack([column.missing for column in open_table(table, marker).columns()], axis=1)
    assert found.tolist() == missing


def test_a_marker_marks_missing_cells_of_polars():
    numbers = pl.DataFrame({"a": [1, -1], "b": ["-1", None]})
    found = [column.missing.tolist() for column in open_table(numbers, -1).columns()]
    assert found == [[False, True], [False, True]]
    assert open_table(pl.DataFrame({"a": ["?", "x"]}), "?").column(0).missing.tolist() == [1, 0]


def test_a_marked_integer_array_is_filled_with_integers():
    table = open_table(np.array([[1, 2], [-1, 4]], dtype=np.int8), -1)
    filled = table.replace_cells({0: (table.column(0).missing, np.array([6.6]))})
    assert filled.dtype == np.int8
    assert filled.tolist() == [[1, 2], [7, 4]]


def test_texts_longer_than_the_array_has_room_for_are_not_cut():
    table = open_table(np.array([["a", "?"], ["b", "c"]]), "?")
    assert (
        table.replace_cells({1: (table.column(1).missing, objects(["longer"]))})[0, 1] == "longer"
    )


@pytest.mark.parametrize(
    ("nested", "dtype"),
    [
        ([[1, 2], [3, 4]], np.int64),
        ([[1, 2.5], [3, 4]], np.float64),
        ([[True], [False]], np.bool_),
        ([[True, 1]], object),
        ([[1.0, None]], object),
        ([["a", 1]], object),
        (((1.0, 2.0),), np.float64),
    ],
)
def test_nested_sequences_become_numbers_where_they_can(nested, dtype):
    assert open_table(nested).replace_cells({}).dtype == dtype


@pytest.mark.parametrize(
    "table",
    [
        np.array([[1.0, np.inf], [2.0, 3.0]]),
        [[1.0, None], ["x", -np.inf]],
        pd.DataFrame({0: [1.0, 2.0], 1: [np.inf, 1.0]}),
        pd.DataFrame({0: [1.0, 2.0], 1: pd.array([np.inf, None], dtype="double[pyarrow]")}),
    ],
)
def test_infinity_is_refused_and_its_column_named(table):
    with pytest.raises(ValueError, match="contains infinity in column 1;"):
        open_table(table).columns()


def test_infinity_names_all_its_columns_in_polars():
    frame = pl.DataFrame({"a": [np.inf], "b": [1.0], "c": [-np.inf]})
    with pytest.raises(ValueError, match="contains infinity in column 'a', 'c';"):
        open_table(frame).columns()


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.zeros(3), ValueError, "Expected 2D array, got 1D"),
        ([1.0, 2.0], ValueError, "Expected 2D array"),
        ([[1.0], [2.0, 3.0]], ValueError, "Expected 2D array|inhomogeneous"),
        (np.zeros((2, 2, 2)), ValueError, "Expected 2D array"),
        (np.zeros((2, 2), dtype=complex), ValueError, "Complex data not supported"),
        (pd.DataFrame({"a": [1j]}), ValueError, "Complex data not supported"),
        (np.zeros((2, 2), dtype="V4"), TypeError, "dtype"),
        ([[{"foo": "bar"}]], TypeError, "argument must be .* string.* number.*column 0 holds dict"),
        ([["a"], [datetime.date(2020, 1, 1)]], TypeError, "column 0 holds date, str"),
        ([[b"a"]], TypeError, "column 0 holds bytes"),
        (pd.DataFrame({"p": pd.period_range("2020", periods=2)}), TypeError, "'p' holds period"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(table, error, message):
    with pytest.raises(error, match=message):
        open_table(table).columns()


@pytest.mark.parametrize(("cell", "kind"), [([1, 2], "list"), (datetime.time(1), "time")])
def test_columns_of_polars_that_are_no_values_are_refused(cell, kind):
    with pytest.raises(TypeError, match=f"'c' holds {kind}"):
        open_table(pl.DataFrame({"c": [cell]})).columns()


def test_what_stands_for_nothing_is_known_without_pandas_too(monkeypatch):
    cells = objects([None, float("nan"), np.datetime64("NaT", "s"), 0, "", False])
    monkeypatch.delitem(sys.modules, "pandas")
    assert absent_cells(cells).tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize("marker", [[1], {}, object()])
def test_an_impossible_marker_is_refused(marker):
    with pytest.raises(TypeError, match="missing_values must be"):
        open_table(np.zeros((1, 1)), marker)


@pytest.mark.parametrize("make", [lambda f: f, lambda f: pl.from_pandas(f)])
def test_times_that_clocks_skip_are_moved_on(make):
    times = pd.Series(pd.to_datetime(["2021-03-01", None])).dt.tz_localize("Europe/Berlin")
    table = open_table(make(pd.DataFrame({"t": times})))
    fill = np.array(["2021-03-28T02:30"], dtype="datetime64[us]")
    filled = table.replace_cells({0: (table.column(0).missing, fill)})
    assert filled["t"].to_list()[1] == pd.Timestamp("2021-03-28T03:00", tz="Europe/Berlin")


@pytest.mark.parametrize(("name", "kind", "frame"), FRAMES, ids=[name for name, _, _ in FRAMES])
def test_a_view_hides_cells_and_fills_the_whole_table(name, kind, frame):
    table = open_table(frame)
    hidden = np.zeros((table.rows, 2), dtype=bool)
    hidden[0, 1] = True
    view = TableView(table, [1, 0], hidden)
    assert view.labels == ("y", "x")
    column = view.column(1)
    np.testing.assert_array_equal(column.missing, GAP_MASK | hidden[:, 1])
    np.testing.assert_array_equal(view.missing[:, 1], column.missing)
    number = int(column.missing.sum())
    filled = view.replace_cells({1: (column.missing, table.column(0).values[[1] * number])})
    before, after = cells_of(frame, "x"), cells_of(filled, "x")
    assert after[0] == before[1]
    assert [after[k] for k in range(ROWS) if not column.missing[k]] == [
        before[k] for k in range(ROWS) if not column.missing[k]
    ]
    assert cells_of(filled, "y") == cells_of(frame, "y")


def test_a_column_is_read_once(monkeypatch):
    table = open_table(pd.DataFrame({"a": [1.0, None], "b": ["x", "y"]}))
    reads = []
    read = type(table)._read
    monkeypatch.setattr(type(table), "_read", lambda s, k: reads.append(k) or read(s, k))
    for _ in range(3):
        table.columns()
        assert table.missing.sum() == 1
    assert sorted(reads) == [0, 1]


def test_a_mask_by_column_names_what_may_be_used():
    table = open_table(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    found = as_cell_mask({"b": [True, False]}, table)
    np.testing.assert_array_equal(found, [[False, True], [False, False]])
    with pytest.raises(ValueError, match=r"the mask names 'c', which is no column"):
        as_cell_mask({"c": True}, table)
    with pytest.raises(ValueError, match=r"boolean mask of shape \(2, 2\), but is bool.*\(2,\)"):
        as_cell_mask([True, False], table)


def test_names_of_several_levels_are_refused():
    frame = pd.DataFrame([[1.0, 2.0]], columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]))
    with pytest.raises(ValueError, match="names of one level, but have 2; join them"):
        open_table(frame)
    frame.columns = frame.columns.map("_".join)
    assert open_table(frame).labels == ("a_x", "a_y")
