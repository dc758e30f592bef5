"""`vfg studio`: look at a model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.options import Debug, ModelFile, Threads


def studio(
    model: ModelFile,
    table: Annotated[
        Path | None, typer.Argument(metavar="[TABLE]", help="A table to look at with the model.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="To serve on.")] = 8050,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open a browser.")
    ] = True,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Look at a model in the browser: ask it, fill rows, walk through its latent space."""
    from vfg.studio import serve

    serve(model, table, port=port, open_browser=browser)
