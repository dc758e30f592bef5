"""`vfg reproduce`: the experiments of the paper."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.errors import suggest
from vfg.cli.model_files import complete_experiments
from vfg.cli.options import RunOptions, with_groups
from vfg.cli.output import print_json, print_names


@with_groups
def reproduce(
    run: RunOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=complete_experiments,
            help="Name of the experiment; without it, list all.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run at a small size: minutes on two cores, no download."),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; by default that of the experiment.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Output folder; by default `outputs`."
        ),
    ] = None,
) -> None:
    """Run an experiment of the paper and write its results; without a name, list them.

    vfg reproduce synthetic --quick
    """
    from vfg.data import reproducing

    known = list(reproducing.names())
    if name is None:
        print_names(known, as_json=run.as_json)
        return
    if name not in known:
        raise typer.BadParameter(f"there is no experiment {name!r}; {suggest(name, known)}")
    with stdout_to_stderr() if run.as_json else nullcontext():
        result = reproducing.reproduce(name, quick=quick, seeds=seeds, output=output)
    if run.as_json:
        print_json(result)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output of this process and its children to standard error."""
    sys.stdout.flush()
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
