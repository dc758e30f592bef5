"""VFGs over four blocks of an image, behind the questions that training and testing ask."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import vfg
from vfg.flows import conditioners_in

ROWS_AT_ONCE = 2000


class Bounded(nn.Module):
    """A VFG with sampled states."""

    def __init__(
        self,
        model: vfg.VFG,
        *,
        stacks: bool = True,
        finish: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Settings are what is special about its training; whether seeds train as one model.

        `finish` is the `share` of the training that a second call of `vfg.fit` has, and what is
        special about that.
        """
        super().__init__()
        self.model, self.settings, self.stacks = model, settings, stacks
        self.finish = {} if finish is None else dict(finish)

    @torch.no_grad()
    def bound(self, rows: Tensor, samples: int = 1) -> Tensor:
        """A lower bound of log p(x), per row."""
        parts = rows.split(ROWS_AT_ONCE)
        return torch.cat([self.model.bound(part, samples=samples).total for part in parts])

    def log_likelihood(self, rows: Tensor, samples: int) -> Tensor:
        """Importance-weighted log p(x), per row."""
        with conditioners_in(self.model, "tf32"):
            return self.model.log_likelihood(rows, samples=samples)


class Unbounded(nn.Module):
    """A VFG with the paper's deterministic states, which has a surrogate and no bound."""

    def __init__(self, model: vfg.VFG, beta: float) -> None:
        super().__init__()
        self.model, self.beta, self.stacks = model, beta, True
        self.settings = {"beta": beta, "warmup": 0}

    @torch.no_grad()
    def bound(self, rows: Tensor) -> Tensor:
        """What it ascends, to choose among its states; not a bound."""
        parts = rows.split(ROWS_AT_ONCE)
        return torch.cat([self.model.surrogate(part, beta=self.beta).total for part in parts])

    @torch.no_grad()
    def parts(self, rows: Tensor, weight: float = 1.0) -> dict[str, float]:
        """The terms of the negative surrogate, means over rows, with this weight in place of β."""
        found = self.model.surrogate(rows, beta=self.beta)
        terms = {
            "reconstruction": -found.reconstruction.sum(),
            "distances": weight * (found.kl.sum() + found.edge.sum() - found.root),
            "constants": weight * found.constants,
            "sum": -found.total,
        }
        return {name: term.mean().item() for name, term in terms.items()}


def tree(side: int) -> vfg.Graph:
    """Four blocks, two nodes over neighbouring blocks, a root; all as wide as a block."""
    return vfg.Graph.blocks(side, side, rows=2, columns=2, arity=2)


def papers(side: int, beta: float, hidden: int, seed: int) -> Unbounded:
    """The paper's model: four coupling layers per edge, Laplace states."""
    chosen = vfg.paper_settings().model | {"flow": vfg.Coupling(blocks=4, hidden=hidden)}
    model = vfg.VFG(tree(side), **chosen, likelihood="bernoulli", prior="laplace", seed=seed)
    return Unbounded(model, beta)


def sampled_tree(
    side: int,
    hidden: int,
    *,
    amortised: int,
    arity: int = 2,
    ladder: bool = False,
    convolutions: bool = False,
    prior: Any = "normal",
    seed: int = 0,
    **flow: Any,
) -> Bounded:
    """The graph of the paper (with arity 4, a star) with sampled states; options of its flows."""
    image = (side // 2, side // 2) if convolutions else None
    return Bounded(
        vfg.VFG(
            vfg.Graph.blocks(side, side, rows=2, columns=2, arity=arity),
            flow=vfg.Coupling(4, hidden, image=image, **flow),
            aggregation="mean",
            states=vfg.Sampled(amortised=amortised, ladder=ladder),
            latent="normal",
            likelihood=vfg.Bernoulli(steepness=1.0),
            prior=prior,
            seed=seed,
        )
    )


def papers_sampled(side: int, hidden: int, seed: int = 0) -> Bounded:
    """The graph and flows of the paper with sampled states."""
    return sampled_tree(side, hidden, amortised=4 * hidden, seed=seed)


def ours(side: int, hidden: int, seed: int) -> Bounded:
    """The same graph: wider conditioners with convolutions, a ladder of draws, a flow as prior."""
    model = sampled_tree(
        side,
        hidden,
        amortised=4 * hidden // 3,
        ladder=True,
        dropout=0.3,
        activation="silu",
        convolutions=True,
        prior=vfg.FlowPrior(4, hidden, activation="silu"),
        seed=seed,
    ).model
    return Bounded(model, weight_decay=0.1, input_dropout=0.1)


def residual(side: int, channels: int, seed: int) -> Bounded:
    """The whole image under an image of latent variables, with gated residual convolutions."""
    shape: dict[str, Any] = {"image": (side, side), "residual": 2, "dropout": 0.1}
    model = vfg.VFG(
        vfg.Graph.star({"image": side * side}),
        flow=vfg.Coupling(2, channels=channels, **shape),
        states=vfg.Sampled(amortised=channels, ladder=True, **shape),
        latent="normal",
        likelihood=vfg.Bernoulli(steepness=1.0),
        prior=vfg.FlowPrior(2, channels=channels, **shape),
        seed=seed,
    )
    return Bounded(model, weight_decay=0.05, input_dropout=0.1)


def encoding(
    side: int,
    channels: int,
    seed: int,
    *,
    residual: int = 2,
    dropout: float = 0.1,
    blocks: int = 4,
    prior: vfg.distributions.priors.PriorSpec | None = None,
    prior_width: int | None = None,
    middle: int = 0,
    root: int | None = None,
    **settings: Any,
) -> Bounded:
    """The whole image under a root of 64 numbers, by an edge whose couplings encode and decode.

    `blocks` are coupling layers of q; `middle` is the side of a latent image between both nodes.
    """
    shape: dict[str, Any] = {"channels": channels, "residual": residual, "dropout": dropout}
    chain = {"image": side * side, "middle": middle**2, "root": root or (64 if side == 28 else 16)}
    nodes = [name for name, width in chain.items() if width]
    sides = {"image": side, "middle": middle}
    hidden = 8 * channels
    model = vfg.VFG(
        vfg.Graph.from_edges(list(pairwise(nodes)), widths={name: chain[name] for name in nodes}),
        flow={
            f"{child}->{parent}": vfg.Bottleneck((sides[child], sides[child]), **shape)
            for child, parent in pairwise(nodes)
        },
        aggregation="mean",
        states=vfg.Sampled(
            amortised=hidden // 2, ladder=True, dropout=dropout, children=False, blocks=blocks
        ),
        latent="normal",
        likelihood=vfg.Bernoulli(steepness=1.0),
        prior=prior or vfg.FlowPrior(8, prior_width or hidden, activation="silu", dropout=dropout),
        seed=seed,
    )
    chosen = {"weight_decay": 0.05, "input_dropout": 0.2, "precision": "bf16"} | settings
    return Bounded(model, stacks=False, **chosen)
