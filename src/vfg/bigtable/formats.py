"""Formats of table files, from their names or first bytes, and their byte streams."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from vfg.utils.extras import needs
from vfg.utils.remote import RemotePath
from vfg.utils.specs import check_choice

with needs("table"):
    import pyarrow as pa


FORMATS = ("csv", "tsv", "parquet", "arrow", "jsonl")
ALIASES = {"feather": "arrow", "ipc": "arrow", "ndjson": "jsonl", "json": "jsonl", "pq": "parquet"}
ALIASES["tab"] = "tsv"
_ENDINGS = "csv tsv tab parquet pq feather arrow ipc jsonl ndjson"
SUFFIXES = {f".{ending}": ALIASES.get(ending, ending) for ending in _ENDINGS.split()}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\x04\x22\x4d\x18": "lz4",
}
"""How compressed files begin."""


@dataclass(frozen=True)
class Kind:
    """What a file holds, and how it is compressed."""

    format: str  # one of `FORMATS`
    compression: str | None = None  # one of the values of `COMPRESSIONS`


@dataclass(frozen=True)
class Quoting:
    """What stands in quotation marks although it need not."""

    names: bool = False
    cells: tuple[str, ...] = ()  # columns, of which all observed cells do
    empty: tuple[str, ...] = ()  # columns, of which all empty cells do


@dataclass(frozen=True)
class Dialect:
    """How the cells of separated text are written.

    Args:
        delimiter: between cells, a single character; None detects comma, semicolon, tab or bar.
        decimal: the decimal mark, `"."` or `","`; None detects it where the delimiter is no comma.
        missing: texts that mean a missing value, besides `NA`, `NaN`, `null` and the like. A number
            stands for all ways to write it: `-999` also for `-999.0`.
        quotes: whether quotation marks enclose cells; False reads them as text.
        day_first: whether 03/04/2020 is in April rather than March; None decides by days above 12.
        newline: between lines; detected in files that are read.
        quoting: which cells are quoted without need; detected in files that are read.

    Raises:
        ValueError: for an invalid delimiter or decimal mark.

    Example:
        >>> Dialect(delimiter=";", decimal=",").decimal
        ','
    """

    delimiter: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] = ()
    quotes: bool = True
    day_first: bool | None = None
    newline: str = "\n"
    quoting: Quoting = Quoting()

    def __post_init__(self) -> None:
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or self.delimiter in '"\r\n' or not self.delimiter.isascii()
        ):
            raise ValueError(
                f"the delimiter must be one ASCII character, but is {self.delimiter!r}"
            )
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"the decimal mark must be . or a comma, but is {self.decimal!r}")
        if self.decimal is not None and self.decimal == self.delimiter:
            raise ValueError("the delimiter and the decimal mark cannot both be a comma")


@dataclass(frozen=True)
class Reading:
    """How the CSV files of a fit were read: kept in `TableModel.origin` for those to be filled."""

    dialect: Dialect
    columns: tuple[str, ...]  # that were fitted
    layouts: Mapping[str, str]  # of dates and durations, by column
    samples: Mapping[str, str]  # cells of these, with 0 for all digits

    KEPT: ClassVar = ("delimiter", "decimal", "missing", "quotes", "day_first")

    def to_dict(self) -> dict[str, Any]:
        """Everything that holds for other files, ready for JSON."""
        dialect = {name: getattr(self.dialect, name) for name in self.KEPT}
        return {**vars(self), "dialect": dialect}

    @classmethod
    def from_dict(cls, origin: Mapping[str, Any]) -> Reading | None:
        """The inverse of `to_dict`; None for what it did not write."""
        try:
            known = {name: origin["dialect"][name] for name in cls.KEPT}
            dialect = Dialect(**{**known, "missing": tuple(map(str, known["missing"]))})
            layouts, samples = (
                {str(name): str(text) for name, text in origin[key].items()}
                for key in ("layouts", "samples")
            )
            return cls(dialect, tuple(map(str, origin["columns"])), layouts, samples)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def kind_from_name(name: str | os.PathLike[str], format: str | None = None) -> Kind:
    """The kind of a file by the suffixes of its name; a format that is given goes first.

    Example:
        >>> kind_from_name("table.csv.gz")
        Kind(format='csv', compression='gzip')
    """
    suffixes = [suffix.lower() for suffix in Path(str(name)).suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    inner = suffixes[:-1] if compression else suffixes
    result = SUFFIXES.get(inner[-1]) if inner else None
    if format is not None:
        return Kind(normalise_format(format), compression)
    if result is None and suffixes[-1:] == [".vfg"]:
        raise ValueError(f"{str(name)!r} is a model, not a table; name a model after -m")
    if result is None:
        raise ValueError(
            f"the format of {str(name)!r} is not known from its name; use one of "
            f"{', '.join(SUFFIXES)} (also with {', '.join(COMPRESSIONS)}), or give the format; "
            "the name of a folder has no suffix, or ends in /"
        )
    return Kind(result, compression)


def normalise_format(format: str) -> str:
    """A format under its own name.

    Example:
        >>> normalise_format("feather")
        'arrow'
    """
    result = ALIASES.get(format.lower(), format.lower())
    check_choice("the format", result, FORMATS)
    return result


def kind_from_bytes(start: bytes, format: str | None = None) -> Kind:
    """The kind of something without a name, by its first bytes; CSV if nothing else fits.

    Example:
        >>> kind_from_bytes(b"PAR1"), kind_from_bytes(b'{"a": 1}').format
        (Kind(format='parquet', compression=None), 'jsonl')
    """
    compression = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    if format is not None:
        return Kind(normalise_format(format), compression)
    if start.startswith(b"PAR1"):
        return Kind("parquet")
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return Kind("arrow")
    return Kind("jsonl" if start.lstrip()[:1] == b"{" else "csv", compression)


@contextmanager
def reading_errors(name: str, format: str) -> Iterator[None]:
    """Around whatever reads a file: what the file does wrong becomes one sentence."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} cannot be read as {format}: {one_line(error)}") from error


