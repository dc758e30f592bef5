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

from vfg.cli.errors import usage_errors
from vfg.utils.specs import check_choice


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
    result = {}
    for field in dataclasses.fields(group):
        kind, option = kinds[field.name], field.metadata.get("option")
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        result[field.name] = (kind if option is None else Annotated[kind, option], default)
    return result


def option(default: Any, panel: str | None, help: str, *names: str, **settings: Any) -> Any:
    """A field of a group that is an option under a panel of the help; see `typer.Option`."""
    info = typer.Option(*names, rich_help_panel=panel, help=help, **settings)
    return dataclasses.field(default=default, metadata={"option": info})


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


COMMON, FILES, GRAPH, FITTING, LARGE = (
    "Common", "Reading and writing", "Graph", "Fitting", "Large tables"
)  # fmt: skip
"""The panels that the help is divided into."""
_common = partial(typer.Option, rich_help_panel=COMMON)
_files = partial(typer.Option, rich_help_panel=FILES)

AsJson = Annotated[bool, _common("--json", help="Print JSON, for scripts.")]
Debug = Annotated[
    bool,
    _common("--debug", callback=_set_debug, is_eager=True, help="Print the traceback of an error."),
]
Threads = Annotated[
    int | None,
    _common(min=1, callback=_set_threads, help="Number of threads; by default one per core."),
]
Seed = Annotated[int, _common(min=0, help="Seed of all random numbers.")]
Quiet = Annotated[bool, _common("--quiet", "-q", help="Show no progress.")]

ModelFile = Annotated[
    Path | None,
    typer.Argument(metavar="MODEL", help="A model file, as written by `vfg fit`; the same as -m."),
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
OutputFormat = Annotated[
    str | None,
    _files("--to", metavar="FORMAT", help="Format of the output; csv on standard output."),
]

Overwrite = Annotated[
    bool, _files("--overwrite", help="Allow an output to replace a file that is read.")
]


def check_arrows(value: str | None) -> str | None:
    """Refuse other directions than graph files have."""
    if value is not None:
        from vfg.graph.files import ARROWS

        with usage_errors():
            check_choice("it", value, ARROWS)
    return value


Arrows = Annotated[
    str | None,
    typer.Option(
        "--arrows",
        rich_help_panel=GRAPH,
        callback=check_arrows,
        metavar="DIRECTION",
        help="Direction of the edges of the graph file: child-parent (to latent nodes) or "
        "cause-effect (a Bayesian network over the columns); by default child-parent, unless the "
        "file says otherwise.",
    ),
]

Level = Annotated[
    float,
    typer.Option(metavar="SHARE", callback=check_share, help="Nominal coverage of the intervals."),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of commands that compute."""

    threads: Threads = None
    as_json: AsJson = False
    debug: Debug = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Who works on a large table."""

    engine: str = option(
        "local",
        LARGE,
        "local, or ray (processes of this machine, or of the cluster in RAY_ADDRESS).",
        metavar="NAME",
    )
    processes: int = option(
        1, LARGE, "Number of processes, with one thread each.", "--processes", "--workers", min=1
    )
