"""The graph that a user asks for: from a file, or from sections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vfg.cli.errors import suggested

if TYPE_CHECKING:
    from vfg.graph import Graph


def chosen_graph(
    file: Path | None, sections: str | None, width: int | None, columns: Sequence[str]
) -> Graph | None:
    """The graph over some columns; None leaves the choice to the imputer.

    Args:
        file: with a graph.
        sections: columns that belong together, as in `a,b:c,d`.
        width: of the latent nodes; None chooses by the number of columns.
        columns: of the table that are learned.

    Raises:
        typer.BadParameter: for both a file and sections.
        ValueError: for a file that is no graph, or sections of other columns.
    """
    if file is not None and sections is not None:
        raise typer.BadParameter("--graph and --sections both say what the graph is; choose one")
    if file is not None:
        from vfg.graph.graphfiles import read_graph

        return read_graph(file, width=width)
    return None if sections is None else sections_graph(sections, columns, width)


def sections_graph(text: str, columns: Sequence[str], width: int | None = None) -> Graph:
    """One root over sections of columns; columns that are not named are sections of their own.

    Args:
        text: columns with commas between them, sections with colons.
        columns: all columns.
        width: of the root; None chooses by the number of columns.

    Raises:
        ValueError: for a name that is no column, or that comes twice.

    Example:
        >>> sections_graph("a,b", ["a", "b", "c"], width=4)
        Graph: 2 leaves, 1 latent node, 2 edges
        root (4)
        ├── a+b (2), columns a b
        └── c (1), column c
    """
    from vfg.graph import Graph, Node

    parts = [[name.strip() for name in part.split(",")] for part in text.split(":")]
    named = [name for part in parts for name in part]
    for place, name in enumerate(named):
        if name not in columns:
            raise ValueError(
                f"--sections names {name!r}, which is no column that is learned; "
                f"{suggested(name, columns)}"
            )
        if name in named[:place]:
            raise ValueError(f"--sections names {name!r} twice; a column is in one section only")
    parts += [[name] for name in columns if name not in named]
    leaves = [Node("+".join(part), len(part), columns=tuple(part)) for part in parts]
    if width is None:
        from vfg.imputation.plan import make_plan

        width = max(make_plan(1000, len(columns)).width, *(leaf.width for leaf in leaves))
    root = "root"
    while root in [leaf.name for leaf in leaves]:
        root += "_"
    return Graph.star(leaves, width, root)
