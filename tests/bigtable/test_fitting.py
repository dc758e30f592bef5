"""Learning from a stream: the sample is fair, ranges and categories come from all rows."""

import csv
import datetime
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bigtable.tables_on_disk import mixed, numbers
from hypothesis import given
from hypothesis import strategies as st

from vfg.bigtable import fit, open_table, text_files, write_table
from vfg.bigtable.fitting import Sample, Statistics, Survey
from vfg.bigtable.type_inference import MISSING_TEXTS
from vfg.modelfile import dumps
from vfg.sklearn import VFGImputer
from vfg.tables import Categorical, Continuous, Date, Integer


def linear(**settings):
    return VFGImputer(bend=False, random_state=0, **settings)


def content(imputer):
    """The bytes of a model, but for how its files were read."""
    imputer.model_.origin = {}
    return dumps(imputer.model_)


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
    assert content(found) == content(linear().fit(table))


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


def test_dates_as_text_are_judged_by_all_rows(tmp_path):
    rows = 2000
    days = (np.datetime64("2020-01-01") + np.arange(rows)).astype(str).tolist()
    words = [*days[:20] * (rows // 20 - 1), *days[:19], "later"]
    table = pa.table({"day": days, "word": words, "x": np.arange(rows) / 10})
    found = fit(stored(tmp_path, table), linear(), rows=50)
    assert found.schema_["day"].bounds == ("2020-01-01", days[-1])
    assert found.schema_["word"].name == "categorical"
    assert "later" in found.schema_["word"].categories
    last = table.slice(rows - 2).set_column(0, "day", pa.array([None, days[-1]]))
    filled = found.transform(last)
    assert filled["word"].to_pylist() == words[-2:]
    assert abs(np.datetime64(filled["day"][0].as_py()) - np.datetime64(days[-2])) < np.timedelta64(
        100, "D"
    )


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
    with pytest.raises(ValueError, match="no rows to fit to"):
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


# One pass for types, sample and statistics, against a table that is read as a whole.

WRITTEN = {
    "gap": st.sampled_from(MISSING_TEXTS),
    "whole": st.one_of(st.integers(-99, 99).map(str), st.sampled_from([" 7", "8\t", str(2**60)])),
    "real": st.one_of(
        st.floats(-99, 99).map(repr),
        st.sampled_from(["-0", "+1", "NAN", " nan", "inf", "1e3", " .5"]),
    ),
    "truth": st.sampled_from(["true", "False", "TRUE", "tRuE", " true"]),
    "day": st.dates().map(str),
    "second": st.sampled_from(["2020-01-31 10:20:30", "1999-12-31T10:20", " 2020-01-31 10:20"]),
    "finer": st.sampled_from(["2020-01-31 10:20:30.5", "2020-01-31 10:20:30.123456789"]),
    "zoned": st.sampled_from(["2020-01-31T10:20:30Z", "2020-01-31T10:20:30.25+02:00"]),
    "word": st.sampled_from(
        ["x", "a,b", 'say "hi"', "two\nlines", "007", "9" * 17, " x ", "1\u00a0"]
    ),
}


@st.composite
def columns_of_text(draw, rows):
    """Cells whose kind changes now and then, most of them gaps in some columns."""
    kinds = draw(st.lists(st.sampled_from(list(WRITTEN)), min_size=1, max_size=3))
    changes = sorted(draw(st.lists(st.integers(0, rows), min_size=len(kinds), max_size=len(kinds))))
    cells = []
    for row in range(rows):
        kind = kinds[max(sum(change <= row for change in changes) - 1, 0)]
        cells.append(draw(st.one_of(WRITTEN[kind], WRITTEN["gap"])))
    return cells


@st.composite
def texts_of_tables(draw):
    """One to three parts of a table, the last of which has its columns in another order."""
    number = draw(st.integers(1, 3))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 30))
        parts.append({f"c{k}": draw(columns_of_text(rows)) for k in range(number)})
    parts[-1] = dict(reversed(parts[-1].items()))
    return parts


