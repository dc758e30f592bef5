"""Exact mixtures beside the bent members, of columns on their way to a Normal form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import MeanFunction, concat_leaves, mean_function
from vfg.graph import Graph
from vfg.imputation.linear import with_all_columns
from vfg.imputation.plan import ITERATIONS, MixturePlan
from vfg.tables.numeric import NormalScores
from vfg.utils.cached import CachedModule

Item = TypeVar("Item")
Result = TypeVar("Result")
SHRINKAGE = (4.0, 2.0)
"""Pseudo-rows that draw the components of mixtures to each other: of one, of the next, and again.
Which is better depends on the table."""
SHARES = (0.8, 0.8, 0.5, 0.5)
"""How far columns go to their normal scores, likewise."""
NEGLIGIBLE = 1e-2
"""Probability of a component given a row below which it is passed over."""


class Mixture(CachedModule):
    r"""An exact model of the scores of columns, whose root is a mixture.

    With $p(k \mid x_o)$ the probabilities of the components, $m_k$ what they expect of a score and
    $g$ the way back from scores to values, a cell is expected to be
    $\sum_k p(k \mid x_o)\, g(m_k)$.

    Args:
        exact: the model.
        ranks: how columns become scores.
    """

    cached = ("_ask",)

    def __init__(self, exact: GaussianVFG, ranks: NormalScores) -> None:
        super().__init__()
        self.exact, self.ranks = exact, ranks

    def expected(
        self, values: Tensor, observed: Tensor, ids: Tensor, *, padded: bool = True
    ) -> Tensor:
        """What is expected of every entry of a matrix; known ones are themselves.

        Args:
            values: the matrix, `(rows, columns)`, any finite numbers where nothing is known.
            observed: which of its entries are known.
            ids: of the rows.
            padded: False is faster for a few rows; numbers are the same up to rounding.
        """
        scores = self.ranks(values.double())
        if padded:
            found = self._ask(scores, observed, ids)
        else:
            answer = self.exact.infer(scores, observed=observed, row_ids=ids, padded=False)
            found = concat_leaves(answer.mean_through(self.ranks.inverse))
        return torch.where(observed, values.double(), found)

    def samples(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        *,
        seed: int,
        ids: Tensor,
        padded: bool = True,
    ) -> Tensor:
        """Joint draws, `(number, rows, columns)`.

        Args:
            values: the matrix, `(rows, columns)`, any finite numbers where nothing is known.
            observed: which of its entries are known.
            number: how many.
            seed: of the draws.
            ids: of the rows, on which draws depend.
            padded: False is faster for a few rows; numbers are the same up to rounding.
        """
        scores = self.ranks(values.double())
        answer = self.exact.infer(scores, observed=observed, seed=seed, row_ids=ids, padded=padded)
        return self.ranks.inverse(concat_leaves(answer.samples(number)))

    @cached_property
    def _ask(self) -> MeanFunction:
        return mean_function(self.exact, self.ranks)

    # How it goes through a file.

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON."""
        return self.exact.to_dict()

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Mixture:
        """A new model with the configuration that `to_dict` returned."""
        exact = GaussianVFG.from_dict(description)
        return cls(exact, NormalScores(exact.structure.columns))


def fit_mixtures(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    held: Sequence[Tensor],
    plan: MixturePlan,
    *,
    unordered: Tensor,
    seed: int,
    deadline: float | None,
) -> list[Mixture]:
    """Mixtures of some rows each, without the cells that each keeps aside.

    As many are fitted at a time as there are threads, on the CPU, where pairs of rows and
    components are solved entry by entry. Those that would begin after the deadline are left out.

    Args:
        graph: over the sections of the matrix.
        values: the matrix, 0 where nothing is known.
        observed: which of its entries are known.
        held: the cells that each keeps aside, as many as there are mixtures.
        plan: their size.
        unordered: columns that have no order and stay as they are.
        seed: of everything drawn.
        deadline: as `time.monotonic` tells it, or None.
    """

    def fitted(place: int) -> Mixture | None:
        if deadline is not None and time.monotonic() > deadline:
            return None
        own = seed * 1009 + place
        order = torch.randperm(len(values), generator=torch.Generator().manual_seed(own))
        rows = order[: plan.rows].sort().values
        seen = observed & ~held[place]
        shares = torch.where(unordered, 0.0, SHARES[place % len(SHARES)])
        ranks = NormalScores.of(values, seen, shares)
        scores, seen = ranks(values[rows]), seen[rows]
        exact = fit_mixture(graph, scores, seen, plan.components, place, own)
        return Mixture(exact, ranks)

    found = side_by_side(fitted, range(plan.number))
    # What was left out is at the end: mixtures and held-out cells belong together by position.
    return [mixture for mixture in found if mixture is not None]


def side_by_side(do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Do something for every item, in as many threads as torch has.

    Small factorisations, of which mixtures are made, use one core each.

    Example:
        >>> side_by_side(abs, [-1, 2])
        [1, 2]
    """
    workers = torch.get_num_threads()
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
) -> GaussianVFG:
    """An exact model whose root is a mixture: linear parts side by side.

    Args:
        graph: over the sections of the matrix.
        values: the matrix, `(rows, columns)`.
        observed: which of its entries may be used.
        components: of the mixture.
        place: among all mixtures, which differ in their shrinkage.
        seed: of the start.
    """
    model = GaussianVFG(graph, components, noise_floor=0.03, seed=seed)
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
    return model
