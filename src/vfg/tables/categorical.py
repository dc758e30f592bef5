"""Columns of categories as code points or normal scores, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, Self

import numpy as np
import scipy
import torch

from vfg.tables.cells import Array, Column, ColumnEncoding, Mask
from vfg.tables.schema import MOST_SIMPLEX, are_identifiers

WIDEST = 8
"""The most dimensions that code points have."""
RAREST = 0.01
"""Rarer categories count as this frequent in a simplex, so that no point lies beyond ten."""
FURTHEST = 10.0
"""Distance from the origin beyond which code points are shrunk, as evidence is clipped at ten."""
CAUTION = 10.0
"""Cells besides the first at which a category's own mean counts as much as the overall one."""
SPREAD = 0.01
"""Size of the fixed spread of code points, next to the largest differences between categories."""
FOLDS = 3
"""Folds for the code points of the rows that a model is fitted to; categories with fewer rows leave
out one row at a time. With ten, small categories did so: the mean without a row tells what is in
it, held-out cells were predicted too well, and sets of the level 90 % held 79 % of the cells of
random tables of 120 rows with a column of twelve categories. With three they hold 89 % and its log
score is 4 % lower (2 folds: 89 % and 4 %); see `test_sets_of_small_tables_hold_the_level`. In 12
fits of seven tables for tuning, three next to ten have 0.993 of the log score, 1.015 of the error
rate and 0.988 of the squared error. With row mixtures that let categories differ, on 24 made tables
of 120 to 500 rows, ten next to three have 1.01 of the squared error, 1.04 of the error rate and
1.03 of the log score, and five 0.98, 0.99 and 0.99."""
UNKNOWN = 0.1
"""Size of the random part of the point of a category that was seen once, in deviations: the
smallest tried with which intervals of pure noise hold what they should."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, of the golden ratio, for digests of rows."""
MOST_OTHERS = 256
"""The most columns of other sections that code points are computed from; bounds the time."""


def simplex_codes(frequencies: Array) -> Array:
    """The corners of a simplex `(categories, categories - 1)`: Σ p_c m_c = 0, Σ p_c m_c m_cᵀ = I.

    With equal frequencies the simplex is regular. A corner lies at the distance √(1/p_c − 1), so
    rare categories count as one in a hundred.

    Example:
        >>> simplex_codes(np.array([0.5, 0.5]))
        array([[-1.],
               [ 1.]])
    """
    roots = np.sqrt(simplex_weights(frequencies))
    direction = roots.copy()
    direction[0] += 1.0
    # A reflection that takes the first axis to −√p: its other columns are orthogonal to √p.
    mirror = np.eye(len(roots)) - np.outer(direction, direction) / (1.0 + roots[0])
    return np.asarray(mirror[:, 1:] / roots[:, None])


def simplex_weights(frequencies: Array) -> Array:
    """The frequencies by which a simplex is whitened: none below one in a hundred."""
    shares = frequencies / frequencies.sum()
    raised = np.maximum(shares, RAREST)
    return np.asarray(raised / raised.sum())


