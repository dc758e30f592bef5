"""Asking a `TableModel`, which `vfg fit` and `VFGImputer` learn: columns of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfg.bigtable.filling import filled_schema
from vfg.graph import Graph
from vfg.graph.checks import suggestion
from vfg.tabular.categories import Codes, Levels
from vfg.tabular.combining import KINDS
from vfg.tabular.model import TableModel
from vfg.tabular.scales import Scale
from vfg.tabular.specs import Boolean, Categorical, ColumnSpec, Date, Ordinal

from .asking import Belief, Given, Question, Respondent, number

TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
Cells = NDArray[Any]


class TableRespondent(Respondent):
    """A model of a table.

    Args:
        model: what was learned.
    """

    kind = "TableModel"

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.labels = [str(label) for label in model.encoding.schema]
        self.specs = dict(zip(self.labels, model.encoding.schema.values(), strict=True))

    @property
    def columns(self) -> list[str] | None:
        counted = list(self.model.encoding.schema) == list(range(len(self.labels)))
        return None if counted else self.labels

    @property
    def graph(self) -> Graph | None:
        return None if self.model.linear is None else named_graph(self.model, self.labels)

    def ask(self, given: Given, targets: Sequence[str], how: Question) -> list[Belief]:
        for name in targets:
            self._check(name)
        values, observed = self._evidence(given)
        means = self.model.spread_out(self.model.means(values, observed))
        drawn = self.model.draws(values, observed, how.draws, how.seed)[:, 0]
        draws = self._cells(drawn)
        chosen = targets or [name for name in self.labels if name not in given]
        return [self._belief(name, means, draws[name], how) for name in chosen]

    def sample(self, rows: int, given: Given, seed: int, first: int) -> dict[str, Any]:
        values, observed = (part.expand(rows, -1) for part in self._evidence(given))
        ids = torch.arange(first, first + rows)
        found = self._cells(self.model.draws(values, observed, 1, seed, ids)[0])
        for name, text in given.items():
            found[name] = np.repeat(_cell(name, text, self.specs[name]), rows)
        return found

    def check(self, schema: Any) -> None:
        filled_schema(self.model, schema)

    def score(self, frame: Any) -> tuple[str, Cells]:
        return "log_prob", self.model.log_prob(*self.model.encode(frame)).numpy()

    def embed(self, frame: Any) -> dict[str, Cells]:
        if self.model.linear is None:
            raise ValueError("the model has no latent space, since no column tells anything")
        states = self.model.embed(*self.model.encode(frame)).numpy()
        return {f"h{place}": column for place, column in enumerate(states.T)}

    def describe(self) -> dict[str, Any]:
        encoding, graph = self.model.encoding, self.graph
        columns = [
            {"name": name, **_described(spec), "idle": label in encoding.idle}
            for (name, spec), label in zip(self.specs.items(), encoding.schema, strict=True)
        ]
        return {
            "kind": self.kind,
            "columns": columns,
            "members": len(self.model.members),
            "mixtures": len(self.model.mixtures),
            "neighbours": len(self.model.neighbours),
            "weights": weights_of(self.model),
            "parameters": sum(part.numel() for part in self.model.parameters()),
            "graph": None if graph is None else graph.to_dict(),
        }

    # Private.

    def _check(self, name: str) -> None:
        if name not in self.specs:
            raise ValueError(f"there is no column {name!r}; {suggestion(name, self.labels)}")

    def _evidence(self, given: Given) -> tuple[Tensor, Tensor]:
        """One encoded row, and which of its entries are evidence."""
        row = np.full((1, len(self.labels)), None, dtype=object)
        for name, text in given.items():
            self._check(name)
            row[0, self.labels.index(name)] = _cell(name, text, self.specs[name])
        return self.model.encode(row)

    def _cells(self, matrix: Tensor) -> dict[str, Cells]:
        found = self.model.encoding.decode_columns(self.model.spread_out(matrix))
        return dict(zip(self.labels, found.values(), strict=True))

    def _belief(self, name: str, means: Cells, draws: Cells, how: Question) -> Belief:
        label = list(self.model.encoding.schema)[self.labels.index(name)]
        encoding = self.model.encoding
        part, found = encoding.parts[label], means[:, encoding.sections[label]]
        if part.empty:
            return Belief(name, None)
        if isinstance(part, Codes):
            shares = part.probabilities(found)[0]
        elif isinstance(part, Levels):
            shares = np.array([np.mean(draws == category) for category in part.categories])
        else:
            assert isinstance(part, Scale)
            return _number(name, part, float(found[0, 0]), draws, how)
        return Belief(name, plain(part.decode(found)[0]), shares=_named(part.categories, shares))


def _number(name: str, part: Scale, mean: float, draws: Cells, how: Question) -> Belief:
    """What is believed about a column of numbers or dates, whose mean is standardised."""
    if part.clock is not None:
        ends = np.quantile(draws.astype(np.int64), how.ends).astype(np.int64).astype(draws.dtype)
        value = part.decode(np.array([[mean]]))[0]
        outer = plain(draws.min()), plain(draws.max())
        days = draws.astype(np.int64).astype(np.float64)
        return Belief(name, plain(value), None, (plain(ends[0]), plain(ends[1])), days, outer)
    low = -np.inf if part.floor is None else part.floor
    high = np.inf if part.ceiling is None else part.ceiling
    value = float(np.clip(mean * part.deviation * (not part.constant) + part.centre, low, high))
    numbers = draws.astype(np.float64)
    left, right = (float(end) for end in np.quantile(numbers, how.ends))
    return Belief(name, value, float(numbers.std()), (left, right), numbers)


def weights_of(model: TableModel) -> dict[str, float]:
    """How much the parts of a model weigh in its answers."""
    weights = model.weights.tolist() if len(model.members) else [0.0, 0.0, 1.0, 0.0, 0.0]
    return dict(zip(KINDS, weights, strict=True))


def named_graph(model: TableModel, labels: Sequence[str]) -> Graph:
    """The graph of a model, its leaves called after the columns that they hold.

    Args:
        model: with a linear model.
        labels: names of all columns of the table.
    """
    assert model.linear is not None
    graph, owner = model.linear.graph, _owners(model, labels)
    names: dict[str, str] = {}
    taken = [node.name for node in graph.nodes if node.name not in graph.sections]
    place = 0
    for leaf, width in graph.sections.items():
        columns = list(dict.fromkeys(owner[place : place + width]))
        name = "+".join(columns)
        while name in taken:
            name += "_"
        taken.append(name)
        names[leaf] = name
        place += width
    nodes = [
        replace(node, name=names.get(node.name, node.name), columns=None) for node in graph.nodes
    ]
    edges = [replace(edge, child=names.get(edge.child, edge.child)) for edge in graph.edges]
    return Graph(nodes, edges)


def _owners(model: TableModel, labels: Sequence[str]) -> list[str]:
    """The column of the table that every column of the matrix that models know belongs to."""
    owner = {
        place: name
        for name, section in zip(labels, model.encoding.sections.values(), strict=True)
        for place in range(section.start, section.stop)
    }
    return [owner[column] for column in model.columns]


def plain(value: Any) -> Any:
    """A cell as JSON can hold it: numbers, strings, truth values; dates in ISO form."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _named(categories: Sequence[Any], shares: Cells) -> dict[str, float]:
    pairs = sorted(zip(map(str, categories), map(float, shares), strict=True), key=lambda p: -p[1])
    return dict(pairs)


def _cell(name: str, text: str, spec: ColumnSpec) -> Any:
    """What was typed, as a cell of its column."""
    if isinstance(spec, Boolean):
        if text.lower() not in TRUTHS:
            raise ValueError(f"the value of {name!r} must be true or false, but is {text!r}")
        return TRUTHS[text.lower()]
    if isinstance(spec, Categorical | Ordinal):
        known = {str(category): category for category in spec.categories or ()}
        if text not in known:
            raise ValueError(f"{name!r} is never {text!r}; {suggestion(text, known)}")
        return known[text]
    if isinstance(spec, Date):
        return _moment(name, text)
    return number(name, text)


def _moment(name: str, text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "us")
    except ValueError:
        raise ValueError(
            f"the value of {name!r} must be a date such as 2024-12-31, but is {text!r}"
        ) from None


def _described(spec: ColumnSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": spec.name}
    if isinstance(spec, Categorical | Ordinal):
        found["categories"] = [plain(category) for category in spec.categories or ()]
    return found
