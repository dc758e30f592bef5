"""What the roots are expected to be: Normal, Laplace, or one Normal per label."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from vfg.config import Spec

LOG_TWO = math.log(2.0)
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class LogDensity(NamedTuple):
    """A log-density in two parts: `value` without the normalising constant, and that constant.

    The log-density is `value - constant`; both count observed coordinates only.
    """

    value: Tensor
    constant: Tensor


class Prior(nn.Module, ABC):
    """The prior of the roots of one block; scales are 1, means are learned and start at 0."""

    is_normal: ClassVar[bool] = False

    @abstractmethod
    def mean(self, labels: Tensor | None) -> Tensor:
        """The prior's mean, `(nodes, 1 or batch, width)`: also the default of the roots."""

    @abstractmethod
    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        """log p of the observed coordinates of `(nodes, batch, width)`, each `(nodes, batch)`."""

    @abstractmethod
    def sample(self, rows: int, labels: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draws `(nodes, rows, width)`."""


class SinglePrior(Prior):
    """One mean for all rows."""

    constant_per_coordinate: ClassVar[float]

    def __init__(self, nodes: int, width: int) -> None:
        super().__init__()
        self.location = nn.Parameter(torch.zeros(nodes, 1, width))

    def mean(self, labels: Tensor | None) -> Tensor:
        return self.location

    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        mask = observed.to(state.dtype)
        distance = (self.distance(state - self.location) * mask).sum(-1)
        return LogDensity(-distance, self.constant_per_coordinate * mask.sum(-1))

    @staticmethod
    @abstractmethod
    def distance(difference: Tensor) -> Tensor:
        """The part of −log p that depends on the state, per coordinate."""


class NormalPrior(SinglePrior):
    r"""$h \sim N(\mu, I)$."""

    is_normal = True
    constant_per_coordinate = HALF_LOG_TWO_PI

    @staticmethod
    def distance(difference: Tensor) -> Tensor:
        return 0.5 * difference.square()

    def sample(self, rows: int, labels: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.location + _standard_normal(self.location, rows, generator)


class LaplacePrior(SinglePrior):
    r"""$p(h) = \prod \tfrac12 e^{-|h - \mu|}$."""

    constant_per_coordinate = LOG_TWO

    @staticmethod
    def distance(difference: Tensor) -> Tensor:
        return difference.abs()

    def sample(self, rows: int, labels: Tensor | None, generator: torch.Generator) -> Tensor:
        shape = (self.location.shape[0], rows, self.location.shape[2])
        like = self.location
        uniform = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device) - 0.5
        tiny = torch.finfo(self.location.dtype).tiny
        tail = (1.0 - 2.0 * uniform.abs()).clamp(min=tiny).log()
        return self.location - uniform.sign() * tail


class LabelPrior(Prior):
    r"""$h \mid u \sim N(\lambda(u), I)$; without a label the equal mixture over all labels.

    A row without a label (label −1, or no labels at all) has the mixture as its density and the
    mean of the λ(u) as its mean.
    """

    is_normal = True

    def __init__(self, nodes: int, width: int, labels: int) -> None:
        super().__init__()
        self.locations = nn.Parameter(torch.zeros(nodes, labels, width))

    def mean(self, labels: Tensor | None) -> Tensor:
        overall = self.locations.mean(1, keepdim=True)
        if labels is None:
            return overall
        own = self.locations.index_select(1, labels.clamp(min=0))
        return torch.where((labels >= 0)[:, None], own, overall)

    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        mask = observed.to(state.dtype)
        scores = self.log_prob_by_label(state, observed)
        mixture = scores.logsumexp(-1) - math.log(scores.shape[-1])
        constant = HALF_LOG_TWO_PI * mask.sum(-1)
        if labels is None:
            return LogDensity(mixture, constant)
        index = labels.clamp(min=0)[None, :, None].expand(scores.shape[0], -1, 1)
        own = scores.gather(-1, index)[..., 0]
        return LogDensity(torch.where(labels >= 0, own, mixture), constant)

    def log_prob_by_label(self, state: Tensor, observed: Tensor) -> Tensor:
        """−½‖h − λ(u)‖² on the observed coordinates for every label, `(nodes, batch, labels)`."""
        mask = observed.to(state.dtype)
        # Expanded, so that no (batch, labels, width) tensor is written out.
        square = (mask * state.square()).sum(-1, keepdim=True)
        cross = (mask * state) @ self.locations.mT
        norm = mask @ self.locations.square().mT
        return -0.5 * (square - 2.0 * cross + norm)

    def sample(self, rows: int, labels: Tensor | None, generator: torch.Generator) -> Tensor:
        count = self.locations.shape[1]
        drawn = torch.randint(count, (rows,), generator=generator, device=self.locations.device)
        if labels is not None:
            drawn = torch.where(labels >= 0, labels, drawn)
        centre = self.locations.index_select(1, drawn)
        return centre + _standard_normal(self.locations, rows, generator)


class PriorSpec(Spec):
    """How to build the prior of a block of roots."""

    def build(self, nodes: int, width: int) -> Prior:
        """The prior of `nodes` roots of `width`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Normal(PriorSpec):
    """A Normal root with unit covariance and learned mean.

    Example:
        >>> Normal().build(nodes=1, width=2).mean(None).shape
        torch.Size([1, 1, 2])
    """

    name: ClassVar[str] = "normal"

    def build(self, nodes: int, width: int) -> Prior:
        return NormalPrior(nodes, width)


@dataclass(frozen=True)
class Laplace(PriorSpec):
    """A Laplace root with unit scale and learned mean.

    Example:
        >>> Laplace().build(nodes=1, width=2).is_normal
        False
    """

    name: ClassVar[str] = "laplace"

    def build(self, nodes: int, width: int) -> Prior:
        return LaplacePrior(nodes, width)


@dataclass(frozen=True)
class PerLabel(PriorSpec):
    """One Normal per label, with learned means.

    Args:
        labels: how many labels there are.

    Example:
        >>> PerLabel(10).build(nodes=1, width=2).mean(torch.tensor([3, -1])).shape
        torch.Size([1, 2, 2])
    """

    name: ClassVar[str] = "per_label"
    labels: int = 2

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise ValueError(f"a prior per label needs at least one label, but got {self.labels}")

    def build(self, nodes: int, width: int) -> Prior:
        return LabelPrior(nodes, width, self.labels)


def prior_spec(given: str | PriorSpec) -> PriorSpec:
    """A prior by name or as it is.

    Raises:
        ValueError: for a name that is not known.

    Example:
        >>> prior_spec("laplace")
        Laplace()
    """
    if isinstance(given, PriorSpec):
        return given
    by_name: dict[str, PriorSpec] = {"normal": Normal(), "laplace": Laplace()}
    if given not in by_name:
        raise ValueError(
            f"there is no prior {given!r}; use 'normal', 'laplace' or vfg.PerLabel(labels)"
        )
    return by_name[given]


def _standard_normal(like: Tensor, rows: int, generator: torch.Generator) -> Tensor:
    shape = (like.shape[0], rows, like.shape[2])
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