def one_line(error: Any) -> str:
    r"""The message of an error, on one line of bounded length.

    Example:
        >>> one_line(ValueError("first\nsecond"))
        'first second'
    """
    words = " ".join(str(error).split())
    return words if len(words) <= 300 else words[:300] + "…"


COPY = 1 << 20
"""How many bytes are copied at once."""
LEAST_FREE = 1 << 28
"""Bytes of the temporary disk that are left to others."""
MOST_PIPED = 1 << 36
"""Bytes of a piped table that are copied to the temporary disk, unless another number is given."""
NUL = re.compile(b"\0")


def check_text(data: Any, name: str) -> None:
    """Refuse bytes that no text has."""
    if data is not None and NUL.search(data):
        raise ValueError(
            f"{name} is not text in UTF-8: it has NUL bytes, as binary files and UTF-16 have; "
            "convert it, for example with iconv -t UTF-8"
        )


def open_bytes(path: Path | RemotePath, compression: str | None) -> Any:
    """A file's bytes as a stream, decompressed."""
    if isinstance(path, RemotePath):
        return pa.input_stream(path.open(), compression=compression)
    return pa.input_stream(str(path), compression=compression)


class TemporaryCopy:
    """A file on disk that is removed when nothing refers to this object any more."""

    def __init__(self, file: Any) -> None:
        self.name = file.name
        # Python 3.14 warns of temporary files that vanish without being closed.
        weakref.finalize(self, file.close)


def spool(stream: BinaryIO | Any, start: bytes = b"", most: int | None = None) -> TemporaryCopy:
    """A temporary file with what was read of a stream already, and all that is left of it.

    What comes through a pipe can be read only once, but tables are scanned before they are
    used; a file on disk keeps memory flat.
    """
    file = tempfile.NamedTemporaryFile(prefix="vfg-")  # noqa: SIM115
    try:
        file.write(start)
        copied, checked = len(start), 0
        while block := stream.read(COPY):
            file.write(block)
            copied += len(block)
            if most is not None and copied > most:
                raise ValueError(
                    f"the piped table has more than {most / 2**30:g} GiB; write it to a file and "
                    "name that, or raise the limit (--most-piped)"
                )
            if copied - checked > LEAST_FREE // 4:
                checked = copied
                if shutil.disk_usage(file.name).free < LEAST_FREE:
                    raise ValueError(
                        f"the piped table does not fit into {os.path.dirname(file.name)}; write it "
                        "to a file and name that, or set TMPDIR to a larger disk"
                    )
        file.flush()
    except BaseException:
        file.close()
        raise
    return TemporaryCopy(file)
