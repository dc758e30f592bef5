"""A progress bar with the terms of the objective."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from vfg.training.history import History


class Progress:
    """Shows how far training is; silent unless visible.

    Args:
        epochs: how many there will be at the most.
        visible: whether to show anything.
    """

    def __init__(self, epochs: int, *, visible: bool) -> None:
        self.bar = Bar(
            TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
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
        terms = f"objective {last.objective:.3f}  fit {last.reconstruction:.3f}"
        terms += f"  distance {last.kl + last.edge:.3f}"
        if last.validation is not None:
            terms += f"  held-out {last.validation:.4f} (best {history.best})"
        self.bar.update(self.task, completed=len(history), terms=terms)
