"""Graphs as drawings in layers: leaves at the bottom, roots on top, many leaves in groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import vfg
from vfg.graph import Graph
from vfg.graph.nodes import Edge
from vfg.imputation.table_model import TableModel
from vfg.plots.graphs import height_of, place_latent
from vfg.studio.asking.model import OpenModel
from vfg.studio.markup import Markup, element

MANY_LEAVES = 40
"""Beyond this many leaves, siblings are drawn as groups."""
GROUP = 8
"""The fewest siblings that become a group."""
LEAF_WIDTH, LEAF_HEIGHT = 96, 34
GAP_X, GAP_Y, LAYER = 14, 14, 104
NODE = 120
"""Room for a latent node."""


@dataclass(frozen=True)
class Spot:
    """Where a node, or a group of leaves, is drawn."""

    name: str
    x: float
    y: float
    members: tuple[str, ...] = ()
    """The leaves of a group; none for a single node."""


def sibling_groups(graph: Graph) -> dict[tuple[str, ...], list[str]]:
    """Leaves by their parents, in the order of the leaves."""
    found: dict[tuple[str, ...], list[str]] = {}
    for leaf in graph.leaves:
        found.setdefault(tuple(graph.parents(leaf)), []).append(leaf)
    return found


def place_nodes(graph: Graph, per_row: int = 10, expanded: Iterable[str] = ()) -> list[Spot]:
    """Where everything is drawn.

    Args:
        graph: what to draw.
        per_row: about how many leaves stand side by side; more are stacked in rows.
        expanded: groups that are shown leaf by leaf.

    Returns:
        Leaves or groups of leaves, then latent nodes; y grows downwards.

    Example:
        >>> [(spot.name, spot.y) for spot in place_nodes(Graph.star({"a": 1, "b": 1}))]
        [('a', 0.0), ('b', 0.0), ('root', -104.0)]
    """
    opened = dict.fromkeys(expanded)
    blocks = []
    for members in sibling_groups(graph).values():
        folded = len(graph.leaves) > MANY_LEAVES and len(members) >= GROUP
        blocks.append((members, folded and group_name(members) not in opened))
    drawn = sum(1 if folded else len(members) for members, folded in blocks)
    found: list[Spot] = []
    left = 0.0
    for members, folded in blocks:
        if folded:
            centre = left + LEAF_WIDTH / 2
            found.append(Spot(group_name(members), centre, 0.0, tuple(members)))
            left += LEAF_WIDTH + 2 * GAP_X
            continue
        columns = _columns(len(members), drawn, per_row)
        for k, leaf in enumerate(members):
            x = left + (k % columns) * (LEAF_WIDTH + GAP_X) + LEAF_WIDTH / 2
            found.append(Spot(leaf, x, (k // columns) * (LEAF_HEIGHT + GAP_Y) * 1.0))
        left += min(columns, len(members)) * (LEAF_WIDTH + GAP_X) + GAP_X
    return [*found, *_latent_spots(graph, found)]


def _columns(count: int, drawn: int, per_row: int) -> int:
    """How many of some siblings stand side by side, their rows about equally long."""
    if drawn <= per_row:
        return count
    most = max(1, round(per_row * count / drawn))
    return math.ceil(count / math.ceil(count / most))


def group_name(members: Sequence[str]) -> str:
    """What a group of leaves is called."""
    return f"{members[0]} … {members[-1]}"


def _latent_spots(graph: Graph, leaves: Sequence[Spot]) -> list[Spot]:
    """Latent nodes, placed as in `vfg.plots.graph`."""
    across = place_latent(
        graph, {name: spot.x for spot in leaves for name in (spot.members or (spot.name,))}, NODE
    )
    return [
        Spot(node, across[node], -LAYER * height_of(graph, node))
        for layer in graph.layers[1:]
        for node in layer
    ]


def elements(
    model: OpenModel,
    per_row: int = 10,
    expanded: Iterable[str] = (),
    consistency: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Nodes and edges as cytoscape draws them."""
    graph = model.graph
    placed = place_nodes(graph, per_row, expanded)
    shown = {name: spot.name for spot in placed for name in (spot.members or (spot.name,))}
    distances = consistency or {}
    nodes = [_node(model, spot, distances) for spot in placed]
    edges = {}
    for edge in graph.edges:
        ends = shown[edge.child], shown[edge.parent]
        edges[ends] = {
            "data": {"id": f"{ends[0]}->{ends[1]}", "source": ends[0], "target": ends[1]},
            "classes": edge.kind,
        }
    return [*nodes, *edges.values()]


def _node(model: OpenModel, spot: Spot, consistency: Mapping[str, float]) -> dict[str, Any]:
    graph = model.graph
    if spot.members:
        kind, label = "group", f"{spot.name}\n{len(spot.members)} leaves"
        details = element(
            "dl", *_pair("group", f"{len(spot.members)} leaves; choose it to see them all")
        )
    else:
        children = graph.edges_into(spot.name)
        leaf = spot.name in graph.leaves
        kind = "leaf" if leaf else "aggregation" if len(children) > 1 else "latent"
        label, details = spot.name, node_details(model, spot.name, consistency)
    return {
        "data": {"id": spot.name, "label": label, "kind": kind, "details": str(details)},
        "position": {"x": spot.x, "y": spot.y},
        "classes": kind,
    }


