"""How fast a table larger than memory is filled, and how much memory that takes.

python benchmarks/bigtable.py                       2 million rows, minutes on 2 cores
python benchmarks/bigtable.py --rows 100000000      as many as you like
python benchmarks/bigtable.py --quick               20,000 rows

The table has 16 columns of correlated numbers, a fifth of its cells are missing, and its rows are
made while they are read. They pass through `vfg.bigtable.impute` to a folder of Parquet files,
once with the linear model and once, for fewer rows, with an ensemble of the size that large tables
get; how long that was trained makes no difference to its speed. Memory is what all processes of
the job hold together, looked at after every shard. A machine that is busy with other things, which
its load tells, gives fewer rows per second, but hardly fewer per second of computing.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent / "experiments"))
from results import versions, write

from vfg.bigtable import Source, impute
from vfg.sklearn import VFGImputer
from vfg.tabular.plan import planned

COLUMNS, CAUSES, GAPS = 16, 5, 0.2
ROWS_MADE = 65_536
"""Rows that one draw of random numbers makes; shards may have any size."""


class Generated(Source):
    """A table whose rows are made while it is read.

    Args:
        rows: how many.
    """

    def __init__(self, rows: int) -> None:
        super().__init__([])
        self.number = rows
        self.loadings = np.random.default_rng(0).normal(size=(CAUSES, COLUMNS))

    @property
    def schema(self) -> Any:
        return pa.schema([(f"c{k}", pa.float64()) for k in range(COLUMNS)])

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    @property
    def rows(self) -> int:
        return self.number

    def leaving(self, names: Sequence[str]) -> Source:
        return self

    def fingerprint(self) -> str:
        return f"generated {self.number}"

    def batches(self, rows: int = ROWS_MADE) -> Iterator[Any]:
        from vfg.bigtable.reading import resized

        return resized(self._made(), self.schema, rows)

    def _made(self) -> Iterator[Any]:
        for first in range(0, self.number, ROWS_MADE):
            generator = np.random.default_rng((1, first))
            size = min(ROWS_MADE, self.number - first)
            causes = generator.normal(size=(size, CAUSES))
            values = causes @ self.loadings + 0.5 * generator.normal(size=(size, COLUMNS))
            missing = generator.random(values.shape) < GAPS
            columns = [pa.array(values[:, k], mask=missing[:, k]) for k in range(COLUMNS)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def resident(process: str = "self") -> int:
    """The bytes of memory that a process and those it started hold."""
    folder = Path("/proc") / process
    pages = int((folder / "statm").read_text().split()[1])
    children = (folder / "task" / folder.resolve().name / "children").read_text().split()
    return pages * 4096 + sum(resident(child) for child in children)


def processor_seconds() -> float:
    """The time that this process, and those it started that have ended, spent computing."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(model: VFGImputer, rows: int, shard_rows: int, processes: int) -> dict[str, Any]:
    """Rows per second, and the memory from the first shard to the last."""
    memory: list[int] = []
    folder = Path(tempfile.mkdtemp(prefix="vfg-bigtable-"))
    begun, computed = time.perf_counter(), processor_seconds()
    try:
        impute(
            Generated(rows),
            model,
            folder / "filled",
            shard_rows=shard_rows,
            processes=processes,
            progress=lambda done, of: memory.append(resident()) if done else None,
        )
        seconds = time.perf_counter() - begun
        computed = processor_seconds() - computed
        written = sum(path.stat().st_size for path in (folder / "filled").iterdir())
    finally:
        shutil.rmtree(folder)
    return {
        "rows": rows,
        "shards": len(memory),
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "processor_seconds": round(computed, 1),
        "rows_per_processor_second": round(rows / computed),
        "load": round(os.getloadavg()[1], 1),
        "megabytes_written": round(written / 1e6),
        "resident_megabytes": {
            "first": round(memory[0] / 1e6),
            "middle": round(memory[len(memory) // 2] / 1e6),
            "last": round(memory[-1] / 1e6),
            "most": round(max(memory) / 1e6),
        },
    }


def models() -> Iterator[tuple[str, VFGImputer]]:
    """The linear model, and an ensemble of the size that large tables get."""
    sample = pa.Table.from_batches([next(Generated(2000).batches(2000))])
    plan = planned(200_000, COLUMNS)
    yield "linear", VFGImputer(bend=False, random_state=0).fit(sample)
    bent = VFGImputer(
        members=plan.members, width=plan.width, flow=plan.flow, steps=1, random_state=0
    )
    yield "bent", bent.fit(sample)


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20,000 rows")
    parser.add_argument("--rows", type=int, default=2_000_000, help="for the linear model")
    parser.add_argument("--bent-rows", type=int, default=20_000, help="for the bent one")
    parser.add_argument("--shard-rows", type=int, default=65_536)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    sizes = {"linear": given.rows, "bent": given.bent_rows}
    if given.quick:
        sizes = {"linear": 20_000, "bent": 2_000}
    found = {
        name: measure(
            model,
            sizes[name],
            min(given.shard_rows, max(sizes[name] // 8, 1)),
            given.processes,
        )
        for name, model in models()
    }
    results = {
        "columns": COLUMNS,
        "missing": GAPS,
        "processes": given.processes,
        "versions": versions("pyarrow"),
        "models": found,
    }
    print(write("bigtable", results, quick=given.quick))
    for name, numbers in found.items():
        memory = numbers["resident_megabytes"]
        print(
            f"{name}: {numbers['rows']:,} rows, {numbers['rows_per_second']:,} a second "
            f"({numbers['rows_per_processor_second']:,} per second of computing), memory "
            f"{memory['first']} MB at first, {memory['last']} MB at last, {memory['most']} at most"
        )


if __name__ == "__main__":
    main()
