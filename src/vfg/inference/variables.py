"""Model, the protocol of all models; Variable, a column with its range or categories; Marginal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from vfg.distributions.likelihoods import Bernoulli, Categorical
from vfg.graph import Graph
from vfg.graph.checks import suggestion
from vfg.inputs import Name, Tabular, leaf_labels

if TYPE_CHECKING:
    from vfg.inference.answers import Answer

Array: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["number", "integer", "date", "choice"]
Value: TypeAlias = Any
"""A number, the ISO text of a date, or a category: whatever JSON can carry."""

DAY = 86_400_000_000
"""Microseconds, in which dates are counted, of a day, in which they are drawn."""
STEPS = 200
"""About how many steps a slider has."""
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""Spellings of truth values, in small letters."""
LATENT_RANGE = 3.0
"""Deviations of a standard Normal root that a drawing of a latent coordinate shows."""


@dataclass(frozen=True)
class Variable:
    """A column of a model: its name, its range or categories, and how its values are written.

    Args:
        name: under which `infer` takes it as evidence and as a target.
        kind: number, integer, date or choice.
        leaf: the node of the graph that holds it.
        low: the least value in training; dates are counted in days since 1970, durations in days.
        high: the greatest.
        categories: what a choice can be.
        idle: whether it is constant in training, and so no evidence.
        place: its position among the columns of the leaf.
        layout: how the table wrote dates that are not in ISO form, as their order and mark: `dmy.`
            for 31.12.2020.
        guessed: whether the range is not that of a table, because the model was not fitted.
    """

    name: str
    kind: Kind
    leaf: str
    low: float = 0.0
    high: float = 1.0
    categories: tuple[Any, ...] = ()
    idle: bool = False
    place: int = 0
    layout: str = ""
    guessed: bool = False

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
        """Text or a number from a user as a value.

        Raises:
            ValueError: if it is no value of this variable.

        Example:
            >>> Variable("age", "integer", "age").parse(" 41 ")
            41
            >>> Variable("mass", "number", "mass").parse("4,500.5")
            4500.5
            >>> Variable("age", "integer", "age").parse("old")
            Traceback (most recent call last):
            ValueError: 'age' takes a whole number such as 0, but got 'old'
            >>> Variable("zip", "choice", "zip", categories=("00701", "10115")).parse("00701")
            '00701'
            >>> Variable("day", "date", "day", layout="dmy/").parse("4/3/2021")
            '2021-03-04'
        """
        if self.kind == "choice":
            return self._choice(text)
        if self.kind == "date":
            return self._date(text)
        try:
            number = float(_ungroup(str(text)))
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
        if isinstance(value, timedelta | np.timedelta64):
            return float(days_of(np.array([value], "m8[us]"))[0])
        return days_of(np.array([value], "M8[us]"))[0] if self.kind == "date" else float(value)

    def describe_range(self, value: Value, *, margin: float = 0.0) -> str:
        """The range of the table if a value lies outside of it, else nothing.

        Args:
            value: the value.
            margin: how far outside it may lie, in widths of the range.

        Example:
            >>> Variable("age", "integer", "age", 18.0, 90.0).describe_range(200)
            'the table has values from 18 to 90'
            >>> Variable("age", "integer", "age", 18.0, 90.0).describe_range(91, margin=0.1)
            ''
        """
        if self.kind == "choice" or self.idle or self.guessed:
            return ""
        if getattr(value, "tzinfo", None) is not None:
            value = value.replace(tzinfo=None)  # hours do not matter here
        slack = margin * (self.high - self.low)
        if self.low - slack <= self.number_of(value) <= self.high + slack:
            return ""
        low, high = map(self.show_number, (self.low, self.high))
        return f"the table has values from {low} to {high}"

    def value_of(self, number: float) -> Value:
        """The value at a place of the axis, the inverse of `number_of`.

        Dates have a time of day if one end of the range has.

        Example:
            >>> Variable("since", "date", "since", 19000.0, 19001.0).value_of(19000.5)
            '2022-01-08'
            >>> Variable("since", "date", "since", 19000.25, 19001.0).value_of(19000.5)
            '2022-01-08T12:00:00'
        """
        if self.kind == "date":
            return str(moments_of(np.array([number]))[0].astype(f"M8[{self._unit}]"))
        return round(number) if self.kind == "integer" else float(f"{number:.12g}")

    def show(self, value: Value) -> str:
        """A value in few characters."""
        if self.kind in ("choice", "date"):
            return str(value)
        return format_number(float(value), max(self.decimals, 4))

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
        return format_number(number, self.decimals)

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
        most = 2 if self.kind == "integer" else 9
        return min(max(0, 2 - math.floor(math.log10(span / 3.0))), most)

    @property
    def _unit(self) -> str:
        """The coarsest of day, second and microsecond in which the ends of the range are whole."""
        ends = moments_of(np.array([self.low, self.high]))
        return next((u for u in ("D", "s") if (ends == ends.astype(f"M8[{u}]")).all()), "us")

    def _choice(self, text: Any) -> Value:
        if not self.categories:
            raise ValueError(f"no value of {self.name!r} was seen in fitting; leave it out")
        for category in self.categories:
            if category == text and isinstance(category, bool) == isinstance(text, bool):
                return category
        named = {str(category): category for category in self.categories}
        named |= {str(c).removesuffix(".0"): c for c in self.categories if isinstance(c, float)}
        if any(isinstance(category, bool) for category in self.categories):
            named |= {word: truth for word, truth in TRUTHS.items() if truth in self.categories}
        typed = str(text).strip()
        typed = typed if typed in named else typed.lower()
        if typed not in named:
            more = ", …" if len(self.categories) > 6 else ""
            known = ", ".join(map(str, self.categories[:6])) + more
            close = suggestion(str(text), map(str, self.categories))
            hint = f"; {close}" if close.startswith("did") else ""
            raise ValueError(f"{self.name!r} is one of {known}, but got {text!r}{hint}")
        return named[typed]

    def _date(self, text: Any) -> Value:
        if isinstance(text, int | float):
            return self.value_of(float(text))
        try:
            moment = np.datetime64(_as_iso(str(text).strip(), self.layout).replace(" ", "T"))
        except ValueError:
            moment = np.datetime64("NaT", "us")
        if np.isnat(moment):
            example = self.show(self.middle)
            raise ValueError(f"{self.name!r} takes a date such as {example}, but got {text!r}")
        return str(moment)


