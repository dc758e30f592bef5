"""Cells of any Python type, columns of them, and the contract of a column's encoding."""

from __future__ import annotations

import math
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
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
_CLOCK = "(?P<t>(?:[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]+)?)?)?)"
_PARTS = {"d": "(?P<d>[0-9]{1,2})", "m": "(?P<m>[0-9]{1,2})", "y": "(?P<y>[0-9]{4})"}
LAYOUTS = {
    f"{order}{mark}": f"[{mark}]".join(_PARTS[part] for part in order) + _CLOCK
    for order, marks in (("dmy", "./-"), ("mdy", "./-"), ("ymd", "./"))
    for mark in marks
} | {"hms:": "(?P<h>[0-9]{1,5}):(?P<m>[0-5][0-9]):(?P<s>[0-5][0-9])"}
"""Dates that are not in ISO form, also with a time, and durations, as regular expressions."""
LETTERS = {"d": "DD", "m": "MM", "y": "YYYY"}
"""What stands for the parts of a date in the templates of these layouts."""
DAY_OR_MONTH = (
    "no day is above 12, so days and months are ambiguous; convert it, as by "
    "pandas.to_datetime(..., dayfirst=True)"
)
PADDING = " \t"
"""What is ignored around numbers and dates in text, as pyarrow's CSV reader does."""
_MARKS = "NA N/A n/a #N/A NaN nan -NaN -nan null NULL Null"
MISSING_TEXTS = ("", *_MARKS.split())
"""Cells that mean a missing value in text files, and in columns of numbers that are text."""
MISSING_MARKS = {
    "", "-", "--", "?", ".", "na", "n/a", "n.a.", "#n/a", "nan", "nat", "none", "null", "missing",
    "unknown",
}  # fmt: skip
"""What stands for a missing value among numbers and dates, in lower case."""
NEARLY_ALL, MOST = 0.9, 0.5
"""The share of the cells of text that are dates in a column of dates, where this is inferred, and
where it was so in fitting. Cells that stand for missing values do not count."""


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
        template: how dates that were text were written, with the digit 0, or letters for the parts
            of dates that are not in ISO form, as in `DD.MM.YYYY 00:00`; None for others.
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
    marks = _marks_among_numbers(cells[~missing].tolist())
    if marks:
        warn_of_unreadable(label, marks, int((~missing).sum()), "numbers")
        missing[~missing] = [isinstance(cell, str) for cell in cells[~missing].tolist()]
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


def is_missing_mark(cell: Any) -> bool:
    """Whether a cell is a text that stands for a missing value among numbers and dates.

    Example:
        >>> is_missing_mark("N/A"), is_missing_mark(" - "), is_missing_mark("-1")
        (True, True, False)
    """
    return isinstance(cell, str) and cell.strip().lower() in MISSING_MARKS


def hide_missing_texts(column: Column) -> Column:
    """A text column of numbers, where `MISSING_TEXTS` count as missing, with a warning.

    They are missing in text files, too. Other columns are as they are.
    """
    if column.storage != "text" or column.missing.all():
        return column
    cells = column.observed.tolist()
    # Most columns of text fail at one of their first cells.
    if not all(cell in MISSING_TEXTS or is_plain_number(cell) for cell in cells[:20]):
        return column
    counts = Counter(cells)
    wrong = [cell for cell in counts if cell in MISSING_TEXTS]
    rest = [cell for cell in counts if cell not in MISSING_TEXTS]
    if not wrong or not rest or not all(map(is_plain_number, rest)):
        return column
    warn_of_unreadable(column.label, [c for c in cells if c in wrong], len(cells), "numbers")
    missing = column.missing.copy()
    missing[~missing] = [cell in wrong for cell in cells]
    return replace(column, missing=missing)


def is_plain_number(cell: Any) -> bool:
    """Whether a cell is a text that Python reads as a finite number."""
    try:
        return isinstance(cell, str) and math.isfinite(float(cell))
    except ValueError:
        return False


def looks_like_number(cell: Any) -> bool:
    """Whether a cell is a text that people read as a number; codes with leading zeros are none.

    Example:
        >>> [looks_like_number(text) for text in ("-1.5e3", "1,234", "12 %", "$5", "5,5", "007")]
        [True, True, True, True, True, False]
    """
    if not isinstance(cell, str) or re.match("[+-]?0[0-9]", cell.strip()):
        return False
    return is_plain_number(re.sub("[$€£%, ]", "", cell))


