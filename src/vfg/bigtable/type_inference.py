"""Which type a column of text holds, and which one holds the cells of two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from vfg.tables.cells import LAYOUTS, MISSING_TEXTS, PADDING
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc

IDENTIFIER = r"^[+-]?(0[0-9]|[0-9]{16,}$)"
"""Digits that are names rather than numbers: with leading zeros, or too many to be kept."""
MOMENTS = (
    pa.date32(),
    *(pa.timestamp(unit) for unit in ("s", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "us", "ns")),
)
"""Dates and times, the coarsest first."""
TRUTHS = ("true", "True", "TRUE", "false", "False", "FALSE", None)
"""How truth values are written; None for missing values."""
PLAIN = (pa.bool_(), pa.int64(), pa.float64(), *MOMENTS)
"""The types of cells that are written as plain text."""


def mark_missing(cells: Any, more: Sequence[str] = ()) -> Any:
    """Cells of text, with nulls for `MISSING_TEXTS` and more, numbers in all ways to write them.

    Example:
        >>> mark_missing(pa.array(["1", "NA", "-999.0", "?"]), ["-999", "?"]).to_pylist()
        ['1', None, None, None]
    """
    marks = pc.is_in(cells, pa.array(missing_texts(more), cells.type))
    return pc.if_else(marks, pa.scalar(None, cells.type), cells)


def missing_texts(more: Sequence[str]) -> list[str]:
    """All texts that mean a missing value; a whole number also with up to six decimal zeros."""
    whole = [text for text in more if re.fullmatch("[+-]?[0-9]+", text)]
    zeros = [f"{text}{mark}{'0' * k}" for text in whole for mark in ".," for k in range(7)]
    return [*MISSING_TEXTS, *more, *zeros]


def cast_text(
    cells: Any, known: Any, *, candidates: Sequence[Any] = PLAIN, decimal: str = "."
) -> Any:
    """Cast cells of text to the narrowest type that holds them, and what the known type holds.

    Whole numbers are int64, other numbers float64, `true` and `false` booleans, ISO dates and times
    are moments. Numbers with leading zeros or more digits than a float keeps are text, since they
    are names. Spaces and tabs around numbers and dates are ignored. The values are those that
    pyarrow's CSV reader returns for the same cells. `known` is the type of the cells before these.

    Example:
        >>> cast_text(pa.array([" 1", None, "2"]), pa.null()).to_pylist()
        [1, None, 2]
        >>> (
        ...     cast_text(pa.array(["1.5"]), pa.int64()).type,
        ...     cast_text(pa.array(["007"]), pa.null()).type,
        ... )
        (DataType(double), DataType(string))
    """
    if known == pa.string():
        return cells
    if cells.null_count == len(cells):
        return pa.nulls(len(cells), known)
    kinds = candidates if pa.types.is_null(known) else (known, *candidates)
    casts = (_try_cast(cells, kind, decimal) for kind in kinds)
    values = next((values for values in casts if values is not None), cells)
    wider = common_type(known, values.type)
    try:
        return cells if wider is None else widen(values, wider)
    except pa.ArrowInvalid:
        return cells


def cast_layout(cells: Any, layout: str, known: Any) -> Any:
    """Cast cells of text in a layout of `LAYOUTS` to moments or durations; None if one has another.

    Example:
        >>> cast_layout(pa.array(["31.1.2020", None]), "dmy.", pa.null()).to_pylist()
        [datetime.date(2020, 1, 31), None]
    """
    pattern = f"^{LAYOUTS[layout]}$"
    few = pc.ascii_trim(_first_observed(cells), PADDING)  # most columns fail there already
    if pc.all(pc.match_substring_regex(few, pattern)).as_py() is False:
        return None
    parts = pc.extract_regex(pc.ascii_trim(cells, PADDING), pattern)
    if parts.null_count > cells.null_count:
        return None
    part = {field.name: pc.struct_field(parts, field.name) for field in parts.type}
    if layout == "hms:":
        hours, minutes, seconds = (part[name].cast(pa.int64()) for name in "hms")
        total = pc.add(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60), seconds)
        return total.cast(pa.duration("s"))
    month, day = (pc.utf8_lpad(part[name], 2, "0") for name in "md")
    clock = pc.replace_substring_regex(part["t"], "^[ T]([0-9]:)", r" 0\1")
    texts = pc.binary_join_element_wise(part["y"], month, day, "-")
    values = cast_text(pc.binary_join_element_wise(texts, clock, ""), known, candidates=MOMENTS)
    return None if values.type == pa.string() else values


def format_layout(values: Any, layout: str, sample: str) -> Any:
    """Moments or durations as text in a layout, with leading zeros and time as in a sample.

    Example:
        >>> format_layout(pa.array([90], pa.duration("s")), "hms:", "01:30:00").to_pylist()
        ['00:01:30']
    """
    if layout == "hms:":
        wide = len(sample.partition(":")[0]) if sample.startswith("0") else 1
        seconds = [
            None if cell is None else round(cell.total_seconds()) for cell in values.to_pylist()
        ]
        texts = [
            None if s is None else f"{s // 3600:0{wide}d}:{s // 60 % 60:02d}:{s % 60:02d}"
            for s in seconds
        ]
        return pa.array(texts, pa.large_string())
    order, mark = layout[:3], layout[3]
    dates = pc.strftime(
        values.cast(pa.timestamp("s"), safe=False),
        mark.join(f"%{p}" for p in order).replace("%y", "%Y"),
    )
    if re.match(r"[0-9][./-]|[0-9]+[./-][0-9][./-]", sample):
        dates = pc.replace_substring_regex(dates, "(^|[./-])0", r"\1")
    clock = re.search("[ T](.*)$", sample)
    if clock is None:
        return dates.cast(pa.large_string())
    form = "%H:%M" if clock[1].count(":") == 1 else "%H:%M:%S"
    times = pc.strftime(values.cast(pa.timestamp("s"), safe=False), clock[0][0] + form)
    return pc.binary_join_element_wise(dates, times, "").cast(pa.large_string())


def widen(cells: Any, kind: Any) -> Any:
    """Cast cells to a wider type, with the same values as if their text were cast to it.

    Whole numbers become floats, dates become timestamps, timestamps get a finer unit, nulls become
    anything. Any other pair of types, and timestamps out of range, is a `pyarrow.ArrowInvalid`.

    Example:
        >>> widen(pa.array([1, None]), pa.float64()).to_pylist()
        [1.0, None]
    """
    if cells.type == kind:
        return cells
    if not _keeps_values(cells.type, kind):
        raise pa.ArrowInvalid(f"{cells.type} cannot be widened to {kind}")
    # Large whole numbers are rounded, as they are when their text is read as floats.
    return pc.cast(cells, kind, safe=not _is_float(kind))


def widen_table(table: Any, schema: Any) -> Any:
    """Cast a table or record batch to the wider types of a schema with the same names."""
    if table.schema.equals(schema):
        return table
    columns = [widen(table.column(field.name), field.type) for field in schema]
    return type(table).from_arrays(columns, schema=schema)


def common_schema(one: Any, other: Any) -> Any:
    """The schema that `widen_table` can cast tables of two schemas with the same names to.

    It has the order of the first. If there is none, that is a `pyarrow.ArrowInvalid`.

    Example:
        >>> one, other = pa.schema({"a": pa.int64()}), pa.schema({"a": pa.float64()})
        >>> common_schema(one, other).field("a").type
        DataType(double)
    """
    return one if one.equals(other) else pa.schema([_common_field(field, other) for field in one])


def _common_field(field: Any, other: Any) -> Any:
    result = other.field(field.name).type
    wider = common_type(field.type, result)
    if wider is None or not (_keeps_values(field.type, wider) and _keeps_values(result, wider)):
        raise pa.ArrowInvalid(f"the column {field.name!r} holds {field.type} and {result}")
    return field.with_type(wider)


def _keeps_values(kind: Any, wider: Any) -> bool:
    """Whether missing values, order and values of cells stay the same in a wider type."""
    if kind == wider or pa.types.is_null(kind):
        return True
    if _is_float(wider):
        return bool(pa.types.is_integer(kind) or _is_float(kind))
    return bool(pa.types.is_temporal(kind) and pa.types.is_timestamp(wider))


def common_type(one: Any, other: Any) -> Any:
    """The narrowest type that holds the cells of two types; None if there is none.

    Example:
        >>> common_type(pa.int64(), pa.float64()), common_type(pa.int64(), pa.string())
        (DataType(double), None)
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    for day, moment in ((one, other), (other, one)):
        if pa.types.is_date(day) and pa.types.is_timestamp(moment) and moment.tz is None:
            return moment
    try:
        result = pa.unify_schemas(
            [pa.schema([("column", kind)]) for kind in (one, other)], promote_options="permissive"
        )
    except (pa.ArrowException, TypeError):
        return None
    return result.field(0).type


