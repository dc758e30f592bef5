"""Answers about tables, from evidence of any kind, in units and categories of the table."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian.answers import GaussianAnswer
from vfg.gaussian.conditional_means import concat_leaves
from vfg.graph.checks import suggestion
from vfg.imputation.ensemble import DRAWS, FewRows, Prediction, quantiles_of_draws
from vfg.imputation.limits import lift_passed
from vfg.inference.answers import Answer, ByName, check_draws
from vfg.inference.evidence import is_records
from vfg.inference.variables import (
    Marginal,
    Value,
    Variable,
    central_levels,
    days_of,
    even_levels,
    given_marginal,
    is_missing_value,
)
from vfg.inputs import Name, coordinate_labels
from vfg.tables.categorical import OrdinalEncoding, category_indices
from vfg.tables.cells import Array, Column, Label, Mask, as_objects, hide_unreadable, read_cells
from vfg.tables.frames import as_cell_mask, hide_cells, is_frame, open_table, quote
from vfg.tables.numeric import NumericEncoding

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel

DRAWS_FOR_DEVIATIONS = 256
"""Draws behind deviations and covariances, which are then within 5 % of those of the model."""
OUTER = 0.1
"""Quantiles of this level, and of one less it, are ends of intervals, which contain means."""
ROWS_AT_ONCE = 1024
"""Rows that are drawn together for deviations, which bounds memory."""
MICROSECONDS_OF_A_DAY = 86_400e6
Target: TypeAlias = tuple[Label, ...] | str
"""Columns of the table, or a latent node."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of some rows of a table, as read from what a user gave."""

    values: Tensor  # the modelled columns of the matrix, (rows, columns)
    observed: Tensor  # which of these entries are evidence
    columns: Mapping[Label, Column]  # what was given
    index: Any = None  # the row labels of a pandas frame
    by_name: bool = False  # whether values were given by name rather than as a table

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.values)

    @property
    def matrix(self) -> tuple[Tensor, Tensor]:
        """The entries, and which of them are evidence."""
        return self.values, self.observed

    def select(self, rows: Sequence[int]) -> Evidence:
        """Some of the rows."""
        chosen = list(rows)
        columns = {
            label: replace(column, values=column.values[chosen], missing=column.missing[chosen])
            for label, column in self.columns.items()
        }
        index = None if self.index is None else self.index[chosen]
        return Evidence(self.values[chosen], self.observed[chosen], columns, index, self.by_name)


def read_evidence(model: TableModel, given: Any, observed: Any = None) -> Evidence:
    """Evidence in any form that `TableModel.infer` takes; `observed` masks a table."""
    given = as_mapping(given)
    by_name = isinstance(given, Mapping) or is_records(given)
    if not by_name:
        columns, rows = _columns_of_table(model, given, observed)
    elif observed is None:
        columns, rows = _columns_by_name(model, given)
    else:
        raise ValueError(
            "observed= masks a table, but values by name were given; leave out what is unknown"
        )
    columns = [_in_fitted_zone(model, column) for column in columns]
    matrix = model.encoding.encode_columns(columns, rows)
    _warn_of_unknown_categories(model, columns, matrix[1])
    values, seen = model.encoding.without_idle(*matrix, model.columns)
    named = {column.label: column for column in columns}
    index = getattr(given, "index", None) if is_frame(given) else None
    return Evidence(values, seen, named, index, by_name)


def _in_fitted_zone(model: TableModel, column: Column) -> Column:
    """Dates of another time zone as the clocks of the fitted one show them; others as they are.

    Texts that are no dates are missing, with a warning.
    """
    part = model.encoding.parts[column.label]
    clock = part.clock if isinstance(part, NumericEncoding) else None
    column = column if clock is None else hide_unreadable(column, clock.template)
    if clock is None or column.zone is None or column.values.dtype.kind != "M":
        return column
    return replace(column, values=clock.from_zone(column.values, column.zone), zone=clock.zone)


