"""Tables between files and models: columns of a model, rows in batches, results per row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vfg.cli.errors import print_line, suggest, usage_errors
from vfg.cli.model_files import split_model
from vfg.cli.options import (
    FILES,
    ModelOption,
    Output,
    OutputFormat,
    Overwrite,
    Quiet,
    RunOptions,
    TableFiles,
    option,
)
from vfg.cli.output import print_json
from vfg.cli.progress import is_watched, progress_bar
from vfg.utils.files import is_stream
from vfg.utils.remote import as_path, is_remote

if TYPE_CHECKING:
    from vfg import Model
    from vfg.bigtable import Source
    from vfg.imputation.table_model import TableModel

MOST_NAMED = 8
"""How many columns of a table are named in a message."""


ROWS = 16_384
"""How many rows are worked on at once."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How tables are read."""

    from_: str | None = option(
        None,
        FILES,
        "Format of the table if its name does not show it: csv, tsv, parquet, feather or jsonl.",
        "--from",
        metavar="FORMAT",
    )
    missing: str | None = option(
        None,
        FILES,
        "Texts that mean a missing value, besides NA and the like, such as ?,-999.",
        metavar="A,B,...",
    )
    delimiter: str | None = option(
        None, FILES, "Delimiter of CSV files; detected by default.", metavar="MARK"
    )
    decimal: str | None = option(
        None, FILES, "Decimal mark of CSV files; detected by default.", metavar="MARK"
    )
    quotes: bool = option(True, FILES, "Whether quotation marks enclose cells of CSV files.")
    day_first: bool | None = option(
        None,
        FILES,
        "Which comes first in dates like 03/04/2020; by default, cells with days above 12 decide.",
        "--day-first/--month-first",
    )
    most_piped: float = option(
        64.0,
        FILES,
        "Largest standard input that is accepted; it is copied to a temporary file.",
        metavar="GIB",
        min=0.0,
    )

    def open(
        self, files: Sequence[str], exclude: Sequence[str] = (), model: Model | None = None
    ) -> Source:
        """A table without the files that the command writes, read as that of a model's fit."""
        from vfg.bigtable import Dialect, open_table
        from vfg.bigtable.formats import kind_from_name

        marks = [] if self.missing is None else [text.strip() for text in self.missing.split(",")]
        delimiter = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        with usage_errors():
            missing = tuple(filter(None, marks))
            dialect = Dialect(delimiter, self.decimal, missing, self.quotes, self.day_first)
            kinds = [kind_from_name(file, self.from_) for file in files if Path(file).is_file()]
            others = [kind.format for kind in kinds if kind.format not in ("csv", "tsv")]
            if {*others} == {"jsonl"} and dialect == Dialect(missing=missing):
                others = []
            if others and dialect != Dialect():
                raise ValueError(
                    f"delimiter, decimal mark, quotation marks and order of dates are settings of "
                    f"CSV files, and --missing of CSV and JSON lines, but the table is {others[0]}"
                )
        return open_table(
            list(files),
            format=self.from_,
            exclude=exclude,
            dialect=dialect,
            like=getattr(model, "origin", None),
            most_piped=int(self.most_piped * 2**30),
        )


def report_reading(source: Source, model: TableModel | None = None) -> None:
    """Say how a table was read, where it may be meant otherwise, and the kinds of a fit to it."""
    dialect = source.dialect
    if dialect.delimiter not in (None, ",", "\t") or dialect.decimal == ",":
        decimal = "comma" if dialect.decimal == "," else "point"
        print_line(f"read as: {dialect.delimiter!r} between cells, decimal {decimal}")
    for doubt in source.doubts:
        print_line(doubt)
    if model is not None:
        kinds: dict[str, list[str]] = {}
        for name, spec in model.encoding.schema.items():
            kinds.setdefault(spec.name, []).append(str(name))
        listed = [
            f"{len(names)} {kind} ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})"
            for kind, names in kinds.items()
        ]
        print_line(f"columns: {', '.join(listed)}")


def check_outputs(
    outputs: Mapping[str, str | Path | None],
    inputs: Iterable[str | os.PathLike[str]],
    overwrite: bool = False,
) -> None:
    """Refuse outputs, by option, that are inputs under any name, twice the same file, or lost."""
    read, written = list(inputs), dict[str, str | Path]()
    for name, output in outputs.items():
        if output is None or str(output) == "-" or is_stream(output):
            continue
        check_lasting(name, output)
        if not overwrite and any(_is_same_file(output, file) for file in read):
            raise typer.BadParameter(
                f"{name} {output} would replace a file that this command reads; name another "
                "file, or add --overwrite"
            )
        for earlier, other in written.items():
            if _is_same_file(output, other):
                raise typer.BadParameter(f"{earlier} and {name} both name {output}; name two files")
        written[name] = output


def check_lasting(name: str, output: str | os.PathLike[str]) -> None:
    """Refuse an output in the memory of this process, which ends with the command."""
    if getattr(as_path(output), "scheme", "") == "memory":
        raise typer.BadParameter(
            f"{name} {as_path(output)} would be lost when this command ends; name a file, or a "
            "store such as s3://bucket/table.parquet"
        )


