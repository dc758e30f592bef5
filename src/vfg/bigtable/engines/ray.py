"""Ray: actors that hold the model, on this machine or on a cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle
from typing import Any, TypeVar

import torch.distributed as dist

from vfg.bigtable.engines import (
    FillTask,
    Part,
    backends,
    batch_from_bytes,
    batch_to_bytes,
    take_results,
)
from vfg.bigtable.engines.ray_data import ShardPlan, fill_shards
from vfg.imputation.settings import check_count
from vfg.utils.extras import needs

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds to find out whether a worker failed because another one died."""
RETRIES = 3
"""How often an actor that died is started again, and its part with it."""


@dataclass(frozen=True)
class Ray:
    """Parts are filled by actors of Ray, which read the model once.

    A cluster that this process is connected to already is used and left alone; otherwise one is
    started, or connected to, and left again. On a cluster, every machine needs vfg in the same
    version. Shards of a folder are read and written by the workers of Ray Data, so every machine
    must reach the files, at the same paths or in a store; one file is read and written by this
    process alone.

    Args:
        processes: how many actors, each with one processor.
        address: of a cluster, such as `"auto"` or `"ray://host:10001"`; None takes the one that the
            environment variable `RAY_ADDRESS` names, or else starts one here.
        shared: whether every machine reaches the files; if not, this process reads and writes all.
        gpus: number of GPUs of every actor that writes shards, which then computes on them; results
            are those of a GPU.

    Raises:
        ValueError: for a number of processes below 1.
    """

    processes: int = 1
    address: str | None = None
    shared: bool = True
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_count("processes", self.processes)

    def run(self, work: FillTask, parts: Iterable[Part]) -> Generator[Any]:
        """As in `Engine`; a RuntimeError says that an actor died again and again."""
        ray = _import_ray()
        with _connect(self.address or os.environ.get("RAY_ADDRESS"), self.processes):
            kind = ray.remote(num_cpus=1, max_restarts=RETRIES, max_task_retries=RETRIES)(FillActor)
            actors = [kind.remote() for _ in range(self.processes)]
            held = [ray.put(work.to_bytes())]
            calls = (
                actor.fill.remote(held, first_row, batch_to_bytes(batch))
                for actor, (first_row, batch) in zip(cycle(actors), parts, strict=False)
            )
            try:
                yield from take_results(calls, ray.get, self.processes)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise RuntimeError(
                    f"a task failed in Ray again and again ({type(error).__name__}); run again"
                ) from error

    def fill_shards(
        self, plan: ShardPlan, work: FillTask, known: Sequence[int]
    ) -> Generator[dict[str, Any]]:
        """As in `ShardEngine`; a RuntimeError says that workers died again and again."""
        ray = _import_ray()
        with needs("ray"):
            import_module("ray.data")
        with _connect(self.address or os.environ.get("RAY_ADDRESS"), self.processes):
            try:
                yield from fill_shards(plan, work, known, processes=self.processes, gpus=self.gpus)
            except ray.exceptions.RayError as error:
                raise RuntimeError(
                    f"a shard failed in Ray again and again ({type(error).__name__}); run again"
                ) from error

    def together(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in all processes at once, joined by `torch.distributed`.

        Inside, `vfg.fit` and the fit of tables share their work as they do under torchrun. If a
        process dies, all begin again; a function that keeps a checkpoint on a common disk, as
        `vfg.fit(checkpoint=)` does, then continues from there.

        Args:
            function: to call; what it raises first is raised here.
            arguments: of it; anything that can be pickled.

        Returns:
            What the first process returned.

        Raises:
            ImportError: if Ray is not installed.
            RuntimeError: if processes died again and again.
        """
        _import_ray()
        with _connect(self.address or os.environ.get("RAY_ADDRESS"), self.processes):
            for _ in range(RETRIES + 1):
                with suppress(WorkerDiedError):
                    return run_once(self.processes, function, arguments)
        raise RuntimeError(
            f"a worker of Ray died {RETRIES + 1} times, perhaps because memory ran out; nothing "
            "was written; use fewer workers on a machine, or look at Ray's logs"
        )


class FillActor:
    """What an actor does: it reads the model once and fills parts."""

    def __init__(self) -> None:
        self.work: FillTask | None = None

    def fill(self, held: list[Any], first_row: int, batch: bytes) -> bytes:
        """The filled batch of a part; an actor that was started again finds its work in `held`."""
        if self.work is None:
            import ray

            self.work = FillTask.from_bytes(*ray.get(held[0]))
        return batch_to_bytes(self.work((first_row, batch_from_bytes(batch))))


def _import_ray() -> Any:
    """Ray, with more patience than its own for a machine that is busy."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    with needs("ray"):
        import ray
    return ray


@contextmanager
def _connect(address: str | None, processes: int) -> Iterator[None]:
    """A connection to a cluster: the one there is, or our own for as long as it is needed."""
    import ray

    if ray.is_initialized():
        yield
        return
    try:
        # Ray counts processors by itself; where it counts fewer than asked for, actors would wait.
        ray.init(
            address=address,
            num_cpus=processes if address is None else None,
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ImportError, ValueError, OSError):
        raise
    except Exception as error:  # Ray raises bare ones
        reason = " ".join(str(error).split())
        raise RuntimeError(
            f"Ray did not start ({reason}); try again, or start a cluster"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


class Worker:
    """What an actor does: it joins the group, and calls a function."""

    def place(self) -> tuple[str, int]:
        """Where the others can meet this one: the address of its machine, and a free port."""
        address = _import_ray().util.get_node_ip_address()
        with socket.socket() as result:
            result.bind(("", 0))
            return address, int(result.getsockname()[1])

    def run(
        self,
        rank: int,
        size: int,
        place: tuple[str, int],
        function: Callable[..., Any],
        arguments: Sequence[Any],
    ) -> Any:
        """What the function returns, of the first worker; None of the others."""
        # What torchrun sets; code finds its rank among a machine's processes there.
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
    """What a function returns that new actors call together, or what it raises first.

    A cluster must be connected. `WorkerDiedError` says that an actor died.
    """
    ray = _import_ray()
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
        result: T = ray.get(calls[0])
        return result
    except ray.exceptions.RayActorError as error:
        raise WorkerDiedError(type(error).__name__) from error
    finally:
        # Those that wait for one that failed would wait for half an hour.
        for actor in actors:
            ray.kill(actor)


def _check_all(calls: list[Any]) -> None:
    """Wait for all calls; raise what the first that fails raised, or that one of them died."""
    ray = _import_ray()
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
