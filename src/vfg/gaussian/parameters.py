"""The parameters of a linear-Gaussian graph, and the factor model that they make."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vfg.gaussian.factors import Factors
from vfg.gaussian.structure import Structure

EXCESS = 1e-6
"""How far above its floor a noise is at least, relative to its square; keeps logs finite."""

ROOT_FLOOR = 1e-3
"""The least deviation of a component of mixed roots: narrower ones collapse onto single rows."""


class Values(NamedTuple):
    """What the equations of all nodes are made of; roots and leaves have 1 or all components.

    Latent coordinates and table columns are in the order of `Structure`.
    """

    log_weights: Tensor
    """`(components,)`, normalised."""
    root_means: Tensor
    """`(components or 1, root coordinates)`."""
    root_factors: Tensor
    """Lower triangular, `(components or 1, root coordinates, root coordinates)`."""
    edges: Tensor
    """`(coordinates, coordinates)`: what each latent coordinate takes from those above it."""
    shifts: Tensor
    """`(coordinates,)`."""
    noises: Tensor
    """Standard deviations below the roots, `(coordinates,)`; 0 at roots and where there is none."""
    loadings: Tensor
    """`(components or 1, columns, coordinates)`."""
    offsets: Tensor
    """`(components or 1, columns)`."""
    scales: Tensor
    """Standard deviations of the leaves, `(components or 1, columns)`."""


def innovation_map(structure: Structure, values: Values) -> tuple[Tensor, Tensor]:
    r"""Latent coordinates as $h = T_c e + t_c$ with independent standard Normal innovations e.

    T is `(components or 1, coordinates, innovations)`, t `(components or 1, coordinates)`.
    """
    below = structure.width - structure.root_width
    identity = torch.eye(structure.width, dtype=values.edges.dtype, device=values.edges.device)
    solve = torch.linalg.solve_triangular
    noisy = below if structure.inner_noise else 0
    sources = F.pad(values.root_factors, (0, noisy, 0, below))
    if noisy:
        sources = sources + values.noises.diag_embed()
    centres = F.pad(values.root_means, (0, below)) + values.shifts
    system = (identity - values.edges).expand(len(sources), -1, -1)
    maps = solve(system, sources, upper=False, unitriangular=True)
    offsets = solve(system, centres[..., None], upper=False, unitriangular=True)[..., 0]
    return maps, offsets


def factors_of(structure: Structure, values: Values) -> Factors:
    """The table columns as a mixture of factor models with all components written out."""
    maps, centres = innovation_map(structure, values)
    components = len(values.log_weights)
    loadings = (values.loadings @ maps).expand(components, -1, -1)
    offsets = values.offsets + (values.loadings @ centres[..., None])[..., 0]
    return Factors(
        values.log_weights,
        loadings,
        offsets.expand(components, -1),
        values.scales.expand(components, -1),
    )


def with_latents(structure: Structure, values: Values, scale: float) -> Factors:
    """The factor model with the latent coordinates as further columns after those of the table."""
    factors = factors_of(structure, values)
    maps, centres = innovation_map(structure, values)
    components = len(values.log_weights)
    tiny = centres.new_full((components, structure.width), scale)
    return Factors(
        factors.log_weights,
        torch.cat([factors.loadings, maps.expand(components, -1, -1)], dim=1),
        torch.cat([factors.offsets, centres.expand(components, -1)], dim=1),
        torch.cat([factors.scales, tiny], dim=1),
    )


class Parameters(nn.Module):
    """The values as parameters: noises keep above their floor, absent edges stay absent.

    `mixture` is what the components differ in, `"root"` or `"loadings"`.
    """

    learned_edges: Tensor
    fixed_edges: Tensor
    learned_loadings: Tensor
    fixed_loadings: Tensor
    root_mask: Tensor

    def __init__(
        self,
        structure: Structure,
        components: int,
        mixture: str,
        noise_floor: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.structure, self.noise_floor = structure, noise_floor
        self.mixes_roots = components > 1 and mixture == "root"
        leaf_components = components if mixture == "loadings" else 1
        learned_edges, fixed_edges = structure.edge_masks(leaves=False)
        learned_loadings, fixed_loadings = structure.edge_masks(leaves=True)
        for name, mask in (
            ("learned_edges", learned_edges),
            ("fixed_edges", fixed_edges),
            ("learned_loadings", learned_loadings),
            ("fixed_loadings", fixed_loadings),
            ("root_mask", structure.root_mask()),
        ):
            self.register_buffer(name, torch.tensor(mask), persistent=False)
        width, columns, roots = structure.width, structure.columns, structure.root_width
        self.log_weights = nn.Parameter(_zeros(components))
        self.edges = nn.Parameter(_start_of_edges(structure))
        self.shifts = nn.Parameter(_zeros(width - roots))
        self.log_noises = nn.Parameter(_zeros(len(structure.noisy_inner)) - 0.5)
        random = torch.randn(
            leaf_components, columns, width, generator=generator, dtype=torch.float64
        )
        self.loadings = nn.Parameter(0.5 * random / max(1, structure.width) ** 0.5)
        self.offsets = nn.Parameter(_zeros(leaf_components, columns))
        self.log_scales = nn.Parameter(_zeros(leaf_components, columns) - 0.5)
        if self.mixes_roots:
            spread = torch.randn(components, roots, generator=generator, dtype=torch.float64)
            self.root_means = nn.Parameter(spread)
            self.root_factors = nn.Parameter(_zeros(components, roots, roots))

    def values(self) -> Values:
        """What the equations are made of, in float64; differentiable."""
        roots = self.structure.root_width
        edges = self.edges.double() * self.learned_edges.double() + self.fixed_edges.double()
        loadings = self.loadings.double() * self.learned_loadings.double()
        means, factors = self._roots()
        below = self.structure.width - roots
        noises = self._above_floor(self.log_noises)
        return Values(
            self.log_weights.double().log_softmax(0),
            means,
            factors,
            edges,
            F.pad(self.shifts.double(), (roots, 0)),
            F.pad(noises, (roots, below - len(noises))),
            loadings + self.fixed_loadings.double(),
            self.offsets.double(),
            self._above_floor(self.log_scales),
        )

    @torch.no_grad()
    def assign(self, values: Values) -> None:
        """Set all parameters; noises below the floor are raised to it."""
        roots = self.structure.root_width
        self.log_weights.copy_(values.log_weights)
        self.edges.copy_((values.edges - self.fixed_edges.double()) * self.learned_edges.double())
        self.shifts.copy_(values.shifts[roots:])
        self.log_noises.copy_(self._raw(values.noises[list(self.structure.noisy_inner)]))
        self.loadings.copy_(
            (values.loadings - self.fixed_loadings.double()) * self.learned_loadings.double()
        )
        self.offsets.copy_(values.offsets)
        self.log_scales.copy_(self._raw(values.scales))
        if self.mixes_roots:
            diagonal = values.root_factors.diagonal(dim1=-2, dim2=-1)
            strict = values.root_factors - diagonal.diag_embed()
            self.root_means.copy_(values.root_means)
            self.root_factors.copy_(strict + self._raw(diagonal, ROOT_FLOOR).diag_embed())

    def _roots(self) -> tuple[Tensor, Tensor]:
        roots = self.structure.root_width
        if not self.mixes_roots:
            identity = torch.eye(roots, dtype=torch.float64, device=self.offsets.device)
            return identity.new_zeros(1, roots), identity[None]
        raw = self.root_factors.double()
        diagonal = self._above_floor(raw.diagonal(dim1=-2, dim2=-1), ROOT_FLOOR)
        strict = raw.tril(-1) * self.root_mask.double()
        return self.root_means.double(), strict + diagonal.diag_embed()

    def _above_floor(self, raw: Tensor, least: float = 0.0) -> Tensor:
        return (max(self.noise_floor, least) ** 2 + (2.0 * raw.double()).exp()).sqrt()

    def _raw(self, deviations: Tensor, least: float = 0.0) -> Tensor:
        floor = max(self.noise_floor, least) ** 2
        return 0.5 * (deviations.square() - floor).clamp(min=EXCESS * floor).log()


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _start_of_edges(structure: Structure) -> Tensor:
    """Latent nodes start near the mean of their parents, noise-free ones at it."""
    start = np.zeros((structure.width, structure.width))
    for name in structure.inner:
        parents = structure.graph.parents(name)
        share = (0.75 if structure.inner_noise else 1.0) / len(parents)
        for parent in parents:
            for row, column in zip(structure.spans[name], structure.spans[parent], strict=False):
                start[row, column] = share
    return torch.tensor(start)
