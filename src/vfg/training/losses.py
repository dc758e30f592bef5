"""The losses of training: the surrogate or the bound, and the loss of held-out cells."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vfg.model import VFG
from vfg.objectives.bound import bound_of, lower_bound, weighted_bound, weighted_bound_of
from vfg.sampling import Noise, condition, draw_states, generated_noise, log_likelihoods
from vfg.sampling.noise import counted_noise
from vfg.training.acceleration import Recorder, Replayed
from vfg.training.data import TrainingTable

ROWS = 4096
"""The most rows with held-out cells that are scored after an epoch, which bounds its time; and how
many rows of a table are scored at once."""
DRAWS = 8
"""Draws per row that predict held-out cells: few, since every epoch pays for them."""


class SurrogateLoss(nn.Module):
    """The surrogate's terms averaged over a batch, as one module, so that it can be wrapped."""

    def __init__(self, model: VFG) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, cells: Tensor, seen: Tensor, scored: Tensor, labels: Tensor | None, beta: Tensor
    ) -> Tensor:
        """Objective, reconstruction, kl, edge, root and constants."""
        result = self.model.objective(cells, seen, scored, labels, beta)
        # A graph may have no terms of a kind, whose sum is then on no device.
        sums = [t.sum() if t.stacks else cells.new_zeros(()) for t in (result.kl, result.edge)]
        parts = [result.total, result.reconstruction.sum(), *sums, result.root, result.constants]
        return torch.stack([part.mean() for part in parts])


class BoundLoss(nn.Module):
    """The bound's terms averaged over a batch, as one module, so that it can be wrapped.

    Below `free_bits` nats the KL term of a latent node does not count. If it `hides`, cells
    are scored that messages do not see, and if it `prunes`, some nodes may see none at all. With
    several `samples` the bound is that of their weights. In steps with cells that are `given`, the
    bound of the others given these is added with the weight `conditional`.
    """

    generator: torch.Generator | None = None
    """Where draws come from; None for torch's global generator."""

    def __init__(
        self,
        model: VFG,
        free_bits: float,
        hides: bool = False,
        prunes: bool = True,
        samples: int = 1,
        conditional: float = 0.0,
    ) -> None:
        super().__init__()
        self.model, self.free_bits, self.samples = model, free_bits, samples
        self.conditional = conditional
        self.hides, self.prunes = hides, hides and prunes

    def forward(
        self,
        cells: Tensor,
        seen: Tensor,
        scored: Tensor,
        labels: Tensor | None,
        given: Tensor | None,
        beta: Tensor,
    ) -> Tensor:
        """Objective, reconstruction and KL of the scored cells; zeros for the surrogate's terms."""
        noise = generated_noise(self.generator)
        if given is not None:
            return self._with_conditional(cells, seen, scored, labels, given, beta, noise)
        hidden = scored if self.hides else None
        if self.samples > 1:
            what = (self.model, cells, seen, labels, noise, self.samples, beta, hidden)
            return functional.pad(weighted_bound(*what, pruned=self.prunes).mean(1), (0, 3))
        bound = lower_bound(
            self.model, cells, seen, labels, noise, scored=hidden, pruned=self.prunes
        )
        means = bound.reconstruction.sum().mean(), bound.kl.sum().mean()
        terms = torch.stack([bound.objective(beta, self.free_bits), *means])
        return functional.pad(terms, (0, 3))

    def _with_conditional(
        self,
        cells: Tensor,
        seen: Tensor,
        scored: Tensor,
        labels: Tensor | None,
        given: Tensor,
        beta: Tensor,
        noise: Noise,
    ) -> Tensor:
        """The terms of the whole rows, with the bound of cells that are not given added.

        Both bounds are of the same draws, so that the way down is computed once.
        """
        draw = draw_states(self.model, cells, seen, labels, {}, noise, self.samples, complete=True)
        parts = [
            (draw, scored),
            (condition(self.model, draw, cells, given, labels), scored * ~given),
        ]
        if self.samples > 1:
            whole, hidden = (
                weighted_bound_of(self.model, states, cells, counted, beta).mean(1)
                for states, counted in parts
            )
            terms = torch.cat([whole[:1] + self.conditional * hidden[:1], whole[1:]])
            return functional.pad(terms, (0, 3))
        bound, other = (bound_of(self.model, one, cells, counted) for one, counted in parts)
        total = bound.objective(beta, self.free_bits) + self.conditional * other.objective(
            beta, 0.0
        )
        means = bound.reconstruction.sum().mean(), bound.kl.sum().mean()
        return functional.pad(torch.stack([total, *means]), (0, 3))


