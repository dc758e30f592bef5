"""Exploration of a model: embeddings, traversals, samples, history and calibration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vfg
from vfg.imputation.answers import axis_numbers, read_evidence
from vfg.imputation.evaluation import hold_out
from vfg.imputation.table_model import TableModel
from vfg.inference.answers import Answer
from vfg.inference.variables import Array
from vfg.inputs import Name
from vfg.plots.latents import principal_components
from vfg.studio.asking.model import OpenModel
from vfg.studio.filling.opened_tables import MatchedTable
from vfg.training.history import History

MOST_EMBEDDED, MOST_TSNE = 5_000, 1_500
"""Rows of a table in the plane, at most; the time of t-SNE grows faster than their number."""
MOST_CALIBRATED = 400
"""Rows whose numbers are held out, at most, which bounds the time."""
ROWS_FOR_CONSISTENCY = 256
"""Rows whose consistency is averaged, which bounds the time."""
LEVELS = np.round(np.arange(0.1, 1.0, 0.1), 2)
"""Of the intervals whose coverage is measured."""


def draw_rows(count: int, most: int, seed: int = 0) -> Array:
    """At most so many rows, drawn by a seed and in order.

    Drawn rows are not those of a period or of one end of a sorted table.

    Example:
        >>> draw_rows(10, 20), len(draw_rows(10_000, 5))
        (array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), 5)
    """
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))


def embedding(model: OpenModel, table: MatchedTable, method: str) -> tuple[Array, Array, Array]:
    """Which rows of a table are shown, where they are in two dimensions, and their states."""
    rows = draw_rows(table.rows, MOST_TSNE if method == "t-SNE" else MOST_EMBEDDED)
    states = np.asarray(model.model.embed(table.frame.take(rows)))
    if method == "t-SNE" and len(rows) > 5:
        from sklearn.manifold import TSNE

        start = principal_components(states)[0]
        start = start / (start.std() or 1.0) * 1e-4
        perplexity = min(30.0, (len(rows) - 1) / 3.0)
        fit = TSNE(init=start, perplexity=perplexity, random_state=0)
        return rows, fit.fit_transform(states), states
    return rows, principal_components(states)[0], states


def neighbours(rows: Array, states: Array, row: int, most: int = 8) -> list[int]:
    """A row and those whose states are nearest to its own, in order.

    Example:
        >>> neighbours(np.array([0, 5, 9]), np.array([[0.0], [9.0], [1.0]]), 0, most=2)
        [0, 9]
    """
    distances = np.linalg.norm(states - states[rows.tolist().index(row)], axis=1)
    return [int(k) for k in rows[np.argsort(distances, kind="stable")[:most]]]


@dataclass(frozen=True)
class Traversal:
    """Expected numbers, of choices the last probability, while one latent coordinate moves."""

    steps: Array  # how far it is moved
    values: Mapping[str, Array]  # by variable, `(steps,)` each
    pixels: Array | None = None  # images, `(steps, height, width)`


def traversal(
    model: OpenModel, node: str, coordinate: int, steps: Sequence[float], start: Any = None
) -> Traversal:
    """Move one coordinate of a latent node and see what the leaves are expected to be."""
    moved, own = np.asarray(steps, dtype=float), model.model
    given = [{}] if start is None else start
    if isinstance(own, TableModel):
        return Traversal(moved, _table_traversal(own, node, coordinate, moved, given))
    if isinstance(own, vfg.VFG):
        table = own.traverse(given, node, coordinate, moved)[0].numpy()
        values = dict(zip(model.variables, table.T, strict=True))
    else:
        assert isinstance(own, vfg.GaussianVFG)
        expected = _shift_state(own, given, node, coordinate, moved).expectations()
        # Numbers as they are; of categories the probability of the last one.
        values = {name: expected[name].reshape(len(moved), -1)[:, -1] for name in model.variables}
    pixels = np.stack(list(values.values()), axis=1)
    shape = model.picture
    return Traversal(moved, values, None if shape is None else pixels.reshape(len(moved), *shape))


def _shift_state(
    model: vfg.GaussianVFG, given: Any, node: str, coordinate: int, moved: Array, **options: Any
) -> Answer:
    """What follows from a node's state, moved around its posterior mean, alone."""
    mean = model.infer(given, targets=[node], **options).mean[node]
    state = mean.repeat(len(moved), 1).double()
    state[:, coordinate] += torch.from_numpy(moved)
    return model.infer({node: state})


