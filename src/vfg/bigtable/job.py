"""A folder to which a job writes a table in pieces, and from which it can resume."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vfg.bigtable.engines import batch_from_bytes, batch_to_bytes
from vfg.utils.files import UNFINISHED, write_atomically
from vfg.utils.remote import RemotePath

MANIFEST = "_manifest.json"
"""Names that begin so are no data to those who read a folder of Parquet files."""
KEPT_MODEL = "_model-"
"""How the names of models begin that are kept for jobs to continue."""
LOCK = ".lock"
VERSION = 1
"""The layout of manifests."""

CHANGED = {
    "input": "the input has changed",
    "model": "the model has changed",
    "filling": "the options have changed",
    "shard_rows": "the number of rows per shard has changed",
    "format": "the format has changed",
    "versions": "the version of vfg, torch or pyarrow has changed",
}
"""What is wrong when an entry of a manifest differs."""


@dataclass
class Manifest:
    """What a job is, and which of its shards are done."""

    job: dict[str, Any]
    shards: dict[str, int] = field(default_factory=dict)
    """Their numbers of rows."""
    rows: int | None = None
    """Of the whole table, once the job is done."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of the files of the shards; see `digest_file`."""

    def to_json(self) -> bytes:
        """The manifest as text."""
        return (json.dumps({"version": VERSION, **vars(self)}, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, path: Path | RemotePath) -> Manifest:
        """The inverse of `to_json`."""
        try:
            result = json.loads(data)
            if result["version"] != VERSION:
                raise ValueError(f"version {result['version']}")
            shards = {str(name): int(rows) for name, rows in result["shards"].items()}
            digests = dict(result.get("digests", {}))  # version 0.1 wrote none
            return cls(dict(result["job"]), shards, result["rows"], digests)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is not a readable manifest ({error!r}); name another folder, or "
                "remove this one"
            ) from error


class JobFolder:
    """A folder that belongs to one job; use it in a `with` statement, by `job_folder`."""

    def __init__(self, folder: Path | RemotePath, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def has(self, name: str) -> bool:
        """Whether a shard is done; one whose file is not what was written is named, and is not."""
        path = self.folder / name
        if name not in self.manifest.shards or not path.is_file():
            return False
        is_whole = self.manifest.digests.get(name) == digest_file(path)
        if not is_whole:
            warnings.warn(f"{path} was damaged or changed; it is written again", stacklevel=2)
        return is_whole

    def finish_shard(self, name: str, rows: int, digest: str | None = None) -> None:
        """Write down that a shard is done; its digest is read off its file if it is not given."""
        self.manifest.shards[name] = rows
        known = digest_file(self.folder / name) if digest is None else digest
        self.manifest.digests[name] = known
        self._write()

    def finish(self, rows: int) -> None:
        """Write down that everything is done."""
        self.manifest.rows = rows
        self._write()

    def keep_piece(self, name: str, batch: Any) -> None:
        """Write a record batch to a piece, whole or not at all."""
        write_atomically(self.folder / name, batch_to_bytes(batch))

    def pieces(self, names: Iterable[str]) -> Iterator[Any]:
        """The record batches of pieces, bit for bit."""
        for name in names:
            yield batch_from_bytes((self.folder / name).read_bytes())

    def _write(self) -> None:
        write_atomically(self.folder / MANIFEST, self.manifest.to_json())


def digest_file(path: Path | RemotePath) -> str:
    """Size and digest of a file; of no file, an empty text.

    Example:
        >>> digest_file(Path("nowhere"))
        ''
    """
    try:
        if isinstance(path, RemotePath):  # its store checks what it holds
            return f"{path.stat().st_size}:{path.stat().st_mtime_ns}"
        with open(path, "rb") as file:
            return f"{path.stat().st_size}:{hashlib.file_digest(file, 'blake2b').hexdigest()[:40]}"
    except FileNotFoundError:
        return ""


@contextmanager
def job_folder(folder: Path | RemotePath, job: dict[str, Any]) -> Iterator[JobFolder]:
    """The folder of a job, made or gone on with, locked, and without unfinished files."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a folder, or remove it")
    check_contents(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        for rest in folder.glob(f"{UNFINISHED}*"):
            rest.unlink(missing_ok=True)
        opened = JobFolder(folder, _manifest(folder, job))
        opened._write()
        yield opened


@contextmanager
def pieces_of(target: Path | RemotePath, job: dict[str, Any]) -> Iterator[JobFolder]:
    """A hidden folder for the pieces of one file, made or gone on with, and removed at the end.

    If the block fails, the folder stays as soon as it has a piece, for the job to go on from.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     with pieces_of(Path(name, "table.csv"), {}) as place:
        ...         print(place.folder.name)
        ...     os.listdir(name)
        .table.csv.pieces
        []
    """
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file")
    if isinstance(target, Path) and not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it first")
    folder = pieces_folder(target)
    made: JobFolder | None = None
    try:
        with job_folder(folder, job) as made:
            yield made
    except BaseException:
        has_model = any(folder.glob(f"{KEPT_MODEL}*"))
        if made is not None and not made.manifest.shards and not has_model:
            remove_folder(folder)
        raise
    remove_folder(folder)


def remove_folder(folder: Path | RemotePath) -> None:
    """Remove a folder and what is in it."""
    if isinstance(folder, RemotePath):
        folder.rmtree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def pieces_folder(target: Path | RemotePath) -> Path | RemotePath:
    """The hidden folder with the pieces of a file.

    Example:
        >>> pieces_folder(Path("table.csv")).name
        '.table.csv.pieces'
    """
    return target.parent / f".{target.name}.pieces"


@contextmanager
def lock_folder(folder: Path | RemotePath) -> Iterator[None]:
    """A lock that only one process has, and that ends with it, however it ends.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name, lock_folder(Path(name)):
        ...     os.listdir(name)
        ['.lock']
    """
    if isinstance(folder, RemotePath):  # stores have no locks
        yield
        return
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise BlockingIOError(
            f"another job is writing to {folder}; wait for it, or name another folder"
        ) from error


def check_contents(folder: Path | RemotePath) -> None:
    """Refuse a folder with files that no job of ours can have left."""
    if not folder.exists() or (folder / MANIFEST).exists():
        return
    ours = (LOCK, UNFINISHED, KEPT_MODEL)
    strange = sorted(path.name for path in folder.iterdir() if not path.name.startswith(ours))
    if strange:
        raise ValueError(
            f"the folder {folder} is not empty ({strange[0]}) and has no {MANIFEST} of a job to "
            "continue; name another folder"
        )


def _manifest(folder: Path | RemotePath, job: dict[str, Any]) -> Manifest:
    path = folder / MANIFEST
    if not path.exists():
        return Manifest(job)
    result = Manifest.from_json(path.read_bytes(), path)
    # Through JSON, so that both sides have its types.
    for key, value in json.loads(json.dumps(job)).items():
        if result.job.get(key) != value:
            raise ValueError(
                f"the folder {folder} holds a job that this one cannot continue: "
                f"{CHANGED.get(key, key)}; name another folder, or remove it"
            )
    return result