def node_details(model: OpenModel, name: str, consistency: Mapping[str, float]) -> Markup:
    """Width, flow and consistency of a node in words."""
    graph = model.graph
    node, children = graph.node(name), graph.edges_into(name)
    rows = [_pair("node", name), _pair("width", str(node.width))]
    if not children:
        held = model.variables_of(name)
        kinds = ", ".join(dict.fromkeys(v.kind for v in held)) or "–"
        rows.append(_pair("holds", f"{len(held)} × {kinds}" if len(held) > 1 else kinds))
    elif len(children) > 1:
        rows.append(_pair("joins", f"{len(children)} children by {aggregation(model, name)}"))
    for edge in graph.edges_from(name)[:3]:
        rows.append(_pair(f"to {edge.parent}", flow(model, edge)))
    if name in consistency:
        rows.append(_pair("consistency", f"off by {consistency[name]:.3g} on average"))
    elif not graph.edges_from(name):
        rows.append(_pair("place", "root"))
    return element("dl", *[part for row in rows for part in row])


def aggregation(model: OpenModel, node: str) -> str:
    """How a latent node joins its children."""
    own = model.graph.node(node).aggregation
    if isinstance(model.model, vfg.VFG):
        return own or str(model.model.aggregation)
    return own or "gaussian"


def flow(model: OpenModel, edge: Edge) -> str:
    """What an edge carries."""
    own = model.model
    if edge.kind == "identity":
        return "identity"
    if isinstance(own, TableModel) and len(own.members):
        beside = f" and {len(own.mixtures)} mixtures" if len(own.mixtures) else ""
        return f"couplings, {len(own.members)} members{beside}"
    if not isinstance(own, vfg.VFG):
        return "linear-Gaussian"
    spec = own.flow_specs.get(f"{edge.child}->{edge.parent}")
    if spec is None:
        return "identity"
    sizes = [f"{k} {v}" for k, v in spec.to_dict().items() if k in ("blocks", "hidden")]
    return " ".join([spec.name, *sizes])


def _pair(term: str, text: str) -> tuple[Markup, Markup]:
    return element("dt", term), element("dd", text)


COLOURS = {
    "light": {"ink": "#1b1e24", "soft": "#5a616c", "surface": "#ffffff", "line": "#c3c8d0",
              "accent": "#3554d1", "tint": "#e6eafb", "on": "#ffffff"},
    "dark": {"ink": "#e8eaee", "soft": "#a7aeb9", "surface": "#1d2026", "line": "#4a515d",
             "accent": "#8fa6ff", "tint": "#2a3152", "on": "#12141a"},
}  # fmt: skip
"""The page's colours, which a canvas cannot read from a style sheet."""


def stylesheet(theme: str) -> list[dict[str, Any]]:
    """How nodes and edges look in the light or the dark."""
    ink = COLOURS[theme]
    node = {
        "label": "data(label)",
        "font-family": "system-ui, Segoe UI, Roboto, Inter, Helvetica, Arial, sans-serif",
        "font-size": 13,
        "color": ink["ink"],
        "text-valign": "center",
        "text-halign": "center",
        "background-color": ink["surface"],
        "border-color": ink["line"],
        "border-width": 1.5,
    }
    leaf = {
        "shape": "round-rectangle",
        "width": LEAF_WIDTH,
        "height": LEAF_HEIGHT,
        "text-wrap": "ellipsis",
        "text-max-width": f"{LEAF_WIDTH - 12}px",
    }
    group = {"text-wrap": "wrap", "height": 48, "border-style": "dashed", "font-size": 12}
    aggregation = {"background-color": ink["tint"], "border-color": ink["accent"],
                   "border-style": "double", "border-width": 5}  # fmt: skip
    given = {"background-color": ink["accent"], "border-color": ink["accent"], "color": ink["on"]}
    return [
        {"selector": "node", "style": node},
        {"selector": ".leaf, .group", "style": leaf},
        {"selector": ".group", "style": group},
        {"selector": ".latent, .aggregation", "style": {"width": 64, "height": 64, "font-size": 12,
         "text-wrap": "ellipsis", "text-max-width": "96px"}},
        {"selector": ".aggregation", "style": aggregation},
        {"selector": "edge", "style": {"width": 1.2, "line-color": ink["line"],
         "curve-style": "straight", "opacity": 0.9}},
        {"selector": ".identity", "style": {"line-style": "dashed"}},
        {"selector": "node.chosen, node:selected", "style": {"border-color": ink["accent"],
         "border-width": 3, "border-style": "solid"}},
        {"selector": "node.given", "style": given},
    ]  # fmt: skip
