"""Pure functions to nodes and edges: from shapes, networks, edge lists, dictionaries, networkx."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vfg.graph.checks import find_cycle, suggestion
from vfg.graph.nodes import Edge, Network, Node, first_repeated

if TYPE_CHECKING:
    import networkx


Sections = Mapping[str, int] | Sequence[Node | tuple[str, int]]
Parts = tuple[list[Node], list[Edge]]
Grid = list[list[int]]

NARROWEST, LARGEST = 8, 16
"""Least and largest default width of nodes over narrow sections. At 8 the paper's synthetic columns
fold; up to 16 every column of a table has a direction of its own, and a step stays cheap."""


def section_nodes(sections: Sections) -> list[Node]:
    """The leaves of sections, which are given as widths by name, as pairs or as nodes.

    Example:
        >>> [leaf.width for leaf in section_nodes({"a": 2, "b": 3})]
        [2, 3]
    """
    items: Any = sections.items() if isinstance(sections, Mapping) else sections
    form = "a section must be a Node or a pair (name, width)"
    leaves = [item if isinstance(item, Node) else Node(*pair(item, form)) for item in items]
    if not leaves:
        raise ValueError("there are no sections; pass at least one, such as {'a': 2}.")
    repeated = first_repeated(leaf.name for leaf in leaves)
    if repeated is not None:
        raise ValueError(f"section {repeated!r} appears twice; give each section its own name.")
    return leaves


def group_nodes(
    leaves: Sequence[Node], groups: Sequence[Sequence[int]], width: int | None, root: str = "root"
) -> Parts:
    """The nodes, leaves first, and edges of a tree from groups, bottom up; the last is the root's.

    Groups refer to leaves by position and to group k by `len(leaves) + k`. Without `width` inner
    nodes have the `lifted_width`; `root` gets underscores if a leaf has that name.

    Example:
        >>> nodes, edges = group_nodes([Node("a", 1), Node("b", 2)], [(0, 1)], width=None)
        >>> nodes[-1].width, [edge.name for edge in edges]
        (8, ['a->root', 'b->root'])
    """
    width = lifted_width([leaf.width for leaf in leaves]) if width is None else width
    names, heights = [leaf.name for leaf in leaves], [0] * len(leaves)
    taken = dict.fromkeys(names)
    root = unique_name(root, taken)
    sizes: Counter[int] = Counter()
    edges = []
    for group in groups:
        heights.append(1 + max(heights[member] for member in group))
        sizes[heights[-1]] += 1
        last = len(names) + 1 == len(leaves) + len(groups)
        names.append(
            root if last else unique_name(f"node{heights[-1]}_{sizes[heights[-1]]}", taken)
        )
        edges += [Edge(names[member], names[-1]) for member in group]
    return [*leaves, *(Node(name, width) for name in names[len(leaves) :])], edges


def lifted_width(widths: Sequence[int]) -> int:
    """The default width of latent nodes: as many as there are columns, from 8 to 16.

    A section that keeps its own width cannot be folded; in a wider space it can. It is never less
    than the widest section.

    Example:
        >>> lifted_width([2, 2]), lifted_width([1] * 11), lifted_width([196] * 4)
        (8, 11, 196)
    """
    return max(max(widths), min(max(sum(widths), NARROWEST), LARGEST))


def star(sections: Sections, width: int | None, root: str) -> Parts:
    """Put one root over all sections."""
    leaves = section_nodes(sections)
    if root in [leaf.name for leaf in leaves]:
        raise ValueError(f"the name {root!r} is taken by a section; choose another with root=.")
    return group_nodes(leaves, [range(len(leaves))], width, root)


def tree(sections: Sections, arity: int, width: int | None) -> Parts:
    """Group neighbouring sections `arity` at a time, up to one root."""
    check_arity(arity)
    leaves = section_nodes(sections)
    return group_nodes(leaves, _grid_groups([list(range(len(leaves)))], [(1, arity)]), width)


def cover(n: int, m: int) -> Parts:
    """Cover a root of `m` coordinates by sections of `n` data coordinates."""
    if not 1 <= m <= n:
        raise ValueError(
            f"a cover needs 1 <= m <= n, got n={n} and m={m}; choose a root no wider than the data."
        )
    rest = n % m
    widths = [m] * (n // m)
    if rest:
        widths[-1:] = [(m + rest + 1) // 2, (m + rest) // 2]
    starts = [sum(widths[:index]) for index in range(len(widths))]
    leaves = [
        Node(f"section{index + 1}", width, tuple(range(start, start + width)))
        for index, (start, width) in enumerate(zip(starts, widths, strict=True))
    ]
    edges = [Edge(leaf.name, "root") for leaf in leaves]
    if rest:
        leading, trailing = widths[-2:]
        edges[-2] = Edge(leaves[-2].name, "root", coordinates=tuple(range(leading)))
        edges[-1] = Edge(leaves[-1].name, "root", coordinates=tuple(range(m - trailing, m)))
    return [*leaves, Node("root", m)], edges


def blocks(
    height: int, width: int, rows: int, columns: int, arity: int, latent: int | None
) -> Parts:
    """Cut an image into blocks and join neighbouring blocks up to one root."""
    for side, size, parts in (("height", height, rows), ("width", width, columns)):
        if parts < 1 or size < 1 or size % parts:
            raise ValueError(
                f"an image of {side} {size} cannot be cut into {parts} equal parts; "
                "choose rows and columns that divide height and width."
            )
    if arity not in (2, 4):
        raise ValueError(f"blocks join by 2 (pairs) or by 4 (quad tree), got arity={arity}.")
    leaves = [
        Node(f"block{row}_{column}", len(pixels), pixels)
        for row in range(rows)
        for column in range(columns)
        for pixels in [_pixels(height // rows, width // columns, row, column, width)]
    ]
    grid = [list(range(row * columns, (row + 1) * columns)) for row in range(rows)]
    shapes = [(1, 2), (2, 1)] if arity == 2 else [(2, 2)]
    latent = leaves[0].width if latent is None else latent
    return group_nodes(leaves, _grid_groups(grid, shapes), latent)


def bayesian_network(edges: Any, width: int | None, variables: Iterable[str] | None) -> Parts:
    """Put one aggregation node over each family of a Bayesian network, and one root over all."""
    arrows, listed = _read_network(edges)
    arrows_flat = dict.fromkeys(name for arrow in arrows for name in arrow)
    names = list(dict.fromkeys([*(variables or ()), *listed, *arrows_flat]))
    leaves = [Node(name, 1, columns=(name,)) for name in names]
    if not names:
        raise ValueError("the Bayesian network has no variables; pass edges= or variables=.")
    cycle = find_cycle(names, arrows)
    if cycle is not None:
        raise ValueError(
            f"the Bayesian network has the cycle {' -> '.join(cycle)}; remove one of these edges."
        )
    parents: dict[str, list[str]] = {name: [] for name in names}
    for parent, child in arrows:
        parents[child].append(parent)
    # A variable with parents is followed by them; one without any relation is alone.
    chosen = [name for name in names if parents[name] or name not in arrows_flat]
    families = {name: [name, *parents[name]] for name in chosen}
    if width is None:
        width = 2 * max(len(family) for family in families.values())
    taken = dict.fromkeys(names)
    root = unique_name("root", taken)
    family_names = {child: unique_name(f"family:{child}", taken) for child in families}
    inner = [Node(name, width) for name in (*family_names.values(), root)]
    into = [
        Edge(member, family_names[child]) for child, family in families.items() for member in family
    ]
    return [*leaves, *inner], [*into, *(Edge(name, root) for name in family_names.values())]


def edge_list(
    edges: Iterable[Edge | tuple[str, str]], widths: Mapping[str, int] | int
) -> tuple[dict[str, int], list[Edge]]:
    """Read (child, parent) pairs, and give each node its width in order of first appearance."""
    form = "an edge must be a pair (child, parent)"
    read = [edge if isinstance(edge, Edge) else Edge(*pair(edge, form)) for edge in edges]
    names = list(dict.fromkeys(name for edge in read for name in (edge.child, edge.parent)))
    if not isinstance(widths, Mapping):
        return dict.fromkeys(names, widths), read
    missing = [name for name in names if name not in widths]
    if missing:
        raise ValueError(f"widths has no entry for node {missing[0]!r}; add one for every node.")
    unused = [name for name in widths if name not in names]
    if unused:
        raise ValueError(
            f"widths names {unused[0]!r}, which no edge touches; "
            "add an edge for it or remove the entry."
        )
    return {name: widths[name] for name in names}, read


def pair(value: Any, form: str) -> tuple[Any, Any]:
    """Return a pair, or raise an error that says which form was expected."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{form}, got {value!r}.")
    return value[0], value[1]


