"""`fit`: gradient ascent with restarts, early stopping, a time budget and checkpoints."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vfg.inference import fit_calibration
from vfg.inference.completion import fit_completion, whole_sections
from vfg.inputs import ArrayLike, as_cells, as_labels, scale_cells
from vfg.model import VFG, WIDEST
from vfg.training.data import (
    TrainingTable,
    World,
    choose_device,
    collect_rows,
    fit_scaling,
    forked_generators,
    join_world,
)
from vfg.training.history import Checkpoint, Epoch, History, Progress, ShowsHistory, fingerprint
from vfg.training.optimiser import (
    SCHEDULES,
    AdamW,
    Average,
    copy_into,
    has_diverged,
    lost_copies,
)
from vfg.training.settings import FEW_ROWS, FitSettings, RunSettings
from vfg.training.steps import Steps
from vfg.training.tasks import Augment, ModuleTask, TableTask, Task
from vfg.utils.specs import with_options

RESTARTS = 5
"""How often training goes back and lowers the rate after a non-finite loss or a divergence: at most
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
    augment: Augment | None = None,
    **options: Any,
) -> Any:
    """Fit a model of any kind to a table, in place.

    A `vfg.GaussianVFG` is fitted by EM, which maximises the likelihood; see `GaussianVFG.fit`. A
    `vfg.TableModel` fits its encoding and all its parts; see `TableModel.fit`. A `vfg.VFG` is
    trained by gradient steps.

    Algorithm 1 maximises the surrogate objective. Algorithm 2, interleaved by `masking`, passes
    messages from a random subset of each row's sections and scores the others. With sampled states
    every step maximises the bound on the likelihood of all observed sections. Where `masking` hides
    some, it is the bound of the sections that are left, so that q is trained for any subset, or,
    with `Masking(conditional=)`, that of the hidden sections given the others; `Masking.visible` is
    not used. Only observed cells enter a loss. Training a model that was trained before continues
    from its present state.

    If the loss is not finite, or if sampled states diverge, so that held-out cells are predicted
    far worse than an epoch before, training continues from the best state at a lower rate, with one
    warning.

    Several VFGs of equal configuration, such as those of several seeds, are trained as one batched
    model, on a GPU in little more time than one: each has its own batches, masks and best state.

    Args:
        model: a `vfg.VFG`, `vfg.GaussianVFG` or `vfg.TableModel`, or a list of VFGs. On return, a
            VFG has the best state found and is in evaluation mode.
        table: a tensor, array, pandas or polars frame, mapping from leaves, torch dataset or
            loader; NaN is unobserved. A `vfg.TableModel` takes columns of any kind.
        settings: `vfg.FitSettings`, `vfg.GaussianSettings` or `vfg.ImputerSettings`, by the kind of
            the model; None for the defaults.
        observed: which cells may be used; NaN cells are never used.
        labels: label per row, −1 for none, if the prior has labels.
        device: where to train; the GPU if there is one.
        checkpoint: folder that keeps the run, so that calling again after a crash resumes it.
        progress: whether to show a progress bar; None shows one for a VFG.
        augment: a function that is applied to the cells of every batch, in the model's units, such
            as `torch.bernoulli` for pixels that are probabilities.
        options: fields of the settings that differ, such as `epochs=20`. `validation` may be a
            table, or a table and its labels: these rows are not trained on, and their objective
            chooses the state.

    Returns:
        The history of the run.

    Raises:
        ValueError: for an invalid table, labels or settings, or the checkpoint of another run.
        TypeError: for an option that the model's kind does not have.
        FloatingPointError: if the loss stays non-finite at ever lower rates; the model then has its
            best state.

    Example:
        >>> import vfg
        >>> x = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> history = vfg.fit(model, torch.cat([x, -x], dim=1), epochs=3, progress=False)
        >>> len(history)
        3
    """
    models = list(model) if isinstance(model, list | tuple) else [model]
    if not models or not all(isinstance(one, VFG) for one in models):
        return _fit_other(
            model,
            table,
            settings,
            {"observed": observed, "device": device, "progress": progress, **options},
            {"labels": labels, "checkpoint": checkpoint, "augment": augment},
        )
    to_score, options = _split_validation(options)
    settings = with_options(settings, options, FitSettings, "a VFG")
    first = models[0]
    _check_models(models, settings, labels)
    cells, seen, given, _ = _read_rows(first, table, labels, observed)
    is_short = len(cells) < FEW_ROWS and settings.epochs is None
    settings = settings.choose(
        len(cells),
        is_sampled=first.sampling is not None,
        is_wide=any(block.width > WIDEST for block in first.passing.schedule.blocks),
    )
    scored = None if to_score is None else _read_rows(first, *to_score)
    folder = None
    if checkpoint is not None:
        parts = [cells, seen, given, *(scored or ())[:3]]
        folder = Checkpoint(checkpoint, _identify(models, settings, parts, augment))
    where = choose_device(device)
    for one in models:
        fit_scaling(one, cells, seen, settings.scale)
        one.to(where)
    _check_scaling(models)
    if is_short:
        warnings.warn(
            f"the table has {len(cells)} row{'s' * (len(cells) > 1)}, too few to learn from, so "
            "training is short; give more rows, or set epochs= to train longer",
            stacklevel=2,
        )
    data = _scale(first, TrainingTable(cells, seen, given))
    if scored is not None:
        scored = _scale(first, scored)
    with join_world(where) as world, forked_generators(where):
        task = TableTask(models, data, settings, validation=scored, augment=augment)
        history = _train(task, settings, world, folder, progress is not False)
        for one in models:
            _calibrate(one.eval(), task, data, settings.seed)
    return history


