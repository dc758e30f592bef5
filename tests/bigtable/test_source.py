"""Tables in files: formats, types, gaps, and what is refused."""

import gzip
import io
import os
import sys
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bigtable.tables_on_disk import linear_model, mixed, numbers

from vfg.bigtable import Dialect, fit, impute, open_table, text_files, write_table
from vfg.bigtable import columnar as readers
from vfg.bigtable.source import resize_batches
from vfg.sklearn import VFGImputer

SUFFIXES = ["csv", "tsv", "parquet", "feather", "arrow", "jsonl"]
COMPRESSIONS = ["", ".gz", ".zst", ".bz2", ".lz4"]


def text_file(folder, text, name="table.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def cells(path, column, **options):
    return open_table(path, **options).read()[column].to_pylist()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_back_what_was_written(tmp_path, suffix, compression):
    table = mixed(50).drop_columns(["note"])
    path = tmp_path / f"table.{suffix}{compression}"
    write_table(table.to_batches(), table.schema, path)
    source = open_table(path)
    assert source.rows == 50
    assert source.names == table.column_names
    found = source.read()
    for name in table.column_names:
        assert found[name].to_pylist() == table[name].to_pylist()
    if suffix != "jsonl":
        assert [str(kind) for kind in found.schema.types] == [str(k) for k in table.schema.types]


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_batches_have_exactly_the_rows_that_were_asked_for(tmp_path, rows):
    table = numbers(50)
    write_table(table.to_batches(max_chunksize=11), table.schema, tmp_path / "table.parquet")
    batches = list(open_table(tmp_path / "table.parquet").batches(rows))
    sizes = [batch.num_rows for batch in batches]
    assert sizes == [rows] * (50 // rows) + ([50 % rows] if 50 % rows else [])
    assert pa.Table.from_batches(batches).equals(table.combine_chunks())


def test_batches_of_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least 1 row"):
        next(resize_batches(iter([]), pa.schema([]), 0))


@pytest.mark.parametrize(
    ("written", "kind", "expected"),
    [
        (["1", "", "3"], "int64", [1, None, 3]),
        (["1", "NA", "3.5"], "double", [1.0, None, 3.5]),
        (["NaN", "null", "7"], "int64", [None, None, 7]),
        (["007", "8", "9"], "string", ["007", "8", "9"]),
        (["12345678901234567890", "1", "2"], "string", ["12345678901234567890", "1", "2"]),
        (["true", "", "false"], "bool", [True, None, False]),
        (["1", "x", ""], "string", ["1", "x", None]),
        (["1", "true", ""], "string", ["1", "true", None]),
        (["", "NA", "null"], "null", [None, None, None]),
        ([" 1", "2 ", "3"], "int64", [1, 2, 3]),
        (["0x10", "1", "2"], "string", ["0x10", "1", "2"]),
        (["1\u00a0", "1", "2"], "string", ["1\u00a0", "1", "2"]),
        (
            [" 2020-01-31", "2020-02-01\t", ""],
            "date32[day]",
            [date(2020, 1, 31), date(2020, 2, 1), None],
        ),
        # What pyarrow would not read as another type is text.
        (["true", " false", ""], "string", ["true", " false", None]),
        (["tRuE", "false", ""], "string", ["tRuE", "false", None]),
        ([" 2020-01-31 10:20", "", ""], "string", [" 2020-01-31 10:20", None, None]),
    ],
)
def test_cells_of_text_get_the_narrowest_type(tmp_path, written, kind, expected):
    path = text_file(tmp_path, "a,b\n" + "".join(f"{cell},x\n" for cell in written))
    source = open_table(path)
    assert str(source.schema.field("a").type) == kind
    assert source.read()["a"].to_pylist() == expected


def test_a_type_that_changes_far_down_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 256)
    path = text_file(tmp_path, "a\n" + "1\n" * 5000 + "1.5\n" + "2\n" * 500)
    source = open_table(path)
    assert source.schema.field("a").type == pa.float64()
    assert sum(cells(path, "a")) == 5000 + 1.5 + 1000
    assert source.rows == 5501


def test_quotation_marks_separators_and_lines_within_cells(tmp_path):
    path = text_file(tmp_path, 'a,b\n"x,\ny","say ""z"""\n')
    assert open_table(path).read().to_pylist() == [{"a": "x,\ny", "b": 'say "z"'}]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_read_off_the_first_line(tmp_path, separator):
    path = text_file(tmp_path, f"a{separator}b\n1{separator}x\n")
    assert open_table(path).read().to_pylist() == [{"a": 1, "b": "x"}]


def test_a_byte_order_mark_and_other_line_ends_are_no_content(tmp_path):
    path = text_file(tmp_path, b"\xef\xbb\xbfa,b\r\n1,x\r\n")
    assert open_table(path).read().to_pylist() == [{"a": 1, "b": "x"}]


def test_columns_that_are_left_alone_are_plain_text(tmp_path):
    path = text_file(tmp_path, "a,b\n1,NA\n2,007\n3,\n")
    found = open_table(path).with_text_columns(["b"]).read()
    assert found["b"].to_pylist() == ["NA", "007", ""]
    assert found["a"].to_pylist() == [1, 2, 3]


def test_a_file_is_looked_through_once_whatever_columns_are_left_alone(tmp_path, csv_work):
    source = open_table(text_file(tmp_path, "a,b,c\n1,NA,x\n2,7,y\n"))
    assert source.names == ["a", "b", "c"]
    assert (csv_work.opens, csv_work.parses) == (1, 0)
    left = source.with_text_columns(["b"])
    assert left.rows == 2
    assert (csv_work.opens, csv_work.parses) == (2, 1)
    again = source.with_text_columns(["b"])
    assert again.schema.types == left.schema.types == [pa.int64(), pa.string(), pa.string()]
    assert (source.rows, source.with_text_columns(["a", "b"]).schema.types) == (
        2,
        [pa.string()] * 3,
    )
    assert (csv_work.opens, csv_work.parses) == (2, 1)
    # Only a column of unknown type needs another look.
    assert source.schema.types == [pa.int64(), pa.int64(), pa.string()]
    assert (csv_work.opens, csv_work.parses) == (3, 2)


def test_a_look_that_was_given_up_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 64)
    source = open_table(text_file(tmp_path, "a\n" + "1\n" * 500 + "x\n"))
    assert next(source.scan()).schema.types == [pa.int64()]
    assert (source.rows, source.schema.types) == (501, [pa.string()])


