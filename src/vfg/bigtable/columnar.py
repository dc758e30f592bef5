"""What every kind of table file can do, and the columnar kinds: Parquet and Arrow."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from vfg.bigtable.formats import Kind, TemporaryCopy, open_bytes, reading_errors, spool
from vfg.utils.extras import needs
from vfg.utils.remote import RemotePath, open_binary

with needs("table"):
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_AT_ONCE = 65_536
"""How many rows of a columnar file are decoded together."""
ENDS = 1 << 16
"""Bytes of a file's head and tail that are compared."""
MOST_COLUMNS = 100_000
"""Files with more columns are refused: what describes the columns would fill the memory."""


class TableFile(ABC):
    """One file that holds a table."""

    def __init__(self, path: Path | RemotePath, kind: Kind, name: str) -> None:
        self.path = path
        self.kind = kind
        self.name = name
        self._copy: TemporaryCopy | None = None
        self._state = _file_state(path)

    def keep(self, copy: TemporaryCopy) -> None:
        """Let a temporary copy, which is what `path` names, live as long as this object."""
        self._copy = copy

    @property
    def is_piped(self) -> bool:
        """Whether it came through a pipe, and can be read by this process alone."""
        return self._copy is not None

    @property
    @abstractmethod
    def schema(self) -> Any:
        """Names and types of the columns; text files are scanned for it."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows there are; text files are scanned for it."""

    @abstractmethod
    def batches(self, schema: Any) -> Iterator[Any]:
        """Record batches of any size, in order, with the names and types of a schema."""

    def batches_from(self, schema: Any, first_row: int) -> Iterator[Any]:
        """As `batches`, from a row on; rows before it are read as well where they must be."""
        for batch in self.batches(schema):
            if first_row < batch.num_rows:
                yield batch.slice(first_row)
            first_row = max(0, first_row - batch.num_rows)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def index_columns(self) -> list[str]:
        """The columns that are the index of a pandas frame."""
        return []

    @property
    def layouts(self) -> dict[str, str]:
        """The layouts of dates and durations in text; known after the types are."""
        return {}

    @property
    def needs_inference(self) -> bool:
        """Whether types have yet to be inferred from the cells, so that `scan` saves a pass."""
        return False

    def scan(self) -> Iterator[Any]:
        """Record batches in the types inferred so far; `schema` and `rows` are known at the end."""
        return self.batches(self.schema)

    def watch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches that were read from this file; a ValueError if it changed since it was opened."""
        ends, rows = digest_ends(self.path), 0
        try:
            for batch in batches:
                self.check_state()
                rows += batch.num_rows
                yield batch
        except ValueError:
            self.check_state()  # what a changed file does wrong is not worth telling
            raise
        self.check_state()
        if rows != self.rows or digest_ends(self.path) != ends:
            raise self._change_error()

    def check_state(self) -> None:
        """Raise a ValueError if the file changed since it was opened."""
        if _file_state(self.path) != self._state:
            raise self._change_error()

    def _change_error(self) -> ValueError:
        return ValueError(
            f"{self.name} has changed since it was opened; run it again once the file is complete"
        )

    def with_text_columns(
        self, names: Sequence[str], categories: Sequence[str] = (), real: Sequence[str] = ()
    ) -> TableFile:
        """The same file with some columns read otherwise, if it is one of text."""
        return self

    def check_schema(self, schema: Any) -> Any:
        """A schema that tables can have; a ValueError for none, too many or repeated columns."""
        names = schema.names
        if not names:
            raise ValueError(f"{self.name} has no columns")
        check_number_of_columns(len(names), self.name)
        if len(dict.fromkeys(names)) < len(names):
            seen: dict[str, None] = {}
            repeated = next(name for name in names if name in seen or seen.update({name: None}))
            raise ValueError(f"{self.name} repeats the column {repeated!r}; rename one of them")
        return schema


def _file_state(path: Path | RemotePath) -> tuple[Any, ...] | None:
    """What changes when a file is written or replaced; None if it is gone."""
    try:
        known = path.stat()
    except FileNotFoundError:
        return None
    return known.st_size, known.st_mtime_ns, known.st_ino


def digest_ends(path: Path | RemotePath) -> bytes:
    """A digest of the first and last 64 KiB of a file, which may be written without a new time."""
    with open_binary(path) as file:
        start = file.read(ENDS)
        file.seek(max(path.stat().st_size - ENDS, 0))
        return hashlib.blake2b(start + file.read(ENDS)).digest()


def check_number_of_columns(number: int, name: str) -> None:
    """Refuse more columns than are sensible."""
    if number > MOST_COLUMNS:
        raise ValueError(
            f"{name} has {number:,} columns, but at most {MOST_COLUMNS:,} can be read; select "
            "those that matter"
        )


class ColumnarFile(TableFile):
    """A file with a stored schema and random access."""

    @property
    def index_columns(self) -> list[str]:
        try:
            stored = json.loads((self.schema.metadata or {})[b"pandas"])["index_columns"]
        except (KeyError, TypeError, ValueError):
            return []
        return [name for name in stored if isinstance(name, str) and name in self.names]

    @cached_property
    def place(self) -> Path | RemotePath:
        """The path of the file, or of a decompressed copy that lives as long as this object."""
        if self.kind.compression is None:
            return self.path
        with (
            reading_errors(self.name, self.kind.format),
            open_bytes(self.path, self.kind.compression) as stream,
        ):
            self._decompressed = spool(stream)
        return Path(self._decompressed.name)

    def batches(self, schema: Any) -> Iterator[Any]:
        return self._check_batches(self._read_batches(), schema)

    def _check_batches(self, batches: Iterator[Any], schema: Any) -> Iterator[Any]:
        """Stored batches with the types of a schema."""
        with reading_errors(self.name, self.kind.format):
            for batch in batches:
                # Offsets and texts of a damaged file may point anywhere, so they are validated.
                batch.validate(full=True)
                if batch.schema.equals(schema, check_metadata=True):
                    yield batch
                else:
                    columns = [_cast(batch.column(field.name), field.type) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _check_stored(self, schema: Any) -> Any:
        """A stored schema as it is handed out: types that few can compute with are replaced."""
        fields = [field.with_type(_common_storage(field.type)) for field in schema]
        return self.check_schema(pa.schema(fields, schema.metadata))

    @abstractmethod
    def _read_batches(self) -> Iterator[Any]:
        """Record batches as they are stored."""


class ParquetFile(ColumnarFile):
    """A Parquet file."""

    @cached_property
    def schema(self) -> Any:
        with reading_errors(self.name, "Parquet"), self._open_parquet() as file:
            return self._check_stored(file.schema_arrow)

    @cached_property
    def rows(self) -> int:
        with reading_errors(self.name, "Parquet"), self._open_parquet() as file:
            return int(file.metadata.num_rows)

    def batches_from(self, schema: Any, first_row: int) -> Iterator[Any]:
        """As `batches`, from a row on; row groups before it are not read."""
        with reading_errors(self.name, "Parquet"), self._open_parquet() as file:
            groups = range(file.metadata.num_row_groups)
            sizes = [file.metadata.row_group(group).num_rows for group in groups]
        first = 0
        while first < len(sizes) and first_row >= sizes[first]:
            first_row -= sizes[first]
            first += 1
        for batch in self._check_batches(self._read_batches(range(first, len(sizes))), schema):
            if first_row < batch.num_rows:
                yield batch.slice(first_row)
            first_row = max(0, first_row - batch.num_rows)

    def _read_batches(self, groups: range | None = None) -> Iterator[Any]:
        # Without buffering ahead, a file that is one large row group is no whole copy in memory.
        # Checksums, where there are some, reveal damaged pages that would decode to other numbers.
        options = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
        with self._open_parquet(**options) as file:
            some = None if groups is None else list(groups)
            yield from file.iter_batches(ROWS_AT_ONCE, row_groups=some, use_threads=False)

    @contextmanager
    def _open_parquet(self, **options: Any) -> Iterator[Any]:
        with open_binary(self.place) as stored, pq.ParquetFile(stored, **options) as file:
            yield file


class ArrowFile(ColumnarFile):
    """A Feather file, or another file or stream in Arrow's own format.

    It is not mapped into memory: a file that is cut meanwhile would end the process.
    """

    @cached_property
    def schema(self) -> Any:
        with reading_errors(self.name, "Arrow"), self._open_place() as stored:
            return self._check_stored(self._open(stored).schema)

    @cached_property
    def rows(self) -> int:
        with reading_errors(self.name, "Arrow"):
            return sum(batch.num_rows for batch in self._read_batches())

    def _read_batches(self) -> Iterator[Any]:
        with self._open_place() as stored:
            reader = self._open(stored)
            if hasattr(reader, "num_record_batches"):
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield batch.slice(start, ROWS_AT_ONCE)

    def _open_place(self) -> Any:
        if isinstance(self.place, RemotePath):
            return pa.PythonFile(self.place.open(), mode="r")
        return pa.OSFile(str(self.place))

    @staticmethod
    def _open(stored: Any) -> Any:
        start = stored.read(6)
        stored.seek(0)
        if start == b"ARROW1":
            return pa.ipc.open_file(stored)
        return pa.ipc.open_stream(stored)


def _common_storage(kind: Any) -> Any:
    """A type that holds the same cells: float32 for half floats, plain text for views."""
    if isinstance(kind, pa.BaseExtensionType):
        return _common_storage(kind.storage_type)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _cast(column: Any, kind: Any) -> Any:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    return column.cast(kind)
