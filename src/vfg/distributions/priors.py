"""Priors of the roots: Normal, Laplace, per label, mixtures, mixed posteriors and flows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import LOG_TWO_PI
from vfg.flows import Coupling, Flow
from vfg.flows.checks import check_count
from vfg.utils.specs import Spec

LOG_TWO = math.log(2.0)
HALF_LOG_TWO_PI = 0.5 * LOG_TWO_PI
LIMIT = 6.0
"""Bound of the logarithm of a learned scale: scales lie between 0.0025 and 403, so that no
component of a mixture collapses onto a row."""


def bound_log_scale(logarithm: Tensor) -> Tensor:
    """The logarithm of a scale, bounded smoothly to ±`LIMIT`; 0 stays 0.

    Example:
        >>> bound_log_scale(torch.tensor([0.0, 1e9]))
        tensor([0., 6.])
    """
    return LIMIT * torch.tanh(logarithm / LIMIT)


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
    """Whether a draw comes from one of several components."""
    needs_whole_states: ClassVar[bool] = False
    """Whether single coordinates have no density, which deterministic states need."""

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
        # Root by root, as in the density of rows without a label.
        drawn = choose_part(normals[..., -1], normals.new_full((nodes, count), 1.0 / count))
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
        labels: number of labels (default 2).

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
        ValueError: for an unknown name.

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
            "vfg.Mixture(components), vfg.VampPrior(components) or vfg.FlowPrior(...)"
        )
    return by_name[given]


def choose_part(normals: Tensor, shares: Tensor) -> Tensor:
    """Choose a component by standard Normal numbers `(nodes, batch)` and shares `(nodes, parts)`.

    Example:
        >>> choose_part(torch.tensor([[-0.5, 0.5]]), torch.tensor([[0.5, 0.5]]))
        tensor([[0, 1]])
    """
    below = shares.cumsum(-1)[:, None, :-1]
    level: Tensor = torch.special.ndtr(normals)
    return (level[..., None] > below).sum(-1)


LATENTS: dict[str, type[SinglePrior]] = {"laplace": LaplacePrior, "normal": NormalPrior}
"""The distributions of latent states, by name: each gives a distance and a constant."""


class Components(NamedTuple):
    """Normals that are mixed: locations and logarithms of scales `(nodes, components, width)`."""

    locations: Tensor
    log_scales: Tensor
    logits: Tensor
    """Of the weights, `(nodes, components)`."""


class NormalMixture(Prior):
    r"""$p(h) = \sum_k \pi_k N(h; \mu_k, \mathrm{diag}\, s_k^2)$."""

    has_parts = True

    @abstractmethod
    def components(self) -> Components:
        """The locations, scales and logits of the components."""

    def mean(self, labels: Tensor | None) -> Tensor:
        locations, _, logits = self.components()
        return (logits.softmax(-1)[..., None] * locations).sum(1, keepdim=True)

    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        mask = observed.to(state.dtype)
        locations, log_scales, logits = self.components()
        precision = (-2.0 * log_scales).exp()
        # Expanded, so that no (batch, components, width) tensor is written out.
        square = (mask * state.square()) @ precision.mT
        cross = (mask * state) @ (precision * locations).mT
        rest = mask @ (precision * locations.square() + 2.0 * log_scales).mT
        scores = logits.log_softmax(-1)[:, None] - 0.5 * (square - 2.0 * cross + rest)
        return LogDensity(scores.logsumexp(-1), HALF_LOG_TWO_PI * mask.sum(-1))

    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        locations, log_scales, logits = self.components()
        drawn = choose_part(normals[..., -1], logits.softmax(-1))
        index = drawn[..., None].expand(-1, -1, locations.shape[-1])
        return locations.gather(1, index) + log_scales.exp().gather(1, index) * normals[..., :-1]


class MixturePrior(NormalMixture):
    """A mixture whose locations, scales and weights are learned."""

    def __init__(self, nodes: int, width: int, components: int) -> None:
        super().__init__()
        # A fixed seed, so that equal specs start equal.
        generator = torch.Generator().manual_seed(components)
        start = torch.randn(nodes, components, width, generator=generator)
        self.locations = nn.Parameter(0.5 * start)
        self.log_scales = nn.Parameter(torch.zeros(nodes, components, width))
        self.logits = nn.Parameter(torch.zeros(nodes, components))

    def components(self) -> Components:
        return Components(self.locations, bound_log_scale(self.log_scales), self.logits)


Posterior = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Rows to the centres and the logarithms of the scales of q, `(nodes, rows, width)` each."""
INPUT_LOGIT = 2.0
"""Of black and white pixels of pseudo-inputs at the start: probabilities of .88, not yet flat."""