class ObjectiveLoss(nn.Module):
    """The value of `model.objective(*rows, beta)` as the first term; zeros for the others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, *arguments: Tensor) -> Tensor:
        """The terms of an epoch."""
        value: Tensor = self.model.objective(*arguments)
        return functional.pad(value.reshape(1), (0, 5))


class RowsLoss:
    """The mean negative objective per cell of rows, in the model's units, that are not trained on.

    It is that of the surrogate with the given β, and of the bound with sampled states, whose draws
    are the same every time, and with several `samples` are weighted.
    """

    def __init__(self, model: VFG, data: TrainingTable, beta: float, samples: int = 1) -> None:
        self.model, self.data, self.beta, self.samples = model, data, beta, samples

    @torch.no_grad()
    def __call__(self) -> float:
        """The loss of the model as it is."""
        rows = torch.arange(len(self.data.cells), device=self.data.cells.device)
        total = sum(self._total(part).sum().double() for part in rows.split(ROWS))
        return -float(total / self.data.seen.sum())

    def _total(self, rows: Tensor) -> Tensor:
        cells, seen = self.data.cells[rows], self.data.seen[rows]
        labels = None if self.data.labels is None else self.data.labels[rows]
        if self.model.sampling is None:
            scored = seen.to(cells.dtype)
            return self.model.objective(cells, seen, scored, labels, self.beta).total
        draws = torch.arange(self.samples)
        noise = counted_noise(self.model.passing.schedule, rows, draws, seed=0)
        if self.samples > 1:
            return weighted_bound(self.model, cells, seen, labels, noise, self.samples)[0]
        return lower_bound(self.model, cells, seen, labels, noise).total


class HeldOutLoss:
    """Mean negative log-likelihood of the cells `held` out, from messages of the others.

    `seed` chooses the rows, if more have held-out cells than are scored.
    """

    def __init__(
        self,
        model: VFG,
        data: TrainingTable,
        held: Tensor,
        recorder: Recorder | None,
        seed: int = 0,
    ) -> None:
        rows = draw_rows(held.any(1), ROWS, seed)
        labels = None if data.labels is None else data.labels[rows]
        self.model, self.data = model, TrainingTable(data.cells[rows], data.seen[rows], labels)
        self.scored = held[rows].to(data.cells.dtype)
        if data.weights is not None:
            self.scored = self.scored * data.weights[rows, None]
        self.value = torch.zeros((), dtype=data.cells.dtype, device=data.cells.device)
        # Draws come from the CPU, so that they are the same on every device.
        self.compute = Replayed(self._compute, recorder if model.sampling is None else None)

    def __call__(self) -> float | None:
        """The loss; None without held-out cells."""
        if not len(self.scored):
            return None
        self.compute()
        return float(self.value)

    @torch.no_grad()
    def _compute(self) -> None:
        cells, seen, labels, _ = self.data
        score = held_out_score(self.model, cells, seen, self.scored, labels)
        self.value.copy_(-score / self.scored.sum())


def draw_rows(wanted: Tensor, most: int, seed: int) -> Tensor:
    """The numbers of rows that are marked; at random at most `most` of them, in their order.

    The first ones would not do: a sorted table has rows of one kind there.

    Example:
        >>> draw_rows(torch.tensor([True, False, True, True]), 5, seed=0)
        tensor([0, 2, 3])
    """
    rows = wanted.nonzero()[:, 0]
    if len(rows) <= most:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:most].sort().values.to(rows.device)]


def held_out_score(
    model: VFG, cells: Tensor, seen: Tensor, scored: Tensor, labels: Tensor | None
) -> Tensor:
    """log-likelihood of the scored cells given the seen ones, summed over rows.

    With sampled states the probability is averaged over a few draws. They are the same every time,
    so that epochs are compared by what they learned alone.
    """
    if model.sampling is None:
        return model.objective(cells, seen, scored, labels, 0.0).total.sum()
    rows = torch.arange(len(cells), device=cells.device)
    noise = counted_noise(model.passing.schedule, rows, torch.arange(DRAWS), seed=0)
    draw = draw_states(model, cells, seen, labels, {}, noise, DRAWS)
    parts = log_likelihoods(model, draw, cells, scored).values()
    total = torch.stack([part.sum(0) for part in parts]).sum(0)
    return (total.logsumexp(0) - math.log(DRAWS)).sum()