def _split_validation(
    options: dict[str, Any],
) -> tuple[tuple[ArrayLike, ArrayLike | None] | None, dict[str, Any]]:
    """Other rows to choose the state by, with their labels, and the remaining options."""
    if isinstance(options.get("validation", 0.0), Real):
        return None, options
    rest = {name: value for name, value in options.items() if name != "validation"}
    to_score = options["validation"]
    if isinstance(to_score, tuple) and len(to_score) == 2:
        return to_score, rest
    return (to_score, None), rest


def _calibrate(model: VFG, task: TableTask, data: TrainingTable, seed: int) -> None:
    """Fit the uncertainty of answers to held-out cells; draws of sampled states have their own."""
    if model.sampling is not None:
        return
    cells, seen, labels = data.cells, task.data.seen, data.labels
    whole = whole_sections(model, seen)
    fit_calibration(model, cells, whole, task.held, labels=labels, seed=seed)
    has_mixtures = fit_completion(model, cells, data.seen, labels=labels, seed=seed)
    if not has_mixtures and not torch.equal(whole, seen):  # messages fill sections in part
        fit_calibration(model, cells, seen, task.held, labels=labels, seed=seed)


def maximise(
    model: nn.Module,
    rows: Tensor | Sequence[Tensor],
    settings: FitSettings | None = None,
    *,
    validate: Callable[[], float] | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
    **options: Any,
) -> History:
    """Train any module by the loop of `vfg.fit`, in place.

    The module has a method `objective(*rows, beta)` that returns a number to maximise, for the rows
    of a batch and the weight β of the present epoch. It draws from torch's global generators, which
    have a state of this run within a step and their own after it; modules that are trained in
    several threads take turns. On a GPU steps are recorded as CUDA graphs, so that a module must
    not wait for the device. Settings about tables (`masking`, `layerwise`, `free_bits`,
    `validation`, `scale`) are not used.

    Args:
        model: the module; on return it has the best state found, in evaluation mode.
        rows: a tensor, or several, with a row per example; one of them has real numbers.
        settings: None for the defaults.
        validate: the loss of the module as it is on other rows, smaller is better; None keeps the
            last state.
        device: where to train; the GPU if there is one.
        progress: whether to show a progress bar.
        options: fields of the settings that differ.

    Returns:
        The history of the run.

    Raises:
        ValueError: for invalid rows or settings.
        FloatingPointError: if the objective stays non-finite at ever lower rates.

    Example:
        >>> class Mean(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.value = nn.Parameter(torch.zeros(1))
        ...
        ...     def objective(self, rows, beta):
        ...         return -(rows - self.value).square().mean()
        >>> model = Mean()
        >>> history = maximise(model, torch.full((64, 1), 3.0), epochs=200, rate=0.1, batch=32)
        >>> round(model.value.item(), 2)
        3.0
    """
    given = with_options(settings, options, FitSettings, "a module")
    parts = [rows] if isinstance(rows, Tensor) else list(rows)
    if not parts or not len(parts[0]) or any(len(part) != len(parts[0]) for part in parts):
        sizes = ", ".join(str(len(part)) for part in parts) or "none"
        raise ValueError(f"all tensors must have the same number of rows, but they have {sizes}")
    chosen = given.choose(len(parts[0]), is_sampled=True, is_wide=True)
    where = choose_device(device)
    task = ModuleTask(model.to(where), [part.to(where) for part in parts], validate)
    with join_world(where) as world, forked_generators(where):
        return _train(task, chosen, world, None, progress)


