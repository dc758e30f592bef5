"""The page that `vfg impute --report` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vfg.extras import needs

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.tabular.model import TableModel

MOST_ROWS = 20_000
"""How many rows of a long table are looked at."""
DRAWS = 60
"""How many draws the ends of intervals are read from."""


def report_on(
    source: Source,
    model: TableModel,
    path: Path,
    level: float,
    settings: Mapping[str, Any],
    *,
    is_learned_from: bool,
) -> None:
    """Write a page about how a table is filled.

    Args:
        source: the table with gaps.
        model: that fills it.
        path: of the page.
        level: of the intervals.
        settings: what else was chosen.
        is_learned_from: whether the model learned from this table.
    """
    import pyarrow as pa

    from vfg.bigtable.filling import filled_batch, known_names
    from vfg.report import Report, write_report
    from vfg.tabular.evaluation import evaluate

    with needs("plot"):
        import matplotlib
    matplotlib.use("Agg")  # there may be no screen
    some = some_rows(source)
    names = known_names(model, source.names)
    table = some.select(names)
    merged = some.combine_chunks().to_batches()
    filled = pa.Table.from_batches([filled_batch(model, batch) for batch in merged]).select(names)
    seed = int(settings.get("seed", 0))
    found = evaluate(model, table, share=0.1, level=level, draws=DRAWS, seed=seed)
    report = Report(
        source=", ".join(file.name for file in source.files[:3]),
        table=table,
        filled=filled,
        evaluation=found,
        graph=_graph(model, names),
        rows=source.rows,
        settings={**settings_of(model), **{k: v for k, v in settings.items() if v is not None}},
        is_learned_from=is_learned_from,
    )
    write_report(report, path)


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
    from .asking_tables import weights_of
    from .fit import described

    found = {"kind": described(model)}
    if len(model.members):
        weights = weights_of(model).items()
        found["weights"] = ", ".join(f"{name} {weight:.2f}" for name, weight in weights)
    return found


def _graph(model: TableModel, names: list[str]) -> Any:
    from .asking_tables import named_graph

    return None if model.linear is None else named_graph(model, names)
