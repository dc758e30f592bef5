"""`vfg impute`: fill the missing values of a table, and report on it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.commands.evaluate import LEAST_OBSERVED
from vfg.cli.commands.fit import check_folder, check_target, describe_parts
from vfg.cli.errors import print_line, usage_errors
from vfg.cli.fitting import FitOptions, WorkOptions, fit_model, load_table_model
from vfg.cli.options import (
    LARGE,
    EngineOptions,
    Output,
    OutputFormat,
    Overwrite,
    RunOptions,
    TableFiles,
    check_share,
    option,
    with_groups,
)
from vfg.cli.output import print_json, print_text
from vfg.cli.progress import is_watched, load_libraries, progress_bar
from vfg.cli.table_files import ReadOptions, check_outputs, output_format, report_reading
from vfg.utils.extras import needs
from vfg.utils.files import is_stream
from vfg.utils.remote import is_remote

if TYPE_CHECKING:
    from vfg.bigtable import Filling, Source
    from vfg.imputation.evaluation import Evaluation
    from vfg.imputation.table_model import TableModel


def is_remote_folder(output: str) -> bool:
    """Whether a target is a folder in a store."""
    from vfg.bigtable.fill_job import is_one_file

    return is_remote(output) and not is_one_file(output)


def check_output(output: str) -> Path | None:
    """Refuse a target that cannot be written; the folder for the pieces of its job, if any."""
    from vfg.bigtable.fill_job import is_one_file
    from vfg.bigtable.job import pieces_folder

    path = Path(output)
    if output == "-" or is_remote(output):
        return None
    with usage_errors():
        is_file = is_one_file(output)
    if is_file:
        check_target(path)
        return None if is_stream(output) else Path(pieces_folder(path))
    check_folder(path if path.is_dir() else path.absolute().parent)
    return path


def fill_table(source: Source, model: TableModel, *, show: bool, **settings: Any) -> dict[str, int]:
    """Fill a table; how many rows there are, how many an earlier run did, cells filled and left."""
    from vfg.bigtable import impute as impute_table

    with progress_bar(source.rows if show else None, "rows") as advance:
        done = 0

        def progress(now: int, _: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        result = impute_table(source, model, progress=progress, **settings)
    if result.left:
        parts = model.encoding.parts.items()
        empty = [str(label) for label, part in parts if part.empty]
        names = [str(label) for label, part in parts if not (part.fillable or part.empty)]
        reasons = {"have no observed cell": empty, "hold identifiers or free text": names}
        since = "; ".join(f"{why}: {', '.join(own)}" for why, own in reasons.items() if own)
        print_line(f"{result.left:,} missing values are left, since these columns {since}")
    counts = {"rows": result.rows, "resumed": result.found}
    return {**counts, "filled": result.filled, "left": result.left}


SHARE = 0.1
"""Share of the observed cells that are held out."""
LEAST_SECONDS = 5.0
"""Least budget of the second fit, as half the time of a very short fit would be too little."""
SECOND_MODEL = (
    "The model that filled the table was fitted to these cells. Therefore a second model was "
    "fitted without them, to {rows:,} rows{limit}, and these are its errors. Those of the first "
    "model, which was fitted to more cells, should not be larger."
)
OTHER_ROWS = (
    "The model was read from a file. If it was fitted to these cells, the errors on new cells are "
    "larger: vfg evaluate without --model holds cells out before fitting."
)


@dataclass(frozen=True)
class ReportSubject:
    """What is reported on."""

    source: Source
    model: TableModel
    file: Path | None  # of the model; None if it was fitted to this table
    options: FitOptions
    seconds: float  # that the fit took
    filling: Filling

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen, for people."""
        model, filling = self.model, self.filling
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in model.part_weights.items())
        chosen = {
            "kind": describe_parts(model),
            "weights": weights if model.is_stacked else None,
            "model": self.file,
            "draws": filling.draws,
            "intervals": filling.level,
        }
        known = {name: value for name, value in chosen.items() if value is not None}
        return known | self.options.describe()


