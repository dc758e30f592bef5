"""Tables to files, whole or not at all, and rows as lines of text."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vfg.bigtable.formats import Dialect, Kind, kind_from_name, normalise_format
from vfg.utils.extras import needs
from vfg.utils.files import is_stream, open_target, standard_output

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq


def header_line(names: Sequence[str], dialect: Dialect) -> bytes:
    r"""The first line of a file of separated text.

    Example:
        >>> header_line(["a", "b,c"], Dialect(","))
        b'a,"b,c"\n'
    """
    separator = dialect.delimiter or ","
    texts = pa.array(names, pa.large_string())
    cells = _quote(texts, separator, always=dialect.quoting.names).to_pylist()
    return (separator.join(cells) + dialect.newline).encode()


def csv_lines(batch: Any, dialect: Dialect) -> bytes:
    r"""The rows of a record batch as lines of separated text; missing values are empty cells.

    Example:
        >>> csv_lines(pa.record_batch({"a": [1.0, None], "b": ["x", "y"]}), Dialect(","))
        b'1.0,x\n,y\n'
    """
    if not batch.num_rows:
        return b""
    cells = [_cells(batch.column(k), field, dialect) for k, field in enumerate(batch.schema)]
    if len(cells) == 1:  # an empty line would be no row
        cells[0] = pc.if_else(pc.equal(cells[0], ""), '""', cells[0])
    lines = _concat([_concat(cells, dialect.delimiter or ","), _text(dialect.newline)], "")
    # The cells of an array of texts lie one after the other: together they are the file.
    return bytes(lines.buffers()[2])


def json_lines(batch: Any) -> bytes:
    r"""The rows of a record batch as one JSON object per line; missing values are `null`.

    Example:
        >>> json_lines(pa.record_batch({"a": [1.5, None]}))
        b'{"a":1.5}\n{"a":null}\n'
    """
    dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_as_text).encode
    rows = [{key: _json_cell(key, cell) for key, cell in row.items()} for row in batch.to_pylist()]
    return "".join(dump(row) + "\n" for row in rows).encode()


def _json_cell(key: str, cell: Any) -> Any:
    if isinstance(cell, float) and math.isinf(cell):
        raise ValueError(
            f"the column {key!r} holds an infinite number, which JSON cannot; use CSV or Parquet"
        )
    return None if cell != cell else cell


def _as_text(cell: Any) -> Any:
    """What JSON has no word for, such as dates and decimals, as text."""
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def format_like(column: Any, sample: str, decimal: str) -> Any:
    """Values as text, null for NaN; truth values, times and whole numbers as in a sample.

    Example:
        >>> format_like(pa.array([True, None]), "FALSE", ".").to_pylist()
        ['TRUE', None]
        >>> format_like(pa.array([2.0, 0.5]), "1,5", ",").to_pylist()
        ['2,0', '0,5']
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        texts = _decimals(column)
        if sample and decimal not in sample:
            texts = pc.replace_substring_regex(texts, r"\.0$", "")
        return pc.replace_substring(texts, ".", decimal)
    text = column.cast(pa.large_string())
    if pa.types.is_boolean(column.type) and sample[:1].isupper():
        return pc.utf8_upper(text) if sample.isupper() else pc.utf8_capitalize(text)
    if pa.types.is_timestamp(column.type) and sample[10:11] == "T":
        return pc.replace_substring(text, " ", "T")
    return text


def _cells(column: Any, field: Any, dialect: Dialect) -> Any:
    separator, decimal = dialect.delimiter or ",", dialect.decimal or "."
    kind, quoting = field.type, dialect.quoting
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_nested(kind):
        raise ValueError(
            f"the column {field.name!r} holds {kind}, which separated text cannot; use Parquet"
        )
    text = format_like(column, "", decimal)
    needs_quotes = not pa.types.is_floating(kind) or decimal == separator
    always = field.name in quoting.cells
    texts = pc.fill_null(_quote(text, separator, always) if needs_quotes or always else text, "")
    return pc.if_else(pc.equal(texts, ""), '""', texts) if field.name in quoting.empty else texts


def _decimals(column: Any) -> Any:
    """Numbers as text, with a decimal point also where they are whole; null for NaN."""
    observed = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    text = observed.cast(pa.large_string())
    whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    return pc.if_else(whole, _concat([text, _text(".0")], ""), text)


def _quote(column: Any, separator: str, always: bool = False) -> Any:
    """Texts in quotation marks where they need them, or all but empty ones."""
    needy = pc.match_substring_regex(column, "(?s)." if always else f'["\\r\\n{separator}]')
    if not pc.any(needy).as_py():
        return column
    doubled = pc.replace_substring(column, '"', '""')
    return pc.if_else(needy, _concat([_text('"'), doubled, _text('"')], ""), column)


