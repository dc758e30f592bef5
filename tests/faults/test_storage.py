"""Disks and files that fail: what was finished stays, and nothing is half-written."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from bigtable.tables_on_disk import mixed

from vfg.bigtable import impute, open_table

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system in memory that holds no more than so many bytes."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system")
def test_a_full_disk_keeps_finished_shards_and_the_job_goes_on_elsewhere(bench):
    size = sum(map(len, bench.expected.values())) * 5 // 8
    with small_disk(bench.folder / "disk", size) as disk:
        status, errors = bench.run("disk/filled")
        assert status == 1
        assert "No space left on device" in errors.splitlines()[-1]
        found = bench.contents("disk/filled")
        assert 0 < len(found) < len(bench.expected)
        assert found.items() < bench.expected.items()
        assert not bench.unfinished("disk/filled")
        shutil.copytree(disk / "filled", bench.folder / "larger")
    bench.finishes_as_if_undisturbed("larger")


@pytest.mark.parametrize(
    "target", ["large.csv", "large.parquet", "large.feather", "large.jsonl.gz"]
)
def test_a_file_that_grows_too_large_is_not_there_at_all(bench, target):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    # A job that was killed outright may have left a file of its own here.
    before = set(bench.folder.glob(".vfg-*"))
    status, errors = bench.run(target, preexec_fn=limit)
    assert status == 1
    assert "File too large" in errors.splitlines()[-1]
    assert "Exception ignored" not in errors
    assert not (bench.folder / target).exists()
    assert set(bench.folder.glob(".vfg-*")) == before
    assert bench.run(target)[0] == 0
    assert open_table(bench.folder / target).rows == 400


@pytest.mark.parametrize("target", ["/proc/filled", "/dev/null/filled"])
def test_a_target_that_cannot_be_written_is_named(bench, target):
    status, errors = bench.run(target)
    assert status == 1
    assert target.split("/")[1] in errors.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to the superuser")
def test_a_folder_without_permission_is_refused(bench):
    (bench.folder / "closed").mkdir(mode=0o500)
    status, errors = bench.run("closed/filled")
    assert status == 1
    assert "Permission denied" in errors


@contextlib.contextmanager
def damaged(path, change):
    """A file with other bytes, for a while."""
    data = path.read_bytes()
    path.write_bytes(change(data))
    try:
        yield
    finally:
        path.write_bytes(data)


def truncated(data):
    return data[: len(data) * 2 // 3]


def with_a_corrupt_page(data):
    place = len(data) // 2
    return (
        data[:place] + bytes(byte ^ 0x55 for byte in data[place : place + 64]) + data[place + 64 :]
    )


@pytest.mark.parametrize("change", [truncated, with_a_corrupt_page])
def test_a_damaged_part_is_named_and_the_mended_table_is_filled(bench, tmp_path, change):
    table = open_table(bench.folder / "gaps.parquet").read()
    for place in range(4):
        part = table.slice(place * 100, 100)
        pq.write_table(part, tmp_path / f"{place}.parquet", write_page_checksum=True)
    with damaged(tmp_path / "2.parquet", change):
        with pytest.raises(ValueError, match=r"2.parquet cannot be read as [Pp]arquet") as caught:
            impute(tmp_path, bench.model, bench.folder / f"{change.__name__}", shard_rows=50)
        assert "\n" not in str(caught.value)
    found = bench.contents(change.__name__)
    assert found.items() <= bench.expected.items()
    assert not bench.unfinished(change.__name__)
    if found:
        with pytest.raises(ValueError, match="the input has changed"):
            impute(tmp_path, bench.model, bench.folder / f"{change.__name__}", shard_rows=50)
    impute(tmp_path, bench.model, bench.folder / f"{change.__name__}-mended", shard_rows=50)
    assert bench.contents(f"{change.__name__}-mended") == bench.expected


def test_a_column_that_a_later_part_lacks_stops_the_job_before_it_begins(bench, tmp_path):
    table = mixed(100)
    for place in range(3):
        part = table.drop_columns(["c1"]) if place == 2 else table
        pq.write_table(part, tmp_path / f"{place}.parquet")
    with pytest.raises(ValueError, match=r"2.parquet lacks the column 'c1'"):
        impute(tmp_path, bench.model, bench.folder / "lacking")
    assert not (bench.folder / "lacking").exists()
