"""`vfg score`: how likely the rows of a table are."""

from __future__ import annotations

from .asking import respondent
from .options import (
    AsJson,
    Debug,
    InputFormat,
    ModelFile,
    Output,
    OutputFormat,
    Quiet,
    TableFiles,
    Threads,
)
from .output import print_json
from .progress import is_watched
from .tables import known_columns, opened, output_format, row_results, write_batches


def score(
    model: ModelFile,
    table: TableFiles,
    output: Output = "-",
    from_: InputFormat = None,
    to: OutputFormat = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score the rows of a table: log p of what is observed, one number per row.

    Models with deterministic states have no likelihood; they get the surrogate, and the column is
    called so.
    """
    asked, source = respondent(model), opened(table, from_)
    columns = known_columns(source.names, asked.columns)
    asked.check(source.schema)
    total = 0.0

    def work(frame: object) -> dict[str, object]:
        nonlocal total
        name, scores = asked.score(frame)
        total += float(scores.sum())
        return {name: scores}

    batches = row_results(source, columns, work, show=is_watched(quiet))
    rows = write_batches(batches, output, output_format(output, to, as_json))
    if as_json and output != "-":
        print_json({"rows": rows, "mean": total / rows, "output": output})
