"""What is found about the variables of a model, given a question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .variables import Array, Value, Variable

LEVEL = 0.9
"""Of the intervals on the page."""


@dataclass(frozen=True)
class Finding:
    """What is known of one variable.

    Args:
        variable: which one.
        value: the best guess: the mean, or the likeliest category.
        given: whether it is evidence.
        mean: the expected value on the variable's axis; NaN for choices.
        std: the standard deviation; 0 if given, NaN for choices.
        low: the lower end of the interval; NaN for choices.
        high: the upper end.
        draws: of numbers and dates, `(draws,)`; they may be quantiles at even levels.
        probabilities: of the categories of a choice, `(categories,)`.
    """

    variable: Variable
    value: Value
    given: bool = False
    mean: float = math.nan
    std: float = math.nan
    low: float = math.nan
    high: float = math.nan
    draws: Array = field(default_factory=lambda: np.zeros(0))
    probabilities: Array = field(default_factory=lambda: np.zeros(0))
    drawn: dict[tuple[float, float], Array] = field(default_factory=dict, compare=False, repr=False)
    """Densities that were computed already, by the ends of their axis."""

    @property
    def text(self) -> str:
        """The best guess in few characters."""
        if self.variable.kind == "choice" or self.given:
            return self.variable.show(self.value)
        return self.variable.show_number(self.mean)

    def moved(self, other: Finding) -> float:
        """How far the answer lies from another: in deviations, or the share of moved chance.

        Example:
            >>> age = Variable("age", "number", "age")
            >>> Finding(age, 3.0, mean=3.0).moved(Finding(age, 1.0, mean=1.0, std=4.0))
            0.5
        """
        if self.variable.kind == "choice":
            return float(np.abs(self.probabilities - other.probabilities).sum() / 2.0)
        return abs(self.mean - other.mean) / (other.std or math.inf)


def given_finding(variable: Variable, value: Value) -> Finding:
    """What is known of evidence: everything."""
    if variable.kind == "choice":
        certain = np.array([float(category == value) for category in variable.categories])
        return Finding(variable, value, True, probabilities=certain)
    place = variable.number_of(value)
    return Finding(variable, value, True, place, 0.0, place, place, np.array([place]))


@dataclass(frozen=True)
class LatentFinding:
    """Mean and deviation of a latent node's coordinates, `(width,)` each; NaN if unknown."""

    node: str
    mean: Array
    std: Array


@dataclass(frozen=True)
class Findings:
    """Everything that a model says to a question.

    Args:
        variables: by name.
        latent: by node.
        influence: by the name of evidence, how far each other variable's answer moves when that
            evidence is taken away.
    """

    variables: Mapping[str, Finding]
    latent: Mapping[str, LatentFinding]
    influence: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def ranked(self) -> list[tuple[str, float, str]]:
        """Evidence by how much it moved the answers: name, mean movement, what it moved most."""
        found = []
        for name, moves in self.influence.items():
            most = max(moves, key=lambda other: moves[other], default="")
            found.append((name, float(np.mean(list(moves.values()) or [0.0])), most))
        return sorted(found, key=lambda row: -row[1])


def influence_of(
    whole: Mapping[str, Finding], without: Mapping[str, Finding], scale: Mapping[str, Finding]
) -> dict[str, float]:
    """How far answers lie from those without one piece of evidence, in marginal deviations."""
    found = {}
    for name, finding in whole.items():
        other = without[name]
        if finding.given or other.given or finding.variable.idle:
            continue
        if finding.variable.kind == "choice":
            found[name] = finding.moved(other)
        else:
            spread = scale[name].std
            found[name] = abs(finding.mean - other.mean) / spread if spread > 0.0 else 0.0
    return found
