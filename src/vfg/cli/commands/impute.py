"""`vfg impute`: fill the missing values of a table, and report on it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.commands.evaluate import LEAST_OBSERVED
from vfg.cli.commands.fit import check_folder, check_target, describe_parts
from vfg.cli.errors import print_line
from vfg.cli.fitting import FitOptions, fit_model, load_table_model
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
    check_share,
    with_groups,
)
from vfg.cli.output import console, print_json
from vfg.cli.progress import is_watched, progress_bar
from vfg.cli.tables import open_files, output_format
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


class CountingEngine:
    """An engine that counts on the way how many cells it fills.

    Args:
        engine: that does the work.
        names: of the columns to count in.
    """

    def __init__(self, engine: Engine, names: Sequence[str]) -> None:
        self.engine, self.names = engine, list(names)
        self.missing = self.left = 0

    def run(self, work: FillTask, parts: Iterable[Part]) -> Iterator[Any]:
        """The filled record batches of the parts, in their order."""
        for batch in self.engine.run(work, self._counted(parts)):
            self.left += count_missing(batch, self.names) // (work.filling.draws or 1)
            yield batch

    def _counted(self, parts: Iterable[Part]) -> Iterator[Part]:
        for first, batch in parts:
            self.missing += count_missing(batch, self.names)
            yield first, batch


def count_missing(batch: Any, names: Sequence[str]) -> int:
    """How many cells of some columns are missing; NaN counts as missing."""
    import pyarrow.compute as pc

    empty = (pc.sum(pc.is_null(batch.column(name), nan_is_null=True)).as_py() for name in names)
    return sum(int(number or 0) for number in empty)


def fill_table(
    source: Source, model: TableModel, filling: Filling, target: Target, *, show: bool
) -> dict[str, int]:
    """Fill a table; how many rows there are, how many an earlier run did, cells filled and left."""
    from vfg.bigtable import impute as impute_table
    from vfg.bigtable.fill_batch import model_columns

    engine = CountingEngine(target.engine, model_columns(model, source.names))
    with progress_bar(source.rows if show else None, "rows") as advance:
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
        parts = model.encoding.parts.items()
        unfilled = [str(label) for label, part in parts if not part.fillable]
        print_line(
            f"{engine.left:,} missing values are left, since these columns have no observed cell, "
            f"or hold identifiers or free text: {', '.join(unfilled)}"
        )
    filled = engine.missing - engine.left
    return {"rows": found.rows, "resumed": found.found, "filled": filled, "left": engine.left}


MOST_ROWS = 20_000
"""Rows of a long table in the report; more hardly change its shares, and take longer to fill."""
SHARE = 0.1
"""Share of the observed cells that are held out."""
LEAST_SECONDS = 5.0
"""Least budget of the second fit, as half the time of a very short fit would be too little."""
SECOND_MODEL = (
    "The model that filled the table was fitted to these cells. So a second model was fitted with "
    "them held out, to {rows:,} rows{limit}, and these are its errors: those of the first, which "
    "was fitted to more cells, should not be larger."
)
OTHER_ROWS = (
    "The model came from a file. If it was fitted to these very cells, the errors on new cells are "
    "larger: vfg evaluate without --model holds cells out before fitting."
)


@dataclass(frozen=True)
class ReportSubject:
    """What is reported on.

    Args:
        source: the table with missing values.
        model: that filled it.
        file: of the model; None if it was fitted to this table.
        options: of the fit.
        seconds: that the fit took.
        filling: what was imputed.
    """

    source: Source
    model: TableModel
    file: Path | None
    options: FitOptions
    seconds: float
    filling: Filling

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen, for people."""
        filling = self.filling
        chosen = {"model": self.file, "draws": filling.draws, "intervals": filling.level}
        known = {name: value for name, value in chosen.items() if value is not None}
        return {**describe_settings(self.model), **known, **self.options.describe()}


