"""The invertible maps g between table columns and the leaves of the factor model, and their fit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vfg.flows import Coupling, Flow, FlowSpec, MonotoneSpline, Spline, bounded_bins
from vfg.gaussian.em.general import Chunk, chunks_of, e_step_with_pulls, mask_order
from vfg.gaussian.em.m_step import m_step
from vfg.gaussian.parameters import Values
from vfg.utils.specs import check_choice

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

POINTS = 256
"""Quantiles that represent a column in the initial fit of its map."""
NORMAL_STEPS = 60
"""Gradient steps of the initial fit."""
RATE = 0.1
"""The initial learning rate."""
PATIENCE = 10
"""Steps between two scores; the rate is halved if the score has hardly grown."""
LEAST_RATE = 0.01
"""The learning rate below which fitting stops."""
STIFFNESS = 8.0
"""Precision of the prior of a map's raw numbers, which keeps maps from being steep in tails."""
SLOW = 10
"""Gain below which a step counts as none, in tolerances of EM: maps improve slowly for long."""


def leaf_spec(leaf: str | FlowSpec) -> FlowSpec | None:
    """The spec of a map from its name; None for the identity.

    Example:
        >>> leaf_spec("affine") is None, leaf_spec("spline") == Spline()
        (True, True)
    """
    if isinstance(leaf, str):
        check_choice("leaf", leaf, ("affine", "spline"))
        return None if leaf == "affine" else Spline()
    if not isinstance(leaf, Coupling | Spline) or getattr(leaf, "decreasing", False):
        raise ValueError(
            f"leaf must be 'affine', 'spline', an increasing vfg.Spline or a vfg.Coupling, but "
            f"got {leaf!r}"
        )
    return leaf


