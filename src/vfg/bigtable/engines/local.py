"""This machine: in this process, or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from vfg.bigtable.engines import FillTask, Part, batch_from_bytes, batch_to_bytes, take_results
from vfg.imputation.settings import check_count

MOST_PROCESSES = 64
"""That are allowed on any machine; each holds torch and the model, about 500 MB."""


@dataclass(frozen=True)
class Local:
    """Parts are filled on this machine.

    Args:
        processes: how many work at once, with one thread each; 1 works in this process.

    Raises:
        ValueError: for a number below 1.
    """

    processes: int = 1

    def __post_init__(self) -> None:
        check_count("processes", self.processes)
        cores = os.cpu_count() or 1
        if self.processes > max(MOST_PROCESSES, 4 * cores):
            raise ValueError(
                f"{self.processes:,} processes are too many for {cores} cores; use {cores}"
            )

    def run(self, work: FillTask, parts: Iterable[Part]) -> Generator[Any]:
        """As in `Engine`; a RuntimeError says that a process was killed."""
        if self.processes == 1:
            yield from map(work, parts)
            return
        # Processes that are forked would share the locks and files of this one.
        pool = ProcessPoolExecutor(
            self.processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=work.to_bytes(),
        )
        calls = (pool.submit(_fill, row, batch_to_bytes(batch)) for row, batch in parts)
        try:
            yield from take_results(calls, Future.result, self.processes)
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process died, perhaps because memory ran out; run again to continue, "
                "with fewer processes or rows per shard"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_work: FillTask | None = None
"""In a worker process: what to do with every part."""


def _start_worker(*work: Any) -> None:
    """Make a worker process ready."""
    global _work
    # An interrupt goes to all processes of a terminal; the parent stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = FillTask.from_bytes(*work)


def _end_with_parent() -> None:
    """Leave when the first process is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _fill(first_row: int, batch: bytes) -> bytes:
    if _work is None:
        raise RuntimeError("this process has no work; it must be started by Local.run")
    return batch_to_bytes(_work((first_row, batch_from_bytes(batch))))