def test_the_first_line_of_every_part_is_read_once(tmp_path, csv_work):
    paths = [text_file(tmp_path, "a,b\n1,x\n", f"{place}.csv") for place in range(3)]
    source = open_table(paths)
    for _ in range(2):
        assert source.with_text_columns(["b"]).rows == 3
        assert [file.names for file in source.with_text_columns(["a"]).files] == [["a", "b"]] * 3
    assert (csv_work.opens, csv_work.parses) == (6, 3)


def test_a_scan_gives_the_table_and_leaves_its_schema_known(tmp_path, csv_work):
    source = open_table(text_file(tmp_path, "a,b,c\n1,NA,x\n2.5,7,\n"))
    source = source.with_text_columns(["b"])
    found = pa.Table.from_batches(source.scan())
    assert found.to_pydict() == {"a": [1.0, 2.5], "b": ["NA", "7"], "c": ["x", None]}
    assert source.schema.equals(found.schema)
    assert (csv_work.opens, csv_work.parses) == (2, 1)
    assert pa.Table.from_batches(source.scan()).equals(found)
    assert source.read().equals(found)


def test_a_file_without_a_separator_has_one_column(tmp_path):
    path = text_file(tmp_path, "a,b\n1,2\n", "table.tsv")
    assert open_table(path).read().to_pydict() == {"a,b": ["1,2"]}


