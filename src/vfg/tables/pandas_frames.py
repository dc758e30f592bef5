"""Frames of pandas, with every dtype that their columns can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vfg.tables.cells import (
    STORAGE_OF_KIND,
    Array,
    Column,
    Mask,
    as_cells,
    as_objects,
    can_hold,
    cast,
    marked_cells,
    read_cells,
)
from vfg.tables.frames import Table
from vfg.utils.extras import needs

with needs("table"):
    import pandas as pd


class PandasTable(Table):
    """A frame of pandas: numpy, nullable, Arrow, categorical, date and object columns."""

    def __init__(self, frame: Any, marker: Any) -> None:
        if frame.columns.nlevels > 1:
            raise ValueError(
                f"columns need names of one level, but have {frame.columns.nlevels}; join them, as "
                "by frame.columns = frame.columns.map('_'.join)"
            )
        super().__init__(list(frame.columns), len(frame), marker)
        self.frame = frame

    def _read(self, position: int) -> Column:
        return read_series(self.labels[position], self.frame.iloc[:, position], self.marker)

    library = "pandas"

    def dtype_name(self, position: int) -> str:
        return str(self.frame.dtypes.iloc[position])

    def replace_cells(self, fills: Mapping[int, tuple[Mask, Array]]) -> Any:
        result = self.frame.copy()
        for position, (missing, values) in fills.items():
            series = self.frame.iloc[:, position]
            result.isetitem(position, _merge(series, missing, values))
        return result


def read_series(label: Any, series: Any, marker: Any) -> Column:
    """A series of pandas as a column."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _read_categories(label, series, marker)
    kind = getattr(dtype, "kind", "O")
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {label!r} must hold real numbers")
    if isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype):
        raise TypeError(f"column {label!r} holds {dtype}; convert it to dates, numbers or strings")
    if kind not in "fiubMm":
        column = read_cells(label, series.to_numpy(dtype=object), marker)
        text = column.storage == "empty" and (kind == "U" or isinstance(dtype, pd.StringDtype))
        return replace(column, storage="text") if text else column
    missing = series.isna().to_numpy(dtype=bool)
    values = _to_numpy(series, kind)
    missing = missing | marked_cells(values, marker)
    if kind == "f":
        missing |= np.isnan(values)
    return Column(label, STORAGE_OF_KIND[kind], values, missing, zone=_zone_name(_zone(dtype)))


def _to_numpy(series: Any, kind: str) -> Array:
    """The cells as an array of numpy, anything where they are missing."""
    if kind in "Mm":
        return _read_moments(series)
    if kind == "f":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    wanted = {"i": np.int64, "u": np.uint64, "b": np.bool_}[kind]
    if not series.hasnans:
        return np.asarray(series.to_numpy(dtype=wanted))
    return np.asarray(series.to_numpy(dtype=wanted, na_value=False if kind == "b" else 0))


def _read_moments(series: Any) -> Array:
    """Dates in local time, or durations, in their own unit."""
    zone = _zone(series.dtype)
    if zone is not None:
        if isinstance(series.dtype, pd.ArrowDtype):
            # Before pandas 3, `tz_localize` of Arrow's moments leaves UTC, not local time.
            unit = series.dtype.pyarrow_dtype.unit
            series = series.astype(pd.DatetimeTZDtype(unit, zone))
        series = series.dt.tz_localize(None)
    if isinstance(series.dtype, pd.ArrowDtype):
        return np.asarray(series.array.__arrow_array__().to_numpy())
    return np.asarray(series.to_numpy())


def _read_categories(label: Any, series: Any, marker: Any) -> Column:
    declared = series.cat.categories
    plain = read_series(label, pd.Series(declared), marker)
    codes = series.cat.codes.to_numpy()
    missing = codes < 0
    if plain.missing.any():
        missing = missing | plain.missing[codes]
    values = plain.values[codes] if len(declared) else np.empty(len(codes), dtype=object)
    names = tuple(as_objects(plain.observed).tolist())
    return Column(label, "category", values, missing, names, bool(series.cat.ordered))


