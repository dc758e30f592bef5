"""Trees with latent nodes over the columns of a table, chosen by held-out likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from vfg.gaussian.fitting import GaussianSettings
from vfg.gaussian.model import Candidate, select
from vfg.graph import Edge, Graph, Node
from vfg.graph.builders import group_nodes
from vfg.graph.clustering import average_linkage, collapse
from vfg.structure.completing import fit_covariance
from vfg.structure.learned import LearnedGraph, with_positions
from vfg.tables.cells import Array
from vfg.tables.encoding import Encoding

MOST_ROWS = 2000
"""Rows on which candidates are compared: fits take a second, and candidates differ by more than the
standard error of their scores there."""
ARITIES = (3, 6)
"""Most children of a latent node in candidates: few make deep trees, many nearly a star."""
WIDTHS = (2, 4, 8)
"""Widths of latent nodes in candidates."""
QUICK = GaussianSettings(iterations=60, tolerance=1e-3)
"""Fits of candidates, which need not have converged to the last digit to be told apart."""


def learn_tree(encoding: Encoding, table: Any, seed: int) -> LearnedGraph:
    """The tree or star that predicts held-out cells of a table best."""
    values, observed = (part.numpy() for part in encoding.training_matrix(table))
    labels = [label for label in encoding.schema if label not in encoding.idle]
    if len(labels) < 2:
        raise ValueError(
            f"a tree needs at least two columns that vary, but the table has {len(labels)}"
        )
    generator = np.random.default_rng(seed)
    rows = np.arange(len(values))
    if len(rows) > MOST_ROWS:
        rows = np.sort(generator.choice(len(values), MOST_ROWS, replace=False))
    places = [list(encoding.places(label)) for label in labels]
    chosen = np.array([place for own in places for place in own])
    cells, seen = values[np.ix_(rows, chosen)], observed[np.ix_(rows, chosen)]
    sizes = [len(own) for own in places]
    related = relations(fit_covariance(cells, seen)[1], sizes)
    best = _choose(np.where(seen, cells, np.nan), related, sizes, seed)
    names = list(map(str, labels))
    leaves = {f"x{k}": name for k, name in enumerate(names)}
    graph = _with_names(best.graph, leaves, tuple(map(str, encoding.schema)))
    graph = with_positions(graph, list(encoding.schema))
    return LearnedGraph("tree", tuple(map(str, encoding.schema)), graph, score=best.score)


def relations(covariance: Array, sizes: Sequence[int]) -> Array:
    """How strongly variables of several columns each are related: the first canonical correlations.

    Example:
        >>> relations(np.array([[1.0, 0.5], [0.5, 1.0]]), [1, 1]).round(6).tolist()
        [[1.0, 0.5], [0.5, 1.0]]
    """
    ends = np.cumsum([0, *sizes])
    blocks = [slice(a, b) for a, b in pairwise(ends)]
    whiteners = []
    for block in blocks:
        values, vectors = np.linalg.eigh(covariance[block, block])
        whiteners.append(vectors / np.sqrt(np.maximum(values, 1e-9)))
    related = np.eye(len(blocks))
    for i, first in enumerate(blocks):
        for j, second in enumerate(blocks[:i]):
            cross = whiteners[i].T @ covariance[first, second] @ whiteners[j]
            related[i, j] = related[j, i] = min(float(np.linalg.norm(cross, 2)), 1.0)
    return related


def neighbour_joining(distances: Array) -> list[tuple[int, int]]:
    """Pairs to merge, from distances that add up along the edges of a tree (Saitou and Nei 1987).

    Leaves have the numbers 0, 1, ..., and the merges the numbers after them.

    Example:
        >>> a, b = 0.2, 2.0
        >>> neighbour_joining(np.array([[0, a, b, b], [a, 0, b, b], [b, b, 0, a], [b, b, a, 0]]))
        [(0, 1), (2, 3), (4, 5)]
    """
    distances = np.array(distances, dtype=np.float64)
    count = len(distances)
    numbers = list(range(count))
    merges: list[tuple[int, int]] = []
    while len(numbers) > 2:
        sums = distances.sum(0)
        criterion = (len(numbers) - 2) * distances - sums[:, None] - sums
        np.fill_diagonal(criterion, np.inf)
        # Rounded, so that the last bits never decide between equal pairs.
        i, j = sorted(map(int, np.unravel_index(criterion.round(9).argmin(), criterion.shape)))
        merges.append((numbers[i], numbers[j]))
        joined = (distances[i] + distances[j] - distances[i, j]) / 2.0
        keep = [k for k in range(len(numbers)) if k not in (i, j)]
        numbers = [*(numbers[k] for k in keep), count + len(merges) - 1]
        inner = np.pad(distances[np.ix_(keep, keep)], (0, 1))
        inner[-1, :-1] = inner[:-1, -1] = joined[keep]
        distances = inner
    return [*merges, (numbers[0], numbers[1])] if len(numbers) == 2 else merges


def _choose(cells: Array, related: Array, sizes: Sequence[int], seed: int) -> Candidate:
    """The best of stars and trees: first the grouping is chosen, then the width."""
    ends = np.cumsum([0, *sizes]).tolist()
    leaves = [
        Node(f"x{k}", size, columns=tuple(range(ends[k], ends[k + 1])))
        for k, size in enumerate(sizes)
    ]
    groupings: list[list[list[int]]] = [[list(range(len(sizes)))]]
    # Along the edges of a tree correlations multiply, so that these distances add up.
    distances = -np.log(np.clip(related, 1e-3, 1.0))
    for merges in (neighbour_joining(distances), average_linkage(related)):
        for arity in ARITIES:
            groups = collapse(merges, len(sizes), arity)
            if groups not in groupings:
                groupings.append(groups)
    widths = sorted({max(width, *sizes) for width in WIDTHS})
    first = [Graph(*group_nodes(leaves, groups, widths[0])) for groups in groupings]
    star = [Graph.star(leaves, width=width) for width in widths[1:]]
    tried = select(cells, [*first, *star], seed=seed, settings=QUICK).candidates
    trees = [candidate for candidate in tried if len(candidate.graph.layers) > 2]
    if trees:
        best = max(trees, key=lambda candidate: candidate.score).graph
        wider = [
            Graph([replace(n, width=w) if n.columns is None else n for n in best.nodes], best.edges)
            for w in widths[1:]
        ]
        tried += select(cells, wider, seed=seed, settings=QUICK).candidates if wider else ()
    return max(tried, key=lambda candidate: candidate.score)


def _with_names(graph: Graph, names: dict[str, str], every: tuple[str, ...]) -> Graph:
    """The graph over columns of their own names; columns that do not vary go to a root."""
    taken = [node.name for node in graph.nodes if node.name not in names]
    renamed = {own: own + "_" if own in every else own for own in taken} | names
    nodes = [
        Node(renamed[n.name], 1, columns=(renamed[n.name],))
        if n.name in names
        else replace(n, name=renamed[n.name])
        for n in graph.nodes
    ]
    edges = [replace(e, child=renamed[e.child], parent=renamed[e.parent]) for e in graph.edges]
    root = renamed[graph.roots[0]]
    idle = [name for name in every if name not in names.values()]
    nodes = [*(Node(name, 1, columns=(name,)) for name in idle), *nodes]
    return Graph(nodes, [*edges, *(Edge(name, root) for name in idle)])
