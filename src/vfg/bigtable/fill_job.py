"""Filling tables larger than memory, shard by shard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from vfg.bigtable.engines import Engine, FillTask, engine_named
from vfg.bigtable.engines.ray_data import ShardEngine, ShardPlan
from vfg.bigtable.fill_batch import (
    Filling,
    TextColumns,
    count_missing,
    filled_schema,
    model_columns,
    with_parameters,
)
from vfg.bigtable.formats import SUFFIXES, Dialect, kind_from_name, normalise_format
from vfg.bigtable.job import JobFolder, job_folder, pieces_of
from vfg.bigtable.source import Place, Source, open_table
from vfg.bigtable.writing import Sink, target_kind, write_table
from vfg.imputation.imputer import VFGImputer
from vfg.imputation.parameter_draws import MOST_COLUMNS
from vfg.imputation.settings import check_count
from vfg.imputation.table_model import TableModel
from vfg.modelfile import load
from vfg.tables.schema import Continuous
from vfg.training.history import fingerprint
from vfg.utils.extras import needs
from vfg.utils.files import is_stream
from vfg.utils.remote import RemotePath, as_path

with needs("table"):
    import pyarrow as pa

SHARD_ROWS = 65_536
"""How many rows are filled and written together, by default."""
MOST_ROWS = 20_000
"""Rows of a long table in a report, or given which parameters are drawn: more hardly matter."""

Model: TypeAlias = TableModel | VFGImputer | str | os.PathLike[str]
"""A fitted model, a fitted imputer, or the file of one."""
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of rows done, and of all rows."""


@dataclass(frozen=True)
class Imputed:
    """What a job did.

    Args:
        rows: number of rows of the table.
        found: number of rows that an earlier run of the job had filled.
        filled: number of cells that this run filled.
        left: number of cells that this run left missing.
        seconds: how long this run took.
    """

    rows: int
    found: int
    filled: int
    left: int
    seconds: float


def impute(
    source: Source | Place | Sequence[Place],
    model: Model,
    target: str | os.PathLike[str],
    *,
    filling: Filling | None = None,
    shard_rows: int = SHARD_ROWS,
    format: str | None = None,
    engine: str | Engine = "local",
    processes: int = 1,
    progress: Progress | None = None,
) -> Imputed:
    """Fill the missing values of a table of any size, in memory that does not grow with it.

    A target whose name has a suffix of a table file, and `"-"`, is one file, which appears as a
    whole or not at all. Any other target is a folder of shards `part-00000.parquet`, …, with a
    `_manifest.json`: each shard appears as a whole. A job that was interrupted continues
    if it is started again; the pieces of a file of more than one shard are kept in a hidden folder
    beside it until it is complete. The contents of a shard depend only on the rows, the model and
    `filling`, not on the engine and the number of processes.

    Args:
        source: a table, or what `open_table` takes.
        model: a fitted model or imputer, or its file.
        target: a file, a folder, or `"-"` for standard output.
        filling: draws, intervals, flags and seed; None (default) for expected values. Proper draws
            are for the table that the model was fitted to, since parameters are drawn given its
            rows.
        shard_rows: number of rows of a shard, which are filled and written together (default
            65,536). Lower it if memory is short.
        format: of the target; None (default) infers it from its suffix, or takes Parquet for
            shards.
        engine: `"local"` (default), `"ray"`, or an engine. With Ray and a folder as the target,
            workers read and write; every machine must reach the files.
        processes: number of processes, each with one thread (default 1).
        progress: called with the number of rows done, and of all rows; None (default) for none.

    Returns:
        Numbers of rows, and the time it took.

    Raises:
        ValueError: for tables that cannot be read or do not fit the model; for a folder that holds
            another job, or the same with a changed input, model or option.
        BlockingIOError: if another job is writing to the folder.
        OSError: if the target cannot be written.
    """
    check_count("shard_rows", shard_rows)
    known = as_model(model)
    one_file = is_one_file(target)
    written = (
        target_kind(target, format).format if one_file else normalise_format(format or "parquet")
    )
    table = as_fitted(
        source if isinstance(source, Source) else open_table(source, like=known.origin), known
    )
    keeps_text = table.is_text and written in ("csv", "tsv")
    chosen = Filling() if filling is None else filling
    if chosen.proper and chosen.draws is not None and len(known.columns) <= MOST_COLUMNS:
        chosen = with_parameters(known, sample_rows(table), table.rows, chosen)
    job = _Job(
        table,
        FillTask(
            known,
            chosen,
            _text_columns(table, known) if keeps_text else None,
        ),
        shard_rows,
        engine_named(engine, processes=processes) if isinstance(engine, str) else engine,
        progress or (lambda done, of: None),
    )
    begun = time.monotonic()
    resumed = (
        job.into_file(target, format) if one_file else job.into_folder(as_path(target), written)
    )
    return Imputed(table.rows, resumed, job.missing - job.left, job.left, time.monotonic() - begun)