def _table_traversal(
    model: TableModel, node: str, coordinate: int, moved: Array, given: Any
) -> dict[str, Array]:
    """By the first member, or by the linear model where there is none."""
    if model.linear is None:
        raise ValueError("no column of this table varies, so there is nothing to move")
    row = read_evidence(model, given)
    if model.member_models:
        first = model.member_models[0]
        table = first.traverse(row.values, node, coordinate, moved, observed=row.observed)[0]
    else:
        seen = {"observed": row.observed}
        answer = _shift_state(model.linear, row.values, node, coordinate, moved, **seen)
        table = torch.cat([answer.mean[leaf] for leaf in model.linear.graph.leaves], dim=1)
    matrix, encoding = model.spread_out(table), model.encoding
    result = {}
    for name, variable in model.variables.items():
        if variable.idle:
            continue
        part, section = encoding.parts[model.labels[name]], encoding.sections[model.labels[name]]
        if variable.kind == "choice":
            scale = 1.0 if part.name == "levels" else None
            result[name] = part.probabilities(matrix[:, section], scale)[:, -1]
        else:
            result[name] = axis_numbers(part.decode(matrix[:, section]))
    return result


def samples(model: OpenModel, count: int, seed: int = 0) -> tuple[Any, Array | None]:
    """New rows from the model, as a frame; and as images where the columns are pixels."""
    import pandas

    drawn = model.model.sample(count, seed=seed)
    if isinstance(drawn, pandas.DataFrame):
        return drawn, None
    table = np.asarray(drawn)
    pixels = None if model.picture is None else table.reshape(count, *model.picture)
    return pandas.DataFrame(table, columns=list(model.variables)), pixels


@dataclass(frozen=True)
class IntervalScores:
    """Coverage of intervals for held-out cells, and errors of means."""

    levels: Array
    coverage: Array  # of each level
    cells: int  # how many were held out
    # Name, held-out cells, error and error of means in deviations, coverage.
    columns: tuple[tuple[str, int, float, float, float], ...]


def calibration(
    model: OpenModel, table: MatchedTable, share: float = 0.15, seed: int = 0
) -> IntervalScores:
    """Hold out numbers of a table, and measure the coverage of their intervals."""
    rows = draw_rows(table.rows, MOST_CALIBRATED)
    part = replace(table, whole=table.whole.take(rows))
    variables = enumerate(part.variables.values())
    numbers = [k for k, v in variables if v.kind != "choice" and not v.idle]
    hidden = np.zeros_like(part.missing)
    hidden[:, numbers] = hold_out(part.cells, share, seed)[:, numbers]
    if not hidden.any():
        raise ValueError("the table has too few known numbers to hide some of them")
    names: list[Name] = [part.columns[k] for k in numbers if hidden[:, k].any()]
    answer = model.model.infer(
        part.frame, targets=names, observed=~(part.missing | hidden), seed=seed
    )
    ends = answer.quantile([*(0.5 - LEVELS / 2).tolist(), *(0.5 + LEVELS / 2).tolist()])
    expected, inside, columns = answer.expectations(), [], []
    for name in map(str, names):
        column = part.column(name)
        chosen = hidden[:, part.columns.index(name)]
        cells = axis_numbers(column.values)
        # Of a leaf with a single column there is an axis of length 1 besides.
        levels = axis_numbers(np.asarray(ends[name])).reshape(2 * len(LEVELS), part.rows)
        low, high = np.split(levels[:, chosen], 2)
        truth, seen = cells[chosen], cells[~column.missing & ~chosen]
        inside.append((low <= truth) & (truth <= high))
        spread = float(cells[~column.missing].std()) or 1.0
        error = float(np.sqrt(np.mean((truth - expected[name][chosen]) ** 2))) / spread
        plain = float(np.sqrt(np.mean((truth - (seen if len(seen) else truth).mean()) ** 2)))
        held = float(inside[-1][-1].mean())
        columns.append((name, int(chosen.sum()), error, plain / spread, held))
    coverage = np.concatenate(inside, axis=1).mean(1)
    return IntervalScores(LEVELS, coverage, int(hidden.sum()), tuple(columns))


def consistency(model: OpenModel, table: MatchedTable) -> dict[str, float]:
    """How far forward and backward states are apart, by node; empty if that means nothing."""
    own = model.model
    if not isinstance(own, vfg.VFG) or own.sampling is not None:
        return {}
    result = own.consistency(table.frame.take(draw_rows(table.rows, ROWS_FOR_CONSISTENCY)))
    return {node: float(distance.mean()) for node, distance in result.items()}


def read_history(data: bytes) -> History:
    """A training history that `History.save` wrote."""
    try:
        return History.from_dict(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            "this is not a training history; choose a file that history.save(path) wrote"
        ) from error


def history_beside(file: str) -> History | None:
    """The history that lies beside a model file, as `<model>.history.json`, or None."""
    path = Path(file).with_suffix(".history.json")
    return read_history(path.read_bytes()) if path.is_file() else None
