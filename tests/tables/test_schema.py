"""The kinds of columns: inferred, given, stored."""

import json

import numpy as np
import pandas as pd
import pytest
from optional import polars as pl
from tables.frames_of_every_kind import ARRAYS, FRAMES

from vfg.tables import (
    Boolean,
    Categorical,
    Continuous,
    Date,
    FewValued,
    Identifier,
    Integer,
    Ordinal,
    Schema,
    Whole,
)
from vfg.tables.frames import open_table

EVERY = FRAMES + ARRAYS


@pytest.mark.parametrize(("name", "kind", "table"), EVERY, ids=[name for name, _, _ in EVERY])
def test_the_kind_of_every_dtype_is_inferred(name, kind, table):
    first = next(iter(Schema.infer(table).values()))
    assert first.name == kind


def test_whole_floats_are_whole_unless_the_schema_or_an_option_says_otherwise():
    table = np.array([[1.0, 1.0, 1e300], [2.0, np.nan, 2e300]])
    assert list(Schema.infer(table).values()) == [Whole(), Continuous(), Continuous()]
    assert list(Schema.infer(table, discrete=False).values()) == [Continuous()] * 3
    given = Schema.infer(table, {0: "continuous", 1: "integer"})
    assert [given[0], given[1]] == [Continuous(), Integer()]


def test_few_valued_columns_have_ten_values_at_most_and_five_cells_each():
    years = np.array([2008.0, 1999.0] * 5 + [np.nan])[:, None]
    assert Schema.infer(years)[0] == FewValued(values=(1999.0, 2008.0))
    assert Schema.infer(years[1:])[0] == Whole(), "nine cells of two values"
    assert Schema.infer(years, {0: "continuous"})[0] == Continuous()
    assert Schema.infer(years, {0: FewValued(bounds=(1990, None))})[0].values == (1999.0, 2008.0)
    ten, eleven = (np.tile(np.arange(k) / 4.0, 9)[:, None] for k in (10, 11))
    assert [Schema.infer(table)[0].name for table in (ten, eleven)] == ["few valued", "continuous"]
    late = np.concatenate([np.zeros(2000), np.arange(500.0) / 8.0])[:, None]
    assert Schema.infer(late)[0] == Continuous(), "values that first cells lack count, too"
    assert Schema.from_dict(Schema.infer(years).to_dict()) == Schema.infer(years)


def test_values_of_few_valued_columns_are_checked():
    with pytest.raises(ValueError, match="values must be finite numbers"):
        FewValued(values=(1.0, float("inf")))
    assert Schema.infer([[0.5], [1.5]], {0: FewValued(values=())})[0].values == (0.5, 1.5)
    bounded = Schema.infer(np.array([[0.5], [1.5]] * 5)).bounded({0: (0, 2)})
    assert bounded[0] == FewValued((0.0, 2.0), (0.5, 1.5))


@pytest.mark.parametrize("cells", [[0.5, 1.5], [1, 2]])
def test_all_kinds_that_a_column_of_numbers_can_be_are_named(cells):
    with pytest.raises(ValueError, match=r"cannot be date; choose one of .*whole, few valued, "):
        Schema.infer(pd.DataFrame({"a": cells}), {"a": "date"})
    for kind in ("continuous", "whole", "few valued", "integer", "categorical", "ordinal"):
        assert Schema.infer(pd.DataFrame({"a": cells}), {"a": kind})["a"].name == kind


def test_identifiers_are_named_in_the_schema_and_their_texts_are_not_kept():
    frame = pd.DataFrame({"id": [f"row {k}" for k in range(20)], "kind": ["a", "b"] * 10})
    assert Schema.infer(frame)["id"] == Identifier()
    assert "row" not in str(Schema.infer(frame).to_dict())
    assert Schema.infer(frame, {"id": "categorical"})["id"].name == "categorical"
    assert Schema.infer(frame[:9])["id"].name == "categorical", "nine may be categories"


def test_categories_are_those_observed_and_levels_those_declared():
    frame = pd.DataFrame(
        {
            "a": pd.Categorical(["y", "x", None], categories=["x", "y", "z"]),
            "b": pd.Categorical(["y", "x", None], categories=["z", "y", "x"], ordered=True),
            "c": ["b", 2, 1],
        }
    )
    schema = Schema.infer(frame)
    assert schema["a"] == Categorical(("x", "y"))
    assert schema["b"] == Ordinal(("z", "y", "x"))
    assert schema["c"] == Categorical((1, 2, "b"))


def test_the_order_of_an_enum_is_used_if_it_is_said_to_be_ordinal():
    frame = pl.DataFrame({"a": pl.Series(["x"], dtype=pl.Enum(["z", "x"]))})
    assert Schema.infer(frame)["a"] == Categorical(("x",))
    assert Schema.infer(frame, {"a": "ordinal"})["a"] == Ordinal(("z", "x"))


def test_a_marker_among_the_declared_categories_is_none():
    levels = pd.Categorical(["?", "x"], categories=["?", "x", "y"], ordered=True)
    schema = Schema.infer(pd.DataFrame({"a": levels}), missing_values="?")
    assert schema["a"] == Ordinal(("x", "y"))


