r"""The E-step over pairs of a row and a component, solved side by side on a CPU.

A component is $u \sim N(b, V)$. Of a row with observed columns o and missing columns m either
$V_{oo}$ is solved, or $Q_{mm}$ of the precision matrix $Q = V^{-1}$, whichever is smaller: half of
the columns at the most. With residuals r, 0 at missing columns, the posterior of any cause h
follows from $v = V_{oo}^{-1} r_o$ and $V_{oo}^{-1}$, 0 at missing columns:

$$E[h] = t + G v, \qquad \mathrm{Cov}[h] = C - G V_{oo}^{-1} G^\top,$$

with t, C and $G = \mathrm{Cov}[h, u]$ the same for all rows. On the other side $v = Q y$ and
$V_{oo}^{-1} = Q - Q M Q$, where y are the residuals with the means of the missing columns and
$M = Q_{mm}^{-1}$. So sums over rows are taken of $v v^\top - V_{oo}^{-1}$ and of $y y^\top + M$, as
they come, and become moments of causes once for all rows.

Systems are solved entry by entry, each operation for many systems at once, because calling LAPACK
for a matrix of eight rows takes longer than factorising it. A stack of systems is an array
`(entries, systems)` of their lower triangles, row by row. Each has a border: a last row with its
right-hand side, and a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.distributions.likelihoods import LOG_TWO_PI
from vfg.gaussian.em.general import Chunk, Expected, LatentMoments, needed_cliques
from vfg.gaussian.factors import Factors, log_volume
from vfg.gaussian.parameters import Parameters, Values, factors_of, innovation_map
from vfg.gaussian.structure import Structure
from vfg.gaussian.tree_messages import prefers_tree

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Size = TypeVar("Size", int, npt.NDArray[np.intp])
NUMBERS = 2**17
"""Entries of systems that are solved at once: what fits into the cache of a CPU."""
AT_ONCE = 2**15
"""Entries of stacks up to which a step subtracts from all of them in one call: 100 systems of size
6 take 62 us instead of 110, 1,000 of size 10 would gain nothing."""
FEWEST = 8
"""Rows that are solved at once, at least."""
Flags = npt.NDArray[np.bool_]
WIDEST = 24
"""Columns above which the systems of causes are smaller, or LAPACK is faster."""
LEAST_NOISE = 5e-5
"""The smallest noise floor: precision matrices lose as many digits as its square has zeros, here
half of those of float64."""


def triangle(size: Size) -> Size:
    """How many entries the lower triangle of a matrix has."""
    return size * (size + 1) // 2


@cache
def corners(size: int) -> tuple[Places, Places]:
    """The rows and columns of the entries of lower triangles, row by row."""
    rows, columns = np.tril_indices(size)
    return rows, columns


def pack(matrices: Array) -> Array:
    """The lower triangles of matrices `(..., n, n)`, row by row, `(..., entries)`.

    Example:
        >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]]))
        array([1., 2., 3.])
    """
    result: Array = matrices[(..., *corners(matrices.shape[-1]))]
    return result


def unpack(triangles: Array, size: int) -> Array:
    """Symmetric matrices `(..., n, n)` from their lower triangles `(..., entries)`.

    Example:
        >>> unpack(np.array([1.0, 2.0, 3.0]), 2)
        array([[1., 2.],
               [2., 3.]])
    """
    rows, columns = corners(size)
    places = np.empty((size, size), dtype=np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(triangle(size))
    return np.asarray(triangles[..., places])


def eliminate(systems: Array, size: int) -> Array:
    r"""Eliminate all unknowns of positive systems A with borders (b', s), in place.

    Systems are `(triangle(size + 1), systems)`; afterwards the last entries are
    $s - b^\top A^{-1} b$. Returns the logarithms of their determinants.

    Example:
        >>> systems = np.array([[2.0], [6.0], [0.0]])
        >>> eliminate(systems, 1).round(4), systems[-1]
        (array([0.6931]), array([-18.]))
    """
    pivots = np.empty((size, systems.shape[1]))
    scratch = np.empty((size + 1, systems.shape[1]))
    for step, (places, _) in enumerate(_steps(size)):
        pivots[step] = systems[places[step]]
        column = systems[places[step + 1 :]]
        for place, factor in enumerate(column / pivots[step]):
            first = triangle(step + 1 + place) + step + 1
            part = np.multiply(column[: place + 1], factor, out=scratch[: place + 1])
            block = systems[first : first + place + 1]
            np.subtract(block, part, out=block)
    return np.asarray(np.log(pivots, out=pivots).sum(0))


@cache
def _steps(size: int) -> list[tuple[Places, list[slice]]]:
    """By step: where a pivot's row and column lie in bordered systems, and where every row does."""
    rows = [slice(triangle(row), triangle(row + 1)) for row in range(size + 1)]
    every = np.arange(size + 1)
    return [
        (triangle(np.maximum(every, step)) + np.minimum(every, step), rows) for step in range(size)
    ]


def invert(systems: Array, size: int) -> Array:
    r"""Invert positive matrices A with borders (b', s), in place; see `eliminate`.

    Afterwards systems hold $-A^{-1}$, and in the border $A^{-1} b$ and $s - b^\top A^{-1} b$.

    Example:
        >>> systems = np.array([[2.0], [6.0], [0.0]])
        >>> invert(systems, 1).round(4), systems[:, 0]
        (array([0.6931]), array([ -0.5,   3. , -18. ]))
    """
    pivots = np.empty((size, systems.shape[1]))
    subtract = _subtract_at_once if systems.size <= AT_ONCE else _subtract_by_row
    for step, (places, rows) in enumerate(_steps(size)):
        pivot = pivots[step]
        pivot[:] = systems[places[step]]
        # The pivot's row up to the diagonal, and its column below.
        column = systems[places]
        factors = column / pivot
        subtract(systems, column, factors, rows)
        systems[places] = factors
        systems[places[step]] = -1.0 / pivot
    return np.asarray(np.log(pivots, out=pivots).sum(0))


def _subtract_at_once(systems: Array, column: Array, factors: Array, rows: list[slice]) -> None:
    """Subtract products of two entries each from all systems: few calls, for small stacks."""
    first, second = corners(len(rows))
    part = np.take(column, second, axis=0)
    part *= np.take(factors, first, axis=0)
    systems -= part


def _subtract_by_row(systems: Array, column: Array, factors: Array, rows: list[slice]) -> None:
    """The same with less memory, for large stacks."""
    scratch = np.empty_like(column)
    for row, (own, factor) in enumerate(zip(rows, factors, strict=True)):
        part = np.multiply(column[: row + 1], factor, out=scratch[: row + 1])
        np.subtract(systems[own], part, out=systems[own])


@dataclass(frozen=True)
class ComponentNormals:
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
    def of(cls, factors: Factors) -> ComponentNormals:
        """Normal distributions from factors, once for all rows."""
        weights, loadings, offsets, scales = (part.detach() for part in factors)
        covariance = loadings @ loadings.mT + scales.square().diag_embed()
        factor = torch.linalg.cholesky(covariance)
        precision = torch.cholesky_inverse(factor)
        parts = (weights, offsets, covariance, precision, 2.0 * log_volume(factor))
        return cls(*(part.numpy() for part in parts))

    def systems(self, missing: bool) -> Array:
        """The matrices of which parts are solved, packed, `(components, entries)`."""
        return pack(self.precision if missing else self.covariance)


class SystemGroup(NamedTuple):
    """Rows of a table whose systems are of one kind and size."""

    missing: bool
    """Whether the unknowns are the missing columns, or else the observed ones."""
    rows: Places
    columns: Places
    """The unknowns, `(size, rows)`."""
    entries: Places
    """Where the entries of the systems lie in packed matrices, `(triangle(size), rows)`."""

    def some(self, which: slice | Places) -> SystemGroup:
        """Some of the rows, by their places in the group."""
        return SystemGroup(
            self.missing, self.rows[which], self.columns[:, which], self.entries[:, which]
        )


@dataclass(frozen=True)
class IndexedRows:
    """Rows of a table with index sets derived from their masks, which do not change in EM."""

    values: Array
    """`(rows, columns)`, 0 where unobserved."""
    seen: Array
    """1 where observed, else 0."""
    constants: Array
    """The constants of the log-densities, by the number of observed cells."""
    groups: list[SystemGroup]
    group: Places
    """Of every row, by its number."""
    place: Places
    """Of every row in its group."""
    weights: Array | None = None
    """How often every row counts; None for once."""

    @classmethod
    def of(cls, chunk: Chunk) -> IndexedRows:
        """The rows of a chunk."""
        seen = chunk.masks.distinct[chunk.masks.groups].numpy()
        values = np.where(seen, chunk.values.detach().numpy(), 0.0)
        groups = list(_group_rows(seen))
        group, place = np.empty((2, len(seen)), dtype=np.intp)
        for number, members in enumerate(groups):
            group[members.rows] = number
            place[members.rows] = np.arange(len(members.rows))
        constants = 0.5 * LOG_TWO_PI * seen.sum(1)
        weights = None if chunk.weights is None else chunk.weights.numpy()
        return cls(values, seen.astype(float), constants, groups, group, place, weights)

    def residuals(self, rows: Places, offsets: Array) -> Array:
        """What is observed less offsets `(..., rows, columns)`, 0 at missing columns."""
        return np.asarray((self.values[rows] - offsets) * self.seen[rows])


def _group_rows(seen: Flags) -> Iterator[SystemGroup]:
    known = seen.sum(1)
    missing = 2 * known > seen.shape[1]
    sizes = np.where(missing, seen.shape[1] - known, known)
    for of_missing in (False, True):
        for size in np.unique(sizes[missing == of_missing]).tolist():
            rows = np.flatnonzero((missing == of_missing) & (sizes == size))
            # Stable, so that columns keep their order and entries lie in lower triangles.
            order = np.argsort(seen[rows] ^ (not of_missing), axis=1, kind="stable")
            columns = order[:, :size].T.copy()
            upper, lower = corners(size)
            entries = columns[upper] * (columns[upper] + 1) // 2 + columns[lower]
            yield SystemGroup(of_missing, rows, columns, entries)


def all_scores(normals: ComponentNormals, cells: IndexedRows) -> Array:
    """log of weight times density of every component, `(rows, components)`."""
    components = len(normals.log_weights)
    scores = np.empty((len(cells.values), components))
    systems = {missing: normals.systems(missing).T.copy() for missing in (False, True)}
    for group in cells.groups:
        size = len(group.columns)
        most = max(FEWEST, NUMBERS // (components * triangle(size + 1)))
        for start in range(0, len(group.rows), most):
            some = group.some(slice(start, start + most))
            scores[some.rows] = _scores(normals, cells, some, systems[group.missing])
    scores += normals.log_weights - cells.constants[:, None]
    return scores


def _scores(
    normals: ComponentNormals, cells: IndexedRows, group: SystemGroup, systems: Array
) -> Array:
    """log of density but for a constant, `(rows, components)`, rows and components as pairs."""
    size, rows = group.columns.shape
    components, columns = normals.offsets.shape
    stack = np.empty((triangle(size + 1), rows, components))
    np.take(systems, group.entries, axis=0, out=stack[: triangle(size)], mode="clip")
    residual = cells.residuals(group.rows, normals.offsets[:, None])
    sides = residual @ normals.precision if group.missing else residual
    by_row = np.ascontiguousarray(sides.transpose(1, 2, 0)).reshape(rows * columns, components)
    places = np.arange(rows) * columns + group.columns
    np.take(by_row, places, axis=0, out=stack[triangle(size) : -1], mode="clip")
    stack[-1] = 0.0
    volumes = eliminate(stack.reshape(len(stack), -1), size).reshape(rows, components)
    distance = -stack[-1]
    if group.missing:
        distance = np.einsum("cnk,cnk->nc", residual, sides) - distance
        volumes += normals.log_volumes
    return np.asarray(-0.5 * (distance + volumes))


@dataclass(frozen=True)
class SolvedPairs:
    """Solved pairs of one kind, those of a component side by side."""

    missing: bool
    rows: Places
    components: Places
    log_probs: Array
    vectors: Array
    """v, or y where missing columns are solved, and 1, `(columns + 1, pairs)`."""
    squares: Array
    """Expected squares of those, packed, `(entries, pairs)`."""


def solve_pairs(
    normals: ComponentNormals, cells: IndexedRows, active: Flags, missing: bool
) -> SolvedPairs:
    """Solve for the missing columns, or else the observed ones, of all active pairs."""
    kinds = np.array([group.missing == missing for group in cells.groups])
    components, rows = np.nonzero(active.T & kinds[cells.group])
    residual = np.ascontiguousarray(cells.residuals(rows, normals.offsets[components]).T)
    columns, count = residual.shape
    vectors, log_probs = np.ones((columns + 1, count)), -cells.constants[rows]
    vectors[:-1], sides = 0.0, residual
    if missing:
        vectors[:-1], sides = residual, _by_component(normals.precision, residual, components)
        log_probs -= 0.5 * np.einsum("kn,kn->n", residual, sides)
        log_probs -= 0.5 * normals.log_volumes[components]
    squares = np.zeros((triangle(columns + 1), count))
    result = SolvedPairs(missing, rows, components, log_probs, vectors, squares)
    systems, numbers = normals.systems(missing), cells.group[rows]
    for number in np.flatnonzero(kinds).tolist():
        group, pairs = cells.groups[number], np.flatnonzero(numbers == number)
        most = max(FEWEST, NUMBERS // triangle(len(group.columns) + 1))
        for start in range(0, len(pairs), most):
            some = pairs[start : start + most]
            _enter_solutions(result, some, group.some(cells.place[rows[some]]), systems, sides)
    for row in range(columns + 1):
        first = triangle(row)
        squares[first : first + row + 1] += vectors[: row + 1] * vectors[row]
    return result


def _enter_solutions(
    found: SolvedPairs, pairs: Places, group: SystemGroup, systems: Array, sides: Array
) -> None:
    """Solve the systems of some pairs and store the solutions."""
    size, count = len(group.columns), found.vectors.shape[1]
    stack = np.empty((triangle(size + 1), len(pairs)))
    entries = group.entries + found.components[pairs] * systems.shape[1]
    np.take(systems, entries, out=stack[: triangle(size)], mode="clip")
    places = group.columns * count + pairs
    np.take(sides, places, out=stack[triangle(size) : -1], mode="clip")
    stack[-1] = 0.0
    volumes = invert(stack, size)
    found.log_probs[pairs] -= 0.5 * (volumes + stack[-1] if found.missing else volumes - stack[-1])
    sign = -1.0 if found.missing else 1.0
    np.put(found.vectors, places, sign * stack[triangle(size) : -1])
    np.put(found.squares, group.entries * count + pairs, sign * stack[: triangle(size)])


def _by_component(matrices: Array, vectors: Array, components: Places) -> Array:
    """The matrix of its component times every column of `vectors`."""
    result = np.empty_like(vectors)
    for matrix, part in zip(matrices, parts_of(components, len(matrices)), strict=True):
        np.matmul(matrix, vectors[:, part], out=result[:, part])
    return result


def parts_of(components: Places, count: int) -> list[slice]:
    """Where the pairs of every component are."""
    bounds = np.searchsorted(components, np.arange(count + 1)).tolist()
    return [slice(*pair) for pair in pairwise(bounds)]


class ComponentSums(NamedTuple):
    """Weighted sums over pairs by component, of the vectors of `SolvedPairs`, whose last is 1."""

    squares: Array
    """Of vectors, packed, where a column is observed, and in any case: `(components, entries,
    columns + 1)`."""
    products: Array
    """Of vectors with observed columns, `(components, columns + 1, columns)`."""
    totals: Array
    """Of observed columns squared, `(components, columns)`."""


class PairSums(NamedTuple):
    """Sums over the pairs of a chunk."""

    log_likelihood: float
    observed: ComponentSums
    """Of pairs whose observed columns were solved."""
    missing: ComponentSums
    """Of pairs whose missing columns were."""

    def plus(self, other: PairSums) -> PairSums:
        """Both together."""
        sums = [
            ComponentSums(*(a + b for a, b in zip(first, second, strict=True)))
            for first, second in zip(self[1:], other[1:], strict=True)
        ]
        return PairSums(self.log_likelihood + other.log_likelihood, *sums)


def supports_pairs(parameters: Parameters) -> bool:
    """Whether the E-step over pairs is the fastest, and exact enough."""
    structure, floor = parameters.structure, parameters.noise_floor
    innovations = structure.root_width + len(structure.noisy_inner)
    small = structure.columns <= min(WIDEST, 2 * innovations)
    on_cpu = parameters.offsets.device.type == "cpu"
    return on_cpu and floor >= LEAST_NOISE and small and not prefers_tree(structure)


def pair_e_step(
    structure: Structure,
    values: Values,
    cells: Sequence[IndexedRows],
    actives: Sequence[Flags | None] | None = None,
) -> tuple[Expected, list[Array]]:
    """Expected moments of all families given the observed cells of all rows, in parts.

    Those of leaves are summed over components where all share their loadings. With them by part the
    logs of weight times density, -inf for inactive components; `actives` as in `root_moments`.
    """
    normals = ComponentNormals.of(factors_of(structure, values))
    parts, scores = list[PairSums](), list[Array]()
    for part, active in zip(cells, actives or [None] * len(cells), strict=True):
        if active is None:
            active = np.ones((len(part.values), len(normals.log_weights)), dtype=bool)
        kinds = [solve_pairs(normals, part, active, missing) for missing in (False, True)]
        own = np.full(active.shape, -np.inf)
        for kind in kinds:
            log_weights = normals.log_weights[kind.components]
            own[kind.rows, kind.components] = kind.log_probs + log_weights
        highest = own.max(1, keepdims=True)
        totals = highest + np.log(np.exp(own - highest).sum(1, keepdims=True))
        often = 1.0 if part.weights is None else part.weights[:, None]
        sums = [_sums(kind, part, often * np.exp(own - totals)) for kind in kinds]
        parts.append(PairSums(float((often * totals).sum()), *sums))
        scores.append(own)
    return moments_of_causes(structure, values, normals, reduce(PairSums.plus, parts)), scores


def _sums(pairs: SolvedPairs, cells: IndexedRows, shares: Array) -> ComponentSums:
    rows, columns, components = pairs.rows, cells.values.shape[1], shares.shape[1]
    weights = np.ones((len(rows), columns + 1))
    weights[:, :-1] = cells.seen[rows]
    weights *= shares[rows, pairs.components][:, None]
    weighted = weights[:, :-1] * cells.values[rows]
    squares = np.empty((components, len(pairs.squares), columns + 1))
    products = np.empty((components, columns + 1, columns))
    totals = np.empty((components, columns))
    for component, part in enumerate(parts_of(pairs.components, components)):
        np.matmul(pairs.squares[:, part], weights[part], out=squares[component])
        np.matmul(pairs.vectors[:, part], weighted[part], out=products[component])
        totals[component] = (weighted[part] * cells.values[rows[part]]).sum(0)
    return ComponentSums(squares, products, totals)


def moments_of_causes(
    structure: Structure, values: Values, normals: ComponentNormals, sums: PairSums
) -> Expected:
    """Moments of the causes; where all components have the same loadings those of leaves summed."""
    squares, products, totals = _observed_sums(normals, sums)
    ways, counts = _Ways.of(structure, values), squares[:, :, -1, -1]
    pooled = len(values.loadings) == 1
    leaves = []
    for clique in structure.leaf_cliques:
        own, (across, prior) = list(clique.columns), ways.to(clique.coordinates)
        result = _cause_squares(across, prior, squares[:, own], counts[:, own], pooled)
        others = [products[:, own] @ across.mT, totals[:, own], counts[:, own]]
        if pooled:
            others = [part.sum(0, keepdim=True) for part in others]
        leaves.append(LatentMoments(result, *others))
    latent = [
        _cause_squares(*ways.to(clique.coordinates), squares[:, -1:], counts[:, -1:], False)[:, 0]
        for clique in needed_cliques(structure)[len(leaves) :]
    ]
    log_likelihood = totals.new_tensor(sums.log_likelihood)
    nodes = [result.sum(0) for result in latent[:-1]]
    return Expected(log_likelihood, counts[:, -1], leaves, nodes, latent[-1])


class _Ways(NamedTuple):
    """Maps from innovations to causes and to columns."""

    maps: Tensor
    centres: Tensor
    loadings: Tensor

    @classmethod
    def of(cls, structure: Structure, values: Values) -> _Ways:
        maps, centres = innovation_map(structure, values)
        components = len(values.log_weights)
        maps, centres = maps.expand(components, -1, -1), centres.expand(components, -1)
        return cls(maps, centres, factors_of(structure, values).loadings)

    def to(self, coordinates: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """From vectors and 1 to causes and 1, and the covariance of these without evidence."""
        chosen = self.maps[:, list(coordinates)]
        across = F.pad(chosen @ self.loadings.mT, (0, 1, 0, 1))
        across[:, :-1, -1], across[:, -1, -1] = self.centres[:, list(coordinates)], 1.0
        return across, F.pad(chosen @ chosen.mT, (0, 1, 0, 1))


def _observed_sums(normals: ComponentNormals, sums: PairSums) -> tuple[Tensor, Tensor, Tensor]:
    """All sums as if observed columns had been solved: squares by column, products, totals."""
    size = normals.offsets.shape[1] + 1
    precision = F.pad(torch.from_numpy(normals.precision), (0, 1, 0, 1))
    turned = precision.clone()
    turned[:, -1, -1] = 1.0
    first, second = (
        torch.from_numpy(unpack(part.squares.swapaxes(1, 2), size)) for part in sums[1:]
    )
    squares = first + _transform(turned, second)
    squares -= second[..., -1:, -1:] * precision[:, None]
    by_missing = turned @ torch.from_numpy(sums.missing.products)
    products = torch.from_numpy(sums.observed.products) + by_missing
    totals = torch.from_numpy(sums.observed.totals + sums.missing.totals)
    return squares, products.mT, totals


def _transform(across: Tensor, squares: Tensor, pooled: bool = False) -> Tensor:
    """A S A' for every matrix S `(components, columns, n, n)`, or the sum over components."""
    half = (squares.flatten(1, 2) @ across.mT).unflatten(1, squares.shape[1:3])
    whole: Tensor
    if pooled:
        # Components and rows of S are one axis of one product for every column.
        whole = across.movedim(1, 0).flatten(1) @ half.movedim(1, 0).flatten(1, 2)
        return whole[None]
    whole = (across @ half.movedim(2, 1).flatten(2)).unflatten(2, (squares.shape[1], -1))
    return whole.movedim(2, 1)


def _cause_squares(
    across: Tensor, prior: Tensor, squares: Tensor, counts: Tensor, pooled: bool
) -> Tensor:
    """Squares of causes, `(components, columns, ...)`, or the sum over components."""
    spread = "cj,ckl->jkl" if pooled else "cj,ckl->cjkl"
    return _transform(across, squares, pooled) + torch.einsum(spread, counts, prior)
