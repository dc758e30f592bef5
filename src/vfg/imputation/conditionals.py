r"""Conditionals for interventions: the families of a DAG, fitted to rows with missing cells.

The parts of an ensemble are smoothed and weighed to fill single cells given all others. What
follows from an intervention is an average of $E[y \mid x, z]$ over the causes z, also at values of
x that are rare for most z. So every $p(\text{child} \mid \text{causes})$ is a regression,

$$v = w^\top \phi(\text{causes}) + s(\text{causes})\, \varepsilon,$$

on straight lines, smooth and rough curves, products of two causes, and functions of all causes.
Each of these groups of features has its own variance, by the maximum of the marginal likelihood, so
that a group which rows do not speak for vanishes. The noise is a mixture of Normals, and its scale
s may depend on the causes. Categories have a softmax of the same features.

Missing cells are drawn from the DAG itself, as in Monte Carlo EM: draws of each cell given its
causes are weighed by what they make of its effects, and families are fitted again to the completed
rows. Coefficients are averages over the last rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vfg.imputation.answers import Evidence, TableAnswer, read_evidence
from vfg.imputation.row_mixture import RowMixture
from vfg.inputs import Name
from vfg.tables.cells import Array, Mask

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel

ROUNDS, AVERAGED = 12, 7
"""How often cells are drawn and families fitted, and the last rounds that are averaged. Errors on
seven simulated systems were 0.86 to 1.19 of these with 24 and 16 (seeds 52 to 55; mean 0.98)."""
CANDIDATES = 5
"""Draws of a missing cell that are weighed against its present value."""
FEWEST_ROWS = 50
"""Rows with a known child below which the ensemble's own conditional is used."""
MOST_ROWS = 4000
"""Rows that families are fitted to."""
MOST_CATEGORIES = 24
"""Categories above which the ensemble's own conditional is used."""
KNOTS = 24
"""Of curves; half of them at quantiles, half at even steps."""
SMOOTH, ROUGH = (True, 2.0), (False, 0.5)
"""Matern kernels of curves: twice differentiable and long, once differentiable and short; lengths
in robust deviations of the cause."""
GRID = 512
"""Points between which curves are interpolated."""
SURFACE = 4
"""Leading curves of a cause in products with another."""
CENTRES = 80
"""Rows that functions of all causes are spanned by."""
MOST_FEATURES = 400
"""Features of products of two causes; beyond, only straight products are used, then none."""
REACH = 4.0
"""Robust deviations from the median beyond which curves are straight; with the half per cent of the
outermost rows on both sides."""
COMPONENTS = np.array([0.7, 1.2, 2.0]), np.array([0.6, 0.3, 0.1])
"""Initial deviations and weights of the noise, in deviations of the residuals."""
PSEUDO_ROWS = 20.0
"""Rows that shrink every component of the noise to a centred one of half the deviation."""
LEAST_NOISE = 0.02
"""The least deviation of a component, in deviations of the residuals."""
SCALES = 4.0
"""How many times larger or smaller than usual the noise may be."""
ROWS_AT_ONCE = 8192
"""Rows whose features are computed together, which bounds memory."""


def kept_rows(model: RowMixture) -> tuple[Tensor, Tensor]:
    """The rows of the fitted table that a row mixture keeps, and which cells were observed."""
    observed = model.doubts.cpu() == 0.0
    values = model.ranks.inverse(model.centres.double()).cpu()
    return torch.where(observed, values, 0.0), observed


def _matern(distances: Array, is_smooth: bool) -> Array:
    scaled = np.sqrt(5.0 if is_smooth else 3.0) * distances
    bend = scaled * scaled / 3.0 if is_smooth else 0.0
    result: Array = (1.0 + scaled + bend) * np.exp(-scaled)
    return result


def _whiten(kernel: Array, least: float) -> Array:
    """Combinations of kernels at knots that have independent coefficients of variance 1."""
    values, vectors = np.linalg.eigh(kernel)
    kept = values > least * values[-1]
    result: Array = vectors[:, kept] / np.sqrt(values[kept])
    return result


