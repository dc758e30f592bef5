"""What filling a table computes, as torch modules of plain operations that can be exported.

Rows are cells as numbers, NaN where missing. Every operation exists in ONNX for float64: small
systems are solved by unrolled elimination, searches in sorted knots are unrolled too, and what
linear relations give is looked up by mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from vfg.gaussian import GaussianVFG
from vfg.gaussian.parameters import factors_of
from vfg.imputation.categories import LEAST_VARIANCE, CategoryColumn, Section
from vfg.imputation.relations import EXACT, Relations, fill_determined, follow_relations
from vfg.imputation.table_model import TableModel
from vfg.tables.categorical import (
    RAREST,
    CategoricalEncoding,
    IdentifierEncoding,
    OrdinalEncoding,
    simplex_weights,
)
from vfg.tables.cells import Array, ColumnEncoding
from vfg.tables.numeric import SAME, NumericEncoding
from vfg.utils.linalg import invert

MOST_RELATED = 10
"""Columns with linear relations that are exported: what follows is stored for each of the 2^n ways
in which n of them are missing."""


def count_below(numbers: Tensor, sorted_values: Tensor) -> Tensor:
    """How many of a column's sorted values lie below each number `(rows, columns)`."""
    return (sorted_values < numbers[..., None]).sum(-1)


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


class Scatter(nn.Module):
    """Puts entries `(rows, n)` in place of some columns of a table `(rows, columns)`."""

    def __init__(self, places: Sequence[int], columns: int) -> None:
        super().__init__()
        self.places = list(places)
        if not self.places:
            return  # and it is never called: torch cannot save empty tensors
        where = torch.zeros(len(places), columns, dtype=torch.float64)
        where[range(len(places)), self.places] = 1.0
        self.register_buffer("where", where)
        self.register_buffer("replaced", where.any(0))

    def forward(self, table: Tensor, entries: Tensor) -> Tensor:
        return torch.where(self.get_buffer("replaced"), entries @ self.get_buffer("where"), table)


