"""The same column in every container and dtype that can hold it, with gaps."""

from __future__ import annotations

import datetime
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pyarrow as pa
from optional import polars as pl

ROWS = 40
GAPS = (3, 7, 8, 20, 39)


def with_gaps(cells):
    return [None if place in GAPS else cell for place, cell in enumerate(cells)]


NUMBERS = [float(value) for value in np.random.default_rng(0).normal(50.0, 20.0, ROWS)]
WHOLE = [int(value) for value in NUMBERS]
TRUTHS = [value > 50.0 for value in NUMBERS]
NAMES = [f"name {value % 3}" for value in WHOLE]
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=value) for value in WHOLE]
TIMES = [datetime.datetime(2020, 1, 1) + datetime.timedelta(minutes=137 * value) for value in WHOLE]
SPANS = [datetime.timedelta(seconds=11 * value) for value in WHOLE]


def objects(cells):
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found


def arrow(kind):
    return pd.ArrowDtype(kind)


# The kind that is inferred, the cells, and the dtypes of pandas that hold them with gaps.
PANDAS = [
    ("continuous", NUMBERS, ["float64", "float32", "Float64", "Float32", "double[pyarrow]"]),
    ("continuous", NUMBERS, ["object", "Sparse[float]", arrow(pa.decimal128(12, 3))]),
    ("integer", WHOLE, ["Int64", "Int16", "UInt8", "int64[pyarrow]", "object"]),
    ("boolean", TRUTHS, ["boolean", "bool[pyarrow]", "object"]),
    ("categorical", NAMES, ["object", "str", "string", "string[pyarrow]", "category"]),
    (
        "categorical",
        NAMES,
        [
            arrow(pa.large_string()),
            arrow(pa.dictionary(pa.int32(), pa.string())),
            pd.CategoricalDtype(["name 2", "name 0", "unused", "name 1"]),
        ],
    ),
    ("ordinal", NAMES, [pd.CategoricalDtype(["name 2", "name 0", "name 1"], ordered=True)]),
    ("categorical", WHOLE, [pd.CategoricalDtype(sorted(set(WHOLE)))]),
    ("date", DAYS, [arrow(pa.date32()), "datetime64[s]", "datetime64[ns]", "object"]),
    ("date", TIMES, ["datetime64[us]", "datetime64[ns]", "datetime64[ms, Europe/Berlin]"]),
    ("date", TIMES, [arrow(pa.timestamp("us")), "object"]),
    ("date", SPANS, ["timedelta64[ns]", "timedelta64[s]", arrow(pa.duration("ms")), "object"]),
]


def polars_dtypes():
    """The kind, the cells and the dtypes of polars, none without polars."""
    if find_spec("polars") is None:
        return []
    return [
        ("continuous", NUMBERS, [pl.Float64, pl.Float32, pl.Decimal(12, 3)]),
        ("integer", WHOLE, [pl.Int64, pl.Int8, pl.UInt32, pl.UInt64]),
        ("boolean", TRUTHS, [pl.Boolean]),
        (
            "categorical",
            NAMES,
            [pl.String, pl.Categorical, pl.Enum([*sorted(set(NAMES)), "unused"])],
        ),
        ("date", DAYS, [pl.Date]),
        (
            "date",
            TIMES,
            [pl.Datetime("ns"), pl.Datetime("ms"), pl.Datetime("us", "America/New_York")],
        ),
        ("date", SPANS, [pl.Duration("us"), pl.Duration("ms")]),
    ]


def pandas_series(cells, dtype):
    if str(dtype).startswith("datetime64") and "Berlin" in str(dtype):
        naive = pd.Series(with_gaps(cells), dtype="datetime64[ms]")
        return naive.dt.tz_localize("Europe/Berlin").astype(dtype)
    return pd.Series(with_gaps(cells), dtype=dtype)


def polars_series(cells, dtype):
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        naive = pl.Series("x", with_gaps(cells), dtype=pl.Datetime("us"))
        return naive.dt.replace_time_zone(dtype.time_zone)
    if isinstance(dtype, pl.Decimal):
        return pl.Series("x", with_gaps(cells), dtype=pl.Float64).cast(dtype)
    return pl.Series("x", with_gaps(cells), dtype=dtype)


def frames():
    """Triples: name, kind, and a frame with the column x and a column y of numbers."""
    for kind, cells, dtypes in PANDAS:
        for dtype in dtypes:
            index = pd.Index([f"row {k}" for k in range(ROWS)])
            frame = pd.DataFrame({"x": pandas_series(cells, dtype), "y": NUMBERS})
            yield f"pandas {dtype} {kind}", kind, frame.set_index(index)
    for kind, cells, dtypes in polars_dtypes():
        for dtype in dtypes:
            frame = pl.DataFrame({"x": polars_series(cells, dtype), "y": NUMBERS})
            yield f"polars {dtype} {kind}", kind, frame
            # Arrow says of a column whether it has an order, and polars says so of an Enum.
            kind = "ordinal" if isinstance(dtype, pl.Enum) else kind
            yield f"arrow {dtype} {kind}", kind, frame.to_arrow()


def arrays():
    """Triples: name, kind of the first column, and an array."""
    both = [(NUMBERS, "continuous"), (WHOLE, "integer"), (TRUTHS, "boolean")]
    both += [(NAMES, "categorical"), (DAYS, "date"), (TIMES, "date"), (SPANS, "date")]
    for cells, kind in both:
        yield f"object {kind} {cells[0]!r}", kind, np.stack([objects(with_gaps(cells))] * 2, axis=1)
    for dtype in ("float64", "float32", "float16"):
        column = np.array(with_gaps(NUMBERS), dtype=dtype)
        yield dtype, "continuous", np.stack([column] * 2, axis=1)
    column = np.array(with_gaps(TIMES), dtype="datetime64[s]")
    yield "datetime64", "date", np.stack([column] * 2, axis=1)


FRAMES = list(frames())
ARRAYS = list(arrays())


def cells_of(frame, label):
    """Every cell with its type, so that 1, 1.0 and True differ."""
    column = frame[label]
    cells = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return [(type(cell), cell) for cell in cells]


def dtypes_of(frame):
    """The dtypes of a frame, whatever its library."""
    if isinstance(frame, pd.DataFrame):
        return list(frame.dtypes)
    return (
        [(name, frame.schema.field(name).type) for name in frame.schema.names]
        if isinstance(frame, pa.Table)
        else list(frame.schema.items())
    )
