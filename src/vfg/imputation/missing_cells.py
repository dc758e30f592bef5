"""The missing cells of a table: what they are filled with, draws and quantiles of them."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian.conditional_means import ExactMeans
from vfg.imputation.curved_draws import (
    SWEEPS,
    CurvedModel,
    CurvedPosterior,
    Curves,
    draw_curved_entries,
    find_curves,
)
from vfg.imputation.encoded_ensemble import CHOOSING
from vfg.imputation.ensemble import DRAWS, Prediction, quantiles_of_draws
from vfg.imputation.limits import lift_passed
from vfg.imputation.missing_at_random import weigh_as_observed
from vfg.imputation.missingness import Tilt, tilt_by_rows
from vfg.imputation.parameter_draws import (
    Departures,
    NormalModel,
    Posterior,
    draw_entries,
)
from vfg.inference.answers import as_row_ids
from vfg.inference.variables import central_levels
from vfg.inputs import ArrayLike
from vfg.tables.cells import Array, Label
from vfg.tables.frames import BLOCK, Table, quote
from vfg.tables.numeric import NumericEncoding, outer_values
from vfg.tables.schema import Continuous, Integer
from vfg.utils.random import normal, uniform

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel

PROPER_SEEDS = 2003
"""Stride of the seeds of proper draws, so that their noise differs from that of other draws."""
DEPARTURE_DRAWS = 8
"""Draws from which the spread of an ensemble is compared with that of a Normal model."""
MOST_KEPT = 2**22
"""Numbers of an ensemble's draws of the fitted rows that are kept, at most: 32 MB."""
WIDER = 1.15
"""How many times as far from the ensemble's means as the ensemble's own draws those with curves may
be, in root mean squares of cells that count as those observed. Parabolas of 300 rows have 0.77 to
1.11, also where x is missing by the curve. The table airfoil, where draws with curves have 1.4 to
1.6 times the CRPS of others, has 1.19 to 1.28."""
COPIES, COPY_SEEDS = 16, 7919
"""Draws among which one that breaks a constraint is replaced, and the distance of their seeds: with
a chance of 0.2 to keep to the constraints 3 % find none, and are moved to the nearest values."""
NUMBERS_AT_ONCE = 2**23
"""Numbers of such draws that are drawn together, which bounds memory."""
NEVER_OBSERVED = (
    "are not filled: no cell was observed in fitting; `fill` keeps such columns as they are, and "
    "`transform` drops them unless keep_empty_features=True"
)
ALL_DIFFERENT = "stay missing: nearly every cell is different, as in identifiers or free text"
WARNED_OF_COLUMNS: weakref.WeakKeyDictionary[Any, list[Label]] = weakref.WeakKeyDictionary()
"""By model the columns that stay missing, of which a warning was given."""


def know_of_empty_columns(model: TableModel, *, numbers: bool = False) -> None:
    """Do not warn of columns without a cell, or those of numbers: users learn of them otherwise."""
    known, schema = WARNED_OF_COLUMNS.setdefault(model, []), model.encoding.schema
    known += [
        label
        for label, part in model.encoding.parts.items()
        if part.empty and label not in known
        if not numbers or isinstance(schema[label], Continuous | Integer)
    ]


def _departures(model: TableModel, posterior: Posterior) -> Departures:
    """How the ensemble departs from a Normal model at the missing cells of the fitted rows."""
    values, observed = posterior.fitted.table
    rows = (~observed.all(1)).nonzero()[:, 0]
    known = EnsembleDraws.of(model, values[rows], observed[rows], rows)
    posterior.ensemble_draws = known if known.drawn.numel() <= MOST_KEPT else None
    expected, spread = known.prediction.means, torch.zeros_like(values)
    means = values.index_copy(0, rows, expected)
    spread[rows] = (known.drawn[:DEPARTURE_DRAWS] - expected).square().mean(0)
    posterior.moments = means, spread
    shares = model.probabilities_where_missing(values[rows], observed[rows], known.prediction)
    chosen = model.category_draws
    return Departures.fit(posterior.estimate, posterior.fitted, means, spread, chosen, shares)


def _curved(model: TableModel, posterior: Posterior) -> CurvedPosterior | None:
    """The posterior of curved columns, if there are any; after `_departures`."""
    if posterior.curved is None:
        posterior.curved = _fit_curved(model, posterior) or False
    return posterior.curved if isinstance(posterior.curved, CurvedPosterior) else None


