"""Which coordinates of a graph's nodes depend on which: indices and masks, no parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vfg.graph import Graph
from vfg.passing.schedule import Block, Schedule

Mask = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clique:
    """Latent coordinates whose joint moments are needed, and what is regressed on them."""

    parents: tuple[int, ...]
    """Coordinates that explain."""
    explained: tuple[int, ...]
    """Coordinates of the latent node that they explain; none for leaves."""
    columns: tuple[int, ...] = ()
    """Coordinates of leaves that they explain; none for latent nodes."""
    node: str = ""
    """The latent node, or the only parent of leaves in a tree."""

    @property
    def coordinates(self) -> tuple[int, ...]:
        """All latent coordinates, the explained ones first."""
        return (*self.explained, *self.parents)


class Passing(NamedTuple):
    """Where nodes are, as the functions that read tables and evidence expect it."""

    schedule: Schedule


@dataclass(frozen=True)
class Structure:
    """The latent coordinates of a graph side by side, roots first, parents before children.

    `positions` are the coordinates of every leaf: its table columns, wider where discrete.
    `inner_noise` says whether latent nodes below the roots have noise of their own.
    """

    graph: Graph
    positions: Mapping[str, tuple[int, ...]]
    inner_noise: bool
    spans: dict[str, range] = field(init=False)
    """The coordinates of every latent node."""

    def __post_init__(self) -> None:
        spans, start = {}, 0
        for name in self.nodes:
            width = self.graph.node(name).width
            spans[name] = range(start, start + width)
            start += width
        object.__setattr__(self, "spans", spans)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Latent nodes, roots first, then parents before children."""
        below = [name for layer in reversed(self.graph.layers[1:]) for name in layer]
        inner = [name for name in below if self.graph.parents(name)]
        return (*self.graph.roots, *inner)

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """Latent nodes that are no roots."""
        return self.nodes[len(self.graph.roots) :]

    @cached_property
    def width(self) -> int:
        """Number of all latent coordinates."""
        return sum(map(len, self.spans.values()))

    @cached_property
    def root_width(self) -> int:
        """Number of coordinates of all roots."""
        return sum(len(self.spans[root]) for root in self.graph.roots)

    @cached_property
    def columns(self) -> int:
        """Number of all coordinates of leaves."""
        return sum(map(len, self.positions.values()))

    @cached_property
    def noisy_inner(self) -> tuple[int, ...]:
        """Coordinates below the roots with noise of their own."""
        return tuple(range(self.root_width, self.width)) if self.inner_noise else ()

    @property
    def is_stiff(self) -> bool:
        """Whether inner nodes have no noise, so that EM does not fit the edges above them."""
        return bool(self.inner) and not self.inner_noise

    def edge_masks(self, *, leaves: bool) -> tuple[Mask, Mask]:
        """Learned and fixed entries of the map from latent coordinates to leaves, or to latents."""
        inner = {name: tuple(self.spans[name]) for name in self.inner}
        learned, fixed = np.zeros((2, self.columns if leaves else self.width, self.width))
        for child, rows in (self.positions if leaves else inner).items():
            for edge in self.graph.edges_from(child):
                span = self.spans[edge.parent]
                covered = span if edge.coordinates is None else [span[k] for k in edge.coordinates]
                if edge.kind == "identity":
                    for row, column in zip(rows, covered, strict=False):
                        fixed[row, column] = 1.0
                else:
                    learned[np.ix_(rows, covered)] = 1.0
        return learned, fixed

    def root_mask(self) -> Mask:
        """Where the covariance factors of the roots may differ from 0: in lower triangles."""
        mask = np.zeros((self.root_width, self.root_width))
        for root in self.graph.roots:
            span = self.spans[root]
            mask[np.ix_(span, span)] = np.tri(len(span))
        return mask

    @cached_property
    def leaf_cliques(self) -> tuple[Clique, ...]:
        """Coordinates of leaves by the parents that they share."""
        result: dict[tuple[str, ...], list[int]] = {}
        for leaf, columns in self.positions.items():
            result.setdefault(self.graph.parents(leaf), []).extend(columns)
        return tuple(
            Clique(self._coordinates(parents), (), tuple(columns), parents[0])
            for parents, columns in result.items()
        )

    @cached_property
    def node_cliques(self) -> tuple[Clique, ...]:
        """Noisy latent nodes with their parents."""
        nodes = self.inner if self.inner_noise else ()
        return tuple(
            Clique(self._coordinates(self.graph.parents(name)), tuple(self.spans[name]), (), name)
            for name in nodes
        )

    def free_roots(self) -> tuple[str, ...]:
        """Roots all of whose edges are learned as a whole, so that the scale can move to them."""
        return tuple(root for root in self.graph.roots if self._is_free(root))

    def schedule(self, sections: Mapping[str, tuple[int, ...]]) -> Schedule:
        """The nodes in blocks of one layer and shape, given the table columns of every leaf."""
        blocks: dict[tuple[int, int, int], list[str]] = {}
        for number, layer in enumerate(self.graph.layers):
            for name in layer:
                shape = (self.graph.node(name).width, len(sections.get(name, ())))
                blocks.setdefault((number, *shape), []).append(name)
        result = [
            Block(f"block{index}", tuple(names), width, layer, "gaussian", False)
            for index, ((layer, width, _), names) in enumerate(blocks.items())
        ]
        place = {
            name: (index, row)
            for index, block in enumerate(result)
            for row, name in enumerate(block.nodes)
        }
        return Schedule(self.graph, tuple(result), (), place)

    def _is_free(self, root: str) -> bool:
        edges = self.graph.edges_into(root)
        latent = any(edge.child in self.spans for edge in edges)
        whole = all(edge.kind == "flow" and edge.coordinates is None for edge in edges)
        return whole and (self.inner_noise or not latent)

    def _coordinates(self, nodes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(coordinate for name in nodes for coordinate in self.spans[name])
