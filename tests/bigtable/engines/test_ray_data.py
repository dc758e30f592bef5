"""Workers that read and write: files are those of one process, byte for byte."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest
from bigtable.tables_on_disk import mixed, model_of_mixed

import vfg
from vfg.bigtable import Filling, impute, job, open_table, write_table
from vfg.bigtable.engines import FillTask
from vfg.bigtable.engines.ray_data import ShardPlan

ROWS, SHARD = 1000, 150


class InProcess:
    """An engine whose workers are this process; it does runs in reverse order."""

    def __init__(self, shared=True):
        self.runs, self.shared = [], shared

    def run(self, work, parts):
        assert not self.shared, "the first process must not read shards"
        yield from map(work, parts)

    def fill_shards(self, plan, work, known):
        self.runs = plan.runs(known)
        for run in reversed(self.runs):
            yield from plan.fill(FillTask.from_bytes(*work.to_bytes()), run)


@pytest.fixture(scope="module")
def model():
    return model_of_mixed()


@pytest.fixture(scope="module", params=["parquet", "csv"])
def files(request, tmp_path_factory):
    """Three files of one table, whose ends are no ends of shards."""
    folder = tmp_path_factory.mktemp("files")
    table = mixed(ROWS)
    for place, (start, end) in enumerate([(0, 333), (333, 700), (700, ROWS)]):
        part = table.slice(start, end - start)
        target = folder / f"part-{place}.{request.param}"
        write_table(part.to_batches(max_chunksize=64), table.schema, target)
    return sorted(folder.iterdir())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


def test_shards_are_those_of_one_process(files, model, tmp_path):
    options = {"filling": Filling(level=0.9, flag=True), "shard_rows": SHARD}
    expected = impute(files, model, tmp_path / "local", **options)
    engine = InProcess()
    told = impute(files, model, tmp_path / "data", engine=engine, **options)
    assert (told.rows, told.filled, told.left) == (ROWS, expected.filled, expected.left)
    assert contents(tmp_path / "data") == contents(tmp_path / "local")
    # Workers find rows of Parquet files by row groups; a text file is read once.
    assert len(engine.runs) == (7 if files[0].suffix == ".parquet" else 3)


def test_the_first_process_reads_no_shard_that_workers_wrote(files, model, tmp_path, monkeypatch):
    """Digests come from the workers, else one process would read all that the others write."""
    impute(files, model, tmp_path / "local", shard_rows=SHARD)
    monkeypatch.setattr(job, "digest_file", None)
    impute(files, model, tmp_path / "data", shard_rows=SHARD, engine=InProcess())
    local, data = (
        json.loads((tmp_path / name / "_manifest.json").read_text()) for name in ("local", "data")
    )
    assert len(data["digests"]) == 7
    assert data["digests"] == local["digests"]


def test_files_that_workers_do_not_reach_are_read_here(files, model, tmp_path):
    engine = InProcess(shared=False)
    told = impute(files, model, tmp_path / "out", shard_rows=SHARD, engine=engine)
    assert told.rows == ROWS
    assert not engine.runs


def test_finished_shards_are_not_done_again(files, model, tmp_path):
    impute(files, model, tmp_path / "out", shard_rows=SHARD)
    before = contents(tmp_path / "out")
    for shard in (1, 2, 6):
        (tmp_path / "out" / sorted(before)[shard]).unlink()
    engine = InProcess()
    told = impute(files, model, tmp_path / "out", shard_rows=SHARD, engine=engine)
    assert sorted(shard for run in engine.runs for shard in run) == [1, 2, 6]
    assert told.found == ROWS - 2 * SHARD - (ROWS % SHARD)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(("shards", "processes", "length"), [(31, 2, 1), (64, 2, 2), (999, 2, 4)])
def test_tasks_grow_with_the_number_of_shards(tmp_path, shards, processes, length):
    """Every worker has some tasks; each is a run of neighbours, and each shard is in one."""
    table = mixed(shards)
    write_table(table.to_batches(), table.schema, tmp_path / "t.parquet")
    names = [f"part-{k:05d}.parquet" for k in range(shards)]
    plan = ShardPlan(open_table(tmp_path / "t.parquet"), 1, "", names, table.schema, None)
    runs = plan.runs([], processes)
    assert list(chain(*runs)) == list(range(shards))
    assert max(map(len, runs)) == length
    assert len(runs) >= min(shards, 16 * processes)
    known = list(range(0, shards, 3))
    left = sorted({*range(shards)} - {*known})
    assert list(chain(*plan.runs(known, processes))) == left


def script(name, arguments):
    """The words that start a script beside this file."""
    return [sys.executable, str(Path(__file__).parent / name), *map(str, arguments)]


def environment():
    # Ray lets other processes go first, and its workers would hardly run on a busy machine.
    own = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "RAY_worker_niceness": "0"}
    return {**os.environ, **own}


def ray_job(arguments, code=0, name="dying_worker.py"):
    words = script(name, arguments)
    run = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment())
    assert run.returncode == code, run.stderr[-3000:]
    return run


@pytest.mark.slow
def test_ray_data_has_the_bytes_of_one_process_though_a_worker_dies(files, model, tmp_path):
    """kill -9 while a worker writes its second shard; the first process goes on to the end."""
    pytest.importorskip("ray.data")
    vfg.save(model, tmp_path / "model.vfg")
    impute(files, model, tmp_path / "local", shard_rows=SHARD)
    mark = tmp_path / "mark"
    words = ["impute", *files, "-m", tmp_path / "model.vfg", "-o", tmp_path / "data", "--engine"]
    ray_job([mark, *words, "ray", "--processes", "2", "--shard-rows", SHARD])
    assert mark.read_text() == "2"  # one died, with a shard behind it and one half written
    assert contents(tmp_path / "data") == contents(tmp_path / "local")
    told = json.loads((tmp_path / "data" / "_manifest.json").read_text())
    assert (told["rows"], len(told["shards"])) == (ROWS, 7)


def wait_for(happens, seconds=500):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_first_process_loses_nothing(model, tmp_path):
    """kill -9 in the middle; the next run does the rest and has the bytes of one process."""
    pytest.importorskip("ray.data")
    table = mixed(ROWS)
    write_table(table.to_batches(max_chunksize=64), table.schema, tmp_path / "t.parquet")
    vfg.save(model, tmp_path / "model.vfg")
    impute(tmp_path / "t.parquet", model, tmp_path / "local", shard_rows=50)
    out = tmp_path / "data"
    words = ["impute", tmp_path / "t.parquet", "-m", tmp_path / "model.vfg", "-o", out, "--json"]
    words += ["--engine", "ray", "--processes", "2", "--shard-rows", 50]
    first = subprocess.Popen(
        script("slow_worker.py", [1, *words]), env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: len(contents(out)) >= 4 or first.poll() is not None)  # of 20 files
    finally:
        first.kill()
    assert first.wait() == -signal.SIGKILL
    assert len(contents(out)) < 20
    second = ray_job([0, *words], name="slow_worker.py")
    assert 0 < json.loads(second.stdout)["resumed"] < ROWS
    assert contents(out) == contents(tmp_path / "local")


@pytest.mark.slow
def test_what_a_worker_raises_is_one_sentence(model, tmp_path):
    pytest.importorskip("ray.data")
    vfg.save(model, tmp_path / "model.vfg")
    table = mixed(300)
    write_table(table.to_batches(), table.schema, tmp_path / "t.parquet")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[1000:1400] = bytes(400)  # damaged pages, whose checksums tell
    (tmp_path / "t.parquet").write_bytes(data)
    (tmp_path / "mark").touch()
    words = ["impute", tmp_path / "t.parquet", "-m", tmp_path / "model.vfg", "-o", tmp_path / "out"]
    run = ray_job([tmp_path / "mark", *words, "--engine", "ray", "--quiet"], code=1)
    assert "t.parquet" in run.stderr.splitlines()[-1]


def test_the_readme_and_the_results_have_the_measured_numbers():
    project = Path(__file__).parents[3]
    told = json.loads((project / "docs" / "results" / "engines.json").read_text())
    readme, page = (
        " ".join((project / name).read_text().split()) for name in ("README.md", "docs/results.md")
    )
    speeds = [told["engines"][name]["rows_per_processor_second"] for name in ("local", "ray")]
    linear = "The linear model, not the defaults, filled"
    done = f"{linear} {told['rows']:,} rows of {told['columns']} columns: {speeds[0]:,} rows per"
    assert f"{done} processor second." in readme
    assert f"{done} processor second with local processes, {speeds[1]:,} with Ray" in page
