"""Gated convolutions between images and vectors, the networks of the Sylvester protocol."""

from __future__ import annotations

import math

from torch import Tensor, nn

GAIN = 1.85
"""Of weights before a gate: it halves what passes, and twelve layers in a row would fade away."""


class Gated(nn.Module):
    """A layer with twice the channels, of which one half opens and closes the other; dropout."""

    def __init__(self, layer: nn.Conv2d | nn.ConvTranspose2d, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.dropout = layer, nn.Dropout(dropout)
        each = math.prod(layer.kernel_size) * layer.in_channels
        if isinstance(layer, nn.ConvTranspose2d):
            # Of a kernel so many places meet in one output; from a single pixel only one.
            is_first = layer.padding[0] == 0
            each /= math.prod(layer.kernel_size if is_first else layer.stride)
        nn.init.normal_(layer.weight, std=GAIN / math.sqrt(each))
        nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.layer(x).chunk(2, dim=1)
        return self.dropout(value * gate.sigmoid())


def down(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, dropout: float = 0.0
) -> Gated:
    return Gated(nn.Conv2d(inputs, 2 * outputs, kernel, stride, padding), dropout)


def up(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, dropout: float = 0.0
) -> Gated:
    """A gated transposed convolution that multiplies the side by the stride."""
    size = (inputs, 2 * outputs, kernel, stride, padding)
    return Gated(nn.ConvTranspose2d(*size, output_padding=stride - 1), dropout)


class Encoder(nn.Module):
    """Rows of side² pixels to a vector of features; the side is a multiple of 4."""

    def __init__(self, side: int, channels: int, features: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.side = side
        self.layers = nn.Sequential(
            down(1, channels, 5, 1, 2, dropout),
            down(channels, channels, 5, 2, 2, dropout),
            down(channels, 2 * channels, 5, 1, 2, dropout),
            down(2 * channels, 2 * channels, 5, 2, 2, dropout),
            down(2 * channels, 2 * channels, 5, 1, 2, dropout),
            down(2 * channels, features, side // 4),
        )

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(2.0 * rows.view(-1, 1, self.side, self.side) - 1.0).flatten(1)


class Decoder(nn.Module):
    """Vectors of latent variables to the log-odds of side² pixels."""

    def __init__(self, side: int, channels: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            up(width, 2 * channels, side // 4, dropout=dropout),
            up(2 * channels, 2 * channels, 5, 1, 2, dropout),
            up(2 * channels, channels, 5, 2, 2, dropout),
            up(channels, channels, 5, 1, 2, dropout),
            up(channels, channels, 5, 2, 2, dropout),
            up(channels, channels, 5, 1, 2),
            nn.Conv2d(channels, 1, 1),
        )

    def forward(self, states: Tensor) -> Tensor:
        return self.layers(states[..., None, None]).flatten(1)
