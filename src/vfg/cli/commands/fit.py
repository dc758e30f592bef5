"""`vfg fit`: fit a model to a table."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfg.cli.fitting import FitOptions, WorkOptions, fit_by_engine
from vfg.cli.model_files import history_file, write_history
from vfg.cli.options import RunOptions, TableFiles, with_groups
from vfg.cli.output import print_json, print_text
from vfg.cli.progress import load_libraries
from vfg.cli.table_files import ReadOptions, check_outputs, report_reading
from vfg.utils.files import is_stream
from vfg.utils.remote import is_remote

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel


@with_groups
def fit(
    table: TableFiles,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="Output file of the model.")
    ],
    options: FitOptions,
    reading: ReadOptions,
    work: WorkOptions,
    run: RunOptions,
) -> None:
    """Fit a model to a table with missing values.

    vfg fit table.csv -o model.vfg

    torchrun --nproc-per-node 8 -m vfg fit table.parquet -o model.vfg
    """
    import vfg

    check_target(output)
    load_libraries(quiet=options.quiet)
    source = reading.open(table, [str(output)])
    inputs = [file.path for file in source.files]
    outputs = {"--output": output, "the history": history_file(output)}
    check_outputs(outputs, inputs, work.overwrite)
    check_checkpoint(work.checkpoint, work.resume)
    chosen = options.select(source)
    begun = time.monotonic()
    model = fit_by_engine(source, chosen, options, work)
    if model is None:  # another process of torchrun writes it
        return
    seconds = time.monotonic() - begun
    if not options.quiet:
        report_reading(source, model)
    vfg.save(model, output)
    write_history(output, model.history)
    summary = {
        "output": str(output),
        "rows": source.rows,
        "columns": len(chosen),
        "members": len(model.members),
        "mixtures": len(model.mixtures),
        "neighbours": len(model.neighbours),
        "seconds": round(seconds, 2),
        "seed": options.seed,
    }
    if model.left_out:
        summary["left_out"] = list(model.left_out)
    if run.as_json:
        print_json(summary)
    elif not options.quiet:
        print_text(
            f"{output}: {describe_parts(model)}, fitted to {source.rows:,} rows in {seconds:.1f} s"
        )
        if model.left_out:
            print_text(f"no time within --budget for: {', '.join(model.left_out)}")


def check_checkpoint(folder: Path | None, resume: bool) -> None:
    """Refuse to continue nothing, and to continue without being asked."""
    if folder is None:
        if resume:
            raise typer.BadParameter("--resume needs --checkpoint FOLDER, which keeps the training")
        return
    is_used = folder.is_dir() and any(folder.iterdir())
    if is_used and not resume:
        raise typer.BadParameter(
            f"{folder} keeps a training run already; add --resume to continue it, or name another"
        )
    if resume and not is_used:
        raise typer.BadParameter(f"{folder} keeps no training to continue; leave out --resume")


def describe_parts(model: TableModel) -> str:
    """The parts of a model as a phrase."""
    parts = [
        f"{len(summary)} {noun}{'s' if len(summary) > 1 else ''}"
        for summary, noun in (
            (model.members, "nonlinear member"),
            (model.mixtures, "mixture"),
            (model.neighbours, "row mixture"),
        )
        if len(summary)
    ]
    others = f" and {', '.join(parts)}" if parts else ""
    return f"the linear model{others} of {len(model.encoding.schema)} columns"


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before the model is fitted."""
    if is_stream(path) or is_remote(path):
        return
    check_folder((path.resolve() if path.is_symlink() else path).parent)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name a file in it")


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist or is not writable."""
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {str(folder)!r} does not exist; create it first")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"the folder {str(folder)!r} cannot be written to; choose another")
