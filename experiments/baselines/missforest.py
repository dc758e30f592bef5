"""missForest (Stekhoven and Bühlmann, 2012) for continuous columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

Array = NDArray[np.float64]


class MissForest:
    """Forests in turns, until the imputations begin to move apart again.

    As in the R package: columns by rising number of gaps, 100 trees, the square root of the number
    of columns tried per split, nodes of five rows not split further, at most ten rounds, and the
    imputations of the round before the relative change rises. Rows not seen in fitting go through
    the forests of the kept rounds.
    """

    def __init__(self, *, trees: int = 100, rounds: int = 10, jobs: int = 1, seed: int = 0) -> None:
        self.trees, self.rounds, self.jobs, self.seed = trees, rounds, jobs, seed

    def fit_transform(self, table: Array) -> Array:
        """Fill an incomplete table; the forests are not kept."""
        return self._run(table, keep=False)

    def fit(self, table: Array) -> MissForest:
        """Fit on an incomplete table."""
        self._run(table, keep=True)
        return self

    def transform(self, table: Array) -> Array:
        """Fill any rows."""
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
        self, filled: Array, missing: NDArray[np.bool_], index: int
    ) -> tuple[dict[int, RandomForestRegressor], Array]:
        """One forest per incomplete column, each on the newest imputations of the others."""
        filled, forests = filled.copy(), {}
        gaps = missing.sum(axis=0)
        for column in np.argsort(gaps, kind="stable")[(gaps == 0).sum() :]:
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
