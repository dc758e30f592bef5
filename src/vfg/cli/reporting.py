"""The page that `vfg impute --report` writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vfg.cli.learning import Learning
from vfg.utils.extras import needs

if TYPE_CHECKING:
    from vfg.bigtable import Filling, Source
    from vfg.imputation.evaluation import Evaluation
    from vfg.imputation.table_model import TableModel

MOST_ROWS = 20_000
"""How many rows of a long table are looked at."""
SHARE = 0.1
"""Of the known cells that are hidden."""
LEAST_SECONDS = 5.0
"""Of learning without them."""
SECOND_MODEL = (
    "The model that filled the table knew these cells. So a second one was learned with them "
    "hidden, from {rows:,} rows{limit}, and these are its errors: those of the first, which "
    "learned from more cells, should not be larger."
)
OTHER_ROWS = (
    "The model came from a file. If it learned from these very cells, new ones will be filled a "
    "little less well: vfg evaluate without --model hides them before learning."
)


@dataclass(frozen=True)
class Subject:
    """What is reported on.

    Args:
        source: the table with gaps.
        model: that filled it.
        file: of the model; None if it learned from this table.
        options: how it learned, or another would.
        seconds: that learning took.
        filling: what was written in the gaps.
    """

    source: Source
    model: TableModel
    file: Path | None
    options: Learning
    seconds: float
    filling: Filling

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen, for people."""
        filling = self.filling
        chosen = {"model": self.file, "draws": filling.draws, "intervals": filling.level}
        known = {name: value for name, value in chosen.items() if value is not None}
        return {**settings_of(self.model), **known, **self.options.choices()}


def report_on(subject: Subject, path: Path) -> None:
    """Write a page about how a table is filled.

    Args:
        subject: table and model.
        path: of the page.
    """
    import pyarrow as pa

    from vfg.bigtable.fill_batch import filled_batch, known_names
    from vfg.plots.report import Report, write_report

    with needs("plot"):
        import matplotlib
    matplotlib.use("Agg")  # there may be no screen
    source, model = subject.source, subject.model
    some = some_rows(source)
    names = known_names(model, source.names)
    table = some.select(names)
    merged = some.combine_chunks().to_batches()
    filled = pa.Table.from_batches([filled_batch(model, batch) for batch in merged]).select(names)
    found, hiding = recovered(subject, table)
    report = Report(
        source=", ".join(file.name for file in source.files[:3]),
        table=table,
        filled=filled,
        evaluation=found,
        graph=None if model.linear is None else model.graph,
        rows=source.rows,
        settings=subject.settings,
        hiding=hiding,
    )
    write_report(report, path)


def recovered(subject: Subject, table: Any) -> tuple[Evaluation | None, str]:
    """How well cells are recovered that were hidden before anything was learned, and by whom.

    A model that comes from a file is asked itself, as nobody knows what it learned from. Where the
    model learned from this very table, another one is learned from it without the hidden cells, in
    half the time, or a few seconds.

    Args:
        subject: table and model.
        table: the rows to look at, with the columns of the model.
    """
    import vfg
    from vfg.cli.commands.evaluate import KEPT
    from vfg.imputation.evaluation import evaluate, hold_out
    from vfg.tables.frames import hide_cells, open_table

    options, level = subject.options, subject.filling.level or 0.9
    whole = open_table(table)
    hidden = hold_out(whole, SHARE, options.seed, keep=KEPT)
    if not hidden.any():  # there are too few known cells
        return None, ""
    if subject.file is not None:
        return evaluate(subject.model, whole, hidden, level=level, seed=options.seed), OTHER_ROWS
    # The linear model takes seconds anyway, and without a budget it is the same every time.
    budget = max(LEAST_SECONDS, 0.5 * subject.seconds) if options.bend else None
    settings = options.settings(list(table.column_names))
    second = vfg.TableModel(replace(settings, budget=budget, progress=False))
    second.fit(hide_cells(whole, hidden))
    limit = "" if budget is None else f" within {budget:.0f} s"
    words = SECOND_MODEL.format(rows=table.num_rows, limit=limit)
    return evaluate(second, whole, hidden, level=level, seed=options.seed), words


def some_rows(source: Source) -> Any:
    """A table with every k-th row, so that there are not too many."""
    import numpy as np
    import pyarrow as pa

    step = -(-source.rows // MOST_ROWS)
    if step <= 1:
        return source.read()
    parts, first = [], 0
    for batch in source.batches():
        rows = np.arange(-first % step, batch.num_rows, step)
        parts.append(batch.take(pa.array(rows)))
        first += batch.num_rows
    return pa.Table.from_batches(parts, schema=source.schema)


def settings_of(model: TableModel) -> dict[str, Any]:
    """What a model is, for people."""
    from vfg.cli.commands.fit import described

    found = {"kind": described(model)}
    if len(model.members):
        weights = model.part_weights.items()
        found["weights"] = ", ".join(f"{name} {weight:.2f}" for name, weight in weights)
    return found
