"""Files that are there as a whole or not at all."""

import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bigtable.tables_on_disk import numbers

from vfg.bigtable import Sink, open_table, write_table

SUFFIXES = ["csv", "tsv", "jsonl", "parquet", "feather"]


@pytest.mark.parametrize("suffix", [*SUFFIXES, "csv.gz", "parquet.zst"])
def test_a_failure_leaves_nothing_behind_and_the_old_file_alone(tmp_path, suffix):
    table = numbers(20)
    target = tmp_path / f"table.{suffix}"
    target.write_bytes(b"old")

    def batches():
        yield from table.to_batches(max_chunksize=5)
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        write_table(batches(), table.schema, target)
    assert os.listdir(tmp_path) == [target.name]
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_tables_are_equal_bytes(tmp_path, suffix):
    table = numbers(100)
    for name in ("one", "two"):
        write_table(table.to_batches(), table.schema, tmp_path / f"{name}.{suffix}")
    one, two = (tmp_path / f"{name}.{suffix}" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_new_files_have_the_mode_that_others_get(tmp_path):
    write_table(numbers(5).to_batches(), numbers(5).schema, tmp_path / "table.csv")
    (tmp_path / "plain").touch()
    assert (tmp_path / "table.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_numbers_in_text_keep_kind_and_value(tmp_path):
    table = pa.table(
        {"real": [1.0, 0.1 + 0.2, 1e300, None, float("nan")], "whole": [1, 2, 3, 4, None]}
    )
    write_table(table.to_batches(), table.schema, tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == (
        "real,whole\n1.0,1\n0.30000000000000004,2\n1e+300,3\n,4\n,\n"
    )


def test_a_gap_in_the_only_column_is_still_a_row(tmp_path):
    table = pa.table({"a": [1, None, 3]})
    write_table(table.to_batches(), table.schema, tmp_path / "table.csv")
    assert open_table(tmp_path / "table.csv").read()["a"].to_pylist() == [1, None, 3]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_batches_with_other_categories_go_into_one_file(tmp_path, suffix):
    batches = [
        pa.record_batch({"a": pa.array(cells).dictionary_encode()})
        for cells in (["x", "y"], ["z", None, "x"])
    ]
    write_table(batches, batches[0].schema, tmp_path / f"table.{suffix}")
    found = open_table(tmp_path / f"table.{suffix}").read()["a"].to_pylist()
    assert found == ["x", "y", "z", None, "x"]


def test_parquet_keeps_columns_of_categories(tmp_path):
    batch = pa.record_batch({"a": pa.array(["x", "y"]).dictionary_encode()})
    write_table([batch], batch.schema, tmp_path / "table.parquet")
    assert pa.types.is_dictionary(pq.read_schema(tmp_path / "table.parquet").field("a").type)


def test_standard_output_gets_text(capfdbinary):
    table = pa.table({"a": [1, None], "b": ["x", "y"]})
    write_table(table.to_batches(), table.schema, "-")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"a,b\n1,x\n,y\n"


def test_lists_do_not_fit_into_separated_text(tmp_path):
    table = pa.table({"a": [[1, 2]]})
    with pytest.raises(ValueError, match="the column 'a' holds list"):
        write_table(table.to_batches(), table.schema, tmp_path / "table.csv")
    assert os.listdir(tmp_path) == []


def test_targets_that_cannot_be_are_refused(tmp_path):
    schema = pa.schema([("a", pa.int64())])
    with (
        pytest.raises(FileNotFoundError, match="does not exist"),
        Sink(tmp_path / "no" / "a.csv", schema),
    ):
        pass
    (tmp_path / "folder.csv").mkdir()
    with (
        pytest.raises(IsADirectoryError, match="is a folder"),
        Sink(tmp_path / "folder.csv", schema),
    ):
        pass
    with pytest.raises(ValueError, match="not known from its name"):
        Sink(tmp_path / "table", schema)
