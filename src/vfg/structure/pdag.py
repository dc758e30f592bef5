"""Partially directed graphs as boolean matrices: equivalence classes, Meek's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vfg.tables.cells import Mask

# `pdag[i, j]` is true for i -> j and for i - j; an undirected edge is true both ways.


def topological_order(dag: Mask) -> list[int]:
    """The nodes, parents first and smaller numbers before greater ones.

    Raises:
        ValueError: if the graph has a cycle.

    Example:
        >>> topological_order(np.array([[0, 0, 0], [1, 0, 1], [1, 0, 0]], dtype=bool))
        [1, 2, 0]
    """
    waiting = dag.sum(0)
    ready = [int(node) for node in np.flatnonzero(waiting == 0)]
    order: list[int] = []
    while ready:
        node = min(ready)
        ready.remove(node)
        order.append(node)
        for child in np.flatnonzero(dag[node]):
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(int(child))
    if len(order) < len(dag):
        raise ValueError("the edges form a cycle; remove or reverse one of them")
    return order


def equivalence_class(dag: Mask, known: Mask | None = None) -> Mask:
    """The completed partially directed graph of all DAGs with the same independences.

    Edges of v-structures, and those whose direction is `known`, stay directed; Meek's rules orient
    what follows from them. All others are undirected.

    Example:
        >>> chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
        >>> equivalence_class(chain).sum()
        np.int64(4)
    """
    skeleton = dag | dag.T
    kept = np.zeros_like(dag) if known is None else dag & known
    for node in range(len(dag)):
        parents = np.flatnonzero(dag[:, node])
        lonely = ~skeleton[np.ix_(parents, parents)]
        np.fill_diagonal(lonely, False)
        kept[parents[lonely.any(1)], node] = True
    return apply_meek_rules(skeleton & ~kept.T)


def apply_meek_rules(pdag: Mask) -> Mask:
    """Orient every undirected edge that would otherwise make a cycle or a new v-structure."""
    pdag = pdag.copy()
    changed = True
    while changed:
        changed = False
        for i, j in np.argwhere(pdag & pdag.T):
            if pdag[j, i] and pdag[i, j] and _is_forced(pdag, i, j):
                pdag[j, i] = False
                changed = True
    return pdag


def _is_forced(pdag: Mask, i: int, j: int) -> bool:
    """Whether the undirected edge i - j must be i -> j by one of Meek's four rules."""
    directed = pdag & ~pdag.T
    undirected = pdag & pdag.T
    adjacent = pdag | pdag.T
    if (directed[:, i] & ~adjacent[:, j] & (np.arange(len(pdag)) != j)).any():
        return True  # 1: k -> i, and k is not adjacent to j
    if (directed[i] & directed[:, j]).any():
        return True  # 2: i -> k -> j
    middle = np.flatnonzero(undirected[i] & directed[:, j])
    if (~adjacent[np.ix_(middle, middle)]).sum() > len(middle):
        return True  # 3: i - k -> j and i - l -> j, and k is not adjacent to l
    for k in np.flatnonzero(undirected[i]):  # 4: i - k -> l -> j, and k is not adjacent to j
        if k != j and not adjacent[k, j] and (directed[k] & directed[:, j] & adjacent[i]).any():
            return True
    return False


def extend(pdag: Mask) -> Mask | None:
    """A DAG with the directed edges and no new v-structure; None if there is none.

    Example:
        >>> edge = np.array([[0, 1], [1, 0]], dtype=bool)
        >>> extend(edge).sum()
        np.int64(1)
    """
    rest, dag = pdag.copy(), pdag & ~pdag.T
    left = list(range(len(pdag)))
    while left:
        sink = next((node for node in reversed(left) if _may_be_last(rest, node)), None)
        if sink is None:
            return None
        neighbours = rest[:, sink] & rest[sink]
        dag[neighbours, sink] = True
        rest[sink, :] = rest[:, sink] = False
        left.remove(sink)
    return dag


def _may_be_last(pdag: Mask, node: int) -> bool:
    """Whether a node has no children, and all its neighbours are adjacent to all others at it."""
    if (pdag[node] & ~pdag[:, node]).any():
        return False
    adjacent = pdag | pdag.T
    around = np.flatnonzero(adjacent[node])
    return all(
        adjacent[neighbour, [k for k in around if k != neighbour]].all()
        for neighbour in np.flatnonzero(pdag[node] & pdag[:, node])
    )


def edge_matrix(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Mask:
    """Edges (parent, child) by name as a matrix."""
    place = {name: k for k, name in enumerate(nodes)}
    matrix = np.zeros((len(place), len(place)), dtype=bool)
    for parent, child in edges:
        matrix[place[parent], place[child]] = True
    return matrix
