r"""Predictions of the rest of a section from its observed part: a mixture of Normals per section.

Training passes whole sections, so it does not teach the edges how the columns of one section hang
together. Mixtures that are fitted to complete sections after training do. In a row with a part of a
section, the section x has the density

$$p(x) \propto \sum_k \pi_k N(x; m_k, S_k) \; N(x; \hat x, V) / N(x; m, S)$$

given its observed cells. Here $\hat x$ is what the other sections predict, V the covariance of this
prediction, and m and S are the moments of the mixture, which a prediction from nothing has. The
mean completes the section, which then sends a message whose precision counts how sure that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from vfg.inference.calibration import noise_scale
from vfg.inference.draws import internal_states, is_joint
from vfg.inference.propagation import (
    ROUNDS,
    Belief,
    Completed,
    evaluating,
    gaussian_sections,
    part_missing,
    propagate,
)

if TYPE_CHECKING:
    from vfg.model import VFG

EXACT = 1e8
"""The precision of observed cells, in the model's units."""
MOST_PASSES = 8
"""In so many groups, at most, sections observed in part are predicted from all others."""
LEAST_ROWS = 20
"""Complete rows of a section below which it has no mixture."""
MOST_ROWS = 4096
"""Rows that a mixture is fitted to, at most."""
TRIAL_ROWS, TRIAL_RATE = 512, 0.5
"""Rows, at most, in which that share of the cells is hidden to compare mixtures with messages.
Where training rows had missing cells and the columns of a section were independent, mixtures had
up to 1.6 times the squared error of messages."""
ITERATIONS, GAIN = 200, 1e-4
"""Steps of EM at most, and the gain in log-likelihood a row below which they end."""
RIDGE = 1e-4
"""The variance, in the model's units, of a prior on covariances that counts like as many rows as
the section has columns and one more, so that exact relations within a section keep some noise."""


class Mixture(NamedTuple):
    """Normals of one section; components of weight 0 are not there."""

    weights: Tensor
    """`(components,)`."""
    means: Tensor
    """`(components, width)`."""
    covariances: Tensor
    """`(components, width, width)`."""

    @staticmethod
    def unpack(packed: Tensor) -> Mixture:
        """From `(components, 1 + width + width²)`, in double precision."""
        width = (math.isqrt(4 * packed.shape[1] - 3) - 1) // 2
        present = packed[packed[:, 0] > 0].double()
        weights, means, flat = present.split([1, width, width * width], dim=1)
        return Mixture(weights[:, 0], means, flat.unflatten(1, (width, width)))

    def packed(self) -> Tensor:
        """The inverse of `unpack`, `(components, 1 + width + width²)`."""
        return torch.cat([self.weights[:, None], self.means, self.covariances.flatten(1)], dim=1)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance."""
        mean = self.weights @ self.means
        apart = self.means - mean
        spread = self.covariances + apart[:, :, None] * apart[:, None, :]
        return mean, (self.weights[:, None, None] * spread).sum(0)

    def log_joint(self, rows: Tensor) -> Tensor:
        """log of weight times density, `(rows, components)`."""
        factor = torch.linalg.cholesky(self.covariances)
        apart = (rows[None] - self.means[:, None]).mT
        scaled = torch.linalg.solve_triangular(factor, apart, upper=False)
        volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = 0.5 * rows.shape[1] * math.log(2.0 * math.pi)
        result: Tensor = self.weights.log() - volume - constant - 0.5 * scaled.square().sum(1).mT
        return result

    def posterior(self, pull: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance given Normal evidence of that precision, times its mean the pull.

        Args:
            pull: `(rows, width)`.
            precision: `(rows, width, width)`.

        Example:
            >>> one = torch.ones(1, dtype=torch.float64)
            >>> pair = Mixture(one, one.new_zeros(1, 2), one.new_tensor([[[1.0, 0.9], [0.9, 1.0]]]))
            >>> first = one.new_tensor([[[1e8, 0.0], [0.0, 0.0]]])  # the first coordinate is 2
            >>> mean, covariance = pair.posterior(one.new_tensor([[2e8, 0.0]]), first)
            >>> round(mean[0, 1].item(), 3), round(covariance[0, 1, 1].item(), 3)
            (1.8, 0.19)
        """
        factor = torch.linalg.cholesky(self.covariances)
        inverse = torch.cholesky_inverse(factor)
        own = (inverse @ self.means[..., None])[..., 0]
        joined = torch.linalg.cholesky(inverse + precision[:, None])
        total = own + pull[:, None]
        means = torch.cholesky_solve(total[..., None], joined)[..., 0]
        volume = (factor.diagonal(dim1=-2, dim2=-1) * joined.diagonal(dim1=-2, dim2=-1)).log()
        fit = 0.5 * ((means * total).sum(-1) - (self.means * own).sum(-1)) - volume.sum(-1)
        shares = (self.weights.log() + fit).softmax(-1)[..., None]
        mean = (shares * means).sum(1)
        apart = means - mean[:, None]
        spread = torch.cholesky_inverse(joined) + apart[..., :, None] * apart[..., None, :]
        return mean, (shares[..., None] * spread).sum(1)


