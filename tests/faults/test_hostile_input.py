"""Files that were made to do harm: one clear sentence, in bounded memory."""

import gzip
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vfg.bigtable import open_table, write_table

pytestmark = pytest.mark.slow

MEMORY = 1 << 30
"""What a process may need to say no: most of it is torch and pyarrow themselves."""
READ = """
import resource, sys
from vfg.bigtable import open_table
try:
    source = open_table(sys.argv[1])
    for batch in source.batches(65_536):
        pass
except ValueError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
LOAD = READ.replace(
    "source = open_table(sys.argv[1])", "import vfg; vfg.load(sys.argv[1])"
).replace("    for batch in source.batches(65_536):\n        pass\n", "")


def told(script, path):
    """What a process of its own says about a file, and how much memory it took."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *words, memory = done.stdout.splitlines()
    assert int(memory) < MEMORY, f"{int(memory) >> 20} MiB"
    return words


def bomb(path, start, filler, size, end=b""):
    """A compressed file that is many times larger than it looks."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(size // len(filler)):
            file.write(filler)
        file.write(end)
    return path


def test_a_line_of_a_gigabyte(tmp_path):
    filler = b"x" * (1 << 20)
    for name, start in (
        ("first.csv.gz", b""),
        ("later.csv.gz", b"a,b\n1,2\n"),
        ("a.jsonl.gz", b'{"a": "'),
    ):
        (words,) = told(READ, bomb(tmp_path / name, start, filler, 1 << 30))
        assert "a line of more than" in words


def test_a_quotation_mark_that_is_never_closed(tmp_path):
    path = bomb(tmp_path / "open.csv.gz", b'a,b\n1,"2\n', b"3,4\n" * 4096, 64 << 20)
    (words,) = told(READ, path)
    assert "a quotation mark that is never closed" in words


def test_a_million_columns(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{k}" for k in range(10**6)) + "\n" + "1," * (10**6 - 1) + "1\n")
    (words,) = told(READ, path)
    assert "has 1,000,000 columns, but at most 100,000" in words


def test_a_million_keys(tmp_path):
    path = tmp_path / "wide.jsonl"
    path.write_text("{" + ",".join(f'"c{k}":1' for k in range(500_000)) + "}\n")
    (words,) = told(READ, path)
    assert "has 500,000 columns, but at most 100,000" in words


def test_very_many_rows_take_no_more_memory_than_a_few(tmp_path):
    path = bomb(tmp_path / "long.csv.gz", b"a,b\n", b"1,x\n" * 65_536, 8 << 20)
    assert told(READ, path) == []


def test_a_model_file_with_a_header_of_a_gigabyte(tmp_path):
    path = tmp_path / "model.vfg"
    with open(path, "wb") as file:
        file.write((1 << 30).to_bytes(8, "little"))
        file.truncate((1 << 30) + 4096)  # a hole: it takes no room on the disk
    (words,) = told(LOAD, path)
    assert "model.vfg" in words


def test_a_model_file_with_absurd_shapes(tmp_path):
    header = b'{"a":{"dtype":"F32","shape":[99999999999,99999999999],"data_offsets":[0,4]}}'
    (tmp_path / "model.vfg").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    (words,) = told(LOAD, tmp_path / "model.vfg")
    assert "model.vfg" in words


# Fuzzing: whatever the bytes, a table or a ValueError.


def read_or_refuse(path):
    refusal = None
    try:
        table = open_table(path)
        assert table.read().num_rows == table.rows
    except ValueError as error:
        refusal = str(error)
    assert refusal is None or "\n" not in refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


TEXTS = st.one_of(
    st.binary(max_size=300),
    st.text(alphabet='ab01.,;\t"\n\r -+eENnaNA|{}[]:\\é\0', max_size=200).map(str.encode),
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(data=TEXTS, suffix=st.sampled_from(["csv", "tsv", "jsonl", "csv.gz", "csv.zst"]))
@example(b'"', "csv")
@example(b"a\n", "csv")
@example(b"\xef\xbb\xbf", "csv")
@example(b'{"a":{"b":1}}\n{"a":2}', "jsonl")
def test_any_text_is_read_or_refused(folder, data, suffix):
    path = folder / f"table.{suffix}"
    path.write_bytes(data)
    read_or_refuse(path)


def valid(folder, suffix):
    path = folder / f"valid.{suffix}"
    if not path.exists():
        table = pa.table(
            {"a": [1, None, 3] * 20, "b": ["x", "yy", None] * 20, "c": [0.5, None, 2.5] * 20}
        )
        write_table(table.to_batches(), table.schema, path)
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(
    suffix=st.sampled_from(["parquet", "feather", "csv.gz", "csv.bz2", "jsonl.zst"]),
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4),
    length=st.floats(0.5, 1.2),
)
def test_damaged_files_are_read_or_refused(folder, suffix, places, length):
    data = bytearray(valid(folder, suffix))
    for place, change in places:
        data[int(place * (len(data) - 1))] ^= change
    path = folder / f"damaged.{suffix}"
    path.write_bytes(bytes(data[: int(length * len(data))]))
    read_or_refuse(path)
