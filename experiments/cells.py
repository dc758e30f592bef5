"""Measured cells as lines of files, so that an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


class Cells:
    """Results by key, written as soon as they are there to `file`, a JSON object per line.

    None keeps them in memory. Other files, as those of other machines, are read and not written.

    Example:
        >>> cells = Cells(None)
        >>> cells.add({"edges": 4}, {"seconds": 0.5})
        >>> cells.get({"edges": 4})["seconds"], cells.get({"edges": 8})
        (0.5, None)
    """

    def __init__(self, file: Path | None, others: Iterable[Path] = ()) -> None:
        self.file = file
        self.known: dict[str, Cell] = {}
        for path in (*others, file):
            lines = path.read_text().splitlines() if path is not None and path.is_file() else []
            self.known |= {_name(cell["key"]): cell for cell in map(json.loads, lines)}

    def get(self, key: Cell) -> Cell | None:
        """What was found under a key; None if nothing was."""
        return self.known.get(_name(key))

    def add(self, key: Cell, found: Cell) -> None:
        """Keep a result."""
        cell = {"key": key, **found}
        self.known[_name(key)] = cell
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as out:
                out.write(json.dumps(cell) + "\n")


def _name(key: Cell) -> str:
    return json.dumps(key, sort_keys=True)
