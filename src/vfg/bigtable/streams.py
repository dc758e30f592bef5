"""Streams of bytes that tables are read from: decompressed, checked, bounded."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa

COPY = 1 << 20
"""How many bytes are copied at once."""
NUL = re.compile(b"\0")


class TextStream(io.RawIOBase):
    """The bytes of a text file, refused as soon as they hold what no text does.

    Args:
        inner: the stream of bytes.
        name: of the file, for errors.

    Raises:
        ValueError: while reading, for NUL bytes.
    """

    def __init__(self, inner: Any, name: str) -> None:
        super().__init__()
        self.inner = inner
        self.name = name

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block: bytes = self.inner.read(size if size >= 0 else None)
        check_text(block, self.name)
        return block

    def close(self) -> None:
        self.inner.close()
        super().close()


def check_text(data: Any, name: str) -> None:
    """Refuse bytes that no text has.

    Args:
        data: bytes, or a buffer of them; None for none.
        name: of the file that they come from.

    Raises:
        ValueError: for NUL bytes.
    """
    if data is not None and NUL.search(data):
        raise ValueError(
            f"{name} is no text in UTF-8: it has NUL bytes, as binary files and UTF-16 have; "
            "convert it, say with iconv -t UTF-8"
        )


def open_bytes(path: Path, compression: str | None) -> Any:
    """A file's bytes as a stream, decompressed."""
    return pa.input_stream(str(path), compression=compression)


def open_text(path: Path, compression: str | None, name: str) -> TextStream:
    """A text file's bytes as a stream, decompressed and checked."""
    return TextStream(open_bytes(path, compression), name)


def spooled(stream: BinaryIO | Any) -> Any:
    """A temporary file with everything that a stream has to give.

    What comes through a pipe can be read only once, but tables are looked through before they are
    used; a file on disk keeps memory flat. It vanishes when it is closed.
    """
    file = tempfile.NamedTemporaryFile(prefix="vfg-")  # noqa: SIM115
    try:
        shutil.copyfileobj(stream, file, COPY)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file
