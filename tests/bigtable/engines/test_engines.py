"""Engines: thin, in order, and all with the same bits."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from bigtable.tables_on_disk import linear_model, mixed, numbers, one_batch

import vfg
from vfg.bigtable import Filling, filled_batch, write_table
from vfg.bigtable.engines import (
    FillTask,
    batch_from_bytes,
    batch_to_bytes,
    engine_named,
    one_thread,
)
from vfg.bigtable.engines.local import Local

JOB = Path(__file__).parents[2] / "faults" / "job.py"


@pytest.fixture(scope="module")
def work():
    return FillTask(linear_model(numbers(100)), Filling(flag=True))


def parts_of(table, rows):
    batch = one_batch(table)
    return [(first, batch.slice(first, rows)) for first in range(0, batch.num_rows, rows)]


def test_one_process_fills_parts_in_order_as_they_are_asked_for(work):
    taken = []

    def parts():
        for part in parts_of(numbers(60, seed=1), 20):
            taken.append(part[0])
            yield part

    results = Local().run(work, parts())
    first = next(results)
    assert taken == [0]
    rest = list(results)
    expected = filled_batch(work.model, one_batch(numbers(60, seed=1)), 0, work.filling)
    assert one_batch(pa.Table.from_batches([first, *rest])).equals(expected)


def test_work_survives_a_journey_as_bytes(work):
    part = parts_of(numbers(30, seed=2), 30)[0]
    assert FillTask.from_bytes(*work.to_bytes())(part).equals(work(part))


def test_batches_survive_a_journey_as_bytes():
    batch = one_batch(mixed(1000)).slice(500, 3)
    assert batch_from_bytes(batch_to_bytes(batch)).equals(batch)
    assert len(batch_to_bytes(batch)) < 6000  # its own rows alone


def test_one_thread_is_used_and_the_number_restored():
    import torch

    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_unknown_engines_and_numbers_are_refused():
    with pytest.raises(ValueError, match="engine must be one of local, ray"):
        engine_named("spark")
    with pytest.raises(ValueError, match="processes must be a whole number"):
        engine_named("local", processes=0)


def test_a_missing_ray_names_the_extra(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'vfg\[ray\]'"):
        next(engine_named("ray").run(work, iter([])))


# Real processes.


def digests(folder):
    parts = sorted(folder.glob("part-*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in parts}


def run_job(folder, name, *options):
    command = [sys.executable, str(JOB), str(folder / "gaps.parquet"), str(folder / "model.vfg")]
    done = subprocess.run(
        [*command, str(folder / name), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return digests(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize("draws", ["0", "2"])
def test_every_engine_writes_the_same_bytes(tmp_path, draws):
    pytest.importorskip("ray", reason="the extra ray is not installed")
    table = mixed(700, seed=1)
    write_table(table.to_batches(), table.schema, tmp_path / "gaps.parquet")
    vfg.save(linear_model(mixed(300).drop_columns(["id", "note"])), tmp_path / "model.vfg")
    common = ("--shard-rows", "100", "--draws", draws)
    one = run_job(tmp_path, "one", *common)
    assert len(one) == 7
    assert run_job(tmp_path, "two", "--processes", "2", *common) == one
    assert run_job(tmp_path, "ray", "--engine", "ray", "--processes", "2", *common) == one
    # Any shard size gives the same rows.
    run_job(tmp_path, "other", "--shard-rows", "333", "--draws", draws)
    whole = vfg.bigtable.open_table(tmp_path / "one").read().combine_chunks()
    assert vfg.bigtable.open_table(tmp_path / "other").read().combine_chunks().equals(whole)


@pytest.mark.slow
def test_workers_import_nothing_that_only_fits_need(tmp_path):
    """scikit-learn takes longer to import than a shard takes to fill."""
    table = numbers(50)
    vfg.save(linear_model(table), tmp_path / "model.vfg")
    write_table(table.to_batches(), table.schema, tmp_path / "gaps.parquet")
    code = (
        "import sys, pyarrow.parquet as pq\n"
        "from vfg.bigtable.engines import local, ray_data\n"
        "from vfg.bigtable.fill_batch import Filling\n"
        f"data = open({str(tmp_path / 'model.vfg')!r}, 'rb').read()\n"
        "local._start_worker(data, Filling(), None)\n"
        f"batch = pq.read_table({str(tmp_path / 'gaps.parquet')!r}).to_batches()[0]\n"
        "local._fill(0, local.batch_to_bytes(batch))\n"
        "print([name for name in ('sklearn', 'scipy.stats', 'vfg.cli') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.slow
def test_errors_in_workers_arrive_as_they_are(tmp_path):
    table = numbers(50)
    vfg.save(linear_model(table), tmp_path / "model.vfg")
    wrong = table.set_column(0, "c0", pa.array([float("inf")] * 50))
    write_table(wrong.to_batches(), wrong.schema, tmp_path / "gaps.parquet")
    for engine in ("local", "ray"):
        if engine == "ray":
            pytest.importorskip("ray", reason="the extra ray is not installed")
        command = [
            sys.executable,
            str(JOB),
            str(tmp_path / "gaps.parquet"),
            str(tmp_path / "model.vfg"),
        ]
        done = subprocess.run(
            [*command, str(tmp_path / engine), "--engine", engine, "--processes", "2"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 1
        assert "ValueError: the table contains infinity in column 'c0'" in done.stderr
        assert not list((tmp_path / engine).glob("part-*"))