def _fit_curved(model: TableModel, posterior: Posterior) -> CurvedPosterior | None:
    numeric = (~model.unordered).nonzero()[:, 0].tolist()
    given, limits = (posterior.estimate, posterior.fitted), model.open_limits
    curves = find_curves(*given, numeric, limits)
    if curves is None:
        return None
    curved = CurvedPosterior(curves, *given)
    assert posterior.moments is not None
    means, spread = posterior.moments
    values, observed = posterior.fitted.table
    # Draws that are narrow but far from the ensemble's means miss what it knows. Where most cells
    # are missing, by another column, the ensemble is far off itself, so that these count less.
    completed = posterior.estimate.conditional_means(values, observed)
    weights = torch.from_numpy(weigh_as_observed(completed.numpy(), observed.numpy()))
    weights = torch.where(model.unordered, 0.0, weights)
    errors = (curved.draw_fitted(limits) - means).square().mean(0)
    near = bool((weights * errors).sum() < WIDER**2 * (weights * spread).sum())
    return curved if near else None


def _limits_of_cells(model: TableModel, means: Tensor) -> tuple[Tensor, Tensor]:
    """Open and attained limits of cells, `(2, rows, columns)`."""
    return lift_passed(model.open_limits, means), lift_passed(model.attained_limits, means)


@dataclass(frozen=True)
class EnsembleDraws:
    """Draws and the prediction of an ensemble for some rows with missing cells."""

    values: Tensor
    observed: Tensor
    ids: Tensor
    drawn: Tensor
    prediction: Prediction

    @classmethod
    def of(
        cls,
        model: TableModel,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        known: EnsembleDraws | None = None,
    ) -> EnsembleDraws:
        """Those of some rows, which may be known."""
        if known is not None and known.is_of(values, observed, ids):
            return known
        found = model.draws_and_prediction(values, observed, DRAWS, 0, ids)
        return cls(values, observed, ids, *found)

    def is_of(self, values: Tensor, observed: Tensor, ids: Tensor) -> bool:
        """Whether they are of these rows, whose unknown values are 0."""
        pairs = (self.ids, ids), (self.observed, observed), (self.values, values)
        return all(torch.equal(*pair) for pair in pairs)


@dataclass(frozen=True)
class ParameterDraws:
    """Parameters that were drawn given some rows, and how an ensemble departs from them."""

    parameters: list[NormalModel] | list[CurvedModel]
    departures: Departures | None  # None for the linear model alone
    curves: Curves | None = None  # of curved models
    known: EnsembleDraws | None = None  # of the rows that were fitted

    @classmethod
    def of(cls, model: TableModel, posterior: Posterior, number: int, seed: int) -> ParameterDraws:
        """The first draws of a seed."""
        if not model.is_stacked:
            return cls(posterior.draw(number, seed), None)
        departures, curved = posterior.departures(model, _departures), _curved(model, posterior)
        known = cast("EnsembleDraws | None", posterior.ensemble_draws)
        if curved is None:
            return cls(posterior.draw(number, seed), departures, None, known)
        return cls(curved.draw(number, seed), departures, curved.curves, known)


