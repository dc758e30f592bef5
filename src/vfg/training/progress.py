"""A progress bar with the terms of the objective."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text

from vfg.training.history import History

NARROW = 110
"""Up to this width of a terminal the terms would push aside what says how long it takes."""


class Rate(ProgressColumn):
    """How many epochs a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.3g}/s")


class Progress:
    """Shows how far training is; silent unless visible.

    Args:
        epochs: how many there will be at the most.
        visible: whether to show anything.
    """

    def __init__(self, epochs: int, *, visible: bool) -> None:
        self.bar = Bar(
            TextColumn(
                "epoch {task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)
            ),
            BarColumn(bar_width=16, table_column=Column(no_wrap=True)),
            Rate(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[terms]}"),
            disable=not visible,
            transient=False,
        )
        self.task = self.bar.add_task("fit", total=epochs, terms="")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def show(self, history: History) -> None:
        """Bring the bar up to the last epoch."""
        last = history[-1]
        terms = []
        if last.validation is not None:
            terms.append(f"held-out {last.validation:.4f} (best {history.best})")
        if not terms or self.bar.console.width > NARROW:
            terms.append(f"objective {last.objective:.3f}")
        if self.bar.console.width > NARROW:
            terms.append(f"fit {last.reconstruction:.3f}  distance {last.kl + last.edge:.3f}")
        self.bar.update(self.task, completed=len(history), terms="  ".join(terms))
