"""What can be asked about: columns with their ranges and categories, and values as people type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["number", "integer", "date", "choice"]
Value: TypeAlias = Any
"""A number, the ISO text of a date, or a category: whatever JSON can carry."""

DAY = 86_400_000_000
"""Microseconds, in which dates are counted, of a day, in which they are drawn."""
STEPS = 200
"""How many steps a slider has, about."""


@dataclass(frozen=True)
class Variable:
    """A column of a model, as a page shows it.

    Args:
        name: what it is called.
        kind: number, integer, date or choice.
        leaf: the node of the graph that holds it.
        low: the least value in training; dates are counted in days since 1970.
        high: the greatest.
        categories: what a choice can be.
        idle: whether it tells nothing, since it never varied.
    """

    name: str
    kind: Kind
    leaf: str
    low: float = 0.0
    high: float = 1.0
    categories: tuple[Any, ...] = ()
    idle: bool = False

    @property
    def step(self) -> float:
        """A round step of a slider over the range.

        Example:
            >>> Variable("age", "number", "age", 0.0, 90.0).step
            0.5
        """
        span = self.high - self.low
        if self.kind in ("integer", "date") or not span > 0.0:
            return 1.0
        rough = span / STEPS
        unit = 10.0 ** math.floor(math.log10(rough))
        return unit * min((1.0, 2.0, 5.0, 10.0), key=lambda k: abs(k * unit - rough))

    @property
    def middle(self) -> Value:
        """The value at which a slider starts: the middle of the range, or the first category."""
        if self.kind == "choice":
            return self.categories[0]
        centre = (self.low + self.high) / 2.0
        return self.value_of(self.low + round((centre - self.low) / self.step) * self.step)

    def parse(self, text: Any) -> Value:
        """What somebody typed, or a slider sent, as a value.

        Raises:
            ValueError: if it is no value of this variable.

        Example:
            >>> Variable("age", "integer", "age").parse(" 41 ")
            41
            >>> Variable("age", "integer", "age").parse("old")
            Traceback (most recent call last):
            ValueError: 'age' takes a whole number such as 0, but got 'old'
        """
        if self.kind == "choice":
            return self._choice(text)
        if self.kind == "date":
            return self._date(text)
        try:
            number = float(str(text).strip().replace("\u2212", "-"))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (self.kind == "integer" and number != round(number)):
            noun = "whole number" if self.kind == "integer" else "number"
            example = self.show(self.middle)
            raise ValueError(f"{self.name!r} takes a {noun} such as {example}, but got {text!r}")
        return int(number) if self.kind == "integer" else number

    def number_of(self, value: Value) -> float:
        """Where a value lies on the axis of this variable; NaN for choices."""
        if self.kind == "choice":
            return math.nan
        return days_of(np.array([value], "M8[us]"))[0] if self.kind == "date" else float(value)

    def value_of(self, number: float) -> Value:
        """The value at a place of the axis, the inverse of `number_of`."""
        if self.kind == "date":
            return str(moments_of(np.array([number]))[0].astype("M8[D]"))
        return round(number) if self.kind == "integer" else float(f"{number:.12g}")

    def show(self, value: Value) -> str:
        """A value in few characters."""
        if self.kind in ("choice", "date"):
            return str(value)
        return spelled(float(value), max(self.decimals, 4))

    def show_number(self, number: float) -> str:
        """A place on the axis in few characters.

        Example:
            >>> Variable("since", "date", "since").show_number(19000.0)
            '2022-01-08'
        """
        if not math.isfinite(number):
            return "–"
        if self.kind == "date":
            return str(self.value_of(number))
        return spelled(number, self.decimals)

    @property
    def decimals(self) -> int:
        """How many decimals tell values apart on a drawing of the range.

        Example:
            >>> Variable("share", "number", "share", 0.0, 1.0).decimals
            3
        """
        span = self.high - self.low
        if not span > 0.0:
            return 4
        return min(max(0, 2 - math.floor(math.log10(span / 3.0))), 9)

    def _choice(self, text: Any) -> Value:
        for category in self.categories:
            if category == text and isinstance(category, bool) == isinstance(text, bool):
                return category
        named = {str(category): category for category in self.categories}
        if str(text).strip() not in named:
            known = ", ".join(list(named)[:6]) + (", …" if len(named) > 6 else "")
            raise ValueError(f"{self.name!r} is one of {known}, but got {text!r}")
        return named[str(text).strip()]

    def _date(self, text: Any) -> Value:
        if isinstance(text, int | float):
            return self.value_of(float(text))
        try:
            moment = np.datetime64(str(text).strip().replace(" ", "T"))
        except ValueError:
            moment = np.datetime64("NaT")
        if np.isnat(moment):
            example = self.show(self.middle)
            raise ValueError(f"{self.name!r} takes a date such as {example}, but got {text!r}")
        return str(moment)


def days_of(moments: Array) -> Array:
    """Moments or durations in days, as float64."""
    kind = moments.dtype.kind
    return np.asarray(moments.astype(f"{kind}8[us]").astype(np.int64) / DAY)


def moments_of(days: Array) -> Array:
    """Days since 1970 as moments."""
    return np.rint(np.asarray(days, dtype=np.float64) * DAY).astype(np.int64).astype("M8[us]")


def spelled(number: float, decimals: int = 4) -> str:
    """A number as people write it, with narrow spaces between thousands.

    Example:
        >>> spelled(1234567.0), spelled(0.123456), spelled(-3.0), spelled(2e-9)
        ('1\u202f234\u202f567', '0.1235', '−3', '2e−09')
    """
    if not math.isfinite(number):
        return "–"
    if number and not 1e-5 <= abs(number) < 1e12:
        return f"{number:.3g}".replace("-", "−")
    text = f"{number:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return ("0" if text == "-0" else text).replace(",", "\u202f").replace("-", "−")


def percent(share: float) -> str:
    """A share in percent; one that is nearly certain does not look certain.

    Example:
        >>> percent(0.25), percent(0.9999), percent(1.0), percent(0.001)
        ('25\u202f%', '>99\u202f%', '100\u202f%', '<1\u202f%')
    """
    if 0.995 <= share < 1.0:
        return ">99\u202f%"
    return "<1\u202f%" if 0.0 < share < 0.005 else f"{100 * share:.0f}\u202f%"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more there are.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        "'a', 'b' and 1 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
