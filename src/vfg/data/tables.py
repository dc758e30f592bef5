"""Real tables: those of the UCI repository, and California housing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfg.data.archives import archive, missing

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

    Returns:
        The tables that scikit-learn brings along and, with the environment variable `VFG_DATA` set
        to a folder that holds `uci_tabular.npz`, the tables in that file.

    Example:
        >>> "breast_wdbc" in uci_names()
        True
    """
    found = archive("uci_tabular.npz")
    stored = [] if found is None else [key for key in found if key.endswith("__X")]
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
    found = archive("uci_tabular.npz")
    if found is not None and f"{name}__X" in found:
        return found[f"{name}__X"], _names(found[f"{name}__columns"])
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
        FileNotFoundError: if `VFG_DATA` names no folder that holds `california_housing.npz` and
            scikit-learn cannot download its own copy.
    """
    file = "california_housing.npz"
    found = archive(file)
    if found is not None:
        return found["data"], _names(found["columns"])
    from sklearn.datasets import fetch_california_housing

    try:  # it checks a checksum of its own
        fetched = fetch_california_housing(n_retries=1)
    except OSError as error:
        reason = f"scikit-learn cannot download its copy ({error})"
        raise missing("California housing", file, reason) from error
    return fetched.data.astype(np.float64), _names(fetched.feature_names)


def _names(columns: Any) -> tuple[str, ...]:
    return tuple(str(column) for column in columns)