def spread_codes(count: int, width: int) -> Array:
    """Different points `(count, width)`, spread like a standard Normal and always the same.

    Example:
        >>> bool(np.abs(spread_codes(1000, 8).mean(0)).max() < 0.1)
        True
    """
    # The additive recurrence of the generalised golden ratio fills a cube evenly.
    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (width + 1))
    steps = ratio ** -np.arange(1.0, width + 1)
    cube = (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
    scores: torch.Tensor = torch.special.ndtri(torch.from_numpy(cube).clip(1e-9, 1 - 1e-9))
    return scores.numpy()


def softmax(logs: Array) -> Array:
    """Probabilities along the last axis from their logarithms, up to a constant.

    scipy.special has it too, but takes longer to import than a question to answer.

    Example:
        >>> softmax(np.log([[1.0, 3.0]])).tolist()
        [[0.25, 0.75]]
    """
    # Along the first axis: along a last one of four numbers, sums take ten times as long.
    by_class = np.ascontiguousarray(np.moveaxis(np.asarray(logs), -1, 0))
    shares = np.exp(by_class - by_class.max(0))
    shares /= shares.sum(0)
    return np.moveaxis(shares, 0, -1)


def whiten(points: Array, frequencies: Array) -> Array:
    """Points centred and whitened so that Σ p_c m_c = 0 and Σ p_c m_c m_cᵀ = I."""
    shares = frequencies / frequencies.sum()
    return np.asarray((points - shares @ points) @ whitening(points, frequencies))


def whitening(points: Array, frequencies: Array) -> Array:
    """The matrix that whitens centred points; see `whiten`."""
    shares = frequencies / frequencies.sum()
    centred = points - shares @ points
    covariance = (centred * shares[:, None]).T @ centred
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= 1e-14 * values[-1]:
        raise np.linalg.LinAlgError("code points must span their space")
    # The symmetric root moves the axes least, so that the order of the directions stays.
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


def category_means(
    members: Array, count: int, values: Array, observed: Mask, weights: Array | None = None
) -> Array:
    """The mean of every column in every category `(count, width)`, shrunk to 0 where cells are few.

    A mean of n cells counts (n − 1) / (n − 1 + 10): a category that is seen once would otherwise
    repeat its row, and a model would learn to read hidden cells off it. `members` is the category
    of every row, -1 for none; `values` and `observed` are `(width, rows)`.
    """
    rows = np.flatnonzero(members >= 0)
    often = np.ones(len(rows)) if weights is None else weights[rows]
    membership = scipy.sparse.csr_matrix(
        (often, (members[rows], rows)), shape=(count, len(members))
    )
    sums = membership @ np.where(observed, values, 0.0).T
    cells = membership @ observed.T.astype(np.float64)
    means = sums / np.maximum(cells, 1.0 if weights is None else 1e-300)
    return np.asarray(means * _trust(cells))


def _trust(cells: Array) -> Array:
    """How much means of so many cells count, from 0 to 1."""
    others = np.maximum(cells - 1.0, 0.0)
    return np.asarray(others / (others + CAUTION))


def optimal_codes(means: Array, frequencies: Array) -> Array:
    """Code points `(categories, 8)` that keep most of how categories differ in the other columns.

    The leading eight principal directions of the categories' means `(categories, columns)`,
    weighted by frequency, with a fixed small spread that keeps the points apart (and stands in for
    directions that are missing), whitened. Points beyond ten are shrunk: none is an outlier.
    """
    return optimal_map(means, frequencies)(means)


def optimal_map(means: Array, frequencies: Array) -> Callable[[Array], Array]:
    """The map from means of the other columns to code points, fitted to those of a table."""
    shares = frequencies / frequencies.sum()
    centre = shares @ means
    spreads = shares @ (means - centre) ** 2
    chosen = np.sort(np.argsort(-spreads, kind="stable")[:MOST_OTHERS])
    directions = _leading((means - centre)[:, chosen], shares)

    def project(some: Array) -> Array:
        points = np.zeros((len(some), WIDEST))
        points[:, : directions.shape[1]] = (some - centre)[:, chosen] @ directions
        return points

    fitted = project(means)
    size = float(np.sqrt((shares @ fitted**2).max()))
    # What is not known of a category is random. Whitening would else undo the shrinkage of means.
    unknown = 1.0 - _trust(frequencies.astype(np.float64))
    sizes = SPREAD * (size or 1.0) + UNKNOWN * unknown
    apart = sizes[:, None] * whiten(spread_codes(len(means), WIDEST), frequencies)
    shift = shares @ (fitted + apart)
    root = whitening(fitted + apart, frequencies)
    return lambda some: shrink_far_points((project(some) + apart - shift) @ root)


def shrink_far_points(points: Array) -> Array:
    """Points whose distance r from the origin, beyond ten, becomes 10 + log(1 + r − 10).

    Example:
        >>> shrink_far_points(np.array([[3.0, 4.0], [30.0, 40.0]])).round(3)
        array([[ 3.   ,  4.   ],
               [ 8.228, 10.971]])
    """
    distance = np.linalg.norm(points, axis=1, keepdims=True)
    shorter = FURTHEST + np.log1p(np.maximum(distance - FURTHEST, 0.0))
    return np.asarray(
        np.where(distance > FURTHEST, points * (shorter / (distance + 1e-300)), points)
    )


def _leading(centred: Array, shares: Array) -> Array:
    """The principal directions `(columns, at most 8)`, each with its largest entry positive."""
    gram = (centred * shares[:, None]).T @ centred
    values, vectors = np.linalg.eigh(gram)
    useful = min(WIDEST, int((values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)).sum()))
    directions = vectors[:, ::-1][:, :useful]
    if not useful:
        return directions
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(useful)]
    return np.asarray(directions * np.sign(largest))