def as_mapping(given: Any) -> Any:
    """A labelled series of pandas or polars as a mapping; anything else as it is."""
    if isinstance(given, list | tuple) and not given:
        raise ValueError("the evidence has no rows; give a mapping, a list of mappings or a table")
    is_series = getattr(given, "ndim", 0) == 1 and hasattr(given, "to_dict")
    return given.to_dict() if is_series else given


def _warn_of_unknown_categories(model: TableModel, columns: Sequence[Column], seen: Mask) -> None:
    """Warn of columns all of whose cells are unknown categories: probably of another dtype."""
    encoding = model.encoding
    for column in columns:
        part = encoding.parts[column.label]
        known = seen[:, encoding.sections[column.label]].any()
        if isinstance(part, NumericEncoding) or part.constant or part.empty or known:
            continue
        if not column.missing.all():
            example = as_objects(column.observed[:1])[0]
            warnings.warn(
                f"column {column.label!r} holds {example!r}, but none of its cells is a category "
                "that the model knows, so they are no evidence; convert the column to the type "
                "that was fitted",
                stacklevel=4,
            )


def _columns_of_table(model: TableModel, table: Any, observed: Any) -> tuple[list[Column], int]:
    """The columns of a table that may lack some, under the labels of the model."""
    opened = open_table(table, model.encoding.missing_values)
    labels = list(model.encoding.schema)
    counted = labels == list(range(len(labels)))
    if not is_frame(table) or counted or opened.labels == tuple(range(len(opened.labels))):
        model.places(opened.labels)
    else:
        unknown = [label for label in opened.labels if str(label) not in model.labels]
        if unknown:
            close = suggestion(str(unknown[0]), model.labels)
            raise ValueError(
                f"the table has the column {quote(unknown)}, which the model does not know; "
                f"{close} Select the columns of the model."
            )
        labels = [model.labels[str(label)] for label in opened.labels]
    if observed is not None:
        mask = as_cell_mask(observed, opened)
        empty = mask & opened.missing
        if empty.any():
            row, place = np.argwhere(empty)[0].tolist()
            raise ValueError(
                f"observed marks column {labels[place]!r} of row {row} as observed, but it is "
                "missing; give its value, or mark it as unobserved"
            )
        opened = hide_cells(opened, ~mask)
    columns = [replace(c, label=label) for c, label in zip(opened.columns(), labels, strict=True)]
    return columns, opened.rows


def _columns_by_name(model: TableModel, given: Any) -> tuple[list[Column], int]:
    """Columns from values by name, or from a list of such mappings."""
    records = list(given) if not isinstance(given, Mapping) else _as_records(model, given)
    cells: dict[Label, Array] = {}
    for row, record in enumerate(records):
        for name, value in record.items():
            for label, cell in _cells_of(model, name, value):
                if label not in cells:
                    cells[label] = np.full(len(records), None, dtype=object)
                if cells[label][row] is not None:
                    raise ValueError(f"the evidence gives column {label!r} twice; give it once")
                cells[label][row] = _check_cell(model, label, cell)
    marker = model.encoding.missing_values
    return [read_cells(label, column, marker) for label, column in cells.items()], len(records)


