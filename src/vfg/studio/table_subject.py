"""Models of tables: what an imputer learned, asked cell by cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from vfg.graph import Graph
from vfg.graph.nodes import Edge, Node
from vfg.tabular.cells import Label
from vfg.tabular.columns import ColumnEncoding
from vfg.tabular.model import TableModel
from vfg.tabular.scales import Scale
from vfg.tabular.specs import Integer

from .findings import LEVEL, Finding, LatentFinding
from .quick import quick_exact, quick_table
from .subjects import DRAWS, Evidence, Subject, put_evidence
from .variables import Array, Kind, Value, Variable, days_of

ENDS = [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]
Places: TypeAlias = Literal["weibull", "hazen"]
"""At which levels draws, or quantiles at even levels, are taken to lie."""
EVEN = (np.arange(128) + 0.5) / 128
"""Levels of the quantiles that stand for a closed form."""


class TableSubject(Subject):
    """A `TableModel` to ask.

    Args:
        model: the model.
        file: where it lies.
    """

    kind = "table model"

    def __init__(self, model: TableModel, file: str = "model.vfg") -> None:
        super().__init__(file)
        self.model = model
        self.labels: dict[str, Label] = {str(label): label for label in model.encoding.schema}
        self.places: Places = "weibull" if model.bent else "hazen"
        self.leaves = _leaves(model)
        self.graph = _named_graph(model, self.leaves)
        holder = {label: leaf for leaf, labels in self.leaves.items() for label in labels}
        self.variables = {
            name: _variable(model, name, label, holder.get(label, ""))
            for name, label in self.labels.items()
        }

    def aggregation(self, node: str) -> str:
        return self.graph.node(node).aggregation or "gaussian"

    def flow(self, child: str, parent: str) -> str:
        members, mixtures = len(self.model.bent), len(self.model.mixed)
        beside = f" and {mixtures} mixtures" if mixtures else ""
        return f"couplings, {members} members{beside}" if members else "linear-Gaussian"

    def python(self, evidence: Evidence, target: str | None) -> str:
        given = ", ".join(f"{name!r}: {value!r}" for name, value in evidence.items())
        shown = "answer" if target is None else f"answer[{target!r}]"
        return (
            "import vfg\nfrom vfg.studio import ask\n\n"
            f"model = vfg.load({self.file!r})\n"
            f"answer = ask(model, {{{given}}})\n"
            f"print({shown})"
        )

    def table(self, questions: Sequence[Evidence]) -> Array:
        """Questions as the rows of a table."""
        rows = np.full((len(questions), len(self.labels)), None, dtype=object)
        for row, evidence in enumerate(questions):
            for place, name in enumerate(self.labels):
                if name in evidence:
                    rows[row, place] = self._cell(name, evidence[name])
        return rows

    def _cell(self, name: str, value: Value) -> Any:
        part = self.model.encoding.parts[self.labels[name]]
        if isinstance(part, Scale) and part.clock is not None:
            if part.clock.kind == "m":
                return np.timedelta64(round(float(value) * 86_400e6), "us").astype(object)
            return np.datetime64(value, "us").astype(object)
        return value

    def _answers(
        self, questions: Sequence[Evidence]
    ) -> tuple[Mapping[str, Finding], Sequence[Mapping[str, Finding]], Mapping[str, Any]]:
        values, observed = self.model.encode(self.table(questions))
        means, draws = self._means_and_draws(values, observed)
        found = self._findings(means[0], draws)
        rough = [self._findings(mean, mean[None]) for mean in means[1:]]
        placed = [
            put_evidence(one, self.variables, given)
            for one, given in zip([found, *rough], questions, strict=True)
        ]
        return placed[0], placed[1:], self._latent(values[:1], observed[:1])

    def _means_and_draws(
        self, values: torch.Tensor, observed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.model.linear is not None and not self.model.bent:
            answer = self.model.linear.infer(values[:1], observed=observed[:1])
            levels = answer.quantile(EVEN.tolist())
            return self.model.means(values, observed), torch.cat(list(levels.values()), -1)[:, 0]
        return quick_table(self.model, values, observed, DRAWS)

    def _findings(self, mean: torch.Tensor, draws: torch.Tensor) -> dict[str, Finding]:
        centre, spread = self.model.spread_out(mean[None]), self.model.spread_out(draws)
        encoding = self.model.encoding
        return {
            name: _finding(
                self.variables[name],
                encoding.parts[label],
                centre[:, encoding.sections[label]],
                spread[:, encoding.sections[label]],
                self.places,
            )
            for name, label in self.labels.items()
        }

    def _latent(self, values: torch.Tensor, observed: torch.Tensor) -> dict[str, LatentFinding]:
        """The states of the exact linear model."""
        if self.model.linear is None or not self.latents:
            return {}
        table = torch.where(observed, values, torch.nan)
        answer = quick_exact(self.model.linear, table, targets=list(self.latents))
        return {
            node: LatentFinding(node, answer.mean[node][0].numpy(), answer.std[node][0].numpy())
            for node in self.latents
        }

    @cached_property
    def known(self) -> tuple[str, ...]:
        """The columns that the models know."""
        idle = dict.fromkeys(self.model.encoding.idle)
        return tuple(name for name, label in self.labels.items() if label not in idle)


def _finding(
    variable: Variable, part: ColumnEncoding, centre: Array, draws: Array, places: Places
) -> Finding:
    value = part.decode(centre)[0]
    if part.empty:
        return Finding(variable, None)
    if variable.kind == "choice":
        # Of ordered levels a mean has no probabilities without its spread.
        scale = max(float(draws.std()), 1e-3) if part.name == "levels" else None
        chances = np.ones((1, 1)) if variable.idle else part.probabilities(centre, scale)
        return Finding(variable, _plain(value), probabilities=chances[0])
    place = _place(part, centre, value)
    if len(draws) == 1:
        return Finding(variable, value, mean=place)
    numbers = numbers_of(part.decode(draws))
    low, high = np.quantile(numbers, ENDS, method=places)
    shown = variable.value_of(place)
    return Finding(
        variable, shown, False, place, float(numbers.std()), float(low), float(high), numbers
    )


def _place(part: ColumnEncoding, centre: Array, value: Any) -> float:
    """Where the mean lies on the axis; of whole numbers before it is rounded."""
    if isinstance(part, Scale) and part.whole and not part.constant:
        low = -math.inf if part.floor is None else part.floor
        high = math.inf if part.ceiling is None else part.ceiling
        return float(np.clip(centre[0, 0] * part.deviation + part.centre, low, high))
    return float(numbers_of(np.asarray([value]))[0])


def numbers_of(cells: Array) -> Array:
    """Decoded cells as they lie on an axis: dates and durations in days."""
    return days_of(cells) if cells.dtype.kind in "Mm" else cells.astype(np.float64)


def _plain(value: Any) -> Value:
    return value.item() if isinstance(value, np.generic) else value


def _variable(model: TableModel, name: str, label: Label, leaf: str) -> Variable:
    part, spec = model.encoding.parts[label], model.encoding.schema[label]
    idle = label in model.encoding.idle
    if not isinstance(part, Scale):
        categories = tuple(_plain(c) for c in getattr(part, "categories", ()))
        if part.empty or (len(categories) > 1 and idle):
            categories = categories[:1]
        return Variable(name, "choice", leaf, categories=categories, idle=idle)
    kind: Kind
    if part.clock is not None:
        ends = days_of(part.clock.moments(np.array([part.lowest, part.highest])))
        kind = "date" if part.clock.kind == "M" else "number"
        return Variable(name, kind, leaf, float(ends[0]), float(ends[1]), idle=idle)
    kind = "integer" if isinstance(spec, Integer) else "number"
    return Variable(name, kind, leaf, part.lowest, part.highest, idle=idle)


def _leaves(model: TableModel) -> dict[str, tuple[Label, ...]]:
    """The columns of the table that every leaf of the model's graph holds."""
    if model.linear is None:
        return {}
    owner = {
        place: label
        for label, section in model.encoding.sections.items()
        for place in range(section.start, section.stop)
    }
    return {
        leaf: tuple(dict.fromkeys(owner[model.columns[k]] for k in places))
        for leaf, places in model.linear.sections.positions.items()
    }


def _named_graph(model: TableModel, leaves: dict[str, tuple[Label, ...]]) -> Graph:
    """The model's graph, whose leaves are called like their columns where they hold one."""
    if model.linear is None:
        return Graph.star({str(label): 1 for label in model.encoding.schema})
    graph = model.linear.graph
    latent = [node.name for node in graph.nodes if node.name not in leaves]
    names = dict(zip(latent, latent, strict=True))
    for leaf, labels in leaves.items():
        alone = str(labels[0]) if len(labels) == 1 else leaf
        names[leaf] = _free(alone, names)
    leaves_now = {names[leaf]: labels for leaf, labels in leaves.items()}
    leaves.clear()
    leaves.update(leaves_now)
    nodes = [Node(names[n.name], n.width, None, n.aggregation) for n in graph.nodes]
    edges: list[Edge] = [
        replace(e, child=names[e.child], parent=names[e.parent]) for e in graph.edges
    ]
    return Graph(nodes, edges)


def _free(name: str, taken: Mapping[str, str]) -> str:
    """The name, changed a little where another node has it already."""
    used = list(taken.values())
    while name in used or "->" in name or not name:
        name = (name.replace("->", "→") or "column") if "->" in name or not name else name + "′"
    return name
