"""`vfg sample`: new rows from a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .asking import Respondent, respondent
from .options import AsJson, Debug, ModelFile, Output, OutputFormat, Quiet, Seed, Threads
from .output import print_json
from .progress import advancing, is_watched
from .query import GivenPairs, pairs
from .tables import ROWS, output_format, write_batches


def sample(
    model: ModelFile,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many rows.")] = 10,
    given: GivenPairs = None,
    output: Output = "-",
    to: OutputFormat = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Draw new rows from a model, also given some of their columns.

    vfg sample model.vfg -n 100 -o rows.csv
    """
    asked = respondent(model)
    batches = _batches(asked, rows, pairs(given or []), seed, show=is_watched(quiet))
    written = write_batches(batches, output, output_format(output, to, as_json))
    if as_json and output != "-":
        print_json({"rows": written, "output": output, "seed": seed})


def _batches(
    asked: Respondent, rows: int, given: dict[str, str], seed: int, *, show: bool
) -> Iterator[Any]:
    import pyarrow as pa

    with advancing(rows if show else None, "rows") as advance:
        for first in range(0, rows, ROWS):
            number = min(ROWS, rows - first)
            found = asked.sample(number, given, seed, first)
            yield pa.RecordBatch.from_pydict({k: column(cells) for k, cells in found.items()})
            advance(number)


def column(cells: Any) -> Any:
    """Cells as a column of Arrow; mixed ones, such as categories of numbers and text, as text."""
    import pyarrow as pa

    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if cell is None else str(cell) for cell in cells])
