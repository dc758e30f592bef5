"""How fast a table larger than memory is filled, and how much memory that takes.

    python -m experiments.benchmarks.bigtable    100 million rows; goes on when started again

    --minutes 8    as many rows as 8 minutes allow
    --quick        20,000 rows

The rows, 16 columns of correlated numbers with a fifth of the cells missing, are made while they
are read. `vfg.bigtable.impute` writes them to a folder of Parquet files, with the linear model and,
fewer of them, with an ensemble of the size that large tables get. After every shard the rows, the
time and the memory are appended to a file, so that a run that was interrupted goes on. Memory is
what all processes of the job hold together, shared pages counted once for each.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import vfg
from vfg.bigtable import Source, impute
from vfg.bigtable.source import resize_batches
from vfg.imputation.plan import make_plan
from vfg.sklearn import VFGImputer

from ..results import TRIALS, arguments, versions

COLUMNS, CAUSES, GAPS = 16, 5, 0.2
ROWS_MADE = 65_536
"""Rows that one draw of random numbers makes; shards may have any size."""
SHARD_ROWS = {"linear": 65_536, "bent": 8_192}


class Generated(Source):
    """A table whose rows are made while it is read."""

    def __init__(self, rows: int) -> None:
        super().__init__([])
        self.rows = rows
        self.schema = pa.schema([(f"c{k}", pa.float64()) for k in range(COLUMNS)])
        self.loadings = np.random.default_rng(0).normal(size=(CAUSES, COLUMNS))

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def with_text_columns(self, names: Sequence[str]) -> Source:
        return self

    def fingerprint(self) -> str:
        return f"generated {self.rows}"

    def batches(self, rows: int = ROWS_MADE) -> Iterator[Any]:
        return resize_batches(self._generate(), self.schema, rows)

    def _generate(self) -> Iterator[Any]:
        for first in range(0, self.rows, ROWS_MADE):
            generator = np.random.default_rng((1, first))
            size = min(ROWS_MADE, self.rows - first)
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


class OutOfTimeError(Exception):
    """The minutes that were given are over."""


@dataclass
class Job:
    """A table that is being filled, with what was measured so far."""

    folder: Path
    rows: int
    shard_rows: int
    processes: int

    @property
    def lines(self) -> Path:
        return self.folder / "measured.jsonl"

    def run(self, deadline: float | None) -> None:
        """Fill what is not filled yet, until there is no time left."""
        begun, computed = time.perf_counter(), processor_seconds()

        def progress(done: int, _: int) -> None:
            now = time.perf_counter() - begun
            self._append({"rows": done, "seconds": round(now, 3), "resident": resident()})
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTimeError

        with suppress(OutOfTimeError):
            impute(
                Generated(self.rows),
                self.folder / "model.vfg",
                self.folder / "filled",
                shard_rows=self.shard_rows,
                processes=self.processes,
                progress=progress,
            )
        self._append({"computed": processor_seconds() - computed, "load": os.getloadavg()[1]})

    def summarise(self) -> dict[str, Any]:
        """The measurements of all runs, summed up."""
        lines = [json.loads(line) for line in self.lines.read_text().splitlines()]
        shards, seconds = _steps([line for line in lines if "rows" in line])
        ends = [line for line in lines if "computed" in line]
        computed = sum(end["computed"] for end in ends)
        rows = sum(size for size, _, _ in shards)
        speeds = np.array([size / taken for size, taken, _ in shards])
        memory = [held / 1e6 for _, _, held in shards]
        written = sum(path.stat().st_size for path in (self.folder / "filled").iterdir())
        return {
            "rows": rows,
            "rows_of_the_table": self.rows,
            "shards": len(shards),
            "runs": len(ends),
            "seconds": round(seconds, 1),
            "rows_per_second": round(rows / seconds),
            "rows_per_second_of_shards": {
                "slowest": round(speeds.min()),
                "median": round(float(np.median(speeds))),
                "fastest": round(speeds.max()),
            },
            "processor_seconds": round(computed, 1),
            "rows_per_processor_second": round(rows / computed),
            "load": round(ends[-1]["load"], 1),
            "megabytes_written": round(written / 1e6),
            "resident_megabytes": {
                "first": round(memory[0]),
                "by_tenths": [round(memory[len(memory) * k // 10]) for k in range(1, 10)],
                "last": round(memory[-1]),
                "most": round(max(memory)),
            },
        }

    def _append(self, line: dict[str, Any]) -> None:
        with open(self.lines, "a") as file:
            file.write(json.dumps(line) + "\n")


def _steps(lines: list[dict[str, Any]]) -> tuple[list[tuple[int, float, int]], float]:
    """Rows, seconds and memory of every shard; a run's first line tells where it began."""
    found: list[tuple[int, float, int]] = []
    total, before = 0.0, lines[0]
    for line in lines[1:]:
        if line["seconds"] > before["seconds"] and line["rows"] > before["rows"]:
            taken = line["seconds"] - before["seconds"]
            total += taken
            found.append((line["rows"] - before["rows"], taken, line["resident"]))
        before = line
    return found, total


def prepare(folder: Path, name: str) -> Path:
    """A folder with a model: the linear one, or an ensemble of the size for large tables."""
    made = folder / name
    made.mkdir(parents=True, exist_ok=True)
    if not (made / "model.vfg").exists():
        plan = make_plan(200_000, COLUMNS)
        sizes = {"members": plan.members, "width": plan.width, "flow": plan.flow, "steps": 1}
        options = {"bend": False} if name == "linear" else sizes
        sample = pa.Table.from_batches([next(Generated(2000).batches(2000))])
        imputer = VFGImputer(random_state=0, **options).fit(sample)
        vfg.save(imputer.model_, made / "model.vfg")
    return made


def main() -> None:
    given = arguments(
        __doc__,
        rows={"type": int, "default": 100_000_000, "help": "for the linear model"},
        bent_rows={"type": int, "default": 1_000_000, "help": "for the ensemble"},
        minutes={"type": float, "help": "for the linear model, at the most"},
        bent_minutes={"type": float, "help": "for the ensemble, at the most"},
        processes={"type": int, "default": 2},
        keep={"action": "store_true", "help": "the shards, to go on another time"},
        folder={"type": Path, "default": TRIALS / "bigtable", "help": "of the shards"},
    )
    sizes = {"linear": given.rows, "bent": given.bent_rows}
    if given.quick:
        sizes = {"linear": 20_000, "bent": 2_000}
        given.folder = given.folder / "quick"  # beside what a full run may go on from
        shutil.rmtree(given.folder, ignore_errors=True)
    minutes = {"linear": given.minutes, "bent": given.bent_minutes}
    described = {
        "columns": COLUMNS,
        "missing": GAPS,
        "processes": given.processes,
        "versions": versions("pyarrow"),
        "models": dict[str, Any](),
    }
    for name, rows in sizes.items():
        shard_rows = min(SHARD_ROWS[name], max(rows // 8, 1))
        job = Job(prepare(given.folder, name), rows, shard_rows, given.processes)
        limit = minutes[name]
        job.run(None if limit is None else time.monotonic() + 60 * limit)
        described["models"][name] = numbers = job.summarise()
        print(given.write("bigtable", described))  # also if what follows is cut off
        memory = numbers["resident_megabytes"]
        print(
            f"{name}: {numbers['rows']:,} rows, {numbers['rows_per_second']:,} a second "
            f"({numbers['rows_per_processor_second']:,} per second of computing), memory "
            f"{memory['first']} MB at first, {memory['last']} MB at last, {memory['most']} at most"
        )
    if given.quick or not given.keep:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
