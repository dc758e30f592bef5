"""What the shell offers when the tab key is pressed; nothing heavy is imported for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

LONGEST_HEADER = 16 * 2**20
"""Bytes that are read of a model file, at most."""


def names_in(path: str | Path) -> list[str]:
    """The columns and nodes that a model file names; none if it cannot be read.

    The names stand in the header of the file, so that the model need not be loaded.
    """
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, LONGEST_HEADER)))
        fields = json.loads(header["__metadata__"]["vfg"])
        return _names(fields["model"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _names(model: dict[str, Any]) -> list[str]:
    if "encoding" in model:
        columns = json.loads(model["encoding"])["schema"]["columns"]
        return [str(column["label"]) for column in columns]
    nodes = model["graph"]["nodes"]
    columns = [column for node in nodes for column in node["columns"] or ()]
    return list(dict.fromkeys([*map(str, columns), *(str(node["name"]) for node in nodes)]))


def offered_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the model on the command line, for `--infer`."""
    return [name for name in _known(context) if name.startswith(incomplete)]


def offered_pairs(context: typer.Context, incomplete: str) -> list[str]:
    """The same with an equals sign, for `--given`."""
    return [f"{name}=" for name in _known(context) if name.startswith(incomplete)]


def offered_experiments(incomplete: str) -> list[str]:
    """Names of experiments."""
    from vfg.data.reproducing import names

    return [name for name in names() if name.startswith(incomplete)]


def _known(context: typer.Context) -> list[str]:
    model = context.params.get("model")
    return [] if model is None else names_in(model)
