"""Frames of polars, Arrow and other libraries that narwhals supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vfg.tables.cells import (
    Array,
    Column,
    Label,
    Mask,
    Storage,
    as_objects,
    can_hold,
    cast,
    marked_cells,
    read_cells,
)
from vfg.tables.frames import Table
from vfg.utils.extras import needs

with needs("table"):
    import narwhals as nw


class NarwhalsTable(Table):
    """A frame of polars, Arrow or another library with eager frames."""

    def __init__(self, frame: Any, marker: Any) -> None:
        self.frame: nw.DataFrame[Any] = nw.from_native(frame, eager_only=True)
        super().__init__(self.frame.columns, len(self.frame), marker)

    def _read(self, position: int) -> Column:
        return read_series(self.labels[position], self._series(position), self.marker)

    @property
    def library(self) -> str:
        return str(self.frame.implementation.value)

    def dtype_name(self, position: int) -> str:
        return str(self._series(position).dtype)

    def replace_cells(self, fills: Mapping[int, tuple[Mask, Array]]) -> Any:
        changed = []
        for position, (missing, values) in fills.items():
            series = _with_categories(self._series(position), values)
            # Every row takes part in the choice below, so fills are spread over all rows.
            spread = np.full(len(missing), values[0], dtype=values.dtype)
            spread[missing] = values
            if not can_hold(_kind(series.dtype), values) and not self._is_arrow:
                if values.dtype.kind != "f":  # there is no observed cell
                    cells = spread if spread.dtype.kind in "Mm" else as_objects(spread).tolist()
                    changed.append(_series(cells, series, None))
                    continue
                series = series.cast(nw.Float64())
            new = as_series(spread, series)
            keep = nw.new_series("keep", ~missing, nw.Boolean(), backend=series.implementation)
            changed.append(series.zip_with(keep, new).alias(series.name))
        native = self.frame.with_columns(*changed).to_native()
        # narwhals cannot express all categories of Arrow.
        return native.cast(self.frame.to_native().schema) if self._is_arrow else native

    @property
    def _is_arrow(self) -> bool:
        return bool(self.frame.implementation.is_pyarrow())

    def _series(self, position: int) -> nw.Series[Any]:
        return self.frame.get_column(str(self.labels[position]))


def read_series(label: Label, series: nw.Series[Any], marker: Any) -> Column:
    """A series of narwhals as a column."""
    missing = np.asarray(series.is_null().to_numpy(), dtype=bool)
    storage = _storage(series.dtype)
    if storage is None:
        return read_cells(label, _objects(series), marker)
    if storage in ("text", "category"):
        return _read_texts(label, series, marker, storage)
    values = _to_numpy(series, storage)
    missing = missing | marked_cells(values, marker)
    if storage == "float":
        missing |= np.isnan(values)
    return Column(label, storage, values, missing, zone=getattr(series.dtype, "time_zone", None))


def _storage(dtype: Any) -> Storage | None:
    """What a column of that dtype holds, None if that depends on its cells."""
    if dtype.is_float() or dtype.is_decimal():
        return "float"
    if dtype.is_integer():
        return "integer"
    known: dict[Storage, Any] = {
        "date": nw.Date | nw.Datetime,
        "boolean": nw.Boolean,
        "duration": nw.Duration,
        "text": nw.String,
        "category": nw.Categorical | nw.Enum,
    }
    return next((storage for storage, kind in known.items() if isinstance(dtype, kind)), None)


def _kind(dtype: Any) -> str:
    """The one-letter kind of numpy's corresponding dtype; "O" for anything but numbers."""
    if dtype.is_float():
        return "f"
    return "i" if dtype.is_integer() else "O"


def _to_numpy(series: nw.Series[Any], storage: Storage) -> Array:
    """The cells as an array of numpy, anything where they are missing."""
    if storage == "float":
        return np.asarray(series.cast(nw.Float64()).to_numpy(), dtype=np.float64)
    if storage == "integer":
        unsigned = isinstance(series.dtype, nw.UInt64)
        wanted = nw.UInt64() if unsigned else nw.Int64()
        return np.asarray(series.fill_null(0).cast(wanted).to_numpy())
    if storage == "boolean":
        return np.asarray(series.fill_null(False).to_numpy(), dtype=bool)
    if isinstance(series.dtype, nw.Datetime) and series.dtype.time_zone is not None:
        series = series.dt.replace_time_zone(None)
    values = np.asarray(series.to_numpy())
    # A column of nothing but nulls may come as objects.
    return values if values.dtype.kind in "Mm" else values.astype(_numpy_moment(series.dtype))