def test_only_the_first_block_is_read_for_the_names(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 64)
    for rows in (5, 14, 15, 16, 17, 29, 30, 31, 32, 33, 100):  # also cut within a line
        path = text_file(tmp_path, "a,b\n" + "1,23\n" * rows)
        assert open_table(path).names == ["a", "b"]
        assert open_table(path).rows == rows


def test_a_file_of_names_alone_has_no_rows(tmp_path):
    source = open_table(text_file(tmp_path, "a,b\n"))
    assert (source.names, source.rows, list(source.batches(5))) == (["a", "b"], 0, [])


def test_json_lines_may_lack_keys_and_widen_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("vfg.bigtable.text_files.LONGEST_LINE", 64)
    lines = '{"a": 1}\n' * 30 + '{"a": 2.5, "b": "x"}\n' + '{"b": null}\n' * 30
    found = open_table(text_file(tmp_path, lines, "table.jsonl")).read()
    assert found["a"].to_pylist() == [1.0] * 30 + [2.5] + [None] * 30
    assert found["b"].to_pylist() == [None] * 30 + ["x"] + [None] * 30


def test_parts_of_a_table_are_read_in_the_order_of_their_names(tmp_path):
    for place, value in ((2, "c"), (0, "a"), (1, "b")):
        text_file(tmp_path, f"x,y\n{value},1\n", f"part-{place}.csv")
    assert cells(tmp_path / "part-*.csv", "x") == ["a", "b", "c"]
    wanted = [tmp_path / "part-2.csv", str(tmp_path / "part-0.csv")]
    assert cells(wanted, "x") == ["c", "a"]


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    for place in range(3):
        pq.write_table(pa.table({"a": [place]}), tmp_path / f"{place}.parquet")
    assert cells(tmp_path, "a") == [0, 1, 2]


def test_parts_may_order_their_columns_and_widths_of_numbers_differently(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": ["y"], "a": [2.5]}), tmp_path / "1.parquet")
    assert open_table(tmp_path).read().to_pydict() == {"a": [1.0, 2.5], "b": ["x", "y"]}


@pytest.mark.parametrize("format", [None, "csv"])
def test_standard_input_is_read(tmp_path, monkeypatch, format):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"a\n1\n2\n"))))
    source = open_table("-", format=format)
    assert source.with_text_columns([]).read()["a"].to_pylist() == [1, 2]
    assert source.fingerprint()


def test_parquet_comes_through_a_pipe_too(monkeypatch):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), buffer)
    buffer.seek(0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))
    assert open_table("-").read()["a"].to_pylist() == [1, 2]


def test_fingerprints_tell_contents_apart(tmp_path):
    one, same = text_file(tmp_path, "a\n1\n", "1.csv"), text_file(tmp_path, "a\n1\n", "2.csv")
    other = text_file(tmp_path, "a\n2\n", "3.csv")
    assert open_table(one).fingerprint() == open_table(same).fingerprint()
    assert open_table(one).fingerprint() != open_table(other).fingerprint()
    assert open_table([one, other]).fingerprint() != open_table([other, one]).fingerprint()


# What is refused, in one sentence.

REFUSED = [
    ("table.csv", b"", "[Ee]mpty"),
    ("table.csv", b"a,b\n1\n", "Expected 2 columns, got 1"),
    ("table.csv", b"a,a\n1,2\n", "repeats the column 'a'"),
    ("table.csv", b"a,b\n1,x\0\n", "NUL bytes"),
    ("table.csv", "a,b\n1,ü\n".encode("utf-16"), "NUL bytes"),
    ("table.csv", "a,b\n1,é\n".encode() + "2,é\n".encode("latin-1"), "not text in UTF-8"),
    ("table.csv.gz", b"a,b\n1,2\n", "cannot be read as csv"),
    (
        "table.csv.gz",
        gzip.compress(b"a,b\n" + b"1,2\n" * 9999, mtime=0)[:-20],
        "cannot be read as csv",
    ),
    ("table.parquet", b"a,b\n1,2\n", "cannot be read as Parquet"),
    ("table.parquet", b"PAR1" + b"\xff" * 60 + b"PAR1", "cannot be read as Parquet"),
    ("table.feather", b"ARROW1" + b"\xff" * 100, "cannot be read as Arrow"),
    ("table.feather", b"", "cannot be read as Arrow"),
    ("table.jsonl", b"", "no columns"),
    ("table.jsonl", b'{"a": 1}\n{"a": "x"}\n', "cannot be read as JSON lines"),
    ("table.jsonl", b"[1, 2]\n", "cannot be read as JSON lines"),
    ("table.jsonl", b'{"a": ' + b"[" * 100_000, "more than 500 brackets"),
    ("table.jsonl", b'{"a": "\0"}\n', "NUL bytes"),
]


