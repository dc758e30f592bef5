r"""Fast conditional means of the missing cells of rows, with bits that do not depend on other rows.

Rows with equally many missing cells are solved together, entry by entry of their small systems, in
numpy operations that treat every row alike. The bits of products of matrices follow from their
shapes: they are used in tiles of one shape only, in which the place of a row follows from its id.
So tables may be cut anywhere.

Of a mixture the probabilities of all components are computed first, from the smaller one of two
systems, and means or draws only of the components that count.

A component is $u = L e + b + s \varepsilon$. With its precision matrix
$Q = S^{-2} - \hat L \hat L^\top$ and residuals $r$, 0 at the missing columns $m$, these deviate
from $b$ by $Q_{mm}^{-1} \hat L_m \hat L^\top r$: a system of their number. Where they outnumber the
innovations $e$, the system of $I + L^\top S_o^{-2} L$ is solved instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.em.paired import ComponentNormals, corners, eliminate, triangle
from vfg.gaussian.factors import Factors
from vfg.gaussian.parameters import factors_of
from vfg.inference.propagation import place_rows, tiles
from vfg.tables.cells import Array
from vfg.tables.numeric import NormalScores
from vfg.utils.random import normal, uniform

MeanFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Computes the means of every entry from values, their mask, and ids of the rows."""

NUMBERS = 2**18
"""Entries of systems that are solved at once: what fits into the cache of a CPU."""
LARGEST = 48
"""The largest systems; larger ones are left to LAPACK."""
NEGLIGIBLE = {False: 1e-12, True: 1e-6}
"""Probability of a component below which its means are left out, by whether they are mapped to
values, which is exact only near a component's mean anyway."""
ROWS_OF_A_TILE = 64
"""Rows of a product of matrices: enough for its speed, and few for the padding of a single row."""
IMAGES = 2**21
"""Entries of such products that are kept together."""
WIDEST = 24
"""Columns above which mixtures are left to LAPACK, which solves many components at once."""


class MissingGroup(NamedTuple):
    """Rows with equally many missing cells: their positions, and their missing columns."""

    rows: Array
    seen: Array
    """1 where an entry is known, else 0, `(columns, rows)`."""
    missing: Array
    """Columns, `(missing, rows)`."""


def group_rows(observed: Array, most: int) -> Iterator[MissingGroup]:
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
            mask = observed[some]
            yield MissingGroup(some, mask.T.astype(np.float64, order="C"), _places(~mask))


def _places(flags: Array) -> Array:
    """The columns of flags, equally many in every row, in their order, `(columns, rows)`."""
    result: Array = np.nonzero(flags)[1].reshape(len(flags), -1).T
    return np.ascontiguousarray(result)


