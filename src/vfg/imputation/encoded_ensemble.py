"""The ensemble over the encoded columns of a table: rows in; means, draws and quantiles out."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian.conditional_means import ExactMeans
from vfg.imputation.categories import (
    CategoryColumn,
    SecondStage,
    Section,
    category_columns,
    choose_sets,
)
from vfg.imputation.ensemble import DRAWS, Ensemble, Prediction, quantiles_of_draws
from vfg.imputation.limits import lift_passed
from vfg.imputation.medians import average_candidates, likely_medians
from vfg.imputation.parameter_draws import CategoryDraw
from vfg.imputation.relations import EXACT
from vfg.inputs import Name
from vfg.tables.categorical import CategoricalEncoding
from vfg.tables.cells import Array, Label, Mask
from vfg.tables.encoding import Arrays, Encoding
from vfg.tables.frames import Table, open_table
from vfg.tables.numeric import NumericEncoding, nearest_values
from vfg.tables.schema import distinct
from vfg.utils.linalg import mean_in_order
from vfg.utils.random import uniform

CHOOSING = 2**20
"""The node of random numbers that choose categories; above all nodes of the parts."""
ROWS_AT_ONCE = 8192
"""Rows that are answered together: enough to be fast, few enough to bound memory."""
MEDIAN_DRAWS = 240
"""Draws whose median is taken. On six tables of the benchmark 60 have 1.0 % more absolute error and
960 have 0.4 % less; 240 take 1.3 to 1.8 times as long as 60."""
ROWS_OF_DRAWS = 1024
"""Rows that are drawn together where every row has many draws, which bounds memory."""
WARNED_OF_CATEGORIES: weakref.WeakKeyDictionary[Any, set[Label]] = weakref.WeakKeyDictionary()
"""By model the columns with new categories of which a warning was given."""


class EncodedEnsemble(Ensemble):
    """An ensemble, and how the columns of a table become the columns of its matrices.

    The encoding tells which columns are categories or have few values, and the ranges of numbers.
    Matrices hold the columns that vary and are on the CPU, wherever the parts compute.
    """

    cached = (
        *Ensemble.cached, "encoding", "unordered", "category_sections", "priors", "limits",
        "open_limits", "attained_limits", "usual_range", "widest_range", "has_soft_limits",
        "few_valued",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[int] = []
        self.described: dict[str, Any] | None = None
        self.arrays = Arrays({})

    def set_encoding(self, encoding: Encoding) -> None:
        """Replace the encoding; what followed from another one must be forgotten already."""
        self.described, self.arrays = encoding.to_dict(), Arrays.of(encoding.state())
        self.__dict__["encoding"] = encoding  # need not be read from its description

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted."""
        return self.described is not None

    @cached_property
    def encoding(self) -> Encoding:
        """How the table becomes a matrix of real numbers."""
        if self.described is None:
            raise ValueError("this TableModel is not fitted; fit it with vfg.fit(model, table)")
        return Encoding.from_dict(self.described, self.arrays.read())

    def encode(self, table: Any) -> tuple[Tensor, Tensor]:
        """The modelled columns of a table's matrix, and which entries are evidence.

        Warns once of columns with categories that did not occur in fitting.
        """
        opened = open_table(table, self.encoding.missing_values)
        values, observed = self.encoding.evidence(opened, self.columns)
        self._warn_of_new_categories(opened, observed)
        return values, observed

    def _warn_of_new_categories(self, table: Table, observed: Tensor) -> None:
        warned = WARNED_OF_CATEGORIES.setdefault(self, set())
        schema = self.encoding.schema
        position = {label: place for place, label in enumerate(schema)}
        for label, column in self.category_sections.items():
            cells = table.column(position[label])
            unknown = ~cells.missing & ~observed[:, column.places[0]].numpy()
            if label in warned or not unknown.any():
                continue
            # Rows that a model was fitted to may have been drawn from a table with more categories.
            known = set(getattr(schema[label], "categories", None) or ())
            new = [cell for cell in distinct(cells.values[unknown]) if cell not in known]
            if new:
                warned.add(label)
                warnings.warn(
                    f"the column {label!r} holds categories that did not occur in fitting, such as "
                    f"{new[0]!r}; these cells stay as they are, and nothing is inferred from them",
                    stacklevel=2,
                )

    def fitted_matrix(
        self, table: Table, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same of rows that were fitted, whose code points do not come from their own row.

        Returned are also the weights of the rows of the matrix; see `Encoding.weighted_matrix`.
        """
        often = None if weights is None else weights.numpy()
        values, observed, _, own = self.encoding.weighted_matrix(table, often)
        return values[:, self.columns], observed[:, self.columns], own

    def spread_out(self, values: Tensor) -> Array:
        """A matrix of all columns from one `(..., modelled columns)`."""
        whole = np.zeros((*values.shape[:-1], self.encoding.width))
        whole[..., self.columns] = values.numpy()
        return whole

    def means(self, values: Tensor, observed: Tensor, ids: Tensor | None = None) -> Tensor:
        """Stacked means of every entry, `(rows, columns)`; `ids` default to positions."""
        return self.predictions(values, observed, ids).means

    @torch.no_grad()
    def predictions(
        self, values: Tensor, observed: Tensor, ids: Tensor | None = None
    ) -> Prediction:
        """Stacked means and votes; arguments as of `means`."""
        if self.linear is None or not len(values):
            return Prediction(torch.zeros(values.shape, dtype=torch.float64))
        chunks = self._chunks(values, observed, ids)
        return Prediction.concat([self.joint_means(*chunk).cpu() for chunk in chunks])

    @torch.no_grad()
    def point_estimates(self, values: Tensor, observed: Tensor, prediction: Prediction) -> Tensor:
        """What cells are filled with: means, and code points of the most probable categories."""
        estimates = prediction.means.clone()
        for label, column in self.category_sections.items():
            rows = (~observed[:, column.places].any(1)).nonzero()[:, 0]
            if len(rows) and isinstance(column.part, CategoricalEncoding):
                section = self.category_section(
                    label, values[rows], observed[rows], prediction.select(rows)
                )
                chosen = torch.from_numpy(section.most_probable)
                estimates[rows[:, None], torch.tensor(column.places)] = chosen
        return estimates

    def fills(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor | None = None,
        prediction: Prediction | None = None,
    ) -> Tensor:
        """What tables are filled with: point estimates, or the nearest values of columns.

        The prediction is made if it is not known.
        """
        known = self.predictions(values, observed, ids) if prediction is None else prediction
        estimates = self.point_estimates(values, observed, known)
        return self.at_values(estimates, observed, fills=True)

    @cached_property
    def few_valued(self) -> dict[int, Array]:
        """The values, standardised, of few-valued columns by their places among the modelled.

        Columns of relations between three or more numbers are left out, since sums of values need
        not be values.
        """
        few = self.encoding.few_valued(self.columns)
        if self.relations is None:
            return few
        nonzero = self.relations[:, :-1].abs() > EXACT
        of_numbers = ~(nonzero & self.unordered.to(nonzero.device)).any(1) & (nonzero.sum(1) > 2)
        involved = nonzero[of_numbers].any(0).tolist()
        return {at: values for at, values in few.items() if not involved[at]}

    def at_values(self, table: Tensor, observed: Tensor, *, fills: bool = False) -> Tensor:
        """Entries `(..., rows, columns)` with the nearest values in few-valued columns.

        As `fills`, only in those whose cells are filled with values.
        """
        chosen = self.few_valued
        if fills:
            owner = {self.encoding.sections[k].start: p for k, p in self.encoding.parts.items()}
            chosen = {
                at: values
                for at, values in chosen.items()
                if getattr(owner[self.columns[at]], "fills_values", False)
            }
        if not chosen:
            return table
        moved = table.clone()
        for at, values in chosen.items():
            nearest = nearest_values(table[..., at].numpy(), values)
            moved[..., at] = torch.where(observed[:, at], table[..., at], torch.from_numpy(nearest))
        return moved

    def _chunks(
        self, values: Tensor, observed: Tensor, ids: Tensor | None
    ) -> Iterator[tuple[Tensor, ...]]:
        """Rows that are answered together, on the device of the model."""
        parts = values, observed, torch.arange(len(values)) if ids is None else ids
        for some in zip(*(part.split(ROWS_AT_ONCE) for part in parts), strict=True):
            yield tuple(part.to(self.weights.device) for part in some)

    def draws(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        seed: int,
        ids: Tensor | None = None,
        *,
        categories: bool = True,
    ) -> Tensor:
        """Joint draws of what is not observed given what is, `(number, rows, columns)`.

        Sections of categories are code points, unless `categories` is False.
        """
        drawn, prediction = self.draws_and_prediction(values, observed, number, seed, ids)
        if not categories or self.linear is None or not len(values):
            return drawn
        ids = torch.arange(len(values)) if ids is None else ids
        return self.with_categories(drawn, values, observed, prediction, ids, seed)

    @torch.no_grad()
    def draws_and_prediction(
        self, values: Tensor, observed: Tensor, number: int, seed: int, ids: Tensor | None = None
    ) -> tuple[Tensor, Prediction]:
        """Draws without categories, and what `predictions` returns; arguments as of `draws`."""
        if self.linear is None or not len(values):
            nothing = torch.zeros(number, *values.shape, dtype=torch.float64)
            return nothing, self.predictions(values, observed, ids)
        chunks = self._chunks(values, observed, ids)
        drawn, predicted = zip(
            *(self.joint_draws(x, seen, at, number, seed) for x, seen, at in chunks), strict=True
        )
        whole = Prediction.concat([one.cpu() for one in predicted])
        return torch.cat([one.cpu() for one in drawn], dim=1), whole

    @cached_property
    def category_sections(self) -> dict[Label, CategoryColumn]:
        """The columns of categories, by label."""
        return category_columns(self.encoding, self.columns)

    @torch.no_grad()
    def with_categories(
        self,
        draws: Tensor,
        values: Tensor,
        observed: Tensor,
        prediction: Prediction,
        ids: Tensor,
        seed: int,
    ) -> Tensor:
        """Draws `(number, rows, columns)` of code points, and of values of few-valued columns."""
        drawn = self.at_values(draws, observed).numpy().copy()
        for label, column in self.category_sections.items():
            rows = np.flatnonzero(~observed[:, column.places].any(1).numpy())
            if not len(rows):
                continue
            some = values[rows], observed[rows], prediction.select(rows)
            expected = self.category_section(label, *some, drawing=True)
            every, first = torch.arange(len(drawn)), torch.tensor(column.places[:1])
            numbers = uniform(seed, ids[rows], every, CHOOSING, first)
            section = np.ix_(every.numpy(), rows, np.array(column.places))
            drawn[section] = expected.choose(drawn[section], numbers[..., 0].numpy())
        return torch.from_numpy(drawn)

    def category_section(
        self,
        label: Label,
        values: Tensor,
        observed: Tensor,
        prediction: Prediction,
        *,
        drawing: bool = False,
        prior: bool = True,
    ) -> Section:
        """What is expected in the section of a column of categories.

        `drawing` computes the covariances that draws need; `prior` compares with no evidence.
        """
        column = self.category_sections[label]
        means = prediction.means[:, column.places].numpy()
        covariances = None
        if drawing or not column.part.is_simplex:
            assert self.linear is not None
            names: list[Name] = list(self.linear.variables)
            chosen = [names[place] for place in column.places]
            answer = self.linear.infer(values, chosen, observed=observed)
            covariances = answer.covariance(chosen).cpu().numpy()
        place = list(self.category_sections).index(label)
        votes, weights = None, (1.0, 0.0)
        if self.pooling is not None and prediction.votes is not None:
            sizes = [len(own.part.categories) for own in self.category_sections.values()]
            votes = prediction.votes.split(sizes, dim=1)[place].numpy()
            first, second = self.pooling[place].tolist()
            weights = first, second
        second = self._second_stage(place, prediction)
        needed = prior and (covariances is not None or votes is not None)
        start = self.priors[label] if needed else None
        return Section(column, means, covariances, start, votes, weights, second=second)

    def _second_stage(self, place: int, prediction: Prediction) -> SecondStage | None:
        """What trees and regressions predict for a column of categories."""
        forest = self.forest
        if forest is None or prediction.trees is None or place not in forest.categories:
            return None
        assert prediction.trust is not None
        shares = prediction.trees.split(forest.sizes, dim=1)[place].numpy()
        regression = None
        if prediction.regressions is not None and place in forest.regressed:
            regression = prediction.regressions.split(forest.sizes, dim=1)[place].numpy()
        weights = tuple(forest.class_weights[place].reshape(-1).tolist())
        return SecondStage(shares, prediction.trust.numpy(), weights, regression)

    def category_sets(self, label: Label, probabilities: Array, level: float) -> Mask:
        """Which categories are in the sets of a level, `(rows, categories)`.

        Args:
            label: of a column of categories.
            probabilities: of its categories, `(rows, categories)`.
            level: the share of cells whose category is in its set.
        """
        place = list(self.category_sections).index(label)
        thresholds = (
            None if self.set_thresholds is None else self.set_thresholds[place].cpu().numpy()
        )
        return choose_sets(probabilities, level, thresholds)

    @property
    def category_draws(self) -> list[CategoryDraw]:
        """The columns of two to nine categories, as a Normal model draws them."""
        return [
            CategoryDraw(
                list(column.places),
                torch.from_numpy(column.part.points),
                torch.from_numpy(column.part.counts / column.part.counts.sum()),
            )
            for column in self.category_sections.values()
            if column.part.is_simplex
        ]

    def probabilities_where_missing(
        self, values: Tensor, observed: Tensor, prediction: Prediction
    ) -> list[Tensor]:
        """Those of the columns of `category_draws`, `(rows where it is missing, categories)`."""
        found = []
        labels = [k for k, column in self.category_sections.items() if column.part.is_simplex]
        for label, column in zip(labels, self.category_draws, strict=True):
            rows = column.missing_rows(observed)
            some = values[rows], observed[rows], prediction.select(rows)
            found.append(torch.from_numpy(self.category_section(label, *some).probabilities))
        return found

    @cached_property
    def priors(self) -> dict[Label, Section]:
        """What is expected in the sections of categories without evidence, by label."""
        nothing = torch.zeros(1, len(self.columns), dtype=torch.float64)
        observed = torch.zeros_like(nothing, dtype=torch.bool)
        row = nothing, observed, self.predictions(nothing, observed)
        return {
            label: self.category_section(label, *row, drawing=True, prior=False)
            for label in self.category_sections
        }

    def quantiles(
        self,
        values: Tensor,
        observed: Tensor,
        levels: Sequence[float],
        *,
        seed: int,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Quantiles of every entry, `(levels, rows, columns)`; the most probable of categories."""
        return self.quantiles_and_prediction(values, observed, levels, seed=seed, ids=ids)[0]

    def quantiles_and_prediction(
        self,
        values: Tensor,
        observed: Tensor,
        levels: Sequence[float],
        *,
        seed: int,
        ids: Tensor | None = None,
    ) -> tuple[Tensor, Prediction]:
        """Quantiles, and what `predictions` returns; arguments as of `quantiles`."""
        ids = torch.arange(len(values)) if ids is None else ids
        alone = self.linear is not None and not self.is_stacked
        normal = self.linear_means if alone else None
        if isinstance(normal, ExactMeans):
            prediction = self.predictions(values, observed, ids)
            spread = torch.where(self.unordered, 0.0, normal.deviations(values, observed))
            spread = self.deviations_with_relations(spread, observed)
            steps = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))[:, None, None]
            centre = self.with_relations(normal(values, observed), values, observed)
            quantiles = self.within_limits(centre + steps * spread, prediction.means)
        else:
            quantiles = values.double().repeat(len(levels), 1, 1)
            predicted = []
            for rows in torch.arange(len(values)).split(ROWS_OF_DRAWS):
                part = values[rows], observed[rows]
                drawn, own = self.draws_and_prediction(*part, DRAWS, seed, ids[rows])
                row, column = (~part[1]).nonzero().unbind(1)
                found = quantiles_of_draws(drawn[:, row, column].numpy(), levels)
                quantiles[:, rows[row], column] = torch.from_numpy(found)
                predicted.append(own)
            prediction = Prediction.concat(predicted)
        quantiles = self._with_categories(quantiles, values, observed, prediction)
        quantiles = self.at_values(quantiles, observed)
        ends = self.quantiles_with_relations(quantiles, levels, values, observed)
        return ends, prediction

    def _with_categories(
        self, ends: Tensor, values: Tensor, observed: Tensor, prediction: Prediction
    ) -> Tensor:
        """Quantiles with the most probable category in columns without order."""
        if not bool(self.unordered.any()):
            return ends
        estimates = self.point_estimates(values, observed, prediction)
        return torch.where(self.unordered, estimates, ends)

    @torch.no_grad()
    def medians(
        self,
        values: Tensor,
        observed: Tensor,
        prediction: Prediction,
        *,
        seed: int,
        ids: Tensor,
    ) -> Tensor:
        """Medians of every entry, `(rows, columns)`; categories are the most probable ones.

        Models of earlier versions, and those without row mixtures, have medians by draws alone.
        """
        estimates = self.fills(values, observed, ids, prediction)
        if self.linear is None or not self.is_stacked:
            # Means of Normal variables are their medians.
            return self.at_values(estimates, observed)
        medians = estimates.clone()
        for rows in torch.arange(len(values)).split(ROWS_OF_DRAWS):
            part = values[rows], observed[rows]
            steps = self._skewness_of_draws(*part, seed, ids[rows])
            moved = estimates[rows] + steps
            if self.median_weights is not None:
                means = prediction.means[rows]
                moved = self._likely_medians(*part, ids[rows], torch.stack([means, means + steps]))
            moved = self._within_reach(moved, estimates[rows])
            moved = self.with_relations(moved, *part)
            medians[rows] = torch.where(self.unordered | part[1], estimates[rows], moved)
        return self.at_values(medians, observed)

    def _skewness_of_draws(
        self, values: Tensor, observed: Tensor, seed: int, ids: Tensor
    ) -> Tensor:
        r"""From means of draws to their medians, `(rows, columns)`.

        The median of a cell is estimated by $\hat\mu + m - \bar x$ for the mean $\hat\mu$ of the
        ensemble and the median m and mean $\bar x$ of n draws. The variance of $m - \bar x$ is
        0.57 / n of that of Normal draws, and that of m is 1.57 / n.
        """
        drawn = self.draws(values, observed, MEDIAN_DRAWS, seed, ids, categories=False)
        return torch.from_numpy(np.median(drawn.numpy(), axis=0)) - mean_in_order(drawn)

    def _likely_medians(
        self, values: Tensor, observed: Tensor, ids: Tensor, centres: Tensor
    ) -> Tensor:
        """Medians near `centres` by the values of similar rows; see `medians`."""
        device, weights = self.weights.device, self.median_weights
        assert weights is not None
        rows = values.to(device), observed.to(device), ids.to(device)
        wanted = ~rows[1] & ~self.unordered.to(device)
        mixture = self.row_mixture_models[0]
        candidates = likely_medians(mixture, rows, wanted, centres.to(device), weights[0])
        return average_candidates(candidates, weights).cpu()

    def _within_reach(self, medians: Tensor, means: Tensor) -> Tensor:
        """Medians within the range of means, or as far beyond it as these are."""
        low, high = self.usual_range
        return medians.maximum(torch.minimum(means, low)).minimum(torch.maximum(means, high))

    @cached_property
    def limits(self) -> Tensor:
        """The least and the greatest value of draws, `(2, columns)`, if means are not beyond."""
        return self._ends("drawn_least", "drawn_greatest")

    @cached_property
    def has_soft_limits(self) -> bool:
        """Whether cells of some column may be expected beyond the limits of draws."""
        return bool((self.limits != self._ends("least", "greatest")).any())

    def within_limits(self, draws: Tensor, means: Tensor) -> Tensor:
        if not self.has_soft_limits:
            return draws  # whose limits are those of decoding
        low, high = lift_passed(self.limits.to(draws.device), means)
        return draws.maximum(low).minimum(high)

    @cached_property
    def open_limits(self) -> Tensor:
        """The same where it is 0 or a bound, the only one of its column, and no cell attains it."""
        ends, reached, bounds = self.limits, self._ends("lowest", "highest"), self.usual_range
        zero = self._ends("zero", "zero")
        is_open = ends.isfinite() & (ends != reached) & ((ends == zero) | (ends == bounds))
        is_open &= ~ends.isfinite().all(0)
        is_open[:, list(self.few_valued)] = False
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=ends.dtype)
        return torch.where(is_open, ends, infinite)

    @cached_property
    def attained_limits(self) -> Tensor:
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=self.limits.dtype)
        return torch.where(self.open_limits.isfinite(), infinite, self.limits)

    @cached_property
    def usual_range(self) -> Tensor:
        """The least and the greatest value that means have, relations aside, `(2, columns)`."""
        return self._ends("floor", "ceiling")

    @cached_property
    def widest_range(self) -> Tensor:
        """The same of cells missing by their value, and of rows unlike the fitted ones."""
        ends = self._ends("low_reach", "high_reach")
        low, high = torch.where(ends.isinf(), self.usual_range, ends)
        # Ranges that were widened later may contain these.
        return torch.stack([low.minimum(self.usual_range[0]), high.maximum(self.usual_range[1])])

    def within_range(self, means: Tensor) -> Tensor:
        return means.clamp(*self.usual_range.to(means.device))

    def within_widest_range(self, means: Tensor) -> Tensor:
        return means.clamp(*self.widest_range.to(means.device))

    def _ends(self, *names: str) -> Tensor:
        """Two attributes of every column of numbers, standardised, `(2, columns)`."""
        none = -np.inf, np.inf
        ends = torch.tensor(none, dtype=torch.float64)[:, None].repeat(1, self.encoding.width)
        for label, part in self.encoding.parts.items():
            if isinstance(part, NumericEncoding) and not (part.empty or part.constant):
                own = [getattr(part, name) for name in names]
                own = [other if end is None else end for end, other in zip(own, none, strict=True)]
                both = torch.from_numpy(part.standardise(np.array(own)))
                ends[:, self.encoding.sections[label].start] = both
        return ends[:, self.columns]

    @cached_property
    def unordered(self) -> Tensor:
        """Which modelled columns belong to code points, which have no order."""
        return self.encoding.unordered[self.columns]
