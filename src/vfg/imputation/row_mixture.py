r"""A mixture with a component at every row: missing cells are predicted from similar rows.

It is an exact star whose root is as wide as the table and whose edges change nothing. Row k of the
table is a component with mean $m_k$, which is the row itself, its missing cells filled, and
variances $v_k$, 0 where it is known. Column j has the noise $h_j^2$, so that

$$p(x_o) = \tfrac1n \sum_k \prod_{j \in o} N(x_j;\, m_{kj},\, v_{kj} + h_j^2).$$

The noise is fitted by expectation-maximisation, every row explained by the others; that of
categories, which agree exactly in many rows, is at least 0.5. Missing cells
of the components are filled with the model's means, each row again without itself. Remaining
dependence between columns is left to a linear model of the residuals $x_o - \sum_k r_k m_{ko}$.

Which rows are similar depends on what is asked. So each column t may have a metric of its own: a
missing cell of it is the mean of the known cells of the components, in proportion to

$$\prod_{j \in o} N(x_j;\, m_{kj},\, v_{kj} + h_j^2)^{a_{tj}}.$$

The exponents of a column minimise the squared errors of its known cells, each without its own row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, threshold

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import MeanFunction, concat_leaves, mean_function
from vfg.imputation.mixtures import fit_linear, star
from vfg.imputation.plan import MOST_ROW_MIXTURES, RowMixtureKind
from vfg.inference.propagation import tiles
from vfg.tables.numeric import SHARE, NormalScores
from vfg.training.optimiser import FusedAdamW
from vfg.utils.cached import CachedModule
from vfg.utils.random import normal, uniform

ROUNDS = 2
"""How often the noise is fitted and missing cells are filled."""
ITERATIONS = 30
"""The most iterations of EM for the noise."""
TOLERANCE = 0.02
"""Relative change of the noise variances below which EM stops."""
EXPLAINED = 1000
"""How many rows the noise is fitted to; more take longer."""
LINEAR_TOLERANCE = 1e-3
"""Gain per row below which EM of linear models stops: 1e-5 took twice as long on a made
table of 200 rows and changed its squared error by 0.4 %."""
NOISE = (0.02, 2.0)
"""Bounds of the noise, in standard deviations of a column."""
UNORDERED_NOISE = 0.5
"""The least noise of columns of categories, whose rows agree exactly, so that noise would be least
of all. On seven tables for tuning, two patterns, squared errors, error rates and log scores are
1.007, 0.997 and 0.995 of those without this bound; with 1.0, on eight tables, they are 1.011, 1.012
and 1.000 of those with 0.5."""
START = 0.3
"""The initial noise."""
MOST_DEVIATIONS = 6.0
"""How far a residual is predicted from 0 at most, in its own deviations. Of the letter table all
predictions but those for four rows are within 4.4. Fitted to the first 70 % of eight tables of the
benchmark, two of which are sorted, squared errors of the other rows are 5 and 8 % smaller on those
two than without the bound, and the same to 0.1 % on the others."""
USED_SHARE = 0.7
"""The share of the columns of mixtures that do not use all of them."""
PAIRS, LARGEST_TILE = {"cpu": 2**16}, {"cpu": 512}
"""Pairs of rows and components that are computed together, about, and the most rows, by type of
device: a tile should fit into the cache of a CPU. A single row costs a whole tile: with 1,000 rows
of 20 columns it took 23 ms with 2**16, 34 ms with 2**18, and many rows 0 to 10 % longer."""
PAIRS_IN_FITTING = 2**17
"""The same where the noise is fitted, with many rows at a time: that of the table banknote took
121 ms by tiles of 2**16 pairs, 91 by those of 2**17."""
LEAST_TILE = 32
"""Rows computed together at least: with 5,000 components 8 take a third longer per row."""
OTHER_PAIRS, OTHER_LARGEST_TILE = 2**25, 4096
METRIC_COMPONENTS = 1500
"""Components that columns with a metric of their own use at most, which bounds the time to fill."""
METRIC_STEPS, METRIC_BATCH, METRIC_RATE = 20, 64, 0.2
"""How metrics are fitted: steps of Adam, rows of each, and its rate. On six tables for tuning with
half of the cells missing, 30 steps of 128 rows and 60 of these had the same squared error within
0.5 %, for 9 and 18 % more time of a fit."""
METRIC_SCALES = (0.5, 1.0, 2.0, 4.0, 16.0)
"""Exponents of all columns, of which the best are the start. On six tables for tuning the squared
error was 0.2 % smaller than with a start at 1."""
METRIC_PENALTY = 0.5
"""Weight of the squared logarithms of exponents over the start, in cells whose errors are usual."""
METRIC_SETS = 2
"""Sets of held-out cells that metrics are fitted without, and weighed at. On cells that they were
fitted to, metrics seem to predict columns that are independent of all others."""
METRIC_CELLS = 8
"""Known cells per column of the table below which a column has no metric."""
NEGLIGIBLE = -70.0
"""Logarithm of a share of the largest one below which shares are 0. Numbers below 1e-38, which 5 %
of them were, are slow on CPUs: 5,000 components of 16 columns took 3.5 times as long with them."""
EXCLUDED = -1e9
"""Logarithm of the weight of components that are left out in fitting metrics."""


class RowMeans(NamedTuple):
    """Means of every entry, `(rows, columns)`, and votes for categories."""

    plain: Tensor  # the mean over similar rows
    corrected: Tensor  # the same plus the prediction of the linear model of the residuals
    votes: Tensor  # shares of categories among similar rows, (rows, categories of all columns)
    distances: Tensor  # of rows from the mean of similar rows, (rows, 1); see `extrapolation`


class Similar(NamedTuple):
    """What similar rows say about rows."""

    expected: Tensor  # means of the scores of components, (rows, columns)
    plain: Tensor  # means of their values
    votes: Tensor
    correction: Tensor  # of scores, by the linear model of the residuals
    distances: Tensor
    chosen: Tensor | None  # components of draws, (draws, rows)


class Labels(NamedTuple):
    """The categories of rows, for which similar rows vote."""

    places: Tensor  # in every column of categories, -1 for none, (rows, columns)
    sizes: list[int]  # how many categories each of these columns has


class FitSource(NamedTuple):
    """What a mixture was fitted from."""

    rows: Tensor
    """The rows of the table that are its components."""
    linear: GaussianVFG
    """The linear model that filled their missing cells first."""
    copies: Tensor
    """For every row of the table the first row that it is a copy of, or itself."""
    weights: Tensor | None = None
    """How often components count, beside others; None for equally often."""


class RowMixture(CachedModule):
    """A mixture with a component at every row of a table.

    `residual` is the linear model of the residuals, `sizes` the numbers of categories of the
    columns of labels. `origin` says what it was fitted from; None after loading.
    """

    cached = (
        "_mean_function", "_targets", "_log_weights", "_categories", "_vote_targets",
        "_metric_factors", "_known",
    )  # fmt: skip
    centres: Tensor
    doubts: Tensor
    noise: Tensor
    scale: Tensor
    heard: Tensor
    labels: Tensor | None
    log_often: Tensor | None
    metric: Tensor | None
    measured: Tensor | None

    def __init__(
        self,
        components: int,
        residual: GaussianVFG,
        sizes: Sequence[int] = (),
        weighted: bool = False,
        metric: bool = False,
        measured: bool = False,
    ) -> None:
        super().__init__()
        columns = residual.structure.columns
        for name in ("centres", "doubts"):
            self.register_buffer(name, torch.zeros(components, columns, dtype=torch.float32))
        self.register_buffer("noise", torch.full((columns,), START**2, dtype=torch.float32))
        self.register_buffer("scale", torch.ones(columns, dtype=torch.float64))
        self.register_buffer("heard", torch.ones(columns, dtype=torch.bool))
        self.ranks = NormalScores(columns)
        self.residual = residual
        self.origin: FitSource | None = None
        self.sizes = list(sizes)
        # None is no part of the state, so that files of earlier versions are complete.
        empty = torch.full((components, len(self.sizes)), -1) if sizes else None
        self.register_buffer("labels", empty)
        self.register_buffer("log_often", torch.zeros(components) if weighted else None)
        # Exponents by target and column; rows of zeros for targets without a metric.
        self.register_buffer("metric", torch.zeros(columns, columns) if metric else None)
        # Columns that distances count; all in files of earlier versions.
        counted = torch.ones(columns, dtype=torch.bool) if measured else None
        self.register_buffer("measured", counted)

    def means(
        self, values: Tensor, observed: Tensor, ids: Tensor, own: Tensor | None = None
    ) -> RowMeans:
        """Means of every entry of a matrix, any finite numbers where nothing is known.

        Each row may be a component, its `own`, which is left out for it with its copies; -1 for
        none.
        """
        return self._means_of(self._compare(values, observed, ids, own))

    def samples(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        *,
        seed: int,
        ids: Tensor,
        corrected: float = 1.0,
        own: Tensor | None = None,
    ) -> Tensor:
        """Joint draws, `(number, rows, columns)`: one of the components, and noise.

        `corrected` is the share of the linear model's correction that is added.
        """
        found = self._compare(values, observed, ids, own, _levels(seed, ids, number))
        return self._samples_of(found, seed, ids, corrected)

    def means_and_samples(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        *,
        seed: int,
        ids: Tensor,
        corrected: float = 1.0,
    ) -> tuple[RowMeans, Tensor]:
        """Both at once, for which rows are compared with the components once."""
        found = self._compare(values, observed, ids, None, _levels(seed, ids, number))
        return self._means_of(found), self._samples_of(found, seed, ids, corrected)

    def _compare(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        own: Tensor | None,
        levels: Tensor | None = None,
    ) -> Similar:
        """What components say about rows; at `levels` of draws, components are chosen, too."""
        scores, chosen = self.ranks(values.double()), None
        if levels is not None:
            chosen = torch.empty(levels.shape, dtype=torch.long, device=scores.device)
        expected, plain, doubts = (torch.empty_like(scores) for _ in range(3))
        votes = scores.new_empty(len(scores), sum(self.sizes))
        for tile in self._tiles(scores, observed, ids, own):
            means = (tile.shares @ self._targets)[tile.places].double()
            expected[tile.rows], plain[tile.rows] = means.chunk(2, dim=1)
            doubts[tile.rows] = (tile.shares @ self.doubts)[tile.places].double()
            if self.sizes:
                votes[tile.rows] = self._shares_of_votes(tile, self._vote_targets)
            if levels is not None and chosen is not None:
                below = tile.shares[tile.places].double().cumsum(1)
                level = levels[:, tile.rows].T.contiguous() * below[:, -1:]
                last = len(self.centres) - 1
                chosen[:, tile.rows] = torch.searchsorted(below, level).clamp(max=last).T
        left = scores - expected
        correction = self._correction(left, observed, ids)
        distances = self._distances(left, doubts, observed)
        return Similar(expected, plain, votes, correction, distances, chosen)

    def _means_of(self, found: Similar) -> RowMeans:
        corrected = self.ranks.inverse(found.expected + found.correction)
        return RowMeans(found.plain, corrected, found.votes, found.distances)

    def _samples_of(self, found: Similar, seed: int, ids: Tensor, corrected: float) -> Tensor:
        assert found.chosen is not None
        draws, columns = torch.arange(len(found.chosen)), torch.arange(found.expected.shape[1])
        errors = normal(seed, ids, draws, 1, columns)
        spread = (self.doubts + self.noise).double().sqrt()
        drawn = self.centres[found.chosen].double() + spread[found.chosen] * errors
        return self.ranks.inverse(drawn + corrected * found.correction)

    def targeted_means(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        wanted: Tensor | None = None,
        own: Tensor | None = None,
    ) -> Tensor:
        """Means of missing entries by the metrics of their columns, 0 elsewhere.

        Only `wanted` entries are computed, if given; `own` is as of `means`.
        """
        assert self.metric is not None
        wanted = ~observed if wanted is None else wanted
        scores, columns = self.ranks(values.double()), values.shape[1]
        means, features = torch.zeros_like(scores), row_features(scores, observed)
        chosen = self.metric_components
        size = self._tile_size(features, len(chosen))
        often = self.log_metric_weights
        for target in self.metric.any(1).nonzero()[:, 0].tolist():
            asked = wanted[:, target].nonzero()[:, 0]
            scaled = features[asked] * self.metric[target].repeat(3)
            truth, found = self._targets[chosen, columns + target], means.new_empty(len(asked))
            # Products have the shape of a tile; the rest is for its rows alone, which are few.
            padded = scaled.new_zeros(size, 3 * columns)
            whole = scaled.new_zeros(size, len(chosen))
            for rows, places in tiles(ids[asked.to(ids.device)], size):
                padded.index_copy_(0, places, scaled[rows])
                logs = torch.addmm(often[:, target], padded, self._metric_factors)[places]
                if own is not None:
                    self._leave_out(logs, torch.arange(len(rows)), own[asked[rows]], chosen)
                    # A row whose components are all left out has the mean of the column.
                    logs.clamp_(min=2.0 * EXCLUDED)
                whole.index_copy_(0, places, _shares(logs))
                found[rows] = (whole @ truth)[places].double()
            means[asked, target] = found
        return means

    def shares_of_rows(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor | None = None,
        own: Tensor | None = None,
    ) -> Tensor:
        """The weights of all components for every row, `(rows, components)`; as of `means`."""
        scores = self.ranks(values.double())
        ids = torch.arange(len(scores)) if ids is None else ids
        shares = self.centres.new_empty(len(scores), len(self.centres))
        for tile in self._tiles(scores, observed, ids, own):
            shares[tile.rows] = tile.shares[tile.places]
        return shares

    def left_out(self, own: Tensor) -> Tensor:
        """Which components are left out for rows that are components, `(rows, components)`."""
        logs = self.centres.new_zeros(len(own), len(self.centres))
        self._leave_out(logs, torch.arange(len(own)), own)
        return logs < 0.0

    def known_values(self, column: int, most: int) -> tuple[Tensor, Tensor]:
        """Components in which a column is known, and its values there, in the order of these.

        Those of more than `most` are evenly spread.
        """
        known = self._known[:, column].nonzero()[:, 0]
        known = known[:: -(-len(known) // most) or 1]
        values, order = self._targets[known, len(self.noise) + column].sort(stable=True)
        return known[order], values

    def without(self, values: Tensor, observed: Tensor, held: Tensor) -> RowMixture:
        """Refit without some cells: missing cells are filled and residuals fitted as if unobserved.

        Components still hold these cells, since a row is left out for itself; but no other row has
        a missing cell that was filled from them.
        """
        assert self.origin is not None
        rows, _, copies, weights = self.origin
        scores, known = self.ranks(values[rows].double()), observed[rows]
        seen = known & ~held[rows]
        linear = fit_linear(
            self.origin.linear.graph, scores, seen, 0, tolerance=LINEAR_TOLERANCE, weights=weights
        )
        model = RowMixture(len(rows), linear, self.sizes)
        model.origin, model.measured = FitSource(rows, linear, copies, weights), self.measured
        model.ranks, model.labels, model.log_often = self.ranks, self.labels, self.log_often
        model.metric = self.metric
        model.noise.copy_(self.noise)
        model.heard.copy_(self.heard)
        model.begin(scores, seen)
        for _ in range(ROUNDS):
            model.refill(scores, seen)
        model.fill(scores, known, model.centres, model.doubts)
        return model

    def components_of(self, rows: Tensor, table_rows: int) -> Tensor:
        """Which components rows of the fitted table, or copies of them, are; -1 for none."""
        assert self.origin is not None
        places = torch.full((table_rows,), -1)
        places[self._copied_rows] = torch.arange(len(self.origin.rows))
        return places[self.origin.copies[rows]]

    def begin(self, scores: Tensor, observed: Tensor) -> None:
        """Fill the missing cells of the components with the means of the linear model."""
        assert self.origin is not None
        answer = self.origin.linear.infer(scores, observed=observed)
        self.fill(scores, observed, concat_leaves(answer.mean), concat_leaves(answer.std).square())

    def refill(self, scores: Tensor, observed: Tensor) -> None:
        """Fit the linear model of the residuals, and fill the missing cells of the components."""
        every = torch.arange(len(scores))
        moments = torch.cat([self.centres, self.centres.square() + self.doubts], dim=1)
        expected = torch.empty(scores.shape, dtype=torch.float64)
        variances = torch.empty_like(expected)
        for tile in self._tiles(scores, observed, every, every):
            result = (tile.shares @ moments)[tile.places].double()
            mean, square = result.chunk(2, dim=1)
            expected[tile.rows] = mean
            variances[tile.rows] = (square - mean.square()).clamp(min=0.0)
        left = torch.where(observed, scores - expected, 0.0)
        self.scale.copy_((left.square().sum(0) / observed.sum(0).clamp(min=1)).sqrt() + 1e-3)
        graph, scaled = self.residual.graph, left / self.scale
        weights = None if self.origin is None else self.origin.weights
        self.residual = fit_linear(
            graph, scaled, observed, 0, tolerance=LINEAR_TOLERANCE, weights=weights
        )
        self.forget()
        means = expected + self._correction(left, observed, every)
        self.fill(scores, observed, means, variances + self.noise)

    def fill(self, scores: Tensor, observed: Tensor, means: Tensor, variances: Tensor) -> None:
        """Set the components: scores where they are observed, else means and variances."""
        self.centres.copy_(torch.where(observed, scores, means))
        self.doubts.copy_(torch.where(observed, 0.0, variances))
        self.forget()

    @property
    def distant(self) -> Tensor:
        """The columns that tell how unlike the fitted rows a row is.

        Those of categories do not: all of them were in fitted rows. Code points of many categories
        are not where those of the fitted rows are, which leave out the row itself.
        """
        return self.heard if self.measured is None else self.heard & self.measured

    # Private.

    def _distances(self, left: Tensor, doubts: Tensor, observed: Tensor) -> Tensor:
        """Mean squares of the residuals of observed cells over their variances, `(rows, 1)`."""
        known = (observed & self.distant).double()
        total, number = torch.zeros_like(known[:, :1]), torch.zeros_like(known[:, :1])
        squares = known * left.square() / (self.noise + doubts)
        for column in range(squares.shape[1]):
            # One by one, since the bits of sums depend on the shape.
            total, number = total + squares[:, [column]], number + known[:, [column]]
        return total / number.clamp(min=1.0)

    def _correction(self, left: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        """Predicted residuals of missing cells, given those of observed ones.

        A column whose fitted rows have all but no residual, such as one of few values, is left out:
        nothing was learned about what a large one would mean.
        """
        heard = observed & (self.scale > NOISE[0])
        known = torch.where(heard, left / self.scale, 0.0)
        predicted = self._mean_function(known, heard, ids).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        return torch.where(observed, 0.0, predicted * self.scale)

    @cached_property
    def _mean_function(self) -> MeanFunction:
        return mean_function(self.residual)

    @cached_property
    def _copied_rows(self) -> Tensor:
        """The first row that every component is a copy of."""
        assert self.origin is not None
        return self.origin.copies[self.origin.rows]

    @cached_property
    def _is_copied(self) -> Tensor:
        """Which components are copies of others, or have copies."""
        _, group, counts = self._copied_rows.unique(return_inverse=True, return_counts=True)
        copied: Tensor = counts[group] > 1
        return copied

    @cached_property
    def _has_copies(self) -> bool:
        """Whether components are copies of each other; not known after loading."""
        return self.origin is not None and bool(self._is_copied.any())

    @cached_property
    def _targets(self) -> Tensor:
        """Components as scores, then as values."""
        return torch.cat([self.centres, self.ranks.inverse(self.centres.double()).float()], dim=1)

    @cached_property
    def _categories(self) -> tuple[Tensor, Tensor]:
        """What every component votes for, `(components, all categories)`, and by its own category.

        A component votes for its own category. Where that is missing it passes on the votes of the
        other components, since a row of the fitted table is most similar to itself. The second
        array is 1 for own categories and 0 for votes that are passed on, `(components, columns)`.
        """
        labels = self.labels
        if labels is None:
            return self.centres.new_zeros(len(self.centres), 0), self.centres[:, :0]
        # The first of these columns is for components without a category.
        ones = [
            one_hot(own.clamp(-1, size - 1) + 1, size + 1)[:, 1:].float()
            for own, size in zip(labels.unbind(1), self.sizes, strict=True)
        ]
        hard, is_own = torch.cat(ones, dim=1), (labels >= 0).float()
        votes, rows = hard.clone(), (labels < 0).any(1).nonzero()[:, 0]
        targets, known = torch.cat([hard, is_own], dim=1), self.doubts[rows] == 0.0
        lacks = is_own.repeat_interleave(torch.tensor(self.sizes).to(labels), dim=1) == 0.0
        ids = torch.arange(len(rows), device=rows.device)
        for tile in self._tiles(self.centres[rows].double(), known, ids, rows):
            at, passed = rows[tile.rows], self._shares_of_votes(tile, targets).float()
            votes[at] = torch.where(lacks[at], passed, votes[at])
        return votes, is_own

    def _shares_of_votes(self, tile: Tile, targets: Tensor) -> Tensor:
        """Shares of categories for the rows of a tile, `(rows, all categories)`.

        Own categories count with one more row that has the shares of all rows. `targets` are the
        votes of the components, and which of them are by their own categories.
        """
        widths = [*self.sizes, len(self.sizes)]
        counts = (tile.shares @ targets)[tile.places].double().split(widths, dim=1)
        similar = 1.0 / tile.shares.square().sum(1, keepdim=True)[tile.places].double()
        shares = []
        for votes, own, every in zip(
            counts, counts[-1].unbind(1), targets.double().sum(0).split(widths), strict=False
        ):
            overall = every / every.sum().clamp(min=1e-12)
            number = similar * votes.sum(1, keepdim=True) + own[:, None]
            shares.append((similar * votes + own[:, None] * overall) / number.clamp(min=1e-12))
        return torch.cat(shares, dim=1)

    @cached_property
    def _vote_targets(self) -> Tensor:
        return torch.cat(self._categories, dim=1)

    @cached_property
    def _log_weights(self) -> Tensor:
        """The part of log p(x | component) that a row multiplies, `(3 columns, components)`."""
        precision = self.heard / (self.doubts + self.noise)
        logs = torch.where(self.heard, (self.doubts + self.noise).log(), 0.0)
        quadratic = precision * self.centres.square() + logs
        return torch.cat([precision, precision * self.centres, quadratic], dim=1).T.contiguous()

    def _tiles(
        self, scores: Tensor, observed: Tensor, ids: Tensor, own: Tensor | None
    ) -> Iterator[Tile]:
        features = row_features(scores, observed)
        size = self._tile_size(features, len(self.centres))
        for rows, places in tiles(ids, size):
            padded = features.new_zeros(size, features.shape[1]).index_copy(
                0, places, features[rows]
            )
            logs = self._logs(padded)
            if own is not None:
                self._leave_out(logs, places, own[rows])
            yield Tile(rows, places, _shares(logs))

    def _logs(self, features: Tensor) -> Tensor:
        """log p(row | component) but for constants of rows, `(rows, components)`."""
        logs = features @ self._log_weights
        return logs if self.log_often is None else logs + self.log_often

    def _tile_size(self, features: Tensor, components: int) -> int:
        kind = features.device.type
        most, pairs = LARGEST_TILE.get(kind, OTHER_LARGEST_TILE), PAIRS.get(kind, OTHER_PAIRS)
        return max(LEAST_TILE, min(most, pairs // components))

    def _leave_out(
        self, logs: Tensor, places: Tensor, own: Tensor, chosen: Tensor | None = None
    ) -> None:
        """Leave out the components that rows are, and copies of them, among all or the chosen."""
        is_component = own >= 0
        there, own = places[is_component], own[is_component]
        if chosen is None:
            logs[there, own] = -torch.inf
        else:
            row, component = (own[:, None] == chosen).nonzero().unbind(1)
            logs[there[row], component] = -torch.inf
        if self._has_copies:
            copied_rows = self._copied_rows.to(logs.device)
            copied = self._is_copied.to(logs.device)[own]
            others = copied_rows if chosen is None else copied_rows[chosen]
            alike = copied_rows[own[copied]][:, None] == others
            row, component = alike.nonzero().unbind(1)
            logs[there[copied][row], component] = -torch.inf

    @property
    def metric_components(self) -> Tensor:
        """The components that columns with a metric use, evenly spread."""
        number = len(self.centres)
        ends = torch.linspace(0, number - 1, min(number, METRIC_COMPONENTS), dtype=torch.float64)
        return ends.round().long().to(self.centres.device)

    @property
    def log_metric_weights(self) -> Tensor:
        """Logarithms of how often components count for a target, `(components, columns)`."""
        chosen = self.metric_components
        often = torch.where(self._known[chosen], 0.0, EXCLUDED)
        return often if self.log_often is None else often + self.log_often[chosen, None]

    @cached_property
    def _metric_factors(self) -> Tensor:
        """As `_log_weights`, of all columns and the components that metrics use."""
        chosen = self.metric_components
        variances, centres = self.doubts[chosen] + self.noise, self.centres[chosen]
        quadratic = centres.square() / variances + variances.log()
        return torch.cat([1.0 / variances, centres / variances, quadratic], dim=1).T.contiguous()

    @cached_property
    def _known(self) -> Tensor:
        """Which cells of the components are known, `(components, columns)`."""
        return self.doubts == 0.0

    # Serialisation.

    def _apply(self, fn: Any, recurse: bool = True) -> RowMixture:
        """Move to another device, but not to another dtype: components are rows, not parameters."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON."""
        sizes = {"sizes": self.sizes} if self.sizes else {}
        weighted = {} if self.log_often is None else {"weighted": True}
        components, residual = len(self.centres), self.residual.to_dict()
        metric = {} if self.metric is None else {"metric": True}
        metric |= {} if self.measured is None else {"measured": True}
        return {"components": components, "residual": residual, **sizes, **weighted, **metric}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> RowMixture:
        """A new model with the configuration that `to_dict` returned."""
        residual = GaussianVFG.from_dict(description["residual"])
        sizes, weighted = description.get("sizes", ()), description.get("weighted", False)
        metric, measured = (description.get(name, False) for name in ("metric", "measured"))
        return cls(description["components"], residual, sizes, weighted, metric, measured)


