"""`vfg studio`: explore a model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.model_files import split_model
from vfg.cli.options import Debug, ModelOption, Threads


def studio(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="A table to open with the model."),
    ] = None,
    model: ModelOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the server.")] = 8050,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or only serve.")
    ] = True,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Explore a model in the browser: query it, fill tables, traverse its latent space.

    vfg studio table.csv -m model.vfg
    """
    from vfg.studio import serve

    if model is None and len(files or ()) == 1:
        path, tables = Path((files or [])[0]), list[str]()
    else:
        path, tables = split_model("studio", files or [], model)
    if len(tables) > 1:
        raise typer.BadParameter(f"one table can be opened, but {len(tables)} are named")
    serve(path, Path(tables[0]) if tables else None, port=port, open_browser=browser)
