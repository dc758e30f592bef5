"""Rubin's rules: one answer from the analyses of several imputed tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Pooled:
    """Estimates pooled over imputations; every field has the shape of one estimate.

    Attributes:
        estimate: the mean of the estimates.
        variance: of that mean: within + (1 + 1/m) between.
        within: the mean of the variances.
        between: the variance of the estimates among the imputations.
        degrees_of_freedom: of Student's t for intervals; infinite if imputations agree.
        missing_information: share of the variance that is due to missing cells.
    """

    estimate: Numbers
    variance: Numbers
    within: Numbers
    between: Numbers
    degrees_of_freedom: Numbers
    missing_information: Numbers

    @property
    def std(self) -> Numbers:
        """The standard error."""
        return np.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> tuple[Numbers, Numbers]:
        """Lower and upper ends of the confidence interval.

        Args:
            level: the coverage, between 0 and 1.

        Raises:
            ValueError: for another level.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level is a share between 0 and 1, but got {level}")
        half = stats.t.ppf(0.5 + level / 2, self.degrees_of_freedom) * self.std
        return self.estimate - half, self.estimate + half


def pool(estimates: ArrayLike, variances: ArrayLike) -> Pooled:
    r"""Pool the estimates from several imputed tables by Rubin's rules.

    With estimates $q_i$ and their variances $u_i$ from $m$ tables: $\bar q$ is their mean, the
    variance within is $\bar u$, that between is $b = \sum_i (q_i - \bar q)^2 / (m - 1)$, the total
    is $t = \bar u + (1 + 1/m)\, b$, with $\nu = (m - 1)(1 + \bar u / ((1 + 1/m) b))^2$ degrees of
    freedom.

    Args:
        estimates: `(tables, ...)`, one estimate or an array of them per table.
        variances: squared standard errors, of the same shape.

    Returns:
        The pooled estimate with its variance and intervals.

    Raises:
        ValueError: for other shapes, fewer than two tables, negative or non-finite numbers.

    Example:
        >>> pooled = pool([1.0, 2.0, 3.0], [0.5, 0.5, 0.5])
        >>> float(pooled.estimate), round(float(pooled.variance), 4)
        (2.0, 1.8333)
    """
    values, squares = np.asarray(estimates, dtype=float), np.asarray(variances, dtype=float)
    _check(values, squares)
    tables = len(values)
    within, between = squares.mean(0), values.var(0, ddof=1)
    extra = (1.0 + 1.0 / tables) * between
    total = within + extra
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (tables - 1) * np.where(extra > 0, (total / extra) ** 2, np.inf)
        missing = np.where(total > 0, extra / total, 0.0)
    return Pooled(*map(np.asarray, (values.mean(0), total, within, between, freedom, missing)))


def _check(estimates: Numbers, variances: Numbers) -> None:
    if estimates.shape != variances.shape or estimates.ndim < 1:
        raise ValueError(
            f"pool needs one variance per estimate, one row per imputed table, but got the shapes "
            f"{estimates.shape} and {variances.shape}"
        )
    if len(estimates) < 2:
        raise ValueError(
            f"pool needs the results of at least 2 imputed tables, but got {len(estimates)}; draw "
            "more with VFGImputer.sample"
        )
    if not (np.isfinite(estimates).all() and np.isfinite(variances).all()):
        raise ValueError("pool needs finite estimates and variances, but some are not")
    if (variances < 0).any():
        raise ValueError(f"variances are squares, but the smallest is {variances.min():g}")
