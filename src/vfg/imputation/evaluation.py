"""Evaluation: how well hidden cells of a table are recovered."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from vfg.imputation.relations import find_copies
from vfg.imputation.settings import check_share
from vfg.imputation.table_model import TableModel
from vfg.inference.variables import central_levels
from vfg.tables.categorical import CategoricalEncoding, category_indices
from vfg.tables.cells import Array, Column, ColumnEncoding, Label, Mask, hide_unreadable
from vfg.tables.frames import Table, hide_cells
from vfg.tables.numeric import NumericEncoding, read_numbers

HIDING = 0x48494445
"""Second word of the seed, so that hiding has a random stream of its own ("HIDE" in ASCII)."""


NOTHING_HIDDEN = (
    "no cell was hidden, so there is nothing to compare: every row keeps one known cell, from "
    "which others are predicted; use a table with more columns or rows, or a larger share"
)
"""Text of an evaluation without hidden cells, as that of a single column."""


@dataclass(frozen=True)
class ColumnScore:
    """How well one column was recovered.

    Attributes:
        column: its name.
        hidden: how many cells were hidden.
        rmse: root mean squared error in standard deviations of the column.
        mae: mean absolute error in the same units.
        baseline: root mean squared error of filling in the mean.
        coverage: share of hidden cells within their intervals; NaN for categories.
        width: mean width of the intervals in standard deviations; NaN for categories.
        accuracy: share of categories that are right; NaN for numbers.
    """

    column: Label
    hidden: int
    rmse: float
    mae: float
    baseline: float
    coverage: float
    width: float
    accuracy: float


@dataclass(frozen=True)
class Evaluation:
    """The scores of all columns.

    Attributes:
        level: of the intervals.
        columns: scores by column, in the order of the table.

    Example:
        >>> score = ColumnScore("age", 10, 0.5, 0.4, 1.0, 0.9, 1.6, float("nan"))
        >>> report = Evaluation(0.9, (score,))
        >>> report.rmse, report.baseline, report.coverage
        (0.5, 1.0, 0.9)
    """

    level: float
    columns: tuple[ColumnScore, ...]

    @property
    def rmse(self) -> float:
        """Root mean squared error over all hidden cells, in standard deviations."""
        return float(np.sqrt(self._pooled([score.rmse**2 for score in self.columns])))

    @property
    def mae(self) -> float:
        """Mean absolute error over all hidden cells, in standard deviations."""
        return self._pooled([score.mae for score in self.columns])

    @property
    def baseline(self) -> float:
        """Root mean squared error of filling in the means."""
        return float(np.sqrt(self._pooled([score.baseline**2 for score in self.columns])))

    @property
    def coverage(self) -> float:
        """Share of hidden numbers within their intervals."""
        return self._pooled([score.coverage for score in self.columns])

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        overall = {key: getattr(self, key) for key in ("rmse", "mae", "baseline", "coverage")}
        columns = [asdict(score) for score in self.columns]
        return {"level": self.level, **overall, "columns": columns}

    def __str__(self) -> str:
        if not any(score.hidden for score in self.columns):
            return NOTHING_HIDDEN
        lines = [
            f"{'column':<24}{'hidden':>8}{'rmse':>8}{'mean':>8}{'mae':>8}{'cover':>8}{'right':>8}"
        ]
        for score in self.columns:
            numbers = (score.rmse, score.baseline, score.mae, score.coverage, score.accuracy)
            shown = "".join(f"{'' if np.isnan(x) else format(x, '.3f'):>8}" for x in numbers)
            lines.append(f"{str(score.column)[:23]:<24}{score.hidden:>8}{shown}")
        overall = (self.rmse, self.baseline, self.mae, self.coverage)
        shown = "".join(f"{'' if np.isnan(x) else format(x, '.3f'):>8}" for x in overall)
        lines.append(f"{'all':<24}{sum(s.hidden for s in self.columns):>8}{shown}")
        return "\n".join(lines)

    def _pooled(self, scores: list[float]) -> float:
        hidden = np.array([score.hidden for score in self.columns], dtype=float)
        known = np.isfinite(scores) & (hidden > 0)
        if not known.any():
            return float("nan")
        return float(np.average(np.array(scores)[known], weights=hidden[known]))


PATTERNS = ("cells", "columns", "half", "table")
"""Which cells are hidden: single ones, one column of some rows, a fixed half of the columns of some
rows, or what other rows lack."""


def hold_out(
    table: Table, share: float, seed: int, *, keep: int = 0, pattern: str = "cells"
) -> Mask:
    """Draw known cells of a table to hide, `(rows, columns)`; every row keeps one.

    Cells of rows that are copies of each other are hidden together: a copy would give them away.
    Every column keeps at least `keep` known cells; columns with fewer are not hidden from. A model
    that is fitted without the hidden cells needs two.

    Args:
        table: with known cells.
        share: of the cells for the pattern `cells`, else of the rows that lose some.
        seed: of the choice.
        keep: known cells that every column keeps.
        pattern: one of `PATTERNS`.

    Example:
        >>> from vfg.tables.frames import open_table
        >>> hold_out(open_table(np.zeros((100, 2))), 0.3, seed=0).sum(0).tolist()
        [22, 33]
    """
    check_share("share", share)
    known = ~table.missing
    # A stream of its own: else missing cells made with the same seed would be the cells to hide.
    generator = np.random.default_rng([seed, HIDING])
    codes = np.stack([_codes(column) for column in table.columns()], axis=1)
    chosen = known & _pattern(known, share, generator, pattern)[find_copies(codes, known)]
    alone = known.any(1) & (chosen == known).all(1)
    chosen[np.flatnonzero(alone), known[alone].argmax(1)] = False
    chosen[:, (known & ~chosen).sum(0) < keep] = False
    return np.asarray(chosen)


def _pattern(known: Mask, share: float, generator: np.random.Generator, pattern: str) -> Mask:
    """Cells of a pattern, known or not."""
    if pattern == "cells":
        return generator.random(known.shape) < share
    rows, columns = known.shape
    some = generator.random((rows, 1)) < share
    if pattern == "columns":
        lost = np.eye(columns, dtype=bool)[generator.integers(columns, size=rows)]
    elif pattern == "half":
        lost = np.isin(np.arange(columns), generator.permutation(columns)[: columns // 2])
    else:
        incomplete = np.flatnonzero(~known.all(1))
        if not len(incomplete):
            raise ValueError(
                "no cell of the table is missing, so there are no patterns to hide by; use the "
                "pattern cells, columns or half"
            )
        lost = ~known[generator.choice(incomplete, size=rows)]
    return np.asarray(some & lost)


def _codes(column: Column) -> Array:
    """Numbers that are equal where cells are; anything where they are missing."""
    cells = column.values
    if cells.dtype.kind not in "fiubMm":
        cells = np.unique(cells.astype(str), return_inverse=True)[1]
    return cells.astype(np.int64 if cells.dtype.kind in "Mm" else np.float64).astype(np.float64)


def evaluate(
    model: TableModel, table: Table, hidden: Mask, *, level: float, seed: int
) -> Evaluation:
    """Fill hidden cells of a table, and score what was filled in and its intervals."""
    check_share("level", level)
    values, shown = model.encode(hide_cells(table, hidden))
    filled = model.fills(values, shown)
    ends = model.quantiles(values, shown, central_levels(level), seed=seed)
    return score_filled(model, table, hidden, filled, level, ends)


def held_out_score(model: TableModel, table: Table, hidden: Mask) -> float:
    """Minus the mean error of hidden cells; higher is better, and about -1 is what means get.

    Numbers, dates and ordered levels have the squared error of what is filled in, in squared
    deviations of their column. Categories have minus the logarithm of their probability, in units
    of the entropy of their column.
    """
    shown = hide_cells(table, hidden)
    matrix = model.encode(shown)
    filled = model.fills(*matrix)
    numbers = score_filled(model, table, hidden, filled, 0.9)
    total, cells = 0.0, 0
    for score in numbers.columns:
        part = model.encoding.parts[score.column]
        position = list(model.encoding.schema).index(score.column)
        if score.hidden and isinstance(part, CategoricalEncoding):
            shares = part.counts / part.counts.sum()
            places = category_indices(table.column(position), part.categories)
            rows = np.flatnonzero(hidden[:, position] & (places >= 0))
            answer = model.infer(shown, [str(score.column)]).select(rows.tolist())
            chances = answer.probabilities[str(score.column)][range(len(rows)), places[rows]]
            total -= float(np.log(chances).sum() / -(shares * np.log(shares)).sum())
        elif score.hidden:
            total += score.hidden * score.rmse**2
        cells += score.hidden
    return -total / cells if cells else float("nan")


def row_digests(model: TableModel, table: Table) -> Array:
    """A number for every row that other rows hardly ever have; 0 for rows without observed cells.

    Example:
        >>> from vfg.tables.frames import open_table
        >>> model = TableModel(bend=False)
        >>> history = model.fit([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]])
        >>> first, other, again = row_digests(model, open_table([[1.0, 2.0], [1.0, 3.0], [1, 2]]))
        >>> bool(first == again), bool(first == other)
        (True, False)
    """
    values, observed = (part.numpy() for part in model.encode(table))
    words = np.where(observed, values + 0.0, np.nan).view(np.uint64)
    factors = np.random.default_rng(HIDING).integers(2**63, size=words.shape[1], dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = (words ^ (words >> np.uint64(29))) * (2 * factors + np.uint64(1))
        digests = (mixed ^ (mixed >> np.uint64(32))).sum(1, dtype=np.uint64)
    return np.where(observed.any(1), digests, np.uint64(0))


def has_fitted_rows(model: TableModel, table: Table) -> bool:
    """Whether rows of a table are among those that a model keeps digests of; see `bigtable.fit`."""
    kept = np.array(model.origin.get("rows", ()), dtype=np.uint64)
    return bool(np.isin(row_digests(model, table), kept).any())


def score_filled(
    model: TableModel,
    table: Table,
    hidden: Mask,
    means: Tensor,
    level: float,
    ends: Tensor | None = None,
) -> Evaluation:
    """Score what a matrix `(rows, modelled columns)` fills into the hidden cells of a table.

    Numbers, dates and ordered levels are scored as `transform` returns them, in deviations of their
    column. Categories have the errors of their mean code points, and their accuracy is that of what
    `transform` returns. Hidden categories that the model does not know are not scored. `ends` are
    those of the intervals, two such matrices; None for a method that has none.
    """
    matrices = [model.spread_out(matrix) for matrix in (means, *(() if ends is None else ends))]
    encoding = model.encoding
    columns = zip(encoding.schema, table.columns(), strict=True)
    scores = [
        _score(label, encoding.parts[label], replace(column, label=label), mask, sections)
        for (label, column), mask in zip(columns, hidden.T, strict=True)
        if label not in encoding.idle
        for sections in [[matrix[:, encoding.sections[label]] for matrix in matrices]]
    ]
    return Evaluation(level, tuple(scores))


def _score(
    label: Label, part: ColumnEncoding, column: Column, hidden: Mask, sections: list[Array]
) -> ColumnScore:
    if isinstance(part, NumericEncoding) and part.clock is not None:
        column = hide_unreadable(column, part.clock.template, warn=False)  # filling warned of them
    encoded, known = part.encode(column)
    rows = np.flatnonzero(hidden & known[0])
    filled = [part.decode(section[rows]) for section in sections]
    truth = column.values[rows]
    if isinstance(part, NumericEncoding):
        truth = read_numbers(column, part.clock)[rows]  # dates may be text
    is_number = not isinstance(part, CategoricalEncoding)
    if is_number:
        centred = [_deviations(part, cells) for cells in (truth, *filled)]
        target, guess, *ends = centred
    else:
        target, guess, ends = encoded[:, rows].T, sections[0][rows], []
    nan = float("nan")
    return ColumnScore(
        column=label,
        hidden=len(rows),
        rmse=_mean((guess - target) ** 2) ** 0.5,
        mae=_mean(np.abs(guess - target)),
        baseline=_mean(target**2) ** 0.5,
        coverage=_mean((ends[0] <= target) & (target <= ends[1])) if ends else nan,
        width=_mean(ends[1] - ends[0]) if ends else nan,
        accuracy=nan if is_number else _mean(np.asarray(filled[0] == truth, dtype=float)),
    )


def _deviations(part: ColumnEncoding, cells: Array) -> Array:
    """Cells of a column of numbers, dates or ordered levels in its standard deviations."""
    if isinstance(part, NumericEncoding):
        return part.standardise(cells)
    missing = np.zeros(len(cells), dtype=bool)
    return np.asarray(part.encode(Column("", "category", cells, missing))[0][0])


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")
