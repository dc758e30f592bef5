"""The models by name: trees and stars with sampled states, a VAE, the paper's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import vfg

from ...baselines.images import Autoencoder, explain
from ...paper.image_models import Bounded, papers_sampled, sampled_tree
from ...paper.image_training import count


class DenseAutoencoder(Autoencoder):
    """A VAE: two fully connected layers each way, a Normal posterior and prior."""

    def __init__(self, pixels: int, hidden: int, width: int, dropout: float) -> None:
        super().__init__()

        def network(inputs: int, outputs: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for a, b in ((inputs, hidden), (hidden, hidden)):
                layers += [nn.Linear(a, b), nn.SiLU(), nn.Dropout(dropout)]
            return nn.Sequential(*layers, nn.Linear(hidden, outputs))

        self.encoder = network(pixels, 2 * width)
        self.decoder = network(width, pixels)

    def parts(self, rows: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        centre, raw = self.encoder(2.0 * rows - 1.0).chunk(2, -1)
        log_scale = 6.0 * torch.tanh(raw / 6.0)
        noise = torch.randn(draws, *centre.shape, device=rows.device)
        state = centre + log_scale.exp() * noise
        divergence = (0.5 * (state.square() - noise.square()) - log_scale).sum(-1)
        return explain(self.decoder(state), rows), divergence


def autoencoder(side: int, width: int, dropout: float, size: int) -> DenseAutoencoder:
    """The VAE whose number of parameters is nearest to `size`."""
    pixels = side * side
    hidden = min(
        range(16, 4096, 8),
        key=lambda h: abs(2 * h * h + h * (2 * pixels + 3 * width + 4) - size),
    )
    return DenseAutoencoder(pixels, hidden, width, dropout)


OURS = "VFG, tree, ladder, flow prior"
"""The model that the VAE is as large as."""
ASIDE = ("star", "not amortised")
"""Parts of the names of models that the quick run alone measures."""


def candidates(side: int, wide: int) -> dict[str, Callable[[], Any]]:
    """All models by name."""
    narrow = 64 if side == 28 else 32

    def ours(**options: Any) -> Callable[[], Bounded]:
        common = {"amortised": 4 * wide // 3, "activation": "silu", "dropout": 0.1, **options}
        return lambda: sampled_tree(side, wide, **common)

    def ladder(**options: Any) -> Callable[[], Bounded]:
        return ours(ladder=True, **options)

    def vae() -> DenseAutoencoder:
        return autoencoder(side, 64 if side == 28 else 16, 0.1, count(models[OURS]()))

    flow = vfg.FlowPrior(4, wide, activation="silu")
    models: dict[str, Callable[[], Any]] = {
        "VFG, the paper's tree": lambda: papers_sampled(side, narrow),
        "VFG, star": ours(arity=4),
        "VFG, star, flow prior": ours(arity=4, prior=flow),
        "VFG, tree": ours(),
        "VFG, tree, ladder, scales not amortised": ladder(amortised=0),
        "VFG, tree, ladder": ladder(),
        "VFG, tree, ladder, mixture prior": ladder(prior=vfg.Mixture(128)),
        OURS: ladder(prior=flow),
        f"{OURS}, convolutions": ladder(prior=flow, convolutions=True),
        "VAE": vae,
    }
    return models
