"""The ensemble of a table's models: joint means and joint draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor, nn

from vfg.gaussian.conditional_means import MeanFunction, concat_leaves, mean_function
from vfg.imputation.calibration import noise_factors, width_factors
from vfg.imputation.extrapolation import (
    FAR,
    FARTHER,
    OVERSHOOT,
    beyond_range,
    even_levels,
    far_variances,
    follow_line,
    hold_level,
    linear_share,
    share_outside,
    slope_deviations,
)
from vfg.imputation.gaussian_processes import GaussianProcesses
from vfg.imputation.limits import (
    cut_at_limits,
    cut_normal_draws,
    lift_passed,
    squeeze_into_limits,
)
from vfg.imputation.mixtures import Mixture, map_in_threads
from vfg.imputation.parts import (
    KINDS,
    Parts,
    Stacking,
    allocate_draws,
    corrected_share,
    drawing_shares,
    member_means,
    sharpen,
)
from vfg.imputation.relations import (
    EXACT,
    Relations,
    deviations_given,
    fill_determined,
    follow_relations,
)
from vfg.imputation.row_mixture import RowMeans, RowMixture
from vfg.imputation.trees import Forest
from vfg.inference.calibration import noise_scale
from vfg.inference.draws import Tile, decode, internal_normals
from vfg.inference.evidence import as_given
from vfg.inference.propagation import Belief, evaluating
from vfg.inference.queries import compute_belief
from vfg.model import VFG
from vfg.tables.cells import Array
from vfg.training.model_stack import repeat_columns, stack_models
from vfg.utils.cached import CachedModule
from vfg.utils.linalg import mean_in_order
from vfg.utils.random import normal

DRAWS = 60
"""Draws that the ends of intervals are computed from, by every method: ends of a 90 %
interval are then the third draws from either side. Time grows in proportion to their number."""
DRAWING_SEEDS = 1009
"""Stride of the seeds of draws, above the number of parts, so that parts have different seeds."""
DEVIATION_DRAWS = 60
"""Draws from which the deviation of an entry is estimated, on which the width of draws depends."""

OPTIONAL = (
    "pooling", "departures", "drawing", "sharpness", "trust", "usual_distance", "widths",
    "linear_errors", "tree_widths", "targeted", "held_levels",
)  # fmt: skip
"""Numbers of a stacking that files of earlier versions lack."""
VOTES = "votes"
"""The votes of similar rows for categories, beside the means by kind."""
BEYOND, DISTANCES = "beyond", "distances"
"""The linear model's means beyond the observed range, and how far rows lie from similar ones."""
INSIDE, NEAR = "inside", "near"
"""The line that is followed with the known cells moved into their observed ranges, and how far rows
lie from similar ones then; missing where all cells lie within."""
TARGETED = "targeted"
"""The means of row mixtures by the metrics of columns."""
FREE = "free "
"""Prefix of kinds whose means are not clipped; draws are centred at these means."""


@dataclass(frozen=True)
class Prediction:
    """What an ensemble predicts."""

    means: Tensor  # of every entry, (rows, columns)
    votes: Tensor | None = None  # shares of categories among similar rows, (rows, all categories)
    trees: Tensor | None = None  # the same among trees
    trust: Tensor | None = None  # in trees, (rows, 1)
    regressions: Tensor | None = None  # probabilities of categories, (rows, all categories)
    noise: Tensor | None = None  # factors of the width of draws, (rows, columns)

    def select(self, rows: Any) -> Prediction:
        """Some of the rows."""
        return self._each(lambda part: part[rows])

    def cpu(self) -> Prediction:
        """The same on the CPU."""
        return self._each(lambda part: part.cpu())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Prediction:
        changed: dict[str, Any] = {k: x if x is None else change(x) for k, x in vars(self).items()}
        return Prediction(**changed)

    @classmethod
    def concat(cls, parts: Sequence[Prediction]) -> Prediction:
        """The rows of all parts."""
        joined: dict[str, Any] = {
            name: x if x is None else torch.cat([getattr(part, name) for part in parts])
            for name, x in vars(parts[0]).items()
        }
        return cls(**joined)


def quantiles_of_draws(draws: Array, levels: Sequence[float]) -> Array:
    """Quantiles along the first axis; beyond the draws with the tails of a Normal.

    Example:
        >>> draws = np.linspace(-1.0, 1.0, 99)
        >>> quantiles_of_draws(draws, [0.5, 0.99, 0.999]).round(2).tolist()
        [0.0, 1.0, 1.33]
    """
    outermost = 1.0 / (len(draws) + 1.0)
    inner = np.clip(levels, outermost, 1.0 - outermost)
    ends = np.quantile(draws, inner, axis=0, method="weibull")
    beyond = [place for place, level in enumerate(levels) if level != inner[place]]
    if beyond:
        middle = np.median(draws, axis=0)
        for place in beyond:
            wanted, reached = scipy.special.ndtri([levels[place], inner[place]])
            # Of a single draw nothing lies beyond its middle.
            ends[place] = middle + wanted / (reached or 1.0) * (ends[place] - middle)
    return np.asarray(ends)