def joint_codes(
    members: Sequence[Array],
    counts: Sequence[Array],
    others: Sequence[tuple[Array, Mask]],
    weights: Array | None = None,
) -> list[Array]:
    """Code points of several columns with many categories, each computed from all other columns.

    They begin as fixed spread points and are computed twice, so that columns with many categories
    depend on each other too. `members` holds the category of every row, -1 for none; `others`
    values and mask of all other columns' sections, each `(width, rows)`.
    """
    codes = [whiten(spread_codes(len(count), WIDEST), count) for count in counts]
    for _ in range(2 if len(codes) > 1 else 1):
        sections = [place_codes(*pair) for pair in zip(codes, members, strict=True)]
        for place, (member, count) in enumerate(zip(members, counts, strict=True)):
            rest = [*others, *sections[:place], *sections[place + 1 :]]
            codes[place] = optimal_codes(_means_of(member, len(count), rest, weights), count)
    return codes


def cross_fitted_codes(
    codes: Array,
    members: Array,
    counts: Array,
    rest: Sequence[tuple[Array, Mask]],
    weights: Array | None = None,
) -> Array:
    """The code points of rows, each from the means of other rows than its own, `(8, rows)`.

    A point that is computed from a row's own cells tells a model what is in them, and the more so
    the fewer rows a category has. So the rows of a category are dealt into folds, copies into the
    same one, and those of a fold have the point that the others give. For `members` and `rest` see
    `joint_codes`.
    """
    section = place_codes(codes, members)[0].copy()
    means = _means_of(members, len(counts), rest, weights)
    to_points = optimal_map(means, counts)
    own = to_points(means)
    # Where columns of many categories depend on each other the map differs a little from theirs.
    turn = np.linalg.lstsq(own, codes, rcond=None)[0]
    first, are_copies = find_equal_rows(members, rest)
    leads = ~are_copies | (first == np.arange(len(first)))
    folds = (_ranks(members, leads) % FOLDS)[np.where(are_copies, first, np.arange(len(first)))]
    for fold in range(FOLDS):
        rows = np.flatnonzero((folds == fold) & (members >= 0))
        kept = np.where(folds == fold, -1, members)
        others = to_points(_means_of(kept, len(counts), rest, weights))
        section[:, rows] += ((others - own) @ turn)[members[rows]].T
    return section


def _means_of(
    members: Array, count: int, rest: Sequence[tuple[Array, Mask]], weights: Array | None
) -> Array:
    means = [category_means(members, count, *section, weights) for section in rest]
    return np.column_stack([np.zeros((count, 0)), *means])


def _ranks(members: Array, counted: Mask) -> Array:
    """How many rows of its category are counted before each row."""
    order = np.argsort(members, kind="stable")
    before: Array = np.cumsum(counted[order]) - counted[order]
    ranks = np.empty(len(members), dtype=np.int64)
    ranks[order] = before - before[np.searchsorted(members[order], members[order])]
    return ranks


