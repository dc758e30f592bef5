"""What `vfg show` prints about a model; files keep it, so that no model has to be built to read it.

Nothing here imports torch, which takes longer than everything else that `vfg show` does.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Mapping
from typing import Any

SUMMARISED = ("VFG", "GaussianVFG", "TableModel")
"""Kinds of models that have what a summary tells."""
LONGEST_SUMMARY = 2**20
"""Characters of a summary that a file keeps; without one, the model is loaded to be described."""
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""The dtypes of a model's tensors by the names that safetensors gives them."""


def digest_contents(
    fields: Mapping[str, Any], listed: list[list[Any]], parts: Iterable[Any]
) -> str:
    """SHA-256 of the fields of a file, and of its tensors in the order of their names.

    Args:
        fields: those of the file; `digest` itself is left out.
        listed: name, dtype and shape of every tensor.
        parts: the bytes of every tensor.
    """
    signed = {key: value for key, value in fields.items() if key != "digest"}
    text = json.dumps([signed, listed], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii"))
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def describe_model(model: Any) -> dict[str, Any]:
    """Kind, columns, sizes and graph of a fitted model, ready for JSON.

    Example:
        >>> import vfg
        >>> described = describe_model(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1})))
        >>> described["kind"], [column["name"] for column in described["columns"]]
        ('VFG', ['a', 'b'])
    """
    is_table = type(model).__name__ == "TableModel"
    return {
        "kind": type(model).__name__,
        "columns": [_describe_column(model, name, is_table) for name in model.variables],
        **(_sizes_of_table(model) if is_table else _settings(model)),
        "parameters": sum(part.numel() for part in model.parameters()),
        "graph": model.graph.to_dict(),
    }


def _describe_column(model: Any, name: str, is_table: bool) -> dict[str, Any]:
    variable = model.variables[name]
    if not is_table:
        kind = model.likelihood_specs[variable.leaf].name
        return {"name": name, "kind": kind, "idle": variable.idle}
    spec = model.encoding.schema[model.labels[name]]
    description: dict[str, Any] = {"name": name, "kind": spec.name}
    if spec.name in ("categorical", "ordinal"):
        description["categories"] = list(variable.categories)
    return {**description, "idle": variable.idle}


def _sizes_of_table(model: Any) -> dict[str, Any]:
    return {
        **{name: len(getattr(model, name)) for name in ("members", "mixtures", "neighbours")},
        "weights": model.part_weights,
        "missingness": model.describe_missingness(),
    }


def _settings(model: Any) -> dict[str, Any]:
    kinds = str | int | float | bool
    return {key: value for key, value in model.to_dict().items() if isinstance(value, kinds)}


def summary_of(model: Any, kind: str) -> dict[str, Any]:
    """The field of a model file with the description of its model; nothing for other kinds."""
    if kind not in SUMMARISED:
        return {}
    summary = describe_model(model)
    return {"summary": summary} if len(json.dumps(summary)) <= LONGEST_SUMMARY else {}


def read_summary(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The description that a model file keeps, if it has one and is whole.

    None for any other file: one of an earlier version, a large one, or one that is damaged. To
    load the model then either describes it or says what is wrong.
    """
    try:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            return _summary_in(data)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _summary_in(data: memoryview) -> dict[str, Any] | None:
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:start]))
    fields = json.loads(header.pop("__metadata__")["vfg"])
    if fields["schema"] != 1 or "summary" not in fields:
        return None
    names = sorted(header)
    listed = [[name, DTYPES[header[name]["dtype"]], header[name]["shape"]] for name in names]
    places = [header[name]["data_offsets"] for name in names]
    parts = (data[start + begin : start + end] for begin, end in places)
    is_whole = digest_contents(fields, listed, parts) == fields["digest"]
    is_ours = fields["kind"] in SUMMARISED and max(end for _, end in places) == len(data) - start
    return dict(fields["summary"]) if is_whole and is_ours else None
