"""The history of a training run, its progress bar, and its checkpoint on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vfg.training.epochs import Epoch as Epoch
from vfg.training.epochs import History as History
from vfg.utils.files import write_atomically

NARROW = 110
"""Up to this width of a terminal the terms would push aside the remaining time."""


class Rate(ProgressColumn):
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
            Rate(table_column=Column(no_wrap=True)),
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
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, tensor in tensors.items():
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
