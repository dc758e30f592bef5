"""The networks inside coupling layers, stacked over edges: fully connected or convolutional."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vfg.flows.checks import (
    check_choice,
    check_count,
    check_image,
    check_positive,
    check_rate,
    private_generator,
    uniform,
)
from vfg.flows.fast import fused
from vfg.flows.fast.primitives import (
    Rounding,
    drop,
    dropout_factor,
    product,
    random_bytes,
    round_to,
    times,
)

Activation = Callable[[Tensor], Tensor]
KERNEL = 5
"""Rows and columns that a kernel spans: two convolutions reach four pixels away."""
ACTIVATIONS: dict[str, Activation] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Network:
    """Architecture of the networks of a stack of conditioners.

    The default is the paper's: three fully connected layers of 64 with ReLU between them.

    Args:
        hidden: width of the layers between.
        layers: number of fully connected layers, the last one included.
        activation: `"relu"`, `"silu"`, `"gelu"` or `"tanh"`.
        dropout: rate at which hidden units are dropped in training mode. The masks are drawn anew
            on every call, so in training mode with dropout the inverse of a coupling undoes its
            forward map only on average. `vfg.fit` draws them from a generator of its own, other
            code from torch's global one.
        gain: factor of the weights of hidden layers, which start uniform in ±1/√inputs; 2.45 keeps
            the size of activations through ReLU.
        shared: with 0 every edge has a network of its own; else one network serves all edges, which
            differ by embeddings of this width.
        image: rows and columns, if the coordinates are the pixels of an image: then convolutions
            add to the output of the fully connected layers, and couplings split the pixels like
            the squares of a chessboard.
        channels: width of the convolutions' hidden layers, per pixel.
        residual: with 0 there are two convolutions, which add to the fully connected layers. Else
            an `ImageNetwork` with this many gated residual layers per scale takes the place of all
            layers, and splits are those of `squeezed_split`.

    Example:
        >>> Network(hidden=8).layers
        3
    """

    hidden: int = 64
    layers: int = 3
    activation: str = "relu"
    dropout: float = 0.0
    gain: float = 1.0
    shared: int = 0
    image: tuple[int, int] | None = None
    channels: int = 16
    residual: int = 0

    def __post_init__(self) -> None:
        check_network("Network", vars(self))


def check_network(owner: str, arguments: Mapping[str, Any]) -> None:
    """Raise unless the fields of `Network` among the arguments of `owner` are valid."""
    check_positive(owner, "gain", arguments["gain"])
    check_image(owner, arguments["image"])
    check_count(owner, "shared", arguments["shared"], 0)
    check_residual(owner, arguments["image"], arguments["residual"])
    if arguments["shared"] and arguments["residual"]:
        raise ValueError(f"{owner} expects shared or residual to be 0, but got both")
    for name in ("hidden", "layers", "channels"):
        check_count(owner, name, arguments[name], 1)
    check_choice(owner, "activation", arguments["activation"], ACTIVATIONS)
    check_rate(owner, "dropout", arguments["dropout"])


def check_residual(owner: str, image: tuple[int, int] | None, residual: int) -> None:
    """Raise unless the image, if there are residual layers, can be cut into squares of 2 x 2."""
    check_count(owner, "residual", residual, 0)
    if residual and (image is None or image[0] % 2 or image[1] % 2):
        raise ValueError(
            f"{owner} with residual={residual} expects an image with even rows and columns, but "
            f"got image={image}"
        )


PAPER = Network()
"""The network of the paper."""


class _RectifiedDropout(torch.autograd.Function):
    """ReLU, then zeros where bytes are small, in place; the others are not scaled up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, noise: Tensor, rate: float) -> Tensor:
        drop(x.relu_(), noise, rate)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        # Dropped entries are 0 like those below 0, so one comparison covers both.
        return torch.ops.aten.threshold_backward(gradients[0], kept, 0.0), None, None


def rectified_dropout(
    x: Tensor, rate: float, generator: torch.Generator | None = None
) -> tuple[Tensor, float]:
    """ReLU and dropout in place, and the factor by which the next layer has to scale it up."""
    noise = random_bytes(tuple(x.shape), x.device, generator)
    result: Tensor = _RectifiedDropout.apply(x, noise, rate)  # type: ignore[no-untyped-call]
    return result, dropout_factor(rate)


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Dropout that draws from a generator, if there is one, where torch's own cannot."""
    if rate == 0.0:
        return x
    is_eager = x.device.type == "cpu" and not torch.compiler.is_compiling()
    if not is_eager or generator is None:
        return functional.dropout(x, rate, True)
    kept = torch.empty_like(x).bernoulli_(1.0 - rate, generator=generator)
    return x * kept.div_(1.0 - rate)


