"""`vfg evaluate`: how well hidden cells of a table are recovered, next to other imputers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .groups import with_groups
from .learning import Learning
from .options import AsJson, Debug, InputFormat, Level, TableFiles, Threads
from .options import share as between
from .output import console, print_json, print_table
from .rivals import Entry, chosen_rivals, compete
from .tables import known_columns, opened

if TYPE_CHECKING:
    from vfg.tabular.evaluation import Evaluation


@with_groups
def evaluate(
    table: TableFiles,
    wishes: Learning,
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
    from .asking import load_table_model
    from .hiding import Trial, hidden_cells, without_cells

    known = None if model is None else load_table_model(model, wishes.device)
    chosen = (
        wishes.chosen(source.names)
        if known is None
        else known_columns(source.names, [str(label) for label in known.encoding.schema])
    )
    whole = source.read().select(chosen)
    hidden = hidden_cells(whole, share, wishes.seed)
    begun = time.monotonic()
    if known is None:
        known = wishes.imputer(chosen).fit(without_cells(whole, hidden)).model_
    trial = Trial(known, whole, hidden)
    entries = [Entry("vfg", trial.evaluate(level, wishes.seed), time.monotonic() - begun)]
    entries += compete(names, known, trial.values, trial.shown, trial.hidden, level, wishes.seed)
    if as_json:
        methods = [entry.to_dict() for entry in entries]
        print_json({"share": share, "level": level, "seed": wishes.seed, "methods": methods})
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