def _as_records(model: TableModel, given: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """Rows from values by name, each a single value or one per row."""
    lists = {
        name: list(value) for name, value in given.items() if _has_row_values(model, name, value)
    }
    rows = max(map(len, lists.values()), default=1)
    for name, values in lists.items():
        if len(values) not in (1, rows):
            raise ValueError(
                f"all evidence must have the same number of rows, but {name!r} has {len(values)} "
                f"and others have {rows}"
            )
    repeated = {name: own * rows if len(own) == 1 else own for name, own in lists.items()}
    return [
        {name: repeated[name][row] if name in lists else value for name, value in given.items()}
        for row in range(rows)
    ]


def _has_row_values(model: TableModel, name: Name, value: Any) -> bool:
    """Whether a value is one per row rather than a single one."""
    is_single = isinstance(value, str | bytes) or not hasattr(value, "__len__")
    if is_single or getattr(value, "ndim", 1) == 0:
        return False
    columns = model.resolve(name)
    wide = not isinstance(columns, str) and len(columns) > 1
    first = next(iter(value), None)
    return not wide or (isinstance(first, Sequence | np.ndarray) and not isinstance(first, str))


def _cells_of(model: TableModel, name: Name, value: Any) -> Iterator[tuple[Label, Any]]:
    """The cells of one row that a name and its value denote."""
    columns = model.resolve(name)
    if isinstance(columns, str):
        raise ValueError(
            f"{name!r} is a latent node, and the parts of a table's model have latent spaces of "
            "their own; give values of columns"
        )
    values = [value] if len(columns) == 1 else list(value)
    if len(values) != len(columns):
        raise ValueError(
            f"{name!r} holds the {len(columns)} columns {quote(columns)}, but got {value!r}"
        )
    yield from zip(columns, values, strict=True)


def _check_cell(model: TableModel, label: Label, value: Any) -> Any:
    """A value as a cell of its column; None if it is missing."""
    variable = model.variables[str(label)]
    value = value.item() if isinstance(value, np.generic | Tensor) else value
    if is_missing_value(value):
        return None
    part = model.encoding.parts[label]
    if variable.kind == "choice":
        # Columns without observed cells, and names that no two rows share, are no evidence.
        return variable.parse(value) if part.fillable else value
    if isinstance(part, NumericEncoding) and part.clock is not None:
        return _as_time(variable, part, value)
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"the value of {variable.name!r} must be a number, but is {value!r}")
    return value


def _as_time(variable: Variable, part: NumericEncoding, value: Any) -> Any:
    """A date from ISO text, or a duration from days; anything else as it is."""
    assert part.clock is not None
    if part.clock.zone is not None and getattr(value, "tzinfo", None) is not None:
        instant = np.array([value.astimezone(UTC).replace(tzinfo=None)], "M8[us]")
        return part.clock.from_zone(instant, "UTC").astype("M8[us]").astype(object)[0]
    if part.clock.kind == "M" and isinstance(value, str):
        return np.datetime64(variable.parse(value), "us").astype(object)
    if part.clock.kind == "m" and isinstance(value, Real):
        days = round(float(value) * MICROSECONDS_OF_A_DAY)
        return np.timedelta64(days, "us").astype(object)
    if isinstance(value, str | Real):
        raise ValueError(f"the value of {variable.name!r} must be a date, but is {value!r}")
    return value


