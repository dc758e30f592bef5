"""Save and load: a model that a file describes is first built without memory and under limits."""

from __future__ import annotations

import io
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vfg.modelfile.container import (
    Contents,
    Entry,
    UnreadableError,
    error_context,
    fields_of,
    pack,
    read_contents,
    read_tensors,
    upgrade,
)
from vfg.modelfile.registry import class_of
from vfg.training.data import check_device
from vfg.utils.files import write_atomically
from vfg.utils.remote import RemotePath, is_remote

LARGEST_TABLES = 2**28
"""Most numbers of a model besides its state, such as tables of coordinates; 1 GiB in float32."""

ADDED = re.compile(r"(^|\.)spread\.(log_softness|knows_roots|root_(mean|factor)\d+|section\d+)$")
"""Tensors of the calibration that earlier files lack; models then have them at their start."""


def build_model(fields: dict[str, Any]) -> Any:
    """The model that the fields of a file of any schema describe, in any state."""
    try:
        current = upgrade(fields)
        return class_of(current["kind"]).from_dict(current["model"])
    except (UnreadableError, RecursionError):
        raise
    except Exception as error:  # the description may be anything, and so may what goes wrong
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 300).rstrip(".")
        raise UnreadableError(f"has a malformed configuration ({reason})") from error


def _read_buildable(stream: BinaryIO, size: int) -> Contents:
    """Everything before the data, checked so far that a model of the data's size can be built.

    The model is built on the meta device, where tensors take no memory.
    """
    contents = read_contents(stream, size)
    _check_sizes(contents.fields["model"], contents.numbers)
    mode = _MetaMode(
        most_numbers=16 * contents.numbers + LARGEST_TABLES,
        most_calls=contents.header_size // 8 + 1000,
    )
    with torch.device("meta"), mode:
        state = build_model(contents.fields).state_dict()
    _check_state(state, contents.entries)
    return contents


def _check_sizes(description: Mapping[str, Any], numbers: int) -> None:
    """Refuse sizes so large that listing coordinates or layers would take the memory already.

    Every coordinate of a node has at least one number in the state.
    """
    sizes = [(name, size) for name, size in _sizes(description) if name != "seed"]
    total = sum(size for name, size in sizes if name == "width")
    name, largest = max(sizes, key=lambda item: item[1], default=("", 0))
    if total > numbers + 2**12 or largest > numbers + 2**24:
        name, largest = ("width", total) if total > numbers + 2**12 else (name, largest)
        raise UnreadableError(
            f"describes a model that its {numbers} numbers cannot fill: {name!r} is {largest}"
        )


def _sizes(description: Any) -> Iterator[tuple[str, int]]:
    """Every whole number of a description with the name that it stands under."""
    waiting = [description]
    for part in waiting:  # grows while it is read
        if isinstance(part, dict):
            yield from ((name, size) for name, size in part.items() if isinstance(size, int))
        children = part.values() if isinstance(part, dict) else part
        waiting += [child for child in children if isinstance(child, dict | list)]


class _MetaMode(TorchFunctionMode):
    """Makes all tensors on the meta device, where they take no memory, and only so many."""

    def __init__(self, *, most_numbers: int, most_calls: int) -> None:
        super().__init__()
        self.numbers_left, self.calls_left = most_numbers, most_calls

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # Nothing is drawn, and a generator of the CPU would be refused.
        options = {key: value for key, value in (kwargs or {}).items() if key != "generator"}
        if "device" in options:
            options["device"] = "meta"
        result = _outline(func, args, options)
        if result is None:
            result = func(*args, **options)
        if isinstance(result, Tensor):
            self.numbers_left -= 0 if result._is_view() else result.numel()
            self.calls_left -= 1
            if self.numbers_left < 0 or self.calls_left < 0:
                raise UnreadableError("describes a model far larger than its tensors")
        return result


_ARITHMETIC = (Tensor.mul, Tensor.sub, Tensor.div, Tensor.__rsub__, Tensor.lt)
_UNCHANGED = (Tensor.normal_, Tensor.scatter_, torch.nn.functional.normalize)
_SORTED = (torch.argsort, Tensor.argsort)


