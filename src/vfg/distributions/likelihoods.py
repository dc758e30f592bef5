"""Likelihoods of the leaves: Gaussian, Bernoulli and Categorical."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vfg.utils.specs import Spec, for_each

LOG_TWO_PI = math.log(2.0 * math.pi)


class Likelihood(nn.Module, ABC):
    """The leaves of one block: how data enter as states, and how states explain data.

    Data have shape `(nodes, batch, columns)`, states `(nodes, batch, width)`. How to write a new
    one: subclass, implement the four methods, and add a frozen `LikelihoodSpec` that builds it. For
    draws and standard deviations of answers, also register functions with
    `vfg.inference.draws.quantile` and `vfg.inference.draws.deviation`.
    """

    @abstractmethod
    def embed(self, data: Tensor) -> Tensor:
        """Data without NaN to states."""

    @abstractmethod
    def log_prob(self, data: Tensor, state: Tensor) -> Tensor:
        """log p(data | state) per column, `(nodes, batch, columns)`; data without NaN."""

    @abstractmethod
    def mean(self, state: Tensor) -> Tensor:
        """The expected data; for categories the most probable one."""

    @abstractmethod
    def sample(self, state: Tensor, generator: torch.Generator) -> Tensor:
        """One draw of data per state."""


class GaussianLikelihood(Likelihood):
    r"""$x \sim N(\hat x, \sigma^2)$ per coordinate, $\sigma = \sqrt{\text{floor}^2 + e^{2s}}$."""

    def __init__(self, nodes: int, width: int, spec: Gaussian) -> None:
        super().__init__()
        self.floor = spec.floor
        start = 0.5 * math.log(spec.scale**2 - spec.floor**2)
        self.log_scale = nn.Parameter(torch.full((nodes, 1, width), start), spec.learn)

    def scale(self) -> Tensor:
        """σ, `(nodes, 1, width)`."""
        return (self.floor**2 + (2.0 * self.log_scale).exp()).sqrt()

    def embed(self, data: Tensor) -> Tensor:
        return data

    def log_prob(self, data: Tensor, state: Tensor) -> Tensor:
        scale = self.scale()
        return -0.5 * (((data - state) / scale) ** 2 + LOG_TWO_PI) - scale.log()

    def mean(self, state: Tensor) -> Tensor:
        return state

    def sample(self, state: Tensor, generator: torch.Generator) -> Tensor:
        normals = torch.randn(
            state.shape, dtype=state.dtype, device=state.device, generator=generator
        )
        return state + self.scale() * normals


class BernoulliLikelihood(Likelihood):
    r"""$x \sim \mathrm{Bernoulli}(\mathrm{sigmoid}(a \hat x))$; data 0 and 1 enter as −1 and 1."""

    def __init__(self, nodes: int, width: int, spec: Bernoulli) -> None:
        super().__init__()
        start = math.log(spec.steepness)
        self.log_steepness = nn.Parameter(torch.full((nodes, 1, width), start), spec.learn)

    def logits(self, state: Tensor) -> Tensor:
        """log p/(1 − p), `(nodes, batch, width)`."""
        return self.log_steepness.exp() * state

    def embed(self, data: Tensor) -> Tensor:
        return 2.0 * data - 1.0

    def log_prob(self, data: Tensor, state: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(self.logits(state), data, reduction="none")

    def mean(self, state: Tensor) -> Tensor:
        return self.logits(state).sigmoid()

    def sample(self, state: Tensor, generator: torch.Generator) -> Tensor:
        return (_uniform(state, generator) < self.mean(state)).to(state.dtype)


class CategoricalLikelihood(Likelihood):
    r"""One column of codes 0, 1, ...; each is a learned point $c_k$ in the leaf's space.

    $$p(x = k \mid \hat x) \propto \exp(-\tfrac12 e^t \lVert \hat x - c_k \rVert^2)$$
    """

    def __init__(self, nodes: int, width: int, spec: Categorical) -> None:
        super().__init__()
        # On a line, or in random directions from a fixed seed.
        start = torch.linspace(-1.5, 1.5, spec.categories)[:, None]
        if width > 1:
            generator = torch.Generator().manual_seed(spec.categories)
            drawn = torch.randn(spec.categories, width, generator=generator)
            start = 1.5 * F.normalize(drawn, dim=-1)
        self.points = nn.Parameter(start.repeat(nodes, 1, 1), spec.learn)
        self.log_sharpness = nn.Parameter(torch.zeros(nodes, 1, 1), spec.learn)

    def logits(self, state: Tensor) -> Tensor:
        """Unnormalised log-probabilities, `(nodes, batch, categories)`."""
        distance = (state[:, :, None] - self.points[:, None]).square().sum(-1)
        return -0.5 * self.log_sharpness.exp() * distance

    def embed(self, data: Tensor) -> Tensor:
        index = data.long().expand(-1, -1, self.points.shape[-1])
        return self.points.gather(1, index)

    def log_prob(self, data: Tensor, state: Tensor) -> Tensor:
        return self.logits(state).log_softmax(-1).gather(-1, data.long())

    def mean(self, state: Tensor) -> Tensor:
        return self.logits(state).argmax(-1, keepdim=True).to(state.dtype)

    def sample(self, state: Tensor, generator: torch.Generator) -> Tensor:
        logits = self.logits(state)
        noise = -(-_uniform(logits, generator).clamp(min=1e-20).log()).log()
        return (logits + noise).argmax(-1, keepdim=True).to(state.dtype)


class LikelihoodSpec(Spec):
    """How to build the likelihood of a block of leaves; frozen, and plain JSON in a model file."""

    is_bounded: ClassVar[bool] = False
    """Whether `check` has anything to check."""
    is_real: ClassVar[bool] = False
    """Whether values lie on the real line, so that location and scale mean something."""

    def build(self, nodes: int, width: int) -> Likelihood:
        """The likelihood of `nodes` leaves of `width`."""
        raise NotImplementedError

    def columns(self, width: int) -> int:
        """The number of table columns of a leaf of `width`."""
        return width

    def check(self, leaf: str, values: Tensor) -> None:
        """Refuse observed values that this likelihood cannot explain, naming the leaf."""


@dataclass(frozen=True)
class Gaussian(LikelihoodSpec):
    """Real values with Normal noise.

    Args:
        scale: the standard deviation at the start, in those of scaled columns (default 1).
        learn: whether training changes it (default False). Set it with sampled states.
        floor: lower bound of a learned standard deviation (default 0.001).

    Example:
        >>> likelihood = Gaussian().build(nodes=1, width=2)
        >>> likelihood.log_prob(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
        tensor([[[-0.9189, -0.9189]]])
    """

    name: ClassVar[str] = "gaussian"
    is_real: ClassVar[bool] = True
    scale: float = 1.0
    learn: bool = False
    floor: float = 1e-3

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor < self.scale:
            raise ValueError(
                f"a Gaussian leaf needs 0 <= floor < scale, but got floor={self.floor}, "
                f"scale={self.scale}"
            )

    def build(self, nodes: int, width: int) -> Likelihood:
        return GaussianLikelihood(nodes, width, self)


@dataclass(frozen=True)
class Bernoulli(LikelihoodSpec):
    """Values 0 and 1, or probabilities in between.

    Args:
        steepness: the factor between a state and its log-odds at the start (default 4).
        learn: whether training changes it (default True).

    Example:
        >>> likelihood = Bernoulli().build(nodes=1, width=1)
        >>> likelihood.mean(torch.zeros(1, 1, 1)).item()
        0.5
    """

    name: ClassVar[str] = "bernoulli"
    is_bounded: ClassVar[bool] = True
    steepness: float = 4.0
    learn: bool = True

    def __post_init__(self) -> None:
        if not self.steepness > 0.0:
            raise ValueError(f"a Bernoulli leaf needs steepness > 0, but got {self.steepness}")

    def build(self, nodes: int, width: int) -> Likelihood:
        return BernoulliLikelihood(nodes, width, self)

    def check(self, leaf: str, values: Tensor) -> None:
        if values.numel() and not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError(
                f"leaf {leaf!r} is Bernoulli and takes values from 0 to 1, but its data run from "
                f"{values.min():g} to {values.max():g}; rescale them or use likelihood='gaussian'"
            )


@dataclass(frozen=True)
class Categorical(LikelihoodSpec):
    """One column of category codes 0, 1, ..., each a learned point in the leaf's space.

    Args:
        categories: number of categories, at least 2 (default 2).
        learn: whether training moves the points (default True).

    Example:
        >>> likelihood = Categorical(3).build(nodes=1, width=2)
        >>> code = torch.tensor([[[2.0]]])
        >>> likelihood.mean(likelihood.embed(code)).item()
        2.0
    """

    name: ClassVar[str] = "categorical"
    is_bounded: ClassVar[bool] = True
    categories: int = 2
    learn: bool = True

    def __post_init__(self) -> None:
        if self.categories < 2:
            raise ValueError(
                f"a Categorical leaf needs at least 2 categories, but got {self.categories}"
            )

    def build(self, nodes: int, width: int) -> Likelihood:
        return CategoricalLikelihood(nodes, width, self)

    def columns(self, width: int) -> int:
        return 1

    def check(self, leaf: str, values: Tensor) -> None:
        legal = (values == values.round()) & (values >= 0) & (values < self.categories)
        if values.numel() and not bool(legal.all()):
            raise ValueError(
                f"leaf {leaf!r} has {self.categories} categories coded 0 to {self.categories - 1}, "
                f"but its data hold {values[~legal][0]:g}; recode the column"
            )


def likelihood_spec(given: str | LikelihoodSpec, learn_noise: bool = False) -> LikelihoodSpec:
    """A likelihood by name, Gaussian with fixed or learned noise, or as it is.

    Raises:
        ValueError: for an unknown name, or one that needs arguments.

    Example:
        >>> likelihood_spec("bernoulli")
        Bernoulli(steepness=4.0, learn=True)
    """
    if isinstance(given, LikelihoodSpec):
        return given
    gaussian = Gaussian(learn=learn_noise)
    by_name: dict[str, LikelihoodSpec] = {"gaussian": gaussian, "bernoulli": Bernoulli()}
    if given not in by_name:
        raise ValueError(
            f"there is no likelihood {given!r}; use 'gaussian', 'bernoulli' or "
            "vfg.Categorical(categories)"
        )
    return by_name[given]


def likelihoods_by_leaf(
    leaves: Sequence[str],
    given: str | LikelihoodSpec | Mapping[str, str | LikelihoodSpec],
    learn_noise: bool = False,
) -> dict[str, LikelihoodSpec]:
    """The likelihood of every leaf from one for all, or from a mapping with `"*"` for the rest.

    Raises:
        ValueError: for an unknown leaf or likelihood, or a leaf without one.

    Example:
        >>> likelihoods_by_leaf(["a", "b"], {"a": Categorical(3), "*": "bernoulli"})["b"]
        Bernoulli(steepness=4.0, learn=True)
    """
    by_leaf = dict(given) if isinstance(given, Mapping) else {"*": given}
    chosen = for_each(list(leaves), by_leaf, "leaf")
    return {leaf: likelihood_spec(spec, learn_noise) for leaf, spec in chosen.items()}


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)
