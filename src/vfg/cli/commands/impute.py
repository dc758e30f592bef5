"""`vfg impute`: fill the gaps of a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfg.cli.commands.fit import check_target
from vfg.cli.filling import Target, check_output, write_filled
from vfg.cli.learning import Learning, load_table_model
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
from vfg.cli.progress import is_watched
from vfg.cli.tables import opened, output_format

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.imputation.table_model import TableModel


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
        from vfg.cli.reporting import Subject, report_on

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
    from vfg.cli.together import fit_model

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
