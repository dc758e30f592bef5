"""What the sections of docs/results.md are made of."""

from __future__ import annotations

from typing import Any


def provenance(found: dict[str, Any]) -> str:
    """Command, machine and time, as the last line of a section."""
    machine = found["machine"]
    where = machine["gpu"] or f"{machine['cores']} CPU cores"
    return f"`{found['command']}`: {where}, torch {machine['torch']}, {found['seconds']:.0f} s.\n"


def rows(header: list[str], body: list[list[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
