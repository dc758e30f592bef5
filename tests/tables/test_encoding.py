"""Mixed tables as matrices and back."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optional import polars as pl
from tables.frames_of_every_kind import ARRAYS, FRAMES, GAPS, ROWS, cells_of, dtypes_of, objects

from vfg.tables import Continuous, Encoding, Ordinal, Schema
from vfg.tables.frames import open_table

EVERY = FRAMES + ARRAYS
NAMES = [name for name, _, _ in EVERY]
"""A deviation of errors so small that code points decode to their own category."""


def observed_cells(table, label):
    cells = (
        cells_of(table, label) if not isinstance(table, np.ndarray) else table[:, label].tolist()
    )
    return [cell for place, cell in enumerate(cells) if place not in GAPS]


@pytest.mark.parametrize(("name", "kind", "table"), EVERY, ids=NAMES)
def test_gaps_are_filled_and_everything_else_stays(name, kind, table):
    encoding = Encoding.fit(None, table)
    values, observed = encoding.encode(table)
    first = next(iter(encoding.sections))
    assert not observed[list(GAPS), encoding.sections[first]].any()
    generator = np.random.default_rng(0)
    filled = encoding.decode(generator.normal(size=values.shape), table)
    assert type(filled) is type(table)
    assert not open_table(filled).missing.any()
    assert repr(observed_cells(filled, first)) == repr(observed_cells(table, first))
    if isinstance(table, np.ndarray):
        assert filled.dtype == table.dtype
    else:
        assert dtypes_of(filled) == dtypes_of(table)
        assert cells_of(filled, "y") == cells_of(table, "y")
    again = Schema.infer(filled)
    assert [spec.name for spec in again.values()] == [s.name for s in encoding.schema.values()]


@pytest.mark.parametrize(("name", "kind", "table"), EVERY, ids=NAMES)
def test_encoded_rows_decode_to_the_cells_they_came_from(name, kind, table):
    encoding = Encoding.fit(None, table)
    values, _ = encoding.encode(table)
    column = open_table(table).column(0)
    label, section = next(iter(encoding.sections.items()))
    found = encoding.parts[label].decode(values[:, section])[~column.missing]
    if kind == "continuous":
        wanted = column.observed.astype(float)
        np.testing.assert_allclose(found, wanted, rtol=1e-3 if "16" in name else 1e-6)
    else:
        assert found.tolist() == column.observed.tolist()


@pytest.mark.parametrize(("name", "kind", "table"), EVERY, ids=NAMES)
def test_sections_are_standardised_over_the_observed_rows(name, kind, table):
    encoding = Encoding.fit(None, table)
    values, observed = encoding.encode(table)
    for section in encoding.sections.values():
        seen = values[observed[:, section.start], section]
        np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=1e-9)
        covariance = np.cov(seen.T, bias=True).reshape(seen.shape[1], -1)
        np.testing.assert_allclose(covariance, np.eye(seen.shape[1]), atol=1e-9)


@pytest.mark.parametrize(("name", "kind", "table"), EVERY, ids=NAMES)
def test_an_encoding_survives_json_and_arrays(name, kind, table):
    encoding = Encoding.fit(None, table)
    stored = json.loads(json.dumps(encoding.to_dict(), allow_nan=False))
    restored = Encoding.from_dict(stored, encoding.state())
    assert restored.schema == encoding.schema
    assert restored.sections == encoding.sections
    for ours, theirs in zip(restored.encode(table), encoding.encode(table), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    matrix = np.random.default_rng(0).normal(size=(ROWS, encoding.width))
    for label, section in encoding.sections.items():
        mine, other = (e.parts[label].decode(matrix[:, section]) for e in (restored, encoding))
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


def mixed(rows, seed=0):
    """A table of every kind with gaps, its columns related."""
    generator = np.random.default_rng(seed)
    town = generator.integers(0, 40, rows)
    frame = pd.DataFrame(
        {
            "size": town + generator.normal(size=rows),
            "rooms": pd.array(town // 8, dtype="Int64"),
            "sold": pd.array(town % 2 == 0, dtype="boolean"),
            "town": [f"town {k:02}" for k in town],
            "style": [f"style {k % 4}" for k in town],
            "grade": pd.Categorical(
                [("low", "mid", "high")[k % 3] for k in town], ["low", "mid", "high"], ordered=True
            ),
            "built": pd.to_datetime("2000-01-01") + pd.to_timedelta(town * 100, unit="D"),
        }
    )
    return frame.mask(generator.random(frame.shape) < 0.2)


def test_a_mixed_table_has_narrow_sections_and_fills_of_its_own_kinds():
    frame = mixed(400)
    encoding = Encoding.fit(None, frame)
    widths = {label: part.stop - part.start for label, part in encoding.sections.items()}
    assert widths == {
        "size": 1,
        "rooms": 1,
        "sold": 1,
        "town": 8,
        "style": 3,
        "grade": 1,
        "built": 1,
    }
    assert encoding.width == 16
    filled = encoding.decode(np.zeros((400, 16)), frame)
    assert (filled.dtypes == frame.dtypes).all()
    assert not filled.isna().any().any()
    assert (filled["built"] == filled["built"].dt.normalize()).all()
    assert filled[frame.notna()].equals(frame[frame.notna()])


def test_many_categories_lie_close_where_other_columns_say_that_they_are_alike():
    frame = mixed(4000)
    encoding = Encoding.fit(None, frame)
    part = encoding.parts["town"]
    numbers = np.array([int(name[-2:]) for name in part.categories])
    distances = np.linalg.norm(part.points[:, None] - part.points[None], axis=2)
    apart = np.abs(numbers[:, None] - numbers[None])
    near = distances[(apart > 0) & (apart % 12 == 0)].mean()
    assert near < 0.9 * distances[apart > 0].mean()


def test_unknown_categories_are_no_evidence_but_come_back():
    encoding = Encoding.fit(None, pd.DataFrame({"a": ["x", "y", "x"], "b": [1.0, 2.0, 3.0]}))
    new = pd.DataFrame({"a": ["new", None, "y"], "b": [1.0, 1.0, np.nan]})
    observed = encoding.encode(new)[1]
    assert observed.tolist() == [[False, True], [False, True], [True, False]]
    filled = encoding.decode(np.zeros((3, 2)), new)
    assert filled["a"].tolist() == ["new", "x", "y"]
    assert filled["b"].tolist() == [1.0, 1.0, 2.0]


def test_idle_columns_are_filled_without_a_model_or_stay_empty():
    frame = pd.DataFrame(
        {
            "constant": [1.5, None, 1.5] + [1.5] * 12,
            "empty": [None] * 15,
            "name": [None] + [f"name {k:02}" for k in range(14)],
            "number": [k + 0.5 for k in range(13)] + [None, None],
        }
    )
    encoding = Encoding.fit(None, frame)
    assert encoding.idle == ("constant", "empty", "name")
    values, observed = encoding.encode(frame)
    assert values.shape == (15, 4)
    assert not observed[:, 1:3].any()
    matrix = np.full(values.shape, np.nan)
    matrix[:, 3] = 0.0
    filled = encoding.decode(matrix, frame)
    assert filled["constant"].tolist() == [1.5] * 15
    assert filled["empty"].isna().all()
    assert pd.isna(filled["name"][0]), "identifiers are not guessed"
    assert filled["number"][14] == pytest.approx(6.5)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize(
    "convert", [pd.DataFrame, lambda c: pl.DataFrame(c), lambda c: np.array([[1.0, 2.0]])]
)
def test_tables_of_no_or_one_row_can_be_fitted_and_used(rows, convert):
    table = convert({"a": [1.5], "b": ["x"], "c": [True]})[:rows]
    encoding = Encoding.fit(None, table)
    values, observed = encoding.encode(table)
    assert values.shape == observed.shape == (rows, encoding.width)
    assert set(encoding.idle) == set(encoding.sections)
    assert len(encoding.decode(values, table)) == rows
    full = Encoding.fit(None, convert({"a": [1.5], "b": ["x"], "c": [True]}))
    assert full.encode(table)[0].shape == (rows, full.width)


def test_zero_rows_can_be_filled_after_a_fit_on_many():
    frame = mixed(100)
    encoding = Encoding.fit(None, frame)
    none = frame.iloc[:0]
    assert encoding.encode(none)[0].shape == (0, encoding.width)
    assert encoding.decode(np.zeros((0, encoding.width)), none).equals(none)


def test_columns_without_names_are_understood_by_position():
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [4.0, 5.0, 7.0]})
    encoding = Encoding.fit(None, frame)
    for ours, theirs in zip(encoding.encode(frame.to_numpy()), encoding.encode(frame), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_float_column_may_become_integers_by_schema_and_integers_floats_by_gaps():
    frame = pd.DataFrame({"n": [1.0, 2.0, 4.0, None], "z": [10, 20, 10, 10]})
    encoding = Encoding.fit({"n": "integer", "z": "categorical"}, frame)
    assert encoding.decode(np.zeros((4, 2)), frame)["n"].tolist() == [1.0, 2.0, 4.0, 2.0]
    later = pd.DataFrame({"n": [1, 2, 4, 5], "z": [10.0, None, 20.0, 30.0]})
    observed = encoding.encode(later)[1]
    assert observed[:, 1].tolist() == [True, False, True, False]
    filled = encoding.decode(np.zeros((4, 2)), later)
    assert filled["z"].tolist() == [10.0, 10.0, 20.0, 30.0]
    assert filled["n"].dtype == np.int64


def test_booleans_may_be_numbers():
    table = np.array([[0.0], [1.0], [1.0], [np.nan]])
    filled = Encoding.fit({0: "boolean"}, table).decode(np.zeros((4, 1)), table)
    assert filled.dtype == np.float64
    assert filled[:, 0].tolist() == [0.0, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"column 0 holds 2\.0, which is not among its categories"):
        Encoding.fit({0: "boolean"}, np.array([[0.0], [2.0]]))


def test_cells_outside_given_categories_are_refused_in_fitting():
    with pytest.raises(ValueError, match="column 'g' holds 'top', which is not among"):
        Encoding.fit({"g": Ordinal(("low", "high"))}, pd.DataFrame({"g": ["low", "top"]}))


def test_filled_numbers_keep_to_bounds_or_the_observed_range():
    table = np.array([[0.0, 0.0], [10.0, 10.0], [np.nan, np.nan]])
    schema = {1: Continuous((0, 11))}
    encoding = Encoding.fit(schema, table)
    assert encoding.decode(np.full((3, 2), 9.0), table)[2, 1] == 11.0
    assert [part.ceiling for part in encoding.parts.values()] == [10.0, 11.0]


def test_far_evidence_is_clipped_for_the_model_only():
    encoding = Encoding.fit(None, np.array([[0.0], [1.0]]))
    new = np.array([[1e9], [-1e9]])
    assert encoding.encode(new)[0][:, 0].tolist() == [10.0, -10.0]
    np.testing.assert_array_equal(encoding.decode(np.zeros((2, 1)), new), new)


def test_a_marker_is_kept_with_the_encoding():
    table = np.array([[1, 2], [-1, 4], [5, -1]])
    encoding = Encoding.fit(None, table, missing_values=-1)
    restored = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())), encoding.state())
    np.testing.assert_array_equal(restored.encode(table)[1], table != -1)
    assert restored.decode(np.zeros((3, 2)), table).tolist() == [[1, 2], [3, 4], [5, 3]]


def test_a_damaged_description_is_refused():
    encoding = Encoding.fit(None, pd.DataFrame({"a": ["x", "y", "y"], "b": [1.0, 2.0, 3.0]}))
    short = {name: array[:1] for name, array in encoding.state().items()}
    with pytest.raises(ValueError, match="2 categories need as many counts"):
        Encoding.from_dict(encoding.to_dict(), short)
    description = encoding.to_dict()
    description["parts"][0]["name"] = "magic"
    with pytest.raises(
        ValueError, match="must be one of scale, codes, levels, identifier, but got 'magic'"
    ):
        Encoding.from_dict(description, encoding.state())


@pytest.mark.parametrize(
    ("cells", "given", "expected"),
    [
        ([0, 1, 1, None], "boolean", int),
        ([1, 2, 4, None], "continuous", float),
        ([1, 2, 4, None], "categorical", int),
        ([1.5, 2.5, 4.0, None], "integer", int),
        ([pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-03"), None], "date", pd.Timestamp),
        ([pd.Timedelta("1D"), pd.Timedelta("2D"), None], "date", pd.Timedelta),
    ],
)
def test_objects_are_filled_with_objects_of_their_own_type(cells, given, expected):
    table = objects(cells)[:, None]
    encoding = Encoding.fit({0: given}, table)
    filled = encoding.decode(np.zeros((len(cells), encoding.width)), table)
    assert type(filled[-1, 0]) is expected


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda e: e.encode(pd.DataFrame({"b": [1.0], "a": [1.0]})), "in the same order"),
        (lambda e: e.encode(pd.DataFrame({"a": [1.0]})), "lacks 'b'"),
        (lambda e: e.encode(np.zeros((1, 3))), "X has 3 features"),
        (lambda e: e.encode(np.array([[1.0, np.inf]])), "contains infinity in column"),
        (lambda e: e.decode(np.zeros((2, 2)), np.zeros((1, 2))), r"the shape \(1, 2\)"),
        (lambda e: e.decode(np.full((1, 2), np.nan), [[np.nan, 1.0]]), "finite where column 'a'"),
        (lambda e: e.parts["a"].probabilities(np.zeros((1, 1))), "no categories"),
        (lambda e: e.encode([["x", 1.0]]), "column 'a' was continuous in fitting, but now holds t"),
    ],
)
def test_wrong_uses_are_refused(use, message):
    encoding = Encoding.fit(None, pd.DataFrame({"a": [1.5, 2.0], "b": [1.0, 3.0]}))
    with pytest.raises(ValueError, match=message):
        use(encoding)


def test_probabilities_are_those_of_the_column():
    frame = pd.DataFrame({"a": ["x", "y", "y"], "b": [1.0, 2.0, 3.0]})
    found = Encoding.fit(None, frame).parts["a"].probabilities(np.zeros((2, 1)))
    np.testing.assert_allclose(found, [[1 / 3, 2 / 3]] * 2)


CELLS = st.one_of(
    st.none(),
    st.just(float("nan")),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.integers(-1000, 1000),
    st.booleans(),
    st.sampled_from(["a", "b", "", "\u00e9"]),
)


@pytest.mark.filterwarnings("ignore:column . holds numbers")  # an empty text is no number
@settings(max_examples=100)
@given(st.data())
def test_random_tables_of_objects_are_filled_and_otherwise_kept(data):
    rows = data.draw(st.integers(0, 12))
    columns = data.draw(st.integers(1, 4))
    cells = [data.draw(st.lists(CELLS, min_size=rows, max_size=rows)) for _ in range(columns)]
    table = np.empty((rows, columns), dtype=object)
    for position, column in enumerate(cells):
        table[:, position] = objects(column)
    encoding = Encoding.fit(None, table)
    values, observed = encoding.encode(table)
    assert np.isfinite(values).all()
    assert not values[~observed].any()
    filled = encoding.decode(values, table)
    gaps = open_table(table).missing
    assert all(a is b for a, b in zip(filled[~gaps], table[~gaps], strict=True))
    for position, part in enumerate(encoding.parts.values()):
        # Columns of nothing but gaps, and of eleven and more names that no two rows share.
        left = not part.fillable and gaps[:, position].any()
        assert open_table(filled).column(position).missing.any() == left
        assert part.empty == (gaps[:, position].all() or rows == 0)
    stored = json.loads(json.dumps(encoding.to_dict(), allow_nan=False))
    again = Encoding.from_dict(stored, encoding.state()).decode(values, table)
    assert repr(again.tolist()) == repr(filled.tolist())


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5, 60]))
@settings(max_examples=25)
def test_random_mixed_frames_are_filled_alike_in_pandas_and_polars(seed, rows):
    frame = mixed(rows, seed)
    encoding = Encoding.fit(None, frame)
    matrix = np.random.default_rng(seed).normal(size=(rows, encoding.width))
    filled = encoding.decode(matrix, frame)
    assert (filled.dtypes == frame.dtypes).all()
    kept = frame.notna()
    assert filled[kept].equals(frame[kept])
    other = encoding.decode(matrix, pl.from_pandas(frame))
    for label in frame:
        ours = [None if pd.isna(cell) else cell for cell in filled[label]]
        assert other[label].to_list() == ours


TEXT_DATES = {
    "days": ["2020-02-29", "2021-03-01", "2019-12-31"],
    "minutes": ["2020-02-29 00:30", "2021-03-01 12:00", "2019-12-31 23:59"],
    "UTC": ["2020-02-29T00:30:00Z", "2021-03-01T12:00:05Z", "2019-12-31T23:59:00Z"],
}


@pytest.mark.parametrize("cells", TEXT_DATES.values(), ids=TEXT_DATES)
@pytest.mark.parametrize("dtype", [object, "string", "arrow"])
def test_dates_as_text_are_dates_and_stay_text(cells, dtype):
    pandas = pd.DataFrame({"day": pd.Series([*cells, None], dtype=object), "x": [1.0, 2.0, 0.5, 3]})
    frame = pl.from_pandas(pandas).to_arrow() if dtype == "arrow" else pandas
    frame = frame if dtype != "string" else frame.astype({"day": "string"})
    encoding = Encoding.fit(None, frame)
    assert encoding.schema["day"].name == "date"
    restored = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())), encoding.state())
    values, observed = restored.encode(frame)
    moments = pd.to_datetime(pd.Series(cells)).astype("int64").to_numpy()
    np.testing.assert_allclose(np.corrcoef(values[:3, 0], moments)[0, 1], 1.0)
    values[3] = values[1]
    filled = open_table(restored.decode(values, frame)).column(0)
    assert filled.values.tolist() == [*cells, cells[1]]
    assert not observed[3, 0]


def test_a_column_of_dates_may_hold_dates_or_nothing_later():
    fitted = pd.DataFrame({"day": TEXT_DATES["days"], "x": [1.0, 2.0, 3.0]})
    encoding = Encoding.fit(None, fitted)
    values, _ = encoding.encode(fitted)
    dates = fitted.assign(day=pd.to_datetime(fitted["day"]))
    np.testing.assert_array_equal(encoding.encode(dates)[0], values)
    nothing = fitted.assign(day=pd.Series([None] * 3, dtype=object))
    assert encoding.decode(values, nothing)["day"].tolist() == TEXT_DATES["days"]
    with pytest.warns(UserWarning, match="1 of 3 cells, such as 'May'"):
        observed = encoding.encode(fitted.assign(day=["2020-02-29", "May", "2020-03-01"]))[1]
    assert observed[:, 0].tolist() == [True, False, True]
    with pytest.raises(ValueError, match=r"'day' must hold dates such as .*, but holds 'May'"):
        encoding.encode(fitted.assign(day=["2020-02-29", "May", "June"]))


@pytest.mark.parametrize(
    "cells",
    [["2021-02-29"], ["2021-02-28", "2021-02-28Z"], ["2021-02-28", 3], ["20210228"], ["1-2-2021"]],
)
def test_other_texts_are_no_dates(cells):
    assert Schema.infer([[cell] for cell in [*cells, "2021-01-01"]])[0].name == "categorical"


def test_declared_categories_are_no_dates():
    frame = pd.DataFrame({"day": pd.Categorical(TEXT_DATES["days"])})
    assert Schema.infer(frame)["day"].name == "categorical"
