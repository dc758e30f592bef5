"""Learning a model from a table, alone or together with other processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from .learning import Learning

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.tabular.model import TableModel


def learned(
    source: Source, columns: list[str], wishes: Learning, every_row: bool = False
) -> TableModel:
    """The model that an imputer learns from some columns of a table."""
    from vfg.bigtable.fitting import fit as fit_table

    imputer = wishes.imputer(columns)
    model: TableModel = fit_table(source, imputer, columns=columns, every_row=every_row).model_
    return model


def learned_together(
    source: Source,
    columns: list[str],
    wishes: Learning,
    engine: str,
    processes: int,
    every_row: bool,
) -> TableModel | None:
    """The same, by the processes of an engine or of torchrun; None in all but the first of these.

    Raises:
        typer.BadParameter: for settings with which processes could not agree.
        RuntimeError: if processes of the engine died again and again.
    """
    from vfg.config import check_choice
    from vfg.engines.base import ENGINES
    from vfg.engines.together import process_group

    check_choice("--engine", engine, ENGINES)
    size = max(processes, int(os.environ.get("WORLD_SIZE", "1")))
    if size > 1 and wishes.budget is not None:
        raise typer.BadParameter(
            "--budget is for one process, as several would run out of time at different points; "
            "limit --steps instead"
        )
    if size > 1 and source.is_piped:
        raise typer.BadParameter("a table from a pipe can be read by one process only; name a file")
    if engine == "ray":
        return _learned_by_ray(source, columns, wishes, processes, every_row)
    if processes > 1:
        raise typer.BadParameter(
            f"--processes {processes} needs --engine ray, or: torchrun --nproc-per-node "
            f"{processes} -m vfg fit ..."
        )
    with process_group() as world:
        model = learned(source, columns, wishes, every_row)
    return model if world.is_first else None


def _learned_by_ray(
    source: Source, columns: list[str], wishes: Learning, processes: int, every_row: bool
) -> TableModel:
    from vfg.bigtable.fitting import fit_files
    from vfg.engines.ray import Ray
    from vfg.modelfile import loads
    from vfg.training.history import History

    imputer = wishes.imputer(columns).set_params(verbose=False)
    files = [(os.path.abspath(file.path), file.kind.format) for file in source.files]
    data, history = Ray(processes).together(fit_files, files, imputer, columns, every_row)
    model: Any = loads(data)
    model.history = None if history is None else History.from_dict(history)
    return model  # type: ignore[no-any-return]
