"""Looking around in a model: embeddings, traversals, samples, history and calibration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vfg
from vfg.training.history import History

from .filling import Table
from .subjects import Subject
from .table_subject import TableSubject, numbers_of
from .variables import Array

MOST_EMBEDDED = 5_000
MOST_TSNE = 1_500
MOST_CALIBRATED = 400
LEVELS = np.round(np.arange(0.1, 1.0, 0.1), 2)
"""Of the intervals whose coverage is measured."""


def even_rows(count: int, most: int) -> Array:
    """At most so many rows, evenly spread.

    Example:
        >>> even_rows(10, 5)
        array([0, 2, 4, 6, 8])
    """
    if count <= most:
        return np.arange(count)
    return np.arange(most) * count // most


def embedding(subject: Subject, table: Table, method: str) -> tuple[Array, Array]:
    """Rows of a table in two dimensions, from the states of the roots.

    Args:
        subject: the model.
        table: whose rows.
        method: `"PCA"` or `"t-SNE"`.

    Returns:
        Which rows, and where they are, `(rows, 2)`.
    """
    rows = even_rows(table.rows, MOST_TSNE if method == "t-SNE" else MOST_EMBEDDED)
    frame = table.frame.iloc[rows]
    if isinstance(subject, TableSubject):
        states = subject.model.embed(*subject.model.encode(frame)).numpy()
    else:
        states = subject.model.embed(frame.to_numpy(dtype=np.float64)).numpy()
    if method == "t-SNE" and len(rows) > 5:
        from sklearn.manifold import TSNE

        start = principal(states)[:, :2]
        start = start / (start.std() or 1.0) * 1e-4
        perplexity = min(30.0, (len(rows) - 1) / 3.0)
        return rows, TSNE(init=start, perplexity=perplexity, random_state=0).fit_transform(states)
    return rows, principal(states)


def principal(states: Array) -> Array:
    """The two principal coordinates of rows, each with its largest entry positive.

    Example:
        >>> principal(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]])).round(6)
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    centred = np.nan_to_num(states - states.mean(0))
    padded = np.pad(centred, ((0, 0), (0, max(0, 2 - centred.shape[1]))))
    left, sizes, right = np.linalg.svd(padded, full_matrices=False)
    found = left[:, :2] * sizes[:2]
    if found.shape[1] < 2:
        found = np.pad(found, ((0, 0), (0, 2 - found.shape[1])))
    directions = right[:2]
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(1)])
    found[:, : len(signs)] *= np.where(signs == 0, 1.0, signs)
    return np.asarray(found + 0.0)


@dataclass(frozen=True)
class Traversal:
    """What is expected while one coordinate of a latent node moves.

    Args:
        steps: how far it is moved, `(steps,)`.
        values: expected numbers by variable, `(steps,)` each; for choices the probability of the
            last category.
        pixels: the images, `(steps, height, width)`, or None.
    """

    steps: Array
    values: Mapping[str, Array]
    pixels: Array | None = None


def traversal(
    subject: Subject, node: str, coordinate: int, steps: Sequence[float], start: Any = None
) -> Traversal:
    """Move one coordinate of a latent node and see what the leaves are expected to be.

    Args:
        subject: the model.
        node: a latent node.
        coordinate: which of its coordinates.
        steps: what is added to it.
        start: a frame with the row to start from; None starts without evidence.
    """
    moved = np.asarray(steps, dtype=float)
    if isinstance(subject, TableSubject):
        matrix = _table_traversal(subject, node, coordinate, moved, start)
        return Traversal(moved, _decoded(subject, matrix))
    model = subject.model
    empty = np.full((1, model.sections.columns), np.nan)
    cells = empty if start is None else start.to_numpy(dtype=np.float64)
    if isinstance(model, vfg.VFG):
        table = model.traverse(cells, node, coordinate, moved)[0].numpy()
    else:
        table = _linear_traversal(model, torch.from_numpy(cells), node, coordinate, moved)
    places = getattr(subject, "places", {})
    shape = getattr(subject, "picture", None)
    pixels = None if shape is None else table.reshape(len(moved), *shape)
    return Traversal(moved, {name: table[:, places[name]] for name in subject.variables}, pixels)


def _table_traversal(
    subject: TableSubject, node: str, coordinate: int, moved: Array, start: Any
) -> Array:
    model = subject.model
    if model.linear is None:
        raise ValueError("no column of this table tells anything, so there is nothing to move")
    row = subject.table([{}]) if start is None else start
    values, observed = model.encode(row)
    table = torch.where(observed, values, torch.nan)[:1]
    if model.bent:
        found = model.bent[0].traverse(table, node, coordinate, moved)[0].numpy()
    else:
        found = _linear_traversal(model.linear, table, node, coordinate, moved)
    whole: Array = model.spread_out(torch.from_numpy(np.ascontiguousarray(found)))
    return whole


def _linear_traversal(
    model: vfg.GaussianVFG, table: Any, node: str, coordinate: int, moved: Array
) -> Array:
    """Expected cells of the exact model with the node's state fixed around its posterior mean."""
    state = model.infer(table, targets=[node]).mean[node].repeat(len(moved), 1).double()
    state[:, coordinate] += torch.from_numpy(moved)
    answer = model.infer({node: state})
    found = np.empty((len(moved), model.sections.columns))
    for leaf, columns in model.sections.positions.items():
        found[:, list(columns)] = answer.mean[leaf].numpy()
    return found