def written_parts(folder, parts):
    for place, part in enumerate(parts):
        with open(folder / f"{place}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerow(part)
            writer.writerows(zip(*part.values(), strict=True))
    return [folder / f"{place}.csv" for place in range(len(parts))]


def is_gap(cell):
    return cell is None or cell != cell


def check_survey(sample, statistics, table, size, seed):
    """Compare with what plain Python finds in the whole table."""
    rows = table.to_pylist()
    draws = np.random.Generator(np.random.Philox(key=seed)).random(len(rows))
    draws += [all(is_gap(cell) for cell in row.values()) for row in rows]
    kept = sorted(np.argsort(draws, kind="stable")[:size])
    assert sample.seen == statistics.rows == len(rows)
    assert sample.table.schema.equals(table.schema)
    assert repr(sample.table.to_pylist()) == repr([rows[row] for row in kept])
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        cells = [row[name] for row in rows if not is_gap(row[name])]
        assert statistics.missing[name] == len(rows) - len(cells)
        has_range = bool(cells) and kind not in (pa.string(), pa.bool_())
        ends = (min(cells), max(cells)) if has_range else None
        assert statistics.ranges.get(name) == ends
        assert ends is None or isinstance(statistics.ranges[name][0], type(ends[0]))
        texts = tuple(sorted(set(cells))) if kind == pa.string() and cells else None
        assert statistics.categories(name) == texts


@given(texts_of_tables(), st.integers(1, 40), st.integers(0, 3))
def test_one_pass_finds_what_a_whole_table_says(parts, size, seed):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(text_files, "LONGEST_LINE", 256)
        paths = written_parts(Path(folder), parts)
        names = list(parts[0])
        survey = Survey(names, size, seed)
        try:
            table = open_table(paths).read()
        except ValueError:
            with pytest.raises(ValueError, match="cannot be read"):
                survey.run(open_table(paths))
            return
        source = open_table(paths)
        sample, statistics = survey.run(source)
        assert source.schema.equals(table.schema)
        assert source.rows == table.num_rows
        if source.rows:
            check_survey(sample, statistics, table, size, seed)


def lines(*runs):
    return "a,b\n" + "".join(f"{cell},{row}\n" for cell, number in runs for row in range(number))


@pytest.mark.parametrize(
    ("text", "parses"),
    [
        (lines(("1", 500), ("2.5", 1)), 1),
        (lines((str(2**60 + 1), 500), ("", 200), ("2.5", 1)), 1),
        (lines(("", 500), ("x", 1)), 1),
        (lines(("2020-01-31", 500), ("2020-01-31 10:20:30.5", 1)), 1),
        (lines(("1", 500), ("x", 1)), 2),
        (lines(("true", 500), ("1", 1)), 2),
        (lines(("2020-01-31", 500), ("2020-01-31T10:20:30Z", 1)), 2),
    ],
)
def test_only_a_column_that_turns_to_text_takes_a_second_pass(
    tmp_path, monkeypatch, csv_work, text, parses
):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 256)
    (tmp_path / "table.csv").write_text(text)
    source = open_table(tmp_path / "table.csv")
    sample, statistics = Survey(["a", "b"], 50, 0).run(source)
    assert csv_work.parses == parses
    check_survey(sample, statistics, source.read(), 50, 0)


def test_parts_of_several_formats_are_one_table(tmp_path):
    exact = pa.array([7, 8], pa.decimal128(9, 2))
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"], "c": exact}), tmp_path / "0.parquet")
    (tmp_path / "1.csv").write_text("c,b,a\n1.5,z,1.5\n,,\n")
    for names in (["a", "b"], ["a", "b", "c"]):
        source = open_table([tmp_path / "0.parquet", tmp_path / "1.csv"])
        sample, statistics = Survey(names, 9, 0).run(source)
        check_survey(sample, statistics, source.read().select(names), 9, 0)
    assert statistics.ranges == {"a": (1.0, 2.0), "c": (1.5, 8.0)}