def fit_mixture(rows: Tensor, most: int, seed: int) -> Mixture:
    """The mixture of 1, 2, 4, ... and at most so many Normals that BIC prefers, by EM.

    Args:
        rows: `(rows, width)`, in double precision.
        most: components.
        seed: of their starts.

    Example:
        >>> x = torch.linspace(-2.0, 2.0, 200, dtype=torch.float64)[:, None]
        >>> len(fit_mixture(torch.cat([x, x.square()], dim=1), 8, seed=0).weights)
        8
    """
    best, least, count = None, math.inf, 1
    width = rows.shape[1]
    while count <= most and len(rows) >= count * (width + 1):
        mixture, score = _em(rows, count, seed)
        numbers = count * (1 + width + width * (width + 1) / 2) - 1
        price = 0.5 * numbers * math.log(len(rows)) - score
        if best is not None and not price < least:
            break
        best, least, count = mixture, price, 2 * count
    assert best is not None  # there are more rows than columns
    return best


def _em(rows: Tensor, count: int, seed: int) -> tuple[Mixture, float]:
    """A mixture of so many Normals, and its log-likelihood."""
    nearest = torch.cdist(rows, _centres(rows, count, seed)).argmin(1)
    shares = torch.nn.functional.one_hot(nearest, count).to(rows)
    before = -math.inf
    for _ in range(ITERATIONS):
        mixture = _maximise(rows, shares)
        joint = mixture.log_joint(rows)
        score = float(joint.logsumexp(1).sum())
        if not score - before > GAIN * len(rows):
            break
        shares, before = joint.softmax(1), score
    return mixture, score


def _maximise(rows: Tensor, shares: Tensor) -> Mixture:
    width = rows.shape[1]
    size = shares.sum(0) + 1e-9
    means = (shares.mT @ rows) / size[:, None]
    apart = rows[None] - means[:, None]
    scatter = (shares.mT[..., None] * apart).mT @ apart
    prior = (width + 1) * RIDGE * torch.eye(width).to(rows)
    return Mixture(size / size.sum(), means, (scatter + prior) / (size[:, None, None] + width + 1))


def _centres(rows: Tensor, count: int, seed: int) -> Tensor:
    """Rows far apart, by k-means++, then moved by k-means."""
    generator = torch.Generator().manual_seed(seed)
    centres = rows[torch.randint(len(rows), (1,), generator=generator)]
    for _ in range(count - 1):
        far = torch.cdist(rows, centres).amin(1).square().cpu() + 1e-12
        centres = torch.cat([centres, rows[torch.multinomial(far, 1, generator=generator)]])
    for _ in range(20):
        near = torch.nn.functional.one_hot(torch.cdist(rows, centres).argmin(1), count).to(rows)
        size = near.sum(0)[:, None]
        centres = torch.where(size > 0, near.mT @ rows / size.clamp(min=1.0), centres)
    return centres


