r"""Gaussian process regressions of the columns of numbers, which move what trees and parts predict.

Column t has a regression on the d - 1 others, whose missing entries are filled. With rates $\rho$
its covariance is

$$k(x, x') = s^2 \left(1 + r + \tfrac13 r^2\right) e^{-r} + l^2 \frac{x \cdot x'}{d} + c, \qquad
r^2 = 5 \sum_{j \neq t} \rho_j^2 (x_j - x'_j)^2.$$

The noise of a fitted row is $\sigma^2 + \tau^2 m$, where m is the share of its cells that are
missing: what is filled may be wrong. All these minimise the logarithmic scores of some rows, each
predicted from the others. A regression on more rows then predicts cells, as in [1].

With the inverse K of the covariance of the fitted rows and $\alpha = K y$, row i is left out by
$\alpha - K_{\cdot i} \alpha_i / K_{ii}$. So held-out cells are predicted without their own row,
whatever else of it is hidden, and a weight for every column is fitted to them, as for trees.

[1] Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vfg.imputation.plan import ProcessPlan
from vfg.imputation.resources import Turn
from vfg.imputation.trees import HeldOutRows, weigh_steps
from vfg.utils.cached import CachedModule

CONSTANT = 0.01
"""The variance c of constants, in squared deviations: columns have mean 0, nearly."""
LEAST_NOISE = 1e-4
"""The least variance of noise, which keeps systems of equations well conditioned."""
START_LENGTH, START_SIZES = 2.0, (0.7, 0.3, 0.1, 0.3)
"""Where scales begin: the length for four columns, and s, l, sigma and tau."""
RATE, MOMENTS = 0.12, (0.9, 0.99)
"""Rate and averages of the steps for the logarithms of scales."""
FURTHEST = 5.0
"""How far logarithms of scales may lie from 0."""
LENGTH_PRIOR, USUAL_LENGTH = 0.005, math.log(2.0)
"""Weight of the squared distance of logarithms of lengths from the usual one, in nats per row."""
CLIP = 6.0
"""Deviations at which fitted cells are clipped, as in `stacking`."""
FEWEST_CELLS = 40
"""Known cells of a column below which it has no regression."""
WEIGHT, WEIGHT_PRIOR, COLUMN_PRIOR = 0.3, 30.0, 20.0
"""Prior weight of regressions, and its weight in the common one and that of the common one in a
column's, in cells whose predictions differ by a deviation."""
STEP = 1.5
"""How many times further than at held-out cells regressions may move a mean, as trees."""
FEWEST_STEPS = 20
"""Held-out cells below which a column takes the largest step of all columns. With 100, as for
trees, squared errors of the glass table were 2 % larger."""
CHUNK = 2**16
"""Pairs of rows that are compared together: they should fit into the cache of a CPU."""
SQUARES = 1e-12, 1e3
"""Bounds of squared distances. Roots have no slope at 0; beyond the second, covariances are below
1e-26 of those of equal rows and soon numbers with which CPUs are slow."""
LEAST_STEPS = 4
"""Steps for scales at least where time is limited."""
FITTING_SHARE = 0.9
"""The share of limited time for fitting regressions; the rest is for weighing them."""


