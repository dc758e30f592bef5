"""Atomic writing of files: a reader sees the old content or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write to a temporary name beside `path`, sync, rename; on failure nothing is left behind.

    Args:
        path: the file to create or replace.
        data: its whole content.

    Raises:
        FileNotFoundError: if the folder does not exist.
        OSError: if the disk is full or the folder cannot be written to.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "a", b"content")
        ...     Path(folder, "a").read_bytes(), os.listdir(folder)
        (b'content', ['a'])
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it first")
    handle, temporary = tempfile.mkstemp(prefix=".vfg-", dir=target.parent)
    try:
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's mode would exclude other users
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _umask() -> int:
    """The mode bits that new files must not have; the system returns them only when set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
