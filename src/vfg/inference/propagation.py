"""Message passing until missing values inside partly observed sections converge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import GaussianLikelihood
from vfg.inference.evidence import Given
from vfg.passing.aggregation import State, aggregation
from vfg.passing.messages import Passes

if TYPE_CHECKING:
    from vfg.model import VFG

ROUNDS = 32
"""Most rounds in which missing values of partly observed states are filled again."""
DAMPING = 0.5
"""The step towards the new fill where Anderson's method proposes none; 1 may oscillate."""
MEMORY = 4
"""Earlier rounds that Anderson's method extrapolates from."""
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
"""A row whose fills would change by less, relative to 1 + their size, has converged."""

WIDEST_SECTION = 32
"""The widest sections whose messages, if a part is observed, count what is missing as unknown: each
column costs two more passes through the edge. Wider ones, such as blocks of images, count as whole.
"""

Fills = dict[int, Tensor]


class Completed(NamedTuple):
    """Values of sections observed in part, by leaf block."""

    fills: Fills
    """`(nodes, batch, width)`; only those of missing cells matter."""
    certainty: dict[int, Tensor]
    """Their precision, 0 for sections that are not completed, `(nodes, batch, width, width)`."""
    deviations: dict[int, Tensor]
    """Their deviations, NaN where nothing was completed, `(nodes, batch, width)`."""


