"""VFGImputer: fill the missing values of a table, with the interface of scikit-learn."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data
from torch import Tensor

from vfg.flows import Coupling
from vfg.graph import Graph
from vfg.imputation.columns import as_frame
from vfg.imputation.evaluation import Evaluation, evaluate, held_out_score, hold_out, row_digests
from vfg.imputation.missing_cells import (
    MissingCells,
    ParameterDraws,
    know_of_empty_columns,
)
from vfg.imputation.missingness import Sensitivity, check_shifts
from vfg.imputation.parameter_draws import FittedRows, Posterior
from vfg.imputation.rubin import pool
from vfg.imputation.settings import (
    ImputerSettings,
    as_seed,
    check_count,
    check_estimate,
    check_flag,
    check_share,
    check_table,
    check_type,
    to_python,
)
from vfg.imputation.table_model import TableModel, answering_device
from vfg.inputs import as_weights
from vfg.modelfile import dumps, loads
from vfg.tables.cells import Array, Mask
from vfg.tables.frames import ArrayTable, Table, hide_cells, is_frame, open_table
from vfg.tables.schema import Continuous, Integer, Schema
from vfg.utils.extras import needs

if TYPE_CHECKING:
    from vfg.imputation.explanation import Explanation
    from vfg.structure import LearnedGraph


def finish_table(imputer: VFGImputer, filled: Any, missing: Mask, *, indicate: bool) -> Any:
    """Drop or zero empty columns of a filled table, and append indicators, by the settings."""
    if imputer.keep_empty_features:
        kept = _with_zeros(imputer, filled, missing)
    else:
        kept = _without_columns(filled, dropped_columns(imputer))
    if indicate and imputer.add_indicator:
        return _with_indicator(imputer, kept, missing[:, imputer.gaps_in_fit_])
    return kept


def dropped_columns(imputer: VFGImputer) -> list[int]:
    """Positions of the columns that had no observed cell in fitting, unless they are kept."""
    parts = imputer.model_.encoding.parts.values()
    return [k for k, part in enumerate(parts) if part.empty and not imputer.keep_empty_features]


def _with_zeros(imputer: VFGImputer, filled: Any, missing: Mask) -> Any:
    """The table with 0 in the missing cells of empty numeric columns."""
    encoding = imputer.model_.encoding
    zeros = {
        place: (missing[:, place], np.zeros(int(missing[:, place].sum())))
        for place, (label, part) in enumerate(encoding.parts.items())
        if part.empty and isinstance(encoding.schema[label], Continuous | Integer)
    }
    return open_table(filled, encoding.missing_values).replace_cells(zeros) if zeros else filled


def _without_columns(filled: Any, dropped: list[int]) -> Any:
    if not dropped:
        return filled
    if not is_frame(filled):
        return np.delete(filled, dropped, axis=1)
    if _is_pandas(filled):
        return filled.iloc[:, [k for k in range(filled.shape[1]) if k not in dropped]]
    import narwhals as nw

    frame = nw.from_native(filled, eager_only=True)
    return frame.select(
        [name for k, name in enumerate(frame.columns) if k not in dropped]
    ).to_native()


def _with_indicator(imputer: VFGImputer, filled: Any, marked: Mask) -> Any:
    """The table with a boolean column for every column with missing cells in fitting."""
    if not is_frame(filled):
        # 0 and 1 beside numbers, booleans beside objects.
        dtype = filled.dtype if filled.dtype.kind in "fiub" else np.dtype(object)
        return np.hstack([filled.astype(dtype, copy=False), marked.astype(dtype)])
    names = imputer.get_feature_names_out().tolist()
    marks = dict(zip(names[filled.shape[1] :], marked.T, strict=True))
    if _is_pandas(filled):
        # Columns without names of their own get those that set_output gives them.
        return filled.set_axis(names[: filled.shape[1]], axis=1).assign(**marks)
    import narwhals as nw

    frame = nw.from_native(filled, eager_only=True)
    backend = frame.implementation
    added = [nw.new_series(k, v, nw.Boolean(), backend=backend) for k, v in marks.items()]
    return frame.with_columns(*added).to_native()


def _is_pandas(frame: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(frame, pandas.DataFrame)


def _has_categories(imputer: VFGImputer) -> bool:
    return hasattr(imputer, "model_") and bool(imputer.model_.category_sections)


def _sample_of(model: TableModel, table: Table, sample_weight: Any) -> FittedRows | None:
    """Rows of a fitted table, given which parameters are drawn."""
    weights = as_weights(sample_weight, table.rows)
    values, observed, own = model.fitted_matrix(table, weights)
    return FittedRows.of(values, observed, model.settings.seed, own)


class _LinearOnly:
    """A method of imputers with `bend=False`; others lack it, and the error says why."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, imputer: VFGImputer | None, owner: type | None = None) -> Callable[..., Any]:
        if imputer is None:
            return self.method
        if imputer.bend:
            raise AttributeError(
                f"{self.method.__name__} adds sums over rows, which exist for the linear model "
                "alone; use VFGImputer(bend=False), or fit with all rows"
            )
        return MethodType(self.method, imputer)


