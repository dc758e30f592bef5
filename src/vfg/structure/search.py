"""Search for directed acyclic graphs: the best by order, then others that fit about as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from vfg.tables.cells import Array, Mask

LEAST_GAIN = 1e-9
"""What a step must gain, so that rounding never makes the search go in circles."""


class Score(Protocol):
    """A decomposable score of directed acyclic graphs: a sum over families, higher is better."""

    def gains(self, node: int, parents: tuple[int, ...]) -> Array:
        """What each further parent adds to the score of a family, `(nodes,)`."""

    def family(self, node: int, parents: tuple[int, ...]) -> float:
        """The score of a node given its parents, sorted."""


@dataclass
class _GrowShrinkNode:
    """A node of a grow-shrink tree: parents added so far, and what comes next."""

    parents: tuple[int, ...]
    candidates: list[int] | None = None
    branches: dict[int, _GrowShrinkNode] = field(default_factory=dict)
    shrunk: tuple[tuple[int, ...], float] | None = None


class Families:
    """The best parents of each node among those that precede it, grown and shrunk greedily.

    The steps are kept in a tree for every node, so that most questions of a search are looked up.
    """

    def __init__(self, score: Score, allowed: Mask, required: Mask) -> None:
        self.score, self.allowed = score, allowed
        self.required = [
            tuple(np.flatnonzero(required[:, k]).tolist()) for k in range(len(allowed))
        ]
        self._trees = [_GrowShrinkNode(own) for own in self.required]
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    def of(self, node: int, parents: tuple[int, ...]) -> float:
        """The score of a family with its parents in any order."""
        key = node, tuple(sorted(parents))
        if key not in self._known:
            self._known[key] = self.score.family(*key)
        return self._known[key]

    def best(self, node: int, before: int) -> tuple[tuple[int, ...], float]:
        """Parents and score of a node among the nodes whose bits are set."""
        if any(not before >> own & 1 for own in self.required[node]):
            return self.required[node], -np.inf
        branch = self._trees[node]
        while True:
            if branch.candidates is None:
                branch.candidates = self._candidates(node, branch.parents)
            extra = next((node for node in branch.candidates if before >> node & 1), None)
            if extra is None:
                break
            if extra not in branch.branches:
                branch.branches[extra] = _GrowShrinkNode((*branch.parents, extra))
            branch = branch.branches[extra]
        if branch.shrunk is None:
            branch.shrunk = self._shrink(node, branch.parents)
        return branch.shrunk

    def _candidates(self, node: int, parents: tuple[int, ...]) -> list[int]:
        """The further parents that gain, the best first."""
        gains = self.score.gains(node, parents)
        gains = np.where(self.allowed[:, node], gains, -np.inf)
        gains[[node, *parents]] = -np.inf
        order = np.argsort(-gains, kind="stable")
        return [int(k) for k in order if gains[k] > LEAST_GAIN]

    def _shrink(self, node: int, parents: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        score = self.of(node, parents)
        while True:
            free = [k for k in parents if k not in self.required[node]]
            smaller = [tuple(p for p in parents if p != k) for k in free]
            scores = [self.of(node, own) for own in smaller]
            if not scores or max(scores) <= score + LEAST_GAIN:
                return parents, score
            best = int(np.argmax(scores))
            parents, score = smaller[best], scores[best]


def search_order(
    families: Families, order: Sequence[int], tick: Callable[[], None] = lambda: None
) -> tuple[Mask, float]:
    """The DAG of the best order that is reached by moving one node at a time.

    Every node is tried at all places of the order of the others; see `Families.best` for the
    parents that it then has. The search ends when no move gains.
    """
    order = [int(node) for node in order]  # integers of Python have as many bits as needed
    total = _score_of_order(families, order)
    improved = True
    while improved:
        improved = False
        for node in list(order):
            moved, score = _best_place(families, order, node)
            tick()
            if score > total + LEAST_GAIN or (np.isneginf(total) and score > total):
                order, total, improved = moved, score, True
    return graph_of_order(families, order), total


def graph_of_order(families: Families, order: Sequence[int]) -> Mask:
    """The DAG in which every node has its best parents among those that precede it."""
    dag = np.zeros_like(families.allowed)
    before = 0
    for node in order:
        dag[list(families.best(node, before)[0]), node] = True
        before |= 1 << node
    return dag


def sample_orders(
    families: Families,
    order: Sequence[int],
    sweeps: int,
    weight: float,
    generator: np.random.Generator,
) -> Iterator[list[int]]:
    """Orders drawn in proportion to the exponential of their scores, one after every sweep.

    A sweep takes the nodes in random order and draws a place for each, given the order of the
    others (Gibbs sampling).

    Args:
        families: the best parents of every node.
        order: where the walk begins; its score must be finite.
        sweeps: how many orders are drawn.
        weight: factor of all scores; below 1 the draws are more diverse.
        generator: of the draws.
    """
    order = [int(node) for node in order]
    for _ in range(sweeps):
        for node in generator.permutation(len(order)).tolist():
            others, scores = _scores_of_places(families, order, node)
            shares = np.exp(weight * (scores - scores.max())).cumsum()
            level = generator.random() * shares[-1]
            place = int(np.searchsorted(shares, level, side="right"))
            order = [*others[:place], node, *others[place:]]
        yield order


def _score_of_order(families: Families, order: Sequence[int]) -> float:
    total, before = 0.0, 0
    for node in order:
        total += families.best(node, before)[1]
        before |= 1 << node
    return total


def _best_place(families: Families, order: list[int], node: int) -> tuple[list[int], float]:
    """The order with a node at its best place, and the score."""
    others, scores = _scores_of_places(families, order, node)
    place = int(np.argmax(scores))
    return [*others[:place], node, *others[place:]], float(scores[place])


def _scores_of_places(
    families: Families, order: Sequence[int], node: int
) -> tuple[list[int], Array]:
    """The order of the other nodes, and the score of the order with a node at each place."""
    others = [k for k in order if k != node]
    own, bit, before = [], 1 << node, 0
    without, along = [0.0], [0.0]  # sums over the first others, without and with the node before
    for other in others:
        own.append(families.best(node, before)[1])
        without.append(without[-1] + families.best(other, before)[1])
        along.append(along[-1] + families.best(other, before | bit)[1])
        before |= 1 << other
    own.append(families.best(node, before)[1])
    with np.errstate(invalid="ignore"):
        return others, np.array(without) + np.array(own) + _tail_sums(along)


def _tail_sums(sums: list[float]) -> Array:
    """Sums from each place to the end, from sums up to it; differences of -inf are -inf."""
    steps = np.diff(np.array(sums)) if np.isfinite(sums[-1]) else None
    if steps is None:
        finite = np.isfinite(sums)
        steps = np.where(finite[1:], np.diff(np.where(finite, sums, 0.0)), -np.inf)
    return np.concatenate([np.cumsum(steps[::-1])[::-1], [0.0]])
