"""Rubin's rules: one answer from the analyses of several imputed tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from vfg.imputation.settings import check_share, check_type, is_number

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Pooled:
    """Estimates pooled over imputations; every field has the shape of one estimate.

    Attributes:
        estimate: the mean of the estimates.
        variance: of that mean: within + (1 + 1/m) between.
        within: the mean of the variances.
        between: the variance of the estimates among the imputations.
        degrees_of_freedom: of Student's t for intervals; infinite if imputations agree and the
            analyses state none.
        missing_information: lambda, the share of the variance that is due to missing cells.
        gamma: Rubin's fraction of missing information, lambda with a correction for the number of
            imputations.
        covariance: of the pooled estimates, if covariances were given.
    """

    estimate: Numbers
    variance: Numbers
    within: Numbers
    between: Numbers
    degrees_of_freedom: Numbers
    missing_information: Numbers
    gamma: Numbers
    covariance: Numbers | None = None

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
        check_share("level", level)
        half = scipy.special.stdtrit(self.degrees_of_freedom, 0.5 + level / 2) * self.std
        return self.estimate - half, self.estimate + half


def pool(
    estimates: ArrayLike | Sequence[Any],
    variances: ArrayLike | None = None,
    *,
    complete_df: float | None = None,
) -> Pooled:
    r"""Pool the estimates from several imputed tables by Rubin's rules.

    With estimates $q_i$ and their variances $u_i$ from $m$ tables: $\bar q$ is their mean, the
    variance within is $\bar u$, that between is $b = \sum_i (q_i - \bar q)^2 / (m - 1)$, the total
    is $t = \bar u + (1 + 1/m)\, b$, and $\lambda = (1 + 1/m)\, b / t$. Intervals have
    $\nu = (m - 1) / \lambda^2$ degrees of freedom. If the analysis of a complete table has
    $\nu_c$ of them, they have $\nu \nu_o / (\nu + \nu_o)$ with
    $\nu_o = \nu_c (1 - \lambda) (\nu_c + 1) / (\nu_c + 3)$, by Barnard and Rubin.

    Args:
        estimates: `(tables, ...)`, one estimate or an array of them per table. Without variances:
            one result per table with `params` and `cov_params()`, as of statsmodels, or one pair
            (estimate, covariance) per table.
        variances: squared standard errors, of the same shape.
        complete_df: degrees of freedom of the analysis of a complete table, such as rows minus
            coefficients; None takes `df_resid` of results, and no limit for numbers.

    Returns:
        The pooled estimate with its variance and intervals.

    Raises:
        ValueError: for other shapes, fewer than two tables, negative or non-finite numbers.
        TypeError: for results that are no list.

    Example:
        >>> pooled = pool([1.0, 2.0, 3.0], [0.5, 0.5, 0.5])
        >>> float(pooled.estimate), round(float(pooled.variance), 4)
        (2.0, 1.8333)
    """
    covariances = None
    if variances is None:
        estimates, covariances, stated = _read_results(estimates)
        complete_df = stated if complete_df is None else complete_df
        variances = np.diagonal(covariances, axis1=1, axis2=2)
    if complete_df is not None and not (is_number(complete_df, Real) and complete_df > 0.0):
        raise ValueError(f"complete_df must be a positive number or None, but is {complete_df!r}")
    values, squares = _numbers("estimates", estimates), _numbers("variances", variances)
    _check(values, squares)
    tables = len(values)
    within, between = squares.mean(0), values.var(0, ddof=1)
    extra = (1.0 + 1.0 / tables) * between
    total = within + extra
    with np.errstate(divide="ignore", invalid="ignore"):
        missing = np.where(total > 0, extra / total, 0.0)
        freedom = (tables - 1) * np.where(extra > 0, (total / extra) ** 2, np.inf)
        if complete_df is not None:
            observed = complete_df * (1.0 - missing) * (complete_df + 1.0) / (complete_df + 3.0)
            limited = freedom * observed / (freedom + observed)
            freedom = np.where(np.isinf(freedom), observed, limited)
        ratio = np.where(within > 0, extra / within, np.inf)
        corrected = (ratio + 2.0 / (freedom + 3.0)) / (ratio + 1.0)
        gamma = np.where(np.isinf(ratio), missing, np.where(extra > 0, corrected, 0.0))
    whole = None
    if covariances is not None:
        whole = covariances.mean(0) + (1.0 + 1.0 / tables) * np.atleast_2d(np.cov(values.T))
    return Pooled(
        np.asarray(values.mean(0)),
        np.asarray(total),
        np.asarray(within),
        np.asarray(between),
        np.asarray(freedom),
        np.asarray(missing),
        np.asarray(gamma),
        whole,
    )


def _read_results(results: Any) -> tuple[Numbers, Numbers, float | None]:
    """Estimates, covariances and degrees of freedom of one analysis per table."""
    words = "a list with the result of every imputed table, if there are no variances"
    check_type("estimates", results, Iterable, words)
    listed, freedom = list(results), []
    if not listed:
        raise ValueError("pool needs the results of at least 2 imputed tables, but got none")
    pairs = []
    for result in listed:
        if hasattr(result, "params") and callable(getattr(result, "cov_params", None)):
            pairs.append((result.params, result.cov_params()))
            freedom.append(getattr(result, "df_resid", None))
        elif isinstance(result, tuple | list) and len(result) == 2:
            pairs.append((result[0], result[1]))
        else:
            raise ValueError(
                "without variances, pool needs one result with params and cov_params(), or one "
                f"pair (estimate, covariance), per table, but got {type(result).__name__}"
            )
    values = [np.atleast_1d(_numbers("estimates", estimate)) for estimate, _ in pairs]
    squares = [np.atleast_2d(_numbers("covariances", covariance)) for _, covariance in pairs]
    size = len(values[0])
    wrong = [x.shape for x in values if x.shape != (size,)]
    wrong += [x.shape for x in squares if x.shape != (size, size)]
    if wrong:
        raise ValueError(
            f"every table needs {size} estimates and a covariance matrix of {size} x {size}, but "
            f"one has the shape {wrong[0]}"
        )
    stated = [number for number in freedom if number is not None]
    return np.stack(values), np.stack(squares), float(min(stated)) if stated else None


def _numbers(name: str, given: Any) -> Numbers:
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be numbers, or arrays of them of the same shape for every imputed table, "
            f"but are {given!r}"
        ) from None


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