class PosteriorMixture(NormalMixture):
    r"""$p(h) = \frac1K \sum_k q(h \mid u_k)$, the posteriors of K learned rows $u_k$."""

    needs_whole_states = True
    binary: Tensor

    def __init__(self, width: int, components: int) -> None:
        super().__init__()
        self.width, self.count = width, components
        self.posterior: Posterior | None = None

    def attach(self, posterior: Posterior, binary: Tensor) -> None:
        """Say what q is, and which columns of its rows are binary; pseudo-inputs start at random.

        They have columns first, as all tensors that are stacked with those of other models.
        """
        self.posterior = posterior
        self.register_buffer("binary", binary)
        generator = torch.Generator().manual_seed(self.count)
        start = torch.randn(len(binary), self.count, generator=generator)
        self.inputs = nn.Parameter(start)

    @torch.no_grad()
    def start_at(self, cells: Tensor) -> None:
        """Start the pseudo-inputs at rows of a table in the model's units, evenly spaced."""
        places = torch.arange(self.count, device=cells.device) * len(cells) // self.count
        rows = cells[places]
        logits = INPUT_LOGIT * (2.0 * rows - 1.0)
        self.inputs.copy_(torch.where(self.binary, logits, rows).mT)

    def components(self) -> Components:
        if self.posterior is None:
            raise RuntimeError("VampPrior needs a model that was built with states='sampled'")
        rows = torch.where(self.binary, self.inputs.mT.sigmoid(), self.inputs.mT)
        locations, log_scales = self.posterior(rows)
        return Components(locations, log_scales, torch.zeros_like(locations[..., 0]))

    def numbers(self) -> int:
        return self.width + 1


class PriorFlow(Prior):
    r"""$f(h) \sim N(0, I)$, so $\log p(h) = \log N(f(h); 0, I) + \log |\det f'(h)|$, f a flow."""

    needs_whole_states = True

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    @torch.no_grad()
    def mean(self, labels: Tensor | None) -> Tensor:
        """Where f is 0, which is the mean of the Normal and near that of h; not trained as such."""
        some = next(self.flow.parameters())
        zero = some.new_zeros(self.flow.edges, 1, self.flow.width)
        return self.flow.inverse(zero)[0]

    def numbers(self) -> int:
        return self.flow.width

    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        normals, log_det = self.flow(state)
        value = log_det - 0.5 * normals.square().sum(-1)
        constant = value.new_full((), HALF_LOG_TWO_PI * self.flow.width)
        return LogDensity(value, constant.expand_as(value))

    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        return self.flow.inverse(normals)[0]


@dataclass(frozen=True)
class Mixture(PriorSpec):
    """A mixture of Normals with learned means, scales and weights.

    Args:
        components: number of Normals (default 32).

    Raises:
        ValueError: if there are none.

    Example:
        >>> Mixture(8).build(nodes=1, width=2).mean(None).shape
        torch.Size([1, 1, 2])
    """

    name: ClassVar[str] = "mixture"
    components: int = 32

    def __post_init__(self) -> None:
        if self.components < 1:
            raise ValueError(f"a mixture needs at least one component, but got {self.components}")

    def build(self, nodes: int, width: int) -> Prior:
        return MixturePrior(nodes, width, self.components)


@dataclass(frozen=True)
class VampPrior(PriorSpec):
    r"""A mixture of posteriors, $p(h) = \frac1K \sum_k q(h \mid u_k)$; for sampled states.

    The pseudo-inputs $u_k$ are rows that are learned; training starts them at rows of the table.
    q is the Normal around the messages, so it has no coupling layers (`Sampled(blocks=0)`), and no
    leaf is categorical. In a graph with several layers, states of the nodes between leaves and root
    are the centres of their q.

    Args:
        components: K, how many pseudo-inputs.

    Raises:
        TypeError, ValueError: if that is no number of at least 1.

    Example:
        >>> import vfg
        >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
        >>> model = vfg.VFG(graph, states="sampled", aggregation="mean", prior=VampPrior(8))
        >>> model.bound(torch.zeros(3, 2)).total.shape
        torch.Size([3])
    """

    name: ClassVar[str] = "vamp"
    components: int = 100

    def __post_init__(self) -> None:
        check_count("VampPrior", "components", self.components, 1)

    def build(self, nodes: int, width: int) -> Prior:
        return PosteriorMixture(width, self.components)


@dataclass(frozen=True)
class FlowPrior(PriorSpec):
    """A standard Normal transformed by coupling layers; for sampled states.

    Args:
        blocks: number of coupling layers.
        hidden: width of the conditioners' hidden layers.
        layers: number of the conditioners' layers.
        activation: `"relu"`, `"silu"`, `"gelu"` or `"tanh"`.
        dropout: of the conditioners in training mode.
        image: rows and columns, if the roots are images; see `Coupling`.
        channels: width of the convolutions, per pixel.
        residual: gated residual layers of convolutions at each of two scales.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> FlowPrior(blocks=2, hidden=8).build(nodes=1, width=2).numbers()
        2
    """

    name: ClassVar[str] = "flowed"
    blocks: int = 4
    hidden: int = 64
    layers: int = 3
    activation: str = "relu"
    dropout: float = 0.0
    image: tuple[int, int] | None = None
    channels: int = 16
    residual: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.image, list):  # as JSON stores it
            object.__setattr__(self, "image", tuple(self.image))
        self._coupling()

    def build(self, nodes: int, width: int) -> Prior:
        return PriorFlow(self._coupling().build(nodes, width))

    def _coupling(self) -> Coupling:
        return Coupling(**asdict(self))
