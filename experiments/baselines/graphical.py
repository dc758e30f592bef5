"""Graphical models as imputers: least squares, a Bayesian network, a sum-product network.

Each is fitted to complete rows and answers with the conditional mean of every missing cell. pgmpy
and SPFlow are no dependencies of this project: `pip install -c constraints.txt pgmpy spflow`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from vfg.tables.cells import Array, Mask

Fill = Callable[[Array], Array]
"""Rows with missing values to filled rows."""
POINTS = 160
"""Of the grid on which the conditional density of a sum-product network is averaged."""


def least_squares(train: Array) -> Fill:
    """Linear regression of what is missing on what is not, by the moments of the training rows."""
    centre, covariance = train.mean(0), np.cov(train.T)

    def fill(gaps: Array) -> Array:
        filled = gaps.copy()
        for rows, hidden in patterns(gaps):
            gain = np.linalg.solve(covariance[~hidden][:, ~hidden], covariance[~hidden][:, hidden])
            known = gaps[rows][:, ~hidden] - centre[~hidden]
            filled[np.ix_(rows, hidden)] = centre[hidden] + known @ gain
        return filled

    return fill


def bayesian_network(train: Array, names: Sequence[str], edges: Sequence[tuple[str, str]]) -> Fill:
    """pgmpy's linear-Gaussian Bayesian network with the true edges (parent, child)."""
    import pandas as pd
    from pgmpy.models import LinearGaussianBayesianNetwork

    columns = np.array(list(names))
    network = LinearGaussianBayesianNetwork(list(edges))
    network.fit(pd.DataFrame(train, columns=columns))

    def fill(gaps: Array) -> Array:
        filled = gaps.copy()
        for rows, hidden in patterns(gaps):
            shown = pd.DataFrame(gaps[rows][:, ~hidden], columns=columns[~hidden])
            answer = network.predict(shown)
            filled[np.ix_(rows, hidden)] = answer[list(columns[hidden])].to_numpy()
        return filled

    return fill


def sum_product_network(train: Array, sizes: Sequence[int], seed: int = 0) -> Fill:
    """SPFlow's LearnSPN with Normal leaves, then EM; settings chosen by held-out log-likelihood.

    `sizes` are numbers of rows below which a part of the table is not split further.
    """
    centre, spread = train.mean(0), train.std(0)
    table = torch.tensor((train - centre) / spread, dtype=torch.float32)
    kept, validation = table.split([len(table) * 9 // 10, len(table) - len(table) * 9 // 10])
    settings = product(sizes, (0.1, 0.3))
    networks = [learn_network(kept, rows, threshold, seed) for rows, threshold in settings]
    best = max(networks, key=lambda network: _log_prob(network, validation).mean().item())

    def fill(gaps: Array) -> Array:
        shown = torch.tensor((gaps - centre) / spread, dtype=torch.float32)
        filled = shown.clone()
        for column in range(shown.shape[1]):
            rows = shown[:, column].isnan()
            if rows.any():
                filled[rows, column] = _expected(best, shown[rows], column)
        return np.asarray(filled.double()) * spread + centre

    return fill


def learn_network(table: torch.Tensor, rows: int, threshold: float, seed: int) -> torch.nn.Module:
    """LearnSPN with Normal leaves, then EM on all parameters.

    Parts of fewer than `rows` rows are not split; columns are independent below `threshold`.
    """
    from spflow.learn import expectation_maximization, learn_spn
    from spflow.meta.data.scope import Scope
    from spflow.modules.leaves import Normal

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what it draws from)
    leaf = Normal(scope=Scope(list(range(table.shape[1]))))
    with contextlib.redirect_stdout(io.StringIO()):
        network: torch.nn.Module = learn_spn(
            table,
            leaf_modules=leaf,
            min_instances_slice=rows,
            partitioning_args={"threshold": threshold},
        )
        expectation_maximization(network, table, max_steps=30)
    return network


@torch.no_grad()
def _log_prob(network: torch.nn.Module, table: torch.Tensor) -> torch.Tensor:
    return torch.cat([network.log_likelihood(part).flatten() for part in table.split(4000)])


def _expected(network: torch.nn.Module, shown: torch.Tensor, column: int) -> torch.Tensor:
    """The mean of a column given the cells that are shown, by its density on a grid."""
    grid = torch.linspace(-4.5, 4.5, POINTS)
    asked = shown.repeat_interleave(POINTS, dim=0)
    asked[:, column] = grid.repeat(len(shown))
    weights = _log_prob(network, asked).view(len(shown), POINTS).softmax(dim=1)
    return weights @ grid


def patterns(gaps: Array) -> Iterator[tuple[NDArray[np.intp], Mask]]:
    """Rows that miss the same columns, and which columns those are."""
    missing = np.isnan(gaps)
    kinds, of_row = np.unique(missing, axis=0, return_inverse=True)
    for place, hidden in enumerate(kinds):
        if hidden.any():
            yield np.flatnonzero(of_row.reshape(-1) == place), hidden
