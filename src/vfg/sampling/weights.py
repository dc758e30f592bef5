"""Draws and importance weights of a model: tensors in, tensors out, nothing checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.sampling.noise import Noise
from vfg.sampling.state_sampler import Draw, SampledStates

if TYPE_CHECKING:
    from vfg.model import VFG


def drawn(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    evidence: dict[int, Tensor],
    noise: Noise,
    draws: int,
    *,
    pruned: bool = True,
) -> Draw:
    """All latent states given the seen cells of a table in the model's units.

    Without `pruned`, those of nodes without seen descendants mean nothing.
    """
    return sampling_of(model).draw(
        model.passing,
        model._leaf_states(cells, seen),
        {index: model.prior_at(index) for index in model._blocks_of(model.priors)},
        labels,
        evidence,
        noise,
        draws,
        pruned=pruned,
    )


def log_likelihoods(model: VFG, found: Draw, cells: Tensor, scored: Tensor) -> dict[int, Tensor]:
    """log p(x | h) of the scored cells by leaf block, `(nodes, draws, rows)`."""
    data, counted = model.sections.split(cells), model.sections.split(scored.to(cells.dtype))
    parts = {}
    for index, part in data.items():
        state = found.states[index]
        wide = part[:, None].expand(-1, state.shape[1], -1, -1).flatten(1, 2)
        each = model.likelihood_at(index).log_prob(wide, state.flatten(1, 2))
        parts[index] = (each.unflatten(1, state.shape[1:3]) * counted[index][:, None]).sum(-1)
    return parts


def log_weights(model: VFG, found: Draw, cells: Tensor, scored: Tensor) -> Tensor:
    """log p(x, h) − log q(h), `(draws, rows)`, in float64 and the model's units."""
    explained = log_likelihoods(model, found, cells, scored)
    signed = [*explained.values(), *found.prior.values(), *(-q for q in found.posterior.values())]
    return torch.stack([part.double().sum(0) for part in signed]).sum(0)


def sampling_of(model: VFG) -> SampledStates:
    """What draws the states of a model.

    Raises:
        ValueError: if its states are deterministic.
    """
    if model.sampling is None:
        raise ValueError(
            "a bound needs sampled states, but the states of this model are deterministic; build "
            "it with states='sampled', or use model.surrogate, which is not a bound"
        )
    return model.sampling
