"""Tasks: what a training run maximises, the rows of a step, and what states are chosen by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vfg.model import VFG
from vfg.training.acceleration import Recorder
from vfg.training.data import TrainingTable, draw_held_out, initialise, start_linear
from vfg.training.losses import BoundLoss, HeldOutLoss, ObjectiveLoss, RowsLoss, SurrogateLoss
from vfg.training.model_stack import stack_models, unstack_models
from vfg.training.settings import RunSettings

Batch = tuple[Tensor | None, ...]
Augment = Callable[[Tensor], Tensor]
NEVER = 1e-15
"""A probability per row and step that no run is long enough to see."""


class Task:
    """What the loop asks of a model, which is trained in place, and its rows.

    `loss` takes what `batch` returns and β, and returns the six terms of an epoch. `like` has the
    device and dtype of the data. The objective is divided by `unit`, so that norms of gradients
    mean the same for all.
    """

    copies = 1
    """How many models `model` is a stack of: each has rows and a best state of its own."""
    recovers = True
    """Whether a run goes back to its best state after an epoch that undid what was learned."""
    is_started = False
    """Whether the model answers before the first step, so that its start is a state to keep."""
    is_module = True
    """Whether `model` is any module, whose products follow the precision as a whole."""
    augment: Augment | None = None
    """What is done to the cells of every batch."""

    def __init__(
        self, model: nn.Module, loss: nn.Module, rows: int, like: Tensor, unit: float
    ) -> None:
        self.model, self.loss, self.rows, self.like, self.unit = model, loss, rows, like, unit
        self.layers: list[list[nn.Parameter]] = []
        """With layer-wise training the parameters of the edges into each layer, leaves first."""

    def batch(self, rows: Tensor, masked: bool, generator: torch.Generator) -> Batch:
        """What the loss takes, for rows `(batch,)`, or `(batch, copies)` for a stack."""
        raise NotImplementedError

    def validation(self, recorder: Recorder | None) -> Callable[[], list[float]]:
        """What returns the held-out loss of every copy; an empty list if nothing is held out."""
        raise NotImplementedError

    def locate_trouble(self) -> str:
        """Where numbers are not finite, and what to look for, for an error message."""
        return "in what its objective computes; look for extreme values in the rows"

    def finish(self) -> None:
        """Mark the model, which has its best state now, as trained."""


class ModuleTask(Task):
    """Any module with a method `objective(*rows, beta)`, a number to maximise.

    `rows` are tensors with a row per example; `validate` is the held-out loss of the module as it
    is, smaller is better.
    """

    def __init__(
        self, model: nn.Module, rows: Sequence[Tensor], validate: Callable[[], float] | None
    ) -> None:
        like = next(part for part in rows if part.is_floating_point())
        super().__init__(model, ObjectiveLoss(model), len(like), like, like[0].numel())
        self.parts, self.validate = tuple(rows), validate

    def batch(self, rows: Tensor, masked: bool, generator: torch.Generator) -> Batch:
        return tuple(part[rows] for part in self.parts)

    def validation(self, recorder: Recorder | None) -> Callable[[], list[float]]:
        return lambda: [] if self.validate is None else [float(self.validate())]


class TableTask(Task):
    """A VFG, or several of equal configuration stacked into one, and a table in the model's units.

    `data` are cells, observedness and labels. `held` says which cells are held out; None draws
    sections by `settings.validation`. Objectives of the rows of `validation` choose states in place
    of held-out cells. `augment` is applied to the cells of every batch.
    """

    is_module = False
    model: VFG

    def __init__(
        self,
        models: Sequence[VFG],
        data: TrainingTable,
        settings: RunSettings,
        held: Tensor | None = None,
        *,
        validation: TrainingTable | None = None,
        augment: Augment | None = None,
    ) -> None:
        if held is None:
            share = settings.validation if validation is None else 0.0
            held = draw_held_out(models[0], data, share, settings.seed)
        self.held, self.data = held, data._replace(seen=data.seen & ~held)
        for one in models:
            initialise(one, self.data, min(settings.batch, len(data.cells)))
            self.is_started = start_linear(one, self.data)
        model = models[0] if len(models) == 1 else stack_models(models)
        self.recovers = model.sampling is not None
        hides = settings.input_dropout > 0.0
        prunes = self._may_hide_sections(models[0], settings)
        masking = settings.masking
        self.conditional = masking.conditional if masking is not None and self.recovers else 0.0
        loss = (
            BoundLoss(model, settings.free_bits, hides, prunes, settings.samples, self.conditional)
            if self.recovers
            else SurrogateLoss(model)
        )
        super().__init__(model, loss, len(data.cells), data.cells, data.cells.shape[1])
        self.models, self.copies = list(models), len(models)
        self.settings, self.rows_to_score, self.augment = settings, validation, augment
        sections = model.sections
        self.groups, self.group_of_column = len(sections.positions), sections.leaf_of_column
        if settings.masking is not None and settings.masking.groups is not None:
            of_column = settings.masking.group_of_column(data.cells.shape[1], self.group_of_column)
            each = len(settings.masking.groups)
            copies = torch.arange(self.copies, device=of_column.device)[:, None]
            self.groups = each * self.copies
            self.group_of_column = (of_column + each * copies).flatten()
        if settings.layerwise:
            schedule = model.passing.schedule
            layers: dict[int, list[nn.Parameter]] = {}
            for index, group in enumerate(schedule.groups):
                layer = schedule.blocks[group.parent].layer
                layers.setdefault(layer, []).extend(model.passing.group(index).parameters())
            self.layers = [layers[layer] for layer in sorted(layers)]

    def _may_hide_sections(self, model: VFG, settings: RunSettings) -> bool:
        """Whether all cells of a section may be hidden in some row of some step."""
        if settings.masking is not None or not bool(self.data.seen.all()):
            return True
        narrowest = min(len(columns) for columns in model.sections.positions.values())
        return settings.input_dropout**narrowest > NEVER

    def batch(self, rows: Tensor, masked: bool, generator: torch.Generator) -> Batch:
        cells, seen = self.data.cells[rows].flatten(1), self.data.seen[rows].flatten(1)
        if self.augment is not None:
            cells = self.augment(cells)
        labels = None if self.data.labels is None else self.data.labels[rows]
        visible, scored, given = self._hide(seen, masked, generator)
        if self.data.weights is not None:
            own = self.data.weights[rows].reshape(len(rows), -1, 1)
            scored = (scored.reshape(len(rows), own.shape[1], -1) * own).flatten(1)
        if self.model.sampling is None:
            return cells, visible, scored, labels
        return cells, visible, scored, labels, given

    def _hide(
        self, seen: Tensor, masked: bool, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What messages may see, how much each cell counts in the likelihood, and what is given."""
        dtype, masking = self.data.cells.dtype, self.settings.masking
        visible, given = seen, None
        if masking is not None and masked:
            drawn = masking.draw(len(seen), self.groups, generator)
            kept = drawn.index_select(1, self.group_of_column)
            visible = seen & kept
            if self.model.sampling is None:
                scored = (seen & ~kept) + masking.visible * visible
                return visible, scored.to(dtype), None
            if self.conditional:
                visible, given = seen, visible
        scored, hidden = visible.to(dtype), self.settings.input_dropout
        if hidden:
            drawn = torch.rand(seen.shape, generator=generator, device=seen.device)
            visible = visible & (drawn >= hidden)
        return visible, scored, given

    def validation(self, recorder: Recorder | None) -> Callable[[], list[float]]:
        scored, seed, beta = self.rows_to_score, self.settings.seed, self.settings.beta
        self.losses: list[HeldOutLoss | RowsLoss] = [
            HeldOutLoss(model, self.data, self.held, recorder, seed)
            if scored is None
            else RowsLoss(model, scored, beta, self.settings.samples)
            for model in self.models
        ]
        return self._validate

    def _validate(self) -> list[float]:
        """The losses of all models in the present state of their stack."""
        self._unstack()
        values = [loss() for loss in self.losses]
        return [value for value in values if value is not None]

    @torch.no_grad()
    def locate_trouble(self) -> str:
        """The first node whose state is not finite, else the one with the largest state."""
        rows = torch.arange(min(4096, self.rows), device=self.like.device)
        index = rows if self.copies == 1 else rows[:, None].expand(-1, self.copies)
        cells, seen = (part[index].flatten(1) for part in (self.data.cells, self.data.seen))
        passes = self.model(cells, seen)
        blocks = self.model.passing.schedule.blocks
        sizes: dict[str, float] = {}
        for block, state, back in zip(blocks, passes.forward, passes.backward, strict=True):
            size = torch.maximum(state.value.abs(), back.abs()).amax((1, 2))
            sizes.update(zip(block.nodes, size.nan_to_num(torch.inf).tolist(), strict=True))
        worst = max(sizes, key=lambda node: sizes[node])
        return f"first at node {worst!r}; look for extreme values beneath it"

    def finish(self) -> None:
        self.model.is_trained.fill_(True)
        self._unstack()

    def _unstack(self) -> None:
        if self.copies > 1:
            unstack_models(self.model, self.models)
            for model in self.models:
                model.eval()
