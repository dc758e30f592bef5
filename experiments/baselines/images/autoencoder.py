"""Autoencoders of binary images: what all share, and one with gated convolutions and flows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .networks import Decoder, Encoder
from .posteriors import POSTERIORS

ROWS_AT_ONCE = {"cpu": 2**11}
OTHER_ROWS_AT_ONCE = 2**14
MOST_ROWS = 2**11
"""So that no product of matrices, one per row and flow, has 65,536 of them or more."""


class Autoencoder(nn.Module, ABC):
    """p(x | z) p(z) with a posterior q(z | x) to draw from."""

    @abstractmethod
    def parts(self, rows: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """log p(x | z) and log q(z) - log p(z), `(draws, rows)` each."""

    def objective(self, rows: Tensor, beta: Tensor) -> Tensor:
        """What training maximises: the bound, with its divergence weighed; rows are drawn first."""
        explained, divergence = self.parts(rows.bernoulli(), 1)
        return (explained - beta * divergence).mean()

    @torch.no_grad()
    def bound(self, rows: Tensor, samples: int = 1) -> Tensor:
        """The mean over draws of log p(x, z) - log q(z), per row."""
        chunks = rows.split(_at_once(rows, samples))
        return torch.cat([self._weights(part, samples).mean(0) for part in chunks])

    @torch.no_grad()
    def log_likelihood(self, rows: Tensor, samples: int) -> Tensor:
        """log of the mean of the importance weights, per row."""
        chunks = rows.split(_at_once(rows, samples))
        total = [self._weights(part, samples).double().logsumexp(0) for part in chunks]
        return torch.cat(total) - math.log(samples)

    def _weights(self, rows: Tensor, draws: int) -> Tensor:
        explained, divergence = self.parts(rows, draws)
        return explained - divergence

    def _half(self, rows: Tensor) -> torch.autocast:
        """Half precision for convolutions in training on a GPU; densities stay whole."""
        enabled = self.training and rows.is_cuda
        # Casts that are cached would be forgotten when a captured step is replayed.
        return torch.autocast(
            rows.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False
        )


def explain(logits: Tensor, rows: Tensor) -> Tensor:
    """log p(x | z) of the log-odds of pixels."""
    target = rows.expand_as(logits)
    return -F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1)


class FlowAutoencoder(Autoencoder):
    """p(x | z) p(z) with a standard Normal z, and q(z | x) a Normal bent by flows.

    The side is a multiple of 4; later convolutions have twice as many channels as the first.
    `dropout` is that of the layers between the first and the last convolution. `options` are those
    of the posterior.
    """

    def __init__(
        self,
        posterior: str,
        *,
        side: int = 28,
        width: int = 64,
        flows: int = 16,
        channels: int = 32,
        features: int = 256,
        dropout: float = 0.0,
        **options: int,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(side, channels, features, dropout)
        self.normal = nn.Linear(features, 2 * width)
        self.posterior = POSTERIORS[posterior](features, width, flows, **options)
        self.decoder = Decoder(side, channels, width, dropout)
        self.to(memory_format=torch.channels_last)

    def parts(self, rows: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        logits, divergence = self.logits(rows, draws)
        return explain(logits, rows), divergence

    def logits(self, rows: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """Log-odds of pixels `(draws, rows, pixels)` and log q(z) - log p(z) for z from q."""
        with self._half(rows):
            features = self.encoder(rows)
        features = features.float()
        centre, raw = self.normal(features).chunk(2, -1)
        log_scale = 6.0 * torch.tanh(raw / 6.0)
        noise = torch.randn(draws, *centre.shape, device=rows.device)
        start = centre + log_scale.exp() * noise
        state, log_det = self.posterior(start, features)
        with self._half(rows):
            logits = self.decoder(state.flatten(0, 1))
        logits = logits.float().view(draws, *rows.shape)
        divergence = (0.5 * (state.square() - noise.square()) - log_scale).sum(-1) - log_det
        return logits, divergence


class HierarchicalAutoencoder(Autoencoder):
    """Two levels: p(x | z, t) p(z | t) p(t) with q(t | x) q(z | x, t), all Normal but for x.

    Encoder and decoder are those of `FlowAutoencoder`; between the levels are gated layers.
    """

    def __init__(
        self,
        *,
        side: int = 28,
        width: int = 64,
        channels: int = 32,
        features: int = 256,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(side, channels, features, dropout)
        self.top = nn.Linear(features, 2 * width)
        self.posterior = _between(features + width, features, 2 * width)
        self.prior = _between(width, features, 2 * width)
        self.decoder = Decoder(side, channels, 2 * width, dropout)
        self.to(memory_format=torch.channels_last)

    def parts(self, rows: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        with self._half(rows):
            features = self.encoder(rows)
        features = features.float()
        top, log_q_top, log_p_top = _draw(self.top(features).expand(draws, -1, -1), None)
        wide = torch.cat([features.expand(draws, -1, -1), top], dim=-1)
        state, log_q, log_p = _draw(self.posterior(wide), self.prior(top))
        with self._half(rows):
            logits = self.decoder(torch.cat([state, top], dim=-1).flatten(0, 1))
        logits = logits.float().view(draws, *rows.shape)
        return explain(logits, rows), log_q_top - log_p_top + log_q - log_p


def _between(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """A gated layer and a linear one."""
    return nn.Sequential(nn.Linear(inputs, 2 * hidden), nn.GLU(-1), nn.Linear(hidden, outputs))


def _draw(posterior: Tensor, prior: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of a Normal, their log q, and log p under another one; None is the standard Normal.

    Both are centres and raw logarithms of scales side by side; constants cancel and are left out.
    """
    centre, raw = posterior.chunk(2, -1)
    log_scale = 6.0 * torch.tanh(raw / 6.0)
    noise = torch.randn_like(centre)
    state = centre + log_scale.exp() * noise
    log_q = (-0.5 * noise.square() - log_scale).sum(-1)
    if prior is None:
        return state, log_q, -0.5 * state.square().sum(-1)
    expected, raw = prior.chunk(2, -1)
    spread = 6.0 * torch.tanh(raw / 6.0)
    log_p = (-0.5 * ((state - expected) * (-spread).exp()).square() - spread).sum(-1)
    return state, log_q, log_p


def _at_once(rows: Tensor, samples: int) -> int:
    draws = ROWS_AT_ONCE.get(rows.device.type, OTHER_ROWS_AT_ONCE)
    return min(max(1, draws // samples), MOST_ROWS)
