r"""How far answers spread: a temperature of the roots, and the noise of the leaves.

$$h^{(r)} \sim N(r, P^{-1} / \tau), \qquad
  x_c = \hat x_c(h) + \sigma_c \varepsilon, \qquad
  \log \sigma_c = \log s_c + a_c + \sum_t B_{ct} o_t$$

with s the scales of the likelihoods and o the features of the mask: the observed share of every
leaf, 1 / (1 + their sum), and whether nothing is observed. If a root carries no precision, the
noise is all there is and B is fitted; else τ is fitted, and B only if BIC accepts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    Likelihood,
)
from vfg.distributions.priors import SinglePrior
from vfg.inference.draws import (
    average_chances,
    centred_states,
    internal_states,
    is_joint,
    root_factor,
)
from vfg.inference.propagation import Belief, evaluating, gaussian_sections, propagate

if TYPE_CHECKING:
    from vfg.model import VFG

FLOOR = 1e-4
"""The least fitted noise in the model's units: columns that are predicted exactly need some."""
COUNT_FEATURES = 2
"""Features of how much is observed, besides one per leaf."""
NEAR = 0.1
"""The change of log τ up to which decoded variances are taken for proportional to 1/τ."""
WIDEST_ROOT = 64
"""The widest roots whose covariance is kept; of wider ones the variances, so files stay small."""
COMPONENTS = 8
"""Normals of a section's mixture, at most."""
SOFTNESS_ROWS = 256
"""Rows to whose discrete cells the softness is fitted: one number per column needs no more."""
ROWS_AT_ONCE = 256
"""Rows that are decoded together; each has `INTERNAL` draws, which bounds the memory."""


