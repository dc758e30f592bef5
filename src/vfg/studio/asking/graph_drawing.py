"""The graph as SVG: boxes for leaves with their distributions, pills for latent nodes.

The layout is that of `vfg.plots.graph`; crowded layers stand in several rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

import vfg
from vfg.graph import Edge, Graph, Node
from vfg.imputation.table_model import TableModel
from vfg.inference.variables import percent
from vfg.plots.graphs import LETTERS_SHOWN, dag_places, positions
from vfg.plots.style import shorten
from vfg.studio.asking.cards import HEIGHT, WIDTH, density_marks
from vfg.studio.asking.model import Answered, OpenModel
from vfg.studio.markup import Markup, element

MANY_LEAVES = 40
"""Beyond this many leaves, siblings are drawn as groups."""
GROUP = 8
"""The fewest siblings that become a group."""
STATES = 4
"""How many categories are listed in a box."""
LETTER, LINE, PAD = 7.2, 15, 14
"""Width of a letter and height of a line at a font size of 12 pixels; room around boxes."""
POINT = (24.0, 12.0)
"""Room for a point that an edge passes between other nodes."""
LAYER, CLOSE_LAYER = 52, 26
"""Pixels between layers, and between those of a deep graph, which should not become too small."""
DEEP = 6
"""From how many layers on a graph is deep."""


@dataclass(frozen=True)
class View:
    """What is drawn: a graph with groups as single nodes, or the network behind families."""

    graph: Graph
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)  # the leaves of each
    is_network: bool = False  # whether edges lead from causes to effects
    alone: tuple[str, ...] = ()  # variables of a network without any edge
    undirected: tuple[tuple[str, str], ...] = ()  # edges of a network that may lead either way

    @cached_property
    def _layout(self) -> tuple[dict[str, tuple[float, float]], dict[tuple[str, str], list[str]]]:
        """Positions of nodes and of points that edges of a network pass, and what each passes."""
        if not self.is_network:
            return positions(self.graph), {}
        pairs = [(edge.parent, edge.child) for edge in self.graph.edges]
        return dag_places([node.name for node in self.graph.nodes], pairs)

    def waypoints(self, edge: Edge) -> list[str]:
        """The points between the ends of an edge."""
        return self._layout[1].get((edge.parent, edge.child), [])[1:-1]

    @cached_property
    def places(self) -> dict[str, tuple[float, float]]:
        """Positions as in the plots; variables without edges stand at the right."""
        result = self._layout[0]
        right = max(x for x, _ in result.values()) + 1.0
        return result | {name: (right + k, 0.0) for k, name in enumerate(self.alone)}


@lru_cache(maxsize=64)
def view_of(graph: Graph, expanded: tuple[str, ...] = ()) -> View:
    """What is drawn of a graph, with some groups shown leaf by leaf.

    Example:
        >>> view_of(Graph.star({f"x{k}": 1 for k in range(300)}, width=4)).groups.keys()
        dict_keys(['x0 … x299'])
    """
    network = graph.network
    if network is not None and network.edges:
        names = dict.fromkeys(name for pair in network.edges for name in pair)
        edges = [Edge(effect, cause) for cause, effect in network.edges]
        alone = tuple(leaf for leaf in graph.leaves if leaf not in names)
        shape = Graph([Node(name, 1) for name in names], edges)
        return View(shape, {}, True, alone, network.undirected)
    hidden = {
        f"{leaves[0]} … {leaves[-1]}": (leaves, inner) for leaves, inner in leaf_groups(graph)
    }
    groups = {name: parts for name, parts in hidden.items() if name not in expanded}
    shown = {node: name for name, parts in groups.items() for part in parts for node in part}
    nodes = dict.fromkeys(shown.get(node.name, node.name) for node in graph.nodes)
    drawn = {
        (shown.get(edge.child, edge.child), shown.get(edge.parent, edge.parent)): edge.kind
        for edge in graph.edges
    }  # one edge for all members of a group
    edges = [Edge(*ends, kind=kind) for ends, kind in drawn.items() if ends[0] != ends[1]]
    leaves = {name: parts[0] for name, parts in groups.items()}
    return View(Graph([Node(name, 1) for name in nodes], edges), leaves)


def leaf_groups(graph: Graph) -> list[tuple[list[str], list[str]]]:
    """Leaves with the same parents, or below one node of a tree, and the latent nodes between."""
    if len(graph.leaves) <= MANY_LEAVES:
        return []
    siblings: dict[tuple[str, ...], list[str]] = {}
    for leaf in graph.leaves:
        siblings.setdefault(graph.parents(leaf), []).append(leaf)
    result: list[tuple[list[str], list[str]]] = [
        (members, []) for members in siblings.values() if len(members) >= GROUP
    ]
    if result or not graph.is_tree:
        return result
    for layer in graph.layers[1:-1]:
        if len(layer) <= MANY_LEAVES:
            return [_below(graph, name) for name in layer]
    return []


def _below(graph: Graph, name: str) -> tuple[list[str], list[str]]:
    """The leaves below a node of a tree, and the latent nodes from there up to the node."""
    children = graph.children(name)
    if not children:
        return [name], []
    parts = [_below(graph, child) for child in children]
    leaves = [leaf for part, _ in parts for leaf in part]
    return leaves, [name, *(node for _, inner in parts for node in inner)]


def place_nodes(
    view: View, sizes: Mapping[str, tuple[float, float]], width: float
) -> dict[str, tuple[float, float]]:
    """Centres of all nodes in pixels, y downwards; a layer that is too wide stands in rows."""
    places = view.places
    layers: dict[float, list[str]] = {}
    for name in sorted(places, key=lambda name: places[name]):
        layers.setdefault(places[name][1], []).append(name)
    needed = max(_pixels_per_unit(names, places, sizes) for names in layers.values())
    across = [x for x, _ in places.values()]
    span = max(across) - min(across)
    widest = max(size[0] for size in sizes.values())
    # Nothing is needed where every layer has one node.
    scale = min(needed or 1.0, max(width - widest, widest) / (span or 1.0))
    result, bottom = {}, 0.0
    for y in sorted(layers):
        rows = _rows_needed(layers[y], places, sizes, scale)
        step = max(sizes[name][1] for name in layers[y]) + PAD
        for k, name in enumerate(layers[y]):
            up = bottom - (rows - 0.5 - k % rows) * step
            result[name] = (round(places[name][0] * scale, 1), round(up, 1))
        bottom -= rows * step + (LAYER if len(layers) < DEEP else CLOSE_LAYER)
    return result


def _pixels_per_unit(
    names: list[str],
    places: Mapping[str, tuple[float, float]],
    sizes: Mapping[str, tuple[float, float]],
) -> float:
    """How many pixels a unit of the layout needs so that a layer fits into one row."""
    return max((_room(a, b, sizes) / _gap(a, b, places) for a, b in pairwise(names)), default=0.0)


def _rows_needed(
    names: list[str],
    places: Mapping[str, tuple[float, float]],
    sizes: Mapping[str, tuple[float, float]],
    scale: float,
) -> int:
    """Into how many rows a layer is dealt out so that no two nodes of a row overlap."""
    for rows in range(1, len(names)):
        pairs = zip(names, names[rows:], strict=False)
        if all(_gap(a, b, places) * scale >= _room(a, b, sizes) - 1e-6 for a, b in pairs):
            return rows
    return len(names)


def _gap(a: str, b: str, places: Mapping[str, tuple[float, float]]) -> float:
    return places[b][0] - places[a][0]


def _room(a: str, b: str, sizes: Mapping[str, tuple[float, float]]) -> float:
    """The distance between the centres of two nodes that stand side by side."""
    return (sizes[a][0] + sizes[b][0]) / 2.0 + PAD


def graph_svg(
    answered: Answered,
    width: float,
    selected: str = "",
    expanded: tuple[str, ...] = (),
    distributions: bool = True,
) -> Markup:
    """The graph with the distributions of its leaves."""
    model = answered.model
    view = view_of(model.graph, expanded)
    names = [*(node.name for node in view.graph.nodes), *view.alone]
    boxes = {name: _Box(answered, view, name, distributions) for name in names}
    sizes = dict.fromkeys(view.places, POINT)
    sizes |= {name: (box.width, box.height) for name, box in boxes.items()}
    places = place_nodes(view, sizes, width)
    arrow = f"arrow-{width:g}"
    pointing = f"url(#{arrow})" if view.is_network else None
    lines = [
        _edge_line(
            edge,
            [places[name] for name in (edge.parent, *view.waypoints(edge), edge.child)],
            [sizes[name][1] for name in (edge.parent, edge.child)],
            None if (edge.parent, edge.child) in view.undirected else pointing,
            cut=answered.intervened and edge.child in answered.evidence,
        )
        for edge in view.graph.edges
    ]
    left = min(x - sizes[name][0] / 2 for name, (x, _) in places.items()) - PAD
    right = max(x + sizes[name][0] / 2 for name, (x, _) in places.items()) + PAD
    top = min(y - sizes[name][1] / 2 for name, (_, y) in places.items()) - PAD
    wide, tall = round(right - left), round(PAD - top)
    head = element("path", d="M0 0L8 4L0 8Z", class_="arrow")
    marker = element(
        "marker", head, id=arrow, markerWidth=8, markerHeight=8, refX=8, refY=4, orient="auto"
    )
    return element(
        "svg",
        element("defs", marker),
        *lines,
        *(box.draw(places[name], name == selected) for name, box in boxes.items()),
        viewBox=f"{left:g} {top:g} {wide} {tall}",
        class_="graph",
        style=f"max-width:{1.25 * wide:g}px",
        role="group",
        aria_label=f"Graph with {len(names)} nodes and {len(lines)} edges",
    )


def _edge_line(
    edge: Edge,
    points: Sequence[tuple[float, float]],
    heights: Sequence[float],
    arrow: str | None,
    *,
    cut: bool = False,
) -> Markup:
    """From the bottom of the node above to the top of the node below; `cut` by an intervention."""
    (x1, y1), (x2, y2) = points[0], points[-1]
    route = [(x1, y1 + heights[0] / 2), *points[1:-1], (x2, y2 - heights[1] / 2)]
    kind = f"edge {edge.kind}{' cut' if cut else ''}"
    if len(route) == 2:
        ends = dict(zip(("x1", "y1", "x2", "y2"), (*route[0], *route[1]), strict=True))
        return element("line", **ends, class_=kind, marker_end=arrow)
    steps = [f"M{route[0][0]:g} {route[0][1]:g}"]
    for (x, y), (u, v) in pairwise(route):
        middle = (y + v) / 2
        steps.append(f"C{x:g} {middle:g} {u:g} {middle:g} {u:g} {v:g}")
    return element("path", d="".join(steps), class_=kind, marker_end=arrow)


def _cut(name: str) -> str:
    """A name that fits into a box."""
    return shorten(name, LETTERS_SHOWN)


class _Box:
    """The box of a node: what it holds, and how large it is."""

    def __init__(self, answered: Answered, view: View, name: str, distributions: bool) -> None:
        model = answered.model
        self.name, self.members = name, view.groups.get(name)
        self.word = "set to " if answered.intervened else "given as "
        held = [] if self.members else model.variables_of(name)
        is_shown = distributions and len(held) == 1 and not held[0].idle
        self.variable = held[0].name if is_shown else None
        self.is_leaf = name in model.graph.leaves or bool(self.members)
        self.given = any(variable.name in answered.evidence for variable in held)
        self.posterior = answered[self.variable] if self.variable else None
        self.baseline = answered.marginal[self.variable] if self.variable else None
        joins = not self.is_leaf and len(model.graph.children(name)) > 1
        self.kind = "group" if self.members else "leaf" if self.is_leaf else "latent"
        self.classes = f"node {self.kind}{' aggregation' if joins else ''}"
        self.lines = [_cut(name)] + ([f"{len(held)} columns"] if len(held) > 1 else [])
        if self.members:
            first, last = self.members[0], self.members[-1]
            self.lines = [f"{len(self.members)} leaves", _cut(first), "…", _cut(last)]

    @property
    def states(self) -> list[int]:
        """The likeliest categories of a choice."""
        shares = self.posterior.probabilities if self.posterior is not None else np.zeros(0)
        return [int(k) for k in np.argsort(-shares, kind="stable")[:STATES]]

    @property
    def width(self) -> float:
        least = 64.0 if self.posterior is None else 118.0
        return max(least, LETTER * max(map(len, self.lines)) + 20.0)

    @property
    def height(self) -> float:
        below = 0.0
        if self.posterior is not None:
            is_choice = self.posterior.variable.kind == "choice"
            below = 1.0 * LINE * len(self.states) if is_choice else 26.0
        return LINE * len(self.lines) + below + 12.0

    def draw(self, place: tuple[float, float], selected: bool) -> Markup:
        """The node at its place."""
        states = {"given": self.given, "chosen": selected}
        classes = [self.classes, *(word for word, holds in states.items() if holds)]
        top = -self.height / 2
        box = element(
            "rect", x=-self.width / 2, y=top, width=self.width, height=self.height,
            rx=6 if self.is_leaf else 15,
        )  # fmt: skip
        texts = [
            element("text", line, x=0, y=top + LINE * (k + 1) + 1, class_="label")
            for k, line in enumerate(self.lines)
        ]
        return element(
            "g",
            element("title", self.name),
            box,
            *texts,
            *self._distribution(top + LINE * len(self.lines) + 6),
            transform=f"translate({place[0]:g} {place[1]:g})",
            class_=" ".join(classes),
            tabindex="0",
            role="button",
            aria_label=self._words(),
            data_node=self.name,
            data_kind=self.kind,
        )

    def _distribution(self, top: float) -> list[Markup]:
        if self.posterior is None or self.baseline is None:
            return []
        left, wide = -self.width / 2 + 8, self.width - 16
        if self.posterior.variable.kind != "choice":
            box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "preserveAspectRatio": "none"}
            marks = density_marks(self.posterior, self.baseline)
            return [
                element("svg", *marks, x=left, y=top, width=wide, height=24, class_="mini", **box)
            ]
        return [self._state(k, top + LINE * row, left, wide) for row, k in enumerate(self.states)]

    def _state(self, k: int, top: float, left: float, wide: float) -> Markup:
        """A category with its probability; a click gives it as evidence."""
        assert self.posterior is not None
        share = float(self.posterior.probabilities[k])
        letters = int((wide - 34) / 6.4)
        name = str(self.posterior.variable.categories[k])
        return element(
            "g",
            element("rect", x=left, y=top, width=wide, height=LINE - 2, class_="room"),
            element("rect", x=left, y=top, width=round(share * wide, 1), height=LINE - 2),
            element("text", name[:letters], x=left + 3, y=top + 10),
            element("text", percent(share), x=left + wide - 2, y=top + 10, class_="share"),
            class_="state",
            data_set=self.variable,
            data_value=k,
        )

    def _words(self) -> str:
        if self.members:
            return f"group {self.name}: {len(self.members)} leaves; choose it to see them"
        if self.posterior is None:
            return f"{'leaf' if self.is_leaf else 'latent node'} {self.name}"
        return f"leaf {self.name}: {self.word if self.given else ''}{self.posterior.text}"


def node_details(model: OpenModel, name: str, consistency: Mapping[str, float]) -> Markup:
    """Width, flow and consistency of a node in words."""
    graph = model.graph
    node, children = graph.node(name), graph.edges_into(name)
    rows = [("node", name), ("width", str(node.width))]
    if not children:
        held = model.variables_of(name)
        kinds = ", ".join(dict.fromkeys(v.kind for v in held)) or "–"
        rows.append(("holds", f"{len(held)} × {kinds}" if len(held) > 1 else kinds))
    elif len(children) > 1:
        rows.append(("joins", f"{len(children)} children by {aggregation(model, name)}"))
    for edge in graph.edges_from(name)[:3]:
        rows.append((f"to {edge.parent}", flow(model, edge)))
    if name in consistency:
        rows.append(("consistency", f"mean distance {consistency[name]:.3g}"))
    elif not graph.edges_from(name):
        rows.append(("place", "root"))
    return element(
        "dl",
        *(
            element(tag, words)
            for row in rows
            for tag, words in zip(("dt", "dd"), row, strict=True)
        ),
    )


def aggregation(model: OpenModel, node: str) -> str:
    """How a latent node joins its children."""
    own = model.graph.node(node).aggregation
    if own is None and isinstance(model.model, vfg.VFG):
        return str(model.model.aggregation)
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
