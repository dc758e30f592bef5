r"""Products of features, for columns that depend on two others together.

Trees choose one split at a time. Where a column is $u$ in one category and $-u$ in another, no
single split at $u$ or at the category reduces the error, and trees of few rows do not find the
pair. The product of both has a split that does. Each column chooses its products: those that are
correlated with what a linear model of all features leaves of it. Of many products some are
correlated by chance, so the largest score must exceed that of as many Normal variables.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from vfg.tables.cells import Array

MOST_PRODUCTS = 8
"""Products of a column at most."""
MOST_CELLS = 4_000_000
"""Products times rows at most, which bounds time and memory."""
LEAST_SCORE = 1.5
"""How many standard errors a score must lie above the usual largest of as many Normal variables,
the root of 2 log k. On seven tables for tuning, five patterns, products then change nothing (1.000
of the squared error and of the error rate)."""
RIDGE = 1e-3
"""The penalty of linear models, per row."""
ROWS_PER_FEATURE, FEWEST_ROWS = 2, 30
"""Rows per feature, and beyond these, with which a column has products: residuals of linear models
that fit nearly every row say nothing."""


class Products:
    """Products of two features of different columns, of which columns choose.

    Args:
        features: of all rows, with 0 at the mean, `(rows, features)`.
        owners: which column every feature is of.
        excluded: columns without products.
        categories: columns of categories, of which one is in every pair where there are too many
            pairs.
    """

    def __init__(
        self, features: Array, owners: Array, excluded: list[int], categories: list[int]
    ) -> None:
        self.features = features
        usable = np.flatnonzero(~np.isin(owners, excluded))
        first, second = (usable[k] for k in np.triu_indices(len(usable), 1))
        chosen, most = owners[first] != owners[second], MOST_CELLS // max(len(features), 1)
        if chosen.sum() > most:
            of_category = np.isin(owners, categories)
            chosen &= of_category[first] | of_category[second]
        pairs = np.stack([first[chosen], second[chosen]], axis=1)
        self.pairs = pairs[: 0 if len(pairs) > most else None]

    @cached_property
    def values(self) -> Array:
        """All products, `(rows, pairs)`."""
        return np.asarray(self.features[:, self.pairs[:, 0]] * self.features[:, self.pairs[:, 1]])

    def choose(self, rows: Array, truth: Array, own: Array, weights: Array | None = None) -> Array:
        """The pairs that explain what a linear model leaves of `(rows, outputs)`, the best first.

        `own` are the features of the column itself, which neither the model nor products have;
        rows count as often as `weights` say, `(all rows,)`.
        """
        allowed = ~own[self.pairs].any(1)
        inputs = np.column_stack([np.ones(len(rows)), self.features[np.ix_(rows, ~own)]])
        if not allowed.any() or len(rows) < ROWS_PER_FEATURE * inputs.shape[1] + FEWEST_ROWS:
            return self.pairs[:0]
        often = np.ones(len(rows)) if weights is None else weights[rows]
        gram = (inputs.T * often) @ inputs + RIDGE * often.sum() * np.eye(inputs.shape[1])
        slopes = np.linalg.solve(gram, inputs.T * often)
        left = truth - inputs @ (slopes @ truth)
        pairs, values = self.pairs[allowed], self.values[np.ix_(rows, allowed)]
        squares = values**2
        least = np.sqrt(2.0 * np.log(len(pairs) * truth.shape[1] + 1)) + LEAST_SCORE
        chosen = list[int]()
        for _ in range(MOST_PRODUCTS):
            # Errors of different sizes do not make scores larger.
            cells = often[:, None] * left
            errors = np.sqrt(squares.T @ (cells * left)) + 1e-9 * np.sqrt(len(rows))
            scores = (np.abs(values.T @ cells) / errors).max(1)
            best = int(scores.argmax())
            if scores[best] < least or best in chosen:
                break
            chosen.append(best)
            step = values[:, best] - inputs @ (slopes @ values[:, best])
            size = max(float((step * often) @ step), 1e-9)
            left = left - np.outer(step, (step * often) @ left / size)
        return np.asarray(pairs[chosen])
