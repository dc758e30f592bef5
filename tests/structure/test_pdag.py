"""Equivalence classes against all DAGs of four nodes; orientation by hand."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfg.structure.pdag import equivalence_class, extend, topological_order


def all_dags(nodes):
    """Every DAG, by trying both directions and the absence of every edge."""
    pairs = list(combinations(range(nodes), 2))
    for choice in product((0, 1, 2), repeat=len(pairs)):
        dag = np.zeros((nodes, nodes), dtype=bool)
        for (i, j), kind in zip(pairs, choice, strict=True):
            dag[i, j], dag[j, i] = kind == 1, kind == 2
        reach = np.linalg.matrix_power(np.eye(nodes) + dag, nodes) > 0
        if not (reach & reach.T & ~np.eye(nodes, dtype=bool)).any():
            yield dag


def signature(dag):
    """Skeleton and v-structures, which decide equivalence (Verma and Pearl)."""
    skeleton = dag | dag.T
    colliders = tuple(
        (i, k, j)
        for k in range(len(dag))
        for i, j in combinations(np.flatnonzero(dag[:, k]).tolist(), 2)
        if not skeleton[i, j]
    )
    return skeleton.tobytes(), colliders


def test_classes_of_four_nodes_are_unions_of_their_members():
    members = {}
    dags = list(all_dags(4))
    assert len(dags) == 543
    for dag in dags:
        members.setdefault(signature(dag), []).append(dag)
    assert len(members) == 185
    for own in members.values():
        union = np.any(own, axis=0)
        for dag in own:
            assert (equivalence_class(dag) == union).all()
        member = extend(union)
        assert any((member == dag).all() for dag in own)


@st.composite
def random_dags(draw):
    nodes = draw(st.integers(2, 7))
    order = draw(st.permutations(range(nodes)))
    dag = np.zeros((nodes, nodes), dtype=bool)
    for i, j in combinations(range(nodes), 2):
        dag[order[i], order[j]] = draw(st.booleans())
    return dag


@given(random_dags())
def test_class_keeps_skeleton_and_has_the_dag_as_a_member(dag):
    pdag = equivalence_class(dag)
    assert ((pdag | pdag.T) == (dag | dag.T)).all()
    assert not (dag & ~pdag).any()  # every edge of the DAG is possible
    member = extend(pdag)
    assert signature(member) == signature(dag)
    assert (equivalence_class(member) == pdag).all()
    order = topological_order(member)
    assert all(order.index(i) < order.index(j) for i, j in np.argwhere(member))


def test_known_direction_orients_what_follows():
    chain = np.zeros((4, 4), dtype=bool)
    chain[0, 1] = chain[1, 2] = chain[2, 3] = True
    free = equivalence_class(chain)
    assert (free & free.T).sum() == 6
    known = np.zeros_like(chain)
    known[0, 1] = True
    assert (equivalence_class(chain, known) == chain).all()


def test_fourth_rule_of_meek():
    # i - j, i - k, i - l, k -> l, l -> j with k and j not adjacent: i -> j.
    i, j, k, m = range(4)
    dag = np.zeros((4, 4), dtype=bool)
    dag[i, j] = dag[i, k] = dag[i, m] = dag[k, m] = dag[m, j] = True
    known = np.zeros_like(dag)
    known[k, m] = known[m, j] = True
    assert not equivalence_class(dag, known)[j, i]


def test_extend_refuses_a_graph_without_members():
    square = np.zeros((4, 4), dtype=bool)
    for i in range(4):
        square[i, (i + 1) % 4] = square[(i + 1) % 4, i] = True
    assert extend(square) is None


def test_cycles_are_refused():
    with pytest.raises(ValueError, match="cycle"):
        topological_order(np.array([[0, 1], [1, 0]], dtype=bool))
