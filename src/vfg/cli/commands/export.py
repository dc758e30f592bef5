"""`vfg export`: write filling and intervals of a model for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vfg.cli.errors import usage_errors
from vfg.cli.model_files import choose_model
from vfg.cli.options import Debug, ModelFile, ModelOption
from vfg.cli.table_files import check_outputs


def export(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write, .onnx or .pt2 (torch.export).")
    ],
    file: ModelFile = None,
    model: ModelOption = None,
    level: Annotated[float, typer.Option(help="Nominal coverage of the intervals.")] = 0.9,
    without: Annotated[
        str,
        typer.Option(
            help="Parts to leave out (comma-separated): members, mixtures, neighbours, trees, "
            "relations, missingness, constraints, intervals."
        ),
    ] = "",
    debug: Debug = False,
) -> None:
    """Export a model that fills tables, with intervals, to ONNX or torch.export.

    vfg export -m model.vfg -o model.onnx
    """
    import vfg

    path = choose_model(file, model)
    check_outputs({"--output": output}, [path])
    loaded = vfg.load(path)
    parts = [part.strip() for part in without.split(",") if part.strip()]
    with usage_errors():
        described = vfg.export(loaded, output, level=level, without=parts)
    columns = len(described["columns"])
    outputs = "filled, lower, upper" if "level" in described else "filled"
    typer.echo(f"{output}: cells (rows, {columns}) -> {outputs}", err=True)
