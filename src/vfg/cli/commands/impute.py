"""`vfg impute`: fill the missing values of a table, and report on it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.commands.evaluate import KEPT
from vfg.cli.commands.fit import check_folder, check_target, described
from vfg.cli.errors import tell
from vfg.cli.learning import Learning, fit_model, load_table_model
from vfg.cli.options import (
    AsJson,
    Debug,
    EngineName,
    InputFormat,
    KnownModel,
    Output,
    OutputFormat,
    Processes,
    ShardRows,
    TableFiles,
    Threads,
    share,
    with_groups,
)
from vfg.cli.output import console, print_json
from vfg.cli.progress import advancing, is_watched
from vfg.cli.tables import opened, output_format
from vfg.utils.extras import needs

if TYPE_CHECKING:
    from vfg.bigtable import Filling, Source
    from vfg.bigtable.engines import Engine, FillTask, Part
    from vfg.imputation.evaluation import Evaluation
    from vfg.imputation.table_model import TableModel


@dataclass(frozen=True)
class Target:
    """Where a filled table goes, and who fills it."""

    output: str
    format: str | None
    engine: Engine
    shard_rows: int


def check_output(output: str) -> None:
    """Refuse a target that cannot be written: a file, a folder of shards, or standard output.

    Raises:
        OSError: if it cannot be written.
    """
    from vfg.bigtable.fill_job import is_one_file

    if output == "-":
        return
    if is_one_file(output):
        check_target(Path(output))
    elif Path(output).is_dir():
        check_folder(Path(output))
    else:
        check_folder(Path(output).absolute().parent)


class Counting:
    """An engine that counts on the way how many cells it fills.

    Args:
        engine: that does the work.
        names: of the columns to count in.
    """

    def __init__(self, engine: Engine, names: Sequence[str]) -> None:
        self.engine, self.names = engine, list(names)
        self.gaps = self.left = 0

    def run(self, work: FillTask, parts: Iterable[Part]) -> Iterator[Any]:
        """The filled record batches of the parts, in their order."""
        for batch in self.engine.run(work, self._counted(parts)):
            self.left += gaps_in(batch, self.names) // (work.filling.draws or 1)
            yield batch

    def _counted(self, parts: Iterable[Part]) -> Iterator[Part]:
        for first, batch in parts:
            self.gaps += gaps_in(batch, self.names)
            yield first, batch


def gaps_in(batch: Any, names: Sequence[str]) -> int:
    """How many cells of some columns are missing; NaN counts as missing."""
    import pyarrow.compute as pc

    empty = (pc.sum(pc.is_null(batch.column(name), nan_is_null=True)).as_py() for name in names)
    return sum(int(number or 0) for number in empty)


def write_filled(
    source: Source, model: TableModel, filling: Filling, target: Target, *, show: bool
) -> dict[str, int]:
    """Fill a table; how many rows there are, how many an earlier run did, cells filled and left."""
    from vfg.bigtable import impute as impute_table
    from vfg.bigtable.fill_batch import known_names

    engine = Counting(target.engine, known_names(model, source.names))
    with advancing(source.rows if show else None, "rows") as advance:
        done = 0

        def progress(now: int, _: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        found = impute_table(
            source,
            model,
            target.output,
            filling=filling,
            shard_rows=target.shard_rows,
            format=target.format,
            engine=engine,
            progress=progress,
        )
    if engine.left:
        empty = [str(label) for label, part in model.encoding.parts.items() if part.empty]
        tell(f"{engine.left:,} gaps are left, since nothing is known of {', '.join(empty)}")
    filled = engine.gaps - engine.left
    return {"rows": found.rows, "resumed": found.found, "filled": filled, "left": engine.left}


MOST_ROWS = 20_000
"""How many rows of a long table are looked at."""
SHARE = 0.1
"""Of the known cells that are hidden."""
LEAST_SECONDS = 5.0
"""Of learning without them."""
SECOND_MODEL = (
    "The model that filled the table knew these cells. So a second one was learned with them "
    "hidden, from {rows:,} rows{limit}, and these are its errors: those of the first, which "
    "learned from more cells, should not be larger."
)
OTHER_ROWS = (
    "The model came from a file. If it learned from these very cells, new ones will be filled a "
    "little less well: vfg evaluate without --model hides them before learning."
)


@dataclass(frozen=True)
class Subject:
    """What is reported on.

    Args:
        source: the table with gaps.
        model: that filled it.
        file: of the model; None if it learned from this table.
        options: how it learned, or another would.
        seconds: that learning took.
        filling: what was written in the gaps.
    """

    source: Source
    model: TableModel
    file: Path | None
    options: Learning
    seconds: float
    filling: Filling

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen, for people."""
        filling = self.filling
        chosen = {"model": self.file, "draws": filling.draws, "intervals": filling.level}
        known = {name: value for name, value in chosen.items() if value is not None}
        return {**settings_of(self.model), **known, **self.options.choices()}


def report_on(subject: Subject, path: Path) -> None:
    """Write a page about how a table is filled.

    Args:
        subject: table and model.
        path: of the page.
    """
    import pyarrow as pa

    from vfg.bigtable.fill_batch import filled_batch, known_names
    from vfg.plots.report import Report, write_report

    with needs("plot"):
        import matplotlib
    matplotlib.use("Agg")  # there may be no screen
    source, model = subject.source, subject.model
    some = some_rows(source)
    names = known_names(model, source.names)
    table = some.select(names)
    merged = some.combine_chunks().to_batches()
    filled = pa.Table.from_batches([filled_batch(model, batch) for batch in merged]).select(names)
    found, hiding = recovered(subject, table)
    report = Report(
        source=", ".join(file.name for file in source.files[:3]),
        table=table,
        filled=filled,
        evaluation=found,
        graph=None if model.linear is None else model.graph,
        rows=source.rows,
        settings=subject.settings,
        hiding=hiding,
    )
    write_report(report, path)


