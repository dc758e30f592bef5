"""The options of all commands, and groups of them that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Expand parameters of a command that are dataclasses into the options in them.

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
    def call(**given: Any) -> None:
        made = {
            name: kind(**{key: given.pop(key) for key in _options(kind) if key in given})
            for name, kind in groups.items()
        }
        command(**given, **made)

    parameters = [option for one in known.parameters.values() for option in _expand(one)]
    call.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _expand(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The options of a group, or a single parameter, as keywords: any may have a default."""
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


def _set_debug(context: typer.Context, wanted: bool) -> None:
    context.meta["vfg.debug"] = wanted


def _set_threads(number: int | None) -> int | None:
    """Limit the threads of all numerical libraries, imported already or not."""
    if number is not None:
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(number)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(number)
    return number


def check_share(value: float | None) -> float | None:
    """Refuse a value that does not lie between 0 and 1, both excluded."""
    if value is not None and not 0.0 < value < 1.0:
        raise typer.BadParameter(f"it must lie between 0 and 1, but is {value:g}")
    return value


# The panels that the help is divided into.
_common = partial(typer.Option, rich_help_panel="Common")
_files = partial(typer.Option, rich_help_panel="Reading and writing")
_graph = partial(typer.Option, rich_help_panel="Graph")
_fitting = partial(typer.Option, rich_help_panel="Fitting")
_large = partial(typer.Option, rich_help_panel="Large tables")

AsJson = Annotated[bool, _common("--json", help="Print JSON, for scripts.")]
Debug = Annotated[
    bool,
    _common("--debug", callback=_set_debug, is_eager=True, help="Print the traceback of an error."),
]
Threads = Annotated[
    int | None,
    _common(min=1, callback=_set_threads, help="Number of threads; by default one per core."),
]
Device = Annotated[
    str | None,
    _common(
        metavar="NAME",
        help="Device to compute on: cpu, cuda, cuda:1, mps; by default a GPU if any.",
    ),
]
Seed = Annotated[int, _common(min=0, help="Seed of all random numbers.")]
Quiet = Annotated[bool, _common("--quiet", "-q", help="Show no progress.")]

ModelFile = Annotated[
    Path | None,
    typer.Argument(metavar="[MODEL]", help="A model file, as written by `vfg fit`, as with -m."),
]
ModelOption = Annotated[
    Path | None,
    typer.Option("--model", "-m", metavar="MODEL", help="A model file, as written by `vfg fit`."),
]
TableFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE",
        help="CSV, TSV, Parquet, Feather or JSON lines, also compressed: files, patterns, "
        "folders of Parquet files, or - for standard input.",
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Output file; - is standard output.")
]
InputFormat = Annotated[
    str | None,
    _files(
        "--from",
        metavar="FORMAT",
        help="Format of the table if its name does not tell: csv, tsv, parquet, feather or jsonl.",
    ),
]
MissingTexts = Annotated[
    str | None,
    _files(
        "--missing",
        metavar="A,B,...",
        help="Texts that mean a missing value, besides NA and the like, such as ?,-999.",
    ),
]
Delimiter = Annotated[
    str | None,
    _files(metavar="MARK", help="Between the cells of CSV files; by default detected."),
]
DecimalMark = Annotated[
    str | None,
    _files("--decimal", metavar="MARK", help="The decimal mark of CSV files; by default detected."),
]
Quotes = Annotated[
    bool, _files("--quotes/--no-quotes", help="Whether quotation marks enclose cells of CSV files.")
]
MostPiped = Annotated[
    float,
    _files(
        "--most-piped",
        metavar="GIB",
        min=0.0,
        help="Size of standard input that is copied to the temporary disk, at most.",
    ),
]
OutputFormat = Annotated[
    str | None,
    _files("--to", metavar="FORMAT", help="Format of the output; csv on standard output."),
]

Overwrite = Annotated[
    bool, _files("--overwrite", help="Allow an output to replace a file that is read.")
]

Columns = Annotated[
    str | None,
    _files(metavar="A,B,...", help="Fit and fill only these columns; the others stay unchanged."),
]
Exclude = Annotated[
    str | None,
    _files(
        metavar="A,B,...", help="Columns to leave out, such as identifiers; they stay unchanged."
    ),
]
Kinds = Annotated[
    list[str] | None,
    _files(
        "--kind",
        metavar="COLUMN=KIND",
        help="Kind of a column if it is not inferred well: continuous, integer, boolean, "
        "categorical, ordinal or date. May be repeated.",
    ),
]
Bounds = Annotated[
    list[str] | None,
    _files(
        "--bounds",
        metavar="COLUMN=LOW:HIGH",
        help="Range of the imputed values of a column; either end may be left out. "
        "May be repeated.",
    ),
]

GraphFile = Annotated[
    Path | None,
    _graph(
        "--graph",
        metavar="FILE",
        help="A graph over the columns: .json, .graphml, .bif (structure only), or an edge list "
        "in .txt, .edges, .csv, .tsv.",
    ),
]
Arrows = Annotated[
    str | None,
    _graph(
        "--arrows",
        metavar="DIRECTION",
        help="Where the edges of the graph file lead: child-parent (to latent nodes) or "
        "cause-effect (a Bayesian network over the columns).",
    ),
]
SectionList = Annotated[
    str | None,
    _graph("--sections", metavar="A,B:C,D", help="Groups of columns, each a leaf under one root."),
]
Width = Annotated[
    int | None,
    _graph(min=1, help="Width of the latent nodes; by default from the number of columns."),
]

Bend = Annotated[
    bool,
    _fitting(
        "--bend/--linear",
        help="Fit nonlinear members as well, or stop at the exact linear model, which takes "
        "seconds.",
    ),
]
Budget = Annotated[
    float | None,
    _fitting(metavar="SECONDS", help="Time limit of fitting; by default none."),
]
EffortName = Annotated[
    str,
    _fitting(
        "--effort",
        metavar="fast|balanced|best",
        help="How many parts are fitted and how long they are trained.",
    ),
]
Members = Annotated[
    int | None,
    _fitting(min=1, help="Number of nonlinear members; by default from the size of the table."),
]
Mixtures = Annotated[
    int | None,
    _fitting(min=0, help="Number of exact mixtures; by default from the size of the table."),
]
Neighbours = Annotated[
    int | None,
    _fitting(
        min=0,
        help="Number of mixtures with a component at every row; by default from the size of the "
        "table. They store rows of the table in the model; 0 stores none.",
    ),
]
Steps = Annotated[
    int | None,
    _fitting(min=1, help="Number of training steps; by default from the size of the table."),
]
Level = Annotated[
    float,
    typer.Option(metavar="SHARE", callback=check_share, help="Nominal coverage of the intervals."),
]

EngineName = Annotated[
    str,
    _large(
        "--engine",
        metavar="NAME",
        help="local, or ray (processes of this machine, or of the cluster in RAY_ADDRESS).",
    ),
]
Processes = Annotated[
    int,
    _large("--processes", "--workers", min=1, help="Number of processes, with one thread each."),
]
ShardRows = Annotated[
    int, _large(min=1, help="Rows per batch, and per file if the output is a folder.")
]
EveryRow = Annotated[
    bool,
    _large(
        "--every-row",
        help="Fit the linear model to all rows; by default to a sample of at most 200,000.",
    ),
]
KnownModel = Annotated[
    Path | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="A model file; by default a model is fitted."
    ),
]
