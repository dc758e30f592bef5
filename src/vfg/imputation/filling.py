"""Filling the missing cells of a table: encoded once, answered, and decoded into the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vfg.inference.answers import as_row_ids
from vfg.inputs import ArrayLike
from vfg.tables.frames import Table

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel


class MissingCells:
    """The rows of a table that something is missing from, ready to be answered.

    Rows do not influence each other. What is answered about a row depends on its cells and its id.

    Args:
        model: a fitted model.
        table: with the columns of the model, in its order; every column is read once.
        first_row: the id of the first row, where ids are consecutive.
        row_ids: the ids of all rows; None means consecutive ones.
    """

    def __init__(
        self,
        model: TableModel,
        table: Table,
        first_row: int = 0,
        row_ids: ArrayLike | None = None,
    ) -> None:
        self.model, self.table = model, table
        self.missing = table.missing
        self.rows = np.flatnonzero(self.missing.any(1))
        values, observed = model.encode(table)
        chosen = torch.from_numpy(self.rows)
        self.values, self.observed = values[chosen], observed[chosen]
        ids = as_row_ids(model, row_ids, table.rows).cpu() + first_row
        self.ids = ids[chosen]

    def means(self) -> Tensor:
        """What is expected, `(rows with missing cells, known columns)`."""
        return self.model.means(self.values, self.observed, self.ids)

    def draws(self, number: int, seed: int) -> Tensor:
        """Joint draws, `(number, rows with missing cells, known columns)`.

        Args:
            number: of draws.
            seed: of the draws.
        """
        return self.model.draws(self.values, self.observed, number, seed, self.ids)

    def quantiles(self, levels: Sequence[float], seed: int) -> Tensor:
        """Quantiles, `(levels, rows with missing cells, known columns)`.

        Args:
            levels: between 0 and 1.
            seed: of the draws behind them.
        """
        return self.model.quantiles(self.values, self.observed, levels, seed=seed, ids=self.ids)

    def filled(self, matrix: Tensor) -> Any:
        """The whole table, its missing cells filled from a matrix of the rows that have some."""
        whole = np.zeros((self.table.rows, self.model.encoding.width))
        whole[self.rows] = self.model.spread_out(matrix)
        return self.model.encoding.decode(whole, self.table)
