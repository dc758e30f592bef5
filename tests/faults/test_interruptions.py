"""Jobs that are killed, interrupted or doubled: nothing half-written, and a rerun ends the same."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from faults.conftest import processes_of, vanished, wait_for

from vfg.bigtable import open_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc"),
]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_killed_between_shards_goes_on(bench, processes):
    target, options = f"killed-{processes}", ("--processes", str(processes))
    with bench.job(target, *options, "--pause-after", "150") as process:
        wait_for(process, "pausing between shards")
        process.kill()
        process.wait()
        assert vanished(process.pid), "worker processes outlived the one that started them"
    found = bench.contents(target)
    assert found.items() < bench.expected.items()
    assert len(found) == 3
    bench.finishes_as_if_undisturbed(target, *options)


def test_a_job_killed_while_it_writes_leaves_no_half_a_shard(bench):
    with bench.job("torn", "--pause-writing", "2") as process:
        wait_for(process, "pausing in writing")
        assert len(bench.unfinished("torn")) == 1
        process.kill()
        process.wait()
    assert sorted(bench.contents("torn")) == ["part-00000.parquet", "part-00001.parquet"]
    bench.finishes_as_if_undisturbed("torn")


def test_a_job_for_one_file_killed_while_it_writes_leaves_no_file(bench):
    with bench.job("one.csv", "--pause-writing", "2") as process:
        wait_for(process, "pausing in writing")
        process.kill()
        process.wait()
    assert not (bench.folder / "one.csv").exists()
    assert bench.run("one.csv")[0] == 0
    assert open_table(bench.folder / "one.csv").rows == 400


@pytest.mark.parametrize("pause", [("--pause-after", "150"), ("--pause-writing", "2")])
def test_a_killed_job_for_one_file_goes_on_from_its_pieces(bench, pause):
    target = f"go-on-{pause[1]}.csv"
    with bench.job(target, *pause) as process:
        wait_for(process, "pausing")
        process.kill()
        process.wait()
    pieces = bench.folder / f".{target}.pieces"
    assert not (bench.folder / target).exists()
    kept = {path.name: path.stat().st_mtime_ns for path in pieces.glob("piece-*")}
    assert len(kept) == (3 if pause[0] == "--pause-after" else 8)
    with bench.job(target, "--pause-after", "400") as process:
        wait_for(process, "pausing")
        again = {path.name: path.stat().st_mtime_ns for path in pieces.glob("piece-*")}
        assert kept.items() <= again.items()
    assert bench.run(target)[0] == 0
    assert not pieces.exists()
    assert bench.run("whole.csv", "--shard-rows", "400")[0] == 0
    assert (bench.folder / target).read_bytes() == (bench.folder / "whole.csv").read_bytes()


def test_an_interrupt_leaves_nothing_unfinished(bench):
    with bench.job("interrupted", "--processes", "2", "--pause-writing", "2") as process:
        wait_for(process, "pausing in writing")
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does with Ctrl-C
        _, errors = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "KeyboardInterrupt" in errors
        assert vanished(process.pid)
    assert not bench.unfinished("interrupted")
    assert bench.contents("interrupted").items() < bench.expected.items()
    bench.finishes_as_if_undisturbed("interrupted")


def test_a_killed_worker_ends_the_job_with_advice(bench):
    with bench.job("orphan", "--processes", "2") as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            workers = [pid for pid in processes_of(process.pid) if "spawn_main" in command_of(pid)]
            if workers:
                os.kill(workers[0], signal.SIGKILL)
                break
            time.sleep(0.02)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "RuntimeError: a worker process died" in errors
    assert not bench.unfinished("orphan")
    bench.finishes_as_if_undisturbed("orphan", "--processes", "2")


def test_the_second_job_on_a_folder_is_refused(bench):
    with bench.job("shared", "--pause-after", "100") as first:
        wait_for(first, "pausing")
        status, errors = bench.run("shared")
        assert status == 1
        assert "BlockingIOError: another job is writing to" in errors
        assert first.poll() is None
    bench.finishes_as_if_undisturbed("shared")


def test_a_killed_actor_of_ray_is_replaced(bench):
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with bench.job("actors", "--actors", "--processes", "1") as process:
        wait_for(process, "done 50")
        actors = [pid for pid in everyone() if command_of(pid).startswith("ray::Filler")]
        assert actors
        for actor in actors:
            os.kill(actor, signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert bench.contents("actors") == bench.expected


def everyone():
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