class StackedLinear(nn.Module):
    r"""One affine map per edge, all computed by a single batched product.

    $y_k = x_k W_k + b_k$ for every edge $k$, with `weight` of shape `(edges, inputs, outputs)` and
    `bias` of shape `(edges, 1, outputs)`, both uniform in $\pm 1/\sqrt{\text{inputs}}$ at the
    start.

    Args:
        edges: number of maps in the stack.
        inputs: width of the input; with 0 the map is its bias.
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

    def forward(self, x: Tensor, factor: float = 1.0, precision: str = "float32") -> Tensor:
        """Map `(edges, batch, inputs)`, times a factor, to `(edges, batch, outputs)`."""
        if x.is_cuda or precision == "tf32":
            y = times(x, self.weight, precision)
            return round_to(self.bias, precision) + (y if factor == 1.0 else factor * y)
        if precision == "float32":
            return torch.baddbmm(self.bias, x, self.weight, alpha=factor)
        bias, x, weight = (round_to(t, precision) for t in (self.bias, x, self.weight))
        return torch.baddbmm(bias, x, weight, alpha=factor)

    def extra_repr(self) -> str:
        edges, inputs, outputs = self.weight.shape
        return f"edges={edges}, inputs={inputs}, outputs={outputs}"


class SharedLinear(nn.Module):
    """One matrix for all edges, and a shift that depends on the edge.

    $y_k = x_k W + e_k V + b_k$ with an embedding $e_k$ per edge, so the number of parameters hardly
    grows with the number of edges. With `embedding` 0 only the shifts $b_k$ differ.

    Example:
        >>> SharedLinear(300, 2, 5, embedding=4)(torch.zeros(300, 7, 2)).shape
        torch.Size([300, 7, 5])
    """

    def __init__(
        self,
        edges: int,
        inputs: int,
        outputs: int,
        *,
        embedding: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = private_generator(generator)
        bound = 1 / math.sqrt(max(inputs, 1))
        self.weight = nn.Parameter(uniform((1, inputs, outputs), bound, generator))
        self.bias = nn.Parameter(torch.zeros(edges, 1, outputs))
        self.embedding = nn.Parameter(uniform((edges, 1, embedding), 1.0, generator))
        spread = 1 / math.sqrt(max(embedding, 1))
        self.mixing = nn.Parameter(uniform((1, embedding, outputs), spread, generator))

    def forward(self, x: Tensor, factor: float = 1.0, precision: str = "float32") -> Tensor:
        """Map `(edges, batch, inputs)`, times a factor, to `(edges, batch, outputs)`."""
        edges, batch, inputs = x.shape
        mapped = product(x.reshape(1, edges * batch, inputs), factor * self.weight, precision)
        shift = self.bias + self.embedding @ self.mixing
        return mapped.view(edges, batch, shift.shape[-1]) + shift.to(mapped.dtype)

    def extra_repr(self) -> str:
        edges, _, outputs = self.bias.shape
        return f"edges={edges}, inputs={self.weight.shape[1]}, outputs={outputs}"


class Conditioner(Rounding):
    """A stack of fully connected networks whose last layer starts at zero.

    A zero last layer makes every coupling that reads the network start as the identity.

    Args:
        edges: number of networks in the stack.
        inputs: width of the input; with 0 each network is a learned constant.
        outputs: width of the output.
        network: their architecture.
        generator: source of the random start; None means a fresh one with seed 0.

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
        check_count("Conditioner", "edges", edges, 1)
        check_count("Conditioner", "inputs", inputs, 0)
        check_count("Conditioner", "outputs", outputs, 1)
        self.activation, self.dropout = network.activation, network.dropout
        generator = private_generator(generator)
        widths = [inputs, *[network.hidden] * (network.layers - 1), outputs]
        make: Any = StackedLinear
        if network.shared:
            make = partial(SharedLinear, embedding=network.shared)
        stack = [make(edges, a, b, generator=generator) for a, b in pairwise(widths)]
        with torch.no_grad():
            for layer in stack[:-1]:
                layer.weight.mul_(network.gain)
        self.last = stack.pop()
        for name, start in self.last.named_parameters():
            if name != "embedding":  # its factor is 0, and one of both must not be
                nn.init.zeros_(start)
        self.hidden_layers = nn.ModuleList(stack)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(edges, batch, inputs)` to `(edges, batch, outputs)`."""
        if torch.compiler.is_compiling() and self._has_kernel(x):
            # Lazily: torch 2.6 cannot register an operator with tags.
            from vfg.flows.fast.operators import apply_conditioner

            layers = [(layer.weight, layer.bias) for layer in (*self.hidden_layers, self.last)]
            rate = self.dropout if self.training else 0.0
            return apply_conditioner(x, layers, rate, self.precision)
        x, factor = x.to(self.last.weight.dtype), 1.0
        for layer in self.hidden_layers:
            x, factor = self._activate(layer(x, factor, self.precision))
        y: Tensor = self.last(x, factor, self.precision)
        return y

    def _has_kernel(self, x: Tensor) -> bool:
        """Whether all layers are one kernel where steps are compiled."""
        layers = [*self.hidden_layers, self.last]
        if len(layers) == 1 or not all(type(layer) is StackedLinear for layer in layers):
            return False
        hidden = [layer.weight.shape[2] for layer in layers[:-1]]
        ends = layers[0].weight.shape[1] + 1, self.last.weight.shape[2]
        return fused.suits(x, ends, hidden, self.activation, self.precision)

    def _activate(self, x: Tensor) -> tuple[Tensor, float]:
        """The activation with dropout, and a factor that is still to be applied."""
        rate = self.dropout if self.training else 0.0
        is_eager = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if self.activation == "relu" and is_eager:
            # In place: the layer before is needed by nothing else.
            return rectified_dropout(x, rate, self.generator) if rate > 0.0 else (x.relu_(), 1.0)
        return dropout(ACTIVATIONS[self.activation](x), rate, self.generator), 1.0

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}, dropout={self.dropout}"


class StackedConvolution(nn.Module):
    r"""One convolution per edge from some places of an image to others, zero outside.

    $y_k(p) = b_k(p) + \sum_{p'} K_k(p' - p)\, x_k(p')$, where p' runs over the given `places` in
    the kernel's reach. Places are positions in the image read row by row; channels vary fastest.
    The kernels are spread over all pairs of places first, and the rest is one batched product: for
    blocks of a few hundred pixels that is faster than grouped convolutions.

    Example:
        >>> layer = StackedConvolution(3, (2, 2), [0, 1, 2], [3], (1, 4))
        >>> layer(torch.zeros(3, 7, 3)).shape
        torch.Size([3, 7, 4])
    """

    reach: Tensor

    def __init__(
        self,
        edges: int,
        image: tuple[int, int],
        places: Sequence[int],
        targets: Sequence[int],
        channels: tuple[int, int],
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = private_generator(generator)
        self.places, self.targets, self.channels = len(places), len(targets), channels
        given, wanted = channels
        bound = 1 / math.sqrt(KERNEL**2 * given)
        self.weight = nn.Parameter(uniform((edges, given * wanted, KERNEL**2), bound, generator))
        self.bias = nn.Parameter(uniform((edges, 1, len(targets) * wanted), bound, generator))
        self.register_buffer("reach", _reach(image, places, targets), persistent=False)

    def forward(self, x: Tensor, precision: str = "float32") -> Tensor:
        """Map `(edges, batch, places · channels)` to `(edges, batch, targets · channels)`."""
        if precision == "float32":
            return torch.baddbmm(self.bias, x, self._spread())
        return round_to(self.bias, precision) + product(x, self._spread(), precision)

    def _spread(self) -> Tensor:
        """The matrix of every edge."""
        edges, (given, wanted) = len(self.weight), self.channels
        pairs = (self.weight @ self.reach.to(self.weight.dtype)).view(
            edges, given, wanted, self.places, self.targets
        )
        return pairs.permute(0, 3, 1, 4, 2).reshape(
            edges, self.places * given, self.targets * wanted
        )

    def extra_repr(self) -> str:
        return f"edges={len(self.weight)}, places={self.places}, targets={self.targets}"


class LocalConditioner(Rounding):
    """Two convolutions from the kept places of an image to `numbers` numbers per moved place.

    The last one starts at zero, as that of every conditioner. The bias of the first differs from
    place to place, so the network can treat places differently and learn which are kept.

    Example:
        >>> local = LocalConditioner(
        ...     3, (2, 2), [0, 3], [1, 2], numbers=2, channels=4, activation=torch.relu
        ... )
        >>> local(torch.ones(3, 7, 2)).abs().max().item()
        0.0
    """

    def __init__(
        self,
        edges: int,
        image: tuple[int, int],
        kept: Sequence[int],
        moved: Sequence[int],
        *,
        numbers: int,
        channels: int,
        activation: Activation,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_count("LocalConditioner", "channels", channels, 1)
        everywhere = range(math.prod(image))
        generator = private_generator(generator)
        self.activation = activation
        self.first = StackedConvolution(
            edges, image, kept, everywhere, (1, channels), generator=generator
        )
        self.last = StackedConvolution(
            edges, image, everywhere, moved, (channels, numbers), generator=generator
        )
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, kept: Tensor) -> Tensor:
        """Map `(edges, batch, kept)` to `(edges, batch, moved · numbers)`."""
        x = self.activation(self.first(kept.to(self.last.weight.dtype), self.precision))
        numbers: Tensor = self.last(x, self.precision)
        return numbers


def _reach(image: tuple[int, int], places: Sequence[int], targets: Sequence[int]) -> Tensor:
    """1 where an entry of a kernel joins a place to a target: `(entries, places · targets)`."""
    columns, half = image[1], KERNEL // 2
    given, wanted = torch.tensor(places)[:, None], torch.tensor(targets)
    down = given // columns - wanted // columns + half
    across = given % columns - wanted % columns + half
    is_near = ((down >= 0) & (down < KERNEL) & (across >= 0) & (across < KERNEL)).flatten()
    entry = (down * KERNEL + across).flatten()
    return (torch.arange(KERNEL**2)[:, None] == entry) * is_near.float()