def _marks_among_numbers(cells: list[Any]) -> list[str]:
    """The texts in a column of numbers, if all of them stand for missing values; else none."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    if not 0 < len(texts) < len(cells) or not all(map(is_missing_mark, texts)):
        return []
    rest = [cell for cell in cells if not isinstance(cell, str)]
    numbers = all(isinstance(cell, Real | Decimal) for cell in rest)
    return texts if numbers and not any(isinstance(cell, bool) for cell in rest) else []


def warn_of_unreadable(label: Label, wrong: Sequence[Any], cells: int, kind: str) -> None:
    """Warn of cells that are none of the numbers or dates that a column holds."""
    count = "counts" if len(wrong) == 1 else "count"
    warnings.warn(
        f"column {label!r} holds {kind}, but {len(wrong)} of {cells} cells, such as {wrong[0]!r}, "
        f"cannot be read as such and {count} as missing; correct them, or mark them as missing",
        stacklevel=2,
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


def find_layouts(cells: Iterable[Any]) -> list[str]:
    """The layouts in which all cells are dates, times or durations; none for no cells.

    Several if no day is above 12.

    Example:
        >>> find_layouts(["31.12.2020", "1.2.2021"]), find_layouts(["2020-02-29"])
        (['dmy.'], ['iso'])
        >>> find_layouts(["1/2/2021", "3/4/2021"]), find_layouts(["1/2/2021", "May"])
        (['dmy/', 'mdy/'], [])
    """
    texts = list(cells)
    # Most columns of text fail at their first cell.
    if not texts or not _begins_like_date(texts[0]):
        return []
    return [name for name in ("iso", *LAYOUTS) if _read_moments(texts, name) is not None]


def find_common_layouts(
    cells: Iterable[Any], template: str | None = None
) -> tuple[list[str], set[Any]]:
    """The layouts in which nearly all cells are dates, and the cells that are none.

    Cells that stand for missing values are none of either. With the template of a fitted column
    its layout is preferred, and most cells suffice.

    Example:
        >>> find_common_layouts(["2020-01-02", "2020-01-03", "n/a"])
        (['iso'], {'n/a'})
        >>> find_common_layouts(["2020-01-02", "2020-01-03", "soon"])
        ([], set())
    """
    counts = Counter(cells)
    layouts, known = find_layouts(counts), layout_of(template) if template is not None else None
    if layouts:
        return ([known] if known in layouts else layouts), set()
    marks = {cell for cell in counts if is_missing_mark(cell)}
    rest = {cell: count for cell, count in counts.items() if cell not in marks}
    if known is not None and not rest:
        return [known], marks
    # Most columns of text fail at their first cells.
    first = list(rest)[:20]
    if 2 * sum(_begins_like_date(cell) for cell in first) <= len(first):
        return [], set()
    most = (1.0 - (NEARLY_ALL if known is None else MOST)) * sum(rest.values())
    found = {}
    for name in ("iso", *LAYOUTS):
        wrong = {cell for cell in rest if _read_moments([cell], name) is None}
        right = [cell for cell in rest if cell not in wrong]
        if sum(rest[cell] for cell in wrong) <= most and _read_moments(right, name) is not None:
            found[name] = wrong
    if known in found:
        found = {known: found[known]}
    return list(found), marks.union(*found.values()) if found else set()


def _begins_like_date(cell: Any) -> bool:
    return bool(re.match(r"\s*[0-9]+[./:-]", str(cell)))


def hide_unreadable(column: Column, template: str | None = None, *, warn: bool = True) -> Column:
    """A text column of dates, where cells that are no dates count as missing, with a warning.

    Other columns, and those in which most cells are no dates, are as they are.
    """
    if column.storage != "text" or column.missing.all():
        return column
    cells = column.observed.tolist()
    layouts, wrong = find_common_layouts(cells, template)
    if len(layouts) != 1 or not wrong:
        return column
    if warn:
        warn_of_unreadable(column.label, [c for c in cells if c in wrong], len(cells), "dates")
    missing = column.missing.copy()
    missing[~missing] = [cell in wrong for cell in cells]
    return replace(column, missing=missing)


def _read_moments(texts: Sequence[Any], layout: str) -> Array | None:
    """Texts in a layout as dates or durations; None if one is written otherwise."""
    if layout == "iso":
        if not are_moments(texts):
            return None
        return np.array([text.rstrip("Z") for text in texts], dtype="M8[us]")
    found = []
    for text in texts:
        match = re.fullmatch(LAYOUTS[layout], text.strip(PADDING)) if _is_text(text) else None
        if match is None:
            return None
        found.append(match)
    if layout == "hms:":
        seconds = [(int(m["h"]) * 60 + int(m["m"])) * 60 + int(m["s"]) for m in found]
        return np.array(seconds, dtype="m8[s]").astype("m8[us]")
    plain = [f"{m['y']}-{m['m']:0>2}-{m['d']:0>2}{_padded_clock(m['t'])}" for m in found]
    try:
        return np.array(plain, dtype="M8[us]")
    except ValueError:  # there is no such day
        return None


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str)


def _padded_clock(clock: str) -> str:
    """The time of a day with two digits for the hour; "" without one."""
    return clock and f"T{clock[1:].partition(':')[0]:0>2}{clock[clock.index(':') :]}"


def parse_moments(column: Column, template: str | None = None) -> Column:
    """A column of text as dates or durations; any other column as it is.

    Args:
        column: of a table.
        template: how dates were written in fitting, which has the order of day and month; or None.

    Raises:
        ValueError: for a cell that is no date, or dates of which none has a day above 12.
    """
    if column.storage != "text" or column.missing.all():
        return column
    cells = column.observed.tolist()
    layouts = find_layouts(cells)
    layout = layout_of(template) if template is not None else None
    layouts = [layout] if layout in layouts else layouts
    if len(layouts) != 1:
        raise ValueError(_no_dates(column.label, cells, ambiguous=bool(layouts)))
    moments = _read_moments(cells, layouts[0])
    assert moments is not None
    values = np.zeros(len(column.missing), dtype=moments.dtype)
    values[~column.missing] = moments
    template = _template(cells, layouts[0])
    zone = "UTC" if template.endswith("Z") else None
    storage: Storage = "date" if moments.dtype.kind == "M" else "duration"
    return replace(column, storage=storage, values=values, zone=zone, template=template)


def _no_dates(label: Label, cells: Sequence[Any], *, ambiguous: bool) -> str:
    if ambiguous:
        return f"column {label!r} holds dates such as {cells[0]!r}, but {DAY_OR_MONTH}"
    wrong = next((cell for cell in cells if not find_layouts([cell])), cells[0])
    return (
        f"column {label!r} must hold dates such as '2020-12-31' or '31.12.2020', in one layout, "
        f"and all or none in UTC (with a final Z), but holds {wrong!r}; convert it, or mark it "
        "as missing"
    )


def _template(cells: Sequence[str], layout: str) -> str:
    """How cells of a layout are written; see `Column`."""
    texts = [cell.strip(PADDING) for cell in cells]
    longest = re.sub("[0-9]", "0", max(texts, key=len))
    if layout == "iso":
        return longest
    if layout == "hms:":
        return longest if any(re.match("0[0-9]", text) for text in texts) else "0:00:00"
    order, mark = layout[:3], layout[3]
    days = [re.split("[ T]", text)[0] for text in texts]
    short = any(len(part) == 1 for day in days for part in day.split(mark))
    letters = mark.join(LETTERS[part][: 1 if short and part != "y" else None] for part in order)
    clock = max((text[len(day) :] for text, day in zip(texts, days, strict=True)), key=len)
    return letters + clock[:1] + re.sub("[0-9]", "0", _padded_clock(clock)[1:])


def layout_of(template: str) -> str:
    """The layout of a template; see `LAYOUTS`.

    Example:
        >>> layout_of("D/M/YYYY 00:00"), layout_of("0000-00-00"), layout_of("00:00:00")
        ('dmy/', 'iso', 'hms:')
    """
    if re.fullmatch("0+:00:00", template):
        return "hms:"
    if not re.match("[DMY]", template):
        return "iso"
    parts = re.findall("[DMY]+", template)
    return "".join(part[0].lower() for part in parts[:3]) + template[len(parts[0])]


def format_moments(moments: Array, template: str) -> Array:
    """Dates or durations as texts that are written like a template.

    Example:
        >>> format_moments(np.array(["2020-02-29T12:30"], "M8[us]"), "0000-00-00 00:00Z").tolist()
        ['2020-02-29 12:30Z']
        >>> format_moments(np.array(["2020-02-09"], "M8[us]"), "D.M.YYYY").tolist()
        ['9.2.2020']
    """
    layout = layout_of(template)
    if layout == "hms:":
        width = template.index(":")
        seconds = np.rint(moments.astype("m8[us]").astype(np.int64) / 1e6).astype(np.int64).tolist()
        return as_objects(
            np.array([f"{s // 3600:0{width}d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in seconds])
        )
    texts = np.datetime_as_string(moments.astype("M8[us]")).tolist()
    if layout != "iso":
        return as_objects(np.array([_format_date(text, template) for text in texts]))
    plain = template.rstrip("Z")
    mark, end = plain[10:11], template[len(plain) :]
    return as_objects(np.array([text[: len(plain)].replace("T", mark) + end for text in texts]))


def _format_date(iso: str, template: str) -> str:
    """A moment in ISO form, written like a template with letters."""
    whole, clock = iso.split("T")
    year, month, day = whole.split("-")
    form = "".join(re.findall("[DMY./-]", template))
    text = form.replace("YYYY", year).replace("DD", day).replace("MM", month)
    text = text.replace("D", str(int(day))).replace("M", str(int(month)))
    return text + template[len(form) :][:1] + clock[: max(len(template) - len(form) - 1, 0)]


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
