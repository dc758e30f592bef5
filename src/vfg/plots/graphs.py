"""Drawings of graphs: squares are leaves, circles latent nodes, a plus marks an aggregation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vfg.graph import Graph, Node
from vfg.graph.checks import suggestion
from vfg.plots.style import (
    FILLED,
    HAIRLINE,
    INK,
    OBSERVED,
    REFERENCE,
    SMALL,
    axes_or_new,
    blank,
    inches,
    new_figure,
    plain,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Places: TypeAlias = dict[str, tuple[float, float]]
SWEEPS = 8
"""How often leaves are ordered anew by their parents; more hardly ever helps."""


def positions(graph: Graph) -> Places:
    """Coordinates (x, y) of all nodes, neighbours of a layer at least 1 apart.

    Leaves stand at height 0 and roots at the highest layer. A node stands above the middle of its
    children. On trees no edges cross; on other graphs several orders of the leaves are tried, and
    the one with the fewest crossings is kept.

    Example:
        >>> positions(Graph.star({"a": 1, "b": 1}))
        {'a': (0.0, 0.0), 'b': (1.0, 0.0), 'root': (0.5, 1.0)}
    """
    order = _leaves_in_depth(graph)
    best = _across(graph, order)
    if not graph.is_tree:
        tried = [*_sweep(graph, order), *_sweep(graph, _leaves_by_nearness(graph))]
        best = min(tried, key=lambda across: _crossings(graph, across))
    return {node.name: (best[node.name], height_of(graph, node.name)) for node in graph.nodes}


def _sweep(graph: Graph, order: Sequence[str]) -> list[dict[str, float]]:
    """Horizontal places with leaves in the given order, then ordered by their parents in turns."""
    result = [_across(graph, order)]
    for _ in range(SWEEPS):
        last = result[-1]
        order = sorted(order, key=lambda leaf: fmean(last[up] for up in graph.parents(leaf)))
        result.append(_across(graph, order))
    return result


def _leaves_by_nearness(graph: Graph) -> list[str]:
    """The leaves along the slowest vibration of the graph, which keeps linked nodes together."""
    names = [node.name for node in graph.nodes]
    place = {name: k for k, name in enumerate(names)}
    linked = np.zeros((len(names), len(names)))
    for edge in graph.edges:
        linked[place[edge.child], place[edge.parent]] = -1.0
        linked[place[edge.parent], place[edge.child]] = -1.0
    np.fill_diagonal(linked, -linked.sum(axis=1))
    slowest = np.linalg.eigh(linked)[1][:, 1].round(9)
    return sorted(graph.leaves, key=lambda leaf: float(slowest[place[leaf]]))


def _leaves_in_depth(graph: Graph) -> list[str]:
    """The leaves as a walk down from the roots meets them, siblings side by side."""
    met: dict[str, None] = {}
    stack = list(reversed(graph.roots))
    while stack:
        name = stack.pop()
        if name in met:
            continue
        met[name] = None
        # Deep branches first, so that leaves which skip layers end up at the side.
        children = sorted(graph.children(name), key=graph.layer_of, reverse=True)
        stack += reversed(children)
    leaves = dict.fromkeys(graph.leaves)
    return [name for name in met if name in leaves]


def height_of(graph: Graph, name: str) -> float:
    """The layer of a node; roots are lifted to the top."""
    return float(graph.layer_of(name) if graph.parents(name) else len(graph.layers) - 1)


def _across(graph: Graph, leaves: Sequence[str]) -> dict[str, float]:
    """Horizontal positions given the order of the leaves; others above their children's middle."""
    across = {leaf: float(place) for place, leaf in enumerate(leaves)}
    levels: dict[float, list[str]] = {}
    for layer in graph.layers[1:]:
        for name in layer:
            levels.setdefault(height_of(graph, name), []).append(name)
    for height in sorted(levels):
        middles = {
            name: fmean(across[child] for child in graph.children(name)) for name in levels[height]
        }
        across |= _separate(middles)
    return across


