"""Baselines: imputers of numeric tables to compare with, with the interface of scikit-learn.

All have `fit`, `transform` and `fit_transform`. Missing cells are NaN, and columns are continuous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import BayesianRidge

from vfg.imputation.imputer import VFGImputer
from vfg.tables.cells import Array, Mask


class _Imputer:
    """An imputer that fills the fitted rows as it fills others."""

    def fit(self, table: Array) -> Any:
        """Fit to an incomplete table."""
        raise NotImplementedError

    def transform(self, table: Array) -> Array:
        """A copy of a table whose missing cells are filled."""
        raise NotImplementedError

    def fit_transform(self, table: Array) -> Array:
        """Fit to an incomplete table, and fill it."""
        return np.asarray(self.fit(table).transform(table))


class MissForest(_Imputer):
    """missForest (Stekhoven and Bühlmann, 2012): forests in turns, until imputations move apart.

    As in the R package: columns by rising number of missing cells, 100 trees, the square root of
    the number of columns tried per split, nodes of five rows not split further, at most ten
    rounds, and the imputations of the round before the relative change rises. Rows not seen in
    fitting go through the forests of the kept rounds.
    """

    def __init__(self, *, trees: int = 100, rounds: int = 10, jobs: int = 1, seed: int = 0) -> None:
        self.trees, self.rounds, self.jobs, self.seed = trees, rounds, jobs, seed

    def fit_transform(self, table: Array) -> Array:
        """Fit to an incomplete table, and fill it; the forests are not kept."""
        return self._run(table, keep=False)

    def fit(self, table: Array) -> MissForest:
        self._run(table, keep=True)
        return self

    def transform(self, table: Array) -> Array:
        missing = np.isnan(table)
        filled = np.where(missing, self.means, table)
        for forests in self.kept:
            for column, forest in forests.items():
                rows = missing[:, column]
                if rows.any():
                    filled[rows, column] = forest.predict(np.delete(filled[rows], column, axis=1))
        return filled

    def _run(self, table: Array, *, keep: bool) -> Array:
        missing = np.isnan(table)
        self.means = np.nanmean(table, axis=0)
        self.kept: list[dict[int, RandomForestRegressor]] = []
        filled, change = np.where(missing, self.means, table), np.inf
        for index in range(self.rounds):
            forests, following = self._round(filled, missing, index)
            moved = np.square(following - filled).sum() / np.square(following).sum()
            if moved >= change:
                break
            if keep:
                self.kept.append(forests)
            filled, change = following, moved
        return filled

    def _round(
        self, filled: Array, missing: Mask, index: int
    ) -> tuple[dict[int, RandomForestRegressor], Array]:
        """One forest per incomplete column, each on the newest imputations of the others."""
        filled, forests = filled.copy(), {}
        counts = missing.sum(axis=0)
        for column in np.argsort(counts, kind="stable")[(counts == 0).sum() :]:
            rows, others = missing[:, column], np.delete(filled, column, axis=1)
            forest = RandomForestRegressor(
                self.trees,
                max_features=max(1, int(np.sqrt(filled.shape[1]))),
                min_samples_split=6,
                n_jobs=self.jobs,
                random_state=self.seed + 1000 * index + int(column),
            ).fit(others[~rows], filled[~rows, column])
            filled[rows, column] = forest.predict(others[rows])
            forests[int(column)] = forest
        return forests, filled


class BoostedColumns(_Imputer):
    """One gradient boosting of trees per column on all others, whose missing cells stay missing.

    scikit-learn's histogram boosting sends missing values to the better side of a split, so
    columns need no filled values of each other and no rounds.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, table: Array) -> BoostedColumns:
        self.models = []
        for column in range(table.shape[1]):
            seen = ~np.isnan(table[:, column])
            model = HistGradientBoostingRegressor(random_state=self.seed)
            self.models.append(model.fit(np.delete(table[seen], column, 1), table[seen, column]))
        return self

    def transform(self, table: Array) -> Array:
        filled = table.copy()
        for column, model in enumerate(self.models):
            rows = np.isnan(table[:, column])
            if rows.any():
                filled[rows, column] = model.predict(np.delete(table[rows], column, 1))
        return filled


