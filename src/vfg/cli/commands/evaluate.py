"""`vfg evaluate`: errors on held-out cells of a table, for a model and for baselines."""

from __future__ import annotations

import io
import time
import warnings
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.commands.fit import check_target
from vfg.cli.errors import print_line
from vfg.cli.fitting import FitOptions, load_table_model
from vfg.cli.options import Level, RunOptions, TableFiles, check_share, option, with_groups
from vfg.cli.output import print_json, print_table, print_text
from vfg.cli.table_files import ReadOptions, report_reading
from vfg.utils.files import write_atomically

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.imputation.evaluation import ColumnScore, Evaluation
    from vfg.imputation.settings import ImputerSettings
    from vfg.imputation.table_model import TableModel
    from vfg.tables.cells import Mask
    from vfg.tables.frames import Table


@dataclass(frozen=True)
class MethodScore:
    """The errors of one method at cells that were hidden by one pattern and seed."""

    method: str
    evaluation: Evaluation
    seconds: float
    pattern: str = "cells"
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        own = {name: getattr(self, name) for name in ("method", "pattern", "seed", "seconds")}
        return own | self.evaluation.to_dict()


BASELINES = (
    "mean", "knn", "ridge", "extratrees", "missforest", "boosting", "softimpute", "linear",
    "boosting+linear",
)  # fmt: skip
"""Baselines by the names that users give them; see `vfg.imputation.baselines`. `linear` is the
exact linear model, `boosting+linear` the mean of both, `iterative` an older name of `ridge`."""


def parse_names(text: str | None, known: tuple[str, ...], option: str) -> list[str]:
    """Names with commas between them, or `all`; none for nothing.

    Example:
        >>> parse_names("knn, mean", BASELINES, "--baselines"), parse_names(None, (), "")
        (['knn', 'mean'], [])
    """
    if text is None:
        return []
    names = list(known) if text == "all" else [name.strip() for name in text.split(",")]
    names = ["ridge" if name == "iterative" else name for name in names]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{option} takes {', '.join(known)} or all, but got {name!r}")
    return names


def evaluate_baseline(
    name: str, model: TableModel, table: Table, hidden: Mask, level: float, seed: int
) -> MethodScore:
    """Impute held-out cells of a table by a baseline, which sees its standardised matrix."""
    import torch

    from vfg.imputation.baselines import BASELINES as IMPUTERS
    from vfg.imputation.evaluation import score_filled
    from vfg.tables.frames import hide_cells

    values, shown = model.encode(hide_cells(table, hidden))
    masked = torch.where(shown, values, torch.nan).numpy()
    begun = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence of chained regressions
        imputer = IMPUTERS[name](masked, seed, 1)
        filled = torch.from_numpy(imputer.fit_transform(masked))
    seconds = time.monotonic() - begun
    return MethodScore(name, score_filled(model, table, hidden, filled, level), seconds)


def score_methods(
    source: Source, model: TableModel | None, options: FitOptions, comparing: CompareOptions
) -> list[MethodScore]:
    """The errors of a model, else of one fitted to all other cells, and of baselines."""
    from vfg.bigtable.fill_batch import model_columns
    from vfg.imputation.evaluation import has_fitted_rows, hold_out
    from vfg.tables.frames import open_table

    chosen = options.select(source) if model is None else model_columns(model, source.names)
    whole = open_table(source.read().select(chosen))
    if not options.quiet:
        report_reading(source)
    if model is not None and has_fitted_rows(model, whole):
        print_line(FITTED_ROWS)
    baselines = parse_names(comparing.baselines, BASELINES, "--baselines")
    patterns = parse_names(comparing.patterns, PATTERNS, "--patterns")
    if comparing.patterns == "all" and not whole.missing.any():
        patterns.remove("table")  # there is nothing that rows lack
    # All choices before the first fit, which may take long, so that errors appear at once.
    masks = [
        (
            seed,
            pattern,
            hold_out(whole, comparing.share, seed, keep=LEAST_OBSERVED, pattern=pattern),
        )
        for seed in range(options.seed, options.seed + comparing.seeds)
        for pattern in patterns
    ]
    if not ((~whole.missing).sum(1) > 1).any():
        raise ValueError(
            "no row has two known cells, so no cell can be held out and predicted from others; use "
            "a table with two columns or more"
        )
    if not all(hidden.any() for _, _, hidden in masks):
        raise ValueError("no cell can be held out; use more rows, or a larger --share")
    entries, level = [], comparing.level
    for seed, pattern, hidden in masks:
        own, asked = score_model(whole, hidden, model, options.settings(chosen), level, seed)
        every = [own, *(evaluate_baseline(n, asked, whole, hidden, level, seed) for n in baselines)]
        entries += [replace(entry, pattern=pattern, seed=seed) for entry in every]
    return entries


