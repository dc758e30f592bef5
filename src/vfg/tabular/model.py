"""TableModel: an encoding and the models behind a table, as one thing to save and use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vfg.gaussian import GaussianVFG
from vfg.model import VFG
from vfg.modelfile.kinds import register
from vfg.training.distributed import chosen_device
from vfg.training.history import History

from .arrays import Arrays
from .cells import Array, Mask
from .combining import KINDS, Combination, member_means
from .drawing import corrected_share, drawing_shares, turns
from .encoding import Encoding
from .forest import stacked
from .mixtures import Mixture, side_by_side
from .neighbours import Neighbours, Said
from .rowwise import Asked, ExactMeans, asked, joined
from .scales import Scale

ROWS_AT_ONCE = 8192
"""How many rows are answered together: enough to be fast, few enough to keep memory flat."""
DRAWING_SEEDS = 1009
"""Seeds of the parts' draws lie between multiples of this."""
ROWS_OF_DRAWS = 1024
"""How many rows are drawn together where every row has many draws."""


def answering_device(device: str | torch.device | None) -> torch.device:
    """Where a table's model answers: on the GPU that is named or there, else on the CPU.

    Other devices, on which members may learn, have no numbers of double precision; and a model that
    learned on a GPU may be asked on a machine without one.

    Example:
        >>> answering_device("mps")
        device(type='cpu')
    """
    wanted = chosen_device(device)
    is_there = wanted.type == "cuda" and torch.cuda.is_available()
    return wanted if is_there else torch.device("cpu")