class SoftImpute(_Imputer):
    r"""softImpute (Mazumder, Hastie and Tibshirani, 2010), the penalty chosen on held-out cells.

    $\min_Z \frac12 \|P(X - Z)\|^2 + \lambda \|Z\|_*$ over the observed cells P, by soft-thresholded
    singular values. With $Z = A B^\top$ the solution is also a ridge regression of every row on B,
    which fills rows that were not fitted.
    """

    def __init__(self, *, penalties: int = 12, rounds: int = 200, seed: int = 0) -> None:
        self.penalties, self.rounds, self.seed = penalties, rounds, seed

    def fit(self, table: Array) -> SoftImpute:
        self.centre, self.scale = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
        self.scale[self.scale == 0] = 1.0
        values = (table - self.centre) / self.scale
        # A stream of its own: masks drawn by the same seed would hide what is missing already.
        hidden = np.random.default_rng([self.seed, 2]).random(table.shape) < 0.1
        shown = np.where(hidden, np.nan, values)
        largest = np.linalg.norm(np.nan_to_num(values), 2)
        path = largest * np.geomspace(0.9, 0.002, self.penalties)
        errors, start = [], np.zeros_like(values)
        for penalty in path:
            start, _ = self._solve(shown, penalty, start)
            errors.append(np.nanmean(np.square(start - values)[hidden]))
        self.penalty = float(path[int(np.nanargmin(errors))])
        _, self.loadings = self._solve(values, self.penalty, start)
        return self

    def transform(self, table: Array) -> Array:
        missing = np.isnan(table)
        values = np.where(missing, 0.0, (table - self.centre) / self.scale)
        filled = table.copy()
        for row in np.flatnonzero(missing.any(axis=1)):
            seen = self.loadings[~missing[row]]
            ridge = seen.T @ seen + self.penalty * np.eye(seen.shape[1])
            scores = np.linalg.solve(ridge, seen.T @ values[row, ~missing[row]])
            filled[row, missing[row]] = (
                self.loadings[missing[row]] @ scores * self.scale[missing[row]]
                + self.centre[missing[row]]
            )
        return filled

    def _solve(self, values: Array, penalty: float, start: Array) -> tuple[Array, Array]:
        """The low-rank table and the factor B of its columns."""
        missing, low_rank = np.isnan(values), start
        for _ in range(self.rounds):
            left, sizes, right = np.linalg.svd(
                np.where(missing, low_rank, values), full_matrices=False
            )
            sizes = np.maximum(sizes - penalty, 0.0)
            before, low_rank = low_rank, (left * sizes) @ right
            if np.square(low_rank - before).sum() <= 1e-9 * max(np.square(before).sum(), 1e-9):
                break
        kept = sizes > 0
        return low_rank, right[kept].T * np.sqrt(sizes[kept])


class AveragedImputers(_Imputer):
    """The equally weighted mean of what several imputers fill in."""

    def __init__(self, imputers: Sequence[Any]) -> None:
        self.imputers = list(imputers)

    def fit(self, table: Array) -> AveragedImputers:
        for imputer in self.imputers:
            imputer.fit(table)
        return self

    def transform(self, table: Array) -> Array:
        return np.asarray(np.mean([each.transform(table) for each in self.imputers], axis=0))

    def fit_transform(self, table: Array) -> Array:
        return np.asarray(np.mean([each.fit_transform(table) for each in self.imputers], axis=0))


def chained_ridge(table: Array, seed: int, **options: Any) -> IterativeImputer:
    """Chained Bayesian ridge regressions, kept inside the observed range of each column.

    Without the range they can run away.
    """
    low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    high = np.maximum(high, np.nextafter(low, np.inf))  # a column may have a single value
    return IterativeImputer(
        BayesianRidge(), min_value=low, max_value=high, random_state=seed,
        keep_empty_features=True, **options,
    )  # fmt: skip


def chained_trees(seed: int, threads: int) -> IterativeImputer:
    """Five rounds of fifty extremely randomised trees per column."""
    trees = ExtraTreesRegressor(50, min_samples_leaf=2, n_jobs=threads, random_state=seed)
    return IterativeImputer(trees, max_iter=5, random_state=seed, keep_empty_features=True)


BASELINES: dict[str, Callable[[Array, int, int], Any]] = {
    "mean": lambda table, seed, threads: SimpleImputer(keep_empty_features=True),
    # Twenty neighbours are better than the default of five on six tuning tables.
    "knn": lambda table, seed, threads: KNNImputer(n_neighbors=20, keep_empty_features=True),
    "ridge": lambda table, seed, threads: chained_ridge(table, seed),
    "extratrees": lambda table, seed, threads: chained_trees(seed, threads),
    "missforest": lambda table, seed, threads: MissForest(jobs=threads, seed=seed),
    "boosting": lambda table, seed, threads: BoostedColumns(seed=seed),
    "softimpute": lambda table, seed, threads: SoftImpute(seed=seed),
    "linear": lambda table, seed, threads: VFGImputer(
        bend=False, missingness="ignorable", random_state=seed
    ),
    "boosting+linear": lambda table, seed, threads: AveragedImputers(
        [BASELINES[name](table, seed, threads) for name in ("boosting", "linear")]
    ),
}
"""Baselines by name, our own linear model as Gaussian EM among them: from a table, a seed and a
number of threads to an imputer."""