def _separate(wanted: Mapping[str, float]) -> dict[str, float]:
    """Positions near the wanted ones, in the same order, at least 1 apart."""
    names = sorted(wanted, key=lambda name: wanted[name])
    places, steps = np.array([wanted[name] for name in names]), np.arange(len(names))
    rightward = np.maximum.accumulate(places - steps) + steps
    leftward = np.minimum.accumulate((places - steps)[::-1])[::-1] + steps
    return dict(zip(names, ((rightward + leftward) / 2).tolist(), strict=True))


def _crossings(graph: Graph, across: Mapping[str, float]) -> int:
    """How many pairs of edges between the same two heights cross."""
    between: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for edge in graph.edges:
        heights = height_of(graph, edge.child), height_of(graph, edge.parent)
        between.setdefault(heights, []).append((across[edge.child], across[edge.parent]))
    result = 0
    for pairs in between.values():
        ends = np.array(pairs)
        result += sum(
            int((np.prod(ends[:place] - ends[place], axis=1) < 0).sum())
            for place in range(1, len(ends))
        )
    return result


LETTER = 0.075
"""Width of a letter of a label, in inches."""
LETTERS_SHOWN = 24
"""Longer labels are cut."""
UPRIGHT = 0.15
"""Inches between leaves from which upright labels do not touch."""
BROADEST = 11.0
"""Inches across of the largest drawing."""
LEGEND = 0.2
"""Height of a line of the legend, in inches."""


def graph(graph: Graph, ax: Axes | None = None, *, observed: Collection[str] | None = None) -> Axes:
    """Draw a graph in layers, leaves at the bottom and roots on top.

    Labels are names and widths, as far as there is room. Nodes with several children are marked by
    a plus; identity edges are dashed.

    Args:
        graph: to draw.
        ax: where to draw; None makes a figure that fits the graph.
        observed: nodes to show as evidence; the other leaves are then shown as targets. None makes
            no difference between them.

    Returns:
        The axes; the node `name` stands at `vfg.plots.positions(graph)[name]`.

    Raises:
        ValueError: if an observed node is not in the graph.

    Example:
        >>> ax = graph(Graph.star({"a": 2, "b": 2}, width=4))
        >>> [text.get_text() for text in ax.texts]
        ['a (2)', 'b (2)', 'root (4)']
    """
    known = [node.name for node in graph.nodes]
    for name in observed or ():
        if name not in known:
            raise ValueError(f"there is no node {name!r}; {suggestion(name, known)}")
    places = positions(graph)
    broad = _breadth(graph, places)
    tall = 0.75 * (len(graph.layers) - 1) + 1.0
    kinds = {node.name: _kind(graph, node, observed) for node in graph.nodes}
    words = list(dict.fromkeys([*(edge.kind for edge in graph.edges), *kinds.values()]))
    if ax is None:  # axes that are all of the figure, so that lengths on paper are known
        figure = new_figure(broad, tall + _below(graph, broad, words))
        figure.set_layout_engine("none")
        ax = figure.axes[0]
        ax.set_position((0.0, 0.0, 1.0, 1.0))
    _frame(ax, graph, places, words)
    _edges(ax, graph, places)
    _nodes(ax, graph, places, observed or (), kinds)
    _labels(ax, graph, places)
    _legend(ax, _columns(words, inches(ax)[0]))
    return blank(ax)


