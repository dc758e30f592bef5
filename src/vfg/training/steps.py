"""The steps of an epoch: gather rows, hide cells, differentiate, clip, update."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from vfg.flows import Flow, Rounding
from vfg.flows.base import of_kind, temporarily_set
from vfg.model import VFG
from vfg.passing.aggregation import FramedPrecision
from vfg.training.acceleration import (
    COST,
    Recorder,
    Replayed,
    compile_loss,
    compiling_pays,
    expected_gain,
)
from vfg.training.data import Table, World
from vfg.training.losses import BoundLoss, SurrogateLoss
from vfg.training.optimiser import AdamW
from vfg.training.settings import FitSettings


class Steps:
    """Everything that happens to a model within an epoch.

    What changes from step to step (rows, rate, β, masks) lies in tensors and generators that stay
    where they are, and nothing is read back before the epoch is over. So a GPU records each kind of
    step once, from the gathering of its rows to the update, and replays it.

    Args:
        model: to train, in place.
        data: cells, those that may be seen, and labels.
        settings: of the run.
        world: the processes that share every step.
        optimiser: of the model's parameters.
    """

    def __init__(
        self, model: VFG, data: Table, settings: FitSettings, world: World, optimiser: AdamW
    ) -> None:
        self.model, self.data, self.settings, self.world = model, data, settings, world
        self.optimiser = optimiser
        device, dtype = data.cells.device, data.cells.dtype
        self.batch = _batch_size(settings.batch, len(data.cells), world)
        self.number = settings.steps or len(data.cells) // self.batch
        self.loss = _loss_function(model, settings, world)
        self.layers = _edges_by_layer(model) if settings.layerwise else []
        self.constrained = [m for m in model.modules() if isinstance(m, FramedPrecision)]
        # Looking for them takes longer than small layers, so it is done once.
        self.flows, self.networks = of_kind(model, Flow), of_kind(model, Rounding)
        self.generator = torch.Generator(device)
        self.rows = torch.zeros(self.batch, dtype=torch.long, device=device)
        self.beta = torch.zeros((), dtype=dtype, device=device)
        self.total = torch.zeros(6, dtype=dtype, device=device)
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        is_recorded = device.type == "cuda" and world.size == 1
        self.recorder = Recorder(device, [self.generator]) if is_recorded else None
        self.may_compile = settings.compile == "auto" and world.size == 1
        self.kinds: dict[tuple[bool, int], Replayed] = {}

    def epoch(
        self, number: int, seed: int, beta: float, rate: Callable[[int], float]
    ) -> tuple[list[float], bool]:
        """Take the steps of an epoch.

        Args:
            number: of the epoch.
            seed: of everything drawn in it, so that a run can resume.
            beta: weight of the KL and prior terms.
            rate: the learning rate of a step by its number in the run.

        Returns:
            The terms of the loss, averaged over the steps, and whether all were finite.
        """
        self._begin(seed, beta)
        self.model.train()
        first = number * self.number
        begun = time.monotonic()
        for step, rows in enumerate(self._order().split(self.batch)[: self.number], start=first):
            self.rows.copy_(rows)
            self.optimiser.rate = rate(step)
            self._kind(step)()
        self.model.eval()
        terms = (self.total / self.number).tolist()  # waits for the device
        if self.may_compile and not self._is_new(begun):
            self._decide(number + 1, (time.monotonic() - begun) / self.number)
        return terms, bool(self.finite)

    def _is_new(self, begun: float) -> bool:
        """Whether steps were recorded since then, so that the time since is no measure."""
        return any(kind.recorded_at >= begun for kind in self.kinds.values())

    def _decide(self, done: int, seconds: float) -> None:
        """Compile the loss if that pays, by the time of the first epoch without recordings."""
        self.may_compile = False
        left = (self.settings.epochs - done) * self.number
        kind = self.rows.device.type
        gain, cost = expected_gain(self.model, kind, self.settings.precision), COST[kind]
        if compiling_pays(left, seconds, gain, cost, self.settings.budget):
            self.loss = compile_loss(self.loss)
            self.kinds.clear()

    def _begin(self, seed: int, beta: float) -> None:
        torch.manual_seed(seed * 1009 + self.world.rank)  # dropout, inside a forked generator
        self.generator.manual_seed(seed)
        self.beta.fill_(beta)
        self.total.zero_()
        self.finite.fill_(True)

    def _order(self) -> Tensor:
        """The rows of an epoch's batches: whole passes over the table, each in its own order."""
        rows = len(self.data.cells)
        each = rows // self.batch
        orders = [
            torch.randperm(rows, generator=self.generator, device=self.rows.device)
            for _ in range(-(-self.number // each))
        ]
        return torch.cat([order[: each * self.batch] for order in orders])

    def _kind(self, step: int) -> Replayed:
        """What a step does, which depends on its number in few ways."""
        masking = self.settings.masking
        masked = masking is not None and masking.is_masked(step)
        layer = step % len(self.layers) if self.layers else 0
        if (masked, layer) not in self.kinds:
            work = partial(self._step, masked, layer)
            self.kinds[masked, layer] = Replayed(work, self.recorder)
        return self.kinds[masked, layer]

    def _step(self, masked: bool, layer: int) -> None:
        with (
            temporarily_set(self.networks, "precision", self.settings.precision),
            temporarily_set(self.flows, "memory", self.settings.memory),
        ):
            self._update(masked, layer)

    def _update(self, masked: bool, layer: int) -> None:
        seen, scored = self._masks(masked)
        own = slice(self.world.rank, None, self.world.size)
        rows = self.rows[own]
        labels = None if self.data.labels is None else self.data.labels[rows]
        beta = self.beta if self.settings.beta > 0.0 else 0.0
        terms = self.loss(self.data.cells[rows], seen[own], scored[own], labels, beta)
        self.optimiser.clear()
        (-terms[0] / self.data.cells.shape[1]).backward()
        if self.layers:
            _freeze_all_but(self.layers, layer)
        norm = self.optimiser.clip(self.settings.clip)
        self.optimiser.step()
        for constrained in self.constrained:
            constrained.project()
        self.finite &= terms.detach().isfinite().all() & norm.isfinite()
        self.total += terms.detach()

    def _masks(self, masked: bool) -> tuple[Tensor, Tensor]:
        """What messages may see, and how much each cell counts in the likelihood."""
        seen = self.data.seen[self.rows]
        dtype = self.data.cells.dtype
        masking = self.settings.masking
        if masking is None or not masked:
            return seen, seen.to(dtype)
        sections = self.model.sections
        drawn = masking.draw(len(self.rows), len(sections.positions), self.generator)
        kept = drawn.index_select(1, sections.leaf_of_column)
        visible = seen & kept
        if self.model.sampling is not None:
            return visible, visible.to(dtype)
        scored = (seen & ~kept) + masking.visible * visible
        return visible, scored.to(dtype)


def _batch_size(wanted: int, rows: int, world: World) -> int:
    size = min(wanted, rows) // world.size * world.size
    if not size:
        raise ValueError(f"{world.size} processes cannot share {rows} rows")
    return size


def _loss_function(model: VFG, settings: FitSettings, world: World) -> Callable[..., Tensor]:
    loss: nn.Module = (
        SurrogateLoss(model) if model.sampling is None else BoundLoss(model, settings.free_bits)
    )
    if world.size > 1:
        loss = nn.parallel.DistributedDataParallel(
            loss, broadcast_buffers=False, find_unused_parameters=True
        )
    return torch.compile(loss) if settings.compile is True else loss


def _edges_by_layer(model: VFG) -> list[list[nn.Parameter]]:
    """The parameters of the edges into each layer, from the leaves up."""
    schedule = model.passing.schedule
    layers: dict[int, list[nn.Parameter]] = {}
    for index, group in enumerate(schedule.groups):
        layer = schedule.blocks[group.parent].layer
        layers.setdefault(layer, []).extend(model.passing.group(index).parameters())
    return [layers[layer] for layer in sorted(layers)]


def _freeze_all_but(layers: list[list[nn.Parameter]], chosen: int) -> None:
    for number, parameters in enumerate(layers):
        if number != chosen:
            for parameter in parameters:
                parameter.grad = None
