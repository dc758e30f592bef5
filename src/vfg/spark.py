"""Frames of Spark: `vfg.spark.impute` fills batches of rows in the executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vfg.bigtable.engines import one_thread
from vfg.bigtable.fill_batch import Filling, filled_batch, filled_schema
from vfg.bigtable.fill_job import Model, as_model
from vfg.dask import PARTITION, model_from
from vfg.modelfile import dumps
from vfg.utils.extras import needs


def impute(frame: Any, model: Model, *, filling: Filling | None = None) -> Any:
    """Fill the missing values of a Spark frame; nothing is computed before it is asked for.

    Executors need Python with vfg in the same version and pyarrow. Nulls and NaN are missing.
    Observed cells, other columns and types stay as they are.

    Args:
        frame: a `pyspark.sql.DataFrame` with the columns of the model, among others.
        model: a fitted model or imputer, or its file or URL.
        filling: intervals and flags, which add columns; None for what is expected. Random numbers
            follow from the partition and the position in it.

    Returns:
        A frame with the columns of `vfg.bigtable.filled_schema`.

    Raises:
        ImportError: without pyspark.
        TypeError: for what is no Spark frame.
        ValueError: for a frame whose columns do not fit the model.
    """
    with needs("spark"):
        from pyspark.sql import DataFrame
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    if not isinstance(frame, DataFrame):
        raise TypeError(
            f"vfg.spark.impute takes a pyspark.sql.DataFrame, but got a {type(frame).__name__}; "
            "use VFGImputer.transform for other frames"
        )
    known, chosen = as_model(model), Filling() if filling is None else filling
    schema = filled_schema(known, to_arrow_schema(frame.schema), chosen)
    data = dumps(known)

    def fill(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        first = PARTITION * (0 if context is None else context.partitionId())
        for batch in batches:
            with one_thread():
                yield filled_batch(model_from(data), batch, first, chosen)
            first += batch.num_rows

    return frame.mapInArrow(fill, from_arrow_schema(schema))