def find_equal_rows(members: Array, rest: Sequence[tuple[Array, Mask]]) -> tuple[Array, Mask]:
    """The first equal row in the category of every row, and whether equal rows are copies.

    They are copies if no other category has such a row, in the columns that do not follow from the
    category. Else they are different observations of few possible values. To leave all of these
    out together would tell what the value is: the others would have the opposite.

    Example:
        >>> values, seen = np.array([[0.1, 0.1, 0.0, 0.0, 0.0]]), np.ones((1, 5), dtype=bool)
        >>> [part.tolist() for part in find_equal_rows(np.array([0, 0, 0, 0, 1]), [(values, seen)])]
        [[0, 0, 2, 2, 4], [True, True, False, False, False]]
    """
    digests = np.zeros(len(members), dtype=np.uint64)
    rows = np.flatnonzero(members >= 0)
    typical = np.zeros(int(members.max(initial=-1)) + 1)
    for values, observed in rest:
        for cells, seen in zip(np.where(observed, values, 0.0) + 0.0, observed, strict=True):
            known = rows[seen[rows]]
            typical[members[known]] = cells[known]
            if (typical[members[known]] == cells[known]).all():
                continue  # it follows from the category
            for bits in (cells.view(np.uint64), seen.astype(np.uint64)):
                digests = (digests ^ bits) * MULTIPLIER
                digests ^= digests >> np.uint64(32)
    contents = np.unique(digests, return_inverse=True)[1].ravel()
    pairs = contents[rows] * len(typical) + members[rows]
    different, starts, groups = np.unique(pairs, return_index=True, return_inverse=True)
    categories = np.bincount(different // max(1, len(typical)), minlength=len(members))
    first, are_copies = np.arange(len(members)), np.zeros(len(members), dtype=bool)
    first[rows], are_copies[rows] = rows[starts[groups]], categories[contents[rows]] == 1
    return first, are_copies


def split_weights(weights: Array, split: Mask) -> tuple[Array, Array]:
    """Rows, some of them several times with parts of their weight, and these parts.

    The parts of a weight of 8 are 2, 2, 2, 1 and 1: dealt into folds one after the other, they are
    as many in each as eight rows.

    Example:
        >>> rows, parts = split_weights(np.array([8.0, 4.0, 1.5]), np.array([True, False, True]))
        >>> rows.tolist(), parts.tolist()
        ([0, 0, 0, 0, 0, 1, 2, 2], [2.0, 2.0, 2.0, 1.0, 1.0, 4.0, 1.0, 0.5])
    """
    even = np.where(split, np.floor(weights / FOLDS), 0.0)
    left = np.where(split, weights - FOLDS * even, 0.0)
    ones = (left[:, None] - np.arange(FOLDS)).clip(0.0, 1.0)
    parts = np.column_stack(
        [np.where(split, 0.0, weights), np.repeat(even[:, None], FOLDS, 1), ones]
    )
    kept = parts > 0.0
    kept[:, 0] |= ~split | (weights <= 0.0)
    return np.nonzero(kept)[0], parts[kept]


def place_codes(codes: Array, members: Array) -> tuple[Array, Mask]:
    """The code points of rows, 0 where there is none, and which are there; both `(width, rows)`."""
    seen = members >= 0
    if not len(codes):
        shape = (codes.shape[1], len(members))
        return np.zeros(shape), np.zeros(shape, dtype=bool)
    section = np.where(seen, codes.T[:, members], 0.0)
    return section, np.broadcast_to(seen, section.shape)


MOST_CANDIDATES = 4096
"""The most categories, by frequency, that missing cells may be filled with; bounds the time."""
CHUNK = 2**18
"""How many scores of categories are computed at once, so that they stay in a cache."""
NEARBY = 0.5
"""The assumed deviation of errors for many categories, if none is given."""


def category_indices(column: Column, categories: Sequence[Any]) -> Array:
    """The place of every cell among the categories, -1 for a missing or unknown one.

    Cells and categories that compare equal are the same, so the integer 1 is found as 1.0 too.

    Example:
        >>> cells = np.array(["b", "a", "c"], dtype=object)
        >>> category_indices(Column("x", "text", cells, np.zeros(3, dtype=bool)), ("a", "b"))
        array([ 1,  0, -1])
    """
    values = column.values
    if values.dtype.kind in "OU" or any(isinstance(category, str) for category in categories):
        lookup = {category: place for place, category in enumerate(categories)}
        cells = values.tolist() if values.dtype.kind not in "Mm" else repeat(None, len(values))
        places = np.fromiter(map(lookup.get, cells, repeat(-1)), np.int64, len(values))
    else:
        places = _among_numbers(values, categories)
    return np.where(column.missing, -1, places)


def _among_numbers(values: Array, categories: Sequence[Any]) -> Array:
    if not len(categories) or values.dtype.kind in "Mm":
        return np.full(len(values), -1)
    known = np.array(categories)
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], values).clip(0, len(known) - 1)
    return np.where(known[order[place]] == values, order[place], -1)


