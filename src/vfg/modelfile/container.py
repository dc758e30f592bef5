"""The layout of a model file: safetensors with a header, fields, tensors and a digest."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from vfg.modelfile.registry import kind_of, known_kinds
from vfg.modelfile.summary import DTYPES, digest_contents, summary_of

UPGRADES: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = ()
"""The steps from every schema to the next: the first takes the fields of schema 1 to schema 2."""
SCHEMA = 1 + len(UPGRADES)
"""The layout that `save` writes; `load` reads it and all earlier ones."""

LONGEST_HEADER = 16 * 2**20
"""The most bytes of names, shapes and JSON in a file; they are read before anything is checked."""


class UnreadableError(ValueError):
    """What is wrong with a file, as the rest of a sentence that begins with the file's name."""


@contextmanager
def error_context(source: str) -> Iterator[None]:
    """Begin the messages of unreadable files with the name of the file."""
    try:
        yield
    except UnreadableError as error:
        raise ValueError(f"{source} {error}") from error.__cause__
    except RecursionError as error:
        raise ValueError(f"{source} is damaged: its JSON is nested too deeply") from error


class Entry(NamedTuple):
    """Where a tensor lies in the data part of a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Contents(NamedTuple):
    """The contents of a file before its data."""

    fields: dict[str, Any]
    entries: dict[str, Entry]
    header_size: int

    @property
    def numbers(self) -> int:
        """How many numbers all tensors have together."""
        return sum(math.prod(entry.shape) for entry in self.entries.values())


# Writing.


def fields_of(model: Any) -> dict[str, Any]:
    """The fields of a file about a model, without the digest."""
    from vfg import __version__  # not set yet when the package imports this module

    kind = kind_of(model)
    return {
        "schema": SCHEMA,
        "kind": kind,
        "model": model.to_dict(),
        **summary_of(model, kind),
        "dtype": _name_of(next(model.parameters()).dtype),
        "versions": {
            "vfg": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def pack(fields: Mapping[str, Any], state: Mapping[str, Tensor]) -> bytes:
    """The file with these fields, a digest and these tensors."""
    signed = json.loads(json.dumps(fields, allow_nan=False))
    # Copies, because safetensors refuses tensors that share memory.
    form = torch.contiguous_format
    tensors = {
        name: tensor.detach().to("cpu", copy=True, memory_format=form)
        for name, tensor in state.items()
    }
    signed["digest"] = _digest(signed, tensors)
    return safetensors.torch.save(tensors, {"vfg": json.dumps(signed)})


def _digest(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the fields and of names, dtypes, shapes and bytes, in the order of the names."""
    names = sorted(tensors)
    listed = [[name, _name_of(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    return digest_contents(fields, listed, (_bytes_of(tensors[name]) for name in names))


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


# Reading.


def read_contents(stream: BinaryIO, size: int) -> Contents:
    """Everything before the data, checked so far that the data can be read."""
    header_size = _header_size(stream, size)
    header = _parse_json(stream.read(header_size), "header")
    fields = _fields(header)
    listed = [(name, _entry(name, header[name])) for name in header if name != "__metadata__"]
    entries = dict(sorted(listed, key=lambda item: item[1][2:]))  # in the order of their bytes
    _check_tiling(entries, size - 8 - header_size)
    return Contents(fields, entries, header_size)


def _header_size(stream: BinaryIO, size: int) -> int:
    if size == 0:
        raise UnreadableError("is empty; a model written by vfg.save was expected")
    start = stream.read(9)
    length = int.from_bytes(start[:8], "little")
    if len(start) < 9 or not 2 <= length <= LONGEST_HEADER or start[8:] != b"{":
        raise UnreadableError("is not a model file; one written by vfg.save was expected")
    if length > size - 8:
        raise _truncation(size, 8 + length)
    stream.seek(8)
    return length


def _truncation(size: int, promised: int) -> UnreadableError:
    return UnreadableError(
        f"is truncated: {promised - size} bytes or more are missing; copy or save it again"
    )


def _parse_json(text: bytes | str, what: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise UnreadableError(f"is damaged: its {what} is not JSON; get a fresh copy") from error
    if not isinstance(parsed, dict):
        raise UnreadableError(f"is damaged: its {what} is not a JSON object; get a fresh copy")
    return parsed


def _refuse_constant(word: str) -> None:
    """NaN and infinities, which no file of ours has, and JSON does not know."""
    raise ValueError(word)


def _fields(header: Mapping[str, Any]) -> dict[str, Any]:
    metadata = header.get("__metadata__")
    text = metadata.get("vfg") if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise UnreadableError("is a safetensors file without a vfg model; save models by vfg.save")
    fields = _parse_json(text, "vfg entry")
    schema, versions = fields.get("schema"), fields.get("versions")
    if type(schema) is not int or schema < 1:
        raise UnreadableError(f"has a malformed configuration: its schema is {schema!r}")
    if schema > SCHEMA:
        writer = versions.get("vfg") if isinstance(versions, dict) else None
        raise UnreadableError(
            f"was written by a newer vfg ({writer}, file schema {schema}), and this one reads "
            f"schemas up to {SCHEMA}; upgrade vfg"
        )
    for name, kind in {"kind": str, "model": dict, "dtype": str, "digest": str}.items():
        if not isinstance(fields.get(name), kind):
            raise UnreadableError(
                f"has a malformed configuration: its {name!r} is missing or wrong"
            )
    if fields["kind"] not in known_kinds():
        raise UnreadableError(
            f"holds a model of the unknown kind {fields['kind']!r}; known are "
            f"{', '.join(known_kinds())}"
        )
    if fields["dtype"] not in ("float16", "bfloat16", "float32", "float64"):
        raise UnreadableError(
            f"has a malformed configuration: no dtype is called {fields['dtype']!r}"
        )
    return fields


def upgrade(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file of any schema as the newest one has them."""
    for step in UPGRADES[fields["schema"] - 1 :]:
        fields = step(fields)
    return fields


def _entry(name: str, described: Any) -> Entry:
    dtype = described.get("dtype") if isinstance(described, dict) else None
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UnreadableError(f"has the tensor {name!r} of the unknown dtype {dtype!r}")
    try:
        shape, (begin, end) = described["shape"], described["data_offsets"]
        counts = [*shape, begin, end]
        are_sound = len(counts) <= 10 and all(type(c) is int and c >= 0 for c in counts)
    except (KeyError, TypeError, ValueError):
        are_sound = False
    if not are_sound:
        raise UnreadableError(f"is damaged: shape or place of the tensor {name!r} is malformed")
    return Entry(getattr(torch, DTYPES[dtype]), tuple(shape), begin, end)


def _check_tiling(entries: Mapping[str, Entry], size: int) -> None:
    """Refuse tensors that do not fill the data part one after the other."""
    end = 0
    for name, entry in entries.items():
        needed = math.prod(entry.shape) * entry.dtype.itemsize
        if entry.begin != end or entry.end - entry.begin != needed:
            raise UnreadableError(
                f"is damaged: the tensor {name!r} of shape {entry.shape} lies at bytes "
                f"{entry.begin} to {entry.end}, but needs {needed} bytes from {end}"
            )
        end = entry.end
    if end > size:
        raise _truncation(size, end)
    if end < size:
        raise UnreadableError(f"is damaged: {size - end} bytes follow its last tensor")


def read_tensors(stream: BinaryIO, contents: Contents) -> dict[str, Tensor]:
    """The data that follows the contents, checked against their digest."""
    tensors = {}
    for name, entry in contents.entries.items():
        # Memory from torch, whose alignment decides how some products are rounded.
        tensors[name] = torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
        count = stream.readinto(_bytes_of(tensors[name]))  # type: ignore[attr-defined]
        if count != entry.end - entry.begin:
            raise _truncation(entry.begin + count, entry.end)
    if _digest(contents.fields, tensors) != contents.fields["digest"]:
        raise UnreadableError(
            "was altered or damaged: its digest does not match its contents; get a fresh copy"
        )
    return tensors
