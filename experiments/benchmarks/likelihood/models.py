"""The models by name: trees and stars with sampled states, a VAE, the paper's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vfg

from ...paper.image_models import Bounded, Unbounded, papers
from ...paper.image_training import count


class Rival(nn.Module):
    """A VAE: two fully connected layers each way, a Normal posterior and prior."""

    def __init__(self, pixels: int, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width

        def network(inputs: int, outputs: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for a, b in ((inputs, hidden), (hidden, hidden)):
                layers += [nn.Linear(a, b), nn.SiLU(), nn.Dropout(dropout)]
            return nn.Sequential(*layers, nn.Linear(hidden, outputs))

        self.encoder = network(pixels, 2 * width)
        self.decoder = network(width, pixels)

    def parts(self, rows: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """log p(x | h) and log q(h) - log p(h), `(draws, rows)` each."""
        centre, raw = self.encoder(2.0 * rows - 1.0).chunk(2, -1)
        log_scale = 6.0 * torch.tanh(raw / 6.0)
        noise = torch.randn(draws, *centre.shape, device=rows.device)
        state = centre + log_scale.exp() * noise
        logits = self.decoder(state)
        explained = -F.binary_cross_entropy_with_logits(
            logits, rows.expand_as(logits), reduction="none"
        )
        kl = 0.5 * (state.square() - noise.square()) - log_scale
        return explained.sum(-1), kl.sum(-1)

    def objective(self, rows: Tensor, beta: Tensor) -> Tensor:
        explained, kl = self.parts(rows, 1)
        return (explained - beta * kl).mean()

    @torch.no_grad()
    def bound(self, rows: Tensor, samples: int = 1) -> Tensor:
        parts = [_difference(self.parts(part, samples)).mean(0) for part in rows.split(2000)]
        return torch.cat(parts)

    @torch.no_grad()
    def log_likelihood(self, rows: Tensor, samples: int) -> Tensor:
        torch.manual_seed(0)
        size = 128 if rows.is_cuda else 16
        found = []
        for part in rows.split(size):
            weights = [_difference(self.parts(part, 50)) for _ in range(samples // 50)]
            found.append(torch.cat(weights).double().logsumexp(0) - math.log(samples // 50 * 50))
        return torch.cat(found)


def _difference(parts: tuple[Tensor, Tensor]) -> Tensor:
    return parts[0] - parts[1]


def sampled(
    side: int,
    *,
    arity: int,
    blocks: int,
    hidden: int,
    amortised: int,
    prior: str | vfg.Normal | vfg.Mixture | vfg.FlowPrior = "normal",
    ladder: bool = False,
    dropout: float = 0.0,
    activation: str = "relu",
    convolutions: bool = False,
) -> Bounded:
    """A tree (or, with arity 4, a star) over four square blocks of the image."""
    graph = vfg.Graph.blocks(side, side, rows=2, columns=2, arity=arity)
    image = (side // 2, side // 2) if convolutions else None
    flow = vfg.Coupling(blocks, hidden, dropout=dropout, activation=activation, image=image)
    return Bounded(
        vfg.VFG(
            graph,
            flow=flow,
            states=vfg.Sampled(amortised=amortised, ladder=ladder),
            latent="normal",
            likelihood=vfg.Bernoulli(steepness=1.0),
            prior=prior,
        )
    )


def surrogate(side: int, beta: float) -> Unbounded:
    """The paper's deterministic tree with Laplace states."""
    return papers(side, beta, 64 if side == 28 else 32, seed=0)


def rival(side: int, width: int, dropout: float, size: int) -> Rival:
    """The VAE whose number of parameters is nearest to `size`."""
    pixels = side * side
    hidden = min(
        range(16, 4096, 8),
        key=lambda h: abs(2 * h * h + h * (2 * pixels + 3 * width + 4) - size),
    )
    return Rival(pixels, hidden, width, dropout)


OURS = "VFG, tree, ladder, flow prior"
"""The model that the VAE is as large as."""
MAIN = [
    "VFG, the paper's tree",
    "VFG, tree",
    "VFG, tree, ladder",
    "VFG, tree, ladder, mixture prior",
    OURS,
    f"{OURS}, convolutions",
    "VAE",
]
"""What is measured on MNIST; the quick run measures every option."""


def candidates(side: int, wide: int) -> dict[str, Callable[[], Any]]:
    """All models by name."""
    narrow = 64 if side == 28 else 32

    def ours(**options: Any) -> Callable[[], Bounded]:
        common = {"hidden": wide, "amortised": 4 * wide // 3, "activation": "silu"}
        return lambda: sampled(
            side, **{"arity": 2, "blocks": 4, "dropout": 0.1, **common, **options}
        )

    def ladder(**options: Any) -> Callable[[], Bounded]:
        return ours(ladder=True, **options)

    def vae() -> Rival:
        return rival(side, 64 if side == 28 else 16, 0.1, count(models[OURS]()))

    flow = vfg.FlowPrior(4, wide, activation="silu")
    models: dict[str, Callable[[], Any]] = {
        "VFG, the paper's tree": lambda: sampled(
            side, arity=2, blocks=4, hidden=narrow, amortised=4 * narrow
        ),
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
