"""What one pass over a table tells about its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vfg.bigtable.type_inference import widen
from vfg.tables.cells import is_absent
from vfg.tables.schema import ColumnSpec, Continuous, Date, Integer
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc

MOST_CATEGORIES = 10_000
"""Columns of text with more different cells are not listed: they are names, not categories."""


class Statistics:
    """Gaps, ranges and categories of all columns, from batches of a table.

    A column may have a wider type in a later batch; see `types.widen`.

    Args:
        marker: what marks a gap besides null and NaN, as `missing_values` of `VFGImputer`.

    Example:
        >>> statistics = Statistics()
        >>> statistics.add(pa.record_batch({"a": [1, None], "b": ["x", "y"]}))
        >>> statistics.add(pa.record_batch({"a": [5, 3], "b": ["z", "x"]}))
        >>> statistics.rows, statistics.gaps, statistics.ranges["a"], statistics.categories("b")
        (4, {'a': 1, 'b': 0}, (1, 5), ('x', 'y', 'z'))
    """

    def __init__(self, marker: Any = None) -> None:
        self.marker = None if is_absent(marker) else marker
        self.rows = 0
        self.gaps: dict[str, int] = {}
        self._ends: dict[str, Any] = {}
        self._texts: dict[str, dict[str, None] | None] = {}

    def add(self, batch: Any) -> None:
        """Take the next rows into account."""
        self.rows += batch.num_rows
        for field, column in zip(batch.schema, batch.columns, strict=True):
            column = self._without_marker(column)
            missing = pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
            self.gaps[field.name] = self.gaps.get(field.name, 0) + missing
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                self._add_texts(field.name, column)
            elif _has_range(kind):
                self._add_range(field.name, column)

    @property
    def ranges(self) -> dict[str, tuple[Any, Any]]:
        """The minimum and maximum of columns of numbers, dates and timestamps, by name."""
        return {name: (ends[0].as_py(), ends[1].as_py()) for name, ends in self._ends.items()}

    def categories(self, name: str) -> tuple[str, ...] | None:
        """The different cells of a column of text, in order; None if it has none, or too many."""
        found = self._texts.get(name)
        return tuple(sorted(found)) if found else None

    def bounds(self, kinds: Mapping[Any, ColumnSpec]) -> dict[str, tuple[Any, Any]]:
        """The ranges of columns that are kept within them, as an imputer takes them.

        Args:
            kinds: of the columns, by name.
        """
        found: dict[str, tuple[Any, Any]] = {}
        ranges = self.ranges
        for name, spec in kinds.items():
            if name not in ranges:
                continue
            low, high = ranges[name]
            if isinstance(spec, Date) and hasattr(low, "isoformat"):
                found[name] = (_on_the_wall(low), _on_the_wall(high))
            elif isinstance(spec, Continuous | Integer):
                found[name] = (float(low), float(high))
        return found

    def _without_marker(self, column: Any) -> Any:
        if self.marker is None:
            return column
        try:
            marked = pc.equal(column, pa.scalar(self.marker))
        except pa.ArrowException:  # a number is never a text
            return column
        return pc.if_else(marked, pa.scalar(None, column.type), column)

    def _add_texts(self, name: str, column: Any) -> None:
        known = self._texts.setdefault(name, {})
        if known is not None:
            known.update(dict.fromkeys(pc.unique(column).drop_null().to_pylist()))
            if len(known) > MOST_CATEGORIES:
                self._texts[name] = None

    def _add_range(self, name: str, column: Any) -> None:
        found = _ends(column)
        if name in self._ends:
            found = _ends(pa.concat_arrays([widen(self._ends[name], column.type), found]))
        if not pc.is_null(found, nan_is_null=True)[0].as_py():
            self._ends[name] = found


def _ends(column: Any) -> Any:
    """An array of minimum and maximum; of null or NaN if all cells are missing."""
    found = pc.min_max(column)
    return pa.array([found["min"], found["max"]], column.type)


def _has_range(kind: Any) -> bool:
    tests = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_integer, pa.types.is_floating)
    return any(test(kind) for test in tests)


def _on_the_wall(moment: Any) -> str:
    """A moment as the clocks of its own time zone show it."""
    plain = moment.replace(tzinfo=None) if getattr(moment, "tzinfo", None) else moment
    return str(plain.isoformat())