class Tile(NamedTuple):
    """Some rows, their places in a padded tile, and the tile's shares of the components."""

    rows: Tensor
    places: Tensor
    shares: Tensor


@torch.no_grad()
def fit_row_mixture(
    values: Tensor,
    observed: Tensor,
    kind: RowMixtureKind,
    *,
    unordered: Tensor,
    width: int,
    most: int = MOST_ROW_MIXTURES,
    labels: Labels | None = None,
    seed: int,
    copies: Tensor | None = None,
    weights: Tensor | None = None,
) -> RowMixture:
    """Fit a mixture with a component at every row, or at `most` random ones.

    `unordered` columns stay as they are; `width` is that of the roots of linear models; rows vote
    for the categories of `labels`. `copies` has for every row the first that it is a copy of.
    """
    generator = torch.Generator().manual_seed(seed)
    copies = torch.arange(len(values)) if copies is None else copies
    own = torch.randperm(len(values), generator=generator)[:most].sort().values
    columns = values.shape[1]
    ranks = NormalScores.of(values, observed, torch.where(unordered, 0.0, SHARE * kind.ranks))
    scores, seen = ranks(values[own].double()), observed[own]
    graph = star([1] * columns, width)
    often = None if weights is None else weights[own]
    linear = fit_linear(graph, scores, seen, seed, tolerance=LINEAR_TOLERANCE, weights=often)
    sizes, of_categories = labels.sizes if labels else (), bool(unordered.any())
    model = RowMixture(len(own), linear, sizes, measured=of_categories)
    if model.measured is not None:
        model.measured.copy_(~unordered)
    model.origin, model.ranks = FitSource(own, linear, copies, often), ranks
    model.log_often = None if often is None else often.log().float()
    if labels is not None and labels.sizes:
        model.labels = labels.places[own]
    if not kind.uses_all_columns:
        heard = max(1, round(USED_SHARE * columns))
        model.heard[torch.randperm(columns, generator=generator)[heard:]] = False
    explained = torch.randperm(len(own), generator=generator)[:EXPLAINED]
    model.begin(scores, seen)
    for _ in range(ROUNDS):
        _fit_noise(model, scores, seen, explained, unordered)
        model.refill(scores, seen)
    return model