def sample_rows(source: Source) -> Any:
    """A table with every k-th row, so that there are not too many."""
    step = -(-source.rows // MOST_ROWS)
    if step <= 1:
        return source.read()
    parts, first = [], 0
    for batch in source.batches():
        rows = np.arange(-first % step, batch.num_rows, step)
        parts.append(batch.take(pa.array(rows)))
        first += batch.num_rows
    return pa.Table.from_batches(parts, schema=source.schema)


def is_one_file(target: str | os.PathLike[str]) -> bool:
    """Whether a target is one file rather than a folder of shards.

    Example:
        >>> is_one_file("filled.csv.gz"), is_one_file("-"), is_one_file("filled")
        (True, True, False)
    """
    if str(target) == "-" or is_stream(target):
        return True
    if as_path(target).is_dir() or str(target).endswith("/") or not Path(target).suffix:
        return False
    kind_from_name(target)
    return True


def as_model(model: Model) -> TableModel:
    """The fitted model from a model, an imputer or a file."""
    loaded: Any = load(model) if isinstance(model, str | os.PathLike) else model
    if isinstance(loaded, VFGImputer):
        loaded = getattr(loaded, "model_", loaded)
    if not isinstance(loaded, TableModel):
        raise TypeError(
            f"tables are filled by a fitted VFGImputer or its file, but this is a "
            f"{type(loaded).__name__} that is neither"
        )
    return loaded


@dataclass
class _Job:
    source: Source
    work: FillTask
    shard_rows: int
    engine: Engine
    progress: Progress
    missing: int = 0
    left: int = 0

    def into_file(self, target: str | os.PathLike[str], format: str | None) -> int:
        """The number of rows that were done already."""
        if str(target) == "-" or is_stream(target) or len(self._sizes) < 2:
            with closing(self._all()) as batches:
                self._write(batches, target, format)
            return 0
        with pieces_of(
            as_path(target), self._describe(kind_from_name(target, format).format)
        ) as place:
            names = [f"piece-{shard:05d}" for shard in range(len(self._sizes))]
            resumed = self._fill_shards(place, names, place.keep_piece)
            self._write(place.pieces(names), target, format)
        return resumed

    def _write(
        self, batches: Iterable[Any], target: str | os.PathLike[str], format: str | None
    ) -> None:
        write_table(batches, self._schema, target, format=format, dialect=self._dialect)

    @property
    def _dialect(self) -> Dialect | None:
        """Text files are written as those that are read, each kind with its own delimiter."""
        if self.work.text is None:
            return None
        is_csv = self.source.files[0].kind.format == "csv"
        dialect = self.source.dialect
        return dialect if is_csv else replace(dialect, delimiter=None)

    def _all(self) -> Generator[Any]:
        done = 0
        with closing(self.fill_parts(())) as results:
            for shard, batch in results:
                yield batch
                done += self._sizes[shard]
                self.progress(done, self.source.rows)

    def into_folder(self, folder: Path | RemotePath, format: str) -> int:
        """The number of rows that were done already."""
        schema = self._schema

        def write(name: str, batch: Any) -> None:
            with Sink(folder / name, schema, dialect=self._dialect) as sink:
                sink.write(batch)

        with job_folder(folder, self._describe(format)) as place:
            suffix = next(suffix for suffix, known in SUFFIXES.items() if known == format)
            names = [f"part-{shard:05d}{suffix}" for shard in range(len(self._sizes))]
            is_shared = isinstance(self.engine, ShardEngine) and self.engine.shared
            if isinstance(self.engine, ShardEngine) and is_shared and not self.source.is_piped:
                resumed = self._fill_shards_elsewhere(self.engine, place, names)
            else:
                resumed = self._fill_shards(place, names, write)
            place.finish(self.source.rows)
        return resumed

    def _fill_shards(
        self, place: JobFolder, names: list[str], write: Callable[[str, Any], None]
    ) -> int:
        """Fill and write all shards that are not done yet; the number of rows of the others."""
        known = {shard: None for shard, name in enumerate(names) if place.has(name)}
        done = resumed = sum(self._sizes[shard] for shard in known)
        self.progress(done, self.source.rows)
        with closing(self.fill_parts(known)) as results:
            for shard, batch in results:
                write(names[shard], batch)
                place.finish_shard(names[shard], batch.num_rows)
                done += self._sizes[shard]
                self.progress(done, self.source.rows)
        if done != self.source.rows:
            raise ValueError(
                f"{done:,} of {self.source.rows:,} rows were filled, since the input has changed; "
                "run it again once the input is complete"
            )
        return resumed

    def _fill_shards_elsewhere(
        self, engine: ShardEngine, place: JobFolder, names: list[str]
    ) -> int:
        """As `_fill_shards`, by workers that read and write."""
        known = [shard for shard, name in enumerate(names) if place.has(name)]
        done = resumed = sum(self._sizes[shard] for shard in known)
        self.progress(done, self.source.rows)
        folder = str(
            place.folder if isinstance(place.folder, RemotePath) else place.folder.absolute()
        )
        plan = ShardPlan(self.source, self.shard_rows, folder, names, self._schema, self._dialect)
        with closing(engine.fill_shards(plan, self.work, known)) as results:
            for one in results:
                place.finish_shard(names[one["shard"]], one["rows"], one["digest"])
                self.missing += one["missing"]
                self.left += one["left"]
                done += self._sizes[one["shard"]]
                self.progress(done, self.source.rows)
        return resumed

    def fill_parts(self, known: Container[int]) -> Generator[tuple[int, Any]]:
        """The filled batches of the shards that are not known yet, with their numbers."""
        shards: list[int] = []

        def parts() -> Iterator[tuple[int, Any]]:
            source = self.source
            if self.work.text is not None:
                source = source.with_text_columns(source.names)
            for shard, batch in enumerate(source.batches(self.shard_rows)):
                if shard not in known:
                    shards.append(shard)
                    self.missing += self._count_missing(batch)
                    yield shard * self.shard_rows, batch

        # Closed when this generator is, so that workers stop at once.
        with closing(self.engine.run(self.work, parts())) as results:
            for batch in results:
                self.left += self._count_missing(batch) // (self.work.filling.draws or 1)
                yield shards.pop(0), batch

    def _count_missing(self, batch: Any) -> int:
        names = model_columns(self.work.model, self.source.names)
        text = self.work.text
        return count_missing(batch, names, None if text is None else text.dialect.missing)

    @property
    def _schema(self) -> Any:
        schema = filled_schema(self.work.model, self.source.schema, self.work.filling)
        return schema if self.work.text is None else self.work.text.schema(schema)

    @cached_property
    def _sizes(self) -> list[int]:
        """How many rows every shard has."""
        rows, size = self.source.rows, self.shard_rows
        return [min(size, rows - first) for first in range(0, rows, size)]

    def _describe(self, format: str) -> dict[str, Any]:
        from vfg import __version__

        model = self.work.model
        return {
            "input": self.source.fingerprint(),
            "model": fingerprint(model.to_dict(), dict(model.state_dict())),
            "filling": self.work.filling.to_dict(),
            "shard_rows": self.shard_rows,
            "format": format,
            "versions": [__version__, str(torch.__version__), pa.__version__],
        }


def as_fitted(source: Source, model: TableModel) -> Source:
    """A table of text files with its columns read as they were in fitting.

    Columns that the model does not know, and those whose categories are text, stay text. Those of
    real numbers are such if they hold whole ones, so that filled cells keep their decimals.
    """
    specs = dict(
        zip(model_columns(model, source.names), model.encoding.schema.values(), strict=True)
    )
    texts = [
        name
        for name, spec in specs.items()
        if any(isinstance(category, str) for category in getattr(spec, "categories", None) or ())
    ]
    others = [name for name in source.names if name not in specs]
    real = [name for name, spec in specs.items() if isinstance(spec, Continuous)]
    return source.with_text_columns(others, texts, real)


def _text_columns(source: Source, model: TableModel) -> TextColumns:
    types = source.schema  # known before the samples are
    fields = [types.field(name) for name in model_columns(model, source.names)]
    layouts = {
        field.name: source.layouts[field.name]
        for field in fields
        if field.name in source.layouts and field.type != pa.string()
    }
    return TextColumns(pa.schema(fields), source.samples, source.dialect, layouts)