def dag(
    columns: Sequence[str],
    directed: Collection[tuple[str, str]],
    undirected: Collection[tuple[str, str]] = (),
    confidences: Mapping[tuple[str, str], float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw causes above effects: arrows where the direction is known, grey lines elsewhere.

    Args:
        columns: all nodes by name; those without edges are left out if others have some.
        directed: (cause, effect) pairs.
        undirected: pairs whose direction is not known.
        confidences: shares between 0 and 1 by pair; less sure edges are paler.
        ax: where to draw; None makes a figure.

    Returns:
        The axes.

    Example:
        >>> ax = dag(["a", "b", "c"], [("a", "b")], [("b", "c")])
        >>> [text.get_text() for text in ax.texts]
        ['a', 'b', 'c']
    """
    from matplotlib.patches import FancyArrowPatch

    edges = [*directed, *undirected]
    named = {name for pair in edges for name in pair}
    shown = [name for name in columns if name in named or not edges]
    places, chains = dag_places(shown, edges)
    routes = {pair: [places[name] for name in chain] for pair, chain in chains.items()}
    points = list(places.values())
    across = max(abs(x) for x, _ in points) + 0.6
    tallest = max(y for _, y in points)
    ax = axes_or_new(ax, max(4.0, 2.0 * across), 0.8 * (tallest + 1.0))
    for number, (pair, route) in enumerate(routes.items()):
        sure = 1.0 if confidences is None else confidences.get(pair, 1.0)
        known = number < len(directed)
        arrow = FancyArrowPatch(
            path=_smooth(route), gid="directed" if known else "undirected",
            arrowstyle="-|>" if known else "-", edgecolor=OBSERVED if known else REFERENCE,
            facecolor=OBSERVED, linewidth=HAIRLINE + 0.8 * sure, alpha=0.25 + 0.75 * sure,
            mutation_scale=10.0, shrinkA=0.0, shrinkB=0.0,
        )  # fmt: skip
        ax.add_patch(arrow)
    for name in shown:
        ax.text(
            *places[name], plain(name), ha="center", va="center", fontsize=SMALL, color=INK,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": INK, "lw": 0.8},
        )  # fmt: skip
    ax.set_xlim(-across, across)
    ax.set_ylim(-0.5, tallest + 0.5)
    return blank(ax)


def _smooth(route: Sequence[tuple[float, float]]) -> Any:
    """A curve through points from top to bottom, from below the first to above the last."""
    from matplotlib.path import Path

    (left, top), (right, bottom) = route[0], route[-1]
    points = [(left, top - 0.22), *route[1:-1], (right, bottom + 0.22)]
    if len(points) == 2:
        return Path(points)
    vertices, codes = [points[0]], [Path.MOVETO]
    for (x, y), (u, v) in pairwise(points):
        middle = (y + v) / 2.0
        vertices += [(x, middle), (u, middle), (u, v)]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)


def dag_places(
    names: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[Places, dict[tuple[str, str], list[str]]]:
    """Places of nodes in rows by the longest path of causes, and the points that edges pass.

    An edge has a point of its own in every row that it passes, which takes part in the ordering;
    these points have places, too.

    Example:
        >>> places, chains = dag_places(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
        >>> places["a"][1], places["c"][1], len(chains["a", "c"])
        (2.0, 0.0, 3)
    """
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for cause, effect in edges:
            depth[effect] = max(depth[effect], min(depth[cause] + 1, len(names)))
    chains = {}
    for number, (cause, effect) in enumerate(edges):
        between = {f"\0{number} {row}": row for row in range(depth[cause] + 1, depth[effect])}
        chains[cause, effect] = [cause, *between, effect]
        depth |= between
    near: dict[str, list[str]] = {name: [] for name in depth}
    for chain in chains.values():
        for first, second in pairwise(chain):
            near[first].append(second)
            near[second].append(first)
    across = dict.fromkeys(depth, 0.0)
    rows = [[name for name in depth if depth[name] == row] for row in sorted({*depth.values()})]
    for row in rows:
        across |= {name: k - (len(row) - 1) / 2 for k, name in enumerate(row)}
    for _ in range(SWEEPS):
        for row in [*rows, *rows[::-1]]:
            across |= _separate({n: fmean([across[k] for k in near[n] or [n]]) for n in row})
    centre = fmean([min(across.values()), max(across.values())])
    deepest = max(depth.values())
    places = {name: (across[name] - centre, float(deepest - depth[name])) for name in depth}
    return places, chains


def _edges(ax: Axes, graph: Graph, places: Places) -> None:
    """Lines, those of one kind in one collection."""
    from matplotlib.collections import LineCollection

    for kind, dashes in (("flow", "solid"), ("identity", "dashed")):
        ends = [
            [places[edge.child], places[edge.parent]] for edge in graph.edges if edge.kind == kind
        ]
        if ends:
            lines = LineCollection(
                ends, colors=INK, linewidths=HAIRLINE, linestyles=dashes, alpha=0.7,
                label=kind, gid=kind, zorder=1,
            )  # fmt: skip
            ax.add_collection(lines)


def _nodes(
    ax: Axes, graph: Graph, places: Places, observed: Collection[str], kinds: Mapping[str, str]
) -> None:
    """Markers, those of one kind in one collection; a plus on nodes that join children."""
    sizes = _sizes(ax, places)
    looks = {
        "leaf": ("s", OBSERVED, OBSERVED),
        "evidence": ("s", OBSERVED, OBSERVED),
        "target": ("s", "white", FILLED),
        "latent": ("o", "white", INK),
        "latent, evidence": ("o", OBSERVED, OBSERVED),
        "aggregation": ("o", "white", INK),
    }

    def mark(chosen: Collection[str], marker: str, share: float, **options: Any) -> None:
        if chosen:
            across, up = zip(*(places[name] for name in chosen), strict=True)
            areas = [share * sizes[name] for name in chosen]
            ax.scatter(across, up, s=areas, marker=marker, linewidths=HAIRLINE, **options)

    for kind, (marker, face, edge) in looks.items():
        chosen = [name for name, own in kinds.items() if own == kind]
        colours = {"facecolors": face, "edgecolors": edge}
        mark(chosen, marker, 1.0, label=kind, gid=kind, zorder=2, **colours)
    joins = [name for name in kinds if len(graph.children(name)) > 1]
    for given, colour in ((False, INK), (True, "white")):
        chosen = [name for name in joins if (name in observed) == given]
        mark(chosen, "+", 0.45, c=colour, gid="plus", zorder=3)


def _kind(graph: Graph, node: Node, observed: Collection[str] | None) -> str:
    """How a node is shown."""
    if not graph.children(node.name):
        if observed is None:
            return "leaf"
        return "evidence" if node.name in observed else "target"
    if node.name in (observed or ()):
        return "latent, evidence"
    return "aggregation" if len(graph.children(node.name)) > 1 else "latent"


def _rows(places: Places) -> list[tuple[float, list[str], float]]:
    """Every height, its names from left to right, and the least distance between neighbours."""
    rows: dict[float, list[str]] = {}
    for name in sorted(places, key=lambda name: places[name]):
        rows.setdefault(places[name][1], []).append(name)
    gaps = {y: [places[b][0] - places[a][0] for a, b in pairwise(row)] for y, row in rows.items()}
    return [(y, names, min(gaps[y], default=1e3)) for y, names in rows.items()]


def _breadth(graph: Graph, places: Places) -> float:
    """Inches across at which the labels of latent nodes fit, within reason."""
    across = [x for x, _ in places.values()]
    unit = 0.62
    for y, names, gap in _rows(places):
        if y > 0:
            longest = max(len(_label(graph.node(name))) for name in names)
            unit = max(unit, (LETTER * longest + 0.2) / gap)
    return min(max(3.6, unit * (max(across) - min(across) + 1.2)), BROADEST)


def _sizes(ax: Axes, places: Places) -> dict[str, float]:
    """Areas of the markers, so that neighbours do not touch."""
    left, right = ax.get_xlim()
    points = 72.0 * inches(ax)[0] / (right - left)
    sides = {y: min(12.0, 0.62 * points * gap) for y, _, gap in _rows(places)}
    return {name: sides[y] ** 2 for name, (_, y) in places.items()}


def _columns(words: list[str], broad: float) -> int:
    """How many entries of the legend stand side by side in that many inches."""
    return max(1, min(len(words), int(broad / (LETTER * max(map(len, words)) + 0.4))))


def _legend(ax: Axes, columns: int) -> None:
    """What the marks mean; an aggregation node with its plus."""
    result = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    shown: dict[str, Any] = {}
    for words, handle in result.items():
        shown[words] = copy(handle)
        if hasattr(handle, "set_sizes"):
            shown[words].set_sizes([60.0])
    if "aggregation" in shown:
        plus = next(part for part in ax.collections if part.get_gid() == "plus")
        mark: Any = copy(plus)
        mark.set_sizes([30.0])
        shown["aggregation"] = (shown["aggregation"], mark)
    ax.legend(
        list(shown.values()), list(shown), loc="lower center", bbox_to_anchor=(0.5, 0.0),
        ncols=columns,
        frameon=False, fontsize=SMALL, handletextpad=0.3, columnspacing=1.2, borderpad=0.0,
    )  # fmt: skip


def _below(graph: Graph, broad: float, words: list[str]) -> float:
    """Inches that labels of leaves and the legend take below a drawing of that width."""
    texts = [_label(graph.node(leaf)) for leaf in graph.leaves]
    needed = LETTER * max(map(len, texts))
    room = broad / (len(texts) + 0.2)
    upright = UPRIGHT <= room < needed
    lines = math.ceil(len(words) / _columns(words, broad))
    return (needed + 0.2 if upright else 0.35) + LEGEND * (lines + 0.5)


def _frame(ax: Axes, graph: Graph, places: Places, words: list[str]) -> None:
    """Limits with room for markers, labels and the legend, which are measured in inches."""
    broad, tall = inches(ax)
    across = [x for x, _ in places.values()]
    side = max(0.6, 0.02 * (max(across) - min(across)))
    left, right = min(across) - side, max(across) + side
    # Labels of inner nodes stand at their right, and the last one needs room too.
    letter = LETTER * (right - left) / broad
    inner = [name for name in places if graph.children(name) and graph.parents(name)]
    ends = [places[name][0] + letter * (len(_label(graph.node(name))) + 2) for name in inner]
    ax.set_xlim(left, max(right, *ends) if ends else right)
    top, layers = 0.35, len(graph.layers) - 1
    below = min(_below(graph, broad, words), 0.6 * tall)
    unit = layers / max(tall - top - below, 0.2 * tall)
    ax.set_ylim(-below * unit, layers + top * unit)


def _labels(ax: Axes, graph: Graph, places: Places) -> None:
    """Names and widths, level where they fit, upright below crowded leaves, else how many."""
    left, right = ax.get_xlim()
    inch = inches(ax)[0] / (right - left)
    for y, names, gap in _rows(places):
        texts = [_label(graph.node(name)) for name in names]
        room = inch * gap
        needed = LETTER * max(map(len, texts))
        if room >= needed or (y == 0 and room >= UPRIGHT):
            for name, text in zip(names, texts, strict=True):
                _write(ax, graph, name, places[name], text, upright=room < needed)
        else:
            below = y == 0
            ax.annotate(
                f"{len(names)} {'leaves' if below else 'nodes'}",
                ((left + right) / 2 if below else left, y), textcoords="offset points",
                xytext=(0.0, -9.0) if below else (4.0, 12.0), fontsize=SMALL, color=INK,
                ha="center" if below else "left", va="top" if below else "bottom",
            )  # fmt: skip


def _label(node: Node) -> str:
    words = f"{shorten(node.name, LETTERS_SHOWN)} ({node.width})"
    return words if node.aggregation is None else f"{words}, {node.aggregation}"


def _write(
    ax: Axes, graph: Graph, name: str, place: tuple[float, float], text: str, *, upright: bool
) -> None:
    """The label of a node: of a leaf below, of a root above, of others beside."""
    offset, across, up = (8.0, 0.0), "left", "center"
    if not graph.children(name):
        offset, across, up = (0.0, -9.0), "center", "top"
    elif not graph.parents(name):
        offset, across, up = (0.0, 9.0), "center", "bottom"
    ax.annotate(
        plain(text), place, xytext=offset, textcoords="offset points", fontsize=SMALL, color=INK,
        ha=across, va=up, rotation="vertical" if upright else "horizontal", zorder=4,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
    )  # fmt: skip
