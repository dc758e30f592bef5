"""The kinds of a table's columns: read off the table, or given."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

from vfg.tables.cells import (
    DAY_OR_MONTH,
    NEARLY_ALL,
    Array,
    Column,
    Label,
    as_objects,
    find_common_layouts,
    is_missing_mark,
    is_plain_number,
    looks_like_number,
    parse_moments,
)
from vfg.tables.frames import open_table, quote
from vfg.utils.specs import Spec, spec_from_dict

Category: TypeAlias = str | int | float | bool
Bounds: TypeAlias = tuple[float | None, float | None]
Moments: TypeAlias = tuple[str | None, str | None]

UNBOUNDED: tuple[None, None] = (None, None)


@dataclass(frozen=True)
class ColumnSpec(Spec):
    """Base of the kinds of columns."""


@dataclass(frozen=True)
class NumberSpec(ColumnSpec):
    """Base of the kinds of numbers.

    Args:
        bounds: the lowest and the highest value of filled cells; None for the observed one.

    Raises:
        ValueError: for bounds that are no pair of finite numbers in order.
    """

    bounds: Bounds = UNBOUNDED

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", _check_bounds(self.bounds, _finite))


@dataclass(frozen=True)
class Continuous(NumberSpec):
    """Real numbers.

    Example:
        >>> Continuous(bounds=(0, None))
        Continuous(bounds=(0.0, None))
    """

    name: ClassVar[str] = "continuous"


@dataclass(frozen=True)
class Whole(Continuous):
    """Real numbers that are all whole, as integers with gaps are in pandas: fills are rounded."""

    name: ClassVar[str] = "whole"


@dataclass(frozen=True)
class FewValued(Continuous):
    """Real numbers that take few values, such as the years 1999 and 2008.

    Draws, medians and ends of intervals are values that occur. Filled cells are, too, unless that
    increases the squared error of held-out cells by more than 2 %. Then they are means, which are
    rounded if all values are whole and the table is a frame: its floats may be integers with gaps.
    With `bend=False` there are no held-out cells; declared columns are compared at observed cells.

    Args:
        bounds: the lowest and the highest value of filled cells; None for the observed one.
        values: those that occur; None, or none of them, for those that a table holds.

    Raises:
        ValueError: for values that are no finite numbers.

    Example:
        >>> FewValued(values=(2008, 1999)).values
        (1999.0, 2008.0)
    """

    name: ClassVar[str] = "few valued"
    values: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is not None:
            numbers = [_finite(value) for value in self.values]
            if None in numbers:
                raise ValueError(f"values must be finite numbers, but are {self.values!r}")
            object.__setattr__(self, "values", tuple(sorted(set(numbers))))


@dataclass(frozen=True)
class Integer(NumberSpec):
    """Whole numbers: filled cells are rounded."""

    name: ClassVar[str] = "integer"


@dataclass(frozen=True)
class Boolean(ColumnSpec):
    """True or false, or numbers that are all 0 or 1."""

    name: ClassVar[str] = "boolean"


@dataclass(frozen=True)
class CategorySpec(ColumnSpec):
    """Base of the kinds of categories.

    Args:
        categories: strings, numbers or booleans that are all different; None for those that a table
            holds.

    Raises:
        TypeError: for categories of another type.
        ValueError: for a category that is repeated or not finite.
    """

    categories: tuple[Category, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _check_categories(self.categories))


@dataclass(frozen=True)
class Categorical(CategorySpec):
    """One of several categories without order.

    Example:
        >>> Categorical(("red", "green")).to_dict()
        {'name': 'categorical', 'categories': ('red', 'green')}
    """

    name: ClassVar[str] = "categorical"


@dataclass(frozen=True)
class Ordinal(CategorySpec):
    """One of several categories in order; filled cells lie between the observed extremes.

    Categories stand from the lowest to the highest. None takes the order that the dtype of a column
    declares, or else that of its numbers.
    """

    name: ClassVar[str] = "ordinal"


@dataclass(frozen=True)
class Date(ColumnSpec):
    """Dates, times or durations; filled cells have the resolution of the observed ones.

    Args:
        bounds: the earliest and the latest moment that a filled cell may have, as dates or ISO
            strings in the column's own time zone; None for the observed one. Durations have none.

    Raises:
        ValueError: for bounds that are no pair of moments in order.

    Example:
        >>> Date(bounds=("2020-01-01", None)).bounds
        ('2020-01-01', None)
    """

    name: ClassVar[str] = "date"
    bounds: Moments = UNBOUNDED

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", _check_bounds(self.bounds, _iso, np.datetime64))


@dataclass(frozen=True)
class Identifier(ColumnSpec):
    """Names or free text: nearly every cell differs, so they are no evidence and not filled."""

    name: ClassVar[str] = "identifier"


@dataclass(frozen=True)
class Empty(ColumnSpec):
    """Objects without any observed cell, so that their kind is unknown: not filled."""

    name: ClassVar[str] = "empty"


KINDS: dict[str, type[ColumnSpec]] = {
    kind.name: kind
    for kind in (
        Continuous, Whole, FewValued, Integer, Boolean, Categorical, Ordinal, Date, Identifier,
        Empty,
    )
}  # fmt: skip
"""The kinds of columns by name."""


def _as_spec(label: Any, given: ColumnSpec | str) -> ColumnSpec:
    """A description, or the name of one."""
    if isinstance(given, ColumnSpec):
        return given
    if not isinstance(given, str):
        raise TypeError(
            f"column {label!r} needs the name of a kind or a description such as "
            f"Ordinal(('low', 'high')), but got {given!r}"
        )
    if given not in KINDS:
        known = ", ".join(KINDS)
        raise ValueError(f"column {label!r} cannot be {given!r}; known kinds: {known}")
    return KINDS[given]()


def _check_bounds(
    bounds: Any, parse: Callable[[Any], Any], as_number: Callable[[Any], Any] = float
) -> tuple[Any, Any]:
    """A pair of bounds, each parsed or None, in order."""
    pair = (None, None) if bounds is None else bounds
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError(f"bounds must be a pair (lowest, highest), but are {bounds!r}")
    low, high = map(parse, pair)
    if low is not None and high is not None and as_number(low) > as_number(high):
        raise ValueError(f"bounds must be in order, but {low!r} is above {high!r}; swap them")
    return low, high


def _finite(bound: Any) -> float | None:
    # An infinite bound is no bound, and JSON has no infinity.
    if bound is None or (isinstance(bound, Real) and math.isinf(bound)):
        return None
    if isinstance(bound, bool) or not isinstance(bound, Real) or math.isnan(bound):
        raise ValueError(f"a bound must be a number or None, but is {bound!r}")
    return float(bound)


def _iso(bound: Any) -> str | None:
    if bound is None:
        return None
    try:
        moment = np.datetime64(bound.isoformat() if isinstance(bound, date) else bound)
    except ValueError as error:
        raise ValueError(f"a bound must be a date or None, but is {bound!r}") from error
    if np.isnat(moment):
        raise ValueError(f"a bound must be a date or None, but is {bound!r}")
    return str(moment)


def _check_categories(categories: Iterable[Any] | None) -> tuple[Category, ...] | None:
    if categories is None:
        return None
    if isinstance(categories, str):
        raise TypeError(f"categories must be a sequence such as ('a', 'b'), but are {categories!r}")
    checked = tuple(_check_category(category) for category in categories)
    if len(dict.fromkeys(checked)) < len(checked):
        seen = [value for place, value in enumerate(checked) if value in checked[:place]]
        raise ValueError(f"categories must differ, but {seen[0]!r} equals another; leave it out")
    return checked


def _check_category(category: Any) -> Category:
    """A category as a plain Python value."""
    value = category.item() if isinstance(category, np.generic) else category
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, bool | int | float):
        raise TypeError(
            f"a category must be a string, a number or a boolean, but {category!r} is a "
            f"{type(category).__name__}; convert it"
        )
    if not math.isfinite(value):
        raise ValueError(f"a category must be finite, but one is {category!r}; mark it as missing")
    return value


Given: TypeAlias = Mapping[Any, ColumnSpec | str]
"""Kinds of some columns, by label: the name of a kind, or a description."""

FITTING: dict[str, tuple[type[ColumnSpec], ...]] = {
    "float": (Continuous, Whole, FewValued, Integer, Boolean, Categorical, Ordinal),
    "integer": (Integer, Continuous, Whole, FewValued, Boolean, Categorical, Ordinal),
    "boolean": (Boolean, Categorical, Ordinal),
    "text": (Categorical, Ordinal, Identifier, Date),
    "category": (Categorical, Ordinal, Identifier),
    "date": (Date,),
    "duration": (Date,),
    "empty": (
        Empty,
        Continuous,
        Whole,
        FewValued,
        Integer,
        Boolean,
        Categorical,
        Ordinal,
        Date,
        Identifier,
    ),
}
"""The kinds that a column of each storage can be, the one that is inferred first."""
MOST_VALUES = 10
"""The most different numbers of a few-valued column. Rounding to whole numbers adds at least a
hundredth of the variance where there are fewer, and half of it where there are two."""
CELLS_PER_VALUE = 5
"""Observed cells per value that a few-valued column has at least."""
MOST_SIMPLEX = 9
"""The most categories that become the corners of a simplex: those of eight dimensions."""
MOST_REPEATED = 1.1
"""Cells per category up to which a column counts as identifiers or free text: a guess would be
another row's name in nine of ten cases even where it is among those that repeat."""
LARGEST_WHOLE = 2.0**53
"""Numbers from here on are whole whatever was measured."""


