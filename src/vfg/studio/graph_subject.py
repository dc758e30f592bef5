"""Models that were built in Python: `VFG` and `GaussianVFG`, asked column by column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vfg
from vfg.inference import Answer
from vfg.likelihoods import Bernoulli, Categorical

from .findings import LEVEL, Finding, LatentFinding
from .pictures import picture_shape
from .quick import quick_exact, quick_infer
from .subjects import Evidence, Subject, put_evidence
from .variables import Array, Variable

LEVELS = (np.arange(128) + 0.5) / 128
"""Levels of the quantiles that stand for a distribution."""
MANY_COLUMNS = 64
"""Beyond this, spreads are normal ones around the mean, since draws take too long."""
ROWS_FOR_CONSISTENCY = 256


class GraphSubject(Subject):
    """A `vfg.VFG` or `vfg.GaussianVFG` to ask.

    Args:
        model: the model.
        file: where it lies.
    """

    def __init__(self, model: vfg.VFG | vfg.GaussianVFG, file: str = "model.vfg") -> None:
        super().__init__(file)
        self.model = model.eval()
        self.kind = type(model).__name__
        self.graph = model.graph
        self.places: dict[str, int] = {}
        found: dict[str, Variable] = {}
        for leaf, columns in model.sections.positions.items():
            for label, column in zip(_labels(model, leaf), columns, strict=True):
                self.places[label] = column
                found[label] = _variable(model, label, leaf, column)
        self.variables = {k: found[k] for k in sorted(found, key=lambda k: self.places[k])}

    @cached_property
    def picture(self) -> tuple[int, int] | None:
        """Height and width of the image that the columns are, or None."""
        return picture_shape(self.graph)

    def aggregation(self, node: str) -> str:
        if isinstance(self.model, vfg.GaussianVFG):
            return "gaussian"
        return self.graph.node(node).aggregation or str(self.model.aggregation)

    def flow(self, child: str, parent: str) -> str:
        if isinstance(self.model, vfg.GaussianVFG):
            return "linear-Gaussian"
        spec = self.model.flow_specs.get(f"{child}->{parent}")
        if spec is None:
            return "identity"
        sizes = [f"{k} {v}" for k, v in spec.to_dict().items() if k in ("blocks", "hidden")]
        return " ".join([spec.name, *sizes])

    def python(self, evidence: Evidence, target: str | None) -> str:
        given = self._by_name(evidence)
        wanted = "" if target is None else f", targets=[{self._target(target)!r}]"
        nan = "nan = float('nan')\n" if "nan" in given else ""
        return (
            f"import vfg\n\n{nan}model = vfg.load({self.file!r})\n"
            f"answer = model.infer({given}{wanted})\n"
            "print(answer.mean, answer.quantile([0.05, 0.95]))"
        )

    def _by_name(self, evidence: Evidence) -> str:
        """Evidence as `infer` takes it: by column, or by leaf with NaN for its free coordinates."""
        parts = []
        for leaf, columns in self.model.sections.positions.items():
            labels = _labels(self.model, leaf)
            given = {k: evidence[k] for k in labels if k in evidence}
            if given and (self.graph.node(leaf).columns or len(columns) == 1):
                names = self._columns(labels)
                parts += [f"{names[k]!r}: {_number(v)}" for k, v in given.items()]
            elif given:
                row = ", ".join(_number(given[k]) if k in given else "nan" for k in labels)
                parts.append(f"{leaf!r}: [[{row}]]")
        return "{" + ", ".join(parts) + "}"

    def _columns(self, labels: Sequence[str]) -> dict[str, str | int]:
        """What `infer` calls variables: their names, or positions of columns without names."""
        named = self.graph.columns
        if named is not None and isinstance(named[0], int):
            return {k: self.places[k] for k in labels}
        return {k: k for k in labels}

    def _target(self, name: str) -> str | int:
        variable = self.variables[name]
        if self.graph.columns is not None:
            return self._columns([name])[name]
        return variable.leaf

    def pieces(self, evidence: Evidence) -> dict[str, list[str]]:
        if not isinstance(self.model, vfg.GaussianVFG) or self.model.leaves.is_elementwise:
            return super().pieces(evidence)
        # Maps of whole sections know nothing of sections in part.
        found: dict[str, list[str]] = {}
        for name in evidence:
            found.setdefault(self.variables[name].leaf, []).append(name)
        return found

    def rows(self, questions: Sequence[Evidence]) -> Tensor:
        """Questions as a table with NaN for gaps."""
        table = torch.full((len(questions), len(self.places)), torch.nan, dtype=torch.float64)
        for row, evidence in enumerate(questions):
            for name, value in evidence.items():
                table[row, self.places[name]] = float(value)
        return table

    def consistency(self, table: Any) -> dict[str, float]:
        if not isinstance(self.model, vfg.VFG) or self.model.sampling is not None:
            return {}
        found = self.model.consistency(table[:ROWS_FOR_CONSISTENCY])
        return {node: float(distance.mean()) for node, distance in found.items()}

    def _answers(
        self, questions: Sequence[Evidence]
    ) -> tuple[Mapping[str, Finding], Sequence[Mapping[str, Finding]], Mapping[str, Any]]:
        table = self.rows(questions)
        targets = [*self.graph.leaves, *self.latents]
        means, answer = self._asked(table, targets)
        found = self._findings(answer)
        rough = [self._rough(mean) for mean in means[1:]]
        placed = [
            put_evidence(one, self.variables, given)
            for one, given in zip([found, *rough], questions, strict=True)
        ]
        latent = {
            node: LatentFinding(node, _row(answer.mean[node]), _row(answer.std[node]))
            for node in self.latents
        }
        return placed[0], placed[1:], latent

    def _asked(self, table: Tensor, targets: list[str]) -> tuple[Tensor, Answer]:
        if isinstance(self.model, vfg.VFG) and self.model.sampling is None:
            return quick_infer(self.model, table, list(targets))
        if isinstance(self.model, vfg.GaussianVFG):
            self.model.leaves.check(~table.isnan())
            many: Answer = quick_exact(self.model, table)
            first: Answer = quick_exact(self.model, table[:1], targets=list(targets))
        else:
            many = self.model.infer(table)
            first = self.model.infer(table[:1], targets=list(targets))
        means = torch.empty_like(table)
        for leaf, columns in self.model.sections.positions.items():
            means[:, list(columns)] = many.mean[leaf]
        return means, first

    def _findings(self, answer: Answer) -> dict[str, Finding]:
        width = len(self.places)
        mean, std = self._flat(answer.mean), self._flat(answer.std)
        ends = [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]
        # One call, since draws behind quantiles are made for each.
        levels = ends if width > MANY_COLUMNS else [*ends, *LEVELS.tolist()]
        quantiles = self._flat(answer.quantile(levels))
        probabilities = {k: _row(v) for k, v in answer.probabilities.items()}
        found = {}
        for name, variable in self.variables.items():
            k = self.places[name]
            if variable.kind == "choice":
                chances = probabilities.get(variable.leaf, np.array([1.0 - mean[k], mean[k]]))
                found[name] = Finding(variable, int(chances.argmax()), probabilities=chances)
            else:
                found[name] = Finding(
                    variable,
                    float(mean[k]),
                    False,
                    float(mean[k]),
                    float(std[k]),
                    float(quantiles[0, k]),
                    float(quantiles[1, k]),
                    quantiles[2:, k] if width <= MANY_COLUMNS else quantiles[:2, k],
                )
        return found

    def _rough(self, mean: Tensor) -> dict[str, Finding]:
        """Findings from expected values alone."""
        found = {}
        for name, variable in self.variables.items():
            value = float(mean[self.places[name]])
            if variable.kind == "choice":
                codes = np.arange(len(variable.categories), dtype=float)
                pair = np.array([1.0 - value, value])
                chances = pair if _is_chance(self.model, variable) else 1.0 * (codes == value)
                found[name] = Finding(variable, int(chances.argmax()), probabilities=chances)
            else:
                found[name] = Finding(variable, value, mean=value)
        return found

    def _flat(self, values: Mapping[Any, Tensor]) -> Array:
        """Values by leaf, of one row, in the order of the columns, `(..., columns)`."""
        leaves = self.model.sections.positions
        first = values[next(iter(leaves))]
        table = np.empty((*first.shape[:-2], len(self.places)))
        for leaf, columns in leaves.items():
            table[..., list(columns)] = values[leaf][..., 0, :].numpy()
        return table


def _row(value: Tensor) -> Array:
    return value.reshape(value.shape[0], -1)[0].numpy()


def _number(value: Any) -> str:
    return repr(float(value)) if not isinstance(value, bool) else repr(int(value))


def _is_chance(model: Any, variable: Variable) -> bool:
    return isinstance(model.likelihood_specs[variable.leaf], Bernoulli)


def _labels(model: Any, leaf: str) -> tuple[str, ...]:
    columns = model.graph.node(leaf).columns or ()
    if columns and isinstance(columns[0], str):
        return tuple(columns)
    count = len(model.sections.positions[leaf])
    return (leaf,) if count == 1 else tuple(f"{leaf}[{k}]" for k in range(count))


def _variable(model: Any, name: str, leaf: str, column: int) -> Variable:
    spec = model.likelihood_specs[leaf]
    if isinstance(spec, Bernoulli | Categorical):
        count = spec.categories if isinstance(spec, Categorical) else 2
        return Variable(name, "choice", leaf, categories=tuple(range(count)))
    scaling = model.scaling
    low, high = float(scaling.low[column]), float(scaling.high[column])
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        centre, width = float(scaling.location[column]), 3.0 * float(scaling.scale[column])
        low, high = centre - width, centre + width
    return Variable(name, "number", leaf, low, high)