def _outline(func: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Tensor | None:
    """The result of a function on the meta device where shapes and types alone decide it.

    Kernels of the meta device that are written in Python import torch's compiler when they are
    first called, which takes longer than all the rest of loading a small model. These functions
    are those that constructors of models call; others return None and are called as ever.
    """
    first: Any = args[0] if args else None
    if func in _UNCHANGED:
        return torch.as_tensor(first)
    if func in (torch.rand, torch.randn):
        return torch.empty(*args, **options)
    if func is torch.linspace and len(args) == 3:
        return torch.empty(args[2], **options)
    if func is torch.eye and len(args) == 1:
        return torch.empty(first, first, **options)
    if options:
        return None
    if func is Tensor.repeat and len(args) > first.ndim and isinstance(args[1], int):
        shape = (1,) * (len(args) - 1 - first.ndim) + first.shape
        return torch.empty([a * b for a, b in zip(shape, args[1:], strict=True)], dtype=first.dtype)
    if func is torch.arange and all(isinstance(end, int) for end in args):
        return torch.empty(len(range(*args)), dtype=torch.long)
    if func in _SORTED:
        return torch.empty(first.shape, dtype=torch.long)
    if func is torch.stack and len(args) == 1:
        return torch.empty(len(first), *first[0].shape, dtype=first[0].dtype)
    if func in _ARITHMETIC:
        shape = np.broadcast_shapes(*(part.shape for part in args if isinstance(part, Tensor)))
        if func is Tensor.lt:
            return torch.empty(shape, dtype=torch.bool)
        if torch.result_type(*args).is_floating_point:
            return torch.empty(shape, dtype=torch.result_type(*args))
    return None


def _check_state(state: Mapping[str, Tensor], entries: Mapping[str, Entry]) -> None:
    for name in state:
        if name not in entries and not ADDED.search(name):
            raise UnreadableError(f"lacks the tensor {name!r}, which its model has")
    for name, entry in entries.items():
        if name not in state:
            raise UnreadableError(f"has the tensor {name!r}, which its model does not have")
        expected = state[name]
        if entry.shape != tuple(expected.shape):
            raise UnreadableError(
                f"has the tensor {name!r} of shape {entry.shape}, but its model needs "
                f"{tuple(expected.shape)}"
            )
        both_float = entry.dtype.is_floating_point and expected.is_floating_point()
        if entry.dtype != expected.dtype and not both_float:
            raise UnreadableError(
                f"has the tensor {name!r} of dtype {entry.dtype}, but its model needs "
                f"{expected.dtype}"
            )


Device = torch.device | str | int
FilePath = str | os.PathLike[str]


def save(model: Any, path: FilePath) -> None:
    """Write a model to a file.

    The file appears under its name only when it is complete. An existing file is replaced; if
    anything fails, it stays as it was. The file may contain rows of the training data, so a new
    file can be read only by its owner; a file that is replaced keeps its mode.

    Args:
        model: a model of any kind, on any device, or a fitted `VFGImputer`, whose model is saved.
        path: where to; by convention its name ends in `.vfg`. Also a URL such as
            `s3://bucket/model.vfg`.

    Raises:
        FileNotFoundError: if the folder does not exist.
        TypeError: if the class of the model is not registered.
        ValueError: if the file could not be loaded again.

    Example:
        >>> import tempfile, vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/model.vfg")
        ...     load(f"{folder}/model.vfg").graph == model.graph
        True
    """
    write_atomically(path, dumps(model), private=True)


def load(path: FilePath, device: Device | None = None) -> Any:
    """Read a model from a file that `save` wrote, with the same weights bit for bit.

    Args:
        path: the file, or its URL.
        device: where to put the model; None (default) means the CPU, wherever it was saved from.

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
    if is_remote(path):
        remote = RemotePath(str(path))
        if not remote.is_file():
            raise FileNotFoundError(f"there is no model file {str(remote)!r}")
        with error_context(repr(str(remote))):
            return loads(remote.read_bytes(), device)
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no model file {str(path)!r}")
    with open(path, "rb") as stream, error_context(repr(str(path))):
        return _read(stream, os.fstat(stream.fileno()).st_size, device)


def dumps(model: Any) -> bytes:
    """The bytes that `save` writes; equal for equal models.

    Args:
        model: the model, on any device.

    Raises:
        TypeError, ValueError: as in `save`.

    Example:
        >>> import vfg
        >>> data = dumps(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2)))
        >>> dumps(loads(data)) == data
        True
    """
    model = getattr(model, "model_", model)  # what a scikit-learn estimator has fitted
    data = pack(fields_of(model), model.state_dict())
    with error_context("this model cannot be saved: its file"):
        _read_buildable(io.BytesIO(data), len(data))
    return data


def loads(data: bytes, device: Device | None = None) -> Any:
    """The model in the bytes that `dumps` returned; see `load`.

    Args:
        data: the bytes.
        device: where to put the model; None means the CPU.

    Raises:
        ValueError: as in `load`.

    Example:
        >>> loads(b"")
        Traceback (most recent call last):
        ValueError: the data is empty; a model written by vfg.save was expected
    """
    with error_context("the data"):
        return _read(io.BytesIO(data), len(data), device)


def _read(stream: BinaryIO, size: int, device: Device | None) -> Any:
    where = check_device("cpu" if device is None else device)
    contents = _read_buildable(stream, size)
    tensors = read_tensors(stream, contents)
    fields = contents.fields
    with torch.device("cpu"):
        model = build_model(fields).to(getattr(torch, fields["dtype"]))
    # Assigned, not copied: each tensor keeps the dtype that it was saved with.
    model.load_state_dict({**model.state_dict(), **tensors}, strict=True, assign=True)
    return model.eval().to(where)