def _merge(series: Any, missing: Mask, values: Array) -> Any:
    """The series with new values in its missing cells, of another dtype if it cannot hold them."""
    if not can_hold(getattr(series.dtype, "kind", "O"), values):
        if values.dtype.kind != "f":  # there is no observed cell
            cells = values if values.dtype.kind in "Mm" else as_objects(values)
            return pd.Series(cells, index=series.index)
        is_nullable = isinstance(series.dtype, pd.api.extensions.ExtensionDtype)
        series = series.astype("Float64" if is_nullable else "float64")
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = _with_categories(series, values)
    # The observed cells, whose selection takes most of the time, say what objects are.
    new = _as_dtype(values, series[~missing] if series.dtype == object else series)
    if isinstance(series.dtype, pd.SparseDtype):
        dense = series.to_numpy(copy=True)
        dense[missing] = np.asarray(new)
        return pd.Series(dense, index=series.index, dtype=series.dtype)
    array = series.array.copy()
    array[missing] = new
    return pd.Series(array, index=series.index, dtype=series.dtype, copy=False)


def _with_categories(series: Any, values: Array) -> Any:
    """The series with the categories among new values, which another table may have had."""
    known = dict.fromkeys(series.cat.categories)
    lacking = [cell for cell in dict.fromkeys(as_objects(values).tolist()) if cell not in known]
    return series.cat.add_categories(lacking) if lacking else series


def _as_dtype(values: Array, like: Any) -> Any:
    """Decoded values as an array of pandas with the dtype of the series `like`."""
    dtype = like.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return as_cells(values, like.dropna().to_numpy())
    kind = getattr(dtype, "kind", "O")
    zone = _zone(dtype)
    if zone is not None:
        return pd.Series(localise(values, zone)).astype(dtype).array
    if kind in "iuf":
        plain = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
        values = cast(values, np.dtype(plain))
    if kind in "Mm" or (isinstance(dtype, pd.ArrowDtype) and values.dtype.kind in "fiub"):
        # Arrow rounds to the digits of its decimals in a cast alone.
        return pd.Series(values).astype(dtype).array
    return pd.array(values if kind in "iufb" else as_objects(values), dtype=dtype)


def with_dtypes(frame: Any, dtypes: Mapping[Any, str], schema: Mapping[Any, Any]) -> Any:
    """A frame of decoded cells with dtypes by column; the schema has the categories."""
    for label, name in dtypes.items():
        dtype = pd.api.types.pandas_dtype(name)
        if isinstance(dtype, pd.CategoricalDtype):
            spec = schema[label]
            dtype = pd.CategoricalDtype(getattr(spec, "categories", None), spec.name == "ordinal")
        cells = frame[label]
        if getattr(dtype, "kind", "") == "O" and isinstance(dtype, np.dtype):
            frame[label] = cells.astype(object)
        elif not isinstance(dtype, pd.SparseDtype) and cells.notna().all():
            new = _as_dtype(cells.to_numpy(), pd.Series([], dtype=dtype))
            frame[label] = pd.Series(new, index=cells.index)
    return frame


def _zone(dtype: Any) -> Any:
    """The time zone of a dtype, or None."""
    arrow = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else dtype
    return getattr(arrow, "tz", None)


def _zone_name(zone: Any) -> str | None:
    """The name of a time zone; None for those that cannot be found by it, such as of dateutil."""
    name = None if zone is None else str(zone)
    return name if name is None or is_zone(name) else None


def is_zone(name: str) -> bool:
    """Whether there is a time zone of that name."""
    try:
        pd.Timestamp(0, tz=name)
    except (KeyError, ValueError, TypeError, OSError):
        return False
    return True


def change_zone(wall: Array, source: str, target: str) -> Array:
    """Local times of one zone as those of another."""
    return np.asarray(localise(wall, source).tz_convert(target).tz_localize(None))


def localise(wall: Array, zone: Any) -> Any:
    """Local times in a time zone; ambiguous and nonexistent ones are moved forward."""
    late = np.zeros(len(wall), dtype=bool)
    index = pd.DatetimeIndex(wall).tz_localize(zone, ambiguous=late, nonexistent="shift_forward")
    return index
