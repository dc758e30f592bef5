"""Filling and intervals of a model in a file for other runtimes: ONNX, or a program of torch."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian.conditional_means import ExactMeans
from vfg.graph.checks import suggestion
from vfg.imputation.imputer import VFGImputer
from vfg.imputation.settings import check_share
from vfg.imputation.table_model import TableModel
from vfg.inference.variables import central_levels
from vfg.modelfile import dumps, loads
from vfg.serving.filler import Filler
from vfg.serving.modules import MOST_RELATED, related_columns
from vfg.tables.categorical import MOST_CANDIDATES, CategoryEncoding
from vfg.tables.cells import ColumnEncoding, Label
from vfg.tables.numeric import STEPS, NumericEncoding, TimeUnit
from vfg.utils.extras import needs
from vfg.utils.files import write_atomically

PARTS = (
    "members", "mixtures", "neighbours", "trees", "relations", "missingness", "constraints",
    "intervals",
)  # fmt: skip
"""What an export can leave out."""
FORMATS = (".onnx", ".pt2")
OPSET = 18
"""Version of the ONNX operators: the first with all that are needed, read by onnxruntime 1.14."""
EXAMPLE_ROWS = 3
"""Rows of the example that is traced; any number above 1 is taken for a variable."""


def export(
    model: TableModel | VFGImputer,
    path: str | os.PathLike[str],
    *,
    level: float = 0.9,
    without: Sequence[str] = (),
) -> dict[str, Any]:
    """Write what `transform` and `predict_interval` compute to a file for another runtime.

    `.onnx` files are for onnxruntime and others, `.pt2` files for `torch.export.load`. The program
    takes `cells`, float64 `(rows, columns)`, with NaN for missing ones, and returns `filled`,
    `lower` and `upper` of the same shape. Numbers are themselves. Categories, booleans and levels
    are indices in the list `categories` of their column; -1 is an unknown category, which is
    kept and not used as evidence. Dates and durations are numbers of the column's `unit` since
    1970-01-01, in local time of its time zone. Cells of identifiers are not read and not filled.

    Filled values equal those of `transform` with the estimate "mean" up to 1e-5 standard
    deviations. Observed cells are unchanged.

    Args:
        model: a fitted model or imputer.
        path: the file to write, `.onnx` or `.pt2`.
        level: the share of intervals that should contain the true value.
        without: parts that are left out: "members", "mixtures", "neighbours" (row mixtures and
            Gaussian processes, which keep rows of the table), "trees", "relations",
            "missingness" (shifts of cells because they are missing), "constraints", "intervals".
            Answers then differ from those of the model, except for "intervals"; the weights of
            left-out parts go to the others.

    Returns:
        The description of the file, which is stored in it as JSON: in an ONNX file as metadata
        `vfg`, in a torch program as extra file `vfg.json`. `columns` has the name, kind, categories
        and unit of every column.

    Raises:
        ValueError: for parts that cannot be exported, with the reason and what to leave out.
        ImportError: for ONNX without the extra `onnx`.

    Example:
        >>> import tempfile, numpy as np, vfg
        >>> table = np.random.default_rng(0).normal(size=(50, 3))
        >>> imputer = VFGImputer(bend=False).fit(table)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     described = vfg.export(imputer, f"{folder}/model.pt2")
        ...     program = torch.export.load(f"{folder}/model.pt2").module()
        >>> row = torch.tensor([[0.5, float("nan"), 1.0]], dtype=torch.float64)
        >>> filled, lower, upper = program(row)
        >>> bool(abs(filled[0, 1] - imputer.transform(row.numpy())[0, 1]) < 1e-9)
        True
        >>> [column["kind"] for column in described["columns"]]
        ['number', 'number', 'number']
    """
    check_share("level", level)
    target = Path(path)
    if target.suffix not in FORMATS:
        raise ValueError(f"export writes files that end with .onnx or .pt2, not {target.name!r}")
    for part in without:
        if part not in PARTS:
            raise ValueError(f"there is no part {part!r} to leave out; {suggestion(part, PARTS)}")
    fitted = _fitted_model(model)
    _check_parts(fitted, without)
    units = [_unit(part) for part in fitted.encoding.parts.values()]
    steps = None
    if "intervals" not in without:
        high = torch.tensor(central_levels(level)[1], dtype=torch.float64)
        steps = float(torch.special.ndtri(high))
    filler = Filler(fitted, units, without=without, steps=steps).eval()
    described = _describe(fitted, level, without)
    example = torch.full((EXAMPLE_ROWS, len(units)), torch.nan, dtype=torch.float64)
    write = _onnx_bytes if target.suffix == ".onnx" else _torch_bytes
    with torch.no_grad(), _quietly():
        data = write(filler, example, described)
    write_atomically(target, data)
    return described


def _fitted_model(model: TableModel | VFGImputer) -> TableModel:
    """The model on the CPU; an imputer whose fills are means."""
    if isinstance(model, VFGImputer):
        if model.estimate != "mean":
            raise ValueError(
                f"only fills with means can be exported, but the imputer has estimate="
                f"{model.estimate!r}; use imputer.set_params(estimate='mean')"
            )
        if not hasattr(model, "model_"):
            raise ValueError("this VFGImputer is not fitted; call fit first")
        model = model.model_
    if not isinstance(model, TableModel):
        raise TypeError(
            f"only models of tables can be exported, a TableModel or VFGImputer, but this is a "
            f"{type(model).__name__}"
        )
    assert model.encoding is not None  # refuses a model that is not fitted
    if model.weights.device.type == "cpu":
        return model
    moved = loads(dumps(model), torch.device("cpu"))
    assert isinstance(moved, TableModel)
    return moved


def _check_parts(model: TableModel, without: Sequence[str]) -> None:
    """Refuse what cannot be exported, with the reason."""
    for label, part in model.encoding.parts.items():
        if isinstance(part, CategoryEncoding) and len(part.categories) > MOST_CANDIDATES:
            raise ValueError(
                f"column {label!r} has {len(part.categories)} categories, but at most "
                f"{MOST_CANDIDATES} can be exported; fit the model without it"
            )
    if model.linear is None:
        return
    reasons = {
        "intervals": _interval_reason(model),
        "missingness": _missingness_reason(model),
        "constraints": "constraints are satisfied by random draws and iterations"
        if model.constraint_set is not None
        else None,
        "members": "nonlinear members fill leaves of several columns by iteration"
        if len(model.members) and any(len(held) > 1 for held in model.leaves.values())
        else None,
        "relations": f"linear relations are stored for up to {MOST_RELATED} columns, but there are "
        f"{len(related_columns(model.relations))}"
        if model.relations is not None and len(related_columns(model.relations)) > MOST_RELATED
        else None,
    }
    refused = {k: v for k, v in reasons.items() if v is not None and k not in without}
    if refused:
        wanted = ",".join([*without, *refused])
        raise ValueError(
            f"this model cannot be exported as a whole: {'; '.join(refused.values())}; leave out "
            f"{', '.join(refused)} (without={wanted.split(',')}, or --without {wanted})"
        )


def _missingness_reason(model: TableModel) -> str | None:
    if model.slopes is None:
        return None
    if model.is_stacked:
        return "cells that are missing because of their own value are shifted by random draws"
    iterated = (
        "the shift of cells that are missing because of their own value is found by iteration"
    )
    return None if model.selection is None else iterated


def _interval_reason(model: TableModel) -> str | None:
    if model.is_stacked:
        return "intervals of an ensemble are computed from random draws"
    assert model.linear is not None
    if not ExactMeans.suits(model.linear):
        return "intervals of so wide a linear model are computed from random draws"
    return None


def _unit(part: ColumnEncoding) -> tuple[float, float]:
    """Step and origin of cells in the numbers of the encoding: ticks for times."""
    if isinstance(part, NumericEncoding) and part.clock is not None:
        return float(part.clock.step), float(part.clock.origin)
    return 1.0, 0.0


def _unit_name(clock: TimeUnit) -> str:
    """The name of numpy for a step of a clock."""
    steps = [np.ones((), f"m8[{name}]").astype(f"m8[{clock.unit}]") for name in STEPS]
    ticks = [int(step.astype(np.int64)) for step in steps]
    return STEPS[ticks.index(clock.step)] if clock.step in ticks else clock.unit


def _describe(model: TableModel, level: float, without: Sequence[str]) -> dict[str, Any]:
    columns = [_describe_column(model, label) for label in model.encoding.schema]
    level_of = {} if "intervals" in without else {"level": level}
    return {"columns": columns, **level_of, "without": list(without)}


def _describe_column(model: TableModel, label: Label) -> dict[str, Any]:
    part, spec = model.encoding.parts[label], model.encoding.schema[label]
    described: dict[str, Any] = {"name": str(label), "kind": "number"}
    if isinstance(part, NumericEncoding):
        if part.clock is not None:
            kind = "date" if part.clock.kind == "M" else "duration"
            described |= {"kind": kind, "unit": _unit_name(part.clock)}
            described |= {} if part.clock.zone is None else {"zone": part.clock.zone}
        elif part.whole:
            described["kind"] = "integer"
    elif isinstance(part, CategoryEncoding):
        described |= {"kind": spec.name, "categories": list(part.categories)}
    if not part.fillable:
        described |= {"filled": False}
    return described


def _onnx_bytes(filler: Filler, example: Tensor, described: dict[str, Any]) -> bytes:
    with needs("onnx"):
        import onnx

        import_module("onnxscript")  # what torch exports with
    names = ["filled", "lower", "upper"] if filler.has_intervals else ["filled"]
    program = torch.onnx.export(
        filler,
        (example,),
        dynamo=True,
        verbose=False,
        optimize=False,  # runtimes do that themselves, and it takes as long as all else
        opset_version=OPSET,
        input_names=["cells"],
        output_names=names,
        dynamic_shapes={"cells": {0: torch.export.Dim("rows")}},
    )
    assert program is not None
    proto = program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = "vfg", json.dumps(described)
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data


def _torch_bytes(filler: Filler, example: Tensor, described: dict[str, Any]) -> bytes:
    rows = torch.export.Dim("rows")
    program = torch.export.export(filler, (example,), dynamic_shapes={"cells": {0: rows}})
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"vfg.json": json.dumps(described)})
    return buffer.getvalue()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the notes of exporters about themselves."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, own in zip(loggers, levels, strict=True):
                logger.setLevel(own)