@register("TableModel")
class TableModel(nn.Module):
    """What `VFGImputer` learns from a table; `vfg.save` and `vfg.load` keep it.

    It may be moved to a GPU like any module. Matrices that it is given and those that it returns
    are on the CPU, wherever it computes.

    Args:
        encoding: how the table becomes a matrix of real numbers.
        columns: which columns of that matrix the models know: those that are not idle.
        linear: the exact model of these columns; None if there are none.
        members: models that started linear and were bent; none for the linear model alone.
        mixtures: exact models whose roots are mixtures.
        neighbours: mixtures with a component at every row.
        combination: how all of them join in one answer.

    Attributes:
        history: of the training of the members, if it was in this process; files do not keep it.
    """

    history: History | None = None
    factors: Tensor
    spread: Tensor
    reach: Tensor

    def __init__(
        self,
        encoding: Encoding,
        columns: list[int],
        linear: GaussianVFG | None,
        members: list[VFG],
        mixtures: list[Mixture],
        neighbours: list[Neighbours],
        combination: Combination,
    ) -> None:
        super().__init__()
        arrays = Arrays.of(encoding.state())
        self._build(encoding.to_dict(), arrays, columns, linear, members, mixtures, neighbours)
        for part in ("weights", "factors", "spread", "reach"):
            getattr(self, part).copy_(getattr(combination, part))
        self.eval()

    def _build(
        self,
        described: dict[str, Any],
        arrays: Arrays,
        columns: list[int],
        linear: GaussianVFG | None,
        members: list[VFG],
        mixtures: list[Mixture],
        neighbours: list[Neighbours],
    ) -> None:
        self.described, self.arrays, self.columns = described, arrays, columns
        self.linear = linear
        self.members = nn.ModuleList(members)
        self.mixtures = nn.ModuleList(mixtures)
        self.neighbours = nn.ModuleList(neighbours)
        # A parameter, so that there is one even where no column tells anything.
        self.weights = nn.Parameter(
            torch.zeros(len(KINDS), dtype=torch.float64), requires_grad=False
        )
        for name in ("factors", "spread"):
            self.register_buffer(name, torch.ones(len(columns), dtype=torch.float64))
        self.register_buffer("reach", torch.zeros(2, len(columns), dtype=torch.float64))

    @cached_property
    def encoding(self) -> Encoding:
        """How the table becomes a matrix of real numbers."""
        return Encoding.from_dict(self.described, self.arrays.read())

    @cached_property
    def stack(self) -> VFG:
        """The members as one model."""
        return stacked(self.bent).eval()

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

    # Matrices in, matrices out: entries of idle columns are 0.

    def encode(self, table: Any) -> tuple[Tensor, Tensor]:
        """The columns of a table's matrix that the models know, and which entries are evidence."""
        return self.encoding.evidence(table, self.columns)

    def spread_out(self, values: Tensor) -> Array:
        """A matrix of all columns from one `(..., known columns)`."""
        whole = np.zeros((*values.shape[:-1], self.encoding.width))
        whole[..., self.columns] = values.numpy()
        return whole

    def means(self, values: Tensor, observed: Tensor, ids: Tensor | None = None) -> Tensor:
        """What the models expect of every entry, `(rows, columns)`.

        Args:
            values: the matrix, anything where nothing is observed.
            observed: which of its entries are evidence.
            ids: of the rows; None means their positions.
        """
        if self.linear is None or not len(values):
            return torch.zeros(values.shape, dtype=torch.float64)
        ids = torch.arange(len(values)) if ids is None else ids
        parts = [
            self._means(*self._here(values[rows], observed[rows], ids[rows])).cpu()
            for rows in torch.arange(len(values)).split(ROWS_AT_ONCE)
        ]
        return torch.cat(parts)

    def _here(self, values: Tensor, observed: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same where the model is."""
        place = self.weights.device
        return values.to(place), observed.to(place), ids.to(place)

    def _means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        if not len(self.members):
            found = self._linear_means(values, observed, ids)
        else:
            found = self.joined(self._expected(values, observed, ids))
        return torch.where(observed, values, found)

    def asked_kinds(self, *, drawing: bool = False) -> set[str]:
        """The kinds of parts that have a say in answers, or in draws."""
        kinds = {kind for kind, weight in zip(KINDS, self.weights, strict=True) if weight > 0}
        if not kinds.isdisjoint(KINDS[3:]):
            kinds.update(KINDS[3:])  # one answers for both
        if drawing and drawing_shares(self.weights)[2] > 0:
            kinds.add("linear")
        return kinds

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
            found.update(zip(KINDS[3:], self._neighbour_means(values, observed, ids), strict=True))
        return found

    def joined(self, expected: Mapping[str, Tensor]) -> Tensor:
        """What all parts together expect of every entry, from what they expect by kind."""
        total = torch.zeros_like(next(iter(expected.values()), self.factors))
        for kind, weight in zip(KINDS, self.weights, strict=True):
            if kind in expected:
                total = total + weight * expected[kind]
        return self.factors * total

    def _linear_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        found = self._ask_linear(values, observed, ids)
        return found.clamp(*self.reach) if len(self.members) else found

    def _mixture_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        """What the mixtures expect on average."""
        answers = side_by_side(lambda one: one.expected(values, observed, ids), self.mixed)
        return self.average(answers)

    def _neighbour_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Said:
        """What neighbours expect on average."""
        answers = [near.expected(values, observed, ids) for near in self.near]
        return Said(*(self.average(said) for said in zip(*answers, strict=True)))

    def average(self, tables: Sequence[Tensor]) -> Tensor:
        """The mean of tables, each no further out than the columns reach.

        They are added up one by one, since the bits of `mean` depend on the number of rows.
        """
        total = tables[0].clamp(*self.reach)
        for table in tables[1:]:
            total = total + table.clamp(*self.reach)
        return total / len(tables)

    @cached_property
    def _ask_linear(self) -> Asked:
        """Who answers for the linear model."""
        assert self.linear is not None
        return asked(self.linear)

    def _member_means(self, values: Tensor, observed: Tensor, ids: Tensor) -> Tensor:
        """What the bent members expect on average."""
        if not self._has_broken_sections(observed):
            return self.average(
                list(member_means(self.stack, len(self.members), values, observed, ids))
            )
        # Gaps inside sections are filled again until a whole model agrees: each member for itself.
        answers = [member.infer(values, observed=observed, row_ids=ids) for member in self.bent]
        return self.average([joined(answer.mean) for answer in answers])

    def _has_broken_sections(self, observed: Tensor) -> bool:
        """Whether a section is observed in part in any row."""
        widths = list(self.bent[0].graph.sections.values())
        return any(bool((part.any(1) & ~part.all(1)).any()) for part in observed.split(widths, 1))

    def draws(
        self, values: Tensor, observed: Tensor, number: int, seed: int, ids: Tensor | None = None
    ) -> Tensor:
        """Joint draws of what is not observed given what is, `(number, rows, columns)`.

        All parts take turns, as often as they weigh in the joint answer; draws are moved by as much
        as that differs from what those who draw expect, and drawn together or apart about it.
        """
        ids = torch.arange(len(values)) if ids is None else ids
        if self.linear is None or not len(values):
            return torch.zeros(number, *values.shape, dtype=torch.float64)
        parts = [
            self._draws(*self._here(values[rows], observed[rows], ids[rows]), number, seed).cpu()
            for rows in torch.arange(len(values)).split(ROWS_AT_ONCE)
        ]
        return torch.cat(parts, dim=1)

    def _draws(
        self, values: Tensor, observed: Tensor, ids: Tensor, number: int, seed: int
    ) -> Tensor:
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

    def quantiles(
        self,
        values: Tensor,
        observed: Tensor,
        levels: Sequence[float],
        *,
        draws: int,
        seed: int,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Quantiles of every entry, `(levels, rows, columns)`; the mean for those of categories.

        Args:
            values: the matrix, anything where nothing is observed.
            observed: which of its entries are evidence.
            levels: between 0 and 1.
            draws: how many draws they are read from.
            seed: of the draws.
            ids: of the rows; None means their positions.
        """
        ids = torch.arange(len(values)) if ids is None else ids
        alone = self.linear is not None and not len(self.members)
        normal = self._ask_linear if alone else None
        if isinstance(normal, ExactMeans):
            return normal.quantiles(values, observed, levels, self.unordered)
        found = torch.empty(len(levels), *values.shape, dtype=torch.float64)
        for rows in torch.arange(len(values)).split(ROWS_OF_DRAWS):
            part = values[rows], observed[rows]
            drawn = self.draws(*part, draws, seed, ids[rows]).numpy()
            ends = torch.from_numpy(np.quantile(drawn, levels, axis=0, method="weibull"))
            found[:, rows] = torch.where(self.unordered, self.means(*part, ids[rows]), ends)
        return found

    @cached_property
    def unordered(self) -> Tensor:
        """Which known columns are parts of code points, which have no order."""
        return self.encoding.unordered[self.columns]

    def log_prob(self, values: Tensor, observed: Tensor) -> Tensor:
        """log p of the observed entries under the linear model, in the units of the table."""
        if self.linear is None:
            return torch.zeros(len(values), dtype=torch.float64)
        volumes = np.zeros(self.encoding.width)
        for label, part in self.encoding.parts.items():
            if isinstance(part, Scale):
                volumes[self.encoding.sections[label]] = math.log(part.deviation)
        taken = observed.double() @ torch.from_numpy(volumes[self.columns])
        return self.linear.log_prob(values, observed=observed) - taken

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        """The states of the roots of the first member, or of the linear model."""
        if self.linear is None:
            return torch.zeros(len(values), 0, dtype=torch.float64)
        chosen: Any = self.members[0] if len(self.members) else self.linear
        found: Tensor = chosen.embed(values, observed=observed)
        return found.double()

    def gaps(self, table: Any) -> Mask:
        """Which cells of a table are missing, `(rows, columns of the table)`."""
        return self.encoding.gaps(table)

    # How it describes itself.

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As in `nn.Module`; whatever follows from the state is forgotten."""
        result = super().load_state_dict(state_dict, strict, assign)
        for member in self.bent:
            # Tensors that are no part of the state follow the parameters.
            member.to(next(member.parameters()).dtype)
        for mixture in self.mixed:
            mixture.forget()
        for near in self.near:
            near.forget()
        self._forget("encoding", "stack", "unordered", "_ask_linear")
        return result

    def _apply(self, fn: Any, recurse: bool = True) -> TableModel:
        """As in `nn.Module`; whatever follows from the state is forgotten."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._forget("stack", "_ask_linear")
        return self

    def _forget(self, *names: str) -> None:
        for name in names:
            self.__dict__.pop(name, None)

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON; `from_dict` builds an equal model."""
        return {
            # As text, since its numbers are those of a table and no sizes of the model.
            "encoding": json.dumps(self.described),
            "arrays": self.arrays.shapes,
            "columns": self.columns,
            "linear": None if self.linear is None else self.linear.to_dict(),
            "members": [member.to_dict() for member in self.bent],
            "mixtures": [mixture.to_dict() for mixture in self.mixed],
            "neighbours": [near.to_dict() for near in self.near],
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> TableModel:
        """A new model with the configuration that `to_dict` returned."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        linear = description["linear"]
        model._build(
            json.loads(description["encoding"]),
            Arrays(description["arrays"]),
            list(description["columns"]),
            None if linear is None else GaussianVFG.from_dict(linear),
            [VFG.from_dict(member) for member in description["members"]],
            [Mixture.from_dict(mixture) for mixture in description["mixtures"]],
            [Neighbours.from_dict(near) for near in description["neighbours"]],
        )
        return model
