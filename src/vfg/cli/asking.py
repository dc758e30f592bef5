"""Models of every kind behind the same few questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vfg.graph import Graph
    from vfg.tabular.model import TableModel

Given = Mapping[str, str]
"""Evidence as it is typed: values by the names of columns or nodes."""


@dataclass(frozen=True)
class Belief:
    """What a model says about one column or coordinate.

    Attributes:
        name: of the column or coordinate.
        value: its mean, or the likeliest category.
        deviation: its standard deviation; None for categories and dates.
        interval: both ends of the central interval; None for categories.
        draws: numbers to draw a histogram of; None for categories.
        ends: what the least and the greatest draw are called; None for their numbers.
        shares: probabilities of categories, the likeliest first; None for numbers.
    """

    name: str
    value: Any
    deviation: float | None = None
    interval: tuple[Any, Any] | None = None
    draws: NDArray[Any] | None = None
    ends: tuple[str, str] | None = None
    shares: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the draws, ready for JSON."""
        found: dict[str, Any] = {"name": self.name, "value": self.value}
        if self.deviation is not None:
            found["deviation"] = self.deviation
        if self.interval is not None:
            found["interval"] = list(self.interval)
        if self.shares is not None:
            found["probabilities"] = self.shares
        return found


@dataclass(frozen=True)
class Question:
    """How to answer: the level of intervals, how many draws, and their seed."""

    level: float = 0.9
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"the level must lie between 0 and 1, but is {self.level:g}")

    @property
    def ends(self) -> tuple[float, float]:
        """The levels of the two ends of intervals."""
        return 0.5 - self.level / 2, 0.5 + self.level / 2


class Respondent(ABC):
    """A model of some kind that can be asked from the command line."""

    kind: str

    @property
    @abstractmethod
    def graph(self) -> Graph | None:
        """Its graph, whose leaves have the names of columns; None if there is none."""

    @property
    @abstractmethod
    def columns(self) -> list[str] | None:
        """The columns of the tables it knows; None if it knows them by position."""

    @abstractmethod
    def ask(self, given: Given, targets: Sequence[str], how: Question) -> list[Belief]:
        """What is inferred about targets, by default all that is not given."""

    @abstractmethod
    def sample(self, rows: int, given: Given, seed: int, first: int) -> dict[str, Any]:
        """New rows, by column; `first` is the number of the first row.

        The same rows come out however they are divided into calls.
        """

    @abstractmethod
    def check(self, schema: Any) -> None:
        """Refuse a table whose columns cannot hold what the model knows of them.

        Raises:
            ValueError: which column, and what it holds.
        """

    @abstractmethod
    def score(self, frame: Any) -> tuple[str, NDArray[Any]]:
        """A number per row of a frame, and what it is called."""

    @abstractmethod
    def embed(self, frame: Any) -> dict[str, NDArray[Any]]:
        """The states of the roots, by coordinate."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What there is to know about it, ready for JSON."""


def load_table_model(path: str | Path, device: str | None = None) -> TableModel:
    """A model of a table from a file, where it is to answer.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a model of a table, or the device is not there.
    """
    import vfg
    from vfg.tabular.model import TableModel, answering_device

    model: Any = vfg.load(path)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"this needs a model of a table, as vfg fit writes it, but the file holds a "
            f"{type(model).__name__}"
        )
    return model.to(answering_device(checked_device(device)))


def checked_device(name: str | None) -> str | None:
    """The name of a device that is there.

    Raises:
        ValueError: if it is none, or not there.
    """
    if name is None:
        return None
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        found = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        raise ValueError(
            f"the device {name!r} is not there; choose one of {', '.join(found)}"
        ) from error
    return name


def respondent(path: str | Path) -> Respondent:
    """A model from a file, ready to be asked.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a model.
    """
    import vfg
    from vfg.tabular.model import TableModel

    model: Any = vfg.load(path)
    if isinstance(model, TableModel):
        from .asking_tables import TableRespondent

        return TableRespondent(model)
    from .asking_graphs import GraphRespondent

    return GraphRespondent(model)


def number(name: str, text: str) -> float:
    """What was typed as a number.

    Raises:
        ValueError: if it is none.

    Example:
        >>> number("age", "three")
        Traceback (most recent call last):
        ValueError: the value of 'age' must be a number, but is 'three'
    """
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"the value of {name!r} must be a number, but is {text!r}") from None
    if found != found or found in (float("inf"), float("-inf")):
        raise ValueError(f"the value of {name!r} must be finite, but is {text!r}; leave it out")
    return found
