"""Frames of pandas, polars or Arrow as plain columns of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

Frame: TypeAlias = Any
"""A frame of pandas, polars, Arrow or another library that narwhals knows."""
Column: TypeAlias = npt.NDArray[Any]


def is_frame(table: Any) -> bool:
    """Whether something is a table with named columns, and neither array nor mapping.

    Example:
        >>> is_frame(np.zeros((2, 2))), is_frame({"a": [1.0]})
        (False, False)
    """
    plain = isinstance(table, Tensor | np.ndarray | Mapping | Sequence | Real)
    return not plain and hasattr(table, "columns")


def frame_labels(frame: Frame) -> list[Any]:
    """The labels of a frame's columns, in order.

    Tables of Arrow have `columns` too, but these are the cells.

    Example:
        >>> import pyarrow
        >>> frame_labels(pyarrow.table({"a": [1.0]}))
        ['a']
    """
    return list(getattr(frame, "column_names", frame.columns))


def frame_values(
    frame: Frame, names: Sequence[str] | None, count: int, *, partial: bool = False
) -> Column:
    """The numbers of a frame, gaps as NaN.

    Args:
        frame: the frame.
        names: the columns that it must have, in any order; None takes them as they come.
        count: how many columns it must have.
        partial: whether it may lack some of the named columns, which are then NaN.

    Returns:
        An array `(rows, columns)`, in the order of `names`; float32 if every column is, else
        float64.

    Raises:
        ValueError: for columns that are missing, repeated or too many.
        TypeError: for a column that does not hold real numbers.
    """
    columns = list(_columns(frame))
    labels = [label for label, _ in columns]
    order = range(len(labels)) if names is None else _by_name(labels, names, partial)
    if names is None and len(labels) != count:
        raise ValueError(
            f"the frame must have {count} columns in the order of the leaves, but has "
            f"{len(labels)}; select them, or name the columns of the leaves in the graph"
        )
    known = {k: _numbers(*columns[k]) for k in order if k >= 0}
    rows = len(next(iter(known.values()))) if known else 0
    found = [known[k] if k >= 0 else np.full(rows, np.nan, dtype=np.float32) for k in order]
    return np.stack(found, axis=1) if found else np.empty((0, 0))


def _by_name(labels: list[Any], names: Sequence[str], partial: bool) -> list[int]:
    """The places of the named columns among the labels, -1 for one that may be and is missing."""
    repeated = [label for k, label in enumerate(labels) if label in labels[:k]]
    missing = [] if partial else [name for name in names if name not in labels]
    extra = [label for label in labels if label not in names]
    wrong = [
        f"{words} {_listed(columns)}"
        for words, columns in (("lacks", missing), ("has unknown", extra), ("repeats", repeated))
        if columns
    ]
    if wrong:
        raise ValueError(
            f"the frame must have the columns of the model, in any order, but it "
            f"{' and '.join(wrong)}; select or rename its columns"
        )
    places = {label: place for place, label in enumerate(labels)}
    return [places.get(name, -1) for name in names]


def _listed(columns: list[Any]) -> str:
    more = f" and {len(columns) - 6} more" if len(columns) > 6 else ""
    return ", ".join(map(repr, columns[:6])) + more


def _columns(frame: Frame) -> Iterator[tuple[Any, Any]]:
    """Labels and series; as narwhals sees them if it is there, else as pandas does."""
    try:
        import narwhals
    except ModuleNotFoundError:
        yield from frame.items()
        return
    try:
        known = narwhals.from_native(frame, eager_only=True)
    except narwhals.exceptions.DuplicateError:
        yield from frame.items()
        return
    yield from ((series.name, series) for series in known.iter_columns())


def _numbers(label: Any, series: Any) -> Column:
    kind = str(series.dtype).lower()
    if kind in ("float16", "halffloat", "halffloat[pyarrow]"):
        raise TypeError(
            f"column {label!r} is float16, which is too coarse to tell observed values apart; "
            "convert it to float32 or float64"
        )
    wanted = np.float32 if kind == "float32" else np.float64
    values = np.asarray(series.to_numpy())
    if values.dtype.kind in "fiub":
        return values.astype(wanted)
    each = [_number(label, value) for value in series.to_list()]
    return np.asarray(each, dtype=wanted)


def _number(label: Any, value: Any) -> float:
    # The missing value of pandas is neither None nor a number, nor can it be compared.
    if value is None or type(value).__name__ == "NAType":
        return float("nan")
    if not isinstance(value, Real):
        raise TypeError(
            f"column {label!r} must hold numbers, but has {value!r}; encode it as numbers, or "
            "leave gaps as NaN"
        )
    return float(value)
