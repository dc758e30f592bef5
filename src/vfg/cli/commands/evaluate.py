"""`vfg evaluate`: errors on held-out cells of a table, for a model and for baselines."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfg.cli.errors import print_line
from vfg.cli.fitting import FitOptions, load_table_model
from vfg.cli.options import Level, RunOptions, TableFiles, check_share, with_groups
from vfg.cli.output import print_json, print_table, print_text
from vfg.cli.tables import ReadOptions, report_reading

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.imputation.evaluation import Evaluation
    from vfg.imputation.table_model import TableModel
    from vfg.tables.cells import Mask
    from vfg.tables.frames import Table


@dataclass(frozen=True)
class MethodScore:
    """The errors of one method."""

    method: str
    evaluation: Evaluation
    seconds: float


def parse_baselines(text: str | None) -> list[str]:
    """Names with commas between them, or `all`; none for nothing.

    Example:
        >>> parse_baselines("knn,mean"), parse_baselines("all"), parse_baselines(None)
        (['knn', 'mean'], ['mean', 'knn', 'iterative'], [])
    """
    if text is None:
        return []
    names = list(BASELINES) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in BASELINES:
            raise typer.BadParameter(
                f"--baselines takes {', '.join(BASELINES)} or all, but got {name!r}"
            )
    return names


def evaluate_baselines(
    names: list[str], model: TableModel, table: Table, hidden: Mask, level: float, seed: int
) -> list[MethodScore]:
    """Impute held-out cells of a table by baselines, which see its standardised matrix."""
    import torch
    from sklearn import impute
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401

    from vfg.imputation.evaluation import score_filled
    from vfg.tables.frames import hide_cells

    kinds = {"mean": impute.SimpleImputer, "knn": impute.KNNImputer}
    kinds["iterative"] = partial(impute.IterativeImputer, random_state=seed)
    values, shown = model.encode(hide_cells(table, hidden))
    masked = torch.where(shown, values, torch.nan).numpy()
    entries = []
    for name in names:
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence of chained regressions
            filled = torch.from_numpy(kinds[name](keep_empty_features=True).fit_transform(masked))
        seconds = time.monotonic() - begun
        evaluation = score_filled(model, table, hidden, filled, level)
        entries.append(MethodScore(name, evaluation, seconds))
    return entries


BASELINES = ("mean", "knn", "iterative")
"""Imputers of scikit-learn by the names that users give them, with its default settings."""


def score_methods(
    source: Source,
    model: TableModel | None,
    options: FitOptions,
    share: float,
    level: float,
    baselines: list[str],
) -> list[MethodScore]:
    """The errors of a model, else of one fitted to all other cells, and of baselines."""
    import vfg
    from vfg.bigtable.fill_batch import model_columns
    from vfg.imputation.evaluation import evaluate, has_fitted_rows, hold_out
    from vfg.tables.frames import hide_cells, open_table

    chosen = options.select(source) if model is None else model_columns(model, source.names)
    whole = open_table(source.read().select(chosen))
    if not options.quiet:
        report_reading(source)
    if model is not None and has_fitted_rows(model, whole):
        print_line(FITTED_ROWS)
    hidden = hold_out(whole, share, options.seed, keep=LEAST_OBSERVED)
    if not hidden.any():
        raise ValueError("no cell can be held out; use more rows, or a larger --share")
    begun = time.monotonic()
    if model is None:
        model = vfg.TableModel(options.settings(chosen))
        model.fit(hide_cells(whole, hidden))
    evaluation = evaluate(model, whole, hidden, level=level, seed=options.seed)
    entries = [MethodScore("vfg", evaluation, time.monotonic() - begun)]
    if baselines:
        entries += evaluate_baselines(baselines, model, whole, hidden, level, options.seed)
    return entries


FITTED_ROWS = (
    "warning: rows of this table are among those that the model was fitted to, so errors on new "
    "rows are larger; leave out --model to fit one without the held-out cells, or use other rows"
)
LEAST_OBSERVED = 2
"""Observed cells that every column keeps at least: a spread needs two."""


@with_groups
def evaluate(
    table: TableFiles,
    options: FitOptions,
    reading: ReadOptions,
    run: RunOptions,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A model fitted to other rows; by default a model is fitted to the cells that are "
            "not held out.",
        ),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            metavar="SHARE", callback=check_share, help="Share of the observed cells to hold out."
        ),
    ] = 0.1,
    level: Level = 0.9,
    baselines: Annotated[
        str | None,
        typer.Option(
            "--baselines",
            "--rivals",  # an older name
            metavar="NAMES",
            help="Baselines to compare with: mean, knn, iterative (comma-separated), or all.",
        ),
    ] = None,
) -> None:
    """Hold out observed cells, impute them, and report the errors; also of baselines.

    vfg evaluate table.csv --baselines all
    """
    from vfg.bigtable.fill_job import as_fitted

    names = parse_baselines(baselines)
    known = None if model is None else load_table_model(model, options.device)
    source = reading.open(table, model=known)
    if known is not None:
        source = as_fitted(source, known)
    entries = score_methods(source, known, options, share, level, names)
    if run.as_json:
        methods = [
            {"method": entry.method, "seconds": entry.seconds, **entry.evaluation.to_dict()}
            for entry in entries
        ]
        print_json({"share": share, "level": level, "seed": options.seed, "methods": methods})
        return
    print_scores(entries[0].evaluation)
    if names:
        print_methods(entries)


def print_scores(evaluation: Evaluation) -> None:
    """Errors of all columns, for people."""
    heads = ("column", "hidden", "error", "of the mean", "covered", "right")
    rows: list[tuple[object, ...]] = [
        (str(s.column), s.hidden, s.rmse, s.baseline, s.coverage, s.accuracy)
        for s in evaluation.columns
    ]
    total = sum(score.hidden for score in evaluation.columns)
    rows.append(
        ("all", total, evaluation.rmse, evaluation.baseline, evaluation.coverage, float("nan"))
    )
    print_table(heads, rows)
    print_text(
        "\nerror: root mean square, in standard deviations of the column; of the mean: the same "
        f"of mean imputation; covered: inside the {100 * evaluation.level:g} % interval; right: "
        "share of categories imputed correctly"
    )


def print_methods(entries: list[MethodScore]) -> None:
    """One line per method, for people."""
    print_text()
    rows = [(e.method, e.evaluation.rmse, e.evaluation.mae, e.seconds) for e in entries]
    print_table(("method", "error", "absolute", "seconds"), rows)
