"""Dates and durations that are written as text."""

import numpy as np
import pandas as pd
import pytest

from vfg.tables import Schema
from vfg.tables.cells import LAYOUTS, Column, find_layouts, format_moments, parse_moments

FORMATS = {
    "iso": ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%MZ"),
    "dmy.": ("%d.%m.%Y", "%-d.%-m.%Y", "%d.%m.%Y %H:%M"),
    "dmy/": ("%d/%m/%Y", "%d/%m/%YT%H:%M:%S"),
    "mdy/": ("%m/%d/%Y", "%-m/%-d/%Y %H:%M"),
    "mdy-": ("%m-%d-%Y",),
    "ymd/": ("%Y/%m/%d", "%Y/%-m/%-d"),
}
DAYS = pd.to_datetime(["2020-02-29 13:05", "2021-11-03 07:30", "1999-12-31 00:00"])


def texts(cells):
    return Column("when", "text", np.array(cells, dtype=object), np.zeros(len(cells), dtype=bool))


@pytest.mark.parametrize(("layout", "form"), [(k, f) for k, own in FORMATS.items() for f in own])
def test_dates_are_read_and_written_in_their_layout(layout, form):
    cells = DAYS.strftime(form).tolist()
    assert find_layouts(cells) == [layout]
    read = parse_moments(texts(cells))
    expected = DAYS if "%H" in form else DAYS.normalize()
    np.testing.assert_array_equal(read.values, expected.to_numpy().astype("M8[us]"))
    assert format_moments(read.values, read.template).tolist() == cells


def test_every_layout_is_told_from_the_others():
    assert set(FORMATS) - {"iso"} < set(LAYOUTS)
    for layout in LAYOUTS:
        if layout != "hms:":
            parts = {"d": "31", "m": "12", "y": "2020"}
            assert find_layouts([layout[3].join(parts[k] for k in layout[:3])]) == [layout]


@pytest.mark.parametrize("cells", [["1:30:00", "0:00:59", "12:00:01"], ["01:30:00", "00:00:59"]])
def test_durations_are_read_and_written(cells):
    read = parse_moments(texts(cells))
    assert read.storage == "duration"
    assert read.values[0] == np.timedelta64(90, "m")
    assert format_moments(read.values, read.template).tolist() == cells


def test_days_that_could_be_months_stay_text_with_a_warning():
    frame = pd.DataFrame({"when": ["1/2/2020", "3/4/2020"] * 10})
    with pytest.warns(UserWarning, match="'when' looks like dates, but no day is above 12"):
        assert Schema.infer(frame)["when"].name == "categorical"
    with pytest.raises(
        ValueError, match="no day is above 12, so days and months are ambiguous; convert it"
    ):
        Schema.infer(frame, {"when": "date"})


def test_the_layout_of_fitting_tells_days_from_months_later():
    fitted = parse_moments(texts(["31/1/2020", "1/2/2020"]))
    later = parse_moments(texts(["3/4/2020"]), fitted.template)
    assert later.values[0] == np.datetime64("2020-04-03")
    with pytest.raises(ValueError, match="no day is above 12"):
        parse_moments(texts(["3/4/2020"]))


@pytest.mark.parametrize("cells", [["31.2.2020"], ["31.12.2020", "May"], ["1.2.3"], ["31.12.20"]])
def test_other_texts_are_no_dates(cells):
    assert find_layouts(cells) == []
    with pytest.raises(ValueError, match="must hold dates such as"):
        parse_moments(texts(cells))
