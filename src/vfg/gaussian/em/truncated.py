"""EM that passes over components which hardly explain a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vfg.gaussian.em.e_step import paired_e_step, suits
from vfg.gaussian.em.general import (
    Chunk,
    Expected,
    Moments,
    e_step,
    expected_moments,
    family_moments,
    needed_cliques,
    total,
)
from vfg.gaussian.em.paired import Cells, Normals, all_scores
from vfg.gaussian.factors import Masks, condition
from vfg.gaussian.parameters import Parameters, Values, factors_of
from vfg.gaussian.structure import Structure
from vfg.gaussian.trees import prefers_tree, tree_pass
from vfg.gaussian.wide_stars import is_wide_star, root_moments, root_of

FACTORISED = 5
"""What factorising a mask takes, in units of what a row takes besides."""
LOOKS = 5
"""Iterations between two looks at all components of all rows."""


@dataclass
class ActiveSteps:
    """E-steps over the components of every row that are not negligible.

    Which these are is found from all components every few iterations; in between they only get
    fewer. Rows with equal masks share their factorisations if all components are looked at, so a
    chunk is taken whole where that is less work.

    Args:
        structure: of the model.
        chunks: the rows.
        negligible: probability given a row below which a component is passed over.
    """

    structure: Structure
    chunks: Sequence[Chunk]
    negligible: float
    _active: dict[int, Tensor | None] = field(default_factory=dict)
    """The components of every row by chunk; None where all of them count."""
    _count: int = 0

    def __call__(self, values: Values) -> Expected:
        """Expected moments of all families; the log-likelihood lacks what is passed over."""
        if self._count % LOOKS == 0:
            self._active = {place: self._look(values, place) for place in range(len(self.chunks))}
        self._count += 1
        return self._whole(values)

    def _whole(self, values: Values) -> Expected:
        return total(self._step(values, place) for place in range(len(self.chunks)))

    def _look(self, values: Values, place: int) -> Tensor | None:
        chunk, active = self.chunks[place], self._chosen(self._scores(values, place))
        own = FACTORISED * len(chunk.masks.distinct) + len(chunk.values)
        alone = (FACTORISED + 1) * int(active.sum()) + len(chunk.values)
        return active if alone < own * active.shape[1] else None

    def _step(self, values: Values, place: int) -> Expected:
        chunk, active = self.chunks[place], self._active[place]
        if active is None:
            return e_step(self.structure, values, [chunk])
        expected, scores = active_moments(self.structure, values, chunk, active)
        self._active[place] = active & self._chosen(scores)
        return expected

    def _scores(self, values: Values, place: int) -> Tensor:
        """log of weight times density, `(rows, components)`."""
        chunk = self.chunks[place]
        if prefers_tree(self.structure):
            log_probs = tree_pass(self.structure, values, chunk.values, chunk.masks).log_probs
        else:
            factors = factors_of(self.structure, values)
            log_probs = condition(factors, chunk.values, chunk.masks).log_probs
        return log_probs + values.log_weights

    def _chosen(self, scores: Tensor) -> Tensor:
        """What is not negligible; of every component at least its most probable row."""
        chosen = scores.softmax(-1) > self.negligible
        chosen[scores.argmax(0), torch.arange(scores.shape[1], device=scores.device)] = True
        return chosen


def active_steps(parameters: Parameters, chunks: Sequence[Chunk], negligible: float) -> ActiveSteps:
    """E-steps by the way that is fastest for a model; see `ActiveSteps`."""
    kind = ActiveSteps
    if suits(parameters):
        kind = PairedSteps
    elif is_wide_star(parameters):
        kind = WideStarSteps
    return kind(parameters.structure, chunks, negligible)


@dataclass
class PairedSteps(ActiveSteps):
    """The same where `pair_sums.suits`, much faster."""

    def __post_init__(self) -> None:
        self._cells = [Cells.of(chunk) for chunk in self.chunks]

    def _scores(self, values: Values, place: int) -> Tensor:
        normals = Normals.of(factors_of(self.structure, values))
        return torch.from_numpy(all_scores(normals, self._cells[place]))

    def _whole(self, values: Values) -> Expected:
        every = [self._active[place] for place in range(len(self.chunks))]
        actives = [None if active is None else active.numpy() for active in every]
        expected, scores = paired_e_step(self.structure, values, self._cells, actives)
        for place, active in enumerate(every):
            if active is not None:
                self._active[place] = active & self._chosen(torch.from_numpy(scores[place]))
        return expected


@dataclass
class WideStarSteps(ActiveSteps):
    """The same where `wide_stars.is_wide_star`."""

    def _scores(self, values: Values, place: int) -> Tensor:
        chunk, components = self.chunks[place], len(values.log_weights)
        rows = torch.arange(len(chunk.values)).repeat_interleave(components)
        every = torch.arange(components).repeat(len(chunk.values))
        return root_of(values, chunk, rows, every).scores.reshape(-1, components)

    def _step(self, values: Values, place: int) -> Expected:
        chunk, active = self.chunks[place], self._active[place]
        expected, scores = root_moments(values, chunk, active)
        if active is not None:
            self._active[place] = active & self._chosen(scores)
        return expected


def active_moments(
    structure: Structure, values: Values, chunk: Chunk, active: Tensor
) -> tuple[Expected, Tensor]:
    """Expected moments of a chunk from some components of every row.

    Args:
        structure: of the model.
        values: of its equations.
        chunk: the rows.
        active: which components count, `(rows, components)`; every one in some row.

    Returns:
        The moments, and the logs of weight times density, -inf for what does not count.
    """
    cliques = needed_cliques(structure)
    scores = chunk.values.new_full(active.shape, -torch.inf)
    parts = []
    for component, chosen in enumerate(active.T):
        rows = chosen.nonzero()[:, 0]
        here, own = _rows_of(chunk, rows), component_of(values, component)
        log_probs, moments = family_moments(structure, own, here.values, here.masks, cliques)
        scores[rows, component] = log_probs[:, 0] + own.log_weights
        parts.append((rows, here, moments))
    shares = scores.softmax(-1)
    expected = [
        expected_moments(structure, here, shares[rows, component, None], moments)
        for component, (rows, here, moments) in enumerate(parts)
    ]
    return _side_by_side(expected, scores.logsumexp(-1).sum()), scores


def component_of(values: Values, component: int) -> Values:
    """The values of one component alone."""
    mixed = {
        name: part[component : component + 1] if len(part) > 1 else part
        for name, part in values._asdict().items()
        if name not in ("edges", "shifts", "noises")
    }
    return values._replace(**mixed)


def _rows_of(chunk: Chunk, rows: Tensor) -> Chunk:
    distinct = chunk.masks.distinct[chunk.masks.groups[rows]]
    return Chunk(chunk.values[rows], Masks(distinct, torch.arange(len(rows), device=rows.device)))


def _side_by_side(parts: list[Expected], log_likelihood: Tensor) -> Expected:
    """Components that were looked at one by one."""
    leaves = [
        Moments(*(torch.cat(columns) for columns in zip(*moments, strict=True)))
        for moments in zip(*(part.leaves for part in parts), strict=True)
    ]
    return Expected(
        log_likelihood,
        torch.cat([part.weights for part in parts]),
        leaves,
        [torch.stack(squares).sum(0) for squares in zip(*(p.nodes for p in parts), strict=True)],
        torch.cat([part.roots for part in parts]),
    )
