"""Asking a `vfg.VFG` or a `vfg.GaussianVFG`: leaves, columns and latent nodes by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.graph import Graph
from vfg.graph.checks import suggestion
from vfg.inference import Answer
from vfg.likelihoods import Bernoulli, Categorical
from vfg.model import VFG

from .asking import Belief, Given, Question, Respondent, number

IMPORTANCE = 200
"""Draws per row behind the log-likelihood of sampled states."""


class GraphRespondent(Respondent):
    """A model of a graph.

    Args:
        model: exact or deep.
    """

    def __init__(self, model: VFG | GaussianVFG) -> None:
        self.model = model
        self.kind = type(model).__name__

    @property
    def graph(self) -> Graph:
        return self.model.graph

    @property
    def columns(self) -> list[str] | None:
        named = self.graph.columns
        return None if named is None or isinstance(named[0], int) else [str(x) for x in named]

    def ask(self, given: Given, targets: Sequence[str], how: Question) -> list[Belief]:
        names = [self._name(name) for name in targets] or self._free(given)
        answer = self.model.infer(self._values(given), names, seed=how.seed)
        return [belief for name in names for belief in self._beliefs(answer, name, how)]

    def sample(self, rows: int, given: Given, seed: int, first: int) -> dict[str, Any]:
        if not given and isinstance(self.model, VFG):
            own = seed if not first else _mixed(seed, first)
            table = self.model.sample(rows, seed=own)
            return self._by_label(lambda leaf: table[:, list(self.model.sections.positions[leaf])])
        values = {name: value.expand(rows, -1) for name, value in self._values(given).items()}
        if not values:
            leaf = self.graph.leaves[0]
            values = {leaf: torch.full((rows, self._width(leaf)), torch.nan)}
        ids = torch.arange(first, first + rows)
        answer = self.model.infer(values, list(self.graph.leaves), seed=seed, row_ids=ids)
        drawn = answer.samples(1)
        return self._by_label(lambda leaf: drawn[leaf][0])

    def check(self, schema: Any) -> None:
        """Nothing: tables are checked when they are read."""

    def score(self, frame: Any) -> tuple[str, NDArray[Any]]:
        if isinstance(self.model, GaussianVFG):
            return "log_prob", self.model.log_prob(frame).double().numpy()
        if self.model.states == "sampled":
            found = self.model.log_likelihood(frame, samples=IMPORTANCE)
            return "log_likelihood", found.double().numpy()
        with torch.no_grad():
            return "surrogate", self.model.surrogate(frame).total.double().numpy()

    def embed(self, frame: Any) -> dict[str, NDArray[Any]]:
        states = self.model.embed(frame).detach().double().numpy()
        roots = [
            f"{root}{place}" for root in self.graph.roots for place in range(self._width(root))
        ]
        return dict(zip(roots, states.T, strict=True))

    def describe(self) -> dict[str, Any]:
        settings = {
            key: value
            for key, value in self.model.to_dict().items()
            if isinstance(value, str | int | float | bool)
        }
        return {
            "kind": self.kind,
            "columns": [
                {"name": label, "kind": self.model.likelihood_specs[leaf].name, "idle": False}
                for leaf in self.graph.leaves
                for label in self._labels(leaf)
            ],
            **settings,
            "parameters": sum(part.numel() for part in self.model.parameters()),
            "graph": self.graph.to_dict(),
        }

    # Private.

    def _name(self, text: str) -> str | int:
        """A node, or a column by its name or position."""
        nodes = [node.name for node in self.graph.nodes]
        columns = list(self.graph.columns or ())
        if text in nodes or text in columns:
            return text
        if text.isdecimal() and int(text) in columns:
            return int(text)
        known = dict.fromkeys([*map(str, columns), *nodes])
        raise ValueError(f"there is no column or node {text!r}; {suggestion(text, known)}")

    def _free(self, given: Given) -> list[str | int]:
        """The leaves of which nothing is given."""
        return [
            leaf
            for leaf in self.graph.leaves
            if leaf not in given and not any(label in given for label in self._labels(leaf))
        ] or list(self.graph.leaves)

    def _values(self, given: Given) -> dict[str | int, Tensor]:
        """One row of evidence by name; the numbers of a wide node have commas between them."""
        found = {}
        for name, text in given.items():
            known = self._name(name)
            numbers = [number(name, part) for part in text.split(",")]
            if len(numbers) != self._width(known):
                raise ValueError(
                    f"{name!r} takes {self._width(known)} numbers with commas between them, but "
                    f"got {text!r}"
                )
            found[known] = torch.tensor([numbers], dtype=torch.float64)
        return found

    def _width(self, name: str | int) -> int:
        if isinstance(name, int) or name not in [node.name for node in self.graph.nodes]:
            return 1
        is_leaf = name in self.model.sections.positions
        return len(self.model.sections.positions[name]) if is_leaf else self.graph.node(name).width

    def _labels(self, name: str | int) -> list[str]:
        """What the coordinates of a target are called."""
        width = self._width(name)
        columns = None
        if isinstance(name, str) and name in self.model.sections.positions:
            columns = self.graph.node(name).columns
        if columns is not None and isinstance(columns[0], str):
            return [str(column) for column in columns]
        return [str(name)] if width == 1 else [f"{name}[{place}]" for place in range(width)]

    def _by_label(self, part: Callable[[str], Tensor]) -> dict[str, Any]:
        """Columns by label from the tables of all leaves."""
        return {
            label: part(leaf)[:, place].double().numpy()
            for leaf in self.graph.leaves
            for place, label in enumerate(self._labels(leaf))
        }

    def _spec(self, name: str | int) -> Any:
        """The likelihood behind a target; None for a latent node."""
        for leaf, spec in self.model.likelihood_specs.items():
            if name == leaf or name in (self.graph.node(leaf).columns or ()):
                return spec
        return None

    def _beliefs(self, answer: Answer, name: str | int, how: Question) -> list[Belief]:
        spec, labels = self._spec(name), self._labels(name)
        if isinstance(spec, Categorical):
            shares = answer.probabilities[name].reshape(-1).tolist()
            return [_categories(labels[0], shares)]
        mean = _flat(answer.mean[name])
        if isinstance(spec, Bernoulli):
            return [
                _categories(label, [1.0 - share, share])
                for label, share in zip(labels, mean.tolist(), strict=True)
            ]
        std = _flat(answer.std[name])
        low, high = (_flat(end) for end in answer.quantile(list(how.ends))[name])
        draws = answer.samples(how.draws)[name].reshape(how.draws, -1).double().numpy()
        return [
            Belief(
                label,
                float(mean[k]),
                _known(std[k]),
                None if np.isnan(low[k]) else (float(low[k]), float(high[k])),
                None if np.isnan(draws[:, k]).any() else draws[:, k],
            )
            for k, label in enumerate(labels)
        ]


def _mixed(seed: int, first: int) -> int:
    """A seed of its own for the rows that begin with a later one."""
    return int(np.random.SeedSequence([seed, first]).generate_state(1)[0])


def _flat(value: Tensor) -> NDArray[Any]:
    return np.asarray(value.detach().reshape(-1).double().numpy())


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _categories(label: str, shares: Sequence[float]) -> Belief:
    order = sorted(range(len(shares)), key=lambda code: -shares[code])
    return Belief(label, order[0], shares={str(code): float(shares[code]) for code in order})
