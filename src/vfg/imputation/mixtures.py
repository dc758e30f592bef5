"""Exact models of a matrix: the linear model, and mixtures of linear models of normal scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import (
    ExactMeans,
    MeanFunction,
    concat_leaves,
    mean_function,
)
from vfg.gaussian.fitting import GaussianSettings
from vfg.graph import Graph
from vfg.imputation.plan import ITERATIONS, MixturePlan
from vfg.imputation.resources import Turn
from vfg.tables.cells import Array
from vfg.tables.numeric import NormalScores
from vfg.utils.cached import CachedModule

START_ROWS = 20_000
"""How many rows a linear model is fitted to, at most, which bounds the time."""
Item = TypeVar("Item")
Result = TypeVar("Result")
SHRINKAGE = (4.0, 2.0)
"""Pseudo-rows that shrink the components of mixtures to their average, for mixtures in turn. Which
value is better depends on the table, so mixtures differ in it."""
SHARES = (0.8, 0.8, 0.5, 0.5)
"""How far columns are moved to their normal scores, for mixtures in turn."""
LINEAR_SETTINGS = GaussianSettings(finish="none", iterations=30, shrinkage=1.0)
"""Of linear models."""
NEGLIGIBLE = 1e-2
"""Probability of a component given a row below which EM passes over it, which saves time."""


def fit_linear(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    seed: int,
    *,
    inner_noise: bool = True,
    tolerance: float = 1e-5,
    weights: Tensor | None = None,
    shrinkage: float = LINEAR_SETTINGS.shrinkage,
    iterations: int = LINEAR_SETTINGS.iterations,
) -> GaussianVFG:
    """Fit the exact linear model of a matrix, with shrunk loadings.

    Rows count as often as `weights` say. Without `inner_noise`, which the start of a nonlinear
    model cannot have, latent nodes below the root have no noise of their own.
    """
    if len(values) > START_ROWS:
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(values), generator=generator)[:START_ROWS]
        values, observed = values[chosen], observed[chosen]
        weights = None if weights is None else weights[chosen]
    model = GaussianVFG(graph, noise_floor=0.03, inner_noise=inner_noise, seed=seed)
    settings = replace(
        LINEAR_SETTINGS, tolerance=tolerance, seed=seed, shrinkage=shrinkage, iterations=iterations
    )
    shown = with_all_columns(observed)
    model.fit(values, settings, observed=shown, sample_weight=weights)
    return model


def fit_linear_further(
    model: GaussianVFG, values: Tensor, observed: Tensor, weights: Tensor | None = None
) -> None:
    """Fit a linear model to further rows of a matrix, besides those that it has sums of."""
    settings = replace(LINEAR_SETTINGS, seed=model.seed)
    model.partial_fit(values, settings, observed=observed, sample_weight=weights)


def star(widths: list[int], width: int) -> Graph:
    """A star with one root over the sections of a matrix, named by their positions.

    Example:
        >>> star([1, 3], width=8).sections
        {'0': 1, '1': 3}
    """
    sections = {str(k): size for k, size in enumerate(widths)}
    return Graph.star(sections, width=max(width, *widths))


def with_all_columns(observed: Tensor) -> Tensor:
    """The mask with one entry of every column without known ones marked: its value is 0, the mean.

    Example:
        >>> with_all_columns(torch.tensor([[True, False], [False, False]]))
        tensor([[ True,  True],
                [False, False]])
    """
    empty = ~observed.any(0)
    if not bool(empty.any()):
        return observed
    shown = observed.clone()
    shown[0, empty] = True
    return shown


class Mixture(CachedModule):
    r"""An exact model of the scores of columns, whose root is a mixture.

    With $p(k \mid x_o)$ the probabilities of the components, $m_k$ their means of a score and $g$
    the map from scores to values, the mean of a cell is $\sum_k p(k \mid x_o)\, g(m_k)$.
    """

    cached = ("_mean_function", "_sampler")

    def __init__(self, exact: GaussianVFG, ranks: NormalScores) -> None:
        super().__init__()
        self.exact, self.ranks = exact, ranks

    def shares(self, values: Tensor, observed: Tensor, ids: Tensor) -> Array | None:
        """Probabilities of the components where means and draws both use them, else None."""
        exact = self._mean_function
        if not isinstance(exact, ExactMeans) or exact is not self._sampler:
            return None
        return exact.shares(self.ranks(values.double()), observed, ids)

    def means(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor,
        *,
        padded: bool = True,
        shares: Array | None = None,
    ) -> Tensor:
        """Means of every entry of a matrix; known entries are unchanged.

        Without padding it is faster for a few rows; numbers are the same up to rounding. `shares`
        are those of the method of this name, if they are known.
        """
        scores = self.ranks(values.double())
        if padded and shares is not None and isinstance(self._mean_function, ExactMeans):
            means = self._mean_function(scores, observed, ids, shares)
        elif padded:
            means = self._mean_function(scores, observed, ids)
        else:
            answer = self.exact.infer(scores, observed=observed, row_ids=ids, padded=False)
            means = concat_leaves(answer.mean_through(self.ranks.inverse))
        return torch.where(observed, values.double(), means)

    def samples(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        *,
        seed: int,
        ids: Tensor,
        padded: bool = True,
        direct: bool = True,
        shares: Array | None = None,
    ) -> Tensor:
        """Joint draws, `(number, rows, columns)`, which depend on the ids of the rows.

        Missing cells are drawn directly where systems are small, and else from draws of the root;
        always so without `direct`, as earlier versions did. `shares` are as of `means`.
        """
        scores = self.ranks(values.double())
        if direct and self._sampler is not None:
            rows = scores.cpu(), observed.cpu()
            drawn = self._sampler.samples(*rows, number, seed=seed, ids=ids.cpu(), shares=shares)
            return torch.where(observed, values.double(), drawn.to(scores.device))
        answer = self.exact.infer(scores, observed=observed, seed=seed, row_ids=ids, padded=padded)
        return self.ranks.inverse(concat_leaves(answer.samples(number)))

    @cached_property
    def _mean_function(self) -> MeanFunction:
        return mean_function(self.exact, self.ranks)

    @cached_property
    def _sampler(self) -> ExactMeans | None:
        """Draws missing cells directly, on the CPU."""
        if isinstance(self._mean_function, ExactMeans):
            return self._mean_function if self.exact.components > 1 else None
        mixes = self.exact.components > 1 and ExactMeans.has_small_systems(self.exact)
        return ExactMeans(self.exact, self.ranks) if mixes else None

    # Serialisation.

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
    turn: Turn | None = None,
    workers: int | None = None,
    weights: Tensor | None = None,
) -> list[Mixture]:
    """Fit mixtures to some rows each, without the held-out cells of each.

    As many are fitted at a time as there are threads, on the CPU, where pairs of rows and
    components are solved entry by entry. Those that would not end within the `turn` are left out.
    Columns that are `unordered` stay as they are.
    """
    turn, finished = turn or Turn(), list[int]()

    def fit_one(place: int) -> Mixture | None:
        if not turn.has_time_for_another(len(finished)):
            return None
        own = seed * 1009 + place
        order = torch.randperm(len(values), generator=torch.Generator().manual_seed(own))
        rows = order[: plan.rows].sort().values
        seen = observed & ~held[place]
        shares = torch.where(unordered, 0.0, SHARES[place % len(SHARES)])
        ranks = NormalScores.of(values, seen, shares)
        scores, seen = ranks(values[rows]), seen[rows]
        often = None if weights is None else weights[rows]
        exact = fit_mixture(graph, scores, seen, plan.components, place, own, often)
        finished.append(place)
        turn.show(len(finished) / plan.number)
        return Mixture(exact, ranks)

    mixtures = map_in_threads(fit_one, range(plan.number), workers)
    # Only mixtures at the end are left out, so that positions match those of `held`.
    number = next((place for place, one in enumerate(mixtures) if one is None), len(mixtures))
    return [mixture for mixture in mixtures[:number] if mixture is not None]


def map_in_threads(
    do: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> list[Result]:
    """Apply a function to every item, in so many threads, or as many as torch has.

    The small factorisations of mixtures use one core each.

    Example:
        >>> map_in_threads(abs, [-1, 2])
        [1, 2]
    """
    workers = torch.get_num_threads() if workers is None else workers
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
    weights: Tensor | None = None,
) -> GaussianVFG:
    """Fit an exact model whose root is a mixture; mixtures differ in shrinkage by their place."""
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
        sample_weight=weights,
    )
    return model
