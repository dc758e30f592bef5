"""Questions to a model whose answers must never change, and their form in JSON.

`make_golden.py` writes the answers down, `test_golden.py` asks again. Only public names are used.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import torch

import vfg
from vfg.bigtable import Filling, filled_batch

LEVELS = [0.05, 0.5, 0.95]
FILLINGS = {
    "filled": Filling(flag=True),
    "ends": Filling(level=0.9),
    "draws": Filling(draws=2, seed=3),
}
MEDIANS = {"medians": Filling(estimate="median", seed=4)}
"""Asked of models that have weights of medians."""


def answers(model, given):
    """All answers of a model, ready for JSON.

    Args:
        model: what `vfg.load` returned.
        given: of a table's model the `batch` with gaps; of others `rows` with gaps, the `targets`,
            and `labels` if the prior has them.
    """
    if isinstance(model, vfg.VFG):
        return plain(answers_of_flows(model, given))
    if isinstance(model, vfg.GaussianVFG):
        return plain(answers_of_gaussian(model, given))
    return answers_of_table(model, given)


def answers_of_flows(model, given):
    rows = as_rows(given["rows"])
    labels = {"labels": given["labels"]} if "labels" in given else {}
    found = answers_about(model.infer(rows, given["targets"], seed=0, **labels))
    found["embed"] = model.embed(rows, **labels)
    found["reconstruct"] = model.reconstruct(rows, **labels)
    found["sample"] = model.sample(3, seed=1)
    if model.states == "sampled":
        weighed = model.infer(rows, given["targets"], seed=2, importance=20, **labels)
        found["weighed mean"] = dict(weighed.mean)
        found["bound"] = model.bound(rows, samples=4, seed=5, **labels).total
        found["log_likelihood"] = model.log_likelihood(rows, samples=16, seed=4, **labels)
    else:
        found["surrogate"] = model.surrogate(rows, **labels).total
    if labels:
        found["label_probabilities"] = model.label_probabilities(rows)
    return found


def answers_of_gaussian(model, given):
    rows = as_rows(given["rows"])
    found = answers_about(model.infer(rows, given["targets"], seed=0))
    found["embed"] = model.embed(rows)
    found["log_prob"] = model.log_prob(rows)
    found["conditional_log_prob"] = model.conditional_log_prob(rows, [model.graph.leaves[0]])
    found["sample"] = model.sample(3, seed=1)
    return found


def answers_about(answer):
    """Everything that an answer has; a target's name is text in JSON."""
    found = {
        "mean": dict(answer.mean),
        "std": dict(answer.std),
        "quantile": dict(answer.quantile(LEVELS)),
        "samples": dict(answer.samples(3)),
    }
    if answer.probabilities:
        found["probabilities"] = dict(answer.probabilities)
    return found


def answers_of_table(model, given):
    batch = as_batch(given["batch"])
    fillings = FILLINGS if model.median_weights is None else FILLINGS | MEDIANS
    found = {name: filled_batch(model, batch, 10, filling) for name, filling in fillings.items()}
    # In which order a dictionary lists its categories is no part of the answer.
    return {
        name: {
            label: {key: column[key] for key in ("type", "cells")}
            for label, column in from_batch(filled).items()
        }
        for name, filled in found.items()
    }


def facts(model):
    """What a model knows besides answers, ready for JSON."""
    network = model.graph.network
    found = {"network": None if network is None else str(network)}
    if isinstance(model, vfg.GaussianVFG):
        found["sums"] = None if model.summary is None else plain(model.summary.sum())
    if isinstance(model, vfg.TableModel):
        found["schema"] = {
            str(name): kind.to_dict() for name, kind in model.encoding.schema.items()
        }
        found["missingness"] = {"slopes": plain(model.slopes), **model.mechanism}
        found["constraints"] = list(model.constraints)
        found["sets"] = plain(model.set_thresholds)
        found["trees"] = None if model.forest is None else model.forest.to_dict()
    return json.loads(json.dumps(found))


def table_to_score(given):
    """The table of a model's columns in their order, for log p of its rows and for embedding."""
    batch = as_batch(given["batch"])
    return pa.Table.from_batches([batch]).select(given["columns"])


# Numbers.


def plain(value):
    """Tensors and arrays by name as nested lists, None for NaN; infinities are refused."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, torch.Tensor | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        raise ValueError("an answer is infinite")
    return value


def as_rows(rows):
    return torch.tensor([[math.nan if x is None else x for x in row] for row in rows]).double()


# Record batches: every column has a type and its cells, None for gaps.


def as_batch(columns):
    arrays = [as_array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def as_array(column):
    cells = column["cells"]
    if column["type"] == "dictionary":
        categories = column["categories"]
        codes = [None if cell is None else categories.index(cell) for cell in cells]
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int8()), pa.array(categories), ordered=column["ordered"]
        )
    kind = pa.type_for_alias(column["type"])
    if pa.types.is_duration(kind):
        return pa.array(cells, pa.int64()).cast(kind)
    if pa.types.is_timestamp(kind):
        cells = [None if cell is None else datetime.fromisoformat(cell) for cell in cells]
    return pa.array(cells, kind)


def from_batch(batch):
    return {name: from_array(batch.column(k)) for k, name in enumerate(batch.schema.names)}


def from_array(array):
    if pa.types.is_duration(array.type):
        return {"type": str(array.type), "cells": array.cast(pa.int64()).to_pylist()}
    cells = [
        cell.isoformat() if isinstance(cell, date | datetime) else cell
        for cell in array.to_pylist()
    ]
    if not pa.types.is_dictionary(array.type):
        return {"type": str(array.type), "cells": plain(cells)}
    return {
        "type": "dictionary",
        "categories": array.dictionary.to_pylist(),
        "ordered": array.type.ordered,
        "cells": cells,
    }


# Comparing.


def assert_same(found, expected, path="", atol=5e-6):
    """Text, dates, truth values and shapes must be equal, numbers up to rounding.

    Rounding differs between processors: members are float32, and missing values inside sections
    are iterated, so embeddings differed by up to 5e-6 between two machines and versions of torch.
    """
    if isinstance(expected, dict):
        assert list(found) == list(expected), path
        for name in expected:
            assert_same(found[name], expected[name], f"{path}/{name}", atol)
    elif is_numeric(expected):
        found, expected = (np.array(part, dtype=np.float64) for part in (found, expected))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=atol, err_msg=path)
    else:
        assert found == expected, path


def is_numeric(value):
    """Whether something is nested lists of real numbers and gaps."""
    if isinstance(value, list):
        return all(is_numeric(part) for part in value)
    return value is None or isinstance(value, float)
