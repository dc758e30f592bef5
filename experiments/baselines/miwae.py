"""MIWAE (Mattei and Frellsen, 2019), several models of tables of one shape at a time.

The sizes are those of the authors' examples: 128 hidden units, 10 latent dimensions, 20 importance
samples in training, Adam with the rate 0.001, 500 epochs of batches of 64 rows, Student's t as the
law of a cell. Missing cells are filled with means of 1,000 importance samples; these are of the
decoder's means, which have less noise than draws. Models share nothing but the calls.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Array = NDArray[np.float64]
LATENT, HIDDEN, BATCH, EPOCHS, SAMPLES, RATE = 10, 128, 64, 500, 20, 1e-3
FILLING = 1000
"""Importance samples of a row that is filled."""
LEAST_SCALE, LEAST_FREEDOM = 1e-3, 3.0


def layers(models: int, sizes: list[int], random: list[torch.Generator]) -> list[Tensor]:
    """Orthogonal weights and uniform offsets by layer, `(models, in, out)`, `(models, 1, out)`."""
    found = []
    for inside, outside in pairwise(sizes):
        weights = torch.empty(models, inside, outside)
        offsets = torch.empty(models, 1, outside)
        for k, generator in enumerate(random):
            torch.nn.init.orthogonal_(weights[k].T, generator=generator)
            offsets[k].uniform_(-(inside**-0.5), inside**-0.5, generator=generator)
        found += [weights, offsets]
    return found


def apply_layers(layers: list[Tensor], values: Tensor) -> Tensor:
    """A network with ReLU between its layers, of `(models, rows, in)`."""
    pairs = list(zip(layers[::2], layers[1::2], strict=True))
    for weights, offsets in pairs[:-1]:
        values = torch.baddbmm(offsets, values, weights).relu()
    return torch.baddbmm(pairs[-1][1], values, pairs[-1][0])


class Models:
    """Encoders and decoders of several tables with as many columns."""

    def __init__(self, columns: int, seeds: list[int], device: str) -> None:
        random = [torch.Generator().manual_seed(seed) for seed in seeds]
        encoder = layers(len(seeds), [columns, HIDDEN, HIDDEN, 2 * LATENT], random)
        decoder = layers(len(seeds), [LATENT, HIDDEN, HIDDEN, 3 * columns], random)
        self.encoder = [part.to(device).requires_grad_() for part in encoder]
        self.decoder = [part.to(device).requires_grad_() for part in decoder]
        self.random = torch.Generator(device).manual_seed(seeds[0])
        self.device = device

    def log_weights(self, rows: Tensor, seen: Tensor, samples: int) -> tuple[Tensor, Tensor]:
        """Log importance weights `(models, samples, rows)` and the decoder's means of cells."""
        models, count, columns = rows.shape
        centre, spread = apply_layers(self.encoder, rows).chunk(2, dim=-1)
        spread = functional.softplus(spread)
        noise = torch.randn(
            models, samples, count, LATENT, generator=self.random, device=self.device
        )
        latent = centre[:, None] + spread[:, None] * noise
        told = apply_layers(self.decoder, latent.flatten(1, 2)).unflatten(1, (samples, count))
        means, scale, freedom = told.split(columns, dim=-1)
        scale = functional.softplus(scale) + LEAST_SCALE
        freedom = functional.softplus(freedom) + LEAST_FREEDOM
        cells = student_log_density((rows[:, None] - means) / scale, freedom) - scale.log()
        # The Normal constants of prior and posterior cancel.
        prior = -0.5 * latent.square().sum(-1)
        posterior = -(0.5 * noise.square() + spread[:, None].log()).sum(-1)
        return (cells * seen[:, None]).sum(-1) + prior - posterior, means

    def fit(self, tables: Tensor, seeds: list[int]) -> None:
        """Train every model on its table, `(models, rows, columns)`, with nan for missing cells."""
        seen = tables.isfinite()
        rows = tables.nan_to_num(0.0)
        seen = seen.to(rows.dtype)
        number = max(1, rows.shape[1] // BATCH)
        parameters = [*self.encoder, *self.decoder]
        optimiser = torch.optim.Adam(parameters, lr=RATE, fused=self.device != "cpu")
        shuffles = [np.random.default_rng([seed, 5]) for seed in seeds]
        for _ in range(EPOCHS):
            orders = np.stack([random.permutation(rows.shape[1]) for random in shuffles])
            order = torch.from_numpy(orders).to(self.device)[..., None].expand(rows.shape)
            shuffled = rows.gather(1, order).tensor_split(number, dim=1)
            masks = seen.gather(1, order).tensor_split(number, dim=1)
            for batch, mask in zip(shuffled, masks, strict=True):
                optimiser.zero_grad()
                bounds = self.log_weights(batch, mask, SAMPLES)[0].logsumexp(dim=1)
                # The sum over models, so that each has the gradient of its own mean.
                (-bounds.mean(dim=-1).sum()).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    @torch.no_grad()
    def fill(self, tables: Tensor) -> Tensor:
        """The tables with missing cells filled."""
        seen, rows = tables.isfinite(), tables.nan_to_num(0.0)
        parts = []
        for batch, mask in zip(rows.split(BATCH, dim=1), seen.split(BATCH, dim=1), strict=True):
            weights, means = self.log_weights(batch, mask.to(rows.dtype), FILLING)
            told = torch.einsum("msr,msrc->mrc", weights.softmax(dim=1), means)
            parts.append(torch.where(mask, batch, told))
        return torch.cat(parts, dim=1)


def student_log_density(values: Tensor, freedom: Tensor) -> Tensor:
    """Log density of Student's t with scale 1."""
    half = 0.5 * freedom
    constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * (freedom * math.pi).log()
    return constant - (half + 0.5) * torch.log1p(values.square() / freedom)


def impute(
    tables: list[Array], others: list[Array], seeds: list[int], device: str = "cpu"
) -> list[Array]:
    """Fit a model to each table of one shape and fill the other rows, also of one shape."""
    models = Models(tables[0].shape[1], seeds, device)
    shown, unseen = (
        torch.from_numpy(np.stack(each)).float().to(device) for each in (tables, others)
    )
    models.fit(shown, seeds)
    filled = models.fill(unseen).double().cpu().numpy()
    return [np.where(np.isnan(rows), one, rows) for rows, one in zip(others, filled, strict=True)]
