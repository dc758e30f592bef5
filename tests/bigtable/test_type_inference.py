"""Which type a column of text holds."""

import io
import itertools

import pyarrow as pa
import pyarrow.csv as pcsv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfg.bigtable.type_inference import (
    MISSING_TEXTS,
    cast_text,
    common_schema,
    common_type,
    mark_missing,
    widen,
)


def text_type(cells, known):
    return cast_text(cells, known).type


WRITTEN = {
    "int64": ["1", "-20", "0", "9007199254740993"],
    "double": ["1.5", "-1e-3", ".5", "3"],
    "bool": ["true", "False", "TRUE"],
    "date32[day]": ["2020-01-31", "1999-12-01"],
    "timestamp[s]": ["2020-01-31 10:20:30", "2020-01-31T10:20"],
    "timestamp[us]": ["2020-01-31 10:20:30.123"],
    "timestamp[s, tz=UTC]": ["2020-01-31T10:20:30Z", "2020-01-31T10:20:30+02:00"],
    "string": ["x", "007", "1,5", "12345678901234567890", "1 000"],
}


@pytest.mark.parametrize(("kind", "cells"), WRITTEN.items())
def test_cells_are_what_they_look_like(kind, cells):
    assert str(text_type(pa.array([*cells, None]), pa.null())) == kind


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(WRITTEN, 2)))
def test_the_order_of_two_blocks_does_not_matter(one, other):
    found = [
        text_type(pa.array(WRITTEN[second]), text_type(pa.array(WRITTEN[first]), pa.null()))
        for first, second in ((one, other), (other, one))
    ]
    assert found[0] == found[1]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_whole_numbers_of_64_bits_are_whole_numbers(numbers):
    cells = pa.array([str(number) for number in numbers])
    assert text_type(cells, pa.null()) == pa.int64()
    assert cells.cast(pa.int64()).to_pylist() == numbers


def test_gaps_say_nothing_about_a_type():
    cells = mark_missing(pa.array([*MISSING_TEXTS, "5"]))
    assert cells.to_pylist() == [None] * len(MISSING_TEXTS) + ["5"]
    assert text_type(cells, pa.null()) == pa.int64()
    assert text_type(cells.slice(0, 3), pa.bool_()) == pa.bool_()


def test_types_are_joined_or_not():
    assert common_type(pa.int32(), pa.int64()) == pa.int64()
    assert common_type(pa.null(), pa.date32()) == pa.date32()
    assert common_type(pa.string(), pa.int64()) is None
    assert common_type(pa.bool_(), pa.int64()) is None


PADDED = [
    f"{before}{cell}{after}"
    for cells in WRITTEN.values()
    for cell in (*cells, "tRuE", "NAN", "+1", "-0", "inf")
    for before, after in (("", ""), (" ", ""), ("", "\t"), ("", "\u00a0"), ("\n", ""))
]


@pytest.mark.parametrize("cell", list(dict.fromkeys(PADDED)))
def test_cells_are_cast_as_pyarrow_reads_them(cell):
    found = cast_text(pa.array([cell]), pa.null())
    table = pcsv.read_csv(
        io.BytesIO(f'a\n"{cell}"\n'.encode()),
        parse_options=pcsv.ParseOptions(newlines_in_values=True),
        convert_options=pcsv.ConvertOptions(column_types={"a": found.type}, null_values=[]),
    )
    assert repr(table["a"].to_pylist()) == repr(found.to_pylist())


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", None, str(2**60 + 1)], pa.float64()),
        (["2020-01-31", "1999-12-01"], pa.timestamp("s")),
        (["2020-01-31 10:20:30", None], pa.timestamp("ns")),
        ([None, None], pa.string()),
    ],
)
def test_widened_cells_are_those_of_their_text(cells, kind):
    narrow = cast_text(pa.array(cells, pa.string()), pa.null())
    assert narrow.type != kind
    assert widen(narrow, kind).equals(pa.array(cells, pa.string()).cast(kind))


def test_text_and_times_out_of_range_are_not_widened_to():
    far = pa.array(["9999-12-31"]).cast(pa.date32())
    for cells, kind in (
        (pa.array([1]), pa.string()),
        (pa.array([1.5]), pa.int64()),
        (far, pa.timestamp("ns")),
    ):
        with pytest.raises(pa.ArrowInvalid):
            widen(cells, kind)
    with pytest.raises(pa.ArrowInvalid, match="the column 'a' holds int64 and string"):
        common_schema(pa.schema({"a": pa.int64()}), pa.schema({"a": pa.string()}))
    assert cast_text(pa.array(["9999-12-31"]), pa.timestamp("ns")).to_pylist() == ["9999-12-31"]