def write_imputation_report(subject: ReportSubject, path: Path) -> None:
    """Write a page about how a table is filled."""
    import pyarrow as pa

    from vfg.bigtable.fill_batch import filled_batch, model_columns
    from vfg.bigtable.fill_job import sample_rows
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
    result, hiding = evaluate_held_out(subject, table)
    report = Report(
        source=", ".join(file.name for file in source.files[:3]),
        table=table,
        filled=filled,
        evaluation=result,
        graph=None if model.linear is None else model.graph,
        rows=source.rows,
        settings=subject.settings,
        model=model,
        hiding=hiding,
    )
    write_report(report, path)


def evaluate_held_out(subject: ReportSubject, table: Any) -> tuple[Evaluation | None, str]:
    """Errors on held-out cells, and a sentence that says which model they are of.

    A model from a file is evaluated itself; else a second one is fitted, in half the time.
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


def check_estimate(value: str) -> str:
    """Refuse anything but means and medians."""
    if value not in ("mean", "median"):
        raise typer.BadParameter(f"it must be mean or median, but is {value!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class WriteOptions(EngineOptions):
    """What is written, and by whom."""

    output: Output = "-"
    to: OutputFormat = None
    overwrite: Overwrite = False
    draws: int | None = option(
        None,
        None,
        "Number of copies of every row, each with new draws of its missing values and of the "
        "parameters, so that estimates can be pooled. With --model the parameters are those of the "
        "file, and pooled intervals are too narrow.",
        min=1,
    )
    intervals: float | None = option(
        None,
        None,
        "Add columns with the ends of intervals of this coverage, such as 0.9.",
        metavar="SHARE",
        callback=check_share,
    )
    flag: bool = option(False, None, "Add columns that mark the imputed cells.", "--flag")
    estimate: str = option(
        "mean",
        None,
        "Fill numbers with the mean, which is best in squared error, or the median, best in "
        "absolute error.",
        metavar="mean|median",
        callback=check_estimate,
    )
    report: Path | None = option(
        None,
        None,
        "Write an HTML report with errors on held-out cells; without --model, a second model is "
        "fitted for them.",
        metavar="FILE",
    )
    save: Path | None = option(None, None, "Save the fitted model.", metavar="MODEL")
    shard_rows: int = option(
        65_536, LARGE, "Rows per batch, and per file if the output is a folder.", min=1
    )

    def filling(self, seed: int, *, is_fitted: bool) -> Filling:
        """How cells are filled; only models that are fitted now draw their parameters."""
        from vfg.bigtable.fill_batch import Filling

        proper = self.draws is not None and not is_fitted
        chosen = self.draws, self.intervals, self.flag, seed, self.estimate
        return Filling(*chosen, proper=proper)

    def place(self, *, as_json: bool) -> tuple[Path | None, str | None]:
        """The folder of the pieces, and the format; all files can be written."""
        place = check_output(self.output)
        is_folder = place == Path(self.output) or is_remote_folder(self.output)
        format = output_format(self.output, self.to, as_json, folder=is_folder)
        for file in filter(None, (self.report, self.save)):
            check_target(file)
        return place, format

    def check_inputs(self, source: Source, model: Path | None) -> None:
        """Refuse outputs that are inputs, and existing ones without `overwrite`."""
        inputs: list[str | Path] = [str(file.path) for file in source.files]
        inputs += [] if model is None else [model]
        outputs = {"--output": self.output, "--report": self.report, "--save": self.save}
        check_outputs(outputs, inputs, self.overwrite)


@with_groups
def impute(
    table: TableFiles,
    writing: WriteOptions,
    options: FitOptions,
    reading: ReadOptions,
    run: RunOptions,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="A model file; by default a model is fitted."
        ),
    ] = None,
) -> None:
    """Impute the missing values of a table; without --model, fit a model to it first.

    vfg impute table.csv -o filled.csv
    """
    load_libraries(quiet=options.quiet)
    from vfg.bigtable.engines import engine_named
    from vfg.bigtable.fill_job import as_fitted

    # Errors of the arguments should appear before a model is fitted, which may take hours.
    with usage_errors():
        filling = writing.filling(options.seed, is_fitted=model is not None)
        workers = engine_named(writing.engine, processes=writing.processes)
    place, format = writing.place(as_json=run.as_json)
    known = load_model(model, options, writing.save)
    source = reading.open(table, [writing.output], known)
    writing.check_inputs(source, model)
    begun = time.monotonic()
    if known is None:
        kept = KeptModel(source, options, place, writing.shard_rows)
        result = fit_or_resume(source, options, writing.save, kept)
    else:
        source, result = as_fitted(source, known), known
    learning = time.monotonic() - begun
    if not options.quiet:
        report_reading(source, result if model is None else None)
    counts = fill_table(
        source,
        result,
        show=is_watched(options.quiet),
        target=writing.output,
        format=format,
        filling=filling,
        engine=workers,
        shard_rows=writing.shard_rows,
    )
    if writing.report is not None:
        subject = ReportSubject(source, result, model, options, learning, filling)
        write_imputation_report(subject, writing.report)
    if writing.output == "-":
        return
    times = {"learning_seconds": round(learning, 2), "seed": options.seed}
    if run.as_json:
        print_json({"output": writing.output, **counts, **times})
    elif not options.quiet:
        print_text(f"{writing.output}: {summarise(counts)}", bold=str(writing.output))


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


@dataclass(frozen=True)
class KeptModel:
    """A model that is kept among the pieces of a job, so that a second run need not fit it again.

    With a budget a second fit would give another model, with which the job could not go on.
    """

    source: Source
    options: FitOptions
    folder: Path | None
    shard_rows: int

    def read(self) -> TableModel | None:
        """The model that an earlier run of the same job fitted; None if there is none."""
        if self.folder is None or not any(self.folder.glob("_model-*")) or not self._path.is_file():
            return None
        print_line(f"continuing with the model that an earlier run fitted ({self._path})")
        return load_table_model(self._path, self.options.device)

    def write(self, model: TableModel) -> None:
        """Keep a model, if there will be pieces to go on from."""
        import vfg
        from vfg.bigtable.job import check_contents

        if self.folder is None or self.source.rows <= self.shard_rows:
            return
        check_contents(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        vfg.save(model, self._path)

    @cached_property
    def _path(self) -> Path:
        """The file of the model, named after all that it follows from."""
        import vfg
        from vfg.bigtable.job import KEPT_MODEL

        assert self.folder is not None
        graph = self.options.graph
        origin = [
            self.source.fingerprint(),
            self.options.describe(),
            repr(self.source.dialect),
            None if graph is None else graph.read_text(),
            vfg.__version__,
        ]
        digest = hashlib.sha256(json.dumps(origin, default=str).encode()).hexdigest()
        return self.folder / f"{KEPT_MODEL}{digest[:16]}.vfg"


def load_model(path: Path | None, options: FitOptions, save: Path | None) -> TableModel | None:
    """The model of a file, if one is named."""
    if path is None:
        return None
    names = {"kinds": "--kind", "constraints": "--constraint", "bend": "--linear"}
    chosen = [name for name in options.describe() if name not in ("seed", "device")]
    given = [names.get(name, f"--{name}") for name in chosen] + ["--save"] * (save is not None)
    if given:
        raise typer.BadParameter(
            f"{', '.join(given)}: the model is fitted already; leave out options of fitting, or "
            "--model"
        )
    return load_table_model(path, options.device)


def fit_or_resume(
    source: Source, options: FitOptions, save: Path | None, kept: KeptModel
) -> TableModel:
    """A model that is fitted to the table by this run or an earlier one."""
    import vfg

    model = kept.read()
    if model is None:
        model = fit_model(source, options.select(source), options, WorkOptions())
        kept.write(model)
    if save is not None:
        vfg.save(model, save)
    return model
