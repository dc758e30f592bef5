"""Cells of any Python type, columns of them, and the contract of a column's encoding."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Label: TypeAlias = Hashable
"""How a column is called: its name in a frame, its position in an array."""

Storage: TypeAlias = Literal[
    "float", "integer", "boolean", "text", "category", "date", "duration", "empty"
]
STORAGE_OF_KIND: dict[str, Storage] = {
    "f": "float",
    "i": "integer",
    "u": "integer",
    "b": "boolean",
    "U": "text",
    "M": "date",
    "m": "duration",
}
"""What a column holds, by the one-letter kind of its dtype."""
STORAGE_OF_TYPES: dict[Storage, tuple[type, ...]] = {
    "boolean": (bool, np.bool_),
    "integer": (Integral, np.bool_),
    "float": (Real, np.bool_, Decimal),
    "text": (str, Real, np.bool_),
    "date": (date, np.datetime64),
    "duration": (timedelta, np.timedelta64),
}
"""What a column of Python objects holds, by the types of its cells; the first that has them all."""
ISO_MOMENT = re.compile(
    "[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,6})?)?Z?)?"
)
"""Dates, also with a time, and that also in UTC, as they are written in text."""


@dataclass(frozen=True)
class Column:
    """One column of a table, as plain arrays.

    Args:
        label: its name, or its position.
        storage: what its dtype, or its cells if they are Python objects, can hold.
        values: the cells, anything where missing; dates are `datetime64` of local time.
        missing: which cells are missing.
        categories: the categories that its dtype declares, or None.
        ordered: whether the order of those categories means something.
        zone: the name of the time zone of dates; None for dates without one.
        template: how dates that were text were written, with the digit 0; None for others.
    """

    label: Label
    storage: Storage
    values: Array
    missing: Mask
    categories: tuple[Any, ...] | None = None
    ordered: bool = False
    zone: str | None = None
    template: str | None = None

    @property
    def observed(self) -> Array:
        """The cells that are not missing."""
        return self.values[~self.missing] if self.missing.any() else self.values


def is_absent(marker: Any) -> bool:
    """Whether a value stands for nothing: None, NaN, NaT or the missing value of pandas.

    Example:
        >>> is_absent(float("nan")), is_absent(None), is_absent(-1), is_absent("?")
        (True, True, False, False)
    """
    return bool(absent_cells(np.array([marker], dtype=object))[0])


def absent_cells(cells: Array) -> Mask:
    """Which cells of an object array stand for nothing."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        return np.asarray(pandas.isna(cells), dtype=bool)
    # Without pandas no cell can be its missing value, which refuses to be compared.
    return np.asarray(np.equal(cells, np.array(None)) | (cells != cells), dtype=bool)


def marked_cells(values: Array, marker: Any) -> Mask:
    """Which cells equal the marker of missing cells; a number never equals a boolean or a text."""
    kind = values.dtype.kind
    text = isinstance(marker, str)
    comparable = kind == "O" or (kind == "U" if text else kind in "fiu")
    if is_absent(marker) or not comparable:
        return np.zeros(values.shape, dtype=bool)
    equal = np.asarray(values == marker, dtype=bool)
    if kind == "O" and not isinstance(marker, bool):
        places = np.flatnonzero(equal)
        equal[places] = [not isinstance(cell, bool | np.bool_) for cell in values[places]]
    return equal


def read_cells(label: Label, cells: Array, marker: Any) -> Column:
    """A column of an object array `(rows,)`, with the storage that all observed cells share."""
    gone = absent_cells(cells)
    # The missing value of pandas cannot be compared with a marker.
    missing = gone | marked_cells(np.where(gone, np.array(None), cells), marker)
    observed = cells[~missing]
    storage = _shared_storage(label, observed.tolist())
    converted = _convert(storage, observed)
    values = np.zeros(len(cells), dtype=converted.dtype)
    values[~missing] = converted
    return Column(label, storage, values, missing)


def _shared_storage(label: Label, cells: list[Any]) -> Storage:
    types = sorted(set(map(type, cells)), key=lambda kind: kind.__qualname__)
    if not types:
        return "empty"
    for storage, wanted in STORAGE_OF_TYPES.items():
        if all(issubclass(kind, wanted) for kind in types):
            if storage == "date" and any(getattr(cell, "tzinfo", None) for cell in cells):
                break
            return storage
    names = ", ".join(kind.__name__ for kind in types)
    raise TypeError(
        f"every cell given as argument must be a string, a number, a boolean or a date without "
        f"time zone, and of one kind in a column, but column {label!r} holds {names}; convert it"
    )


def _convert(storage: Storage, cells: Array) -> Array:
    if storage == "integer":
        try:
            return cells.astype(np.int64)
        except OverflowError:
            return cells.astype(np.float64)
    dtypes = {"float": "f8", "boolean": "?", "date": "M8[us]", "duration": "m8[us]"}
    return cells.astype(dtypes.get(storage, cells.dtype), copy=False)


def are_moments(cells: Iterable[Any]) -> bool:
    """Whether all cells are dates or times in ISO form, of UTC all or none; False for no cells.

    Example:
        >>> are_moments(["2020-02-29", "2020-03-01"]), are_moments(["2020-02-29", "May"])
        (True, False)
        >>> are_moments(["2021-02-29"])
        False
    """
    texts = list(cells)
    if not all(isinstance(cell, str) and ISO_MOMENT.fullmatch(cell) for cell in texts):
        return False
    if not texts or len({cell.endswith("Z") for cell in texts}) > 1:
        return False
    try:
        np.array([cell.rstrip("Z") for cell in texts], dtype="M8[us]")
    except ValueError:  # there is no such day
        return False
    return True


