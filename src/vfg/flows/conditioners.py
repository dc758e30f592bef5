"""The networks inside coupling layers: stacked, fully connected, one per edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ._checks import check_choice, check_count, check_positive, check_rate
from ._numerics import private_generator, uniform

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Network:
    """What the networks of a stack of conditioners look like.

    The default is the paper's: three fully connected layers of 64 with ReLU between them.

    Args:
        hidden: width of the layers between.
        layers: number of fully connected layers, the last one included.
        activation: `"relu"`, `"silu"`, `"gelu"` or `"tanh"`.
        dropout: rate at which hidden units are dropped in training mode. The masks are drawn from
            torch's global random stream, afresh on every call, so in training mode with dropout
            the inverse of a coupling undoes its forward map only on average.
        gain: by how much the weights of hidden layers start larger than uniform in ±1/√inputs; 2.45
            keeps the size of activations through ReLU.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if an argument is out of its range.

    Example:
        >>> Network(hidden=8).layers
        3
    """

    hidden: int = 64
    layers: int = 3
    activation: str = "relu"
    dropout: float = 0.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_positive("Network", "gain", self.gain)
        check_count("Network", "hidden", self.hidden, 1)
        check_count("Network", "layers", self.layers, 1)
        check_choice("Network", "activation", self.activation, ACTIVATIONS)
        check_rate("Network", "dropout", self.dropout)


SHARED = 8
"""How many rows share a dropout mask, at most, where drawing it would be the slowest part."""

PAPER = Network()
"""The network of the paper."""


class _RectifiedDropout(torch.autograd.Function):
    """ReLU, then zeros where the mask has them, in place; what is left is not scaled up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        edges, together, hidden = mask.shape
        x.clamp_min_(0.0).view(edges, together, -1, hidden).mul_(mask[:, :, None])
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        # Dropped entries are 0 like those below 0, so one look tells both.
        return torch.ops.aten.threshold_backward(gradients[0], kept, 0.0), None


def rectified_dropout(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """ReLU and dropout of a tensor that may be overwritten, where memory is the bottleneck.

    Up to `SHARED` rows of the batch drop the same units: drawing a random number for every entry
    would take longer than the layer itself.

    Args:
        x: `(edges, batch, hidden)`, computed and not needed elsewhere.
        rate: the share that is dropped.

    Returns:
        The result, and the factor by which what reads it has to scale it up.

    Example:
        >>> generator = torch.manual_seed(0)
        >>> y, factor = rectified_dropout(torch.ones(10, 800, 100), 0.25)
        >>> abs((y * factor).mean().item() - 1.0) < 0.02
        True
    """
    edges, batch, hidden = x.shape
    mask = x.new_empty(edges, batch // math.gcd(batch, SHARED), hidden).bernoulli_(1.0 - rate)
    result: Tensor = _RectifiedDropout.apply(x, mask)  # type: ignore[no-untyped-call]
    return result, 1.0 / (1.0 - rate)


class StackedLinear(nn.Module):
    r"""One affine map per edge, all computed by a single batched product.

    $y_k = x_k W_k + b_k$ for every edge $k$, with `weight` of shape `(edges, inputs, outputs)` and
    `bias` of shape `(edges, 1, outputs)`, both uniform in $\pm 1/\sqrt{\text{inputs}}$ at the
    start. Without inputs the map is its bias.

    Args:
        edges: number of maps in the stack.
        inputs: width of the input, 0 allowed.
        outputs: width of the output.
        generator: source of the random start; None means a fresh one with seed 0.

    Example:
        >>> StackedLinear(3, 2, 5)(torch.zeros(3, 7, 2)).shape
        torch.Size([3, 7, 5])
    """

    def __init__(
        self, edges: int, inputs: int, outputs: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        generator = private_generator(generator)
        bound = 1 / math.sqrt(max(inputs, 1))
        self.weight = nn.Parameter(uniform((edges, inputs, outputs), bound, generator))
        self.bias = nn.Parameter(uniform((edges, 1, outputs), bound, generator))

    def forward(self, x: Tensor, factor: float = 1.0) -> Tensor:
        """Map `(edges, batch, inputs)`, times a factor, to `(edges, batch, outputs)`."""
        return torch.baddbmm(self.bias, x, self.weight, alpha=factor)

    def extra_repr(self) -> str:
        edges, inputs, outputs = self.weight.shape
        return f"edges={edges}, inputs={inputs}, outputs={outputs}"


class Conditioner(nn.Module):
    """A stack of fully connected networks whose last layer starts at zero.

    A zero last layer makes every coupling that reads the network start as the identity.

    Args:
        edges: number of networks in the stack.
        inputs: width of the input; with 0 each network is a learned constant.
        outputs: width of the output.
        network: what they look like.
        generator: source of the random start; None means a fresh one with seed 0.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if an argument is out of its range.

    Example:
        >>> conditioner = Conditioner(3, 2, 5, network=Network(hidden=8))
        >>> conditioner(torch.ones(3, 7, 2)).abs().max().item()
        0.0
    """

    def __init__(
        self,
        edges: int,
        inputs: int,
        outputs: int,
        *,
        network: Network = PAPER,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, value, minimum in [
            ("edges", edges, 1),
            ("inputs", inputs, 0),
            ("outputs", outputs, 1),
        ]:
            check_count("Conditioner", name, value, minimum)
        self.activation = network.activation
        self.dropout = network.dropout
        generator = private_generator(generator)
        widths = [inputs, *[network.hidden] * (network.layers - 1), outputs]
        stack = [StackedLinear(edges, a, b, generator=generator) for a, b in pairwise(widths)]
        with torch.no_grad():
            for layer in stack[:-1]:
                layer.weight.mul_(network.gain)
        nn.init.zeros_(stack[-1].weight)
        nn.init.zeros_(stack[-1].bias)
        self.last = stack.pop()
        self.hidden_layers = nn.ModuleList(stack)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(edges, batch, inputs)` to `(edges, batch, outputs)`."""
        x, factor = x.to(self.last.weight.dtype), 1.0
        for layer in self.hidden_layers:
            x, factor = self._activated(layer(x, factor))
        y: Tensor = self.last(x, factor)
        return y

    def _activated(self, x: Tensor) -> tuple[Tensor, float]:
        """The activation with dropout, and a factor that is still to be applied."""
        rate = self.dropout if self.training else 0.0
        is_eager = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if self.activation == "relu" and is_eager and rate > 0.0:
            return rectified_dropout(x, rate)
        return functional.dropout(ACTIVATIONS[self.activation](x), rate, rate > 0.0), 1.0

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}, dropout={self.dropout}"