@dataclass(frozen=True)
class Belief:
    """The result of message passing for a batch of rows; every tensor is `(nodes, batch, ...)`."""

    backward: list[Tensor]
    """Backward states, by block."""
    means: dict[int, Tensor]
    """The leaves' expected data in the model's units, by leaf block."""
    roots: dict[int, State]
    """Forward states of the roots, by root block."""
    evidence: dict[int, Tensor]
    """Given latent states, by block, NaN where free."""
    converged: Tensor
    """Which rows' fills have settled, `(1, batch)`."""
    deviations: dict[int, Tensor] = field(default_factory=dict)
    """By block of leaves that can be completed: how far the missing cells of sections observed in
    part spread, roots included, NaN for all other cells."""

    @staticmethod
    def join(parts: Sequence[Belief], change: Callable[..., Tensor]) -> Belief:
        """A belief each of whose tensors is a function of those of several beliefs."""

        def each(*same: Any) -> Any:
            if same[0] is None or isinstance(same[0], Tensor):
                return None if same[0] is None else change(*same)
            if isinstance(same[0], dict):
                return {key: each(*(part[key] for part in same)) for key in same[0]}
            values = [each(*part) for part in zip(*same, strict=True)]
            return State(*values) if isinstance(same[0], State) else values

        fields = (vars(part).values() for part in parts)
        return Belief(*(each(*same) for same in zip(*fields, strict=True)))

    def select(self, rows: Tensor) -> Belief:
        """Some rows of the batch."""
        return Belief.join([self], lambda tensor: tensor.index_select(1, rows))

    def place(self, positions: Tensor, size: int) -> Belief:
        """The rows at `positions` of a batch of `size`, all other rows zero."""

        def put(tensor: Tensor) -> Tensor:
            wide = tensor.new_zeros((tensor.shape[0], size, *tensor.shape[2:]))
            return wide.index_copy(1, positions, tensor)

        return Belief.join([self], put)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients and dropout, whatever mode the model is in before and afterwards.

    Example:
        >>> layer = nn.Dropout()
        >>> with evaluating(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def tiles(row_ids: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Rows by tiles of `size` consecutive ids: which rows lie in a tile, and at which positions.

    A row's position depends on its id alone, and all tiles have one shape, so a computation by
    tiles gives a row the same bits whatever else is in the table.

    Example:
        >>> tiles(torch.tensor([5, 0, 7]), size=4)
        [(tensor([1]), tensor([0])), (tensor([0, 2]), tensor([1, 3]))]
    """
    order = row_ids.argsort(stable=True)
    _, counts = torch.unique_consecutive(row_ids[order] // size, return_counts=True)
    return [(rows, row_ids[rows] % size) for rows in order.split(counts.tolist())]


def place_rows(table: Tensor, rows: Tensor, positions: Tensor, size: int, rest: float) -> Tensor:
    """Some rows of a table at positions of a batch of `size`, which is `rest` elsewhere."""
    wide = table.new_full((size, *table.shape[1:]), rest)
    return wide.index_copy(0, positions, table.index_select(0, rows))


def place_batch(
    given: Given, labels: Tensor | None, rows: Tensor, positions: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor | None, dict[int, Tensor]]:
    """Cells, mask, labels and latent evidence of some rows as a tile; the rest is unobserved."""
    return (
        place_rows(given.cells, rows, positions, size, 0.0),
        place_rows(given.seen, rows, positions, size, False),
        None if labels is None else place_rows(labels, rows, positions, size, -1),
        {
            block: place_rows(part.movedim(1, 0), rows, positions, size, torch.nan).movedim(0, 1)
            for block, part in given.evidence.items()
        },
    )


def propagate(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    evidence: dict[int, Tensor],
    *,
    rounds: int = ROUNDS,
    completed: Completed | None = None,
) -> Belief:
    """Both passes; repeated until missing values of partly observed states no longer change.

    Missing values start at the learned default. In every round they move towards the backward
    state, by a damped step or by extrapolation from the rounds before. A row that
    would hardly change is frozen; one that is not frozen in the end has not converged, and keeps
    its start. Columns are never filled beyond the range in which training saw them. Cells are
    in the model's units without NaN; latent evidence is NaN where free. What is `completed` stays.
    """
    leaves, priors = model._leaf_states(cells, seen), model._prior_means(labels)
    wide = {b: part_missing(leaves[b].observed) for b in gaussian_sections(model)}
    gaps = {} if completed is None else _certainties(model, completed, wide)

    def run(fills: Tensor | None) -> Passes:
        filled = None if fills is None else _by_block(model, fills)
        return model.passing.run(leaves, priors, evidence, filled, gaps=filled and gaps)

    def believe(passes: Passes, converged: Tensor, deviations: dict[int, Tensor]) -> Belief:
        backward = list(passes.backward)
        for block, deviation in deviations.items():
            assert completed is not None
            fill = completed.fills[block]
            backward[block] = torch.where(deviation.isnan(), backward[block], fill)
        roots = {block: passes.forward[block] for block in priors}
        means = model.leaf_means(backward)
        return Belief(backward, means, roots, evidence, converged[None], deviations)

    passes = run(None)
    # Unobserved coordinates of partly observed states, `(batch, coordinates)`.
    missing = _flat(model, [part_missing(state.observed) for state in passes.forward]).bool()
    converged = ~missing.any(-1)
    unknown = {b: torch.full_like(leaves[b].value, torch.nan) for b in model.spread.sections()}
    plain = believe(passes, converged, {} if completed is None else unknown)
    plain = replace(plain, deviations=unknown)
    if bool(converged.all()):
        return plain
    start = _by_block(model, _defaults(model, missing))
    if gaps:
        others = _without_partial_sections(leaves, wide)
        expected = model.passing.run(others, priors, evidence).backward
        start |= {b: expected[b] for b in gaps}
    left = missing
    if completed is not None:
        known = {b: ~part.isnan() for b, part in completed.deviations.items()}
        start |= {b: torch.where(k, completed.fills[b], start[b]) for b, k in known.items()}
        nothing = [torch.zeros_like(state.observed) for state in passes.forward]
        left = missing & ~_flat(model, [known.get(b, none) for b, none in enumerate(nothing)])
    flat = torch.cat([start[b].movedim(0, 1).flatten(1) for b in _fillable(model)], dim=1)
    flat = flat.clamp(*_ranges(model, flat))
    if gaps:
        passes = run(flat)
    passes, settled = _settle(model, run, passes, left, flat, rounds)
    deviations = unknown if completed is None else unknown | completed.deviations
    whole = believe(passes, settled, {} if completed is None else completed.deviations)
    whole = replace(whole, deviations=deviations)

    def choose(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(converged.view(1, -1, *[1] * (old.ndim - 2)), old, new)

    return Belief.join([plain, whole], choose)


def _certainties(
    model: VFG, completed: Completed, missing: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    """How far completed sections count, by block with missing cells whose messages have precisions.

    Messages without a precision count as whole.
    """
    passing = model.passing
    weighted = {
        group.child
        for place, group in enumerate(passing.schedule.groups)
        if passing.group(place).precision is not None
    }
    return {
        block: completed.certainty[block]
        for block, cells in missing.items()
        if block in weighted and bool(cells.any())
    }


def _without_partial_sections(
    leaves: Mapping[int, State], missing: Mapping[int, Tensor]
) -> dict[int, State]:
    """The states of leaves, where sections that lack some cells count as not observed at all."""
    return {
        block: state._replace(observed=state.observed & ~missing[block].any(-1, keepdim=True))
        if block in missing
        else state
        for block, state in leaves.items()
    }


def part_missing(observed: Tensor) -> Tensor:
    """Which coordinates are missing from states that have others."""
    return observed.any(-1, keepdim=True) & ~observed


def gaussian_sections(model: VFG) -> list[int]:
    """Blocks of Gaussian leaves of two to `WIDEST_SECTION` columns."""
    blocks = model.passing.schedule.blocks
    return [
        index
        for index in model.sections.blocks
        if 1 < blocks[index].width <= WIDEST_SECTION
        and isinstance(model.likelihood_at(index), GaussianLikelihood)
    ]


def _settle(
    model: VFG,
    run: Callable[[Tensor], Passes],
    passes: Passes,
    missing: Tensor,
    start: Tensor,
    rounds: int,
) -> tuple[Passes, Tensor]:
    """Fill the missing values again and again; rows that do not settle keep the start."""
    fills = start
    low, high = _ranges(model, fills)
    active = missing.any(-1)
    seeker = FixedPoint(missing)
    for left in reversed(range(rounds + 1)):
        proposed = _flat(model, passes.backward).clamp(low, high)
        change = seeker.change(fills, proposed)
        active = active & ~(change < TOLERANCE[fills.dtype])
        if left == 0 or not bool(active.any()):
            break
        step = seeker.step(fills, proposed).clamp(low, high)
        fills = torch.where(active[:, None] & missing, step, fills)
        passes = run(fills)
    if bool(active.any()):
        passes = run(torch.where(active[:, None], start, fills))
    return passes, ~active


class FixedPoint:
    """Per row, a solution of g(x) = x by Anderson's method, where `free (batch, coordinates)`."""

    def __init__(self, free: Tensor) -> None:
        self.free = free
        self.points: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def change(self, point: Tensor, image: Tensor) -> Tensor:
        """How far image and point are apart, relative to 1 + the point's size, `(batch,)`."""
        change = (image - point).abs() / (1.0 + point.abs())
        return torch.where(self.free, change, 0.0).amax(-1)

    def step(self, point: Tensor, image: Tensor) -> Tensor:
        """The next point."""
        residual = torch.where(self.free, image - point, 0.0).double()
        self.points = [*self.points[-MEMORY:], point.double()]
        self.residuals = [*self.residuals[-MEMORY:], residual]
        plain = point + DAMPING * residual
        if len(self.points) == 1:
            return plain.to(point)
        moves = torch.stack(self.points, 1).diff(dim=1)
        changes = torch.stack(self.residuals, 1).diff(dim=1)
        weights = _least_squares(changes, residual)
        better = plain - (weights[:, None] @ (moves + DAMPING * changes))[:, 0]
        # After a step that increased the residual, extrapolation is not trusted.
        worse = residual.square().sum(-1) > self.residuals[-2].square().sum(-1)
        trusted = better.isfinite().all(-1) & ~worse
        return torch.where(trusted[:, None], better, plain).to(point)


def _least_squares(changes: Tensor, residual: Tensor) -> Tensor:
    """w with Σ wₖ changesₖ ≈ residual: `(batch, memory, n)`, `(batch, n)` to `(batch, memory)`."""
    size = changes.square().sum(-1).sqrt()[..., None].clamp(min=1e-300)
    directions = changes / size
    gram = directions @ directions.mT
    ridge = 1e-10 * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, _ = torch.linalg.cholesky_ex(gram + ridge)
    right = directions @ residual[..., None]
    return (torch.cholesky_solve(right, factor) / size)[..., 0]


def _fillable(model: VFG) -> list[int]:
    """Blocks whose states are filled before they are sent on: no roots, nothing with precision."""
    schedule = model.passing.schedule
    return [
        index
        for index, block in enumerate(schedule.blocks)
        if not block.is_root
        and block.width > 1
        and (block.is_leaf or aggregation(block.treatment).carries == "none")
    ]


def _flat(model: VFG, states: Sequence[Tensor]) -> Tensor:
    """`(nodes, batch, width)` of the fillable blocks as `(batch, coordinates)`."""
    parts = [states[index].movedim(0, 1).flatten(1) for index in _fillable(model)]
    return torch.cat(parts, dim=1) if parts else states[0].new_zeros((states[0].shape[1], 0))


def _by_block(model: VFG, flat: Tensor) -> Fills:
    blocks = model.passing.schedule.blocks
    chosen = {index: blocks[index] for index in _fillable(model)}
    sizes = [len(block.nodes) * block.width for block in chosen.values()]
    parts = flat.split(sizes, dim=1)
    return {
        index: part.unflatten(1, (len(block.nodes), block.width)).movedim(1, 0)
        for (index, block), part in zip(chosen.items(), parts, strict=True)
    }


def _ranges(model: VFG, like: Tensor) -> tuple[Tensor, Tensor]:
    """The ends between which each fill lies, `(coordinates,)` each; none for latent states."""
    blocks = model.passing.schedule.blocks
    ends = []
    for sign, end in ((-1.0, model.scaling.low), (1.0, model.scaling.high)):
        bounds = [like.new_full((len(b.nodes), 1, b.width), sign * torch.inf) for b in blocks]
        for index, part in model.sections.split(model.scaling.apply_to(end[None])).items():
            if model.likelihood_specs[blocks[index].nodes[0]].is_real:
                bounds[index] = part.to(like)
        ends.append(_flat(model, bounds)[0])
    return ends[0], ends[1]


def _defaults(model: VFG, missing: Tensor) -> Tensor:
    passing = model.passing
    blocks = [
        passing.default(index, {}) if not block.is_root else missing.new_zeros(())
        for index, block in enumerate(passing.schedule.blocks)
    ]
    return _flat(model, blocks).expand(len(missing), -1).contiguous()
