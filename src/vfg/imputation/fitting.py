"""Fitting the parts of a `TableModel`: which columns, which graph, linear start, members."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.graph import Graph
from vfg.imputation.linear import fit_linear, star
from vfg.imputation.members import fit_members
from vfg.imputation.mixtures import Mixture
from vfg.imputation.plan import FEWEST_ROWS, MOST_COLUMNS, MOST_ROWS, planned
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.settings import ImputerSettings
from vfg.imputation.stacking import Parts, Stacking
from vfg.model import VFG
from vfg.tables.cells import Label
from vfg.tables.encoding import Encoding
from vfg.tables.frames import Table, quote
from vfg.tables.schema import Schema
from vfg.training.data import choose_device
from vfg.training.history import History

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel

ENOUGH = 0.15
"""The share of a budget that the linear model may take; beyond it nothing is bent."""


@dataclass
class FittedParts:
    """All that a table's model is made of; see `vfg.TableModel.of_parts`."""

    encoding: Encoding
    columns: list[int]
    linear: GaussianVFG | None
    combination: Stacking
    members: list[VFG] = field(default_factory=list)
    mixtures: list[Mixture] = field(default_factory=list)
    neighbours: list[RowMixture] = field(default_factory=list)
    stack: VFG | None = None
    history: History | None = None


def fit_parts(
    table: Table, settings: ImputerSettings, start: TableModel | None = None
) -> FittedParts:
    """Fit everything to a table; every column is read once.

    Args:
        table: with missing cells.
        settings: sizes, budget and seed.
        start: a fitted model whose encoding and graph stay and whose members go on; it stays as it
            is. None begins anew.

    Raises:
        ValueError: for a graph whose leaves are not the columns of the table.
    """
    if start is not None:
        encoding, columns = start.encoding, start.columns
        graph = None if start.linear is None else start.linear.graph
        whole = encoding.evidence(table, range(encoding.width))
        members = [deepcopy(member).cpu() for member in start.member_models] or None
        return _fit_to_matrix(encoding, columns, graph, whole, settings, members)
    encoding = fit_encoding(table, settings)
    whole = encoding.evidence(table, range(encoding.width))
    columns, graph = known_columns(encoding, whole, settings)
    return _fit_to_matrix(encoding, columns, graph, whole, settings, None)


def fit_encoding(table: Table, settings: ImputerSettings) -> Encoding:
    """The encoding of a table whose filled cells keep to the observed range."""
    schema, marker = settings.schema, settings.missing_values
    if not isinstance(schema, Schema):
        schema = Schema.infer(table, schema, missing_values=marker)
    if settings.bounds is not None:
        schema = schema.bounded(settings.bounds)
    return Encoding.fit(schema, table, missing_values=marker)


def _fit_to_matrix(
    encoding: Encoding,
    columns: list[int],
    graph: Graph | None,
    whole: tuple[Tensor, Tensor],
    settings: ImputerSettings,
    members: list[VFG] | None,
) -> FittedParts:
    begun = time.monotonic()
    plain = Stacking.of_members(len(columns))
    values, observed = _matrix(whole, columns, settings.seed)
    if graph is None:
        return FittedParts(encoding, columns, None, plain)
    linear = fit_linear(graph, values, observed, settings.seed)
    spent = time.monotonic() - begun
    late = _is_late(spent, settings.budget)
    if not supports_deep(graph, len(values), settings.bend) or late:
        return FittedParts(encoding, columns, linear, plain)
    left = None if settings.budget is None else settings.budget - spent
    unordered = encoding.unordered[columns]
    parts, combination, history = _fit_ensemble(
        graph, values, observed, unordered, settings, left, members
    )
    return FittedParts(
        encoding,
        columns,
        linear,
        combination,
        parts.members,
        parts.mixtures,
        parts.neighbours,
        parts.stacked_members,
        history,
    )


def _fit_ensemble(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    unordered: Tensor,
    settings: ImputerSettings,
    budget: float | None,
    members: list[VFG] | None,
) -> tuple[Parts, Stacking, History]:
    plan = planned(
        *values.shape,
        known=float(observed.double().mean()),
        members=settings.members if members is None else len(members),
        mixtures=settings.mixtures,
        # Rows know nothing of a given graph.
        neighbours=settings.neighbours if settings.graph is None else 0,
        width=settings.width,
        flow=settings.flow,
        steps=settings.steps,
    )
    return fit_members(
        graph,
        values,
        observed,
        plan,
        seed=settings.seed,
        budget=budget,
        progress=settings.progress,
        device=choose_device(settings.device),
        unordered=unordered,
        members=members,
    )


