"""Partially directed graphs as boolean matrices: equivalence classes, Meek's rules, distances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from vfg.tables.cells import Array, Mask

MOST_NEIGHBOURS = 12
"""Edges without a direction at one node up to which all sets of parents are tried: 4,096 sets."""

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
    while True:
        forced = _forced_at_once(pdag)
        if not forced.any():  # rules 3 and 4 take longer and seldom apply
            for i, j in np.argwhere(pdag & pdag.T):
                if _is_forced(pdag, i, j):
                    forced[i, j] = True
                    break
            else:
                return pdag
        forced &= ~np.tril(forced.T)  # one direction where knowledge contradicts itself
        pdag &= ~forced.T


def _forced_at_once(pdag: Mask) -> Mask:
    """`[i, j]` where the undirected edge i - j must be i -> j by Meek's first two rules."""
    undirected = pdag & pdag.T
    if not undirected.any():
        return undirected
    directed = (pdag & ~pdag.T).astype(np.float64)
    apart = (~(pdag | pdag.T)).astype(np.float64)
    chained = directed.T @ apart > 0.5  # 1: k -> i, and k is not adjacent to j
    closed = directed @ directed > 0.5  # 2: i -> k -> j
    forced: Mask = undirected & (chained | closed)
    return forced


def _is_forced(pdag: Mask, i: int, j: int) -> bool:
    """Whether the undirected edge i - j must be i -> j by one of Meek's last two rules."""
    directed = pdag & ~pdag.T
    undirected = pdag & pdag.T
    adjacent = pdag | pdag.T
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


def central_graph(pdags: Sequence[Mask]) -> int:
    """Which of several graphs has the least mean Hamming distance to all; the first of equals.

    Example:
        >>> edge = np.array([[0, 1], [0, 0]], dtype=bool)
        >>> central_graph([edge, edge.T, edge.T])
        1
    """
    size = len(pdags[0])
    above = np.triu_indices(size, 1)
    joined = np.array([pdag[above] + 2 * pdag.T[above] for pdag in pdags])
    shares = np.stack([(joined == kind).mean(0) for kind in range(4)])
    agreement = np.take_along_axis(shares, joined, 0).sum(1)
    return int(np.argmax(agreement))


