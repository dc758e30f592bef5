"""`vfg fit`: learn a model from a table."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .learning import Learning
from .options import (
    AsJson,
    Bend,
    Bounds,
    Budget,
    Columns,
    Debug,
    Device,
    Exclude,
    GraphFile,
    InputFormat,
    Kinds,
    Members,
    Mixtures,
    Quiet,
    SectionList,
    Seed,
    Steps,
    TableFiles,
    Threads,
    Width,
)
from .output import console, print_json
from .tables import chosen_columns, opened

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.tabular.model import TableModel


def fit(
    table: TableFiles,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model.")
    ],
    from_: InputFormat = None,
    columns: Columns = None,
    exclude: Exclude = None,
    kind: Kinds = None,
    bounds: Bounds = None,
    graph: GraphFile = None,
    sections: SectionList = None,
    width: Width = None,
    bend: Bend = True,
    members: Members = None,
    mixtures: Mixtures = None,
    steps: Steps = None,
    budget: Budget = None,
    device: Device = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Learn a model from a table, gaps and all.

    vfg fit table.csv -o model.vfg
    """
    import vfg

    check_target(output)
    source = opened(table, from_)
    chosen = chosen_columns(columns, exclude, source.names)
    wishes = Learning(
        graph=graph,
        sections=sections,
        width=width,
        kinds=kind or (),
        bounds=bounds or (),
        bend=bend,
        members=members,
        mixtures=mixtures,
        steps=steps,
        budget=budget,
        device=device,
        seed=seed,
        quiet=quiet,
    )
    begun = time.monotonic()
    model = learned(source, chosen, wishes)
    seconds = time.monotonic() - begun
    vfg.save(model, output)  # type: ignore[arg-type]
    found = {
        "output": str(output),
        "rows": source.rows,
        "columns": len(chosen),
        "members": len(model.members),
        "mixtures": len(model.mixtures),
        "seconds": round(seconds, 2),
        "seed": seed,
    }
    if as_json:
        print_json(found)
    elif not quiet:
        console().print(
            f"{output}: {described(model)}, learned from {source.rows:,} rows in {seconds:.1f} s",
            markup=False,
        )


def learned(source: Source, columns: list[str], wishes: Learning) -> TableModel:
    """The model that an imputer learns from some columns of a table."""
    from vfg.bigtable.fitting import fit as fit_table

    imputer = wishes.imputer(columns)
    model: TableModel = fit_table(source, imputer, columns=columns).model_
    return model


def described(model: TableModel) -> str:
    """The parts of a model in words."""
    parts = [
        f"{len(found)} {noun}{'s' if len(found) > 1 else ''}"
        for found, noun in ((model.members, "bent member"), (model.mixtures, "mixture"))
        if len(found)
    ]
    others = f" and {', '.join(parts)}" if parts else ""
    return f"the linear model{others} of {len(model.encoding.schema)} columns"


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before hours are spent on what should be in it.

    Raises:
        FileNotFoundError: if its folder does not exist.
        OSError: if it is a folder, or cannot be written.
    """
    check_folder(path.parent)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name a file in it")


def check_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written.

    Raises:
        FileNotFoundError: if it does not exist.
        PermissionError: if nothing can be written there.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {str(folder)!r} does not exist; create it first")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"the folder {str(folder)!r} cannot be written to; choose another")
