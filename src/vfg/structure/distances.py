"""Distances between graphs: by their edges, and by the interventions that they get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from vfg.structure.pdag import topological_order
from vfg.tables.cells import Array, Mask

MOST_NEIGHBOURS = 12
"""Edges without a direction at one node up to which all sets of parents are tried: 4,096 sets."""


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
    """The F1 score of directions: an edge without one counts as both, 1 for equal graphs.

    Example:
        >>> edge = np.array([[0, 1], [0, 0]], dtype=bool)
        >>> edge_f1(edge, edge), round(edge_f1(edge | edge.T, edge), 2), edge_f1(edge.T, edge)
        (1.0, 0.67, 0.0)
    """
    marks = int(found.sum()) + int(truth.sum())
    return 2.0 * int((found & truth).sum()) / marks if marks else 1.0


def structural_intervention_distance(found: Mask, truth: Mask) -> tuple[int, int]:
    """The least and the greatest number of effects that a graph gets wrong, both of a DAG alike.

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
