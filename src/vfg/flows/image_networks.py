"""Networks of images, one per edge: gated residual convolutions at two scales."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from vfg.flows.checks import private_generator, uniform
from vfg.flows.conditioners import StackedLinear, dropout
from vfg.flows.fast.primitives import Rounding, round_to


class GroupedConvolution(nn.Module):
    """A convolution per edge: `(batch, edges · inputs, rows, columns)` to as many outputs.

    With `stride` -2 it is transposed and doubles the sides; with 2 it halves them, rounded up.
    """

    def __init__(
        self,
        edges: int,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        *,
        stride: int = 1,
    ) -> None:
        super().__init__()
        self.stride = stride
        kernel, ends = (2, (inputs, outputs)) if stride < 0 else (3, (outputs, inputs))
        # Each output of a transposed convolution reads one entry of the kernel per input.
        read = inputs if stride < 0 else inputs * kernel**2
        start = uniform((edges, *ends, kernel, kernel), math.sqrt(3.0 / read), generator)
        self.weight = nn.Parameter(start)
        self.bias = nn.Parameter(torch.zeros(edges, outputs))

    def forward(self, x: Tensor) -> Tensor:
        edges = len(self.weight)
        weight, bias = (part.to(x.dtype).flatten(0, 1) for part in (self.weight, self.bias))
        if self.stride < 0:
            return functional.conv_transpose2d(x, weight, bias, 2, groups=edges)
        return functional.conv2d(x, weight, bias, self.stride, padding=1, groups=edges)


class GatedResidual(Rounding):
    r"""$x + v \, \mathrm{sigmoid}(g)$, where (v, g) is a convolution of x after dropout."""

    def __init__(
        self, edges: int, channels: int, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.edges, self.dropout = edges, dropout
        self.inner = GroupedConvolution(edges, channels, 2 * channels, generator)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner(dropout(x, self.dropout if self.training else 0.0, self.generator))
        # Not functional.glu, whose result is not laid out with the channels last.
        value, gate = inner.unflatten(1, (self.edges, 2, -1)).unbind(2)
        added: Tensor = (value * gate.sigmoid()).flatten(1, 2)
        return x + added


def residual_layers(
    edges: int, dropout: float, generator: torch.Generator, count: int, channels: int
) -> nn.Sequential:
    """Some gated residual layers, one after the other."""
    return nn.Sequential(
        *(GatedResidual(edges, channels, dropout, generator) for _ in range(count))
    )


def to_images(x: Tensor, image: tuple[int, int]) -> Tensor:
    """`(edges, batch, places · channels)` to `(batch, edges · channels, rows, columns)`."""
    # Channels stay the fastest axis in memory, as tensor cores read them.
    places: Tensor = x.unflatten(2, (*image, -1))
    return places.movedim(0, 3).flatten(3).permute(0, 3, 1, 2)


def from_images(y: Tensor, edges: int) -> Tensor:
    """The inverse of `to_images`."""
    places: Tensor = y.permute(0, 2, 3, 1).flatten(1, 2).unflatten(2, (edges, -1))
    return places.movedim(2, 0).flatten(2)


class ImageNetwork(Rounding):
    """Gated residual convolutions of an image at two scales, a network per edge.

    The image has some numbers per place, which vary fastest. Half of the layers at its own scale
    come before, half after those at half of it, which have twice the channels and a larger
    receptive field. The last layer starts at zero, as that of every conditioner. In float32,
    convolutions on a GPU are rounded as `torch.backends.cudnn.allow_tf32` says.

    Args:
        edges: number of networks in the stack.
        image: rows and columns.
        inputs: numbers per place of the input.
        outputs: numbers per place of the output.
        channels: width of the layers, per place.
        residual: gated residual layers at each scale.
        dropout: rate at which the inputs of those are dropped in training mode.
        generator: source of the random start; None means a fresh one with seed 0.

    Example:
        >>> network = ImageNetwork(3, (4, 6), 2, 5, channels=8, residual=2)
        >>> network(torch.ones(3, 7, 48)).shape
        torch.Size([3, 7, 120])
    """

    def __init__(
        self,
        edges: int,
        image: tuple[int, int],
        inputs: int,
        outputs: int,
        *,
        channels: int,
        residual: int,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = private_generator(generator)
        self.edges, self.image, self.outputs, self.dropout = edges, image, outputs, dropout
        layers = partial(residual_layers, edges, dropout, generator)
        self.first = GroupedConvolution(edges, inputs, channels, generator)
        self.position = nn.Parameter(torch.zeros(edges, channels, *image))
        self.before = layers(residual - residual // 2, channels)
        self.down = GroupedConvolution(edges, channels, 2 * channels, generator, stride=2)
        self.coarse = layers(residual, 2 * channels)
        self.up = GroupedConvolution(edges, 2 * channels, channels, generator, stride=-2)
        self.after = layers(residual // 2, channels)
        self.last = GroupedConvolution(edges, channels, outputs, generator)
        self.shift = nn.Parameter(torch.zeros(edges, 1, math.prod(image) * outputs))
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(edges, batch, places · inputs)` to `(edges, batch, places · outputs)`."""
        rows, columns = self.image
        x = to_images(round_to(x.to(self.shift.dtype), self.precision), self.image)
        fine = self.before(self.first(x) + self.position.to(x.dtype).flatten(0, 1))
        coarse = self.up(self.coarse(self.down(fine)))
        y: Tensor = self.last(self.after(fine + coarse[..., :rows, :columns]))
        return self.shift + from_images(y, self.edges)

    def extra_repr(self) -> str:
        return f"edges={self.edges}, image={self.image}, dropout={self.dropout}"


