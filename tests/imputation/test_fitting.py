"""Which columns and graphs are learned, and going on from a fitted model."""

from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import LIGHT, mixed, numbers

import vfg
from vfg.imputation import fitting as learning
from vfg.imputation.fitting import supports_deep
from vfg.modelfile import dumps
from vfg.tables.encoding import Encoding
from vfg.tables.frames import open_table

LIGHTLY = {name: LIGHT[name] for name in ("members", "steps", "width", "flow")}


def frame_of(table):
    return pd.DataFrame(table, columns=[chr(ord("a") + k) for k in range(table.shape[1])])


def encoded(table):
    return Encoding.fit(None, table)


def known_columns(table, **settings):
    encoding = encoded(table)
    whole = encoding.evidence(table, range(encoding.width))
    return learning.choose_columns(encoding, whole, vfg.ImputerSettings(**settings))


def fitted(table, **settings):
    model = vfg.TableModel(**settings)
    vfg.fit(model, table)
    return model


def refitted(model, table, **settings):
    again = deepcopy(model)
    again.refit(table, vfg.ImputerSettings(**settings))
    return again


def test_without_a_graph_every_informative_column_is_a_leaf_under_one_root():
    frame = mixed().assign(constant=1.0, empty=np.nan)
    columns, graph = known_columns(frame, width=5)
    assert sorted(graph.sections.values()) == [1, 1, 1, 1, 1, 2]
    assert sorted(columns) == list(range(7)), "the city has three categories, so two columns"
    assert graph.node("root").width == 5


def test_a_root_is_as_wide_as_its_widest_section():
    frame = pd.DataFrame({"a": list("abcdef") * 5, "b": np.arange(30.0)})
    assert known_columns(frame, width=2)[1].node("root").width == 5


def test_leaves_are_in_the_same_order_whatever_that_of_the_columns():
    frame = mixed()
    order = [4, 2, 0, 5, 3, 1]
    ranked, turned = (known_columns(table) for table in (frame, frame.iloc[:, order]))
    names = [
        [name for name in table.columns for _ in range(2 if name == "city" else 1)]
        for table in (frame, frame.iloc[:, order])
    ]
    assert [names[0][k] for k in ranked[0]] == [names[1][k] for k in turned[0]]
    assert ranked[1] == turned[1]


def test_without_informative_columns_there_is_no_graph():
    assert known_columns(np.array([[1.0, np.nan], [1.0, np.nan]])) == ([], None)


def test_columns_follow_the_leaves_of_a_graph():
    frame = mixed()[["height", "city", "age"]]
    graph = vfg.Graph.star(
        [vfg.Node("who", 2, ("age", "city")), vfg.Node("body", 1, ("height",))], width=4
    )
    columns, result = known_columns(frame, graph=graph)
    assert columns == [3, 1, 2, 0]
    assert result.sections == {"who": 3, "body": 1}


def test_leaves_may_be_called_like_columns_or_give_positions_or_widths_only():
    frame = frame_of(numbers()[1])
    by_name = vfg.Graph.star({"d": 1, "b": 1, "a": 1, "c": 1}, width=3)
    assert known_columns(frame, graph=by_name)[0] == [3, 1, 0, 2]
    by_position = vfg.Graph.star([vfg.Node("s", 2, (2, 0)), vfg.Node("t", 2, (1, 3))], width=3)
    assert known_columns(frame, graph=by_position)[0] == [2, 0, 1, 3]
    by_width = vfg.Graph.star({"s": 3, "t": 1}, width=3)
    assert known_columns(frame, graph=by_width)[0] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"a": 1, "b": 1}, "the table, but the graph lacks 'c', 'd'; name"),
        (dict.fromkeys("abcdz", 1), "the table, but the table lacks 'z'; name"),
        ({"p": 1, "q": 1}, "the table lacks 'p', 'q' and the graph lacks 'a', 'b', 'c', 'd'"),
    ],
)
def test_graphs_over_other_columns_are_refused(leaves, message):
    graph = vfg.Graph.star(leaves, width=2)
    with pytest.raises(ValueError, match=message):
        known_columns(frame_of(numbers()[1]), graph=graph)


def test_uninformative_columns_may_be_in_a_graph_or_not():
    frame = frame_of(numbers()[1]).assign(a=1.0, b=np.nan)
    scores = []
    for names in ("abcd", "cd"):
        graph = vfg.Graph.star(dict.fromkeys(names, 1), width=3)
        model = fitted(frame, graph=graph, bend=False)
        scores.append(model.log_prob(frame))
    np.testing.assert_allclose(*scores, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (vfg.Graph.star({"a": 1, "b": 2}, width=2), True),
        (vfg.Graph.star({"a": 1, "b": 3}, width=2), False),
        (vfg.Graph.star({"a": 2}, width=2), False),
        (vfg.Graph.tree({"a": 1, "b": 1, "c": 1}, arity=2, width=2), True),
        (vfg.Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("a", "b")]), False),
        (vfg.Graph.cover(5, 3), False),
    ],
    ids=["star", "wide leaf", "one leaf", "tree", "network", "part of a root"],
)
def test_which_graphs_support_nonlinear_members(graph, expected):
    assert supports_deep(graph, rows=100) is expected
    assert not supports_deep(graph, rows=100, wanted=False)
    assert not supports_deep(graph, rows=5)