class TableAnswer(Answer):
    """What a `vfg.TableModel` infers: arrays by column, in the units and categories of the table.

    Numbers have float64 means (also of integers), whole numbers are drawn as such; dates are
    `datetime64`, in local time of the fitted time zone if there is one, and their deviations
    `timedelta64`. Deviations come from 256 draws and quantiles from
    60, beyond which tails are those of a Normal; for the linear model alone both are closed forms.
    Draws are joint, and all of it keeps to the limits of filled cells. `few` holds what is computed
    already about rows without padding.
    """

    def __init__(
        self,
        model: TableModel,
        given: Evidence,
        targets: Mapping[Name, Target],
        row_ids: Tensor,
        seed: int,
        padded: bool,
        few: FewRows | None = None,
    ) -> None:
        self._model, self._given, self._padded = model, given, padded
        self._targets, self._row_ids, self._seed = dict(targets), row_ids, seed
        if few is None and not padded and given.rows:
            few = FewRows.of(model, given.values, given.observed)
        self._few = few

    @property
    def targets(self) -> tuple[Name, ...]:
        return tuple(self._targets)

    @property
    def rows(self) -> int:
        return self._given.rows

    @property
    def joint(self) -> bool:
        return True

    @property
    def converged(self) -> Array:
        return np.ones(self.rows, dtype=bool)

    @cached_property
    def mean(self) -> ByName:
        """Expected values `(rows,)`; of a leaf with several columns `(rows, columns)`."""
        matrix = self._model.spread_out(self._estimates)
        return self._by_target(
            lambda label: self._with_given(label, self._centre(label, matrix)),
            lambda node: self._latent.mean[node].numpy(),
        )

    @cached_property
    def std(self) -> ByName:
        """Standard deviations, shaped like `mean`; 0 where observed, NaN for categories."""
        return self._by_target(self._deviations, lambda node: self._latent.std[node].numpy())

    @cached_property
    def probabilities(self) -> ByName:
        """Probabilities `(rows, categories)` of the targets that have categories."""
        return ByName({name: self._probabilities(label) for name, label in self._choices()})

    @property
    def categories(self) -> dict[Name, tuple[Any, ...]]:
        variables = self._model.variables
        return {name: variables[str(label)].categories for name, label in self._choices()}

    def samples(self, n: int) -> ByName:
        """Joint draws `(n, rows)`, of a leaf with several columns `(n, rows, columns)`.

        Args:
            n: how many draws per row.

        Raises:
            ValueError: if `n` is not positive.
        """
        check_draws(n)
        matrices = self._model.spread_out(self._draws(n))
        return self._by_target(
            lambda label: self._with_given(label, self._decode(label, matrices)),
            lambda node: self._latent.samples(n)[node].numpy(),
        )

    def covariance(self, targets: Name | Sequence[Name]) -> Array:
        """The joint covariance of one target or several, `(rows, width, width)`; 0 where observed.

        Exact for the linear model alone, else from 256 draws; NaN for categories.

        Args:
            targets: columns among the targets.

        Raises:
            KeyError: for another name.
            ValueError: for latent nodes.
        """
        names = [targets] if isinstance(targets, str | int) else list(targets)
        labels: list[Label] = []
        for name in names:
            columns = ByName(self._targets)[name]  # an error lists the targets
            if isinstance(columns, str):
                raise ValueError(f"{name!r} is a latent node; covariances are of columns")
            labels += columns
        known = np.stack([self._is_given(label) for label in labels], axis=1)
        free = ~known[:, :, None] & ~known[:, None, :]
        return np.where(free, self._free_covariance(labels), 0.0)

    def select(self, rows: int | Sequence[int]) -> TableAnswer:
        rows = [rows] if isinstance(rows, int) else rows
        few = None if self._few is None else self._few.select(rows)
        ids = self._row_ids[list(rows)]
        given = self._given.select(rows)
        return TableAnswer(self._model, given, self._targets, ids, self._seed, self._padded, few)

    def expectations(self) -> dict[str, Array]:
        matrix = self._model.spread_out(self._prediction.means)
        expectations: dict[str, Array] = {}
        for label in self._labels():
            if self._model.variables[str(label)].kind == "choice":
                expectations[str(label)] = self._probabilities(label)
            else:
                cells = self._with_given(label, self._centre(label, matrix))
                expectations[str(label)] = axis_numbers(cells)
        return expectations

    # Private.

    def _deviations(self, label: Label) -> Array:
        """Standard deviations of a column, `(rows,)`."""
        part, known = self._model.encoding.parts[label], self._is_given(label)
        if not isinstance(part, NumericEncoding):
            return np.where(known, 0.0, np.nan)
        spread = self._model.spread_out(self._spread)
        sizes = spread[:, self._model.encoding.sections[label]][:, 0] * part.deviation
        sizes = np.where(known | part.constant, 0.0, np.nan if part.empty else sizes)
        if part.clock is None:
            return sizes
        ticks = np.rint(np.nan_to_num(sizes)).astype(np.int64).astype(f"m8[{part.clock.unit}]")
        ticks[np.isnan(sizes)] = "NaT"
        return ticks

    @property
    def _index(self) -> Any:
        return self._given.index

    @cached_property
    def _prediction(self) -> Prediction:
        """The joint means of the encoded columns, `(rows, columns)`, and votes."""
        if self._few is not None:
            return self._few.means()
        return self._model.predictions(*self._given.matrix, self._row_ids)

    @cached_property
    def _estimates(self) -> Tensor:
        """What cells are filled with, `(rows, columns)`."""
        return self._model.point_estimates(*self._given.matrix, self._prediction)

    def _draws(self, number: int) -> Tensor:
        """Joint draws of the encoded columns, `(number, rows, columns)`."""
        if self._few is not None and self.rows == 1 and number <= DRAWS_FOR_DEVIATIONS:
            return self._draws_of_row[:number]
        return self._new_draws(number)

    @cached_property
    def _draws_of_row(self) -> Tensor:
        """Draws of the only row, of which ends, deviations and samples take the first."""
        return self._new_draws(DRAWS_FOR_DEVIATIONS)

    def _new_draws(self, number: int) -> Tensor:
        model, table = self._model, self._given.matrix
        if self._few is not None and self.rows == 1:
            drawn = self._few.draws(number, self._seed, int(self._row_ids[0]))
        elif not self._padded and model.linear is not None and not model.is_stacked:
            drawn = concat_leaves(self._infer_linear(None).samples(number)).double()
            noise = model.relation_levels(number, self._row_ids, self._seed)
            drawn = model.with_relations(torch.where(table[1], table[0], drawn), *table, noise)
            drawn = model.within_limits(drawn, self._prediction.means)
        else:
            return model.draws(*table, number, self._seed, self._row_ids)
        return model.with_categories(drawn, *table, self._prediction, self._row_ids, self._seed)

    def _where_free(self, table: Tensor, exact: float) -> Tensor:
        """A table with a number in place of entries that follow exactly from the evidence."""
        unknown = torch.full_like(table, torch.nan)
        marks = self._model.with_relations(unknown, *self._given.matrix)
        return torch.where(marks.isnan(), table, exact)

    @cached_property
    def _spread(self) -> Tensor:
        """Standard deviations of the encoded columns, `(rows, columns)`."""
        linear = self._model.linear
        if linear is None or not self.rows:
            return torch.zeros_like(self._given.values)
        if not self._model.is_stacked:
            answer = self._infer_linear(None)
            spread = torch.cat([answer.std[leaf] for leaf in linear.graph.leaves], dim=1)
            spread = self._model.deviations_with_relations(spread.cpu(), self._given.observed)
            limits = lift_passed(self._model.limits, self._prediction.means)
            spread = clipped_deviations(self._prediction.means, spread, limits)
            return self._where_free(spread, 0.0)
        starts = range(0, self.rows, ROWS_AT_ONCE) if self.rows > 1 else []
        parts = [self.select(range(k, min(k + ROWS_AT_ONCE, self.rows))) for k in starts] or [self]
        return torch.cat([part._draws_within_limits().std(0) for part in parts])

    def _draws_within_limits(self) -> Tensor:
        """Draws for deviations and covariances, as they are decoded."""
        limits = lift_passed(self._model.limits, self._prediction.means)
        return self._draws(DRAWS_FOR_DEVIATIONS).clamp(*limits)

    def _infer_linear(self, targets: list[Name] | None) -> GaussianAnswer:
        """The answer of the linear model about the rows."""
        linear, given = self._model.linear, self._given
        assert linear is not None
        # Answers are where the evidence is: on the CPU, wherever the model computes.
        return linear.infer(
            given.values,
            targets,
            observed=given.observed,
            seed=self._seed,
            row_ids=self._row_ids,
            padded=self._padded,
        )

    @cached_property
    def _latent(self) -> GaussianAnswer:
        """The latent targets, inferred by the exact linear model."""
        nodes: list[Name] = [node for node in self._targets.values() if isinstance(node, str)]
        return self._infer_linear(nodes)

    def _quantiles_at(self, levels: Sequence[float]) -> ByName:
        matrices = self._model.spread_out(self._encoded_quantiles(levels))

        def of(label: Label) -> Array:
            part = self._model.encoding.parts[label]
            if self._model.variables[str(label)].categories == (False, True):
                # False is below True: a quantile is True where more than its rest says so.
                below = self._probabilities(label)[:, 0]
                return self._with_given(label, np.stack([below < level for level in levels]))
            if not isinstance(part, NumericEncoding | OrdinalEncoding):
                return np.where(self._is_given(label), np.nan, np.full(matrices.shape[:2], np.nan))
            return self._with_given(label, self._decode(label, matrices))

        return self._by_target(of, lambda node: self._latent.quantile(list(levels))[node].numpy())

    def _encoded_quantiles(self, levels: Sequence[float]) -> Tensor:
        if self._few is not None and self.rows == 1:
            ends = torch.from_numpy(quantiles_of_draws(self._draws(DRAWS).numpy(), list(levels)))
            ends = self._model.at_values(ends, self._given.observed)
            ends = self._model.quantiles_with_relations(ends, levels, *self._given.matrix)
        else:
            table, ids = self._given.matrix, self._row_ids
            ends = self._model.quantiles(*table, levels, seed=self._seed, ids=ids)
        return self._include_means(ends, levels)

    def _include_means(self, ends: Tensor, levels: Sequence[float]) -> Tensor:
        """Outer quantiles that means of numbers do not pass, as those of `predict_interval`."""
        means, unordered = self._prediction.means, self._model.unordered
        wider = ends.clone()
        for place, level in enumerate(levels):
            if level <= OUTER:
                wider[place] = ends[place].minimum(means)
            elif level >= 1.0 - OUTER:
                wider[place] = ends[place].maximum(means)
        return torch.where(unordered, ends, wider)

    def _free_covariance(self, labels: Sequence[Label]) -> Array:
        """Covariances of columns as if none was observed, `(rows, columns, columns)`."""
        model, encoding = self._model, self._model.encoding
        place = {column: k for k, column in enumerate(model.columns)}
        parts = [encoding.parts[label] for label in labels]
        numbers = [isinstance(part, NumericEncoding) and not part.empty for part in parts]
        chosen = [place.get(encoding.sections[label].start, -1) for label in labels]
        sizes = np.array([getattr(part, "deviation", math.nan) for part in parts])
        usable = [k for k, place_ in enumerate(chosen) if place_ >= 0 and numbers[k]]
        covariance = np.full((self.rows, len(labels), len(labels)), np.nan)
        unvarying = [k for k, number in enumerate(numbers) if number and k not in usable]
        covariance[:, unvarying, :] = covariance[:, :, unvarying] = 0.0
        if usable:
            inner = self._matrix_covariance([chosen[k] for k in usable])
            scale = sizes[usable]
            covariance[np.ix_(range(self.rows), usable, usable)] = inner * np.outer(scale, scale)
        return covariance

    def _matrix_covariance(self, columns: list[int]) -> Array:
        linear = self._model.linear
        if linear is not None and not self._model.is_stacked:
            names: list[Name] = list(linear.variables)
            chosen = [names[column] for column in columns]
            covariance = self._infer_linear(chosen).covariance(chosen).cpu().numpy()
            # As much smaller as deviations are, since cells keep to the limits of their columns.
            free = np.sqrt(covariance.diagonal(axis1=1, axis2=2))
            ratio = self._spread[:, columns].numpy() / np.where(free > 0.0, free, 1.0)
            return covariance * ratio[:, :, None] * ratio[:, None, :]
        draws = self._draws_within_limits()[..., columns]
        left = draws - draws.mean(0)
        return (torch.einsum("dni,dnj->nij", left, left) / (len(draws) - 1)).numpy()

    def _labels(self) -> Iterator[Label]:
        """The columns among the targets."""
        for target in self._targets.values():
            if not isinstance(target, str):
                yield from target

    def _choices(self) -> Iterator[tuple[Name, Label]]:
        """The targets that are a single column of categories."""
        for name, target in self._targets.items():
            if isinstance(target, str) or len(target) > 1:
                continue
            if self._model.variables[str(target[0])].kind == "choice":
                yield name, target[0]

    def _by_target(self, of: Callable[[Label], Array], latent: Callable[[str], Array]) -> ByName:
        values = ByName()
        for name, target in self._targets.items():
            if isinstance(target, str):
                values[name] = latent(target)
            elif len(target) == 1:
                values[name] = of(target[0])
            else:
                values[name] = np.stack([of(label) for label in target], axis=-1)
        return values

    def _is_given(self, label: Label) -> Array:
        column = self._given.columns.get(label)
        return np.zeros(self.rows, dtype=bool) if column is None else ~column.missing

    def _with_given(self, label: Label, inferred: Array) -> Array:
        """Put what was given in place of what was inferred, `(..., rows)`."""
        known = self._is_given(label)
        if not known.any():
            return inferred
        cells = self._given.columns[label].values[known]
        if inferred.dtype.kind == "O" or (cells.dtype.kind == "O" and inferred.dtype.kind != "M"):
            inferred = inferred.astype(object)
        else:
            cells = cells.astype(inferred.dtype)
            inferred = inferred.copy()
        inferred[..., known] = cells
        return inferred

    def _decode(self, label: Label, matrices: Array) -> Array:
        """Cells from matrices `(..., rows, width)`."""
        part, section = self._model.encoding.parts[label], self._model.encoding.sections[label]
        chosen = matrices[..., section]
        flat = part.decode(chosen.reshape(-1, chosen.shape[-1]))
        return flat.reshape(chosen.shape[:-1])

    def _centre(self, label: Label, matrix: Array) -> Array:
        """Expected cells before rounding, `(rows,)`."""
        part = self._model.encoding.parts[label]
        if isinstance(part, NumericEncoding) and part.clock is None:
            return part.numbers(matrix[:, self._model.encoding.sections[label]])
        return self._decode(label, matrix)

    def _probabilities(self, label: Label) -> Array:
        """Probabilities of categories, `(rows, categories)`; certain where one was given."""
        model, categories = self._model, self._model.variables[str(label)].categories
        if model.variables[str(label)].idle:
            shares = np.ones((self.rows, len(categories)))
        else:
            section = model.category_section(label, *self._given.matrix, self._prediction)
            shares = section.probabilities.copy()
        if label in self._given.columns:
            places = category_indices(self._given.columns[label], categories)
            rows = np.flatnonzero(places >= 0)  # an unknown category is no evidence
            shares[rows] = 0.0
            shares[rows, places[rows]] = 1.0
        return shares

    def _frame_columns(self, values: ByName) -> dict[str, Array]:
        by_label: dict[str, Array] = {}
        for name, target in self._targets.items():
            cells = values[name]
            if isinstance(target, str):
                names: Sequence[str] = coordinate_labels(target, cells.shape[-1])
            else:
                names = [str(label) for label in target]
            for place, label in enumerate(names):
                by_label[label] = cells if cells.ndim == 1 else cells[:, place]
        return by_label

    # Marginals for front ends.

    def _marginals(self, level: float, draws: int) -> dict[str, Marginal]:
        matrix = self._model.spread_out(self._estimates)
        # What is shown may have any number of draws; ends and deviations are those of the answer.
        shown = self._distribution(draws or DRAWS)
        ends = self._model.spread_out(self._encoded_quantiles(central_levels(level)))[:, 0]
        marginals = {}
        for label in self._labels():
            variable = self._model.variables[str(label)]
            if self._is_given(label)[0]:
                value = _value(self._given.columns[label].values[0], variable)
                if variable.kind == "choice" and value not in variable.categories:
                    marginals[variable.name] = Marginal(variable, value, True)
                else:
                    marginals[variable.name] = given_marginal(variable, value)
            else:
                one = self._marginal(label, matrix, shown, ends)
                if not draws and len(one.draws):
                    one = replace(one, draws=np.array([one.low, one.high]))
                marginals[variable.name] = one
        if any(isinstance(target, str) for target in self._targets.values()):
            marginals.update(self._latent.marginals(level=level, draws=draws))
        return marginals

    def _distribution(self, draws: int) -> Array:
        """Draws of the whole matrix of the only row, or quantiles at even levels."""
        linear = self._model.linear
        if linear is not None and not self._model.is_stacked:
            levels = self._infer_linear(None).quantile(even_levels(draws).tolist())
            return self._model.spread_out(concat_leaves(levels)[:, 0].cpu())
        return self._model.spread_out(self._draws(draws)[:, 0])

    def _marginal(self, label: Label, matrix: Array, draws: Array, ends: Array) -> Marginal:
        model, variable = self._model, self._model.variables[str(label)]
        part, section = model.encoding.parts[label], model.encoding.sections[label]
        if not part.fillable:
            return Marginal(variable, None)
        if variable.kind == "choice":
            value = _value(part.decode(matrix[:, section])[0], variable)
            shares = self._probabilities(label)[0]
            return Marginal(variable, value, probabilities=shares)
        mean = float(axis_numbers(self._centre(label, matrix))[0])
        numbers = axis_numbers(part.decode(draws[:, section]))
        low, high = axis_numbers(part.decode(ends[:, section])).tolist()
        deviation = float(axis_numbers(self._deviations(label))[0])
        value = variable.value_of(mean)
        return Marginal(variable, value, False, mean, deviation, low, high, numbers)


