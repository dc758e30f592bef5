r"""A mixture with a component at every row: what rows like this one have where it has a gap.

It is an exact star whose root is as wide as the table and whose edges change nothing. Row k of the
table is a component with mean $m_k$, which is the row itself, its gaps filled, and variances
$v_k$, 0 where it is known. Column j has the noise $h_j^2$, so that

$$p(x_o) = \tfrac1n \sum_k \prod_{j \in o} N(x_j;\, m_{kj},\, v_{kj} + h_j^2).$$

The noise is fitted by expectation-maximisation, every row explained by the others. Gaps of the
components are what the model expects there, each row again without itself. What columns have in
common beyond that is left to a linear model of the residuals $x_o - \sum_k r_k m_{ko}$.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import MeanFunction, concat_leaves, mean_function
from vfg.imputation.linear import fit_linear, star
from vfg.imputation.plan import MOST_ROW_MIXTURES, Kind
from vfg.inference.propagation import tiles
from vfg.tables.numeric import SHARE, NormalScores
from vfg.utils.cached import CachedModule
from vfg.utils.random import normal, uniform

ROUNDS = 2
"""How often noise is fitted and gaps are filled."""
ITERATIONS = 30
"""How often expectations are taken for the noise, at most."""
TOLERANCE = 0.02
"""Relative change of all variances of the noise at which that ends."""
EXPLAINED = 1000
"""How many rows the noise is fitted to."""
NOISE = (0.02, 2.0)
"""The least and the most noise, in deviations of a column."""
START = 0.3
"""The noise to begin with."""
HEARD = 0.7
"""The share of the columns that those hear that do not hear all."""
PAIRS, LARGEST_TILE = {"cpu": 2**21}, {"cpu": 512}
"""How many pairs of rows and components are looked at together, about, and how many rows at most,
by type of device."""
OTHER_PAIRS, OTHER_LARGEST_TILE = 2**25, 4096


class MeanPair(NamedTuple):
    """What is expected of every entry, `(rows, columns)`."""

    plain: Tensor
    """The mean of the neighbours."""
    corrected: Tensor
    """The same with what the linear model of the residuals adds."""


class FitSource(NamedTuple):
    """What a mixture was fitted from."""

    rows: Tensor
    """Which rows of the table its components are."""
    linear: GaussianVFG
    """The linear model that filled their gaps first."""


class RowMixture(CachedModule):
    """A mixture with a component at every row of a table.

    Args:
        components: how many rows.
        residual: the linear model of what neighbours leave.

    Attributes:
        origin: what it was fitted from, while it is known; no file keeps it.
    """

    cached = ("_ask", "_targets", "_log_weights")
    centres: Tensor
    doubts: Tensor
    noise: Tensor
    scale: Tensor
    heard: Tensor

    def __init__(self, components: int, residual: GaussianVFG) -> None:
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

    def expected(
        self, values: Tensor, observed: Tensor, ids: Tensor, own: Tensor | None = None
    ) -> MeanPair:
        """What is expected of every entry of a matrix.

        Args:
            values: the matrix, `(rows, columns)`, any finite numbers where nothing is known.
            observed: which of its entries are known.
            ids: of the rows.
            own: the component that each row is and must not hear; -1 for none.
        """
        scores = self.ranks(values.double())
        expected, plain = torch.empty_like(scores), torch.empty_like(scores)
        for tile in self._tiles(scores, observed, ids, own):
            found = (tile.shares @ self._targets)[tile.places].double()
            expected[tile.rows], plain[tile.rows] = found.chunk(2, dim=1)
        moved = expected + self._correction(scores - expected, observed, ids)
        return MeanPair(plain, self.ranks.inverse(moved))

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
        """Joint draws, `(number, rows, columns)`: one of the neighbours, and noise.

        Args:
            values: the matrix, `(rows, columns)`, any finite numbers where nothing is known.
            observed: which of its entries are known.
            number: how many.
            seed: of the draws.
            ids: of the rows, on which draws depend.
            corrected: by how much of what the linear model of the residuals adds they are moved.
            own: the component that each row is and must not hear; -1 for none.
        """
        scores = self.ranks(values.double())
        expected = torch.empty_like(scores)
        chosen = torch.empty(number, len(values), dtype=torch.long, device=scores.device)
        levels = uniform(seed, ids, torch.arange(number), 0, torch.arange(1))[..., 0]
        for tile in self._tiles(scores, observed, ids, own):
            shares = tile.shares[tile.places]
            found = (tile.shares @ self._targets)[tile.places].double()
            expected[tile.rows] = found.chunk(2, dim=1)[0]
            below = shares.double().cumsum(1)
            level = levels[:, tile.rows].T.contiguous() * below[:, -1:]
            last = len(self.centres) - 1
            chosen[:, tile.rows] = torch.searchsorted(below, level).clamp(max=last).T
        errors = normal(seed, ids, torch.arange(number), 1, torch.arange(values.shape[1]))
        spread = (self.doubts + self.noise).double().sqrt()
        drawn = self.centres[chosen].double() + spread[chosen] * errors
        correction = self._correction(scores - expected, observed, ids)
        return self.ranks.inverse(drawn + corrected * correction)

    def without(self, values: Tensor, observed: Tensor, held: Tensor) -> RowMixture:
        """The same, had it not seen some cells when it filled gaps and fitted the residuals.

        As components rows still know these cells, since a row does not hear itself; but no other
        row has a gap that was filled with them.

        Args:
            values: the fitted table.
            observed: which of its cells are known.
            held: those that it must not have seen.
        """
        assert self.origin is not None
        rows = self.origin.rows
        scores, known = self.ranks(values[rows].double()), observed[rows]
        seen = known & ~held[rows]
        linear = fit_linear(self.origin.linear.graph, scores, seen, seed=0)
        made = RowMixture(len(rows), linear)
        made.origin, made.ranks = FitSource(rows, linear), self.ranks
        made.noise.copy_(self.noise)
        made.heard.copy_(self.heard)
        made.begin(scores, seen)
        for _ in range(ROUNDS):
            made.refill(scores, seen)
        made.fill(scores, known, made.centres, made.doubts)
        return made

    def components_of(self, rows: Tensor, table_rows: int) -> Tensor:
        """Which components rows of the fitted table are; -1 for those that are none."""
        assert self.origin is not None
        places = torch.full((table_rows,), -1)
        places[self.origin.rows] = torch.arange(len(self.origin.rows))
        return places[rows]

    def begin(self, scores: Tensor, observed: Tensor) -> None:
        """Fill the gaps of the components with what the linear model expects.

        Args:
            scores: the components' cells.
            observed: which of them are known.
        """
        assert self.origin is not None
        answer = self.origin.linear.infer(scores, observed=observed)
        self.fill(scores, observed, concat_leaves(answer.mean), concat_leaves(answer.std).square())

    def refill(self, scores: Tensor, observed: Tensor) -> None:
        """Fit the linear model of the residuals, and fill the gaps of the components.

        Args:
            scores: the components' cells.
            observed: which of them are known.
        """
        every = torch.arange(len(scores))
        moments = torch.cat([self.centres, self.centres.square() + self.doubts], dim=1)
        expected = torch.empty(scores.shape, dtype=torch.float64)
        doubts = torch.empty_like(expected)
        for tile in self._tiles(scores, observed, every, every):
            found = (tile.shares @ moments)[tile.places].double()
            mean, square = found.chunk(2, dim=1)
            expected[tile.rows], doubts[tile.rows] = mean, (square - mean.square()).clamp(min=0.0)
        left = torch.where(observed, scores - expected, 0.0)
        self.scale.copy_((left.square().sum(0) / observed.sum(0).clamp(min=1)).sqrt() + 1e-3)
        self.residual = fit_linear(self.residual.graph, left / self.scale, observed, seed=0)
        self.forget()
        gaps = expected + self._correction(left, observed, every)
        self.fill(scores, observed, gaps, doubts + self.noise)

    def fill(self, scores: Tensor, observed: Tensor, gaps: Tensor, doubts: Tensor) -> None:
        """Set the components: rows where they are known, else what is expected, and its variance.

        Args:
            scores: the rows' cells.
            observed: which of them are known.
            gaps: what is expected of the others.
            doubts: its variances.
        """
        self.centres.copy_(torch.where(observed, scores, gaps))
        self.doubts.copy_(torch.where(observed, 0.0, doubts))
        self.forget()

    # Private.

    def _correction(self, left: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        known = torch.where(observed, left / self.scale, 0.0)
        return torch.where(observed, 0.0, self._ask(known, observed, ids) * self.scale)

    @cached_property
    def _ask(self) -> MeanFunction:
        return mean_function(self.residual)

    @cached_property
    def _targets(self) -> Tensor:
        """Components as scores, then as values."""
        return torch.cat([self.centres, self.ranks.inverse(self.centres.double()).float()], dim=1)

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
        kind = scores.device.type
        most, pairs = LARGEST_TILE.get(kind, OTHER_LARGEST_TILE), PAIRS.get(kind, OTHER_PAIRS)
        size = max(8, min(most, pairs // len(self.centres)))
        known = observed.float()
        cells = torch.where(observed, scores, 0.0).float()
        looks = torch.cat([-0.5 * cells.square(), cells, -0.5 * known], dim=1)
        for rows, places in tiles(ids, size):
            mine = looks.new_zeros(size, looks.shape[1]).index_copy(0, places, looks[rows])
            logs = mine @ self._log_weights
            if own is not None:
                self_heard = own[rows] >= 0
                logs[places[self_heard], own[rows][self_heard]] = -torch.inf
            yield Tile(rows, places, logs.softmax(1))

    # How it goes through a file.

    def _apply(self, fn: Any, recurse: bool = True) -> RowMixture:
        """Go along to another device, but to no other dtype: components are rows, no parameters."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON."""
        return {"components": len(self.centres), "residual": self.residual.to_dict()}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> RowMixture:
        """A new model with the configuration that `to_dict` returned."""
        return cls(description["components"], GaussianVFG.from_dict(description["residual"]))


