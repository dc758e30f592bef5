"""Convolutions for blocks of images, stacked over edges, as plain batched products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vfg.flows.checks import check_count, private_generator, uniform

Activation = Callable[[Tensor], Tensor]
KERNEL = 5
"""Rows and columns that a kernel spans: two convolutions reach four pixels away."""


class StackedConvolution(nn.Module):
    r"""One convolution per edge from some places of an image to others, zero outside.

    $y_k(p) = b_k(p) + \sum_{p'} K_k(p' - p)\, x_k(p')$, where p' runs over the places that are
    given within the kernel's reach. Channels vary fastest. The kernels are spread over all pairs
    of places first, and the rest is one batched product: for blocks of a few hundred pixels that
    is faster than grouped convolutions.

    Args:
        edges: number of convolutions in the stack.
        image: rows and columns.
        places: which places are given, as positions in the image read row by row.
        targets: the places of the output.
        channels: numbers per place of the input and of the output.
        generator: source of the random start; None means a fresh one with seed 0.

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

    def forward(self, x: Tensor) -> Tensor:
        """Map `(edges, batch, places · channels)` to `(edges, batch, targets · channels)`."""
        return torch.baddbmm(self.bias, x, self._spread())

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


class LocalConditioner(nn.Module):
    """Two convolutions from the kept places of an image to numbers about the moved ones.

    The last one starts at zero, as that of every conditioner. The bias of the first differs from
    place to place, so the network can treat places differently and learn which are kept.

    Args:
        edges: number of networks in the stack.
        image: rows and columns.
        kept: the places that are read.
        moved: the places that are predicted.
        numbers: how many numbers are predicted for each.
        channels: width of the layer between, per place.
        activation: between the convolutions.
        generator: source of the random start; None means a fresh one with seed 0.

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
        numbers: Tensor = self.last(self.activation(self.first(kept.to(self.last.weight.dtype))))
        return numbers


def chequered_split(block: int, width: int, image: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The places of an image that a coupling keeps and those that it moves: a chequerboard.

    Args:
        block: index of the layer among the layers of its flow.
        width: dimension of the space.
        image: rows and columns.

    Raises:
        ValueError: if the image has not as many places as the space has dimensions.

    Example:
        >>> chequered_split(0, 6, (2, 3)), chequered_split(1, 6, (2, 3))
        (([0, 2, 4], [1, 3, 5]), ([1, 3, 5], [0, 2, 4]))
    """
    rows, columns = image
    if rows * columns != width:
        raise ValueError(
            f"an image of {rows} x {columns} has {rows * columns} places, but the flow has width "
            f"{width}; give the rows and columns of the nodes that it joins"
        )
    fields: tuple[list[int], list[int]] = ([], [])
    for row in range(rows):
        for column in range(columns):
            fields[(row + column + block) % 2].append(row * columns + column)
    return fields


def _reach(image: tuple[int, int], places: Sequence[int], targets: Sequence[int]) -> Tensor:
    """1 where an entry of a kernel joins a place to a target: `(entries, places · targets)`."""
    columns, half = image[1], KERNEL // 2
    given, wanted = torch.tensor(places)[:, None], torch.tensor(targets)
    down = given // columns - wanted // columns + half
    across = given % columns - wanted % columns + half
    is_near = ((down >= 0) & (down < KERNEL) & (across >= 0) & (across < KERNEL)).flatten()
    entry = (down * KERNEL + across).flatten()
    return (torch.arange(KERNEL**2)[:, None] == entry) * is_near.float()
