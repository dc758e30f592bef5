"""`vfg show`: describe a model file or a graph file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.errors import print_line, usage_errors
from vfg.cli.model_files import draw_history, read_history
from vfg.cli.options import Arrows, AsJson, Debug, Overwrite
from vfg.cli.output import print_json, print_table, print_text
from vfg.cli.table_files import check_outputs

if TYPE_CHECKING:
    from vfg.graph import Network

MOST_CATEGORIES = 6
"""How many categories of a column are listed."""


def show(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A model, or a graph file as for `vfg fit --graph`."),
    ],
    graph_to: Annotated[
        Path | None,
        typer.Option(
            "--graph-to", metavar="FILE", help="Write the graph as well: .json or .graphml."
        ),
    ] = None,
    arrows: Arrows = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Describe a model: kind, columns, sizes, graph and training history.

    vfg show model.vfg
    """
    from vfg.graph import Graph
    from vfg.graph.files import READERS, read_graph, states_arrows, write_graph

    if file.suffix.lower() in READERS:
        graph = read_graph(file, arrows=arrows)
        if arrows is None and not states_arrows(file):
            print_line(
                f"the arrows of {file} are read as child -> parent; if they lead from causes to "
                "effects, add --arrows cause-effect"
            )
        description: dict[str, Any] = {"kind": "Graph", "graph": graph.to_dict()}
    else:
        description = read_description(file)
        graph = Graph.from_dict(description["graph"])
        description["history"] = read_history(file)
    if graph_to is not None:
        check_outputs({"--graph-to": graph_to}, [file], overwrite)
        with usage_errors():
            write_graph(graph, graph_to)
    if as_json:
        print_json(description)
        return
    _print_model(description)
    print_text(repr(graph) if graph.network is None else _describe_network(graph.network))
    if description.get("history") is not None:
        print_text()
        for line in draw_history(description["history"]):
            print_text(line)


def read_description(file: Path) -> dict[str, Any]:
    """The description of a model in a file; one of an earlier version is loaded for it."""
    from vfg.modelfile.summary import describe_model, read_summary

    description = read_summary(file)
    if description is not None:
        return description
    import vfg

    return describe_model(vfg.load(file))


def _describe_network(network: Network) -> str:
    """Causes and effects, which say more than the latent nodes over every family."""
    count, unknown = len(network.edges), len(network.undirected)
    words = f"; {unknown} of them, with --, may lead the other way" if unknown else ""
    return f"Causes and effects: {count} edge{'' if count == 1 else 's'}{words}\n{network}"


def _print_model(description: dict[str, Any]) -> None:
    facts = [
        f"{key} {_fact(value)}"
        for key, value in description.items()
        if key not in ("kind", "columns", "graph", "history", "missingness")
    ]
    if description["kind"] != "Graph":
        print_text(f"{description['kind']}: {', '.join(facts)}\n", bold=description["kind"])
    if "missingness" in description:
        print_text(f"missing cells: {description['missingness']}\n")
    if "columns" in description:
        rows = [(column["name"], _kind(column)) for column in description["columns"]]
        print_table(("column", "kind"), rows)
        print_text()


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_fact(part)}" for key, part in value.items()) + ")"
    if isinstance(value, float):
        return f"{value:.3g}"
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)


def _kind(column: dict[str, Any]) -> str:
    words = str(column["kind"])
    categories = column.get("categories")
    if categories is not None:
        more = f", and {len(categories) - MOST_CATEGORIES} more"
        listed = ", ".join(map(str, categories[:MOST_CATEGORIES]))
        words += f": {listed}{more if len(categories) > MOST_CATEGORIES else ''}"
    return words + (" (constant)" if column["idle"] and words != "identifier" else "")
