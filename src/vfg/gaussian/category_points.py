"""Discrete columns: every category is a point in the space of the leaves, with a frequency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import Bernoulli, Categorical, Gaussian, LikelihoodSpec

WIDEST = 8
"""The most coordinates of the points of a column, which bounds the width of models."""
SMOOTHING = 0.5
"""Pseudo-rows of every category, which carry no information about other columns."""
FAR = 5.0
"""Standard deviations at which other columns are clipped for category means: limits outliers."""
LOOSENESS = 0.1
"""Standard deviation of the prior of points around their start."""


@dataclass(frozen=True)
class Unit:
    """One discrete column of the table."""

    leaf: str
    column: int
    """Its position in the table."""
    categories: int
    span: range
    """Its coordinates among those of all leaves."""
    learn: bool
    """Whether training moves the points."""

    @property
    def places(self) -> slice:
        """The span to cut tensors with."""
        return slice(self.span.start, self.span.stop)


class CategoryPoints(nn.Module):
    r"""Tables to coordinates of leaves: real columns as they are, categories as learned points.

    A column of C categories has $\min(C - 1, 8)$ coordinates; a Bernoulli column has one, and a
    value between 0 and 1 lies between its two points. Without discrete columns nothing changes.

    Example:
        >>> codes = CategoryPoints({"a": (0,), "c": (1,)}, {"a": Gaussian(), "c": Categorical(3)})
        >>> codes.positions
        {'a': (0,), 'c': (1, 2)}
        >>> wide, _ = codes.encode(torch.tensor([[0.5, 2.0]]), torch.ones(1, 2).bool())
        >>> wide.shape
        torch.Size([1, 3])
    """

    real: Tensor
    """The table columns that are real numbers."""
    real_places: Tensor
    """Their coordinates."""
    coded_places: Tensor
    """The coordinates of all units, one unit after the other."""
    owner: Tensor
    """The table column of every coordinate."""

    def __init__(
        self, positions: Mapping[str, tuple[int, ...]], likelihoods: Mapping[str, LikelihoodSpec]
    ) -> None:
        super().__init__()
        by_column = _by_column(positions, likelihoods)
        widths = [code_width(categories) for _, categories, _ in by_column]
        ends = np.cumsum([0, *widths]).tolist()
        spans = [range(start, stop) for start, stop in pairwise(ends)]
        self.columns, self.width = len(widths), sum(widths)
        self.positions = {
            leaf: tuple(place for column in columns for place in spans[column])
            for leaf, columns in positions.items()
        }
        self.units = tuple(
            Unit(leaf, column, categories, spans[column], learn)
            for column, (leaf, categories, learn) in enumerate(by_column)
            if categories
        )
        self.anchors: list[Tensor] = []
        self.points, self.log_frequencies = nn.ParameterList(), nn.ParameterList()
        for index, unit in enumerate(self.units):
            self.register_buffer(f"doubts{index}", torch.zeros(unit.categories))
            self.points.append(nn.Parameter(spread_points(unit.categories), unit.learn))
            # Not learned: steps on log p move them away from what is true without evidence.
            fixed = nn.Parameter(torch.zeros(unit.categories), requires_grad=False)
            self.log_frequencies.append(fixed)
        real = [column for column, (_, categories, _) in enumerate(by_column) if not categories]
        for name, places in (
            ("real", real),
            ("real_places", [spans[column].start for column in real]),
            ("coded_places", [place for unit in self.units for place in unit.span]),
            ("owner", np.repeat(np.arange(self.columns), widths).tolist()),
        ):
            result = torch.tensor(places, dtype=torch.long)
            self.register_buffer(name, result, persistent=False)

    def encode(self, cells: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Cells and mask `(rows, columns)` as coordinates and mask `(rows, width)`."""
        if not self.units:
            return cells, seen
        wide = cells.new_zeros(len(cells), self.width)
        wide = wide.index_copy(1, self.real_places, cells.index_select(1, self.real))
        parts = [self.point_of(k, cells[:, unit.column]) for k, unit in enumerate(self.units)]
        wide = wide.index_copy(1, self.coded_places, torch.cat(parts, dim=1).to(wide))
        return wide, seen.index_select(1, self.owner)

    def narrow(self, wide: Tensor) -> Tensor:
        """Coordinates `(..., width)` as columns `(..., columns)`, 0 where those are discrete."""
        if not self.units:
            return wide
        cells = wide.new_zeros(*wide.shape[:-1], self.columns)
        return cells.index_copy(-1, self.real, wide.index_select(-1, self.real_places))

    def points_at(self, unit: int) -> Tensor:
        """The points of a unit in float64, `(categories, coordinates)`."""
        result: Tensor = self.points[unit]
        return result.double()

    def log_frequencies_at(self, unit: int) -> Tensor:
        """log π of a unit in float64, `(categories,)`, up to a constant."""
        result: Tensor = self.log_frequencies[unit]
        return result.double()

    def doubts_at(self, unit: int) -> Tensor:
        """How likely each category of a unit may be anywhere, `(categories,)`."""
        return self.get_buffer(f"doubts{unit}").double()

    def point_of(self, unit: int, values: Tensor) -> Tensor:
        """The points of a unit's values `(rows,)`, `(rows, coordinates)`."""
        below, above, share = self._neighbours(unit, values)
        points = self.points_at(unit)
        return points[below] + share[:, None] * (points[above] - points[below])

    def pick(self, unit: int, scores: Tensor, values: Tensor) -> Tensor:
        """The scores `(rows, categories)` of a unit's values `(rows,)`."""
        below, above, share = self._neighbours(unit, values)
        first = scores.gather(1, below[:, None])[:, 0]
        second = scores.gather(1, above[:, None])[:, 0]
        # An impossible neighbour that has no share must not turn the score into NaN.
        return torch.where(share > 0.0, first + share * (second - first), first)

    @torch.no_grad()
    def start(self, cells: Tensor, seen: Tensor, often: Tensor | None = None) -> None:
        """Set frequencies and points from a scaled table, whose rows count so often.

        The coordinates of a column's points are the directions in which the means of the other
        columns differ most between its categories, filled up evenly and whitened over the rows.
        """
        counts = [self._counts(k, cells, seen, often) for k in range(len(self.units))]
        shares = [(result + SMOOTHING) / (result + SMOOTHING).sum() for result in counts]
        for unit, (count, share) in enumerate(zip(counts, shares, strict=True)):
            self.log_frequencies[unit].copy_(share.log())
            self.get_buffer(f"doubts{unit}").copy_(SMOOTHING / (count + SMOOTHING))
            self.points[unit].copy_(canonical_points(share, share.new_zeros(len(share), 0)))
        wide, mask = self.encode(cells.double().clamp(-FAR, FAR), seen)
        wide = torch.where(mask, wide, 0.0)
        for unit, (count, share) in enumerate(zip(counts, shares, strict=True)):
            scores = informative_means(count, *self._others(unit, cells, seen, wide, often))
            # A category that never occurred is no evidence: its point is at the mean.
            self.points[unit].copy_(canonical_points(share, scores) * (count > 0)[:, None])
        self.anchors = [points.detach().clone() for points in self.points]

    def penalty(self) -> Tensor:
        """Minus the log-density of Normals around where the points started, up to a constant."""
        result = torch.zeros((), dtype=torch.float64, device=self.owner.device)
        for points, anchor in zip(self.points, self.anchors, strict=False):
            result = result + (points - anchor.to(points)).double().square().sum()
        return 0.5 * result / LOOSENESS**2

    def _neighbours(self, unit: int, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Categories below and above values, and how far on the way between they lie."""
        below = values.floor().long().clamp(0, self.units[unit].categories - 1)
        above = (below + 1).clamp(max=self.units[unit].categories - 1)
        return below, above, values.double() - below

    def _memberships(
        self, unit: int, cells: Tensor, seen: Tensor, often: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Categories, and how much rows belong to them: `(2 * rows,)`, below and then above."""
        column = self.units[unit].column
        below, above, share = self._neighbours(unit, cells[:, column])
        weights = torch.cat([1.0 - share, share]) * seen[:, column].repeat(2)
        weights = weights if often is None else weights * often.repeat(2)
        return torch.cat([below, above]), weights

    def _counts(self, unit: int, cells: Tensor, seen: Tensor, often: Tensor | None) -> Tensor:
        categories, weights = self._memberships(unit, cells, seen, often)
        empty = weights.new_zeros(self.units[unit].categories)
        return empty.index_add(0, categories, weights)

    def _others(
        self, unit: int, cells: Tensor, seen: Tensor, wide: Tensor, often: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Sums of the other coordinates by category, and their squares over the same rows."""
        categories, weights = self._memberships(unit, cells, seen, often)
        span = self.units[unit].span
        others = torch.cat([wide[:, : span.start], wide[:, span.stop :]], dim=1)
        empty = others.new_zeros(self.units[unit].categories, others.shape[1])
        sums = empty.index_add(0, categories, weights[:, None] * others.repeat(2, 1))
        rows = seen[:, self.units[unit].column]
        here = others[rows]
        return sums, here.mT @ (here if often is None else here * often[rows, None])


def code_width(categories: int) -> int:
    """How many coordinates a column takes; real columns have no categories and take one.

    Example:
        >>> [code_width(categories) for categories in (0, 2, 3, 1000)]
        [1, 1, 2, 8]
    """
    return min(categories - 1, WIDEST) if categories else 1


def spread_points(categories: int) -> Tensor:
    """A regular simplex of mean 0 and unit covariance; random points where that is too wide.

    Example:
        >>> spread_points(2)
        tensor([[-1.],
                [ 1.]], dtype=torch.float64)
    """
    width = code_width(categories)
    if width < categories - 1:
        generator = torch.Generator().manual_seed(categories)
        return torch.randn(categories, width, generator=generator, dtype=torch.float64)
    contrasts = np.zeros((categories, width))
    for k in range(width):
        contrasts[: k + 1, k] = -1.0
        contrasts[k + 1, k] = k + 1.0
    return torch.tensor(contrasts * np.sqrt(categories / (contrasts**2).sum(0)))


def informative_means(counts: Tensor, sums: Tensor, squares: Tensor) -> Tensor:
    r"""Category means `(categories, directions)` where they differ by more than chance.

    A direction counts if its variance between categories is above the largest that categories
    without meaning would show; along it the mean of n rows is shrunk by $n / (n + w / b)$ with
    the variances w within and b between categories. The most informative direction comes first.
    `counts` are rows by category, `sums` of other quantities by category, `squares` sums of their
    products over all rows.

    Example:
        >>> counts, sums = torch.tensor([50.0, 50.0]), torch.tensor([[50.0, 0.1], [-50.0, -0.1]])
        >>> informative_means(counts, sums, torch.eye(2) * 101.0).shape
        torch.Size([2, 1])
    """
    rows, used = counts.sum(), (counts > 0).sum()
    if not bool(rows > used) or not sums.shape[1]:
        return sums[:, :0]
    means = sums / counts.clamp(min=1e-12)[:, None]
    means = (means - sums.sum(0) / rows) * (counts > 0)[:, None]
    _, sizes, directions = torch.linalg.svd((counts / rows).sqrt()[:, None] * means, False)
    total = ((directions @ squares) * directions).sum(-1) / rows
    within = (total - sizes.square()).clamp(min=0.0) * rows / (rows - used)
    by_chance = within * (used.sqrt() + sums.shape[1] ** 0.5).square() / rows
    informative = sizes.square() > by_chance
    between = (sizes.square() - within * used / rows)[informative]
    shrinkage = counts[:, None] / (counts[:, None] + within[informative] / between)
    result: Tensor = (means @ directions[informative].mT) * shrinkage
    return result


def canonical_points(frequencies: Tensor, means: Tensor) -> Tensor:
    r"""Points $e_c$ with $\sum_c f_c e_c = 0$ and $\sum_c f_c e_c e_c^\top = I$.

    Their coordinates are the left singular vectors of the means `(categories, quantities)`,
    weighted by the frequencies f > 0, strongest first, as in a correspondence analysis.

    Example:
        >>> points = canonical_points(torch.full((4,), 0.25), torch.tensor([[1.0], [1], [0], [0]]))
        >>> points[:, 0].abs()
        tensor([1., 1., 1., 1.])
    """
    root = frequencies.sqrt()
    width = code_width(len(frequencies))
    centred = root[:, None] * (means - frequencies @ means)
    directions = torch.linalg.svd(centred, full_matrices=False).U[:, :width]
    fill = spread_points(len(frequencies)).to(root)
    basis: Tensor = torch.linalg.qr(torch.cat([root[:, None], directions, fill], dim=1)).Q
    return basis[:, 1 : width + 1] / root[:, None]


def _by_column(
    positions: Mapping[str, tuple[int, ...]], likelihoods: Mapping[str, LikelihoodSpec]
) -> list[tuple[str, int, bool]]:
    """Leaf, number of categories (0 for real numbers) and whether points are learned."""
    result = [("", 0, False)] * sum(map(len, positions.values()))
    for leaf, columns in positions.items():
        for column in columns:
            result[column] = (leaf, *_kind(leaf, likelihoods[leaf]))
    return result


def _kind(leaf: str, spec: LikelihoodSpec) -> tuple[int, bool]:
    if isinstance(spec, Categorical):
        return spec.categories, spec.learn
    if isinstance(spec, Bernoulli):
        return 2, spec.learn
    if isinstance(spec, Gaussian):
        return 0, False
    raise ValueError(
        f"leaf {leaf!r} is {spec.name!r}, but the leaves of a GaussianVFG are 'gaussian', "
        "'bernoulli' or vfg.Categorical(categories)"
    )
