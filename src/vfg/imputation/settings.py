"""Everything that decides how the model of a table is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch

from vfg.flows import Coupling
from vfg.graph import Graph
from vfg.imputation.checks import check_count, is_number
from vfg.tables.schema import Schema

SETTINGS: dict[str, tuple[type, str]] = {
    "graph": (Graph, "a vfg.Graph"),
    "flow": (Coupling, "a vfg.Coupling"),
    "schema": (Mapping, "a mapping from columns to kinds"),
    "bounds": (Mapping, "a mapping from columns to pairs (lowest, highest)"),
}
"""Settings that are objects, None left aside: their types, and how to speak of them."""
LEAST = {"members": 1, "mixtures": 0, "neighbours": 0, "width": 1, "steps": 1}
"""Settings that count something, and the least that each may be."""


@dataclass(frozen=True)
class ImputerSettings:
    """How a `vfg.TableModel` is fitted; None leaves a choice to the table.

    Args:
        graph: a known graph whose leaves name the columns; None puts one root over all columns.
        schema: kinds of columns by name, such as `{"age": "integer"}`; the others are inferred.
        bounds: lowest and highest value that filled cells of columns may have, by name; None for
            the lowest or highest that is observed.
        bend: whether nonlinear members are trained; without, fitting takes seconds.
        members: how many nonlinear models are averaged.
        mixtures: how many exact mixtures of linear models are averaged with them.
        neighbours: how many mixtures with a component at every row are averaged with them. They
            keep rows of the table in the model; 0 keeps none.
        width: of the root.
        flow: the couplings on the edges.
        steps: of training.
        budget: seconds that fitting may take; None for as long as the steps take.
        missing_values: what marks missing cells besides NaN, None, NaT and NA.
        device: where to train and to answer; None takes the GPU if there is one.
        progress: whether to show a progress bar.
        seed: of everything drawn.

    Raises:
        TypeError: for a graph, flow, schema or bounds of another type.
        ValueError: for numbers that are not positive, or not whole where they count something.

    Example:
        >>> ImputerSettings(bend=False).members is None
        True
    """

    graph: Graph | None = None
    schema: Mapping[Any, Any] | Schema | None = None
    bounds: Mapping[Any, tuple[Any, Any]] | None = None
    bend: bool = True
    members: int | None = None
    mixtures: int | None = None
    neighbours: int | None = None
    width: int | None = None
    flow: Coupling | None = None
    steps: int | None = None
    budget: float | None = None
    missing_values: Any = np.nan
    device: str | torch.device | None = None
    progress: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(vars(self))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of an imputer that cannot be.

    Args:
        settings: its parameters by name.

    Raises:
        TypeError: for a graph, flow, schema or bounds of another type.
        ValueError: for numbers that are not positive, or not whole where they count something.

    Example:
        >>> check_settings({"members": 0})
        Traceback (most recent call last):
        ValueError: members must be a whole number of at least 1, but is 0
    """
    given = {name: value for name, value in settings.items() if value is not None}
    for name, (kind, words) in SETTINGS.items():
        if name in given and not isinstance(given[name], kind):
            raise TypeError(f"{name} must be {words} or None, but is {given[name]!r}")
    for name, least in LEAST.items():
        if name in given:
            check_count(name, given[name], least)
    budget = given.get("budget", 1.0)
    if not (is_number(budget, Real) and budget > 0):
        raise ValueError(f"budget must be a positive number of seconds, but is {budget!r}")
