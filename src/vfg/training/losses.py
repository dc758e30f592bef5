"""The losses of training: the surrogate or the bound, and the loss of held-out cells."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vfg.model import VFG
from vfg.objectives.bound import lower_bound
from vfg.objectives.surrogate import Terms
from vfg.sampling import draw_states, fresh_noise, log_likelihoods
from vfg.sampling.noise import counted_noise
from vfg.training.acceleration import Recorder, Replayed
from vfg.training.data import Table

ROWS = 4096
"""The most rows with held-out cells that are scored after an epoch; bounds its time."""
DRAWS = 8
"""Draws per row that predict held-out cells: few, since every epoch pays for them."""


class SurrogateLoss(nn.Module):
    """The surrogate's terms averaged over a batch, as one module, so that it can be wrapped."""

    def __init__(self, model: VFG) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        cells: Tensor,
        seen: Tensor,
        scored: Tensor,
        labels: Tensor | None,
        beta: float | Tensor,
    ) -> Tensor:
        """Objective, reconstruction, kl, edge, root and constants."""
        surrogate = self.model.objective(cells, seen, scored, labels, beta)
        parts = [
            surrogate.total,
            surrogate.reconstruction.sum(),
            _sum_terms(surrogate.kl, cells),
            _sum_terms(surrogate.edge, cells),
            surrogate.root,
            surrogate.constants,
        ]
        return torch.stack([part.mean() for part in parts])


def _sum_terms(terms: Terms, cells: Tensor) -> Tensor:
    """All terms, zero on the right device where a graph has none."""
    return terms.sum() if terms.stacks else cells.new_zeros(())


class BoundLoss(nn.Module):
    """The bound's terms averaged over a batch, as one module, so that it can be wrapped.

    Args:
        model: the model.
        free_bits: nats per latent node below which its KL term does not count.
    """

    def __init__(self, model: VFG, free_bits: float) -> None:
        super().__init__()
        self.model, self.free_bits = model, free_bits

    def forward(
        self, cells: Tensor, seen: Tensor, scored: Tensor, labels: Tensor | None, beta: Tensor
    ) -> Tensor:
        """Objective, reconstruction and KL of the seen cells; zeros for the surrogate's others."""
        bound = lower_bound(self.model, cells, seen, labels, fresh_noise)
        zero = cells.new_zeros(())
        return torch.stack(
            [
                bound.objective(beta, self.free_bits),
                bound.reconstruction.sum().mean(),
                bound.kl.sum().mean(),
                zero,
                zero,
                zero,
            ]
        )


class HeldOutLoss:
    """Mean negative log-likelihood of the held-out cells, from messages of the others.

    Args:
        model: the model.
        data: cells, those that may be seen, and labels.
        held: which cells are held out.
        recorder: what a GPU records it with; None records nothing.
    """

    def __init__(self, model: VFG, data: Table, held: Tensor, recorder: Recorder | None) -> None:
        rows = held.any(1).nonzero()[:ROWS, 0]
        labels = None if data.labels is None else data.labels[rows]
        self.model, self.data = model, Table(data.cells[rows], data.seen[rows], labels)
        self.scored = held[rows].to(data.cells.dtype)
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
        cells, seen, labels = self.data
        score = held_out_score(self.model, cells, seen, self.scored, labels)
        self.value.copy_(-score / self.scored.sum())


def held_out_score(
    model: VFG, cells: Tensor, seen: Tensor, scored: Tensor, labels: Tensor | None
) -> Tensor:
    """log-likelihood of the scored cells given the seen ones, summed over rows.

    With sampled states the probability is averaged over a few draws given the seen cells. They
    are the same every time, so that epochs are compared by what they learned alone.
    """
    if model.sampling is None:
        return model.objective(cells, seen, scored, labels, 0.0).total.sum()
    rows = torch.arange(len(cells), device=cells.device)
    noise = counted_noise(model.passing.schedule, rows, torch.arange(DRAWS), seed=0)
    draw = draw_states(model, cells, seen, labels, {}, noise, DRAWS)
    parts = log_likelihoods(model, draw, cells, scored).values()
    total = torch.stack([part.sum(0) for part in parts]).sum(0)
    return (total.logsumexp(0) - math.log(DRAWS)).sum()
