"""Scores against direct regressions, searches against all DAGs of four nodes."""

from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from structure.test_pdag import all_dags, signature

from vfg.structure.pdag import topological_order
from vfg.structure.scores import Features, MomentScore, pair_information, pair_penalties
from vfg.structure.search import Families, graph_of_order, sample_orders, search_order

ROWS, NODES = 300, 4


def simulate(seed, rows=ROWS, nodes=NODES):
    generator = np.random.default_rng(seed)
    dag = np.triu(generator.random((nodes, nodes)) < 0.6, 1)
    table = np.zeros((rows, nodes))
    for node in range(nodes):
        weights = (
            generator.uniform(0.3, 1.0, nodes) * generator.choice([-1, 1], nodes) * dag[:, node]
        )
        table[:, node] = table @ weights + generator.normal(size=rows)
    table = (table - table.mean(0)) / table.std(0)
    return table[:, generator.permutation(nodes)]


def linear_score(table):
    seen = np.ones(table.shape, dtype=bool)
    blocks = [np.array([k]) for k in range(table.shape[1])]
    penalty = pair_penalties(seen, range(table.shape[1]))
    return MomentScore(np.cov(table.T, bias=True), len(table), blocks, [1] * len(blocks), penalty)


def total(score, dag):
    return sum(score.family(k, tuple(np.flatnonzero(dag[:, k]).tolist())) for k in range(len(dag)))


def test_family_is_a_penalised_regression():
    table = simulate(0)
    design = np.column_stack([np.ones(ROWS), table[:, [1, 3]]])
    residual = table[:, 2] - design @ np.linalg.lstsq(design, table[:, 2], rcond=None)[0]
    expected = -ROWS / 2 * np.log(residual.var()) - 2 * 0.5 * (np.log(ROWS) + np.log(NODES))
    assert linear_score(table).family(2, (1, 3)) == pytest.approx(expected, abs=1e-2)


def test_family_with_splines_is_a_regression_on_them():
    generator = np.random.default_rng(1)
    cause = generator.normal(size=500)
    table = np.column_stack([cause, np.sin(2 * cause) + 0.3 * generator.normal(size=500)])
    seen = np.ones(table.shape, dtype=bool)
    features = Features.fit(table, seen, [[0], [1]])
    matrix = features.of(table)
    score = MomentScore(
        np.cov(matrix.T, bias=True), 500, features.blocks, features.widths, np.zeros((2, 2))
    )
    design = np.column_stack([np.ones(500), matrix[:, features.blocks[0]]])
    own = matrix[:, features.blocks[1][0]]
    residual = own - design @ np.linalg.lstsq(design, own, rcond=None)[0]
    # Splines are nearly collinear, so that the ridge costs some of a nat.
    assert score.family(1, (0,)) == pytest.approx(-250 * np.log(residual.var()), abs=0.5)
    assert score.fit_family(1, (0,))[1] == (True,)


def test_splines_are_linear_beyond_their_knots_and_smooth_inside():
    values = np.random.default_rng(0).normal(size=(400, 1))
    features = Features.fit(values, np.ones(values.shape, dtype=bool), [[0]])
    outside = np.linspace(5.0, 6.0, 7)
    assert np.diff(features.of_variable(0, outside[:, None]), 2, axis=0) == pytest.approx(
        0.0, abs=1e-9
    )
    inside = features.of_variable(0, np.linspace(-4.0, 4.0, 2001)[:, None])
    assert np.abs(np.diff(inside, 3, axis=0)).max() < 1e-4


def test_a_second_copy_of_a_column_gains_nothing():
    generator = np.random.default_rng(0)
    column = generator.normal(size=(ROWS, 1))
    table = np.hstack([column, column, column, generator.normal(size=(ROWS, 1))])
    score = linear_score((table - table.mean(0)) / table.std(0))
    assert score.gains(0, ())[1] > 100.0
    assert score.gains(0, (1,))[2] < 0.0


