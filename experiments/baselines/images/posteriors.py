"""Flows that bend a Normal posterior: planar, inverse autoregressive, orthogonal Sylvester.

Each is a module of `(features, width, flows)` that maps states `(draws, rows, width)` and the
encoder's features `(rows, features)` to new states and the logarithm of the determinant
`(draws, rows)`. What it needs to know of a row it reads from the features, once for all draws.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

UNMOVED = math.log(math.e - 1.0)
"""Where softplus is 1."""
GENTLE = 0.1
"""By how much weights that flows are read from start smaller, so that the flows bend little."""


class Unbent(nn.Module):
    """No flow: the plain autoencoder."""

    def __init__(self, features: int, width: int, flows: int) -> None:
        super().__init__()

    def forward(self, state: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        return state, state.new_zeros(state.shape[:-1])


class Planar(nn.Module):
    r"""$z + \hat u \tanh(w^\top z + b)$, with u, w and b read from the features."""

    def __init__(self, features: int, width: int, flows: int) -> None:
        super().__init__()
        self.width, self.flows = width, flows
        self.amortised = nn.Linear(features, flows * (2 * width + 1))
        with torch.no_grad():
            self.amortised.weight.mul_(GENTLE)

    def forward(self, state: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        read = self.amortised(features).view(-1, self.flows, 2 * self.width + 1)
        total = state.new_zeros(state.shape[:-1])
        for u, w, b in zip(*_by_flow(read, [self.width, self.width, 1]), strict=True):
            inner = (w * u).sum(-1, keepdim=True)
            # The part of u along w is kept above -1, where the map can be inverted, and 0 stays 0.
            u = u + (F.softplus(inner + UNMOVED) - 1.0 - inner) * w / w.square().sum(
                -1, keepdim=True
            )
            bent = ((w * state).sum(-1, keepdim=True) + b).tanh()
            slope = (1.0 - bent.square()) * (w * u).sum(-1, keepdim=True)
            state, total = state + u * bent, total + slope[..., 0].log1p()
        return state, total


class Masked(nn.Linear):
    """A linear layer in which outputs read only inputs of lower, or if not strict equal, degree."""

    mask: Tensor

    def __init__(self, inputs: Tensor, outputs: Tensor, *, strict: bool) -> None:
        super().__init__(len(inputs), len(outputs))
        reads = outputs[:, None] > inputs if strict else outputs[:, None] >= inputs
        self.register_buffer("mask", reads.float())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


class Autoregressive(nn.Module):
    r"""One step $\sigma(s) z + (1 - \sigma(s)) m$; m and s of a coordinate read earlier ones."""

    def __init__(self, features: int, width: int, hidden: int) -> None:
        super().__init__()
        degrees = torch.arange(1, width + 1)
        between = 1 + torch.arange(hidden) % max(width - 1, 1)
        self.first = Masked(degrees, between, strict=False)
        self.context = nn.Linear(features, hidden)
        self.second = Masked(between, between, strict=False)
        self.last = Masked(between, degrees.repeat(2), strict=True)
        with torch.no_grad():
            self.last.weight.mul_(0.1)

    def forward(self, state: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.elu(self.first(state) + self.context(features))
        shift, gate = self.last(F.elu(self.second(hidden))).chunk(2, -1)
        gate = gate + 2.0  # little changes at the start
        share = gate.sigmoid()
        return share * state + (1.0 - share) * shift, F.logsigmoid(gate).sum(-1)


class InverseAutoregressive(nn.Module):
    """Autoregressive steps with the order of coordinates turned round between them."""

    def __init__(self, features: int, width: int, flows: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Autoregressive(features, width, 5 * width) for _ in range(flows))

    def forward(self, state: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        total = state.new_zeros(state.shape[:-1])
        for step in self.steps:
            state, log_det = step(state.flip(-1), features)
            total = total + log_det
        return state, total


class OrthogonalSylvester(nn.Module):
    r"""$z + Q R \tanh(\tilde R Q^\top z + b)$ with orthonormal columns of Q and triangular R, R̃.

    All are read from the features. The columns are made orthonormal by $Q \leftarrow Q (3 I -
    Q^\top Q) / 2$, a fixed number of times, so that nothing has to wait for the device.
    """

    rounds = (15, 30)
    """How often, in training and afterwards."""

    def __init__(self, features: int, width: int, flows: int, bottleneck: int = 32) -> None:
        super().__init__()
        self.flows, self.bottleneck = flows, min(bottleneck, width)
        self.triangles = nn.Linear(features, flows * self.bottleneck**2)
        self.vectors = nn.Linear(features, flows * self.bottleneck * 3)
        self.columns = nn.Linear(features, flows * width * self.bottleneck)
        with torch.no_grad():
            self.triangles.weight.mul_(GENTLE)
            self.vectors.weight.mul_(GENTLE)
            self.columns.weight.mul_(GENTLE)
            start = torch.empty(flows, width, self.bottleneck)
            for one in start:
                nn.init.orthogonal_(one)
            self.columns.bias.copy_(start.flatten())

    def forward(self, state: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        m = self.bottleneck
        square = self.triangles(features).view(-1, self.flows, m, m)
        first, second, shift = self.vectors(features).view(-1, self.flows, m, 3).unbind(-1)
        first, second = first.tanh(), second.tanh()
        right = square.triu(1) + first.diag_embed()
        left = square.mT.triu(1) + second.diag_embed()
        frames = self.frames(features, state.shape[-1])
        total = state.new_zeros(state.shape[:-1])
        for k in range(self.flows):
            inside = torch.einsum("rwm,drw->drm", frames[:, k], state)
            bent = (torch.einsum("rnm,drm->drn", left[:, k], inside) + shift[:, k]).tanh()
            moved = torch.einsum("rnm,drm->drn", right[:, k], bent)
            state = state + torch.einsum("rwm,drm->drw", frames[:, k], moved)
            slopes = (1.0 - bent.square()) * (first * second)[:, k]
            total = total + slopes.log1p().sum(-1)
        return state, total

    def frames(self, features: Tensor, width: int) -> Tensor:
        """Matrices with orthonormal columns, `(rows, flows, width, bottleneck)`."""
        found = self.columns(features).view(-1, width, self.bottleneck)
        found = found / found.square().sum((1, 2), keepdim=True).sqrt()
        unit = 1.5 * torch.eye(self.bottleneck, device=found.device)
        for _ in range(self.rounds[0] if self.training else self.rounds[1]):
            found = found @ (unit - 0.5 * found.mT @ found)
        return found.view(-1, self.flows, width, self.bottleneck)


def _by_flow(read: Tensor, sizes: list[int]) -> list[tuple[Tensor, ...]]:
    """Numbers `(rows, flows, sum of sizes)` as one tuple over flows for every size."""
    return [part.unbind(1) for part in read.split(sizes, dim=-1)]


POSTERIORS = {
    "VAE": Unbent,
    "planar flow": Planar,
    "IAF": InverseAutoregressive,
    "orthogonal Sylvester": OrthogonalSylvester,
}
"""The baselines by name."""