def score_model(
    table: Table,
    hidden: Mask,
    model: TableModel | None,
    settings: ImputerSettings,
    level: float,
    seed: int,
) -> tuple[MethodScore, TableModel]:
    """The errors of a model, or of one that is fitted to the cells that are not hidden."""
    import vfg
    from vfg.imputation.evaluation import evaluate
    from vfg.tables.frames import hide_cells

    begun = time.monotonic()
    if model is None:
        model = vfg.TableModel(replace(settings, seed=seed))
        model.fit(hide_cells(table, hidden))
    evaluation = evaluate(model, table, hidden, level=level, seed=seed)
    return MethodScore("vfg", evaluation, time.monotonic() - begun), model


FITTED_ROWS = (
    "warning: rows of this table are among those that the model was fitted to, so errors on new "
    "rows are larger; leave out --model to fit one without the held-out cells, or use other rows"
)
PATTERNS = ("cells", "columns", "half", "table")
"""Those of `vfg.imputation.evaluation`, which takes long to import."""
LEAST_OBSERVED = 2
"""Observed cells that every column keeps at least: a spread needs two."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is held out, and what the model is compared with."""

    share: float = option(
        0.1,
        None,
        "Share of the observed cells to hold out; for patterns other than cells, of the rows.",
        "--share",  # typer 0.27 would name it after its metavar
        metavar="SHARE",
        callback=check_share,
    )
    level: Level = 0.9
    baselines: str | None = option(
        None,
        None,
        f"Baselines to compare with: {', '.join(BASELINES)} (comma-separated), or all.",
        "--baselines",
        "--rivals",  # an older name
        metavar="NAMES",
    )
    patterns: str = option(
        "cells",
        None,
        "Which cells are held out: single ones (cells), one column in some rows (columns), a fixed "
        "half of the columns in some rows (half), those that another row lacks (table); "
        "comma-separated, or all.",
        metavar="NAMES",
    )
    seeds: int = option(
        1, None, "Number of random choices of held-out cells to average.", metavar="N", min=1
    )
    plot: Path | None = option(
        None,
        None,
        "Draw error against seconds of all methods (.png, .svg, .pdf).",
        metavar="FILE",
    )

    def check(self) -> None:
        """Refuse names that are not known and pictures that cannot be written."""
        parse_names(self.baselines, BASELINES, "--baselines")
        parse_names(self.patterns, PATTERNS, "--patterns")
        if self.plot is None:
            return
        if self.plot.suffix not in (".png", ".svg", ".pdf"):
            raise typer.BadParameter(f"--plot writes .png, .svg or .pdf, but got {self.plot.name}")
        check_target(self.plot)


@with_groups
def evaluate(
    table: TableFiles,
    options: FitOptions,
    reading: ReadOptions,
    run: RunOptions,
    comparing: CompareOptions,
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
) -> None:
    """Hold out observed cells, impute them, and report the errors; also of baselines.

    vfg evaluate table.csv --baselines all
    """
    from vfg.bigtable.fill_job import as_fitted

    comparing.check()
    known = None if model is None else load_table_model(model, options.device)
    source = reading.open(table, model=known)
    if known is not None:
        source = as_fitted(source, known)
    entries = score_methods(source, known, options, comparing)
    if comparing.plot is not None:
        save_plot(entries, comparing.plot)
    if run.as_json:
        given = {"share": comparing.share, "level": comparing.level, "seed": options.seed}
        print_json({**given, "methods": [entry.to_dict() for entry in entries]})
        return
    first = entries[0]
    if any((entry.pattern, entry.seed) != (first.pattern, first.seed) for entry in entries):
        print_text(f"vfg by column, for the pattern {first.pattern} and seed {first.seed}\n")
    print_scores(first.evaluation)
    if len(entries) > 1:
        print_methods(entries)


def print_scores(evaluation: Evaluation) -> None:
    """Errors of all columns, for people."""
    heads = ("column", "hidden", "error", "of the mean", "covered", "right")
    nan = float("nan")
    rows: list[tuple[object, ...]] = [
        (str(s.column), s.hidden, s.rmse, s.baseline, s.coverage, nan)
        if _is_number(s)
        else (str(s.column), s.hidden, nan, nan, nan, s.accuracy)
        for s in evaluation.columns
    ]
    total, own = sum(score.hidden for score in evaluation.columns), numbers_of(evaluation)
    rows.append(("all", total, own.rmse, own.baseline, own.coverage, share_right(evaluation)))
    print_table(heads, rows)
    print_text(
        "\nerror: root mean square of numbers, in standard deviations of the column; of the mean: "
        f"the same of mean imputation; covered: inside the {100 * evaluation.level:g} % interval; "
        "right: share of categories imputed correctly"
    )