def parse_moments(column: Column) -> Column:
    """A column of text as dates; any other column as it is.

    Raises:
        ValueError: for a cell that is no date in ISO form.
    """
    if column.storage != "text" or column.missing.all():
        return column
    cells = column.observed.tolist()
    if not are_moments(cells):
        wrong = next((cell for cell in cells if not are_moments([cell])), cells[0])
        raise ValueError(
            f"column {column.label!r} must hold dates such as '2020-12-31', all of them in UTC "
            f"(with a final Z) or none, but holds {wrong!r}; convert it, or mark it as missing"
        )
    values = np.zeros(len(column.missing), dtype="M8[us]")
    values[~column.missing] = np.array([cell.rstrip("Z") for cell in cells], dtype="M8[us]")
    template = re.sub("[0-9]", "0", max(cells, key=len))
    zone = "UTC" if template.endswith("Z") else None
    return replace(column, storage="date", values=values, zone=zone, template=template)


def format_moments(moments: Array, template: str) -> Array:
    """Dates as texts that are written like a template.

    Example:
        >>> format_moments(np.array(["2020-02-29T12:30"], "M8[us]"), "0000-00-00 00:00Z").tolist()
        ['2020-02-29 12:30Z']
    """
    plain = template.rstrip("Z")
    texts = np.datetime_as_string(moments.astype("M8[us]")).tolist()
    mark, end = plain[10:11], template[len(plain) :]
    return as_objects(np.array([text[: len(plain)].replace("T", mark) + end for text in texts]))


def cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Decoded values in another dtype: rounded and clipped for integers and narrow floats.

    Example:
        >>> cast(np.array([1.6, 300.0]), np.dtype("uint8"))
        array([  2, 255], dtype=uint8)
    """
    if dtype.kind in "iu" and values.dtype.kind == "f":
        span = np.iinfo(dtype)
        # The float nearest to the largest integer may lie above it.
        top = float(span.max) if span.max < 2**53 else float(np.nextafter(float(span.max), 0))
        return np.clip(np.rint(values), float(span.min), top).astype(dtype)
    if dtype.kind in "iu" and values.dtype.kind in "iu":
        span = np.iinfo(dtype)
        return np.clip(values, max(span.min, np.iinfo(values.dtype).min), span.max).astype(dtype)
    if dtype.kind == "f" and values.dtype.kind == "f" and dtype.itemsize < values.dtype.itemsize:
        limits = np.finfo(dtype)
        return np.clip(values, float(limits.min), float(limits.max)).astype(dtype)
    if dtype.kind == "O":
        return as_objects(values)
    # A fixed width would cut off longer texts.
    return values.astype(str if dtype.kind == "U" else dtype)


def can_hold(kind: str, values: Array) -> bool:
    """Whether cells of a dtype, by its one-letter kind, can hold decoded values.

    Numbers cannot hold texts and moments, which matters for columns without any cell; whole
    numbers cannot hold fractions, which the fitted column had.

    Example:
        >>> can_hold("f", np.array(["a"], dtype=object)), can_hold("i", np.array([0.5, 1.0]))
        (False, False)
    """
    if kind not in "fiub":
        return True
    if values.dtype.kind == "f" and kind in "iu":
        return bool((values == np.rint(values)).all())
    return values.dtype.kind in "fiub"


def as_objects(values: Array) -> Array:
    """Decoded values as plain Python objects: int, float, bool, str, datetime or timedelta."""
    if values.dtype.kind in "Mm":
        # Finer units have no counterpart in the standard library and would become integers.
        values = values.astype(f"{values.dtype.kind}8[us]")
    cells = np.empty(len(values), dtype=object)
    cells[:] = values.tolist()
    return cells


def as_cells(values: Array, like: Array) -> Array:
    """Decoded values as Python objects of the type that the observed cells `like` have."""
    types = set(map(type, like.tolist()))
    if values.dtype.kind == "b" and len(types) == 1 and types <= {int, float}:
        values = values.astype(next(iter(types)))
    cells = as_objects(values)
    if types == {date}:
        cells[:] = [cell.date() for cell in cells]
    elif types == {Decimal}:
        cells[:] = [Decimal(repr(cell)) for cell in cells]
    elif len(types) == 1 and issubclass(next(iter(types)), datetime | timedelta):
        (kind,) = types
        if kind not in (datetime, timedelta):
            cells[:] = [kind(cell) for cell in cells]
    return cells


class ColumnEncoding(ABC):
    """How one column of a table becomes one to eight columns of real numbers, and back.

    How to write a new one: make a frozen dataclass that sets `name`, implement the methods below,
    and let `vfg.tables.encoding` fit and restore it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def width(self) -> int:
        """How many columns of real numbers it becomes."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether no cell was observed, so that missing cells cannot be filled."""

    @property
    def fillable(self) -> bool:
        """Whether missing cells are filled."""
        return not self.empty

    @property
    @abstractmethod
    def constant(self) -> bool:
        """Whether every missing cell has the same fill, whatever a model predicts."""

    @abstractmethod
    def encode(self, column: Column) -> tuple[Array, Mask]:
        """Numbers and which of them are evidence, both `(width, rows)`."""

    @abstractmethod
    def decode(self, values: Array) -> Array:
        """Cells from numbers `(rows, width)`."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything but arrays, ready for JSON."""

    def state(self) -> dict[str, Array]:
        """The arrays."""
        return {}

    def probabilities(self, values: Array, scale: float | None = None) -> Array:
        """The probability of every category, `(rows, categories)`."""
        raise ValueError(f"a column of kind {self.name} has no categories")
