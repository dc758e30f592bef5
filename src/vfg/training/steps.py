"""The steps of an epoch: gather rows, hide cells, differentiate, clip, update."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows import Flow, Rounding, of_kind, temporarily_set, tensor_cores
from vfg.flows.image_networks import GroupedConvolution
from vfg.passing.aggregation import FramedPrecision
from vfg.training.acceleration import (
    COST,
    WARM_UP,
    Loss,
    Recorder,
    Replayed,
    compile_loss,
    compiling_pays,
    expected_gain,
)
from vfg.training.data import World
from vfg.training.losses import BoundLoss
from vfg.training.optimiser import AdamW, Average
from vfg.training.settings import RunSettings
from vfg.training.tasks import Task
from vfg.utils.random import as_global_generator

_DDP = nn.parallel.DistributedDataParallel
SYNCHRONISES = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(_DDP).parameters
    else "broadcast_buffers"
)
"""The option of torch by which processes copy buffers in every step; torch 2.13 renamed it."""


class Steps:
    """Everything that happens to the model of a task, in place, within an epoch.

    What changes from step to step (rows, rate, β, masks) lies in tensors and generators that stay
    where they are, and nothing is read back before the epoch is over. So a GPU records each kind of
    step once, from the gathering of its rows to the update, and replays it.
    """

    def __init__(
        self, task: Task, settings: RunSettings, world: World, optimiser: AdamW, average: Average
    ) -> None:
        self.task, self.model, self.settings, self.world = task, task.model, settings, world
        self.optimiser, self.average = optimiser, average
        device, dtype = task.like.device, task.like.dtype
        self.batch = min(settings.batch, task.rows) // world.size * world.size
        if not self.batch:
            raise ValueError(f"{world.size} processes cannot share {task.rows} rows")
        self.number = settings.steps or task.rows // self.batch
        loss = task.loss
        if world.size > 1:
            unsynced: dict[str, Any] = {SYNCHRONISES: False}
            loss = _DDP(loss, find_unused_parameters=True, **unsynced)
        self.loss: Loss = torch.compile(loss) if settings.compile is True else loss
        # Looking for them takes longer than small layers, so it is done once.
        self.constrained = of_kind(self.model, FramedPrecision)
        self.flows, self.networks = of_kind(self.model, Flow), of_kind(self.model, Rounding)
        self.drawing = [*self.networks, *of_kind(task.loss, BoundLoss)]
        self.convolves = device.type == "cuda" and bool(of_kind(self.model, GroupedConvolution))
        self.generator = torch.Generator(device)
        # A GPU's recorded steps draw noise from the global generator of the device.
        self.noise = torch.Generator() if device.type == "cpu" else None
        self.is_compiled = settings.compile is True
        shape = (self.batch,) if task.copies == 1 else (self.batch, task.copies)
        self.rows = torch.zeros(shape, dtype=torch.long, device=device)
        self.beta = torch.zeros((), dtype=dtype, device=device)
        self.total = torch.zeros(6, dtype=dtype, device=device)
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        is_recorded = device.type == "cuda" and world.size == 1
        self.recorder = Recorder(device, [self.generator]) if is_recorded else None
        self.may_compile = settings.compile == "auto" and world.size == 1
        self.kinds: dict[tuple[bool, int], Replayed] = {}
        self.preparation = 0.0
        """Seconds of the first steps of every kind, which compile, try out kernels and record."""

    def epoch(
        self,
        number: int,
        seed: int,
        beta: Callable[[int], float],
        rate: Callable[[int], float],
    ) -> tuple[list[float], bool]:
        """Take the steps of an epoch; all that is drawn follows from `seed`, so a run can resume.

        `beta` and `rate` give the weight of the KL terms and the learning rate of a step by its
        number in the run. Returns the terms of the loss, averaged over the steps, and whether all
        were finite.
        """
        first = number * self.number
        weight = beta(first)
        self.begin(seed, weight)
        self.model.train()
        begun = time.monotonic()
        own = None if self._draws_globally else self.noise
        with temporarily_set(self.drawing, "generator", own):
            order = self._order().split(self.batch)[: self.number]
            for step, rows in enumerate(order, start=first):
                self.rows.copy_(rows)
                self.optimiser.rate = rate(step)
                if beta(step) != weight:
                    weight = beta(step)
                    self.beta.fill_(weight)
                self._take(self.kind(step))
                self.average.update(step)
        self.model.eval()
        self.world.average(self.total, self.finite)
        terms = (self.total / (self.number * self.task.copies)).tolist()  # waits for the device
        # If steps were recorded in this epoch, its time is no measure.
        is_new = any(kind.recorded_at >= begun for kind in self.kinds.values())
        if self.may_compile and not is_new:
            self._decide(number + 1, (time.monotonic() - begun) / self.number)
        return terms, bool(self.finite)

    def _take(self, kind: Replayed) -> None:
        """Take a step, and note how long preparing this kind of it takes."""
        is_prepared, begun = kind.calls > WARM_UP, time.monotonic()
        kind()
        if not is_prepared:
            self.preparation += time.monotonic() - begun

    def _decide(self, done: int, seconds: float) -> None:
        """Compile the loss if that pays, by the time of the first epoch without recordings."""
        self.may_compile = False
        left = (self.settings.epochs - done) * self.number
        kind = self.rows.device.type
        gain, cost = expected_gain(self.model, kind, self.settings.precision), COST[kind]
        if compiling_pays(left, seconds, gain, cost, self.settings.budget):
            self.loss, self.is_compiled = compile_loss(self.loss), True
            self.kinds.clear()

    def begin(self, seed: int, beta: float) -> None:
        """Seed an epoch and set its weight of the KL terms; sums start at zero."""
        if self.noise is None:
            torch.manual_seed(seed * 1009 + self.world.rank)  # inside a forked generator
        else:
            self.noise.manual_seed(seed * 1009 + self.world.rank)
        self.generator.manual_seed(seed)
        self.beta.fill_(beta)
        self.total.zero_()
        self.finite.fill_(True)

    @property
    def _draws_globally(self) -> bool:
        """Whether steps run code that draws from torch's global generator and takes no other."""
        return self.task.is_module or self.task.augment is not None or self.is_compiled

    def global_generator(self) -> AbstractContextManager[None]:
        """A context in which such code draws the numbers of this run."""
        if self.noise is None or not self._draws_globally:
            return nullcontext()
        return as_global_generator(self.noise)

    def _order(self) -> Tensor:
        """The rows of an epoch's batches: whole passes over the table, each in its own order.

        Those of every copy of a stack are in a column of their own.
        """
        each = self.task.rows // self.batch
        permute = partial(
            torch.randperm, self.task.rows, generator=self.generator, device=self.rows.device
        )
        copies = [
            torch.cat([permute()[: each * self.batch] for _ in range(passes)])
            for passes in [-(-self.number // each)] * self.task.copies
        ]
        return copies[0] if len(copies) == 1 else torch.stack(copies, dim=1)

    def kind(self, step: int) -> Replayed:
        """What a step does, which depends on its number in few ways.

        With layer-wise training every layer has masked and other steps in its own turn.
        """
        masking = self.settings.masking
        turn, layer = divmod(step, len(self.task.layers) or 1)
        masked = masking is not None and masking.is_masked(turn)
        if (masked, layer) not in self.kinds:
            work = partial(self.step, masked, layer)
            self.kinds[masked, layer] = Replayed(work, self.recorder)
        return self.kinds[masked, layer]

    def step(self, masked: bool, layer: int) -> None:
        """One step of the optimiser on the next batch."""
        with (
            temporarily_set(self.networks, "precision", self.settings.precision),
            temporarily_set(self.flows, "memory", self.settings.memory),
            self.global_generator(),  # before what changes settings of torch: threads take turns
            self._fast_module(),
        ):
            batch = self.task.batch(self.rows, masked, self.generator)
            if self.world.size > 1:
                own = slice(self.world.rank, None, self.world.size)
                batch = tuple(None if part is None else part[own] for part in batch)
            terms = self.loss(*batch, self.beta if self.settings.beta > 0.0 else 0.0)
            self.optimiser.inner.zero_grad()
            (-terms[0] / self.task.unit).backward()
            for number, parameters in enumerate(self.task.layers):
                if number != layer:  # which alone is updated
                    for parameter in parameters:
                        parameter.grad = None
            norm = self.optimiser.clip(self.settings.clip, self.task.copies)
            self.optimiser.inner.step()
            self.project()
            self.finite &= terms.detach().isfinite().all() & norm.isfinite()
            self.total += terms.detach()

    @contextmanager
    def _fast_module(self) -> Iterator[None]:
        """Within this context products of a module that is no VFG are rounded as the settings say.

        Convolutions try out which algorithm is fastest: sizes never change in training.
        """
        if not self.task.is_module and not self.convolves:
            yield
            return
        cudnn, before = torch.backends.cudnn, torch.backends.cudnn.benchmark
        cudnn.benchmark = True
        try:
            precision = self.settings.precision if self.task.is_module else "float32"
            with tensor_cores(precision, self.rows.device):
                yield
        finally:
            cudnn.benchmark = before

    def project(self) -> None:
        """Take parameters back to where they may be."""
        for constrained in self.constrained:
            constrained.project()  # type: ignore[operator]
