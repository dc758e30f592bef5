"""scikit-learn's imputers, as they come and as well as we can set them.

All of them see the complete training rows and the test rows with their gaps, and answer with the
test rows filled. What is *tuned* chooses its settings by hiding the same cells in the last tenth of
the training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

from vfg.tables.cells import Array

Fill = Callable[[Array, Array], Array]
"""Training rows and test rows with gaps to the test rows without."""
NEIGHBOURS = (2, 3, 5, 10, 20, 40)


def imputers(columns: Sequence[int], seed: int, *, leaf: int = 1) -> dict[str, Fill]:
    """The baselines by name, for test rows that miss these columns; `leaf` is of the trees."""
    forest = ExtraTreesRegressor(50, min_samples_leaf=leaf, random_state=seed)
    return {
        "mean": _filled_by(SimpleImputer()),
        "iterative": _filled_by(IterativeImputer(random_state=seed)),
        "MICE": _filled_by(IterativeImputer(random_state=seed, sample_posterior=True)),
        "kNN (k = 5)": _filled_by(KNNImputer()),
        "kNN, tuned": tuned_neighbours(columns),
        "iterative, ExtraTrees": _filled_by(
            IterativeImputer(forest, max_iter=5, random_state=seed)
        ),
    }


def regressions(columns: Sequence[int]) -> dict[str, Fill]:
    """Regressions of these columns on the others: they answer this one question and no other."""
    alphas = np.logspace(-8, 2, 11)
    ranges = {"kernelridge__alpha": [1e-8, 1e-5, 1e-2], "kernelridge__gamma": [0.03, 0.1, 0.3, 1.0]}
    kernel = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    models = {
        "polynomial ridge": make_pipeline(
            StandardScaler(), PolynomialFeatures(5), StandardScaler(), RidgeCV(alphas)
        ),
        "spline ridge": make_pipeline(
            SplineTransformer(20, extrapolation="linear"), StandardScaler(), RidgeCV(alphas)
        ),
        "RBF kernel ridge": GridSearchCV(kernel, ranges, cv=3, scoring="neg_mean_squared_error"),
    }
    return {name: _regressed_by(model, list(columns)) for name, model in models.items()}


def _regressed_by(model: Any, hidden: list[int]) -> Fill:
    def fill(train: Array, gaps: Array) -> Array:
        filled = gaps.copy()
        model.fit(np.delete(train, hidden, axis=1), train[:, hidden])
        filled[:, hidden] = model.predict(np.delete(gaps, hidden, axis=1))
        return filled

    return fill


def tuned_neighbours(columns: Sequence[int]) -> Fill:
    """Nearest neighbours; number, weights and scale of the columns chosen on training rows."""
    hidden = list(columns)

    def fill(train: Array, gaps: Array) -> Array:
        kept, other = np.split(train, [len(train) * 9 // 10])

        def error(setting: tuple[int, str, bool]) -> float:
            return float(np.square(_nearest(*setting, hidden, kept, other) - other).mean())

        best = min(product(NEIGHBOURS, ("uniform", "distance"), (False, True)), key=error)
        return _nearest(*best, hidden, train, gaps)

    return fill


def _nearest(
    neighbours: int, weights: str, scaled: bool, hidden: list[int], train: Array, rows: Array
) -> Array:
    scaler = StandardScaler(with_mean=scaled, with_std=scaled)
    model = make_pipeline(scaler, KNeighborsRegressor(neighbours, weights=weights))
    filled = rows.copy()
    model.fit(np.delete(train, hidden, axis=1), train[:, hidden])
    filled[:, hidden] = model.predict(np.delete(rows, hidden, axis=1))
    return filled


def _filled_by(imputer: Any) -> Fill:
    def fill(train: Array, gaps: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rounds that do not converge are theirs to have
            filled: Array = imputer.fit_transform(np.concatenate([train, gaps]))
        return filled[len(train) :]

    return fill
