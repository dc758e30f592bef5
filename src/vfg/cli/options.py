"""The options of all commands, and groups of them that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are dataclasses stand for the options in them.

    Args:
        command: a function; each of its dataclasses has fields annotated as options are.

    Returns:
        The same function to those who read its signature option by option.

    Example:
        >>> @dataclasses.dataclass
        ... class Size:
        ...     width: int = 1
        ...     height: int = 2
        >>> def area(name: str, size: Size, loud: bool = False) -> None:
        ...     print(name, size.width * size.height)
        >>> inspect.signature(with_groups(area))
        <Signature (*, name: str, width: int = 1, height: int = 2, loud: bool = False) -> None>
        >>> with_groups(area)(name="area", width=5)
        area 10
    """
    known = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in known.parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{key: given.pop(key) for key in _options(kind) if key in given})
            for name, kind in groups.items()
        }
        command(**given, **made)

    parameters = [option for one in known.parameters.values() for option in _expanded(one)]
    called.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def _expanded(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The options of a group, or a parameter that is none, as keywords: any may have a default."""
    if not dataclasses.is_dataclass(parameter.annotation):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    for name, (kind, default) in _options(parameter.annotation).items():
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
        )


def _options(group: Any) -> dict[str, tuple[Any, Any]]:
    """Annotation and default of every field of a group."""
    kinds = typing.get_type_hints(group, include_extras=True)
    return {
        field.name: (
            kinds[field.name],
            inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(group)
    }


COMMON, LEARNING, READING, GRAPHS = "Common", "Learning", "Reading and writing", "Graph"
SPREADING = "Large tables"
"""Panels that help is divided into."""


def _set_debug(context: typer.Context, wanted: bool) -> None:
    context.meta["vfg.debug"] = wanted


def _set_threads(number: int | None) -> int | None:
    """Limit the threads of everything that computes, imported already or not."""
    if number is not None:
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(number)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(number)
    return number


def share(value: float | None) -> float | None:
    """Refuse what does not lie between 0 and 1, both excluded."""
    if value is not None and not 0.0 < value < 1.0:
        raise typer.BadParameter(f"it must lie between 0 and 1, but is {value:g}")
    return value


AsJson = Annotated[
    bool,
    typer.Option("--json", help="Answer in JSON, for scripts.", rich_help_panel=COMMON),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=_set_debug,
        is_eager=True,
        help="Show where in the program an error arose.",
        rich_help_panel=COMMON,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        callback=_set_threads,
        help="How many threads compute; by default as many as there are cores.",
        rich_help_panel=COMMON,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Where to compute: cpu, cuda, cuda:1, mps; by default a GPU if there is one.",
        rich_help_panel=COMMON,
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, help="Of everything that is drawn.", rich_help_panel=COMMON)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=COMMON)
]

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, as `vfg fit` writes it.")
]
TableFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE",
        help="CSV, TSV, Parquet, Feather or JSON lines, also compressed; several files, patterns, "
        "folders of Parquet, or - for standard input.",
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is standard output."),
]
InputFormat = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="csv, tsv, parquet, feather or jsonl, where the name of the table does not say.",
        rich_help_panel=READING,
    ),
]
OutputFormat = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="FORMAT",
        help="The same for the output; standard output is csv if nothing else is said.",
        rich_help_panel=READING,
    ),
]

Columns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Learn and fill these columns only; the others pass through.",
        rich_help_panel=READING,
    ),
]
Exclude = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Leave these columns alone, such as identifiers; they pass through.",
        rich_help_panel=READING,
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COLUMN=KIND",
        help="What a column holds, if the table does not say: continuous, integer, boolean, "
        "categorical, ordinal or date. May be repeated.",
        rich_help_panel=READING,
    ),
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(
        "--bounds",
        metavar="COLUMN=LOW:HIGH",
        help="The range that filled numbers of a column may have; either end may be left out. "
        "May be repeated.",
        rich_help_panel=READING,
    ),
]

GraphFile = Annotated[
    Path | None,
    typer.Option(
        "--graph",
        metavar="FILE",
        help="A graph over the columns: .json, .graphml, .bif (structure only), or an edge list "
        "in .txt, .edges, .csv, .tsv.",
        rich_help_panel=GRAPHS,
    ),
]
SectionList = Annotated[
    str | None,
    typer.Option(
        "--sections",
        metavar="A,B:C,D",
        help="Columns that belong together, as sections under one root.",
        rich_help_panel=GRAPHS,
    ),
]
Width = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Of the latent nodes; by default chosen by the number of columns.",
        rich_help_panel=GRAPHS,
    ),
]

Bend = Annotated[
    bool,
    typer.Option(
        "--bend/--linear",
        help="Bend the exact linear model, or keep it as it is, which takes seconds.",
        rich_help_panel=LEARNING,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long learning may take; by default as long as its steps take.",
        rich_help_panel=LEARNING,
    ),
]
Members = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many models are averaged; by default chosen by the table's shape.",
        rich_help_panel=LEARNING,
    ),
]
Mixtures = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="How many exact mixtures are averaged with them; by default chosen by the table's "
        "shape.",
        rich_help_panel=LEARNING,
    ),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="How many mixtures with a component at every row are averaged with them; by default "
        "chosen by the table's shape. They keep rows in the model; 0 keeps none.",
        rich_help_panel=LEARNING,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Of learning; by default chosen by the table's shape.",
        rich_help_panel=LEARNING,
    ),
]
Level = Annotated[
    float,
    typer.Option(
        metavar="SHARE", callback=share, help="How often an interval should hold the truth."
    ),
]

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Who works: local, or ray (processes of this machine, or of the cluster that "
        "RAY_ADDRESS names).",
        rich_help_panel=SPREADING,
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        "--workers",
        min=1,
        help="How many work at once, with one thread each.",
        rich_help_panel=SPREADING,
    ),
]
ShardRows = Annotated[
    int,
    typer.Option(
        min=1,
        help="How many rows are filled at once, and written to one shard if the output is a "
        "folder.",
        rich_help_panel=SPREADING,
    ),
]
EveryRow = Annotated[
    bool,
    typer.Option(
        "--every-row",
        help="Let the linear model learn from all rows, however many; by default from a sample of "
        "at most 200,000.",
        rich_help_panel=SPREADING,
    ),
]
KnownModel = Annotated[
    Path | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="By default one is learned from the table."
    ),
]
