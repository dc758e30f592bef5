r"""The E-step by the fastest way for a model, over all components or without negligible ones.

Stars with many leaves and one set of loadings have a way of their own. Given the observed columns o
of a row, the root h has in component c the precision matrix
$P_c + \sum_{j \in o} l_j l_j^\top / s_j^2$. Its sum is the same for all components, and the
regressions of the leaves need the moments of h added up over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.distributions.likelihoods import LOG_TWO_PI
from vfg.gaussian.em.general import (
    Chunk,
    Expected,
    LatentMoments,
    e_step,
    expected_moments,
    family_moments,
    needed_cliques,
    total,
)
from vfg.gaussian.em.paired import (
    ComponentNormals,
    IndexedRows,
    all_scores,
    pair_e_step,
    supports_pairs,
)
from vfg.gaussian.factors import Masks, condition, log_volume
from vfg.gaussian.parameters import Parameters, Values, factors_of
from vfg.gaussian.structure import Structure
from vfg.gaussian.tree_messages import prefers_tree, tree_pass

SHARED = 2
"""Rows per mask above which it is faster to factorise every mask once."""
FACTORISED = 5
"""Time for factorising a mask, in units of the remaining time for a row."""
REFRESH = 5
"""Iterations after which all components of all rows are scored again."""


def is_wide_star(parameters: Parameters) -> bool:
    """Whether the model is a wide star on a CPU, where sums by index are reproducible."""
    structure = parameters.structure
    on_cpu = parameters.offsets.device.type == "cpu"
    star = len(structure.nodes) == 1 and structure.width <= structure.columns
    return on_cpu and star and len(parameters.loadings) == 1 and not prefers_tree(structure)


class Pairs(NamedTuple):
    """The root by pairs of a row and a component."""

    scores: Tensor
    """log of weight times density, `(pairs,)`."""
    mean: Tensor
    """`(pairs, width)`."""
    factor: Tensor
    """Cholesky factors of the precision matrices, `(pairs, width, width)`."""


def root_of(values: Values, chunk: Chunk, rows: Tensor, components: Tensor) -> Pairs:
    """Solve the systems of some pairs of a row and a component."""
    loadings, variances = values.loadings[0], values.scales[0].square()
    seen = chunk.masks.distinct[chunk.masks.groups].to(loadings)
    weights = seen / variances
    residual = (chunk.values - values.offsets) * seen
    squares = weights @ (loadings[:, :, None] * loadings[:, None, :]).flatten(1)
    information = (residual * weights) @ loadings
    precision = torch.cholesky_inverse(values.root_factors)
    centres = (precision @ values.root_means[..., None])[..., 0]
    system = squares.unflatten(1, precision.shape[1:])[rows] + precision[components]
    factor = torch.linalg.cholesky(system)
    sides = information[rows] + centres[components]
    mean = torch.cholesky_solve(sides[..., None], factor)[..., 0]
    # The residual form has no cancellation, however small the noises are.
    left = (residual[rows] - mean @ loadings.mT).square() * weights[rows]
    moved = (mean - values.root_means[components])[..., None]
    identity = torch.eye(mean.shape[1], dtype=mean.dtype)
    inverse = torch.linalg.solve_triangular(values.root_factors, identity, upper=False)
    distance = left.sum(-1) + (inverse[components] @ moved)[..., 0].square().sum(-1)
    by_row = seen @ (values.scales[0].log() + 0.5 * LOG_TWO_PI)
    by_component = log_volume(values.root_factors) - values.log_weights
    volume = log_volume(factor) + by_row[rows] + by_component[components]
    return Pairs(-0.5 * distance - volume, mean, factor)


def root_moments(
    values: Values, chunk: Chunk, active: Tensor | None = None
) -> tuple[Expected, Tensor]:
    """Expected moments of a chunk, those of leaves summed over components.

    With them the logs of weight times density, -inf for inactive components. `active` says which
    count, `(rows, components)`; None means all.
    """
    if active is None:
        active = torch.ones(len(chunk.values), len(values.log_weights), dtype=torch.bool)
    rows, components = active.nonzero(as_tuple=True)
    pairs = root_of(values, chunk, rows, components)
    scores = chunk.values.new_full(active.shape, -torch.inf)
    scores[rows, components] = pairs.scores
    shares = scores.softmax(-1)[rows, components]
    z = F.pad(pairs.mean, (0, 1), value=1.0)
    squares = z[:, :, None] * z[:, None, :]
    squares[:, :-1, :-1] += torch.cholesky_inverse(pairs.factor)
    squares *= (shares if chunk.weights is None else shares * chunk.weights[rows])[:, None, None]
    size = squares.shape[1:]
    roots = squares.new_zeros(active.shape[1], *size).index_add(0, components, squares)
    by_row = squares.new_zeros(len(active), *size).index_add(0, rows, squares)
    seen = chunk.masks.distinct[chunk.masks.groups].to(z)
    known = seen * chunk.values
    leaves = LatentMoments(
        (seen.mT @ by_row.flatten(1)).unflatten(1, size),
        known.mT @ by_row[:, -1],
        chunk.weigh(known * chunk.values).sum(0),
        chunk.weigh(seen).sum(0),
    )
    leaves = LatentMoments(*(part[None] for part in leaves))
    log_likelihood = chunk.weigh(scores.logsumexp(-1)).sum()
    expected = Expected(log_likelihood, roots[:, -1, -1], [leaves], [], roots)
    return expected, scores


def expectation(parameters: Parameters, chunks: Sequence[Chunk]) -> Callable[[Values], Expected]:
    """The fastest E-step over all components of some rows."""
    structure = parameters.structure
    masks = sum(len(chunk.masks.distinct) for chunk in chunks)
    rows = sum(len(chunk.values) for chunk in chunks)
    if SHARED * masks >= rows and supports_pairs(parameters):
        cells = [IndexedRows.of(chunk) for chunk in chunks]
        return lambda values: pair_e_step(structure, values, cells)[0]
    if SHARED * masks >= rows and is_wide_star(parameters):
        return lambda values: total(root_moments(values, chunk)[0] for chunk in chunks)
    return lambda values: e_step(structure, values, chunks)


@dataclass
class ActiveSteps:
    """E-steps over the components of every row that are not negligible.

    They are chosen among all components every few iterations; in between the set only shrinks. A
    chunk uses all of them where that is less work, since rows with equal masks then share theirs.
    """

    structure: Structure
    chunks: Sequence[Chunk]
    negligible: float
    """Probability given a row below which a component is passed over."""
    _active: dict[int, Tensor | None] = field(default_factory=dict)
    """The active components of every row by chunk; None means all."""
    _count: int = 0

    def __call__(self, values: Values) -> Expected:
        """Expected moments of all families; the log-likelihood omits negligible components."""
        if self._count % REFRESH == 0:
            self._active = {
                place: self._choose_active(values, place) for place in range(len(self.chunks))
            }
        self._count += 1
        return self._whole(values)

    def _whole(self, values: Values) -> Expected:
        return total(self._step(values, place) for place in range(len(self.chunks)))

    def _choose_active(self, values: Values, place: int) -> Tensor | None:
        chunk, active = self.chunks[place], self._not_negligible(self._scores(values, place))
        own = FACTORISED * len(chunk.masks.distinct) + len(chunk.values)
        alone = (FACTORISED + 1) * int(active.sum()) + len(chunk.values)
        return active if alone < own * active.shape[1] else None

    def _step(self, values: Values, place: int) -> Expected:
        chunk, active = self.chunks[place], self._active[place]
        if active is None:
            return e_step(self.structure, values, [chunk])
        expected, scores = active_moments(self.structure, values, chunk, active)
        self._active[place] = active & self._not_negligible(scores)
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

    def _not_negligible(self, scores: Tensor) -> Tensor:
        """The components that are not negligible, and the most probable row of every component."""
        chosen = scores.softmax(-1) > self.negligible
        chosen[scores.argmax(0), torch.arange(scores.shape[1], device=scores.device)] = True
        return chosen


def active_steps(parameters: Parameters, chunks: Sequence[Chunk], negligible: float) -> ActiveSteps:
    """The fastest truncated E-step for a model; see `ActiveSteps`."""
    kind = ActiveSteps
    if supports_pairs(parameters):
        kind = PairedSteps
    elif is_wide_star(parameters):
        kind = WideStarSteps
    return kind(parameters.structure, chunks, negligible)


@dataclass
class PairedSteps(ActiveSteps):
    """The same for models that `supports_pairs` accepts, much faster."""

    def __post_init__(self) -> None:
        self._cells = [IndexedRows.of(chunk) for chunk in self.chunks]

    def _scores(self, values: Values, place: int) -> Tensor:
        normals = ComponentNormals.of(factors_of(self.structure, values))
        return torch.from_numpy(all_scores(normals, self._cells[place]))

    def _whole(self, values: Values) -> Expected:
        every = [self._active[place] for place in range(len(self.chunks))]
        actives = [None if active is None else active.numpy() for active in every]
        expected, scores = pair_e_step(self.structure, values, self._cells, actives)
        for place, active in enumerate(every):
            if active is not None:
                self._active[place] = active & self._not_negligible(torch.from_numpy(scores[place]))
        return expected


@dataclass
class WideStarSteps(ActiveSteps):
    """The same for wide stars; see `is_wide_star`."""

    def _scores(self, values: Values, place: int) -> Tensor:
        chunk, components = self.chunks[place], len(values.log_weights)
        rows = torch.arange(len(chunk.values)).repeat_interleave(components)
        every = torch.arange(components).repeat(len(chunk.values))
        return root_of(values, chunk, rows, every).scores.reshape(-1, components)

    def _step(self, values: Values, place: int) -> Expected:
        chunk, active = self.chunks[place], self._active[place]
        expected, scores = root_moments(values, chunk, active)
        if active is not None:
            self._active[place] = active & self._not_negligible(scores)
        return expected


def active_moments(
    structure: Structure, values: Values, chunk: Chunk, active: Tensor
) -> tuple[Expected, Tensor]:
    """The same for any graph, component by component; every one is active in some row."""
    cliques = needed_cliques(structure)
    scores = chunk.values.new_full(active.shape, -torch.inf)
    parts = []
    for component, chosen in enumerate(active.T):
        rows = chosen.nonzero()[:, 0]
        here, own = _rows_of(chunk, rows), component_of(values, component)
        log_probs, moments = family_moments(structure, own, here.values, here.masks, cliques)
        scores[rows, component] = log_probs[:, 0] + own.log_weights
        parts.append((rows, here, moments))
    shares = chunk.weigh(scores.softmax(-1))
    expected = [
        expected_moments(structure, here, shares[rows, component, None], moments)
        for component, (rows, here, moments) in enumerate(parts)
    ]
    return _concat_components(expected, chunk.weigh(scores.logsumexp(-1)).sum()), scores


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


def _concat_components(parts: list[Expected], log_likelihood: Tensor) -> Expected:
    """Concatenate the moments of components that were computed one by one."""
    leaves = [
        LatentMoments(*(torch.cat(columns) for columns in zip(*moments, strict=True)))
        for moments in zip(*(part.leaves for part in parts), strict=True)
    ]
    return Expected(
        log_likelihood,
        torch.cat([part.weights for part in parts]),
        leaves,
        [torch.stack(squares).sum(0) for squares in zip(*(p.nodes for p in parts), strict=True)],
        torch.cat([part.roots for part in parts]),
    )