class Encoder(nn.Module):
    """Cells `(rows, columns of the table)` to a matrix of standardised numbers and its mask."""

    def __init__(self, model: TableModel, units: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        encoding = model.encoding
        self.numbers: list[int] = []
        self.categories: list[int] = []
        scales, columns, of_categories = [], list[int](), list[int]()
        for place, (label, part) in enumerate(encoding.parts.items()):
            if label in encoding.idle:
                continue
            if isinstance(part, NumericEncoding):
                step, origin = units[place]
                # Ticks since the origin are cells times the step less the origin.
                scales.append([(part.centre + origin) / step, part.deviation / step, part.furthest])
                self.numbers.append(place)
                columns += encoding.places(label)
            else:
                assert isinstance(part, CategoricalEncoding | OrdinalEncoding)
                points = np.concatenate([part.points, np.zeros((1, part.width))])
                self.register_buffer(f"points_{place}", _tensor(points))
                self.categories.append(place)
                of_categories += encoding.places(label)
        if scales:
            self.register_buffer("scales", _tensor(scales).T.contiguous())
        order = [(columns + of_categories).index(k) for k in model.columns]
        if order:
            self.register_buffer("order", torch.tensor(order))

    def forward(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        values, observed = [], []
        if self.numbers:
            centre, deviation, furthest = self.get_buffer("scales").unbind(0)
            own = cells[:, self.numbers]
            standard = torch.clamp((own - centre) / deviation, -furthest, furthest)
            values.append(torch.where(own.isnan(), 0.0, standard))
            observed.append(~own.isnan())
        for place in self.categories:
            points, own = self.get_buffer(f"points_{place}"), cells[:, place]
            known = len(points) - 1
            is_known = (own >= 0.0) & (own < known)
            values.append(points[torch.where(is_known, own, float(known)).long()])
            observed.append(is_known[:, None].expand(-1, points.shape[1]))
        order = self.get_buffer("order")
        return torch.cat(values, dim=1)[:, order], torch.cat(observed, dim=1)[:, order]


class LinearMixture(nn.Module):
    r"""A linear model or a mixture of such models, for any mask.

    A component is $u = L e + b + s \varepsilon$, and the innovations given the observed columns
    have the precision $P = I + L^\top \mathrm{diag}(o / s^2) L$.
    """

    log_weights: Tensor
    loadings: Tensor
    offsets: Tensor
    variances: Tensor
    products: Tensor
    location: Tensor
    scale: Tensor

    def __init__(self, model: GaussianVFG) -> None:
        super().__init__()
        with torch.no_grad():
            values = factors_of(model.structure, model.linear.values())
        log_weights, loadings, offsets, scales = (part.detach().cpu().double() for part in values)
        self.register_buffer("log_weights", log_weights)
        self.register_buffer("loadings", loadings.contiguous())
        self.register_buffer("offsets", offsets.contiguous())
        self.register_buffer("variances", scales.square())
        products = loadings[..., :, None] * loadings[..., None, :]
        self.register_buffer("products", products.flatten(2).contiguous())
        for name in ("location", "scale"):
            self.register_buffer(name, getattr(model.scaling, name).detach().cpu().double())

    def forward(self, values: Tensor, observed: Tensor) -> ComponentPosterior:
        known = observed.to(values.dtype)[:, None]
        residual = (((values - self.location) / self.scale)[:, None] - self.offsets) * known
        weights = known / self.variances
        width = self.loadings.shape[2]
        # Sums over columns as products of matrices with the components as a batch.
        summed = (weights.transpose(0, 1) @ self.products).transpose(0, 1)
        precision = torch.eye(width, dtype=values.dtype) + summed.unflatten(-1, (width, width))
        covariance, log_volume = invert(precision)
        ratio = residual / self.variances
        information = (ratio.transpose(0, 1) @ self.loadings).transpose(0, 1)
        mean = (covariance @ information[..., None])[..., 0]
        distance = (residual * ratio).sum(-1) - (information * mean).sum(-1)
        log_volume = log_volume + (known * self.variances.log()).sum(-1)
        return ComponentPosterior(
            mean, covariance, self.log_weights - 0.5 * (distance + log_volume)
        )

    def means(self, posterior: ComponentPosterior) -> Tensor:
        """Means of every entry by component, `(rows, components, columns)`."""
        images = (posterior.mean.transpose(0, 1) @ self.loadings.mT).transpose(0, 1)
        return (images + self.offsets) * self.scale + self.location

    # Of a linear model alone, the first component.

    def deviations(self, posterior: ComponentPosterior) -> Tensor:
        """Standard deviations of every entry as if it were missing, `(rows, columns)`."""
        spread = posterior.covariance[:, 0].flatten(1) @ self.products[0].T
        return (self.variances[0] + spread).sqrt() * self.scale

    def times_covariance(
        self, posterior: ComponentPosterior, observed: Tensor, vectors: Tensor
    ) -> Tensor:
        """Covariances of missing entries times vectors `(rows, columns)`, 0 at known entries."""
        pulls = torch.where(observed, 0.0, vectors * self.scale)
        inner = posterior.covariance[:, 0] @ (pulls @ self.loadings[0])[..., None]
        moved = self.variances[0] * pulls + inner[..., 0] @ self.loadings[0].T
        return torch.where(observed, 0.0, moved * self.scale)

    def section_covariance(self, posterior: ComponentPosterior, places: Sequence[int]) -> Tensor:
        """Covariances of some entries as if they were missing, `(rows, places, places)`."""
        rows, scale = self.loadings[0][places], self.scale[places]
        inner = rows @ posterior.covariance[:, 0] @ rows.T
        return (inner + self.variances[0][places].diag()) * (scale[:, None] * scale)


class ComponentPosterior(NamedTuple):
    """What is known of the innovations of the components of a row."""

    mean: Tensor  # (rows, components, innovations)
    covariance: Tensor  # (rows, components, innovations, innovations)
    scores: Tensor  # logarithms of weights times densities but for a constant, (rows, components)


class LinearRelations(nn.Module):
    """Linear relations of columns: what follows from them is looked up by mask."""

    powers: Tensor

    def __init__(self, coefficients: Tensor, noise: Tensor | None) -> None:
        super().__init__()
        known = torch.zeros(len(coefficients), dtype=torch.float64) if noise is None else noise
        relations = Relations(coefficients.detach().cpu(), known.detach().cpu())
        self.places = related_columns(coefficients)
        self.scatter = Scatter(self.places, coefficients.shape[1] - 1)
        number = len(self.places)
        masks = (torch.arange(2**number)[:, None] >> torch.arange(number)) % 2 == 0
        self.register_buffer("powers", 2.0 ** torch.arange(number, dtype=torch.float64))
        small = Relations(relations.coefficients[:, [*self.places, -1]], relations.noise)
        # Files of earlier versions have exact relations alone, which only determine entries.
        moved = [_mean_map(small, mask, follow=noise is not None) for mask in masks]
        exact = small.select(small.noise == 0.0)
        fixed = [_exact_map(exact, mask) for mask in masks]
        spread = [_spread_map(small, mask, noise is not None) for mask in masks]
        for name, maps in (("moved", moved), ("fixed", fixed), ("spread", spread)):
            self.register_buffer(name, torch.stack(maps))

    def forward(self, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The affine maps of rows by their masks: means, determined entries, variances."""
        missing = (~observed[:, self.places]).to(self.powers.dtype)
        index = (missing * self.powers).sum(1).long()
        maps = (self.get_buffer(name)[index] for name in ("moved", "fixed", "spread"))
        moved, fixed, spread = maps
        return moved, fixed, spread

    def follow(self, table: Tensor, values: Tensor, observed: Tensor) -> Tensor:
        """Means moved to the relations; exact where they follow from the evidence."""
        moved, fixed, _ = self(observed)
        table = cast(Tensor, self.scatter(table, _apply(moved, table[:, self.places])))
        exact, determined = self._fill_determined(fixed, values, observed)
        return torch.where(determined, exact, table)

    def narrow(self, deviations: Tensor, observed: Tensor) -> Tensor:
        """Deviations that are smaller where relations hold."""
        own = deviations[:, self.places]
        less = _apply(self(observed)[2], own.square()).sqrt()
        return cast(Tensor, self.scatter(deviations, torch.minimum(less, own)))

    def pin(self, ends: Tensor, side: float, values: Tensor, observed: Tensor) -> Tensor:
        """Ends of intervals next to entries that follow from the evidence."""
        exact, determined = self._fill_determined(self(observed)[1], values, observed)
        return torch.where(determined, exact + EXACT * side, ends)

    def _fill_determined(
        self, fixed: Tensor, values: Tensor, observed: Tensor
    ) -> tuple[Tensor, Tensor]:
        own = torch.where(observed, values, 0.0)[:, self.places]
        exact = self.scatter(values, _apply(fixed[:, :, :-1], own))
        marks = self.scatter(torch.zeros_like(values), fixed[:, :, -1])
        return exact, marks > 0.5


def related_columns(coefficients: Tensor) -> list[int]:
    """The columns that relations involve."""
    places: list[int] = (coefficients[:, :-1].abs() > EXACT).any(0).nonzero()[:, 0].tolist()
    return places


def _apply(maps: Tensor, table: Tensor) -> Tensor:
    """Affine maps `(rows, n, n + 1)` of rows `(rows, n)`."""
    return (maps[:, :, :-1] @ table[..., None])[..., 0] + maps[:, :, -1]


def _affine_of(function: Any, number: int) -> Tensor:
    """The matrix `(n, n + 1)` of an affine function of rows `(rows, n)`."""
    zero = torch.zeros(1, number, dtype=torch.float64)
    start = function(zero)
    steps = function(torch.eye(number, dtype=torch.float64)) - start
    return torch.cat([steps.T, start.T], dim=1)


def _mean_map(relations: Relations, mask: Tensor, *, follow: bool) -> Tensor:
    """How means move to relations, an affine map `(n, n + 1)`."""
    number = len(mask)

    def move(table: Tensor) -> Tensor:
        seen = mask.expand(len(table), number)
        return follow_relations(relations, table, seen) if follow else table

    return _affine_of(move, number)


def _exact_map(exact: Relations, mask: Tensor) -> Tensor:
    """How entries follow from known ones, and which do, `(n, n + 2)`."""
    number, marks = len(mask), torch.zeros(len(mask), 1, dtype=torch.float64)

    def solve(table: Tensor) -> Tensor:
        seen = mask.expand(len(table), number)
        filled, determined = fill_determined(exact.coefficients, table, seen)
        marks.copy_(determined[:1].T)
        return torch.where(determined, filled, 0.0)

    return torch.cat([_affine_of(solve, number), marks], dim=1)


def _spread_map(relations: Relations, mask: Tensor, follow: bool) -> Tensor:
    """How variances follow from those without relations, an affine map `(n, n + 1)`."""
    number = len(mask)
    result = torch.cat([torch.eye(number), torch.zeros(number, 1)], dim=1).double()
    missing = (~mask).nonzero()[:, 0]
    if not follow or not len(missing):
        return result
    gains, active = relations.gains(missing)
    here = relations.coefficients[active][:, missing]
    kept = torch.eye(len(missing), dtype=torch.float64) - gains @ here
    result[missing] = 0.0
    result[missing[:, None], missing] = kept.square()
    result[missing, -1] = (gains * relations.noise[active]).square().sum(1)
    return result


class CategoryChooser(nn.Module):
    """The probabilities of the categories of a column, from what is expected in its section."""

    def __init__(self, column: CategoryColumn, prior: Section | None) -> None:
        super().__init__()
        part = column.part
        self.places, self.simplex = column.places, part.is_simplex
        self.register_buffer("points", _tensor(part.points))
        if isinstance(part, CategoricalEncoding) and part.is_simplex:
            weights, cells = simplex_weights(part.counts), part.counts.sum()
            shares = part.counts / cells
            rare = shares / weights if shares.min() < RAREST else np.ones(len(weights))
            self.register_buffer("slopes", _tensor((weights[:, None] * part.points).T))
            self.register_buffer("weights", _tensor(weights))
            self.register_buffer("least", _tensor(weights / (cells + 1.0)))
            self.register_buffer("rare", _tensor(rare))
            return
        squares = part.points[:, :, None] * part.points[:, None, :]
        logs = np.log(column.frequencies)
        if prior is not None:
            logs = logs + 0.5 * (prior.whitened[0] ** 2).sum(0)
        self.register_buffer("logs", _tensor(logs))
        self.register_buffer("squares", _tensor(squares.reshape(len(squares), -1).T))

    def forward(self, means: Tensor, covariance: Tensor | None) -> Tensor:
        """Probabilities `(rows, categories)` by Bayes' rule, or linear in the means."""
        get = self.get_buffer
        if self.simplex:
            scores = torch.maximum(means @ get("slopes") + get("weights"), get("least"))
            scores = scores * get("rare")
            return scores / scores.sum(1, keepdim=True)
        assert covariance is not None
        width = means.shape[1]
        noise = LEAST_VARIANCE * torch.eye(width, dtype=means.dtype)
        inverse, _ = invert(covariance + noise)
        turned = (inverse @ means[..., None])[..., 0]
        distance = inverse.flatten(1) @ get("squares") - 2.0 * turned @ get("points").T
        distance = distance + (turned * means).sum(1, keepdim=True)
        return (get("logs") - 0.5 * distance).softmax(1)


class NearestValues(nn.Module):
    """The nearest of the rising values of a column to every number, for several columns."""

    def __init__(self, values: Sequence[Sequence[float] | Array]) -> None:
        super().__init__()
        if not values:
            return
        most = max(2, *map(len, values))
        # The last value again where a column has fewer than others, with no number above the cut.
        padded = [[*own, *[own[-1]] * (most - len(own))] for own in values]
        cuts = [
            [*((low + high) / 2.0 for low, high in pairwise(own)), *[math.inf] * (most - len(own))]
            for own in values
        ]
        self.register_buffer("values", _tensor(padded).reshape(-1))
        self.register_buffer("cuts", _tensor(cuts).reshape(len(values), most - 1))
        self.register_buffer("starts", torch.arange(len(values)) * most)

    def forward(self, numbers: Tensor) -> Tensor:
        """Of numbers `(rows, columns)`."""
        below = count_below(numbers, self.get_buffer("cuts"))
        return self.get_buffer("values")[below + self.get_buffer("starts")]


class NumberDecoder(nn.Module):
    """Entries of columns of numbers to cells: limits, decimals, values, whole numbers."""

    def __init__(
        self, parts: Sequence[NumericEncoding], units: Sequence[tuple[float, float]]
    ) -> None:
        super().__init__()
        decimals = [part.decimals for part in parts]
        arrays: dict[str, list[float]] = {
            "centre": [part.centre for part in parts],
            "deviation": [part.deviation for part in parts],
            "least": [-math.inf if part.least is None else part.least for part in parts],
            "greatest": [math.inf if part.greatest is None else part.greatest for part in parts],
            # A number is rounded to multiples of one factor over another, which are both whole.
            "up": [10.0 ** max(0, -(places or 0)) for places in decimals],
            "down": [10.0 ** max(0, places or 0) for places in decimals],
            "step": [step for step, _ in units],
            "start": [origin / step for step, origin in units],
        }
        flags = {
            "rounded": [places is not None for places in decimals],
            "whole": [part.whole for part in parts],
            "time": [part.clock is not None for part in parts],
            "valued": [part.values is not None for part in parts],
        }
        for name, array in arrays.items() if parts else ():
            self.register_buffer(name, _tensor(array))
        for name, flag in flags.items() if parts else ():
            self.register_buffer(name, torch.tensor(flag, dtype=torch.bool))
        self.has_values = any(flags["valued"])
        values = [part.values or (0.0,) for part in parts]
        self.nearest = NearestValues(values if self.has_values else [])

    def forward(self, entries: Tensor) -> Tensor:
        get = self.get_buffer
        raw = entries * get("deviation") + get("centre")
        plain = torch.clamp(raw, get("least"), get("greatest"))
        rounded = (plain * get("down") / get("up")).round() * get("up") / get("down")
        rounded = torch.clamp(rounded, get("least"), get("greatest"))
        numbers = torch.where(get("rounded"), rounded, plain)
        if self.has_values:
            nearest = self.nearest(raw)
            standard = (nearest - get("centre")) / get("deviation")
            is_value = get("valued") & ((standard - entries).abs() <= SAME)
            numbers = torch.where(is_value, nearest, numbers)
        numbers = torch.where(get("whole"), numbers.round(), numbers)
        moments = (plain / get("step")).round() + get("start")
        return torch.where(get("time"), moments, numbers)


class Decoder(nn.Module):
    """A matrix of modelled columns, and categories by their places, to cells of the table."""

    def __init__(self, model: TableModel, units: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        encoding = model.encoding
        place = {column: k for k, column in enumerate(model.columns)}
        numbers, own_units, constants = [], [], []
        groups: dict[str, list[int]] = {"number": [], "level": [], "category": []}
        self.at: dict[str, list[int]] = {kind: [] for kind in groups}
        levels = []
        for position, (label, part) in enumerate(encoding.parts.items()):
            idle = label in encoding.idle
            constants.append(_constant(part, *units[position]) if idle else 0.0)
            if idle:
                continue
            kind, at = "category", place[encoding.sections[label].start]
            if isinstance(part, NumericEncoding):
                kind = "number"
                numbers.append(part)
                own_units.append(units[position])
            elif isinstance(part, OrdinalEncoding):
                kind = "level"
                levels.append(part)
            else:
                at = list(model.category_sections).index(label)
            groups[kind].append(position)
            self.at[kind].append(at)
        columns = len(constants)
        self.scatters = nn.ModuleDict({k: Scatter(own, columns) for k, own in groups.items()})
        self.numbers = NumberDecoder(numbers, own_units)
        self.levels = NearestValues([part.scores for part in levels])
        for end in (0, -1) if levels else ():
            own = [float(np.flatnonzero(part.counts)[end]) for part in levels]
            self.register_buffer(f"end_{-end}", _tensor(own))
        self.register_buffer("constants", _tensor(constants))

    def forward(self, cells: Tensor, matrix: Tensor, categories: Sequence[Tensor]) -> Tensor:
        """The given cells, and what the missing ones are filled with."""
        filled = self.get_buffer("constants") + torch.zeros_like(cells)
        if self.at["number"]:
            numbers = self.numbers(matrix[:, self.at["number"]])
            filled = self.scatters["number"](filled, numbers)
        if self.at["level"]:
            level = count_below(matrix[:, self.at["level"]], self.levels.get_buffer("cuts"))
            level = torch.clamp(level.double(), self.get_buffer("end_0"), self.get_buffer("end_1"))
            filled = self.scatters["level"](filled, level)
        if self.at["category"]:
            codes = torch.stack([categories[at] for at in self.at["category"]], dim=1)
            filled = self.scatters["category"](filled, codes)
        return torch.where(cells.isnan(), filled, cells)


def _constant(part: ColumnEncoding, step: float, origin: float) -> float:
    """What a column that no model fills is filled with: its only value, or NaN."""
    if isinstance(part, NumericEncoding):
        if part.empty:
            return math.nan
        whole = np.zeros((1, 1))
        if part.clock is not None:
            return float(np.rint(part.numbers(whole)[0] / step) + origin / step)
        return float(part.decode(whole)[0])
    if isinstance(part, IdentifierEncoding) or not part.fillable:
        return math.nan
    if isinstance(part, OrdinalEncoding):
        return float(np.flatnonzero(part.counts)[0])
    return 0.0
