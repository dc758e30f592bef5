"""Trees from data."""

import numpy
import pandas
import pytest
import scipy.stats
import torch
from optional import polars

from vfg.graph import Graph
from vfg.graph.clustering import collapse, rank_correlations


def correlated_table(rows=200, gaps=0.0):
    generator = numpy.random.default_rng(0)
    causes = generator.normal(size=(rows, 3))
    table = numpy.repeat(causes, 3, axis=1) + 0.3 * generator.normal(size=(rows, 9))
    table[:, 4] = -numpy.exp(table[:, 4])
    table[generator.random(table.shape) < gaps] = numpy.nan
    return table


def test_rank_correlations_equal_spearman_without_gaps():
    table = correlated_table().round(1)
    expected = scipy.stats.spearmanr(table).statistic
    numpy.testing.assert_allclose(rank_correlations(table), expected, atol=1e-12)


def test_rank_correlations_stay_close_to_pairwise_ranking_with_gaps():
    table = correlated_table(rows=400, gaps=0.3)
    correlations = rank_correlations(table)
    for first in range(9):
        for second in range(first):
            both = ~numpy.isnan(table[:, [first, second]]).any(axis=1)
            exact = scipy.stats.spearmanr(table[both][:, [first, second]]).statistic
            assert correlations[first, second] == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_data_tree_finds_groups_of_columns(gaps):
    graph = Graph.from_data(correlated_table(gaps=gaps), arity=3)
    found = [graph.children(parent) for parent in graph.children("root")]
    assert found == [("x0", "x1", "x2"), ("x3", "x4", "x5"), ("x6", "x7", "x8")]
    assert graph.columns == tuple(range(9))
    assert graph.node("root").width == 6
    assert Graph.from_data(correlated_table(), width=5).node("root").width == 5


@pytest.mark.parametrize("arity", [2, 3, 4, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 20])
def test_data_tree_keeps_the_arity_and_the_column_order(count, arity):
    table = numpy.random.default_rng(count).normal(size=(30, count))
    graph = Graph.from_data(table, arity=arity)
    assert graph.is_tree
    assert graph.leaves == tuple(f"x{k}" for k in range(count))
    for node in graph.nodes[count:]:
        assert min(count, 2) <= len(graph.children(node.name)) <= arity


def test_data_tree_tolerates_empty_constant_and_hardly_observed_columns():
    table = correlated_table()
    table[:, 0] = numpy.nan
    table[:, 3] = 1.0
    table[2:, 6] = numpy.nan
    correlations = rank_correlations(table)
    assert numpy.isfinite(correlations).all()
    assert not correlations[[0, 3, 6]].any()
    assert len(Graph.from_data(table).leaves) == 9


def test_data_tree_is_the_same_for_every_kind_of_table():
    table = correlated_table(gaps=0.1)
    expected = Graph.from_data(table)
    assert Graph.from_data(torch.tensor(table, requires_grad=True)) == expected
    assert Graph.from_data(pandas.DataFrame(table)) == expected
    labels = [f"column {k}" for k in range(9)]
    frame = pandas.DataFrame(table, columns=labels)
    named = Graph.from_data(frame)
    assert named.columns == tuple(labels)
    assert named.layers[1:] == expected.layers[1:]
    assert Graph.from_data(frame.convert_dtypes()) == named
    assert Graph.from_data(polars.DataFrame(table, schema=labels)) == named


@pytest.mark.parametrize("make", [pandas.DataFrame, lambda columns: polars.DataFrame(columns)])
def test_data_tree_reads_missing_integers_and_booleans(make):
    frame = make({"a": [1, None, 3, 4], "b": [True, False, None, True], "c": [4.0, 3.0, 2.0, None]})
    assert Graph.from_data(frame).leaves == ("a", "b", "c")


def test_collapse_opens_the_highest_merge_first():
    merges = [(0, 1), (2, 3), (4, 6), (7, 5)]
    assert collapse(merges, count=5, arity=2) == [[0, 1], [2, 3], [6, 4], [5, 7]]
    assert collapse(merges, count=5, arity=3) == [[0, 1], [2, 3], [5, 6, 4]]
    assert collapse(merges, count=5, arity=4) == [[0, 1], [5, 2, 3, 4]]
    assert collapse(merges, count=5, arity=5) == [[0, 1, 2, 3, 4]]