class MissingCells:
    """The rows of a table with missing cells, encoded.

    Answers about a row depend on its cells and its id alone. The table has the columns of the
    model, in its order. Ids are `row_ids`, or consecutive from `first_row` on.
    """

    def __init__(
        self,
        model: TableModel,
        table: Table,
        first_row: int = 0,
        row_ids: ArrayLike | None = None,
    ) -> None:
        self.model, self.table = model, table
        values, observed = model.encode(table)  # may find cells that cannot be read
        self.missing = table.missing
        self.rows = np.flatnonzero(self.missing.any(1))
        chosen = torch.from_numpy(self.rows)
        self.values, self.observed = values[chosen], observed[chosen]
        ids = as_row_ids(model, row_ids, table.rows).cpu() + first_row
        self.ids = ids[chosen]
        self._warn_of_unfilled()
        if model.constraint_set is not None:
            model.constraint_set.check(table, first_row)

    @classmethod
    def of_rows(
        cls, model: TableModel, values: Tensor, observed: Tensor, ids: Tensor
    ) -> MissingCells:
        """Encoded rows without a table, which can be answered but not filled."""
        cells = cls.__new__(cls)
        cells.model, cells.values, cells.observed, cells.ids = model, values, observed, ids
        return cells

    def _warn_of_unfilled(self) -> None:
        """Warn once of columns whose missing cells are not filled, whatever is observed."""
        known = WARNED_OF_COLUMNS.setdefault(self.model, [])
        encoding = self.model.encoding
        reasons: dict[str, list[Label]] = {}
        for place, (label, part) in enumerate(encoding.parts.items()):
            left = part.empty or not part.fillable
            if left and label not in known and self.missing[:, place].any():
                reason = NEVER_OBSERVED if part.empty else ALL_DIFFERENT
                reasons.setdefault(reason, []).append(label)
                known.append(label)
        for reason, labels in reasons.items():
            columns, them = ("column", "it") if len(labels) == 1 else ("columns", "them")
            warnings.warn(
                f"missing values of {columns} {quote(labels)} {reason}; leave {them} out to avoid "
                "this warning",
                stacklevel=4,
            )

    @cached_property
    def tilt(self) -> Tilt | None:
        """How cells move because they are missing, as those of the fitted table were."""
        model = self.model
        if model.slopes is None or model.linear is None or not len(self.values):
            return None
        exact, slopes = ExactMeans(model.linear), model.slopes.cpu()
        rows, stacked = (self.values, self.observed), model.is_stacked
        drawn, ends = (self._draws(DRAWS, 0), model.usual_range) if stacked else (None, None)
        selection = None if model.selection is None else model.selection.cpu()
        return tilt_by_rows(exact, *rows, slopes, drawn, selection, ends)

    def moves(self, place: int) -> bool:
        """Whether a modelled column of the first row moves because it is missing."""
        return self.tilt is not None and bool(self.tilt.shift[0, place] != 0.0)

    def means(self, prediction: Prediction | None = None) -> Tensor:
        """What cells are filled with, `(rows with missing cells, modelled columns)`.

        The prediction of the model is made if it is not known.
        """
        expected = self._expected(prediction)
        return self.model.fills(self.values, self.observed, self.ids, expected)

    def _expected(self, prediction: Prediction | None) -> Prediction:
        """The prediction, made if it is not known, of cells that are missing."""
        model, table = self.model, (self.values, self.observed)
        prediction = model.predictions(*table, self.ids) if prediction is None else prediction
        if self.tilt is None:
            return prediction
        # Ranges are left by the tilt alone, not by predictions.
        start, shift = model.within_range(prediction.means), self.tilt.shift
        if self.tilt.is_exact:
            start = torch.where(shift == 0.0, start, self.tilt.centre)
        moved = (start + shift).clamp(*model.widest_range)
        moved = model.with_relations(torch.where(self.observed, self.values, moved), *table)
        return replace(prediction, means=moved)

    def estimates(self, kind: str, seed: int, prediction: Prediction | None = None) -> Tensor:
        """Means or medians, `(rows with missing cells, modelled columns)`; as of `means`."""
        if kind == "mean":
            return self.means(prediction)
        expected = self._expected(prediction)
        return self.model.medians(self.values, self.observed, expected, seed=seed, ids=self.ids)

    def draws(self, number: int, seed: int) -> Tensor:
        """Joint draws, `(number, rows with missing cells, modelled columns)`."""
        return self.within_constraints(
            lambda cells, own, copies: cells._free_draws(number * copies, own), number, seed
        )

    def _free_draws(self, number: int, seed: int) -> Tensor:
        """Draws that may break constraints."""
        return self._draws(number, seed) if self.tilt is None else self._tilted_draws(number, seed)

    def select(self, rows: Tensor) -> MissingCells:
        """Some of the rows."""
        part = copy.copy(self)
        part.__dict__.pop("tilt", None)
        part.values, part.observed, part.ids = (
            self.values[rows],
            self.observed[rows],
            self.ids[rows],
        )
        return part

    def within_constraints(
        self, draw: Callable[[MissingCells, int, int], Tensor], number: int, seed: int
    ) -> Tensor:
        """Draws of which those that break a constraint are drawn again.

        They come from a function of rows, a seed, and how many draws replace each of `number`.
        """
        drawn, known = draw(self, seed, 1), self.model.constraint_set
        if known is None:
            return drawn
        broken = known.broken(drawn, self.model.columns)
        size = max(1, NUMBERS_AT_ONCE // (number * COPIES * max(1, len(self.model.columns))))
        for rows in broken.any(0).nonzero()[:, 0].split(size):
            again = draw(self.select(rows), seed + COPY_SEEDS, COPIES)
            good = ~known.broken(again, self.model.columns).unflatten(0, (number, COPIES))
            first = good.int().argmax(1)[:, None, :, None]
            chosen = again.unflatten(0, (number, COPIES)).take_along_dim(first, 1)[:, 0]
            replaced = (broken[:, rows] & good.any(1))[..., None]
            drawn[:, rows] = torch.where(replaced, chosen, drawn[:, rows])
        return drawn

    def _draws(self, number: int, seed: int) -> Tensor:
        return self.model.draws(self.values, self.observed, number, seed, self.ids)

    def _tilted_draws(self, number: int, seed: int) -> Tensor:
        assert self.tilt is not None
        drawn = self.tilt(self._draws(number, seed))
        noise = self.model.relation_levels(number, self.ids, seed)
        drawn = self.model.with_relations(drawn, self.values, self.observed, noise)
        return self.model.at_values(drawn, self.observed)

    def proper_draws(self, drawn: ParameterDraws, seed: int) -> Tensor:
        """Joint draws, each with parameters that were drawn, `(number, rows, columns)`."""

        def draw(some: MissingCells, own: int, copies: int) -> Tensor:
            parameters = [one for one in drawn.parameters for _ in range(copies)]
            return some._proper_draws(parameters, own, drawn)

        return self.within_constraints(draw, len(drawn.parameters), seed)

    @torch.no_grad()
    def _proper_draws(self, parameters: Sequence[Any], seed: int, drawn: ParameterDraws) -> Tensor:
        """Draws that may break constraints.

        Linear relations are those of a Normal model; an ensemble adds its nonlinear departures, and
        the shape of its draws. Tables with curved columns have draws of a model with these. Up to
        nine categories are drawn first, and other cells given them.
        """
        departures, curves = drawn.departures, drawn.curves
        model, rows = self.model, (torch.where(self.observed, self.values, 0.0), self.observed)
        number, every = len(parameters), torch.arange(self.values.shape[1])
        own, chosen = (seed + 1) * PROPER_SEEDS, model.category_draws
        levels = normal(own, self.ids, torch.arange(number), 0, every)
        places = torch.tensor([at for one in chosen for at in one.places], dtype=torch.long)
        first = torch.tensor([one.places[0] for one in chosen], dtype=torch.long)
        numbers = uniform(own, self.ids, torch.arange(number), CHOOSING, first)
        if departures is not None and curves is not None:
            known_draws = drawn.known
            if known_draws is not None and known_draws.is_of(*rows, self.ids):
                prediction = known_draws.prediction
            else:
                prediction = model.predictions(*rows, self.ids)
            shares = model.probabilities_where_missing(*rows, prediction)
            moved = departures.of_categories(*rows, chosen, shares)
            further = [
                normal(own, self.ids, torch.arange(number), 1 + sweep, every)
                for sweep in range(SWEEPS)
            ]
            draws = draw_curved_entries(
                curves,
                parameters,
                *rows,
                [levels, *further],
                chosen,
                numbers,
                model.open_limits,
                moved,
            )
        elif departures is not None:
            found = EnsembleDraws.of(model, *rows, self.ids, drawn.known)
            plain, prediction = found.drawn, found.prediction
            shares = model.probabilities_where_missing(*rows, prediction)
            given, means = (parameters, *rows, levels), prediction.means
            limits = _limits_of_cells(model, means)
            draws = departures.draw(*given, means, plain, *limits, chosen, shares, numbers)
        else:
            prediction = model.predictions(*rows, self.ids)
            limits = _limits_of_cells(model, prediction.means)
            draws = draw_entries(parameters, *rows, levels, chosen, numbers, *limits)
        categories = draws[..., places]
        draws = torch.where(self.observed, self.values, draws)
        draws = draws if self.tilt is None else self.tilt(draws)
        draws[..., places] = categories
        draws = model.with_relations(draws, *rows, model.relation_levels(number, self.ids, seed))
        draws = model.within_limits(draws, prediction.means)
        known = self.observed.clone()
        known[:, places] = True
        return model.with_categories(draws, rows[0], known, prediction, self.ids, seed)

    def quantiles(self, levels: Sequence[float], seed: int) -> Tensor:
        """Quantiles, `(levels, rows with missing cells, modelled columns)`."""
        return self._quantiles_and_prediction(levels, seed)[0]

    def _quantiles_and_prediction(
        self, levels: Sequence[float], seed: int
    ) -> tuple[Tensor, Prediction | None]:
        """Quantiles, and the model's prediction if it was made for them."""
        model, table, prediction = self.model, (self.values, self.observed), None
        if self.tilt is None:
            return model.quantiles_and_prediction(*table, levels, seed=seed, ids=self.ids)
        if not model.is_stacked:
            ends, prediction = model.quantiles_and_prediction(
                *table, levels, seed=seed, ids=self.ids
            )
            ends = self.tilt(ends)
        else:
            drawn = self._tilted_draws(DRAWS, seed).numpy()
            ends = torch.from_numpy(quantiles_of_draws(drawn, levels))
        ends = torch.where(model.unordered, self.means(prediction), ends)
        return model.quantiles_with_relations(ends, levels, *table), prediction

    def intervals(self, level: float, seed: int, estimate: str = "mean", own: int = 0) -> Tensor:
        """Ends of central intervals, which contain the estimates, `(2, rows, columns)`.

        Estimates are those of `estimates`, with the seed `own`. They may lie outside of central
        intervals where they stop at the observed range and draws do not, at means of skewed draws,
        and at those of the few values of a column.
        """
        ends, prediction = self._quantiles_and_prediction(central_levels(level), seed)
        filled = self.estimates(estimate, own, prediction)
        wider = torch.stack([ends[0].minimum(filled), ends[1].maximum(filled)])
        for at, values in self.model.few_valued.items():
            for side in range(2):
                wider[side, :, at] = outer_values(wider[side, :, at], torch.tensor(values), side)
        return torch.where(self.model.unordered | self.observed, ends, wider)

    @property
    def numeric(self) -> Tensor:
        """1 at missing entries of columns of numbers, else 0."""
        return (~self.observed & ~self.model.unordered).double()

    def shifted_means(
        self, matrices: Tensor, shifts: Sequence[float]
    ) -> tuple[tuple[Label, ...], Array, Array, Array, Array]:
        """Columns, means of estimates and interval ends of missing cells, and of whole columns.

        The matrices are the estimates and the ends; results are by shift and column.
        """
        encoding, places = self.model.encoding, np.flatnonzero(self.missing.any(0))
        parts = [
            (place, label, encoding.parts[label]) for place, label in enumerate(encoding.parts)
        ]
        chosen = [
            (place, label, part)
            for place, label, part in parts
            if place in places and isinstance(part, NumericEncoding) and part.clock is None
            and label not in encoding.idle
        ]  # fmt: skip
        if not chosen:
            raise ValueError("the table has no missing numbers, so nothing can be shifted")
        result = np.empty((4, len(shifts), len(chosen)))
        for row, shift in enumerate(shifts):
            whole = self.model.spread_out(matrices + shift * self.numeric)
            for column, (place, label, part) in enumerate(chosen):
                absent = self.missing[self.rows, place]
                cells = whole[:, absent][..., encoding.sections[label]]
                moved = part.numbers(cells.reshape(-1, cells.shape[-1])).reshape(3, -1)
                known = self.table.column(place)
                total = known.values[~known.missing].astype(float).sum() + moved[0].sum()
                result[:3, row, column] = moved.mean(1)
                result[3, row, column] = total / self.table.rows
        return tuple(label for _, label, _ in chosen), *result

    def fill(self, matrix: Tensor, *, are_ends: bool = False) -> Any:
        """The whole table, its missing cells filled from a matrix of the rows that have some.

        They satisfy the constraints; ends of intervals do so as far as they can.
        """
        encoding, known = self.model.encoding, self.model.constraint_set
        # By column, as cells are decoded, and in blocks that fit into a cache.
        whole = np.zeros((encoding.width, self.table.rows))
        columns = np.array(self.model.columns, dtype=np.intp)  # there may be none
        for start in range(0, len(self.rows), BLOCK):
            some = slice(start, start + BLOCK)
            whole[columns[:, None], self.rows[some]] = matrix[some].numpy().T
        fills = encoding.decode_cells(whole.T, self.table)
        if known is not None:
            fills = known.enforce(fills, self.table, are_ends=are_ends)
        return self.table.replace_cells(fills)
