"""The parts of a graph: nodes, which carry states, and edges, which carry invertible functions."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["flow", "identity"]


@dataclass(frozen=True)
class Node:
    """A section of the data (a leaf) or a latent state, of a given width.

    Args:
        name: Unique name, not empty and without `->`.
        width: Number of coordinates, at least 1.
        columns: Table columns that a leaf stands for, by name or by position: one per coordinate,
            or a single one that is coded as a point in `width` dimensions.
        aggregation: How this node joins its children (`"mean"`, `"concatenation"`,
            `"precision"`, `"gaussian"`); None leaves it to the model.

    Raises:
        ValueError: If the name, the width, the columns or the aggregation cannot be used.

    Example:
        >>> Node("body", 2, columns=["height", "weight"])
        Node(name='body', width=2, columns=('height', 'weight'), aggregation=None)
    """

    name: str
    width: int
    columns: tuple[str, ...] | tuple[int, ...] | None = None
    aggregation: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "width", _parse_width(self.name, self.width))
        if self.columns is not None:
            columns = _parse_columns(self.name, self.columns, self.width)
            object.__setattr__(self, "columns", columns)
        if not isinstance(self.aggregation, str | None):
            raise ValueError(
                f"node {self.name!r} has aggregation {self.aggregation!r}; "
                'pass the name of one, such as "mean", or None for the model\'s own.'
            )


@dataclass(frozen=True)
class Network:
    """Causes and effects among the columns that a graph is over.

    Args:
        edges: (cause, effect) pairs.
        undirected: those of them that may lead the other way.

    Raises:
        ValueError: If an edge is no pair, or an undirected one is not among the edges.

    Example:
        >>> print(Network([("age", "dose"), ("dose", "pressure")], [("age", "dose")]))
        age -- dose
        dose -> pressure
    """

    edges: tuple[tuple[str, str], ...]
    undirected: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("edges", "undirected"):
            pairs = tuple(map(_parse_pair, getattr(self, name)))
            object.__setattr__(self, name, pairs)
        unknown = [pair for pair in self.undirected if pair not in self.edges]
        if unknown:
            raise ValueError(f"the undirected edge {unknown[0]} is not among the edges; add it.")

    def __str__(self) -> str:
        arrows = {pair: "--" if pair in self.undirected else "->" for pair in self.edges}
        return "\n".join(f"{pair[0]} {arrow} {pair[1]}" for pair, arrow in arrows.items())


def _parse_pair(pair: Any) -> tuple[str, str]:
    if isinstance(pair, str) or not isinstance(pair, Iterable) or len(names := tuple(pair)) != 2:
        raise ValueError(f"an edge must be a pair (cause, effect), got {pair!r}.")
    return str(names[0]), str(names[1])


@dataclass(frozen=True)
class Edge:
    """An invertible function from a child's space to its parent's.

    Args:
        child: Name of the node below.
        parent: Name of the node above.
        kind: `"flow"` for a learned function, `"identity"` for none.
        coordinates: Coordinates of the parent that the edge covers, in the child's order;
            None stands for all.

    Raises:
        ValueError: If the edge is a self loop, its kind is unknown, or its coordinates are
            empty, negative or repeated.

    Example:
        >>> Edge("a", "root", coordinates=range(2))
        Edge(child='a', parent='root', kind='flow', coordinates=(0, 1))
    """

    child: str
    parent: str
    kind: Kind = "flow"
    coordinates: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.child == self.parent:
            raise ValueError(
                f"edge {self.name!r} is a self loop; connect {self.child!r} to another node."
            )
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"edge {self.name!r} has the unknown kind {self.kind!r}; "
                'choose "flow" or "identity".'
            )
        if self.coordinates is not None:
            coordinates = _parse_coordinates(self.name, self.coordinates)
            object.__setattr__(self, "coordinates", coordinates)

    @property
    def name(self) -> str:
        """The edge as text, `"child->parent"`.

        Example:
            >>> Edge("a", "root").name
            'a->root'
        """
        return f"{self.child}->{self.parent}"


def first_repeated(values: Iterable[Any]) -> Any:
    """Return the first value that occurs a second time, or None.

    Example:
        >>> first_repeated("abcb")
        'b'
    """
    seen: dict[Any, None] = {}
    for value in values:
        if value in seen:
            return value
        seen[value] = None
    return None


def _check_name(name: object) -> None:
    """Refuse names that are ambiguous in `child->parent`."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a node's name must be a string that is not empty, got {name!r}.")
    if "->" in name:
        raise ValueError(
            f"node name {name!r} contains '->', which separates child and parent in edge names; "
            "rename the node."
        )


def _integer(value: object) -> int | None:
    """Return an integer of any library as an int, anything else (booleans too) as None."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return operator.index(value)


def _parse_width(name: str, width: object) -> int:
    """Return the width as a positive int."""
    value = _integer(width)
    if value is None:
        raise ValueError(f"node {name!r} has width {width!r}; pass an integer of 1 or more.")
    if value < 1:
        raise ValueError(
            f"node {name!r} is an empty section of width {value}; "
            "give it a width of 1 or more, or leave it out."
        )
    return value


def _parse_columns(
    name: str, columns: Iterable[object], width: int
) -> tuple[str, ...] | tuple[int, ...]:
    """Return the columns as a tuple of distinct strings or ints that fits the node's width."""
    values = (columns,) if isinstance(columns, str) else tuple(columns)
    texts = tuple(str(value) for value in values if isinstance(value, str))
    positions = tuple(number for number in map(_integer, values) if number is not None)
    if len(values) not in (len(texts), len(positions)):
        raise ValueError(
            f"node {name!r} has columns {values!r}; "
            "give either names (strings) or positions (integers) for all of them."
        )
    if len(values) not in (1, width):
        raise ValueError(
            f"node {name!r} has width {width} but {len(values)} columns; give one column per "
            "coordinate, a single column coded in all of them, or None."
        )
    repeated = first_repeated(texts or positions)
    if repeated is not None:
        raise ValueError(f"node {name!r} claims column {repeated!r} twice; list it once.")
    return texts or positions


def _parse_coordinates(name: str, coordinates: Iterable[object]) -> tuple[int, ...]:
    """Return the covered coordinates as a tuple of distinct ints."""
    values = tuple(coordinates)
    numbers = tuple(number for number in map(_integer, values) if number is not None)
    if not values:
        raise ValueError(
            f"edge {name!r} covers no coordinates; list at least one, or pass None for all."
        )
    if len(numbers) < len(values) or min(numbers) < 0:
        raise ValueError(f"edge {name!r} has coordinates {values!r}; pass integers of 0 or more.")
    repeated = first_repeated(numbers)
    if repeated is not None:
        raise ValueError(f"edge {name!r} repeats coordinate {repeated}; list each one once.")
    return numbers
