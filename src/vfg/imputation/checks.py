"""What tables and settings must be before anything is done with them."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from vfg.tables.frames import Table, open_table
from vfg.tables.schema import check_labels

SEEDS = 2**26
"""How many different seeds there are; training multiplies them, within 64 bits."""


def checked_table(table: Any, missing_values: Any, caller: str) -> Table:
    """A table that has rows and columns and no infinite cells, opened.

    Args:
        table: a frame, an array, or nested sequences.
        missing_values: what marks missing cells.
        caller: whose table it is, for errors.

    Raises:
        ValueError: for tables without rows or columns, repeated names of columns, infinite cells,
            or not of two axes.
        TypeError: for sparse and lazy tables.

    Example:
        >>> checked_table([[1, 2]], np.nan, "VFGImputer").rows
        1
    """
    if sparse.issparse(table):
        raise TypeError(
            f"{caller} takes dense tables, but sparse input was passed; use table.toarray()"
        )
    if hasattr(table, "collect") and not hasattr(table, "shape"):
        raise TypeError(f"{caller} takes tables in memory, but this one is lazy; use collect()")
    opened = open_table(table, missing_values)
    check_labels(opened.labels, None)
    for number, what in ((opened.rows, "sample"), (len(opened.labels), "feature")):
        if not number:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape=({opened.rows}, {len(opened.labels)})) while "
                f"a minimum of 1 is required by {caller}."
            )
    opened.columns()
    return opened


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number, or too small."""
    if not (is_number(value, Integral) and value >= least):
        raise ValueError(f"{name} must be a whole number of at least {least}, but is {value!r}")


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number between 0 and 1, both excluded."""
    if not (is_number(value, Real) and 0.0 < value < 1.0):
        raise ValueError(f"{name} must be a number between 0 and 1, but is {value!r}")


def as_seed(random_state: Any) -> int:
    """The seed that a `random_state` of scikit-learn stands for.

    Args:
        random_state: an integer from 0 on, a `RandomState` that one is drawn from, or None for
            the global one.

    Raises:
        ValueError: for anything else.

    Example:
        >>> as_seed(7), as_seed(np.random.RandomState(0)) == as_seed(np.random.RandomState(0))
        (7, True)
    """
    generator = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state) % SEEDS
    return int(generator.randint(SEEDS))


def plain_marker(missing_values: Any) -> Any:
    """The marker of missing cells as a value of plain Python, which files can hold."""
    return missing_values.item() if isinstance(missing_values, np.generic) else missing_values


def is_number(value: Any, kind: type) -> bool:
    """Whether something is a number of a kind, and neither a truth value nor NaN."""
    return isinstance(value, kind) and not isinstance(value, bool) and not math.isnan(value)  # type: ignore[arg-type]
