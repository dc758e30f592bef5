"""The parts of a table's model by kind, and the numbers that combine them; see `stacking`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import concat_leaves
from vfg.imputation.gaussian_processes import GaussianProcesses
from vfg.imputation.missingness import Mechanism
from vfg.imputation.mixtures import LINEAR_SETTINGS, Mixture
from vfg.imputation.relations import Relations
from vfg.imputation.row_mixture import RowMeans, RowMixture
from vfg.imputation.trees import Forest
from vfg.model import VFG
from vfg.training.history import History
from vfg.training.model_stack import repeat_columns

GOLDEN = 0.6180339887498949
"""The golden ratio: multiples of it modulo 1 are evenly spread for any number of draws."""
KINDS = ("members", "mixtures", "linear", "neighbours", "corrected neighbours")
"""The kinds of parts, in the order of the weights."""
CLIP = 6.0
"""Standard deviations at which cells are clipped, so that a few outliers do not decide the fit."""
WIDE = 0.85
"""Deviations from which draws are not sharpened, in those of their column. The deviation of 60
draws of a skewed column is often below 1 by chance: with 1, 90 % intervals of a squared Normal
variable held 77 % where nothing is known, with 0.85 they hold 85 %."""


def drawing_shares(weights: Tensor) -> Tensor:
    """How often members, mixtures, linear model and neighbours draw, from the weights of `KINDS`.

    Example:
        >>> drawing_shares(torch.tensor([0.5, 0.0, 0.0, 0.2, 0.3])).tolist()
        [0.5, 0.0, 0.0, 0.5]
        >>> drawing_shares(torch.zeros(5)).tolist()
        [0.0, 0.0, 1.0, 0.0]
    """
    shares = torch.cat([weights[:3], weights[3:].sum(0, keepdim=True)])
    if float(shares.sum()) < 1e-3:
        # No part predicts better than the means: draw from the linear model, about the means.
        shares = torch.tensor([0.0, 0.0, 1.0, 0.0]).to(weights)
    return shares / shares.sum()


def corrected_share(weights: Tensor) -> float:
    """The share of the row mixtures' correction that is used, from the weights of `KINDS`.

    Example:
        >>> corrected_share(torch.tensor([0.0, 0.0, 0.0, 0.1, 0.3]))
        0.75
    """
    plain, corrected = weights[3:].tolist()
    return float(corrected / (plain + corrected)) if plain + corrected > 0 else 1.0


def allocate_draws(shares: Tensor, counts: Sequence[int], number: int) -> dict[int, list[int]]:
    """Which draws each part makes, by its place among members, mixtures, linear, neighbours.

    `shares` are those of `drawing_shares`, `counts` says how many parts there are. The first draws
    are allocated alike for every number.

    Example:
        >>> allocate_draws(torch.tensor([0.5, 0.0, 0.0, 0.5]), [1, 0, 1, 2], 8)
        {0: [1, 3, 6], 2: [0, 2, 5], 3: [4, 7]}
    """
    by_part = [
        float(share) / count
        for share, count in zip(shares, counts, strict=True)
        for _ in range(count)
    ]
    ends = np.cumsum(by_part)
    levels = (0.5 + np.arange(number) * GOLDEN) % 1.0 * ends[-1]
    who = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
    return {int(part): np.flatnonzero(who == part).tolist() for part in np.unique(who)}


@dataclass(frozen=True)
class MeanWeights:
    """How the means of parts are combined."""

    weights: Tensor  # of the parts, in the order of KINDS
    factors: Tensor  # that shrink the sum to the mean, per column
    departures: Tensor | None = None  # the furthest from the linear model, (kinds, columns)
    targeted: Tensor | None = None  # weights of means by the metrics of columns, per column


@dataclass(frozen=True)
class DrawWidths:
    """Which parts draw, and how wide their draws are."""

    spread: Tensor  # factors that scale draws about their mean, per column
    drawing: Tensor | None = None  # how often parts draw, where it does not follow from weights
    sharpness: Tensor | None = None  # that makes draws narrower, per column; see `sharpen`
    widths: Tensor | None = None  # of draws by column, (2, columns); see `calibration`
    tree_widths: Tensor | None = None  # of draws by what trees find, (2, columns)


@dataclass(frozen=True)
class FarRows:
    """How far rows are from the fitted ones, and the linear model there; see `extrapolation`."""

    trust: Tensor | None = None  # in the ensemble for rows unlike the fitted ones, per column
    usual_distance: Tensor | None = None  # of rows like the fitted ones
    held_levels: Tensor | None = None  # shares of levels held outside of ranges, per column
    linear_errors: Tensor | None = None  # mean squares of the linear model's, per column


@dataclass(frozen=True)
class Stacking:
    """The numbers that combine the parts of a model."""

    means: MeanWeights
    draws: DrawWidths
    reach: Tensor  # the observed range of every column, (2, columns)
    far: FarRows = FarRows()
    pooling: Tensor | None = None  # of probabilities and votes, (columns of categories, 2)
    useful: Tensor | None = None  # which relations predict held-out cells better than the parts
    error: float | None = None  # root mean squared error at held-out cells, in deviations

    @property
    def buffers(self) -> dict[str, Any]:
        """The numbers that a model keeps, by the names that they have in its files."""
        own = {"reach": self.reach, "pooling": self.pooling}
        return vars(self.means) | vars(self.draws) | vars(self.far) | own

    def with_buffers(self, buffers: Mapping[str, Tensor]) -> Stacking:
        """A copy with other numbers, by their names in `buffers`."""
        changed = self.buffers | dict(buffers)

        def of(kind: type) -> dict[str, Any]:
            return {one.name: changed[one.name] for one in fields(kind)}

        return replace(
            self,
            means=MeanWeights(**of(MeanWeights)),
            draws=DrawWidths(**of(DrawWidths)),
            far=FarRows(**of(FarRows)),
            reach=changed["reach"],
            pooling=changed["pooling"],
        )

    @property
    def shares(self) -> Tensor:
        """How often members, mixtures, linear model and neighbours draw."""
        drawing = self.draws.drawing
        return drawing_shares(self.means.weights) if drawing is None else drawing

    def predict(self, held_out: HeldOutCells) -> Tensor:
        """Stacked means of the parts that did not see the held-out cells."""
        stacked = torch.einsum("k,krc->rc", self.means.weights, held_out.single)
        means, targeted = self.means.factors * clip(stacked), self.means.targeted
        if targeted is None or held_out.targeted is None:
            return means
        return means + targeted * (held_out.targeted - means)

    @classmethod
    def of_members(cls, columns: int) -> Stacking:
        """The plain mean of the members."""
        ones = torch.ones(columns, dtype=torch.float64)
        weights = torch.zeros(len(KINDS), dtype=torch.float64)
        weights[0] = 1.0
        ends = torch.stack([-torch.inf * ones, torch.inf * ones])
        return cls(MeanWeights(weights, ones), DrawWidths(ones), ends)


@dataclass
class Parts:
    """The parts of a table's model."""

    members: list[VFG] = field(default_factory=list)
    linears: list[GaussianVFG] | None = None  # from which the members started
    mixtures: list[Mixture] = field(default_factory=list)  # the first hold out members' cells
    neighbours: list[RowMixture] = field(default_factory=list)
    stack: VFG | None = None  # the members as one model, if there is one already
    linear: GaussianVFG | None = None  # None without informative columns
    shrinkage: float = LINEAR_SETTINGS.shrinkage  # pseudo-rows of the linear models
    combination: Stacking | None = None  # None takes the mean of the members
    history: History | None = None
    relations: Relations | None = None
    following: Tensor | None = None  # of the linear model at the ends of ranges, (2, columns)
    slope_errors: Tensor | None = None  # how uncertain that is, (2, columns)
    mechanism: Mechanism = field(default_factory=Mechanism)
    forest: Forest | None = None
    processes: GaussianProcesses | None = None
    held_out: Sequence[HeldOutCells] = ()  # what the combination was fitted to
    exact_at_held: dict[tuple[int, ...], ExactAtHeldOut] = field(default_factory=dict)
    """What mixtures, linear models and row mixtures predict there, by place and number of rows:
    it is the same whenever members are weighed."""
    set_thresholds: Tensor | None = None  # of probabilities, (columns of categories, levels)
    medians: Tensor | None = None  # of cells by column, see `medians.fit_medians`
    with_values: tuple[int, ...] = ()  # few-valued columns that are filled with their values
    left_out: tuple[str, ...] = ()  # parts that a budget had no time for

    @property
    def present(self) -> Tensor:
        """Which of the `KINDS` there are."""
        neighbours = bool(self.neighbours)
        return torch.tensor(
            [
                bool(self.members),
                bool(self.mixtures),
                self.linears is not None,
                neighbours,
                neighbours,
            ]
        )


