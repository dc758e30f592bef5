"""Engines apply one pure function to the parts of a table; results are equal bit for bit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import torch
import torch.distributed as dist

from vfg.modelfile import dumps, loads
from vfg.training.data import World, join_world
from vfg.utils.specs import check_choice

if TYPE_CHECKING:
    from vfg.bigtable.fill_batch import Filling, TextColumns
    from vfg.imputation.table_model import TableModel

Part: TypeAlias = tuple[int, Any]
"""The position of a batch's first row in the whole table, and the `pyarrow.RecordBatch`."""
ENGINES = ("local", "ray")
AHEAD = 2
"""How many parts every process has at once: one to work on, one waiting."""

_Call = TypeVar("_Call")


@dataclass(frozen=True)
class FillTask:
    """What is to be done with every part of a table: by which model, and what to write."""

    model: TableModel
    filling: Filling
    text: TextColumns | None = None

    def __call__(self, part: Part) -> Any:
        """The filled record batch of a part.

        One thread does it, wherever it happens: sums then have the same order everywhere.
        """
        from vfg.bigtable.fill_batch import filled_batch

        first_row, batch = part
        with one_thread():
            if self.text is not None:
                return self.text.fill(self.model, batch, first_row, self.filling)
            return filled_batch(self.model, batch, first_row, self.filling)

    def to_bytes(self) -> tuple[bytes, Filling, TextColumns | None]:
        """The same as bytes and plain values, for another process."""
        return dumps(self.model), self.filling, self.text

    @classmethod
    def from_bytes(cls, model: bytes, filling: Filling, text: TextColumns | None) -> FillTask:
        """The inverse of `to_bytes`."""
        return cls(loads(model), filling, text)


class Engine(Protocol):
    """Applies work to parts, anywhere and in any order, and hands the results back in order.

    An engine takes new parts only as fast as results are taken from it, so that memory stays flat
    however many parts there are.
    """

    def run(self, work: FillTask, parts: Iterable[Part]) -> Generator[Any]:
        """The filled record batches of the parts, in their order.

        Args:
            work: what to do with every part.
            parts: the table in pieces.
        """
        ...


def take_results(
    calls: Iterator[_Call], result: Callable[[_Call], bytes], processes: int
) -> Iterator[Any]:
    """The record batches that calls return, in their order, few calls being begun ahead.

    Args:
        calls: begun one by one, as they are taken from here.
        result: waits for the bytes that a call returns.
        processes: how many work at once.
    """
    waiting: deque[_Call] = deque()
    for call in calls:
        waiting.append(call)
        if len(waiting) >= AHEAD * processes:
            yield batch_from_bytes(result(waiting.popleft()))
    while waiting:
        yield batch_from_bytes(result(waiting.popleft()))


def engine_named(name: str, *, processes: int = 1) -> Engine:
    """An engine by its name, with settings of its own left alone.

    Args:
        name: `"local"` or `"ray"`.
        processes: how many work at once.

    Raises:
        ValueError: for another name.
        ImportError: if the package behind it is not installed.

    Example:
        >>> engine_named("local", processes=2)
        Local(processes=2)
    """
    check_choice("engine", name, ENGINES)
    if name == "ray":
        from vfg.bigtable.engines.ray import Ray

        return Ray(processes=processes)
    from vfg.bigtable.engines.local import Local

    return Local(processes=processes)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, as sums over several may have another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def process_group() -> Iterator[World]:
    """The processes that torchrun started, joined for tensors of any device; else this one alone.

    A group that exists already is used and left alone.

    Example:
        >>> with process_group() as world:
        ...     world
        World(rank=0, size=1)
    """
    is_first_to_join = not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_first_to_join:
        dist.init_process_group(backends())
    try:
        with join_world(torch.device("cpu")) as world:
            yield world
    finally:
        if is_first_to_join:
            dist.destroy_process_group()


def backends() -> str:
    """Who carries tensors between processes: gloo, and nccl those on GPUs."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def batch_to_bytes(batch: Any) -> bytes:
    """A record batch as bytes; of a slice, its own rows alone."""
    import pyarrow as pa

    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(stream.getvalue())


def batch_from_bytes(data: bytes) -> Any:
    """The inverse of `batch_to_bytes`."""
    import pyarrow as pa

    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
