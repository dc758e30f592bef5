"""Frames of Dask: `vfg.dask.impute` fills each partition where it is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from vfg.bigtable.fill_job import Model, as_model
from vfg.imputation.table_model import TableModel
from vfg.modelfile import dumps, loads
from vfg.utils.extras import needs

PARTITION = 2**32
"""Row numbers that a partition has for itself, so that draws differ between partitions."""


def impute(frame: Any, model: Model) -> Any:
    """Fill the missing values of a Dask frame; nothing is computed before it is asked for.

    Partitions are filled as `TableModel.fill` does, on any scheduler; workers need vfg in the same
    version. Other columns, the index and the partitions stay as they are.

    Args:
        frame: a `dask.dataframe.DataFrame` with the columns of the model, among others.
        model: a fitted model or imputer, or its file or URL.

    Returns:
        A frame of the same columns and dtypes.

    Raises:
        ImportError: without Dask.
        TypeError: for what is no Dask frame.
        ValueError: for a frame without the columns of the model.
    """
    with needs("dask"):
        import dask.dataframe as dd
    if not isinstance(frame, dd.DataFrame):
        raise TypeError(
            f"vfg.dask.impute takes a dask.dataframe.DataFrame, but got a {type(frame).__name__}; "
            "use VFGImputer.transform for other frames"
        )
    known = as_model(model)
    known.places(list(frame.columns))  # refuses a frame that lacks columns
    lazy: Any = frame
    return lazy.map_partitions(_fill_partition, dumps(known), meta=frame._meta)


def _fill_partition(part: Any, data: bytes, partition_info: Any = None) -> Any:
    """One partition, a frame of pandas, filled."""
    if not len(part):
        return part
    first = PARTITION * int((partition_info or {}).get("number", 0))
    return model_from(data).fill(part, row_ids=first + np.arange(len(part)))


@lru_cache(maxsize=2)
def model_from(data: bytes) -> TableModel:
    """A model from its bytes, read once per process."""
    model = loads(data)
    assert isinstance(model, TableModel)
    return model