class GaussianProcesses(CachedModule):
    """Gaussian process regressions of some columns on the filled others.

    Args:
        rows: that columns are fitted to.
        columns: of the matrix.
    """

    inputs: Tensor
    rates: Tensor
    sizes: Tensor
    coefficients: Tensor
    weights: Tensor
    limits: Tensor

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        double = torch.float64
        self.register_buffer("inputs", torch.zeros(rows, columns, dtype=torch.float32))
        # Inverse lengths by target and column, 0 for the target itself; then s and l.
        self.register_buffer("rates", torch.zeros(columns, columns, dtype=double))
        self.register_buffer("sizes", torch.zeros(columns, 2, dtype=double))
        # 0 for rows in which the target is missing.
        self.register_buffer("coefficients", torch.zeros(columns, rows, dtype=double))
        self.register_buffer("weights", torch.zeros(columns, dtype=double))
        self.register_buffer("limits", torch.zeros(columns, dtype=double))

    def _apply(self, fn: Any, recurse: bool = True) -> GaussianProcesses:
        """Move to another device, but not to another dtype."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)

    @property
    def targets(self) -> list[int]:
        """The columns that have a regression with a weight."""
        found: list[int] = (self.weights > 0.0).nonzero()[:, 0].tolist()
        return found

    def covariance(self, target: int, rows: Tensor) -> Tensor:
        """The covariance of filled rows with the fitted ones, `(rows, fitted rows)`."""
        one, two = rows.double(), self.inputs.double()
        return _covariance(one, two, self.rates[target], self.sizes[target], target, single=True)

    def predict(self, target: int, rows: Tensor) -> Tensor:
        """What filled rows are expected to have in a column."""
        found = [
            self.covariance(target, own) @ self.coefficients[target]
            for own in rows.split(max(1, CHUNK // max(len(self.inputs), 1)))
        ]
        # Sums depend on the number of rows in the last bits.
        return torch.cat(found).float().double() if found else rows.new_zeros(0).double()

    def move(self, means: Tensor, observed: Tensor) -> Tensor:
        """Filled rows `(rows, columns)`, their missing entries moved towards what is expected."""
        moved, trust = means.clone(), trust_in_rows(observed)
        for target in self.targets:
            rows = (~observed[:, target]).nonzero()[:, 0]
            if len(rows):
                step = self.predict(target, means[rows]) - means[rows, target]
                moved[rows, target] += self.weigh(target, trust[rows], step)
        return moved

    def weigh(self, target: int, trust: Tensor, step: Tensor) -> Tensor:
        """Steps towards what is expected, as far as the weight and the trust in rows let them."""
        limit = self.limits[target]
        return (self.weights[target] * trust).clamp(max=1.0) * step.clamp(-limit, limit)

    def to_dict(self) -> dict[str, int]:
        """Everything but tensors, ready for JSON."""
        return {"rows": len(self.inputs), "columns": len(self.weights)}

    @classmethod
    def from_dict(cls, description: Mapping[str, int]) -> GaussianProcesses:
        """New regressions with the configuration that `to_dict` returned."""
        return cls(description["rows"], description["columns"])


def trust_in_rows(observed: Tensor) -> Tensor:
    """The share of the other columns that is known where one is missing, `(rows,)`.

    Example:
        >>> trust_in_rows(torch.tensor([[True, True, False], [True, False, False]])).tolist()
        [1.0, 0.5]
    """
    return (observed.double().sum(1) / max(observed.shape[1] - 1, 1)).clamp(max=1.0)


@dataclass(frozen=True)
class LeftOut:
    """What regressions predict of the rows that they were fitted to, each without itself."""

    processes: GaussianProcesses
    places: Tensor  # of the rows of the table among the fitted ones, -1 for none
    inverses: dict[int, Tensor]  # of the covariance of the fitted rows, by target

    def predict(self, target: int, rows: Tensor, ids: Tensor) -> Tensor:
        """As `GaussianProcesses.predict` for rows of the table by their number."""
        covariance = self.processes.covariance(target, rows)
        found, own = covariance @ self.processes.coefficients[target], self.places[ids]
        fitted = (own >= 0).nonzero()[:, 0]
        inverse, own = self.inverses[target], own[fitted]
        diagonal = inverse.diagonal()[own].double()
        fitted, own = fitted[diagonal > 0.0], own[diagonal > 0.0]  # the others have no such cell
        pulls = (covariance[fitted] * inverse[:, own].T.double()).sum(1)
        shares = self.processes.coefficients[target, own] / diagonal[diagonal > 0.0]
        found[fitted] -= pulls * shares
        return found

    def steps(self, target: int, one: HeldOutRows) -> tuple[Tensor, Tensor]:
        """Rows with held-out cells of a column, and how far regressions lie from their means."""
        rows = (one.counted[:, target] > 0).nonzero()[:, 0]
        filled = torch.where(one.shown, one.values, one.means)[rows]
        return rows, self.predict(target, filled, one.ids[rows]) - one.means[rows, target]

    def move(self, one: HeldOutRows) -> HeldOutRows:
        """Held-out rows whose means are moved by regressions that did not see them."""
        means, trust = one.means.clone(), trust_in_rows(one.shown)
        for target in self.processes.targets:
            rows, step = self.steps(target, one)
            means[rows, target] += self.processes.weigh(target, trust[rows], step)
        return replace(one, means=means)


def choose_rows(copies: Tensor, most: int, seed: int) -> Tensor:
    """Random rows for regressions, in order; of copies, to which `copies` gives the same, one."""
    first = (copies == torch.arange(len(copies))).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(seed)
    return first[torch.randperm(len(first), generator=generator)[:most]].sort().values


@torch.no_grad()
def fit_processes(
    rows: Tensor,
    matrix: tuple[Tensor, Tensor, Tensor],
    copies: Tensor,
    targets: Sequence[int],
    plan: ProcessPlan,
    seed: int,
    weights: Tensor | None = None,
    turn: Turn | None = None,
    held_out: Tensor | None = None,
) -> LeftOut | None:
    """Fit regressions of some columns, which have no weights yet; None without any.

    Columns whose regression would not end within the `turn` have none.

    Args:
        rows: the chosen rows of the table.
        matrix: their values, which of these are observed, and the values with the missing ones
            filled. Filled as if the target were missing, too, they had larger errors on two tables
            for tuning.
        copies: for every row of the table the first that it is a copy of.
        targets: columns of numbers.
        plan: the size.
        seed: of the rows that scales are fitted to.
        weights: how often the chosen rows count.
        turn: the time; None for no limit.
        held_out: cells at which regressions will be weighed. Scales are not fitted to them.
    """
    turn = turn or Turn()
    own_turn = turn.first(FITTING_SHARE)
    values, known, filled = matrix
    kept = [target for target in targets if int(known[:, target].sum()) >= FEWEST_CELLS]
    if not kept or values.shape[1] < 2:
        return None
    model = GaussianProcesses(*values.shape)
    model.inputs.copy_(filled)
    places = torch.full((len(copies),), -1)
    places[rows] = torch.arange(len(rows))
    truth, missing = values.clamp(-CLIP, CLIP).double(), (~known).double().mean(1)
    often = torch.ones(len(rows)) if weights is None else weights
    inverses: dict[int, Tensor] = {}
    generator = torch.Generator().manual_seed(seed)
    steps = plan.steps
    for target in kept:
        if not own_turn.has_time_for_another(len(inverses)):
            break
        steps = _steps_in_time(plan.steps, steps, len(inverses), len(kept), own_turn)
        there = known[:, target].nonzero()[:, 0]
        fitted = model.inputs[there].double(), truth[there, target]
        spread = missing[there], often[there].double().clamp(min=1e-6)
        some = torch.randperm(len(there), generator=generator)
        if held_out is not None:
            unseen = some[~held_out[there[some], target]]
            some = unseen if len(unseen) >= FEWEST_STEPS else some
        some = some[: plan.fitted]
        inputs, own, lacking, often_there = (part[some] for part in (*fitted, *spread))
        logs = _fit_scales(target, inputs, own, lacking, often_there, steps)
        model.rates[target], model.sizes[target] = _rates(logs, target), _sizes(logs)
        covariance = _covariance(
            fitted[0], fitted[0], model.rates[target], model.sizes[target], target
        )
        covariance.diagonal().add_(_noise(logs, *spread))
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        model.coefficients[target, there] = inverse @ fitted[1]
        whole = torch.zeros(len(rows), len(rows), dtype=torch.float32)
        whole[there[:, None], there] = inverse.float()
        inverses[target] = whole
        turn.show(len(inverses) / len(kept))
    if not inverses:
        turn.give_up()
        return None
    return LeftOut(model, places[copies], inverses)


def _steps_in_time(most: int, steps: int, done: int, targets: int, turn: Turn) -> int:
    """Steps for the scales of the next regression, fewer where all would take too long.

    The last regression took so many `steps`.
    """
    if not turn.is_limited or not done:
        return most
    affordable = turn.left * done / max(turn.spent, 1e-9) / (targets - done)
    return min(most, max(LEAST_STEPS, int(steps * affordable)))


def weigh_processes(left_out: LeftOut, held_out: Sequence[HeldOutRows]) -> list[HeldOutRows]:
    """Fit the weights of regressions to held-out cells; these, with their means moved."""
    model, columns = left_out.processes, len(left_out.processes.weights)
    products, squares, errors, cells, largest = torch.zeros(5, columns, dtype=torch.float64)
    for one in held_out:
        trust = trust_in_rows(one.shown)
        for target in left_out.inverses:
            rows, step = left_out.steps(target, one)
            often, own = one.counted[rows, target], trust[rows] * step
            left = one.values[rows, target] - one.means[rows, target]
            products[target] += (often * own * left).sum()
            squares[target] += (often * own.square()).sum()
            errors[target] += (often * left.square()).sum()
            cells[target] += len(rows)
            if len(rows):
                largest[target] = torch.maximum(largest[target], step.abs().max())
    weights = weigh_steps((products, squares, errors), cells, (WEIGHT, WEIGHT_PRIOR, COLUMN_PRIOR))
    there = torch.zeros(columns, dtype=torch.bool)
    there[list(left_out.inverses)] = True
    model.weights.copy_(weights * there)
    largest = torch.where(cells >= FEWEST_STEPS, largest, largest.max())
    model.limits.copy_(STEP * largest)
    return [left_out.move(one) for one in held_out]


def _fit_scales(
    target: int, inputs: Tensor, truth: Tensor, missing: Tensor, often: Tensor, steps: int
) -> Tensor:
    """Logarithms of scales: lengths of all columns, then s, l, sigma and tau; by steps of Adam."""
    columns, (slow, slower) = inputs.shape[1], MOMENTS
    length = math.log(START_LENGTH * math.sqrt(columns / 4.0) + 0.5)
    logs = inputs.new_tensor([length] * columns + [math.log(size) for size in START_SIZES])
    mean, square = torch.zeros_like(logs), torch.zeros_like(logs)
    for step in range(1, steps + 1):
        gradient = _score_gradient(target, inputs, truth, missing, often, logs)
        mean = slow * mean + (1.0 - slow) * gradient
        square = slower * square + (1.0 - slower) * gradient.square()
        size = (square / (1.0 - slower**step)).sqrt() + 1e-9
        logs = (logs - RATE * mean / (1.0 - slow**step) / size).clamp(-FURTHEST, FURTHEST)
    return logs


@torch.enable_grad()
def _score_gradient(
    target: int,
    inputs: Tensor,
    truth: Tensor,
    missing: Tensor,
    often: Tensor,
    logs: Tensor,
) -> Tensor:
    """The gradient of the mean logarithmic score of rows, each predicted from the others."""
    logs, columns = logs.detach().requires_grad_(), inputs.shape[1]
    covariance = _covariance(inputs, inputs, _rates(logs, target), _sizes(logs), target)
    covariance = covariance + _noise(logs, missing, often).diag()
    with torch.no_grad():
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        pulls, diagonal = inverse @ truth, inverse.diagonal()
        share = often / often.sum()
        by_pull = share * pulls / diagonal
        by_diagonal = -0.5 * share * (1.0 / diagonal + (pulls / diagonal).square())
        slopes = (inverse * by_diagonal) @ inverse + torch.outer(inverse @ by_pull, pulls)
    prior = LENGTH_PRIOR * (logs[:columns] - USUAL_LENGTH).square().mean()
    (gradient,) = torch.autograd.grad(prior - (covariance * slopes).sum(), logs)
    return gradient


def _rates(logs: Tensor, target: int) -> Tensor:
    others = torch.ones_like(logs[:-4])
    others[target] = 0.0
    return (-logs[:-4]).exp() * others


def _sizes(logs: Tensor) -> Tensor:
    return logs[-4:-2].exp()


def _noise(logs: Tensor, missing: Tensor, often: Tensor) -> Tensor:
    sigma, tau = (2.0 * logs[-2:]).exp()
    noise: Tensor = (sigma + tau * missing + LEAST_NOISE) / often
    return noise


def _covariance(
    one: Tensor, two: Tensor, rates: Tensor, sizes: Tensor, target: int, *, single: bool = False
) -> Tensor:
    """The covariance of two sets of rows, whose column of the target is not read.

    With `single` precision of the exponentials, which take most of the time of filling.
    """
    size, slope = sizes.square()
    left, right = one * rates, two * rates
    squares = left.square().sum(1)[:, None] + right.square().sum(1) - 2.0 * left @ right.T
    dtype = torch.float32 if single else one.dtype
    r = (5.0 * squares.clamp(*SQUARES).to(dtype)).sqrt()
    others = torch.ones_like(rates)
    others[target] = 0.0
    line = (one * others) @ two.T / max(one.shape[1] - 1, 1)
    near: Tensor = size * (1.0 + r + r.square() / 3.0) * (-r).exp()
    found: Tensor = near + slope * line + CONSTANT
    return found
