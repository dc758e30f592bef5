"""One pass over a table: gaps, ranges and categories of all rows."""

import datetime
import sys

import numpy as np
import pyarrow as pa
from bigtable.tables_on_disk import mixed

from vfg.bigtable.fit import Statistics
from vfg.tables import Categorical, Continuous, Date, Integer


def over(table, rows, **settings):
    found = Statistics(**settings)
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        found.add(batch)
    return found


def test_they_are_those_of_the_whole_table_however_it_is_cut():
    table = mixed(200)
    for rows in (1, 7, 200):
        found = over(table, rows)
        assert found.rows == 200
        assert found.missing == {name: table[name].null_count for name in table.column_names}
        frame = table.to_pandas()
        assert found.ranges["c0"] == (frame["c0"].min(), frame["c0"].max())
        assert found.ranges["day"] == (frame["day"].min(), frame["day"].max())
        assert found.categories("word") == ("high", "low", "mid, dle")


def test_nan_is_a_gap_and_no_end_of_a_range():
    table = pa.table({"a": [float("nan"), 2.0, None, 1.0], "b": [float("nan")] * 4})
    for rows in (1, 4):
        found = over(table, rows)
        assert found.missing == {"a": 2, "b": 4}
        assert found.ranges == {"a": (1.0, 2.0)}


def test_columns_of_names_are_not_listed(monkeypatch):
    monkeypatch.setattr(sys.modules["vfg.bigtable.fit"], "MOST_CATEGORIES", 50)
    table = pa.table({"name": [str(k) for k in range(60)], "word": ["x", "y"] * 30})
    found = over(table, 20)
    assert found.categories("name") is None
    assert found.categories("word") == ("x", "y")
    assert found.categories("nothing") is None


def test_columns_of_categories_count_as_their_cells():
    table = pa.table({"a": pa.array(["x", "y", None]).dictionary_encode()})
    assert over(table, 2).categories("a") == ("x", "y")


def test_markers_are_gaps():
    table = pa.table({"a": [-9, 1, 2], "b": [-9.0, 3.0, 4.0], "c": ["x", "y", "x"]})
    found = over(table, 3, marker=-9)
    assert found.ranges == {"a": (1, 2), "b": (3.0, 4.0)}
    assert found.categories("c") == ("x", "y")
    assert over(table, 3, marker="x").categories("c") == ("y",)
    assert over(table, 3, marker=np.nan).ranges["a"] == (-9, 2)


def test_bounds_are_written_as_an_imputer_takes_them():
    moment = datetime.datetime(2020, 5, 1, 10, tzinfo=datetime.UTC)
    table = pa.table({"a": [1, 5], "b": [0.5, None], "c": ["x", "y"], "d": [moment, moment]})
    kinds = {"a": Integer(), "b": Continuous(), "c": Categorical(), "d": Date()}
    assert over(table, 1).bounds(kinds) == {
        "a": (1.0, 5.0),
        "b": (0.5, 0.5),
        "d": ("2020-05-01T10:00:00", "2020-05-01T10:00:00"),
    }
