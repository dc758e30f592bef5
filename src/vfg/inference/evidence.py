"""Evidence for `infer`: a table with missing values, records or values by name, checked."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.inference.variables import Model, format_number, is_missing_value
from vfg.inputs import (
    ArrayLike,
    Name,
    Tabular,
    as_evidence,
    as_mask,
    as_tensor,
    as_value,
    check_values,
    claim_column,
    column_label,
    is_latent,
    read_table,
    refuse_infinite,
    scale_cells,
    table_columns,
    value_width,
    values_by_name,
)
from vfg.tables.frames import is_frame

FAR = 0.1
"""How far outside the range of the fitted table a value is warned of, in widths of the range: rows
like the fitted ones lie a little outside of it here and there."""
MOST_CHECKED = 32
"""Rows by name up to which values are compared with this range; longer lists are tables."""


@dataclass(frozen=True)
class Given:
    """Evidence, as it came and in the form that message passing takes."""

    table: Tensor
    """In its own units, dtype and device `(rows, columns)`, NaN where nothing is observed."""
    states: dict[str, Tensor]
    """The given states of latent nodes `(rows, width)`, NaN where a coordinate is free."""
    cells: Tensor
    """The table in the model's units, dtype and device, 0 where nothing is observed."""
    seen: Tensor
    """Which cells are observed, on the model's device."""
    evidence: dict[int, Tensor]
    """The given states by block `(nodes, rows, width)`, NaN where free."""
    index: Any = None
    """The row labels of a pandas frame."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.table)

    def select(self, rows: Tensor) -> Given:
        """Some of the rows."""
        here = rows.to(self.table.device)
        return Given(
            self.table[here],
            {name: state[rows.to(state.device)] for name, state in self.states.items()},
            self.cells[rows],
            self.seen[rows],
            {block: states[:, rows] for block, states in self.evidence.items()},
            None if self.index is None else self.index[rows.cpu().numpy()],
        )


def as_given(model: Tabular, given: ArrayLike, observed: ArrayLike | None) -> Given:
    """Check evidence: a table with NaN, a frame, a mapping from names, or a list of mappings.

    The mask says which cells of the table may be used; None means all but NaN. Names are those of
    leaves, columns and latent nodes.
    """
    states: dict[str, Tensor] = {}
    if is_records(given):
        table, states = _from_records(model, given)
    elif isinstance(given, Mapping):
        table, states = values_by_name(model, given, "the evidence")
    else:
        table = read_table(model, given, partial=True)
    if observed is not None:
        table = _apply_mask(model, table, observed)
    seen = ~table.isnan()
    known = torch.where(seen, table, 0.0)
    check_values(model, known, seen)
    evidence, _, _ = as_evidence(model, states, rows=len(table))
    index = getattr(given, "index", None) if is_frame(given) else None
    return Given(table, states, *scale_cells(model, known, seen), evidence, index)


def is_records(given: ArrayLike) -> bool:
    """Whether evidence is a list of mappings from names to values, one per row.

    Example:
        >>> is_records([{"a": 1.0}, {}]), is_records([[1.0]]), is_records([])
        (True, False, False)
    """
    listed = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
    return listed and all(isinstance(row, Mapping) for row in given)


def warn_of_extrapolation(model: Model, given: Any, *, stacklevel: int) -> None:
    """Warn of single values by name that lie far outside the range of the fitted table.

    Tables, and names with a value for every row, are not checked.
    """
    rows: Any = [given] if isinstance(given, Mapping) else given if is_records(given) else []
    singles = [
        (str(name), value.item() if isinstance(value, Tensor) else value)
        for row in rows
        if len(rows) <= MOST_CHECKED
        for name, value in row.items()
        if np.ndim(value) == 0 and not is_missing_value(value)
    ]
    variables = model.variables if singles else {}
    told: set[str] = set()
    for name, value in singles:
        variable = variables.get(name)
        if variable is None or name in told:
            continue
        if variable.kind == "date" and isinstance(value, str):
            value = variable.parse(value)  # the table may write dates in a layout of its own
        known = variable.describe_range(value, margin=FAR)
        if known:
            told.add(name)
            shown = format_number(float(value)) if isinstance(value, Real) else value
            warnings.warn(
                f"the evidence has {name!r} = {shown}, but {known}; what follows is extrapolated",
                stacklevel=stacklevel,
            )


def _from_records(
    model: Tabular, records: Sequence[Mapping[Name, ArrayLike]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows of values by name as a table and latent states, NaN where a row has no value."""
    names = dict.fromkeys(name for record in records for name in record)
    latent = {name for name in names if is_latent(model, name)}
    places = {
        name: table_columns(model, name, "the evidence")
        for name in names
        if name not in latent and value_width(model, name)
    }
    cells = np.full((len(records), model.sections.columns), np.nan)
    states: dict[str, Tensor] = {}
    for row, record in enumerate(records):
        taken: dict[int, Name] = {}
        for name, given in record.items():
            if given is None:
                continue
            if name in latent:
                value = refuse_infinite(name, as_value(model, name, _one_row(given)))
                free = torch.full((len(records), value.shape[1]), torch.nan, dtype=torch.float64)
                states.setdefault(str(name), free)[row] = value[0]
                continue
            for column in places[name]:
                claim_column(model, taken, name, column)
            if isinstance(given, int | float) and len(places[name]) == 1:
                cells[row, places[name][0]] = given
            else:
                cells[row, list(places[name])] = as_value(model, name, _one_row(given))[0].numpy()
    return torch.from_numpy(cells), states


def _one_row(value: ArrayLike) -> ArrayLike:
    """The values of one node as a table of one row."""
    row = as_tensor(value, "a row of evidence")
    return row[None] if row.ndim == 1 and len(row) > 1 else row


def _apply_mask(model: Tabular, table: Tensor, observed: ArrayLike) -> Tensor:
    mask = as_mask(model, observed, table)
    empty = mask & table.isnan()
    if bool(empty.any()):
        row, column = empty.nonzero()[0].tolist()
        raise ValueError(
            f"observed marks column {column_label(model, column)!r} of row {row} as observed, but "
            "it is NaN; give its value, or mark it as unobserved"
        )
    return torch.where(mask, table, torch.nan)