@dataclass(frozen=True)
class LinearComponents:
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

    @classmethod
    def of(
        cls, log_weights: Array, loadings: Array, offsets: Array, scales: Array
    ) -> LinearComponents:
        """Components from their factor models, `(components, ...)`."""
        variances = scales**2
        weighted = loadings / variances[..., None]
        turned = loadings.swapaxes(1, 2)
        inner = np.eye(loadings.shape[2]) + turned @ weighted
        shifts = weighted @ np.linalg.cholesky(np.linalg.inv(inner))
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

    def expected(self, group: MissingGroup, values: Array) -> Array:
        """Means of the missing cells, `(missing, components, rows)`.

        Values are `(columns, rows)`, any finite numbers where missing.
        """
        shape = len(self.log_weights), self.columns
        offsets, variances = (x.reshape(shape).T[..., None] for x in (self.offsets, self.variances))
        residual = (values[:, None] - offsets) * group.seen[:, None]
        places = self.places(group.missing)
        if len(group.missing) <= len(self.loadings):
            means = self._among_missing(group, places, residual)
        else:
            means = self._among_innovations(group, places, residual / variances)
        means += np.take(self.offsets, places)
        return means

    def _among_missing(self, group: MissingGroup, places: Array, residual: Array) -> Array:
        image = self._combine(self.shifts, residual)
        pulls = _sum_products("kmgr,kgr->mgr", np.take(self.shifts, places, axis=1), image)
        pairs = places[:, None] * self.columns + group.missing[None, :, None]
        sides, _ = _solve(np.take(self.precision, pairs), pulls[:, None])
        return sides[:, 0]

    def _among_innovations(self, group: MissingGroup, places: Array, ratio: Array) -> Array:
        information = self._combine(self.loadings, ratio)
        sides, _ = _solve(self._precision_of_innovations(group), information[:, None])
        return _sum_products("kmgr,kgr->mgr", np.take(self.loadings, places, axis=1), sides[:, 0])

    def deviations(self, group: MissingGroup) -> Array:
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

    def times_covariance(self, group: MissingGroup, vectors: Array) -> Array:
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

    def _precision_of_innovations(self, group: MissingGroup) -> Array:
        every = range(len(self.loadings))
        shaped = self.squares.reshape(*self.squares.shape[:2], -1, self.columns)
        system = _sum_products("ijgc,cr->ijgr", shaped, group.seen)
        system[every, every] += 1.0
        return system

    def _combine(self, matrix: Array, values: Array) -> Array:
        """Innovations from arrays by column, `(innovations, ...)`."""
        shaped = matrix.reshape(len(matrix), -1, self.columns)
        return _sum_products("kgc,cgr->kgr", shaped, values)


