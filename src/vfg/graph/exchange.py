"""Graphs as plain dictionaries and as networkx graphs, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from vfg.graph.builders import Parts
from vfg.graph.checks import suggestion
from vfg.graph.nodes import Edge, Node

if TYPE_CHECKING:
    import networkx


def to_dict(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, Any]:
    """Write nodes and edges as dictionaries, lists, strings and numbers.

    Example:
        >>> to_dict([], [Edge("a", "h")])["edges"]
        [{'child': 'a', 'parent': 'h', 'kind': 'flow', 'coordinates': None}]
    """
    return {"nodes": [_entry(node) for node in nodes], "edges": [_entry(edge) for edge in edges]}


def from_dict(description: Any) -> Parts:
    """Read what `to_dict` wrote; entries that may be None can be left out.

    Raises:
        ValueError: If an entry is missing, unknown or of the wrong type.

    Example:
        >>> from_dict({"nodes": [], "edges": [{"child": "a", "parent": "h"}]})[1]
        [Edge(child='a', parent='h', kind='flow', coordinates=None)]
    """
    _check_keys(description, ("nodes", "edges"), ("nodes", "edges"), "the description of a graph")
    for key in ("nodes", "edges"):
        if not isinstance(description[key], list | tuple):
            raise ValueError(
                f"the entry {key!r} must be a list of dictionaries, got {description[key]!r}."
            )
    nodes = [_read_node(entry, f"node number {k}") for k, entry in enumerate(description["nodes"])]
    edges = [_read_edge(entry, f"edge number {k}") for k, entry in enumerate(description["edges"])]
    return nodes, edges


def to_networkx(nodes: Sequence[Node], edges: Sequence[Edge]) -> networkx.DiGraph:
    """Write nodes and edges as a `networkx.DiGraph`, attributes that are None left out.

    Example:
        >>> to_networkx([Node("a", 1), Node("h", 2)], [Edge("a", "h")]).nodes["h"]
        {'width': 2}
    """
    import networkx

    digraph = networkx.DiGraph()
    for node in nodes:
        digraph.add_node(node.name, **_attributes(node, ("name",)))
    for position, edge in enumerate(edges):
        # networkx lists edges by their tails; the position keeps our order.
        attributes = _attributes(edge, ("child", "parent"))
        digraph.add_edge(edge.child, edge.parent, position=position, **attributes)
    return digraph


def from_networkx(digraph: networkx.DiGraph) -> Parts:
    """Read a directed graph whose edges lead from child to parent.

    Raises:
        ValueError: If the graph is not directed or a node has no width.

    Example:
        >>> from_networkx(to_networkx([Node("a", 1), Node("h", 2)], [Edge("a", "h")]))[0]
        [Node(name='a', width=1, columns=None, aggregation=None), \
Node(name='h', width=2, columns=None, aggregation=None)]
    """
    if not digraph.is_directed():
        raise ValueError(
            "the networkx graph is not directed; "
            "pass a networkx.DiGraph with edges from child to parent."
        )
    nodes = []
    for name, attributes in digraph.nodes(data=True):
        if "width" not in attributes:
            raise ValueError(
                f"node {name!r} has no attribute 'width'; set it, as in "
                f"digraph.nodes[{name!r}]['width'] = 2."
            )
        nodes.append(
            Node(name, **_select_attributes(attributes, ("width", "columns", "aggregation")))
        )
    listed = list(digraph.edges(data=True))
    if all("position" in attributes for _, _, attributes in listed):
        listed.sort(key=lambda item: int(item[2]["position"]))
    return nodes, [
        Edge(child, parent, **_select_attributes(attributes, ("kind", "coordinates")))
        for child, parent, attributes in listed
    ]


def _entry(part: Node | Edge) -> dict[str, Any]:
    """One node or edge as a dictionary, tuples as lists."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }


def _attributes(part: Node | Edge, names: Sequence[str]) -> dict[str, Any]:
    """The attributes of a node or an edge besides its names, without those that are None."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {key: value for key, value in values.items() if key not in names and value is not None}


def _select_attributes(attributes: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The attributes that nodes and edges have; networkx graphs may carry others."""
    return {name: attributes[name] for name in names if name in attributes}


def _read_node(entry: Any, place: str) -> Node:
    """Read the dictionary of one node."""
    _check_keys(entry, ("name", "width"), ("name", "width", "columns", "aggregation"), place)
    _check_list(entry.get("columns"), "columns", place)
    return Node(**entry)


def _read_edge(entry: Any, place: str) -> Edge:
    """Read the dictionary of one edge."""
    _check_keys(entry, ("child", "parent"), ("child", "parent", "kind", "coordinates"), place)
    _check_list(entry.get("coordinates"), "coordinates", place)
    return Edge(**entry)


def _check_keys(entry: Any, needed: Sequence[str], known: Sequence[str], place: str) -> None:
    """Refuse anything but a dictionary with all needed keys and no unknown ones."""
    if not isinstance(entry, Mapping):
        raise ValueError(
            f"{place} must be a dictionary with the keys {', '.join(known)}, got {entry!r}."
        )
    for key in needed:
        if key not in entry:
            raise ValueError(f"{place} lacks the key {key!r}; add it.")
    for key in entry:
        if key not in known:
            raise ValueError(f"{place} has the unknown key {key!r}; {suggestion(key, known)}")


def _check_list(value: Any, key: str, place: str) -> None:
    """Refuse an optional list that is something else."""
    if value is not None and not isinstance(value, list | tuple):
        raise ValueError(f"{place} has {key} {value!r}; pass a list or null.")