class Calibration(nn.Module):
    """The numbers behind deviations and draws; at the start the likelihoods' own scales.

    They are buffers: saved with the model, and not trained by its optimiser.

    Args:
        columns: number of table columns.
        leaves: number of leaves.
        roots: number and width of the nodes of every root block.
        sections: the same by block of leaves whose sections can be completed.

    Example:
        >>> spread = Calibration(columns=2, leaves=1)
        >>> spread.scale(torch.ones(2), torch.zeros(3, 3)).shape
        torch.Size([3, 2])
    """

    log_temperature: Tensor
    log_noise: Tensor
    by_observed: Tensor
    log_softness: Tensor
    """Logarithms of the softness by which the logits of discrete leaves are divided."""
    knows_roots: Tensor
    """Whether the moments of the roots were measured."""

    def __init__(
        self,
        columns: int,
        leaves: int,
        roots: Sequence[tuple[int, int]] = (),
        sections: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("log_temperature", torch.zeros(()))
        self.register_buffer("log_noise", torch.zeros(columns))
        self.register_buffer("by_observed", torch.zeros(columns, leaves + COUNT_FEATURES))

        self.register_buffer("log_softness", torch.zeros(columns))
        self.register_buffer("knows_roots", torch.tensor(False))
        for place, (nodes, width) in enumerate(roots):
            self.register_buffer(f"root_mean{place}", torch.zeros(nodes, width))
            whole = width <= WIDEST_ROOT
            start = torch.eye(width).repeat(nodes, 1, 1) if whole else torch.ones(nodes, width)
            self.register_buffer(f"root_factor{place}", start)
        self.blocks = tuple(sections or ())
        for block, (nodes, width) in (sections or {}).items():
            packed = torch.zeros(nodes, COMPONENTS, 1 + width + width**2)
            self.register_buffer(f"section{block}", packed)

    def sections(self) -> dict[int, Tensor]:
        """By block the mixtures of its leaves; see `vfg.inference.completion`."""
        return {block: self.get_buffer(f"section{block}") for block in self.blocks}

    def scale(self, base: Tensor, features: Tensor) -> Tensor:
        """Deviations of the noise, `(rows, columns)`, from scales and `mask_features`."""
        return (base.log() + self.log_noise + features @ self.by_observed.mT).exp()


def new_calibration(model: VFG) -> Calibration:
    """The calibration of a model that is not trained."""
    blocks = model.passing.schedule.blocks
    shapes = {index: (len(block.nodes), block.width) for index, block in enumerate(blocks)}
    roots = [shapes[index] for index, block in enumerate(blocks) if block.is_root]
    wide = {} if model.sampling is not None else {b: shapes[b] for b in gaussian_sections(model)}
    return Calibration(model.sections.columns, len(model.graph.leaves), roots, wide)


def knows_roots(model: VFG) -> bool:
    """Whether training has measured the roots, whose states are not drawn and have one mode."""
    single = all(isinstance(prior, SinglePrior) for prior in model.priors.values())
    return model.sampling is None and single and bool(model.spread.knows_roots)


def without_evidence(model: VFG, seen: Tensor, evidence: Mapping[int, Tensor]) -> Tensor:
    """Which rows have no evidence and take the roots' moments of training instead, `(rows,)`.

    These are the rows of `sample`. The prior is no substitute where nothing holds the roots near
    it: the pixels of images would spread far more than in the data.
    """
    if not (is_joint(model) and knows_roots(model)):
        return torch.zeros_like(seen[:, 0])
    free = [part.isnan().all(-1).all(0) for part in evidence.values()]
    return torch.stack([~seen.any(-1), *free]).all(0)


def noise_scale(model: VFG, observed: Tensor) -> Tensor:
    """Deviations of the leaves' noise for a mask `(rows, columns)`; discrete columns' softness."""
    scale = model.spread.scale(likelihood_scales(model), mask_features(model, observed))
    return torch.where(continuous_columns(model), scale, model.spread.log_softness.exp())


def likelihood_scales(model: VFG) -> Tensor:
    """The scales of Gaussian leaves in the order of the table, 1 for others, `(columns,)`."""
    scales = {}
    for block, places in model.sections.split(torch.ones_like(model.scaling.scale)[None]).items():
        likelihood = model.likelihood_at(block)
        known = likelihood.scale() if isinstance(likelihood, GaussianLikelihood) else places
        scales[block] = known.detach().to(next(model.parameters()))
    return model.sections.join(scales)[0]


def mask_features(model: VFG, observed: Tensor) -> Tensor:
    """What the noise may depend on: `(rows, leaves + 2)` for a mask `(rows, columns)`."""
    kind, positions = next(model.parameters()), model.sections.positions
    parts = [observed[:, list(columns)].to(kind).mean(1) for columns in positions.values()]
    shares = torch.stack(parts, dim=1)
    count = shares.sum(1, keepdim=True)
    return torch.cat([shares, 1.0 / (1.0 + count), (count == 0).to(kind)], dim=1)


@torch.no_grad()
def fit_calibration(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    held_out: Tensor,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    masks: int | None = None,
    most_rows: int | None = None,
) -> Calibration:
    """Fit the calibration to held-out cells by log score, with random masks on top.

    Every row is scored under several masks; each keeps every leaf with a rate of its own. The
    scores count cells that training did not see, or, if there are none, those that the masks hid:
    continuous ones for the noise, discrete ones for their softness. The moments of the roots are
    those of the same rows.

    Args:
        model: the model, whose `spread` is set to the calibration that is returned.
        cells: a table in the model's units, without NaN, `(rows, columns)`.
        seen: which cells the messages may see.
        held_out: which other cells have a known value.
        labels: label per row, or None.
        seed: of the masks and of the choice of rows.
        masks: how many masks per row; None means 4, or 2 if draws have to be decoded.
        most_rows: how many rows are used, at most, those with most held-out cells first; None
            means 2048, or 512 if draws have to be decoded.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> twin = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
        >>> cells = torch.cat([twin, twin + 0.1], dim=1)
        >>> mask = torch.tensor([True, False]).expand(500, 2)
        >>> spread = fit_calibration(model, cells, mask, ~mask)
        >>> round(noise_scale(model, mask)[0, 1].item(), 2)
        0.1
    """
    generator = torch.Generator().manual_seed(seed)
    joint = is_joint(model)
    rows = most_rows or (512 if joint else 2048)
    order = torch.randperm(len(held_out), generator=generator)
    count = held_out.sum(1).cpu()[order]
    chosen = order[count.argsort(descending=True, stable=True)[:rows]].to(cells.device)
    cells, seen, held_out = cells[chosen], seen[chosen], held_out[chosen]
    labels = None if labels is None else labels[chosen]
    has_cells = bool(held_out.any())
    spread = new_calibration(model)
    spread = spread.to(next(model.parameters()))
    with evaluating(model):
        trials = [
            _trial(model, cells, visible, held_out if has_cells else seen & ~visible, labels)
            for visible in _visible(model, seen, masks or (2 if joint else 4), generator)
        ]
        whole = Trial.join(trials)
        with torch.enable_grad():
            (_fit_joint if joint else _fit_noise)(model, spread, whole)
            _fit_softness(model, spread, trials, cells)
        _fit_roots(spread, trials[0].beliefs[0])
    spread.log_noise.clamp_(min=math.log(FLOOR) - likelihood_scales(model).log())
    model.spread = spread
    return spread


class Trial(NamedTuple):
    """Some rows under masks: beliefs, residuals, which cells count, and features of the masks."""

    beliefs: list[Belief]
    residual: Tensor
    counted: Tensor
    features: Tensor
    scored: Tensor
    """Which cells count, those of discrete columns too."""

    @staticmethod
    def join(trials: list[Trial]) -> Trial:
        """The rows of several trials."""
        beliefs = [belief for trial in trials for belief in trial.beliefs]
        return Trial(beliefs, *(torch.cat(part) for part in list(zip(*trials, strict=True))[1:]))


def _visible(model: VFG, seen: Tensor, masks: int, generator: torch.Generator) -> list[Tensor]:
    """What is seen, and parts of it that keep every leaf at a rate that differs by row."""
    patterns = [seen]
    for _ in range(masks - 1):
        rate = torch.rand(len(seen), 1, generator=generator)
        kept = torch.rand(len(seen), len(model.graph.leaves), generator=generator) < rate
        visible = seen.clone()
        for k, columns in enumerate(model.sections.positions.values()):
            visible[:, list(columns)] &= kept[:, k : k + 1].to(seen.device)
        patterns.append(visible)
    return patterns


def _trial(
    model: VFG, cells: Tensor, visible: Tensor, scored: Tensor, labels: Tensor | None
) -> Trial:
    belief = propagate(model, torch.where(visible, cells, 0.0), visible, labels, {})
    expected = model.sections.join(belief.means)
    counted = scored & continuous_columns(model)
    residual = torch.where(counted, cells - expected, 0.0)
    features = mask_features(model, visible).double()
    return Trial([belief], residual.double(), counted.double(), features, scored)


def continuous_columns(model: VFG) -> Tensor:
    """Which table columns belong to Gaussian leaves, `(columns,)`."""
    return _columns_of(model, GaussianLikelihood)


def discrete_columns(model: VFG) -> Tensor:
    """Which table columns belong to Bernoulli or categorical leaves, `(columns,)`."""
    return _columns_of(model, BernoulliLikelihood, CategoricalLikelihood)


def _columns_of(model: VFG, *kinds: type[Likelihood]) -> Tensor:
    flags = torch.zeros(model.sections.columns, dtype=torch.bool)
    for leaf, columns in model.sections.positions.items():
        likelihood = model.likelihood_at(model.passing.schedule.place[leaf][0])
        flags[list(columns)] = isinstance(likelihood, kinds)
    return flags.to(model.scaling.scale.device)


def _pool_scales(model: VFG, residual: Tensor, counted: Tensor) -> Tensor:
    """log of each column's root mean square, relative to its likelihood's scale."""
    # Half a cell's weight for the average of all columns helps those with few cells.
    total, count = residual.square().sum(0), counted.sum(0)
    overall = total.sum() / count.sum().clamp(min=1.0)
    start = (total + 0.5 * overall + 1e-12) / (count + 0.5)
    base = likelihood_scales(model).double().log()
    return torch.where(count.sum() > 0, 0.5 * start.log() - base, 0.0)


def _fit_noise(model: VFG, spread: Calibration, trial: Trial) -> None:
    """Noise by the observed leaves: minimise Σ log σ + d²/2σ², convex in (a, B)."""
    _, residual, counted, features, _ = trial
    base = likelihood_scales(model).double().log()
    noise = _pool_scales(model, residual, counted).requires_grad_()
    weights = torch.zeros_like(spread.by_observed, dtype=torch.float64).requires_grad_()

    def score() -> Tensor:
        logarithm = base + noise + features @ weights.mT
        cost = logarithm + 0.5 * residual.square() * (-2.0 * logarithm).exp()
        return (counted * cost).sum() + 0.5 * weights.square().sum()

    _minimise(score, [noise, weights])
    _copy_into(spread, noise, spread.log_temperature, weights)


def _fit_joint(model: VFG, spread: Calibration, trial: Trial) -> None:
    """Temperature and noise: minimise Σ ½ log v + d²/2v with v = variance / τ + σ².

    A precision trained for the mean alone need not be calibrated. The noise then depends on what
    was observed as well, but only if that pays for its many weights (BIC).
    """
    _, residual, counted, features, _ = trial
    base = likelihood_scales(model).double()
    start = _pool_scales(model, residual, counted)
    noise = start.clone().requires_grad_()
    heat = torch.zeros((), dtype=torch.float64, device=noise.device).requires_grad_()
    weights = torch.zeros_like(spread.by_observed, dtype=torch.float64).requires_grad_()

    def score(decoded: Tensor, at: Tensor) -> Tensor:
        scale = base * (noise + features @ weights.mT).exp()
        variance = decoded * (at - heat).exp() + scale.square() + FLOOR**2
        cost = 0.5 * (variance.log() + residual.square() / variance)
        held = (noise - start).square().sum() + heat.square() + 10.0 * weights.square().sum()
        return (counted * cost).sum() + 0.05 * held

    for attempt in range(2):
        if attempt and heat.abs().item() < NEAR:
            break  # the variance of nonlinear edges is proportional to 1/τ only nearby, as here
        at = heat.detach().clone()
        with torch.no_grad():
            decoded = torch.cat([_variance(model, belief, at) for belief in trial.beliefs])
        simple = _minimise(lambda: score(decoded, at), [noise, heat])  # noqa: B023
    _copy_into(spread, noise, heat, weights)
    price = 0.5 * weights.numel() * math.log(max(float(counted.sum()), 1.0))
    if simple - _minimise(lambda: score(decoded, at), [noise, heat, weights]) > price:
        _copy_into(spread, noise, heat, weights)


def _fit_softness(model: VFG, spread: Calibration, trials: list[Trial], cells: Tensor) -> None:
    """Minimise the log score of discrete cells, whose logits are divided by a softness."""
    chosen = torch.arange(min(SOFTNESS_ROWS, len(cells)), device=cells.device)
    leaves = {block: model.likelihood_at(block) for block in model.sections.blocks}
    kinds = (BernoulliLikelihood, CategoricalLikelihood)
    discrete = {block: leaf for block, leaf in leaves.items() if isinstance(leaf, kinds)}
    if not discrete:
        return
    with torch.no_grad():
        temperature = spread.log_temperature.exp()
        beliefs = [trial.beliefs[0].select(chosen) for trial in trials]
        draws = [centred_states(model, belief, temperature)[0] for belief in beliefs]
    scored = [model.sections.split(trial.scored[chosen]) for trial in trials]
    data = model.sections.split(cells[chosen])
    log_softness = torch.zeros_like(spread.log_noise).requires_grad_()

    def score() -> Tensor:
        softness = model.sections.split(log_softness.exp().expand(len(chosen), -1))
        total = 0.5 * log_softness.square().sum()
        for states, counted in zip(draws, scored, strict=True):
            for block, leaf in discrete.items():
                expected = average_chances(leaf, states[block], softness[block])
                total = total - (_log_chance(expected, data[block]) * counted[block]).sum()
        return total

    _minimise(score, [log_softness])
    spread.log_softness.copy_(log_softness.detach())


def _log_chance(expected: Tensor, data: Tensor) -> Tensor:
    """log of the probabilities of data: of 0, 1 and what lies between, or of codes."""
    expected = expected.clamp(min=1e-6)
    if expected.shape[-1] != data.shape[-1]:
        return expected.gather(-1, data.long()).log()
    return data * expected.log() + (1.0 - data) * (1.0 - expected).clamp(min=1e-6).log()


def _fit_roots(spread: Calibration, belief: Belief) -> None:
    """Mean and covariance of the roots over the rows, the uncertainty about each included."""
    known = True
    for place, (block, state) in enumerate(belief.roots.items()):
        seen = state.observed.any(-1, keepdim=True).to(state.value)
        count = seen.sum(1).clamp(min=1.0)  # a root without evidence is known by none
        mean = (belief.backward[block] * seen).sum(1) / count
        left = (belief.backward[block] - mean[:, None]) * seen
        kept, extra = spread.get_buffer(f"root_factor{place}"), torch.zeros(()).to(mean)
        whole = kept.ndim > mean.ndim
        if state.precision is not None:
            factor = root_factor(state) * (-0.5 * spread.log_temperature).exp()
            if factor.ndim == left.ndim:
                factor = factor.diag_embed() if whole else factor[..., None]
            factor = factor * seen[..., None]
            one = "nrij,nrkj->nik" if whole else "nrij,nrij->ni"
            extra = torch.einsum(one, factor, factor)
        if whole:
            covariance = (left.mT @ left + extra) / count[..., None]
            ridge = 1e-6 * covariance.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True) + 1e-12
            covariance = covariance + ridge.expand_as(mean).diag_embed()
            kept.copy_(torch.linalg.cholesky_ex(covariance).L)
        else:
            kept.copy_(((left.square().sum(1) + extra) / count).sqrt())
        spread.get_buffer(f"root_mean{place}").copy_(mean)
        known = known and bool(kept.isfinite().all() & (count > 1).all())
    spread.knows_roots.fill_(known)


