"""Tables: simulated, of the UCI repository, and California housing.

torch is imported where tensors are made, so that `vfg data` lists the names at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vfg.data.archives import archive, missing_data_error

if TYPE_CHECKING:
    from torch import Tensor


def synthetic(rows: int = 1300, *, seed: int = 0) -> Tensor:
    r"""The eight columns of the paper's first experiment.

    With $z_1 \sim N(0, 1)$ and $z_2 \sim N(1, 2^2)$: $x_1 = x_2 = z_1$, $x_3 = x_4 = 2 \sin z_1$,
    $x_5 = x_6 = z_2$ and $x_7 = x_8 = z_2^2$.

    Args:
        rows: number of rows.
        seed: of the draws.

    Returns:
        A table `(rows, 8)`.

    Example:
        >>> synthetic(5).shape
        torch.Size([5, 8])
    """
    import torch

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
        rows: number of rows, at most 5000 if they come from the file.
        seed: of the simulation.

    Returns:
        A table `(rows, 7)` in float64, and the names of its columns.

    Example:
        >>> table, names = gaussian_network(10)
        >>> table.shape, "".join(names)
        (torch.Size([10, 7]), 'ABCDEFG')
    """
    import torch

    names = tuple("ABCDEFG")
    arrays = archive("gaussian_test.npz")
    if arrays is not None:
        return torch.from_numpy(arrays["data"][:rows]), names
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, 7, generator=generator, dtype=torch.float64).unbind(1)
    a, b = 1.0 + noise[0], 2.0 + 3.0 * noise[1]
    c = 2.0 + 2.0 * a + 2.0 * b + 0.5 * noise[2]
    d = 6.0 + 1.5 * b + 0.33 * noise[3]
    e, g = 3.5 + 2.0 * noise[4], 5.0 + 2.0 * noise[6]
    f = 2.0 * a + d + e + 1.5 * g + noise[5]
    return torch.stack([a, b, c, d, e, f, g], dim=1), names


Array = NDArray[np.float64]

BUNDLED = {
    "breast_wdbc": "load_breast_cancer",
    "digits": "load_digits",
    "iris": "load_iris",
    "wine": "load_wine",
}
"""UCI tables that scikit-learn brings along, by the loader of `sklearn.datasets`."""


def uci_names() -> tuple[str, ...]:
    """Names of the tables that `uci` can load here, in alphabetical order.

    They are those that scikit-learn brings along and, with the environment variable `VFG_DATA` set
    to a folder that holds `uci_tabular.npz`, the tables in that file.

    Example:
        >>> "breast_wdbc" in uci_names()
        True
    """
    arrays = archive("uci_tabular.npz")
    stored = [] if arrays is None else [key for key in arrays if key.endswith("__X")]
    return tuple(sorted({key.removesuffix("__X") for key in stored} | set(BUNDLED)))


def uci(name: str) -> tuple[Array, tuple[str, ...]]:
    """A numeric table of the UCI repository, without its target and without missing cells.

    Args:
        name: one of `uci_names()`.

    Returns:
        The table `(rows, columns)` and the names of its columns.

    Raises:
        FileNotFoundError: if the table comes neither with scikit-learn nor from `VFG_DATA`.

    Example:
        >>> table, columns = uci("breast_wdbc")
        >>> table.shape, len(columns)
        ((569, 30), 30)
    """
    arrays = archive("uci_tabular.npz")
    if arrays is not None and f"{name}__X" in arrays:
        return arrays[f"{name}__X"], _names(arrays[f"{name}__columns"])
    if name in BUNDLED:
        import sklearn.datasets

        bundled = getattr(sklearn.datasets, BUNDLED[name])()
        return bundled.data.astype(np.float64), _names(bundled.feature_names)
    raise FileNotFoundError(
        f"the table {name!r} is not among {', '.join(uci_names())}: set the environment variable "
        "VFG_DATA to a folder with a uci_tabular.npz that holds it"
    )


def california() -> tuple[Array, tuple[str, ...]]:
    """The eight features of California housing in the order of scikit-learn, without the target.

    Returns:
        The table `(20640, 8)` and the names of its columns.

    Raises:
        FileNotFoundError: if neither `VFG_DATA` nor scikit-learn provides the table.
    """
    file = "california_housing.npz"
    arrays = archive(file)
    if arrays is not None:
        return arrays["data"], _names(arrays["columns"])
    from sklearn.datasets import fetch_california_housing

    try:  # it checks a checksum of its own
        fetched = fetch_california_housing(n_retries=1)
    except OSError as error:
        reason = f"scikit-learn cannot download its copy ({error})"
        raise missing_data_error("California housing", file, reason) from error
    return fetched.data.astype(np.float64), _names(fetched.feature_names)


def _names(columns: Any) -> tuple[str, ...]:
    return tuple(str(column) for column in columns)
