"""What a column of a table can be: small, frozen and JSON-friendly descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

from vfg.utils.specs import Spec

Category: TypeAlias = str | int | float | bool
Bounds: TypeAlias = tuple[float | None, float | None]
Moments: TypeAlias = tuple[str | None, str | None]

UNBOUNDED: tuple[None, None] = (None, None)


@dataclass(frozen=True)
class ColumnSpec(Spec):
    """Base of the kinds of columns."""


@dataclass(frozen=True)
class Continuous(ColumnSpec):
    """Real numbers.

    Args:
        bounds: the lowest and the highest value that a filled cell may have; None for no bound.

    Raises:
        ValueError: for bounds that are no pair of finite numbers in order.

    Example:
        >>> Continuous(bounds=(0, None))
        Continuous(bounds=(0.0, None))
    """

    name: ClassVar[str] = "continuous"
    bounds: Bounds = UNBOUNDED

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds))


@dataclass(frozen=True)
class Integer(ColumnSpec):
    """Whole numbers: filled cells are rounded, and not kept in the observed range unless asked.

    Args:
        bounds: the lowest and the highest value that a filled cell may have; None for no bound.

    Raises:
        ValueError: for bounds that are no pair of finite numbers in order.
    """

    name: ClassVar[str] = "integer"
    bounds: Bounds = UNBOUNDED

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds))


@dataclass(frozen=True)
class Boolean(ColumnSpec):
    """True or false, or numbers that are all 0 or 1."""

    name: ClassVar[str] = "boolean"


@dataclass(frozen=True)
class Categorical(ColumnSpec):
    """One of several categories without order.

    Args:
        categories: strings, numbers or booleans that are all different; None for those that a table
            holds.

    Raises:
        TypeError: for categories of another type.
        ValueError: for a category that is repeated or not finite.

    Example:
        >>> Categorical(("red", "green")).to_dict()
        {'name': 'categorical', 'categories': ('red', 'green')}
    """

    name: ClassVar[str] = "categorical"
    categories: tuple[Category, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _checked_categories(self.categories))


@dataclass(frozen=True)
class Ordinal(ColumnSpec):
    """One of several categories in order; filled cells stay between the ends that were observed.

    Args:
        categories: from the lowest to the highest; None for the order that the dtype of a column
            declares, or else that of its numbers.

    Raises:
        TypeError: for categories that are no strings, numbers or booleans.
        ValueError: for a category that is repeated or not finite.
    """

    name: ClassVar[str] = "ordinal"
    categories: tuple[Category, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _checked_categories(self.categories))


@dataclass(frozen=True)
class Date(ColumnSpec):
    """Dates, times or durations, of which filled cells have the resolution of the observed ones.

    Args:
        bounds: the earliest and the latest moment that a filled cell may have, as dates or ISO
            strings on the clock of the column's own time zone; None for no bound. Durations have no
            bounds.

    Raises:
        ValueError: for bounds that are no pair of moments in order.

    Example:
        >>> Date(bounds=("2020-01-01", None)).bounds
        ('2020-01-01', None)
    """

    name: ClassVar[str] = "date"
    bounds: Moments = UNBOUNDED

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", _checked_moments(self.bounds))


KINDS: dict[str, type[ColumnSpec]] = {
    kind.name: kind for kind in (Continuous, Integer, Boolean, Categorical, Ordinal, Date)
}
"""The kinds of columns by name."""


def as_spec(label: Any, given: ColumnSpec | str) -> ColumnSpec:
    """A description, or the name of one.

    Raises:
        ValueError: for a name that no kind has.
        TypeError: for anything else.

    Example:
        >>> as_spec("age", "integer")
        Integer(bounds=(None, None))
    """
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


def _pair(bounds: Any) -> tuple[Any, Any]:
    if bounds is None:
        return UNBOUNDED
    found = tuple(bounds) if isinstance(bounds, list | tuple) else ()
    if len(found) != 2:
        raise ValueError(f"bounds must be a pair (lowest, highest), but are {bounds!r}")
    return found[0], found[1]


def _in_order(bounds: tuple[Any, Any]) -> None:
    low, high = bounds
    if low is not None and high is not None and low > high:
        raise ValueError(f"bounds must be in order, but {low!r} is above {high!r}; swap them")


def _checked_bounds(bounds: Any) -> Bounds:
    found = tuple(_finite(bound) for bound in _pair(bounds))
    _in_order((found[0], found[1]))
    return found[0], found[1]


def _finite(bound: Any) -> float | None:
    # An infinite bound is no bound, and JSON has no infinity.
    if bound is None or (isinstance(bound, Real) and math.isinf(bound)):
        return None
    if isinstance(bound, bool) or not isinstance(bound, Real) or math.isnan(bound):
        raise ValueError(f"a bound must be a number or None, but is {bound!r}")
    return float(bound)


def _checked_moments(bounds: Any) -> Moments:
    found = tuple(_iso(bound) for bound in _pair(bounds))
    _in_order(tuple(None if bound is None else np.datetime64(bound) for bound in found))  # type: ignore[arg-type]
    return found[0], found[1]


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


def _checked_categories(categories: Iterable[Any] | None) -> tuple[Category, ...] | None:
    if categories is None:
        return None
    if isinstance(categories, str):
        raise TypeError(f"categories must be a sequence such as ('a', 'b'), but are {categories!r}")
    found = tuple(_plain(category) for category in categories)
    if len(dict.fromkeys(found)) < len(found):
        seen = [value for place, value in enumerate(found) if value in found[:place]]
        raise ValueError(f"categories must differ, but {seen[0]!r} equals another; leave it out")
    return found


def _plain(category: Any) -> Category:
    plain = category.item() if isinstance(category, np.generic) else category
    if isinstance(plain, str):
        return str(plain)
    if not isinstance(plain, bool | int | float):
        raise TypeError(
            f"a category must be a string, a number or a boolean, but {category!r} is a "
            f"{type(category).__name__}; convert it"
        )
    if not math.isfinite(plain):
        raise ValueError(f"a category must be finite, but one is {category!r}; mark it as missing")
    return plain
