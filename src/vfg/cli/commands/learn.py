"""`vfg learn`: the graph of the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.commands.fit import check_target
from vfg.cli.fitting import KnowledgeOptions, parse_kinds
from vfg.cli.options import FILES, FITTING, Quiet, RunOptions, Seed, TableFiles, option, with_groups
from vfg.cli.output import print_json, print_text
from vfg.cli.progress import is_watched
from vfg.cli.table_files import ReadOptions, check_outputs, choose_columns, report_reading


@dataclass(frozen=True, kw_only=True)
class SearchOptions(KnowledgeOptions):
    """What is searched for, and what is known of it."""

    tree: bool = option(False, FITTING, "Learn a tree with latent nodes, not a DAG.", "--tree")
    linear: bool = option(False, FITTING, "Use linear relations only, which is faster.", "--linear")
    bootstraps: int = option(
        0, FITTING, "Number of bootstrap samples that give every edge a confidence.", min=0
    )


@with_groups
def learn(
    table: TableFiles,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="GRAPH", help="Output file: .json, or .csv for edges alone."
        ),
    ],
    reading: ReadOptions,
    run: RunOptions,
    search: SearchOptions,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", rich_help_panel=FILES, help="Use only these columns."),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            rich_help_panel=FILES,
            help="Columns to leave out, such as identifiers.",
        ),
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="COLUMN=KIND",
            rich_help_panel=FILES,
            help="Kind of a column if it is inferred wrongly. May be repeated.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the graph: .png, .svg or .pdf.", dir_okay=False),
    ] = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Learn the graph of the columns of a table with missing values.

    vfg learn table.csv -o graph.json --plot graph.png
    """
    endings = (".json",) if search.tree else (".json", ".csv")
    if output.suffix.lower() not in endings:
        raise typer.BadParameter(f"--output must end in {' or '.join(endings)}, but is {output}")
    for target in (output, *([] if plot is None else [plot])):
        check_target(target)
    source = reading.open(table, [str(output)])
    check_outputs({"--output": output, "--plot": plot}, [file.path for file in source.files])
    chosen = choose_columns(columns, exclude, source.names, source.index_columns)
    schema = parse_kinds(kinds or (), chosen) or None
    shown = is_watched(quiet)
    learned = search.learn(
        source.read().select(chosen),
        chosen,
        "tree" if search.tree else "dag",
        nonlinear=not search.linear,
        bootstraps=search.bootstraps,
        schema=schema,
        seed=seed,
        verbose=shown,
    )
    learned.save(output)
    if plot is not None:
        from matplotlib import pyplot

        pyplot.sca(learned.plot())
        pyplot.savefig(plot, dpi=200, bbox_inches="tight")  # sharp on fine screens
    if run.as_json:
        print_json({"output": str(output), **learned.to_dict()})
    elif not quiet:
        report_reading(source)
        print_text(f"{learned!r}\nwritten to {output}")