def _matrix(whole: tuple[Tensor, Tensor], columns: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """The entries to learn from: of rows that know something, and not of too many rows."""
    values, observed = (part[:, columns] for part in whole)
    rows = observed.any(1).nonzero()[:, 0]
    if len(rows) > MOST_ROWS:
        generator = torch.Generator().manual_seed(seed)
        rows = rows[torch.randperm(len(rows), generator=generator)[:MOST_ROWS].sort().values]
    return values[rows].contiguous(), observed[rows].contiguous()


def known_columns(
    encoding: Encoding, whole: tuple[Tensor, Tensor], settings: ImputerSettings
) -> tuple[list[int], Graph | None]:
    """The columns of the matrix that models know, leaf by leaf, and a graph over them.

    Without a graph the leaves are in an order that follows from what their columns hold, so that
    the order of a table's columns does not matter.

    Args:
        encoding: of the table.
        whole: its matrix, and which of its entries are evidence.
        settings: a graph over the columns of the table, or the width of a root over all of them.

    Returns:
        The columns, and the graph; None if no column tells anything.

    Raises:
        ValueError: for a graph whose leaves are not the columns of the table.
    """
    if settings.graph is not None:
        return _graph_over(settings.graph, encoding)
    active = [label for label in encoding.sections if label not in encoding.idle]
    active.sort(key=lambda label: _contents(*(part[:, encoding.sections[label]] for part in whole)))
    columns = [place for label in active for place in _places(encoding, label)]
    if not active:
        return columns, None
    widths = [len(_places(encoding, label)) for label in active]
    plan = planned(1000, len(columns), width=settings.width)
    return columns, star(widths, plan.width)


def _contents(values: Tensor, observed: Tensor) -> tuple[float, ...]:
    """Numbers that tell columns apart whatever their scale and sign, the same in any order."""
    sizes = values.abs().T.contiguous()
    steps = torch.arange(1.0, len(values) + 1.0, dtype=torch.float64)
    return (
        float(values.shape[1]),
        float(observed.sum()),
        float(sizes.pow(3).sum()),
        float((sizes * steps).sum()),
    )


def _places(encoding: Encoding, label: Label) -> list[int]:
    section = encoding.sections[label]
    return list(range(section.start, section.stop))


def _graph_over(graph: Graph, encoding: Encoding) -> tuple[list[int], Graph]:
    """The encoded columns in the order of a user's leaves, and the graph with their widths."""
    labels = _labels(graph, encoding)
    _check_labels(labels, encoding)
    columns: list[int] = []
    nodes = []
    for node in graph.nodes:
        if node.name in labels:
            own = [place for label in labels[node.name] for place in _places(encoding, label)]
            places = tuple(range(len(columns), len(columns) + len(own)))
            columns += own
            node = replace(node, width=len(places), columns=places)
        nodes.append(node)
    return columns, Graph(nodes, graph.edges)


def _labels(graph: Graph, encoding: Encoding) -> dict[str, tuple[Label, ...]]:
    """The columns of the table that every leaf holds.

    Those that it names, by name or position; else the column of its own name; else, if no leaf
    names any, as many as it is wide, one leaf after the other.
    """
    known = list(encoding.sections)
    widths = graph.sections
    named = graph.columns is not None or all(leaf in encoding.sections for leaf in widths)
    if not named and sum(widths.values()) == len(known):
        columns = iter(known)
        return {leaf: tuple(next(columns) for _ in range(width)) for leaf, width in widths.items()}
    found = {leaf: graph.node(leaf).columns or (leaf,) for leaf in widths}
    positions: dict[Label, Label] = dict(enumerate(known))
    return {
        leaf: tuple(c if c in encoding.sections else positions.get(c, c) for c in columns)
        for leaf, columns in found.items()
    }


def _check_labels(labels: dict[str, tuple[Label, ...]], encoding: Encoding) -> None:
    named = [label for found in labels.values() for label in found]
    unknown = [label for label in named if label not in encoding.sections]
    lacking = [
        label for label in encoding.sections if label not in named and label not in encoding.idle
    ]
    if unknown or lacking:
        raise ValueError(
            f"the leaves of the graph must hold the columns of the table, but the table lacks "
            f"{quote(unknown) or 'none'} and the graph lacks {quote(lacking) or 'none'}; name "
            "leaves like columns, or give them columns="
        )


def supports_deep(graph: Graph, rows: int, wanted: bool = True) -> bool:
    """Whether there is enough to learn from, and the graph has a nonlinear form.

    Trees of flows have, if all latent nodes are of one width that no leaf exceeds.

    Example:
        >>> supports_deep(Graph.star({"a": 1, "b": 1}, width=2), rows=100)
        True
        >>> network = Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("a", "b")])
        >>> supports_deep(network, rows=100)
        False
    """
    if not wanted or rows < FEWEST_ROWS or not 2 <= len(graph.leaves) <= MOST_COLUMNS:
        return False
    is_forest = all(len(graph.parents(edge.child)) == 1 for edge in graph.edges)
    plain = all(edge.kind == "flow" and edge.coordinates is None for edge in graph.edges)
    latent = [node for node in graph.nodes if node.name not in graph.sections]
    alike = len({node.width for node in latent}) == 1
    wide = max(graph.sections.values()) <= latent[0].width
    joint = all(node.aggregation in (None, "gaussian") for node in latent)
    return is_forest and plain and alike and wide and joint


def _is_late(spent: float, budget: float | None) -> bool:
    return budget is not None and spent > ENOUGH * budget and budget - spent < 1.0