def test_given_kinds_go_before_inferred_ones():
    frame = pd.DataFrame({"age": [1.0], "grade": ["low"], "zip": [123], "on": [1.0], "n": [2]})
    given = {"age": "integer", "grade": Ordinal(("low", "mid")), "zip": "categorical"}
    schema = Schema.infer(frame, {**given, "on": "boolean", "n": "ordinal"})
    assert list(schema.items()) == [
        ("age", Integer()),
        ("grade", Ordinal(("low", "mid"))),
        ("zip", Categorical((123,))),
        ("on", Boolean()),
        ("n", Ordinal((2,))),
    ]


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_no_or_one_row_have_a_schema(rows):
    texts = pd.array(["x"], dtype="string")  # before pandas 3, an empty column is of objects
    frame = pd.DataFrame({"a": [1.5], "b": texts, "c": [True]}).iloc[:rows]
    kinds = [spec.name for spec in Schema.infer(frame).values()]
    assert kinds == ["continuous", "categorical", "boolean"]
    assert [s.name for s in Schema.infer(np.zeros((rows, 2))).values()] == ["continuous"] * 2


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"b": "integer"}, ValueError, "there is no column 'b'; there are 'a'"),
        ({"a": "number"}, ValueError, "'a' cannot be 'number'; known kinds: continuous"),
        ({"a": 3}, TypeError, "'a' needs the name of a kind"),
        ({"a": "integer"}, ValueError, "'a' holds text cells and cannot be integer"),
        ({"a": "date"}, ValueError, "'a' must hold dates such as"),
        ({"a": "ordinal"}, ValueError, "the order of column 'a' is unknown"),
    ],
)
def test_what_is_given_must_fit(given, error, message):
    with pytest.raises(error, match=message):
        Schema.infer(pd.DataFrame({"a": ["x", "y"]}), given)


def test_repeated_names_are_refused():
    frame = pd.DataFrame(np.zeros((1, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match="different names, but 'a' repeats"):
        Schema.infer(frame)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["b", "a"], "should match .* in the same order"),
        (["a"], "should match .* lacks 'b'"),
        (["a", "b", "c"], "should match .* has the unknown 'c'"),
        (["a", "c"], "lacks 'b' and has the unknown 'c'"),
        ([0], "X has 1 features, but the schema is expecting 2"),
    ],
)
def test_other_columns_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        Schema({"a": "integer", "b": "integer"}).check(labels)


def test_the_same_columns_are_accepted_with_and_without_names():
    schema = Schema({"a": "integer", "b": "integer"})
    schema.check(["a", "b"])
    schema.check([0, 1])
    Schema({0: "integer", 1: "integer"}).check(["a", "b"])


@pytest.mark.parametrize(
    "spec",
    [
        Continuous(),
        Continuous((0, None)),
        Integer((None, 7)),
        Boolean(),
        Categorical(),
        Categorical(("a", 1, 2.5, "1", "")),
        Categorical((1.0, 2.0)),
        Ordinal((False, True)),
        Ordinal((np.int64(3), np.str_("x"), np.float64(0.5))),
        Date(("2020-01-01", "2020-06-01T12:00")),
    ],
)
def test_a_schema_survives_json_with_the_types_of_its_categories(spec):
    schema = Schema({"a": spec, 1: "continuous"})
    stored = json.loads(json.dumps(schema.to_dict(), allow_nan=False))
    restored = Schema.from_dict(stored)
    assert restored == schema
    assert list(restored) == ["a", 1]
    kinds = [type(category) for category in getattr(spec, "categories", None) or ()]
    assert [
        type(category) for category in getattr(restored["a"], "categories", None) or ()
    ] == kinds


