"""All models of a table as one: what they expect and draw together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from vfg.gaussian import GaussianVFG
from vfg.model import VFG

from .combining import KINDS, Combination, member_means
from .drawing import corrected_share, drawing_shares, turns
from .forest import stacked
from .forgetting import Forgetful
from .mixtures import Mixture, side_by_side
from .neighbours import Neighbours, Said
from .rowwise import Asked, asked, joined

DRAWING_SEEDS = 1009
"""Seeds of the parts' draws lie between multiples of this."""


class Joint(Forgetful):
    """Members, mixtures, a linear model and neighbours that answer together.

    Matrices are encoded, have the columns that the models know, and are where the models are.

    Args:
        columns: how many.
        linear: the exact model of these columns; None if there are none.
        members: models that started linear and were bent; none for the linear model alone.
        mixtures: exact models whose roots are mixtures.
        neighbours: mixtures with a component at every row.
    """

    follows = ("stack", "ask_linear")
    factors: Tensor
    spread: Tensor
    reach: Tensor

    def __init__(
        self,
        columns: int,
        linear: GaussianVFG | None,
        members: list[VFG],
        mixtures: list[Mixture],
        neighbours: list[Neighbours],
    ) -> None:
        super().__init__()
        self.linear = linear
        self.members = nn.ModuleList(members)
        self.mixtures = nn.ModuleList(mixtures)
        self.neighbours = nn.ModuleList(neighbours)
        # A parameter, so that there is one even where no column tells anything.
        self.weights = nn.Parameter(
            torch.zeros(len(KINDS), dtype=torch.float64), requires_grad=False
        )
        for name in ("factors", "spread"):
            self.register_buffer(name, torch.ones(columns, dtype=torch.float64))
        self.register_buffer("reach", torch.zeros(2, columns, dtype=torch.float64))

    def join(self, combination: Combination) -> None:
        """Answer by other weights, factors, spreads and reaches."""
        for part in ("weights", "factors", "spread", "reach"):
            getattr(self, part).copy_(getattr(combination, part))

    @property
    def bent(self) -> list[VFG]:
        """The members."""
        return [member for member in self.members if isinstance(member, VFG)]

    @property
    def mixed(self) -> list[Mixture]:
        """The mixtures."""
        return [mixture for mixture in self.mixtures if isinstance(mixture, Mixture)]

    @property
    def near(self) -> list[Neighbours]:
        """The mixtures with a component at every row."""
        return [one for one in self.neighbours if isinstance(one, Neighbours)]

    @cached_property
    def stack(self) -> VFG:
        """The members as one model."""
        return stacked(self.bent).eval()

    def joint_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        """What all parts together expect of every entry; known ones are themselves.

        Args:
            values: the matrix, any finite numbers where nothing is observed.
            observed: which of its entries are evidence.
            ids: of the rows.
        """
        if not len(self.members):
            found = self._linear_means(values, observed, ids)
        else:
            found = self.joined(self._expected(values, observed, ids))
        return torch.where(observed, values, found)

    def joint_draws(
        self, values: Tensor, observed: Tensor, ids: Tensor, number: int, seed: int
    ) -> Tensor:
        """Joint draws of what is not observed given what is, `(number, rows, columns)`.

        Args:
            values: the matrix, any finite numbers where nothing is observed.
            observed: which of its entries are evidence.
            ids: of the rows, on which draws depend.
            number: of draws.
            seed: of the draws.
        """
        assert self.linear is not None
        if not len(self.members):
            answer = self.linear.infer(values, observed=observed, seed=seed, row_ids=ids)
            found = joined(answer.samples(number))
            return torch.where(observed, values, found)
        expected = self._expected(values, observed, ids, drawing=True)
        found = values.new_empty(number, *values.shape, dtype=torch.float64)
        for part, own in self.turns(number).items():
            found[own] = self._drawn(part, values, observed, len(own), seed, ids)
        return torch.where(observed, values, self.moved(found, expected))

    def asked_kinds(self, *, drawing: bool = False) -> set[str]:
        """The kinds of parts that have a say in answers, or in draws."""
        kinds = {kind for kind, weight in zip(KINDS, self.weights, strict=True) if weight > 0}
        if not kinds.isdisjoint(KINDS[3:]):
            kinds.update(KINDS[3:])  # one answers for both
        if drawing and drawing_shares(self.weights)[2] > 0:
            kinds.add("linear")
        return kinds

    def joined(self, expected: Mapping[str, Tensor]) -> Tensor:
        """What all parts together expect of every entry, from what they expect by kind."""
        total = torch.zeros_like(next(iter(expected.values()), self.factors))
        for kind, weight in zip(KINDS, self.weights, strict=True):
            if kind in expected:
                total = total + weight * expected[kind]
        return self.factors * total

    def average(self, tables: Sequence[Tensor]) -> Tensor:
        """The mean of tables, each no further out than the columns reach.

        They are added up one by one, since the bits of `mean` depend on the number of rows.
        """
        total = tables[0].clamp(*self.reach)
        for table in tables[1:]:
            total = total + table.clamp(*self.reach)
        return total / len(tables)

    def neighbour_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Said:
        """What neighbours expect on average."""
        answers = [near.expected(values, observed, ids) for near in self.near]
        return Said(*(self.average(said) for said in zip(*answers, strict=True)))

    @cached_property
    def ask_linear(self) -> Asked:
        """Who answers for the linear model."""
        assert self.linear is not None
        return asked(self.linear)

    def has_broken_sections(self, observed: Tensor) -> bool:
        """Whether a section is observed in part in any row."""
        widths = list(self.bent[0].graph.sections.values())
        return any(bool((part.any(1) & ~part.all(1)).any()) for part in observed.split(widths, 1))

    def moved(self, drawn: Tensor, expected: Mapping[str, Tensor]) -> Tensor:
        """Draws of parts about what all of them together expect.

        Args:
            drawn: draws `(number, rows, columns)`.
            expected: what those who draw expect, by kind.
        """
        shares, moved = drawing_shares(self.weights), corrected_share(self.weights)
        pooled = torch.zeros_like(drawn[0])
        for kind, share in zip(KINDS[:3], shares, strict=False):
            if share > 0:
                pooled = pooled + share * expected[kind]
        if shares[3] > 0:
            plain, corrected = (expected[kind] for kind in KINDS[3:])
            pooled = pooled + shares[3] * (plain + moved * (corrected - plain))
        return self.joined(expected) + self.spread * (drawn - pooled)

    def turns(self, number: int) -> dict[int, list[int]]:
        """Which draws each part makes, by its place among members, mixtures, linear, neighbours."""
        counts = (len(self.members), len(self.mixtures), 1, len(self.neighbours))
        return turns(self.weights, counts, number)

    def drawing_part(self, part: int) -> VFG | Mixture | GaussianVFG | Neighbours:
        """The part at a place of `turns`."""
        assert self.linear is not None
        parts: list[VFG | Mixture | GaussianVFG | Neighbours] = [
            *self.bent, *self.mixed, self.linear, *self.near
        ]  # fmt: skip
        return parts[part]

    # Private.

    def _expected(
        self, values: Tensor, observed: Tensor, ids: Tensor, *, drawing: bool = False
    ) -> dict[str, Tensor]:
        """What parts with a say expect, by kind."""
        kinds = self.asked_kinds(drawing=drawing)
        guesses = (self._member_means, self._mixture_means, self._linear_means)
        found = {
            kind: guess(values, observed, ids)
            for kind, guess in zip(KINDS, guesses, strict=False)
            if kind in kinds
        }
        if KINDS[3] in kinds:
            found.update(zip(KINDS[3:], self.neighbour_means(values, observed, ids), strict=True))
        return found

    def _member_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        """What the bent members expect on average."""
        if not self.has_broken_sections(observed):
            return self.average(
                list(member_means(self.stack, len(self.members), values, observed, ids))
            )
        # Gaps inside sections are filled again until a whole model agrees: each member for itself.
        answers = [member.infer(values, observed=observed, row_ids=ids) for member in self.bent]
        return self.average([joined(answer.mean) for answer in answers])

    def _mixture_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        """What the mixtures expect on average."""
        answers = side_by_side(lambda one: one.expected(values, observed, ids), self.mixed)
        return self.average(answers)

    def _linear_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        found = self.ask_linear(values, observed, ids)
        return found.clamp(*self.reach) if len(self.members) else found

    def _drawn(
        self, part: int, values: Tensor, observed: Tensor, number: int, seed: int, ids: Tensor
    ) -> Tensor:
        model = self.drawing_part(part)
        own = seed * DRAWING_SEEDS + part
        if isinstance(model, Neighbours):
            moved = corrected_share(self.weights)
            return model.samples(values, observed, number, seed=own, ids=ids, corrected=moved)
        if isinstance(model, Mixture):
            return model.samples(values, observed, number, seed=own, ids=ids)
        answer = model.infer(values, observed=observed, seed=own, row_ids=ids)
        return joined(answer.samples(number))
