"""What the page's server keeps: the model, tables that were opened, and what was filled."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from pathlib import Path
from threading import RLock
from typing import Any

from vfg.inference.variables import Value
from vfg.studio.asking.model import OpenModel
from vfg.studio.exploring.analysis import consistency, history_beside
from vfg.studio.filling.tables import (
    Table,
    fill_table,
    open_table,
    read_bytes,
    read_file,
    row_evidence,
)
from vfg.training.history import History

MOST_TABLES = 4
"""How many tables are kept; the oldest is forgotten first."""


class Session:
    """The model and the tables of one server.

    Args:
        model: the model.
        table: a path, a frame or an array that is open from the start; None for none.

    Raises:
        ValueError: for a table that cannot be read, or does not fit the model.
    """

    def __init__(self, model: OpenModel, table: Any = None) -> None:
        self.model = model
        self.lock = RLock()
        """Queries run one after the other: two at once would only slow each other down."""
        self.tables: OrderedDict[str, Table] = OrderedDict()
        self.filled: dict[str, Table] = {}
        self.distances: dict[str, dict[str, float]] = {}
        self.history: History | None = history_beside(model.file)
        self.first = None if table is None else self._open(table)

    def _open(self, table: Any) -> dict[str, Any]:
        if isinstance(table, str | Path):
            path = Path(table)
            if not path.is_file():
                raise ValueError(f"there is no table {str(path)!r}; name a CSV or Parquet file")
            return self._store(read_file(self.model, path, path.name))
        return self._store(open_table(self.model, table))

    def read(self, name: str, data: bytes) -> dict[str, Any]:
        """Open a file; the description of its table for the page."""
        return self._store(read_bytes(self.model, name, data))

    def _store(self, table: Table) -> dict[str, Any]:
        token = secrets.token_urlsafe(8)
        self.tables[token] = table
        while len(self.tables) > MOST_TABLES:
            oldest = next(iter(self.tables))
            del self.tables[oldest]
            self.filled.pop(oldest, None)
        return {"token": token, "name": table.name, "rows": table.rows, "summary": table.summary}

    def table(self, described: Any) -> Table:
        """The table that the page speaks of.

        Raises:
            ValueError: if there is none, or none any more.
        """
        if not described:
            raise ValueError("no table is open; drop one under Fill, or pick a file there")
        if described["token"] not in self.tables:
            raise ValueError("this table is not open any more; open its file again")
        return self.tables[described["token"]]

    def fill(self, described: Any) -> Table:
        """The filled table, computed once."""
        table = self.table(described)
        token = described["token"]
        if token not in self.filled:
            self.filled[token] = fill_table(self.model, table)
        return self.filled[token]

    def consistency(self, described: Any) -> dict[str, float]:
        """How consistent the nodes are on the open table, computed once; nothing without one."""
        if not described:
            return {}
        token = described["token"]
        if token not in self.distances:
            self.distances = {token: consistency(self.model, self.table(described))}
        return self.distances[token]

    def row(self, described: Any, row: int) -> dict[str, Value]:
        """A row of the table as evidence."""
        return row_evidence(self.table(described), row)