@dataclass
class HeldOutCells:
    """Rows with held-out cells of one member."""

    place: int
    ids: Tensor
    values: Tensor
    shown: Tensor
    counted: Tensor  # the weights of rows, 1 without them, at the held-out cells, else 0
    single: Tensor  # predictions of parts that did not see these cells, (kinds, rows, columns)
    at_missing: Tensor
    """Sums of products, like `Sums.pp`, at missing cells of the table, which no part saw: of
    `single`, and of the averages of all parts of a kind, `(2, kinds, kinds)`."""
    row_mixture: RowMixture | None  # whose linear model did not see these cells
    votes: Tensor | None = None  # its votes for categories, (rows, all categories)
    distances: Tensor | None = None  # of the rows from similar ones, (rows, 1)
    targeted: Tensor | None = None  # means of held-out cells by metrics, (rows, columns)

    def select(self, rows: Tensor) -> HeldOutCells:
        """Some of the rows, for what they predict."""
        own = {name: getattr(self, name)[rows] for name in ("ids", "values", "shown", "counted")}
        own["targeted"] = None if self.targeted is None else self.targeted[rows]
        return replace(self, **own, single=self.single[:, rows], votes=None, distances=None)


def member_means(
    model: VFG, members: int, values: Tensor, observed: Tensor, row_ids: Tensor | None = None
) -> Tensor:
    """Means of every member for every entry of a matrix, `(members, rows, columns)`."""
    answer = model.infer(
        repeat_columns(values, members), observed=repeat_columns(observed, members), row_ids=row_ids
    )
    return concat_leaves(answer.mean).view(len(values), members, -1).transpose(0, 1)


