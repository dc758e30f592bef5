"""`vfg learn`: the graph of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.commands.fit import check_target
from vfg.cli.errors import usage_errors
from vfg.cli.fitting import parse_kinds
from vfg.cli.options import FILES, FITTING, Quiet, RunOptions, Seed, TableFiles, with_groups
from vfg.cli.output import print_json, print_text
from vfg.cli.progress import is_watched
from vfg.cli.tables import ReadOptions, check_outputs, choose_columns, parse_columns, report_reading

if TYPE_CHECKING:
    from vfg.structure import LearnedGraph

PAIR = "CAUSE,EFFECT"


def split_edges(
    texts: Sequence[str] | None, names: Sequence[str], option: str
) -> list[tuple[str, str]]:
    """Edges that were typed as `CAUSE,EFFECT`.

    Example:
        >>> split_edges(["a,b"], ["a", "b"], "--require")
        [('a', 'b')]
    """
    edges = []
    for text in texts or ():
        pair = parse_columns(text, names, option)
        if len(pair) != 2:
            raise typer.BadParameter(f"{option} takes {PAIR}, but got {text!r}")
        edges.append((pair[0], pair[1]))
    return edges


@dataclass
class SearchOptions:
    """What is searched for, and what is known of it."""

    tree: Annotated[
        bool,
        typer.Option(
            "--tree", rich_help_panel=FITTING, help="Learn a tree with latent nodes, not a DAG."
        ),
    ] = False
    linear: Annotated[
        bool,
        typer.Option(
            "--linear", rich_help_panel=FITTING, help="Try linear relations only; it is faster."
        ),
    ] = False
    bootstraps: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=FITTING, help="Samples of rows that give edges confidences."
        ),
    ] = 0
    require: Annotated[
        list[str] | None,
        typer.Option(metavar=PAIR, rich_help_panel=FITTING, help="An edge that must be there."),
    ] = None
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar=PAIR, rich_help_panel=FITTING, help="An edge that must not."),
    ] = None
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,...",
            rich_help_panel=FITTING,
            help="Columns that cause nothing in those of earlier tiers. May be repeated.",
        ),
    ] = None

    def learn(self, table: Any, columns: list[str], **options: Any) -> LearnedGraph:
        """The graph of some columns of a table; errors of the options are errors of usage."""
        import vfg

        with usage_errors():
            return vfg.learn_graph(
                table,
                "tree" if self.tree else "dag",
                required=split_edges(self.require, columns, "--require"),
                forbidden=split_edges(self.forbid, columns, "--forbid"),
                tiers=[parse_columns(text, columns, "--tier") for text in self.tier or ()],
                nonlinear=not self.linear,
                bootstraps=self.bootstraps,
                **options,
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
        typer.Option(metavar="A,B,...", rich_help_panel=FILES, help="Columns to leave out."),
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="COLUMN=KIND", rich_help_panel=FILES, help="Kind of a column."
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
        source.read().select(chosen), chosen, schema=schema, seed=seed, verbose=shown
    )
    learned.save(output)
    if plot is not None:
        from matplotlib import pyplot

        pyplot.sca(learned.plot())
        pyplot.savefig(plot)
    if run.as_json:
        print_json({"output": str(output), **learned.to_dict()})
    elif not quiet:
        report_reading(source)
        print_text(f"{learned!r}\nwritten to {output}")