def clipped_deviations(means: Tensor, deviations: Tensor, limits: Tensor) -> Tensor:
    r"""Deviations `(rows, columns)` of Normal variables that are clipped to limits.

    Those are `(2, columns)`, or by row, too.

    With $a, b$ the standardised limits, $\phi$ the density and $\Phi$ the distribution of the
    standard Normal, $E[y] = a\Phi(a) + \phi(a) - \phi(b) + b(1 - \Phi(b))$ and $E[y^2] = a^2
    \Phi(a) + \Phi(b) - \Phi(a) + a\phi(a) - b\phi(b) + b^2 (1 - \Phi(b))$.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> ends = torch.tensor([[0.0], [torch.inf]], dtype=torch.float64)
        >>> round(clipped_deviations(0.0 * one, one, ends).item(), 4)
        0.5838
    """
    scale = deviations.clamp(min=1e-12)
    ends = limits if limits.ndim == 3 else limits[:, None]
    far = (((ends - means) / scale).clamp(-40.0, 40.0)).unbind(0)
    (low, below, edge), (high, above, other) = (
        (x, torch.special.ndtr(x), torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi))
        for x in far
    )
    mean = low * below + edge - other + high * (1.0 - above)
    square = low.square() * below + above - below + low * edge - high * other
    square = square + high.square() * (1.0 - above)
    clipped: Tensor = deviations * (square - mean.square()).clamp(min=0.0).sqrt()
    return clipped


def axis_numbers(cells: Array) -> Array:
    """Decoded cells as they lie on an axis: dates and durations in days."""
    return days_of(cells) if cells.dtype.kind in "Mm" else cells.astype(np.float64)


def _value(cell: Any, variable: Variable) -> Value:
    """A cell as the value of a variable: ISO text of dates, durations in days."""
    if variable.kind == "date":
        return str(np.datetime64(cell, "us") if not isinstance(cell, np.datetime64) else cell)
    if isinstance(cell, np.timedelta64):
        return float(days_of(np.array([cell]))[0])
    value = cell.item() if isinstance(cell, np.generic) else cell
    return variable.value_of(float(value)) if variable.kind == "integer" else value