@dataclass(frozen=True)
class MixedNormals:
    """The components of a mixture as Normal distributions, with what follows once for all rows."""

    normals: ComponentNormals
    systems: dict[bool, Array]
    """Packed matrices by whether missing columns are solved, `(entries, components)`."""
    images: Tensor
    """Maps known values and a mask to residuals times Q, `(2 columns, columns * components)`."""

    @classmethod
    def of(cls, normals: ComponentNormals) -> MixedNormals:
        """Components from their Normal distributions."""
        by_column = normals.precision.transpose(1, 2, 0)
        offsets = normals.offsets.T[:, None]
        images = np.concatenate([by_column, -offsets * by_column])
        systems = {missing: normals.systems(missing).T.copy() for missing in (False, True)}
        return cls(normals, systems, torch.from_numpy(images.reshape(len(images), -1)))

    def shares(self, cells: Array, seen: Array, ids: Tensor) -> Array:
        """Probabilities of the components, `(rows, components)`; cells are 0 where missing."""
        columns, components = cells.shape[1], len(self.normals.log_weights)
        scores = np.empty((len(cells), components))
        known = torch.from_numpy(np.concatenate([cells, seen], axis=1))
        size = max(1, IMAGES // (ROWS_OF_A_TILE * columns * components))
        every = tiles(ids, ROWS_OF_A_TILE)
        for start in range(0, len(every), size):
            some = every[start : start + size]
            rows = torch.cat([one[0] for one in some]).numpy()
            groups = list(_unknowns(seen[rows]))
            order = np.concatenate([own for _, own, _ in groups])
            images = self._images(known, some, order).numpy()
            first = 0
            for missing, own, places in groups:
                part = images[first : first + len(own)].reshape(len(own), columns, components)
                at, first = rows[own], first + len(own)
                scores[at] = self._scores(cells[at], seen[at], part, places, missing)
        scores += self.normals.log_weights
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(shares / shares.sum(1, keepdims=True))

    def _images(self, known: Tensor, some: list[tuple[Tensor, Tensor]], order: Array) -> Tensor:
        """Images of the rows of some tiles, in another order, `(rows, columns * components)`."""
        places = torch.empty(len(order), dtype=torch.long)
        places[torch.from_numpy(order)] = torch.arange(len(order))
        images = known.new_empty(len(order), self.images.shape[1])
        product = known.new_empty(ROWS_OF_A_TILE, self.images.shape[1])
        for one, at in zip(some, places.split([len(one[0]) for one in some]), strict=True):
            torch.mm(place_rows(known, *one, ROWS_OF_A_TILE, 0.0), self.images, out=product)
            images.index_copy_(0, at, product.index_select(0, one[1]))
        return images

    def _scores(
        self, cells: Array, seen: Array, images: Array, places: Array, missing: bool
    ) -> Array:
        """log of density but for a constant of the row, `(rows, components)`."""
        scores = np.empty((len(cells), images.shape[2]))
        most = max(8, NUMBERS // (images.shape[2] * triangle(len(places) + 1)))
        for start in range(0, len(cells), most):
            some = slice(start, start + most)
            part = cells[some], seen[some], images[some]
            scores[some] = self._scores_of(*part, places[:, some], missing)
        return scores

    def _scores_of(
        self, cells: Array, seen: Array, images: Array, places: Array, missing: bool
    ) -> Array:
        (size, rows), components = places.shape, images.shape[2]
        stack = np.empty((triangle(size + 1), rows, components))
        upper, lower = corners(size)
        entries = places[upper] * (places[upper] + 1) // 2 + places[lower]
        np.take(self.systems[missing], entries, axis=0, out=stack[: triangle(size)], mode="clip")
        stack[-1] = 0.0
        every, offsets = np.arange(rows), self.normals.offsets.T
        if missing:
            stack[triangle(size) : -1] = images[every, places]
        else:
            np.take(offsets, places, axis=0, out=stack[triangle(size) : -1], mode="clip")
            stack[triangle(size) : -1] -= cells[every, places][..., None]
        volumes = eliminate(stack.reshape(len(stack), -1), size).reshape(rows, components)
        distance = -stack[-1]
        if missing:
            volumes += self.normals.log_volumes
            distance = -distance
            for column in range(cells.shape[1]):
                residual = cells[:, column, None] - seen[:, column, None] * offsets[column]
                distance += residual * images[:, column]
        return np.asarray(-0.5 * (distance + volumes))

    def complete(
        self, group: MissingGroup, components: Array, cells: Array, noise: Array | None = None
    ) -> Array:
        """Means of the missing cells, or draws given Normal `noise`, `(missing, pairs)`.

        The rows of a group, with values `(columns, pairs)`, have a component each.
        """
        columns = len(cells)
        offsets = self.normals.offsets[components].T
        residual = (cells - offsets) * group.seen
        places = (components * columns + group.missing) * columns
        precision = self.normals.precision.ravel()
        pulls = np.zeros(group.missing.shape)
        for column, values in enumerate(residual):
            pulls -= np.take(precision, places + column) * values
        system = np.take(precision, places[:, None] + group.missing[None])
        pivots = _eliminate(system, pulls[:, None])
        pulls /= pivots
        if noise is not None:
            pulls += noise / np.sqrt(pivots)
        _substitute_back(system, pulls[:, None])
        pulls += np.take_along_axis(offsets, group.missing, axis=0)
        return pulls


def _unknowns(seen: Array) -> Iterator[tuple[bool, Array, Array]]:
    """Rows by the smaller side: whether it is the missing one, rows, columns `(size, rows)`."""
    known = seen.sum(1).astype(int)
    missing = 2 * known > seen.shape[1]
    sizes = np.where(missing, seen.shape[1] - known, known)
    for of_missing in (False, True):
        for size in np.unique(sizes[missing == of_missing]).tolist():
            rows = np.flatnonzero((missing == of_missing) & (sizes == size))
            sign = 1.0 if of_missing else -1.0
            # Stable, so that columns keep their order and entries lie in lower triangles.
            order = np.argsort(sign * seen[rows], axis=1, kind="stable")
            yield of_missing, rows, order[:, :size].T.copy()


class ExactMeans:
    """The conditional means of an exact model that `suits`, for many rows at once.

    With `ranks` the model is one of normal scores, and means are mapped back to values.
    """

    def __init__(self, model: GaussianVFG, ranks: NormalScores | None = None) -> None:
        self.ranks = None if ranks is None else deepcopy(ranks).cpu()
        with torch.no_grad():
            values = factors_of(model.structure, model.linear.values())
        factors = Factors(*(part.detach().cpu() for part in values))
        scaling = model.scaling
        self.location, self.scale = (x.cpu().numpy() for x in (scaling.location, scaling.scale))
        self.components = LinearComponents.of(*(part.numpy() for part in factors))
        mixes = len(self.components.log_weights) > 1
        self.mixed = MixedNormals.of(ComponentNormals.of(factors)) if mixes else None

    @classmethod
    def suits(cls, model: GaussianVFG) -> bool:
        """Whether a model has affine real leaves and small systems, on a CPU."""
        return next(model.parameters()).device.type == "cpu" and cls.has_small_systems(model)

    @staticmethod
    def has_small_systems(model: GaussianVFG) -> bool:
        """The same on any device; answers are on the CPU."""
        innovations = model.structure.root_width + len(model.structure.noisy_inner)
        plain = model.leaves.is_identity and not model.codes.units
        narrow = model.components == 1 or model.structure.columns <= WIDEST
        return plain and innovations <= LARGEST and narrow

    def __call__(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor | None = None,
        shares: Array | None = None,
    ) -> Tensor:
        """Means of every entry, `(rows, columns)`; known entries are unchanged.

        `shares` are those of the method of this name, if they are known.
        """
        if self.mixed is not None:
            shares = self.shares(values, observed, ids) if shares is None else shares
            return self._mixed_means(self.mixed, values, observed, shares)
        result = values.double().numpy().copy()
        location, scale = self.location, self.scale
        for group in group_rows(observed.numpy(), NUMBERS):
            cells = np.ascontiguousarray(((result[group.rows] - location) / scale).T)
            means = self.components.expected(group, cells)[:, 0]
            means = means * scale[group.missing] + location[group.missing]
            if self.ranks is not None:
                places = torch.from_numpy(group.missing)
                means = self.ranks.inverse_at(torch.from_numpy(means), places).numpy()
            result[group.rows, group.missing] = means
        return torch.from_numpy(result)

    def samples(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        *,
        seed: int,
        ids: Tensor,
        shares: Array | None = None,
    ) -> Tensor:
        """Joint draws of a mixture, `(number, rows, columns)`; known entries are unchanged.

        `shares` are those of the method of this name, if they are known.
        """
        assert self.mixed is not None
        result = values.double().numpy()[None].repeat(number, axis=0)
        every, shape = torch.arange(number), (number, len(values))
        shares = self.shares(values, observed, ids) if shares is None else shares
        below = shares.cumsum(1)
        levels = uniform(seed, ids, every, 0, torch.arange(1))[..., 0].numpy()
        chosen = (levels[..., None] > below[None, :, :-1] / below[:, -1:]).sum(-1)
        noise = normal(seed, ids, every, 1, torch.arange(values.shape[1])).numpy()
        rows = np.broadcast_to(np.arange(len(values)), shape).ravel()
        flat = result.reshape(-1, values.shape[1])
        for group in group_rows(observed.numpy()[rows], NUMBERS):
            cells = ((flat[group.rows] - self.location) / self.scale).T
            own = noise.reshape(flat.shape)[group.rows, group.missing]
            drawn = self.mixed.complete(group, chosen.ravel()[group.rows], cells, own)
            flat[group.rows, group.missing] = self._in_units(drawn, group.missing)
        return torch.from_numpy(result)

    def _in_units(self, scores: Array, columns: Array) -> Array:
        """Values of the table from those of the model, each of its column."""
        scores = np.asarray(scores * self.scale[columns] + self.location[columns])
        if self.ranks is None:
            return scores
        places = torch.from_numpy(columns)
        return self.ranks.inverse_at(torch.from_numpy(scores), places).numpy()

    def shares(self, values: Tensor, observed: Tensor, ids: Tensor | None = None) -> Array:
        """Probabilities of the components of a mixture, `(rows, components)`.

        Those of rows without missing cells, which no answer needs, are equal.
        """
        assert self.mixed is not None
        count = len(self.mixed.normals.log_weights)
        result = np.full((len(values), count), 1.0 / count)
        rows = (~observed).any(1).nonzero()[:, 0]
        if len(rows):
            own = rows if ids is None else ids[rows]
            seen = observed[rows].double().numpy()
            cells = (values[rows].double().numpy() - self.location) / self.scale * seen
            result[rows.numpy()] = self.mixed.shares(cells, seen, own)
        return result

    def _mixed_means(
        self, mixed: MixedNormals, values: Tensor, observed: Tensor, shares: Array
    ) -> Tensor:
        result = values.double().numpy().copy()
        rows = np.flatnonzero((~observed).any(1).numpy())
        if not len(rows):
            return torch.from_numpy(result)
        large = shares[rows]
        large *= large > NEGLIGIBLE[self.ranks is not None]
        large /= large.sum(1, keepdims=True)
        row, component = np.nonzero(large)
        weights, at = large[row, component], rows[row]
        known = observed.numpy()
        total = np.where(known, result, 0.0).ravel()
        for group in group_rows(known[at], NUMBERS):
            cells = ((result[at[group.rows]] - self.location) / self.scale).T
            means = mixed.complete(group, component[group.rows], cells)
            means = self._in_units(means, group.missing) * weights[group.rows]
            places = at[group.rows] * len(cells) + group.missing
            # Unlike other sums this one adds in the order of components.
            total += np.bincount(places.ravel(), means.ravel(), minlength=len(total))
        return torch.from_numpy(total.reshape(result.shape))

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
    pivots = _eliminate(system, right)
    right /= pivots[:, None]
    _substitute_back(system, right)
    return right, pivots


def _eliminate(system: Array, right: Array) -> Array:
    """The first half of `_solve`: factors in place of the systems; returns the pivots."""
    pivots = np.ones((len(right), *right.shape[2:]))
    for step in range(len(right)):
        pivots[step] = system[step, step]
        below = system[step + 1 :, step]
        factors = below / pivots[step]
        system[step + 1 :, step + 1 :] -= factors[:, None] * below[None]
        right[step + 1 :] -= factors[:, None] * right[step]
        system[step + 1 :, step] = factors
    return pivots


def _substitute_back(system: Array, right: Array) -> None:
    """The second half of `_solve`, from the factors and right sides divided by pivots."""
    for step in reversed(range(1, len(right))):
        right[:step] -= system[step, :step][:, None] * right[step]


def _by_column(matrices: Array) -> Array:
    """Matrices `(components, columns, n)` as `(n, components * columns)`."""
    return matrices.transpose(2, 0, 1).reshape(matrices.shape[2], -1).copy()


def _total(parts: Array) -> Array:
    """Add up one after the other: the order of numpy's sums depends on the shape."""
    total = np.zeros(parts.shape[1:])
    for part in parts:
        total += part
    return total


def _sum_products(subscripts: str, left: Array, right: Array) -> Array:
    """`np.einsum` whose last axis, that of rows, stands in the right factor and in the result.

    Terms are added one after the other, as in `_total`: the innermost loop runs over the rows. A
    single row would have no such loop, so it is doubled.
    """
    if right.shape[-1] > 1:
        return np.asarray(np.einsum(subscripts, left, right))
    has_rows = [part.endswith("r") for part in subscripts.split("->")[0].split(",")]
    parts = zip((left, right), has_rows, strict=True)
    doubled = [part.repeat(2, axis=-1) if by_row else part for part, by_row in parts]
    return np.asarray(np.einsum(subscripts, *doubled))[..., :1]
