"""From the roots to data: decoding given states, and drawing new rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.inputs import ArrayLike, as_evidence, as_labels
from vfg.passing.messages import States
from vfg.sampling import GeneratedNoise
from vfg.sampling import drawn as drawn_states

if TYPE_CHECKING:
    from vfg.model import VFG


@torch.no_grad()
def decode(model: VFG, states: Mapping[str, ArrayLike]) -> dict[str, Tensor]:
    """Backward messages: what the leaves are expected to be given states above them.

    Args:
        model: the model.
        states: values of roots, and of other latent nodes to fix, `(rows, width)`. A root that
            is not given, or NaN, is at its prior's mean. Of the result of `encode` the roots
            are used.

    Returns:
        The expected data of every leaf, `(rows, columns)`.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> model.decode({"root": torch.zeros(3, 2)})["a"].shape
        torch.Size([3, 1])
    """
    if isinstance(states, States):
        states = states.roots()
    evidence, rows, like = as_evidence(model, states)
    priors = model._prior_means(None)
    tops = {index: mean.expand(-1, rows, -1) for index, mean in priors.items()}
    known = {index: torch.ones_like(top[..., :1]).bool() for index, top in tops.items()}
    backward, _, _ = model.passing.backward_pass(tops, known, evidence)
    table = model.scaling.undo(model.sections.join(model._leaf_means(backward))).to(like)
    return {leaf: table[:, list(found)] for leaf, found in model.sections.positions.items()}


@torch.no_grad()
def sample(model: VFG, rows: int, *, label: int | ArrayLike | None = None, seed: int = 0) -> Tensor:
    """Draw rows: roots from the prior, backward messages, leaves from their likelihoods.

    With sampled states every latent node is drawn around what its parents expect.

    Args:
        model: the model.
        rows: how many.
        label: one label for all rows or one per row, if the prior has labels.
        seed: of the draws.

    Returns:
        A table `(rows, columns)`.

    Example:
        >>> import vfg
        >>> vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2)).sample(5).shape
        torch.Size([5, 2])
    """
    labels = as_labels(model, label, rows)
    generator = torch.Generator(model._some.device).manual_seed(seed)
    walk = _messages if model.sampling is None else _draws
    states = walk(model, rows, labels, generator)
    drawn = {
        index: model.likelihood_at(index).sample(states[index], generator)
        for index in model._blocks_of(model.likelihoods)
    }
    return model.scaling.undo(model.sections.join(drawn)).to(model._some.dtype)


def _messages(
    model: VFG, rows: int, labels: Tensor | None, generator: torch.Generator
) -> list[Tensor]:
    """States of all blocks below roots that are drawn from their prior."""
    blocks = model._blocks_of(model.priors)
    tops = {index: model.prior_at(index).sample(rows, labels, generator) for index in blocks}
    known = {index: torch.ones_like(top[..., :1]).bool() for index, top in tops.items()}
    return model.passing.backward_pass(tops, known, {})[0]


def _draws(
    model: VFG, rows: int, labels: Tensor | None, generator: torch.Generator
) -> list[Tensor]:
    """States of all blocks where nothing is observed, so that all nodes are drawn from p."""
    cells = model._some.new_zeros(rows, model.sections.columns)
    seen = torch.zeros_like(cells, dtype=torch.bool)
    found = drawn_states(model, cells, seen, labels, {}, GeneratedNoise(generator), 1)
    return [states[:, 0] for states in found.states]
