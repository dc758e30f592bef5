"""All cells that were ever measured, in one small file, so that results grow over machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Measured = dict[str, Any]
"""One cell and what was measured of it."""

IDENTITY = ("table", "mechanism", "setting", "seed", "method")
LEFT_OUT = ("missing_cells", "peak_mb_at_start", "draws")
"""What is not carried over: known from the cell, or of no use."""


def merged(folder: Path, log: Path | None) -> list[Measured]:
    """The cells of the log and those of `folder`, which replace what the log has of them."""
    known = [] if log is None or not log.exists() else unpacked(log.read_text())
    new = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    found = {tuple(cell[name] for name in IDENTITY): cell for cell in [*known, *new]}
    return [found[key] for key in sorted(found)]


def packed(cells: list[Measured]) -> str:
    """The names of what was measured, and a line of values for every cell; null where none is."""
    names = {name for cell in cells for name in cell}
    fields = [*IDENTITY, *sorted(names - {*IDENTITY, *LEFT_OUT})]
    rows = [json.dumps([_short(cell.get(name)) for name in fields]) for cell in cells]
    body = ",\n  ".join(rows)
    return f'{{\n "fields": {json.dumps(fields)},\n "cells": [\n  {body}\n ]\n}}\n'


def unpacked(text: str) -> list[Measured]:
    """The cells of `packed`."""
    table = json.loads(text)
    return [
        {name: value for name, value in zip(table["fields"], row, strict=True) if value is not None}
        for row in table["cells"]
    ]


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
