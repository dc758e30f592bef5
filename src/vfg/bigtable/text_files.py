"""Text files: comma- or tab-separated values, and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from dataclasses import field as setting
from functools import cached_property
from pathlib import Path
from typing import Any

from vfg.bigtable.columnar import TableFile, check_number_of_columns
from vfg.bigtable.formats import Kind, check_text, open_bytes, reading_errors
from vfg.bigtable.type_inference import (
    MISSING_TEXTS,
    MOMENTS,
    cast_text,
    common_type,
    mark_missing,
)
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.csv as pcsv
    import pyarrow.json as pjson

LONGEST_LINE = 8 << 20
"""Bytes that are parsed together, and that no line may be longer than."""
SEPARATORS = (",", ";", "\t", "|")


@dataclass
class FileInfo:
    """What is known of a CSV file so far.

    Args:
        header: the separator and the names of the columns; None before the first line was read.
        types: the inferred types of columns, by name.
        rows: the number of rows; None before the whole file was read.
    """

    header: tuple[str, list[str]] | None = None
    types: dict[str, Any] = setting(default_factory=dict)
    rows: int | None = None


class CsvFile(TableFile):
    """A file of separated text, whose first line names the columns.

    The type of a column is the narrowest that holds all its cells, so types are inferred in a pass
    over the whole file: before it is read by `batches`, or while it is read by `scan`. A file and
    the copies that `with_text_columns` returns share the result.
    """

    def __init__(self, path: Path, kind: Kind, name: str) -> None:
        super().__init__(path, kind, name)
        self.text_columns: dict[str, None] = {}
        self._info = FileInfo()

    def with_text_columns(self, names: Sequence[str]) -> CsvFile:
        found = copy(self)
        found.text_columns = dict.fromkeys(names)
        return found

    @property
    def names(self) -> list[str]:
        """The names of the columns, from the first line."""
        return list(self._header[1])

    @property
    def _header(self) -> tuple[str, list[str]]:
        """The separator and the names of the columns."""
        if self._info.header is None:
            self._info.header = self._read_header()
        return self._info.header

    def _read_header(self) -> tuple[str, list[str]]:
        with self._reading():
            with open_bytes(self.path, self.kind.compression) as stream:
                # The reader parses one block for the names; the next one may end within a line.
                start = stream.read_buffer(2 * LONGEST_LINE)
            line = self._first_line(start)
            separator = "\t" if self.kind.format == "tsv" else _separator(line)
            check_number_of_columns(line.count(separator) + 1, self.name)
            with _reader(pa.BufferReader(start), separator, {}) as reader:
                return separator, list(self.check_schema(reader.schema).names)

    def _first_line(self, start: Any) -> str:
        check_text(start, self.name)
        block = bytes(memoryview(start)[:LONGEST_LINE])
        line, end, _ = block.partition(b"\n")
        if not end and len(line) >= LONGEST_LINE:
            raise ValueError(self._too_long())
        return line.decode("utf-8", "replace")

    @property
    def schema(self) -> Any:
        if self.needs_inference:
            self._infer_types()
        types = {**self._info.types, **dict.fromkeys(self.text_columns, pa.string())}
        return pa.schema([(name, types[name]) for name in self.names])

    @property
    def rows(self) -> int:
        if self._info.rows is None:
            self._infer_types()
        assert self._info.rows is not None
        return self._info.rows

    @property
    def needs_inference(self) -> bool:
        return self._info.rows is None or any(
            name not in self._info.types and name not in self.text_columns for name in self.names
        )

    def batches(self, schema: Any) -> Iterator[Any]:
        types = {field.name: field.type for field in schema}
        for batch in self._batches(types):
            columns = [
                self._text(batch, name) if kind == pa.string() else batch.column(name)
                for name, kind in types.items()
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _text(self, batch: Any, name: str) -> Any:
        """A column of text, with nulls for missing values unless it is left as it is."""
        column = batch.column(name)
        return column if name in self.text_columns else mark_missing(column)

    def scan(self) -> Iterator[Any]:
        if not self.needs_inference:
            yield from self.batches(self.schema)
            return
        for batch, typed in self._typed_batches():
            columns = {
                name: typed[name] if name in typed else self._text(batch, name)
                for name in self.names
            }
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _infer_types(self) -> None:
        for _ in self._typed_batches():
            pass

    def _typed_batches(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Batches of text, each with those of its columns that are not text so far, by name.

        The types are kept after the last batch.
        """
        types = {name: pa.null() for name in self.names if name not in self.text_columns}
        rows = 0
        for batch in self._batches(dict.fromkeys(self.names, pa.string())):
            rows += batch.num_rows
            for column in batch.columns:
                check_text(column.buffers()[2], self.name)
            typed = {
                name: cast_text(mark_missing(batch.column(name)), kind)
                for name, kind in types.items()
                if kind != pa.string()
            }
            types.update({name: column.type for name, column in typed.items()})
            yield batch, typed
        self._info.types.update(types)
        self._info.rows = rows

    def _batches(self, types: dict[str, Any]) -> Iterator[Any]:
        # The reader reads ahead in threads of its own, which may outlive it: they must neither
        # need Python nor find their stream closed, so it is left to the last of them to close it.
        separator, _ = self._header
        with self._reading():
            stream = open_bytes(self.path, self.kind.compression)
            with _reader(stream, separator, types) as reader:
                yield from reader

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn pyarrow's errors about text into sentences that name the remedy."""
        with reading_errors(self.name, self.kind.format):
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