def cells_of(categories: Sequence[Any]) -> Array:
    """Categories as an array: of numbers or booleans if all are, else of objects."""
    kinds = set(map(type, categories))
    is_numeric = kinds in ({bool}, {int}, {float}, {int, float})
    if is_numeric and all(abs(category) < 2**63 for category in categories):
        return np.array(categories)
    cells = np.empty(len(categories), dtype=object)
    cells[:] = categories
    return cells


@dataclass(frozen=True)
class IdentifierEncoding(ColumnEncoding):
    """A column of identifiers or free text: no evidence, and its missing cells stay missing."""

    name: ClassVar[str] = "identifier"
    width: ClassVar[int] = 1
    empty: ClassVar[bool] = False
    constant: ClassVar[bool] = True
    fillable: ClassVar[bool] = False

    def encode(self, column: Column) -> tuple[Array, Mask]:
        shape = (1, len(column.missing))
        return np.zeros(shape), np.zeros(shape, dtype=bool)

    def decode(self, values: Array) -> Array:
        return np.full(len(values), None, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}

    @classmethod
    def from_dict(cls, description: dict[str, Any], arrays: dict[str, Array]) -> Self:
        return cls()


@dataclass(frozen=True, eq=False)
class CategoryEncoding(ColumnEncoding):
    """Base of the encodings of categories, which keep their counts and one more array."""

    arrays: ClassVar[tuple[str, str]]

    categories: tuple[Any, ...]
    counts: Array

    def __post_init__(self) -> None:
        sizes = [len(array) for array in self.state().values()]
        if sizes != [len(self.categories)] * 2:
            raise ValueError(
                f"{len(self.categories)} categories need as many counts and points, but there are "
                f"{sizes[0]} and {sizes[1]}; the stored table is damaged"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "categories": list(self.categories)}

    def state(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in self.arrays}

    @classmethod
    def from_dict(cls, description: dict[str, Any], arrays: dict[str, Array]) -> Self:
        return cls(tuple(description["categories"]), *(arrays[name] for name in cls.arrays))


