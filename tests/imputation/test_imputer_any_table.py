"""VFGImputer on tables of any columns, cells and gaps."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imputation.mixed_tables import light, linear
from optional import polars as pl

from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer

CELLS = {
    "float": st.floats(-1e6, 1e6, width=32),
    "integer": st.integers(-1000, 1000),
    "boolean": st.booleans(),
    "text": st.sampled_from(["red", "green", "blue"]),
    "constant": st.just(7.0),
    "date": st.dates().map(pd.Timestamp),
}
DTYPES = {"integer": "Int64", "boolean": "boolean", "text": object, "date": "datetime64[us]"}


@st.composite
def frames(draw, fewest=1, most=30):
    """Frames of a few columns of any kind with any gaps, some rows several times."""
    kinds = draw(st.lists(st.sampled_from([*CELLS]), min_size=1, max_size=4))
    rows = draw(st.integers(fewest, most))
    repeats = draw(st.integers(1, 2))
    share = draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    columns = {}
    for place, kind in enumerate(kinds):
        cells = draw(st.lists(CELLS[kind], min_size=rows, max_size=rows))
        series = pd.Series(cells * repeats, dtype=DTYPES.get(kind, "float64"))
        columns[f"{kind}{place}"] = series
    frame = pd.DataFrame(columns)
    seed = draw(st.integers(0, 99))
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < share)


def check_everything(imputer, frame):
    filled = imputer.fit(frame).transform(frame)
    kept = frame.loc[:, frame.notna().any()]
    assert list(filled.columns) == list(kept.columns)
    assert list(filled.dtypes) == list(kept.dtypes)
    assert not filled.isna().any(axis=None)
    assert filled.where(kept.notna()).equals(kept.where(kept.notna()))
    assert all(one.notna().all(axis=None) for one in imputer.sample(frame, 2))
    low, high = imputer.predict_interval(frame)
    for name in kept.columns:
        if frame[name].dtype.kind in "fiM":
            assert (low[name] <= high[name]).all()
    assert np.isfinite(imputer.score_samples(frame)).all()
    assert len(imputer.embed(frame)) == len(frame)
    imputer.evaluate(frame)
    assert pickle.loads(pickle.dumps(imputer)).transform(frame).equals(filled)


@pytest.mark.filterwarnings("ignore:missing values of columns? .* are not filled")
@given(frames())
@settings(max_examples=15)
def test_any_table_has_an_answer(frame):
    check_everything(linear(), frame)


@pytest.mark.filterwarnings("ignore:missing values of columns? .* are not filled")
@given(frames(fewest=20))
@settings(max_examples=3)
def test_any_table_has_a_nonlinear_answer(frame):
    check_everything(light(), frame)


@pytest.mark.filterwarnings("ignore:missing values of columns? .* are not filled")
@pytest.mark.slow
@given(frames(fewest=20))
@settings(max_examples=40)
def test_any_table_has_a_nonlinear_answer_again_and_again(frame):
    check_everything(light(), frame)


# Time zones.


def zoned_table(zone):
    hours = np.arange(60)
    moments = pd.Timestamp("2021-03-20 12:00", tz=zone) + pd.to_timedelta(6 * hours, unit="h")
    moments = moments.as_unit("us")  # before pandas 3 the default is nanoseconds
    table = pd.DataFrame({"hour": hours + 0.01 * np.sin(hours), "when": moments})
    return table.mask(np.arange(120).reshape(60, 2) % 17 == 0)


@pytest.mark.parametrize("other", ["UTC", "America/New_York", "+05:30"])
@pytest.mark.parametrize("kind", ["pandas", "arrow-backed pandas", "polars", "pyarrow"])
def test_moments_are_the_same_in_every_time_zone(kind, other):
    table = zoned_table("Europe/Berlin")
    moved = table.assign(when=table["when"].dt.tz_convert(other))
    model = linear().fit(table)
    wanted, missing = model.transform(table), table["when"].isna()
    if kind == "polars" and other == "+05:30":
        pytest.skip("polars knows zones by name alone")
    given = {
        "pandas": lambda: moved,
        "arrow-backed pandas": lambda: moved.astype(
            {"when": pd.ArrowDtype(pa.timestamp("us", other))}
        ),
        "polars": lambda: pl.from_pandas(moved),
        "pyarrow": lambda: pa.Table.from_pandas(moved),
    }[kind]()
    found = model.transform(given)
    cells = found["when"].to_list() if kind == "polars" else list(found["when"])
    instants = [pd.Timestamp(cell.as_py() if kind == "pyarrow" else cell) for cell in cells]
    assert str(instants[0].utcoffset()) == str(moved["when"][1].utcoffset())
    assert [one.tz_convert("UTC") for one in instants] == list(wanted["when"].dt.tz_convert("UTC"))
    assert missing.any()
    hours = [float(str(cell)) for cell in found["hour"]]
    assert hours == wanted["hour"].to_list()


def test_models_keep_the_zone_of_their_dates():
    table = zoned_table("Europe/Berlin")
    model = linear().fit(pl.from_pandas(table)).model_
    kept = loads(dumps(model))
    assert kept.sample(3).schema["when"] == pl.Datetime("us", "Europe/Berlin")
    moved = pl.from_pandas(table.assign(when=table["when"].dt.tz_convert("UTC")))
    assert (kept.infer(moved).mean["when"] == model.infer(pl.from_pandas(table)).mean["when"]).all()
    noon = pd.Timestamp("2021-03-29 12:00", tz="Europe/Berlin")
    answers = [kept.infer({"when": one}) for one in (noon, noon.tz_convert("UTC").to_pydatetime())]
    assert answers[0].mean["hour"] == answers[1].mean["hour"]
    assert answers[1].mean["when"] == np.datetime64("2021-03-29T12:00")


def test_objects_of_which_none_is_observed_are_not_filled_and_warned_of():
    table = pd.DataFrame({"a": np.arange(30.0), "note": pd.Series([None] * 30, dtype=object)})
    table.loc[3, "a"] = np.nan
    imputer = VFGImputer(bend=False, keep_empty_features=True).fit(table)
    assert imputer.schema_["note"].name == "empty"
    with pytest.warns(UserWarning, match="column 'note' are not filled: no cell was observed"):
        filled = imputer.transform(table)
    assert filled["note"].isna().all()
    assert filled["a"].notna().all()
    later = table.assign(note="seen")
    assert imputer.transform(later)["note"].eq("seen").all(), "later cells are kept, whatever kind"
    loaded = loads(dumps(imputer.model_))
    assert loaded.encoding.schema["note"].name == "empty"
    numbers = table.assign(note=np.nan)
    assert VFGImputer(bend=False).fit(numbers).schema_["note"].name == "continuous"


def _days_with(wrong):
    days = np.arange("2020-01-10", "2020-03-10", dtype="M8[D]")
    frame = pd.DataFrame({"x": np.arange(60.0), "when": days.astype(str)}).astype({"when": object})
    frame.loc[5, "when"] = wrong
    frame.loc[9, "when"] = None
    return frame


def test_cells_that_are_no_dates_are_filled_with_a_warning():
    frame = _days_with("soon")
    with pytest.warns(UserWarning, match="'when' holds dates, but 1 of 59 cells, such as 'soon'"):
        imputer = linear().fit(frame)
    with pytest.warns(UserWarning, match="1 of 59 cells"):
        filled = imputer.transform(frame)
    assert filled["when"][[5, 9]].tolist() == ["2020-01-15", "2020-01-19"]
    assert filled["when"][6] == "2020-01-16"
    with pytest.warns(UserWarning, match="1 of 1 cells, such as 'n/a'"):  # a row of its own
        one = imputer.transform(pd.DataFrame({"x": [30.0], "when": ["n/a"]}))
    assert one["when"][0] == "2020-02-09"
    with pytest.raises(ValueError, match=r"must hold dates .* but holds 'later'"):
        imputer.transform(pd.DataFrame({"x": [30.0, 31.0], "when": ["later", "never"]}))


def test_answers_do_not_use_cells_that_are_no_dates():
    imputer = linear().fit(_days_with(None))
    given = pd.DataFrame({"when": ["2020-01-15", "2020-01-16", "soon"]})
    with pytest.warns(UserWarning, match="1 of 3 cells, such as 'soon'"):
        answer = imputer.model_.infer(given)
    assert answer.mean["x"][0] == pytest.approx(5.0, abs=0.5)
    assert answer.mean["x"][2] == pytest.approx(29.5, abs=1.0)