def _levels(seed: int, ids: Tensor, number: int) -> Tensor:
    """Uniform numbers that choose components, `(number, rows)`."""
    return uniform(seed, ids, torch.arange(number), 0, torch.arange(1))[..., 0]


def _shares(logs: Tensor) -> Tensor:
    """The softmax of every row, with 0 for shares that are negligible."""
    apart = logs - logs.detach().amax(1, keepdim=True)
    return threshold(apart, NEGLIGIBLE, -torch.inf, inplace=True).softmax(1)


def row_features(scores: Tensor, observed: Tensor) -> Tensor:
    """What the factors of components are multiplied with, `(rows, 3 columns)`."""
    cells = torch.where(observed, scores, 0.0).float()
    return torch.cat([-0.5 * cells.square(), cells, -0.5 * observed.float()], dim=1)


@torch.enable_grad()
def fit_metrics(
    model: RowMixture, targets: Sequence[int], seed: int, hidden: Tensor | None = None
) -> None:
    """Fit a metric of every target to its known cells in the components but the `hidden` ones."""
    assert model.origin is not None
    chosen, columns = model.metric_components, len(model.noise)
    known, truth = model._known[chosen], model._targets[chosen, columns:]
    fitted = known if hidden is None else known & ~hidden[model.origin.rows[chosen]]
    features = row_features(model.centres[chosen], known)
    groups = model._copied_rows[chosen]
    weights = model.origin.weights
    often = torch.ones(len(chosen)) if weights is None else weights[chosen].float()
    metric = torch.zeros(columns, columns)
    for target in targets:
        rows = fitted[:, target].nonzero()[:, 0]
        if len(rows) >= METRIC_CELLS * columns:
            generator = torch.Generator().manual_seed(seed * 1009 + target)
            factors = model._metric_factors[:, rows]
            own = features[rows], truth[rows, target], groups[rows], often[rows]
            metric[target] = _fit_metric(target, factors, *own, generator)
    model.metric = metric