@pytest.mark.parametrize(("name", "content", "words"), REFUSED)
def test_damaged_files_are_refused_in_one_sentence(tmp_path, name, content, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_table(text_file(tmp_path, content, name)).read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_line_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 4096)
    for text in ("x" * 20_000, "a,b\n1,2\n" + "x" * 20_000, 'a,b\n1,"2\n' + "3,4\n" * 20_000):
        with pytest.raises(ValueError, match="a line of more than"):
            open_table(text_file(tmp_path, text)).read()


def test_very_many_columns_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MOST_COLUMNS", 100)
    with pytest.raises(ValueError, match="has 101 columns, but at most 100"):
        open_table(text_file(tmp_path, "a," * 100 + "a\n")).read()


def test_a_column_that_a_later_part_lacks_is_named(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"1.parquet lacks the column 'b'"):
        _ = open_table(tmp_path).schema
    with pytest.raises(ValueError, match=r"lacks the column 'b' that .*0.parquet has"):
        _ = open_table([tmp_path / "1.parquet", tmp_path / "0.parquet"]).schema


def test_types_that_do_not_go_together_are_named(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="'a' holds int64 before and string in"):
        _ = open_table(tmp_path).schema


@pytest.mark.parametrize("name", ["nothing.csv", "no-*.csv"])
def test_files_that_are_not_there_are_not_found(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_table(tmp_path / name)


def test_a_folder_without_tables_and_an_unknown_format_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no .parquet files"):
        open_table(tmp_path)
    with pytest.raises(ValueError, match="is not known from its name"):
        open_table(text_file(tmp_path, "a\n1\n", "table.xyz"))
    with pytest.raises(ValueError, match="is a model, not a table; name a model after -m"):
        open_table(text_file(tmp_path, "a\n1\n", "table.vfg"))
    with pytest.raises(ValueError, match="must be one of csv"):
        open_table(text_file(tmp_path, "a\n1\n"), format="excel")
    with pytest.raises(ValueError, match="at least one file"):
        open_table([])


# Files that change while they are read.


def long_file(folder, suffix):
    table = pa.table({"a": list(range(200_000)), "b": ["x"] * 200_000})
    write_table(table.to_batches(max_chunksize=20_000), table.schema, folder / f"t.{suffix}")
    return folder / f"t.{suffix}"


def shorten(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def lengthen(path):
    with open(path, "ab") as file:
        file.write(b"1,x\n")


def rewrite(path):
    data = path.read_bytes()
    path.write_bytes(b"b" + data[1:])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl"])
@pytest.mark.parametrize("change", [shorten, lengthen, rewrite, lambda path: path.unlink()])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, suffix, change):
    path = long_file(tmp_path, suffix)
    source = open_table(path)
    assert source.rows == 200_000
    batches = source.batches(10_000)
    next(batches)
    change(path)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        for _ in batches:
            pass


def test_a_change_without_a_new_time_is_seen_at_the_ends(tmp_path):
    path = long_file(tmp_path, "csv")
    source = open_table(path)
    assert source.rows == 200_000
    batches = source.batches(10_000)
    next(batches)
    known = path.stat()
    with open(path, "rb+") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"y")
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    with pytest.raises(ValueError, match="has changed since it was opened"):
        for _ in batches:
            pass


