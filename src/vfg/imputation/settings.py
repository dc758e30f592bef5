"""What decides how the model of a table is fitted, and the checks of tables and settings."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import torch

from vfg.flows import Coupling
from vfg.graph import Graph, Network
from vfg.graph.graph import as_graph
from vfg.imputation.plan import EFFORTS
from vfg.tables.frames import Table, open_table
from vfg.tables.schema import Schema, check_labels

if TYPE_CHECKING:
    from vfg.structure import LearnedGraph

SEEDS = 2**26
"""Number of different seeds; training multiplies them, and products must fit into 64 bits."""
SETTINGS: dict[str, tuple[type, str]] = {
    "flow": (Coupling, "a vfg.Coupling"),
    "schema": (Mapping, "a mapping from columns to kinds"),
    "bounds": (Mapping, "a mapping from columns to pairs (lowest, highest)"),
    "constraints": (Sequence, "a list of texts such as 'a + b == total'"),
}
"""Types of the settings that are objects, and their names in errors."""
FLAGS = ("discrete", "bend")
"""Settings that are on or off."""
MISSINGNESS = ("auto", "ignorable", "self")
"""What may be assumed about why cells are missing."""
LEAST = {
    "members": 1,
    "mixtures": 0,
    "neighbours": 0,
    "trees": 0,
    "width": 1,
    "steps": 1,
    "n_jobs": 1,
}
"""The smallest values of settings that are counts."""


def check_table(table: Any, missing_values: Any, caller: str) -> Table:
    """Open a table and check that it has rows, columns and no infinite cells.

    Errors name the `caller`, an estimator.

    Example:
        >>> check_table([[1, 2]], np.nan, "VFGImputer").rows
        1
    """
    if scipy.sparse.issparse(table):
        raise TypeError(
            f"{caller} takes dense tables, but sparse input was passed; use table.toarray()"
        )
    if hasattr(table, "collect") and not hasattr(table, "shape"):
        raise TypeError(f"{caller} takes tables in memory, but this one is lazy; use collect()")
    opened = open_table(table, missing_values)
    check_labels(opened.labels, None)
    for number, what in ((opened.rows, "sample"), (len(opened.labels), "feature")):
        if not number:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape=({opened.rows}, {len(opened.labels)})) while "
                f"a minimum of 1 is required by {caller}."
            )
    opened.columns()
    return opened


def check_type(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Raise a TypeError unless a value is of a kind, which is described in words."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {words}, but is {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Raise a TypeError unless a value is True or False.

    Example:
        >>> check_flag("proper", "no")
        Traceback (most recent call last):
        TypeError: proper must be True or False, but is 'no'
    """
    check_type(name, value, (bool, np.bool_), "True or False")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise a ValueError unless a value is a whole number of at least `least`."""
    if not (is_number(value, Integral) and value >= least):
        raise ValueError(f"{name} must be a whole number of at least {least}, but is {value!r}")


def check_estimate(estimate: str) -> None:
    """Refuse anything but means and medians."""
    if estimate not in ("mean", "median"):
        raise ValueError(f"estimate must be 'mean' or 'median', but is {estimate!r}")


def check_share(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is a number between 0 and 1, both excluded."""
    if not (is_number(value, Real) and 0.0 < value < 1.0):
        raise ValueError(f"{name} must be a number between 0 and 1, but is {value!r}")


def as_seed(random_state: Any) -> int:
    """The seed of a `random_state` of scikit-learn.

    Example:
        >>> as_seed(7), as_seed(np.random.RandomState(0)) == as_seed(np.random.RandomState(0))
        (7, True)
    """
    from sklearn.utils import check_random_state  # takes a second, and queries need no generator

    generator = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state) % SEEDS
    return int(generator.randint(SEEDS))


def to_python(value: Any) -> Any:
    """A value of numpy as one of plain Python, which files can hold; others as they are."""
    return value.item() if isinstance(value, np.generic) else value


def is_number(value: Any, kind: type) -> bool:
    """Whether a value is a number of a kind, and neither a bool nor NaN."""
    return isinstance(value, kind) and not isinstance(value, bool) and not math.isnan(value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ImputerSettings:
    """How a `vfg.TableModel` is fitted; None leaves a choice to the table.

    They are the parameters of `vfg.sklearn.VFGImputer` that decide the model and are described
    there, except for two that have other names here.

    Args:
        progress: whether to show a progress bar (default False), `verbose` of `VFGImputer`.
        seed: of everything drawn (default 0), `random_state` of `VFGImputer`.

    Raises:
        TypeError: for a graph, flow, schema, bounds or switch of another type.
        ValueError: for numbers that are not positive, or not whole where they count something.

    Example:
        >>> ImputerSettings(members=0)
        Traceback (most recent call last):
        ValueError: members must be a whole number of at least 1, but is 0
    """

    graph: Graph | LearnedGraph | None = None
    schema: Mapping[Any, Any] | Schema | None = None
    bounds: Mapping[Any, tuple[Any, Any]] | None = None
    constraints: Sequence[str] | None = None
    discrete: bool = True
    bend: bool = True
    effort: str = "balanced"
    members: int | None = None
    mixtures: int | None = None
    neighbours: int | None = None
    trees: int | None = None
    width: int | None = None
    flow: Coupling | None = None
    steps: int | None = None
    budget: float | None = None
    n_jobs: int | None = None
    missing_values: Any = np.nan
    missingness: str = "auto"
    device: str | torch.device | None = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name, (kind, words) in SETTINGS.items():
            if name in given:
                check_type(name, given[name], kind, f"{words} or None")
        for name in FLAGS:
            check_flag(name, getattr(self, name))
        for name, least in LEAST.items():
            if name in given:
                check_count(name, given[name], least)
        for name, choices in (("effort", tuple(EFFORTS)), ("missingness", MISSINGNESS)):
            if getattr(self, name) not in choices:
                names = ", ".join(map(repr, choices))
                raise ValueError(f"{name} must be one of {names}, but is {getattr(self, name)!r}")
        if self.graph is not None:
            as_graph(self.graph)
        budget = given.get("budget", 1.0)
        if not (is_number(budget, Real) and budget > 0):
            raise ValueError(f"budget must be a positive number of seconds, but is {budget!r}")

    @property
    def structure(self) -> Graph | None:
        """The graph that the parts have; None puts one root over all columns."""
        given = self.graph
        return given if given is None or isinstance(given, Graph) else given.structure

    @property
    def causes(self) -> Network | None:
        """Causes and effects among the columns beside a root over all of them."""
        return None if self.graph is None or self.structure is not None else self.graph.network

    def warn_of_unused(self) -> None:
        """Warn of settings that another setting makes ineffective."""
        for because, applies, names in (
            (
                "bend=False",
                not self.bend,
                ("members", "mixtures", "neighbours", "trees", "flow", "steps"),
            ),
            ("graph=", self.structure is not None, ("width", "neighbours", "trees")),
        ):
            unused = [name for name in names if getattr(self, name) is not None]
            if applies and unused:
                ones = "has" if len(unused) == 1 else "have"
                warnings.warn(
                    f"{', '.join(unused)} {ones} no effect with {because}; leave out one or the "
                    "other",
                    stacklevel=5,
                )