def edge_matrix(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Mask:
    """Edges (parent, child) by name as a matrix."""
    place = {name: k for k, name in enumerate(nodes)}
    matrix = np.zeros((len(place), len(place)), dtype=bool)
    for parent, child in edges:
        matrix[place[parent], place[child]] = True
    return matrix


def structural_hamming_distance(first: Mask, second: Mask) -> int:
    """The number of pairs of nodes that two graphs join differently.

    Example:
        >>> edge = np.array([[0, 1], [0, 0]], dtype=bool)
        >>> structural_hamming_distance(edge, edge.T), structural_hamming_distance(edge, edge)
        (1, 0)
    """
    differs = first != second
    return int(np.triu(differs | differs.T).sum())


def edge_f1(found: Mask, truth: Mask) -> float:
    """The F1 score of directed edges, 1 for equal graphs; an undirected edge counts as both.

    Example:
        >>> edge = np.array([[0, 1], [0, 0]], dtype=bool)
        >>> edge_f1(edge, edge), round(edge_f1(edge | edge.T, edge), 2), edge_f1(edge.T, edge)
        (1.0, 0.67, 0.0)
    """
    marks = int(found.sum()) + int(truth.sum())
    return 2.0 * int((found & truth).sum()) / marks if marks else 1.0


def structural_intervention_distance(found: Mask, truth: Mask) -> tuple[int, int]:
    """The least and the greatest number of effects that a graph gets wrong; equal for a DAG.

    An effect is the distribution of one column when another is set. A graph derives it by
    adjustment for the parents of the column that is set, and it is wrong if that set of parents is
    no valid adjustment in the true DAG (Peters and Bühlmann, 2015). Edges of `found` without a
    direction leave several sets of parents open: every column takes the one with the fewest wrong
    effects, then the one with the most. The two numbers enclose those of every DAG of the class.

    Args:
        found: a DAG or a partially directed graph.
        truth: a DAG.

    Example:
        >>> edge = np.array([[0, 1], [0, 0]], dtype=bool)
        >>> structural_intervention_distance(edge, edge)
        (0, 0)
        >>> structural_intervention_distance(edge.T, edge)
        (2, 2)
        >>> structural_intervention_distance(edge | edge.T, edge)
        (0, 2)
    """
    below = _descendants(truth)
    least = greatest = 0
    for node in range(len(truth)):
        counts = [_wrong_effects(truth, below, node, own) for own in _parent_sets(found, node)]
        least, greatest = least + min(counts), greatest + max(counts)
    return least, greatest


def _descendants(dag: Mask) -> Mask:
    """`[i, j]` where a path of one or more edges leads from i to j."""
    below = np.zeros_like(dag)
    for node in reversed(topological_order(dag)):
        children = np.flatnonzero(dag[node])
        below[node] = dag[node] | below[children].any(0)
    return below


def _parent_sets(pdag: Mask, node: int) -> Iterator[Array]:
    """The sets of parents that a node may have without a new v-structure at it."""
    sure = np.flatnonzero(pdag[:, node] & ~pdag[node])
    free = np.flatnonzero(pdag[:, node] & pdag[node])
    adjacent = pdag | pdag.T
    if len(free) > MOST_NEIGHBOURS:  # too many to try: none of them, and all of them
        yield sure
        yield np.concatenate([sure, free])
        return
    for size in range(len(free) + 1):
        for chosen in combinations(free.tolist(), size):
            if all(adjacent[i, j] for i, j in combinations(chosen, 2)):
                yield np.array([*sure, *chosen], dtype=np.intp)


def _wrong_effects(dag: Mask, below: Mask, node: int, parents: Array) -> int:
    """How many effects of a node come out wrong by adjustment for some nodes."""
    wrong = 0
    for target in range(len(dag)):
        if target == node:
            continue
        if target in parents:  # the graph says that there is no effect
            wrong += bool(below[node, target])
        else:
            wrong += not _is_adjustment(dag, below, node, target, parents)
    return wrong


def _is_adjustment(dag: Mask, below: Mask, cause: int, target: int, given: Array) -> bool:
    """Whether adjustment for `given` yields the effect of a cause on a target in a DAG."""
    leads = below[:, target].copy()
    leads[target] = True
    between = np.flatnonzero(below[cause] & leads)  # on causal paths, the target included
    forbidden: Mask = np.asarray(below[between].any(0))
    forbidden[between] = True
    if forbidden[given].any():
        return False
    rest = dag.copy()
    rest[cause, between] = False  # all other paths must be blocked
    return not _is_connected(rest, cause, target, given)


def _is_connected(dag: Mask, source: int, target: int, given: Array) -> bool:
    """Whether some path between two nodes is open given others, by walks from node to node."""
    is_given = np.zeros(len(dag), dtype=bool)
    is_given[given] = True
    opened = is_given.copy()  # colliders that conditioning opens: given, or causes of what is
    for node in reversed(topological_order(dag)):
        opened[node] |= opened[dag[node]].any()
    waiting = [(source, True)]  # a node, and whether the walk came from one of its children
    seen = set(waiting)
    while waiting:
        node, upwards = waiting.pop()
        if node == target:
            return True
        steps: list[tuple[int, bool]] = []
        if not is_given[node]:
            steps += [(int(child), False) for child in np.flatnonzero(dag[node])]
        if (upwards and not is_given[node]) or (not upwards and opened[node]):
            steps += [(int(parent), True) for parent in np.flatnonzero(dag[:, node])]
        waiting += [step for step in steps if step not in seen]
        seen.update(steps)
    return False
