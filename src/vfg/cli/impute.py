"""`vfg impute`: fill the gaps of a table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .evaluate import as_table_model
from .filling import Target, check_output, write_filled
from .fit import check_target, learned
from .learning import Learning
from .options import (
    AsJson,
    Bend,
    Bounds,
    Budget,
    Columns,
    Debug,
    Device,
    Exclude,
    GraphFile,
    InputFormat,
    Kinds,
    Members,
    Mixtures,
    Output,
    OutputFormat,
    Quiet,
    SectionList,
    Seed,
    Steps,
    TableFiles,
    Threads,
    Width,
    share,
)
from .output import console, print_json
from .progress import is_watched
from .tables import chosen_columns, opened, output_format

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.tabular.model import TableModel

SPREADING = "Large tables"


def impute(
    table: TableFiles,
    output: Output = "-",
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="By default one is learned from the table."
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write every row so many times, with other draws of its gaps each time."
        ),
    ] = None,
    intervals: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            callback=share,
            help="Add columns with the ends of intervals, such as 0.9.",
        ),
    ] = None,
    flag: Annotated[
        bool, typer.Option("--flag", help="Add columns that mark the cells that were filled.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page of HTML about what was filled and how."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Keep the model that was learned.")
    ] = None,
    from_: InputFormat = None,
    to: OutputFormat = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Who fills: local, or ray (a cluster).", rich_help_panel=SPREADING
        ),
    ] = "local",
    processes: Annotated[
        int, typer.Option(min=1, help="How many fill at once.", rich_help_panel=SPREADING)
    ] = 1,
    shard_rows: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many rows are filled at once, and written to one shard if the output is a "
            "folder.",
            rich_help_panel=SPREADING,
        ),
    ] = 65_536,
    columns: Columns = None,
    exclude: Exclude = None,
    kind: Kinds = None,
    bounds: Bounds = None,
    graph: GraphFile = None,
    sections: SectionList = None,
    width: Width = None,
    bend: Bend = True,
    members: Members = None,
    mixtures: Mixtures = None,
    steps: Steps = None,
    budget: Budget = None,
    device: Device = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fill the gaps of a table; without a model, learn one from it first.

    vfg impute gaps.csv -o filled.csv
    """
    from vfg.bigtable.filling import Filling
    from vfg.engines import engine_named

    # Whatever can be wrong is found before hours are spent on learning.
    filling = Filling(draws, intervals, flag, seed)
    workers = engine_named(engine, processes=processes)
    check_output(output)
    for file in (report, save):
        if file is not None:
            check_target(file)
    source = opened(table, from_)
    wishes = Learning(
        graph=graph,
        sections=sections,
        width=width,
        kinds=kind or (),
        bounds=bounds or (),
        bend=bend,
        members=members,
        mixtures=mixtures,
        steps=steps,
        budget=budget,
        device=device,
        seed=seed,
        quiet=quiet,
    )
    begun = time.monotonic()
    found = known_model(source, model, columns, exclude, wishes, save)
    learning = time.monotonic() - begun
    target = Target(output, output_format(output, to, as_json), workers, shard_rows)
    counts = write_filled(source, found, filling, target, show=is_watched(quiet))
    settings = {"model": model, "draws": draws, "intervals": intervals, **wishes.choices()}
    if report is not None:
        from .reporting import report_on

        report_on(source, found, report, intervals or 0.9, settings, is_learned_from=model is None)
    summary = {"output": output, **counts, "learning_seconds": round(learning, 2), "seed": seed}
    if as_json and output != "-":
        print_json(summary)
    elif not quiet and output != "-":
        words = f"{counts['rows']:,} rows, {counts['filled']:,} cells filled"
        if counts["resumed"]:
            words += f", {counts['resumed']:,} rows were done before"
        console().print(f"{output}: {words}", markup=False)


def known_model(
    source: Source,
    path: Path | None,
    columns: str | None,
    exclude: str | None,
    wishes: Learning,
    save: Path | None,
) -> TableModel:
    """The model of a file, or one that is learned from the table."""
    import vfg

    from .asking import load_model

    if path is not None:
        if columns or exclude or save:
            raise typer.BadParameter(
                "--columns, --exclude and --save are about learning, but --model brings a model"
            )
        return as_table_model(load_model(path))
    chosen = chosen_columns(columns, exclude, source.names)
    model: TableModel = learned(source, chosen, wishes)
    if save is not None:
        vfg.save(model, save)  # type: ignore[arg-type]
    return model
