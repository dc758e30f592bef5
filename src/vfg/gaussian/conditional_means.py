r"""Fast conditional means of the missing cells of rows, with bits that do not depend on other rows.

Rows with equally many missing cells are solved together, entry by entry of their small systems, in
numpy operations that treat every row alike. Products and sums of matrices, whose bits follow from
their shapes, are not used; so tables may be cut anywhere.

A component is $u = L e + b + s \varepsilon$. With its precision matrix
$Q = S^{-2} - \hat L \hat L^\top$ and residuals $r$, 0 at the missing columns $m$, these deviate
from $b$ by $Q_{mm}^{-1} \hat L_m \hat L^\top r$: a system of their number. Where they outnumber the
innovations $e$, the system of $I + L^\top S_o^{-2} L$ is solved instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.parameters import factors_of
from vfg.tables.cells import Array
from vfg.tables.numeric import NormalScores

MeanFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Computes the means of every entry from values, their mask, and ids of the rows."""

NUMBERS = 2**18
"""Entries of systems that are solved at once: what fits into the cache of a CPU."""
LARGEST = 48
"""The largest systems; larger ones are left to LAPACK."""
NEGLIGIBLE = 1e-6
"""Probability of a component below which its means are not mapped to values."""
WIDEST = 24
"""Columns above which mixtures are left to LAPACK, which solves many components at once."""


class Group(NamedTuple):
    """Rows with equally many missing cells: their positions, missing and known columns."""

    rows: Array
    seen: Array
    """1 where an entry is known, else 0, `(columns, rows)`."""
    missing: Array
    """Columns, `(missing, rows)`."""
    known: Array
    """Columns, `(columns - missing, rows)`."""


