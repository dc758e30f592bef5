"""Answers of the exact model: closed forms where there are any, quadrature or draws elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vfg.distributions.likelihoods import Categorical
from vfg.gaussian.category_points import Unit
from vfg.gaussian.em.general import family_moments
from vfg.gaussian.factors import (
    Factors,
    Masks,
    Side,
    column_means,
    condition,
    group_masks,
    mixed_covariance,
    mixed_moments,
)
from vfg.gaussian.parameters import Values, factors_of, with_latents
from vfg.gaussian.structure import Clique, Structure
from vfg.gaussian.tiles import (
    DRAWS,
    EvidenceTile,
    mixture_covariance,
    mixture_quantiles,
    normal_moments,
    rows_of_a_tile,
)
from vfg.inference.answers import (
    DRAWS_FOR_QUANTILES,
    ByName,
    GraphAnswer,
    TableAndStates,
    Target,
    sorted_quantiles,
)
from vfg.inputs import Name

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

CERTAIN = 1e-5
"""Standard deviation of a given latent state: small, but large enough to factorise."""
_FACTORS: WeakKeyDictionary[GaussianVFG, tuple[tuple[Any, ...], Factors, Factors]] = (
    WeakKeyDictionary()
)
"""Factors of models whose latent nodes are not given, with what they were computed from."""
ROWS_AT_ONCE = 4096
"""Rows whose posteriors are computed together, which bounds memory."""


class GaussianAnswer(GraphAnswer):
    r"""What the exact model infers: the conditional distribution of the targets, no approximation.

    Means and deviations are exact for affine leaves and for latent nodes, by quadrature for
    splines and from 256 draws for couplings; quantiles are exact for elementwise leaves and latent
    nodes, else from 256 draws. Draws are joint. Latent evidence counts as observed up to 1e-5.

    Discrete leaves answer as in `vfg.VFG`: the mean is the probability of 1 (Bernoulli) or the most
    probable code (categorical), the deviation $\sqrt{p(1-p)}$ or NaN. These are given the evidence
    alone. Draws are made column by column: real ones first, then discrete ones in the order of the
    table, each given all before it, and latent nodes given the whole row. Therefore, if several
    columns are missing, the shares of drawn categories are not exactly `probabilities`.

    Example:
        >>> import vfg
        >>> from vfg.gaussian import GaussianVFG
        >>> model = GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
        >>> model.infer({"a": [1.0, 2.0]}, targets=["b"])
        Answer: 2 rows, targets 'b'; joint draws; all rows converged
    """

    _model: GaussianVFG

    @cached_property
    def mean(self) -> ByName:
        return self._with_evidence(self._over_tiles(self._tile_means))

    def mean_through(self, change: Callable[[Tensor], Tensor]) -> ByName:
        r"""The mean of a function of the columns: $\sum_k p(k \mid x_o)\, g(E[x \mid x_o, k])$.

        Exact for functions that are linear about every component; evidence is mapped as it is.

        Args:
            change: maps `(..., columns)` to `(..., columns)`, column by column.

        Raises:
            ValueError: for leaves that are not affine, or discrete.

        Example:
            >>> import vfg
            >>> from vfg.gaussian import GaussianVFG
            >>> answer = GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1)).infer({"a": 0.0})
            >>> bool(answer.mean_through(torch.exp)["b"] == answer.mean["b"].exp())
            True
        """
        columns = self._model.structure.columns
        if not self._model.leaves.is_identity or self._model.codes.units:
            raise ValueError(
                "functions of the mean need affine leaves that hold numbers, but some are "
                "nonlinear or discrete; take the function of draws instead"
            )

        def changed(tile: EvidenceTile) -> TableAndStates:
            result = column_means(tile.belief, tile.readout)[..., :columns]
            whole = torch.where(
                tile.mask[:, None, :columns], tile.values[:, None, :columns], result
            )
            table = change(self._decode(whole))
            return self._table_and_states(tile.means, (tile.shares[..., None] * table).sum(1))

        return self._over_tiles(changed)

    @cached_property
    def std(self) -> ByName:
        result = self._over_tiles(lambda tile: self._tile_moments(tile)[1])
        return self._with_evidence(result, certain=0.0)

    @property
    def exact_quantiles(self) -> bool:
        """Whether quantiles of numbers are closed forms: all but those of coupling leaves."""
        return bool(self._model.leaves.is_elementwise)

    @cached_property
    def responsibilities(self) -> Tensor:
        """Probabilities of the components given the evidence, `(rows, components)`."""
        return self._by_row(lambda tile: tile.shares, self._model.components)

    def covariance(self, targets: Name | Sequence[Name]) -> Tensor:
        """As in `Answer`; exact for affine leaves and latent nodes, else from 256 draws.

        Example:
            >>> import vfg
            >>> from vfg.gaussian import GaussianVFG
            >>> model = GaussianVFG(vfg.Graph.star({"a": 2, "b": 1}, width=1))
            >>> answer = model.infer({})
            >>> answer.covariance("a").shape, answer.covariance(["a", "b"]).shape
            (torch.Size([1, 2, 2]), torch.Size([1, 3, 3]))
        """
        chosen = self._chosen(targets)
        specs, is_identity = self._model.likelihood_specs, self._model.leaves.is_identity
        # Affine functions of the innovations have exact covariances.
        if not all(t.is_latent or (is_identity and specs[t.node].is_real) for t in chosen):
            return super().covariance(targets)
        free = self._side_by_side(self._known, chosen).isnan()
        result = self._exact_covariance(chosen)
        return torch.where(free[:, :, None] & free[:, None, :], result, 0.0)

    # Private.

    def _tiles(self) -> Iterator[tuple[Tensor, Tensor, EvidenceTile]]:
        model, latent = self._model, bool(self._given.states)
        observing, readout = factors_of_model(model, latent)
        side: Side | None = "leaf" if latent else None
        for rows, positions, ids in self._own_tiles(rows_of_a_tile(readout)):
            values, seen = self._evidence(rows)
            mask = seen.new_zeros(len(ids), seen.shape[1]).index_copy(0, positions, seen)
            here = values.new_zeros(len(ids), seen.shape[1]).index_copy(0, positions, values)
            every = torch.arange(len(ids), device=seen.device)
            belief = condition(observing, here, Masks(mask, every), side)
            tile = EvidenceTile(
                readout, belief, ids, self._seed, model.codes, observing, here, mask, side
            )
            yield rows, positions, tile

    def _evidence(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Evidence of some rows in the leaves' units: columns, then latent coordinates if given."""
        given, structure = self._given, self._model.structure
        values, seen, _ = self._model.encode(given.cells[rows], given.seen[rows])
        if not given.states:
            return values, seen
        states = values.new_full((len(rows), structure.width), torch.nan)
        for name, state in given.states.items():
            span = structure.spans[name]
            states[:, span.start : span.stop] = state[rows.to(state.device)].to(states)
        known = ~states.isnan()
        whole = torch.cat([values, torch.where(known, states, 0.0)], dim=1)
        return whole, torch.cat([seen, known], dim=1)

    def _table_and_states(self, found: Tensor, table: Tensor) -> TableAndStates:
        """Table in data units and states by node, from all columns and coordinates."""
        columns = self._model.structure.columns
        latent = found[..., columns:]
        spans = self._model.structure.spans
        return TableAndStates(
            table, {name: latent[..., span.start : span.stop] for name, span in spans.items()}
        )

    def _decode(self, found: Tensor) -> Tensor:
        return self._model.decode(found[..., : self._model.structure.columns])

    def _tile_means(self, tile: EvidenceTile) -> TableAndStates:
        """Means; where they follow from those of the components nothing else is computed."""
        if not self._model.leaves.is_identity:
            return self._tile_moments(tile)[0]
        table = self._decode(tile.means)
        for unit, probabilities in self._discrete(tile):
            table[:, unit.column] = self._discrete_moments(unit, probabilities)[0]
        return self._table_and_states(tile.means, table)

    def _tile_moments(self, tile: EvidenceTile) -> tuple[TableAndStates, TableAndStates]:
        """Means and deviations."""
        mean, variance = mixed_moments(tile.shares, *tile.moments)
        leaves, columns = self._model.leaves, self._model.structure.columns
        if leaves.is_identity:
            table = self._decode(mean)
            spread = self._model.codes.narrow(variance[:, :columns].sqrt())
            spread = spread * self._model.scaling.scale
        elif leaves.is_elementwise:
            table, spread = self._by_quadrature(tile)
        else:
            draws = self._draw(tile, DRAWS_FOR_QUANTILES).table
            table, spread = draws.mean(0), draws.std(0)
        for unit, probabilities in self._discrete(tile):
            own = self._discrete_moments(unit, probabilities)
            table[:, unit.column], spread[:, unit.column] = own
        return self._table_and_states(mean, table), self._table_and_states(variance.sqrt(), spread)

    def _by_quadrature(self, tile: EvidenceTile) -> tuple[Tensor, Tensor]:
        codes = self._model.codes
        mean, variance = (part.index_select(-1, codes.real_places) for part in tile.moments)

        def change(values: Tensor) -> Tensor:
            wide = values.new_zeros(*values.shape[:-1], codes.width)
            wide = wide.index_copy(-1, codes.real_places, values)
            return self._decode(wide).index_select(-1, codes.real)

        result = normal_moments(mean, variance.sqrt(), self._model.leaves.breaks(), change)
        table = tile.shares.new_zeros(2, len(tile.shares), codes.columns)
        table = table.index_copy(-1, codes.real, torch.stack(mixed_moments(tile.shares, *result)))
        return table[0], table[1].sqrt()

    def _quantiles(self, tile: EvidenceTile, levels: Tensor) -> TableAndStates:
        result = mixture_quantiles(tile.shares, *tile.moments, levels)
        if self._model.leaves.is_elementwise:
            table = self._decode(result)
        else:
            draws = self._draw(tile, DRAWS_FOR_QUANTILES).table
            table = sorted_quantiles(draws, levels)
        for unit, probabilities in self._discrete(tile):
            ones = (levels[:, None] > 1.0 - probabilities[:, 1]).to(table)
            table[..., unit.column] = torch.nan if self._has_codes(unit) else ones
        return self._table_and_states(result, table)

    def _draw(self, tile: EvidenceTile, count: int) -> TableAndStates:
        starts = range(0, count, DRAWS)
        parts = [tile.coded_draws(x // DRAWS, min(DRAWS, count - x)) for x in starts]
        result, categories = (torch.cat(part)[:count] for part in zip(*parts, strict=True))
        table = self._decode(result)
        for index, unit in enumerate(self._model.codes.units):
            table[..., unit.column] = categories[..., index]
        return self._table_and_states(result, table)

    def _discrete(self, tile: EvidenceTile) -> Iterator[tuple[Unit, Tensor]]:
        """The discrete columns among the targets with the probabilities of their categories."""
        wanted = dict.fromkeys(column for target in self._targets for column in target.columns)
        for index, unit in enumerate(self._model.codes.units):
            if unit.column in wanted:
                yield unit, tile.probabilities(index)

    def _discrete_moments(self, unit: Unit, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        if self._has_codes(unit):
            likeliest = probabilities.argmax(-1).to(probabilities)
            return likeliest, torch.full_like(likeliest, torch.nan)
        return probabilities[:, 1], (probabilities[:, 0] * probabilities[:, 1]).sqrt()

    def _has_codes(self, unit: Unit) -> bool:
        return isinstance(self._model.likelihood_specs[unit.leaf], Categorical)

    def _shares(self, tile: EvidenceTile, target: Target) -> Tensor:
        columns = [unit.column for unit in self._model.codes.units]
        return tile.probabilities(columns.index(target.columns[0]))

    def _exact_covariance(self, targets: Sequence[Target]) -> Tensor:
        structure = self._model.structure
        chosen: list[int] = []
        scales: list[Tensor] = []
        for target in targets:
            if target.is_latent:
                span = structure.spans[target.node]
                chosen += [structure.columns + k for k in span]
                scales.append(torch.ones(len(span), dtype=torch.float64))
            else:
                places = structure.positions[target.node]
                own = self._model.sections.positions[target.node]
                chosen += [places[own.index(column)] for column in target.columns]
                scales.append(self._model.scaling.scale[list(target.columns)].cpu())
        scale = torch.cat(scales)

        def scaled(tile: EvidenceTile) -> Tensor:
            part = mixture_covariance(tile, chosen)
            return part * torch.outer(scale, scale).to(part)

        return self._by_row(scaled, len(chosen), len(chosen))


def factors_of_model(model: GaussianVFG, latent: bool) -> tuple[Factors, Factors]:
    """The factor models of the evidence, and of all columns and latent coordinates.

    Factors without latent evidence are kept until a parameter changes.
    """
    if latent:
        values = model.linear.values()
        readout = with_latents(model.structure, values, 0.0)
        return with_latents(model.structure, values, CERTAIN), readout
    # A parameter that is changed in place has another version; one that is replaced, another id;
    # one that is moved to another device or dtype, another address.
    state = tuple((id(part), part.data_ptr(), part._version) for part in model.parameters())
    known = _FACTORS.get(model)
    if known is None or known[0] != state:
        values = model.linear.values()
        factors = factors_of(model.structure, values)
        known = state, factors, with_latents(model.structure, values, 0.0)
        if not torch.is_grad_enabled():
            _FACTORS[model] = known
    return known[1], known[2]


@dataclass(frozen=True)
class Posterior:
    """The latent nodes given the observed cells, in closed form."""

    mean: dict[str, Tensor]
    """`(rows, width)` by node."""
    covariance: dict[str, Tensor]
    """`(rows, width, width)` by node; for a mixture, that of the whole mixture."""
    responsibilities: Tensor
    """Probabilities of the components, `(rows, components)`."""
    component_mean: dict[str, Tensor]
    """`(rows, components, width)` by node."""
    component_covariance: dict[str, Tensor]
    """`(rows, components, width, width)` by node."""

    def to(self, like: Tensor) -> Posterior:
        """The same with the dtype and device of another tensor."""

        def move(part: Any) -> Any:
            if isinstance(part, Tensor):
                return part.to(like)
            return {name: value.to(like) for name, value in part.items()}

        return Posterior(*(move(part) for part in vars(self).values()))


def posterior_of(structure: Structure, values: Values, table: Tensor, seen: Tensor) -> Posterior:
    """Moments of all latent nodes given values of the leaves, by chunks of rows."""
    cliques = [Clique(tuple(span), (), (), name) for name, span in structure.spans.items()]
    scores, parts = list[Tensor](), list[list[tuple[Tensor, Tensor]]]()
    for rows, mask in zip(table.split(ROWS_AT_ONCE), seen.split(ROWS_AT_ONCE), strict=True):
        masks = group_masks(mask)
        log_probs, moments = family_moments(structure, values, rows, masks, cliques)
        scores.append(log_probs + values.log_weights)
        count = log_probs.shape[1]
        parts.append([(m, c.expand(-1, count, -1, -1)[masks.groups]) for m, c in moments])
    shares = torch.cat(scores).softmax(-1)
    means, covariances = dict[str, Tensor](), dict[str, Tensor]()
    for index, name in enumerate(structure.nodes):
        means[name] = torch.cat([part[index][0] for part in parts])
        covariances[name] = torch.cat([part[index][1] for part in parts])
    centres = {name: (shares[..., None] * mean).sum(1) for name, mean in means.items()}
    whole = {name: mixed_covariance(shares, means[name], covariances[name]) for name in means}
    return Posterior(centres, whole, shares, means, covariances)