def numbers_of(evaluation: Evaluation) -> Evaluation:
    """The scores of numbers and dates alone.

    Categories are imputed by a level, baselines answer with a point between levels: their distances
    do not compare, what they get right does.
    """
    return replace(evaluation, columns=tuple(s for s in evaluation.columns if _is_number(s)))


def _is_number(score: ColumnScore) -> bool:
    return score.accuracy != score.accuracy  # NaN


def print_methods(entries: list[MethodScore]) -> None:
    """One line per method and pattern, for people; means over seeds."""
    print_text()
    several = len({entry.pattern for entry in entries}) > 1
    seeds = len({entry.seed for entry in entries})
    heads = ["method", *(["pattern"] if several else []), "error", "absolute", "right", "seconds"]
    heads += ["above vfg"] if seeds > 1 else []
    rows: list[tuple[object, ...]] = []
    for method, pattern in dict.fromkeys((entry.method, entry.pattern) for entry in entries):
        own, first = (
            [e for e in entries if (e.method, e.pattern) == (name, pattern)]
            for name in (method, entries[0].method)
        )
        scores = [
            (
                numbers_of(e.evaluation).rmse,
                numbers_of(e.evaluation).mae,
                share_right(e.evaluation),
                e.seconds,
            )
            for e in own
        ]
        means = [sum(column) / len(own) for column in zip(*scores, strict=True)]
        gap = [] if seeds == 1 else ["" if own == first else _difference(own, first)]
        rows.append((method, *([pattern] if several else []), *means, *gap))
    print_table(heads, rows)
    told = "absolute: mean absolute error of numbers; seconds: wall-clock time to fit and fill"
    if seeds > 1:
        told += f"; all are means over {seeds} seeds"
        told += "; above vfg: error minus that of vfg, ± the standard error"
    if any(not _is_number(score) for score in entries[0].evaluation.columns):
        told += "; baselines fill categories as numbers and take the nearest category"
    print_text(f"\n{told}")


def _difference(own: list[MethodScore], others: list[MethodScore]) -> str:
    """By how much errors exceed those of another method on the same cells, over seeds."""
    pairs = zip(own, others, strict=True)
    gaps = [numbers_of(a.evaluation).rmse - numbers_of(b.evaluation).rmse for a, b in pairs]
    if gaps[0] != gaps[0]:  # NaN: there are no numbers
        return ""
    return f"{mean(gaps):+.4f} ± {stdev(gaps) / len(gaps) ** 0.5:.4f}"


def share_right(evaluation: Evaluation) -> float:
    """The share of categories imputed correctly; NaN without any."""
    scores = [(s.accuracy, s.hidden) for s in evaluation.columns if not _is_number(s)]
    cells = sum(hidden for _, hidden in scores)
    return sum(right * hidden for right, hidden in scores) / cells if cells else float("nan")


def save_plot(entries: list[MethodScore], path: Path) -> None:
    """Write a picture of the errors of all methods against their seconds.

    Every pattern has a panel for numbers and one for categories, as far as the table has them.
    """
    from vfg.plots import cost
    from vfg.plots.style import new_figure

    panels: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for entry in entries:
        errors = {
            "error of numbers, in standard deviations": numbers_of(entry.evaluation).rmse,
            "share of wrong categories": 1.0 - share_right(entry.evaluation),
        }
        for title, error in errors.items():
            if error == error:  # NaN: there is no such column
                scores = panels.setdefault((title, entry.pattern), {})
                scores.setdefault(entry.method, []).append((entry.seconds, error))
    titles, patterns = (list(dict.fromkeys(key[place] for key in panels)) for place in (0, 1))
    figure = new_figure(
        4.6 * len(patterns), 3.4 * len(titles), rows=len(titles), columns=len(patterns)
    )
    for axes, (title, pattern) in zip(figure.axes, product(titles, patterns), strict=True):
        if (title, pattern) in panels:
            cost(panels[title, pattern], ax=axes).set_ylabel(title)
        else:  # no such column was held out
            axes.set_axis_off()
        if len(patterns) > 1:
            axes.set_title(pattern)
        if any(entry.seed != entries[0].seed for entry in entries):
            axes.set_xlabel("seconds; lines: errors of all seeds")
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:], bbox_inches="tight")
    write_atomically(path, picture.getvalue())