def _fit_metric(
    target: int,
    factors: Tensor,
    features: Tensor,
    truth: Tensor,
    groups: Tensor,
    often: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """The exponents of one target, from rows in which it is known."""
    others = torch.ones(len(factors) // 3)
    others[target] = 0.0

    def error(logs: Tensor, rows: Tensor) -> Tensor:
        weights = (features[rows] * (logs.exp() * others).repeat(3)) @ factors + often.log()
        shares = _shares(weights.masked_fill(groups[rows][:, None] == groups, EXCLUDED))
        return (often[rows] * (shares @ truth - truth[rows]).square()).mean()

    first = torch.randperm(len(truth), generator=generator)[: 2 * METRIC_BATCH]
    with torch.no_grad():
        starts = [torch.full_like(others, scale).log() for scale in METRIC_SCALES]
        errors = [float(error(logs, first)) for logs in starts]
    best = min(errors)
    start = starts[errors.index(best)]
    logs = start.clone().requires_grad_()
    optimiser = FusedAdamW([{"params": [logs], "weight_decay": 0.0}], METRIC_RATE)
    for _ in range(METRIC_STEPS):
        rows = torch.randperm(len(truth), generator=generator)[:METRIC_BATCH]
        prior = METRIC_PENALTY / len(truth) * (logs - start).square().sum()
        optimiser.zero_grad()
        (error(logs, rows) / max(best, 1e-9) + prior).backward()
        optimiser.step()
    return (logs.exp() * others).detach()


def _fit_noise(
    model: RowMixture,
    scores: Tensor,
    seen: Tensor,
    rows: Tensor,
    unordered: Tensor | None = None,
) -> None:
    """Expectation-maximisation of the noise: some rows, explained by all others."""
    known = seen.float()
    cells = torch.where(seen, scores, 0.0).float()
    moments = torch.cat([known, cells, cells.square()], dim=1)
    least = torch.full_like(model.noise, NOISE[0] ** 2)
    if unordered is not None:
        least[unordered] = UNORDERED_NOISE**2
    most = torch.full_like(least, NOISE[1] ** 2)
    weights = None if model.origin is None else model.origin.weights
    often = torch.ones(len(rows)) if weights is None else weights[rows].float()
    x, o = cells[rows], often[:, None] * known[rows]
    features, sums = (
        row_features(scores[rows], seen[rows]),
        torch.empty(len(rows), moments.shape[1]),
    )
    size = max(LEAST_TILE, PAIRS_IN_FITTING // len(scores))
    for _ in range(ITERATIONS):
        for some in torch.arange(len(rows)).split(size):
            logs = model._logs(features[some])
            model._leave_out(logs, torch.arange(len(some)), rows[some])
            torch.matmul(_shares(logs), moments, out=sums[some[0] : some[-1] + 1])
        ones, means, squares = sums.chunk(3, dim=1)
        left = often[:, None] * (x.square() * ones - 2.0 * x * means) + o * squares
        noise = (left.sum(0) / (o * ones).sum(0).clamp(min=1e-6)).clamp(least, most)
        change = (noise / model.noise).log().abs().max()
        model.noise.copy_(noise)
        model.forget()
        if change < TOLERANCE:
            return
