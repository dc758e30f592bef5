"""Maximum likelihood on incomplete rows: EM to start, gradients to finish, restarts."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vfg.flows import Rounding, of_kind, temporarily_set
from vfg.gaussian.em.e_step import active_steps, expectation
from vfg.gaussian.em.general import Chunk, Expected, chunks_of
from vfg.gaussian.em.initialisation import start_values
from vfg.gaussian.em.m_step import m_step
from vfg.gaussian.leaves import Adam, fit_maps, make_normal
from vfg.gaussian.parameters import Parameters, Values
from vfg.inference.propagation import evaluating
from vfg.inputs import ArrayLike, as_cells, scale_cells
from vfg.training.data import TrainingTable, draw_held_out
from vfg.utils.specs import check_choice

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

FIRST_ROWS = 8192
"""Rows that EM starts with in a larger table, which saves iterations over all rows."""
LEAF_ROWS = 4096
"""Rows from which the maps of leaves are initialised."""
SCORED = 5
"""Iterations of EM between two evaluations of the held-out cells."""
PATIENCE = 5
"""Evaluations without improvement after which EM stops."""
BATCH = 512
"""Rows per gradient step."""


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
    """Of some of the gradient steps, if EM was followed by any; the model has the best state."""
    runs: list[float] = field(default_factory=list)
    """The score of every run, on held-out cells if there are any."""
    held_out: float | None = None
    """Mean log-density of a held-out cell given the others, or of a row of the validation table;
    None if there are neither."""
    converged: bool = False
    """Whether EM stopped because it gained less than the tolerance."""

    def __repr__(self) -> str:
        every = self.log_likelihoods + self.steps
        gained = f"{every[0]:.6g} to {max(every):.6g}" if every else "nothing"
        end = "converged" if self.converged else "not converged"
        return f"LikelihoodHistory: {gained} in {len(every)} iterations, {end}"


@dataclass(frozen=True)
class GaussianSettings:
    """How a `vfg.GaussianVFG` is fitted.

    Args:
        iterations: largest number of iterations of EM (default 300). Raise it if the history says
            that EM has not converged.
        tolerance: EM stops when an iteration gains less than this per row, in nats (default 1e-5).
        restarts: number of runs of EM to choose from; None (default) means 1, or 3 for mixtures.
        finish: whether gradient steps follow EM: `"gradient"` or `"none"`. `"auto"` (default) takes
            them for splines, couplings, noise-free inner nodes and discrete leaves.
        steps: number of gradient steps (default 500).
        shrinkage: pseudo-rows that pull loadings to 0, noises to 1 and the covariances of
            mixed roots to their average. 0 (default) is maximum likelihood; raise it for few rows.
        negligible: EM skips components whose probability given a row is below this, and evaluates
            all of them every fifth iteration. 0 (default) skips none; 1e-3 or so is much faster
            with many components.
        validation: what chooses between runs, iterations and steps: a share of the cells,
            which are held out, or a table of other rows. 0 (default) takes the likelihood of the
            fitted rows, which overfits with many components.
        seed: of starts, held-out cells and batches (default 0).
        progress: whether to print the likelihood of every run (default False).

    Raises:
        ValueError: for invalid values.

    Example:
        >>> GaussianSettings(iterations=50).tolerance
        1e-05
    """

    iterations: int = 300
    tolerance: float = 1e-5
    restarts: int | None = None
    finish: str = "auto"
    steps: int = 500
    shrinkage: float = 0.0
    negligible: float = 0.0
    validation: Any = 0.0
    seed: int = 0
    progress: bool = False

    def __post_init__(self) -> None:
        check_choice("finish", self.finish, ("auto", "gradient", "none"))
        if (
            self.iterations < 1
            or self.steps < 0
            or (self.restarts is not None and self.restarts < 1)
        ):
            raise ValueError(
                f"fit needs iterations >= 1, restarts >= 1 and steps >= 0, but got "
                f"{self.iterations}, {self.restarts} and {self.steps}"
            )
        if not 0.0 <= self.negligible < 1.0:
            raise ValueError(f"negligible is a probability below 1, but got {self.negligible}")


@dataclass(frozen=True)
class Training:
    """Scaled cells, 0 where unobserved; which are used for fitting, and which are held out."""

    cells: Tensor
    seen: Tensor
    held: Tensor
    """Held-out cells, scored given those that are used for fitting."""
    other_rows: tuple[Tensor, Tensor] | None = None
    """Rows of a validation table: their cells, and which are observed."""
    weights: Tensor | None = None
    """How often every row counts; None for once."""

    @property
    def count(self) -> float:
        """How many rows there are, with their weights."""
        return len(self.cells) if self.weights is None else float(self.weights.sum())

    @property
    def has_validation(self) -> bool:
        """Whether anything is held out."""
        return self.other_rows is not None or bool(self.held.any())

    def rows(self, chosen: Tensor) -> Training:
        """Some of the rows, with the same validation rows."""
        own = None if self.weights is None else self.weights[chosen]
        table = self.cells[chosen], self.seen[chosen], self.held[chosen]
        return Training(*table, self.other_rows, own)

    def mean(self, scores: Tensor) -> Tensor:
        """The mean of numbers of rows `(rows,)`."""
        if self.weights is None:
            return scores.mean()
        return (self.weights * scores).sum() / self.weights.sum()


def training_of(
    model: GaussianVFG,
    cells: Tensor,
    seen: Tensor,
    validation: float | ArrayLike,
    seed: int,
    weights: Tensor | None = None,
) -> Training:
    """Split scaled cells into those for fitting and held-out ones, or add validation rows."""
    cells, held = cells.double(), torch.zeros_like(seen)
    if not isinstance(validation, int | float):
        other_rows = scale_cells(model, *as_cells(model, validation, None))
        return Training(cells, seen, held, other_rows, weights)
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"validation is a share from 0 up to 1, but got {validation}")
    if validation > 0.0:
        held = draw_held_out(model, TrainingTable(cells, seen, None), validation, seed)
    return Training(cells, seen & ~held, held, weights=weights)


def fit_exact(model: GaussianVFG, data: Training, plan: GaussianSettings) -> LikelihoodHistory:
    """Fit a model whose table has been scaled; `GaussianVFG.fit` checks everything first."""
    noise = torch.Generator().manual_seed(plan.seed) if data.cells.device.type == "cpu" else None
    with temporarily_set(of_kind(model, Rounding), "generator", noise):  # of dropout
        return _fit_exact(model, data, plan)


def _fit_exact(model: GaussianVFG, data: Training, plan: GaussianSettings) -> LikelihoodHistory:
    generator = torch.Generator().manual_seed(plan.seed)
    if not model.leaves.is_identity:
        chosen = torch.randperm(len(data.cells), generator=generator)[:LEAF_ROWS]
        some = data.rows(chosen.to(data.cells.device))
        make_normal(model, some.cells, some.seen, some.weights)
    histories: list[tuple[float, LikelihoodHistory, Values]] = []
    for run in range(plan.restarts or 1):
        history, values = _run(model, data, plan, run)
        model.linear.assign(values)
        # A single run has nothing to be compared with, and the last iteration had its values.
        known = plan.restarts == 1 and not data.has_validation and not model.codes.units
        score = history.log_likelihoods[-1] if known else _score(model, data)
        histories.append((score, history, values))
        _report(plan, f"run {run + 1}/{plan.restarts}: {histories[-1][0]:.5g}")
    _, history, values = max(histories, key=lambda entry: entry[0])
    model.linear.assign(values)
    history.runs = [entry[0] for entry in histories]
    if plan.steps:
        # Where the maps of the leaves are all that EM does not fit, EM goes on beside them.
        stiff = model.structure.is_stiff
        only_maps = not (model.leaves.is_identity or stiff or model.codes.units)
        finish = _fit_leaf_maps if only_maps else _run_gradient_steps
        finish(model, data, plan, history, generator)
    history.held_out = _held_out_score(model, data) if data.has_validation else None
    return history


def run_em(
    parameters: Parameters,
    values: Values,
    chunks: list[Chunk],
    plan: GaussianSettings,
    score: Callable[[Values], float] | None = None,
) -> tuple[Values, list[float], bool]:
    """Run EM until an iteration gains less than the tolerance per row, or until scores fall.

    With shrinkage a change of either sign counts as gain. Without a score the last values are
    taken. Returns the values, the mean log-likelihood per row of the leaves before every M-step and
    at the end, and whether it converged.
    """
    rows = sum(chunk.number for chunk in chunks)
    expect: Callable[[Values], Expected] = expectation(parameters, chunks)
    if plan.negligible > 0.0 and len(parameters.log_weights) > 1:
        expect = active_steps(parameters, chunks, plan.negligible)
    trace: list[float] = []
    chosen = _BestValues(score, values)
    for iteration in range(plan.iterations):
        if iteration % SCORED == 0 and not chosen.improves(values):
            return chosen.values, trace, True
        expected = expect(values)
        trace.append(float(expected.log_likelihood) / rows)
        if len(trace) > 1:
            gain = trace[-1] - trace[-2]
            if (abs(gain) if plan.shrinkage else gain) < plan.tolerance:
                return chosen.among(values), trace, True
        values = m_step(parameters, values, expected, plan.shrinkage)
    return chosen.among(values), [*trace, float(expect(values).log_likelihood) / rows], False


@dataclass
class _BestValues:
    """The best values so far, if there is a score to judge them by."""

    score: Callable[[Values], float] | None
    values: Values
    best: float = -math.inf
    waited: int = 0

    def improves(self, values: Values) -> bool:
        """Score some values; False after `PATIENCE` scores without improvement."""
        reached = 0.0 if self.score is None else self.score(values)
        if self.score is None or reached > self.best:
            self.best, self.values, self.waited = reached, values, 0
        else:
            self.waited += 1
        return self.waited < PATIENCE

    def among(self, values: Values) -> Values:
        """The best of those seen and the last ones."""
        self.improves(values)
        return self.values


def _run(
    model: GaussianVFG, data: Training, plan: GaussianSettings, run: int
) -> tuple[LikelihoodHistory, Values]:
    """One run of EM from its own start: on some rows first if there are many."""
    generator = torch.Generator().manual_seed(plan.seed + 7919 * run)
    with evaluating(model):
        leaves, seen, log_slopes = model.encode(data.cells, data.seen)
        values = start_values(model.linear, leaves, seen, generator, data.weights)
        rows = len(leaves)
        if rows > 2 * FIRST_ROWS:
            some = torch.randperm(rows, generator=generator)[:FIRST_ROWS].to(leaves.device)
            own = None if data.weights is None else data.weights[some]
            first = chunks_of(model.structure, model.components, leaves[some], seen[some], own)
            values = _run_em(model, values, first, data, plan)[0]
        chunks = chunks_of(model.structure, model.components, leaves, seen, data.weights)
        values, trace, converged = _run_em(model, values, chunks, data, plan)
        extra = float(data.mean(log_slopes.sum(1) - model.log_volumes(data.seen))) if rows else 0.0
    return LikelihoodHistory([x + extra for x in trace], converged=converged), values


def _run_em(
    model: GaussianVFG, values: Values, chunks: list[Chunk], data: Training, plan: GaussianSettings
) -> tuple[Values, list[float], bool]:
    def score(values: Values) -> float:
        model.linear.assign(values)
        return _held_out_score(model, data)

    return run_em(model.linear, values, chunks, plan, score if data.has_validation else None)


def _fit_leaf_maps(
    model: GaussianVFG,
    data: Training,
    plan: GaussianSettings,
    history: LikelihoodHistory,
    generator: torch.Generator,
) -> None:
    """Fit the maps with everything else; if there are many rows on some, then EM on all."""
    some, rows = data, len(data.cells)
    if rows > 2 * FIRST_ROWS:
        chosen = torch.randperm(rows, generator=generator)[:FIRST_ROWS]
        some = data.rows(chosen.to(data.cells.device))
    history.steps += fit_maps(
        model,
        some.cells,
        some.seen,
        some.weights,
        steps=plan.steps,
        tolerance=plan.tolerance,
        shrinkage=plan.shrinkage,
        score=(lambda: _held_out_score(model, some)) if some.has_validation else None,
    )
    if some is not data:
        with evaluating(model):
            leaves, seen, _ = model.encode(data.cells, data.seen)
            chunks = chunks_of(model.structure, model.components, leaves, seen, data.weights)
            model.linear.assign(_run_em(model, model.linear.values(), chunks, data, plan)[0])
    history.steps.append(_mean_log_prob(model, data))


def _run_gradient_steps(
    model: GaussianVFG,
    data: Training,
    plan: GaussianSettings,
    history: LikelihoodHistory,
    generator: torch.Generator,
) -> None:
    """Gradient steps on all parameters; the model keeps its best state."""
    optimiser = Adam(model.parameters())
    best, state = _score(model, data), copy.deepcopy(model.state_dict())
    history.steps.append(_mean_log_prob(model, data))
    for step in range(1, plan.steps + 1):
        rows = torch.randint(len(data.cells), (BATCH,), generator=generator)
        some = data.rows(rows.to(data.cells.device))
        # Weights multiply the loss of a row; their mean over the table is taken out.
        scores = model.score(some.cells, some.seen)
        if some.weights is not None and data.weights is not None:
            scores = scores * some.weights / data.weights.mean()
        loss = model.codes.penalty() / data.count - scores.mean()
        loss.backward()
        if bool(loss.isfinite()):
            optimiser.step(1e-2 * math.cos(0.5 * math.pi * (step - 1) / plan.steps) ** 2)
        if step % 50 == 0 or step == plan.steps:
            history.steps.append(_mean_log_prob(model, data))
            score = _score(model, data)
            _report(plan, f"step {step}/{plan.steps}: {score:.5g}")
            if score > best:
                best, state = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(state)


def _score(model: GaussianVFG, data: Training) -> float:
    """The score that selects states: of held-out cells if there are any, else the likelihood."""
    return _held_out_score(model, data) if data.has_validation else _mean_log_prob(model, data)


def _mean_log_prob(model: GaussianVFG, data: Training) -> float:
    return float(data.mean(model.scores(data.cells, data.seen)))


def _held_out_score(model: GaussianVFG, data: Training) -> float:
    """Mean log-density of validation rows, or of held-out cells given the fitted ones."""
    if data.other_rows is not None:
        return float(model.scores(*data.other_rows).mean())
    result = model.scores(data.cells, data.seen | data.held, data.seen)
    if data.weights is None:
        return float(result.sum() / data.held.sum())
    return float((data.weights * result).sum() / (data.weights @ data.held.double()).sum())


def _report(plan: GaussianSettings, words: str) -> None:
    if plan.progress:
        print(words, flush=True)
