"""VFGImputer on tables of any columns, cells and gaps."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imputation.mixed_tables import light, linear

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


@given(frames())
@settings(max_examples=15)
def test_any_table_has_an_answer(frame):
    check_everything(linear(), frame)


@given(frames(fewest=20))
@settings(max_examples=3)
def test_any_table_has_a_nonlinear_answer(frame):
    check_everything(light(), frame)


@pytest.mark.slow
@given(frames(fewest=20))
@settings(max_examples=40)
def test_any_table_has_a_nonlinear_answer_again_and_again(frame):
    check_everything(light(), frame)