def test_a_label_that_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="called by a string or a number"):
        Schema({("a", "b"): "integer"}).to_dict()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Continuous((2, 1)), ValueError, "in order"),
        (lambda: Continuous((1, 2, 3)), ValueError, "a pair"),
        (lambda: Integer((0, "a")), ValueError, "a number or None"),
        (lambda: Integer((float("nan"), 1)), ValueError, "a number or None"),
        (lambda: Date(("2021", "2020")), ValueError, "in order"),
        (lambda: Date(("soon", None)), ValueError, "a date or None"),
        (lambda: Categorical("abc"), TypeError, "a sequence"),
        (lambda: Categorical(("a", "a")), ValueError, "'a' equals another"),
        (lambda: Categorical((1, True)), ValueError, "True equals another"),
        (lambda: Categorical((None,)), TypeError, "string, a number or a boolean"),
        (lambda: Ordinal((1.0, float("inf"))), ValueError, "finite"),
        (lambda: Schema({"a": "boolean"}).bounded({"a": (0, 1)}), ValueError, "has no bounds"),
        (lambda: Schema({"a": "integer"}).bounded({"b": (0, 1)}), ValueError, "no column 'b'"),
    ],
)
def test_descriptions_are_checked(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_an_infinite_bound_is_no_bound():
    assert Continuous((0, np.inf)) == Continuous((0, None))


DAYS = [str(day) for day in np.arange("2020-01-10", "2020-03-10", dtype="M8[D]")]


@pytest.mark.parametrize("wrong", ["soon", "n/a", "2020-02-31", "10.1.2020"])
@pytest.mark.parametrize("place", [0, 7])
def test_a_cell_that_is_no_date_is_missing_in_a_column_of_dates(place, wrong):
    cells = [wrong if k == place else day for k, day in enumerate(DAYS)]
    table = open_table(pd.DataFrame({"when": cells}))
    with pytest.warns(
        UserWarning, match=f"'when' holds dates, but 1 of 60 cells, such as '{wrong}"
    ):
        assert Schema.infer(table)["when"] == Date()
    assert np.flatnonzero(table.missing[:, 0]).tolist() == [place]


def test_a_column_with_too_many_cells_that_are_no_dates_is_text():
    cells = ["soon" if k % 9 == 0 else day for k, day in enumerate(DAYS)]
    assert Schema.infer(pd.DataFrame({"when": cells}))["when"].name == "categorical"
    marked = ["unknown" if k % 3 == 0 else day for k, day in enumerate(DAYS)]
    with pytest.warns(UserWarning, match="20 of 60 cells"):
        assert Schema.infer(pd.DataFrame({"when": marked}))["when"] == Date()


def test_given_kinds_keep_cells_that_are_no_dates():
    table = open_table(pd.DataFrame({"when": ["soon", *DAYS]}))
    assert "soon" in Schema.infer(table, {"when": "categorical"})["when"].categories
    assert not table.missing.any()


@pytest.mark.parametrize("mark", ["n/a", "-", " NA", "?", ""])
def test_marks_of_missing_values_among_numbers_are_missing(mark):
    cells = pd.Series([1.5, mark, 2.25, 3.5], dtype=object)
    table = open_table(pd.DataFrame({"x": cells}))
    with pytest.warns(UserWarning, match="'x' holds numbers, but 1 of 4 cells"):
        assert Schema.infer(table)["x"] == Continuous()
    assert table.missing[:, 0].tolist() == [False, True, False, False]


def test_other_texts_among_numbers_are_categories():
    cells = pd.Series([1, 2, "many", "n/a"] * 5, dtype=object)
    assert Schema.infer(pd.DataFrame({"x": cells}))["x"].categories == (1, 2, "many", "n/a")


@pytest.mark.parametrize("form", ["{:,}", "{}.5", "{}%", "${}", "-{}", "{} €"])
def test_a_warning_says_that_texts_look_like_numbers(form):
    cells = [form.format(1000 + 3 * k) for k in range(40)]
    with pytest.warns(UserWarning, match="'x' looks like numbers, with cells such as .* identif"):
        Schema.infer(pd.DataFrame({"x": cells}))


@pytest.mark.parametrize("kind", [object, "string"])
def test_a_warning_says_that_digits_of_different_widths_look_like_numbers(kind):
    cells = pd.Series([str(5 + 7 * (k % 20)) for k in range(60)], dtype=kind)
    told = "'x' looks like numbers, with cells such as '5', but is categorical; .* schema={'x'"
    with pytest.warns(UserWarning, match=told):
        Schema.infer(pd.DataFrame({"x": cells}))
    assert Schema.infer(pd.DataFrame({"x": cells}), {"x": "categorical"})["x"].name == "categorical"


@pytest.mark.parametrize("codes", [["00701", "10115"], ["007", "12"], ["1", "10", "2"]])
def test_codes_and_few_categories_of_digits_are_not_warned_of(codes):
    """Codes have one width or leading zeros; few categories are coded as digits on purpose."""
    more = [f"{k:0{len(codes[0])}d}" for k in range(20, 32)] if len(codes) == 2 else []
    cells = (codes + more) * 5
    assert Schema.infer(pd.DataFrame({"x": cells}))["x"].name == "categorical"


@pytest.mark.parametrize("form", ["{}", "{:07d}", "user {}", "{}-b", "{}th street"])
def test_names_with_digits_are_no_numbers(form):
    cells = [form.format(1000 + 3 * k) for k in range(40)]
    assert Schema.infer(pd.DataFrame({"x": cells}))["x"] == Identifier()


@pytest.mark.parametrize("frame", ["object", "string", "polars"])
def test_texts_that_mean_missing_values_are_no_categories_of_numbers(frame):
    """They are missing in text files, too. Other columns keep them."""
    cells = {"code": ["1", "n/a", "2", "1"] * 5, "name": ["a", "n/a", "b", "a"] * 5}
    table = pd.DataFrame(cells, dtype="string" if frame == "string" else object)
    table = pl.DataFrame(cells) if frame == "polars" else table
    with pytest.warns(UserWarning, match="'code' holds numbers, but 5 of 20 cells, such as 'n/a'"):
        schema = Schema.infer(table)
    assert schema["code"].categories == ("1", "2")
    assert schema["name"].categories == ("a", "b", "n/a")