def whole_sections(model: VFG, seen: Tensor) -> Tensor:
    """What is observed, without the sections in part that mixtures may complete."""
    parts = {block: part_missing(part) for block, part in model.sections.split(seen).items()}
    wide = set(gaussian_sections(model))
    gone = {b: p.any(-1, keepdim=True).expand_as(p) & (b in wide) for b, p in parts.items()}
    return seen & ~model.sections.join(gone)


@torch.no_grad()
def fit_completion(
    model: VFG, cells: Tensor, seen: Tensor, *, labels: Tensor | None = None, seed: int = 0
) -> bool:
    """Fit the mixtures of wide sections to the rows that have them complete.

    A mixture is kept where it predicts hidden cells of sections in part better than messages do.

    Args:
        model: the model, in whose `spread` the mixtures are kept.
        cells: a table in the model's units, `(rows, columns)`.
        seen: which cells are observed.
        labels: label per row, or None.
        seed: of the rows that are chosen, if there are many, of the components' starts, and of
            the cells that are hidden.

    Returns:
        Whether any mixture was kept.
    """
    data, observed = model.sections.split(cells), model.sections.split(seen)
    for block, kept in model.spread.sections().items():
        for node, packed in enumerate(kept):
            rows = data[block][node][observed[block][node].all(-1)].double()
            if len(rows) > MOST_ROWS:
                generator = torch.Generator().manual_seed(seed)
                chosen = torch.randperm(len(rows), generator=generator)[:MOST_ROWS]
                rows = rows[chosen.to(rows.device)]
            packed.zero_()
            if len(rows) >= max(LEAST_ROWS, 2 * rows.shape[1]):
                found = fit_mixture(rows, len(packed), seed).packed()
                packed[: len(found)] = found.to(packed)
    _drop_worse(model, cells, seen, labels, seed)
    return any(bool(packed.any()) for packed in model.spread.sections().values())


def _drop_worse(model: VFG, cells: Tensor, seen: Tensor, labels: Tensor | None, seed: int) -> None:
    """Remove the mixtures of sections that messages fill at least as well."""
    if not any(bool(packed.any()) for packed in model.spread.sections().values()):
        return
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(cells), generator=generator)[:TRIAL_ROWS].to(cells.device)
    cells, seen, labels = cells[rows], seen[rows], None if labels is None else labels[rows]
    hidden = (torch.rand(seen.shape, generator=generator) < TRIAL_RATE).to(seen.device) & seen
    visible = seen & ~hidden
    shown = torch.where(visible, cells, 0.0)
    with evaluating(model):
        both = [
            predict(model, shown, visible, labels, {}).means for predict in (believe, propagate)
        ]
    truth, known, left = (model.sections.split(part) for part in (cells, visible, hidden))
    for block, kept in model.spread.sections().items():
        scored = part_missing(known[block]) & left[block]
        new, old = (
            ((means[block] - truth[block]).square() * scored).flatten(1).sum(1) for means in both
        )
        kept[~(new < old)] = 0.0