def recovered(subject: Subject, table: Any) -> tuple[Evaluation | None, str]:
    """How well cells are recovered that were hidden before anything was learned, and by whom.

    A model that comes from a file is asked itself, as nobody knows what it learned from. Where the
    model learned from this very table, another one is learned from it without the hidden cells, in
    half the time, or a few seconds.

    Args:
        subject: table and model.
        table: the rows to look at, with the columns of the model.
    """
    import vfg
    from vfg.imputation.evaluation import evaluate, hold_out
    from vfg.tables.frames import hide_cells, open_table

    options, level = subject.options, subject.filling.level or 0.9
    whole = open_table(table)
    hidden = hold_out(whole, SHARE, options.seed, keep=KEPT)
    if not hidden.any():  # there are too few known cells
        return None, ""
    if subject.file is not None:
        return evaluate(subject.model, whole, hidden, level=level, seed=options.seed), OTHER_ROWS
    # The linear model takes seconds anyway, and without a budget it is the same every time.
    budget = max(LEAST_SECONDS, 0.5 * subject.seconds) if options.bend else None
    settings = options.settings(list(table.column_names))
    second = vfg.TableModel(replace(settings, budget=budget, progress=False))
    second.fit(hide_cells(whole, hidden))
    limit = "" if budget is None else f" within {budget:.0f} s"
    words = SECOND_MODEL.format(rows=table.num_rows, limit=limit)
    return evaluate(second, whole, hidden, level=level, seed=options.seed), words


def some_rows(source: Source) -> Any:
    """A table with every k-th row, so that there are not too many."""
    import numpy as np
    import pyarrow as pa

    step = -(-source.rows // MOST_ROWS)
    if step <= 1:
        return source.read()
    parts, first = [], 0
    for batch in source.batches():
        rows = np.arange(-first % step, batch.num_rows, step)
        parts.append(batch.take(pa.array(rows)))
        first += batch.num_rows
    return pa.Table.from_batches(parts, schema=source.schema)


def settings_of(model: TableModel) -> dict[str, Any]:
    """What a model is, for people."""
    found = {"kind": described(model)}
    if len(model.members):
        weights = model.part_weights.items()
        found["weights"] = ", ".join(f"{name} {weight:.2f}" for name, weight in weights)
    return found


@dataclass(frozen=True)
class Additions:
    """What is written besides the filled table, or in place of it."""

    draws: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write every row so many times, with other draws of its gaps each time."
        ),
    ] = None
    intervals: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            callback=share,
            help="Add columns with the ends of intervals, such as 0.9.",
        ),
    ] = None
    flag: Annotated[
        bool, typer.Option("--flag", help="Add columns that mark the cells that were filled.")
    ] = False
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page of HTML about what was filled and how well; without --model, a "
            "second model is learned for it from fewer cells.",
        ),
    ] = None
    save: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Keep the model that was learned.")
    ] = None


@with_groups
def impute(
    table: TableFiles,
    added: Additions,
    options: Learning,
    output: Output = "-",
    model: KnownModel = None,
    from_: InputFormat = None,
    to: OutputFormat = None,
    engine: EngineName = "local",
    processes: Processes = 1,
    shard_rows: ShardRows = 65_536,
    threads: Threads = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fill the gaps of a table; without a model, learn one from it first.

    vfg impute gaps.csv -o filled.csv
    """
    from vfg.bigtable.engines import engine_named
    from vfg.bigtable.fill_batch import Filling

    # Whatever can be wrong is found before hours are spent on learning.
    filling = Filling(added.draws, added.intervals, added.flag, options.seed)
    workers = engine_named(engine, processes=processes)
    check_output(output)
    for file in (added.report, added.save):
        if file is not None:
            check_target(file)
    source = opened(table, from_)
    begun = time.monotonic()
    found = load_or_fit(source, model, options, added.save)
    learning = time.monotonic() - begun
    target = Target(output, output_format(output, to, as_json), workers, shard_rows)
    counts = write_filled(source, found, filling, target, show=is_watched(options.quiet))
    if added.report is not None:
        subject = Subject(source, found, model, options, learning, filling)
        report_on(subject, added.report)
    summary = {
        "output": output,
        **counts,
        "learning_seconds": round(learning, 2),
        "seed": options.seed,
    }
    if as_json and output != "-":
        print_json(summary)
    elif not options.quiet and output != "-":
        console().print(f"{output}: {in_words(counts)}", markup=False)


def in_words(counts: Mapping[str, int]) -> str:
    """What was filled.

    Example:
        >>> in_words({"rows": 1000, "filled": 7, "resumed": 0})
        '1,000 rows, 7 cells filled'
    """
    words = f"{counts['rows']:,} rows, {counts['filled']:,} cells filled"
    if counts["resumed"]:
        words += f", {counts['resumed']:,} rows were done before"
    return words


def load_or_fit(
    source: Source, path: Path | None, options: Learning, save: Path | None
) -> TableModel:
    """The model of a file, or one that is fitted to the table.

    Args:
        source: the table.
        path: of the file; None fits a model.
        options: how.
        save: where to keep the fitted model; None keeps none.
    """
    import vfg

    if path is not None:
        if options.columns or options.exclude or save:
            raise typer.BadParameter(
                "--columns, --exclude and --save are about learning, but --model brings a model"
            )
        return load_table_model(path, options.device)
    model = fit_model(source, options.chosen(source.names), options)
    if save is not None:
        vfg.save(model, save)
    return model
