"""Transport: values of one node taken to another along the edges of a tree (Lemma 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.graph import Edge
from vfg.inference.evidence import as_value
from vfg.inference.propagation import evaluating
from vfg.inputs import ArrayLike, check_values, scaled

if TYPE_CHECKING:
    from vfg.model import VFG


@torch.no_grad()
def transport(model: VFG, value: ArrayLike, source: str, target: str) -> Tensor:
    r"""Take values of one node to another through their closest common ancestor.

    $\hat x^{(j)} = f_{(a,j)}(f_{(i,a)}(x^{(i)}))$ on a tree, with a the closest common ancestor.
    With mean aggregation this is what `infer` says if nothing but the source is observed; it
    differs if more is observed, or if nodes weigh their messages against a prior.

    Args:
        model: a model whose graph is a tree.
        value: values of the source without gaps: `(rows, width)`, or `(rows,)` or a number if its
            width is 1.
        source: a leaf or latent node.
        target: a leaf or latent node.

    Returns:
        Values of the target, `(rows, width)`, in data units if it is a leaf.

    Raises:
        ValueError: if the graph is no tree, a node is unknown or a value is missing.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> transport(model, [1.0, 2.0], "a", "b").flatten()
        tensor([1., 2.], dtype=torch.float64)
    """
    graph = model.graph
    _check_tree(model)
    graph.node(source), graph.node(target)
    given = as_value(model, source, value)
    if not bool(given.isfinite().all()):
        raise ValueError(f"transport needs all of {source!r}, but its value has NaN or infinities")
    kind = given if given.is_floating_point() else torch.zeros((), device=given.device)
    state = _entered(model, source, given)
    ancestor = graph.common_ancestor(source, target)
    with evaluating(model):
        for edge in graph.path(source, ancestor):
            state = _up(model, edge, state)
        for edge in reversed(graph.path(target, ancestor)):
            state = _down(model, edge, state)
    return _left(model, target, state).to(kind)


def _check_tree(model: VFG) -> None:
    graph = model.graph
    if graph.is_tree:
        return
    several = [node.name for node in graph.nodes if len(graph.parents(node.name)) > 1]
    why = (
        f"node {several[0]!r} has the parents {', '.join(map(repr, graph.parents(several[0])))}"
        if several
        else f"there are several roots: {', '.join(map(repr, graph.roots))}"
    )
    raise ValueError(f"transport is defined on trees only, but {why}; use infer")


def _entered(model: VFG, node: str, value: Tensor) -> Tensor:
    """A value in data units as a state `(rows, width)`."""
    some = next(model.parameters())
    if node not in model.sections.positions:
        return value.to(some)
    columns = list(model.sections.positions[node])
    table = value.new_zeros((len(value), model.sections.columns), dtype=value.dtype)
    table[:, columns] = value
    seen = torch.zeros_like(table, dtype=torch.bool)
    seen[:, columns] = True
    check_values(model, table, seen)
    states = model._leaf_states(*scaled(model, table, seen))
    block, row = model.passing.schedule.place[node]
    return states[block].value[row]


def _left(model: VFG, node: str, state: Tensor) -> Tensor:
    """A state in data units."""
    if node not in model.sections.positions:
        return state
    schedule = model.passing.schedule
    states = [
        state.new_zeros((len(block.nodes), len(state), block.width)) for block in schedule.blocks
    ]
    block, row = schedule.place[node]
    states[block][row] = state
    table = model.scaling.undo(model.sections.join(model._leaf_means(states)))
    return table[:, list(model.sections.positions[node])]


def _place_of(model: VFG, edge: Edge) -> tuple[int, int]:
    """The group of an edge and its place there."""
    for index, group in enumerate(model.passing.schedule.groups):
        if edge in group.edges:
            return index, group.edges.index(edge)
    raise RuntimeError(f"edge {edge.name!r} is in no group")


def _up(model: VFG, edge: Edge, state: Tensor) -> Tensor:
    """f of one edge; coordinates of the parent that it does not cover get their default."""
    index, k = _place_of(model, edge)
    passing, group = model.passing, model.passing.group(index)
    members = len(passing.schedule.groups[index].edges)
    source = state.expand(members, *state.shape)
    source = source if group.lifting is None else group.lifting.lift(source)
    value = (source if group.flow is None else group.flow(source)[0])[k]
    if group.coordinates is None:
        return value
    block, row = passing.schedule.place[edge.parent]
    whole = passing.default(block, model._prior_means(None))[row].expand(len(value), -1).clone()
    whole[:, group.coordinates.chosen[k]] = value
    return whole


def _down(model: VFG, edge: Edge, state: Tensor) -> Tensor:
    """f⁻¹ of one edge."""
    index, k = _place_of(model, edge)
    group = model.passing.group(index)
    members = len(model.passing.schedule.groups[index].edges)
    arrived = state if group.coordinates is None else state[:, group.coordinates.chosen[k]]
    return group.return_(arrived.expand(members, *arrived.shape))[k]
