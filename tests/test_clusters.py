"""Frames of Dask and Spark are filled as tables in memory are."""

import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from bigtable.tables_on_disk import mixed

from vfg.sklearn import VFGImputer


@pytest.fixture(scope="module")
def frame():
    table = mixed(120).drop_columns(["note"]).to_pandas().astype({"truth": "boolean"})
    return table.assign(day=pd.to_datetime(table["day"]))


@pytest.fixture(scope="module")
def imputer(frame):
    return VFGImputer(bend=False, random_state=0).fit(frame.drop(columns="id"))


def check(filled, frame, imputer):
    """Cells are those of `transform`, and other columns are there."""
    expected = imputer.transform(frame.drop(columns="id"))
    assert list(filled["id"]) == list(frame["id"])
    for name in expected.columns:
        left, right = filled[name], expected[name]
        if left.dtype.kind in "fi":
            np.testing.assert_allclose(left.astype(float), right.astype(float), rtol=1e-9)
        else:
            assert list(left.astype(str)) == list(right.astype(str)), name


@pytest.mark.slow
def test_dask(frame, imputer):
    dd = pytest.importorskip("dask.dataframe")
    from vfg.dask import impute

    lazy = impute(dd.from_pandas(frame, npartitions=3), imputer)
    assert lazy.npartitions == 3
    check(lazy.compute(scheduler="synchronous"), frame, imputer)
    with pytest.raises(ValueError, match="lacks the column"):
        impute(dd.from_pandas(frame[["id"]], npartitions=1), imputer)
    with pytest.raises(TypeError, match="but got a DataFrame; use VFGImputer"):
        impute(frame, imputer)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_spark(frame, imputer, monkeypatch):
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from vfg.bigtable import Filling
    from vfg.spark import impute

    session = (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        given = frame.astype(object).where(frame.notna(), None)
        types = (
            "c0 double, c1 double, c2 double, whole bigint, word string, truth boolean, "
            "day timestamp_ntz, id string"
        )
        rows = [
            tuple(cell if cell is None else int(cell) if name == "whole" else
                  cell.to_pydatetime() if name == "day" else cell
                  for name, cell in zip(given.columns, row, strict=True))
            for row in given.itertuples(index=False)
        ]  # fmt: skip
        table = session.createDataFrame(rows, types).repartition(2)
        filled = impute(table, imputer).toPandas().sort_values("id").reset_index(drop=True)
        check(filled, frame.reset_index(drop=True), imputer)
        wider = impute(table, imputer, filling=Filling(level=0.9, flag=True)).toPandas()
        missing = wider["c0_filled"]
        assert missing.sum() == frame["c0"].isna().sum()
        assert (wider["c0_low"] <= wider["c0"] + 1e-9).all()
        with pytest.raises(TypeError, match="use VFGImputer"):
            impute(pd.DataFrame(), imputer)
    finally:
        session.stop()
