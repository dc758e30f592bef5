"""Where the nodes of a graph stand: leaves at the bottom, roots on top, few edges crossing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from vfg.graph import Graph

SWEEPS = 8
"""How often leaves are ordered anew by their parents; more hardly ever helps."""


def positions(graph: Graph) -> dict[str, tuple[float, float]]:
    """Coordinates of all nodes, neighbours of a layer at least 1 apart.

    Leaves stand at height 0 and roots at the highest layer. A node stands above the middle of its
    children. On trees no edges cross; on other graphs several orders of the leaves are tried, and
    the one with the fewest crossings is kept.

    Args:
        graph: to lay out.

    Returns:
        (x, y) by node, in the order of the graph.

    Example:
        >>> positions(Graph.star({"a": 1, "b": 1}))
        {'a': (0.0, 0.0), 'b': (1.0, 0.0), 'root': (0.5, 1.0)}
    """
    order = _leaves_in_depth(graph)
    best = _across(graph, order)
    if not graph.is_tree:
        tried = [*_swept(graph, order), *_swept(graph, _leaves_by_nearness(graph))]
        best = min(tried, key=lambda across: _crossings(graph, across))
    return {node.name: (best[node.name], _height(graph, node.name)) for node in graph.nodes}


def _swept(graph: Graph, order: Sequence[str]) -> list[dict[str, float]]:
    """Horizontal places with leaves in the given order, then ordered by their parents in turns."""
    found = [_across(graph, order)]
    for _ in range(SWEEPS):
        last = found[-1]
        order = sorted(order, key=lambda leaf: fmean(last[up] for up in graph.parents(leaf)))
        found.append(_across(graph, order))
    return found


def _leaves_by_nearness(graph: Graph) -> list[str]:
    """The leaves along the slowest vibration of the graph, which keeps linked nodes together."""
    names = [node.name for node in graph.nodes]
    place = {name: k for k, name in enumerate(names)}
    linked = np.zeros((len(names), len(names)))
    for edge in graph.edges:
        linked[place[edge.child], place[edge.parent]] = -1.0
        linked[place[edge.parent], place[edge.child]] = -1.0
    np.fill_diagonal(linked, -linked.sum(axis=1))
    slowest = np.linalg.eigh(linked)[1][:, 1].round(9)
    return sorted(graph.leaves, key=lambda leaf: float(slowest[place[leaf]]))


def _leaves_in_depth(graph: Graph) -> list[str]:
    """The leaves as a walk down from the roots meets them, siblings side by side."""
    met: dict[str, None] = {}
    stack = list(reversed(graph.roots))
    while stack:
        name = stack.pop()
        if name in met:
            continue
        met[name] = None
        # Deep branches first, so that leaves which skip layers end up at the side.
        children = sorted(graph.children(name), key=graph.layer_of, reverse=True)
        stack += reversed(children)
    leaves = dict.fromkeys(graph.leaves)
    return [name for name in met if name in leaves]


def _height(graph: Graph, name: str) -> float:
    """The layer of a node; roots are lifted to the top."""
    return float(graph.layer_of(name) if graph.parents(name) else len(graph.layers) - 1)


def _across(graph: Graph, leaves: Sequence[str]) -> dict[str, float]:
    """Horizontal places of all nodes given the order of the leaves."""
    across = {leaf: float(place) for place, leaf in enumerate(leaves)}
    levels: dict[float, list[str]] = {}
    for layer in graph.layers[1:]:
        for name in layer:
            levels.setdefault(_height(graph, name), []).append(name)
    for height in sorted(levels):
        middles = {
            name: fmean(across[child] for child in graph.children(name)) for name in levels[height]
        }
        across |= _apart(middles)
    return across


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Places near the wanted ones, in the same order, at least 1 apart."""
    names = sorted(wanted, key=lambda name: wanted[name])
    rightward = _pushed([wanted[name] for name in names])
    leftward = _pushed([-wanted[name] for name in reversed(names)])[::-1]
    middle = [(right - left) / 2 for right, left in zip(rightward, leftward, strict=True)]
    return dict(zip(names, middle, strict=True))


def _pushed(places: Sequence[float]) -> list[float]:
    """Sorted places, each moved up as far as its predecessor asks for."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + 1.0) if found else place)
    return found


def _crossings(graph: Graph, across: Mapping[str, float]) -> int:
    """How many pairs of edges between the same two heights cross."""
    between: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for edge in graph.edges:
        heights = _height(graph, edge.child), _height(graph, edge.parent)
        between.setdefault(heights, []).append((across[edge.child], across[edge.parent]))
    found = 0
    for pairs in between.values():
        ends = np.array(pairs)
        found += sum(
            int((np.prod(ends[:place] - ends[place], axis=1) < 0).sum())
            for place in range(1, len(ends))
        )
    return found
