"""Where published data come from: the user's folder, or a download with a checksum."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfg.utils.files import write_atomically

PATIENCE = 20
"""Seconds without an answer after which a download is given up."""


def archive(file: str) -> dict[str, NDArray[Any]] | None:
    """The arrays of an npz file in the folder that `VFG_DATA` names, None if it is not there.

    Example:
        >>> archive("no such file.npz") is None
        True
    """
    folder = os.environ.get("VFG_DATA")
    if folder is None or not (Path(folder) / file).is_file():
        return None
    with np.load(Path(folder) / file) as result:
        return dict(result)


def download(what: str, url: str, digest: str, *, instead: str) -> bytes:
    """The content of a public file, uncompressed, from the cache or else from the network.

    `digest` is the checksum of the uncompressed content, as in `"sha256:e3b0..."`. Messages name
    `what` the data are and the file that `VFG_DATA` could offer `instead`.
    """
    kept = cache() / url.rsplit("/", 1)[-1].removesuffix(".gz")
    if kept.is_file() and is_intact(kept.read_bytes(), digest):
        return kept.read_bytes()
    request = urllib.request.Request(url, headers={"User-Agent": "vfg"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            content: bytes = answer.read()
        if url.endswith(".gz"):
            content = gzip.decompress(content)
    except (OSError, EOFError, http.client.HTTPException) as error:
        raise missing_data_error(what, instead, f"{url} cannot be downloaded ({error})") from error
    if not is_intact(content, digest):
        raise missing_data_error(
            what, instead, f"the content of {url} does not have the checksum {digest}"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, content)
    return content


def cache() -> Path:
    """The folder that keeps downloads: `vfg` in `XDG_CACHE_HOME`, by default `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vfg"


def is_intact(content: bytes, digest: str) -> bool:
    """Whether content has a checksum.

    Example:
        >>> is_intact(b"", "md5:d41d8cd98f00b204e9800998ecf8427e")
        True
    """
    algorithm, expected = digest.split(":")
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() == expected


def missing_data_error(what: str, file: str, reason: str) -> FileNotFoundError:
    """The error for data that are neither in the user's folder nor downloadable."""
    return FileNotFoundError(
        f"{what} cannot be loaded: set the environment variable VFG_DATA to a folder that holds "
        f"{file}, because {reason}"
    )