def _decoded(subject: TableSubject, matrix: Array) -> dict[str, Array]:
    encoding, found = subject.model.encoding, {}
    for name in subject.known:
        label = subject.labels[name]
        part, section = encoding.parts[label], matrix[:, encoding.sections[label]]
        if subject.variables[name].kind == "choice":
            scale = 1.0 if part.name == "levels" else None
            found[name] = part.probabilities(section, scale)[:, -1]
        else:
            found[name] = numbers_of(part.decode(section))
    return found


def samples(subject: Subject, count: int, seed: int = 0) -> tuple[Any, Array | None]:
    """New rows from the model, as a frame; and as images where the columns are pixels."""
    import pandas

    if isinstance(subject, TableSubject):
        model = subject.model
        values, observed = model.encode(subject.table([{}] * count))
        drawn = model.draws(values, observed, 1, seed)[0]
        columns = model.encoding.decode_columns(model.spread_out(drawn))
        return pandas.DataFrame({str(k): v for k, v in columns.items()}), None
    table = subject.model.sample(count, seed=seed).numpy()
    places = getattr(subject, "places", {})
    frame = pandas.DataFrame({name: table[:, places[name]] for name in subject.variables})
    shape = getattr(subject, "picture", None)
    return frame, None if shape is None else table.reshape(count, *shape)


@dataclass(frozen=True)
class Calibration:
    """How often intervals cover cells that were hidden, and how far means are off.

    Args:
        levels: how often they should, `(levels,)`.
        coverage: how often they do.
        columns: by column: hidden cells, error and the error of filling in means, both in
            deviations, and the coverage at the middle level.
    """

    levels: Array
    coverage: Array
    columns: tuple[tuple[str, int, float, float, float], ...]


def calibration(subject: Subject, table: Table, share: float = 0.15, seed: int = 0) -> Calibration:
    """Hide known numbers of a table, and see how often their intervals hold them."""
    rows = even_rows(table.rows, MOST_CALIBRATED)
    if isinstance(subject, TableSubject):
        values, observed = subject.model.encode(table.frame.iloc[rows])
        names = _number_columns(subject)
        hidden = _hidden(observed.numpy(), list(names.values()), share, seed)
        seen = observed & ~torch.from_numpy(hidden)
        means = subject.model.means(values, seen).numpy()
        levels = _ends()
        ends = subject.model.quantiles(values, seen, levels, draws=60, seed=seed).numpy()
        return _calibrated(values.numpy(), hidden, means, ends, names)
    places = getattr(subject, "places", {})
    cells = table.frame.iloc[rows].to_numpy(dtype=np.float64)
    known = ~np.isnan(cells)
    names = {k: places[k] for k, v in subject.variables.items() if v.kind == "number"}
    hidden = _hidden(known, list(names.values()), share, seed)
    answer = subject.model.infer(np.where(hidden, np.nan, cells))
    quantiles = answer.quantile(_ends())
    means, ends = np.empty_like(cells), np.empty((2 * len(LEVELS), *cells.shape))
    for leaf, columns in subject.model.sections.positions.items():
        means[:, list(columns)] = answer.mean[leaf].numpy()
        ends[..., list(columns)] = quantiles[leaf].numpy()
    return _calibrated(cells, hidden, means, ends, names)


def _ends() -> list[float]:
    return [*(0.5 - LEVELS / 2).tolist(), *(0.5 + LEVELS / 2).tolist()]


def _number_columns(subject: TableSubject) -> dict[str, int]:
    """Places of the columns of numbers among those that the models know."""
    place = {column: k for k, column in enumerate(subject.model.columns)}
    sections = subject.model.encoding.sections
    return {
        name: place[sections[subject.labels[name]].start]
        for name in subject.known
        if subject.variables[name].kind != "choice"
    }


def _hidden(known: Array, columns: Sequence[int], share: float, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    allowed = np.zeros_like(known)
    allowed[:, list(columns)] = True
    return np.asarray(known & allowed & (generator.random(known.shape) < share))


def _calibrated(
    cells: Array, hidden: Array, means: Array, ends: Array, names: Mapping[str, int]
) -> Calibration:
    if not hidden.any():
        raise ValueError("the table has too few known numbers to hide some of them")
    count = len(LEVELS)
    inside = (ends[:count] <= cells) & (cells <= ends[count:])
    coverage = np.array([inside[k][hidden].mean() for k in range(count)])
    columns = []
    for name, k in names.items():
        chosen = hidden[:, k]
        if not chosen.any():
            continue
        spread = float(np.nanstd(cells[:, k])) or 1.0
        error = float(np.sqrt(np.mean((cells - means)[chosen, k] ** 2))) / spread
        centre = np.nanmean(np.where(hidden[:, k], np.nan, cells[:, k]))
        plain = float(np.sqrt(np.mean((cells[chosen, k] - centre) ** 2))) / spread
        held = float(inside[count - 1][chosen, k].mean())
        columns.append((name, int(chosen.sum()), error, plain, held))
    return Calibration(LEVELS, coverage, tuple(columns))


def read_history(data: bytes) -> History:
    """A training history that `History.save` wrote.

    Raises:
        ValueError: for anything else.
    """
    try:
        return History.from_dict(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            "this is no training history; choose a file that history.save(path) wrote"
        ) from error


def history_beside(file: str) -> History | None:
    """The history that lies beside a model file, as `<model>.history.json`, or None."""
    path = Path(file).with_suffix(".history.json")
    return read_history(path.read_bytes()) if path.is_file() else None
