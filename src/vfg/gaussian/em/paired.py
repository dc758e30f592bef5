r"""Expectations over pairs of a row and a component, solved side by side on a CPU.

A component is $u \sim N(b, V)$. Of a row with observed columns o and gaps m either $V_{oo}$ is
solved, or $Q_{mm}$ of the precision matrix $Q = V^{-1}$, whichever is smaller: half of the columns
at the most. With residuals r, 0 at the gaps, all that is said of any cause h is said by
$v = V_{oo}^{-1} r_o$ and $V_{oo}^{-1}$, 0 at the gaps:

$$E[h] = t + G v, \qquad \mathrm{Cov}[h] = C - G V_{oo}^{-1} G^\top,$$

with t, C and $G = \mathrm{Cov}[h, u]$ the same for all rows. On the other side $v = Q y$ and
$V_{oo}^{-1} = Q - Q M Q$, where y are the residuals with what is expected of the gaps and
$M = Q_{mm}^{-1}$. So sums over rows are taken of $v v^\top - V_{oo}^{-1}$ and of $y y^\top + M$, as
they come, and become moments of causes once for all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from vfg.gaussian.em.general import Chunk
from vfg.gaussian.factors import LOG_TWO_PI, Factors
from vfg.gaussian.packed_cholesky import Array, Places, eliminate, invert, packed, triangle

NUMBERS = 2**17
"""How many entries of systems are worked on at once: what a cache holds."""
FEWEST = 8
"""Rows that are worked on at once, at least."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Normals:
    """The components of a factor model as Normal distributions of the columns."""

    log_weights: Array
    offsets: Array
    """b, `(components, columns)`."""
    covariance: Array
    """V, `(components, columns, columns)`."""
    precision: Array
    """Q, its inverse."""
    log_volumes: Array
    """Logarithms of the determinants of V."""

    @classmethod
    def of(cls, factors: Factors) -> Normals:
        """What follows from factors, once for all rows."""
        weights, loadings, offsets, scales = (part.detach() for part in factors)
        covariance = loadings @ loadings.mT + scales.square().diag_embed()
        factor = torch.linalg.cholesky(covariance)
        log_volumes = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        precision = torch.cholesky_inverse(factor)
        parts = (weights, offsets, covariance, precision, log_volumes)
        return cls(*(part.numpy() for part in parts))

    def systems(self, gaps: bool) -> Array:
        """The matrices of which parts are solved, packed, `(components, entries)`."""
        return packed(self.precision if gaps else self.covariance)


class Group(NamedTuple):
    """Rows of a table whose systems are of one kind and size."""

    gaps: bool
    """Whether the unknowns are the gaps, or else what is observed."""
    rows: Places
    columns: Places
    """The unknowns, `(size, rows)`."""
    entries: Places
    """Where the entries of the systems lie in packed matrices, `(triangle(size), rows)`."""

    def some(self, which: slice | Places) -> Group:
        """Some of the rows, by their places in the group."""
        return Group(self.gaps, self.rows[which], self.columns[:, which], self.entries[:, which])


@dataclass(frozen=True)
class Cells:
    """Rows of a table with what follows from their masks, which stay as they are in EM."""

    values: Array
    """`(rows, columns)`, 0 where unobserved."""
    seen: Array
    """1 where observed, else 0."""
    constants: Array
    """What the number of observed cells takes from the log-density."""
    groups: list[Group]
    group: Places
    """Of every row, by its number."""
    place: Places
    """Of every row in its group."""

    @classmethod
    def of(cls, chunk: Chunk) -> Cells:
        """The rows of a chunk."""
        seen = chunk.masks.distinct[chunk.masks.groups].numpy()
        values = np.where(seen, chunk.values.detach().numpy(), 0.0)
        groups = list(_grouped(seen))
        group, place = np.empty((2, len(seen)), dtype=np.intp)
        for number, members in enumerate(groups):
            group[members.rows] = number
            place[members.rows] = np.arange(len(members.rows))
        constants = 0.5 * LOG_TWO_PI * seen.sum(1)
        return cls(values, seen.astype(float), constants, groups, group, place)

    def residuals(self, rows: Places, offsets: Array) -> Array:
        """What is observed less offsets `(..., rows, columns)`, 0 at the gaps."""
        return np.asarray((self.values[rows] - offsets) * self.seen[rows])


def _grouped(seen: Flags) -> Iterator[Group]:
    known = seen.sum(1)
    gaps = 2 * known > seen.shape[1]
    sizes = np.where(gaps, seen.shape[1] - known, known)
    for of_gaps in (False, True):
        for size in np.unique(sizes[gaps == of_gaps]).tolist():
            rows = np.flatnonzero((gaps == of_gaps) & (sizes == size))
            # Stable, so that columns keep their order and entries lie in lower triangles.
            order = np.argsort(seen[rows] ^ (not of_gaps), axis=1, kind="stable")
            columns = order[:, :size].T.copy()
            upper, lower = np.tril_indices(size)
            entries = columns[upper] * (columns[upper] + 1) // 2 + columns[lower]
            yield Group(of_gaps, rows, columns, entries)