class Schema(Mapping[Label, ColumnSpec]):
    """The kind of every column of a table, in the order of the columns.

    Kinds that are not given are inferred:

    - floats are few valued if they have at most ten different numbers, with five cells each on
      average; else whole if all are whole numbers; else continuous;
    - integer dtypes, nullable ones included, are integer; booleans are boolean;
    - strings, and strings mixed with numbers, are categorical, but identifiers if there are more
      than nine and nearly all differ;
    - ordered categoricals of pandas are ordinal, all others (and enums) are treated as strings;
    - dates, times and durations are dates, and so are strings if nine of ten are dates or times
      in one layout, such as `2020-12-31`, `31.12.2020 12:30`, `12/31/2020` or `2020/12/31`, or
      durations such as `01:30:00`. The others count as missing, with a warning. If no day is above
      12, so that days and months cannot be distinguished, they are strings;
    - Python objects are what all cells of the column are, and empty if no cell is observed. Among
      numbers, strings such as `n/a` and `-` count as missing, with a warning. Numbers that are
      strings stay strings. If there are more than nine different ones, a warning says so, unless
      they are codes: digits of one width, or with leading zeros.

    Args:
        columns: labels and kinds.

    Raises:
        ValueError: for an unknown kind.

    Example:
        >>> Schema({"age": "integer", "grade": Ordinal(("low", "mid", "high"))})["grade"]
        Ordinal(categories=('low', 'mid', 'high'))
    """

    def __init__(self, columns: Given) -> None:
        self._specs = {label: _as_spec(label, given) for label, given in columns.items()}

    @classmethod
    def infer(
        cls,
        table: Any,
        given: Given | None = None,
        *,
        missing_values: Any = np.nan,
        discrete: bool = True,
    ) -> Schema:
        """Read the kinds off a table, except for those that are given.

        Args:
            table: an array, nested sequences or a frame.
            given: kinds of some columns, by label (in arrays by position).
            missing_values: what marks missing cells besides NaN, None, NaT and NA.
            discrete: whether floats may be inferred to be whole or few valued.

        Returns:
            The schema, with the categories of every categorical or ordinal column.

        Raises:
            ValueError: for repeated or unknown labels, or a kind that a column cannot be.
            TypeError: for cells that are no numbers, strings, booleans or dates.

        Example:
            >>> Schema.infer([[1.5, "b"], [2.5, "a"]])
            Schema({0: Continuous(bounds=(None, None)), 1: Categorical(categories=('a', 'b'))})
        """
        opened = open_table(table, missing_values)
        check_labels(opened.labels, given)
        columns = opened.columns()
        known = dict(given or {})
        inferred = {c.label: _infer(c, discrete) for c in columns if c.label not in known}
        schema = cls(inferred | known)
        opened.hide_unreadable(schema.dates(opened.labels))
        return schema.resolve(opened.columns())

    def resolve(self, columns: Sequence[Column]) -> Schema:
        """The same schema with the categories that were left open, checked against a table."""
        return Schema({column.label: _resolve(self[column.label], column) for column in columns})

    def dates(self, labels: Sequence[Label]) -> dict[int, None]:
        """The positions of the columns of dates, as `Table.hide_unreadable` takes them."""
        return {k: None for k, label in enumerate(labels) if isinstance(self[label], Date)}

    def bounded(self, bounds: Mapping[Any, Bounds | Moments]) -> Schema:
        """The same schema with other bounds for some columns.

        Raises:
            ValueError: for an unknown label, or a column that has categories.

        Example:
            >>> Schema({"age": "integer"}).bounded({"age": (0, 120)})["age"]
            Integer(bounds=(0.0, 120.0))
        """
        check_labels(tuple(self), bounds)
        specs = dict(self)
        for label, pair in bounds.items():
            spec = specs[label]
            if not isinstance(spec, Continuous | Integer | Date):
                raise ValueError(f"column {label!r} is {spec.name} and has no bounds; leave it out")
            specs[label] = replace(spec, bounds=pair)  # type: ignore[arg-type]
        return Schema(specs)

    def check(self, labels: Sequence[Label]) -> None:
        """Refuse a table with other columns, or with the same ones in another order.

        Names are compared if both sides have them; labels that count the columns are no names.

        Raises:
            ValueError: what is wrong, and with which columns.

        Example:
            >>> Schema({"a": "integer", "b": "integer"}).check(["b", "a"])
            Traceback (most recent call last):
            ValueError: The feature names should match those that were passed during fit, and be in
            the same order, but the columns are 'b', 'a' in place of 'a', 'b'; reorder them
        """
        known = tuple(self)
        if not (_are_positions(labels) or _are_positions(known)):
            _check_names(known, tuple(labels))
        if len(labels) != len(known):
            raise ValueError(
                f"X has {len(labels)} features, but the schema is expecting {len(known)} features "
                "as input; select the columns of the table that was fitted"
            )

    def to_dict(self) -> dict[str, Any]:
        """Labels and kinds, ready for JSON.

        Raises:
            TypeError: for a label that is neither a string nor a number.
        """
        for label in self:
            if not isinstance(label, str | int | float):
                raise TypeError(
                    f"a column must be called by a string or a number to be stored, but one is "
                    f"called {label!r}; rename it"
                )
        return {"columns": [{"label": label, **spec.to_dict()} for label, spec in self.items()]}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`.

        Example:
            >>> schema = Schema({"age": "integer"})
            >>> Schema.from_dict(schema.to_dict()) == schema
            True
        """
        columns = [dict(column) for column in description["columns"]]
        return cls({column.pop("label"): spec_from_dict(ColumnSpec, column) for column in columns})

    def __getitem__(self, label: Label) -> ColumnSpec:
        return self._specs[label]

    def __iter__(self) -> Iterator[Label]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __repr__(self) -> str:
        return f"Schema({self._specs!r})"


def _infer(column: Column, discrete: bool) -> ColumnSpec:
    """The kind of a column, from its storage and its cells."""
    if column.ordered:
        return Ordinal()
    kind, cells = FITTING[column.storage][0], column.observed
    if kind is Categorical:
        different = dict.fromkeys(cells.tolist())
        layouts = find_common_layouts(cells.tolist())[0] if column.storage == "text" else []
        if len(layouts) == 1:
            return Date()
        if layouts:
            warnings.warn(
                f"the text column {column.label!r} looks like dates, but {DAY_OR_MONTH}",
                stacklevel=2,
            )
        spec = Identifier() if are_identifiers(len(different), len(cells)) else kind()
        if column.storage == "text" and len(different) > MOST_SIMPLEX:
            _warn_of_numbers(column.label, list(different), spec.name)
        return spec
    if column.storage != "float" or not discrete or not len(cells):
        return kind()
    # Most columns have many values among the first cells, which are sorted faster than all.
    values = np.unique(cells[: 100 * MOST_VALUES])
    values = np.unique(cells) if len(values) <= MOST_VALUES else values
    if 1 < len(values) <= MOST_VALUES and len(cells) >= CELLS_PER_VALUE * len(values):
        return FewValued()
    small = len(values) > 1 and bool((np.abs(cells) < LARGEST_WHOLE).all())
    return Whole() if small and bool((cells == np.rint(cells)).all()) else kind()


def _warn_of_numbers(label: Label, texts: Sequence[Any], kind: str) -> None:
    """Warn of texts that look like numbers, unless they are codes."""
    if not any(looks_like_number(text) for text in texts[:20]) or are_codes(texts):
        return
    numbers = [text for text in texts if looks_like_number(text)]
    others = [text for text in texts if not is_missing_mark(text)]
    if len(numbers) >= NEARLY_ALL * len(others):
        odd = [text for text in texts if not str(text).isdigit()] or numbers
        example = next((text for text in odd if not is_plain_number(text)), odd[0])
        warnings.warn(
            f"the text column {label!r} looks like numbers, with cells such as {example!r}, but is "
            f"{kind}; convert it, as by pandas.to_numeric(..., errors='coerce') without signs such "
            f"as '%', or give its kind, as by schema={{{label!r}: {kind!r}}}, to avoid this "
            "warning",
            stacklevel=2,
        )


def are_codes(texts: Sequence[Any]) -> bool:
    """Whether all texts are digits of the same width, or digits of which some begin with zeros.

    Example:
        >>> are_codes(["10115", "80331"]), are_codes(["007", "12"]), are_codes(["7", "12", "105"])
        (True, True, False)
    """
    digits = [text for text in texts if isinstance(text, str) and text.isdigit()]
    same_width = len({len(text) for text in digits}) == 1
    padded = any(text[0] == "0" and len(text) > 1 for text in digits)
    return len(digits) == len(texts) and (same_width or padded)


def are_identifiers(different: int, cells: int) -> bool:
    """Whether so many different categories among so many cells are identifiers or free text.

    Example:
        >>> are_identifiers(100, 105), are_identifiers(50, 105), are_identifiers(5, 5)
        (True, False, False)
    """
    return different > MOST_SIMPLEX and cells <= MOST_REPEATED * different


def _resolve(spec: ColumnSpec, column: Column) -> ColumnSpec:
    """A description that fits a column, with its categories or values."""
    legal = FITTING[column.storage]
    if not isinstance(spec, legal):
        raise ValueError(
            f"column {column.label!r} holds {column.storage} cells and cannot be {spec.name}; "
            f"choose one of {', '.join(kind.name for kind in legal)}, or convert it"
        )
    if isinstance(spec, Categorical) and spec.categories is None:
        return Categorical(distinct(column.observed))
    if isinstance(spec, Ordinal) and spec.categories is None:
        return Ordinal(_natural_order(column))
    if isinstance(spec, Date):
        parse_moments(column)  # refuses texts that are no dates
    if isinstance(spec, FewValued) and not spec.values:
        # Numbers as objects may be of types that floats do not compare with.
        values = np.unique(column.observed.astype(np.float64)).tolist()
        return FewValued(spec.bounds, tuple(values))
    return spec


def check_storage(spec: ColumnSpec, column: Column) -> None:
    """Refuse a column that holds what it did not in fitting; an empty one may hold anything."""
    fits = isinstance(spec, (Empty, *FITTING[column.storage]))
    if not fits and not column.missing.all():
        raise ValueError(
            f"the column {column.label!r} was {spec.name} in fitting, but now holds "
            f"{column.storage} cells; convert it, or remove the cells that do not fit"
        )


def distinct(cells: Array) -> tuple[Any, ...]:
    """The different cells in order, numbers before strings.

    Example:
        >>> distinct(np.array(["b", 2, "a", 1, "b"], dtype=object))
        (1, 2, 'a', 'b')
    """
    if cells.dtype.kind in "OU":
        different = dict.fromkeys(cells.tolist())
        return tuple(sorted(different, key=lambda cell: (isinstance(cell, str), cell)))
    return tuple(as_objects(np.unique(cells)).tolist())


def _natural_order(column: Column) -> tuple[Any, ...]:
    if column.categories is not None:
        return column.categories
    cells = distinct(column.observed)
    if any(isinstance(cell, str) for cell in cells):
        raise ValueError(
            f"the order of column {column.label!r} is unknown, since its cells are strings; give "
            "it from the lowest to the highest, as in Ordinal(('low', 'high'))"
        )
    return cells


def check_labels(labels: Sequence[Label], given: Mapping[Any, Any] | None) -> None:
    """Refuse labels that repeat, and settings of a column that does not exist."""
    known = dict.fromkeys(labels)
    if len(known) < len(labels):
        repeated = [label for place, label in enumerate(labels) if label in labels[:place]]
        raise ValueError(f"columns need different names, but {quote(repeated)} repeats; rename it")
    unknown = [label for label in given or {} if label not in known]
    if unknown:
        raise ValueError(f"there is no column {quote(unknown)}; there are {quote(labels)}")


def _are_positions(labels: Sequence[Label]) -> bool:
    return list(labels) == list(range(len(labels)))


def _check_names(known: tuple[Label, ...], labels: tuple[Label, ...]) -> None:
    missing = [label for label in known if label not in labels]
    extra = [label for label in labels if label not in known]
    wrong = [
        f"{words} {quote(columns)}"
        for words, columns in (("lacks", missing), ("has the unknown", extra))
        if columns
    ]
    should = "The feature names should match those that were passed during fit"
    if wrong:
        raise ValueError(f"{should}, but the table {' and '.join(wrong)}; select or rename columns")
    if labels != known:
        raise ValueError(
            f"{should}, and be in the same order, but the columns are {quote(labels)} in place of "
            f"{quote(known)}; reorder them"
        )