class CurveFeatures:
    """Features of a number: a straight line, smooth and rough curves, and a few for products."""

    def __init__(self, values: Array) -> None:
        low, self.centre, high = np.quantile(values, [0.25, 0.5, 0.75])
        self.scale = max((high - low) / 1.349, 0.1 * float(values.std()), 1e-6)
        own = self.standardise(values)
        self.low, self.high = np.clip(np.quantile(own, [0.005, 0.995]), -REACH, REACH).tolist()
        self.high = max(self.high, self.low + 1e-6)
        inner = np.quantile(own, np.linspace(0.005, 0.995, KNOTS // 2)).clip(self.low, self.high)
        even = np.linspace(self.low, self.high, KNOTS // 2)
        knots = np.unique(np.concatenate([inner, even]))
        grid = np.linspace(self.low, self.high, GRID)
        inside = np.clip(own, self.low, self.high)
        tables = []
        for is_smooth, length in (SMOOTH, ROUGH):
            kernel = _matern(np.abs(knots[:, None] - knots) / length, is_smooth)
            curves = _matern(np.abs(grid[:, None] - knots) / length, is_smooth)
            tables.append(curves @ _whiten(kernel + 1e-8 * np.eye(len(knots)), 1e-4))
        self.sizes = [own.shape[1] for own in tables]
        self.table = np.hstack(tables)
        self.table -= self._interpolate(inside).mean(0)
        smooth = self._interpolate(inside)[:, : self.sizes[0]]
        leading = np.linalg.svd(smooth, full_matrices=False)[2][:SURFACE].T
        self.table = np.hstack([self.table, self.table[:, : self.sizes[0]] @ leading])

    def standardise(self, values: Array) -> Array:
        result: Array = (values - self.centre) / self.scale
        return result

    def _interpolate(self, inside: Array) -> Array:
        place = (inside - self.low) * ((GRID - 1) / (self.high - self.low))
        index = np.clip(place.astype(int), 0, GRID - 2)
        share = (place - index)[:, None]
        result: Array = self.table[index] * (1.0 - share) + self.table[index + 1] * share
        return result

    def features(self, values: Array) -> tuple[Array, Array, list[Array]]:
        """The line within the reach `(rows, 1)`, features for products, and all groups."""
        line = self.standardise(values)[:, None]
        inside = np.clip(line, self.low, self.high)
        curves = self._interpolate(inside[:, 0])
        smooth, rough, leading = np.split(curves, np.cumsum(self.sizes), axis=1)
        return inside, np.hstack([inside, leading]), [line, smooth, rough]


@dataclass(frozen=True)
class Levels:
    """Features of a column of categories, given by their codes."""

    count: int

    def features(self, values: Array) -> tuple[Array, Array, list[Array]]:
        """Indicators, for products and as the only group."""
        shares = np.asarray(values[:, None] == np.arange(self.count), dtype=float)
        return shares, shares, [shares]


class CauseFeatures:
    """The features of a family's causes, in groups; the first group is the constant."""

    def __init__(self, parts: Sequence[CurveFeatures | Levels], rows: Array) -> None:
        self.parts = parts
        pairs = list(combinations(range(len(parts)), 2))
        widths = [SURFACE + 1 if isinstance(part, CurveFeatures) else part.count for part in parts]
        self.surfaces = sum(widths[i] * widths[j] for i, j in pairs) <= MOST_FEATURES
        simple = [1 if isinstance(part, CurveFeatures) else part.count for part in parts]
        is_small = sum(simple[i] * simple[j] for i, j in pairs) <= MOST_FEATURES
        self.pairs = pairs if is_small else []
        self.numbers = [k for k, part in enumerate(parts) if isinstance(part, CurveFeatures)]
        self.centres = None
        if len(self.numbers) > 1:
            points = np.column_stack([parts[k].features(rows[:, k])[0] for k in self.numbers])
            chosen = np.random.default_rng(0).permutation(len(points))[:CENTRES]
            self.centres = points[chosen]
            kernel = self._kernel(self.centres)
            self.mixing = _whiten(kernel + 1e-8 * np.eye(len(kernel)), 1e-3)
        self.sizes = [own.shape[1] for own in self._groups(rows[:2])]

    def _kernel(self, points: Array) -> Array:
        assert self.centres is not None
        squares = (points**2).sum(1)[:, None] + (self.centres**2).sum(1)
        squares = np.maximum(squares - 2.0 * points @ self.centres.T, 0.0)
        return _matern(np.sqrt(squares / (2.0 * len(self.numbers))), True)

    def _groups(self, rows: Array) -> list[Array]:
        found = [part.features(rows[:, k]) for k, part in enumerate(self.parts)]
        groups = [np.ones((len(rows), 1))]
        for _, _, own in found:
            groups += own
        for i, j in self.pairs:
            # A straight product, and a surface; of categories both are the same.
            kinds = {self.parts[k].__class__ for k in (i, j)}
            for place in (0, 1) if self.surfaces and CurveFeatures in kinds else (0,):
                left, right = (own[1] if place else own[0] for own in (found[i], found[j]))
                groups.append((left[:, :, None] * right[:, None, :]).reshape(len(rows), -1))
        if self.centres is not None:
            points = np.column_stack([found[k][0] for k in self.numbers])
            groups.append(self._kernel(points) @ self.mixing)
        return groups

    def __call__(self, rows: Array) -> Array:
        return np.hstack(self._groups(rows))

    @property
    def plain(self) -> int:
        """How many groups do not join causes."""
        return 1 + sum(3 if isinstance(part, CurveFeatures) else 1 for part in self.parts)


@dataclass
class Ridge:
    """Coefficients whose groups have variances of their own, chosen by the marginal likelihood."""

    sizes: Sequence[int]
    precisions: Array = field(init=False)

    def __post_init__(self) -> None:
        self.groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.precisions = np.ones(len(self.sizes))
        self.precisions[0] = 1e-6

    def solve(self, gram: Array, target: Array, rounds: int) -> Array:
        """Coefficients for sums of products that are divided by the variance of the noise.

        The precision of a group is the number of coefficients that the rows determine, by their
        sum of squares (MacKay's rule). Several columns of targets share it.
        """
        weights = target
        for _ in range(rounds):
            matrix = gram + np.diag(self.precisions[self.groups])
            matrix += 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
            inverse = np.linalg.inv(np.linalg.cholesky(matrix))
            weights = inverse.T @ (inverse @ target)
            spread = (inverse**2).sum(0)
            many = weights[:, None] if weights.ndim == 1 else weights
            known = 1.0 - self.precisions[self.groups] * spread
            sums = np.bincount(self.groups, known) * many.shape[1]
            squares = np.bincount(self.groups, (many**2).sum(1))
            self.precisions = np.clip(sums / np.maximum(squares, 1e-12), 1e-4, 1e8)
            self.precisions[0] = 1e-6
        return weights


class ResidualNoise:
    """A mixture of Normals for residuals, which may be skewed or have heavy tails."""

    def __init__(self, residuals: Array) -> None:
        deviations, self.weights = COMPONENTS
        self.deviations = deviations * max(float(residuals.std()), 1e-9)
        self.means = np.zeros(len(deviations))

    def fit(self, residuals: Array, rounds: int) -> None:
        usual = max(float(np.sqrt(np.mean(residuals**2))), 1e-9)
        for _ in range(rounds):
            shares = self.shares(residuals)
            counts = shares.sum(0)
            self.weights = (counts + 1.0) / (counts + 1.0).sum()
            self.means = shares.T @ residuals / (counts + PSEUDO_ROWS)
            squares = (shares * (residuals[:, None] - self.means) ** 2).sum(0)
            squares += PSEUDO_ROWS * 0.25 * usual**2
            self.deviations = np.sqrt(squares / (counts + PSEUDO_ROWS)).clip(LEAST_NOISE * usual)

    def _terms(self, residuals: Array) -> Array:
        standard = (residuals[:, None] - self.means) / self.deviations
        result: Array = np.log(self.weights / self.deviations) - 0.5 * standard**2
        return result

    def shares(self, residuals: Array) -> Array:
        terms = self._terms(residuals)
        terms = np.exp(terms - terms.max(1, keepdims=True))
        result: Array = terms / terms.sum(1, keepdims=True)
        return result

    def log_prob(self, residuals: Array) -> Array:
        """Up to a constant."""
        terms = self._terms(residuals)
        most = terms.max(1)
        result: Array = most + np.log(np.exp(terms - most[:, None]).sum(1))
        return result

    def draw(self, count: int, generator: np.random.Generator) -> Array:
        ends = np.cumsum(self.weights)[:-1]
        chosen = np.searchsorted(ends, generator.random(count))
        result: Array = self.means[chosen] + self.deviations[chosen] * generator.normal(size=count)
        return result

    @property
    def mean(self) -> float:
        return float(self.weights @ self.means)


class NumberFamily:
    """The conditional of a number given its causes."""

    def __init__(self, features: CauseFeatures) -> None:
        self.features = features
        self.ridge = Ridge(features.sizes)
        self.spread = Ridge(features.sizes[: features.plain])
        self.noise: ResidualNoise | None = None
        self.kept: list[Array] = []

    def fit(self, causes: Array, child: Array, is_kept: bool) -> None:
        """Fit to completed rows, from where the last fit ended."""
        design = self.features(causes)
        if self.noise is None:
            variance = max(0.5 * float(child.var()), 1e-9)
            gram, target = design.T @ design / variance, design.T @ child / variance
            self.weights = self.ridge.solve(gram, target, 30)
            residuals = child - design @ self.weights
            self.noise, self.scale = ResidualNoise(residuals), np.zeros(sum(self.spread.sizes))
            self.noise.fit(residuals, 30)
        scales = self._scales(design)
        residuals = (child - design @ self.weights) / scales
        shares = self.noise.shares(residuals) / self.noise.deviations**2
        precisions = shares.sum(1)
        shifted = child - scales * (shares @ self.noise.means) / precisions
        weighted = design * (precisions / scales**2)[:, None]
        self.weights = self.ridge.solve(weighted.T @ design, weighted.T @ shifted, 5)
        residuals = child - design @ self.weights
        self._fit_scale(design[:, : len(self.scale)], residuals)
        self.noise.fit(residuals / self._scales(design), 5)
        if is_kept:
            self.kept.append(self.weights)

    def _fit_scale(self, design: Array, residuals: Array) -> None:
        """Fit logarithms of squared residuals by curves of single causes."""
        logs = np.log(residuals**2 + 1e-3 * np.mean(residuals**2))
        variance = max(float(logs.var()), 1e-9)
        logs = logs - logs.mean()
        self.scale = self.spread.solve(design.T @ design / variance, design.T @ logs / variance, 3)
        self.scale[0] -= float(np.mean(design @ self.scale))

    def _scales(self, design: Array) -> Array:
        logs = 0.5 * design[:, : len(self.scale)] @ self.scale
        return np.asarray(np.exp(np.clip(logs, -np.log(SCALES), np.log(SCALES))))

    def end(self) -> None:
        """Take the average over the rounds that were kept."""
        self.weights = np.mean(self.kept, axis=0)

    def predict(self, causes: Array) -> tuple[Array, Array]:
        """Where the noise is added, and its scale, `(rows,)` each."""
        parts = []
        for start in range(0, len(causes), ROWS_AT_ONCE):
            design = self.features(causes[start : start + ROWS_AT_ONCE])
            parts.append((design @ self.weights, self._scales(design)))
        places, scales = zip(*parts, strict=True)
        return np.concatenate(places), np.concatenate(scales)

    def mean(self, causes: Array) -> Array:
        assert self.noise is not None
        places, scales = self.predict(causes)
        result: Array = places + scales * self.noise.mean
        return result

    def draw(self, causes: Array, count: int, generator: np.random.Generator) -> Array:
        """Draws `(count, rows)`."""
        assert self.noise is not None
        places, scales = self.predict(causes)
        drawn = self.noise.draw(count * len(causes), generator).reshape(count, -1)
        result: Array = places + scales * drawn
        return result

    def log_prob(self, causes: Array, child: Array) -> Array:
        assert self.noise is not None
        places, scales = self.predict(causes)
        result: Array = self.noise.log_prob((child - places) / scales) - np.log(scales)
        return result

    def quantiles(self, causes: Array, levels: Array) -> Array:
        """Quantiles `(levels, rows)`, by interpolation of the noise's distribution."""
        assert self.noise is not None
        places, scales = self.predict(causes)
        noise = self.noise.draw(20_000, np.random.default_rng(0))
        result: Array = places + scales * np.quantile(noise, levels)[:, None]
        return result


class CategoryFamily:
    """The probabilities of categories, as codes, given their causes: a softmax.

    Its curvature is bounded by that of independent Normals of variance 2 (Böhning), so that all
    categories share one matrix, and variances of groups follow as for numbers.
    """

    def __init__(self, features: CauseFeatures, count: int) -> None:
        self.features, self.count = features, count
        self.ridge = Ridge(features.sizes)
        self.weights = np.zeros((sum(features.sizes), count))
        self.kept: list[Array] = []

    def fit(self, causes: Array, child: Array, is_kept: bool) -> None:
        design = self.features(causes)
        gram = design.T @ design / 2.0
        truth = np.asarray(child[:, None] == np.arange(self.count), dtype=float)
        for _ in range(10 if self.weights.any() else 40):
            gradient = design.T @ (truth - _softmax(design @ self.weights))
            self.weights = self.ridge.solve(gram, gram @ self.weights + gradient, 1)
        if is_kept:
            self.kept.append(self.weights)

    def end(self) -> None:
        """Take the average over the rounds that were kept."""
        self.weights = np.mean(self.kept, axis=0)

    def mean(self, causes: Array) -> Array:
        """Probabilities `(rows, categories)`."""
        starts = range(0, len(causes), ROWS_AT_ONCE)
        parts = [self.features(causes[k : k + ROWS_AT_ONCE]) @ self.weights for k in starts]
        return _softmax(np.concatenate(parts))

    def draw(self, causes: Array, count: int, generator: np.random.Generator) -> Array:
        """Codes `(count, rows)`."""
        ends = self.mean(causes).cumsum(1)[:, :-1]
        return np.stack([(generator.random((len(ends), 1)) > ends).sum(1) for _ in range(count)])

    def log_prob(self, causes: Array, child: Array) -> Array:
        shares = np.take_along_axis(self.mean(causes), child.astype(int)[:, None], 1)
        return np.asarray(np.log(shares[:, 0] + 1e-12))


def _softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(1, keepdims=True))
    result: Array = raised / raised.sum(1, keepdims=True)
    return result


Family = NumberFamily | CategoryFamily


class DagModel:
    """The families of a DAG, and the rows they were fitted to with their missing cells drawn.

    Args:
        cells: completed rows `(rows, columns)`: standardised numbers, or codes of categories.
        observed: which cells are not draws.
        sizes: how many categories each column has; 0 for numbers.
        parents: columns by child, causes first: of every family that is fitted.
        seed: of the draws.
    """

    def __init__(
        self,
        cells: Array,
        observed: Mask,
        sizes: Sequence[int],
        parents: Mapping[int, Sequence[int]],
        seed: int = 0,
    ) -> None:
        chosen = np.random.default_rng(seed).permutation(len(cells))[:MOST_ROWS]
        self.cells, self.observed = cells[chosen].copy(), observed[chosen]
        self.parents = parents
        self.families: dict[int, Family] = {}
        self.completed: list[Array] = []
        parts: dict[int, CurveFeatures | Levels] = {}
        for child, causes in parents.items():
            for k in causes:
                if k not in parts:
                    seen = self.cells[self.observed[:, k], k]
                    parts[k] = Levels(sizes[k]) if sizes[k] else CurveFeatures(seen)
            features = CauseFeatures([parts[k] for k in causes], self.cells[:, causes])
            own = NumberFamily(features)
            self.families[child] = CategoryFamily(features, sizes[child]) if sizes[child] else own
        self._fit(np.random.default_rng(seed + 1))

    def _children(self, column: int) -> list[int]:
        return [child for child, causes in self.parents.items() if column in causes]

    def _fit(self, generator: np.random.Generator) -> None:
        gaps = not self.observed[:, list({*self.parents, *self._all_causes()})].all()
        rounds = ROUNDS if gaps else 5  # without missing cells nothing is drawn
        for turn in range(rounds):
            is_kept = turn >= rounds - (AVERAGED if gaps else 1)
            for child, causes in self.parents.items():
                # A row tells of a family by the child itself, or by effects of it.
                tells = self.observed[:, [child, *self._children(child)]].any(1)
                rows = self.cells[tells]
                self.families[child].fit(rows[:, causes], rows[:, child], is_kept)
            if gaps:
                for column in dict.fromkeys([*self._all_causes(), *self.parents]):
                    self._draw(column, generator)
            if is_kept:
                self.completed.append(self.cells.copy())
        for family in self.families.values():
            family.end()

    def _all_causes(self) -> list[int]:
        return [cause for causes in self.parents.values() for cause in causes]

    def _draw(self, column: int, generator: np.random.Generator) -> None:
        """Draw the missing cells of a column: candidates given causes, weighed by effects.

        The present value is among the candidates, which makes this a step of a Markov chain that
        leaves the distribution of the cells unchanged.
        """
        missing = np.flatnonzero(~self.observed[:, column])
        children = self._children(column)
        if not len(missing):
            return
        rows = self.cells[missing]
        family = self.families.get(column)
        if family is not None:
            drawn = family.draw(rows[:, self.parents[column]], CANDIDATES, generator)
        else:
            drawn = generator.choice(self.cells[:, column], (CANDIDATES, len(missing)))
        candidates = np.concatenate([rows[None, :, column], drawn])
        if not children:
            self.cells[missing, column] = candidates[-1]
            return
        logs = np.zeros(candidates.size)
        tried = np.tile(rows, (len(candidates), 1))
        tried[:, column] = candidates.reshape(-1)
        for child in children:
            own = tried[:, self.parents[child]]
            logs += self.families[child].log_prob(own, tried[:, child])
        noise = generator.gumbel(size=candidates.shape)
        best = (logs.reshape(candidates.shape) + noise).argmax(0)
        self.cells[missing, column] = candidates[best, np.arange(len(missing))]

    def draw_rows(self, columns: Sequence[int], count: int, seed: int) -> Array:
        """Rows `(count, columns)` of the table, missing cells drawn; the first for any count."""
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(self.cells))
        turns = range(-(-count // len(order)))
        kept = [self.completed[-1 - turn % len(self.completed)] for turn in turns]
        return np.concatenate([own[order][:, columns] for own in kept])[:count]


class TableFamilies:
    """The families of a DAG of columns, in the units and categories of a table.

    Args:
        model: a model that keeps rows.
        parents: causes by effect, causes first: of every family that is fitted.

    Families of dates, of columns with many categories or few known cells, and of constant columns
    are left out; so are causes that are constant.
    """

    def __init__(self, model: TableModel, parents: Mapping[str, Sequence[str]]) -> None:
        self.model = model
        values, observed = model.rows_for_families
        named = dict.fromkeys(name for child, own in parents.items() for name in (*own, child))
        places = {name: self._places(name) for name in named}
        self.names = [name for name, own in places.items() if own]
        seen = {name: observed[:, places[name]].all(1).numpy() for name in self.names}
        self.index = {name: k for k, name in enumerate(self.names)}
        families = {
            self.index[child]: [self.index[name] for name in own if name in self.index]
            for child, own in parents.items()
            if child in self.index and self._can_fit(child) and seen[child].sum() >= FEWEST_ROWS
        }
        families = {child: own for child, own in families.items() if own}
        chosen: dict[Name, Any] = {name: model.resolve(name) for name in self.names}
        evidence = Evidence(values, observed, {})
        answer = TableAnswer(model, evidence, chosen, torch.arange(len(values)), 0, True)
        drawn = {str(name): own[0] for name, own in answer.samples(1).items()}
        sizes = [len(model.variables[name].categories) for name in self.names]
        mask = np.column_stack([seen[name] for name in self.names])
        self.dag = DagModel(self._encode(drawn), mask, sizes, families)

    def _places(self, name: str) -> list[int]:
        """The columns of the model's matrix that hold a column of the table."""
        all_places = self.model.encoding.places(self.model.labels[name])
        return [self.model.columns.index(k) for k in all_places if k in self.model.columns]

    def _can_fit(self, name: str) -> bool:
        variable = self.model.variables[name]
        return variable.kind != "date" and len(variable.categories) <= MOST_CATEGORIES

    def __contains__(self, name: str) -> bool:
        return name in self.index and self.index[name] in self.dag.families

    def _encode(self, cells: Mapping[str, Any]) -> Array:
        """Standardised numbers and codes `(rows, columns)`; 0 in columns that are not given."""
        numbers = {k: v for k, v in cells.items() if not self.model.variables[k].categories}
        rows = len(next(iter(cells.values())))
        table = np.zeros((rows, len(self.names)))
        if numbers:
            encoded = read_evidence(self.model, numbers).values.cpu().numpy()
        for name, own in cells.items():
            if name in numbers:
                table[:, self.index[name]] = encoded[:, self._places(name)[0]]
            else:
                codes = {c: k for k, c in enumerate(self.model.variables[name].categories)}
                table[:, self.index[name]] = [codes[cell] for cell in own]
        return table

    def decode(self, name: str, values: Array) -> Array:
        """Draws in the units of the table, or categories, of any shape."""
        categories = self.model.variables[name].categories
        if categories:
            cells: Array = np.array(categories, dtype=object)[values.astype(int)]
            return cells
        place = self._places(name)[0]
        low, high = self.model.limits[:, place].tolist()
        part = self.model.encoding.parts[self.model.labels[name]]
        flat = part.decode(np.clip(values, low, high).reshape(-1, 1))
        return np.asarray(flat).reshape(values.shape)

    def numbers(self, name: str, values: Array) -> Array:
        """Means in the units of the table, not rounded."""
        part: Any = self.model.encoding.parts[self.model.labels[name]]
        return np.asarray(part.numbers(values.reshape(-1, 1))).reshape(values.shape)

    def draw_rows(self, names: Sequence[str], count: int, seed: int) -> dict[str, Array] | None:
        """Draws `(count,)` of columns from rows of the table; None if some is in no family."""
        if any(name not in self.index for name in names):
            return None
        rows = self.dag.draw_rows([self.index[name] for name in names], count, seed)
        return {name: self.decode(name, rows[:, k]) for k, name in enumerate(names)}

    def given(self, name: str, causes: Mapping[str, Any], seed: int) -> FamilyAnswer:
        """The conditional of a column given values of its causes."""
        cells = {cause: own for cause, own in causes.items() if cause in self.index}
        child = self.index[name]
        rows = self._encode(cells)[:, self.dag.parents[child]]
        return FamilyAnswer(self, name, self.dag.families[child], rows, seed)


@dataclass(frozen=True)
class FamilyAnswer:
    """A column given values of its causes, one row each."""

    families: TableFamilies
    name: str
    family: Family
    causes: Array
    seed: int

    def samples(self, n: int) -> dict[str, Array]:
        """Draws `(n, rows)`."""
        drawn = self.family.draw(self.causes, n, np.random.default_rng(self.seed))
        return {self.name: self.families.decode(self.name, drawn)}

    def expectations(self) -> dict[str, Array]:
        """Means `(rows,)`, or probabilities `(rows, categories)`."""
        means = self.family.mean(self.causes)
        is_number = isinstance(self.family, NumberFamily)
        return {self.name: self.families.numbers(self.name, means) if is_number else means}

    def quantile(self, q: Sequence[float]) -> dict[str, Array]:
        """Quantiles `(levels, rows)` of a number."""
        assert isinstance(self.family, NumberFamily)
        ends = self.family.quantiles(self.causes, np.asarray(q))
        return {self.name: self.families.numbers(self.name, ends)}
