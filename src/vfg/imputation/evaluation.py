"""Evaluation: how well hidden cells of a table are recovered."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vfg.imputation.settings import check_share
from vfg.inference.variables import central_levels
from vfg.tables.cells import Array, Label, Mask
from vfg.tables.frames import Table

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel

HIDING = 0x48494445
"""Second word of the seed, so that hiding has a random stream of its own ("HIDE" in ASCII)."""


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
        accuracy: share of categories recovered; NaN for numbers.
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


def hold_out(table: Table, share: float, seed: int, *, keep: int = 0) -> Mask:
    """Draw known cells of a table to hide; every row keeps at least one.

    Args:
        table: an opened table.
        share: of the known cells to hide.
        seed: decides which.
        keep: how many known cells every column keeps at least; columns with fewer are not hidden
            from. A model that is fitted without the hidden cells needs two.

    Returns:
        A mask `(rows, columns)`.

    Raises:
        ValueError: for a share that is not between 0 and 1.

    Example:
        >>> from vfg.tables.frames import open_table
        >>> hold_out(open_table(np.zeros((100, 2))), 0.3, seed=0).sum(0).tolist()
        [22, 33]
    """
    check_share("share", share)
    known = ~table.missing
    # A stream of its own: else missing cells made with the same seed would be the cells to hide.
    chosen = known & (np.random.default_rng([seed, HIDING]).random(known.shape) < share)
    alone = known.any(1) & (chosen == known).all(1)
    chosen[np.flatnonzero(alone), known[alone].argmax(1)] = False
    chosen[:, (known & ~chosen).sum(0) < keep] = False
    return np.asarray(chosen)


@dataclass(frozen=True)
class HeldOut:
    """An encoded table with hidden cells.

    Attributes:
        values: the truth, `(rows, modelled columns)`.
        shown: which entries the model may see.
        hidden: which entries are hidden. Categories that no shown cell has are not among them.
    """

    values: Array
    shown: Mask
    hidden: Mask

    @classmethod
    def of(cls, model: TableModel, table: Table, hidden: Mask) -> HeldOut:
        """Encode a table of the model's columns with some cells hidden."""
        encoded, observed = model.encode(table)
        seen = observed.numpy()
        entries = np.zeros(seen.shape, dtype=bool)
        labels = list(model.encoding.schema)
        for label, places in sections_of(model).items():
            entries[:, places] = hidden[:, labels.index(label)][:, None]
        entries &= seen
        return cls(encoded.numpy(), seen & ~entries, entries)


def evaluate(
    model: TableModel, table: Table, hidden: Mask, *, level: float, seed: int
) -> Evaluation:
    """Fill hidden cells of a table, and score them.

    Args:
        model: the fitted model.
        table: with the columns that were fitted.
        hidden: which cells are hidden, `(rows, columns)`.
        level: of the intervals whose coverage is measured.
        seed: of the draws behind them.

    Raises:
        ValueError: for a level that is not between 0 and 1.
    """
    check_share("level", level)
    held = HeldOut.of(model, table, hidden)
    values, shown = torch.from_numpy(held.values), torch.from_numpy(held.shown)
    means = model.means(values, shown).numpy()
    ends = model.quantiles(values, shown, central_levels(level), seed=seed).numpy()
    return score_filled(model, held.values, held.hidden, means, level, (ends[0], ends[1]))


def score_filled(
    model: TableModel,
    values: Array,
    hidden: Mask,
    means: Array,
    level: float,
    ends: tuple[Array, Array] | None = None,
) -> Evaluation:
    """Score values that were filled into hidden entries of a matrix.

    Args:
        model: whose encoding the matrix has.
        values: the truth, `(rows, modelled columns)`.
        hidden: which entries were hidden.
        means: what was filled in.
        level: of the intervals.
        ends: of the intervals; None for a method that has none.
    """
    scores = [
        _score(model, label, places, values, hidden, means, ends)
        for label, places in sections_of(model).items()
    ]
    return Evaluation(level, tuple(scores))


def sections_of(model: TableModel) -> dict[Label, list[int]]:
    """Positions among the modelled columns, by column of the table."""
    place = {column: k for k, column in enumerate(model.columns)}
    return {
        label: [place[column] for column in range(section.start, section.stop)]
        for label, section in model.encoding.sections.items()
        if label not in model.encoding.idle
    }


def _score(
    model: TableModel,
    label: Label,
    places: list[int],
    values: Array,
    hidden: Array,
    means: Array,
    ends: tuple[Array, Array] | None,
) -> ColumnScore:
    rows = np.flatnonzero(hidden[:, places[0]])
    truth, guess = values[rows][:, places], means[rows][:, places]
    error = guess - truth
    is_number = model.encoding.schema[label].name not in ("categorical", "boolean")
    nan = float("nan")
    low, high = (end[rows][:, places] for end in ends or (means, means))
    has_ends = is_number and ends is not None
    return ColumnScore(
        column=label,
        hidden=len(rows),
        rmse=_mean(error**2) ** 0.5,
        mae=_mean(np.abs(error)),
        baseline=_mean(truth**2) ** 0.5,
        coverage=_mean((low <= truth) & (truth <= high)) if has_ends else nan,
        width=_mean(high - low) if has_ends else nan,
        accuracy=nan if is_number else _accuracy(model, label, truth, guess),
    )


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")


def _accuracy(model: TableModel, label: Label, truth: Array, guess: Array) -> float:
    part = model.encoding.parts[label]
    return _mean(np.asarray(part.decode(truth) == part.decode(guess), dtype=float))