def _train(
    task: Task, settings: RunSettings, world: World, checkpoint: Checkpoint | None, progress: bool
) -> History:
    run = Run(task, settings, world, checkpoint)
    history = run.train(Progress(settings.epochs, visible=progress and world.is_first))
    task.model.eval()
    return history


def _check_models(models: list[VFG], settings: FitSettings, labels: Any) -> None:
    """Refuse models that cannot be stacked, and settings that would be ignored."""
    if len(models) > 1:
        described = [one.to_dict() | {"seed": None} for one in models]
        if any(one != described[0] for one in described):
            raise ValueError(
                "models that are trained together must have the same graph and configuration and "
                "differ in their parameters only; fit the others one by one"
            )
        if labels is not None:
            raise ValueError("labels are for one model; fit the models one by one")
        if settings.samples > 1:
            raise ValueError(
                f"samples={settings.samples} are for one model; fit the models one by one"
            )
    masking = settings.masking
    conditional = 0.0 if masking is None or isinstance(masking, str) else masking.conditional
    for name, value, least in (
        ("free_bits", settings.free_bits, 0.0),
        ("input_dropout", settings.input_dropout, 0.0),
        ("samples", settings.samples, 1),
        ("conditional", conditional, 0.0),
    ):
        if value > least and models[0].sampling is None:
            raise ValueError(
                f"{name}={value:g} is for sampled states, but the states of this model are "
                'deterministic; leave it out, or build the model with states="sampled"'
            )


def _check_scaling(models: list[VFG]) -> None:
    """Refuse models that read one table in different units."""
    first = models[0].scaling.state_dict()
    for one in models[1:]:
        if any(not torch.equal(first[n], v) for n, v in one.scaling.state_dict().items()):
            raise ValueError(
                "models that are trained together must have the same location and scale of every "
                "column, but some were fitted to other tables; fit them one by one"
            )


def _identify(
    models: list[VFG], settings: RunSettings, parts: list[Tensor | None], augment: Augment | None
) -> str:
    """The fingerprint of a run."""
    described = {
        "settings": asdict(settings),
        "models": [one.to_dict() for one in models],
        "augment": getattr(augment, "__qualname__", None),
    }
    tensors = {f"rows {k}": part for k, part in enumerate(parts) if part is not None}
    for k, one in enumerate(models):
        tensors |= {f"{k}.{name}": value for name, value in one.state_dict().items()}
    return fingerprint(described, tensors)


def _read_rows(model: VFG, table: Any, labels: Any, observed: Any = None) -> TrainingTable:
    """Checked cells in their own units, those that may be seen, and labels."""
    cells, seen = as_cells(model, collect_rows(table), observed)
    if not len(cells):
        raise ValueError("there is nothing to learn from a table without rows")
    return TrainingTable(cells, seen, as_labels(model, labels, len(cells)))


def _scale(model: VFG, rows: TrainingTable) -> TrainingTable:
    """The same in the model's units and on its device."""
    cells, seen = scale_cells(model, rows.cells, rows.seen)
    return TrainingTable(cells, seen, None if rows.labels is None else rows.labels.to(cells.device))


def _fit_other(
    model: Any, table: Any, settings: Any, options: dict[str, Any], only_vfg: dict[str, Any]
) -> Any:
    """Fit a model that has a `fit` method of its own."""
    kind = type(model).__name__
    if not hasattr(model, "fit"):
        raise TypeError(
            "vfg.fit takes a VFG, a GaussianVFG or a TableModel, or a list of VFGs, but got "
            f"{kind}; a scikit-learn estimator has a fit method"
        )
    for name, value in only_vfg.items():
        if value is not None:
            raise ValueError(f"{name}= is for a vfg.VFG, but the model is a {kind}; leave it out")
    given = {name: value for name, value in options.items() if value is not None}
    return model.fit(table, settings, **given)