@dataclass(frozen=True)
class ExactAtHeldOut:
    """What the parts other than members predict for rows with held-out cells."""

    mixtures: Tensor | None  # (mixtures, rows, columns)
    linear: Tensor | None  # (1, rows, columns)
    neighbours: list[RowMeans]  # by every row mixture
    row_mixture: RowMixture | None  # one without the cells, and what it predicts
    alone: RowMeans | None
    targeted: Tensor | None  # the same of the held-out cells by metrics, (rows, columns)


def clip(values: Tensor) -> Tensor:
    """Values no further than `CLIP` deviations from the mean."""
    return values.clamp(-CLIP, CLIP)


def sharpen(deviations: Tensor, sharpness: Tensor) -> Tensor:
    r"""Factors of draws with some deviations, in those of their columns.

    The parts of an ensemble smooth over similar rows, which makes draws too wide where much of a
    row is known, and not where nothing is. So the factor of the deviation d is
    $f + (1 - f) \min(d / 0.85, 1)$ for the sharpness f.

    Example:
        >>> sharpen(torch.tensor([0.17, 0.51, 0.85, 2.0]), torch.tensor(0.4))
        tensor([0.5200, 0.7600, 1.0000, 1.0000])
    """
    share = (deviations / WIDE).clamp(max=1.0)
    return torch.lerp(share, torch.ones_like(share), sharpness)
