"""The E-step over pairs of a row and a component: sums of `vfg.gaussian.em.paired`, as moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vfg.gaussian.em.general import Chunk, Expected, Moments, e_step, needed_cliques, total
from vfg.gaussian.em.paired import Cells, Explained, Flags, Normals, explained, parts_of
from vfg.gaussian.packed_cholesky import Array, unpacked
from vfg.gaussian.parameters import Parameters, Values, factors_of, innovation_map
from vfg.gaussian.structure import Structure
from vfg.gaussian.trees import prefers_tree
from vfg.gaussian.wide_stars import is_wide_star, root_moments

WIDEST = 24
"""Columns above which the systems of causes are smaller, or LAPACK is faster."""
LEAST_NOISE = 1e-3
"""Precision matrices lose as many digits as the squares of noises have zeros."""

SHARED = 2
"""Rows per mask above which it is better to factorise every mask once."""


class Sums(NamedTuple):
    """Of pairs by component, weighted; vectors are those of `Explained`, the last of which is 1."""

    squares: Array
    """Of vectors, packed, where a column is observed, and in any case: `(components, entries,
    columns + 1)`."""
    products: Array
    """Of vectors with observed columns, `(components, columns + 1, columns)`."""
    totals: Array
    """Of observed columns squared, `(components, columns)`."""


class Gathered(NamedTuple):
    """What an E-step gathers from a chunk."""

    log_likelihood: float
    observed: Sums
    """Of pairs whose observed columns were solved."""
    gaps: Sums
    """Of those whose gaps were."""

    def plus(self, other: Gathered) -> Gathered:
        """Both together."""
        sums = [
            Sums(*(a + b for a, b in zip(first, second, strict=True)))
            for first, second in zip(self[1:], other[1:], strict=True)
        ]
        return Gathered(self.log_likelihood + other.log_likelihood, *sums)


def suits(parameters: Parameters) -> bool:
    """Whether pairs are the fastest way, and exact enough."""
    structure, floor = parameters.structure, parameters.noise_floor
    innovations = structure.root_width + len(structure.noisy_inner)
    small = structure.columns <= min(WIDEST, 2 * innovations)
    on_cpu = parameters.offsets.device.type == "cpu"
    return on_cpu and floor >= LEAST_NOISE and small and not prefers_tree(structure)


def expectation(parameters: Parameters, chunks: Sequence[Chunk]) -> Callable[[Values], Expected]:
    """The E-step over all components of some rows, by the way that is faster."""
    structure = parameters.structure
    masks = sum(len(chunk.masks.distinct) for chunk in chunks)
    rows = sum(len(chunk.values) for chunk in chunks)
    if SHARED * masks >= rows and suits(parameters):
        cells = [Cells.of(chunk) for chunk in chunks]
        return lambda values: paired_e_step(structure, values, cells)[0]
    if SHARED * masks >= rows and is_wide_star(parameters):
        return lambda values: total(root_moments(values, chunk)[0] for chunk in chunks)
    return lambda values: e_step(structure, values, chunks)


def paired_e_step(
    structure: Structure,
    values: Values,
    cells: Sequence[Cells],
    actives: Sequence[Flags | None] | None = None,
) -> tuple[Expected, list[Array]]:
    """Expected moments of all families given the observed cells of all rows.

    Args:
        structure: of the model; see `suits`.
        values: of its equations.
        cells: the rows, in parts.
        actives: which components count, `(rows, components)`, by part; None means all.

    Returns:
        The moments, those of leaves summed over components where all share their loadings, and
        by part the logs of weight times density, -inf for what does not count.
    """
    normals = Normals.of(factors_of(structure, values))
    parts, scores = list[Gathered](), list[Array]()
    for part, active in zip(cells, actives or [None] * len(cells), strict=True):
        every = np.ones((len(part.values), len(normals.log_weights)), dtype=bool)
        sums, own = gathered(normals, part, every if active is None else active)
        parts.append(sums)
        scores.append(own)
    return expected_of(structure, values, normals, reduce(Gathered.plus, parts)), scores


def gathered(normals: Normals, cells: Cells, active: Flags) -> tuple[Gathered, Array]:
    """Sums over the active components of every row.

    Args:
        normals: the components.
        cells: the rows.
        active: which components count, `(rows, components)`; of every row one at least.

    Returns:
        The sums, and the logs of weight times density, -inf for what does not count.
    """
    kinds = [explained(normals, cells, active, gaps) for gaps in (False, True)]
    scores = np.full(active.shape, -np.inf)
    for kind in kinds:
        log_weights = normals.log_weights[kind.components]
        scores[kind.rows, kind.components] = kind.log_probs + log_weights
    highest = scores.max(1, keepdims=True)
    totals = highest + np.log(np.exp(scores - highest).sum(1, keepdims=True))
    shares = np.exp(scores - totals)
    sums = [_sums(kind, cells, shares) for kind in kinds]
    return Gathered(float(totals.sum()), *sums), scores


def _sums(pairs: Explained, cells: Cells, shares: Array) -> Sums:
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
    return Sums(squares, products, totals)


def expected_of(structure: Structure, values: Values, normals: Normals, sums: Gathered) -> Expected:
    """Moments of the causes; where all components have the same loadings those of leaves summed."""
    squares, products, totals = _of_observed(normals, sums)
    ways, counts = _Ways.of(structure, values), squares[:, :, -1, -1]
    pooled = len(values.loadings) == 1
    leaves = []
    for clique in structure.leaf_cliques():
        own, (across, prior) = list(clique.columns), ways.to(clique.coordinates)
        found = _moved(across, prior, squares[:, own], counts[:, own], pooled)
        others = [products[:, own] @ across.mT, totals[:, own], counts[:, own]]
        if pooled:
            others = [part.sum(0, keepdim=True) for part in others]
        leaves.append(Moments(found, *others))
    latent = [
        _moved(*ways.to(clique.coordinates), squares[:, -1:], counts[:, -1:], False)[:, 0]
        for clique in needed_cliques(structure)[len(leaves) :]
    ]
    log_likelihood = totals.new_tensor(sums.log_likelihood)
    nodes = [found.sum(0) for found in latent[:-1]]
    return Expected(log_likelihood, counts[:, -1], leaves, nodes, latent[-1])


class _Ways(NamedTuple):
    """How causes depend on innovations, and columns on these."""

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


def _of_observed(normals: Normals, sums: Gathered) -> tuple[Tensor, Tensor, Tensor]:
    """All sums as if observed columns had been solved: squares by column, products, totals."""
    size = normals.offsets.shape[1] + 1
    precision = F.pad(torch.from_numpy(normals.precision), (0, 1, 0, 1))
    turned = precision.clone()
    turned[:, -1, -1] = 1.0
    first, second = (
        torch.from_numpy(unpacked(part.squares.swapaxes(1, 2), size)) for part in sums[1:]
    )
    squares = first + _turned(turned, second)
    squares -= second[..., -1:, -1:] * precision[:, None]
    by_gaps = turned @ torch.from_numpy(sums.gaps.products)
    products = torch.from_numpy(sums.observed.products) + by_gaps
    totals = torch.from_numpy(sums.observed.totals + sums.gaps.totals)
    return squares, products.mT, totals


def _turned(across: Tensor, squares: Tensor, pooled: bool = False) -> Tensor:
    """A S A' for every matrix S `(components, columns, n, n)`, or the sum over components."""
    half = (squares.flatten(1, 2) @ across.mT).unflatten(1, squares.shape[1:3])
    whole: Tensor
    if pooled:
        # Components and rows of S are one axis of one product for every column.
        whole = across.movedim(1, 0).flatten(1) @ half.movedim(1, 0).flatten(1, 2)
        return whole[None]
    whole = (across @ half.movedim(2, 1).flatten(2)).unflatten(2, (squares.shape[1], -1))
    return whole.movedim(2, 1)


def _moved(across: Tensor, prior: Tensor, squares: Tensor, counts: Tensor, pooled: bool) -> Tensor:
    """Squares of causes, `(components, columns, ...)`, or the sum over components."""
    spread = "cj,ckl->jkl" if pooled else "cj,ckl->cjkl"
    return _turned(across, squares, pooled) + torch.einsum(spread, counts, prior)