class Run:
    """One training run: what changes from step to step, and from epoch to epoch."""

    def __init__(
        self, task: Task, settings: RunSettings, world: World, checkpoint: Checkpoint | None = None
    ) -> None:
        self.task, self.model, self.settings = task, task.model, settings
        self.world, self.checkpoint = world, checkpoint
        self.device = task.like.device
        self.history = History()
        self.slowdown = 1.0
        self.is_warned = False
        self.elapsed = 0.0
        self.optimiser = AdamW(self.model, settings.rate, settings.weight_decay)
        self.average = Average(self.model, settings.average)
        self.steps = Steps(task, settings, world, self.optimiser, self.average)
        self.validation = task.validation(self.steps.recorder)
        self.best = _copy(self.model)

    def train(self, progress: ShowsHistory) -> History:
        """All epochs, with the best state restored at the end."""
        self._resume()
        begun = time.monotonic() - self.elapsed
        if self.task.is_started and self.task.copies == 1 and not len(self.history):
            self.history.start = next(iter(self.validation()), None)
        with progress:
            try:
                while self.history.stopped == "running":
                    self._epoch(begun)
                    self._decide()
                    progress.show(self.history)
                    self._save()
            except KeyboardInterrupt:
                self.history.stopped = "interrupted"
        self.optimiser.inner.zero_grad()
        _restore(self.model, self.best)
        self.task.finish()
        return self.history

    def _epoch(self, begun: float) -> None:
        """One pass over the rows; repeated at a lower rate while it diverges."""
        number = len(self.history)
        start, memory = _copy(self.model), self.optimiser.copy()
        while True:
            beta = self._beta(number * self.steps.number, begun)
            rates = (partial(one, begun=begun) for one in (self._beta, self._rate))
            means, finite = self.steps.epoch(number, self._seed(number), *rates)
            self.elapsed = self.world.agree(time.monotonic() - begun, self.device)
            if not finite:
                self._check_restarts()
            else:
                with self.average.applied():
                    self.steps.project()
                    epoch = self._evaluate(number, beta, means)
                    diverged = self._has_diverged(epoch)
                    if not diverged:
                        self._keep(epoch)
                if not diverged:
                    return self._return_copies()
                start, memory = self.best, {}
                if self.history.restarts >= RESTARTS:
                    self.history.stopped = "diverged"
                    return None
            _restore(self.model, start)
            self.average.reset()
            self.optimiser.restore(memory)
            self._slow_down()
            start, memory = self.best, {}  # the start of the epoch may have diverged already

    def _evaluate(self, number: int, beta: float, means: list[float]) -> Epoch:
        with self.steps.global_generator():  # a module's own validation may draw
            losses = self.validation()
        names = ("objective", "reconstruction", "kl", "edge", "root", "constants")
        return Epoch(
            number,
            **dict(zip(names, means, strict=True)),
            validation=sum(losses) / len(losses) if losses else None,
            rate=self.optimiser.rate,
            beta=beta,
            seconds=self.elapsed,
            members=tuple(losses) if len(losses) > 1 else (),
        )

    def _keep(self, epoch: Epoch) -> None:
        """Add an epoch to the history, and keep the states that are the best so far."""
        lowest = [min(losses) for losses in zip(*(e.members for e in self.history), strict=True)]
        is_best = self.history.add(epoch)
        if not epoch.members:
            if is_best:
                self.best = _copy(self.model)
            return
        for copy, value in enumerate(epoch.members):
            if not lowest or value < lowest[copy]:
                self._copy_part(self.best, self.model.state_dict(), copy)

    def _return_copies(self) -> None:
        """Take the copies of a stack that have lost what they had learned to their best states."""
        *before, epoch = self.history.epochs
        lost = lost_copies(before, epoch)
        if not lost or not self.task.recovers or self.history.restarts >= RESTARTS:
            return
        for copy in lost:
            self._copy_part(self.model.state_dict(), self.best, copy)
            self._copy_part(self.average.values, self.best, copy)
            self.optimiser.forget(copy, self.task.copies)
        self._slow_down()
        best = min(one.members[lost[0]] for one in before)
        self._warn(f"model {lost[0]} of {self.task.copies}", epoch, best, epoch.members[lost[0]])

    @torch.no_grad()
    def _copy_part(self, target: dict[str, Tensor], source: dict[str, Tensor], copy: int) -> None:
        """Copy the part of every tensor that belongs to one copy of a stack."""
        copies = self.task.copies
        for name, value in target.items():
            if value.ndim and len(value) % copies == 0:
                value.chunk(copies)[copy].copy_(source[name].chunk(copies)[copy])

    def _slow_down(self) -> None:
        self.history.restarts += 1
        self.slowdown *= SLOWDOWN

    def _check_restarts(self) -> None:
        """Give up if the loss was not finite too often."""
        if self.history.restarts < RESTARTS:
            return
        trouble = self.task.locate_trouble()
        _restore(self.model, self.best)
        raise FloatingPointError(
            f"the loss became non-finite {RESTARTS + 1} times, at ever lower rates, {trouble}, or "
            f"lower rate={self.settings.rate:g}; the model is back at its best state"
        )

    def _has_diverged(self, epoch: Epoch) -> bool:
        """Whether the run has lost what it had learned; the first time a warning."""
        is_stack = bool(epoch.members)  # copies are looked at one by one
        if is_stack or not self.task.recovers or not has_diverged(self.history.epochs, epoch):
            return False
        best = self.history[self.history.best or 0].validation
        self._warn("training", epoch, best, epoch.validation)
        return True

    def _warn(self, who: str, epoch: Epoch, best: float | None, loss: float | None) -> None:
        if self.is_warned:
            return
        self.is_warned = True
        warnings.warn(
            f"{who} diverged in epoch {epoch.number}, where the held-out loss rose from "
            f"{best:.4g} to {loss:.4g}, and continues from its best state at "
            f"{SLOWDOWN:g} times the rate; rate= below {self.settings.rate:g} may avoid this",
            stacklevel=7,
        )

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
        share = SCHEDULES[self.settings.schedule](self._done(step, begun))
        return self.slowdown * self.settings.rate * share

    def _done(self, step: int, begun: float) -> float:
        """The share of the run that is over before a step."""
        done = step / (self.steps.number * self.settings.epochs)
        if self.settings.budget is not None:
            is_alone = self.world.size == 1
            spent = time.monotonic() - begun if is_alone else self.elapsed
            # Compiling takes as long as the rise of the rate and of β: steps after it would begin
            # at their full height, and states ran away. Several processes have to agree on it.
            before = self.steps.preparation if is_alone else 0.0
            left = max(self.settings.budget - before, 1e-9)
            done = max(done, (spent - before) / left)
        return min(done, 1.0)

    def _beta(self, step: int, begun: float) -> float:
        beta, warmup = self.settings.beta, self.settings.warmup
        if not warmup:
            return beta
        # A share of the run rises from step to step: a long first epoch at 0 lets states run away.
        passed = step // self.steps.number if warmup >= 1 else self._done(step, begun)
        return beta * min(1.0, passed / warmup)

    def _seed(self, number: int) -> int:
        """Everything drawn in an epoch follows from the seed and its number, so runs can resume."""
        return (self.settings.seed * 1_000_003 + number) * 101 + self.history.restarts

    # The checkpoint.

    def _save(self) -> None:
        if self.checkpoint is None or not self.world.is_first:
            return
        parts = {
            "model": self.model.state_dict(),
            "best": self.best,
            "average": self.average.values,
            "optimiser": self.optimiser.copy(),
        }
        tensors = {f"{part}.{n}": value for part, own in parts.items() for n, value in own.items()}
        progress = {"slowdown": self.slowdown, "elapsed": self.elapsed}
        self.checkpoint.write(tensors, {"history": self.history.to_dict(), **progress})

    def _resume(self) -> None:
        stored = None if self.checkpoint is None else self.checkpoint.read()
        if stored is None:
            return
        tensors, progress = stored
        parts: dict[str, dict[str, Tensor]] = {
            part: {} for part in ("model", "best", "average", "optimiser")
        }
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value.to(self.device)
        _restore(self.model, parts["model"])
        self.best = parts["best"]
        copy_into(self.average.values, parts["average"])
        self.optimiser.restore(parts["optimiser"])
        self.history = History.from_dict(progress["history"])
        self.slowdown, self.elapsed = progress["slowdown"], progress["elapsed"]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _restore(model: nn.Module, state: dict[str, Tensor]) -> None:
    copy_into(model.state_dict(), state)
