"""Copies of a graph side by side: the members of an ensemble run as one stacked model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vfg.graph import Graph
from vfg.model import VFG


def forest(graph: Graph, copies: int) -> Graph:
    """A graph of several unconnected copies of a graph, with nodes `"<copy>/<node>"`.

    The columns of a copy follow those of the one before; the leaves of the graph name theirs by
    position, or not at all.

    Example:
        >>> forest(Graph.star({"a": 1, "b": 1}, width=2), 2).leaves
        ('0/a', '0/b', '1/a', '1/b')
    """
    width = sum(graph.sections.values())
    nodes = [
        replace(
            node,
            name=f"{copy}/{node.name}",
            columns=node.columns and tuple(int(place) + copy * width for place in node.columns),
        )
        for copy in range(copies)
        for node in graph.nodes
    ]
    edges = [
        replace(edge, child=f"{copy}/{edge.child}", parent=f"{copy}/{edge.parent}")
        for copy in range(copies)
        for edge in graph.edges
    ]
    return Graph(nodes, edges)


def stack_models(members: Sequence[VFG]) -> VFG:
    """Stack models that differ in their parameters only into one over a `forest` of their graph.

    Every tensor of a model has its edges, nodes or columns along the first axis, so the tensors of
    the members are concatenated there. The calibration (`spread`) is not copied.

    Example:
        >>> members = [VFG(Graph.star({"a": 1, "b": 1}, width=2), seed=seed) for seed in (0, 1)]
        >>> stack_models(members).graph.roots
        ('0/root', '1/root')
    """
    first = members[0]
    graph = forest(first.graph, len(members))
    copies = range(len(members))
    described = first.to_dict()
    flows = {
        f"{copy}/{edge.child}->{copy}/{edge.parent}": described["flow"][edge.name]
        for copy in copies
        for edge in first.graph.edges
        if edge.name in described["flow"]
    }
    leaves = {f"{c}/{leaf}": spec for c in copies for leaf, spec in described["likelihood"].items()}
    description = described | {"graph": graph.to_dict(), "flow": flows, "likelihood": leaves}
    model = VFG.from_dict(description).to(next(first.parameters()))
    states = [member.state_dict() for member in members]
    tensors = {
        name: torch.cat([state[name] for state in states]) if value.ndim else value
        for name, value in states[0].items()
        if not name.startswith("spread.")
    }
    model.load_state_dict(model.state_dict() | tensors)
    return model


def unstack_models(model: VFG, members: Sequence[VFG]) -> None:
    """Copy the parameters of a stacked model to its members; the inverse of `stack_models`.

    Example:
        >>> members = [VFG(Graph.star({"a": 1, "b": 1}, width=2), seed=seed) for seed in (0, 1)]
        >>> unstack_models(stack_models(members), members)
    """
    whole = model.state_dict()
    for place, member in enumerate(members):
        own = member.state_dict()
        parts = {
            name: whole[name].chunk(len(members))[place] if value.ndim else whole[name]
            for name, value in own.items()
            if not name.startswith("spread.")
        }
        member.load_state_dict(own | parts)


def repeat_columns(table: Tensor, copies: int) -> Tensor:
    """Repeat the columns of a table, as a stacked model reads them.

    Example:
        >>> repeat_columns(torch.zeros(3, 2), 4).shape
        torch.Size([3, 8])
    """
    return table.repeat(1, copies)
