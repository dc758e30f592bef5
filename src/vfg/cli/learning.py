"""Fitting a model to a table in files, or loading one, with the options that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vfg.cli.errors import suggested
from vfg.cli.graphs import chosen_graph
from vfg.cli.options import (
    Bend,
    Bounds,
    Budget,
    Columns,
    Device,
    Exclude,
    GraphFile,
    Kinds,
    Members,
    Mixtures,
    Neighbours,
    Quiet,
    SectionList,
    Seed,
    Steps,
    Width,
)
from vfg.cli.progress import is_watched, watch_training
from vfg.cli.tables import chosen_columns

if TYPE_CHECKING:
    from vfg import TableModel
    from vfg.imputation.settings import ImputerSettings


@dataclass(frozen=True)
class Learning:
    """How a model is fitted; None leaves a choice to the table."""

    columns: Columns = None
    exclude: Exclude = None
    kinds: Kinds = None
    bounds: Bounds = None
    graph: GraphFile = None
    sections: SectionList = None
    width: Width = None
    bend: Bend = True
    members: Members = None
    mixtures: Mixtures = None
    neighbours: Neighbours = None
    steps: Steps = None
    budget: Budget = None
    device: Device = None
    seed: Seed = 0
    quiet: Quiet = False

    def chosen(self, names: Sequence[str]) -> list[str]:
        """The columns to learn, among those of a table."""
        return chosen_columns(self.columns, self.exclude, names)

    def choices(self) -> dict[str, Any]:
        """What was chosen rather than left to the table, by name, for people; and the seed."""
        chosen = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("quiet", "seed") and getattr(self, field.name) != field.default
        }
        shown = {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in chosen.items()
        }
        return {**shown, "seed": self.seed}

    def settings(self, columns: Sequence[str]) -> ImputerSettings:
        """The settings of a fit to some columns.

        Args:
            columns: that are learned.

        Raises:
            ValueError: for settings that do not fit the columns.
        """
        from vfg.imputation.settings import ImputerSettings

        watched = is_watched(self.quiet)
        if watched:
            watch_training()
        known = [field.name for field in fields(ImputerSettings)]
        plain = {name: value for name, value in vars(self).items() if name in known}
        parsed = {
            "graph": chosen_graph(self.graph, self.sections, self.width, columns),
            "schema": kinds_of(self.kinds or (), columns),
            "bounds": bounds_of(self.bounds or (), columns),
            "device": checked_device(self.device),
            "progress": watched,
        }
        return ImputerSettings(**{**plain, **parsed})


def load_table_model(path: str | Path, device: str | None = None) -> TableModel:
    """A model of a table from a file, on the device where it is to answer.

    Args:
        path: of the file.
        device: by its name; None takes a GPU if there is one.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a model of a table, or the device is not there.
    """
    import vfg
    from vfg.imputation.table_model import answering_device

    model = vfg.load(path)
    if not isinstance(model, vfg.TableModel):
        raise ValueError(
            f"this needs a model of a table, as vfg fit writes it, but the file holds a "
            f"{type(model).__name__}"
        )
    return model.to(answering_device(checked_device(device)))


def checked_device(name: str | None) -> str | None:
    """The name of a device that is there.

    Raises:
        ValueError: if it is none, or not there.
    """
    if name is None:
        return None
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        found = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        raise ValueError(
            f"the device {name!r} is not there; choose one of {', '.join(found)}"
        ) from error
    return name


def kinds_of(texts: Sequence[str], columns: Sequence[str]) -> dict[str, str] | None:
    """Kinds of columns from `COLUMN=KIND`; None for none.

    Raises:
        typer.BadParameter: for anything else.
        ValueError: for an unknown column.

    Example:
        >>> kinds_of(["age=integer"], ["age", "name"])
        {'age': 'integer'}
    """
    return dict(_named(text, "--kind", "COLUMN=KIND", columns) for text in texts) or None


def bounds_of(texts: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[Any, Any]] | None:
    """Ranges of columns from `COLUMN=LOW:HIGH`; None for none.

    Ends are numbers, or dates in ISO form; an end that is left out is the one that was observed.

    Raises:
        typer.BadParameter: for anything else.
        ValueError: for an unknown column.

    Example:
        >>> bounds_of(["age=0:"], ["age"])
        {'age': (0.0, None)}
    """
    found = {}
    for text in texts:
        name, value = _named(text, "--bounds", "COLUMN=LOW:HIGH", columns)
        low, colon, high = value.partition(":")
        if not colon:
            raise typer.BadParameter(f"--bounds takes COLUMN=LOW:HIGH, but got {text!r}")
        found[name] = _end(low), _end(high)
    return found or None


def _named(text: str, option: str, form: str, columns: Sequence[str]) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (equals and name and value):
        raise typer.BadParameter(f"{option} takes {form}, but got {text!r}")
    if name not in columns:
        raise ValueError(
            f"{option} names {name!r}, which is no column that is learned; "
            f"{suggested(name, columns)}"
        )
    return name, value


def _end(text: str) -> float | str | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text.strip()
