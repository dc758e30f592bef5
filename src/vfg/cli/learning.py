"""Learning a model from a table in files, with the options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import typer

from .failing import suggested
from .graphs import chosen_graph
from .options import (
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
from .progress import is_watched, watch_training
from .tables import chosen_columns

if TYPE_CHECKING:
    from vfg.sklearn import VFGImputer


@dataclass(frozen=True)
class Learning:
    """What a user asks for; None leaves a choice to the table."""

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

    def imputer(self, columns: Sequence[str]) -> VFGImputer:
        """An imputer of some columns, not fitted yet.

        Raises:
            ValueError: for settings that do not fit the columns.
        """
        from vfg.sklearn import VFGImputer

        from .asking import checked_device

        watched = is_watched(self.quiet)
        if watched:
            watch_training()
        graph = chosen_graph(self.graph, self.sections, self.width, columns)
        return VFGImputer(
            graph,
            schema=kinds_of(self.kinds or (), columns),
            bounds=bounds_of(self.bounds or (), columns),
            bend=self.bend,
            members=self.members,
            mixtures=self.mixtures,
            neighbours=self.neighbours,
            width=self.width,
            steps=self.steps,
            budget=self.budget,
            device=checked_device(self.device),
            random_state=self.seed,
            verbose=watched,
            keep_empty_features=True,
        )


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
