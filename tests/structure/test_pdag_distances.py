"""Distances by hand, and effects by regression in linear systems with random coefficients."""

from itertools import combinations, product

import numpy as np
import pytest

from vfg.structure import (
    edge_f1,
    equivalence_class,
    structural_hamming_distance,
    structural_intervention_distance,
)


def random_dag(generator, nodes, share):
    order = generator.permutation(nodes)
    dag = np.zeros((nodes, nodes), dtype=bool)
    for i, j in combinations(range(nodes), 2):
        dag[order[i], order[j]] = generator.random() < share
    return dag


def wrong_effects(found, weights, node):
    """How many effects of a node regression on its parents in `found` gets wrong."""
    nodes = len(weights)
    total = np.linalg.inv(np.eye(nodes) - weights)  # all paths, in a linear system
    covariance = total.T @ total
    wrong = 0
    for target in set(range(nodes)) - {node}:
        parents = np.flatnonzero(found[:, node]).tolist()
        used = [node, *parents]
        slope = np.linalg.solve(covariance[np.ix_(used, used)], covariance[used, target])[0]
        wrong += not np.isclose(0.0 if target in parents else slope, total[node, target], atol=1e-6)
    return wrong


def members(pdag):
    """All DAGs of a class, by trying both directions of every edge without one."""
    free = [(i, j) for i, j in np.argwhere(pdag & pdag.T) if i < j]
    for choice in product((False, True), repeat=len(free)):
        dag = pdag.copy()
        for (i, j), ahead in zip(free, choice, strict=True):
            dag[i, j], dag[j, i] = ahead, not ahead
        reach = np.linalg.matrix_power(np.eye(len(dag)) + dag, len(dag)) > 0
        cyclic = (reach & reach.T & ~np.eye(len(dag), dtype=bool)).any()
        if not cyclic and (equivalence_class(dag) == pdag).all():
            yield dag


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_effects_are_wrong_where_regression_gets_them_wrong(nodes):
    generator = np.random.default_rng(nodes)
    for _ in range(40):
        truth, found = (random_dag(generator, nodes, s) for s in generator.uniform(0.2, 0.8, 2))
        weights = truth * generator.uniform(0.5, 1.5, truth.shape)
        wrong = sum(wrong_effects(found, weights, node) for node in range(nodes))
        assert structural_intervention_distance(found, truth) == (wrong, wrong)


def test_bounds_are_those_of_the_members_of_the_class():
    generator = np.random.default_rng(0)
    open_classes = 0
    for _ in range(30):
        truth, found = (random_dag(generator, 5, s) for s in generator.uniform(0.2, 0.6, 2))
        weights = truth * generator.uniform(0.5, 1.5, truth.shape)
        pdag = equivalence_class(found)
        counts = [[wrong_effects(dag, weights, k) for k in range(5)] for dag in members(pdag)]
        least, greatest = np.min(counts, 0).sum(), np.max(counts, 0).sum()
        assert structural_intervention_distance(pdag, truth) == (least, greatest)
        open_classes += least < greatest
    assert open_classes > 10


def test_a_graph_with_more_edges_in_the_right_order_gets_no_effect_wrong():
    truth = random_dag(np.random.default_rng(1), 8, 0.3)
    below = np.linalg.matrix_power(np.eye(8) + truth, 8) > 0
    more = below & ~np.eye(8, dtype=bool)
    assert structural_intervention_distance(more, truth) == (0, 0)
    assert structural_hamming_distance(more, truth) > 0


def test_many_undirected_edges_at_one_node_are_bounded_by_all_and_none():
    star = np.zeros((20, 20), dtype=bool)
    star[0, 1:] = True
    assert structural_intervention_distance(star | star.T, star)[0] == 0


def test_hamming_distance_counts_pairs():
    first, second = np.zeros((2, 4, 4), dtype=bool)
    first[0, 1] = first[1, 2] = first[2, 3] = True
    second[1, 0] = True  # reversed
    second[1, 2] = second[2, 1] = True  # without a direction
    second[0, 3] = True  # one too many, and 2 -> 3 is missing
    assert structural_hamming_distance(first, second) == 4
    assert structural_hamming_distance(second, first) == 4


def test_f1_of_directions():
    first, second = np.zeros((2, 3, 3), dtype=bool)
    assert edge_f1(first, second) == 1.0
    first[0, 1] = first[1, 2] = True
    second[0, 1] = second[1, 2] = second[2, 1] = True
    assert edge_f1(first, second) == pytest.approx(0.8)
