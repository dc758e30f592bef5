"""Answers of the exact model: closed forms where there are any, quadrature or draws elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.gaussian.chains import CodedTile
from vfg.gaussian.factors import Masks, Side, column_means, condition, mixed_moments
from vfg.gaussian.parameters import factors_of, with_latents
from vfg.gaussian.tiles import (
    DRAWS,
    mixture_covariance,
    mixture_quantiles,
    normal_moments,
    rows_of_a_tile,
)
from vfg.inference.answers import (
    DRAWS_FOR_QUANTILES,
    Answer,
    ByName,
    Picture,
    Target,
    picked,
    sorted_quantiles,
)
from vfg.inference.evidence import Given
from vfg.inference.propagation import evaluating, tiles
from vfg.inputs import Name
from vfg.likelihoods import Categorical

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG

CERTAIN = 1e-5
"""The standard deviation with which the given state of a latent node is observed."""


class GaussianAnswer(Answer):
    r"""What the exact model infers: the conditional distribution of the targets, no approximation.

    Means and deviations are exact for affine leaves and for latent nodes, by quadrature for
    splines and from 256 draws for couplings; quantiles are exact for elementwise leaves and latent
    nodes, else from 256 draws. Draws are joint. Latent evidence counts as observed up to 1e-5.

    Discrete leaves answer as in `vfg.VFG`: the mean is the probability of 1 (Bernoulli) or the most
    probable code (categorical), the deviation $\sqrt{p(1-p)}$ or NaN. These are given the evidence
    alone. Draws go on from column to column: real ones first, then discrete ones in the order of
    the table, each given all before it, and latent nodes given the whole row. So where several
    columns are missing, the shares of drawn categories are not exactly `probabilities`.

    Args:
        model: the model.
        given: the evidence.
        targets: what was asked for.
        row_ids: the ids of the rows.
        seed: of the draws.

    Example:
        >>> import vfg
        >>> from vfg.gaussian import GaussianVFG
        >>> model = GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
        >>> model.infer({"a": [1.0, 2.0]}, targets=["b"])
        Answer: 2 rows, targets 'b'; joint draws; all rows converged
    """

    def __init__(
        self,
        model: GaussianVFG,
        given: Given,
        targets: Sequence[Target],
        row_ids: Tensor,
        seed: int,
    ) -> None:
        self._gaussian, self._given = model, given
        self._targets, self._row_ids, self._seed = tuple(targets), row_ids, seed

    @property
    def joint(self) -> bool:
        """Whether draws of different targets in one row belong together: always."""
        return True

    @property
    def converged(self) -> Tensor:
        """True for every row: nothing is iterated."""
        return torch.ones(self._given.rows, dtype=torch.bool, device=self._given.table.device)

    @cached_property
    def mean(self) -> ByName:
        """Expected values `(rows, width)`, of a column `(rows,)`; for categories the likeliest."""
        return self._with_evidence(self._collected(self._first))

    def mean_through(self, change: Callable[[Tensor], Tensor]) -> ByName:
        r"""What a function of the columns is about: $\sum_k p(k \mid x_o)\, g(E[x \mid x_o, k])$.

        Exact for functions that are linear about every component; evidence is mapped as it is.
        Leaves must be affine and hold numbers.

        Args:
            change: maps `(..., columns)` to `(..., columns)`, column by column.

        Raises:
            ValueError: for other leaves.

        Example:
            >>> import vfg
            >>> from vfg.gaussian import GaussianVFG
            >>> answer = GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1)).infer({"a": 0.0})
            >>> bool(answer.mean_through(torch.exp)["b"] == answer.mean["b"].exp())
            True
        """
        columns = self._gaussian.structure.columns
        if not self._gaussian.leaves.is_identity or self._gaussian.codes.units:
            raise ValueError(
                "functions of the mean need affine leaves that hold numbers, but some are bent or "
                "discrete; take the function of draws instead"
            )

        def changed(tile: CodedTile) -> Picture:
            found = column_means(tile.belief, tile.readout)[..., :columns]
            whole = torch.where(tile.mask[:, None, :columns], tile.values[:, None, :columns], found)
            table = change(self._decoded(whole))
            return self._picture(tile.means, (tile.shares[..., None] * table).sum(1))

        return self._collected(changed)

    @cached_property
    def std(self) -> ByName:
        """Standard deviations, shaped like `mean`; 0 where observed, NaN for categories."""
        found = self._collected(lambda tile: self._first_two(tile)[1])
        return self._with_evidence(found, certain=0.0)

    def _at_levels(self, levels: Tensor) -> ByName:
        return self._collected(lambda tile: self._levels(tile, levels), (len(levels),))

    def samples(self, n: int) -> ByName:
        """Joint draws `(n, rows, width)`, of a column `(n, rows)`; the first are always the same.

        Args:
            n: how many draws per row.

        Raises:
            ValueError: if `n` is not positive.

        Example:
            >>> import vfg
            >>> from vfg.gaussian import GaussianVFG
            >>> answer = GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1)).infer({"a": 0.0})
            >>> torch.equal(answer.samples(100)["b"][:20], answer.samples(20)["b"])
            True
        """
        if n < 1:
            raise ValueError(f"the number of draws must be positive, but is {n}")
        return self._with_evidence(self._collected(lambda tile: self._drawn_from(tile, n), (n,)))

    @cached_property
    def probabilities(self) -> ByName:
        """Probabilities of every code `(rows, categories)` of the categorical targets."""
        like, found = self._given.table, ByName()
        units = {target.name: self._unit_of(target) for target in self._targets}
        chosen = {name: unit for name, unit in units.items() if unit is not None}
        for name, unit in chosen.items():
            categories = self._gaussian.codes.units[unit].categories
            found[name] = like.new_zeros(self._given.rows, categories)
        with evaluating(self._gaussian):
            for rows, positions, tile in self._own_tiles() if chosen else ():
                here = rows.to(like.device)
                for name, unit in chosen.items():
                    found[name][here] = tile.probabilities(unit)[positions].to(like)
        for name, table in found.items():
            known = self._known[name].reshape(-1, 1)
            certain = (torch.arange(table.shape[1], device=like.device) == known).to(table)
            found[name] = torch.where(known.isnan(), table, certain)
        return found

    @cached_property
    def responsibilities(self) -> Tensor:
        """Probabilities of the components given the evidence, `(rows, components)`."""
        like = self._given.table
        found = like.new_zeros(self._given.rows, self._gaussian.components)
        with evaluating(self._gaussian):
            for rows, positions, tile in self._own_tiles():
                found[rows.to(like.device)] = tile.shares[positions].to(like)
        return found

    def covariance(self, target: Name) -> Tensor:
        """The covariance matrix of one target, `(rows, width, width)`; 0 where observed.

        Exact for affine leaves and latent nodes, else from 256 draws; NaN for categories.

        Args:
            target: one of the targets.

        Raises:
            KeyError: for another name.

        Example:
            >>> import vfg
            >>> from vfg.gaussian import GaussianVFG
            >>> model = GaussianVFG(vfg.Graph.star({"a": 2, "b": 1}, width=1))
            >>> model.infer({"b": 0.0}).covariance("a").shape
            torch.Size([1, 2, 2])
        """
        known = self._known[target]
        chosen = next(found for found in self._targets if found.name == target)
        free = (known if known.ndim == 2 else known[:, None]).isnan().to(known)
        if self._unit_of(chosen) is not None:
            found = torch.full_like(free[:, :, None], torch.nan)
            return torch.where(free[:, :, None] > 0.0, found, 0.0)
        real = chosen.is_latent or self._gaussian.likelihood_specs[chosen.node].is_real
        if not (real and (self._gaussian.leaves.is_identity or chosen.is_latent)):
            draws = self.samples(DRAWS_FOR_QUANTILES)[target].reshape(
                DRAWS_FOR_QUANTILES, *free.shape
            )
            left = draws - draws.mean(0)
            found = torch.einsum("dni,dnj->nij", left, left) / (DRAWS_FOR_QUANTILES - 1)
        else:
            found = self._exact_covariance(chosen)
        return found * free[:, :, None] * free[:, None, :]

    # Private.

    def _own_tiles(self) -> Iterator[tuple[Tensor, Tensor, CodedTile]]:
        """Rows, their positions, and the padded tile in which they lie."""
        model, latent = self._gaussian, bool(self._given.states)
        structure, parameters = model.structure, model.linear.values()
        readout = with_latents(structure, parameters, 0.0)
        if latent:
            observing = with_latents(structure, parameters, CERTAIN)
        else:
            observing = factors_of(structure, parameters)
        side: Side | None = "leaf" if latent else None
        size = rows_of_a_tile(readout)
        every = torch.arange(size, device=self._given.seen.device)
        for rows, positions in tiles(self._row_ids, size):
            values, seen = self._evidence(rows)
            mask = seen.new_zeros(size, seen.shape[1]).index_copy(0, positions, seen)
            here = values.new_zeros(size, seen.shape[1]).index_copy(0, positions, values)
            belief = condition(observing, here, Masks(mask, every), side)
            ids = self._row_ids[rows[0]] // size * size + every
            tile = CodedTile(
                readout, belief, ids, self._seed, model.codes, observing, here, mask, side
            )
            yield rows, positions, tile

    def _evidence(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What some rows have, in the leaves' units: columns, then latent coordinates if given."""
        given, structure = self._given, self._gaussian.structure
        values, seen, _ = self._gaussian.encode(given.cells[rows], given.seen[rows])
        if not given.states:
            return values, seen
        states = values.new_full((len(rows), structure.width), torch.nan)
        for name, state in given.states.items():
            span = structure.spans[name]
            states[:, span.start : span.stop] = state[rows.to(state.device)].to(states)
        known = ~states.isnan()
        whole = torch.cat([values, torch.where(known, states, 0.0)], dim=1)
        return whole, torch.cat([seen, known], dim=1)

    def _collected(
        self, of: Callable[[CodedTile], Picture], leading: tuple[int, ...] = ()
    ) -> ByName:
        """The targets of all rows from a picture of every tile, evidence not yet put in place."""
        like, rows, axis = self._given.table, self._given.rows, len(leading)
        columns = list(dict.fromkeys(k for target in self._targets for k in target.columns))
        table = like.new_zeros(*leading, rows, len(columns))
        states = {
            target.node: like.new_zeros(*leading, rows, *target.shape)
            for target in self._targets
            if target.is_latent
        }
        with evaluating(self._gaussian):
            for chosen, positions, tile in self._own_tiles():
                here, found = chosen.to(like.device), of(tile)
                parts = [(table, found.table[..., columns])]
                parts += [(state, found.states[node]) for node, state in states.items()]
                for whole, part in parts:
                    whole.index_copy_(axis, here, part.index_select(axis, positions).to(like))
        named = ByName()
        for target in self._targets:
            if target.is_latent:
                named[target.name] = states[target.node]
            else:
                places = tuple(columns.index(k) for k in target.columns)
                named[target.name] = table[..., places[0] if target.is_column else picked(places)]
        return named

    def _picture(self, found: Tensor, table: Tensor) -> Picture:
        """A picture from all columns and coordinates, with the table in data units."""
        columns = self._gaussian.structure.columns
        latent = found[..., columns:]
        spans = self._gaussian.structure.spans
        return Picture(
            table, {name: latent[..., span.start : span.stop] for name, span in spans.items()}
        )

    def _decoded(self, found: Tensor) -> Tensor:
        return self._gaussian.decode(found[..., : self._gaussian.structure.columns])

    def _first(self, tile: CodedTile) -> Picture:
        """Means; where they follow from those of the components nothing else is computed."""
        if not self._gaussian.leaves.is_identity:
            return self._first_two(tile)[0]
        table = self._decoded(tile.means)
        for column, chances in self._discrete(tile):
            table[:, column] = self._discrete_moments(column, chances)[0]
        return self._picture(tile.means, table)

    def _first_two(self, tile: CodedTile) -> tuple[Picture, Picture]:
        """Means and deviations."""
        mean, variance = mixed_moments(tile.shares, *tile.moments)
        leaves, columns = self._gaussian.leaves, self._gaussian.structure.columns
        if leaves.is_identity:
            table = self._decoded(mean)
            spread = self._gaussian.codes.narrow(variance[:, :columns].sqrt())
            spread = spread * self._gaussian.scaling.scale
        elif leaves.is_elementwise:
            table, spread = self._by_quadrature(tile)
        else:
            draws = self._drawn_from(tile, DRAWS_FOR_QUANTILES).table
            table, spread = draws.mean(0), draws.std(0)
        for column, chances in self._discrete(tile):
            table[:, column], spread[:, column] = self._discrete_moments(column, chances)
        return self._picture(mean, table), self._picture(variance.sqrt(), spread)

    def _by_quadrature(self, tile: CodedTile) -> tuple[Tensor, Tensor]:
        codes = self._gaussian.codes
        mean, variance = (part.index_select(-1, codes.real_places) for part in tile.moments)

        def change(values: Tensor) -> Tensor:
            wide = values.new_zeros(*values.shape[:-1], codes.width)
            wide = wide.index_copy(-1, codes.real_places, values)
            return self._decoded(wide).index_select(-1, codes.real)

        found = normal_moments(mean, variance.sqrt(), self._gaussian.leaves.breaks(), change)
        table = tile.shares.new_zeros(2, len(tile.shares), codes.columns)
        table = table.index_copy(-1, codes.real, torch.stack(mixed_moments(tile.shares, *found)))
        return table[0], table[1].sqrt()

    def _levels(self, tile: CodedTile, levels: Tensor) -> Picture:
        found = mixture_quantiles(tile.shares, *tile.moments, levels)
        if self._gaussian.leaves.is_elementwise:
            table = self._decoded(found)
        else:
            draws = self._drawn_from(tile, DRAWS_FOR_QUANTILES).table
            table = sorted_quantiles(draws, levels)
        for column, chances in self._discrete(tile):
            ones = (levels[:, None] > 1.0 - chances[:, 1]).to(table)
            table[..., column] = torch.nan if self._is_categorical(column) else ones
        return self._picture(found, table)

    def _drawn_from(self, tile: CodedTile, count: int) -> Picture:
        parts = [tile.coded_draws(group) for group in range(-(-count // DRAWS))]
        found, categories = (torch.cat(part)[:count] for part in zip(*parts, strict=True))
        table = self._decoded(found)
        for index, unit in enumerate(self._gaussian.codes.units):
            table[..., unit.column] = categories[..., index]
        return self._picture(found, table)

    def _discrete(self, tile: CodedTile) -> Iterator[tuple[int, Tensor]]:
        """The discrete columns among the targets with the probabilities of their categories."""
        wanted = dict.fromkeys(column for target in self._targets for column in target.columns)
        for index, unit in enumerate(self._gaussian.codes.units):
            if unit.column in wanted:
                yield unit.column, tile.probabilities(index)

    def _discrete_moments(self, column: int, chances: Tensor) -> tuple[Tensor, Tensor]:
        if self._is_categorical(column):
            likeliest = chances.argmax(-1).to(chances)
            return likeliest, torch.full_like(likeliest, torch.nan)
        return chances[:, 1], (chances[:, 0] * chances[:, 1]).sqrt()

    def _is_categorical(self, column: int) -> bool:
        model = self._gaussian
        unit = next(unit for unit in model.codes.units if unit.column == column)
        return isinstance(model.likelihood_specs[unit.leaf], Categorical)

    def _unit_of(self, target: Target) -> int | None:
        """The place of a categorical target among the discrete columns."""
        for index, unit in enumerate(self._gaussian.codes.units):
            if target.columns == (unit.column,) and self._is_categorical(unit.column):
                return index
        return None

    def _exact_covariance(self, target: Target) -> Tensor:
        like, structure = self._given.table, self._gaussian.structure
        span = structure.spans.get(target.node, range(0))
        places = structure.positions.get(target.node, ())
        own = self._gaussian.sections.positions.get(target.node, ())
        chosen = [places[own.index(column)] for column in target.columns]
        chosen = chosen or [structure.columns + k for k in span]
        scale = self._gaussian.scaling.scale[list(target.columns)] if target.columns else 1.0
        found = like.new_zeros(self._given.rows, len(chosen), len(chosen))
        with evaluating(self._gaussian):
            for rows, positions, tile in self._own_tiles():
                part = mixture_covariance(tile, chosen)[positions]
                part = part * torch.as_tensor(scale).to(part)
                part = (part.mT * torch.as_tensor(scale).to(part)).mT
                found[rows.to(like.device)] = part.to(like)
        return found
