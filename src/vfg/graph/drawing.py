"""Graphs as text, roots on top."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from vfg.graph.nodes import Edge, Node

if TYPE_CHECKING:
    from vfg.graph.graph import Graph

MANY_LEAVES = 40
"""Most leaves that are all drawn: about a screen."""
SHOWN_SIBLINGS = 3
"""How many leaves of a node are drawn in larger graphs."""
MOST_LINES = 200
"""Lines after which a drawing ends, so that `repr` stays readable."""


@dataclass(frozen=True)
class _Branch:
    """One line still to be drawn: a node, or how many of its siblings are left out."""

    lead: str
    below: str
    name: str = ""
    edge: Edge | None = None
    left_out: int = 0


def draw(graph: Graph) -> str:
    """Draw a graph as an indented tree, abbreviated if it is large.

    A node with several parents is drawn in full under the first and referred to afterwards.

    Example:
        >>> from vfg.graph import Graph
        >>> print(draw(Graph.tree({"a": 1, "b": 2, "c": 1})))
        Graph: 3 leaves, 2 latent nodes, 4 edges
        root (8)
        ├── node1_1 (8)
        │   ├── a (1)
        │   └── b (2)
        └── c (1)
    """
    latent = len(graph.nodes) - len(graph.leaves)
    counts = (
        _count(len(graph.leaves), "leaf", "leaves"),
        _count(latent, "latent node", "latent nodes"),
        _count(len(graph.edges), "edge", "edges"),
    )
    lines = _lines(graph)
    drawn = list(islice(lines, MOST_LINES))
    rest = sum(1 for _ in lines)
    ending = [f"... {_count(rest, 'more line', 'more lines')}"] if rest else []
    return "\n".join([f"Graph: {', '.join(counts)}", *drawn, *ending])


def _lines(graph: Graph) -> Iterator[str]:
    """Walk down from the roots; a stack of its own keeps deep graphs from exhausting Python's."""
    drawn: dict[str, None] = {}
    stack = [_Branch("", "", root) for root in reversed(graph.roots)]
    while stack:
        branch = stack.pop()
        if branch.left_out:
            yield f"{branch.lead}... {branch.left_out} more"
            continue
        yield branch.lead + _label(graph.node(branch.name), branch.edge, branch.name in drawn)
        if branch.name not in drawn:
            drawn[branch.name] = None
            stack += reversed(_branches(graph, branch))


def _branches(graph: Graph, branch: _Branch) -> list[_Branch]:
    """The lines right below a node; of many leaves only the first ones."""
    edges = graph.edges_into(branch.name)
    below = [edge for edge in edges if graph.layer_of(edge.child) == 0]
    is_cut = len(graph.leaves) > MANY_LEAVES and len(below) > SHOWN_SIBLINGS + 1
    hidden = dict.fromkeys(edge.child for edge in below[SHOWN_SIBLINGS:] if is_cut)
    shown, left_out = [edge for edge in edges if edge.child not in hidden], len(hidden)
    count = len(shown) + bool(left_out)
    leads = [branch.below + "├── "] * (count - 1) + [branch.below + "└── "]
    belows = [branch.below + "│   "] * (count - 1) + [branch.below + "    "]
    branches = [
        _Branch(lead, below, edge.child, edge)
        for lead, below, edge in zip(leads, belows, shown, strict=False)
    ]
    return branches + ([_Branch(leads[-1], "", left_out=left_out)] if left_out else [])


def _label(node: Node, edge: Edge | None, drawn: bool) -> str:
    """The text of a node and of the edge that leads to it."""
    words = [f"{node.name} (above)" if drawn else f"{node.name} ({node.width})"]
    if edge is not None and edge.kind == "identity":
        words.append("identity")
    if edge is not None and edge.coordinates is not None:
        words.append(f"covers {_list_values(edge.coordinates)}")
    if node.aggregation is not None and not drawn:
        words.append(node.aggregation)
    if node.columns is not None and not drawn:
        noun = "column" if len(node.columns) == 1 else "columns"
        words.append(f"{noun} {_list_values(node.columns)}")
    return ", ".join(words)


def _list_values(values: Sequence[str] | Sequence[int]) -> str:
    """Values one by one, the middle of a long list left out."""
    texts = [str(value) for value in values]
    if len(texts) > 6:
        texts = [*texts[:3], "...", texts[-1]]
    return " ".join(texts)


def _count(number: int, singular: str, plural: str) -> str:
    """A number and its noun."""
    return f"{number} {singular if number == 1 else plural}"
