"""Tables and settings that are refused, and how."""

import numpy as np
import pandas as pd
import pytest
from optional import polars as pl
from scipy import sparse

import vfg
from vfg.imputation.settings import (
    SEEDS,
    as_seed,
    check_count,
    check_share,
    check_table,
    to_python,
)


def checked(table, marker=np.nan):
    return check_table(table, marker, "VFGImputer")


def test_frames_and_arrays_come_back_as_they_are():
    array, frame = np.ones((2, 3)), pd.DataFrame({"a": [1, 2]})
    assert checked(array).array is array
    assert checked(frame).frame is frame
    np.testing.assert_array_equal(checked([[1, 2], [3, 4]]).array, np.array([[1, 2], [3, 4]]))


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.ones((0, 3)), ValueError, r"0 sample\(s\) \(shape=\(0, 3\)\).*minimum of 1"),
        (np.ones((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\).*minimum of 1"),
        (np.ones(3), ValueError, "Reshape your data"),
        (pd.Series([1.0]), ValueError, "Expected 2D array"),
        ({"a": [1]}, ValueError, "Expected 2D array"),
        (sparse.eye(3), TypeError, r"sparse.*toarray"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "'a' repeats; rename"),
    ],
    ids=["no rows", "no columns", "one axis", "series", "mapping", "sparse", "repeated"],
)
def test_what_is_no_table_is_refused(table, error, message):
    with pytest.raises(error, match=message):
        checked(table)


@pytest.mark.filterwarnings("ignore:Determining the column names of a LazyFrame")
def test_lazy_frames_are_refused():
    with pytest.raises(TypeError, match=r"lazy; use collect\(\)"):
        checked(pl.LazyFrame({"a": [1]}))


INFINITE = {
    "array": np.array([[1.0, np.inf], [2.0, 3.0]]),
    "objects": np.array([[1.0, -np.inf], ["a", 3.0]], dtype=object),
    "float32": np.array([[1.0, np.inf]], dtype=np.float32),
}


@pytest.mark.parametrize("table", INFINITE.values(), ids=INFINITE)
def test_infinities_are_refused_by_position(table):
    with pytest.raises(ValueError, match="infinity in column 1; replace it"):
        checked(table)


@pytest.mark.parametrize("make", [pd.DataFrame, lambda columns: pl.DataFrame(columns)])
def test_infinities_are_refused_by_name(make):
    table = make({"a": [1.0, 2.0], "b": [np.inf, 1.0], "c": [1.0, -np.inf]})
    with pytest.raises(ValueError, match="infinity in column 'b', 'c'"):
        checked(table)


def test_infinities_may_mark_missing_values():
    checked(np.array([[1.0, np.inf]]), np.inf)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"members": 0}, ValueError, "members must be a whole number of at least 1, but is 0"),
        ({"steps": 2.5}, ValueError, "steps must be a whole number"),
        ({"width": True}, ValueError, "width must be a whole number"),
        ({"members": "3"}, ValueError, "members must be a whole number"),
        (
            {"effort": "high"},
            ValueError,
            "effort must be one of 'fast', 'balanced', 'best', but is",
        ),
        ({"budget": 0}, ValueError, "budget must be a positive number of seconds, but is 0"),
        ({"budget": float("nan")}, ValueError, "budget"),
        (
            {"graph": {"a": 1}},
            TypeError,
            "the graph must be a vfg.Graph, or what vfg.learn_graph returned",
        ),
        ({"flow": vfg.Linear()}, TypeError, "flow must be a vfg.Coupling or None"),
        ({"schema": ["integer"]}, TypeError, "schema must be a mapping from columns to kinds"),
        ({"bounds": (0, 1)}, TypeError, "bounds must be a mapping"),
        ({"discrete": "maybe"}, TypeError, "discrete must be True or False, but is 'maybe'"),
        ({"discrete": 3}, TypeError, "discrete must be True or False, but is 3"),
        ({"bend": "x"}, TypeError, "bend must be True or False, but is 'x'"),
        ({"effort": ["fast"]}, ValueError, r"effort must be one of .*, but is \['fast'\]"),
    ],
)
def test_invalid_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        vfg.ImputerSettings(**settings)


def test_settings_may_be_numpy_numbers_or_none():
    numbers = {"members": np.int64(2), "budget": np.float32(0.5), "bend": np.bool_(True)}
    settings = vfg.ImputerSettings(**numbers, graph=None)
    assert settings.members == 2


@pytest.mark.parametrize("value", [0, -1, 1.0, "2", None, True])
def test_counts_are_positive_and_whole(value):
    with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
        check_count("n", value)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.1, "0.5", None, float("nan")])
def test_shares_lie_between_0_and_1(value):
    with pytest.raises(ValueError, match="level must be a number between 0 and 1"):
        check_share("level", value)


def test_seeds_of_every_form():
    assert as_seed(5) == as_seed(np.int64(5)) == 5
    assert 0 <= as_seed(2**32 - 1) < SEEDS
    generator = np.random.RandomState(3)
    assert as_seed(generator) != as_seed(generator), "a generator moves on"
    np.random.seed(0)  # noqa: NPY002
    first = as_seed(None)
    np.random.seed(0)  # noqa: NPY002
    assert as_seed(None) == first, "None stands for the global generator"


@pytest.mark.parametrize("value", [-1, 2**33, "a", 1.5])
def test_impossible_seeds_are_refused(value):
    with pytest.raises(ValueError, match=r"Seed must be between|cannot be used to seed"):
        as_seed(value)


def test_markers_become_plain_python():
    assert type(to_python(np.int64(-1))) is int
    assert to_python("?") == "?"
    assert to_python(None) is None