def _text(words: str) -> Any:
    return pa.scalar(words, pa.large_string())


def _concat(parts: list[Any], separator: str) -> Any:
    """Texts concatenated row by row; a null among them gives a null."""
    return pc.binary_join_element_wise(*parts, _text(separator))


class Sink:
    r"""A file that a table is written to, batch after batch; use it in a `with` statement.

    A plain file appears as a whole or not at all, devices and pipes are written through; see
    `vfg.utils.files.open_target`.

    Args:
        target: a path, whose suffix gives format and compression, or `"-"` for standard output.
        schema: names and types of the columns.
        format: as in `open_table`; None infers it from the suffix, or takes `"csv"` for standard
            output.
        dialect: of separated text; None for commas and points, and quotation marks where needed.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ValueError: for an unknown format, or a column that it cannot hold.

    Example:
        >>> import tempfile
        >>> batch = pa.record_batch({"a": [1, None], "b": ["x", "y, z"]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Sink(Path(folder, "table.csv"), batch.schema) as sink:
        ...         sink.write(batch)
        ...     Path(folder, "table.csv").read_text()
        'a,b\n1,x\n,"y, z"\n'
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        schema: Any,
        *,
        format: str | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.target = target
        self.schema = schema
        self.kind = target_kind(target, format)
        self.dialect = dialect or Dialect()
        if self.kind.format == "arrow":
            # Batches may have different categories, which this format cannot hold in one column.
            self.schema = _without_dictionaries(schema)
        self._files = standard_output() if target == "-" else open_target(target)

    def write(self, batch: Any) -> None:
        """Append the rows of a record batch."""
        self._writer.write_batch(batch.cast(self.schema) if batch.schema != self.schema else batch)

    def __enter__(self) -> Self:
        file = self._files.__enter__()
        try:
            self._stream = file
            if self.kind.compression is not None:
                self._stream = pa.CompressedOutputStream(file, self.kind.compression)
            self._writer = _writer(self._stream, self.schema, self.kind.format, self.dialect)
        except BaseException:
            self._files.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._writer.close()
            if self.kind.compression is not None:
                self._stream.close()
        except BaseException as failure:
            if error is None:
                self._files.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._files.__exit__(kind, error, trace)


def target_kind(target: str | os.PathLike[str], format: str | None) -> Kind:
    """Format and compression of a target: by its suffix, or CSV for standard output and devices.

    Example:
        >>> target_kind("-", None).format, target_kind("t.tsv.gz", None).compression
        ('csv', 'gzip')
    """
    if target == "-" or (is_stream(target) and not Path(str(target)).suffix):
        return Kind(normalise_format(format or "csv"))
    return kind_from_name(target, format)


def write_table(
    batches: Iterable[Any],
    schema: Any,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    dialect: Dialect | None = None,
) -> int:
    """Write a table to one file; on failure nothing is left behind.

    Returns:
        The number of rows.
    """
    rows = 0
    with Sink(target, schema, format=format, dialect=dialect) as sink:
        for batch in batches:
            sink.write(batch)
            rows += batch.num_rows
    return rows


class _TextWriter:
    """Lines of JSON, or of separated text in a dialect, the first of which names the columns."""

    def __init__(self, stream: Any, schema: Any, dialect: Dialect | None) -> None:
        self.stream, self.dialect = stream, dialect
        if dialect is not None:
            stream.write(header_line(schema.names, dialect))

    def write_batch(self, batch: Any) -> None:
        lines = json_lines(batch) if self.dialect is None else csv_lines(batch, self.dialect)
        self.stream.write(lines)

    def close(self) -> None:
        """Nothing is left to write."""


def _writer(stream: Any, schema: Any, format: str, dialect: Dialect) -> Any:
    """What writes record batches of a schema to a stream, by `write_batch` and `close`."""
    if format == "parquet":
        # Dictionaries of measurements are as large as the cells, and take most of the time.
        repeated = [field.name for field in schema if not pa.types.is_floating(field.type)]
        options = {"use_dictionary": repeated or False, "write_page_checksum": True}
        return pq.ParquetWriter(stream, schema, **options)
    if format == "arrow":
        return pa.ipc.new_file(stream, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
    own = {"csv": dialect, "tsv": replace(dialect, delimiter="\t"), "jsonl": None}
    return _TextWriter(stream, schema, own[format])


def _without_dictionaries(schema: Any) -> Any:
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)