def believe(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    evidence: dict[int, Tensor],
    *,
    rounds: int = ROUNDS,
) -> Belief:
    """`propagate`, where sections observed in part are completed by mixtures, if there are any.

    Rows without such sections have the bits of `propagate`.
    """
    kept, observed = model.spread.sections(), model.sections.split(seen)
    parts = [
        (block, node)
        for block, packed in kept.items()
        for node in range(len(packed))
        if bool((packed[node, :, 0] > 0).any()) and bool(part_missing(observed[block][node]).any())
    ]
    if not parts or not rounds:
        return propagate(model, cells, seen, labels, evidence, rounds=rounds)
    data = {block: part.double() for block, part in model.sections.split(cells).items()}
    completed = _nothing(model, kept, data)
    for block, node in parts:
        mixture, mask = Mixture.unpack(kept[block][node]), observed[block][node]
        exact = EXACT * mask.double()
        found = mixture.posterior(exact * data[block][node], exact.diag_embed())
        _store(completed, block, node, part_missing(mask), *found)
    result = Completed(*({b: part.clone() for b, part in each.items()} for each in completed))
    for first in range(min(MOST_PASSES, len(parts))):
        group = parts[first::MOST_PASSES]
        hidden = seen.clone()
        for block, node in group:
            name = model.passing.schedule.blocks[block].nodes[node]
            hidden[:, list(model.sections.positions[name])] = False
        others = torch.where(hidden, cells, 0.0), hidden, labels, evidence
        belief = propagate(model, *others, rounds=rounds, completed=completed)
        spread = _covariances(model, belief, hidden, {block for block, _ in group})
        given = [~states.isnan().flatten(2).all(-1).all(0) for states in evidence.values()]
        informed = torch.stack([hidden.any(-1), *given]).any(0)
        for block, node in group:
            mixture, mask = Mixture.unpack(kept[block][node]), observed[block][node]
            expected = belief.backward[block][node].double()
            pull, precision = _evidence(mixture, expected, spread[block][node])
            exact = EXACT * mask.double()
            pull = torch.where(informed[:, None], pull, 0.0) + exact * data[block][node]
            precision = torch.where(informed[:, None, None], precision, 0.0)
            found = mixture.posterior(pull, precision + exact.diag_embed())
            _store(result, block, node, part_missing(mask), *found)
    return propagate(model, cells, seen, labels, evidence, rounds=rounds, completed=result)


def _nothing(model: VFG, kept: dict[int, Tensor], data: dict[int, Tensor]) -> Completed:
    """Nothing completed yet."""
    like = next(model.parameters())
    fills = {block: data[block].to(like) for block in kept}
    return Completed(
        fills,
        {b: x.new_zeros(*x.shape, x.shape[-1]) for b, x in fills.items()},
        {b: torch.full_like(x, torch.nan) for b, x in fills.items()},
    )


def _store(
    completed: Completed, block: int, node: int, missing: Tensor, mean: Tensor, spread: Tensor
) -> None:
    """Keep a section's mean and covariance where cells are missing, `(rows, width)`."""
    both = missing[:, :, None] & missing[:, None, :]
    rest = (~missing).double().diag_embed()
    inverse = torch.linalg.inv(torch.where(both, spread, 0.0) + rest) - rest
    deviation = spread.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()
    fills, certainty, deviations = (part[block] for part in completed)
    fills[node] = torch.where(missing, mean.to(fills), fills[node])
    certainty[node] = inverse.to(certainty)
    deviations[node] = torch.where(missing, deviation, torch.nan).to(deviations)


def _covariances(model: VFG, belief: Belief, seen: Tensor, blocks: set[int]) -> dict[int, Tensor]:
    """Of the predictions of leaves, `(nodes, rows, width, width)`."""
    noise = model.sections.split(noise_scale(model, seen).double())
    result = {block: noise[block].square().diag_embed() for block in blocks}
    if is_joint(model):
        states = internal_states(model, belief, model.spread.log_temperature.exp())
        for block in blocks:
            apart = (states[block] - belief.backward[block]).double().movedim(0, -2)
            result[block] = result[block] + apart.mT @ apart / apart.shape[-2]
    return result


def _evidence(mixture: Mixture, expected: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """What a prediction adds to the mixture, whose own moments it has where it knows nothing."""
    mean, own = mixture.moments()
    prior, precise = torch.linalg.inv(own), torch.linalg.inv(spread)
    values, vectors = torch.linalg.eigh(precise - prior)
    kept = (values > 0).to(values)
    pull = (precise @ expected[..., None]) - (prior @ mean)[:, None]
    pull = (vectors * kept[..., None, :]) @ (vectors.mT @ pull)
    return pull[..., 0], (vectors * (kept * values)[..., None, :]) @ vectors.mT