class TwoScales(Rounding, ABC):
    """Gated residual convolutions between an image and some numbers, a network per edge.

    Squares of 2 x 2 pixels are places with four channels; half of their side is the second scale,
    with twice the channels; a linear map joins all that is there with the numbers.

    Args:
        edges: number of networks in the stack.
        image: rows and columns, even numbers.
        numbers: how many numbers.
        channels: width of the layers at the first scale, per place.
        residual: gated residual layers at each scale.
        dropout: rate at which the inputs of those, and of an encoder's linear map, are dropped in
            training.
        generator: source of the random start; None means a fresh one with seed 0.
    """

    def __init__(
        self,
        edges: int,
        image: tuple[int, int],
        numbers: int,
        *,
        channels: int,
        residual: int,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.edges, self.image, self.dropout = edges, image, dropout
        rows, columns = self.places = (image[0] // 2, image[1] // 2)
        self.coarse_places = (-(-rows // 2), -(-columns // 2))
        self.position = nn.Parameter(torch.zeros(edges, channels, *self.places))
        self.build_layers(numbers, channels, residual, private_generator(generator))

    @abstractmethod
    def build_layers(
        self, numbers: int, channels: int, residual: int, generator: torch.Generator
    ) -> None:
        """Build the layers in the order in which they are applied."""

    def coarse_numbers(self, channels: int) -> int:
        """How many numbers there are at the second scale."""
        return 2 * channels * math.prod(self.coarse_places)

    def place(self, x: Tensor) -> Tensor:
        """Images at the first scale, with a learned term added at every place."""
        return x + self.position.to(x.dtype).flatten(0, 1)


class ImageEncoder(TwoScales):
    """From an image to numbers; see `TwoScales` for the arguments.

    Example:
        >>> encoder = ImageEncoder(3, (4, 6), 5, channels=8, residual=1)
        >>> encoder(torch.ones(3, 7, 24)).shape
        torch.Size([3, 7, 5])
    """

    def build_layers(
        self, numbers: int, channels: int, residual: int, generator: torch.Generator
    ) -> None:
        layers = partial(residual_layers, self.edges, self.dropout, generator, residual)
        self.first = GroupedConvolution(self.edges, 4, channels, generator)
        self.fine = layers(channels)
        self.down = GroupedConvolution(self.edges, channels, 2 * channels, generator, stride=2)
        self.coarse = layers(2 * channels)
        inputs = self.coarse_numbers(channels)
        self.last = StackedLinear(self.edges, inputs, numbers, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(edges, batch, pixels)` to `(edges, batch, numbers)`."""
        x = squeeze(x.to(self.position.dtype), self.image)
        x = to_images(round_to(x, self.precision), self.places)
        x = self.fine(self.place(self.first(x)))
        x = from_images(self.coarse(self.down(x)), self.edges)
        x = dropout(x, self.dropout if self.training else 0.0, self.generator)
        numbers: Tensor = self.last(x, 1.0, self.precision)
        return numbers


class ImageDecoder(TwoScales):
    """The reverse of an `ImageEncoder`: from numbers to an image, which is zero at the start.

    Example:
        >>> decoder = ImageDecoder(3, (4, 6), 5, channels=8, residual=1)
        >>> decoder(torch.ones(3, 7, 5)).shape
        torch.Size([3, 7, 24])
    """

    def build_layers(
        self, numbers: int, channels: int, residual: int, generator: torch.Generator
    ) -> None:
        layers = partial(residual_layers, self.edges, self.dropout, generator, residual)
        outputs = self.coarse_numbers(channels)
        self.first = StackedLinear(self.edges, numbers, outputs, generator=generator)
        self.coarse = layers(2 * channels)
        self.up = GroupedConvolution(self.edges, 2 * channels, channels, generator, stride=-2)
        self.fine = layers(channels)
        self.last = GroupedConvolution(self.edges, channels, 4, generator)
        nn.init.zeros_(self.last.weight)

    def forward(self, z: Tensor) -> Tensor:
        """Map `(edges, batch, numbers)` to `(edges, batch, pixels)`."""
        rows, columns = self.places
        x: Tensor = self.first(z.to(self.position.dtype), 1.0, self.precision)
        x = self.up(self.coarse(to_images(x, self.coarse_places)))[..., :rows, :columns]
        return unsqueeze(from_images(self.last(self.fine(self.place(x))), self.edges), self.image)


def squeeze(x: Tensor, image: tuple[int, int]) -> Tensor:
    """Space to channels: `(..., k · rows · columns)` to `(..., places · 4 k)`, a place per 2 x 2.

    Example:
        >>> squeeze(torch.arange(8.0), (2, 4))
        tensor([0., 1., 4., 5., 2., 3., 6., 7.])
    """
    rows, columns = image
    parts: Tensor = x.unflatten(-1, (-1, rows // 2, 2, columns // 2, 2))
    return parts.movedim((-4, -2), (-5, -4)).flatten(-5)


def unsqueeze(x: Tensor, image: tuple[int, int]) -> Tensor:
    """The inverse of `squeeze`.

    Example:
        >>> unsqueeze(squeeze(torch.arange(8.0), (2, 4)), (2, 4))
        tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    rows, columns = image
    parts: Tensor = x.unflatten(-1, (rows // 2, columns // 2, -1, 2, 2))
    return parts.movedim((-5, -4), (-4, -2)).flatten(-5)
