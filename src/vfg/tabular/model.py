"""TableModel: an encoding and the models behind a table, as one thing to save and use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.model import VFG
from vfg.modelfile.kinds import register
from vfg.training.distributed import chosen_device
from vfg.training.history import History

from .arrays import Arrays
from .cells import Array, Mask
from .combining import Combination
from .encoding import Encoding
from .joint import Joint
from .mixtures import Mixture
from .neighbours import Neighbours
from .rowwise import ExactMeans
from .scales import Scale

ROWS_AT_ONCE = 8192
"""How many rows are answered together: enough to be fast, few enough to keep memory flat."""
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
class TableModel(Joint):
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
        super().__init__(len(columns), linear, members, mixtures, neighbours)
        self._know(encoding.to_dict(), Arrays.of(encoding.state()), columns)
        self.join(combination)
        self.eval()

    def _know(self, described: dict[str, Any], arrays: Arrays, columns: list[int]) -> None:
        self.described, self.arrays, self.columns = described, arrays, columns

    @cached_property
    def encoding(self) -> Encoding:
        """How the table becomes a matrix of real numbers."""
        return Encoding.from_dict(self.described, self.arrays.read())

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
            self.joint_means(*self._here(values[rows], observed[rows], ids[rows])).cpu()
            for rows in torch.arange(len(values)).split(ROWS_AT_ONCE)
        ]
        return torch.cat(parts)

    def _here(self, values: Tensor, observed: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same where the model is."""
        place = self.weights.device
        return values.to(place), observed.to(place), ids.to(place)

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
            self.joint_draws(
                *self._here(values[rows], observed[rows], ids[rows]), number, seed
            ).cpu()
            for rows in torch.arange(len(values)).split(ROWS_AT_ONCE)
        ]
        return torch.cat(parts, dim=1)

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
        normal = self.ask_linear if alone else None
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
        for name in ("encoding", "unordered"):
            self.__dict__.pop(name, None)
        return result

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
        columns, linear = list(description["columns"]), description["linear"]
        Joint.__init__(
            model,
            len(columns),
            None if linear is None else GaussianVFG.from_dict(linear),
            [VFG.from_dict(member) for member in description["members"]],
            [Mixture.from_dict(mixture) for mixture in description["mixtures"]],
            [Neighbours.from_dict(near) for near in description["neighbours"]],
        )
        model._know(json.loads(description["encoding"]), Arrays(description["arrays"]), columns)
        return model