def test_splines_are_chosen_where_they_gain():
    generator = np.random.default_rng(2)
    bent, straight = generator.normal(size=(2, 500))
    table = np.column_stack([bent, straight, np.sin(2 * bent) + straight])
    table[:, 2] += 0.3 * generator.normal(size=500)
    features = Features.fit(table, np.ones(table.shape, dtype=bool), [[0], [1], [2]])
    moments = np.cov(features.of(table).T, bias=True)
    score = MomentScore(moments, 500, features.blocks, features.widths, np.full((3, 3), 3.0))
    value, curved = score.fit_family(2, (0, 1))
    assert curved == (True, False)
    # The curve of the first parent is what it adds to the family of the other.
    assert value - score.family(2, (1,)) == pytest.approx(score.gains(2, (1,))[0], abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_gains_are_differences_of_families(seed):
    table = simulate(seed)
    score = linear_score(table)
    for node in range(NODES):
        for parents in ((), ((node + 1) % NODES,)):
            gains = score.gains(node, parents)
            for extra in set(range(NODES)) - {node, *parents}:
                more = tuple(sorted([*parents, extra]))
                step = score.family(node, more) - score.family(node, parents)
                assert gains[extra] == pytest.approx(step, abs=1e-6)
            assert np.isneginf(gains[[node, *parents]]).all()


def test_members_of_a_class_score_the_same():
    score = linear_score(simulate(3))
    totals = {}
    for dag in all_dags(NODES):
        totals.setdefault(signature(dag), []).append(total(score, dag))
    assert max(np.ptp(own) for own in totals.values()) < 1e-2


def test_missing_cells_make_an_edge_cost_more():
    seen = np.ones((100, 2), dtype=bool)
    full = pair_penalties(seen, [0, 1])
    seen[:50, 0] = False
    half = pair_penalties(seen, [0, 1])
    assert (
        half[0, 1]
        == half[1, 0]
        == pytest.approx(2**1.25 * 0.5 * (np.log(100 / 2**1.25) + np.log(2)))
    )
    assert half[0, 1] > full[0, 1]


def free_families(score, nodes=NODES):
    return Families(score, ~np.eye(nodes, dtype=bool), np.zeros((nodes, nodes), dtype=bool))


@pytest.mark.parametrize("seed", range(8))
def test_search_finds_the_best_of_all_dags(seed):
    score = linear_score(simulate(seed))
    families = free_families(score)
    orders = [np.random.default_rng(start).permutation(NODES) for start in range(3)]
    dag, value = max((search_order(families, order) for order in orders), key=lambda pair: pair[1])
    best = max(total(score, other) for other in all_dags(NODES))
    assert value <= best + 1e-9
    assert total(score, dag) == pytest.approx(best, abs=1e-2)


def best_of_all(score, nodes):
    """The best score of all DAGs: the best parents of every node in every order."""
    others = [[k for k in range(nodes) if k != node] for node in range(nodes)]
    families = {
        (node, own): score.family(node, own)
        for node in range(nodes)
        for size in range(nodes)
        for own in combinations(others[node], size)
    }
    best = {
        (node, before): max(
            families[node, own] for size in range(nodes) for own in combinations(before, size)
        )
        for node, before in families
    }
    return max(
        sum(best[node, tuple(sorted(order[:place]))] for place, node in enumerate(order))
        for order in permutations(range(nodes))
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_finds_the_best_of_all_dags_of_six_nodes(seed):
    score = linear_score(simulate(seed, nodes=6))
    families = free_families(score, 6)
    walk = sample_orders(families, range(6), 40, 0.5, np.random.default_rng(seed))
    value = max(search_order(families, order)[1] for order in list(walk)[::10])
    assert value == pytest.approx(best_of_all(score, 6), abs=1e-2)


def test_orders_are_drawn_in_proportion_to_their_scores():
    score = linear_score(simulate(2, rows=40))
    families = free_families(score)
    orders = list(permutations(range(NODES)))
    scores = np.array([total(score, graph_of_order(families, order)) for order in orders])
    expected = np.exp(0.5 * (scores - scores.max()))
    expected /= expected.sum()
    drawn = Counter(
        tuple(order)
        for order in sample_orders(families, range(NODES), 3000, 0.5, np.random.default_rng(0))
    )
    found = np.array([drawn[order] for order in orders]) / 3000
    assert expected.max() < 0.5  # so that the draws have something to show
    assert np.abs(found - expected).sum() / 2 < 0.06


def test_a_walk_reaches_the_best_graph_of_a_hub():
    generator = np.random.default_rng(4)
    nodes = 8
    table = generator.normal(size=(600, nodes))
    for child in range(1, nodes):
        table[:, child] += generator.choice([-1, 1]) * generator.uniform(0.5, 1.5) * table[:, 0]
        if child > 1:
            table[:, child] += 0.8 * table[:, child - 1]
    table = (table - table.mean(0)) / table.std(0)
    score = linear_score(table)
    families = free_families(score, nodes)
    starts = [np.random.default_rng(start).permutation(nodes) for start in range(20)]
    best = max(search_order(families, order)[1] for order in starts)
    walk = sample_orders(families, range(nodes), 60, 0.5, np.random.default_rng(0))
    reached = max(search_order(families, order)[1] for order in list(walk)[::10])
    assert reached == pytest.approx(best, abs=1e-6)


def test_samples_keep_to_what_is_required_and_allowed():
    score = linear_score(simulate(1))
    required, allowed = np.zeros((2, NODES, NODES), dtype=bool)
    required[3, 0] = True
    allowed[:] = ~np.eye(NODES, dtype=bool)
    allowed[0, 3] = allowed[1, 2] = False
    families = Families(score, allowed, required)
    start = topological_order(search_order(families, [3, 0, 1, 2])[0])
    for order in sample_orders(families, start, 50, 0.1, np.random.default_rng(0)):
        dag = graph_of_order(families, order)
        assert dag[3, 0]
        assert not (dag & ~allowed).any()


def test_information_falls_with_missing_cells():
    seen = np.ones((100, 3), dtype=bool)
    assert pair_information(seen, [0, 1, 2]) == pytest.approx(1.0)
    seen[:50, 0] = False
    assert pair_information(seen, [0, 1, 2]) == pytest.approx((1 + 2 * 0.5**1.25) / 3)


@pytest.mark.parametrize("seed", range(4))
def test_search_keeps_to_what_is_required_and_allowed(seed):
    score = linear_score(simulate(seed))
    required, allowed = np.zeros((2, NODES, NODES), dtype=bool)
    required[3, 0] = True
    allowed[:] = ~np.eye(NODES, dtype=bool)
    allowed[0, 3] = allowed[1, 2] = allowed[2, 1] = False
    families = Families(score, allowed, required)
    dag, value = search_order(families, range(NODES))
    assert dag[3, 0]
    assert not (dag & ~allowed).any()
    fitting = [d for d in all_dags(NODES) if d[3, 0] and not (d & ~allowed).any()]
    assert value == pytest.approx(max(total(score, other) for other in fitting), abs=1e-2)
