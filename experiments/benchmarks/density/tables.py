"""The continuous tables: which columns are kept, and how rows are split."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from vfg.data import uci, uci_names
from vfg.data.archives import archive
from vfg.tables.cells import Array, Mask

DISTINCT = 20
"""A continuous column has more distinct values than this."""
COMMONEST = 0.1
"""No value of a continuous column takes more than this share of the rows."""
CORRELATED = 0.98
"""A column this correlated with one before it repeats it: the joint density would be unbounded."""
COLUMNS = 3
"""A table needs this many columns."""
MISSING = 0.3
"""Share of the test cells that are hidden, completely at random."""


class Split(NamedTuple):
    """Rows to learn from, to choose by and to report, z-scored by the first ones."""

    train: Array
    validation: Array
    test: Array
    hidden: Mask
    """Which test cells are missing in the second measure."""


@cache
def tables() -> dict[str, Array]:
    """The continuous tables of `uci_tabular.npz` in the folder that VFG_DATA names.

    Without the file, those that scikit-learn brings along.
    """
    arrays = archive("uci_tabular.npz") or {f"{name}__X": uci(name)[0] for name in uci_names()}
    raw = {key[:-3]: arrays[key] for key in sorted(arrays) if key.endswith("__X")}
    found = {name: continuous(table) for name, table in raw.items()}
    return {name: table for name, table in found.items() if table.shape[1] >= COLUMNS}


def continuous(table: Array) -> Array:
    """The continuous columns, rounding undone by uniform noise; equal rows only once.

    Rounded values make densities unbounded: whoever puts the narrowest peaks on them wins. So
    every value is spread evenly over the smallest gap between two values of its column.
    """
    kept: list[int] = []
    for column in range(table.shape[1]):
        if _is_continuous(table[:, column]) and not _repeats(table, column, kept):
            kept.append(column)
    table = np.unique(table[:, kept], axis=0)
    random = np.random.default_rng(0)
    table = table[random.permutation(len(table))]
    gaps = np.array([np.diff(np.unique(column)).min() for column in table.T])
    return np.asarray(table + gaps * (random.random(table.shape) - 0.5))


def split(name: str, seed: int) -> Split:
    """60 % of the rows to train, 20 % to choose, 20 % to test."""
    table, random = tables()[name], np.random.default_rng(seed)
    first, second = int(0.6 * len(table)), int(0.8 * len(table))
    table = table[random.permutation(len(table))]
    mean, deviation = table[:first].mean(0), table[:first].std(0)
    train, validation, test = np.split((table - mean) / deviation, [first, second])
    return Split(train, validation, test, random.random(test.shape) < MISSING)


def _is_continuous(column: Array) -> bool:
    _, counts = np.unique(column, return_counts=True)
    return len(counts) > DISTINCT and counts.max() <= COMMONEST * len(column)


def _repeats(table: Array, column: int, kept: list[int]) -> bool:
    return any(
        abs(np.corrcoef(table[:, column], table[:, other])[0, 1]) > CORRELATED for other in kept
    )
