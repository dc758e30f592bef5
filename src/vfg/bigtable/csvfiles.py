"""Files of comma- or tab-separated text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from vfg.extras import needs

from .formats import Kind, reading
from .readers import TableFile, check_number_of_columns
from .streams import check_text, open_bytes, open_text
from .types import GAPS, text_type, without_gaps

with needs("table"):
    import pyarrow as pa
    import pyarrow.csv as pcsv

LONGEST_LINE = 8 << 20
"""Bytes that are parsed together, and that no line may be longer than."""
SEPARATORS = (",", ";", "\t", "|")


class CsvFile(TableFile):
    """A file of separated text, whose first line names the columns.

    The type of a column is the narrowest that holds all its cells, so the whole file is looked
    through once before it is read.

    Args:
        path: of the file.
        kind: `csv` or `tsv`, and how it is compressed.
        name: what to call it in errors.
        untouched: columns that are left as the text that they are, gaps included.
    """

    def __init__(self, path: Path, kind: Kind, name: str, untouched: Sequence[str] = ()) -> None:
        super().__init__(path, kind, name)
        self.untouched = dict.fromkeys(untouched)

    def leaving(self, names: Sequence[str]) -> CsvFile:
        found = CsvFile(self.path, self.kind, self.name, names)
        found.keep(self._copy)
        return found

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns, from the first line."""
        check_number_of_columns(self._first_line.count(self.separator) + 1, self.name)
        with self._reading(), self._opened({}) as reader:
            return list(self.checked(reader.schema).names)

    @cached_property
    def separator(self) -> str:
        """What separates cells: the tab, or the first of comma, semicolon, tab and bar there is."""
        if self.kind.format == "tsv":
            return "\t"
        return next((mark for mark in SEPARATORS if mark in self._first_line), ",")

    @cached_property
    def _first_line(self) -> str:
        with self._reading(), open_text(self.path, self.kind.compression, self.name) as stream:
            line, end, _ = stream.read(LONGEST_LINE).partition(b"\n")
        if not end and len(line) >= LONGEST_LINE:
            raise ValueError(self._too_long())
        return line.decode("utf-8", "replace")

    @property
    def schema(self) -> Any:
        return self._looked_through[0]

    @property
    def rows(self) -> int:
        return self._looked_through[1]

    def batches(self, schema: Any) -> Iterator[Any]:
        for batch in self._batches({field.name: field.type for field in schema}):
            columns = [self._column(batch, field) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, batch: Any, field: Any) -> Any:
        column = batch.column(field.name)
        is_open = field.type == pa.string() and field.name not in self.untouched
        return without_gaps(column) if is_open else column

    @cached_property
    def _looked_through(self) -> tuple[Any, int]:
        """Schema and number of rows."""
        kinds = {name: pa.string() if name in self.untouched else pa.null() for name in self.names}
        rows = 0
        for batch in self._batches(dict.fromkeys(self.names, pa.string())):
            rows += batch.num_rows
            for column in batch.columns:
                check_text(column.buffers()[2], self.name)
            for name, kind in kinds.items():
                if kind != pa.string():
                    kinds[name] = text_type(without_gaps(batch.column(name)), kind)
        return pa.schema(list(kinds.items())), rows

    def _batches(self, kinds: dict[str, Any]) -> Iterator[Any]:
        with self._reading(), self._opened(kinds) as reader:
            yield from reader

    def _opened(self, kinds: dict[str, Any]) -> Any:
        # The reader reads ahead in threads of its own, which may outlive it: they must neither
        # need Python nor find their stream closed, so it is left to the last of them to close it.
        stream = open_bytes(self.path, self.kind.compression)
        return pcsv.open_csv(
            stream,
            pcsv.ReadOptions(block_size=LONGEST_LINE),
            pcsv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pcsv.ConvertOptions(
                column_types=kinds, null_values=list(GAPS), strings_can_be_null=False
            ),
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What pyarrow says about wrong text, in words that help."""
        with reading(self.name, self.kind.format):
            try:
                yield
            except pa.ArrowInvalid as error:
                if "straddling" in str(error):
                    raise ValueError(self._too_long()) from error
                if "UTF8" in str(error):
                    raise ValueError(
                        f"{self.name} is no text in UTF-8; convert it, say with "
                        "iconv -f LATIN1 -t UTF-8"
                    ) from error
                raise

    def _too_long(self) -> str:
        return (
            f"{self.name} has a line of more than {LONGEST_LINE >> 20} MiB, or a quotation mark "
            "that is never closed; mend it, or use Parquet"
        )
