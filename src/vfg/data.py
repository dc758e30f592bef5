"""Data for examples, experiments and tests, and masks that hide cells; nothing is downloaded.

Simulated rows are tensors; the tables of `uci` and `california` and all masks are NumPy arrays, as
scikit-learn takes them. In a mask `True` marks a missing cell.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def synthetic(rows: int = 1300, *, seed: int = 0) -> Tensor:
    r"""The eight columns of the paper's first experiment.

    With $z_1 \sim N(0, 1)$ and $z_2 \sim N(1, 2^2)$: $x_1 = x_2 = z_1$, $x_3 = x_4 = 2 \sin z_1$,
    $x_5 = x_6 = z_2$ and $x_7 = x_8 = z_2^2$.

    Args:
        rows: how many.
        seed: of the draws.

    Returns:
        A table `(rows, 8)`.

    Example:
        >>> synthetic(5).shape
        torch.Size([5, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(rows, generator=generator)
    second = 1.0 + 2.0 * torch.randn(rows, generator=generator)
    columns = [first, 2.0 * first.sin(), second, second.square()]
    return torch.stack([column for column in columns for _ in range(2)], dim=1)


NETWORK = (("A", "C"), ("B", "C"), ("B", "D"), ("A", "F"), ("D", "F"), ("E", "F"), ("G", "F"))
"""The edges (parent, child) of the Gaussian network of `gaussian_network`."""


def gaussian_network(rows: int = 5000, *, seed: int = 0) -> tuple[Tensor, tuple[str, ...]]:
    """The linear-Gaussian Bayesian network of the paper's comparison with graphical models.

    With the environment variable `VFG_DATA` set to a folder that holds `gaussian_test.npz`, its
    rows as published with bnlearn; else rows simulated from the network's equations.

    Args:
        rows: how many, 5000 at most if they come from the file.
        seed: of the simulation.

    Returns:
        A table `(rows, 7)` in float64, and the names of its columns.

    Example:
        >>> table, names = gaussian_network(10)
        >>> table.shape, "".join(names)
        (torch.Size([10, 7]), 'ABCDEFG')
    """
    names = tuple("ABCDEFG")
    file = Path(os.environ.get("VFG_DATA", "")) / "gaussian_test.npz"
    if "VFG_DATA" in os.environ and file.is_file():
        with np.load(file) as found:
            return torch.from_numpy(found["data"][:rows]), names
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, 7, generator=generator, dtype=torch.float64).unbind(1)
    a, b = 1.0 + noise[0], 2.0 + 3.0 * noise[1]
    c = 2.0 + 2.0 * a + 2.0 * b + 0.5 * noise[2]
    d = 6.0 + 1.5 * b + 0.33 * noise[3]
    e, g = 3.5 + 2.0 * noise[4], 5.0 + 2.0 * noise[6]
    f = 2.0 * a + d + e + 1.5 * g + noise[5]
    return torch.stack([a, b, c, d, e, f, g], dim=1), names


BUNDLED = {
    "breast_wdbc": "load_breast_cancer",
    "digits": "load_digits",
    "iris": "load_iris",
    "wine": "load_wine",
}
"""UCI tables that scikit-learn brings along, by the loader of `sklearn.datasets`."""


def uci_names() -> tuple[str, ...]:
    """Names of the tables that `uci` can load here, in alphabetical order.

    Returns:
        The tables that scikit-learn brings along and, with the environment variable `VFG_DATA` set
        to a folder that holds `uci_tabular.npz`, the tables in that file.

    Example:
        >>> "breast_wdbc" in uci_names()
        True
    """
    archive = _archive("uci_tabular.npz")
    stored = [] if archive is None else [key for key in archive if key.endswith("__X")]
    return tuple(sorted({key.removesuffix("__X") for key in stored} | set(BUNDLED)))


def uci(name: str) -> tuple[Array, tuple[str, ...]]:
    """A numeric table of the UCI repository, without its target and without missing cells.

    Args:
        name: one of `uci_names()`.

    Returns:
        The table `(rows, columns)` and the names of its columns.

    Raises:
        FileNotFoundError: if the table comes neither with scikit-learn nor from the folder that the
            environment variable `VFG_DATA` names.

    Example:
        >>> table, columns = uci("breast_wdbc")
        >>> table.shape, len(columns)
        ((569, 30), 30)
    """
    archive = _archive("uci_tabular.npz")
    if archive is not None and f"{name}__X" in archive:
        return archive[f"{name}__X"], _names(archive[f"{name}__columns"])
    if name in BUNDLED:
        import sklearn.datasets

        found = getattr(sklearn.datasets, BUNDLED[name])()
        return found.data.astype(np.float64), _names(found.feature_names)
    raise FileNotFoundError(
        f"the table {name!r} is not among {', '.join(uci_names())}: set the environment variable "
        "VFG_DATA to a folder with a uci_tabular.npz that holds it"
    )


def california() -> tuple[Array, tuple[str, ...]]:
    """The eight features of California housing in the order of scikit-learn, without the target.

    Returns:
        The table `(20640, 8)` and the names of its columns.

    Raises:
        FileNotFoundError: if `VFG_DATA` names no folder that holds `california_housing.npz`.
    """
    archive = _archive("california_housing.npz")
    if archive is None:
        raise FileNotFoundError(
            "California housing is read from california_housing.npz: set the environment variable "
            "VFG_DATA to the folder that holds this file"
        )
    return archive["data"], _names(archive["columns"])


def _archive(file: str) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file in the data folder, None if it is not there."""
    path = Path(os.environ.get("VFG_DATA", "")) / file
    if "VFG_DATA" not in os.environ or not path.is_file():
        return None
    with np.load(path) as found:
        return dict(found)


def _names(columns: Any) -> tuple[str, ...]:
    return tuple(str(column) for column in columns)


def mcar(shape: tuple[int, int], rate: float, seed: int) -> Mask:
    """Cells missing completely at random: each with the same probability, whatever the values.

    Args:
        shape: of the table.
        rate: the probability of a cell to be missing.
        seed: of the draws.

    Returns:
        The mask, `True` where a cell is missing.

    Example:
        >>> mcar((2, 4), 0.5, seed=0)
        array([[False,  True,  True,  True],
               [False, False, False, False]])
    """
    _check_rate(rate)
    return np.random.default_rng(seed).random(shape) < rate


def mar(table: Array, rate: float, seed: int) -> Mask:
    r"""Cells missing at random: whether they are depends on columns that are always observed.

    A random third of the columns (at least one) is never missing. With their standardised values
    $z$, column $j$ of the others is missing with probability
    $\sigma(w_j^\top z / s_j + b_j)$, where $w_j$ is drawn from a standard Normal, $s_j$ scales
    the logits to standard deviation 1, and $b_j$ makes the mean probability equal to the rate.

    Args:
        table: the complete table, with two columns or more.
        rate: the expected share of missing cells in every column that may be missing.
        seed: of the draws.

    Returns:
        The mask, `True` where a cell is missing.

    Example:
        >>> mask = mar(np.random.default_rng(0).normal(size=(1000, 3)), 0.3, seed=0)
        >>> mask.mean(axis=0).round(1)
        array([0.3, 0.3, 0. ])
    """
    _check_rate(rate)
    rows, columns = table.shape
    if columns < 2:
        raise ValueError(f"mar needs a table with at least two columns, but it has {columns}")
    generator = np.random.default_rng(seed)
    shown = np.sort(generator.permutation(columns)[: max(1, columns // 3)])
    hidden = np.setdiff1d(np.arange(columns), shown)
    weights = generator.normal(size=(len(shown), len(hidden)))
    logits = _standardised(_standardised(table[:, shown]) @ weights)
    mask = np.zeros((rows, columns), dtype=bool)
    mask[:, hidden] = generator.random(logits.shape) < _calibrated(logits, rate)
    return mask


def mnar_self(table: Array, rate: float, seed: int) -> Mask:
    r"""Cells missing not at random: large values hide themselves.

    A cell with standardised value $z$ in column $j$ is missing with probability
    $\sigma(z + b_j)$, where $b_j$ makes the mean probability of the column equal to the rate.

    Args:
        table: the complete table.
        rate: the expected share of missing cells in every column.
        seed: of the draws.

    Returns:
        The mask, `True` where a cell is missing.

    Example:
        >>> table = np.random.default_rng(0).normal(size=(1000, 1))
        >>> mask = mnar_self(table, 0.3, seed=0)
        >>> bool(table[mask].mean() > table[~mask].mean())
        True
    """
    _check_rate(rate)
    logits = _standardised(table)
    return np.random.default_rng(seed).random(table.shape) < _calibrated(logits, rate)


def _check_rate(rate: float) -> None:
    if not 0.0 < rate < 1.0:
        raise ValueError(f"the rate of missing cells must lie strictly between 0 and 1, not {rate}")


def _standardised(table: Array) -> Array:
    """Columns with mean 0 and standard deviation 1; constant columns become 0."""
    spread = table.std(axis=0)
    centred: Array = table - table.mean(axis=0)
    return centred / np.where(spread > 0, spread, 1.0)


def _calibrated(logits: Array, rate: float) -> Array:
    """Probabilities by a logistic whose intercept per column makes their mean the rate."""
    from scipy.optimize import brentq
    from scipy.special import expit

    def excess(intercept: float, column: Array) -> float:
        return float(expit(column + intercept).mean() - rate)

    # At these ends every single probability is beyond the rate, so they enclose the intercept.
    reach = float(np.abs(logits).max(initial=0.0) + abs(np.log(rate / (1.0 - rate))) + 1.0)
    intercepts = [brentq(excess, -reach, reach, args=(column,)) for column in logits.T]
    probabilities: Array = expit(logits + np.array(intercepts))
    return probabilities
