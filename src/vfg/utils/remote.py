"""Files in object stores and shared file systems, by URL: `s3://`, `gs://`, `hdfs://`, `memory://`.

They are reached through fsspec, which torch installs; each kind of store needs a package of its
own, such as s3fs or gcsfs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, BinaryIO

from vfg.utils.extras import needs

URL = re.compile(r"^([a-z][a-z0-9+.-]+):/+(?=[^/])")
"""A scheme of two letters or more, which no drive has. `Path` leaves one slash of two."""
WHOLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""Stores in which a file appears when it is closed; in others it is written and then renamed."""
STORES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
    "http": "aiohttp requests",
    "https": "aiohttp requests",
}
"""Packages that fsspec needs for a kind of store."""
HOSTED = ("hdfs", "webhdfs", "sftp", "ssh", "ftp", "smb")
"""Stores whose URLs begin with a host, which is no part of the paths that they list."""


def is_remote(place: Any) -> bool:
    """Whether a place is a URL of a store.

    Example:
        >>> is_remote("s3://bucket/table.parquet"), is_remote("table.csv"), is_remote("C:/table")
        (True, False, False)
    """
    if isinstance(place, RemotePath):
        return True
    match = URL.match(str(place)) if isinstance(place, str | os.PathLike) else None
    return match is not None and match[1] != "file"


def as_path(place: str | os.PathLike[str]) -> Path | RemotePath:
    """A path on this machine, or in a store.

    Example:
        >>> as_path("memory://a/b.csv") / "c", as_path("a").name
        (RemotePath('memory://a/b.csv/c'), 'a')
    """
    if isinstance(place, RemotePath):
        return place
    return RemotePath(str(place)) if is_remote(place) else Path(place)


def open_binary(path: Path | RemotePath) -> BinaryIO:
    """A file to read, on this machine or in a store."""
    return path.open() if isinstance(path, RemotePath) else open(path, "rb")


class RemotePath(os.PathLike[str]):
    """A file or folder in a store, with the methods of `pathlib.Path` that are needed.

    Args:
        url: where it is.

    Raises:
        ImportError: if the package for this kind of store is not installed.
        ValueError: for a kind of store that fsspec does not know.
    """

    def __init__(self, url: str) -> None:
        match = URL.match(url)
        if match is None:
            raise ValueError(f"{url!r} is no URL of a store, such as s3://bucket/table.parquet")
        self.scheme = match[1]
        # Without a host, hdfs:///path means the one that Hadoop's configuration calls the default.
        host = "default/" if url.startswith("hdfs:///") else ""
        self.path = PurePosixPath(host + url[match.end() :])

    @cached_property
    def store(self) -> Any:
        """The file system of fsspec."""
        with needs("table"):
            from fsspec.core import url_to_fs
        try:
            return url_to_fs(str(self))[0]
        except ImportError as error:
            package = STORES.get(self.scheme, "")
            remedy = f"pip install {package}" if package else str(error)
            raise ImportError(
                f"{self.scheme}:// needs a package that is not installed: {remedy}"
            ) from error
        except OSError as error:
            if not re.search("lib(jvm|hdfs)", str(error)):
                raise
            raise ImportError(
                "hdfs:// needs Java and Hadoop's libhdfs, which pyarrow did not find; install "
                "them and set JAVA_HOME and HADOOP_HOME, or use webhdfs://host:port/path"
            ) from error
        except ValueError as error:
            known = ", ".join(f"{scheme}://" for scheme in STORES)
            raise ValueError(
                f"{self} cannot be opened: {error}; known stores are {known} and hdfs://"
            ) from error

    def __fspath__(self) -> str:
        return str(self)  # the URL, which no function of `os` finds

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: RemotePath) -> bool:
        return str(self) < str(other)

    def __reduce__(self) -> Any:
        return RemotePath, (str(self),)

    def __truediv__(self, name: str) -> RemotePath:
        return self._at(self.path / name)

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.name

    @property
    def suffix(self) -> str:
        """What the name ends with, from its last point on."""
        return self.path.suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return self._at(self.path.parent)

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        return bool(self.store.exists(str(self)))

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self.store.isfile(str(self)))

    def is_dir(self) -> bool:
        """Whether it is a folder, with files in it."""
        return bool(self.store.isdir(str(self)))

    def stat(self) -> Any:
        """Size, and numbers that change when the file is written."""
        known = self.store.info(str(self))
        changed = [str(known.get(key)) for key in ("ETag", "etag", "mtime", "LastModified")]
        changed += [str(known.get(key)) for key in ("created", "generation", "modificationTime")]
        return SimpleNamespace(st_size=int(known["size"]), st_mtime_ns="|".join(changed), st_ino=0)

    def open(self, mode: str = "rb") -> Any:
        """The file, to read or to write."""
        return self.store.open(str(self), mode)

    def read_bytes(self) -> bytes:
        """The content."""
        return bytes(self.store.cat_file(str(self)))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Files and folders below, by a pattern."""
        for result in self.store.glob(f"{self}/{pattern}"):
            yield self._path_of(str(result))

    def matches(self) -> list[RemotePath]:
        """What there is if the name is a pattern."""
        return [self._path_of(str(result)) for result in self.store.glob(str(self))]

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """As `glob`, in all folders below."""
        return self.glob(f"**/{pattern}")

    def iterdir(self) -> Iterator[RemotePath]:
        """What is in the folder."""
        return self.glob("*")

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder, where the store has such."""
        self.store.makedirs(str(self), exist_ok=True)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file."""
        if not missing_ok or self.is_file():
            self.store.rm_file(str(self))

    def rmtree(self) -> None:
        """Remove the folder and what is in it."""
        if self.exists():
            self.store.rm(str(self), recursive=True)

    def write(self, content: BinaryIO) -> None:
        """Write a whole file, which others see when it is complete."""
        import shutil

        target = self if self.scheme in WHOLE else self.parent / f".vfg-{self.name}"
        with target.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        if target != self:
            self.store.mv(str(target), str(self))

    def _path_of(self, path: str) -> RemotePath:
        """A path that the store lists."""
        host = self.path.parts[0] if self.scheme in HOSTED else ""
        return self._at(PurePosixPath(host, path.lstrip("/")))

    def _at(self, path: PurePosixPath) -> RemotePath:
        return RemotePath(f"{self.scheme}://{path}")