class Tile(NamedTuple):
    """Some rows, their places in a padded tile, and the tile's shares of the components."""

    rows: Tensor
    places: Tensor
    shares: Tensor


@torch.no_grad()
def fit_row_mixture(
    values: Tensor,
    observed: Tensor,
    kind: Kind,
    *,
    unordered: Tensor,
    width: int,
    most: int = MOST_ROW_MIXTURES,
    seed: int,
) -> RowMixture:
    """A mixture with a component at every row, or at some if there are very many.

    Args:
        values: the matrix, `(rows, columns)`.
        observed: which of its entries are known.
        kind: how it differs from others.
        unordered: columns that have no order and stay as they are.
        width: of the roots of linear models.
        most: components.
        seed: of rows, columns and starts.
    """
    generator = torch.Generator().manual_seed(seed)
    own = torch.randperm(len(values), generator=generator)[:most].sort().values
    columns = values.shape[1]
    ranks = NormalScores.of(values, observed, torch.where(unordered, 0.0, SHARE * kind.ranks))
    scores, seen = ranks(values[own].double()), observed[own]
    linear = fit_linear(star([1] * columns, width), scores, seen, seed)
    made = RowMixture(len(own), linear)
    made.origin, made.ranks = FitSource(own, linear), ranks
    if not kind.hears_all:
        heard = max(1, round(HEARD * columns))
        made.heard[torch.randperm(columns, generator=generator)[heard:]] = False
    explained = torch.randperm(len(own), generator=generator)[:EXPLAINED]
    made.begin(scores, seen)
    for _ in range(ROUNDS):
        _fit_noise(made, scores, seen, explained)
        made.refill(scores, seen)
    return made


def _fit_noise(made: RowMixture, scores: Tensor, seen: Tensor, rows: Tensor) -> None:
    """Expectation-maximisation of the noise: some rows, explained by all others."""
    known = seen.float()
    cells = torch.where(seen, scores, 0.0).float()
    moments = torch.cat([known, cells, cells.square()], dim=1)
    least, most = (end**2 for end in NOISE)
    every = torch.arange(len(rows))
    for _ in range(ITERATIONS):
        total, count = torch.zeros_like(made.noise), torch.zeros_like(made.noise)
        for tile in made._tiles(scores[rows], seen[rows], every, rows):
            ones, means, squares = (tile.shares @ moments)[tile.places].chunk(3, dim=1)
            x, o = cells[rows[tile.rows]], known[rows[tile.rows]]
            total += (x.square() * ones - 2.0 * x * means + o * squares).sum(0)
            count += (o * ones).sum(0)
        found = (total / count.clamp(min=1e-6)).clamp(least, most)
        change = (found / made.noise).log().abs().max()
        made.noise.copy_(found)
        made.forget()
        if change < TOLERANCE:
            return