def _separator(line: str) -> str:
    """The first of comma, semicolon, tab and bar that a line has; the comma if it has none."""
    return next((mark for mark in SEPARATORS if mark in line), SEPARATORS[0])


def _reader(stream: Any, separator: str, types: dict[str, Any]) -> Any:
    """A reader of a stream of separated text, with the types of columns by name."""
    return pcsv.open_csv(
        stream,
        pcsv.ReadOptions(block_size=LONGEST_LINE),
        pcsv.ParseOptions(delimiter=separator, newlines_in_values=True),
        pcsv.ConvertOptions(
            column_types=types, null_values=list(MISSING_TEXTS), strings_can_be_null=False
        ),
    )


MOST_BRACKETS = 500
"""How many brackets a line may open: the parser would crash on those nested too deeply."""


class JsonLinesFile(TableFile):
    """A file with one JSON object per line, whose keys name the columns.

    A key that a line lacks is a missing value. The file is scanned once before it is read, since a
    key may come first, or change its type, in any line.
    """

    @property
    def schema(self) -> Any:
        return self._schema_and_rows[0]

    @property
    def rows(self) -> int:
        return self._schema_and_rows[1]

    def batches(self, schema: Any) -> Iterator[Any]:
        parsing = _text_parsing(schema)
        for block in self._blocks():
            table = self._parse(block, parsing).select(schema.names)
            with reading_errors(self.name, "JSON lines"):
                yield from table.cast(schema).combine_chunks().to_batches()

    @cached_property
    def _schema_and_rows(self) -> tuple[Any, int]:
        """Schema and number of rows."""
        kinds: dict[str, Any] = {}
        rows = 0
        for block in self._blocks():
            table = self._parse(block, pjson.ParseOptions())
            rows += table.num_rows
            self.check_schema(table.schema)
            has_moments = any(map(pa.types.is_temporal, table.schema.types))
            texts = self._parse(block, _text_parsing(table.schema)) if has_moments else table
            for field in table.schema:
                known = kinds.get(field.name, pa.null())
                kinds[field.name] = self._widen(field, texts.column(field.name), known)
        return self.check_schema(pa.schema(list(kinds.items()))), rows

    def _widen(self, field: Any, texts: Any, known: Any) -> Any:
        if texts.type == pa.string():
            return cast_text(texts, known, candidates=MOMENTS).type
        return self._common_type(field, known)

    def _common_type(self, field: Any, known: Any) -> Any:
        found = common_type(known, field.type)
        if found is None:
            raise ValueError(
                f"{self.name} has both {known} and {field.type} under {field.name!r}; make them "
                "one type"
            )
        return found

    def _parse(self, block: bytes, parsing: Any) -> Any:
        with reading_errors(self.name, "JSON lines"):
            options = pjson.ReadOptions(block_size=len(block) + 1, use_threads=False)
            return pjson.read_json(pa.py_buffer(block), options, parsing)

    def _blocks(self) -> Iterator[bytes]:
        """The bytes of the file in pieces that end with a line."""
        rest = b""
        with (
            reading_errors(self.name, "JSON lines"),
            open_bytes(self.path, self.kind.compression) as stream,
        ):
            while piece := stream.read(LONGEST_LINE):
                check_text(piece, self.name)
                lines, end, left = piece.rpartition(b"\n")
                if end:
                    yield from self._check_lines(rest + lines + end)
                rest = left if end else rest + left
                if len(rest) > LONGEST_LINE:
                    raise ValueError(
                        f"{self.name} has a line of more than {LONGEST_LINE >> 20} MiB; use Parquet"
                    )
        yield from self._check_lines(rest)

    def _check_lines(self, block: bytes) -> Iterator[bytes]:
        """A block that holds something, none of it nested too deeply for the parser."""
        for line in block.split(b"\n"):
            if line.count(b"[") + line.count(b"{") > MOST_BRACKETS:
                raise ValueError(
                    f"{self.name} has a line with more than {MOST_BRACKETS} brackets; flatten it"
                )
            # Every key has a colon; the parser takes very long for very many keys.
            check_number_of_columns(line.count(b":"), self.name)
        if block.strip():
            yield block


def _text_parsing(schema: Any) -> Any:
    """How to parse a schema, with dates and times left as the texts that they are."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_temporal(field.type) else field
        for field in schema
    ]
    return pjson.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