def _try_cast(cells: Any, kind: Any, decimal: str) -> Any:
    """Cast cells of text to a type; None if one of them does not have it."""
    try:
        # A few first: where most cells fail, trying all of them takes long.
        pc.cast(_normalise(_first_observed(cells), kind, decimal), kind)
        plain = _normalise(cells, kind, decimal)
        values = pc.cast(plain, kind)
    except pa.ArrowException:
        return None
    return values if _is_canonical(plain, values) else None


def _normalise(cells: Any, kind: Any, decimal: str) -> Any:
    """Cells without the padding that pyarrow's CSV reader ignores, with points as decimal marks."""
    if decimal != "." and _is_float(kind):
        # A point would divide thousands: such cells become what is no number.
        cells = pc.replace_substring(pc.replace_substring(cells, ".", "?"), decimal, ".")
    is_padded = pa.types.is_integer(kind) or _is_float(kind) or pa.types.is_date(kind)
    return pc.ascii_trim(cells, PADDING) if is_padded else cells


def _is_canonical(cells: Any, values: Any) -> bool:
    """Whether cells of text are the usual ways to write their values."""
    if pa.types.is_boolean(values.type):
        return bool(pc.all(pc.is_in(cells, pa.array(TRUTHS, cells.type))).as_py())
    if pa.types.is_int64(values.type):
        return bool(pc.all(pc.equal(pc.cast(values, cells.type), cells)).as_py())
    if _is_float(values.type):
        return not pc.any(pc.match_substring_regex(cells, IDENTIFIER)).as_py()
    return True


def _is_float(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind))


def _first_observed(cells: Any) -> Any:
    """A few of the first cells that are not null."""
    few = cells.slice(0, 256).drop_null()
    return (few if len(few) else cells.drop_null()).slice(0, 16)
