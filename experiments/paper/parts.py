"""Long experiments in parts: each is kept once it is done, so a run that was cut off can go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ..cells import Cells

TRIES = 2
"""How often a part may fail before it is given up."""


class Parts:
    """The finished and failed parts of an experiment.

    Args:
        folder: where they lie.
        resume: whether parts that lie there count; without it they are removed.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "parts.jsonl"
        if not resume:
            file.unlink(missing_ok=True)
        self.cells = Cells(file)

    def _get(self, key: tuple[str, ...]) -> dict[str, Any]:
        return self.cells.get({"part": key}) or {}

    def done(self, *key: str) -> dict[str, Any] | None:
        """The numbers of a finished part; None if it is not finished."""
        return self._get(key).get("row")

    def failures(self, *key: str) -> list[str]:
        """What went wrong with a part, one message per try."""
        return list(self._get(key).get("failed", []))

    def is_open(self, *key: str) -> bool:
        """Whether a part is not finished and may be tried."""
        return self.done(*key) is None and len(self.failures(*key)) < TRIES

    def keep(self, *key: str, row: dict[str, Any]) -> None:
        """A part is finished."""
        self.cells.add({"part": key}, {"row": row})

    def fail(self, *key: str, message: str) -> None:
        """A part ended with an error."""
        self.cells.add({"part": key}, {"failed": [*self.failures(*key), message]})


class Clock:
    """Says whether there is time for one more part; without minutes there always is.

    Args:
        minutes: how many there are from now on.
        spare: seconds that every part takes beside its training.
    """

    def __init__(self, minutes: float | None, spare: float = 10.0) -> None:
        self.ends = float("inf") if minutes is None else time.monotonic() + 60.0 * minutes
        self.spare = spare

    def has(self, seconds: float) -> bool:
        """Whether so many seconds of training, and those that a part takes besides, are left."""
        return time.monotonic() + 1.02 * seconds + self.spare < self.ends
