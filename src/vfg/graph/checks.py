"""Layers of a directed graph, and the checks that every graph has passed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from vfg.graph.nodes import Edge, Node, first_repeated

Arrow = tuple[str, str]


def layer_numbers(names: Iterable[str], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Number every name by its longest path from the names that no arrow (tail, head) enters.

    The order of the names decides ties; names on a cycle or above one are left out.

    Example:
        >>> layer_numbers(["a", "b", "h"], [("a", "h"), ("b", "a")])
        {'b': 0, 'a': 1, 'h': 2}
    """
    waiting = dict.fromkeys(names, 0)
    above: dict[str, list[str]] = {name: [] for name in waiting}
    for tail, head in arrows:
        waiting[head] += 1
        above[tail].append(head)
    layers = {name: 0 for name, count in waiting.items() if count == 0}
    queue = list(layers)
    for name in queue:  # grows while it is read, layer by layer, so the last tail is the highest
        for head in above[name]:
            waiting[head] -= 1
            if waiting[head] == 0:
                layers[head] = layers[name] + 1
                queue.append(head)
    return layers


def find_cycle(names: Iterable[str], arrows: Sequence[Arrow]) -> tuple[str, ...] | None:
    """A cycle along the arrows (tail, head), its first name repeated at the end, or None.

    Example:
        >>> find_cycle(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "b")])
        ('b', 'c', 'b')
    """
    order = list(names)
    if len(layer_numbers(order, arrows)) == len(order):
        return None
    import networkx

    cycle = [tail for tail, _ in networkx.find_cycle(networkx.DiGraph(arrows))]
    first = cycle.index(min(cycle, key=order.index))
    return (*cycle[first:], *cycle[: first + 1])


def check_graph(nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
    """Refuse nodes and edges that do not form a graph of sections and latent nodes.

    Example:
        >>> check_graph([Node("a", 1), Node("h", 1)], [Edge("a", "h")])
    """
    _check_nodes(nodes)
    _check_edges(nodes, edges)
    arrows = [(edge.child, edge.parent) for edge in edges]
    cycle = find_cycle([node.name for node in nodes], arrows)
    if cycle is not None:
        raise ValueError(f"the edges form the cycle {' -> '.join(cycle)}; remove one of them.")
    touched = dict.fromkeys(name for edge in edges for name in (edge.child, edge.parent))
    for node in nodes:  # without cycles, all others have a way to a root
        if node.name not in touched:
            raise ValueError(
                f"node {node.name!r} is isolated: no edge leads from it to a root or into it; "
                "connect it to a parent, or leave it out."
            )
    _check_columns(nodes, edges)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Suggest which of the known names was meant.

    Example:
        >>> suggestion("rot", ["a", "root"])
        "did you mean 'root'?"
        >>> suggestion("x", map(str, range(12)))[-15:]
        "'9' and 2 more."
    """
    names = list(known)
    close = get_close_matches(str(name), names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"choose one of {', '.join(map(repr, names[:10]))}{more}."


def _check_nodes(nodes: Sequence[Node]) -> None:
    """Refuse anything but distinct nodes."""
    if not nodes:
        raise ValueError("a graph needs nodes, got none; pass at least a leaf and a root.")
    for node in nodes:
        if not isinstance(node, Node):
            raise ValueError(f"nodes must be Node objects, got {node!r}; write Node(name, width).")
    repeated = first_repeated(node.name for node in nodes)
    if repeated is not None:
        raise ValueError(f"node {repeated!r} appears twice; give every node its own name.")


def _check_edges(nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
    """Refuse anything but distinct edges between the nodes, onto coordinates that they have."""
    widths = {node.name: node.width for node in nodes}
    for edge in edges:
        if not isinstance(edge, Edge):
            raise ValueError(
                f"edges must be Edge objects, got {edge!r}; write Edge(child, parent)."
            )
        for name in (edge.child, edge.parent):
            if name not in widths:
                raise ValueError(
                    f"edge {edge.name!r} names the unknown node {name!r}; "
                    f"{suggestion(name, widths)}"
                )
        width = widths[edge.parent]
        outside = [number for number in edge.coordinates or () if number >= width]
        if outside:
            raise ValueError(
                f"edge {edge.name!r} covers coordinate {outside[0]}, but {edge.parent!r} has width "
                f"{width}; use coordinates 0 to {width - 1}, or widen {edge.parent!r}."
            )
    repeated = first_repeated((edge.child, edge.parent) for edge in edges)
    if repeated is not None:
        raise ValueError(
            f"edge {'->'.join(repeated)!r} appears twice; keep one edge per child and parent."
        )


def _check_columns(nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
    """Refuse columns that are not a partition of the table among the leaves."""
    parents = dict.fromkeys(edge.parent for edge in edges)
    for node in nodes:
        if node.columns is not None and node.name in parents:
            raise ValueError(
                f"node {node.name!r} has columns but also children; only leaves stand for "
                "columns, so move them to a leaf."
            )
    leaves = [node for node in nodes if node.name not in parents]
    if any(leaf.columns is not None for leaf in leaves):
        _check_claims(leaves)


def _check_claims(leaves: Sequence[Node]) -> None:
    """Refuse leaves without columns, mixed or doubly claimed columns, and missing positions."""
    claimed: dict[str | int, str] = {}
    for leaf in leaves:
        if leaf.columns is None:
            raise ValueError(
                f"leaf {leaf.name!r} has no columns while others have; give columns to all or none."
            )
        for column in leaf.columns:
            if column in claimed:
                raise ValueError(
                    f"column {column!r} is claimed twice, by {claimed[column]!r} and by "
                    f"{leaf.name!r}; keep it in one of them."
                )
            claimed[column] = leaf.name
    texts = [column for column in claimed if isinstance(column, str)]
    positions = [column for column in claimed if not isinstance(column, str)]
    if texts and positions:
        raise ValueError(
            f"column {texts[0]!r} of {claimed[texts[0]]!r} is a name, column {positions[0]} of "
            f"{claimed[positions[0]]!r} a position; use names everywhere or positions everywhere."
        )
    outside = [position for position in positions if not 0 <= position < len(positions)]
    if outside:
        last = len(positions) - 1
        raise ValueError(
            f"leaf {claimed[outside[0]]!r} claims position {outside[0]}, but the leaves' "
            f"{last + 1} columns must be the positions 0 to {last}; "
            "number the table's columns without gaps."
        )
