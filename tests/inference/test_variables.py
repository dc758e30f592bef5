"""Values as people type them."""

import math

import numpy as np
import pytest

from vfg.inference.variables import Variable, days_of, format_number, moments_of

AGE = Variable("age", "integer", "age", 0.0, 90.0)
SIZE = Variable("size", "number", "size", -1.0, 1.0)
SINCE = Variable("since", "date", "since", 18262.0, 18627.0)
CITY = Variable("city", "choice", "city", categories=("Bern", "Oslo"))
FLAG = Variable("flag", "choice", "flag", categories=(False, True))
RANK = Variable("rank", "choice", "rank", categories=(0, 1, 2))


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (AGE, "41", 41),
        (AGE, 41.0, 41),
        (SIZE, " 0.5 ", 0.5),
        (SIZE, "−0.5", -0.5),
        (SIZE, "1e3", 1000.0),
        (SIZE, "4 500", 4500.0),
        (SIZE, "4,500", 4500.0),
        (SIZE, "4,500.25", 4500.25),
        (SIZE, "−1'234'567", -1234567.0),
        (SIZE, "12\u202f345.6", 12345.6),
        (AGE, "1,234", 1234),
        (SINCE, "2020-02-03", "2020-02-03"),
        (SINCE, "2020-02-03 04:05", "2020-02-03T04:05"),
        (SINCE, 18262, "2020-01-01"),
        (CITY, "Oslo", "Oslo"),
        (FLAG, True, True),
        (FLAG, "False", False),
        (RANK, 1, 1),
        (RANK, "2", 2),
    ],
)
def test_what_is_typed_becomes_a_value(variable, text, value):
    parsed = variable.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        (AGE, "old", "whole number"),
        (AGE, "4.5", "whole number"),
        (SIZE, "nan", "takes a number"),
        (SIZE, "0,500", "takes a number"),
        (SIZE, "4,5", "takes a number"),
        (SIZE, "1,234 567", "takes a number"),
        (SIZE, "12,34", "takes a number"),
        (SIZE, "inf", "takes a number"),
        (SIZE, "", "takes a number"),
        (SINCE, "yesterday", "takes a date"),
        (CITY, "Rome", "one of Bern, Oslo"),
        (RANK, True, "one of 0, 1, 2"),
    ],
)
def test_impossible_values_are_refused_in_a_sentence_that_names_the_column(variable, text, words):
    with pytest.raises(ValueError, match=words) as caught:
        variable.parse(text)
    assert repr(variable.name) in str(caught.value)


@pytest.mark.parametrize("variable", [AGE, SIZE, SINCE])
def test_places_on_the_axis_come_back(variable):
    value = variable.middle
    assert variable.value_of(variable.number_of(value)) == value
    assert variable.low <= variable.number_of(value) <= variable.high


def test_steps_are_round_and_about_two_hundred():
    for span in (0.3, 1.0, 7.0, 1234.5, 9e6):
        variable = Variable("x", "number", "x", 2.0, 2.0 + span)
        digits = variable.step / 10.0 ** math.floor(math.log10(variable.step) + 1e-9)
        assert round(digits, 9) in (1.0, 2.0, 5.0, 10.0)
        assert 90 < span / variable.step < 450


def test_days_and_moments_are_inverse():
    moments = np.array(["1969-12-31T12:00", "2026-01-01T00:00:01"], dtype="M8[us]")
    assert (moments_of(days_of(moments)) == moments).all()


def test_numbers_are_written_for_people():
    assert format_number(-0.00001, 2) == "0"
    assert format_number(math.nan) == "–"


@pytest.mark.parametrize("number", [2008.0, 2008.026, 9999.5, 12345.678, -1234567.0, 0.25])
def test_numbers_are_read_as_they_are_written(number):
    wide = Variable("x", "number", "x", 0.0, 100.0)
    assert wide.parse(wide.show(number)) == pytest.approx(number)


def test_years_are_not_grouped():
    assert Variable("year", "integer", "year", 2007.0, 2009.0).show_number(2008.026) == "2008.03"
    assert format_number(12008.0) == "12\u202f008"
