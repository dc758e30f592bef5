"""What is asked: any model, behind one small interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import vfg
from vfg.graph import Graph
from vfg.tabular.model import TableModel

from .findings import Finding, Findings, given_finding, influence_of
from .variables import Value, Variable, listed

Evidence: TypeAlias = Mapping[str, Value]
"""Values by the names of variables; the order is that in which they were given."""
MOST_PIECES = 24
"""Beyond this much evidence, its influence is told leaf by leaf."""
DRAWS = 192
"""About how many draws are behind a density."""


class Subject(ABC):
    """A model that a page shows and asks.

    How to write a new one: subclass, set `graph`, `variables` and `model`, implement the abstract
    methods, and let `open_subject` build it.

    Args:
        file: where the model lies; a made-up name if it lies nowhere.
    """

    kind: str
    graph: Graph
    variables: Mapping[str, Variable]
    model: Any

    def __init__(self, file: str) -> None:
        self.file = file

    @abstractmethod
    def _answers(
        self, questions: Sequence[Evidence]
    ) -> tuple[Mapping[str, Finding], Sequence[Mapping[str, Finding]], Mapping[str, Any]]:
        """All findings of the first question, rough ones of the others, and latent findings."""

    @abstractmethod
    def aggregation(self, node: str) -> str:
        """How a latent node joins its children."""

    @abstractmethod
    def flow(self, child: str, parent: str) -> str:
        """What an edge carries."""

    @cached_property
    def marginal(self) -> Findings:
        """What is known without evidence."""
        found, _, latent = self._answers([{}])
        return Findings(found, latent)

    def answer(self, evidence: Evidence) -> Findings:
        """What is known given evidence, and which evidence moved it.

        Raises:
            ValueError: for evidence that names no variable, or a value that it cannot have.
        """
        checked = self.checked(evidence)
        if not checked:
            return self.marginal
        pieces = self.pieces(checked)
        without = [
            {k: v for k, v in checked.items() if k not in piece} for piece in pieces.values()
        ]
        found, others, latent = self._answers([checked, *without])
        influence = {
            name: influence_of(found, other, self.marginal.variables)
            for name, other in zip(pieces, others, strict=True)
        }
        return Findings(found, latent, influence)

    def pieces(self, evidence: Evidence) -> dict[str, list[str]]:
        """Evidence whose influence is told apart: single variables, or leaves where it is much."""
        found: dict[str, list[str]] = {}
        for name in evidence:
            piece = name if len(evidence) <= MOST_PIECES else self.variables[name].leaf
            found.setdefault(piece, []).append(name)
        return found

    def checked(self, evidence: Evidence) -> dict[str, Value]:
        """Evidence whose names and values are known to be good."""
        return {name: self.variable(name).parse(value) for name, value in evidence.items()}

    def variable(self, name: str) -> Variable:
        """The variable of that name.

        Raises:
            ValueError: if there is none.
        """
        if name not in self.variables:
            raise ValueError(f"there is no {name!r}; there are {listed(list(self.variables))}")
        return self.variables[name]

    def variables_of(self, leaf: str) -> list[Variable]:
        """The variables that a leaf holds."""
        return [variable for variable in self.variables.values() if variable.leaf == leaf]

    @cached_property
    def latents(self) -> tuple[str, ...]:
        """The latent nodes, roots first."""
        return tuple(node for layer in reversed(self.graph.layers[1:]) for node in layer)

    @property
    def summary(self) -> str:
        """The model in half a line."""
        leaves, latent = len(self.graph.leaves), len(self.latents)
        nodes = f"{latent} latent node{'' if latent == 1 else 's'}"
        return f"{self.kind} · {len(self.variables)} columns · {leaves} leaves · {nodes}"

    @abstractmethod
    def python(self, evidence: Evidence, target: str | None) -> str:
        """The question as Python."""

    def consistency(self, table: Any) -> dict[str, float]:
        """How far forward and backward states are apart, by node; empty if that means nothing."""
        return {}


def put_evidence(
    found: dict[str, Finding], variables: Mapping[str, Variable], given: Evidence
) -> dict[str, Finding]:
    """Findings with the evidence in its place."""
    return {
        name: given_finding(variables[name], given[name]) if name in given else finding
        for name, finding in found.items()
    }


def open_subject(model: Any) -> Subject:
    """A model, or a model file, as something to ask.

    Args:
        model: a path, a `TableModel`, a fitted `VFGImputer`, a `vfg.VFG` or a `vfg.GaussianVFG`.

    Raises:
        ValueError: for a file that cannot be read as a model.
        TypeError: for anything else.
    """
    from .graph_subject import GraphSubject
    from .table_subject import TableSubject

    file = "model.vfg"
    if isinstance(model, str | Path):
        file, model = str(model), _loaded(Path(model))
    model = getattr(model, "model_", model)
    if isinstance(model, TableModel):
        # Single rows are what it asks for, and those are quickest on a CPU.
        elsewhere = model.weights.device.type != "cpu"
        return TableSubject(deepcopy(model).cpu() if elsewhere else model, file)
    if isinstance(model, vfg.VFG | vfg.GaussianVFG):
        return GraphSubject(model, file)
    raise TypeError(
        f"the studio shows a model file, a VFG, a GaussianVFG or a fitted VFGImputer, but got "
        f"{type(model).__name__}"
    )


def _loaded(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}; name a model that vfg.save wrote")
    return vfg.load(path)
