r"""A bound on the likelihood, for models with sampled states, and importance weighting.

$$\log p(x) \ge E_{q(h \mid x)}\Big[\sum_t \log p(x^{(t)} \mid h) + \sum_i
  \big(\log p(h^{(i)} \mid h^{pa(i)}) - \log q(h^{(i)} \mid \cdot)\big)\Big]$$

It holds for every q, and for the observed cells of rows with missing values: unobserved cells drop
out, and nodes without observed descendants are pruned. With K draws per row, log of the mean of the
weights $p(x, h_k) / q(h_k)$ is a bound too, on average, and rises to log p(x) with K.

With $q(h \mid x_v)$ of some cells $x_v$ in place of $p(x_v, h)$ it is a bound of the other cells,

$$\log \int q(h \mid x_v) p(x_u \mid h) dh \ge E_{q(h \mid x)}\big[\log p(x_u \mid h)
  + \log q(h \mid x_v) - \log q(h \mid x)\big]$$

which says how well draws of q given a part of a row predict the rest of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.inference.propagation import evaluating
from vfg.inputs import ArrayLike, as_labels, as_table
from vfg.objectives.surrogate import Terms, in_data_units, show_means
from vfg.sampling import Draw, Noise, condition, draw_states, log_likelihoods, log_weights
from vfg.sampling.noise import counted_noise

if TYPE_CHECKING:
    from vfg.model import VFG

AT_ONCE = {"cpu": 2**13}
OTHER_AT_ONCE = 2**16
"""Rows times draws of one call, by type of device: enough to fill it, few enough for its memory."""


@dataclass(frozen=True)
class Bound:
    """The bound per row, in named parts: means over draws.

    `total` is Σ reconstruction + Σ prior − Σ posterior.

    Example:
        >>> import torch, vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), states="sampled")
        >>> bound = model.bound(torch.zeros(3, 2))
        >>> parts = bound.reconstruction.sum() - bound.kl.sum()
        >>> torch.allclose(bound.total, parts)
        True
    """

    reconstruction: Terms
    """log p(x | h) by leaf, on the observed cells."""
    prior: Terms
    """log p(h | parents) by latent node, at roots log p(h); 0 where a node is pruned.

    For cells given others, log q(h | messages from those).
    """
    posterior: Terms
    """log q(h | messages) by latent node; 0 where a node is pruned."""

    @property
    def kl(self) -> Terms:
        """posterior − prior by latent node: on average KL(q ‖ p) given the draws it depends on."""
        pairs = zip(self.posterior.stacks, self.prior.stacks, strict=True)
        return Terms(self.prior.names, [q - p for q, p in pairs])

    @property
    def total(self) -> Tensor:
        """The bound, `(rows,)`; larger is better."""
        return self.reconstruction.sum() + self.prior.sum() - self.posterior.sum()

    def objective(self, beta: float | Tensor, free_bits: float) -> Tensor:
        """The scalar that training maximises: the mean bound with KL terms weighted and floored.

        Args:
            beta: weight of the KL terms; below 1 during warm-up, and then it is no bound.
            free_bits: nats per latent node below which its KL term, averaged over the rows, does
                not count, so that no posterior collapses to its prior early in training.
        """
        parts = [stack.mean(1).clamp(min=free_bits).sum() for stack in self.kl.stacks]
        return self.reconstruction.sum().mean() - beta * torch.stack(parts).sum()

    def to(self, like: Tensor) -> Bound:
        """The same terms in the dtype and on the device of `like`."""
        return Bound(self.reconstruction.to(like), self.prior.to(like), self.posterior.to(like))

    def __repr__(self) -> str:
        return f"Bound({show_means(self, ('total', 'reconstruction', 'kl'))}; means over rows)"


def bound(
    model: VFG,
    table: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    samples: int = 1,
    seed: int = 0,
    given: ArrayLike | None = None,
) -> Bound:
    r"""A lower bound of log p(x) per row, in named parts; differentiable.

    On average over draws it is below log p of the observed cells, in the units of the data; a
    single draw may lie above.

    Args:
        model: a model with sampled states.
        table: the data; NaN is unobserved.
        observed: which cells may be used.
        labels: label per row, −1 for none, if the prior has labels.
        samples: how many draws per row are averaged.
        seed: of the draws.
        given: which cells are known, in the shape of the table: then it is the bound of the other
            observed cells given these, under the density from which `infer` draws them,
            $\int q(h \mid \text{given}) p(\cdot \mid h) dh$.

    Raises:
        ValueError: for a model with deterministic states, or an invalid table.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), states="sampled")
        >>> bound = model.bound(torch.zeros(3, 2))
        >>> bound.total.shape, list(bound.reconstruction), list(bound.kl)
        (torch.Size([3]), ['a', 'b'], ['root'])
        >>> model.bound(torch.zeros(3, 2), given=torch.tensor([[True, False]] * 3)).total.shape
        torch.Size([3])
    """
    cells, seen, like = as_table(model, table, observed)
    known, asked = _read_given(model, table, seen, given)
    ids = torch.arange(len(cells), device=cells.device)
    noise, own = _noise(model, ids, range(samples), seed), as_labels(model, labels, len(cells))
    scaled = lower_bound(model, cells, seen, own, noise, samples, given=known)
    units = in_data_units(model, scaled.reconstruction, asked)
    return Bound(units, scaled.prior, scaled.posterior).to(like)


@torch.no_grad()
def log_likelihood(
    model: VFG,
    table: ArrayLike,
    *,
    samples: int = 500,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    seed: int = 0,
    given: ArrayLike | None = None,
) -> Tensor:
    r"""log p(x) per row by importance weighting, in the units of the data.

    $$\log \frac1K \sum_{k=1}^K \frac{p(x, h_k)}{q(h_k \mid x)}, \qquad h_k \sim q$$

    With NaN it is that of the observed cells. On average it is too low, less so for more samples.

    Args:
        model: a model with sampled states.
        table: the data; NaN is unobserved.
        samples: K, how many draws per row.
        observed: which cells may be used.
        labels: label per row, −1 for none, if the prior has labels.
        seed: of the draws.
        given: which cells are known, in the shape of the table: then it is that of the other
            observed cells given these, under the density from which `infer` draws them,
            $\int q(h \mid \text{given}) p(\cdot \mid h) dh$.

    Returns:
        `(rows,)`.

    Raises:
        ValueError: for a model with deterministic states, or an invalid table.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), states="sampled")
        >>> model.log_likelihood(torch.zeros(3, 2), samples=10).shape
        torch.Size([3])
    """
    first, _, volume, like = _weight_sums(model, table, samples, observed, labels, seed, given)
    return (first - math.log(samples) - volume).to(like)


@torch.no_grad()
def effective_sample_size(
    model: VFG,
    table: ArrayLike,
    *,
    samples: int = 500,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    seed: int = 0,
    given: ArrayLike | None = None,
) -> Tensor:
    r"""The effective number of draws behind `log_likelihood`, per row, from 1 to `samples`.

    $$\frac{(\sum_k w_k)^2}{\sum_k w_k^2}, \qquad w_k = \frac{p(x, h_k)}{q(h_k \mid x)}$$

    Where it is near 1, one draw outweighs the others, and `log_likelihood` is still too low.
    Arguments and errors are those of `log_likelihood`.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), states="sampled")
        >>> bool((model.effective_sample_size(torch.zeros(3, 2), samples=10) >= 1.0).all())
        True
    """
    first, second, _, like = _weight_sums(model, table, samples, observed, labels, seed, given)
    return (2.0 * first - second).exp().to(like)


def _weight_sums(
    model: VFG,
    table: ArrayLike,
    samples: int,
    observed: ArrayLike | None,
    labels: ArrayLike | None,
    seed: int,
    given: ArrayLike | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log Σ w, log Σ w² in the model's units, the log-volume of a unit, and what is like the table.

    All are per row, but for the last.
    """
    cells, seen, like = as_table(model, table, observed)
    known, asked = _read_given(model, table, seen, given)
    every = as_labels(model, labels, len(cells))
    ids = torch.arange(len(cells), device=cells.device)
    result = torch.zeros(2, len(cells), dtype=torch.float64, device=cells.device)
    most = AT_ONCE.get(cells.device.type, OTHER_AT_ONCE)
    size = max(1, most // min(samples, most))
    with evaluating(model):
        for start in range(0, len(cells), size):
            rows = ids[start : start + size]
            own = None if every is None else every[rows]
            part = None if known is None else known[rows]
            together = max(1, most // len(rows))
            parts = []
            for first in range(0, samples, together):
                draws = range(first, min(first + together, samples))
                noise = _noise(model, rows, draws, seed)
                data = cells[rows], seen[rows]
                states = _draw(model, *data, own, noise, len(draws), part, pruned=False)
                weights = log_weights(model, states, cells[rows], asked[rows])
                parts.append(torch.stack([weights, 2.0 * weights]).logsumexp(1))
            result[:, rows] = torch.stack(parts).logsumexp(0)
    return *result, (asked * model.scaling.scale.log()).sum(1), like


def _read_given(
    model: VFG, table: ArrayLike, seen: Tensor, given: ArrayLike | None
) -> tuple[Tensor | None, Tensor]:
    """The seen cells that are given, None if nothing is; and those that a bound is of."""
    if given is None:
        return None, seen
    known = seen & as_table(model, table, given)[1]
    return known, seen & ~known


def _draw(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    noise: Noise,
    draws: int,
    given: Tensor | None,
    pruned: bool,
) -> Draw:
    """States from q given the seen cells; with `given`, q of those cells is their prior."""
    if given is None:
        return draw_states(model, cells, seen, labels, {}, noise, draws, pruned=pruned)
    states = draw_states(model, cells, seen, labels, {}, noise, draws, complete=True)
    return condition(model, states, cells, given, labels)


def lower_bound(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    noise: Noise,
    draws: int = 1,
    scored: Tensor | None = None,
    pruned: bool | None = None,
    given: Tensor | None = None,
) -> Bound:
    """The bound of the seen cells of a table in the model's units; nothing is checked.

    If `scored` is given, of those cells, from a q that sees less. Then nodes without seen
    descendants are drawn from p, unless `pruned` says that there are none. Cells that are `given`
    are known, and the bound is that of the others.
    """
    # Cells that q does not see may lie beneath pruned nodes, whose states then count.
    pruned = scored is not None if pruned is None else pruned
    states = _draw(model, cells, seen, labels, noise, draws, given, pruned)
    counted = seen if scored is None else scored
    return bound_of(model, states, cells, counted if given is None else counted * ~given)


def bound_of(model: VFG, states: Draw, cells: Tensor, scored: Tensor) -> Bound:
    """The bound of the scored cells from these draws."""
    explained = log_likelihoods(model, states, cells, scored)
    return Bound(
        _terms(model, explained), _terms(model, states.prior), _terms(model, states.posterior)
    )


def weighted_bound(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    noise: Noise,
    draws: int,
    beta: float | Tensor = 1.0,
    scored: Tensor | None = None,
    pruned: bool | None = None,
) -> Tensor:
    r"""Importance-weighted bound, reconstruction and KL per row, `(3, rows)`; nothing is checked.

    With weights $p(x \mid h) (p(h) / q(h))^\beta$ the first is the logarithm of their mean over
    draws, the others are means. Other arguments are those of `lower_bound`.
    """
    pruned = scored is not None if pruned is None else pruned
    states = draw_states(model, cells, seen, labels, {}, noise, draws, pruned=pruned)
    return weighted_bound_of(model, states, cells, seen if scored is None else scored, beta)


def weighted_bound_of(
    model: VFG, states: Draw, cells: Tensor, scored: Tensor, beta: float | Tensor
) -> Tensor:
    """The same from these draws."""
    explained = log_likelihoods(model, states, cells, scored)
    draws = next(iter(states.prior.values())).shape[1]
    reconstruction = torch.stack([part.sum(0) for part in explained.values()]).sum(0)
    terms = [states.posterior[k] - prior for k, prior in states.prior.items()]
    kl = torch.stack([term.sum(0) for term in terms]).sum(0)
    total = (reconstruction - beta * kl).logsumexp(0) - math.log(draws)
    return torch.stack([total, reconstruction.mean(0), kl.mean(0)])


def _terms(model: VFG, parts: dict[int, Tensor]) -> Terms:
    blocks = model.passing.schedule.blocks
    order = sorted(parts)
    return Terms([blocks[k].nodes for k in order], [parts[k].mean(1) for k in order])


def _noise(model: VFG, row_ids: Tensor, draws: range, seed: int) -> Noise:
    return counted_noise(model.passing.schedule, row_ids, torch.tensor(draws), seed)