def _is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two names are of one file, which need not exist."""
    if is_remote(one) or is_remote(other):
        return str(as_path(one)) == str(as_path(other))
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def select_model_columns(model: Model, names: Sequence[str]) -> list[str]:
    """The columns of a table that are in a model, in its order; all if the model has no names.

    Example:
        >>> import vfg
        >>> select_model_columns(vfg.VFG(vfg.Graph.star({"a": 2, "b": 1}, width=2)), ["x", "y"])
        ['x', 'y']
    """
    import vfg

    labels: Iterable[Any] = model.graph.columns or ()
    if isinstance(model, vfg.TableModel):
        labels = model.labels.values()
    if not any(isinstance(label, str) for label in labels):
        return list(names)
    for column in model.variables:
        if column not in names:
            raise ValueError(
                f"the table lacks the column {column!r}, which the model needs; it has "
                f"{', '.join(map(repr, names[:MOST_NAMED]))}{', …' * (len(names) > MOST_NAMED)}"
            )
    return list(model.variables)


def parse_columns(text: str | None, names: Sequence[str], option: str) -> list[str]:
    """Columns that were typed with commas between them; none for nothing.

    Example:
        >>> parse_columns("a, b", ["a", "b", "c"], "--columns")
        ['a', 'b']
    """
    chosen = [] if text is None else [part.strip() for part in text.split(",")]
    if "" not in names:
        chosen = [part for part in chosen if part]
    for name in chosen:
        if name not in names:
            raise typer.BadParameter(
                f"{option} names {name!r}, which is no column of the table; {suggest(name, names)}"
            )
    return list(dict.fromkeys(chosen))


def choose_columns(
    columns: str | None, exclude: str | None, names: Sequence[str], index: Sequence[str] = ()
) -> list[str]:
    """The columns to fit: those named, or all but those excluded, in the table's order.

    An index that pandas stored with the table is excluded unless it is named.

    Example:
        >>> choose_columns(None, "id", ["id", "a", "b"])
        ['a', 'b']
    """
    wanted = parse_columns(columns, names, "--columns") or [n for n in names if n not in index]
    left_out = parse_columns(exclude, names, "--exclude")
    result = [name for name in names if name in wanted and name not in left_out]
    if not result:
        raise typer.BadParameter("no column is left to fit; name others in --columns or --exclude")
    return result


def map_rows(
    source: Source, columns: Sequence[str], work: Callable[[Any], Mapping[str, Any]], *, show: bool
) -> Iterator[Any]:
    """What some work finds for the rows of a table, batch after batch."""
    import pyarrow as pa

    with progress_bar(source.rows if show else None, "rows") as advance:
        for batch in source.batches(ROWS):
            result = work(pa.Table.from_batches([batch.select(list(columns))]))
            yield pa.RecordBatch.from_pydict({name: pa.array(a) for name, a in result.items()})
            advance(batch.num_rows)


def write_batches(batches: Iterator[Any], output: str, format: str | None) -> int:
    """Write record batches with the schema of the first; return the number of rows."""
    from vfg.bigtable import write_table

    first = next(batches, None)
    if first is None:
        raise ValueError("the table has no rows")
    return write_table(chain([first], batches), first.schema, output, format=format)


def output_format(output: str, to: str | None, as_json: bool, folder: bool = False) -> str | None:
    """The format of a file, or of the files of a folder; `--json` means JSON lines on stdout."""
    from vfg.bigtable.formats import normalise_format
    from vfg.bigtable.writing import target_kind

    with usage_errors():  # also for endings that no table file has
        result = normalise_format(to or "parquet") if folder else target_kind(output, to).format
    return "jsonl" if as_json and output == "-" and to is None else to and result


@dataclass(frozen=True, kw_only=True)
class RowOptions(RunOptions, ReadOptions):
    """A table, and where to write what is found for its rows."""

    table: TableFiles
    model: ModelOption = None
    output: Output = "-"
    to: OutputFormat = None
    overwrite: Overwrite = False
    quiet: Quiet = False

    def load(self, command: str) -> tuple[RowOptions, Model]:
        """The options with a model, and the model itself."""
        import vfg

        path, tables = split_model(command, self.table, self.model)
        return replace(self, model=path, table=tables), vfg.load(path)

    def write(self, model: Model, work: Callable[[Any], Mapping[str, Any]]) -> int:
        """Write what some work finds; the number of rows."""
        import vfg
        from vfg.bigtable.fill_batch import filled_schema
        from vfg.bigtable.fill_job import as_fitted

        source = self.open(self.table, [self.output], model)
        inputs = [self.model, *(file.path for file in source.files)]
        check_outputs({"--output": self.output}, filter(None, inputs), self.overwrite)
        columns = select_model_columns(model, source.names)
        if isinstance(model, vfg.TableModel):
            source = as_fitted(source, model)
            filled_schema(model, source.schema)  # refuses columns that hold what they did not
        batches = map_rows(source, columns, work, show=is_watched(self.quiet))
        return write_batches(
            batches, self.output, output_format(self.output, self.to, self.as_json)
        )

    def print_summary(self, found: Mapping[str, Any]) -> None:
        """Print a summary, if it is wanted and nothing else goes to standard output."""
        if self.as_json and self.output != "-":
            print_json({**found, "output": self.output})