def test_a_part_without_a_column_is_refused_in_the_first_pass(tmp_path):
    (tmp_path / "0.csv").write_text("a,b\n1,2\n")
    (tmp_path / "1.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"1.csv lacks the column 'b'"):
        fit([tmp_path / "0.csv", tmp_path / "1.csv"], linear())


def test_progress_tells_how_many_rows_were_read(tmp_path):
    told = []
    fit(stored(tmp_path, numbers(200), "table.csv"), linear(), progress=told.append)
    assert told == [200]


def test_a_csv_file_gives_the_model_of_a_parquet_file(tmp_path):
    table = mixed(3000).drop_columns(["id", "note"])
    one, other = (stored(tmp_path, table, f"table.{suffix}") for suffix in ("csv", "parquet"))
    assert content(fit(one, linear(), rows=500)) == content(fit(other, linear(), rows=500))


def over(table, rows, **settings):
    found = Statistics(**settings)
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        found.add(batch)
    return found


def test_they_are_those_of_the_whole_table_however_it_is_cut():
    table = mixed(200)
    for rows in (1, 7, 200):
        found = over(table, rows)
        assert found.rows == 200
        assert found.missing == {name: table[name].null_count for name in table.column_names}
        frame = table.to_pandas()
        assert found.ranges["c0"] == (frame["c0"].min(), frame["c0"].max())
        days = frame["day"].dropna()  # not all versions of pandas order dates and gaps
        assert found.ranges["day"] == (days.min(), days.max())
        assert found.categories("word") == ("high", "low", "mid, dle")


def test_nan_is_a_gap_and_no_end_of_a_range():
    table = pa.table({"a": [float("nan"), 2.0, None, 1.0], "b": [float("nan")] * 4})
    for rows in (1, 4):
        found = over(table, rows)
        assert found.missing == {"a": 2, "b": 4}
        assert found.ranges == {"a": (1.0, 2.0)}


def test_columns_of_names_are_not_listed(monkeypatch):
    monkeypatch.setattr(sys.modules["vfg.bigtable.fitting"], "MOST_CATEGORIES", 50)
    table = pa.table({"name": [str(k) for k in range(60)], "word": ["x", "y"] * 30})
    found = over(table, 20)
    assert found.categories("name") is None
    assert found.categories("word") == ("x", "y")
    assert found.categories("nothing") is None


def test_columns_of_categories_count_as_their_cells():
    table = pa.table({"a": pa.array(["x", "y", None]).dictionary_encode()})
    assert over(table, 2).categories("a") == ("x", "y")


def test_markers_are_gaps():
    table = pa.table({"a": [-9, 1, 2], "b": [-9.0, 3.0, 4.0], "c": ["x", "y", "x"]})
    found = over(table, 3, marker=-9)
    assert found.ranges == {"a": (1, 2), "b": (3.0, 4.0)}
    assert found.categories("c") == ("x", "y")
    assert over(table, 3, marker="x").categories("c") == ("y",)
    assert over(table, 3, marker=np.nan).ranges["a"] == (-9, 2)


def test_bounds_are_written_as_an_imputer_takes_them():
    moment = datetime.datetime(2020, 5, 1, 10, tzinfo=datetime.UTC)
    table = pa.table({"a": [1, 5], "b": [0.5, None], "c": ["x", "y"], "d": [moment, moment]})
    kinds = {"a": Integer(), "b": Continuous(), "c": Categorical(), "d": Date()}
    assert over(table, 1).bounds(kinds) == {
        "a": (1.0, 5.0),
        "b": (0.5, 0.5),
        "d": ("2020-05-01T10:00:00", "2020-05-01T10:00:00"),
    }
