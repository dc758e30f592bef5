"""Trees and directed acyclic graphs of sections and latent nodes; pure Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from vfg.graph import builders, clustering, drawing
from vfg.graph.builders import Sections
from vfg.graph.checks import check_graph, layer_numbers, suggestion
from vfg.graph.nodes import Edge, Network, Node

if TYPE_CHECKING:
    import networkx

__all__ = ["Edge", "Graph", "Node"]


def as_graph(graph: Any) -> Graph:
    """A graph as it is, or that of a `LearnedGraph`.

    Raises:
        TypeError: For anything else.
    """
    found = getattr(graph, "graph", graph)
    if not isinstance(found, Graph):
        raise TypeError(
            f"the graph must be a vfg.Graph, or what vfg.learn_graph returned, but is {graph!r}"
        )
    return found


@dataclass(frozen=True, init=False, repr=False)
class Graph:
    """An immutable tree or directed acyclic graph whose edges lead from children to parents.

    Nodes without children are the leaves, the sections of the data; nodes without parents are
    the roots. Graphs with the same nodes and edges in the same order are equal.

    Args:
        nodes: The nodes, in the order that all listings follow.
        edges: The edges.
        causes: Causes and effects among the columns, which interventions follow; None for those
            of the network that `from_bayesian_network` read, if it made the graph.

    Raises:
        ValueError: If a node or an edge is repeated, unknown or out of range, a node is isolated,
            the edges form a cycle, or the leaves' columns do not fit together.

    Example:
        >>> graph = Graph(
        ...     [Node("a", 2), Node("b", 2), Node("h", 2)], [Edge("a", "h"), Edge("b", "h")]
        ... )
        >>> graph.layers
        (('a', 'b'), ('h',))
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    causes: Network | None = None
    order_is_inferred = False  # whether nobody named the order of the columns

    def __init__(
        self, nodes: Iterable[Node], edges: Iterable[Edge], causes: Network | None = None
    ) -> None:
        object.__setattr__(self, "nodes", tuple(nodes))
        object.__setattr__(self, "edges", tuple(edges))
        object.__setattr__(self, "causes", causes)
        check_graph(self.nodes, self.edges)

    def __repr__(self) -> str:
        return drawing.draw(self)

    @cached_property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Names by layer, a node's layer being its longest path from the leaves."""
        layers: list[list[str]] = [[] for _ in range(1 + max(self._layer_numbers.values()))]
        for node in self.nodes:
            layers[self._layer_numbers[node.name]].append(node.name)
        return tuple(map(tuple, layers))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the nodes without children."""
        return tuple(node.name for node in self.nodes if not self._edges_into[node.name])

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Names of the nodes without parents."""
        return tuple(node.name for node in self.nodes if not self._edges_from[node.name])

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _edges_into(self) -> dict[str, tuple[Edge, ...]]:
        return self._group_edges(lambda edge: edge.parent)

    @cached_property
    def _edges_from(self) -> dict[str, tuple[Edge, ...]]:
        return self._group_edges(lambda edge: edge.child)

    def _group_edges(self, end: Callable[[Edge], str]) -> dict[str, tuple[Edge, ...]]:
        groups: dict[str, list[Edge]] = {name: [] for name in self._nodes}
        for edge in self.edges:
            groups[end(edge)].append(edge)
        return {name: tuple(edges) for name, edges in groups.items()}

    @cached_property
    def _layer_numbers(self) -> dict[str, int]:
        return layer_numbers(self._nodes, [(edge.child, edge.parent) for edge in self.edges])

    @property
    def sections(self) -> dict[str, int]:
        """Width of each leaf, by name."""
        return {leaf: self.node(leaf).width for leaf in self.leaves}

    @cached_property
    def columns(self) -> tuple[str, ...] | tuple[int, ...] | None:
        """Table columns in order: names leaf by leaf, or positions 0, 1, ...; None if unknown."""
        claims = [self.node(leaf).columns for leaf in self.leaves]
        names = tuple(
            column for claim in claims for column in claim or () if isinstance(column, str)
        )
        count = sum(len(claim or ()) for claim in claims)
        return names or tuple(range(count)) or None

    @cached_property
    def network(self) -> Network | None:
        """Causes and effects among the columns: `causes`, or those of a Bayesian network.

        Example:
            >>> Graph.from_bayesian_network([("A", "C"), ("B", "C")]).network.edges
            (('A', 'C'), ('B', 'C'))
        """
        if self.causes is not None:
            return self.causes
        families = self.layers[1] if len(self.layers) == 3 else ()
        members = {name: self.children(name) for name in families}
        if any(
            not held or not name.startswith(f"family:{held[0]}") for name, held in members.items()
        ):
            return None
        edges = [(cause, held[0]) for held in members.values() for cause in held[1:]]
        return Network(tuple(edges)) if edges else None

    @cached_property
    def is_tree(self) -> bool:
        """Whether there is one root and every other node has exactly one parent."""
        return len(self.roots) == 1 and all(len(into) <= 1 for into in self._edges_from.values())

    def node(self, name: str) -> Node:
        """Return the node of that name.

        Raises:
            ValueError: If there is none.

        Example:
            >>> Graph.star({"a": 2}).node("a").width
            2
        """
        if name not in self._nodes:
            raise ValueError(f"there is no node {name!r}; {suggestion(name, self._nodes)}")
        return self._nodes[name]

    def edges_into(self, name: str) -> tuple[Edge, ...]:
        """Return the edges from the children of a node, in order.

        Example:
            >>> [edge.name for edge in Graph.star({"a": 2, "b": 2}).edges_into("root")]
            ['a->root', 'b->root']
        """
        return self._edges_into[self.node(name).name]

    def edges_from(self, name: str) -> tuple[Edge, ...]:
        """Return the edges to the parents of a node, in order.

        Example:
            >>> [edge.name for edge in Graph.star({"a": 2, "b": 2}).edges_from("a")]
            ['a->root']
        """
        return self._edges_from[self.node(name).name]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the names of a node's children, in order of the edges.

        Example:
            >>> Graph.star({"a": 2, "b": 2}).children("root")
            ('a', 'b')
        """
        return tuple(edge.child for edge in self.edges_into(name))

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the names of a node's parents, in order of the edges.

        Example:
            >>> Graph.star({"a": 2, "b": 2}).parents("a")
            ('root',)
        """
        return tuple(edge.parent for edge in self.edges_from(name))

    def layer_of(self, name: str) -> int:
        """Return the layer of a node, 0 for a leaf.

        Example:
            >>> Graph.star({"a": 2}).layer_of("root")
            1
        """
        return self._layer_numbers[self.node(name).name]

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return all nodes above a node, lower layers first.

        Example:
            >>> Graph.tree({"a": 1, "b": 1, "c": 1}).ancestors("a")
            ('node1_1', 'root')
        """
        above = dict.fromkeys(self.parents(name))
        queue = list(above)
        for ancestor in queue:  # grows while it is read
            new = [parent for parent in self.parents(ancestor) if parent not in above]
            above.update(dict.fromkeys(new))
            queue += new
        return tuple(other for layer in self.layers for other in layer if other in above)

    def common_ancestor(self, first: str, second: str) -> str:
        """Return the lowest node of a tree that is above both nodes, or is one of them.

        Raises:
            ValueError: If the graph is not a tree.

        Example:
            >>> Graph.tree({"a": 1, "b": 1, "c": 1}).common_ancestor("a", "b")
            'node1_1'
        """
        if not self.is_tree:
            raise ValueError(
                f"the common ancestor of {first!r} and {second!r} is defined on trees only, "
                "but this graph has several roots or a node with several parents; use a tree."
            )
        above_second = (second, *self.ancestors(second))
        return next(name for name in (first, *self.ancestors(first)) if name in above_second)

    def path(self, name: str, ancestor: str) -> tuple[Edge, ...]:
        """Return the edges from a node up to one of its ancestors.

        On a graph with several such paths this is a shortest one, earlier edges first.

        Raises:
            ValueError: If the second node is not above the first.

        Example:
            >>> [edge.name for edge in Graph.tree({"a": 1, "b": 1, "c": 1}).path("a", "root")]
            ['a->node1_1', 'node1_1->root']
        """
        paths: dict[str, tuple[Edge, ...]] = {self.node(name).name: ()}
        queue = [name]
        for below in queue:  # grows while it is read
            if below == ancestor:
                return paths[below]
            for edge in self.edges_from(below):
                if edge.parent not in paths:
                    paths[edge.parent] = (*paths[below], edge)
                    queue.append(edge.parent)
        raise ValueError(
            f"{self.node(ancestor).name!r} is not above {name!r}; "
            f"choose one of its ancestors: {', '.join(self.ancestors(name)) or 'it has none'}."
        )

    @classmethod
    def star(cls, sections: Sections, width: int | None = None, root: str = "root") -> Self:
        """Put one root over all sections.

        Args:
            sections: Widths by name, (name, width) pairs, or nodes.
            width: Width of the root; None takes the number of columns, but at least 8 and at most
                16, and never less than the width of the widest section.
            root: Name of the root.

        Example:
            >>> Graph.star({"a": 2, "b": 3})
            Graph: 2 leaves, 1 latent node, 2 edges
            root (8)
            ├── a (2)
            └── b (3)
        """
        return cls(*builders.star(sections, width, root))

    @classmethod
    def tree(cls, sections: Sections, arity: int = 2, width: int | None = None) -> Self:
        """Group neighbouring sections layer by layer, up to one root.

        The latent nodes are named `node<layer>_<number>` and `root`.

        Args:
            sections: Widths by name, (name, width) pairs, or nodes.
            arity: How many neighbours join; a node left alone moves up to the next layer.
            width: Width of the latent nodes; None takes the number of columns, but at least 8 and
                at most 16, and never less than the width of the widest section.

        Example:
            >>> Graph.tree({"a": 2, "b": 2, "c": 2, "d": 2}).layers
            (('a', 'b', 'c', 'd'), ('node1_1', 'node1_2'), ('root',))
        """
        return cls(*builders.tree(sections, arity, width))

    @classmethod
    def cover(cls, n: int, m: int) -> Self:
        """Cover an `m`-dimensional root by sections of `n` data coordinates.

        Sections have m coordinates each. If r = n mod m is not 0, the last m + r data
        coordinates split into two sections of ⌈(m + r) / 2⌉ and ⌊(m + r) / 2⌋; the first covers the
        root's leading coordinates, the second its trailing ones, and r of them are shared.

        Args:
            n: Number of data coordinates.
            m: Width of the root, at most `n`.

        Example:
            >>> Graph.cover(n=7, m=3)
            Graph: 3 leaves, 1 latent node, 3 edges
            root (3)
            ├── section1 (3), columns 0 1 2
            ├── section2 (2), covers 0 1, columns 3 4
            └── section3 (2), covers 1 2, columns 5 6
        """
        return cls(*builders.cover(n, m))

    @classmethod
    def blocks(
        cls,
        height: int,
        width: int,
        rows: int = 2,
        columns: int = 2,
        arity: int = 2,
        *,
        latent: int | None = None,
    ) -> Self:
        """Cut an image into rows x columns blocks and join neighbours up to one root.

        The leaves are `block<row>_<column>`, with positions in the flattened image.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            rows: Number of rows of blocks; divides the height.
            columns: Number of columns of blocks; divides the width.
            arity: 2 joins pairs, side by side and one above the other in turns; 4 is a quad tree.
            latent: Width of the latent nodes; None takes a block's.

        Example:
            >>> Graph.blocks(2, 4)
            Graph: 4 leaves, 3 latent nodes, 6 edges
            root (2)
            ├── node1_1 (2)
            │   ├── block0_0 (2), columns 0 1
            │   └── block0_1 (2), columns 2 3
            └── node1_2 (2)
                ├── block1_0 (2), columns 4 5
                └── block1_1 (2), columns 6 7
        """
        return cls(*builders.blocks(height, width, rows, columns, arity, latent))

    @classmethod
    def from_bayesian_network(
        cls,
        edges: Iterable[tuple[str, str]] | networkx.DiGraph,
        width: int | None = None,
        variables: Iterable[str] | None = None,
    ) -> Self:
        """Put one aggregation node over each family of a Bayesian network, and one root over all.

        Args:
            edges: (parent, child) pairs between scalar variables, or a directed graph of them.
            width: Width of the latent nodes; None takes twice the size of the largest family.
            variables: Variables that come first, in the order of the table's columns; one without
                edges gets a family of its own. None takes the order in which edges name them.

        Example:
            >>> Graph.from_bayesian_network([("A", "C"), ("B", "C")])
            Graph: 3 leaves, 2 latent nodes, 4 edges
            root (6)
            └── family:C (6)
                ├── C (1), column C
                ├── A (1), column A
                └── B (1), column B
        """
        graph = cls(*builders.bayesian_network(edges, width, variables))
        object.__setattr__(graph, "order_is_inferred", variables is None)
        return graph

    @classmethod
    def from_data(cls, X: Any, arity: int = 4, width: int | None = None) -> Self:
        """Build a tree over the columns of a table, those with high rank correlation joined first.

        Average linkage on 1 - |Spearman correlation| gives a binary tree, whose highest merges are
        then opened until each node has up to `arity` children. Missing values (NaN) are allowed.
        Leaves are named after the frame's columns, or `x0`, `x1`, ...

        Args:
            X: Array, tensor or frame of shape (rows, columns).
            arity: Largest number of children.
            width: Width of the latent nodes; None takes `2 * arity`.

        Example:
            >>> import numpy
            >>> ramp = numpy.arange(6.0)
            >>> Graph.from_data(numpy.stack([ramp, ramp % 2, -ramp], axis=1), arity=2)
            Graph: 3 leaves, 2 latent nodes, 4 edges
            root (4)
            ├── node1_1 (4)
            │   ├── x0 (1), column 0
            │   └── x2 (1), column 2
            └── x1 (1), column 1
        """
        return cls(*clustering.cluster(X, arity, width))

    @classmethod
    def from_edges(
        cls, edges: Iterable[Edge | tuple[str, str]], widths: Mapping[str, int] | int
    ) -> Self:
        """Build any graph from its edges.

        Args:
            edges: (child, parent) pairs or edges; nodes follow in order of first appearance.
            widths: Width of every node by name, or one width for all.

        Example:
            >>> Graph.from_edges([("a", "h"), ("b", "h"), ("h", "r")], widths=2).layers
            (('a', 'b'), ('h',), ('r',))
        """
        sizes, read = builders.edge_list(edges, widths)
        return cls([Node(name, width) for name, width in sizes.items()], read)

    @classmethod
    def from_networkx(cls, digraph: networkx.DiGraph) -> Self:
        """Read a directed graph whose edges lead from child to parent.

        Args:
            digraph: Nodes have the attribute `width` and may have `columns` and `aggregation`;
                edges may have `kind` and `coordinates`.

        Example:
            >>> graph = Graph.star({"a": 2, "b": 2})
            >>> Graph.from_networkx(graph.to_networkx()) == graph
            True
        """
        return cls(*builders.from_networkx(digraph))

    def to_networkx(self) -> networkx.DiGraph:
        """Return a `networkx.DiGraph` with the attributes that `from_networkx` reads.

        Example:
            >>> list(Graph.star({"a": 2, "b": 2}).to_networkx().edges)
            [('a', 'root'), ('b', 'root')]
        """
        return builders.to_networkx(self.nodes, self.edges)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: If an entry is missing, unknown or of the wrong type.

        Example:
            >>> graph = Graph.star({"a": 2, "b": 2})
            >>> Graph.from_dict(graph.to_dict()) == graph
            True
        """
        return cls(*builders.from_dict(description), builders.network_from_dict(description))

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain dictionaries, lists, strings and numbers, ready for JSON.

        Example:
            >>> Graph.star({"a": 2}).to_dict()["nodes"][0]
            {'name': 'a', 'width': 2, 'columns': None, 'aggregation': None}
        """
        return builders.to_dict(self.nodes, self.edges, self.causes)
