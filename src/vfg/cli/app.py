"""The application: all commands in one parser."""

from __future__ import annotations

from typing import Annotated

import typer

from vfg.cli.commands import (
    data,
    embed,
    evaluate,
    export,
    fit,
    impute,
    learn,
    query,
    reproduce,
    sample,
    score,
    serve,
    show,
    studio,
)
from vfg.cli.errors import Command, Commands, prepare_process

app = typer.Typer(
    name="vfg",
    cls=Commands,
    help="Fill the missing values of tables, and infer any columns given any others.",
    epilog=(
        "Start with: vfg impute table.csv -o filled.csv. "
        "Exit codes: 0 success, 1 failure, 2 usage error, 3 a defect in vfg, 130 interrupted, "
        "141 output pipe closed, 143 terminated."
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
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of all commands."""


TABLES, MODELS, MORE = "Missing values", "Models", "More"
for command, panel in (
    (impute.impute, TABLES),
    (fit.fit, TABLES),
    (evaluate.evaluate, TABLES),
    (query.query, MODELS),
    (sample.sample, MODELS),
    (show.show, MODELS),
    (score.score, MODELS),
    (embed.embed, MODELS),
    (learn.learn, MODELS),
    (serve.serve, MODELS),
    (export.export, MODELS),
    (studio.studio, MORE),
    (data.data, MORE),
    (reproduce.reproduce, MORE),
):
    kind = query.Query if command in (query.query, sample.sample) else Command
    app.command(rich_help_panel=panel, cls=kind)(command)


def main() -> None:
    """Run the command in the arguments of the process, and exit with its code."""
    prepare_process()
    app(prog_name="vfg")
