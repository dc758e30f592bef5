"""`vfg studio`: explore a model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.options import Debug, ModelFile, Threads


def studio(
    model: ModelFile,
    table: Annotated[
        Path | None, typer.Argument(metavar="[TABLE]", help="A table to open with the model.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the server.")] = 8050,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or only serve.")
    ] = True,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Explore a model in the browser: query it, fill tables, traverse its latent space."""
    from vfg.studio import serve

    serve(model, table, port=port, open_browser=browser)
