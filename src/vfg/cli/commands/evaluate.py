"""`vfg evaluate`: how well hidden cells of a table are recovered, next to other imputers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfg.cli.baselines import Entry, chosen_rivals, compete
from vfg.cli.learning import Learning, load_table_model
from vfg.cli.options import AsJson, Debug, InputFormat, Level, TableFiles, Threads, with_groups
from vfg.cli.options import share as between
from vfg.cli.output import console, print_json, print_table
from vfg.cli.tables import columns_of, known_columns, opened

if TYPE_CHECKING:
    from vfg.imputation.evaluation import Evaluation

KEPT = 2
"""How many known cells every column keeps at least: with fewer, nothing can be learned of it."""


@with_groups
def evaluate(
    table: TableFiles,
    options: Learning,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A model that learned from other rows; without it, one is learned from the cells "
            "that are not hidden.",
        ),
    ] = None,
    share: Annotated[
        float,
        typer.Option(metavar="SHARE", callback=between, help="Of the known cells that are hidden."),
    ] = 0.1,
    level: Level = 0.9,
    rivals: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="mean, knn, iterative (with commas between), or all."),
    ] = None,
    from_: InputFormat = None,
    threads: Threads = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Hide known cells, fill them, and compare; also with other imputers.

    vfg evaluate table.csv --rivals all
    """
    names = chosen_rivals(rivals)
    source = opened(table, from_)
    import vfg
    from vfg.imputation.evaluation import HeldOut, hold_out
    from vfg.imputation.evaluation import evaluate as evaluate_model
    from vfg.tables.frames import hide_cells, open_table

    fitted = None if model is None else load_table_model(model, options.device)
    chosen = (
        options.chosen(source.names)
        if fitted is None
        else known_columns(source.names, columns_of(fitted))
    )
    whole = open_table(source.read().select(chosen))
    hidden = hold_out(whole, share, options.seed, keep=KEPT)
    if not hidden.any():
        raise ValueError("no cell can be hidden; use more rows, or a larger --share")
    begun = time.monotonic()
    if fitted is None:
        fitted = vfg.TableModel(options.settings(chosen))
        fitted.fit(hide_cells(whole, hidden))
    found = evaluate_model(fitted, whole, hidden, level=level, seed=options.seed)
    entries = [Entry("vfg", found, time.monotonic() - begun)]
    if names:
        held = HeldOut.of(fitted, whole, hidden)
        entries += compete(names, fitted, held, level, options.seed)
    if as_json:
        methods = [entry.to_dict() for entry in entries]
        print_json({"share": share, "level": level, "seed": options.seed, "methods": methods})
        return
    print_scores(entries[0].evaluation)
    if names:
        print_rivals(entries)


def print_scores(found: Evaluation) -> None:
    """Errors of all columns, for people."""
    heads = ("column", "hidden", "error", "of the mean", "covered", "right")
    rows: list[tuple[object, ...]] = [
        (str(s.column), s.hidden, s.rmse, s.baseline, s.coverage, s.accuracy) for s in found.columns
    ]
    total = sum(score.hidden for score in found.columns)
    rows.append(("all", total, found.rmse, found.baseline, found.coverage, float("nan")))
    print_table(heads, rows)
    console().print(
        "\nerror: root mean square, in standard deviations of the column; of the mean: the same "
        f"if means are filled in; covered: within its {100 * found.level:g} % interval; right: "
        "categories recovered",
        markup=False,
    )


def print_rivals(entries: list[Entry]) -> None:
    """One line per method, for people."""
    console().print()
    rows = [(e.method, e.evaluation.rmse, e.evaluation.mae, e.seconds) for e in entries]
    print_table(("method", "error", "absolute", "seconds"), rows)
