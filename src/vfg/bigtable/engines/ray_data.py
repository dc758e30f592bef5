"""Ray Data: workers read, fill and write shards; the first process only keeps count.

A task is a run of consecutive shards, by their row numbers in the whole table, so that bits and
files are those of one process. Workers find the rows of Parquet files by row groups, so that a task
is one shard, or a few where there are many; other files are read from their beginning, so all
shards that begin in one of them are one task.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from vfg.bigtable.columnar import ParquetFile
from vfg.bigtable.engines import FillTask
from vfg.bigtable.fill_batch import count_missing, model_columns
from vfg.bigtable.job import digest_file
from vfg.bigtable.source import Source
from vfg.bigtable.writing import Sink
from vfg.modelfile import loads
from vfg.utils.remote import as_path

LONGEST_RUN = 4
"""Shards of Parquet files in a task: with four all processes of a job spent 4.1 microseconds of the
processor on a row of 16 columns, with one 5.3, since tasks cost something, and two shards may share
a row group. What a worker that dies has done of its task is done again."""
TASKS_OF_A_WORKER = 16
"""Tasks that every worker has at least before they become longer, so that all end together."""


@dataclass(frozen=True)
class ShardPlan:
    """What workers do with shards: read them from a source, fill them, write them to a folder."""

    source: Source  # of which types and rows are known
    shard_rows: int
    folder: str  # a path or URL that every worker reaches
    names: Sequence[str]  # of the files of all shards
    schema: Any
    dialect: Any

    def runs(self, known: Sequence[int], processes: int = 1) -> list[list[int]]:
        """The shards that are not known yet, in runs that one worker does."""
        missing = sorted({*range(len(self.names))} - {*known})
        length = min(LONGEST_RUN, len(missing) // (TASKS_OF_A_WORKER * processes)) or 1
        by_groups = all(isinstance(file, ParquetFile) for file in self.source.files)
        runs: dict[int, list[int]] = {}
        for shard in missing:
            first = shard * self.shard_rows
            task = shard // length if by_groups else self._file_of(first)
            runs.setdefault(task, []).append(shard)
        return list(runs.values())

    def _file_of(self, row: int) -> int:
        """The file that a row is in."""
        for place, file in enumerate(self.source.files):
            if row < file.rows:
                return place
            row -= file.rows
        return len(self.source.files)

    def fill(self, work: FillTask, shards: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Read, fill and write shards, one after the other; what was done for each.

        That is its number, its rows, how many cells were missing and are left, and the digest of
        its file, so that nobody else has to read it.
        """
        source = self.source
        if work.text is not None:
            source = source.with_text_columns(source.names)
        batches = source.batches_from(shards[0] * self.shard_rows, self.shard_rows)
        texts = None if work.text is None else work.text.dialect.missing
        names = model_columns(work.model, source.names)
        wanted = set(shards)
        for shard, batch in enumerate(batches, shards[0]):
            if shard in wanted:
                filled = work((shard * self.shard_rows, batch))
                target = as_path(self.folder) / self.names[shard]
                with Sink(target, self.schema, dialect=self.dialect) as sink:
                    sink.write(filled)
                left = count_missing(filled, names, texts) // (work.filling.draws or 1)
                missing = count_missing(batch, names, texts)
                counts = {"rows": filled.num_rows, "missing": missing, "left": left}
                yield {"shard": shard, **counts, "digest": digest_file(target)}
            if shard == shards[-1]:
                return


@runtime_checkable
class ShardEngine(Protocol):
    """An engine whose workers read and write, if files are shared."""

    @property
    def shared(self) -> bool:
        """Whether every worker reaches the files."""
        ...

    def fill_shards(
        self, plan: ShardPlan, work: FillTask, known: Sequence[int]
    ) -> Generator[dict[str, Any]]:
        """What `ShardPlan.fill` tells of every shard that was not known, in any order."""
        ...


class ShardFiller:
    """What an actor does: it reads plan and model once, and does runs of shards."""

    def __init__(self) -> None:
        self.plan: ShardPlan | None = None

    def __call__(self, batch: dict[str, Any], held: list[Any]) -> Any:
        """The counts of the shards of runs; what goes wrong as bytes, since Ray Data wraps it.

        An actor that was started again finds its work in `held`.
        """
        if self.plan is None:
            import ray

            self.plan, (model, *rest) = ray.get(held[0])
            self.work = FillTask(loads(model, "cuda" if ray.get_gpu_ids() else None), *rest)
        assert self.plan is not None
        import pyarrow as pa

        done: list[dict[str, Any]] = []
        try:
            for run in batch["shards"]:
                done += self.plan.fill(self.work, [int(shard) for shard in run])
        except Exception as error:
            done.append({"error": pickle.dumps(error)})
        names = ("shard", "rows", "missing", "left")
        texts = [("digest", pa.string()), ("error", pa.binary())]
        fields = [*((name, pa.int64()) for name in names), *texts]
        return pa.Table.from_pylist(done, schema=pa.schema(fields))


def fill_shards(
    plan: ShardPlan, work: FillTask, known: Sequence[int], *, processes: int, gpus: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Fill all shards that are not known, by actors of Ray Data; a cluster must be connected."""
    import ray

    runs = plan.runs(known, processes)
    if not runs:
        return
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    held = [ray.put((plan, work.to_bytes()))]
    data = ray.data.from_items([{"shards": run} for run in runs], override_num_blocks=len(runs))
    resources = {"num_gpus": gpus} if gpus else {"num_cpus": 1}
    filler: Any = ShardFiller
    filled = data.map_batches(
        filler,
        fn_kwargs={"held": held},
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(processes, len(runs))),
        **resources,
    )
    for row in filled.iter_rows():
        if row["error"] is not None:
            raise pickle.loads(row["error"])
        yield row
