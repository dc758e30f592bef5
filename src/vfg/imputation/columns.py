"""The columns of a model and those of tables, as users give and get them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from torch import Tensor

from vfg.imputation.settings import to_python
from vfg.inference.evidence import is_records
from vfg.inference.variables import Kind, Variable, days_of
from vfg.inputs import Name
from vfg.tables.cells import Array, Label, as_objects, format_moments
from vfg.tables.encoding import Encoding
from vfg.tables.frames import Table, hide_cells, quote
from vfg.tables.numeric import NumericEncoding
from vfg.tables.schema import Integer
from vfg.utils.extras import needs

LEAST_WEIGHT = 0.1
"""Sum of the weights per row below which they are likely shares, not counts."""


def as_frame(table: Any, columns: Sequence[Label] | None = None) -> Any:
    """Columns or rows by name as a frame of pandas; anything else as it is.

    A frame has the `columns` that are given, missing where the table lacks them.
    """
    # Sparse matrices of keys are dictionaries too.
    if scipy.sparse.issparse(table) or not (isinstance(table, Mapping) or is_records(table)):
        return table
    with needs("table"):
        import pandas
    if isinstance(table, Mapping) and all(map(np.isscalar, table.values())):
        table = [table]
    frame = pandas.DataFrame(table)
    if columns is None or not set(frame.columns) <= set(columns):
        return frame  # unknown names are refused where columns are matched
    for label in columns:
        if label not in frame.columns:
            frame[label] = None  # of no dtype, so that it takes that of what is filled in
    return frame[list(columns)]


def without_rows(table: Table, weights: Tensor | None) -> Table:
    """A table whose rows of weight 0 have no cells; warns of weights that add up to few rows."""
    if weights is None:
        return table
    total = float(weights.sum())
    if total < LEAST_WEIGHT * table.rows:
        warnings.warn(
            f"the weights of {table.rows} rows add up to {total:.3g}, so the table counts as so "
            "many rows; multiply the weights so that they add up to the number of rows",
            stacklevel=4,
        )
    left_out = (weights == 0.0).numpy()
    hidden = np.repeat(left_out[:, None], len(table.labels), axis=1)
    return hide_cells(table, hidden) if left_out.any() else table


def match_columns(known: Sequence[Label], labels: Sequence[Label]) -> list[int]:
    """Positions of the columns that a model knows among those of a table.

    A model that was fitted to a table without names takes columns by position. Other labels are
    matched by their text, too, since files and tables of Arrow name columns by text.

    Example:
        >>> match_columns(["a", "b"], ["b", "c", "a"])
        [2, 0]
    """
    counted = known == list(range(len(known)))
    if counted or list(labels) == list(range(len(labels))):
        if len(labels) != len(known):
            raise ValueError(
                f"the model knows {len(known)} columns{' without names' if counted else ''}, "
                f"but the table has {len(labels)}; select those that it was fitted to, in the "
                "same order"
            )
        return list(range(len(known)))
    order: dict[Label, int] = {str(label): place for place, label in enumerate(labels)}
    order |= {label: place for place, label in enumerate(labels)}
    positions = {label: order.get(label, order.get(str(label))) for label in known}
    missing = [label for label, place in positions.items() if place is None]
    if missing:
        raise ValueError(
            f"the table lacks the column{'s' * (len(missing) > 1)} {quote(missing)} that the model "
            f"knows; there are {quote(list(labels))}"
        )
    return [place for place in positions.values() if place is not None]


def rows_of_draw(encoding: Encoding, columns: Mapping[Name, Array], draw: int) -> Any:
    """One draw of all columns as a table: a frame if columns have names, else an array."""
    labels = {str(label): label for label in encoding.schema}
    rows = {
        label: _as_written(encoding, label, columns[name][draw]) for name, label in labels.items()
    }
    if list(rows) == list(range(len(rows))):
        kinds = {cells.dtype for cells in rows.values()}
        plain = len(kinds) == 1 and next(iter(kinds)).kind in "fiub"
        cells = [part if plain else as_objects(part) for part in rows.values()]
        return np.stack(cells, axis=1)
    with needs("table"):
        import pandas
    fitted = encoding.frame
    if fitted is None:
        return pandas.DataFrame(rows)
    dtypes = dict(zip(rows, fitted["dtypes"], strict=True))
    if fitted["library"] != "pandas":
        from vfg.tables.narwhals_frames import frame_of

        clocks = {
            label: part.clock
            for label, part in encoding.parts.items()
            if isinstance(part, NumericEncoding) and part.clock is not None
        }
        zones = {label: clock.zone for label, clock in clocks.items() if clock.zone}
        return frame_of(fitted["library"], rows, dtypes, zones)
    from vfg.tables.pandas_frames import with_dtypes

    return with_dtypes(pandas.DataFrame(rows), dtypes, encoding.schema)


def _as_written(encoding: Encoding, label: Label, cells: Array) -> Array:
    """Cells as the fitted table held them, where it held dates as text."""
    part = encoding.parts[label]
    clock = part.clock if isinstance(part, NumericEncoding) else None
    if clock is None or clock.template is None:
        return cells
    return format_moments(cells, clock.template)


def variable_of(encoding: Encoding, label: Label, leaf: str) -> Variable:
    """The kind, range and categories of a column, which a leaf of the graph holds."""
    name = str(label)
    part, spec = encoding.parts[label], encoding.schema[label]
    idle = label in encoding.idle
    if not isinstance(part, NumericEncoding):
        categories = tuple(to_python(c) for c in getattr(part, "categories", ()))
        if part.empty or (len(categories) > 1 and idle):
            categories = categories[:1]
        return Variable(name, "choice", leaf, categories=categories, idle=idle)
    kind: Kind
    if part.clock is not None:
        ends = days_of(part.clock.moments(np.array([part.lowest, part.highest])))
        kind = "date" if part.clock.kind == "M" else "number"
        return Variable(name, kind, leaf, float(ends[0]), float(ends[1]), idle=idle)
    kind = "integer" if isinstance(spec, Integer) else "number"
    return Variable(name, kind, leaf, part.lowest, part.highest, idle=idle)
