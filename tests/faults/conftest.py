"""A table and a model on disk, and jobs as real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bigtable.tables_on_disk import linear_model, mixed

import vfg
from vfg.bigtable import impute, write_table

JOB = Path(__file__).parent / "job.py"
ROWS = 400


class Bench:
    """A folder with a table, a model and what an undisturbed job makes of them."""

    def __init__(self, folder):
        self.folder = folder
        table = mixed(ROWS, seed=1)
        write_table(table.to_batches(), table.schema, folder / "gaps.parquet")
        self.model = linear_model(mixed(300).drop_columns(["id", "note"]))
        vfg.save(self.model, folder / "model.vfg")
        impute(folder / "gaps.parquet", self.model, folder / "undisturbed", shard_rows=50)
        self.expected = self.contents("undisturbed")

    def contents(self, target):
        """Everything under a final name."""
        return {path.name: path.read_bytes() for path in (self.folder / target).glob("part-*")}

    def unfinished(self, target):
        """What is still being written."""
        return list((self.folder / target).glob(".vfg-*"))

    @contextlib.contextmanager
    def job(self, target, *options, source="gaps.parquet", **settings):
        """A job as a process; whatever is left of it is killed at the end."""
        command = [sys.executable, str(JOB), str(self.folder / source)]
        process = subprocess.Popen(
            [*command, str(self.folder / "model.vfg"), str(self.folder / target), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            **settings,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def run(self, target, *options, **settings):
        """A job that runs to its end: its exit status, and what it says is wrong."""
        with self.job(target, *options, **settings) as process:
            _, errors = process.communicate(timeout=300)
            return process.returncode, errors

    def finishes_as_if_undisturbed(self, target, *options):
        """Run the job again and compare."""
        status, errors = self.run(target, *options)
        assert status == 0, errors
        assert self.contents(target) == self.expected
        assert not self.unfinished(target)


def wait_for(process, words):
    """Read what a process prints until it says some words."""
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the process ended without {words!r}: {process.stderr.read()}")


def processes_of(session):
    """The processes of a session that are still alive."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def vanished(session, seconds=30):
    """Whether all processes of a session end within some time."""
    deadline = time.monotonic() + seconds
    while processes_of(session):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("bench"))
