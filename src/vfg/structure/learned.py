"""LearnedGraph: edges between columns, what is known of their directions, and their confidences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vfg.graph import Graph, Network
from vfg.utils.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pair = tuple[str, str]
"""Cause and effect, by the names of their columns."""


def with_positions(graph: Graph, labels: Sequence[Any]) -> Graph:
    """A graph over columns without names: its leaves hold them by position."""
    if list(labels) != list(range(len(labels))):
        return graph
    return Graph(
        [n if n.columns is None else replace(n, columns=(int(n.name),)) for n in graph.nodes],
        graph.edges,
        graph.causes,
    )


@dataclass(frozen=True)
class LearnedGraph:
    """A graph that was learned from a table; made by `vfg.learn_graph`.

    Pass it to `vfg.VFG` or `vfg.GaussianVFG`, as `graph=` to `vfg.sklearn.VFGImputer` or
    `vfg.TableModel`, or as `dag=` to `infer(..., do=...)`. Models that were made with it follow its
    edges in interventions. A `TableModel` fits its parts over one root, since a model with one
    latent node per family would be linear, and uses a DAG for interventions only; a tree is the
    graph of its parts. Edges of a DAG are causes and effects only if all common causes of the
    columns are columns of the table, and if rows were not selected by their effects.

    Args:
        kind: `"dag"` or `"tree"`.
        columns: of the table.
        graph: of a DAG a latent node over every family; of a tree the tree.
        edges: (cause, effect) pairs of one DAG; none of a tree.
        directed: those edges whose direction is determined by the table or by what the user stated.
        undirected: the others: both directions fit the table about equally well.
        score: of the whole graph; higher is better.
        gains: what each edge adds to the score, in nats; below 0 for an edge that was required.
        confidences: the share of bootstrap samples with the edge, in any direction.
        directions: of these, the share with the direction that the edge has.

    Example:
        >>> chain = LearnedGraph.from_edges([("a", "b"), ("b", "c")], columns=["a", "b", "c"])
        >>> chain.parents("b")
        ('a',)
    """

    kind: str
    columns: tuple[str, ...]
    graph: Graph
    edges: tuple[Pair, ...] = ()
    directed: tuple[Pair, ...] = ()
    undirected: tuple[Pair, ...] = ()
    score: float = 0.0
    gains: Mapping[Pair, float] = field(default_factory=dict)
    confidences: Mapping[Pair, float] = field(default_factory=dict)
    directions: Mapping[Pair, float] = field(default_factory=dict)

    @classmethod
    def from_edges(
        cls, edges: Sequence[Pair], columns: Sequence[str] | None = None
    ) -> LearnedGraph:
        """A graph of edges that a user states; all of them are directed.

        Args:
            edges: (cause, effect) pairs.
            columns: of the table; None takes those that edges name.

        Raises:
            ValueError: if the edges form a cycle.
        """
        pairs = tuple((str(cause), str(effect)) for cause, effect in edges)
        named = dict.fromkeys(name for pair in pairs for name in pair)
        names = tuple(named) if columns is None else tuple(map(str, columns))
        graph = Graph.from_bayesian_network(pairs, variables=names)
        return cls("dag", names, graph, pairs, pairs)

    @property
    def network(self) -> Network | None:
        """The edges as causes and effects; None of a tree."""
        return Network(self.edges, self.undirected) if self.kind == "dag" else None

    @property
    def structure(self) -> Graph | None:
        """The graph that the parts of a `TableModel` have: a tree; None of a DAG."""
        return self.graph if self.kind == "tree" else None

    def parents(self, column: str) -> tuple[str, ...]:
        """The causes of a column in `edges`.

        Args:
            column: by name.
        """
        return tuple(cause for cause, effect in self.edges if effect == column)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON.

        Example:
            >>> LearnedGraph.from_edges([("a", "b")]).to_dict()["edges"]
            [{'cause': 'a', 'effect': 'b', 'directed': True}]
        """
        measures = {
            "gain": self.gains,
            "confidence": self.confidences,
            "direction": self.directions,
        }
        entries = []
        for pair in self.edges:
            entry: dict[str, Any] = {"cause": pair[0], "effect": pair[1]}
            entry["directed"] = pair in self.directed
            entry |= {name: own[pair] for name, own in measures.items() if pair in own}
            entries.append(entry)
        return {
            "kind": self.kind,
            "columns": list(self.columns),
            "edges": entries,
            "score": self.score,
            "graph": self.graph.to_dict(),
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> LearnedGraph:
        """Read what `to_dict` returned.

        Args:
            description: as `to_dict` returns it.

        Raises:
            ValueError: for anything else.
        """
        try:
            entries = {(entry["cause"], entry["effect"]): entry for entry in description["edges"]}
            kind, columns = str(description["kind"]), tuple(map(str, description["columns"]))
            graph = Graph.from_dict(description["graph"])
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"a learned graph has kind, columns, edges and graph, but {error} is missing or "
                "of another form; write it with LearnedGraph.save"
            ) from error
        learned = cls(kind, columns, graph, tuple(entries), score=float(description["score"]))

        def read(key: str) -> dict[Pair, float]:
            return {pair: float(entry[key]) for pair, entry in entries.items() if key in entry}

        return replace(
            learned,
            directed=tuple(pair for pair, entry in entries.items() if entry["directed"]),
            undirected=tuple(pair for pair, entry in entries.items() if not entry["directed"]),
            gains=read("gain"),
            confidences=read("confidence"),
            directions=read("direction"),
        )

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON; `LearnedGraph.load` and `vfg.read_graph` read it.

        Args:
            path: a file that ends in `.json`, or in `.csv` for a list of the edges alone.

        Raises:
            ValueError: for another ending.
        """
        ending = Path(path).suffix.lower()
        if ending == ".json":
            text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        elif ending == ".csv" and self.kind == "dag":
            text = "\n".join(["cause,effect", *(f"{a},{b}" for a, b in self.edges)])
        else:
            raise ValueError(
                f"learned graphs are written as .json, and DAGs as .csv, but the file is called "
                f"{Path(path).name!r}; rename it"
            )
        write_atomically(Path(path), (text + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> LearnedGraph:
        """Read a graph that `save` wrote.

        Args:
            path: the file.

        Raises:
            ValueError: if it holds no learned graph.
        """
        text = Path(path).read_text(encoding="utf-8")
        if Path(path).suffix.lower() == ".csv":
            lines = [line.split(",") for line in text.splitlines() if line.strip()]
            if not lines or lines[0] != ["cause", "effect"] or any(len(x) != 2 for x in lines):
                raise ValueError(
                    f"{str(path)!r} is not a list of edges: its first line must be 'cause,effect', "
                    "and every other line two columns with a comma between them"
                )
            return cls.from_edges([(a.strip(), b.strip()) for a, b in lines[1:]])
        try:
            return cls.from_dict(json.loads(text))
        except ValueError as error:
            raise ValueError(f"{str(path)!r} is not a learned graph: {error}") from error

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the edges of a DAG, arrows where the direction is known, or the tree.

        Args:
            ax: where to draw; None makes a figure.
        """
        from vfg.plots.graphs import dag, graph

        if self.kind == "tree":
            return graph(self.graph, ax)
        return dag(self.columns, self.directed, self.undirected, self.confidences, ax)

    def __repr__(self) -> str:
        if self.kind == "tree":
            return f"LearnedGraph: a tree\n{self.graph!r}"
        lines = [
            f"LearnedGraph: {len(self.columns)} columns, {len(self.edges)} edges, "
            f"{len(self.undirected)} of them without a known direction"
        ]
        for pair in self.edges:
            arrow = "->" if pair in self.directed else "--"
            sure = f"  {100 * self.confidences[pair]:.0f} %" if pair in self.confidences else ""
            lines.append(f"{pair[0]} {arrow} {pair[1]}{sure}")
        return "\n".join(lines)