def write_imputation_report(subject: ReportSubject, path: Path) -> None:
    """Write a page about how a table is filled.

    Args:
        subject: table and model.
        path: of the page.
    """
    import pyarrow as pa

    from vfg.bigtable.fill_batch import filled_batch, model_columns
    from vfg.plots.report import Report, write_report

    with needs("plot"):
        import matplotlib
    matplotlib.use("Agg")  # there may be no screen
    source, model = subject.source, subject.model
    some = sample_rows(source)
    names = model_columns(model, source.names)
    table = some.select(names)
    merged = some.combine_chunks().to_batches()
    filled = pa.Table.from_batches([filled_batch(model, batch) for batch in merged]).select(names)
    found, hiding = evaluate_held_out(subject, table)
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


def evaluate_held_out(subject: ReportSubject, table: Any) -> tuple[Evaluation | None, str]:
    """Errors on held-out cells, and a sentence that says which model they are of.

    A model from a file is evaluated itself, as its training data are unknown. If the model was
    fitted to this table, a second model is fitted without the held-out cells, in half the time, or
    a few seconds.

    Args:
        subject: table and model.
        table: the rows of the report, with the columns of the model.
    """
    import vfg
    from vfg.imputation.evaluation import evaluate, hold_out
    from vfg.tables.frames import hide_cells, open_table

    options, level = subject.options, subject.filling.level or 0.9
    whole = open_table(table)
    hidden = hold_out(whole, SHARE, options.seed, keep=LEAST_OBSERVED)
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


def sample_rows(source: Source) -> Any:
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


def describe_settings(model: TableModel) -> dict[str, Any]:
    """What a model is, for people."""
    found = {"kind": describe_parts(model)}
    if len(model.members):
        weights = model.part_weights.items()
        found["weights"] = ", ".join(f"{name} {weight:.2f}" for name, weight in weights)
    return found


@dataclass(frozen=True)
class OutputOptions:
    """What is written besides the filled table, or in place of it."""

    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Write every row this often, each time with new draws of its missing values.",
        ),
    ] = None
    intervals: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            callback=check_share,
            help="Add columns with the ends of intervals of this coverage, such as 0.9.",
        ),
    ] = None
    flag: Annotated[
        bool, typer.Option("--flag", help="Add columns that mark the imputed cells.")
    ] = False
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML report with errors on held-out cells; without --model, a second "
            "model is fitted for them.",
        ),
    ] = None
    save: Annotated[Path | None, typer.Option(metavar="MODEL", help="Save the fitted model.")] = (
        None
    )


@with_groups
def impute(
    table: TableFiles,
    added: OutputOptions,
    options: FitOptions,
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
    """Impute the missing values of a table; without --model, fit a model to it first.

    vfg impute table.csv -o filled.csv
    """
    from vfg.bigtable.engines import engine_named
    from vfg.bigtable.fill_batch import Filling

    # Errors of the arguments should appear before a model is fitted, which may take hours.
    filling = Filling(added.draws, added.intervals, added.flag, options.seed)
    workers = engine_named(engine, processes=processes)
    check_output(output)
    for file in (added.report, added.save):
        if file is not None:
            check_target(file)
    source = open_files(table, from_)
    begun = time.monotonic()
    found = load_or_fit(source, model, options, added.save)
    learning = time.monotonic() - begun
    target = Target(output, output_format(output, to, as_json), workers, shard_rows)
    counts = fill_table(source, found, filling, target, show=is_watched(options.quiet))
    if added.report is not None:
        subject = ReportSubject(source, found, model, options, learning, filling)
        write_imputation_report(subject, added.report)
    summary = {
        "output": output,
        **counts,
        "learning_seconds": round(learning, 2),
        "seed": options.seed,
    }
    if as_json and output != "-":
        print_json(summary)
    elif not options.quiet and output != "-":
        console().print(f"{output}: {summarise(counts)}", markup=False)


def summarise(counts: Mapping[str, int]) -> str:
    """What was filled.

    Example:
        >>> summarise({"rows": 1000, "filled": 7, "resumed": 0})
        '1,000 rows, 7 cells filled'
    """
    words = f"{counts['rows']:,} rows, {counts['filled']:,} cells filled"
    if counts["resumed"]:
        words += f", {counts['resumed']:,} rows were done before"
    return words


def load_or_fit(
    source: Source, path: Path | None, options: FitOptions, save: Path | None
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
                "--columns, --exclude and --save are options of fitting and exclude --model"
            )
        return load_table_model(path, options.device)
    model = fit_model(source, options.select(source.names), options)
    if save is not None:
        vfg.save(model, save)
    return model