def _as_iso(text: str, layout: str) -> str:
    """A date in the layout of a table as ISO text; other texts as they are.

    Example:
        >>> _as_iso("12/31/2020 9:30", "mdy/"), _as_iso("2020-12-31", "mdy/")
        ('2020-12-31 09:30', '2020-12-31')
    """
    order, mark = layout[:3], re.escape(layout[3:])
    if sorted(order) != ["d", "m", "y"]:
        return text
    digits = {"d": "[0-9]{1,2}", "m": "[0-9]{1,2}", "y": "[0-9]{4}"}
    date = mark.join(f"(?P<{part}>{digits[part]})" for part in order)
    found = re.fullmatch(f"{date}(?:[ T](?P<hour>[0-9]{{1,2}})(?P<rest>:.*))?", text)
    if found is None:
        return text
    clock = f" {int(found['hour']):02d}{found['rest']}" if found["hour"] else ""
    return f"{found['y']}-{int(found['m']):02d}-{int(found['d']):02d}{clock}"


def _ungroup(text: str) -> str:
    """A number as people type it, without separators of thousands: 4 500, 4,500.5 or 4'500.

    Spaces and apostrophes must stand between groups of three digits, and so must commas, so that
    a decimal comma as in 0,5 or 0,500 is refused rather than read as something else.
    """
    plain = text.strip().replace("\u2212", "-")
    grouped = re.fullmatch(
        r"([+-]?[1-9]\d{0,2})((?:[ ,'’\u00a0\u2009\u202f]\d{3})+)(\.\d*)?", plain
    )
    if grouped is None or len(set(grouped[2][::4])) > 1:
        return plain
    return grouped[1] + re.sub(r"\D", "", grouped[2]) + (grouped[3] or "")


def is_missing_value(value: Any) -> bool:
    """Whether a single value is None, NaN, NaT or the missing value of pandas.

    Example:
        >>> is_missing_value(None), is_missing_value(math.nan), is_missing_value("")
        (True, True, False)
    """
    # The missing value of pandas refuses to be compared.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value)


def days_of(moments: Array) -> Array:
    """Moments or durations in days, as float64."""
    kind = moments.dtype.kind
    return np.asarray(moments.astype(f"{kind}8[us]").astype(np.int64) / DAY)


def moments_of(days: Array) -> Array:
    """Days since 1970 as moments."""
    return np.rint(np.asarray(days, dtype=np.float64) * DAY).astype(np.int64).astype("M8[us]")


def format_number(number: float, decimals: int = 4) -> str:
    """A number as text, with narrow spaces between thousands from five digits on.

    Numbers of four digits, many of which are years, have none.

    Example:
        >>> [format_number(x) for x in (1234567.0, 2008.0, 0.123456, -3.0, 2e-9)]
        ['1\u202f234\u202f567', '2008', '0.1235', '−3', '2e−09']
    """
    if not math.isfinite(number):
        return "–"
    if number and not 1e-5 <= abs(number) < 1e12:
        return f"{number:.3g}".replace("-", "−")
    text = f"{number:{',' if abs(number) >= 9999.5 else ''}.{decimals}f}"
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


@dataclass(frozen=True)
class Marginal:
    """The marginal posterior of one variable in one row.

    Args:
        variable: which one.
        value: the mean, or the most probable category; None if nothing is known.
        given: whether it is evidence.
        mean: the expected value on the variable's axis; NaN for choices.
        std: the standard deviation; 0 if given, NaN for choices.
        low: the lower end of the central interval; NaN for choices.
        high: the upper end.
        draws: of numbers and dates, `(draws,)`; they may be quantiles at even levels.
        probabilities: of the categories of a choice, `(categories,)`.
    """

    variable: Variable
    value: Value
    given: bool = False
    mean: float = math.nan
    std: float = math.nan
    low: float = math.nan
    high: float = math.nan
    draws: Array = field(default_factory=lambda: np.zeros(0))
    probabilities: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def text(self) -> str:
        """The best guess in few characters."""
        if self.variable.kind == "choice" or self.given:
            return self.variable.show(self.value)
        return self.variable.show_number(self.mean)

    @property
    def shares(self) -> dict[str, float]:
        """Probabilities of the categories by name, the most probable first; empty for numbers."""
        named = zip(map(str, self.variable.categories), self.probabilities.tolist(), strict=False)
        return dict(sorted(named, key=lambda pair: -pair[1]))


