"""Models to files and back."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import torch

from vfg.modelfile.container import (
    Contents,
    error_context,
    fields_of,
    packed,
    read_contents,
    read_tensors,
)
from vfg.modelfile.safe_build import build_model, check_buildable
from vfg.utils.files import write_atomically

Device = torch.device | str | int
FilePath = str | os.PathLike[str]


def save(model: Any, path: FilePath) -> None:
    """Write a model to a file, whole or not at all.

    The file appears under its name only when everything is on the disk; one that was there before
    is replaced, and stays as it was if anything fails.

    Args:
        model: a model of any kind, on any device, or a fitted `VFGImputer`, whose model is saved.
        path: where to; by convention its name ends in `.vfg`.

    Raises:
        FileNotFoundError: if the folder does not exist.
        TypeError: if the model is of a class that files do not know.
        ValueError: if the file could not be loaded again.

    Example:
        >>> import tempfile, vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/model.vfg")
        ...     load(f"{folder}/model.vfg").graph == model.graph
        True
    """
    write_atomically(Path(path), dumps(model))


def load(path: FilePath, device: Device | None = None) -> Any:
    """Read a model from a file that `save` wrote, with the same weights bit for bit.

    Args:
        path: the file.
        device: where to put the model; None means the CPU, wherever it was saved from.

    Returns:
        The model, of the class and dtype that it was saved with, in evaluation mode.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a model file, is truncated, damaged or altered, or was written by
            a newer version of vfg.

    Example:
        >>> load("nothing.vfg")
        Traceback (most recent call last):
        FileNotFoundError: there is no model file 'nothing.vfg'
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no model file {str(path)!r}")
    with open(path, "rb") as stream, error_context(repr(str(path))):
        return _read(stream, os.fstat(stream.fileno()).st_size, device)


def dumps(model: Any) -> bytes:
    """The bytes that `save` writes; equal for equal models.

    Args:
        model: the model, on any device.

    Raises:
        TypeError: if the model is of a class that files do not know.
        ValueError: if the bytes could not be loaded again.

    Example:
        >>> import vfg
        >>> data = dumps(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2)))
        >>> dumps(loads(data)) == data
        True
    """
    model = getattr(model, "model_", model)  # what a scikit-learn estimator has fitted
    data = packed(fields_of(model), model.state_dict())
    with error_context("this model cannot be saved: its file"):
        _rehearsed_contents(io.BytesIO(data), len(data))
    return data


def loads(data: bytes, device: Device | None = None) -> Any:
    """The model in the bytes that `dumps` returned; see `load`.

    Args:
        data: the bytes.
        device: where to put the model; None means the CPU.

    Returns:
        The model.

    Raises:
        ValueError: as in `load`.

    Example:
        >>> loads(b"")
        Traceback (most recent call last):
        ValueError: the data is empty; a model written by vfg.save was expected
    """
    with error_context("the data"):
        return _read(io.BytesIO(data), len(data), device)


def _rehearsed_contents(stream: BinaryIO, size: int) -> Contents:
    """Everything before the data, checked so far that a model of the data's size can be built."""
    contents = read_contents(stream, size)
    check_buildable(contents)
    return contents


def _read(stream: BinaryIO, size: int, device: Device | None) -> Any:
    contents = _rehearsed_contents(stream, size)
    tensors = read_tensors(stream, contents)
    fields = contents.fields
    with torch.device("cpu"):
        model = build_model(fields).to(getattr(torch, fields["dtype"]))
    # Assigned, not copied: each tensor keeps the dtype that it was saved with.
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval().to(torch.device("cpu" if device is None else device))
