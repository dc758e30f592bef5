"""Models of images with labels: VFG trees with a prior mean per label, and a coupling flow."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import vfg
from vfg.sampling import draw_states, no_noise
from vfg.training import maximise

from .image_models import sampled_tree, tree

Rows = tuple[Tensor, Tensor]
"""Images and their labels."""
LABELS = 10
APART = 17.0
"""How far prior means are from each other at the start, in standard deviations of the prior."""
ROWS_AT_ONCE = 5000


class Labelled(nn.Module):
    """A model with the prior's `means` by label, `fit` to labelled rows, and `_embed`."""

    @torch.no_grad()
    def embed(self, rows: Tensor) -> Tensor:
        """The embedding of images, whose labels are not known."""
        return torch.cat([self._embed(part) for part in rows.split(ROWS_AT_ONCE)])

    @torch.no_grad()
    def scatter(self, seed: int) -> None:
        """Let the means start at random: from a common point they would part slowly."""
        start = torch.randn(self.means.shape, generator=torch.Generator().manual_seed(seed))
        self.means.copy_(start * (APART / (2.0 * start.shape[1]) ** 0.5))


class Tree(Labelled):
    """A VFG with a prior mean per label at its root."""

    def __init__(self, model: vfg.VFG) -> None:
        super().__init__()
        self.model = model
        self.root, _ = model.passing.schedule.place[model.graph.roots[0]]

    settings: ClassVar[dict[str, float]] = {"beta": 1.0}
    """What is special about its training."""

    @property
    def means(self) -> Tensor:
        return self.model.prior_at(self.root).locations[0]

    def fit(self, rows: Rows, valid: Rows, seed: int, options: dict[str, Any]) -> None:
        options = options | self.settings | {"seed": seed}
        vfg.fit(self.model, rows[0], labels=rows[1], validation=valid, **options)

    @torch.no_grad()
    def reconstruct(self, rows: Tensor) -> Tensor:
        """Images as the model sees them."""
        return self.model.reconstruct(rows)

    @torch.no_grad()
    def decode(self, states: Tensor) -> Tensor:
        """What images a state of the root stands for."""
        found = self.model.decode({self.model.graph.roots[0]: states})
        images = states.new_empty(len(states), self.model.sections.columns)
        for leaf, places in self.model.sections.positions.items():
            images[:, list(places)] = found[leaf]
        return images


class Drawn(Tree):
    """Sampled states: the bound is what training maximises."""

    def _embed(self, rows: Tensor) -> Tensor:
        seen = torch.ones_like(rows, dtype=torch.bool)
        return draw_states(self.model, rows, seen, None, {}, no_noise, 1).states[self.root][0, 0]


class Passed(Tree):
    """The paper's deterministic states: the surrogate is what training maximises."""

    settings: ClassVar[dict[str, float]] = {"beta": 0.1, "warmup": 0}

    def _embed(self, rows: Tensor) -> Tensor:
        seen = torch.ones_like(rows, dtype=torch.bool)
        return self.model(rows, seen).forward[self.root].value[0]


class Plain(Labelled):
    """Couplings on all pixels at once, after noise has filled the steps between shades of grey."""

    def __init__(self, width: int, levels: int, hidden: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        spec = vfg.Coupling(blocks=4, hidden=hidden, dropout=0.1, activation="silu")
        self.levels, self.flow = levels, spec.build(1, width, generator=generator)
        self.locations = nn.Parameter(torch.zeros(LABELS, width))
        self.scatter(seed)

    @classmethod
    def sized(cls, width: int, levels: int, size: int, seed: int) -> Plain:
        """The flow whose number of parameters is nearest to `size`."""
        half = width // 2
        # Per layer: half -> hidden -> hidden -> 2 half, and the biases.
        hidden = min(
            range(8, 2048, 8),
            key=lambda h: abs(4 * (h * h + h * (3 * half + 2) + 2 * half) - size),
        )
        return cls(width, levels, hidden, seed)

    @property
    def means(self) -> Tensor:
        return self.locations

    def fit(self, rows: Rows, valid: Rows, seed: int, options: dict[str, Any]) -> None:
        @torch.no_grad()
        def validate() -> float:
            return -float(self.objective(*valid, 1.0))

        maximise(self, rows, validate=validate, seed=seed, **options)

    def objective(self, rows: Tensor, labels: Tensor, beta: Tensor | float) -> Tensor:
        """Its exact log-likelihood but for constants; the β of a bound has no say."""
        state, log_det = self._straight(rows, torch.rand_like(rows))
        distance = (state - self.locations[labels]).square().sum(-1)
        return (log_det - 0.5 * distance).mean()

    def _embed(self, rows: Tensor) -> Tensor:
        return self._straight(rows, torch.full_like(rows, 0.5))[0]

    def _straight(self, rows: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        share = (rows * (self.levels - 1) + noise) / self.levels
        inside = 0.02 + 0.96 * share
        state, log_det = self.flow(inside.logit()[None])
        # The logit's own derivative depends on no parameter.
        return state[0], log_det[0]


def drawn_tree(side: int, hidden: int, seed: int) -> Drawn:
    """Sampled states, drawn from the root down."""
    labels = {"prior": vfg.PerLabel(LABELS), "seed": seed}
    sizes = {"amortised": 2 * hidden, "dropout": 0.1, "activation": "silu", "ladder": True}
    model = Drawn(sampled_tree(side, hidden, **sizes, **labels).model)
    model.scatter(seed)
    return model


def papers_tree(side: int, hidden: int, seed: int) -> Passed:
    """Deterministic states; their distances ask every block to know the root's state alone.

    So the means start at one point: states that every block can agree on do not reach means that
    are far apart.
    """
    return Passed(
        vfg.VFG(
            tree(side),
            flow=vfg.Coupling(blocks=4, hidden=hidden, dropout=0.1, activation="silu"),
            aggregation="mean",
            latent="normal",
            likelihood="bernoulli",
            prior=vfg.PerLabel(LABELS),
            seed=seed,
        )
    )