# Types that few libraries compute with, and numbers that lose digits.


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1.5, None], pa.float16()), pa.float32()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())), pa.int8()),
    ],
    ids=["float16", "string_view", "bool8"],
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_uncommon_types_are_read_as_common_ones(tmp_path, column, kind, suffix):
    table, path = pa.table({"a": column}), tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    found = open_table(path).read()
    assert found.schema.field("a").type in (kind, pa.bool_())
    assert found["a"].null_count == 1


@pytest.mark.parametrize("kind", [pa.decimal256(60, 2), pa.decimal128(30, 0)])
def test_long_decimals_are_carried_to_the_last_digit(tmp_path, kind):
    cell = Decimal("123456789012345678901234567890")
    pq.write_table(pa.table({"a": pa.array([cell, None], kind)}), tmp_path / "t.parquet")
    source = open_table(tmp_path / "t.parquet")
    write_table(source.batches(), source.schema, tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text().splitlines()[1].startswith(str(cell))


def test_long_whole_numbers_in_json_are_refused_by_name(tmp_path):
    path = text_file(tmp_path, '{"a": 1, "b": 123456789012345678901}\n', "t.jsonl")
    with pytest.raises(ValueError, match=r"a whole number of 21 digits under 'b'"):
        open_table(path).read()
    path = text_file(tmp_path, '{"a": "x: 123456789012345678901, y"}\n', "t.jsonl")
    assert open_table(path).read()["a"].to_pylist() == ["x: 123456789012345678901, y"]


def test_infinite_numbers_are_no_json(tmp_path):
    table = pa.table({"a": [1.0, float("inf")]})
    with pytest.raises(ValueError, match="the column 'a' holds an infinite number"):
        write_table(table.to_batches(), table.schema, tmp_path / "t.jsonl")


# Pipes.


class Endless(io.RawIOBase):
    """A pipe that never ends."""

    def __init__(self, line):
        self.line, self.taken = line, 0

    def read(self, size=-1):
        self.taken += size
        assert self.taken < 10**9, "it was not bounded"
        return (self.line * (size // len(self.line) + 1))[:size]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\0" * 1000, "NUL bytes"),
        (b"x" * 1000, "a line of more than"),
        (b"1,2\n", "more than 0.0"),
    ],
)
def test_endless_pipes_are_refused_early(monkeypatch, line, words):
    endless = Endless(line)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=endless))
    with pytest.raises(ValueError, match=words):
        open_table("-", most_piped=2**24)
    assert endless.taken < 2**26


def test_texts_and_numbers_of_json_lines_can_mean_missing(tmp_path):
    lines = [
        '{"a": 1, "b": "?", "?": "x"}',
        '{"a": "?", "b": "say: \\"?\\", -999", "?": "y"}',
        '{"a": -999.0, "b": "-999", "?": "?"}',
    ]
    path = text_file(tmp_path, "\n".join(lines) + "\n", "t.jsonl")
    found = open_table(path, dialect=Dialect(missing=("?", "-999"))).read()
    assert found["a"].to_pylist() == [1, None, None]
    assert found["b"].to_pylist() == [None, 'say: "?", -999', None]
    assert found["?"].to_pylist() == ["x", "y", None]
    with pytest.raises(ValueError, match="delimiter, decimal mark and quotation marks are"):
        open_table(path, dialect=Dialect(delimiter=";"))


@pytest.mark.parametrize("steps", ["fit", "impute"])
def test_json_lines_are_read_twice(tmp_path, csv_work, steps):
    table = numbers(50)
    write_table(table.to_batches(), table.schema, tmp_path / "t.jsonl")
    model = linear_model(table)
    csv_work.opens = 0
    if steps == "fit":
        fit(tmp_path / "t.jsonl", VFGImputer(bend=False, random_state=0))
    else:
        impute(tmp_path / "t.jsonl", model, tmp_path / "o.jsonl")
    assert csv_work.opens == 2  # keys and types, then cells
