"""Tables in files, folders and pipes, read in pieces of bounded size."""

from __future__ import annotations

import glob
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from vfg.bigtable.columnar import ArrowFile, ParquetFile, TableFile
from vfg.bigtable.formats import (
    COPY,
    MOST_PIPED,
    Dialect,
    Kind,
    Reading,
    check_text,
    kind_from_bytes,
    kind_from_name,
    spool,
)
from vfg.bigtable.text_files import LONGEST_LINE, CsvFile, JsonLinesFile
from vfg.bigtable.type_inference import common_type
from vfg.utils.extras import needs
from vfg.utils.remote import RemotePath, is_remote

with needs("table"):
    import pyarrow as pa

Place: TypeAlias = str | os.PathLike[str]
"""A file, pipe, folder of Parquet files, pattern like `part-*.csv`, or `-` for standard input; also
the URL of a file, folder or pattern in a store, such as `s3://bucket/part-*.parquet`."""


class Source:
    r"""A table that is read in pieces; made by `open_table`.

    Args:
        files: the parts of the table, one after the other.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "table.csv")
        ...     _ = path.write_text("a,b\n1,x\n,y\n3,NA\n")
        ...     source = open_table(path)
        ...     source.names, source.rows, [batch.num_rows for batch in source.batches(2)]
        (['a', 'b'], 3, [2, 1])
    """

    def __init__(self, files: Sequence[TableFile]) -> None:
        self.files = list(files)

    @cached_property
    def schema(self) -> Any:
        """Names and types of the columns as a `pyarrow.Schema`; text files are scanned.

        Raises:
            ValueError: for files with other columns or types than the first.
        """
        first = self.files[0].schema
        kinds = {field.name: field.type for field in first}
        for file in self.files[1:]:
            _check_names(self.files[0], file)
            result = file.schema
            for name in kinds:
                kinds[name] = _common_column_type(file, result.field(name), kinds[name])
                if file.layouts.get(name) != self.layouts.get(name):
                    kinds[name] = pa.string()
        return pa.schema([first.field(name).with_type(kind) for name, kind in kinds.items()])

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order; nothing is scanned for them."""
        return self.files[0].names

    @property
    def index_columns(self) -> list[str]:
        """The columns that are the index of a pandas frame, which are no data."""
        return self.files[0].index_columns

    @property
    def is_piped(self) -> bool:
        """Whether a part came through a pipe, and can be read by this process alone."""
        return any(file.is_piped for file in self.files)

    @property
    def is_text(self) -> bool:
        """Whether all files are separated text, of which cells can be kept as they are written."""
        return all(isinstance(file, CsvFile) for file in self.files)

    @property
    def dialect(self) -> Dialect:
        """How the first file is written, if it is separated text."""
        first = self.files[0]
        return first.dialect if isinstance(first, CsvFile) else Dialect()

    @property
    def layouts(self) -> dict[str, str]:
        """The layouts of columns of dates and durations in text; known after the types are."""
        return self.files[0].layouts

    @property
    def doubts(self) -> list[str]:
        """Sentences about cells whose reading is doubtful; known after the types are."""
        texts = [file.doubts for file in self.files if isinstance(file, CsvFile)]
        return list(dict.fromkeys(doubt for doubts in texts for doubt in doubts))

    @property
    def samples(self) -> dict[str, str]:
        """The first observed cell of columns of text files, as it is written."""
        texts = [file.samples for file in self.files if isinstance(file, CsvFile)]
        return {name: cell for samples in reversed(texts) for name, cell in samples.items()}

    def with_text_columns(
        self, names: Sequence[str], categories: Sequence[str] = (), real: Sequence[str] = ()
    ) -> Source:
        """The same table with some columns of text files left as the text that they are.

        Both tables share what is known of the files, so types are inferred once.

        Args:
            names: of the columns; their missing values stay text too, as they were read.
            categories: names of columns that become text with null for missing values.
            real: names of columns that become real numbers if they hold whole ones.
        """
        return Source([file.with_text_columns(names, categories, real) for file in self.files])

    @cached_property
    def rows(self) -> int:
        """How many rows there are; text files are scanned for it."""
        return sum(file.rows for file in self.files)

    def batches(self, rows: int = 65_536) -> Iterator[Any]:
        """The table as record batches of pyarrow, of a fixed number of rows.

        Args:
            rows: of every piece; the last one may have fewer.

        Raises:
            ValueError: for files that cannot be read, while iterating.
        """
        schema = self.schema
        stored = (batch for file in self.files for batch in file.watch(file.batches(schema)))
        return resize_batches(stored, schema, rows)

    def batches_from(self, first_row: int, rows: int) -> Iterator[Any]:
        """As `batches`, from a row on. What lies before it is not read, where files allow that.

        Args:
            first_row: where to begin, a multiple of `rows`.
            rows: of every piece; the last one may have fewer.
        """
        schema = self.schema

        def stored() -> Iterator[Any]:
            start = first_row
            for file in self.files:
                if start < file.rows:
                    yield from file.batches_from(schema, start)
                    file.check_state()
                start = max(0, start - file.rows)

        return resize_batches(stored(), schema, rows)

    def scan(self) -> Iterator[Any]:
        """Record batches of pyarrow, of any size, in one pass that also infers types of CSV files.

        A column has the type that was inferred so far from the same file. A later piece may have a
        wider type, or another one if it comes from the next file. After the last piece, `schema`
        and `rows` are known without another pass.

        Raises:
            ValueError: for files that cannot be read or lack a column, while iterating.
        """
        if not any(file.needs_inference for file in self.files):
            yield from self.batches()
            return
        for file in self.files:
            _check_names(self.files[0], file)
            yield from file.watch(file.scan())

    def read(self) -> Any:
        """The whole table in memory, as a `pyarrow.Table`."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def fingerprint(self) -> str:
        """A digest of the content of all files, in order; computed once."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=20)
        for file in self.files:
            digest.update(file.path.stat().st_size.to_bytes(8, "little"))
            if isinstance(file.path, RemotePath):  # its store tells contents apart
                digest.update(f"{file.path} {file.path.stat().st_mtime_ns}".encode())
                continue
            with open(file.path, "rb") as stream:
                while block := stream.read(COPY):
                    digest.update(block)
        return digest.hexdigest()


def open_table(
    source: Place | Sequence[Place],
    *,
    format: str | None = None,
    exclude: Sequence[Place] = (),
    dialect: Dialect | None = None,
    like: Mapping[str, Any] | None = None,
    most_piped: int = MOST_PIPED,
) -> Source:
    """A table in one file or several, ready to be read in pieces.

    In text files, empty cells and `NA`, `NaN`, `null` and the like are missing values. Columns have
    the narrowest type that holds all cells: integers with missing values stay integers,
    numbers with leading zeros stay text. Text such as `31.12.2020` is read as dates if every cell
    of the column fits one order of day and month. `1:30:00` is a duration.

    Args:
        source: a file, a folder of Parquet files, a pattern such as `part-*.csv`, `"-"` for
            standard input (which is copied to a temporary file), or a sequence of these.
        format: `"csv"`, `"tsv"`, `"parquet"`, `"arrow"` (Feather) or `"jsonl"`; None infers it from
            the suffix, also before `.gz`, `.zst`, `.bz2` or `.lz4`, or from the first bytes.
        exclude: files and folders that patterns and folders do not take, such as earlier output.
        dialect: of CSV files; None detects delimiter and decimal mark.
        like: `TableModel.origin` of a model: CSV files with its columns are read as those that it
            was fitted to.
        most_piped: bytes of standard input or a pipe that are copied to the temporary disk.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for an unknown format.
    """
    places = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not places:
        raise ValueError("a table needs at least one file, but none was given")
    hidden = [Path(place).resolve() for place in exclude if not is_remote(place)]
    reading = Reading.from_dict(like or {})
    opener = _Opener(format, hidden, dialect or Dialect(), reading, most_piped)
    return Source([file for place in places for file in opener.files(place)])


def resize_batches(batches: Iterator[Any], schema: Any, rows: int) -> Iterator[Any]:
    """Record batches of a fixed number of rows from those of any; the last one may have fewer.

    Example:
        >>> batches = [pa.record_batch({"a": [1, 2, 3]}), pa.record_batch({"a": [4, 5]})]
        >>> [b["a"].to_pylist() for b in resize_batches(iter(batches), batches[0].schema, 2)]
        [[1, 2], [3, 4], [5]]
    """
    if rows < 1:
        raise ValueError(f"a batch needs at least 1 row, but {rows} were requested")
    waiting: list[Any] = []
    known = 0
    for batch in batches:
        start = 0
        while known + batch.num_rows - start >= rows:
            waiting.append(batch.slice(start, rows - known))
            start += rows - known
            yield _merge(waiting, schema)
            waiting, known = [], 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            known += batch.num_rows - start
    if waiting:
        yield _merge(waiting, schema)


def _merge(batches: list[Any], schema: Any) -> Any:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema=schema).unify_dictionaries()
    merged = table.combine_chunks().to_batches()
    if len(merged) != 1:
        raise ValueError("a batch holds more than 2 GiB of text; ask for fewer rows at a time")
    return merged[0]


@dataclass(frozen=True)
class _Opener:
    """Opens places as files; see `open_table`."""

    format: str | None
    exclude: Sequence[Path]
    dialect: Dialect
    like: Reading | None
    most_piped: int

    def files(self, place: Place) -> Iterator[TableFile]:
        """The files of a place."""
        if place == "-":
            if sys.stdin is None:
                raise OSError("standard input is closed; name a file")
            yield self._from_pipe(sys.stdin.buffer)
            return
        if is_remote(place):
            for remote in self._remote_paths(RemotePath(str(place))):
                yield self._file(remote, kind_from_name(remote, self.format), str(remote))
            return
        path = Path(place)
        if path.exists() and not (path.is_file() or path.is_dir()):
            with open(path, "rb") as pipe:
                yield self._from_pipe(pipe)
            return
        for part in self._paths(path):
            yield self._file(part, kind_from_name(part, self.format), str(part))

    def _paths(self, path: Path) -> list[Path]:
        """The files of a name, a folder or a pattern; a file that is named is never left out."""
        if path.is_file():
            return [path]
        if path.is_dir():
            matches = [part for part in path.rglob("*.parquet") if part.is_file()]
            missing = f"the folder {path} holds no .parquet files"
        else:
            matches = list(map(Path, glob.glob(str(path), recursive=True)))
            missing = f"there is no file {path}"
        wanted = sorted(match for match in matches if not self._is_excluded(match))
        if not wanted:
            raise FileNotFoundError(missing + (" besides the output" if matches else ""))
        return [inner for match in wanted for inner in self._paths(match)]

    def _remote_paths(self, path: RemotePath) -> list[RemotePath]:
        """The files of a URL: of a file, a folder of Parquet files, or a pattern."""
        if path.is_file():
            return [path]
        if path.is_dir():
            matches, missing = list(path.rglob("*.parquet")), f"{path} holds no .parquet files"
        else:
            matches, missing = path.matches(), f"there is no file {path}"
        wanted = sorted(match for match in matches if match.is_file())
        if not wanted:
            raise FileNotFoundError(missing)
        return wanted

    def _is_excluded(self, part: Path) -> bool:
        real = part.resolve()
        return any(folder == real or folder in real.parents for folder in self.exclude)

    def _from_pipe(self, pipe: BinaryIO) -> TableFile:
        # What is no table should be refused before it fills the disk.
        start = pipe.read(LONGEST_LINE)
        kind = kind_from_bytes(start[:1024], self.format)
        if kind.format in ("csv", "tsv", "jsonl") and kind.compression is None:
            check_text(start, "the piped table")
            if len(start) >= LONGEST_LINE and b"\n" not in start:
                raise ValueError(f"the piped table has a line of more than {len(start) >> 20} MiB")
        copy = spool(pipe, start, self.most_piped)
        file = self._file(Path(copy.name), kind, "the piped table")
        file.keep(copy)
        return file

    def _file(self, path: Path | RemotePath, kind: Kind, name: str) -> TableFile:
        if kind.format in ("csv", "tsv"):
            return CsvFile(path, kind, name, self.dialect, self.like)
        if kind.format == "jsonl" and replace(self.dialect, missing=()) == Dialect():
            return JsonLinesFile(path, kind, name, self.dialect.missing)
        if self.dialect != Dialect():
            raise ValueError(
                f"{name} is {kind.format}, but delimiter, decimal mark and quotation marks are "
                "settings of CSV files, and texts that mean missing are of CSV and JSON lines"
            )
        kinds: dict[str, Any] = {"parquet": ParquetFile, "arrow": ArrowFile, "jsonl": JsonLinesFile}
        return kinds[kind.format](path, kind, name)  # type: ignore[no-any-return]


def _check_names(first: TableFile, other: TableFile) -> None:
    names = {file: dict.fromkeys(file.names) for file in (first, other)}
    for has, lacks in ((first, other), (other, first)):
        for name in names[has]:
            if name not in names[lacks]:
                raise ValueError(
                    f"{lacks.name} lacks the column {name!r} that {has.name} has; all parts of a "
                    "table need the same columns"
                )


def _common_column_type(file: TableFile, field: Any, known: Any) -> Any:
    wider = common_type(known, field.type)
    if wider is None and file.kind.format in ("csv", "tsv", "jsonl"):
        return pa.string()
    if wider is None:
        raise ValueError(
            f"the column {field.name!r} holds {known} before and {field.type} in {file.name}; "
            "convert one"
        )
    return wider
