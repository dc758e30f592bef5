"""The progress bar of a fit, and its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import torch
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vfg.training.history import History

TRAINING = 10.0
"""Work of training in units of a linear model, about."""
TREES, PROCESSES, CALIBRATION = 4.0, 3.0, 2.0
"""The same of the parts that come last: row mixtures took 2 each on three tables."""
_LOCK = threading.Lock()
_FITS: list[int] = []
"""The number of threads that torch had before the fits that are running."""
_BLAS: list[threadpool_limits] = []
"""The limit of the threads of numpy's BLAS while fits are running."""


@contextmanager
def limited_threads(number: int | None) -> Iterator[int]:
    """One thread for every operation; yields how many tasks may run side by side.

    Operations of a fit are small. Threads that share one wait for each other, and beside busy
    processes they wait longer than they compute: with two threads of numpy's BLAS a fit of 1,000
    rows and 20 columns took 8.0 seconds of the processor there, with one 4.9. `number` is used for
    both instead. Threads inherit the setting; the last of fits that overlap brings back what there
    was before the first.

    Example:
        >>> before = torch.get_num_threads()
        >>> with limited_threads(None):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    with _LOCK:
        if not _FITS:
            _BLAS.append(threadpool_limits(limits=number or 1, user_api="blas"))
        _FITS.append(torch.get_num_threads() if not _FITS else _FITS[0])
        workers = _FITS[0] if number is None else number
        torch.set_num_threads(1 if number is None else number)
    try:
        yield workers
    finally:
        with _LOCK:
            if len(_FITS) == 1:
                _BLAS.pop().restore_original_limits()
            # Of this thread, and of threads that begin later.
            torch.set_num_threads(_FITS.pop())


class FitBar:
    """The progress bar of a fit: the part, the held-out error so far, and the time left."""

    def __init__(self, *, visible: bool) -> None:
        whole = Column(no_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}", table_column=whole),
            BarColumn(bar_width=16, table_column=whole),
            TaskProgressColumn(),
            TimeElapsedColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("{task.fields[terms]}"),
            disable=not visible,
        )
        self._task = self._bar.add_task("reading", total=40.0, terms="")
        self._visible = visible

    def __enter__(self) -> FitBar:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            total = self._bar.tasks[0].total or 1.0
            self._bar.update(self._task, completed=total, description="fitted")
        self._bar.stop()

    @property
    def completed(self) -> float:
        """The work done, as a share."""
        return self._bar.tasks[0].completed / (self._bar.tasks[0].total or 1.0)

    def plan(self, work: float) -> None:
        """Set the work that is still to do, in units of a linear model."""
        self._bar.update(self._task, total=self._bar.tasks[0].completed + work)

    @contextmanager
    def part(self, name: str, work: float) -> Iterator[Callable[[float], None]]:
        """Fit a part; yields what shows a share of it as done."""
        self._bar.update(self._task, description=name)
        before = self._bar.tasks[0].completed

        def show(share: float) -> None:
            self._bar.update(self._task, completed=before + work * share)

        yield show
        show(1.0)

    def show_error(self, error: float | None) -> None:
        """Show the error at held-out cells."""
        if error is not None:
            self._bar.update(self._task, terms=f"held-out error {error:.4f}")

    def training(self, epochs: int, *, visible: bool) -> TrainingBar:
        """What training shows."""
        return TrainingBar(self if visible else FitBar(visible=False), epochs)

    def advance(self, work: float, name: str) -> None:
        """Some work of a part is done."""
        self._bar.update(self._task, advance=work, description=name)


class TrainingBar:
    """The share of training in the bar of a fit."""

    def __init__(self, bar: FitBar, epochs: int) -> None:
        self._bar, self._epochs = bar, epochs

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, history: History) -> None:
        """Bring the bar up to the last epoch."""
        self._bar.advance(TRAINING / self._epochs, f"members, epoch {len(history)}/{self._epochs}")
