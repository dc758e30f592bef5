"""How fast engines fill a folder of Parquet files, and what the first process holds meanwhile.

    python -m experiments.benchmarks.engines --rows 3000000
    python -m experiments.benchmarks.engines --quick    60,000 rows

The table has 16 columns of correlated numbers, a fifth of the cells missing, in eight files. The
linear model fills it with two processes: with the local engine the first process reads and writes,
with Ray the workers do (Ray Data). Seconds include the start of the workers. Shards must be equal,
byte for byte.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import vfg
from vfg.bigtable import impute, write_table

from ..results import TRIALS, arguments
from .bigtable import Generated, prepare

FILES, PROCESSES = 8, 2


def held() -> float:
    """Megabytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def make_files(folder: Path, rows: int) -> list[Path]:
    """The table in several files of equal size."""
    batches = Generated(rows).batches(-(-rows // FILES))
    paths = [folder / f"part-{k}.parquet" for k in range(FILES)]
    for path, batch in zip(paths, batches, strict=True):
        pieces = [batch.slice(k, 50_000) for k in range(0, batch.num_rows, 50_000)]
        write_table(pieces, batch.schema, path)
    return paths


def measure(files: list[Path], model: Any, target: Path, engine: str, rows: int) -> dict[str, Any]:
    """Seconds of a job, and the memory of this process while it runs."""
    memory: list[float] = []
    begun = time.perf_counter()
    impute(
        files, model, target, engine=engine, processes=PROCESSES,
        progress=lambda *_: memory.append(held()),
    )  # fmt: skip
    took = time.perf_counter() - begun
    return {
        "seconds": round(took, 1),
        "rows_per_second": round(rows / took),
        "first_process_megabytes": {
            "start": round(memory[0]),
            "by_quarters": [round(memory[len(memory) * k // 4]) for k in (1, 2, 3)],
            "end": round(memory[-1]),
        },
    }


def main() -> None:
    given = arguments(__doc__, rows={"type": int, "default": 10_000_000, "help": "of the table"})
    rows = 60_000 if given.quick else given.rows
    folder = TRIALS / "engines"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files, model = make_files(folder, rows), vfg.load(prepare(folder, "linear") / "model.vfg")
    told: dict[str, Any] = {"rows": rows, "processes": PROCESSES, "load": os.getloadavg()[1]}
    for engine in ("local", "ray"):
        told[engine] = measure(files, model, folder / f"filled-{engine}", engine, rows)
        print(engine, told[engine], flush=True)
    shards = sorted((folder / "filled-local").glob("part-*"))
    told["equal_shards"] = sum(
        path.read_bytes() == (folder / "filled-ray" / path.name).read_bytes() for path in shards
    )
    assert told["equal_shards"] == len(shards)
    print(given.write("engines", told))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
