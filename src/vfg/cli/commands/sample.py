"""`vfg sample`: new rows from a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.commands.query import GivenPairs, parse_evidence, split_pairs
from vfg.cli.errors import usage_errors
from vfg.cli.model_files import choose_model
from vfg.cli.options import (
    ModelFile,
    ModelOption,
    Output,
    OutputFormat,
    Overwrite,
    Quiet,
    RunOptions,
    Seed,
    with_groups,
)
from vfg.cli.output import print_json
from vfg.cli.progress import is_watched, progress_bar
from vfg.cli.table_files import ROWS, check_outputs, output_format, write_batches

if TYPE_CHECKING:
    from vfg import Model


@with_groups
def sample(
    run: RunOptions,
    file: ModelFile = None,
    model: ModelOption = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 10,
    given: GivenPairs = None,
    output: Output = "-",
    to: OutputFormat = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw new rows from a model, optionally given some columns.

    vfg sample -m model.vfg -n 100 -o rows.csv
    """
    import vfg

    path = choose_model(file, model)
    check_outputs({"--output": output}, [path], overwrite)
    format = output_format(output, to, run.as_json)
    source: Model = vfg.load(path)
    with usage_errors():
        evidence = parse_evidence(source, split_pairs(given or []))
    batches = _batches(source, rows, evidence, seed, show=is_watched(quiet))
    written = write_batches(batches, output, format)
    if run.as_json and output != "-":
        print_json({"rows": written, "output": output, "seed": seed})


def _batches(
    model: Model, rows: int, evidence: Mapping[str, Any], seed: int, *, show: bool
) -> Iterator[Any]:
    import pyarrow as pa

    with progress_bar(rows if show else None, "rows") as advance:
        for first in range(0, rows, ROWS):
            number = min(ROWS, rows - first)
            columns = draw_rows(model, number, evidence, seed=seed, first=first)
            yield pa.RecordBatch.from_pydict({k: to_arrow(cells) for k, cells in columns.items()})
            advance(number)


def draw_rows(
    model: Model, rows: int, evidence: Mapping[str, Any], *, seed: int, first: int = 0
) -> dict[str, Any]:
    """New rows as arrays by column.

    The same rows come out however they are divided into calls. The exception is a `vfg.VFG` without
    evidence, which draws its rows one after the other: there the calls count.
    """
    import numpy as np

    import vfg

    if isinstance(model, vfg.VFG) and not evidence:
        # Its prior is drawn from by sample alone: without evidence, infer spreads noise only.
        own = seed if not first else np.random.SeedSequence([seed, first]).generate_state(1)[0]
        table = model.sample(rows, seed=int(own)).double().cpu().numpy()
        return dict(zip(model.variables, table.T, strict=True))
    ids = np.arange(first, first + rows)
    names = list(model.variables)
    given = [dict(evidence)] * rows
    drawn = model.infer(given, names, seed=seed, row_ids=ids, padded=True).samples(1)
    return {name: np.asarray(drawn[name][0]).reshape(rows) for name in names}


def to_arrow(cells: Any) -> Any:
    """Cells as a column of Arrow; mixed ones, such as categories of numbers and text, as text."""
    import pyarrow as pa

    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if cell is None else str(cell) for cell in cells])
