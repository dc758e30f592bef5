"""Fitting a model to a table in files, by one process or by several."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from vfg.cli.learning import Learning

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.imputation.table_model import TableModel


def fit_model(
    source: Source, columns: list[str], options: Learning, every_row: bool = False
) -> TableModel:
    """Fit a model to some columns of a table, in this process.

    Args:
        source: the table.
        columns: that are learned.
        options: how.
        every_row: whether the linear model learns from all rows, however many there are.
    """
    from vfg.bigtable.fit import fit
    from vfg.sklearn import VFGImputer

    imputer = VFGImputer.from_settings(options.settings(columns))
    model: TableModel = fit(source, imputer, columns=columns, every_row=every_row).model_
    return model


def fit_by_engine(
    source: Source,
    columns: list[str],
    options: Learning,
    engine: str,
    processes: int,
    every_row: bool,
) -> TableModel | None:
    """Fit a model by the processes of an engine or of torchrun.

    Args:
        source: the table.
        columns: that are learned.
        options: how.
        engine: its name.
        processes: how many.
        every_row: whether the linear model learns from all rows, however many there are.

    Returns:
        The model; None in all but the first process of torchrun's.

    Raises:
        typer.BadParameter: for settings with which processes could not agree.
        RuntimeError: if processes of the engine died again and again.
    """
    from vfg.bigtable.engines.base import ENGINES
    from vfg.bigtable.engines.process_group import process_group
    from vfg.utils.specs import check_choice

    check_choice("--engine", engine, ENGINES)
    size = max(processes, int(os.environ.get("WORLD_SIZE", "1")))
    if size > 1 and options.budget is not None:
        raise typer.BadParameter(
            "--budget is for one process, as several would run out of time at different points; "
            "limit --steps instead"
        )
    if size > 1 and source.is_piped:
        raise typer.BadParameter("a table from a pipe can be read by one process only; name a file")
    if engine == "ray":
        return _fit_by_ray(source, columns, options, processes, every_row)
    if processes > 1:
        raise typer.BadParameter(
            f"--processes {processes} needs --engine ray, or: torchrun --nproc-per-node "
            f"{processes} -m vfg fit ..."
        )
    with process_group() as world:
        model = fit_model(source, columns, options, every_row)
    return model if world.is_first else None


def _fit_by_ray(
    source: Source, columns: list[str], options: Learning, processes: int, every_row: bool
) -> TableModel:
    from vfg.bigtable.engines.ray import Ray
    from vfg.bigtable.fit import fit_files
    from vfg.modelfile import loads
    from vfg.sklearn import VFGImputer
    from vfg.training.history import History

    imputer = VFGImputer.from_settings(replace(options.settings(columns), progress=False))
    files = [(os.path.abspath(file.path), file.kind.format) for file in source.files]
    data, history = Ray(processes).together(fit_files, files, imputer, columns, every_row)
    model: Any = loads(data)
    model.history = None if history is None else History.from_dict(history)
    return model  # type: ignore[no-any-return]
