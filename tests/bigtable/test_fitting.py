"""Learning from a stream: the sample is fair, ranges and categories come from all rows."""

import numpy as np
import pyarrow as pa
import pytest
from bigtable.tables_on_disk import mixed, numbers

from vfg.bigtable import fit, write_table
from vfg.bigtable.fitting import Sample
from vfg.modelfile import dumps
from vfg.sklearn import VFGImputer
from vfg.tabular import Categorical, Continuous


def linear(**settings):
    return VFGImputer(bend=False, random_state=0, **settings)


def stored(folder, table, name="table.parquet"):
    write_table(table.to_batches(max_chunksize=97), table.schema, folder / name)
    return folder / name


def test_a_small_table_gives_the_model_of_fitting_in_memory(tmp_path):
    table = mixed(300).drop_columns(["id", "note"])
    gap = pa.table(
        {
            name: pa.nulls(1, field.type)
            for name, field in zip(table.column_names, table.schema, strict=True)
        }
    )
    table = pa.concat_tables([table.slice(0, 100), gap, table.slice(100)])
    found = fit(stored(tmp_path, table), linear())
    assert dumps(found.model_) == dumps(linear().fit(table).model_)


def test_only_the_chosen_columns_are_learned(tmp_path):
    path = stored(tmp_path, mixed(100))
    found = fit(path, linear(), columns=["word", "c0"])
    assert list(found.schema_) == ["c0", "word"]
    with pytest.raises(ValueError, match="no column 'x'"):
        fit(path, linear(), columns=["x"])


def test_ranges_and_categories_come_from_all_rows(tmp_path):
    rows = 2000
    table = pa.table(
        {
            "real": pa.array(np.arange(rows) / 10),
            "whole": pa.array(np.arange(rows)),
            "word": pa.array(["a", "b"] * (rows // 2 - 1) + ["rare", "b"]),
            "day": pa.array(np.datetime64("2020-01-01") + np.arange(rows)),
        }
    )
    found = fit(stored(tmp_path, table), linear(bounds={"whole": (None, 5000)}), rows=50)
    assert found.schema_["real"].bounds == (0.0, (rows - 1) / 10)
    assert found.schema_["whole"].bounds == (0.0, 5000.0)
    assert found.schema_["word"].categories == ("a", "b", "rare")
    assert found.schema_["day"].bounds == ("2020-01-01", "2025-06-22")
    assert found.get_params()["bounds"] == {"whole": (None, 5000)}
    filled = found.transform(table.slice(0, 3).set_column(2, "word", pa.array([None, "rare", "a"])))
    assert filled["word"].to_pylist()[1:] == ["rare", "a"]


def test_what_a_user_says_of_columns_stays(tmp_path):
    table = pa.table({"a": np.arange(300) % 7, "b": np.arange(300.0)})
    schema = {"a": Categorical(tuple(range(9))), "b": Continuous(bounds=(-5, None))}
    found = fit(stored(tmp_path, table), linear(schema=schema), rows=40)
    assert found.schema_["a"].categories == tuple(range(9))
    assert found.schema_["b"].bounds == (-5.0, 299.0)


def test_marked_gaps_are_no_part_of_a_range(tmp_path):
    values = np.where(np.arange(300) % 3 == 0, -999.0, np.arange(300.0))
    table = pa.table({"a": values, "b": np.arange(300.0), "word": ["x", "?", "y"] * 100})
    found = fit(stored(tmp_path, table), linear(missing_values=-999), rows=60)
    assert found.schema_["a"].bounds == (1.0, 299.0)


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no rows to learn from"):
        fit(stored(tmp_path, numbers(5).slice(0, 0), "table.csv"))


def test_the_sample_does_not_depend_on_how_the_stream_is_cut():
    table = numbers(500)
    samples = []
    for rows in (1, 50, 500):
        sample = Sample(40, seed=1)
        for batch in table.combine_chunks().to_batches(max_chunksize=rows):
            sample.add(batch)
        samples.append(sample.table)
    assert samples[0].equals(samples[1])
    assert samples[0].equals(samples[2])
    assert samples[0].num_rows == 40


def test_every_row_has_the_same_chance():
    rows, size, repeats = 60, 15, 400
    counts = np.zeros(rows)
    batches = pa.table({"a": np.arange(rows)}).to_batches(max_chunksize=7)
    for seed in range(repeats):
        sample = Sample(size, seed)
        for batch in batches:
            sample.add(batch)
        counts[sample.table["a"].to_numpy()] += 1
    share = size / rows
    deviation = np.sqrt(repeats * share * (1 - share))
    assert np.abs(counts - repeats * share).max() < 4.5 * deviation
    statistic = ((counts - repeats * share) ** 2).sum() / (repeats * share * (1 - share))
    assert abs(statistic - rows) < 5 * np.sqrt(2 * rows)


def test_rows_of_nothing_but_gaps_come_last():
    table = pa.table(
        {"a": [1.0, None, float("nan"), 2.0, None], "b": ["x", None, None, None, None]}
    )
    sample = Sample(2, seed=0)
    sample.add(table.to_batches()[0])
    assert sample.table["a"].to_pylist() == [1.0, 2.0]
