"""The linear model of a table, and the star that it is fitted to."""

from __future__ import annotations

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.graph import Graph

START_ROWS = 20_000
"""How many rows a linear model is fitted to, at most."""


def fit_linear(
    graph: Graph, values: Tensor, observed: Tensor, seed: int, *, inner_noise: bool = True
) -> GaussianVFG:
    """The exact linear model of a matrix, with loadings a little shrunk.

    Args:
        graph: over the sections of the matrix.
        values: the matrix, `(rows, columns)`.
        observed: which of its entries may be used.
        seed: of the start, and of the rows that are used if there are very many.
        inner_noise: whether latent nodes below the root have noise of their own, which the start of
            a bent model cannot have.
    """
    if len(values) > START_ROWS:
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(values), generator=generator)[:START_ROWS]
        values, observed = values[chosen], observed[chosen]
    model = GaussianVFG(graph, noise_floor=0.03, inner_noise=inner_noise, seed=seed)
    model.fit(
        values,
        observed=with_all_columns(observed),
        finish="none",
        iterations=30,
        tolerance=1e-5,
        shrinkage=1.0,
        seed=seed,
    )
    return model


def star(widths: list[int], width: int) -> Graph:
    """One root over the sections of a matrix, which are called by their positions.

    Example:
        >>> star([1, 3], width=8).sections
        {'0': 1, '1': 3}
    """
    sections = {str(k): size for k, size in enumerate(widths)}
    return Graph.star(sections, width=max(width, *widths))


def with_all_columns(observed: Tensor) -> Tensor:
    """The mask, where a column without known entries shows one, which is 0: the mean.

    Example:
        >>> with_all_columns(torch.tensor([[True, False], [False, False]]))
        tensor([[ True,  True],
                [False, False]])
    """
    empty = ~observed.any(0)
    if not bool(empty.any()):
        return observed
    shown = observed.clone()
    shown[0, empty] = True
    return shown