def group_rows(observed: Array, most: int) -> Iterator[Group]:
    """The rows of a mask with missing cells by their number, at most so many in a group.

    Example:
        >>> mask = np.array([[True, False], [True, True], [False, True]])
        >>> [(group.rows.tolist(), group.missing.tolist()) for group in group_rows(mask, 10)]
        [([0, 2], [[1, 0]])]
    """
    counts = (~observed).sum(1)
    for number in np.flatnonzero(np.bincount(counts)).tolist():
        rows = np.flatnonzero(counts == number) if number else np.zeros(0, dtype=int)
        size = max(most // (number + 1) ** 2, 8)
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            # Stable, so that columns keep their order on either side.
            order = np.argsort(observed[some], axis=1, kind="stable").T
            seen = observed[some].T.astype(np.float64, order="C")
            yield Group(some, seen, order[:number].copy(), order[number:].copy())


@dataclass(frozen=True)
class Components:
    """Linear components with what follows from them, once for all rows.

    Arrays of rows have the components on the last axis but one, and the rows on the last.
    """

    log_weights: Array
    loadings: Array
    """L, `(innovations, components * columns)`, as are all arrays by column."""
    offsets: Array
    variances: Array
    precision: Array
    """Q, flat: component, column, column."""
    shifts: Array
    r"""$\hat L$, `(innovations, components * columns)`."""
    squares: Array
    r"""$L_j^\top L_j / s_j^2$, `(innovations, innovations, components * columns)`."""
    log_volumes: Array
    """Half the logarithms of the determinants of Q."""

    @classmethod
    def of(cls, log_weights: Array, loadings: Array, offsets: Array, scales: Array) -> Components:
        """Components from their factor models, `(components, ...)`."""
        variances = scales**2
        weighted = loadings / variances[..., None]
        turned = loadings.swapaxes(1, 2)
        inner = np.eye(loadings.shape[2]) + turned @ weighted
        shifts = weighted @ np.linalg.cholesky(np.linalg.inv(inner))
        log_volumes = -0.5 * (np.log(variances).sum(1) + np.linalg.slogdet(inner)[1])
        squares = turned[:, :, None] * weighted.swapaxes(1, 2)[:, None]
        precision = -shifts @ shifts.swapaxes(1, 2)
        every = np.arange(offsets.shape[1])
        precision[:, every, every] += 1.0 / variances
        return cls(
            log_weights,
            _by_column(loadings),
            offsets.ravel(),
            variances.ravel(),
            precision.ravel(),
            _by_column(shifts),
            squares.transpose(1, 2, 0, 3).reshape(*squares.shape[1:3], -1).copy(),
            log_volumes,
        )

    @property
    def columns(self) -> int:
        """Of the table."""
        return len(self.offsets) // len(self.log_weights)

    def places(self, columns: Array) -> Array:
        """Where columns `(..., rows)` lie in arrays by column, `(..., components, rows)`."""
        firsts = np.arange(len(self.log_weights))[:, None] * self.columns
        result: Array = firsts + columns[..., None, :]
        return result

    def expected(self, group: Group, values: Array) -> tuple[Array, Array]:
        """Means of the missing cells, `(missing, ...)`, and log p of the rest up to a constant.

        Values are `(columns, rows)`, any finite numbers where missing.
        """
        shape = len(self.log_weights), self.columns
        offsets, variances = (x.reshape(shape).T[..., None] for x in (self.offsets, self.variances))
        residual = (values[:, None] - offsets) * group.seen[:, None]
        ratio = residual / variances
        size = _total(residual * ratio)
        if len(group.missing) <= len(self.loadings):
            return self._among_missing(group, residual, size)
        return self._among_innovations(group, ratio, size)

    def _among_missing(self, group: Group, residual: Array, size: Array) -> tuple[Array, Array]:
        places = self.places(group.missing)
        image = self._combine(self.shifts, residual)
        chosen = np.take(self.shifts, places, axis=1)
        pulls = _total(chosen * image[:, None])
        pairs = places[:, None] * self.columns + group.missing[None, :, None]
        sides, pivots = _solve(np.take(self.precision, pairs), pulls[:, None])
        result = sides[:, 0]
        image += _total((chosen * result).swapaxes(0, 1))
        distance = (
            size + _total(result / np.take(self.variances, places) * result) - _total(image * image)
        )
        log_volume = self.log_volumes[:, None] - 0.5 * _total(np.log(pivots))
        return result + np.take(self.offsets, places), log_volume - 0.5 * distance

    def _among_innovations(self, group: Group, ratio: Array, size: Array) -> tuple[Array, Array]:
        places = self.places(group.missing)
        information = self._combine(self.loadings, ratio)
        system = self._precision_of_innovations(group)
        sides, pivots = _solve(system, information[:, None].copy())
        result = sides[:, 0]
        means = _total(np.take(self.loadings, places, axis=1) * result[:, None])
        distance = size - _total(information * result)
        scales = 0.5 * np.log(self.variances).reshape(-1, self.columns).T[..., None]
        log_volume = -0.5 * _total(np.log(pivots)) - _total(scales * group.seen[:, None])
        return means + np.take(self.offsets, places), log_volume - 0.5 * distance

    def deviations(self, group: Group) -> Array:
        """Standard deviations of missing cells given the rest, `(missing, components, rows)`."""
        missing, places = group.missing, self.places(group.missing)
        every = range(len(missing))
        if len(missing) <= len(self.loadings):
            system = np.take(
                self.precision, places[:, None] * self.columns + missing[None, :, None]
            )
            units = np.zeros_like(system)
            units[every, every] = 1.0
            inverse, _ = _solve(system, units)
            return np.asarray(np.sqrt(inverse[every, every]))
        chosen = np.take(self.loadings, places, axis=1)
        result, _ = _solve(self._precision_of_innovations(group), chosen.copy())
        return np.asarray(np.sqrt(np.take(self.variances, places) + _total(chosen * result)))

    def times_covariance(self, group: Group, vectors: Array) -> Array:
        """Covariance matrices of missing cells given the rest times vectors, `(missing, rows)`.

        Of the first component.
        """
        missing, places = group.missing, self.places(group.missing)
        if len(missing) <= len(self.loadings):
            pairs = places[:, None] * self.columns + missing[None, :, None]
            sides, _ = _solve(np.take(self.precision, pairs), vectors[:, None, None].copy())
            return sides[:, 0, 0]
        chosen = np.take(self.loadings, places, axis=1)
        pulls = _total((chosen * vectors[:, None]).swapaxes(0, 1))
        result, _ = _solve(self._precision_of_innovations(group), pulls[:, None])
        spread = np.take(self.variances, places) * vectors[:, None]
        return np.asarray(spread + _total(chosen * result[:, 0][:, None]))[:, 0]

    def _precision_of_innovations(self, group: Group) -> Array:
        size = len(self.loadings)
        system = np.zeros((size, size, len(self.log_weights), len(group.rows)))
        system[range(size), range(size)] = 1.0
        for column in group.known:
            system += np.take(self.squares, self.places(column), axis=2)
        return system

    def _combine(self, matrix: Array, values: Array) -> Array:
        """Innovations from arrays by column, `(innovations, ...)`."""
        shaped = matrix.reshape(len(matrix), -1, self.columns, 1)
        total: Array = np.zeros((len(matrix), *values.shape[1:]))
        for column, value in enumerate(values):
            total += shaped[:, :, column] * value
        return total


class ExactMeans:
    """The conditional means of an exact model that `suits`, for many rows at once.

    With `ranks` the model is one of normal scores, and means are mapped back to values.
    """

    def __init__(self, model: GaussianVFG, ranks: NormalScores | None = None) -> None:
        self.ranks = ranks
        with torch.no_grad():
            factors = factors_of(model.structure, model.linear.values())
        self.location, self.scale = model.scaling.location.numpy(), model.scaling.scale.numpy()
        self.components = Components.of(*(part.detach().numpy() for part in factors))

    @staticmethod
    def suits(model: GaussianVFG) -> bool:
        """Whether a model has affine real leaves and small systems, on a CPU."""
        innovations = model.structure.root_width + len(model.structure.noisy_inner)
        plain = model.leaves.is_identity and not model.codes.units
        on_cpu = next(model.parameters()).device.type == "cpu"
        narrow = model.components == 1 or model.structure.columns <= WIDEST
        return plain and on_cpu and innovations <= LARGEST and narrow

    def __call__(self, values: Tensor, observed: Tensor, ids: Tensor | None = None) -> Tensor:
        """Means of every entry, `(rows, columns)`; known entries are unchanged."""
        result = values.double().numpy().copy()
        location, scale = self.location, self.scale
        for group in group_rows(observed.numpy(), NUMBERS // len(self.components.log_weights)):
            cells = np.ascontiguousarray(((result[group.rows] - location) / scale).T)
            result[group.rows, group.missing] = self._mix_components(group, cells)
        return torch.from_numpy(result)

    def deviations(self, values: Tensor, observed: Tensor) -> Tensor:
        """Standard deviations `(rows, columns)`, 0 of known entries; refuses a mixture."""
        if len(self.components.log_weights) > 1:
            raise ValueError("deviations of a mixture do not follow from the masks alone")
        result = np.zeros(values.shape)
        for group in group_rows(observed.numpy(), NUMBERS):
            spread = self.components.deviations(group)[:, 0]
            result[group.rows, group.missing] = spread * self.scale[group.missing]
        return torch.from_numpy(result)

    def times_covariance(self, observed: Tensor, vectors: Tensor) -> Tensor:
        """Conditional covariances of missing entries times vectors `(rows, columns)`.

        Returns `(rows, columns)`, 0 at known entries.
        """
        result, pulls = np.zeros(observed.shape), vectors.double().numpy() * self.scale
        for group in group_rows(observed.numpy(), NUMBERS):
            moved = self.components.times_covariance(group, pulls[group.rows, group.missing])
            result[group.rows, group.missing] = moved * self.scale[group.missing]
        return torch.from_numpy(result)

    def _mix_components(self, group: Group, cells: Array) -> Array:
        """Means of the missing cells, in units of the table."""
        means, scores = self.components.expected(group, cells)
        scale, location = (x[group.missing][:, None] for x in (self.scale, self.location))
        means = np.asarray(means * scale + location)
        if means.shape[1] == 1 and self.ranks is None:
            return means[:, 0]
        scores += self.components.log_weights[:, None]
        shares = np.exp(scores - np.max(scores, axis=0))
        shares /= _total(shares)
        if self.ranks is not None:
            component, row = np.nonzero(shares > NEGLIGIBLE)
            used = means[:, component, row], group.missing[:, row]
            means[:, component, row] = self.ranks.inverse_at(*(torch.from_numpy(x) for x in used))
        return _total((means * shares).swapaxes(0, 1))


def exact_means(
    model: GaussianVFG, values: Tensor, observed: Tensor, row_ids: Tensor | None = None
) -> Tensor:
    """Means of an exact model for every entry of a matrix, `(rows, columns)`."""
    return concat_leaves(model.infer(values, observed=observed, row_ids=row_ids).mean)


def concat_leaves(by_leaf: Mapping[Any, Tensor]) -> Tensor:
    """Values of every leaf, `(..., width)`, as columns of one matrix."""
    return torch.cat(list(by_leaf.values()), dim=-1).double()


def mean_function(model: GaussianVFG, ranks: NormalScores | None = None) -> MeanFunction:
    """The fastest function for the means of an exact model, in values if it is one of scores."""
    if ExactMeans.suits(model):
        return ExactMeans(model, ranks)
    if ranks is None:
        return partial(exact_means, model)

    def means(scores: Tensor, observed: Tensor, row_ids: Tensor) -> Tensor:
        answer = model.infer(scores, observed=observed, row_ids=row_ids)
        return concat_leaves(answer.mean_through(ranks.inverse))

    return means


def _solve(system: Array, right: Array) -> tuple[Array, Array]:
    """Solve symmetric positive systems `(n, n, ...)` with right sides `(n, sides, ...)` in place.

    Returns the solutions, and the pivots `(n, ...)`, whose product is the determinant.
    """
    pivots = np.ones((len(right), *right.shape[2:]))
    for step in range(len(right)):
        pivots[step] = system[step, step]
        below = system[step + 1 :, step]
        factors = below / pivots[step]
        system[step + 1 :, step + 1 :] -= factors[:, None] * below[None]
        right[step + 1 :] -= factors[:, None] * right[step]
        system[step + 1 :, step] = factors
    right /= pivots[:, None]
    for step in reversed(range(1, len(right))):
        right[:step] -= system[step, :step][:, None] * right[step]
    return right, pivots


def _by_column(matrices: Array) -> Array:
    """Matrices `(components, columns, n)` as `(n, components * columns)`."""
    return matrices.transpose(2, 0, 1).reshape(matrices.shape[2], -1).copy()


def _total(parts: Array) -> Array:
    """Add up one after the other: the order of numpy's sums depends on the shape."""
    total = np.zeros(parts.shape[1:])
    for part in parts:
        total += part
    return total
