"""`fit`: gradient ascent with restarts, early stopping, a time budget and checkpoints."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vfg.inference import fit_calibration
from vfg.inputs import ArrayLike, as_cells, as_labels, scale_cells
from vfg.model import VFG
from vfg.training.data import (
    Table,
    World,
    choose_device,
    collect_rows,
    draw_held_out,
    fit_scaling,
    initialise,
    join_world,
)
from vfg.training.history import Checkpoint, Epoch, History, Progress, fingerprint
from vfg.training.losses import HeldOutLoss
from vfg.training.optimiser import AdamW, has_blown_up, one_cycle
from vfg.training.settings import FitSettings
from vfg.training.steps import Steps
from vfg.utils.specs import with_options

RESTARTS = 5
"""How often training goes back and lowers the rate after a non-finite loss or a blow-up: at most
to 0.2 % of the first rate."""
SLOWDOWN = 0.3
"""The factor of the rate after each restart."""


def fit(
    model: Any,
    table: ArrayLike,
    settings: Any = None,
    *,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    device: str | torch.device | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    r"""Fit a model of any kind to a table, in place.

    Of a `vfg.GaussianVFG` the likelihood is maximised by EM; see `GaussianVFG.fit`. Of a
    `vfg.TableModel` the encoding and all parts are fitted; see `TableModel.fit`. A `vfg.VFG` is
    trained by gradient steps:

    Algorithm 1 ascends the surrogate objective; Algorithm 2, interleaved by `masking`, passes
    messages from a random subset of each row's sections and scores the others. With sampled states
    every step ascends the bound on the likelihood instead: of all observed sections, or, where
    `masking` hides some, of those that are left, so that q learns to work from any of them; every
    such step is a bound on log p of what it sees, and `Masking.visible` is not used. Only observed
    cells ever enter a loss. Training a model that was trained before continues from where it is.

    A non-finite loss is answered by going back and lowering the rate. So is a blow-up of sampled
    states, an epoch after which held-out cells are predicted far worse than before: training goes
    on from the best state, with one warning.

    Args:
        model: a `vfg.VFG`, `vfg.GaussianVFG` or `vfg.TableModel`; on return a VFG has the best
            state found, in evaluation mode.
        table: a tensor, array, pandas or polars frame, mapping from leaves, torch dataset or
            loader; NaN is unobserved. A `vfg.TableModel` takes columns of any kind.
        settings: `vfg.FitSettings`, `vfg.GaussianSettings` or `vfg.ImputerSettings`, by the kind of
            the model; None for the defaults.
        observed: which cells may be used; those that are NaN are never.
        labels: label per row, −1 for none, if the prior has labels.
        device: where to train; the GPU if there is one.
        checkpoint: folder that keeps the run, so that calling again after a crash resumes it.
        progress: whether to show a progress bar; None shows one for a VFG.
        options: fields of the settings that differ, such as `epochs=20` or `seed=1`.

    Returns:
        The history of the run.

    Raises:
        ValueError: for a table, labels or settings that cannot be, or a foreign checkpoint.
        TypeError: for an option that the model's kind does not have.
        FloatingPointError: if the loss stays non-finite at ever lower rates; the model is then back
            at its best state.

    Example:
        >>> import vfg
        >>> x = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> history = vfg.fit(model, torch.cat([x, -x], dim=1), epochs=3, progress=False)
        >>> len(history)
        3
    """
    if not isinstance(model, VFG):
        return _fit_other(
            model,
            table,
            settings,
            {"observed": observed, "device": device, "progress": progress, **options},
            {"labels": labels, "checkpoint": checkpoint},
        )
    settings = with_options(settings, options, FitSettings, "a VFG")
    progress = progress is not False
    cells, seen = as_cells(model, collect_rows(table), observed)
    if not len(cells):
        raise ValueError("there is nothing to learn from a table without rows")
    given = as_labels(model, labels, len(cells))
    where = choose_device(device)
    folder = None
    if checkpoint is not None:
        described = {"settings": asdict(settings), "model": model.to_dict()}
        tensors = {"cells": cells, "seen": seen, **model.state_dict()}
        folder = Checkpoint(checkpoint, fingerprint(described, tensors))
    fit_scaling(model, cells, seen, settings.scale)
    model.to(where)
    data = Table(*scale_cells(model, cells, seen), None if given is None else given.to(where))
    devices = [where] if where.type == "cuda" else []
    with join_world(where) as world, torch.random.fork_rng(devices=devices):
        run = Run(model, data, settings, world, folder)
        shown = Progress(settings.epochs, visible=progress and world.is_first)
        history = run.train(shown)
        model.eval()
        if model.sampling is None:  # draws of sampled states spread by themselves
            fit_calibration(
                model, data.cells, run.data.seen, run.held, labels=data.labels, seed=settings.seed
            )
    return history


def _fit_other(
    model: Any, table: Any, settings: Any, options: dict[str, Any], only_vfg: dict[str, Any]
) -> Any:
    """Fit a model that has a `fit` method of its own."""
    kind = type(model).__name__
    if not hasattr(model, "fit"):
        raise TypeError(
            f"vfg.fit takes a VFG, a GaussianVFG or a TableModel, but got {kind}; a scikit-learn "
            "estimator has a fit method"
        )
    for name, value in only_vfg.items():
        if value is not None:
            raise ValueError(f"{name}= is for a vfg.VFG, but the model is a {kind}; leave it out")
    given = {name: value for name, value in options.items() if value is not None}
    return model.fit(table, settings, **given)


class Run:
    """One training run: what changes from step to step, and from epoch to epoch."""

    def __init__(
        self,
        model: VFG,
        data: Table,
        settings: FitSettings,
        world: World,
        checkpoint: Checkpoint | None,
        held: Tensor | None = None,
    ) -> None:
        self.model, self.settings, self.world, self.checkpoint = model, settings, world, checkpoint
        self.device = data.cells.device
        drawn = draw_held_out(model, data, settings.validation, settings.seed)
        self.held = drawn if held is None else held
        self.data = Table(data.cells, data.seen & ~self.held, data.labels)
        self.history = History()
        self.slowdown = 1.0
        self.is_warned = False
        self.elapsed = 0.0
        initialise(model, self.data, min(settings.batch, len(data.cells)))
        self.optimiser = AdamW(model, settings.rate, settings.weight_decay)
        self.steps = Steps(model, self.data, settings, world, self.optimiser)
        self.validation = HeldOutLoss(model, self.data, self.held, self.steps.recorder)
        self.best = _copy(model)

    def train(self, progress: Progress) -> History:
        """All epochs, with the best state restored at the end."""
        self._resume()
        begun = time.monotonic() - self.elapsed
        with progress:
            try:
                while self.history.stopped == "running":
                    self._epoch(begun)
                    self._decide()
                    progress.show(self.history)
                    self._save()
            except KeyboardInterrupt:
                self.history.stopped = "interrupted"
        self.optimiser.clear()
        _restore(self.model, self.best)
        self.model.is_trained.fill_(True)
        return self.history

    def _epoch(self, begun: float) -> None:
        """One pass over the rows; repeated at a lower rate while it diverges."""
        number = len(self.history)
        start, memory = _copy(self.model), self.optimiser.copy()
        while True:
            means, finite = self.steps.epoch(
                number, self._seed(number), self._beta(number), partial(self._rate, begun=begun)
            )
            self.elapsed = self.world.agree(time.monotonic() - begun, self.device)
            if not finite:
                self._check_restarts()
            else:
                epoch = self._evaluate(number, means)
                if not self._is_blow_up(epoch):
                    break
                start, memory = self.best, {}
                if self.history.restarts >= RESTARTS:
                    self.history.stopped = "diverged"
                    return
            _restore(self.model, start)
            self.optimiser.restore(memory)
            self.history.restarts += 1
            self.slowdown *= SLOWDOWN
            start, memory = self.best, {}  # the start of the epoch may have diverged already
        if self.history.add(epoch):
            self.best = _copy(self.model)

    def _evaluate(self, number: int, means: list[float]) -> Epoch:
        objective, reconstruction, kl, edge, root, constants = means
        return Epoch(
            number,
            objective,
            reconstruction,
            kl,
            edge,
            root,
            constants,
            validation=self.validation(),
            rate=self.optimiser.rate,
            beta=self._beta(number),
            seconds=self.elapsed,
        )

    def _check_restarts(self) -> None:
        """Give up if the loss was not finite too often."""
        if self.history.restarts < RESTARTS:
            return
        broken = self._broken_node()
        _restore(self.model, self.best)
        raise FloatingPointError(
            f"the loss became non-finite {RESTARTS + 1} times, at ever lower rates, first "
            f"at node {broken!r}; look for extreme values beneath it, or lower rate="
            f"{self.settings.rate:g}; the model is back at its best state"
        )

    def _is_blow_up(self, epoch: Epoch) -> bool:
        """Whether sampled states have lost what they had learned; the first time a warning."""
        if self.model.sampling is None or not has_blown_up(self.history.epochs, epoch):
            return False
        if not self.is_warned:
            self.is_warned = True
            best = self.history[self.history.best or 0].validation
            warnings.warn(
                f"training blew up in epoch {epoch.number}, where the held-out loss rose from "
                f"{best:.4g} to {epoch.validation:.4g}, and goes on from its best state at "
                f"{SLOWDOWN:g} times the rate; rate= below {self.settings.rate:g} may avoid this",
                stacklevel=5,
            )
        return True

    def _decide(self) -> None:
        """Whether to stop, and why."""
        history, settings = self.history, self.settings
        best = history.best or 0
        if history.stopped != "running":
            return
        if len(history) >= settings.epochs:
            history.stopped = "epochs"
        elif settings.budget is not None and self.elapsed >= settings.budget:
            history.stopped = "budget"
        elif settings.patience is not None and len(history) - 1 - best >= settings.patience:
            history.stopped = "patience"

    def _rate(self, step: int, begun: float) -> float:
        done = step / (self.steps.number * self.settings.epochs)
        if self.settings.budget is not None:
            spent = self.elapsed if self.world.size > 1 else time.monotonic() - begun
            done = max(done, spent / self.settings.budget)
        return self.slowdown * self.settings.rate * one_cycle(min(done, 1.0))

    def _beta(self, number: int) -> float:
        settings = self.settings
        return settings.beta * (min(1.0, number / settings.warmup) if settings.warmup else 1.0)

    def _seed(self, number: int) -> int:
        """Everything drawn in an epoch follows from the seed and its number, so runs can resume."""
        return (self.settings.seed * 1_000_003 + number) * 101 + self.history.restarts

    def _broken_node(self) -> str:
        """The first node whose state is not finite, else the one with the largest state."""
        with torch.no_grad():
            passes = self.model(self.data.cells[:4096], self.data.seen[:4096])
        blocks = self.model.passing.schedule.blocks
        sizes: dict[str, float] = {}
        for block, state, back in zip(blocks, passes.forward, passes.backward, strict=True):
            size = torch.maximum(state.value.abs(), back.abs()).amax((1, 2))
            sizes.update(zip(block.nodes, size.nan_to_num(torch.inf).tolist(), strict=True))
        return max(sizes, key=lambda node: sizes[node])

    # The checkpoint.

    def _save(self) -> None:
        if self.checkpoint is None or not self.world.is_first:
            return
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= {f"optimiser.{name}": value for name, value in self.optimiser.copy().items()}
        progress: dict[str, Any] = {
            "history": self.history.to_dict(),
            "slowdown": self.slowdown,
            "elapsed": self.elapsed,
        }
        self.checkpoint.write(tensors, progress)

    def _resume(self) -> None:
        stored = None if self.checkpoint is None else self.checkpoint.read()
        if stored is None:
            return
        tensors, progress = stored
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value.to(self.device)
        _restore(self.model, parts["model"])
        self.best = parts["best"]
        self.optimiser.restore(parts["optimiser"])
        self.history = History.from_dict(progress["history"])
        self.slowdown, self.elapsed = progress["slowdown"], progress["elapsed"]


def _copy(model: VFG) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _restore(model: VFG, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(state[name])