def unique_name(name: str, taken: dict[str, None]) -> str:
    """Return the name, underscores appended until nothing else has it, and enter it in `taken`.

    Example:
        >>> unique_name("root", {"root": None})
        'root_'
    """
    while name in taken:
        name += "_"
    taken[name] = None
    return name


def check_arity(arity: int) -> None:
    """Refuse trees whose layers would never become smaller."""
    if arity < 2:
        raise ValueError(f"a tree joins at least 2 nodes at a time, got arity={arity}.")


def _grid_groups(grid: Grid, shapes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Merge the cells of a grid by alternating tile shapes, until one is left."""
    groups: list[list[int]] = []
    count = sum(map(len, grid))
    for height, width in itertools.cycle(shapes):
        if len(grid) * len(grid[0]) <= 1:
            break
        merged: Grid = []
        for top in range(0, len(grid), height):
            merged.append([])
            for left in range(0, len(grid[0]), width):
                rows = grid[top : top + height]
                tile = [cell for row in rows for cell in row[left : left + width]]
                if len(tile) > 1:  # a tile of one cell moves up unchanged
                    groups.append(tile)
                merged[-1].append(tile[0] if len(tile) == 1 else count + len(groups) - 1)
        grid = merged
    return groups or [[0]]


def _pixels(height: int, width: int, row: int, column: int, stride: int) -> tuple[int, ...]:
    """Positions of a block's pixels in the flattened row-major image."""
    return tuple(
        y * stride + x
        for y in range(row * height, (row + 1) * height)
        for x in range(column * width, (column + 1) * width)
    )


def _read_network(edges: Any) -> tuple[list[tuple[str, str]], list[str]]:
    """Split a Bayesian network into its (parent, child) pairs and the variables it lists."""
    is_graph = hasattr(edges, "nodes")
    if is_graph and not edges.is_directed():
        raise ValueError("the Bayesian network is not directed; pass a networkx.DiGraph.")
    form = "an edge must be a pair (parent, child)"
    arrows = list(edges.edges) if is_graph else [pair(arrow, form) for arrow in edges]
    repeated = first_repeated(arrows)
    if repeated is not None:
        raise ValueError(f"the network's edge {repeated!r} appears twice; list it once.")
    return arrows, list(edges.nodes) if is_graph else []


def to_dict(
    nodes: Sequence[Node], edges: Sequence[Edge], causes: Network | None = None
) -> dict[str, Any]:
    """Write nodes, edges and causes as dictionaries, lists, strings and numbers."""
    entries: dict[str, Any] = {"nodes": [_entry(node) for node in nodes]}
    entries["edges"] = [_entry(edge) for edge in edges]
    if causes is not None:
        entries["causes"] = {name: list(map(list, pairs)) for name, pairs in vars(causes).items()}
    return entries


def network_from_dict(description: Any) -> Network | None:
    """Read the causes that `to_dict` wrote; None for none."""
    entry = description.get("causes")
    if entry is None:
        return None
    names = ("edges", "undirected")
    _check_keys(entry, names[:1], names, "the entry 'causes'")
    return Network(**{name: tuple(entry[name]) for name in names if name in entry})


NODE_KEYS = ("name", "width", "columns", "aggregation")
EDGE_KEYS = ("child", "parent", "coordinates", "kind")


def from_dict(description: Any) -> Parts:
    """Read what `to_dict` wrote; entries that may be None can be left out."""
    needed = ("nodes", "edges")
    _check_keys(description, needed, (*needed, "causes"), "the description of a graph")
    for key in ("nodes", "edges"):
        if not isinstance(description[key], list | tuple):
            raise ValueError(
                f"the entry {key!r} must be a list of dictionaries, got {description[key]!r}."
            )
    nodes = [
        Node(**_check_entry(entry, NODE_KEYS, f"node number {k}"))
        for k, entry in enumerate(description["nodes"])
    ]
    edges = [
        Edge(**_check_entry(entry, EDGE_KEYS, f"edge number {k}"))
        for k, entry in enumerate(description["edges"])
    ]
    return nodes, edges


def to_networkx(nodes: Sequence[Node], edges: Sequence[Edge]) -> networkx.DiGraph:
    """Write nodes and edges as a `networkx.DiGraph`, attributes that are None left out."""
    import networkx

    digraph = networkx.DiGraph()
    for node in nodes:
        digraph.add_node(node.name, **_attributes(node, ("name",)))
    for position, edge in enumerate(edges):
        # networkx lists edges by their tails; the position keeps our order.
        attributes = _attributes(edge, ("child", "parent"))
        digraph.add_edge(edge.child, edge.parent, position=position, **attributes)
    return digraph


def from_networkx(digraph: networkx.DiGraph) -> Parts:
    """Read a directed graph whose edges lead from child to parent, and whose nodes have widths."""
    if not digraph.is_directed():
        raise ValueError(
            "the networkx graph is not directed; "
            "pass a networkx.DiGraph with edges from child to parent."
        )
    nodes = []
    for name, attributes in digraph.nodes(data=True):
        if "width" not in attributes:
            raise ValueError(
                f"node {name!r} has no attribute 'width'; set it, as in "
                f"digraph.nodes[{name!r}]['width'] = 2."
            )
        nodes.append(Node(name, **_select(attributes, NODE_KEYS[1:])))
    listed = list(digraph.edges(data=True))
    if all("position" in attributes for _, _, attributes in listed):
        listed.sort(key=lambda item: int(item[2]["position"]))
    return nodes, [
        Edge(child, parent, **_select(attributes, EDGE_KEYS[2:]))
        for child, parent, attributes in listed
    ]


def _entry(part: Node | Edge) -> dict[str, Any]:
    """One node or edge as a dictionary, tuples as lists."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in vars(part).items()
    }


def _attributes(part: Node | Edge, names: Sequence[str]) -> dict[str, Any]:
    """The attributes of a node or an edge besides its names, without those that are None."""
    return {
        key: value for key, value in vars(part).items() if key not in names and value is not None
    }


def _select(attributes: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The attributes that nodes and edges have; networkx graphs may carry others."""
    return {name: attributes[name] for name in names if name in attributes}


def _check_entry(entry: Any, keys: Sequence[str], place: str) -> dict[str, Any]:
    """The dictionary of a node or edge: two keys are needed, and the third has a list or None."""
    _check_keys(entry, keys[:2], keys, place)
    listed = entry.get(keys[2])
    if listed is not None and not isinstance(listed, list | tuple):
        raise ValueError(f"{place} has {keys[2]} {listed!r}; pass a list or null.")
    return dict(entry)


def _check_keys(entry: Any, needed: Sequence[str], known: Sequence[str], place: str) -> None:
    """Refuse anything but a dictionary with all needed keys and no unknown ones."""
    if not isinstance(entry, Mapping):
        raise ValueError(
            f"{place} must be a dictionary with the keys {', '.join(known)}, got {entry!r}."
        )
    for key in needed:
        if key not in entry:
            raise ValueError(f"{place} lacks the key {key!r}; add it.")
    for key in entry:
        if key not in known:
            raise ValueError(f"{place} has the unknown key {key!r}; {suggestion(key, known)}")