class Leaves(nn.Module):
    """u = g(x), by column or by section, in the units of the scaled table.

    Columns that belong to no leaf here, discrete ones, stay as they are. Without a spec g is the
    identity, where location and scale do the rest.

    Example:
        >>> leaves = Leaves({"a": (0,), "b": (1,)}, Spline(), torch.Generator())
        >>> values, log_slopes = leaves(torch.zeros(3, 2), torch.ones(3, 2).bool())
        >>> values.shape, log_slopes.shape
        (torch.Size([3, 2]), torch.Size([3, 2]))
    """

    def __init__(
        self,
        positions: Mapping[str, tuple[int, ...]],
        spec: FlowSpec | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.positions = dict(positions)
        self.is_identity = spec is None or not self.positions
        self.is_elementwise = self.is_identity or isinstance(spec, Spline)
        self.stacks: dict[str, list[tuple[int, ...]]] = {}
        self.flows = nn.ModuleDict()
        if spec is not None and not self.is_identity:
            # What g maps at a time: single columns or whole sections.
            every = [(column,) for column in sorted(sum(self.positions.values(), ()))]
            for columns in every if self.is_elementwise else self.positions.values():
                self.stacks.setdefault(f"width{len(columns)}", []).append(columns)
            for name, units in self.stacks.items():
                self.flows[name] = spec.build(len(units), len(units[0]), generator=generator)

    def forward(self, cells: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """u of scaled cells, finite everywhere, and log |dg/dx| of observed ones by column.

        Of a section that is mapped as a whole the log-determinant stands at the first column.
        """
        if self.is_identity:
            return cells, torch.zeros_like(cells)
        self.check(seen)
        values, log_slopes = cells.clone(), torch.zeros_like(cells)
        for name, units in self.stacks.items():
            flat = [column for unit in units for column in unit]
            mapped, log_det = self._flow(name)(self._stack_units(cells, units))
            values[:, flat] = mapped.movedim(0, 1).flatten(1)
            log_slopes[:, [unit[0] for unit in units]] = log_det.mT
        return values, log_slopes * seen

    def inverse(self, values: Tensor) -> Tensor:
        """Leaves to scaled cells, `(..., columns)`."""
        if self.is_identity:
            return values
        flat_values = values.reshape(-1, values.shape[-1])
        cells = flat_values.clone()
        for name, units in self.stacks.items():
            flat = [column for unit in units for column in unit]
            result, _ = self._flow(name).inverse(self._stack_units(flat_values, units))
            cells[:, flat] = result.movedim(0, 1).flatten(1)
        return cells.reshape(values.shape)

    def breaks(self) -> Tensor:
        """The knots of the elementwise maps, as values of the leaves, `(columns, breaks)`."""
        flow = self._flow("width1")
        spline = next(layer for layer in flow.modules() if isinstance(layer, MonotoneSpline))
        sizes = bounded_bins(spline.raw_widths.double(), 2.0 * spline.tail)
        ends = F.pad(sizes.cumsum(-1), (1, 0)) - spline.tail
        return cast(Tensor, flow(ends.mT)[0][..., 0])

    def _flow(self, name: str) -> Flow:
        flow = self.flows[name]
        assert isinstance(flow, Flow)
        return flow

    def _stack_units(self, table: Tensor, units: list[tuple[int, ...]]) -> Tensor:
        flat = [column for unit in units for column in unit]
        cut: Tensor = table[:, flat].unflatten(1, (len(units), len(units[0])))
        return cut.movedim(1, 0)

    def check(self, seen: Tensor) -> None:
        """Raise a ValueError for masks that g cannot map."""
        if self.is_elementwise:
            return
        for leaf, columns in self.positions.items():
            part = seen[:, list(columns)]
            split = part.any(1) & ~part.all(1)
            if bool(split.any()):
                row = int(split.nonzero()[0])
                raise ValueError(
                    f"leaf {leaf!r} is observed in part (row {row}), but its map joins all its "
                    "columns; observe it as a whole or not at all, or use leaf='affine' or "
                    "'spline'"
                )


class Adam:
    """Adam with its usual averages, for a few small tensors, changed in place by `step`.

    `torch.optim` imports a compiler when it is first used, which takes longer than most fits.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> optimiser = Adam([x])
        >>> for _ in range(100):
        ...     x.square().sum().backward()
        ...     optimiser.step(0.1)
        >>> bool(x.abs() < 0.1)
        True
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self, rate: float, kept: float = 0.9, kept_squares: float = 0.99) -> None:
        """Move against the gradients."""
        self.steps += 1
        moments = zip(self.parameters, self.means, self.squares, strict=True)
        for parameter, mean, square in moments:
            if parameter.grad is None:
                continue
            mean.lerp_(parameter.grad, 1.0 - kept)
            square.lerp_(parameter.grad.square(), 1.0 - kept_squares)
            size = (square / (1.0 - kept_squares**self.steps)).sqrt() + 1e-10
            parameter.sub_(rate / (1.0 - kept**self.steps) * mean / size)
            parameter.grad = None


def make_normal(
    model: GaussianVFG, cells: Tensor, seen: Tensor, weights: Tensor | None = None
) -> None:
    """Make every leaf on its own as Normal as its map can, from scaled cells."""
    weights = cells.new_ones(len(cells)) if weights is None else weights
    rows = max(float(weights.sum()), 1e-12)
    if model.leaves.is_elementwise:
        cells, seen = _quantiles(cells, seen, weights), seen.new_ones(POINTS, cells.shape[1])
        weights = cells.new_ones(POINTS)
    optimiser = Adam(model.leaves.parameters())
    for step in range(NORMAL_STEPS):
        values, log_slopes = model.leaves(cells, seen)
        losses = (0.5 * values.square() * seen - log_slopes).sum(1)
        loss = (weights * losses).sum() / weights.sum()
        (loss + _curvature_penalty(model) / rows).backward()
        optimiser.step(RATE * (1.0 - step / NORMAL_STEPS))


def fit_maps(
    model: GaussianVFG,
    cells: Tensor,
    seen: Tensor,
    weights: Tensor | None = None,
    *,
    steps: int,
    tolerance: float,
    shrinkage: float,
    score: Callable[[], float] | None,
) -> list[float]:
    """Fit the maps of the leaves and all other parameters together.

    The derivative of log p by a leaf's value is the residual of its expected causes over the
    variance of the noise, so one E-step serves both the gradient of the maps and the M-step.
    The model was fitted by EM with its maps as they are, and ends in the best state by `score`, or
    by the likelihood. Steps become smaller, then end, when they gain less than the tolerance.
    Returns the log-likelihoods per row in data units, every tenth step.
    """
    order = mask_order(seen)
    cells, seen = cells[order], seen[order]
    weights = None if weights is None else weights[order]
    chunks = chunks_of(model.structure, model.components, cells, seen, weights)
    optimiser, rate = Adam(model.leaves.parameters()), RATE
    values = Values(*(value.detach() for value in model.linear.values()))
    best, state, trace = -math.inf, copy.deepcopy(model.state_dict()), list[float]()
    for step in range(steps + 1):
        log_likelihood, following = _step(model, values, cells, seen, chunks, shrinkage)
        if step % PATIENCE == 0 or step == steps:
            trace.append(log_likelihood)
            model.linear.assign(values)
            reached = log_likelihood if score is None else score()
            rate = rate if reached > best + SLOW * PATIENCE * tolerance else 0.5 * rate
            if reached > best:
                best, state = reached, copy.deepcopy(model.state_dict())
            if rate < LEAST_RATE:
                break
        values = following
        optimiser.step(rate)
    model.load_state_dict(state)
    return trace


def _step(
    model: GaussianVFG,
    values: Values,
    cells: Tensor,
    seen: Tensor,
    chunks: list[Chunk],
    shrinkage: float,
) -> tuple[float, Values]:
    """log p per row, gradients for the maps, and the values of the next iteration."""
    leaves, log_slopes = model.leaves(cells, seen)
    with torch.no_grad():
        parts = leaves.detach().split([len(chunk.values) for chunk in chunks])
        here = [chunk._replace(values=part) for part, chunk in zip(parts, chunks, strict=True)]
        expected, pulls = e_step_with_pulls(model.structure, values, here)
        following = m_step(model.linear, values, expected, shrinkage)
    by_chunk = log_slopes.split([len(chunk.values) for chunk in chunks])
    slopes = torch.stack([c.weigh(part).sum() for c, part in zip(chunks, by_chunk, strict=True)])
    volumes = model.log_volumes(seen).split([len(chunk.values) for chunk in chunks])
    lost = sum(float(c.weigh(part).sum()) for c, part in zip(chunks, volumes, strict=True))
    rows = max(sum(chunk.number for chunk in chunks), 1e-12)
    ((_curvature_penalty(model) - (pulls * leaves).sum() - slopes.sum()) / rows).backward()
    total = float(expected.log_likelihood) + float(slopes.sum().detach()) - lost
    return total / rows, following


def _curvature_penalty(model: GaussianVFG) -> Tensor:
    """Minus the log-density of a Normal prior around linear maps."""
    squares = [
        layer.square().sum() for name, layer in model.leaves.named_parameters() if "raw_" in name
    ]
    return 0.5 * STIFFNESS * torch.stack(squares).sum() if squares else torch.zeros(())


def _quantiles(cells: Tensor, seen: Tensor, weights: Tensor) -> Tensor:
    """Equally probable points of every column, `(POINTS, columns)`, 0 if nothing is known."""
    levels = (torch.arange(POINTS, dtype=cells.dtype, device=cells.device) + 0.5) / POINTS
    points = cells.new_zeros(POINTS, cells.shape[1])
    for place, (column, known) in enumerate(zip(cells.T, seen.T, strict=True)):
        if not bool(known.any()):
            continue
        values, order = column[known].sort()
        ends = weights[known][order].cumsum(0)
        # Between the values of the rows that would be there if every row were repeated so often.
        ranks = levels * (ends[-1] - 1.0).clamp(min=0.0)
        below, above = (
            values[torch.searchsorted(ends, ranks.floor() + k, right=True).clamp(max=len(ends) - 1)]
            for k in (0.0, 1.0)
        )
        points[:, place] = torch.lerp(below, above, ranks - ranks.floor())
    return points
