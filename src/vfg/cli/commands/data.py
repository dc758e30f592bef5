"""`vfg data`: example tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from vfg.cli.errors import suggest
from vfg.cli.options import AsJson, Debug, Output, OutputFormat, Seed, check_share
from vfg.cli.output import print_json, print_names, print_text
from vfg.cli.table_files import check_outputs, output_format, write_batches

MECHANISMS = ("mcar", "mar", "mnar")
SIMULATED = ("synthetic", "gaussian_network")


def data(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the table; without it, list all.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", "-n", min=1, help="Number of rows; by default all.")
    ] = None,
    missing: Annotated[
        float | None,
        typer.Option(metavar="SHARE", callback=check_share, help="Share of the cells to remove."),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Which cells: mcar (at random), mar (depends on other columns), mnar (depends on "
            "their own values).",
        ),
    ] = "mcar",
    output: Output = "-",
    to: OutputFormat = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write an example table, complete or with missing values; without a name, list them.

    vfg data iris --missing 0.2 -o table.csv
    """
    if mechanism not in MECHANISMS:
        raise typer.BadParameter(
            f"--mechanism takes {', '.join(MECHANISMS)}, but got {mechanism!r}"
        )
    known = names()
    if name is None:
        print_names(known, as_json=as_json)
        return
    if name not in known:
        raise typer.BadParameter(f"there is no table {name!r}; {suggest(name, known)}")
    import pyarrow as pa

    check_outputs({"--output": output}, [])
    format = output_format(output, to, as_json)
    values, columns = table(name, rows, seed)
    if missing is not None:
        values = hide_cells(values, missing, mechanism, seed)
    cells = [pa.array(values[:, k], from_pandas=True) for k in range(len(columns))]
    batch = pa.RecordBatch.from_arrays(cells, names=list(columns))
    written = write_batches(iter([batch]), output, format)
    if output == "-":
        return
    if as_json:
        print_json({"rows": written, "columns": list(columns), "output": output})
    else:
        print_text(f"{output}: {written:,} rows, {len(columns)} columns", bold=output)


def names() -> list[str]:
    """The names of all tables."""
    from vfg.data import uci_names

    return sorted({*SIMULATED, "california", *uci_names()})


def table(name: str, rows: int | None, seed: int) -> tuple[Any, Sequence[str]]:
    """A table as an array, and the names of its columns."""
    from vfg import data as stored

    if name == "synthetic":
        values = stored.synthetic(rows or 1300, seed=seed).double().numpy()
        return values, [f"x{place}" for place in range(1, 9)]
    if name == "gaussian_network":
        tensor, columns = stored.gaussian_network(rows or 5000, seed=seed)
        return tensor.double().numpy(), columns
    values, columns = stored.california() if name == "california" else stored.uci(name)
    return values[:rows], columns


def hide_cells(values: Any, rate: float, mechanism: str, seed: int) -> Any:
    """An array with NaN in cells drawn by a missingness mechanism."""
    import numpy as np

    from vfg.data import mar, mcar, mnar_self

    if mechanism == "mcar":
        hidden = mcar(values.shape, rate, seed)
    else:
        hidden = (mar if mechanism == "mar" else mnar_self)(values, rate, seed)
    return np.where(hidden, np.nan, values)