def all_scores(normals: Normals, cells: Cells) -> Array:
    """log of weight times density of every component, `(rows, components)`."""
    components = len(normals.log_weights)
    scores = np.empty((len(cells.values), components))
    systems = {gaps: normals.systems(gaps).T.copy() for gaps in (False, True)}
    for group in cells.groups:
        size = len(group.columns)
        most = max(FEWEST, NUMBERS // (components * triangle(size + 1)))
        for start in range(0, len(group.rows), most):
            some = group.some(slice(start, start + most))
            scores[some.rows] = _scores(normals, cells, some, systems[group.gaps])
    scores += normals.log_weights - cells.constants[:, None]
    return scores


def _scores(normals: Normals, cells: Cells, group: Group, systems: Array) -> Array:
    """log of density but for a constant, `(rows, components)`, rows and components as pairs."""
    size, rows = group.columns.shape
    components, columns = normals.offsets.shape
    stack = np.empty((triangle(size + 1), rows, components))
    np.take(systems, group.entries, axis=0, out=stack[: triangle(size)], mode="clip")
    residual = cells.residuals(group.rows, normals.offsets[:, None])
    sides = residual @ normals.precision if group.gaps else residual
    by_row = np.ascontiguousarray(sides.transpose(1, 2, 0)).reshape(rows * columns, components)
    places = np.arange(rows) * columns + group.columns
    np.take(by_row, places, axis=0, out=stack[triangle(size) : -1], mode="clip")
    stack[-1] = 0.0
    volumes = eliminate(stack.reshape(len(stack), -1), size).reshape(rows, components)
    distance = -stack[-1]
    if group.gaps:
        distance = np.einsum("cnk,cnk->nc", residual, sides) - distance
        volumes += normals.log_volumes
    return np.asarray(-0.5 * (distance + volumes))


@dataclass(frozen=True)
class Explained:
    """Pairs of one kind, those of a component side by side, and what is known of them."""

    gaps: bool
    rows: Places
    components: Places
    log_probs: Array
    vectors: Array
    """v, or y where the gaps are solved, and 1, `(columns + 1, pairs)`."""
    squares: Array
    """Expected squares of those, packed, `(entries, pairs)`."""


def explained(normals: Normals, cells: Cells, active: Flags, gaps: bool) -> Explained:
    """Solve the systems of one kind.

    Args:
        normals: the components.
        cells: the rows.
        active: which components of which rows count, `(rows, components)`.
        gaps: the kind.
    """
    kinds = np.array([group.gaps == gaps for group in cells.groups])
    components, rows = np.nonzero(active.T & kinds[cells.group])
    residual = np.ascontiguousarray(cells.residuals(rows, normals.offsets[components]).T)
    columns, count = residual.shape
    vectors, log_probs = np.ones((columns + 1, count)), -cells.constants[rows]
    vectors[:-1], sides = 0.0, residual
    if gaps:
        vectors[:-1], sides = residual, _by_component(normals.precision, residual, components)
        log_probs -= 0.5 * np.einsum("kn,kn->n", residual, sides)
        log_probs -= 0.5 * normals.log_volumes[components]
    squares = np.zeros((triangle(columns + 1), count))
    found = Explained(gaps, rows, components, log_probs, vectors, squares)
    systems, numbers = normals.systems(gaps), cells.group[rows]
    for number in np.flatnonzero(kinds).tolist():
        group, pairs = cells.groups[number], np.flatnonzero(numbers == number)
        most = max(FEWEST, NUMBERS // triangle(len(group.columns) + 1))
        for start in range(0, len(pairs), most):
            some = pairs[start : start + most]
            _explain(found, some, group.some(cells.place[rows[some]]), systems, sides)
    for row in range(columns + 1):
        first = triangle(row)
        squares[first : first + row + 1] += vectors[: row + 1] * vectors[row]
    return found


def _explain(found: Explained, pairs: Places, group: Group, systems: Array, sides: Array) -> None:
    """Enter the solutions of some pairs."""
    size, count = len(group.columns), found.vectors.shape[1]
    stack = np.empty((triangle(size + 1), len(pairs)))
    entries = group.entries + found.components[pairs] * systems.shape[1]
    np.take(systems, entries, out=stack[: triangle(size)], mode="clip")
    places = group.columns * count + pairs
    np.take(sides, places, out=stack[triangle(size) : -1], mode="clip")
    stack[-1] = 0.0
    volumes = invert(stack, size)
    found.log_probs[pairs] -= 0.5 * (volumes + stack[-1] if found.gaps else volumes - stack[-1])
    sign = -1.0 if found.gaps else 1.0
    np.put(found.vectors, places, sign * stack[triangle(size) : -1])
    np.put(found.squares, group.entries * count + pairs, sign * stack[: triangle(size)])


def _by_component(matrices: Array, vectors: Array, components: Places) -> Array:
    """The matrix of its component times every column of `vectors`."""
    found = np.empty_like(vectors)
    for matrix, part in zip(matrices, parts_of(components, len(matrices)), strict=True):
        np.matmul(matrix, vectors[:, part], out=found[:, part])
    return found


def parts_of(components: Places, count: int) -> list[slice]:
    """Where the pairs of every component are."""
    bounds = np.searchsorted(components, np.arange(count + 1)).tolist()
    return [slice(*pair) for pair in pairwise(bounds)]
