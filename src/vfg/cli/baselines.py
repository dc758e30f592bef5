"""Other imputers, on the same hidden cells: means, nearest neighbours, chained regressions."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from vfg.imputation.evaluation import Evaluation, HeldOut
    from vfg.imputation.table_model import TableModel

NEIGHBOURS = 5


@dataclass(frozen=True)
class Entry:
    """How one method did.

    Attributes:
        method: its name.
        evaluation: its errors.
        seconds: how long learning and filling took.
    """

    method: str
    evaluation: Evaluation
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {"method": self.method, "seconds": self.seconds, **self.evaluation.to_dict()}


def chosen_rivals(text: str | None) -> list[str]:
    """Names with commas between them, or `all`; none for nothing.

    Raises:
        typer.BadParameter: for an unknown name.

    Example:
        >>> chosen_rivals("knn,mean"), chosen_rivals("all"), chosen_rivals(None)
        (['knn', 'mean'], ['mean', 'knn', 'iterative'], [])
    """
    if text is None:
        return []
    names = list(RIVALS) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in RIVALS:
            raise typer.BadParameter(f"--rivals takes {', '.join(RIVALS)} or all, but got {name!r}")
    return names


def compete(
    names: list[str], model: TableModel, held: HeldOut, level: float, seed: int
) -> list[Entry]:
    """Let rivals fill the hidden entries of a matrix in which columns are standardised.

    Args:
        names: of the rivals.
        model: whose encoding the matrix has.
        held: the matrix, which entries they see, and which they fill.
        level: of the intervals, which rivals do not have.
        seed: of their draws.
    """
    import numpy as np

    from vfg.imputation.evaluation import score_filled

    gaps = np.where(held.shown, held.values, np.nan)
    entries = []
    for name in names:
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that chained regressions have not converged yet
            filled = RIVALS[name](seed).fit_transform(gaps)
        seconds = time.monotonic() - begun
        found = score_filled(model, held.values, held.hidden, filled, level)
        entries.append(Entry(name, found, seconds))
    return entries


def _mean(seed: int) -> Any:
    from sklearn.impute import SimpleImputer

    return SimpleImputer(keep_empty_features=True)


def _neighbours(seed: int) -> Any:
    from sklearn.impute import KNNImputer

    return KNNImputer(n_neighbors=NEIGHBOURS, keep_empty_features=True)


def _iterative(seed: int) -> Any:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return IterativeImputer(random_state=seed, keep_empty_features=True)


RIVALS: dict[str, Callable[[int], Any]] = {
    "mean": _mean,
    "knn": _neighbours,
    "iterative": _iterative,
}
"""Imputers of scikit-learn by the names that users give them, made from a seed."""