def _copy_into(spread: Calibration, noise: Tensor, heat: Tensor, weights: Tensor) -> None:
    spread.log_noise.copy_(noise.detach())
    spread.log_temperature.copy_(heat.detach())
    spread.by_observed.copy_(weights.detach())


def _variance(model: VFG, belief: Belief, log_temperature: Tensor) -> Tensor:
    """The variance of the decoded leaves in the model's units, `(rows, columns)`."""
    temperature = log_temperature.exp().to(belief.backward[0])
    rows = torch.arange(belief.converged.shape[1], device=belief.converged.device)
    variances = []
    for part in rows.split(ROWS_AT_ONCE):
        states = internal_states(model, belief.select(part), temperature)
        parts = {}
        for block, mean in belief.means.items():
            if isinstance(model.likelihood_at(block), GaussianLikelihood):
                parts[block] = states[block].var(0, correction=0)
            else:
                parts[block] = torch.zeros_like(mean.index_select(1, part))
        variances.append(model.sections.join(parts).double())
    return torch.cat(variances)


def _minimise(score: Callable[[], Tensor], parameters: list[Tensor]) -> float:
    """Minimise the score by L-BFGS and return its least value."""
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = score()
        value.backward()
        return value

    optimiser.step(closure)
    with torch.no_grad():
        return float(score())