def _numpy_moment(dtype: Any) -> str:
    kind = "m8" if isinstance(dtype, nw.Duration) else "M8"
    return f"{kind}[{getattr(dtype, 'time_unit', 'D')}]"


def _objects(series: nw.Series[Any]) -> Array:
    cells = np.empty(len(series), dtype=object)
    cells[:] = series.to_list()
    return cells


def _read_texts(label: Label, series: nw.Series[Any], marker: Any, storage: Storage) -> Column:
    cells = _objects(series.cast(nw.String()))
    column = read_cells(label, cells, marker)
    declared, ordered = None, False
    if isinstance(series.dtype, nw.Enum):
        declared = tuple(name for name in series.dtype.categories if name != marker)
    elif series.implementation.is_pyarrow():
        native = series.to_native()
        ordered = bool(getattr(native.type, "ordered", False))
        if ordered:
            chunks = native.unify_dictionaries().chunks
            levels = chunks[0].dictionary.to_pylist() if chunks else []
            declared = tuple(str(name) for name in levels if name != marker)
    return Column(label, storage, cells, column.missing, declared, ordered)


def as_series(values: Array, like: nw.Series[Any]) -> nw.Series[Any]:
    """Decoded values as a series with the name and dtype of another, or one that fits them."""
    dtype = like.dtype
    if isinstance(dtype, nw.Unknown):  # such as that of nothing but nulls
        return _series(values if values.dtype.kind != "O" else values.tolist(), like, None)
    if dtype.is_integer() or dtype.is_float():
        plain = str(dtype).lower()
        return _series(cast(values, np.dtype(plain)), like, dtype)
    if dtype.is_decimal():
        return _series(values.astype(np.float64), like, nw.Float64()).cast(dtype)
    if isinstance(dtype, nw.Datetime | nw.Date | nw.Duration):
        return _moment_series(values, like)
    if isinstance(dtype, nw.Boolean):
        return _series(values.astype(bool), like, dtype)
    return _series(as_objects(values).tolist(), like, nw.String()).cast(dtype)


def _with_categories(series: nw.Series[Any], values: Array) -> nw.Series[Any]:
    """The series, if it is an enum, with the categories among new values."""
    if not isinstance(series.dtype, nw.Enum):
        return series
    known = dict.fromkeys(series.dtype.categories)
    lacking = [cell for cell in dict.fromkeys(as_objects(values).tolist()) if cell not in known]
    wider = nw.Enum([*known, *lacking])
    return series.cast(nw.String()).cast(wider) if lacking else series


def _series(values: Any, like: nw.Series[Any], dtype: Any) -> nw.Series[Any]:
    return nw.new_series(like.name, values, dtype, backend=like.implementation)


def _moment_series(values: Array, like: nw.Series[Any]) -> nw.Series[Any]:
    dtype = like.dtype
    zone = getattr(dtype, "time_zone", None)
    if isinstance(dtype, nw.Duration):
        return _series(values.astype(_numpy_moment(dtype)), like, None).cast(dtype)
    unit: Any = getattr(dtype, "time_unit", "us")
    if zone is not None:
        from vfg.tables.pandas_frames import change_zone

        values = change_zone(values, zone, "UTC")
    naive = _series(values.astype(f"M8[{unit}]"), like, nw.Datetime(unit))
    if zone is None:
        return naive.cast(dtype)
    return naive.dt.replace_time_zone("UTC").dt.convert_time_zone(zone).cast(dtype)


def frame_of(
    library: Any,
    cells: Mapping[Any, Array],
    dtypes: Mapping[Any, str],
    zones: Mapping[Any, str],
) -> Any:
    """A frame of decoded cells in a library, with dtypes by name where they need no parameters."""
    columns = {}
    for label, values in cells.items():
        plain = values if values.dtype.kind in "Mm" else as_objects(values).tolist()
        series = nw.new_series(str(label), plain, backend=library)
        kind = getattr(nw, dtypes[label], None)
        if label in zones:
            series = _moment_series(values, series.head(0).dt.replace_time_zone(zones[label]))
        columns[str(label)] = series if kind is None or label in zones else series.cast(kind())
    return nw.from_dict(columns, backend=library).to_native()
