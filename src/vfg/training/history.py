"""The history of a training run, its progress bar, and its checkpoint on disk.

torch is imported where tensors are written, so that `vfg show` reads a history at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text
from safetensors import SafetensorError, safe_open

from vfg.utils.extras import needs
from vfg.utils.files import write_atomically

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from torch import Tensor

NARROW = 110
"""Up to this width of a terminal the terms would push aside the remaining time."""


@dataclass(frozen=True)
class Epoch:
    """Means over the rows of one epoch, in the units in which the model is trained."""

    number: int
    objective: float
    reconstruction: float
    kl: float
    edge: float
    root: float
    constants: float
    validation: float | None
    """Mean negative log-likelihood of a held-out cell; None without held-out cells."""
    rate: float
    beta: float
    seconds: float
    members: tuple[float, ...] = ()
    """The held-out loss of each model, where several are trained together."""


@dataclass
class History:
    """The epochs of a training run and how it ended.

    Example:
        >>> history = History()
        >>> history.add(Epoch(0, -3.0, -1.0, 0.5, 0.5, -1.0, 0.0, 1.2, 1e-3, 1.0, 0.1))
        True
        >>> history.best, len(history), history[-1].objective
        (0, 1, -3.0)
    """

    epochs: list[Epoch] = field(default_factory=list)
    best: int | None = None
    """The epoch whose state the model has: the best on held-out cells, else the last. Of several
    models each has its own best state, and this is the best epoch on average."""
    stopped: str = "running"
    """Why training ended: epochs, patience, budget, interrupted, or diverged at every rate."""
    restarts: int = 0
    """How often training returned to an earlier state at a lower rate after a divergence."""
    start: float | None = None
    """The held-out loss of a linear start, the state that is kept while no epoch has a lower loss;
    `best` is None then."""

    def add(self, epoch: Epoch) -> bool:
        """Append an epoch, and return whether it is the best so far."""
        best = self.start if self.best is None else self.epochs[self.best].validation
        is_best = epoch.validation is None or best is None or epoch.validation < best
        self.epochs.append(epoch)
        if is_best:
            self.best = len(self.epochs) - 1
        return is_best

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, index: int) -> Epoch:
        return self.epochs[index]

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    def __str__(self) -> str:
        names = ["number", "objective", "reconstruction", "kl", "edge", "validation", "rate"]
        shown = self.epochs if len(self) <= 12 else [*self.epochs[:5], *self.epochs[-5:]]
        lines = ["  ".join(f"{name:>14}" for name in names)]
        for epoch in shown:
            values = [getattr(epoch, name) for name in names]
            lines.append("  ".join(f"{'':>14}" if v is None else f"{v:>14.5g}" for v in values))
        if len(shown) < len(self):
            lines.insert(6, f"{'...':>14}")
        return "\n".join([*lines, repr(self)])

    def __repr__(self) -> str:
        epochs = "no epochs" if not self.epochs else f"{len(self)} epochs, best {self.best}"
        value = None if self.best is None else self.epochs[self.best].validation
        score = "" if value is None else f" with held-out loss {value:.4g}"
        return f"History({epochs}{score}; stopped: {self.stopped}; restarts: {self.restarts})"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> History:
        """The history that `to_dict` described."""
        epochs = [
            Epoch(**{**epoch, "members": tuple(epoch.get("members", ()))})
            for epoch in description["epochs"]
        ]
        start = description.get("start")
        ends = description["best"], description["stopped"], description["restarts"]
        return cls(epochs, *ends, start)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n")

    def to_frame(self) -> pandas.DataFrame:
        """One row per epoch."""
        with needs("table"):
            import pandas
        return pandas.DataFrame([asdict(epoch) for epoch in self.epochs])

    def plot(self, axes: Axes | None = None) -> Axes:
        """Objective and held-out loss against the epoch."""
        with needs("plot"):
            import matplotlib.pyplot as plt
        axes = plt.subplots(constrained_layout=True)[1] if axes is None else axes
        numbers = [epoch.number for epoch in self.epochs]
        axes.plot(numbers, [-epoch.objective for epoch in self.epochs], label="−objective")
        held_out = [epoch.validation for epoch in self.epochs if epoch.validation is not None]
        axes.set_xlabel("epoch")
        axes.set_ylabel("−objective")
        if len(held_out) == len(numbers):
            other = axes.twinx()
            other.plot(numbers, held_out, color="C1", label="held-out loss")
            other.set_ylabel("held-out loss per cell")
            other.axvline(self.best or 0, color="0.6", linewidth=1, linestyle=":")
            other.legend(loc="upper right")
        axes.legend(loc="upper left")
        return axes


class EpochRate(ProgressColumn):
    """How many epochs a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.3g}/s")


class ShowsHistory(Protocol):
    """What shows a run while it lasts."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> None: ...

    def show(self, history: History) -> None:
        """Show the last epoch."""


class Progress(Bar):
    """The progress bar of training; shows nothing unless visible."""

    def __init__(self, epochs: int, *, visible: bool) -> None:
        super().__init__(
            TextColumn(
                "epoch {task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)
            ),
            BarColumn(bar_width=16, table_column=Column(no_wrap=True)),
            EpochRate(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[terms]}"),
            disable=not visible,
            transient=False,
        )
        self.add_task("fit", total=epochs, terms="")

    def show(self, history: History) -> None:
        """Bring the bar up to the last epoch."""
        last = history[-1]
        terms = []
        if last.validation is not None:
            terms.append(f"held-out {last.validation:.4f} (best {history.best})")
        if not terms or self.console.width > NARROW:
            terms.append(f"objective {last.objective:.3f}")
        if self.console.width > NARROW:
            terms.append(f"fit {last.reconstruction:.3f}  distance {last.kl + last.edge:.3f}")
        self.update(self.task_ids[0], completed=len(history), terms="  ".join(terms))


FILE = "training.safetensors"


class Checkpoint:
    """The folder of a run; one that belongs to a run with another fingerprint is refused."""

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.path = Path(folder) / FILE
        self.fingerprint = fingerprint

    def write(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Replace what is there by a new state."""
        from safetensors.torch import save

        self.path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        described = json.dumps({"fingerprint": self.fingerprint, **progress})
        write_atomically(self.path, save(plain, metadata={"vfg-training": described}))

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last state, or None if the run has not begun."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                progress = json.loads(file.metadata()["vfg-training"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"the checkpoint {self.path} cannot be read ({error}); remove it to start again"
            ) from error
        if progress["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"the checkpoint {self.path} belongs to a run with another model, table, labels or "
                "settings; name another folder, or remove it to start again"
            )
        return tensors, progress


def fingerprint(described: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """A digest of settings and tensors."""
    import torch

    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, tensor in tensors.items():
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
