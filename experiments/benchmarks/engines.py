"""How fast engines fill a folder of Parquet files, and what the first process holds meanwhile.

    python -m experiments.benchmarks.engines    100 million rows; takes 40 GB of disk
    python -m experiments.benchmarks.engines --quick    60,000 rows

The table has 16 columns of correlated numbers, a fifth of the cells missing, in files of up to a
million rows. The linear model fills it with two processes: with the local engine the first process
reads and writes besides, with Ray the workers do (Ray Data). Seconds include the start of the
workers. Processor seconds are those of the first process and of all that descend from it; what else
the machine computed meanwhile is told as cores of others. Shards must be equal by their digests.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import vfg
from vfg.bigtable import impute, write_table

from ..results import TRIALS, arguments
from .bigtable import COLUMNS, GAPS, Generated, prepare

FILE_ROWS, GROUP_ROWS, PROCESSES = 1_000_000, 50_000, 2
PARTS = 10
"""Of a run, at whose ends memory is told."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What was used up to a moment: of time, of this job's processors, and of all processors."""

    seconds: float
    own: float
    all: float

    @classmethod
    def now(cls) -> Self:
        # user, nice, system, idle, iowait, irq, softirq, steal: all but waiting.
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        busy = sum(int(fields[place]) for place in (0, 1, 2, 5, 6)) / TICKS
        return cls(time.perf_counter(), sum(map(_processor_seconds, family("self"))), busy)


def family(process: str) -> Iterator[Path]:
    """A process and all that descend from it, as folders of /proc."""
    folder = Path("/proc") / process
    yield folder
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
        for thread in list((folder / "task").iterdir()):
            for child in (thread / "children").read_text().split():
                yield from family(child)


def _processor_seconds(folder: Path) -> float:
    """Of a process, and of its children that have ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    return 0.0


def held() -> float:
    """Megabytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def make_files(folder: Path, rows: int) -> list[Path]:
    """The table in files of equal size."""
    paths = []
    for place, batch in enumerate(Generated(rows).batches(min(FILE_ROWS, -(-rows // 8)))):
        paths.append(folder / f"part-{place:03d}.parquet")
        starts = range(0, batch.num_rows, GROUP_ROWS)
        pieces = [batch.slice(start, GROUP_ROWS) for start in starts]
        write_table(pieces, batch.schema, paths[-1])
    return paths


def measure(files: list[Path], model: Any, target: Path, engine: str, rows: int) -> dict[str, Any]:
    """Speed of a job, and the memory of this process while it runs."""
    memory: list[float] = []
    used: list[Usage] = [Usage.now()]

    def progress(done: int, of: int) -> None:
        memory.append(held())
        if done == of:  # workers are still there
            used.append(Usage.now())

    begun = time.perf_counter()
    impute(files, model, target, engine=engine, processes=PROCESSES, progress=progress)
    took = time.perf_counter() - begun
    first, last = used[0], used[-1]
    own = last.own - first.own
    return {
        "seconds": round(took, 1),
        "rows_per_second": round(rows / took),
        "processor_seconds": round(own, 1),
        "rows_per_processor_second": round(rows / own),
        "cores_of_others": round((last.all - first.all - own) / (last.seconds - first.seconds), 2),
        "first_process_megabytes": {
            "start": round(memory[0]),
            "by_tenths": [round(memory[len(memory) * k // PARTS]) for k in range(1, PARTS)],
            "end": round(memory[-1]),
            "most": round(max(memory)),
        },
    }


def digests(folder: Path) -> dict[str, str]:
    """Of all shards, as the job wrote them down."""
    shards: dict[str, str] = json.loads((folder / "_manifest.json").read_text())["digests"]
    return shards


def main() -> None:
    given = arguments(
        __doc__,
        rows={"type": int, "default": 100_000_000, "help": "of the table"},
        folder={"type": Path, "default": TRIALS / "engines", "help": "of the files"},
    )
    rows = 60_000 if given.quick else given.rows
    folder: Path = given.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files, model = make_files(folder, rows), vfg.load(prepare(folder, "linear") / "model.vfg")
    told: dict[str, Any] = {
        "rows": rows,
        "columns": COLUMNS,
        "missing": GAPS,
        "files": len(files),
        "processes": PROCESSES,
        "engines": dict[str, Any](),
    }
    shards = {}
    os.environ.update(RAY_worker_niceness="0")  # else Ray lets other processes go first
    for engine in ("local", "ray"):
        target = folder / f"filled-{engine}"
        told["engines"][engine] = measure(files, model, target, engine, rows)
        print(engine, told["engines"][engine], flush=True)
        shards[engine] = digests(target)
        shutil.rmtree(target)
    told["shards"] = len(shards["local"])
    told["equal_shards"] = sum(shards["ray"].get(k) == v for k, v in shards["local"].items())
    assert told["equal_shards"] == told["shards"] == len(shards["ray"])
    print(given.write("engines", told))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
