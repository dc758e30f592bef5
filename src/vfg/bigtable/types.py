"""Which type a column of text holds, and which one holds the cells of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vfg.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc

GAPS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "Null")
"""Cells of text files that stand for nothing."""
IDENTIFIER = r"^[+-]?(0[0-9]|[0-9]{16,}$)"
"""Digits that are names rather than numbers: with leading zeros, or too many to be kept."""
MOMENTS = (
    pa.date32(),
    *(pa.timestamp(unit) for unit in ("s", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "us", "ns")),
)
"""Dates and times, the coarsest first."""
PLAIN = (pa.bool_(), pa.int64(), pa.float64(), *MOMENTS)
"""The types of cells that are written as plain text."""


def without_gaps(cells: Any) -> Any:
    """Cells of text, with nulls in place of those that stand for nothing."""
    return pc.if_else(
        pc.is_in(cells, pa.array(GAPS, cells.type)), pa.scalar(None, cells.type), cells
    )


def text_type(cells: Any, known: Any, *, candidates: Sequence[Any] = PLAIN) -> Any:
    """The narrowest type that holds all cells of text, and whatever the known type holds.

    Whole numbers are int64, other numbers float64, `true` and `false` booleans, ISO dates and times
    are moments. Numbers with leading zeros or more digits than a float keeps are text, since they
    are names.

    Args:
        cells: an array of strings, with nulls where there are gaps.
        known: the type of the cells before these.
        candidates: the types to try.

    Example:
        >>> (
        ...     text_type(pa.array(["1", None, "2"]), pa.null()),
        ...     text_type(pa.array(["1.5"]), pa.int64()),
        ... )
        (DataType(int64), DataType(double))
        >>> text_type(pa.array(["007"]), pa.null())
        DataType(string)
    """
    if known == pa.string() or cells.null_count == len(cells):
        return known
    trimmed = pc.utf8_trim_whitespace(cells.drop_null())
    if not pa.types.is_null(known) and _holds(trimmed, known):
        return known
    found = next((kind for kind in candidates if _holds(trimmed, kind)), pa.string())
    wider = joined(known, found)
    return wider if wider is not None else pa.string()


def joined(one: Any, other: Any) -> Any:
    """The narrowest type that holds the cells of two types; None if there is none.

    Example:
        >>> joined(pa.int64(), pa.float64()), joined(pa.int64(), pa.string())
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
        found = pa.unify_schemas(
            [pa.schema([("column", kind)]) for kind in (one, other)], promote_options="permissive"
        )
    except (pa.ArrowException, TypeError):
        return None
    return found.field(0).type


def _holds(cells: Any, kind: Any) -> bool:
    """Whether cells of text are cells of a type."""
    try:
        # A few first: where most cells fail, trying all of them takes long.
        pc.cast(cells.slice(0, 16), kind)
        values = pc.cast(cells, kind)
    except pa.ArrowException:
        return False
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(pc.utf8_lower(cells), pa.array(["true", "false"]))).as_py())
    if pa.types.is_int64(kind):
        return bool(pc.all(pc.equal(pc.cast(values, pa.string()), cells)).as_py())
    if pa.types.is_floating(kind):
        return not pc.any(pc.match_substring_regex(cells, IDENTIFIER)).as_py()
    return True