@pytest.mark.parametrize(
    "graph",
    [
        vfg.Graph.star(dict.fromkeys("abcd", 1), width=3),
        vfg.Graph.star({"s": 2, "t": 2}, width=3),
        vfg.Graph.tree(dict.fromkeys("abcd", 1), arity=2, width=2),
    ],
    ids=["star", "sections", "tree"],
)
def test_supported_graphs_get_nonlinear_members(graph):
    frame = frame_of(numbers(rows=40)[1])
    model = fitted(frame, graph=graph, **(LIGHTLY | {"width": None}))
    assert len(model.member_models) == 2
    assert model.means(*model.encode(frame)).isfinite().all()


def test_rows_without_evidence_are_not_learned_from():
    frame = frame_of(numbers()[1])
    empty = pd.DataFrame(np.nan, index=range(30), columns=frame.columns)
    alone = fitted(frame, bend=False)
    longer = fitted(pd.concat([frame, empty]), bend=False)
    assert dumps(alone) == dumps(longer)


def test_very_long_tables_are_learned_from_some_rows(monkeypatch):
    monkeypatch.setattr("vfg.imputation.fitting.MOST_ROWS", 30)
    frame = frame_of(numbers(rows=200)[1])
    few, other, again = (fitted(frame, bend=False, seed=seed) for seed in (0, 1, 0))
    values = few.encode(frame)
    assert torch.equal(few.means(*values), again.means(*values))
    assert not torch.allclose(few.means(*values), other.means(*values), atol=1e-3)


def test_refitting_keeps_the_given_model_and_goes_on_from_it():
    frame = frame_of(numbers()[1])
    first = fitted(frame, **LIGHTLY)
    before = dumps(first)
    second = refitted(first, frame, **LIGHTLY)
    assert dumps(first) == before
    assert dumps(second) != before
    assert len(second.member_models) == len(first.member_models)
    start, end = first.member_models[0].state_dict(), second.member_models[0].state_dict()
    moved = max(float((start[k].double() - end[k].double()).abs().max()) for k in start)
    fresh = fitted(frame, **LIGHTLY, seed=5).member_models[0].state_dict()
    away = max(float((start[k].double() - fresh[k].double()).abs().max()) for k in start)
    assert 0.0 < moved < away


def unreached(described):
    """A description but for how far cells are filled, which new rows say."""
    ends = ("low_reach", "high_reach", "least", "greatest")
    parts = [{k: v for k, v in part.items() if k not in ends} for part in described["parts"]]
    return described | {"parts": parts}


def test_refitting_learns_from_the_new_rows():
    gappy = numbers(rows=120)[1]
    few, all_rows = frame_of(gappy[:30]), frame_of(gappy)
    first = fitted(few, bend=False)
    second = refitted(first, all_rows, bend=False)
    assert unreached(second.described) == unreached(first.described)
    *kept, parts = learning.fit_parts(open_table(all_rows), vfg.ImputerSettings(bend=False), first)
    direct = vfg.TableModel()
    direct._assemble(*kept, parts)
    np.testing.assert_allclose(second.fill(all_rows), direct.fill(all_rows), atol=1e-9)
    assert not np.allclose(second.fill(all_rows), first.fill(all_rows), atol=1e-3)


def test_refitting_can_add_nonlinear_members():
    frame = frame_of(numbers()[1])
    first = fitted(frame, bend=False, width=4)
    second = refitted(first, frame, **LIGHTLY)
    assert (len(first.member_models), len(second.member_models)) == (0, 2)


def test_a_given_graph_has_no_row_mixtures():
    frame = frame_of(numbers(rows=40)[1])
    graph = vfg.Graph.star(dict.fromkeys("abcd", 1), width=3)
    with pytest.warns(UserWarning, match="width, neighbours have no effect with graph="):
        model = fitted(frame, graph=graph, neighbours=3, **LIGHTLY)
    assert not model.row_mixture_models
    assert model.weights[3:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("number", [0, 1, 5])
def test_there_are_as_many_neighbours_as_are_asked_for(number):
    frame = frame_of(numbers(rows=40)[1])
    model = fitted(frame, neighbours=number, **LIGHTLY)
    assert len(model.row_mixture_models) == number
    assert model.means(*model.encode(frame)).isfinite().all()


def test_refitting_has_the_new_rows_as_neighbours():
    gappy = numbers(rows=120)[1]
    few, all_rows = frame_of(gappy[:30]), frame_of(gappy)
    first = fitted(few, **LIGHTLY)
    second = refitted(first, all_rows, **LIGHTLY)
    assert {len(near.centres) for near in first.row_mixture_models} == {30}
    assert {len(near.centres) for near in second.row_mixture_models} == {120}