SCORED_SHARES = (0.1, 0.3, 0.6, 0.9)
"""Shares of the known cells that `score` hides; the first that hides any."""
ROWS_OF_A_PART = 2**18
"""Rows of long arrays that are filled together, which bounds memory."""


class VFGImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fills the missing values of tables with a variational flow graphical model.

    Every column is a leaf under one root, or of the graph that is given. Six kinds of models
    predict missing cells: an exact linear-Gaussian model; nonlinear members, which start as copies
    of it and whose invertible neural edges are trained to predict hidden cells; exact mixtures, for
    clusters and jumps; row mixtures with a component at every row, which predict from similar rows;
    trees; and Gaussian process regressions, in tables of numbers. Their predictions are combined
    with weights fitted to held-out cells. Fitting uses observed cells only, so every row may have
    missing values. For tables of fewer than 20 rows or more than 3,000 columns, only the linear
    model is fitted.

    Observed cells are returned unchanged, and rows do not influence each other. A row without
    observed cells is filled with unconditional means. Filled numbers stay within the observed range
    of their column, with two exceptions: rows unlike the fitted ones, beyond an end of the range up
    to which the column follows the linear model, and cells that follow exactly from others.
    Categories that were not seen in fitting are kept and are not used as evidence.

    All parameters have defaults that suit most tables. Sizes that are None are chosen from the
    shape of the table and `effort`.

    Args:
        graph: a known graph whose leaves name the columns, or what `vfg.learn_graph` returned;
            None (default) puts one root over all columns. Give one if columns form groups.
        schema: kinds of columns by name, such as `{"age": "integer"}`; None (default) infers all.
            Give the kinds that are inferred wrongly; `schema_` shows the inferred kinds.
        bounds: lowest and highest value that filled cells of columns may have, by name, such as
            `{"age": (0, None)}`; None means the lowest or highest observed value.
        constraints: texts such as "0 <= age <= 120", "a + b == total" or "start <= end", linear in
            columns of numbers or dates, which all filled cells, draws and intervals satisfy; None
            (default) for none. Write names of several words in backticks, columns of arrays as x0,
            x1 and so on, and dates in quotes; differences of dates are in days. Rows whose observed
            cells contradict a constraint are refused.
        discrete: whether columns of floats that are all whole are filled with whole numbers, and
            those with at most ten different values are recognised as few valued (default True).
            Draws of few-valued columns are such values. Switch it off if a column has few values by
            chance.
        bend: whether nonlinear models are fitted (default True). False fits only the linear model,
            which takes seconds; use it if relations are linear or time is short.
        effort: "fast", "balanced" (default) or "best": how many models are fitted, and how long
            nonlinear members are trained; "balanced" trains none where held-out cells predict
            little gain. "best" takes about four times as long to fit as "balanced". Counts and
            steps that are given take precedence.
        members: number of nonlinear members; None chooses it.
        mixtures: number of exact mixtures; None chooses it. With 0 the model keeps no sorted values
            of columns.
        neighbours: number of row mixtures; None chooses it. They keep rows of the table in the
            model and its files; set 0 if the rows are confidential, which leaves out Gaussian
            processes, too, and write the model by `vfg.save`, since a pickled imputer contains rows
            in any case.
        trees: largest number of trees that predict a column, in a second stage; None chooses it.
            Trees keep single values of the table; 0 fits none. For tables of only numbers, none are
            fitted at effort "fast".
        width: of the root; None chooses it from the number of columns.
        flow: the couplings on the edges of members; None chooses them.
        steps: training steps of members; None chooses them. More steps, such as 1,000, may help
            where columns are smooth functions of each other.
        budget: seconds that fitting may take; None (default) for no limit. With less time, fewer
            and smaller models are fitted, and always the linear model, which may take longer.
            `model_.left_out` names the parts for which there was no time.
        n_jobs: number of threads that fit models at the same time; None (default) for as many as
            torch has.
        missing_values: what marks missing values besides NaN (default), None, NaT and NA, such as
            -999.
        missingness: what is assumed about why cells are missing. "ignorable": it does not depend on
            their own values. "self": the log-odds of a number to be missing are linear in its
            value. "auto" (default): "self" if the pattern of missing cells is strong evidence for
            it, and other columns do not explain it better. Cells of later tables are assumed to be
            missing in the same way; `describe_missingness` says what was found.
        estimate: "mean" (default), which is best in squared error, or "median", best in absolute
            error, of columns with order; categories are the most probable ones. Medians need draws
            and similar rows, and take longer.
        add_indicator: whether to append a column that marks missing values, for every column that
            had some in `fit` (default False).
        keep_empty_features: whether to keep columns without any observed cell in `fit`, filled with
            0 if they hold numbers (default False: they are dropped).
        warm_start: whether another `fit` continues from the last one, with the same columns
            (default False).
        device: where to train and to answer; None (default) takes the GPU if there is one.
        checkpoint: folder that keeps the training of members, so that fitting the same table with
            the same settings again continues after a crash; None (default) keeps none.
        random_state: seed, or generator that draws one. Give a number for reproducible results.
        verbose: whether to show a progress bar (default False).

    Attributes:
        model_: the fitted `TableModel`; `vfg.save` writes it to a file.
        schema_: the kinds of all columns.
        n_features_in_: number of columns.
        feature_names_in_: their names, if they are strings.

    Example:
        >>> table = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, np.nan], [4.0, 7.9], [np.nan, 10.1]])
        >>> filled = VFGImputer(random_state=0).fit_transform(table)
        >>> filled.shape, bool(np.isnan(filled).any())
        ((5, 2), False)
    """

    def __init__(
        self,
        graph: Graph | LearnedGraph | None = None,
        *,
        schema: Mapping[Any, Any] | Schema | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        constraints: Sequence[str] | None = None,
        discrete: bool = True,
        bend: bool = True,
        effort: str = "balanced",
        members: int | None = None,
        mixtures: int | None = None,
        neighbours: int | None = None,
        trees: int | None = None,
        width: int | None = None,
        flow: Coupling | None = None,
        steps: int | None = None,
        budget: float | None = None,
        n_jobs: int | None = None,
        missing_values: Any = np.nan,
        missingness: str = "auto",
        estimate: str = "mean",
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        warm_start: bool = False,
        device: str | torch.device | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.graph = graph
        self.schema = schema
        self.bounds = bounds
        self.constraints = constraints
        self.discrete = discrete
        self.bend = bend
        self.effort = effort
        self.members = members
        self.mixtures = mixtures
        self.neighbours = neighbours
        self.trees = trees
        self.width = width
        self.flow = flow
        self.steps = steps
        self.budget = budget
        self.n_jobs = n_jobs
        self.missing_values = missing_values
        self.missingness = missingness
        self.estimate = estimate
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.warm_start = warm_start
        self.device = device
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_settings(cls, settings: ImputerSettings) -> Self:
        """An imputer that is not fitted yet.

        Args:
            settings: how it is fitted.

        Example:
            >>> VFGImputer.from_settings(ImputerSettings(bend=False, seed=3))
            VFGImputer(bend=False, random_state=3)
        """
        chosen = dict(vars(settings))
        random_state, verbose = chosen.pop("seed"), chosen.pop("progress")
        return cls(**chosen, random_state=random_state, verbose=verbose)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to the observed cells of a table.

        A row of weight 3 counts like three equal rows, and one of weight 0 is left out: the linear
        model is the same up to rounding, and the losses of other parts are multiplied. Weights are
        numbers of rows: if they add up to 1, multiply them by the number of rows.

        Args:
            X: a frame of pandas or polars, an array, or nested sequences.
            y: ignored.
            sample_weight: how often every row counts; None for once.

        Returns:
            The imputer.

        Raises:
            ValueError: for infinite cells, no rows or columns, invalid settings, or weights that
                are not finite numbers from 0 on, one per row.
            TypeError: for sparse tables and cells of unknown kinds.
        """
        settings = self._settings()
        check_estimate(self.estimate)
        for name in ("add_indicator", "keep_empty_features", "warm_start"):
            check_flag(name, getattr(self, name))
        known: TableModel | None = getattr(self, "model_", None) if self.warm_start else None
        table = self._table(X, reset=known is None)
        model = TableModel(settings) if known is None else deepcopy(known)
        if known is None:
            model.fit(table, sample_weight=sample_weight)
        else:
            model.refit(table, settings, sample_weight)
        self.model_ = model
        self.schema_ = model.encoding.schema
        if self.keep_empty_features:
            know_of_empty_columns(model, numbers=True)  # they are filled with 0
        self.gaps_in_fit_ = table.missing.any(0)
        self.fitted_sample_ = _sample_of(model, table, sample_weight)
        self.fitted_rows_ = np.unique(row_digests(model, table))
        return self

    @_LinearOnly
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the linear model to further rows, besides all that were given before.

        Needs `bend=False`: only the linear model can be fitted to sums over rows. The model is that
        of all rows at once, except for what the rows of the first call decide: kinds, categories
        and scales of columns, which columns vary, relations between them, and why cells are
        missing. Therefore the first call should have many rows that are like the others. Ranges are
        those of all rows. Rows are not kept. After `fit` it continues from at most 2,000 rows of
        the fitted table, which are weighted to represent all of them.

        Args:
            X: further rows, with the same columns.
            y: ignored.
            sample_weight: how often every row counts; None for once.

        Returns:
            The imputer.

        Raises:
            AttributeError: for `bend=True`.

        Example:
            >>> X = np.random.default_rng(0).normal(size=(100, 1)) * [[1.0, 2.0, 3.0]]
            >>> X += 0.1 * np.random.default_rng(1).normal(size=X.shape)
            >>> imputer = VFGImputer(bend=False, random_state=0)
            >>> for rows in (X[:50], X[50:]):
            ...     imputer = imputer.partial_fit(rows)
            >>> imputer.transform([[1.0, np.nan, np.nan]]).round(0)
            array([[1., 2., 3.]])
        """
        first = not hasattr(self, "model_")
        table, settings = self._table(X, reset=first), self._settings()
        model, known = TableModel(settings) if first else self.model_, None
        if not first:
            known = self.fitted_sample_
            if known is not None and model.linear is not None and model.linear.summary is None:
                model.linear.remember(*known.table, known.often)
        model.partial_fit(table, sample_weight=sample_weight)
        self.model_, self.schema_ = model, model.encoding.schema
        sample = _sample_of(model, table, sample_weight)
        if first:
            self.gaps_in_fit_ = table.missing.any(0)
            self.fitted_sample_ = sample
            self.fitted_rows_ = np.unique(row_digests(model, table))
        else:
            self.gaps_in_fit_ = self.gaps_in_fit_ | table.missing.any(0)
            self.fitted_sample_ = sample if known is None else known.plus(sample, settings.seed)
            self.fitted_rows_ = np.union1d(self.fitted_rows_, row_digests(model, table))
        return self

    def transform(self, X: Any) -> Any:
        """Fill the missing values of a table; the model is not refitted.

        Args:
            X: a table with the columns that were fitted, in the same order.

        Returns:
            A table of the same kind and dtypes, with the missing values filled.

        Raises:
            ValueError: for other columns, infinite cells, or rows that contradict a constraint.

        Example:
            >>> table = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, np.nan], [4.0, 7.9]])
            >>> imputer = VFGImputer(bend=False, random_state=0).fit(table)
            >>> bool(4.0 < imputer.transform([[3.0, np.nan]])[0, 1] < 8.0)
            True
        """
        check_is_fitted(self)
        table = self._table(X, reset=False)
        return finish_table(self, self._fill(table), table.missing, indicate=True)

    def sample(self, X: Any, n: int = 5, *, proper: bool = True, random_state: Any = 0) -> Any:
        """Multiple imputation: draw the missing values several times, jointly within each row.

        Proper draws differ in the parameters of the model, too, so that the analyses of the tables
        can be pooled by `vfg.pool`. They keep the linear relations between columns, which
        predictions shrink. Parameters are drawn by data augmentation, given at most 2,000 of the
        fitted rows, which the imputer keeps. For tables of more than 64 encoded columns (numbers,
        and coordinates of categories), draws are from the fitted model alone.

        Args:
            X: a table with the columns that were fitted.
            n: number of tables (default 5). Take 20 or more for pooled estimates.
            proper: whether parameters are drawn (default True). Without it, all draws are from the
                fitted model, as those of `infer` and of intervals, and pooled intervals are too
                narrow.
            random_state: seed of the draws (default 0).

        Returns:
            `(n, rows, columns)` for arrays, else a list of n tables of the kind of X. The first
            draws are the same for every n.

        Raises:
            ValueError: for a number of draws that is not positive.
            TypeError: for `proper` that is not True or False.

        Example:
            >>> table = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, np.nan], [4.0, 7.9], [5.0, 10.1]])
            >>> VFGImputer(bend=False, random_state=0).fit(table).sample(table, 3).shape
            (3, 5, 2)
        """
        check_is_fitted(self)
        check_count("n", n)
        check_flag("proper", proper)
        cells = MissingCells(self.model_, self._table(X, reset=False))
        tables = self._tables(cells, self._draw(cells, int(n), as_seed(random_state), proper))
        return np.stack(tables) if isinstance(tables[0], np.ndarray) else tables

    def predict_interval(
        self, X: Any, level: float = 0.9, *, random_state: Any = 0
    ) -> tuple[Any, Any]:
        """Ends of the central intervals of every missing value.

        An interval contains the value that `transform` fills in. In rows far outside the fitted
        data, filled values may stay within the observed range while intervals do not. For an
        observed cell both ends are its value, and for a category both are the category that
        `transform` fills in. Ends are quantiles of 60 draws, which depend on the seed and on the
        position of a row in X; with `bend=False` they have closed forms.

        Args:
            X: a table with the columns that were fitted.
            level: the share of intervals that should contain the true value (default 0.9).
            random_state: seed of the draws (default 0).

        Returns:
            The lower and the upper ends, two tables of the kind of X.

        Raises:
            ValueError: for a level that is not between 0 and 1.

        Example:
            >>> table = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, np.nan], [4.0, 7.9], [5.0, 10.1]])
            >>> imputer = VFGImputer(bend=False, random_state=0).fit(table)
            >>> low, high = imputer.predict_interval(table)
            >>> bool(low[2, 1] < imputer.transform(table)[2, 1] < high[2, 1])
            True
        """
        check_is_fitted(self)
        check_share("level", level)
        cells = MissingCells(self.model_, self._table(X, reset=False))
        ends = cells.intervals(level, as_seed(random_state), *self._estimate)
        low, high = self._tables(cells, ends, are_ends=True)
        return low, high

    def explain(
        self, X: Any, row: int, column: Any, *, evaluations: int = 512, random_state: Any = 0
    ) -> Explanation:
        """Why a cell is filled as it is; see `vfg.TableModel.explain`.

        Args:
            X: a table with the columns that were fitted.
            row: position of the row.
            column: label of the column, or its position in a table without labels.
            evaluations: about how many predictions an ensemble may compute (default 512); more
                make contributions more exact. The linear model has a closed form.
            random_state: seed of the orders in which cells are revealed (default 0).

        Returns:
            Contributions of the observed cells, similar rows and a sentence.

        Raises:
            ValueError: for a column that is not filled.
            IndexError: for a row that does not exist.

        Example:
            >>> import numpy as np
            >>> X = np.random.default_rng(0).normal(size=(100, 1)) * [[1.0, 2.0, 3.0]]
            >>> X += 0.1 * np.random.default_rng(1).normal(size=X.shape)
            >>> X[0] = np.nan, 2.0, 3.0
            >>> why = VFGImputer(bend=False).fit(X).explain(X, 0, 0)
            >>> round(sum(why.contributions.values()) - (why.total - why.start), 9)
            0.0
        """
        check_is_fitted(self)
        table, seed = self._table(X, reset=False), as_seed(random_state)
        return self.model_.explain(table, row, column, evaluations=evaluations, seed=seed)

    def sensitivity(
        self,
        X: Any,
        delta: Any = (-1.0, -0.5, 0.0, 0.5, 1.0),
        *,
        statistic: Callable[[Any], Any] | None = None,
        level: float = 0.9,
        n: int = 20,
        random_state: Any = 0,
    ) -> Sensitivity:
        """How results change if missing numbers differ from what is filled in.

        Data cannot prove why cells are missing. This shifts all missing numbers by `delta` standard
        deviations of their columns and recomputes the results. Shifted cells stay within the bounds
        of their columns. `vfg.plots.sensitivity` draws the result.

        Args:
            X: a table with the columns that were fitted.
            delta: the shifts (default -1, -0.5, 0, 0.5 and 1).
            statistic: a function from a filled table to an estimate and its variance or covariance;
                it is computed from n draws per shift and pooled by `vfg.pool`. None (default) for
                none.
            level: of intervals (default 0.9).
            n: draws for the statistic (default 20).
            random_state: seed of the draws (default 0).

        Returns:
            Means of filled cells, of their intervals and of whole columns by shift, and the pooled
            statistic.

        Raises:
            ValueError: for shifts that are no finite numbers, a level that is not between 0 and 1,
                or a table without missing numbers.
            TypeError: for a statistic that is no function.

        Example:
            >>> table = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, np.nan], [4.0, 7.9], [5.0, 10.1]])
            >>> imputer = VFGImputer(bend=False, random_state=0).fit(table)
            >>> imputer.sensitivity(table, [-1, 0, 1]).means.shape
            (3, 1)
        """
        check_is_fitted(self)
        check_share("level", level)
        check_count("n", n, 2)
        if statistic is not None:
            words = "a function from a filled table to a pair (estimate, variance), or None"
            check_type("statistic", statistic, Callable, words)  # type: ignore[arg-type]
        shifts, seed = check_shifts(delta), as_seed(random_state)
        cells = MissingCells(self.model_, self._table(X, reset=False))
        ends = cells.intervals(level, seed)
        summary = cells.shifted_means(torch.stack([cells.means(), *ends]), shifts)
        if statistic is None:
            return Sensitivity(shifts, *summary)
        drawn = self._draw(cells, int(n), seed, True)
        tables = [self._tables(cells, drawn + shift * cells.numeric) for shift in shifts]
        pooled = [pool([statistic(one) for one in several]) for several in tables]
        return Sensitivity(shifts, *summary, tuple(pooled))

    def describe_missingness(self) -> str:
        """A sentence about why cells of the fitted table are missing.

        It says what `missingness=` found or assumed; see `vfg.TableModel.describe_missingness`.

        Returns:
            The sentence.

        Example:
            >>> table = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, np.nan], [4.0, 7.9], [5.0, 10.1]])
            >>> sentence = VFGImputer(bend=False).fit(table).describe_missingness()
            >>> sentence.partition(",")[0]
            'whether cells are missing because of their value cannot be detected in this table'
        """
        check_is_fitted(self)
        return self.model_.describe_missingness()

    def score_samples(self, X: Any) -> Array:
        """log p of the observed cells of every row; see `vfg.TableModel.log_prob`.

        Args:
            X: a table with the columns that were fitted.

        Returns:
            An array `(rows,)`.
        """
        check_is_fitted(self)
        return self.model_.log_prob(self._table(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean error of cells hidden by a fixed seed, for model selection.

        Higher is better, and filling in means gets about -1. The error of a number is
        squared, in standard deviations of its column. That of a category is minus the logarithm of
        its probability, divided by the entropy of its column. X should have rows that were not
        fitted.

        Args:
            X: a table with the columns that were fitted.
            y: ignored.

        Returns:
            The score; NaN if no cell can be hidden.
        """
        check_is_fitted(self)
        table = self._table(X, reset=False)
        masks = (hold_out(table, share, 0) for share in SCORED_SHARES)
        hidden = next((mask for mask in masks if mask.any()), np.zeros_like(table.missing))
        return held_out_score(self.model_, table, hidden)

    @available_if(_has_categories)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> dict[Any, Any]:
        """Probabilities of the categories of every cell, by column; 1 for an observed category.

        Available if the fitted table has columns of categories, booleans or ordered levels.

        Args:
            X: a table with the columns that were fitted.

        Returns:
            For every such column a frame of pandas with a column per category and the rows of X.

        Raises:
            AttributeError: for a fitted table without such columns.

        Example:
            >>> table = {"x": [1.0, 2.0, 3.0, 4.0] * 5, "c": ["a", "a", "b", "b"] * 5}
            >>> imputer = VFGImputer(bend=False, random_state=0).fit(table)
            >>> chances = imputer.predict_proba({"x": [1.0], "c": [None]})["c"]
            >>> bool(chances.loc[0, "a"] > chances.loc[0, "b"])
            True
        """
        table = self._table(X, reset=False)
        with needs("table"):
            import pandas
        labels: list[Any] = list(self.model_.category_sections)
        answer = self.model_.infer(table, labels)
        index = X.index if _is_pandas(X) else None
        return {
            name: pandas.DataFrame(chances, index=index, columns=list(answer.categories[name]))
            for name, chances in answer.probabilities.items()
        }

    @available_if(_has_categories)  # type: ignore[untyped-decorator]
    def predict_set(self, X: Any, level: float = 0.9) -> dict[Any, Any]:
        r"""Sets of categories for missing cells; a share `level` of them contains the true one.

        A set has the categories with a probability of at least $t$, and the most probable one.
        Every column has a threshold $t$ of its own: the $1 - L$ quantile, for the level $L$, of the
        probabilities of the true categories at held-out cells, with the correction of
        split-conformal prediction for their number. Columns with few held-out cells also use those
        of other columns. A share $L$ of all sets contains the true category: more of those of cells
        that are easy to predict, fewer of the others. Where the most probable category is right
        more often than $L$, all sets have one category. A model without held-out cells, such as the
        linear one, takes the fewest categories whose probabilities sum to $L$.

        Args:
            X: a table with the columns that were fitted.
            level: the share of sets that should contain the true category (default 0.9).

        Returns:
            For every column of categories a frame of pandas with a column per category and the rows
            of X: whether the category is in the set. An observed category is alone in its set.

        Raises:
            ValueError: for a level that is not between 0 and 1.
        """
        check_share("level", level)
        chances = self.predict_proba(X)
        sets = dict(chances)
        for label, shares in chances.items():
            chosen = self.model_.category_sets(label, shares.to_numpy(), level)
            sets[label] = type(shares)(chosen, shares.index, shares.columns)
        return sets

    def embed(self, X: Any) -> Array:
        """The latent states of the root, of the first member or of the linear model.

        Args:
            X: a table with the columns that were fitted.

        Returns:
            An array `(rows, width)`.
        """
        check_is_fitted(self)
        return self.model_.embed(self._table(X, reset=False))

    def evaluate(
        self,
        X: Any,
        *,
        share: float = 0.1,
        level: float = 0.9,
        random_state: Any = 0,
        refit: bool | None = None,
    ) -> Evaluation:
        """Evaluate on a table: hide known cells, fill them, compare.

        Errors at cells that a model was fitted to are too small. Therefore, if rows of X were
        fitted, a second model is fitted to X without the hidden cells, with the same settings, and
        evaluated instead.

        Args:
            X: a table with the columns that were fitted.
            share: of the known cells to hide (default 0.1).
            level: of the intervals whose coverage is measured (default 0.9).
            random_state: seed of the choice of cells (default 0).
            refit: whether to fit a second model; None (default) does so if rows of X were fitted.

        Returns:
            Errors and coverage by column and overall.

        Raises:
            ValueError: for `refit=False` and rows that were fitted.

        Example:
            >>> X = np.random.default_rng(0).normal(size=(100, 1)) * [[1.0, 2.0, 3.0]]
            >>> X += 0.1 * np.random.default_rng(1).normal(size=X.shape)
            >>> report = VFGImputer(bend=False, random_state=0).fit(X).evaluate(X)
            >>> bool(report.rmse < 0.3 * report.baseline)
            True
        """
        check_is_fitted(self)
        check_share("level", level)
        if refit is not None:
            check_flag("refit", refit)
        table, seed, model = self._table(X, reset=False), as_seed(random_state), self.model_
        digests = row_digests(model, table)
        fitted = int((np.isin(digests, self.fitted_rows_) & (digests != 0)).sum())
        if refit is False and fitted:
            raise ValueError(
                f"{fitted} of the {table.rows} rows were fitted, so their errors would be too "
                "small; evaluate other rows, or leave out refit=False"
            )
        hidden = hold_out(table, share, seed, keep=2 if refit or fitted else 0)
        if (refit or fitted) and hidden.any():
            model = TableModel(replace(self._settings(), progress=False))
            model.fit(hide_cells(table, hidden))
        return evaluate(model, table, hidden, level=level, seed=seed)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns that `transform` returns.

        Args:
            input_features: names of the columns, if the fitted table had none.
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        kept = np.delete(names, dropped_columns(self))
        if not self.add_indicator:
            return kept
        marks = [f"missingindicator_{name}" for name in names[self.gaps_in_fit_]]
        return np.concatenate([kept, np.asarray(marks, dtype=object)])

    # Serialisation.

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__().copy()
        state.pop("_known_posterior", None)
        if "model_" in state:
            state["model_"] = dumps(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if isinstance(state.get("model_"), bytes):
            state["model_"] = loads(state["model_"], answering_device(state["device"]))
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # Private.

    def _table(self, X: Any, *, reset: bool) -> Table:
        """The checked table; every column is read once."""
        X = as_frame(X, None if reset else list(self.model_.encoding.schema))
        table = check_table(X, to_python(self.missing_values), type(self).__name__)
        given = X if is_frame(X) or not isinstance(table, ArrayTable) else table.array
        validate_data(self, given, reset=reset, skip_check_array=True)
        return table

    def _settings(self) -> ImputerSettings:
        """The parameters that decide the model."""
        own = {f.name for f in fields(ImputerSettings)}
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name in own}
        return ImputerSettings(
            **{**chosen, "missing_values": to_python(self.missing_values)},
            progress=bool(self.verbose),
            seed=as_seed(self.random_state),
        )

    @property
    def _estimate(self) -> tuple[str, int]:
        """What missing cells are filled with, and the seed of its draws."""
        check_estimate(self.estimate)
        return self.estimate, as_seed(self.random_state) if self.estimate == "median" else 0

    def _fill(self, table: Table) -> Any:
        """The table with means or medians in its missing cells."""
        chosen = self._estimate
        numbers = isinstance(table, ArrayTable) and table.array.dtype.kind == "f"
        if not numbers or table.rows <= ROWS_OF_A_PART:
            cells = MissingCells(self.model_, table)
            return cells.fill(cells.estimates(*chosen))
        # Parts use the same memory; ids continue, so that the bits are those of the whole.
        assert isinstance(table, ArrayTable)
        filled = np.empty_like(table.array)
        for start in range(0, table.rows, ROWS_OF_A_PART):
            part = ArrayTable(table.array[start : start + ROWS_OF_A_PART], table.marker)
            cells = MissingCells(self.model_, part, start)
            filled[start : start + ROWS_OF_A_PART] = cells.fill(cells.estimates(*chosen))
        return filled

    def _posterior(self) -> Posterior | None:
        """That of the fitted rows; it is kept, but not in files, until others are fitted."""
        fitted: FittedRows | None = getattr(self, "fitted_sample_", None)
        known: Posterior | None = self.__dict__.get("_known_posterior")
        if fitted is not None and (known is None or known.fitted is not fitted):
            known = self._known_posterior = Posterior(fitted)
        return None if fitted is None else known

    def _draw(self, cells: MissingCells, number: int, seed: int, proper: bool) -> Tensor:
        """Draws of the missing cells, with parameters of their own where those can be drawn."""
        posterior = self._posterior()
        if proper and posterior is not None and len(cells.values):
            return cells.proper_draws(ParameterDraws.of(self.model_, posterior, number, seed), seed)
        return cells.draws(number, seed)

    def _tables(
        self, cells: MissingCells, matrices: Tensor, *, are_ends: bool = False
    ) -> list[Any]:
        """One filled table per matrix."""
        filled = (cells.fill(matrix, are_ends=are_ends) for matrix in matrices)
        return [finish_table(self, one, cells.missing, indicate=False) for one in filled]
