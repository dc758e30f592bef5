"""The linear model of all rows of a table, by one process or many, equal bit for bit.

Every iteration of EM passes over the table once. Pieces of a fixed size are summed up one by one,
by the processes in rotation, and the sums are added in the order of the pieces. So the number
of processes changes nothing but the time, and memory stays flat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vfg.bigtable.engines import one_thread
from vfg.bigtable.source import Source
from vfg.gaussian import GaussianVFG
from vfg.gaussian.em.general import Expected, LatentMoments, chunks_of, e_step
from vfg.gaussian.em.m_step import m_step
from vfg.gaussian.parameters import Values
from vfg.imputation.table_model import TableModel
from vfg.inference.propagation import evaluating
from vfg.inputs import scale_cells
from vfg.training.data import World
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa

PIECE = 16_384
"""Rows that are summed up together; part of what makes bits the same."""
ITERATIONS, TOLERANCE, SHRINKAGE = 30, 1e-5, 1.0
"""As for the linear model of a table in memory."""


@dataclass(frozen=True)
class SharedRows:
    """The rows of a table as a model sees them, and who shares them."""

    source: Source
    names: list[str]
    model: TableModel
    world: World

    def sums(self, values: Values) -> tuple[Expected, int]:
        """The sums of the E-step over all rows with an observed cell, and their number."""
        shapes = _shapes(self._linear, values)
        total = torch.zeros(1 + sum(part.numel() for part in shapes), dtype=torch.float64)
        for own in self._own_sums(values, len(total)):
            for part in _gather(own, self.world):
                total += part
        return _unpack(total[1:], self._linear, values), int(total[0])

    @property
    def _linear(self) -> GaussianVFG:
        assert self.model.linear is not None
        return self.model.linear

    def _own_sums(self, values: Values, size: int) -> Iterator[Tensor]:
        """What this process sums up of every round of pieces; zeros where the table has ended."""
        world, own = self.world, torch.zeros(size, dtype=torch.float64)
        number = 0
        for number, batch in enumerate(self.source.batches(PIECE), start=1):
            if (number - 1) % world.size == world.rank:
                own = self._piece(values, batch)
            if number % world.size == 0:
                yield own
                own = torch.zeros(size, dtype=torch.float64)
        if number % world.size:
            yield own

    def _piece(self, values: Values, batch: Any) -> Tensor:
        linear = self._linear
        cells, seen = self.model.encode(pa.Table.from_batches([batch.select(self.names)]))
        rows = seen.any(1)
        count = rows.sum().double()[None]
        if not bool(rows.any()):
            sizes = sum(part.numel() for part in _shapes(linear, values))
            return torch.zeros(1 + sizes, dtype=torch.float64)
        with evaluating(linear):
            leaves, known, _ = linear.encode(*scale_cells(linear, cells[rows], seen[rows]))
            chunks = chunks_of(linear.structure, linear.components, leaves, known)
            result = e_step(linear.structure, values, chunks)
        return torch.cat([count, _pack(result)])


def fit_linear_to_all(rows: SharedRows) -> list[float]:
    """Go on with the EM of a linear model, on all rows; the mean log-likelihood of every step."""
    linear = rows.model.linear
    if linear is None:
        return []
    trace: list[float] = []
    with one_thread(), torch.no_grad():
        values = _broadcast(linear.linear.values(), rows.world)
        for _ in range(ITERATIONS):
            expected, number = rows.sums(values)
            trace.append(float(expected.log_likelihood) / max(number, 1))
            if len(trace) > 1 and abs(trace[-1] - trace[-2]) < TOLERANCE:
                break
            values = _broadcast(m_step(linear.linear, values, expected, SHRINKAGE), rows.world)
        linear.linear.assign(values)
    rows.model.load_state_dict(rows.model.state_dict())  # what followed from the state is forgotten
    return trace


def _gather(own: Tensor, world: World) -> list[Tensor]:
    """The sums of all processes, in the order of their pieces."""
    if world.size == 1:
        return [own]
    parts = [torch.empty_like(own) for _ in range(world.size)]
    dist.all_gather(parts, own)
    return parts


def _broadcast(values: Values, world: World) -> Values:
    """The first process's values: other machines may round differently."""
    result = Values(*(part.detach().clone() for part in values))
    if world.size > 1:
        for part in result:
            dist.broadcast(part, src=0)
    return result


def _pack(expected: Expected) -> Tensor:
    return torch.cat([part.reshape(-1) for part in _parts(expected)])


def _parts(expected: Expected) -> list[Tensor]:
    leaves = [part for moments in expected.leaves for part in moments]
    return [
        expected.log_likelihood, expected.weights, *leaves, *expected.nodes, expected.roots
    ]  # fmt: skip


def _shapes(linear: GaussianVFG, values: Values) -> list[Tensor]:
    """Tensors shaped like those that an E-step gathers."""
    return _parts(_one_row_sums(linear, values))


def _one_row_sums(linear: GaussianVFG, values: Values) -> Expected:
    columns = linear.structure.columns
    leaves = torch.zeros(1, columns, dtype=torch.float64)
    seen = torch.arange(columns)[None] == 0
    with evaluating(linear):
        chunks = chunks_of(linear.structure, linear.components, leaves, seen)
        return e_step(linear.structure, values, chunks)


def _unpack(numbers: Tensor, linear: GaussianVFG, values: Values) -> Expected:
    like = _one_row_sums(linear, values)
    shapes = [part.shape for part in _parts(like)]
    parts = iter(numbers.split([shape.numel() for shape in shapes]))
    result = iter([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])
    return Expected(
        next(result),
        next(result),
        [LatentMoments(*(next(result) for _ in moments)) for moments in like.leaves],
        [next(result) for _ in like.nodes],
        next(result),
    )
