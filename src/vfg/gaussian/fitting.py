"""Maximum likelihood on incomplete rows: EM to start, gradients to finish, restarts."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.gaussian.em import Chunk, chunks_of, e_step, m_step
from vfg.gaussian.parameters import Parameters, Values
from vfg.gaussian.starting import start_values
from vfg.inference.propagation import evaluating

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

FIRST_ROWS = 8192
"""How many rows of a larger table EM starts with."""
LEAF_ROWS = 4096
LEAF_STEPS = 150
BATCH = 512


@dataclass
class LikelihoodHistory:
    """Log-likelihoods per row, in data units, while a model was fitted.

    Example:
        >>> LikelihoodHistory(log_likelihoods=[-3.0, -2.5], converged=True)
        LikelihoodHistory: -3 to -2.5 in 2 iterations, converged
    """

    log_likelihoods: list[float] = field(default_factory=list)
    """After every iteration of EM over all rows, of the best run."""
    steps: list[float] = field(default_factory=list)
    """From time to time while gradients finished it; the model has the best state."""
    runs: list[float] = field(default_factory=list)
    """What every run reached: on held-out cells if there were any."""
    held_out: float | None = None
    """Mean log-density of a held-out cell given the others; None without held-out cells."""
    converged: bool = False
    """Whether EM stopped because it gained less than the tolerance."""

    def __repr__(self) -> str:
        every = self.log_likelihoods + self.steps
        gained = f"{every[0]:.6g} to {max(every):.6g}" if every else "nothing"
        end = "converged" if self.converged else "not converged"
        return f"LikelihoodHistory: {gained} in {len(every)} iterations, {end}"


@dataclass(frozen=True)
class Plan:
    """How to fit; see `GaussianVFG.fit`."""

    iterations: int
    tolerance: float
    restarts: int
    steps: int
    shrinkage: float
    seed: int
    progress: bool


@dataclass(frozen=True)
class Training:
    """Scaled cells, 0 where unobserved; what to learn from; what is held out."""

    cells: Tensor
    seen: Tensor
    held: Tensor

    def rows(self, chosen: Tensor) -> Training:
        """Some of the rows."""
        return Training(self.cells[chosen], self.seen[chosen], self.held[chosen])


def fit_exact(model: GaussianVFG, data: Training, plan: Plan) -> LikelihoodHistory:
    """Fit a model whose table has been scaled; `GaussianVFG.fit` checks everything first."""
    generator = torch.Generator().manual_seed(plan.seed)
    if not model.leaves.is_identity:
        _fit_leaves(model, data, generator)
    histories: list[tuple[float, LikelihoodHistory, Values]] = []
    for run in range(plan.restarts):
        history, values = _run(model, data, plan, run)
        model.linear.assign(values)
        histories.append((_score(model, data), history, values))
        _say(plan, f"run {run + 1}/{plan.restarts}: {histories[-1][0]:.5g}")
    _, history, values = max(histories, key=lambda found: found[0])
    model.linear.assign(values)
    history.runs = [found[0] for found in histories]
    if plan.steps:
        _finish(model, data, plan, history, generator)
    history.held_out = _held_out(model, data) if bool(data.held.any()) else None
    return history


def ascend(
    parameters: Parameters,
    values: Values,
    chunks: list[Chunk],
    *,
    iterations: int,
    tolerance: float,
    shrinkage: float = 0.0,
) -> tuple[Values, list[float], bool]:
    """EM until an iteration gains less than `tolerance` per row.

    Returns:
        The values, the mean log-likelihood per row of the leaves before every M-step and at the
        end, and whether it converged.
    """
    rows = sum(len(chunk.values) for chunk in chunks)
    trace: list[float] = []
    for _ in range(iterations):
        expected = e_step(parameters.structure, values, chunks)
        trace.append(float(expected.log_likelihood) / rows)
        if len(trace) > 1 and trace[-1] - trace[-2] < tolerance:
            return values, trace, True
        values = m_step(parameters, values, expected, shrinkage)
    final = e_step(parameters.structure, values, chunks)
    return values, [*trace, float(final.log_likelihood) / rows], False


def _run(
    model: GaussianVFG, data: Training, plan: Plan, run: int
) -> tuple[LikelihoodHistory, Values]:
    """One run of EM from its own start: on some rows first if there are many."""
    generator = torch.Generator().manual_seed(plan.seed + 7919 * run)
    with evaluating(model):
        leaves, log_slopes = model.leaves(data.cells.double(), data.seen)
        parameters = model.linear
        values = start_values(parameters, leaves, data.seen, generator)
        rows = len(leaves)
        if rows > 2 * FIRST_ROWS:
            some = torch.randperm(rows, generator=generator)[:FIRST_ROWS].to(leaves.device)
            first = chunks_of(model.structure, model.components, leaves[some], data.seen[some])
            values = _ascend(parameters, values, first, plan)[0]
        chunks = chunks_of(model.structure, model.components, leaves, data.seen)
        values, trace, converged = _ascend(parameters, values, chunks, plan)
        extra = float(log_slopes.sum() - model.log_volumes(data.seen).sum()) / max(rows, 1)
    return LikelihoodHistory([x + extra for x in trace], converged=converged), values


def _ascend(
    parameters: Parameters, values: Values, chunks: list[Chunk], plan: Plan
) -> tuple[Values, list[float], bool]:
    return ascend(
        parameters,
        values,
        chunks,
        iterations=plan.iterations,
        tolerance=plan.tolerance,
        shrinkage=plan.shrinkage,
    )


def _fit_leaves(model: GaussianVFG, data: Training, generator: torch.Generator) -> None:
    """Make every leaf on its own as Normal as its map can."""
    rows = torch.randperm(len(data.cells), generator=generator)[:LEAF_ROWS].to(data.cells.device)
    some = data.rows(rows)
    optimiser = torch.optim.Adam(model.leaves.parameters(), lr=0.03)
    for _ in range(LEAF_STEPS):
        values, log_slopes = model.leaves(some.cells.double(), some.seen)
        loss = (0.5 * values.square() * some.seen - log_slopes).sum() / some.seen.sum().clamp(min=1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def _finish(
    model: GaussianVFG,
    data: Training,
    plan: Plan,
    history: LikelihoodHistory,
    generator: torch.Generator,
) -> None:
    """Gradient steps on all parameters; the model keeps its best state."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, plan.steps, eta_min=1e-4)
    best, state = _score(model, data), copy.deepcopy(model.state_dict())
    history.steps.append(_mean_log_prob(model, data))
    for step in range(1, plan.steps + 1):
        rows = torch.randint(len(data.cells), (BATCH,), generator=generator)
        some = data.rows(rows.to(data.cells.device))
        loss = -model.score(some.cells, some.seen).mean()
        optimiser.zero_grad()
        loss.backward()
        if bool(loss.isfinite()):
            optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == plan.steps:
            history.steps.append(_mean_log_prob(model, data))
            score = _score(model, data)
            _say(plan, f"step {step}/{plan.steps}: {score:.5g}")
            if score > best:
                best, state = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(state)


def _score(model: GaussianVFG, data: Training) -> float:
    """What decides between states: held-out cells if there are any, else the likelihood."""
    return _held_out(model, data) if bool(data.held.any()) else _mean_log_prob(model, data)


def _mean_log_prob(model: GaussianVFG, data: Training) -> float:
    return float(model.scores(data.cells, data.seen).mean())


def _held_out(model: GaussianVFG, data: Training) -> float:
    """Mean log-density of a held-out cell given the cells that were learned from."""
    whole = model.scores(data.cells, data.seen | data.held)
    return float((whole - model.scores(data.cells, data.seen)).sum() / data.held.sum())


def _say(plan: Plan, words: str) -> None:
    if plan.progress:
        print(words, flush=True)
