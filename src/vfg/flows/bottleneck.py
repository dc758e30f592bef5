"""A flow from images to fewer numbers: its two couplings are an encoder and a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from vfg.flows.base import Flow
from vfg.flows.checks import check_count, check_image, check_rate, private_generator
from vfg.flows.conditioners import check_residual
from vfg.flows.image_networks import ImageDecoder, ImageEncoder
from vfg.flows.specs import FlowSpec


class BottleneckFlow(Flow):
    r"""$(x, c) \mapsto (z, r)$ with $z = c + e(x)$ and $r = x - d(z)$, an image x and a code z.

    These are two additive couplings, so that it is invertible whatever the networks e and d are:
    $x = r + d(z)$ and $c = z - e(x)$. With constants for c on the way up and for r on the way down,
    the message up is an encoder's and the message down a decoder's.

    Args:
        edges: number of flows in the stack.
        image: rows and columns of x, even numbers.
        code: width of z.
        options: `channels`, `residual` and `dropout` of `ImageEncoder` and `ImageDecoder`.
        generator: source of the random start; None means a fresh one with seed 0.

    Example:
        >>> flow = BottleneckFlow(1, (4, 4), 3, channels=2, residual=1)
        >>> x = torch.ones(1, 5, 19)
        >>> torch.allclose(flow.inverse(flow(x)[0])[0], x, atol=1e-5)
        True
    """

    def __init__(
        self,
        edges: int,
        image: tuple[int, int],
        code: int,
        *,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        self.pixels, self.code = image[0] * image[1], code
        super().__init__(edges, self.pixels + code)
        options["generator"] = private_generator(generator)
        self.encoder = ImageEncoder(edges, image, code, **options)
        self.decoder = ImageDecoder(edges, image, code, **options)

    def leading(self, x: Tensor, count: int) -> Tensor:
        if count > self.code:
            return super().leading(x, count)
        return self._encode(x)[..., :count]  # without the decoder

    def leading_inverse(self, y: Tensor, count: int) -> Tensor:
        if count > self.pixels:
            return super().leading_inverse(y, count)
        return self._decode(y)[..., :count]  # without the encoder

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self._encode(x)
        rest = x[..., : self.pixels] - self.decoder(z).to(x.dtype)
        return torch.cat([z, rest], dim=-1), x.new_zeros(x.shape[:-1])

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        pixels = self._decode(y)
        rest = y[..., : self.code] - self.encoder(pixels).to(y.dtype)
        return torch.cat([pixels, rest], dim=-1), y.new_zeros(y.shape[:-1])

    def _encode(self, x: Tensor) -> Tensor:
        pixels, constants = x.split([self.pixels, self.code], dim=-1)
        code: Tensor = constants + self.encoder(pixels).to(x.dtype)
        return code

    def _decode(self, y: Tensor) -> Tensor:
        z, rest = y.split([self.code, self.pixels], dim=-1)
        pixels: Tensor = rest + self.decoder(z).to(y.dtype)
        return pixels


@dataclass(frozen=True)
class Bottleneck(FlowSpec):
    r"""An edge with convolutions from an image to a parent of any width, which may be narrower.

    It is an invertible function of child and parent together. Learned constants replace the
    parent on the way up and the child on the way down:

    $$z = c + e(x), \qquad \hat x = r + d(z)$$

    So a narrow parent makes the graph an autoencoder: its encoder e and decoder d are the two
    couplings of one flow. For nodes that aggregate by `mean` or `concatenation`.

    Args:
        image: rows and columns of the child, even numbers (default 28 x 28).
        channels: width of the convolutions, per square of 2 x 2 pixels (default 64).
        residual: number of gated residual layers at each of two scales (default 2).
        dropout: rate at which their inputs are dropped in training mode (default 0). Raise it if
            the bound of held-out rows is much lower than that of the training rows.

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of its range.

    Example:
        >>> import vfg
        >>> edge = vfg.Bottleneck((4, 4), channels=8, residual=1)
        >>> graph = vfg.Graph.star({"image": 16}, width=3)
        >>> model = vfg.VFG(graph, flow=edge, likelihood="bernoulli")
        >>> model.embed(torch.ones(2, 16)).shape
        torch.Size([2, 3])
    """

    name: ClassVar[str] = "bottleneck"
    carries_precision: ClassVar[bool] = False
    image: tuple[int, int] = (28, 28)
    channels: int = 64
    residual: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.image, list):  # as JSON stores it
            object.__setattr__(self, "image", tuple(self.image))
        check_image("Bottleneck", self.image)
        check_count("Bottleneck", "channels", self.channels, 1)
        check_count("Bottleneck", "residual", self.residual, 1)
        check_residual("Bottleneck", self.image, self.residual)
        check_rate("Bottleneck", "dropout", self.dropout)

    def space(self, child: int, parent: int) -> int:
        """The width of the child and that of the parent together."""
        pixels = self.image[0] * self.image[1]
        if child != pixels:
            raise ValueError(
                f"Bottleneck with image={self.image} expects children of width {pixels}, but got "
                f"a child of width {child}; give the rows and columns of the child"
            )
        return child + parent

    def build(self, edges: int, width: int, *, generator: torch.Generator | None = None) -> Flow:
        code = width - self.image[0] * self.image[1]
        return BottleneckFlow(
            edges,
            self.image,
            code,
            channels=self.channels,
            residual=self.residual,
            dropout=self.dropout,
            generator=generator,
        )
