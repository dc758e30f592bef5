"""What users know of a graph before it is learned: options of `vfg learn` and `vfg fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from vfg.cli.errors import usage_errors
from vfg.cli.options import GRAPH, option
from vfg.cli.tables import parse_columns

if TYPE_CHECKING:
    from vfg.structure import LearnedGraph

PAIR = "CAUSE,EFFECT"


def parse_edges(
    texts: Sequence[str] | None, names: Sequence[str], option: str
) -> list[tuple[str, str]]:
    """Edges that were typed as `CAUSE,EFFECT`.

    Example:
        >>> parse_edges(["a,b"], ["a", "b"], "--require")
        [('a', 'b')]
    """
    edges = []
    for text in texts or ():
        pair = parse_columns(text, names, option)
        if len(pair) != 2:
            raise typer.BadParameter(f"{option} takes {PAIR}, but got {text!r}")
        edges.append((pair[0], pair[1]))
    return edges


@dataclass(frozen=True, kw_only=True)
class KnowledgeOptions:
    """Edges and orders that a graph that is learned must keep to."""

    require: list[str] | None = option(
        None, GRAPH, "An edge that the learned graph must have. May be repeated.", metavar=PAIR
    )
    forbid: list[str] | None = option(
        None, GRAPH, "An edge that it must not have. May be repeated.", metavar=PAIR
    )
    tier: list[str] | None = option(
        None,
        GRAPH,
        "Columns that cause nothing in those of earlier tiers. May be repeated.",
        metavar="A,B,...",
    )

    @property
    def given(self) -> str | None:
        """The first of these options that was used."""
        used = {"--require": self.require, "--forbid": self.forbid, "--tier": self.tier}
        return next((name for name, texts in used.items() if texts), None)

    def learn(
        self, table: Any, columns: Sequence[str], kind: str = "dag", **options: Any
    ) -> LearnedGraph:
        """The graph of some columns of a table; errors of the options are errors of usage."""
        import vfg

        with usage_errors():
            return vfg.learn_graph(
                table,
                kind,
                required=parse_edges(self.require, columns, "--require"),
                forbidden=parse_edges(self.forbid, columns, "--forbid"),
                tiers=[parse_columns(text, columns, "--tier") for text in self.tier or ()],
                **options,
            )
