"""Exact mixtures beside the bent members: how many, how large, and their fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.graph import Graph

from .linear import with_all_columns

Item = TypeVar("Item")
Result = TypeVar("Result")
CPU = torch.device("cpu")
ROWS = (3_000, 10_000)
"""How many rows a mixture is fitted to, at most, of tables that are not large and that are; every
mixture to others."""
COMPONENTS = (64, 96)
"""The most components, likewise."""
ROWS_PER_COMPONENT = 10
"""How many rows there are for every component, counting known cells."""
ITERATIONS = 15
"""How often expectations are taken, at most."""
SHRINKAGE = (4.0, 2.0)
"""Pseudo-rows that draw the components of mixtures to each other: of one, of the next, and again.
Which is better depends on the table."""
NEGLIGIBLE = 1e-2
"""Probability of a component given a row below which it is passed over."""
WORK = 12_000_000
"""How often all mixtures together look at a row of eleven columns through a component."""
LOOK_SECONDS = 5e-7
"""What one such look takes, about."""
MOST = 16
"""Mixtures at the most."""
COMPONENTS_IN_ALL = 400
"""Through how many components a row is looked at when it is filled, about."""


@dataclass(frozen=True)
class MixturePlan:
    """How many mixtures there are, and of which size.

    Args:
        number: of mixtures.
        components: of each.
        rows: to which each is fitted, at most.
        width: of their roots.
        columns: of the matrix.
    """

    number: int
    components: int
    rows: int
    width: int
    columns: int

    @property
    def work(self) -> float:
        """What one of them takes, in looks at rows of eleven columns."""
        active = min(self.components, 4 + self.components / 8)
        looks = (2 + ITERATIONS / 5) * self.components + 3 * ITERATIONS * active
        size = self.width**2 * (self.width + self.columns) / 2662
        return float(self.rows * looks * max(1.0, size) ** 0.6)

    def within(self, seconds: float) -> MixturePlan:
        """Smaller ones, so that the first takes no longer than this."""
        share = min(1.0, seconds / (self.work * LOOK_SECONDS)) ** 0.5
        return replace(
            self,
            components=max(2, int(share * self.components)),
            rows=max(min(500, self.rows), int(share * self.rows)),
        )


def planned_mixtures(
    rows: int, columns: int, *, known: float, width: int, large: bool, number: int | None = None
) -> MixturePlan:
    """Components by how much is known; as many mixtures as there is time for.

    Args:
        rows: of the table.
        columns: of its matrix.
        known: share of its entries that are known.
        width: of the roots.
        large: whether the table is large.
        number: of mixtures, if it is given.

    Example:
        >>> plan = planned_mixtures(1000, 8, known=0.5, width=10, large=False)
        >>> plan.number, plan.components
        (8, 50)
    """
    components = min(int(known * rows / ROWS_PER_COMPONENT), COMPONENTS[large])
    plan = MixturePlan(1, max(2, components), min(rows, ROWS[large]), width, columns)
    if number is None:
        number = min(int(WORK / plan.work), COMPONENTS_IN_ALL // plan.components, MOST)
        number = max(1 + large, number)
    return replace(plan, number=number)


def fit_mixtures(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
    plan: MixturePlan,
    *,
    seed: int,
    deadline: float | None,
    device: torch.device,
) -> list[GaussianVFG]:
    """Mixtures of some rows each, without the cells that each keeps aside.

    On a CPU as many are fitted at a time as there are threads. Those that would begin after the
    deadline are left out.

    Args:
        graph: over the sections of the matrix.
        values: the matrix, 0 where nothing is known.
        observed: which of its entries are known.
        held: the cells that each keeps aside, as many as there are mixtures.
        plan: their size.
        seed: of everything drawn.
        deadline: as `time.monotonic` tells it, or None.
        device: where to fit; the mixtures come back to the CPU.
    """

    def fitted(place: int) -> GaussianVFG | None:
        if deadline is not None and time.monotonic() > deadline:
            return None
        own = seed * 1009 + place
        order = torch.randperm(len(values), generator=torch.Generator().manual_seed(own))
        rows = order[: plan.rows].sort().values
        seen = (observed & ~held[place])[rows]
        return fit_mixture(graph, values[rows], seen, plan.components, place, own, device)

    found = side_by_side(fitted, range(plan.number), device)
    # What was left out is at the end: mixtures and held-out cells belong together by position.
    return [mixture for mixture in found if mixture is not None]


def side_by_side(
    do: Callable[[Item], Result], items: Iterable[Item], device: torch.device = CPU
) -> list[Result]:
    """Do something for every item, on a CPU in as many threads as torch has.

    Small factorisations, of which mixtures are made, use one core each.

    Example:
        >>> side_by_side(abs, [-1, 2])
        [1, 2]
    """
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    if workers == 1:
        return [do(item) for item in items]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(do, items))


def fit_mixture(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    components: int,
    place: int,
    seed: int,
    device: torch.device | None = None,
) -> GaussianVFG:
    """An exact model whose root is a mixture: linear parts side by side.

    Args:
        graph: over the sections of the matrix.
        values: the matrix, `(rows, columns)`.
        observed: which of its entries may be used.
        components: of the mixture.
        place: among all mixtures, which differ in their shrinkage.
        seed: of the start.
        device: where to fit; the model comes back to the CPU.
    """
    model = GaussianVFG(graph, components, noise_floor=0.03, seed=seed).to(device)
    model.fit(
        values,
        observed=with_all_columns(observed),
        finish="none",
        iterations=ITERATIONS,
        restarts=1,
        shrinkage=SHRINKAGE[place % len(SHRINKAGE)],
        negligible=NEGLIGIBLE,
        seed=seed,
    )
    return model.cpu()
