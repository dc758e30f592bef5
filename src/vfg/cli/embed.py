"""`vfg embed`: where the rows of a table are in the latent space."""

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


def embed(
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
    """Embed the rows of a table: the states of the roots, one column per coordinate."""
    asked, source = respondent(model), opened(table, from_)
    columns = known_columns(source.names, asked.columns)
    asked.check(source.schema)
    batches = row_results(source, columns, asked.embed, show=is_watched(quiet))
    rows = write_batches(batches, output, output_format(output, to, as_json))
    if as_json and output != "-":
        print_json({"rows": rows, "output": output})
