"""Progress on standard error: the share that is done, the rate and the time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def is_watched(quiet: bool = False) -> bool:
    """Whether progress is shown: standard error is a terminal, and not quiet."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def progress_bar(total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """A bar, silent for no total or no terminal; yields what to call with how much more is done."""
    if total is None or not is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(*_columns(what), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda more: shown.advance(task, more)


def load_libraries(*, quiet: bool) -> None:
    """Import what a fit needs, which takes seconds, with a sign of life on a terminal."""
    if not is_watched(quiet) or "torch" in sys.modules:
        return
    from rich.console import Console

    with Console(stderr=True).status("loading torch"):
        import vfg.sklearn  # noqa: F401


def watch_training() -> None:
    """Let the bars of training go to standard error, so that standard output stays clean."""
    import rich

    rich.reconfigure(stderr=True)


def _columns(what: str) -> list[Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many a second."""

        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:,.0f} {what}/s" if task.speed else "")

    return [MofNCompleteColumn(), BarColumn(bar_width=24), Rate(), TimeRemainingColumn()]
