"""The schedule: what shares a call, in which order, under which names."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from strategies import graphs

import vfg
from vfg.passing.schedule import compile_schedule

FLOW = vfg.Coupling(blocks=1, hidden=2)


def scheduled(graph, aggregation="mean"):
    flows = {edge.name: FLOW for edge in graph.edges}
    treatments = {
        node.name: "gaussian" if node.name in graph.leaves else node.aggregation or aggregation
        for node in graph.nodes
    }
    return compile_schedule(graph, flows, treatments)


@settings(max_examples=30)
@given(graph=graphs())
def test_children_come_before_parents_and_siblings_are_neighbours(graph):
    schedule = scheduled(graph)
    for group in schedule.groups:
        assert group.child < group.parent
        assert list(group.parent_rows) == sorted(group.parent_rows)
        for k, edge in enumerate(group.edges):
            assert schedule.place[edge.child] == (group.child, group.child_rows[k])
            assert schedule.place[edge.parent] == (group.parent, group.parent_rows[k])
    assert [group.parent for group in schedule.groups] == sorted(
        group.parent for group in schedule.groups
    )
    names = [part.name for part in (*schedule.blocks, *schedule.groups)]
    assert len(names) == len(dict.fromkeys(names))


@pytest.mark.parametrize(
    ("graph", "groups"),
    [
        (vfg.Graph.star({f"x{i}": 1 for i in range(100)}, width=4), 1),
        (vfg.Graph.tree({f"x{i}": 2 for i in range(64)}, arity=4, width=4), 3),
        (vfg.Graph.star({"a": 1, "b": 2, "c": 1}, width=4), 2),
        (vfg.Graph.cover(7, 3), 2),  # whole sections, and two that cover 2 of 3 coordinates
    ],
)
def test_the_number_of_calls_does_not_grow_with_the_number_of_edges(graph, groups):
    assert len(scheduled(graph).groups) == groups


SCRIPT = """
import vfg
graph = vfg.Graph.from_edges(
    [("c", "q"), ("a", "p"), ("b", "p"), ("b", "q"), ("p", "r"), ("q", "r"), ("a", "r")],
    widths={"a": 1, "b": 2, "c": 1, "p": 3, "q": 3, "r": 3},
)
model = vfg.VFG(graph, flow=vfg.Coupling(blocks=1, hidden=2))
print(model.passing.schedule)
print(list(model.state_dict()))
print([float(p.sum()) for p in model.parameters()])
"""


def test_schedule_and_parameters_are_the_same_for_every_hash_seed():
    found = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "42")
    ]
    assert found[0] == found[1] == found[2]
