"""Root priors that bend: a mixture of Normals, and a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from vfg.distributions.priors import HALF_LOG_TWO_PI, LogDensity, Prior, PriorSpec, chosen_part
from vfg.flows import Coupling, Flow

LIMIT = 6.0
"""What the logarithm of a component's scale never exceeds."""


class MixturePrior(Prior):
    r"""$p(h) = \sum_k \pi_k N(h; \mu_k, \mathrm{diag}\, s_k^2)$, all learned."""

    has_parts = True

    def __init__(self, nodes: int, width: int, components: int) -> None:
        super().__init__()
        # A generator of its own, so that equal descriptions start equal.
        generator = torch.Generator().manual_seed(components)
        start = torch.randn(nodes, components, width, generator=generator)
        self.locations = nn.Parameter(0.5 * start)
        self.log_scales = nn.Parameter(torch.zeros(nodes, components, width))
        self.logits = nn.Parameter(torch.zeros(nodes, components))

    def mean(self, labels: Tensor | None) -> Tensor:
        return (self.logits.softmax(-1)[..., None] * self.locations).sum(1, keepdim=True)

    def log_prob(self, state: Tensor, observed: Tensor, labels: Tensor | None) -> LogDensity:
        mask = observed.to(state.dtype)
        log_scales = self._log_scales()
        precision = (-2.0 * log_scales).exp()
        # Expanded, so that no (batch, components, width) tensor is written out.
        square = (mask * state.square()) @ precision.mT
        cross = (mask * state) @ (precision * self.locations).mT
        rest = mask @ (precision * self.locations.square() + 2.0 * log_scales).mT
        scores = self.logits.log_softmax(-1)[:, None] - 0.5 * (square - 2.0 * cross + rest)
        return LogDensity(scores.logsumexp(-1), HALF_LOG_TWO_PI * mask.sum(-1))

    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        drawn = chosen_part(normals[..., -1], self.logits.softmax(-1))
        index = drawn[..., None].expand(-1, -1, self.locations.shape[-1])
        scale = self._log_scales().exp().gather(1, index)
        return self.locations.gather(1, index) + scale * normals[..., :-1]

    def _log_scales(self) -> Tensor:
        return LIMIT * torch.tanh(self.log_scales / LIMIT)


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
        straight, log_det = self.flow(state)
        value = log_det - 0.5 * straight.square().sum(-1)
        constant = value.new_full((), HALF_LOG_TWO_PI * self.flow.width)
        return LogDensity(value, constant.expand_as(value))

    def push(self, normals: Tensor, labels: Tensor | None) -> Tensor:
        return self.flow.inverse(normals)[0]


@dataclass(frozen=True)
class Mixture(PriorSpec):
    """A mixture of Normals with learned means, scales and weights.

    Args:
        components: how many Normals.

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
class FlowPrior(PriorSpec):
    """A standard Normal bent by coupling layers; for sampled states.

    Args:
        blocks: number of coupling layers.
        hidden: width of the conditioners' hidden layers.
        layers: number of the conditioners' layers.
        activation: `"relu"`, `"silu"`, `"gelu"` or `"tanh"`.

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

    def __post_init__(self) -> None:
        self._coupling()

    def build(self, nodes: int, width: int) -> Prior:
        return PriorFlow(self._coupling().build(nodes, width))

    def _coupling(self) -> Coupling:
        return Coupling(self.blocks, self.hidden, layers=self.layers, activation=self.activation)