class Shared(NamedTuple):
    """What parts have computed for means and draws, by their places in `draws_by_part`."""

    shares: dict[int, Array | None]  # of the components of mixtures
    means: dict[int, RowMeans]  # of row mixtures
    draws: dict[int, Tensor]  # of these


class Ensemble(CachedModule):
    """Members, mixtures, a linear model and row mixtures that answer together.

    Matrices are encoded, have the columns that the models know, and are where the models are. They
    may have any finite numbers where nothing is observed.
    """

    cached: ClassVar[tuple[str, ...]] = ("stack", "linear_means")
    factors: Tensor
    spread: Tensor
    reach: Tensor
    relations: Tensor | None
    relation_noise: Tensor | None
    departures: Tensor | None
    following: Tensor | None
    slope_errors: Tensor | None
    trust: Tensor | None
    usual_distance: Tensor | None
    held_levels: Tensor | None
    pooling: Tensor | None
    slopes: Tensor | None
    selection: Tensor | None
    drawing: Tensor | None
    set_thresholds: Tensor | None
    median_weights: Tensor | None
    sharpness: Tensor | None
    widths: Tensor | None
    tree_widths: Tensor | None
    linear_errors: Tensor | None
    targeted: Tensor | None

    def __init__(self, columns: int = 0, parts: Parts | None = None) -> None:
        super().__init__()
        self.set_parts(columns, parts or Parts())

    def set_parts(self, columns: int, parts: Parts) -> None:
        """Replace the parts and their stacking."""
        self.forget()
        self.linear = parts.linear
        self.members = nn.ModuleList(parts.members)
        self.mixtures = nn.ModuleList(parts.mixtures)
        self.neighbours = nn.ModuleList(parts.neighbours)
        self.forest: Forest | None = parts.forest
        self.processes: GaussianProcesses | None = parts.processes
        # A parameter, so that there is one even where no column is informative.
        self.weights = nn.Parameter(
            torch.zeros(len(KINDS), dtype=torch.float64), requires_grad=False
        )
        for name in ("factors", "spread"):
            self.register_buffer(name, torch.ones(columns, dtype=torch.float64))
        self.register_buffer("reach", torch.zeros(2, columns, dtype=torch.float64))
        # None is no part of the state, so that files of earlier versions are complete.
        known = parts.relations if parts.relations is not None and len(parts.relations) else None
        self.register_buffer("relations", None if known is None else known.coefficients)
        self.register_buffer("relation_noise", None if known is None else known.noise)
        buffers = (parts.combination or Stacking.of_members(columns)).buffers
        for name in ("weights", "factors", "spread", "reach"):
            getattr(self, name).copy_(buffers[name])
        for name in OPTIONAL:
            self.register_buffer(name, buffers[name])
        self.register_buffer("following", parts.following)
        self.register_buffer("slope_errors", parts.slope_errors)
        self.register_buffer("slopes", parts.mechanism.slopes)
        self.register_buffer("selection", parts.mechanism.selection)
        self.register_buffer("set_thresholds", parts.set_thresholds)
        self.register_buffer("median_weights", parts.medians)
        if parts.stack is not None:
            self.__dict__["stack"] = parts.stack

    @property
    def member_models(self) -> list[VFG]:
        """The members."""
        return [member for member in self.members if isinstance(member, VFG)]

    @property
    def mixture_models(self) -> list[Mixture]:
        """The mixtures."""
        return [mixture for mixture in self.mixtures if isinstance(mixture, Mixture)]

    @property
    def row_mixture_models(self) -> list[RowMixture]:
        """The mixtures with a component at every row."""
        return [one for one in self.neighbours if isinstance(one, RowMixture)]

    @property
    def is_stacked(self) -> bool:
        """Whether there are parts besides the linear model."""
        return bool(len(self.members) or len(self.mixtures) or len(self.neighbours))

    @property
    def shares(self) -> Tensor:
        """How often members, mixtures, linear model and neighbours draw."""
        return drawing_shares(self.weights) if self.drawing is None else self.drawing

    @cached_property
    def stack(self) -> VFG:
        """The members as one model."""
        return stack_models(self.member_models).eval()

    def joint_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Prediction:
        """Stacked means of every entry, and votes; observed entries are unchanged."""
        if not self.is_stacked:
            expected = self._linear_means(values, observed, ids)
        else:
            expected = self._means_by_kind(values, observed, ids)
        return self.predict(values, observed, expected)

    def predict(
        self, values: Tensor, observed: Tensor, expected: Mapping[str, Tensor]
    ) -> Prediction:
        """Stacked means and votes from the means by kind; of the linear model if it is alone."""
        stacked = Prediction(self.stacked(values, observed, expected), expected.get(VOTES))
        prediction = self.with_processes(self.with_trees(stacked, observed), observed)
        means = self.towards_linear(prediction.means, expected)
        means = self.with_relations(torch.where(observed, values, means), values, observed)
        return replace(prediction, means=means)

    def stacked(self, values: Tensor, observed: Tensor, expected: Mapping[str, Tensor]) -> Tensor:
        """Stacked means from the means by kind, without trees; observed entries are unchanged."""
        means = self.stacked_means(expected) if self.is_stacked else expected["linear"]
        return torch.where(observed, values, self.within_range(means))

    def towards_linear(self, means: Tensor, expected: Mapping[str, Tensor]) -> Tensor:
        """Means moved to those of the linear model, the further rows lie from the fitted ones."""
        if self.following is None:
            return means  # a file of an earlier version, or cells that are missing by their value
        if self.trust is None or self.usual_distance is None or DISTANCES not in expected:
            return self.within_widest_range(means + expected[BEYOND])
        target = expected["linear"] + expected[BEYOND]
        if self.held_levels is not None:  # else a file of an earlier version
            followed = self.weights[KINDS.index("linear")] * self.factors * expected[BEYOND]
            means = self.within_widest_range(means + followed)
        if self.held_levels is not None and INSIDE in expected:
            outside = share_outside(expected[NEAR], expected[DISTANCES], self.usual_distance)
            target = target + hold_level(means, expected[INSIDE], outside, self.held_levels)
        linear = self.within_widest_range(target)
        share = linear_share(expected[DISTANCES], self.usual_distance, self.trust)
        return means + share * (linear - means)

    def with_trees(self, stacked: Prediction, observed: Tensor) -> Prediction:
        """The second stage: means moved towards those of trees."""
        means = stacked.means
        if self.forest is None:
            return stacked
        spread, trust = self.tree_widths is not None, self.forest.trust(observed)
        votes, noise = self.forest.votes(means, ~observed, spread=spread), None
        if self.tree_widths is not None and votes.deviations is not None:
            noise = noise_factors(votes.deviations, trust, self.tree_widths)
        weights = (self.forest.weights * trust).clamp(max=1.0)
        moved = torch.where(observed, means, means + weights * self.forest.step(votes, means))
        return Prediction(moved, stacked.votes, votes.shares, trust, votes.regressions, noise)

    def with_processes(self, prediction: Prediction, observed: Tensor) -> Prediction:
        """Means moved towards those of Gaussian process regressions, within the observed range."""
        if self.processes is None:
            return prediction
        moved = self.processes.move(prediction.means, observed).clamp(*self.reach)
        return replace(prediction, means=torch.where(observed, prediction.means, moved))

    def follow_means(
        self,
        draws: Tensor,
        values: Tensor,
        observed: Tensor,
        expected: Mapping[str, Tensor],
        means: Tensor,
    ) -> Tensor:
        """Draws `(number, rows, columns)` about stacked means, moved as the predicted means are."""
        stacked = self.stacked(values, observed, expected)
        moved = torch.where(observed, values, self.towards_linear(stacked, expected))
        draws = draws + (moved - stacked)
        draws = self.draws_with_trees(draws, moved, means, observed)
        return self.draws_far_out(draws, expected)

    def draws_far_out(self, draws: Tensor, expected: Mapping[str, Tensor]) -> Tensor:
        """Draws, wider in rows unlike the fitted ones, where they reach to the linear model.

        As they are in models of earlier versions.
        """
        variances, cut = self._far_variances(expected), self._beyond_fills(expected)
        far = ((variances > 0.0) | (cut != 0.0)).any(1)
        if not bool(far.any()):
            return draws
        levels = even_levels(len(draws), draws.shape[-1]).to(draws)
        steps = variances[far].sqrt() * torch.special.ndtri(levels.clamp(1e-3, 1.0 - 1e-3))
        if self.slope_errors is not None:
            steps = torch.where(cut[far] < 0.0, -steps, steps)  # so that both go the same way
        moved = draws.clone()
        moved[:, far] += steps + OVERSHOOT * levels * cut[far]
        return moved

    def _far_variances(self, expected: Mapping[str, Tensor]) -> Tensor:
        """The variances that draws gain in rows unlike the fitted ones, `(rows, columns)`."""
        distances, usual, errors = expected.get(DISTANCES), self.usual_distance, self.linear_errors
        variances = torch.zeros_like(next(iter(expected.values())))
        unlike = variances + 1.0  # how much a row is unlike the fitted ones
        if distances is not None and usual is not None and errors is not None:
            farther = math.inf if self.slope_errors is None else FARTHER
            variances = far_variances(distances, usual, errors, farther)
            unlike = linear_share(distances, usual, torch.full_like(errors, FAR))
        if self.slope_errors is None:
            return variances
        beyond = expected[FREE + "linear"] - expected["linear"]
        return variances + (unlike * slope_deviations(beyond, self.slope_errors)).square()

    def _beyond_fills(self, expected: Mapping[str, Tensor]) -> Tensor:
        """How far linear predictions lie beyond what is filled, as far as they count."""
        nothing = torch.zeros_like(next(iter(expected.values())))
        distances, usual = expected.get(DISTANCES), self.usual_distance
        near = distances is None or usual is None or self.trust is None
        if self.following is None or (near and self.slope_errors is None):
            return nothing
        linear = expected["linear"] + expected[BEYOND]
        cut = linear - self.within_widest_range(linear)
        if distances is None or usual is None or self.trust is None:
            return cut
        return linear_share(distances, usual, self.trust) * cut

    def draws_with_trees(
        self, draws: Tensor, stacked: Tensor, means: Tensor, observed: Tensor
    ) -> Tensor:
        """Draws `(number, rows, columns)` about stacked means, moved to those of the second stage.

        They are narrower where trees predict better.
        """
        moved, scale = torch.zeros_like(observed), torch.ones_like(means)
        if self.processes is not None:
            moved = ~observed & (self.processes.weights > 0.0)
        if self.forest is not None:
            moved = moved | (~observed & (self.forest.weights > 0.0))
            scale = 1.0 - self.forest.trust(observed) * (1.0 - self.forest.spread)
            if self.widths is not None:
                scale = torch.where(self.widths[0].isnan(), scale, 1.0)  # those count trees
        if self.forest is None and self.processes is None:
            return draws
        return torch.where(moved, means + scale * (draws - stacked), draws)

    def within_range(self, means: Tensor) -> Tensor:
        """Means within the usual range of their columns; all of them where there is none."""
        return means

    def within_widest_range(self, means: Tensor) -> Tensor:
        """The same for rows unlike the fitted ones."""
        return means

    @property
    def noisy_relations(self) -> Relations | None:
        """All relations with their noise; None in files of earlier versions, which lack it."""
        if self.relations is None or self.relation_noise is None:
            return None
        return Relations(self.relations, self.relation_noise)

    def with_relations(
        self, table: Tensor, values: Tensor, observed: Tensor, levels: Tensor | None = None
    ) -> Tensor:
        """Entries `(..., rows, columns)` moved to the relations that the columns have.

        Those that follow from the evidence by exact relations are exact. `levels` are those of the
        noise of relations, as of `follow_relations`.
        """
        if self.relations is None:
            return table
        if self.noisy_relations is not None:
            relations = self.noisy_relations.to(values.device)
            table = follow_relations(relations, table, observed, levels)
        exact, determined = self._determined(values, observed)
        return torch.where(determined, exact, table)

    def _determined(self, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Entries that follow by exact relations, and which do."""
        assert self.relations is not None
        noise = self.relation_noise
        exact = self.relations if noise is None else self.relations[noise == 0.0]
        return fill_determined(exact.to(values.device), values, observed)

    def relation_levels(self, number: int, ids: Tensor, seed: int) -> Tensor | None:
        """Draws of the noise of relations in deviations, `(number, rows, relations)`."""
        if self.relation_noise is None:
            return None
        own, every = (seed + 1) * DRAWING_SEEDS - 1, torch.arange(len(self.relation_noise))
        return normal(own, ids, torch.arange(number), 0, every)

    def deviations_with_relations(self, deviations: Tensor, observed: Tensor) -> Tensor:
        """Deviations `(rows, columns)` that are smaller where relations hold."""
        if self.noisy_relations is None:
            return deviations
        relations = self.noisy_relations.to(deviations.device)
        return deviations_given(relations, deviations, observed)

    def quantiles_with_relations(
        self, ends: Tensor, levels: Sequence[float], values: Tensor, observed: Tensor
    ) -> Tensor:
        """Quantiles that are apart by rounding errors where entries follow from the evidence."""
        if self.relations is None:
            return ends
        exact, determined = self._determined(values, observed)
        sides = torch.tensor(levels, dtype=torch.float64).sub(0.5).sign()[:, None, None]
        return torch.where(determined, exact + EXACT * sides, ends)

    def joint_draws(
        self, values: Tensor, observed: Tensor, ids: Tensor, number: int, seed: int
    ) -> tuple[Tensor, Prediction]:
        """Joint draws of entries that are not observed, `(number, rows, columns)`, and means."""
        assert self.linear is not None
        if not self.is_stacked:
            answer = self.linear.infer(values, observed=observed, seed=seed, row_ids=ids)
            draws = concat_leaves(answer.samples(number))
            moments = concat_leaves(answer.mean), concat_leaves(answer.std)
            limits = lift_passed(self.attained_limits.to(draws.device), moments[0])
            draws = torch.where(observed, values, cut_normal_draws(draws, limits, *moments))
            noise = self.relation_levels(number, ids, seed)
            draws = self.with_relations(draws, values, observed, noise)
            prediction = self.joint_means(values, observed, ids)
            return self.within_limits(draws, prediction.means), prediction
        made = self.draws_made(number)
        by_part = self.draws_by_part(made)
        shared = self._shared(values, observed, ids, {k: len(x) for k, x in by_part.items()}, seed)
        expected = self._means_by_kind(values, observed, ids, drawing=True, shared=shared)
        draws = values.new_empty(made, *values.shape, dtype=torch.float64)
        for part, own in by_part.items():
            drawn = shared.draws.get(part)
            draws[own] = drawn if drawn is not None else self.part_draws(
                part, values, observed, ids, len(own), seed, shares=shared.shares.get(part)
            )  # fmt: skip
        prediction = self.predict(values, observed, expected)
        draws = self.finish_draws(draws, values, observed, expected, prediction)[:number]
        noise = self.relation_levels(number, ids, seed)
        draws = self.with_relations(draws, values, observed, noise)
        return self.within_limits(draws, prediction.means), prediction

    def finish_draws(
        self,
        drawn: Tensor,
        values: Tensor,
        observed: Tensor,
        expected: Mapping[str, Tensor],
        prediction: Prediction,
    ) -> Tensor:
        """Draws of parts, moved to what the ensemble predicts and kept within limits."""
        draws = torch.where(observed, values, self.recentre(drawn, expected, prediction.noise))
        draws = self.follow_means(draws, values, observed, expected, prediction.means)
        return torch.where(observed, values, self.draws_within_limits(draws, prediction.means))

    def draws_within_limits(self, draws: Tensor, means: Tensor) -> Tensor:
        """Draws of cells within the limits of their columns, unless their means are beyond.

        They are squeezed into open limits and cut at the others. Files of earlier versions cut.
        """
        if self.sharpness is None:
            return draws
        draws = draws.clone()  # only few columns of most tables have limits
        some, limits = _limited_columns(self.open_limits, means)
        if len(some):
            draws[..., some] = squeeze_into_limits(draws[..., some], limits, self.reach[:, some])
        some, limits = _limited_columns(self.attained_limits, means)
        if len(some):
            own = draws[..., some]
            draws[..., some] = cut_at_limits(own, limits, own[:DEVIATION_DRAWS])
        return draws

    def within_limits(self, draws: Tensor, means: Tensor) -> Tensor:
        """Draws of cells within all limits that cells with some means have."""
        return draws

    @property
    def open_limits(self) -> Tensor:
        """The least and the greatest value that no cell attains, infinite for none."""
        ends = torch.full_like(self.reach, torch.inf)
        ends[0] = -torch.inf
        return ends

    @property
    def attained_limits(self) -> Tensor:
        """The same of limits that cells attain."""
        return self.open_limits

    def used_kinds(self, *, drawing: bool = False) -> set[str]:
        """The kinds of parts with positive weight in answers, or in draws."""
        kinds = {kind for kind, weight in zip(KINDS, self.weights, strict=True) if weight > 0}
        if not kinds.isdisjoint(KINDS[3:]) or self.pooling is not None:
            kinds.update(KINDS[3:])  # one call computes both, and votes
        follows = self.departures is not None or self.following is not None
        if follows or (drawing and self.shares[2] > 0):
            kinds.add("linear")
        if drawing:
            kinds.update(kind for kind, share in zip(KINDS, self.shares, strict=False) if share > 0)
            kinds.update(KINDS[3:] if self.shares[3] > 0 else ())
        return kinds

    def stacked_means(self, expected: Mapping[str, Tensor]) -> Tensor:
        """Stacked means of every entry from the means by kind, limited in their departures."""
        total = torch.zeros_like(next(iter(expected.values()), self.factors))
        for place, kind in enumerate(KINDS):
            if kind in expected:
                means = expected[kind]
                if self.departures is not None and kind != "linear":
                    limit, linear = self.departures[place], expected["linear"]
                    means = linear + (means - linear).clamp(-limit, limit)
                total = total + self.weights[place] * means
        means = self.factors * total
        if self.targeted is None or TARGETED not in expected:
            return means
        return means + self.targeted * (expected[TARGETED] - means)

    def average(self, tables: Sequence[Tensor]) -> Tensor:
        """The mean of tables, each clipped to the observed range of the columns."""
        return mean_in_order([table.clamp(*self.reach) for table in tables])

    def neighbour_means(
        self, values: Tensor, observed: Tensor, ids: Tensor, known: Mapping[int, RowMeans]
    ) -> RowMeans:
        """The average means of the row mixtures, of which some may be known, by their places."""
        each = [
            known[place] if place in known else one.means(values, observed, ids)
            for place, one in enumerate(self.row_mixture_models, self._first_row_mixture)
        ]
        plain, corrected, votes, distances = zip(*each, strict=True)
        means, number = (self.average(plain), self.average(corrected)), len(votes)
        return RowMeans(*means, sum(votes) / number, sum(distances) / number)

    @cached_property
    def linear_means(self) -> MeanFunction:
        """Computes the means of the linear model."""
        assert self.linear is not None
        return mean_function(self.linear)

    def has_partial_sections(self, observed: Tensor) -> Tensor:
        """Which rows have a section that is observed in part, `(rows,)`."""
        assert self.linear is not None
        widths = list(self.linear.graph.sections.values())
        parts = [part.any(1) & ~part.all(1) for part in observed.split(widths, 1)]
        return torch.stack(parts).any(0)

    def recentre(
        self, drawn: Tensor, expected: Mapping[str, Tensor], noise: Tensor | None = None
    ) -> Tensor:
        """Move draws `(number, rows, columns)` of parts to the stacked means and scale them.

        `noise` are further factors, `(rows, columns)`.
        """
        shares, used = self.shares, corrected_share(self.weights)
        pooled = torch.zeros_like(drawn[0])
        for kind, share in zip(KINDS[:3], shares, strict=False):
            if share > 0:
                pooled = pooled + share * expected.get(FREE + kind, expected[kind])
        if shares[3] > 0:
            plain, corrected = (expected[kind] for kind in KINDS[3:])
            pooled = pooled + shares[3] * (plain + used * (corrected - plain))
        apart = drawn - pooled
        if self.sharpness is not None:
            deviations = mean_in_order(apart[:DEVIATION_DRAWS].square()).sqrt()
            factors = self._factors_of_draws(deviations)
            apart = apart * (factors if noise is None else factors * noise)
        else:
            apart = self.spread * apart
        return self.stacked_means(expected) + apart

    def _factors_of_draws(self, deviations: Tensor) -> Tensor:
        """What draws are multiplied by, from the deviations of those of the parts."""
        assert self.sharpness is not None
        plain = self.spread * sharpen(deviations, self.sharpness)
        if self.widths is None:
            return plain
        factors = width_factors(deviations, self.widths)
        return torch.where(self.widths[0].isnan(), plain, factors)

    def draws_made(self, number: int) -> int:
        """How many draws parts make for a number of draws: enough to know how wide they are."""
        return number if self.sharpness is None else max(number, DEVIATION_DRAWS)

    def draws_by_part(self, number: int) -> dict[int, list[int]]:
        """Which draws each part makes, by its place among members, mixtures, linear, neighbours."""
        counts = (len(self.members), len(self.mixtures), 1, len(self.neighbours))
        return allocate_draws(self.shares, counts, number)

    def part_draws(
        self,
        part: int,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        number: int,
        seed: int,
        *,
        padded: bool = True,
        shares: Array | None = None,
    ) -> Tensor:
        """Draws of the part at a place of `draws_by_part`; arguments as of `joint_draws`.

        `shares` are those of the components of a mixture, if they are known.
        """
        parts = (*self.member_models, *self.mixture_models, self.linear, *self.row_mixture_models)
        model, own = parts[part], seed * DRAWING_SEEDS + part
        assert model is not None
        if isinstance(model, RowMixture):
            share = corrected_share(self.weights)
            return model.samples(values, observed, number, seed=own, ids=ids, corrected=share)
        if isinstance(model, Mixture):
            direct = self.drawing is not None  # draws of older files stay as they were
            rows = values, observed, number
            return model.samples(
                *rows, seed=own, ids=ids, padded=padded, direct=direct, shares=shares
            )
        answer = model.infer(values, observed=observed, seed=own, row_ids=ids, padded=padded)
        return concat_leaves(answer.samples(number))

    # Private.

    @property
    def _first_row_mixture(self) -> int:
        """Its place among those of `draws_by_part`."""
        return len(self.members) + len(self.mixtures) + 1

    def _shared(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        numbers: Mapping[int, int],
        seed: int,
    ) -> Shared:
        """What means and draws have in common, for parts that make some numbers of draws."""
        first, rows, direct = len(self.members), (values, observed, ids), self.drawing is not None
        drawing = [k for k, _ in enumerate(self.mixtures, first) if k in numbers and direct]
        found = map_in_threads(lambda k: self.mixture_models[k - first].shares(*rows), drawing)
        means, draws = dict[int, RowMeans](), dict[int, Tensor]()
        for place, one in enumerate(self.row_mixture_models, self._first_row_mixture):
            if place in numbers:
                own, share = seed * DRAWING_SEEDS + place, corrected_share(self.weights)
                means[place], draws[place] = one.means_and_samples(
                    values, observed, numbers[place], seed=own, ids=ids, corrected=share
                )
        return Shared(dict(zip(drawing, found, strict=True)), means, draws)

    def _means_by_kind(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        *,
        drawing: bool = False,
        padded: bool = True,
        belief: Belief | None = None,
        shared: Shared | None = None,
    ) -> dict[str, Tensor]:
        """Means of the parts with positive weight, by kind; without padding from a belief."""
        kinds, by_kind = self.used_kinds(drawing=drawing), dict[str, Tensor]()
        shared = shared or Shared({}, {}, {})
        if "members" in kinds:
            by_kind["members"] = self._member_means(values, observed, ids, belief)
        if "mixtures" in kinds:
            run = map_in_threads if padded else map
            shares = [shared.shares.get(len(self.members) + k) for k in range(len(self.mixtures))]
            each = run(
                lambda x: x[0].means(values, observed, ids, padded=padded, shares=x[1]),
                zip(self.mixture_models, shares, strict=True),
            )
            tables = list(each)
            by_kind["mixtures"] = self.average(tables)
            if drawing and self.following is not None:
                by_kind[FREE + "mixtures"] = sum(tables[1:], tables[0]) / len(tables)
        if "linear" in kinds:
            by_kind.update(self._linear_means(values, observed, ids, padded=padded))
        if KINDS[3] in kinds:
            names = (*KINDS[3:], VOTES, DISTANCES)
            means = self.neighbour_means(values, observed, ids, shared.means)
            by_kind.update(zip(names, means, strict=True))
            if KINDS[3] not in self.used_kinds():
                del by_kind[DISTANCES]  # so that means are the same with and without draws
        if self.targeted is not None:
            fitted = [one for one in self.row_mixture_models if one.metric is not None]
            each = [one.targeted_means(values, observed, ids) for one in fitted]
            by_kind[TARGETED] = self.average(each)
        return by_kind

    def _member_means(
        self, values: Tensor, observed: Tensor, ids: Tensor, belief: Belief | None
    ) -> Tensor:
        """The average mean of the members, read from their states where those are known.

        Rows with partly observed sections need iterated filling, member by member. All other rows
        go through the stacked members.
        """
        if belief is not None:
            table = self.stack.scaling.undo(self.stack.sections.join(belief.means)).double()
            return self.average(list(table.view(len(values), len(self.members), -1).unbind(1)))
        partial = self.has_partial_sections(observed)
        whole, means = ~partial, values.new_empty(values.shape, dtype=torch.float64)
        if bool(whole.any()):
            rows = values[whole], observed[whole], ids[whole]
            means[whole] = self.average(list(member_means(self.stack, len(self.members), *rows)))
        if bool(partial.any()):
            rows = values[partial], observed[partial], ids[partial]
            answers = [
                member.infer(rows[0], observed=rows[1], row_ids=rows[2])
                for member in self.member_models
            ]
            means[partial] = self.average([concat_leaves(answer.mean) for answer in answers])
        return means

    def _linear_means(
        self, values: Tensor, observed: Tensor, ids: Tensor, *, padded: bool = True
    ) -> dict[str, Tensor]:
        """Means within the observed range, and what lies beyond it."""
        if padded:
            means = self.linear_means(values, observed, ids)
        else:
            assert self.linear is not None
            means = concat_leaves(self.linear.infer(values, observed=observed, padded=False).mean)
        inner = means.clamp(*self.reach) if self.is_stacked else self.within_range(means)
        if self.following is None:
            return {"linear": inner}
        beyond = beyond_range(means, inner, self.following)
        found = {"linear": inner, BEYOND: beyond, FREE + "linear": means}
        if self.held_levels is not None and bool(self.held_levels.any()):
            found.update(self._inside_ranges(values, observed, ids, padded=padded))
        return found

    def _inside_ranges(
        self, values: Tensor, observed: Tensor, ids: Tensor, *, padded: bool
    ) -> dict[str, Tensor]:
        """What the linear model predicts with cells moved into their ranges, if any are outside.

        Also how far rows lie from similar ones then.
        """
        inside = torch.where(observed, values.clamp(*self.reach), values)
        moved = (inside != values).any(1)
        if not bool(moved.any()):
            return {}
        if padded:
            means = self.linear_means(inside, observed, ids)
        else:
            assert self.linear is not None
            means = concat_leaves(self.linear.infer(inside, observed=observed, padded=False).mean)
        near = torch.full_like(means[:, :1], torch.inf)  # rows that are not moved hold no level
        rows = inside[moved], observed[moved], ids[moved]
        near[moved] = self.neighbour_means(*rows, {}).distances
        assert self.following is not None
        return {INSIDE: follow_line(means, self.reach, self.following), NEAR: near}


@dataclass(frozen=True)
class FewRows:
    """Answers of an ensemble on a CPU about a few rows, computed without padding.

    Numbers are those of `Ensemble.joint_means` and `Ensemble.joint_draws` up to rounding.
    """

    model: Ensemble  # with parts besides the linear model
    values: Tensor
    observed: Tensor  # whole sections or nothing
    belief: Belief | None  # states of the stacked members given the rows, if there are any
    expected: Mapping[str, Tensor]  # means of the parts by kind, (rows, columns)

    @classmethod
    @torch.no_grad()
    def of(cls, model: Ensemble, values: Tensor, observed: Tensor) -> FewRows | None:
        """The rows, or None where the model has no fast path for them."""
        if model.linear is None or not model.is_stacked:
            return None
        if model.weights.device.type != "cpu" or bool(model.has_partial_sections(observed).any()):
            return None
        copies, ids = len(model.members), torch.arange(len(values))
        table = torch.where(observed, values, torch.nan)
        belief = None
        if copies:
            given = as_given(model.stack, repeat_columns(table, copies), None)
            belief = compute_belief(model.stack, given, None, ids, padded=False)
        expected = model._means_by_kind(
            values, observed, ids, drawing=True, padded=False, belief=belief
        )
        return cls(model, values, observed, belief, expected)

    def select(self, rows: Sequence[int]) -> FewRows:
        """Some of the rows."""
        chosen = torch.tensor(list(rows), dtype=torch.long)
        return replace(
            self,
            values=self.values[chosen],
            observed=self.observed[chosen],
            belief=None if self.belief is None else self.belief.select(chosen),
            expected={kind: means[chosen] for kind, means in self.expected.items()},
        )

    def means(self) -> Prediction:
        """Stacked means of every entry, and votes; observed entries are unchanged."""
        return self.model.predict(self.values, self.observed, self.expected)

    @torch.no_grad()
    def draws(self, number: int, seed: int, row_id: int = 0) -> Tensor:
        """Joint draws of a single row, `(number, 1, columns)`."""
        model, made = self.model, self.model.draws_made(number)
        draws = self.values.new_empty(made, *self.values.shape)
        by_part, ids = model.draws_by_part(made), torch.tensor([row_id])
        by_members = {part: own for part, own in by_part.items() if part < len(model.members)}
        if by_members:
            most = max(len(own) for own in by_members.values())
            drawn = self._member_draws(most, seed, ids)
            for part, own in by_members.items():
                draws[own, 0] = drawn[: len(own), part]
        for part, own in by_part.items():
            if part not in by_members:
                rows = self.values, self.observed, ids
                draws[own] = model.part_draws(part, *rows, len(own), seed, padded=False)
        asked = self.values, self.observed, self.expected
        prediction = self.means()
        draws = model.finish_draws(draws, *asked, prediction)[:number]
        noise = model.relation_levels(number, ids, seed)
        draws = model.with_relations(draws, self.values, self.observed, noise)
        return model.within_limits(draws, prediction.means)

    def _member_draws(self, number: int, seed: int, ids: Tensor) -> Tensor:
        """Draws of every member, all at once, `(draws, members, columns)`."""
        stack, members, draws = self.model.stack, self.model.member_models, torch.arange(number)
        assert self.belief is not None
        with evaluating(stack):
            tiles = [
                Tile(
                    member,
                    self.belief,
                    noise=noise_scale(member, self.observed),
                    temperature=member.spread.log_temperature.exp(),
                    row_ids=ids,
                    seed=seed * DRAWING_SEEDS + place,
                    remembered={},
                )
                for place, member in enumerate(members)
            ]
            scales = [tile.temperature.rsqrt() for tile in tiles]
            one = torch.ones_like(scales[0])
            inner = _scaled_roots([internal_normals(member) for member in members], scales)
            outer = _scaled_roots([tile.root_normals(draws) for tile in tiles], scales)
            centres = [state.mean(0) for state in decode(stack, self.belief, inner, one)]
            drawn = decode(stack, self.belief, outer, one)
            triples = zip(drawn, self.belief.backward, centres, strict=True)
            states = [x + (centre - mean) for x, centre, mean in triples]
            noise = torch.cat([tile.noise for tile in tiles], dim=1)
            whole = Tile(stack, self.belief, noise, one, ids, seed, remembered={})
            levels = torch.cat([tile.levels(draws) for tile in tiles], dim=-1)
            return whole.at_levels(states, levels).view(number, len(members), -1).double()


def _limited_columns(limits: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """The columns that have limits, and limits of their cells, unless their means are beyond."""
    some = limits.isfinite().any(0).nonzero()[:, 0].to(means.device)
    return some, lift_passed(limits.to(means.device)[:, some], means[:, some])


def _scaled_roots(normals: list[dict[int, Tensor]], scales: list[Tensor]) -> dict[int, Tensor]:
    """The members' draws of their roots side by side, scaled by their temperatures."""
    return {
        block: torch.cat([z[block] * s for z, s in zip(normals, scales, strict=True)], dim=1)
        for block in normals[0]
    }
