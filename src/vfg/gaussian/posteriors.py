"""Posteriors of the latent nodes, of whole mixtures and component by component."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vfg.gaussian.em.general import family_moments
from vfg.gaussian.factors import grouped_masks
from vfg.gaussian.parameters import Values
from vfg.gaussian.structure import Clique, Structure

ROWS_AT_ONCE = 4096
Part = tuple[Tensor, list[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class Posterior:
    """The latent nodes given the observed cells, in closed form."""

    mean: dict[str, Tensor]
    """`(rows, width)` by node."""
    covariance: dict[str, Tensor]
    """`(rows, width, width)` by node; of a mixture that of the whole."""
    responsibilities: Tensor
    """Probabilities of the components, `(rows, components)`."""
    component_mean: dict[str, Tensor]
    """`(rows, components, width)` by node."""
    component_covariance: dict[str, Tensor]
    """`(rows, components, width, width)` by node."""

    def to(self, like: Tensor) -> Posterior:
        """The same with the dtype and device of another tensor."""

        def moved(found: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: value.to(like) for name, value in found.items()}

        return Posterior(
            moved(self.mean),
            moved(self.covariance),
            self.responsibilities.to(like),
            moved(self.component_mean),
            moved(self.component_covariance),
        )


def posterior_of(structure: Structure, values: Values, table: Tensor, seen: Tensor) -> Posterior:
    """Moments of all latent nodes, by chunks of rows.

    Args:
        structure: of the graph.
        values: of the equations of its nodes.
        table: values of the leaves `(rows, columns)`; any finite number where unobserved.
        seen: which are observed.
    """
    chunks = zip(table.split(ROWS_AT_ONCE), seen.split(ROWS_AT_ONCE), strict=True)
    parts = [_part(structure, values, *chunk) for chunk in chunks]
    shares = torch.cat([part[0] for part in parts])
    means, covariances = dict[str, Tensor](), dict[str, Tensor]()
    for index, name in enumerate(structure.nodes):
        means[name] = torch.cat([part[1][index][0] for part in parts])
        covariances[name] = torch.cat([part[1][index][1] for part in parts])
    whole = {name: _mixed(shares, means[name], covariances[name]) for name in means}
    return Posterior(
        {name: pair[0] for name, pair in whole.items()},
        {name: pair[1] for name, pair in whole.items()},
        shares,
        means,
        covariances,
    )


def _part(structure: Structure, values: Values, table: Tensor, seen: Tensor) -> Part:
    masks = grouped_masks(seen)
    cliques = [Clique(tuple(span), (), (), name) for name, span in structure.spans.items()]
    log_probs, moments = family_moments(structure, values, table, masks, cliques)
    shares = (log_probs + values.log_weights).softmax(-1)
    components = shares.shape[1]
    return shares, [
        (mean, covariance.expand(-1, components, -1, -1)[masks.groups])
        for mean, covariance in moments
    ]


def _mixed(shares: Tensor, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of mixtures from those of their components."""
    centre = (shares[..., None] * mean).sum(1)
    left = mean - centre[:, None]
    whole = covariance + left[..., :, None] * left[..., None, :]
    return centre, (shares[..., None, None] * whole).sum(1)
