"""Writing of files: as a whole or not at all, and through devices, pipes and standard output."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from vfg.utils.remote import RemotePath, is_remote

UNFINISHED = ".vfg-"
"""How the names of files begin that are still being written."""
STREAMS = ("/dev/fd/", "/dev/std", "/proc/")
"""How names of open files begin, such as `/dev/stdout`; files in `/dev/shm` are plain ones."""


def write_atomically(path: str | os.PathLike[str], data: bytes, *, private: bool = False) -> None:
    """Write a file whole or not at all; see `open_target`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "a", b"content")
        ...     Path(folder, "a").read_bytes(), os.listdir(folder)
        (b'content', ['a'])
    """
    with open_target(path, private=private) as file:
        file.write(data)


@contextmanager
def open_target(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to: a plain file is replaced as a whole, a device or pipe written through.

    A plain file, or the one that a symbolic link points to, is written under a temporary name
    beside it, synced and renamed at the end of the block. It keeps its mode; a new one that is
    `private` is for its owner alone. If the block fails, the temporary file is removed and the
    target is untouched. The temporary name follows from the target's, so that the next run takes
    over what a killed process left. A file in a store is written at the end of the block.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(prefix=UNFINISHED) as folder:
            copy = Path(folder, "content")
            with open(copy, "wb") as file:
                yield file
            with open(copy, "rb") as content:
                RemotePath(str(path)).write(content)
        return
    if is_stream(path):
        with open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it first")
    temporary, lock = _open_temporary(target)
    try:
        _copy_mode(target, lock, 0o600 if private else 0o666)
        with open(temporary, "wb") as file:
            yield file
        os.fsync(lock)
        if os.name == "nt":  # where open files cannot be renamed
            os.close(lock)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if os.name != "nt":
            os.close(lock)
    sync_folder(target.parent)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a name is that of a device, a pipe or an open file, which cannot be replaced.

    Example:
        >>> is_stream("/dev/null"), is_stream("table.csv")
        (True, False)
    """
    if isinstance(path, RemotePath):
        return False
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISDIR(mode):
        return False
    return not stat.S_ISREG(mode) or os.path.abspath(path).startswith(STREAMS)


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output for bytes; whatever is written arrives, or an OSError says that it did not.

    What others print to standard output meanwhile, such as the log of an engine, goes to standard
    error, so that it is no part of a table.
    """
    if sys.stdout is None:
        raise OSError("standard output is closed; name a file")
    stream = sys.stdout.buffer
    if _is_file(stream):
        sys.stdout.flush()
        own = os.dup(stream.fileno())
        os.dup2(2, stream.fileno())
        try:
            with open(own, "wb", closefd=False) as file:
                yield file
        finally:
            with suppress(OSError):
                sys.stdout.flush()  # what was printed meanwhile
            os.dup2(own, stream.fileno())
            os.close(own)
        return
    if not isinstance(stream, io.RawIOBase):
        yield stream
        stream.flush()
        return
    yield cast(BinaryIO, _WholeWrites(stream))


class _WholeWrites(io.BufferedIOBase):
    """A stream without a buffer, whose writes may take a part, as one that takes everything.

    A buffered writer would try again to write what a full disk refused when it is deleted.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self.whole = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            taken = self.whole.write(rest)
            if taken is None:
                raise BlockingIOError("standard output accepts no data now; name a file")
            rest = rest[taken:]
        return size


def _is_file(stream: BinaryIO) -> bool:
    """Whether a stream is the first output of the process, and not a buffer in its place."""
    try:
        return stream.fileno() == 1
    except (OSError, ValueError, AttributeError):
        return False


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_temporary(target: Path) -> tuple[Path, int]:
    """A temporary file of our own beside a target, and a handle that keeps it locked."""
    # A digest, as the target's own name may be as long as names can be.
    digest = hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()
    for number in itertools.count():
        temporary = target.parent / f"{UNFINISHED}{digest}{f'-{number}' if number else ''}"
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            handle = os.open(temporary, flags, 0o600)
        except OSError:
            if not temporary.is_symlink():
                raise
            continue
        if _own(handle, temporary):
            return temporary, handle
        os.close(handle)
    raise AssertionError("there is always a next number")


def _own(handle: int, path: Path) -> bool:
    """Lock an open file until it is closed; False if it is another process's or user's."""
    if os.name == "nt":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network disks know no locks
        pass
    opened = os.fstat(handle)
    try:  # the one that had the lock may have given the file its name
        return opened.st_uid == os.geteuid() and os.path.samestat(opened, os.stat(path))
    except FileNotFoundError:
        return False


def _copy_mode(target: Path, handle: int, new: int) -> None:
    """Give an open file the mode and owner of the target; without one, a mode for new files."""
    if os.name == "nt":
        return
    try:
        known = target.stat()
    except FileNotFoundError:
        mask = os.umask(0o077)  # the system returns it only when it is set
        os.umask(mask)
        os.fchmod(handle, new & ~mask)
        return
    os.fchmod(handle, stat.S_IMODE(known.st_mode))
    with suppress(OSError):
        os.fchown(handle, known.st_uid, known.st_gid)
