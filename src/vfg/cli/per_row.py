"""Commands that find something for every row of a table: what they take and what they write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vfg.cli.options import (
    AsJson,
    Debug,
    InputFormat,
    Output,
    OutputFormat,
    Quiet,
    TableFiles,
    Threads,
)
from vfg.cli.output import print_json
from vfg.cli.progress import is_watched
from vfg.cli.tables import (
    columns_of,
    known_columns,
    opened,
    output_format,
    row_results,
    write_batches,
)

if TYPE_CHECKING:
    from vfg import Model


@dataclass(frozen=True)
class RowByRow:
    """A table, and where to write what is found for its rows."""

    table: TableFiles
    output: Output = "-"
    from_: InputFormat = None
    to: OutputFormat = None
    threads: Threads = None
    quiet: Quiet = False
    as_json: AsJson = False
    debug: Debug = False

    def write(self, model: Model, work: Callable[[Any], Mapping[str, Any]]) -> int:
        """Write what some work finds; the number of rows.

        Args:
            model: of any kind.
            work: arrays by name from a `pyarrow.Table` with the columns of the model.
        """
        import vfg
        from vfg.bigtable.fill_batch import filled_schema

        source = opened(self.table, self.from_)
        columns = known_columns(source.names, columns_of(model))
        if isinstance(model, vfg.TableModel):
            filled_schema(model, source.schema)  # refuses columns that hold what they did not
        batches = row_results(source, columns, work, show=is_watched(self.quiet))
        return write_batches(
            batches, self.output, output_format(self.output, self.to, self.as_json)
        )

    def tell(self, found: Mapping[str, Any]) -> None:
        """Print a summary, if it is wanted and nothing else goes to standard output."""
        if self.as_json and self.output != "-":
            print_json({**found, "output": self.output})