@dataclass(frozen=True, eq=False)
class CategoricalEncoding(CategoryEncoding):
    """A column of the categories that were seen, as code points `(categories, width)`.

    Two categories are one dimension, up to nine the corners of a simplex, more of them points in
    eight dimensions that keep how the categories differ in the other columns; all whitened over
    the observed rows, where categories rarer than one in a hundred count as that frequent.
    Categories that were not seen in fitting are no evidence. A column with more than nine
    categories, nearly all seen only once, holds identifiers or free text: it is no evidence either,
    and its missing cells stay missing. Those of a constant column are filled with its only
    category, others with one of the 4096 most frequent categories.
    """

    name: ClassVar[str] = "codes"
    arrays: ClassVar[tuple[str, str]] = ("counts", "points")

    points: Array

    @classmethod
    def fit(cls, categories: tuple[Any, ...], counts: Array) -> CategoricalEncoding:
        """The code points of few categories; many are left open, without any dimension."""
        many = len(categories) > MOST_SIMPLEX
        if len(categories) > 1 and not many:
            return cls(categories, counts, simplex_codes(counts))
        is_idle = not many or are_identifiers(len(counts), int(counts.sum()))
        return cls(categories, counts, np.zeros((len(categories), int(is_idle))))

    @property
    def width(self) -> int:
        return int(self.points.shape[1])

    @property
    def open(self) -> bool:
        """Whether the code points are still to be computed from other columns."""
        return self.width == 0

    @property
    def empty(self) -> bool:
        return not self.categories

    @property
    def constant(self) -> bool:
        return len(self.categories) == 1 or self.distinct

    @property
    def fillable(self) -> bool:
        return not self.empty and not self.distinct

    @property
    def distinct(self) -> bool:
        """Whether there are many categories and hardly any was seen twice."""
        return are_identifiers(len(self.counts), int(self.counts.sum()))

    def encode(self, column: Column) -> tuple[Array, Mask]:
        places = category_indices(column, self.categories)
        if self.distinct:
            places = np.full_like(places, -1)
        return place_codes(self.points, places)

    def decode(self, values: Array) -> Array:
        if not self.fillable:
            return np.full(len(values), None, dtype=object)
        cells = cells_of(self.categories)
        if self.constant:
            return np.repeat(cells[:1], len(values))
        frequent = np.sort(np.argsort(-self.counts, kind="stable")[:MOST_CANDIDATES])
        slopes, offsets = self._scores(None, frequent)
        chosen = np.empty(len(values), dtype=np.int64)
        chunk = max(1, CHUNK // len(frequent))
        for start in range(0, len(values), chunk):
            scores = values[start : start + chunk] @ slopes
            scores += offsets
            chosen[start : start + chunk] = scores.argmax(axis=1)
        if not self.is_simplex:
            self._keep_points(values, frequent, chosen)
        return cells.take(frequent[chosen])

    def _keep_points(self, values: Array, frequent: Array, chosen: Array) -> None:
        """Let values that are code points be their own categories, whatever is more frequent."""
        order = np.argsort(self.points[frequent, 0], kind="stable")
        first = self.points[frequent[order], 0]
        place = np.searchsorted(first, values[:, 0]).clip(max=len(order) - 1)
        is_point = (self.points[frequent[order[place]]] == values).all(axis=1)
        chosen[is_point] = order[place[is_point]]

    def probabilities(self, values: Array, scale: float | None = None) -> Array:
        """The probability of every category from numbers `(rows, width)`.

        With a deviation s of their errors, π_c ∝ p_c exp(−‖v − m_c‖² / 2s²) for the frequencies p
        and code points m. Without one, the values v are taken for means of code points,
        v = Σ π_c m_c, which for a simplex has the solution π_c = w_c (1 + m_c · v), none below what
        one more cell would say; for more than nine categories, where many π fit, s = 0.5 is taken.
        """
        if self.empty:
            return np.zeros((len(values), 0))
        slopes, offsets = self._scores(scale, np.arange(len(self.categories)))
        scores = values @ slopes + offsets
        if scale is not None or not self.is_simplex:
            return softmax(scores)
        # What occurred can occur again: no less than as one cell more would say.
        cells = self.counts.sum()
        weights, shares = simplex_weights(self.counts), self.counts / cells
        possible = np.maximum(scores, weights / (cells + 1.0))
        if shares.min() < RAREST:  # rare categories counted as more frequent than they are
            possible = possible * (shares / weights)
        return np.asarray(possible / possible.sum(axis=1, keepdims=True))

    @property
    def is_computed(self) -> bool:
        """Whether the code points were computed from other columns."""
        return not self.constant and len(self.categories) > MOST_SIMPLEX

    @property
    def is_simplex(self) -> bool:
        """Whether probabilities follow from the mean of code points."""
        return 1 < len(self.categories) <= MOST_SIMPLEX

    def _scores(self, scale: float | None, chosen: Array) -> tuple[Array, Array]:
        """Slopes and offsets of scores that rise with the probabilities of chosen categories.

        For the mean of corners they are the probabilities, else their logarithms up to a constant.
        """
        points = self.points[chosen]
        if scale is None and self.is_simplex:
            weights = simplex_weights(self.counts)[chosen]
            return (weights[:, None] * points).T, weights
        variance = (NEARBY if scale is None else scale) ** 2
        near = (points**2).sum(axis=1) / (2.0 * variance)
        return points.T / variance, np.log(self.counts[chosen]) - near


@dataclass(frozen=True, eq=False)
class OrdinalEncoding(CategoryEncoding):
    """A column of ordered categories, from the lowest to the highest, as rising normal scores.

    A level's score is the Normal quantile in the middle of its share of the cumulative frequencies,
    where every level counts half a cell more than it has, so that all scores differ; scores are
    standardised over the observed rows. Filled cells have the level whose score is nearest, between
    the lowest and the highest level observed. Levels that are not known are no evidence.
    """

    name: ClassVar[str] = "levels"
    arrays: ClassVar[tuple[str, str]] = ("counts", "scores")
    width: ClassVar[int] = 1

    scores: Array

    @classmethod
    def fit(cls, categories: tuple[Any, ...], counts: Array) -> OrdinalEncoding:
        """The scores of levels that were seen so often."""
        return cls(categories, counts, normal_scores(counts))

    @property
    def points(self) -> Array:
        """The scores as points of one dimension, `(categories, 1)`."""
        return self.scores[:, None]

    @property
    def is_simplex(self) -> bool:
        """Probabilities do not follow from the mean of scores."""
        return False

    @property
    def empty(self) -> bool:
        return not self.counts.any()

    @property
    def constant(self) -> bool:
        return int((self.counts > 0).sum()) == 1

    def encode(self, column: Column) -> tuple[Array, Mask]:
        places = category_indices(column, self.categories)
        if self.empty:
            places = np.full_like(places, -1)
        points = np.zeros_like(self.scores) if self.constant else self.scores
        return place_codes(points[:, None], places)

    def decode(self, values: Array) -> Array:
        if self.empty:
            return np.full(len(values), None, dtype=object)
        low, high = np.flatnonzero(self.counts)[[0, -1]]
        level = np.searchsorted(self._cuts(), values[:, 0])
        return cells_of(self.categories).take(level.clip(low, high))

    def probabilities(self, values: Array, scale: float | Array | None = None) -> Array:
        """The probability of every level: that of a Normal between the middles of scores.

        The scale is the deviation of the errors of values `(rows, 1)`, one or `(rows, 1)`.
        """
        if self.empty:
            return np.zeros((len(values), len(self.categories)))
        low, high = np.flatnonzero(self.counts)[[0, -1]]
        cuts = self._cuts()
        # What lies beyond the observed levels belongs to the outermost of them.
        cuts[:low], cuts[high:] = -np.inf, np.inf
        below = scipy.special.ndtr((cuts - values) / (1.0 if scale is None else scale))
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    def _cuts(self) -> Array:
        return np.asarray((self.scores[1:] + self.scores[:-1]) / 2.0)


def normal_scores(counts: Array) -> Array:
    """Rising scores of ordered levels, of mean 0 and variance 1 over the cells counted.

    Example:
        >>> normal_scores(np.array([5, 5])).round(6)
        array([-1.,  1.])
    """
    raised = counts + 0.5
    shares = raised / raised.sum()
    scores = scipy.special.ndtri(np.cumsum(shares) - shares / 2.0)
    if not counts.any():
        return np.asarray(scores)
    weights = counts / counts.sum()
    centred = scores - weights @ scores
    return np.asarray(centred / (np.sqrt(weights @ centred**2) or 1.0))
