"""`vfg serve`: answer questions to a model over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.errors import usage_errors
from vfg.cli.model_files import choose_model
from vfg.cli.options import Debug, ModelFile, ModelOption, Threads


def serve(
    file: ModelFile = None,
    model: ModelOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File with the token that requests send; by default the variable VFG_TOKEN.",
        ),
    ] = None,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Largest number of rows of a request.")
    ] = 10_000,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Largest number of requests that are answered at a time.")
    ] = 128,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Serve a model over HTTP: filled rows, intervals, probabilities and answers.

    vfg serve -m model.vfg --port 8000
    """
    import vfg
    from vfg.serving.server import Limits, make_server, run

    loaded = vfg.load(choose_model(file, model))
    token = os.environ.get("VFG_TOKEN") if token_file is None else token_file.read_text().strip()
    limits = Limits(rows=max_rows, requests=max_requests)
    with usage_errors():
        server = make_server(loaded, host=host, port=port, token=token, limits=limits)
    run(server)
