"""The models behind a table: a linear one, members that start there and are bent, and mixtures."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from vfg.distributions.likelihoods import GaussianLikelihood
from vfg.flows import Coupling
from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import exact_means
from vfg.graph import Graph
from vfg.imputation.linear import fit_linear
from vfg.imputation.mixtures import Mixture, fit_mixtures
from vfg.imputation.model_stack import repeat_columns, stack_models, unstack_models
from vfg.imputation.plan import EPOCH, HURRIED, KINDS, Plan
from vfg.imputation.row_mixture import RowMixture, fit_row_mixture
from vfg.imputation.stacking import Parts, Stacking, fit_stacking
from vfg.inference import fit_calibration
from vfg.model import VFG
from vfg.training.data import Table, join_world
from vfg.training.history import History, Progress
from vfg.training.loop import Run
from vfg.training.settings import FitSettings, Masking

MASKING = Masking(rate=1.0, keep=(0.3, 1.0), visible=0.2)
"""Every step hides cells: filling them is all that members are for."""
CALIBRATION_CELLS = 16_384
"""How many cells the spread of draws is fitted to, about, in `CALIBRATION_ROWS` rows."""
CALIBRATION_ROWS = (24, 256)
"""The fewest and the most rows for that."""


def fit_members(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    plan: Plan,
    *,
    seed: int,
    budget: float | None,
    progress: bool,
    device: torch.device,
    unordered: Tensor | None = None,
    members: list[VFG] | None = None,
) -> tuple[Parts, Stacking, History]:
    """Members that start linear and learn, all at once, to fill what is hidden from them.

    Every member keeps its own random cells aside, from its linear start on, and so does every
    mixture. Neighbours keep none aside.

    Args:
        graph: over the sections of the matrix.
        values: the matrix, 0 where nothing is known.
        observed: which of its entries are known.
        plan: sizes and steps.
        seed: of everything drawn.
        budget: seconds for all of it, or None.
        progress: whether to show how far it is.
        device: where to train; the members come back to the CPU.
        unordered: columns of the matrix that have no order; None means none.
        members: members to go on with, in place of new ones.

    Returns:
        Members, mixtures and neighbours, how they join in one answer, and how training went.
    """
    clock = Stopwatch(budget)
    number = max(plan.members, plan.mixtures.number if plan.mixtures else 0)
    kept = [_held_out(graph, observed, plan.held_out, seed * 1009 + k) for k in range(number)]
    held = kept[: plan.members]
    linears = None
    if members is None:
        linears, members = [], []
        for k, own in enumerate(held):
            linear = fit_linear(graph, values, observed & ~own, seed * 1009 + k, inner_noise=False)
            linears.append(linear)
            members.append(_started(linear, values, observed, own, plan.flow, seed * 1009 + k))
            if clock.is_past(0.15):
                break
    lumps = torch.zeros(values.shape[1], dtype=torch.bool) if unordered is None else unordered
    neighbours = _neighbours(values, observed, lumps, plan, seed, clock)
    mixtures = _mixtures(graph, values, observed, kept, lumps, plan, seed, clock)
    held = held[: len(members)]
    plan = replace(plan, members=len(members))
    model = stack_models(members)
    left = clock.left(0.75)
    kept_aside = torch.cat(held, dim=1)
    history = _train(model, values, observed, kept_aside, plan, seed, left, progress, device)
    unstack_models(model, members)
    for k, (member, own) in enumerate(zip(members, held, strict=True)):
        if k and clock.is_past(0.9):
            member.spread.load_state_dict(members[0].spread.state_dict())
        else:
            _calibrate(member, values, observed, own, seed + k)
    parts = Parts(members, linears, mixtures, neighbours, model)
    return (
        parts,
        fit_stacking(parts, values, observed, held, seed=seed, hurried=budget is not None),
        history,
    )


def _neighbours(
    values: Tensor,
    observed: Tensor,
    unordered: Tensor,
    plan: Plan,
    seed: int,
    clock: Stopwatch,
) -> list[RowMixture]:
    sizes, left = plan.neighbours, clock.left(0.3)
    if sizes is None or not sizes.number:
        return []
    sizes = sizes if left is None else sizes.within(0.25 * left)

    def fitted(place: int) -> RowMixture:
        return fit_row_mixture(
            values, observed, KINDS[place % len(KINDS)], unordered=unordered, width=plan.width,
            most=sizes.components, seed=seed * 1009 + place,
        )  # fmt: skip

    return [fitted(place) for place in range(sizes.number)]


def _mixtures(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    held: list[Tensor],
    unordered: Tensor,
    plan: Plan,
    seed: int,
    clock: Stopwatch,
) -> list[Mixture]:
    sizes, left = plan.mixtures, clock.left(0.4)
    if sizes is None or not sizes.number:
        return []
    deadline = None
    if left is not None:
        sizes, deadline = sizes.within(0.75 * left), time.monotonic() + 0.5 * left
    return fit_mixtures(
        graph, values, observed, held, sizes, unordered=unordered, seed=seed, deadline=deadline
    )


class Stopwatch:
    """How much of a budget is spent; without one it never ends.

    Args:
        budget: in seconds.
    """

    def __init__(self, budget: float | None) -> None:
        self.begun, self.budget = time.monotonic(), budget

    def is_past(self, share: float) -> bool:
        """Whether more than a share is spent."""
        return self.budget is not None and time.monotonic() - self.begun > share * self.budget

    def left(self, share: float) -> float | None:
        """Seconds until a share is spent, one at the least."""
        if self.budget is None:
            return None
        return max(1.0, share * self.budget - (time.monotonic() - self.begun))


def _started(
    linear: GaussianVFG, values: Tensor, observed: Tensor, held: Tensor, flow: Coupling, seed: int
) -> VFG:
    """A member that is the linear model of the cells that it may see."""
    member = VFG.from_gaussian(linear, flow=flow, seed=seed).float()
    _weigh_columns(member, linear, values, observed & ~held, held)
    return member


@torch.no_grad()
def _weigh_columns(
    member: VFG, linear: GaussianVFG, values: Tensor, seen: Tensor, held: Tensor
) -> None:
    """Set the scales of the likelihoods to the size of the linear model's errors.

    They start as the noise of the leaves, which is far smaller where other columns are missing, and
    a column whose scale is too small outweighs all others.
    """
    rows = held.any(1).nonzero()[:4096, 0]
    if not len(rows):
        return
    error = (exact_means(linear, values[rows], seen[rows]) - values[rows]).square() * held[rows]
    # Five cells' worth of a unit error for columns with few held-out cells.
    size = ((error.sum(0) + 5.0) / (held[rows].sum(0) + 5.0)).sqrt() / member.scaling.scale
    for block, scales in member.sections.split(size[None].float()).items():
        likelihood = member.likelihood_at(block)
        assert isinstance(likelihood, GaussianLikelihood)
        excess = (scales.square() - likelihood.floor**2).clamp(min=1e-6)
        likelihood.log_scale.copy_(0.5 * excess.log())


def _held_out(graph: Graph, observed: Tensor, share: float, seed: int) -> Tensor:
    """Whole sections of some rows; every column keeps its first known cell."""
    generator = torch.Generator().manual_seed(seed)
    widths = torch.tensor(list(graph.sections.values()))
    drawn = torch.rand(len(observed), len(widths), generator=generator) < share
    held = observed & drawn.repeat_interleave(widths, dim=1)
    held[observed.int().argmax(0), torch.arange(observed.shape[1])] = False
    return held


def _train(
    model: VFG,
    values: Tensor,
    observed: Tensor,
    held: Tensor,
    plan: Plan,
    seed: int,
    budget: float | None,
    progress: bool,
    device: torch.device,
) -> History:
    scaling = model.scaling
    cells = (
        ((repeat_columns(values, plan.members) - scaling.location) / scaling.scale)
        .float()
        .to(device)
    )
    seen = repeat_columns(observed, plan.members).to(device)
    model.to(device)
    pace = min(plan.steps, EPOCH if budget is None else HURRIED)
    settings = FitSettings(
        masking=MASKING, layerwise=False, beta=0.0, warmup=0, free_bits=0.0,
        epochs=max(1, plan.steps // pace), steps=pace, budget=budget, batch=plan.batch,
        rate=plan.rate, weight_decay=1e-2, clip=1.0, validation=0.0, patience=None, scale=True,
        compile=False, seed=seed,
    )  # fmt: skip
    data = Table(torch.where(seen, cells, 0.0), seen, None)
    devices = [device] if device.type == "cuda" else []
    with join_world(device) as world, torch.random.fork_rng(devices=devices):
        run = Run(model, data, settings, world, None, held.to(device))
        history = run.train(Progress(settings.epochs, visible=progress and world.is_first))
    if history.stopped == "interrupted":
        # Other parts are still to come: half of an imputer is not what was asked for.
        raise KeyboardInterrupt
    model.eval().cpu()
    return history


def _calibrate(member: VFG, values: Tensor, observed: Tensor, held: Tensor, seed: int) -> None:
    """Fit the spread of one member's draws to the cells that it never saw."""
    scaling = member.scaling
    cells = ((values - scaling.location) / scaling.scale).float()
    seen = observed & ~held
    cells = torch.where(observed, cells, 0.0)
    fewest, most = CALIBRATION_ROWS
    rows = min(max(fewest, CALIBRATION_CELLS // values.shape[1]), most)
    fit_calibration(member, cells, seen, held, seed=seed, most_rows=rows)
