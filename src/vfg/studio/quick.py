"""Answers about single rows, fast: nothing is padded, and all draws are decoded at once.

Bits differ from those of `infer`, which pads rows so that a row's bits do not depend on its batch;
the numbers agree to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.answers import GaussianAnswer
from vfg.gaussian.chains import CodedTile
from vfg.gaussian.factors import Masks, condition
from vfg.gaussian.parameters import factors_of, with_latents
from vfg.inference.answers import Answer, Picture, Target
from vfg.inference.draws import Tile, column_counters, decode, internal_normals
from vfg.inference.evidence import Given, as_given
from vfg.inference.propagation import ROUNDS, Belief, evaluating, propagate_by_tiles
from vfg.inference.randomness import uniform
from vfg.inference.spread import noise_scale
from vfg.inference.targets import as_targets
from vfg.inputs import Name
from vfg.model import VFG
from vfg.tabular.combining import KINDS
from vfg.tabular.drawing import corrected_share
from vfg.tabular.forest import tiled
from vfg.tabular.joint import DRAWING_SEEDS
from vfg.tabular.mixtures import Mixture
from vfg.tabular.model import TableModel
from vfg.tabular.neighbours import Neighbours
from vfg.tabular.rowwise import joined


class QuickAnswer(Answer):
    """An `Answer` about a few rows with the ids 0, 1, ..., computed as one tile of their size."""

    def _tiles(self) -> Iterator[tuple[Tensor, Tensor, Tile]]:
        rows = torch.arange(self._given.rows, device=self._row_ids.device)
        tile = Tile(
            self._model,
            self._belief,
            noise=noise_scale(self._model, self._given.seen),
            temperature=self._model.spread.log_temperature.exp(),
            row_ids=self._row_ids,
            seed=self._seed,
            remembered=self._moments,
        )
        yield rows, rows, tile

    def _drawn(self, tile: Tile, count: int) -> Picture:
        draws = torch.arange(count)
        if self.joint:
            normals = tile._root_normals(draws)
            found = decode(self._model, self._belief, normals, tile.temperature)
            pairs = zip(found, self._belief.backward, tile.moments[0], strict=True)
            states = [x + (centre - mean) for x, centre, mean in pairs]
        else:
            states = tile._repeated(count)
        counters = column_counters(self._model)
        numbers = uniform(tile.seed, tile.row_ids, draws, *counters)
        latent = self._states(states)
        if not self.joint:
            latent = {node: torch.full_like(state, torch.nan) for node, state in latent.items()}
        return Picture(tile._explained(states, numbers), latent)


@torch.no_grad()
def quick_infer(
    model: VFG, table: Tensor, targets: list[Name], seed: int = 0
) -> tuple[Tensor, QuickAnswer]:
    """What `model.infer` says about few rows with NaN for gaps.

    Args:
        model: a model with deterministic states.
        table: `(rows, columns)`.
        targets: what to ask of the first row.
        seed: of the draws.

    Returns:
        The expected tables of all rows, `(rows, columns)`, and an answer about the first row.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> means, answer = quick_infer(model, torch.tensor([[2.0, torch.nan]]), ["b"])
        >>> means.tolist(), answer.std["b"].item()
        ([[2.0, 2.0]], 1.0)
    """
    given = as_given(model, table, None)
    belief = believed(model, given)
    means = model.scaling.undo(model.sections.join(belief.means)).to(table)
    one = as_given(model, table[:1], None)
    first = belief.select(torch.zeros(1, dtype=torch.long, device=given.cells.device))
    chosen: list[Target] = as_targets(model, targets)
    ids = torch.zeros(1, dtype=torch.long, device=given.cells.device)
    answer = QuickAnswer(model, one, first, chosen, ids, seed)
    return torch.where(table.isnan(), means, table), answer


def believed(model: VFG, given: Given) -> Belief:
    """What messages say about rows, without padding."""
    ids = torch.arange(given.rows, device=given.cells.device)
    with evaluating(model):
        return propagate_by_tiles(
            model,
            given.cells,
            given.seen,
            None,
            given.evidence,
            row_ids=ids,
            size=given.rows,
            rounds=ROUNDS,
        )


class QuickGaussianAnswer(GaussianAnswer):
    """A `GaussianAnswer` about a few rows with the ids 0, 1, ..., computed as one tile."""

    def _own_tiles(self) -> Iterator[tuple[Tensor, Tensor, CodedTile]]:
        if self._given.states:
            yield from super()._own_tiles()
            return
        model, rows = self._gaussian, torch.arange(self._given.rows, device=self._row_ids.device)
        values, seen = self._evidence(rows)
        observing, readout = _factors(model)
        belief = condition(observing, values, Masks(seen, rows), None)
        tile = CodedTile(
            readout, belief, self._row_ids, self._seed, model.codes, observing, values, seen, None
        )
        yield rows, rows, tile


_KEPT: WeakKeyDictionary[GaussianVFG, tuple[tuple[int, ...], Any, Any]] = WeakKeyDictionary()
"""Factors of exact models, which follow from their parameters, with the versions of those."""


def _factors(model: GaussianVFG) -> tuple[Any, Any]:
    """How leaves, and leaves and latent nodes, follow from the roots; computed once."""
    versions = tuple(parameter._version for parameter in model.parameters())
    kept = _KEPT.get(model)
    if kept is None or kept[0] != versions:
        values = model.linear.values()
        observing = factors_of(model.structure, values)
        kept = versions, observing, with_latents(model.structure, values, 0.0)
        _KEPT[model] = kept
    return kept[1], kept[2]


def quick_exact(
    model: Any, table: Tensor, seed: int = 0, targets: list[Name] | None = None
) -> QuickGaussianAnswer:
    """What an exact model says about few rows with NaN for gaps, by default about all leaves.

    Example:
        >>> import vfg
        >>> model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
        >>> table = torch.tensor([[1.0, torch.nan]], dtype=torch.float64)
        >>> bool(quick_exact(model, table).mean["b"] == model.infer(table).mean["b"])
        True
    """
    given = as_given(model, table, None)
    ids = torch.arange(given.rows, device=given.cells.device)
    return QuickGaussianAnswer(model, given, as_targets(model, targets), ids, seed)


@torch.no_grad()
def quick_table(
    model: TableModel, values: Tensor, observed: Tensor, draws: int, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """What a table's model says about few rows: `means` of all, `draws` of the first.

    Args:
        model: a fitted model.
        values: encoded rows, anything where nothing is observed.
        observed: which entries are evidence.
        draws: about how many draws.
        seed: of the draws.

    Returns:
        Means `(rows, columns)` and draws `(draws, columns)`, as `TableModel.means` and
        `TableModel.draws` compute them.
    """
    turns = model.turns(draws)
    ids = torch.arange(len(values))
    if model.linear is None or not model.bent or model.has_broken_sections(observed):
        drawn = model.draws(values[:1], observed[:1], draws, seed)
        return model.means(values, observed), drawn[:, 0]
    table = torch.where(observed, values, torch.nan)
    members = _Members(model, table)
    expected = _expected(model, members, values, observed, table, ids)
    means = torch.where(observed, values, model.joined(expected))
    found = torch.empty(draws, 1, values.shape[1], dtype=torch.float64)
    bent = {part: found for part, found in turns.items() if part < len(model.bent)}
    if bent:
        most = max(len(turn) for turn in bent.values())
        seeds = [seed * DRAWING_SEEDS + part for part in range(len(model.bent))]
        drawn = members.draws(most, seeds)
        for part, turn in bent.items():
            found[turn, 0] = drawn[: len(turn), part]
    for part, turn in turns.items():
        if part not in bent:
            found[turn] = _drawn(model, part, values[:1], observed[:1], len(turn), seed)
    first = {kind: said[:1] for kind, said in expected.items()}
    return means, torch.where(observed[0], values[0], model.moved(found, first)[:, 0])


def _drawn(
    model: TableModel, part: int, values: Tensor, observed: Tensor, number: int, seed: int
) -> Tensor:
    """Draws of an exact model, a mixture or neighbours for one row, `(number, 1, columns)`."""
    who = model.drawing_part(part)
    own = seed * DRAWING_SEEDS + part
    if isinstance(who, GaussianVFG):
        row = torch.where(observed, values, torch.nan)
        return joined(quick_exact(who, row, own).samples(number))
    if isinstance(who, Mixture):
        return who.ranks.back(joined(_of_scores(who, values, observed, own).samples(number)))
    assert isinstance(who, Neighbours)
    moved = corrected_share(model.weights)
    ids = torch.zeros(1, dtype=torch.long)
    return who.samples(values, observed, number, seed=own, ids=ids, corrected=moved)


def _mixed(mixture: Mixture, values: Tensor, observed: Tensor) -> Tensor:
    """What a mixture expects of every entry."""
    return joined(_of_scores(mixture, values, observed).mean_through(mixture.ranks.back))


def _of_scores(
    mixture: Mixture, values: Tensor, observed: Tensor, seed: int = 0
) -> QuickGaussianAnswer:
    scores = mixture.ranks(values.double())
    return quick_exact(mixture.exact, torch.where(observed, scores, torch.nan), seed)


def _expected(
    model: TableModel,
    members: _Members,
    values: Tensor,
    observed: Tensor,
    table: Tensor,
    ids: Tensor,
) -> dict[str, Tensor]:
    """What parts with a say expect, by kind, `(rows, columns)`."""
    kinds = model.asked_kinds(drawing=True)
    found: dict[str, Tensor] = {}
    if "members" in kinds:
        found["members"] = model.average(list(members.means.unbind(1)))
    if "mixtures" in kinds:
        found["mixtures"] = model.average([_mixed(one, values, observed) for one in model.mixed])
    if "linear" in kinds:
        found["linear"] = model.average([joined(quick_exact(model.linear, table).mean)])
    if KINDS[3] in kinds:
        found.update(zip(KINDS[3:], model.neighbour_means(values, observed, ids), strict=True))
    return found


class _Members:
    """What the members of a table's model say about few rows, all at once."""

    def __init__(self, model: TableModel, table: Tensor) -> None:
        self.stack, self.members = model.stack, model.bent
        self.given = as_given(self.stack, tiled(table, len(self.members)), None)
        self.belief = believed(self.stack, self.given)

    @cached_property
    def means(self) -> Tensor:
        """What every member expects, `(rows, members, columns)`."""
        joined = self.stack.sections.join(self.belief.means)
        expected = self.stack.scaling.undo(joined).double()
        return expected.view(len(expected), len(self.members), -1)

    def draws(self, count: int, seeds: Sequence[int]) -> Tensor:
        """Draws of every member for the first row, `(draws, members, columns)`."""
        with evaluating(self.stack):
            return self._draws(count, seeds)

    def _draws(self, count: int, seeds: Sequence[int]) -> Tensor:
        stack, draws = self.stack, torch.arange(count)
        ids = torch.zeros(1, dtype=torch.long)
        first = self.belief.select(ids)
        width = self.given.seen.shape[1] // len(self.members)
        tiles = [
            Tile(
                member,
                first,
                noise=noise_scale(member, self.given.seen[:1, :width]),
                temperature=member.spread.log_temperature.exp(),
                row_ids=ids,
                seed=seed,
                remembered={},
            )
            for member, seed in zip(self.members, seeds, strict=True)
        ]
        cooled = [tile.temperature.rsqrt() for tile in tiles]
        one = torch.ones_like(cooled[0])
        outer = [tile._root_normals(draws) for tile in tiles]
        inner = [internal_normals(member) for member in self.members]
        centres = [state.mean(0) for state in decode(stack, first, _joined(inner, cooled), one)]
        drawn = decode(stack, first, _joined(outer, cooled), one)
        pairs = zip(drawn, first.backward, centres, strict=True)
        states = [x + (centre - mean) for x, centre, mean in pairs]
        numbers = [uniform(t.seed, ids, draws, *column_counters(t.model)) for t in tiles]
        whole = Tile(
            stack,
            first,
            noise=torch.cat([tile.noise for tile in tiles], dim=1),
            temperature=one,
            row_ids=ids,
            seed=0,
            remembered={},
        )
        found = whole._explained(states, torch.cat(numbers, dim=-1))
        return found.view(count, len(self.members), -1).double()


def _joined(normals: list[dict[int, Tensor]], scales: list[Tensor]) -> dict[int, Tensor]:
    """The members' draws of their roots side by side, scaled by their temperatures."""
    return {
        block: torch.cat([z[block] * s for z, s in zip(normals, scales, strict=True)], dim=1)
        for block in normals[0]
    }
