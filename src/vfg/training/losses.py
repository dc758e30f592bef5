"""What training asks of a model: the surrogate or the bound, and how well it predicts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vfg.bound import lower_bound
from vfg.inference.counted import CountedNoise
from vfg.model import VFG
from vfg.sampling import drawn, fresh_noise, log_likelihoods

DRAWS = 8
"""How many draws per row predict held-out cells."""


class SurrogateLoss(nn.Module):
    """The surrogate's terms averaged over a batch, as one module, so that it can be wrapped."""

    def __init__(self, model: VFG) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, cells: Tensor, seen: Tensor, scored: Tensor, labels: Tensor | None, beta: Tensor
    ) -> Tensor:
        """Objective, reconstruction, kl, edge, root and constants."""
        found = self.model.objective(cells, seen, scored, labels, beta)
        parts = [
            found.total,
            found.reconstruction.sum(),
            found.kl.sum().to(cells).expand(len(cells)),
            found.edge.sum().to(cells).expand(len(cells)),
            found.root,
            found.constants,
        ]
        return torch.stack([part.mean() for part in parts])


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
        found = lower_bound(self.model, cells, seen, labels, fresh_noise)
        zero = cells.new_zeros(())
        return torch.stack(
            [
                found.objective(beta, self.free_bits),
                found.reconstruction.sum().mean(),
                found.kl.sum().mean(),
                zero,
                zero,
                zero,
            ]
        )


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
    noise = CountedNoise(model.passing.schedule, rows, torch.arange(DRAWS), seed=0)
    found = drawn(model, cells, seen, labels, {}, noise, DRAWS)
    parts = log_likelihoods(model, found, cells, scored).values()
    total = torch.stack([part.sum(0) for part in parts]).sum(0)
    return (total.logsumexp(0) - math.log(DRAWS)).sum()
