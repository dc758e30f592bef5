"""The order of computation: blocks of similar nodes, groups of similar edges; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vfg.flows.specs import FlowSpec
from vfg.graph import Edge, Graph


@dataclass(frozen=True)
class Block:
    """Nodes of one layer with equal width and treatment: one tensor `(nodes, batch, width)`."""

    name: str
    nodes: tuple[str, ...]
    width: int
    layer: int
    treatment: str
    """The likelihood of leaves (its description), the aggregation of latent nodes (its name)."""
    is_root: bool

    @property
    def is_leaf(self) -> bool:
        return self.layer == 0


@dataclass(frozen=True)
class Group:
    """Edges between two blocks that share shape and flow, run as one call."""

    name: str
    edges: tuple[Edge, ...]
    child: int
    parent: int
    child_rows: tuple[int, ...]
    parent_rows: tuple[int, ...]
    narrow: int
    """Width of the children."""
    wide: int
    """How many coordinates of its parent an edge covers."""
    space: int
    """Width of the space in which the flows act."""
    coordinates: tuple[tuple[int, ...], ...] | None
    flow: FlowSpec | None
    """What to build for the edges; None for identity edges."""


@dataclass(frozen=True)
class Schedule:
    """A graph as blocks and groups, in the order of the passes.

    Blocks are ordered by layer, so that each comes after all its children; groups are ordered by
    the block of their parents. Inside a group edges are sorted by parent, so that siblings are
    neighbours and sum without an index.
    """

    graph: Graph
    blocks: tuple[Block, ...]
    groups: tuple[Group, ...]
    place: Mapping[str, tuple[int, int]]
    """Block and row of every node."""

    def into(self, block: int) -> tuple[int, ...]:
        """Indices of the groups whose parents are in `block`."""
        return tuple(i for i, group in enumerate(self.groups) if group.parent == block)

    def out_of(self, block: int) -> tuple[int, ...]:
        """Indices of the groups whose children are in `block`."""
        return tuple(i for i, group in enumerate(self.groups) if group.child == block)


def compile_schedule(
    graph: Graph, flows: Mapping[str, FlowSpec], treatments: Mapping[str, str]
) -> Schedule:
    """Gather nodes into blocks and edges into groups, in every process alike.

    `flows` are by edge name; `treatments` are likelihoods of leaves, aggregations of other nodes.
    """
    blocks = _blocks(graph, treatments)
    place = {
        name: (index, row)
        for index, block in enumerate(blocks)
        for row, name in enumerate(block.nodes)
    }
    return Schedule(graph, blocks, _groups(graph, flows, treatments, blocks, place), place)


def _blocks(graph: Graph, treatments: Mapping[str, str]) -> tuple[Block, ...]:
    roots = dict.fromkeys(graph.roots)
    members: dict[tuple[int, int, str, bool], list[str]] = {}
    for layer, names in enumerate(graph.layers):
        for name in names:
            key = (layer, graph.node(name).width, treatments[name], name in roots)
            members.setdefault(key, []).append(name)
    used: dict[str, int] = {}
    return tuple(
        Block(
            _unique(f"layer{layer}_width{width}_{treatment.split('(')[0].lower()}", used),
            tuple(nodes),
            width,
            layer,
            treatment,
            is_root,
        )
        for (layer, width, treatment, is_root), nodes in members.items()
    )


def _unique(name: str, used: dict[str, int]) -> str:
    used[name] = used.get(name, 0) + 1
    return name if used[name] == 1 else f"{name}_{used[name]}"


def _groups(
    graph: Graph,
    flows: Mapping[str, FlowSpec],
    treatments: Mapping[str, str],
    blocks: tuple[Block, ...],
    place: Mapping[str, tuple[int, int]],
) -> tuple[Group, ...]:
    Key = tuple[int, int, FlowSpec | None, int, bool]
    members: dict[Key, list[tuple[Edge, tuple[int, ...] | None]]] = {}
    for parent_block in range(len(blocks)):
        for parent in blocks[parent_block].nodes:
            edges = [(edge, edge.coordinates) for edge in graph.edges_into(parent)]
            if treatments[parent] == "concatenation":
                edges = _place_side_by_side(graph, parent)
            for edge, coordinates in edges:  # None stands for all
                wide = graph.node(parent).width if coordinates is None else len(coordinates)
                narrow = graph.node(edge.child).width
                spec = flows[edge.name] if edge.kind == "flow" else None
                space = wide if spec is None else spec.space(narrow, wide)
                if narrow > space:
                    raise ValueError(
                        f"{edge.child!r} of width {narrow} is wider than the {wide} coordinates "
                        f"of {edge.parent!r} that it reaches, and an invertible edge cannot shrink "
                        "it; split the section into narrower leaves (Graph.cover does it for a "
                        f"given root width), widen {edge.parent!r}, let it concatenate its "
                        "children, or give the edge of an image flow=vfg.Bottleneck(...)"
                    )
                key = (place[edge.child][0], parent_block, spec, wide, coordinates is None)
                members.setdefault(key, []).append((edge, coordinates))
    names: dict[str, int] = {}
    return tuple(
        Group(
            name=_unique(f"{blocks[child].name}-{blocks[above].name}", names),
            edges=tuple(edge for edge, _ in own),
            child=child,
            parent=above,
            child_rows=tuple(place[edge.child][1] for edge, _ in own),
            parent_rows=tuple(place[edge.parent][1] for edge, _ in own),
            narrow=blocks[child].width,
            wide=wide,
            space=wide if spec is None else spec.space(blocks[child].width, wide),
            coordinates=tuple(chosen for _, chosen in own if chosen is not None) or None,
            flow=spec,
        )
        for (child, above, spec, wide, _), own in members.items()
    )


def _place_side_by_side(graph: Graph, parent: str) -> list[tuple[Edge, tuple[int, ...] | None]]:
    edges = graph.edges_into(parent)
    widths = [graph.node(edge.child).width for edge in edges]
    if any(edge.coordinates is not None for edge in edges):
        raise ValueError(
            f"node {parent!r} concatenates its children, so its edges may not name coordinates; "
            "use mean aggregation for that node or leave coordinates out"
        )
    if sum(widths) != graph.node(parent).width:
        raise ValueError(
            f"node {parent!r} concatenates children of widths {widths}, which needs width "
            f"{sum(widths)}, but it has width {graph.node(parent).width}; give it that width"
        )
    ends = [sum(widths[: i + 1]) for i in range(len(widths))]
    return [
        (edge, tuple(range(end - width, end)))
        for edge, width, end in zip(edges, widths, ends, strict=True)
    ]
