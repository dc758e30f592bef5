"""`vfg show`: what is in a model file, or in a graph file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .histories import drawn_history, known_history
from .options import AsJson, Debug
from .output import console, print_json, print_table

MOST_CATEGORIES = 6
"""How many categories of a column are listed."""


def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model, or a graph as `vfg fit --graph` takes.")
    ],
    graph_to: Annotated[
        Path | None,
        typer.Option(
            "--graph-to", metavar="FILE", help="Write the graph as well: .json or .graphml."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what a model knows: kind, columns, sizes and graph, and how its training went."""
    from vfg.graph.graphfiles import READERS, read_graph, write_graph

    if file.suffix.lower() in READERS:
        graph: Any = read_graph(file)
        found: dict[str, Any] = {"kind": "Graph", "graph": graph.to_dict()}
    else:
        from .asking import respondent

        asked = respondent(file)
        graph, found = asked.graph, asked.describe()
        found["history"] = known_history(file)
    if graph_to is not None:
        if graph is None:
            raise ValueError("the model has no graph, since no column tells anything")
        write_graph(graph, graph_to)
    if as_json:
        print_json(found)
        return
    _print_model(found)
    if graph is not None:
        console().print(repr(graph), markup=False)
    if found.get("history") is not None:
        console().print()
        for line in drawn_history(found["history"]):
            console().print(line, markup=False)


def _print_model(found: dict[str, Any]) -> None:
    facts = [
        f"{key} {_fact(value)}"
        for key, value in found.items()
        if key not in ("kind", "columns", "graph", "history")
    ]
    if found["kind"] != "Graph":
        console().print(f"{found['kind']}: {', '.join(facts)}\n", markup=False)
    if "columns" in found:
        rows = [(column["name"], _kind(column)) for column in found["columns"]]
        print_table(("column", "kind"), rows)
        console().print()


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
    return words + (" (tells nothing)" if column["idle"] else "")
