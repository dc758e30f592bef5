"""What the page's server keeps: the model, tables that were opened, and what was filled."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

from vfg.inference.variables import Value
from vfg.studio.asking.model import OpenModel
from vfg.studio.exploring.analysis import consistency, history_beside
from vfg.studio.filling.opened_tables import (
    MOST_BYTES,
    MatchedTable,
    fill_table,
    open_table,
    read_bytes,
    row_evidence,
    too_large,
)
from vfg.training.history import History

MOST_TABLES = 4
"""How many tables a browser keeps open; the oldest is closed first."""
MOST_CLIENTS = 8
"""How many browsers keep tables; that which came first loses them first."""


@dataclass
class Opened:
    """An open table, and what was computed from it."""

    model: OpenModel
    table: MatchedTable

    @cached_property
    def filled(self) -> MatchedTable:
        """The table without missing values."""
        return fill_table(self.model, self.table)

    @cached_property
    def distances(self) -> dict[str, float]:
        """How consistent the nodes are on the table."""
        return consistency(self.model, self.table)


class Session:
    """The model and the tables of one server."""

    def __init__(self, model: OpenModel, table: Any = None) -> None:
        self.model = model
        self.lock = RLock()
        """Queries run one after the other: two at once would only slow each other down."""
        self.clients: OrderedDict[str, OrderedDict[str, Opened]] = OrderedDict()
        self.history: History | None = history_beside(model.file)
        self.own: dict[str, Opened] = {}
        """The table of the start, which all browsers share."""
        self.first: dict[str, Any] | None = None
        if table is not None:
            self.first = self._describe(self.own, self._open(table))

    def _open(self, table: Any) -> MatchedTable:
        if not isinstance(table, str | Path):
            return open_table(self.model, table)
        path = Path(table)
        if not path.is_file():
            raise ValueError(f"there is no table {str(path)!r}; name a CSV or Parquet file")
        if path.stat().st_size > MOST_BYTES:
            raise too_large(path.name, path.stat().st_size)
        return read_bytes(self.model, path.name, path.read_bytes())

    def read(self, name: str, data: bytes, client: str = "") -> dict[str, Any]:
        """Open a file; the description of its table for the page."""
        table = read_bytes(self.model, name, data)
        tables = self.clients.setdefault(client, OrderedDict())
        closed = tables.popitem(last=False)[1].table.name if len(tables) >= MOST_TABLES else ""
        if len(self.clients) > MOST_CLIENTS:
            self.clients.popitem(last=False)
        words = f"{closed} was closed, because a page keeps {MOST_TABLES} tables open"
        return self._describe(tables, table) | {"note": words if closed else ""}

    def _describe(self, tables: dict[str, Opened], table: MatchedTable) -> dict[str, Any]:
        token = secrets.token_urlsafe(8)
        tables[token] = Opened(self.model, table)
        return {"token": token, "name": table.name, "rows": table.rows, "summary": table.summary}

    def look_up(self, described: Any) -> Opened:
        """The table that the page speaks of, with what was computed from it."""
        if not described:
            raise ValueError("no table is open; drop one under Fill, or pick a file there")
        for tables in (self.own, *self.clients.values()):
            if described["token"] in tables:
                return tables[described["token"]]
        raise ValueError("this table is not open any more; open its file again")

    def table(self, described: Any) -> MatchedTable:
        """The table that the page speaks of."""
        return self.look_up(described).table

    def consistency(self, described: Any) -> dict[str, float]:
        """How consistent the nodes are on the open table; nothing without one."""
        return self.look_up(described).distances if described else {}

    def row(self, described: Any, row: int) -> dict[str, Value]:
        """A row of the table as evidence."""
        return row_evidence(self.table(described), row)
