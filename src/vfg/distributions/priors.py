"""What the roots are expected to be: Normal, Laplace, or one Normal per label."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from vfg.utils.specs import Spec

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
    has_parts: ClassVar[bool] = False
    """Whether a draw comes from one of several parts, chosen at random."""
    needs_whole_states: ClassVar[bool] = False
    """Whether the density of single coordinates is unknown, as with deterministic states."""

    @abstractmethod
    def mean(self, labels: Tensor | None) -> Tensor:
        """The prior's mean, `(nodes, 1 or batch, width)`: also the default of the roots."""

    @abstractmethod
    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        """log p of the observed coordinates of `(nodes, batch, width)`, each `(nodes, batch)`."""

    @abstractmethod
    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        """Draws `(nodes, batch, width)` from standard Normal numbers `(nodes, batch, numbers)`."""

    def numbers(self) -> int:
        """How many numbers a draw takes: one per coordinate, and one to choose among parts."""
        return self.mean(None).shape[-1] + int(self.has_parts)

    def sample(self, rows: int, labels: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draws `(nodes, rows, width)`."""
        like = self.mean(None)
        shape = (like.shape[0], rows, self.numbers())
        normals = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        return self.push(normals, labels)


class SinglePrior(Prior):
    """One mean for all rows."""

    constant_per_coordinate: ClassVar[float]
    variance: ClassVar[float] = 1.0
    """Of a coordinate at scale 1."""

    def __init__(self, nodes: int, width: int) -> None:
        super().__init__()
        self.location = nn.Parameter(torch.zeros(nodes, 1, width))

    def mean(self, labels: Tensor | None) -> Tensor:
        return self.location

    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        mask = observed.to(state.dtype)
        distance = (self.distance(state - self.location) * mask).sum(-1)
        return LogDensity(-distance, self.constant_per_coordinate * mask.sum(-1))

    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        return self.location + self.standard(normals)

    @staticmethod
    @abstractmethod
    def distance(difference: Tensor) -> Tensor:
        """The part of −log p that depends on the state, per coordinate."""

    @staticmethod
    @abstractmethod
    def standard(normals: Tensor) -> Tensor:
        """Draws around 0 from standard Normal numbers."""


class NormalPrior(SinglePrior):
    r"""$h \sim N(\mu, I)$."""

    is_normal = True
    constant_per_coordinate = HALF_LOG_TWO_PI

    @staticmethod
    def distance(difference: Tensor) -> Tensor:
        return 0.5 * difference.square()

    @staticmethod
    def standard(normals: Tensor) -> Tensor:
        return normals


class LaplacePrior(SinglePrior):
    r"""$p(h) = \prod \tfrac12 e^{-|h - \mu|}$."""

    constant_per_coordinate = LOG_TWO
    variance = 2.0

    @staticmethod
    def distance(difference: Tensor) -> Tensor:
        return difference.abs()

    @staticmethod
    def standard(normals: Tensor) -> Tensor:
        # The Laplace quantile of Φ(ε), from the tail so that nothing cancels.
        tail: Tensor = torch.special.log_ndtr(-normals.abs())
        return -normals.sign() * (LOG_TWO + tail)


class LabelPrior(Prior):
    r"""$h \mid u \sim N(\lambda(u), I)$; without a label the equal mixture over all labels.

    A row without a label (label −1, or no labels at all) has the mixture as its density and the
    mean of the λ(u) as its mean.
    """

    is_normal = True
    has_parts = True

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

    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        nodes, count, width = self.locations.shape
        # Root by root, because that is what the density says of rows without a label.
        drawn = chosen_part(normals[..., -1], normals.new_full((nodes, count), 1.0 / count))
        if labels is not None:
            drawn = torch.where(labels >= 0, labels, drawn)
        index = drawn[..., None].expand(-1, -1, width)
        return self.locations.gather(1, index) + normals[..., :-1]


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
            f"there is no prior {given!r}; use 'normal', 'laplace', vfg.PerLabel(labels), "
            "vfg.Mixture(components) or vfg.FlowPrior(...)"
        )
    return by_name[given]


def chosen_part(normals: Tensor, shares: Tensor) -> Tensor:
    """Which part of a mixture standard Normal numbers `(nodes, batch)` choose.

    Args:
        normals: one number per node and row.
        shares: the probability of every part, `(nodes, parts)`.

    Example:
        >>> chosen_part(torch.tensor([[-0.5, 0.5]]), torch.tensor([[0.5, 0.5]]))
        tensor([[0, 1]])
    """
    below = shares.cumsum(-1)[:, None, :-1]
    level: Tensor = torch.special.ndtr(normals)
    return (level[..., None] > below).sum(-1)


LATENTS: dict[str, type[SinglePrior]] = {"laplace": LaplacePrior, "normal": NormalPrior}
"""The distributions of latent states, by name: each gives a distance and a constant."""
