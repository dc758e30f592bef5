"""The commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from vfg.cli.commands import (
    data,
    embed,
    evaluate,
    fit,
    impute,
    query,
    reproduce,
    sample,
    score,
    show,
    studio,
)
from vfg.cli.errors import Commands

app = typer.Typer(
    name="vfg",
    cls=Commands,
    help="Variational flow graphical models: fill tables with gaps, ask a model anything.",
    epilog=(
        "Begin with: vfg impute gaps.csv -o filled.csv. "
        "Exit codes: 0 done, 1 it could not be done, 2 wrong use, 3 a defect in vfg, "
        "130 interrupted."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import vfg

        typer.echo(f"vfg {vfg.__version__}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """What holds for all commands."""


FILLING, ASKING, MORE = "Tables with gaps", "Questions to a model", "More"
for command, panel in (
    (fit.fit, FILLING),
    (impute.impute, FILLING),
    (evaluate.evaluate, FILLING),
    (show.show, ASKING),
    (score.score, ASKING),
    (embed.embed, ASKING),
    (data.data, MORE),
    (reproduce.reproduce, MORE),
    (studio.studio, MORE),
):
    app.command(rich_help_panel=panel)(command)
for asking in (query.query, sample.sample):
    app.command(rich_help_panel=ASKING, cls=query.Query)(asking)


def main() -> None:
    """Run the command that the arguments of the process name, and leave with its exit code."""
    app(prog_name="vfg")
