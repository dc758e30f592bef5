"""Hiding known cells of a table, so that what is filled in can be compared with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vfg.tabular.checks import check_share
from vfg.tabular.evaluation import HIDING, Evaluation, compared, sections_of
from vfg.tabular.tables import open_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vfg.tabular.model import TableModel

DRAWS = 60
"""How many draws the ends of intervals are read from."""


def hidden_cells(table: Any, share: float, seed: int) -> NDArray[np.bool_]:
    """Known cells to hide, drawn one by one; every row keeps at least one, and every column two.

    Args:
        table: a `pyarrow.Table`.
        share: of the known cells.
        seed: decides which.

    Raises:
        ValueError: for a share that is not between 0 and 1, or if no cell can be hidden.
    """
    check_share("--share", share)
    known = np.stack([~column.missing for column in open_table(table).columns()], axis=1)
    chosen = known & (np.random.default_rng([seed, HIDING]).random(known.shape) < share)
    alone = known.any(1) & (chosen == known).all(1)
    chosen[np.flatnonzero(alone), known[alone].argmax(1)] = False
    for place in np.flatnonzero((known & ~chosen).sum(0) < 2):
        chosen[:, place] = False
    if not chosen.any():
        raise ValueError("no cell can be hidden; use more rows, or a larger --share")
    return chosen


def without_cells(table: Any, hidden: NDArray[np.bool_]) -> Any:
    """A table in which some cells are gaps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.if_else(pa.array(hidden[:, place]), pa.scalar(None, column.type), column)
        for place, column in enumerate(table.columns)
    ]
    return pa.table(columns, schema=table.schema)


class Trial:
    """A table whose hidden cells are to be filled.

    Args:
        model: that learned from the other cells, or from another table.
        table: with the hidden cells.
        hidden: which cells are hidden.
    """

    def __init__(self, model: TableModel, table: Any, hidden: NDArray[np.bool_]) -> None:
        self.model = model
        encoded, observed = model.encode(table)
        self.values: NDArray[np.float64] = encoded.numpy()
        self.hidden = np.zeros(self.values.shape, dtype=bool)
        labels = list(model.encoding.schema)
        for label, places in sections_of(model).items():
            self.hidden[:, places] = hidden[:, labels.index(label)][:, None]
        # Categories that are hidden wherever they occur are not known to the model.
        self.hidden &= observed.numpy()
        self.shown: NDArray[np.bool_] = observed.numpy() & ~self.hidden

    def evaluate(self, level: float, seed: int) -> Evaluation:
        """How well the model fills the hidden cells.

        Args:
            level: of the intervals.
            seed: of the draws behind them.
        """
        check_share("--level", level)
        values, shown = torch.from_numpy(self.values), torch.from_numpy(self.shown)
        means = self.model.means(values, shown).numpy()
        levels = [0.5 - level / 2, 0.5 + level / 2]
        ends = self.model.quantiles(values, shown, levels, draws=DRAWS, seed=seed).numpy()
        return compared(self.model, self.values, self.hidden, means, level, (ends[0], ends[1]))
