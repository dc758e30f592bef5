"""Long experiments in parts: each is kept once it is done, so a run that was cut off can go on.

A part is a JSON file in a folder, replaced as a whole. What failed leaves a note in its place.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

TRIES = 2
"""How often a part may fail before it is given up."""


class Parts:
    """The finished and failed parts of an experiment.

    Args:
        folder: where they lie.
        resume: whether parts that lie there count; without it they are removed.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for file in () if resume else sorted(folder.glob("*.json")):
            file.unlink()

    def done(self, *key: str) -> dict[str, Any] | None:
        """The numbers of a finished part; None if it is not finished."""
        found = self._read(key)
        return None if found is None or "failed" in found else found

    def failures(self, *key: str) -> list[str]:
        """What went wrong with a part, one message per try."""
        found = self._read(key) or {}
        return list(found.get("failed", []))

    def is_open(self, *key: str) -> bool:
        """Whether a part is not finished and may be tried."""
        return self.done(*key) is None and len(self.failures(*key)) < TRIES

    def keep(self, *key: str, row: dict[str, Any]) -> None:
        """A part is finished."""
        self._write(key, row)

    def fail(self, *key: str, message: str) -> None:
        """A part ended with an error."""
        self._write(key, {"failed": [*self.failures(*key), message]})

    def _path(self, key: tuple[str, ...]) -> Path:
        plain = ["".join(c if c.isalnum() else "-" for c in word) for word in key]
        return self.folder / f"{'__'.join(plain)}.json"

    def _read(self, key: tuple[str, ...]) -> dict[str, Any] | None:
        path = self._path(key)
        found: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
        return found

    def _write(self, key: tuple[str, ...], content: dict[str, Any]) -> None:
        path = self._path(key)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(beside, path)


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
