"""`vfg evaluate`: errors on held-out cells of a table, for a model and for baselines."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.learning import Learning, load_table_model
from vfg.cli.options import AsJson, Debug, InputFormat, Level, TableFiles, Threads, with_groups
from vfg.cli.options import share as between
from vfg.cli.output import console, print_json, print_table
from vfg.cli.tables import columns_of, known_columns, opened

if TYPE_CHECKING:
    from vfg.imputation.evaluation import Evaluation, HeldOut
    from vfg.imputation.table_model import TableModel


NEIGHBOURS = 5


@dataclass(frozen=True)
class Entry:
    """How one method did.

    Attributes:
        method: its name.
        evaluation: its errors.
        seconds: how long learning and filling took.
    """

    method: str
    evaluation: Evaluation
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {"method": self.method, "seconds": self.seconds, **self.evaluation.to_dict()}


def chosen_rivals(text: str | None) -> list[str]:
    """Names with commas between them, or `all`; none for nothing.

    Raises:
        typer.BadParameter: for an unknown name.

    Example:
        >>> chosen_rivals("knn,mean"), chosen_rivals("all"), chosen_rivals(None)
        (['knn', 'mean'], ['mean', 'knn', 'iterative'], [])
    """
    if text is None:
        return []
    names = list(RIVALS) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in RIVALS:
            raise typer.BadParameter(f"--rivals takes {', '.join(RIVALS)} or all, but got {name!r}")
    return names


def compete(
    names: list[str], model: TableModel, held: HeldOut, level: float, seed: int
) -> list[Entry]:
    """Let rivals fill the hidden entries of a matrix in which columns are standardised.

    Args:
        names: of the rivals.
        model: whose encoding the matrix has.
        held: the matrix, which entries they see, and which they fill.
        level: of the intervals, which rivals do not have.
        seed: of their draws.
    """
    import numpy as np

    from vfg.imputation.evaluation import compared

    gaps = np.where(held.shown, held.values, np.nan)
    entries = []
    for name in names:
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that chained regressions have not converged yet
            filled = RIVALS[name](seed).fit_transform(gaps)
        seconds = time.monotonic() - begun
        found = compared(model, held.values, held.hidden, filled, level)
        entries.append(Entry(name, found, seconds))
    return entries


def _mean(seed: int) -> Any:
    from sklearn.impute import SimpleImputer

    return SimpleImputer(keep_empty_features=True)


def _neighbours(seed: int) -> Any:
    from sklearn.impute import KNNImputer

    return KNNImputer(n_neighbors=NEIGHBOURS, keep_empty_features=True)


def _iterative(seed: int) -> Any:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return IterativeImputer(random_state=seed, keep_empty_features=True)


RIVALS: dict[str, Callable[[int], Any]] = {
    "mean": _mean,
    "knn": _neighbours,
    "iterative": _iterative,
}
"""Imputers of scikit-learn by the names that users give them, made from a seed."""


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
