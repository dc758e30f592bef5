"""How wide, and how many components: chosen by cells that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from vfg.distributions.likelihoods import LikelihoodSpec
from vfg.flows import FlowSpec
from vfg.gaussian.model import GaussianVFG
from vfg.graph import Graph
from vfg.inputs import ArrayLike, as_cells


@dataclass(frozen=True)
class Candidate:
    """One structure that was tried."""

    graph: Graph
    components: int
    score: float
    """Mean log-density of a held-out cell given the rest of its row, in data units."""


@dataclass(frozen=True)
class Selection:
    """The chosen model, fitted to all observed cells, and everything that was tried."""

    model: GaussianVFG
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The candidate that the model was built from."""
        return max(self.candidates, key=lambda candidate: candidate.score)


def select(
    table: ArrayLike,
    graphs: Sequence[Graph],
    components: Sequence[int] = (1,),
    *,
    leaf: str | FlowSpec = "affine",
    likelihood: str | LikelihoodSpec | Mapping[str, str | LikelihoodSpec] = "gaussian",
    mixture: str = "root",
    share: float = 0.1,
    seed: int = 0,
) -> Selection:
    """Fit every graph with every number of components, and keep what predicts held-out cells best.

    Args:
        table: the data; NaN is unobserved.
        graphs: structures over the same leaves, such as stars of several widths.
        components: numbers of mixture components.
        leaf: the maps of the leaves, as in `GaussianVFG`.
        likelihood: of the leaves, as in `GaussianVFG`.
        mixture: what components differ in, as in `GaussianVFG`.
        share: of the observed cells that is held out.
        seed: of held-out cells and starts.

    Returns:
        The best model, fitted again to all cells, and the scores of all.

    Raises:
        ValueError: if there is nothing to choose from, or `share` is not between 0 and 1.

    Example:
        >>> from vfg.data import synthetic
        >>> columns = {f"x{k}": 1 for k in range(8)}
        >>> stars = [Graph.star(columns, width=width) for width in (1, 3)]
        >>> select(synthetic(300), stars).best.graph.node("root").width
        3
    """
    if not graphs or not components or not 0.0 < share < 1.0:
        raise ValueError(
            f"select needs graphs, components and a share between 0 and 1, but got {len(graphs)} "
            f"graphs, components {tuple(components)} and share {share}"
        )

    def build(graph: Graph, count: int) -> GaussianVFG:
        return GaussianVFG(
            graph, count, leaf=leaf, likelihood=likelihood, mixture=mixture, seed=seed
        )

    cells, seen = as_cells(build(graphs[0], 1), table, None)
    generator = torch.Generator().manual_seed(seed)
    held = seen & (torch.rand(seen.shape, generator=generator) < share).to(seen.device)
    whole = torch.where(seen, cells, torch.nan)
    candidates = []
    for graph in graphs:
        for count in components:
            model = build(graph, count)
            model.fit(whole, observed=seen & ~held, seed=seed)
            score = model.conditional_log_prob(whole, ~held).sum() / held.sum()
            candidates.append(Candidate(graph, count, float(score)))
    chosen = max(candidates, key=lambda candidate: candidate.score)
    model = build(chosen.graph, chosen.components)
    model.fit(whole, seed=seed)
    return Selection(model, tuple(candidates))