def given_marginal(variable: Variable, value: Value) -> Marginal:
    """The marginal of evidence: a point.

    Example:
        >>> given_marginal(Variable("age", "number", "age"), 41.0).std
        0.0
    """
    if variable.kind == "choice":
        certain = np.array([float(category == value) for category in variable.categories])
        return Marginal(variable, value, True, probabilities=certain)
    place = variable.number_of(value)
    return Marginal(variable, value, True, place, 0.0, place, place, np.array([place]))


def even_levels(count: int) -> Array:
    """Levels in the middle of equal shares of a distribution.

    Example:
        >>> even_levels(4)
        array([0.125, 0.375, 0.625, 0.875])
    """
    return (np.arange(count) + 0.5) / max(count, 1)


def central_levels(level: float) -> tuple[float, float]:
    """The levels of the two ends of a central interval.

    Example:
        >>> central_levels(0.5)
        (0.25, 0.75)
    """
    if isinstance(level, bool) or not isinstance(level, Real) or not 0.0 < level < 1.0:
        raise ValueError(f"level must be a number between 0 and 1, but is {level!r}")
    return 0.5 - level / 2, 0.5 + level / 2


def graph_variables(model: Tabular) -> dict[str, Variable]:
    """The columns of a model of a graph, in the order of its table.

    A leaf of several columns without names has the variables `leaf[0]`, `leaf[1]`, ...

    Example:
        >>> import vfg
        >>> list(graph_variables(vfg.VFG(vfg.Graph.star({"a": 2, "b": 1}, width=2))))
        ['a[0]', 'a[1]', 'b']
    """
    by_column: dict[int, Variable] = {}
    for leaf, columns in model.sections.positions.items():
        for place, label in enumerate(leaf_labels(model, leaf)):
            variable = _graph_variable(model, label, leaf, columns[place])
            by_column[columns[place]] = replace(variable, place=place)
    return {by_column[column].name: by_column[column] for column in sorted(by_column)}


def _graph_variable(model: Tabular, name: str, leaf: str, column: int) -> Variable:
    spec = model.likelihood_specs[leaf]
    if isinstance(spec, Bernoulli | Categorical):
        count = spec.categories if isinstance(spec, Categorical) else 2
        return Variable(name, "choice", leaf, categories=tuple(range(count)))
    scaling = model.scaling
    low, high = float(scaling.low[column]), float(scaling.high[column])
    if math.isfinite(low) and math.isfinite(high) and low < high:
        return Variable(name, "number", leaf, low, high)
    centre, width = float(scaling.location[column]), 3.0 * float(scaling.scale[column])
    return Variable(name, "number", leaf, centre - width, centre + width, guessed=True)


def latent_variable(name: str, node: str) -> Variable:
    """One coordinate of a latent node as a variable."""
    return Variable(name, "number", node, -LATENT_RANGE, LATENT_RANGE)


@runtime_checkable
class Model(Protocol):
    """A model that answers questions about a table: `VFG`, `GaussianVFG` or `TableModel`.

    Tables go in and come out in the units of the data. A `TableModel` takes columns of any kind,
    the other two take numbers. `vfg.fit` fits, `vfg.save` and `vfg.load` keep every kind.

    Example:
        >>> import vfg
        >>> isinstance(vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1})), Model)
        True
    """

    @property
    def graph(self) -> Graph:
        """The nodes and edges."""

    @property
    def variables(self) -> Mapping[str, Variable]:
        """The columns of the table by the names that `infer` takes."""

    def infer(
        self,
        given: Any,
        targets: Name | Sequence[Name] | None = None,
        *,
        observed: Any = None,
        seed: int = 0,
        row_ids: Any = None,
        padded: bool = True,
        do: Mapping[Name, Any] | None = None,
        dag: Any = None,
    ) -> Answer:
        """Any targets given any evidence; see `VFG.infer` for the arguments."""

    def sample(self, rows: int, /, *, seed: int = 0) -> Any:
        """New rows, as a table."""

    def log_prob(self, table: Any, *, observed: Any = None) -> Any:
        """log p of the observed cells of every row; a ValueError where it is not defined."""

    def embed(self, table: Any, *, observed: Any = None) -> Any:
        """The states of the roots, `(rows, width)`."""

    def fill(self, table: Any, *, row_ids: Any = None) -> Any:
        """A copy of a table whose missing cells are what the model expects."""

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON."""

    @classmethod
    def from_dict(cls, description: Mapping[str, Any], /) -> Self:
        """A new model with the configuration that `to_dict` returned."""
