"""Processes that work on one thing together, as a process group of `torch.distributed`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from vfg.training.data import World, join_world

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds to find out whether a worker failed because another one died."""


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


class Worker:
    """What an actor does: it joins the group, and calls a function."""

    def place(self) -> tuple[str, int]:
        """Where the others can meet this one: the address of its machine, and a free port."""
        address = _ray().util.get_node_ip_address()
        with socket.socket() as found:
            found.bind(("", 0))
            return address, int(found.getsockname()[1])

    def run(
        self,
        rank: int,
        size: int,
        place: tuple[str, int],
        function: Callable[..., Any],
        arguments: Sequence[Any],
    ) -> Any:
        """What the function returns, of the first worker; None of the others.

        Args:
            rank: of this worker.
            size: how many there are.
            place: where they meet.
            function: to call.
            arguments: of it.
        """
        # What torchrun sets; nothing else tells code which of a machine's processes it is.
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK="0")
        meeting = f"tcp://{place[0]}:{place[1]}"
        dist.init_process_group(backends(), init_method=meeting, rank=rank, world_size=size)
        result = function(*arguments)
        # Not if it fails: the others would lose the connection, and seem to fail for that.
        dist.destroy_process_group()
        return result if rank == 0 else None


class WorkerDiedError(RuntimeError):
    """A process was killed, or its machine was lost."""


def run_once(workers: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
    """What a function returns that new actors call together; a cluster must be connected.

    Args:
        workers: how many actors, each with one processor.
        function: to call; the same everywhere, but for its rank.
        arguments: of it.

    Raises:
        WorkerDiedError: if an actor died.
        Exception: whatever the function raised first.
    """
    ray = _ray()
    kind = ray.remote(num_cpus=1, max_restarts=0)(Worker)
    actors = [kind.remote() for _ in range(workers)]
    try:
        place = ray.get(actors[0].place.remote())
        held = ray.put(list(arguments))
        calls = [
            actor.run.remote(rank, workers, place, function, held)
            for rank, actor in enumerate(actors)
        ]
        _check_all(calls)
        found: T = ray.get(calls[0])
        return found
    except ray.exceptions.RayActorError as error:
        raise WorkerDiedError(type(error).__name__) from error
    finally:
        # Those that wait for one that failed would wait for half an hour.
        for actor in actors:
            ray.kill(actor)


def _check_all(calls: list[Any]) -> None:
    """Wait for all calls; raise what the first that fails raised, or that one of them died."""
    ray = _ray()
    waiting = list(calls)
    failed: Exception | None = None
    while waiting:
        done, waiting = ray.wait(waiting, timeout=None if failed is None else PATIENCE)
        if not done:
            break
        try:
            ray.get(done[0])
        except ray.exceptions.RayTaskError as error:
            failed = failed or error.cause
            # One that lost the connection to a dead one may fail before the death is known.
            if not isinstance(failed, RuntimeError):
                break
        except ray.exceptions.RayError as error:
            raise WorkerDiedError(type(error).__name__) from error
    if failed is not None:
        raise failed


def _ray() -> Any:
    """Ray, whose types say less than it does."""
    import ray

    return ray
