"""Answer: the posterior of the targets of a query, for every kind of model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import Categorical
from vfg.graph.checks import suggestion
from vfg.inference.calibration import (
    continuous_columns,
    discrete_columns,
    noise_scale,
    without_evidence,
)
from vfg.inference.draws import GROUP, Moments, Tile, is_joint
from vfg.inference.evidence import Given
from vfg.inference.propagation import Belief, evaluating, place_rows, tiles
from vfg.inference.variables import (
    Array,
    Marginal,
    Variable,
    central_levels,
    even_levels,
    given_marginal,
    graph_variables,
    latent_variable,
)
from vfg.inputs import (
    ArrayLike,
    Name,
    Tabular,
    as_tensor,
    column_of,
    coordinate_labels,
    leaf_labels,
)
from vfg.utils.extras import needs

if TYPE_CHECKING:
    import pandas

    from vfg.model import VFG


DRAWS_FOR_QUANTILES = 256
"""Draws behind the quantiles of joint answers: more are smoother, and take longer."""
TAIL = 5
"""Draws outside of a quantile below which it is extrapolated: those of levels up to .96 are not."""
LEVELS = (0.0005, 0.9995)
"""Levels between which quantiles from draws hold: the error of a Normal tail is 10 % of it there,
about, from 256 draws."""
TILE = {"cpu": 32}
"""Rows that are decoded together, each with `GROUP` draws, by type of device: on a CPU few, so that
states stay in its cache; on others `OTHER_TILE`. Bits depend on the size."""
OTHER_TILE = 1024


class ByName(dict[Name, Any]):
    """Tensors, or arrays of a table's columns, by target."""

    def __missing__(self, name: Name) -> Any:
        # A column without a name may be called by its position, as a number or as text.
        for known in self:
            if str(known) == str(name):
                return self[known]
        raise KeyError(f"{name!r} is not among the targets {', '.join(map(repr, self))}")


@dataclass(frozen=True)
class Target:
    """A target of a query: a leaf, one column, or a latent node."""

    name: Name
    node: str
    columns: tuple[int, ...]
    """Positions in the table; none for a latent node."""
    labels: tuple[str, ...]
    """What the columns are called in a frame."""
    shape: tuple[int, ...]
    """Of one row: the width, or nothing for a column."""

    @property
    def is_column(self) -> bool:
        """Whether it is a single column."""
        return not self.shape

    @property
    def is_latent(self) -> bool:
        """Whether it is a latent node."""
        return not self.columns


def index_of_places(places: tuple[int, ...]) -> slice | list[int]:
    """An index for some places: a slice, which copies nothing, where one follows the other.

    Example:
        >>> index_of_places((2, 3, 4)), index_of_places((2, 4))
        (slice(2, 5, None), [2, 4])
    """
    follow = places == tuple(range(places[0], places[0] + len(places)))
    return slice(places[0], places[-1] + 1) if follow else list(places)


@dataclass(frozen=True)
class TableAndStates:
    """Cells `(..., rows, columns)` and latent states by node `(..., rows, width)`."""

    table: Tensor
    states: dict[str, Tensor]

    def map(self, change: Callable[[Tensor], Tensor]) -> TableAndStates:
        """Change every tensor in the same way."""
        states = {node: change(state) for node, state in self.states.items()}
        return TableAndStates(change(self.table), states)


class Answer(ABC):
    """The posterior of some targets given evidence; `infer` of every kind of model returns one.

    Values are in the units of the data: tensors from `vfg.VFG` and `vfg.GaussianVFG`, arrays with
    the units and categories of the table from `vfg.TableModel`. Observed values are returned as
    they were given, with standard deviation 0. Draws are made on request, so take them before the
    model is trained any further.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1), aggregation="mean")
        >>> answer = model.infer({"a": [1.0, 2.0]}, targets=["b"])
        >>> answer.rows, answer.targets, answer.mean["b"].flatten().tolist()
        (2, ('b',), [1.0, 2.0])
        >>> answer.samples(100)["b"].shape
        torch.Size([100, 2, 1])
    """

    @property
    @abstractmethod
    def targets(self) -> tuple[Name, ...]:
        """The names of the targets."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows of evidence there are."""

    @property
    def joint(self) -> bool:
        """Whether draws of different targets in one row are joint draws."""
        return True

    @property
    def exact_quantiles(self) -> bool:
        """Whether quantiles of numbers are closed forms rather than quantiles of draws."""
        return False

    @property
    @abstractmethod
    def converged(self) -> Any:
        """Whether the repeated filling of partly observed sections converged, `(rows,)`."""

    @property
    @abstractmethod
    def mean(self) -> ByName:
        """Expected values by target: for 0 and 1 the probability of 1, for categories the mode.

        A leaf or node has `(rows, width)`, a column `(rows,)`.
        """

    @property
    @abstractmethod
    def std(self) -> ByName:
        """Standard deviations, shaped like `mean`; 0 where observed, NaN for categories."""

    @property
    @abstractmethod
    def probabilities(self) -> ByName:
        """Probabilities of the categories `(rows, categories)` of categorical targets."""

    @property
    @abstractmethod
    def categories(self) -> dict[Name, tuple[Any, ...]]:
        """What the columns of `probabilities` stand for, by target."""

    @abstractmethod
    def samples(self, n: int) -> ByName:
        """Draws by target, `n` of them along the first axis; a larger `n` appends further ones."""

    @abstractmethod
    def covariance(self, targets: Name | Sequence[Name]) -> Any:
        """The joint covariance matrix of one target or several, `(rows, width, width)`.

        Raises:
            KeyError: for a name that is not among the targets.
        """

    @abstractmethod
    def select(self, rows: int | Sequence[int]) -> Self:
        """The answer about one row or some of the rows only, by position."""

    @abstractmethod
    def _quantiles_at(self, levels: Sequence[float]) -> ByName:
        """Quantiles with the levels along the first axis."""

    @abstractmethod
    def _marginals(self, level: float, draws: int) -> dict[str, Marginal]:
        """The marginal of every variable among the targets, of the only row."""

    @abstractmethod
    def _frame_columns(self, values: ByName) -> dict[str, Array]:
        """Columns of a frame from values by target."""

    @abstractmethod
    def expectations(self) -> dict[str, Array]:
        """By variable: expected numbers `(rows,)`, or probabilities `(rows, categories)`."""

    @property
    def _index(self) -> Any:
        """The row labels of the frame that was given; None if there were none."""
        return None

    def quantile(self, q: float | Sequence[float] | Tensor) -> ByName:
        """Quantiles, shaped like `mean`; several levels come first: `(levels, rows, ...)`.

        Args:
            q: a level or several, strictly between 0 and 1.

        Returns:
            By target the quantiles; NaN for categories.

        Example:
            >>> import vfg
            >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
            >>> model = vfg.VFG(graph, aggregation="mean")
            >>> model.infer({"a": 2.0}).quantile([0.1, 0.9])["b"].flatten()
            tensor([0.7184, 3.2816], dtype=torch.float64)
        """
        levels = torch.as_tensor(q, dtype=torch.float64)
        if not bool(((levels > 0.0) & (levels < 1.0)).all()):
            raise ValueError(f"quantile levels lie strictly between 0 and 1, but got {q}")
        named = self._quantiles_at(levels.reshape(-1).tolist())
        if levels.ndim:
            return named
        return ByName({name: value[0] for name, value in named.items()})

    def interval(self, level: float = 0.9) -> tuple[ByName, ByName]:
        """The lower and the upper ends of central intervals, both shaped like `mean`.

        Args:
            level: the probability inside, between 0 and 1.

        Example:
            >>> import vfg
            >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
            >>> model = vfg.VFG(graph, aggregation="mean")
            >>> low, high = model.infer({"a": 2.0}).interval(0.8)
            >>> round(low["b"].item(), 4), round(high["b"].item(), 4)
            (0.7184, 3.2816)
        """
        ends = self._quantiles_at(central_levels(level))
        low, high = ({name: value[k] for name, value in ends.items()} for k in (0, 1))
        return ByName(low), ByName(high)

    def marginals(
        self, *, row: int = 0, level: float = 0.9, draws: int = 128
    ) -> dict[str, Marginal]:
        """The marginal posterior of every variable among the targets in one row.

        Args:
            row: which row of the evidence.
            level: of the central intervals, between 0 and 1.
            draws: about how many draws or quantiles represent a distribution; 0 for only the ends
                of the interval.

        Raises:
            IndexError: for a row that does not exist.

        Example:
            >>> import vfg
            >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
            >>> model = vfg.VFG(graph, aggregation="mean")
            >>> model.infer({"a": 2.0}).marginals()["b"].text
            '2'
        """
        if not 0 <= row < self.rows:
            raise IndexError(f"the answer has {self.rows} rows, but row {row} was requested")
        central_levels(level)
        one = self if self.rows == 1 else self.select([row])
        return one._marginals(level, draws)

    def to_frame(self, *, std: bool = False, quantiles: Sequence[float] = ()) -> pandas.DataFrame:
        """The means as a frame with one row per row and one column per target column.

        Args:
            std: whether to add a column `"<name> std"` for each.
            quantiles: levels for which to add a column `"<name> q<level>"` each.

        Raises:
            ImportError: without pandas, which comes with the extra `table`.

        Example:
            >>> import vfg
            >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
            >>> model = vfg.VFG(graph, aggregation="mean")
            >>> model.infer({"a": [1.0, 2.0]}).to_frame(quantiles=[0.5])
                 a    b  a q0.5  b q0.5
            0  1.0  1.0     1.0     1.0
            1  2.0  2.0     2.0     2.0
        """
        with needs("table"):
            import pandas
        columns = self._frame_columns(self.mean)
        if std:
            columns |= {
                f"{name} std": cells for name, cells in self._frame_columns(self.std).items()
            }
        for level in quantiles:
            ends = self._frame_columns(self.quantile(level))
            columns |= {f"{name} q{level:g}": cells for name, cells in ends.items()}
        return pandas.DataFrame(columns, index=self._index)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.targets[:6])) + (", ..." if len(self.targets) > 6 else "")
        rows, open_rows = self.rows, int((~self.converged).sum())
        return (
            f"Answer: {rows} row{'' if rows == 1 else 's'}, targets {names}; "
            f"{'joint draws' if self.joint else 'noise independent by column'}; "
            f"{f'{open_rows} rows did not converge' if open_rows else 'all rows converged'}"
        )


class GraphAnswer(Answer):
    """What the answers of models of graphs share: evidence, targets, and how values get names.

    With `padded`, rows are computed in padded tiles of a fixed size, so that their bits depend on
    nothing else in the batch.
    """

    def __init__(
        self,
        model: Any,
        given: Given,
        targets: Sequence[Target],
        row_ids: Tensor,
        seed: int,
        padded: bool = True,
    ) -> None:
        self._model, self._given, self._padded = model, given, padded
        self._targets, self._row_ids, self._seed = tuple(targets), row_ids, seed

    @abstractmethod
    def _tiles(self) -> Iterator[tuple[Tensor, Tensor, Any]]:
        """Rows, their positions, and the tile in which they lie."""

    @abstractmethod
    def _draw(self, tile: Any, count: int) -> TableAndStates:
        """The first draws of a tile, `(count, rows, ...)`."""

    @abstractmethod
    def _quantiles(self, tile: Any, levels: Tensor) -> TableAndStates:
        """Quantiles of a tile, `(levels, rows, ...)`; NaN for categories."""

    @abstractmethod
    def _shares(self, tile: Any, target: Target) -> Tensor:
        """Probabilities of the codes of a categorical target, `(rows, categories)`."""

    def _own_arguments(self, rows: Tensor) -> dict[str, Any]:
        """What the constructor of a kind of answer takes besides, for some rows."""
        return {}

    def select(self, rows: int | Sequence[int]) -> Self:
        chosen = torch.tensor(rows, dtype=torch.long, device=self._row_ids.device).reshape(-1)
        return type(self)(
            self._model,
            self._given.select(chosen),
            self._targets,
            self._row_ids[chosen],
            self._seed,
            self._padded,
            **self._own_arguments(chosen),
        )

    @property
    def targets(self) -> tuple[Name, ...]:
        return tuple(target.name for target in self._targets)

    @property
    def rows(self) -> int:
        return self._given.rows

    @property
    def converged(self) -> Tensor:
        return torch.ones(self._given.rows, dtype=torch.bool, device=self._given.table.device)

    @property
    def categories(self) -> dict[Name, tuple[Any, ...]]:
        return {name: tuple(range(shares.shape[1])) for name, shares in self.probabilities.items()}

    @property
    def _index(self) -> Any:
        return self._given.index

    def _quantiles_at(self, levels: Sequence[float]) -> ByName:
        flat = torch.tensor(levels, dtype=torch.float64, device=self._row_ids.device)
        result = self._over_tiles(lambda tile: self._quantiles(tile, flat), (len(flat),))
        return self._with_evidence(result)

    def samples(self, n: int) -> ByName:
        """Draws `(n, rows, width)`, of a column `(n, rows)`; 0 or 1, or codes, of discrete leaves.

        They are the same for all targets. Latent nodes are NaN if the answer is not joint.

        Example:
            >>> import vfg
            >>> answer = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1)).infer({"a": 2.0})
            >>> torch.equal(answer.samples(100)["b"][:20], answer.samples(20)["b"])
            True
        """
        check_draws(n)
        return self._with_evidence(self._over_tiles(lambda tile: self._draw(tile, n), (n,)))

    @cached_property
    def probabilities(self) -> ByName:
        """Probabilities of every code `(rows, categories)` of the categorical targets."""
        like, specs, result = self._given.table, self._model.likelihood_specs, ByName()
        chosen = [target for target in self._targets if self._is_categorical(target)]
        for target in chosen:
            result[target.name] = like.new_zeros(self.rows, specs[target.node].categories)
        with evaluating(self._model):
            for rows, positions, tile in self._tiles() if chosen else ():
                here = rows.to(like.device)
                for target in chosen:
                    result[target.name][here] = self._shares(tile, target)[positions].to(like)
        for target in chosen:  # a code that was given is certain
            known, shares = like[:, target.columns[0]], result[target.name]
            certain = torch.arange(shares.shape[1], device=known.device) == known[:, None]
            result[target.name] = torch.where(known.isnan()[:, None], shares, certain.to(shares))
        return result

    def covariance(self, targets: Name | Sequence[Name]) -> Tensor:
        """As in `Answer`, from 256 draws; 0 where observed, NaN for categories.

        Example:
            >>> import vfg
            >>> model = vfg.VFG(vfg.Graph.star({"a": 2, "b": 1}, width=2))
            >>> model.infer({"b": 0.0}).covariance("a").shape
            torch.Size([1, 2, 2])
        """
        chosen = self._chosen(targets)
        free = self._side_by_side(self._known, chosen).isnan()
        draws = self._side_by_side(self.samples(DRAWS_FOR_QUANTILES), chosen)
        left = draws - draws.mean(0)
        matrix = torch.einsum("dni,dnj->nij", left, left) / (len(draws) - 1)
        unordered = torch.tensor(
            [self._is_categorical(target) for target in chosen for _ in target.labels],
            device=matrix.device,
        )
        unknown = unordered[:, None] | unordered[None, :]
        matrix = torch.where(unknown, torch.nan, matrix)
        return torch.where(free[:, :, None] & free[:, None, :], matrix, 0.0)

    def _chosen(self, targets: Name | Sequence[Name]) -> list[Target]:
        names = [targets] if isinstance(targets, str | int) else list(targets)
        known = ByName({target.name: target for target in self._targets})
        return [known[name] for name in names]

    @staticmethod
    def _side_by_side(values: Mapping[Name, Tensor], chosen: Sequence[Target]) -> Tensor:
        """The coordinates of some targets, `(..., rows, coordinates)`."""
        parts = [values[t.name][..., None] if t.is_column else values[t.name] for t in chosen]
        return torch.cat(parts, dim=-1)

    def _is_categorical(self, target: Target) -> bool:
        specs = self._model.likelihood_specs
        return not target.is_latent and isinstance(specs[target.node], Categorical)

    @cached_property
    def _coordinates(self) -> list[tuple[Target, int, Variable]]:
        """Every coordinate of every target, and what variable it is."""
        by_column = list(graph_variables(self._model).values())
        return [
            (target, place, latent_variable(label, target.node))
            if target.is_latent
            else (target, place, by_column[target.columns[place]])
            for target in self._targets
            for place, label in enumerate(target.labels)
        ]

    def expectations(self) -> dict[str, Array]:
        mean, shares = self.mean, self.probabilities
        expected = {}
        for target, place, variable in self._coordinates:
            if target.name in shares:
                expected[variable.name] = _to_array(shares[target.name])
                continue
            cells = _coordinate(mean[target.name], target, place)
            is_chance = variable.kind == "choice"
            expected[variable.name] = np.stack([1.0 - cells, cells], 1) if is_chance else cells
        return expected

    def _marginals(self, level: float, draws: int) -> dict[str, Marginal]:
        ends = central_levels(level)
        # One call, since the draws behind quantiles are made for each.
        quantiles = self._quantiles_at([*ends, *even_levels(draws).tolist()])
        expected, std, given = self.expectations(), self.std, self._known
        marginals = {}
        for target, place, variable in self._coordinates:
            known = float(_coordinate(given[target.name], target, place)[0])
            if known == known:
                value = variable.value_of(known) if variable.kind != "choice" else int(known)
                marginals[variable.name] = given_marginal(variable, value)
            elif variable.kind == "choice":
                chances = expected[variable.name][0]
                likeliest = int(chances.argmax())
                marginals[variable.name] = Marginal(variable, likeliest, probabilities=chances)
            else:
                mean = float(expected[variable.name][0])
                spread = float(_coordinate(std[target.name], target, place)[0])
                result = _coordinate(quantiles[target.name], target, place)[:, 0]
                low, high, shown = float(result[0]), float(result[1]), result[2:]
                marginals[variable.name] = Marginal(
                    variable, mean, False, mean, spread, low, high, shown if len(shown) else result
                )
        return marginals

    def _by_name(self, values: TableAndStates, columns: Sequence[int] | None = None) -> ByName:
        """Values by target; `columns` are those that the table has, None for all."""
        named = ByName()
        for target in self._targets:
            if target.is_latent:
                named[target.name] = values.states[target.node]
                continue
            places = target.columns
            places = places if columns is None else tuple(columns.index(k) for k in places)
            chosen = places[0] if target.is_column else index_of_places(places)
            named[target.name] = values.table[..., chosen]
        return named

    def _states(self, states: Sequence[Tensor]) -> dict[str, Tensor]:
        """The latent targets among states by block `(..., nodes, rows, width)`."""
        place = self._model.passing.schedule.place
        latent = {target.node: place[target.node] for target in self._targets if target.is_latent}
        return {node: states[block].select(-3, row) for node, (block, row) in latent.items()}

    @cached_property
    def _known(self) -> ByName:
        """What was given of every target, NaN where nothing was."""
        given = self._given
        free = {
            target.node: given.table.new_full((given.rows, *target.shape), torch.nan)
            for target in self._targets
            if target.is_latent
        }
        return self._by_name(TableAndStates(given.table, {**free, **given.states}))

    def _with_evidence(self, values: ByName, certain: float | None = None) -> ByName:
        """Replace what was inferred by the evidence, or by `certain`, where there is evidence."""
        put = ByName()
        for name, value in values.items():
            known = self._known[name]
            chosen = known if certain is None else torch.full_like(known, certain)
            put[name] = torch.where(known.isnan(), value.to(known), chosen)
        return put

    def _frame_columns(self, values: ByName) -> dict[str, Array]:
        return {
            label: _coordinate(values[target.name], target, place)
            for target in self._targets
            for place, label in enumerate(target.labels)
        }

    def _over_tiles(
        self, of: Callable[[Any], TableAndStates], leading: tuple[int, ...] = ()
    ) -> ByName:
        """The targets of all rows, before evidence is put in place."""
        return self._collect(lambda tile: (of(tile),), leading)[0]

    def _collect(
        self, of: Callable[[Any], tuple[TableAndStates, ...]], *leading: tuple[int, ...]
    ) -> list[ByName]:
        """Several values of tiles at once; `leading` are the axes of each before the rows."""
        like, rows = self._given.table, self.rows
        columns = tuple(dict.fromkeys(k for target in self._targets for k in target.columns))
        latent = [target for target in self._targets if target.is_latent]
        wholes = [
            TableAndStates(
                like.new_zeros(*first, rows, len(columns)),
                {target.node: like.new_zeros(*first, rows, *target.shape) for target in latent},
            )
            for first in leading
        ]
        with evaluating(self._model):
            for chosen, positions, tile in self._tiles():
                here = chosen.to(like.device)
                for whole, first, result in zip(wholes, leading, of(tile), strict=True):
                    pairs = [(state, result.states[node]) for node, state in whole.states.items()]
                    if columns:
                        pairs.append((whole.table, result.table[..., index_of_places(columns)]))
                    for put, part in pairs:
                        own = part.index_select(len(first), positions).to(like)
                        put.index_copy_(len(first), here, own)
        return [self._by_name(whole, columns) for whole in wholes]

    def _by_row(self, of: Callable[[Any], Tensor], *shape: int) -> Tensor:
        """What tiles say of their rows, `(rows, *shape)`."""
        result = self._given.table.new_zeros(self.rows, *shape)
        with evaluating(self._model):
            for rows, positions, tile in self._tiles():
                result[rows.to(result.device)] = of(tile)[positions].to(result)
        return result

    def _own_tiles(self, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Rows, their positions in a tile, and the ids of that tile's rows.

        A padded tile has `size` rows at consecutive ids; without padding all rows are one tile.
        """
        device = self._row_ids.device
        if not self._padded:
            rows = torch.arange(self.rows, device=device)
            return [(rows, rows, self._row_ids)] if self.rows else []
        every = torch.arange(size, device=device)
        return [
            (rows, positions, self._row_ids[rows[0]] // size * size + every)
            for rows, positions in tiles(self._row_ids, size)
        ]


def _to_array(values: Tensor) -> Array:
    array: Array = values.detach().cpu().numpy()
    return array


def _coordinate(values: Tensor, target: Target, place: int) -> Array:
    """One coordinate of a target, `(..., rows)`."""
    return _to_array(values if target.is_column else values[..., place])


class MessageAnswer(GraphAnswer):
    r"""What a model with deterministic states infers from the result of message passing.

    What the numbers mean depends on the roots. If all of them aggregate by `gaussian` or
    `precision`, draws are **joint**: $h \sim N(r, P^{-1}/\tau)$ at the roots, decoded, plus the
    noise of the leaves. The mean is decode(r), and the states that a row's draws decode to are
    shifted so that 64 fixed internal draws have that mean. Otherwise the spread is noise alone,
    whose scale depends on which leaves were observed, independent from column to column.

    Example:
        >>> import vfg
        >>> from vfg.inference.queries import infer
        >>> graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
        >>> model = vfg.VFG(graph, aggregation="mean")  # edges are identities
        >>> answer = infer(model, {"a": 2.0}, targets=["b"])
        >>> answer
        Answer: 1 row, targets 'b'; noise independent by column; all rows converged
        >>> answer.mean["b"].item(), answer.std["b"].item(), answer.samples(5)["b"].shape
        (2.0, 1.0, torch.Size([5, 1, 1]))
    """

    _model: VFG

    def __init__(self, model: VFG, *shared: Any, belief: Belief) -> None:
        super().__init__(model, *shared)
        self._belief = belief
        self._moments: dict[int, Moments] = {}

    def _own_arguments(self, rows: Tensor) -> dict[str, Any]:
        return {"belief": self._belief.select(rows)}

    @property
    def joint(self) -> bool:
        return is_joint(self._model)

    @property
    def converged(self) -> Tensor:
        return self._belief.converged[0].to(self._given.table.device)

    @cached_property
    def mean(self) -> ByName:
        is_real = continuous_columns(self._model)
        if not all(bool(is_real[k]) for target in self._targets for k in target.columns):
            return self._with_evidence(self._over_tiles(self._tile_means))
        expected = self._model.scaling.undo(self._model.sections.join(self._belief.means))
        values = TableAndStates(expected, self._states(self._belief.backward))
        return self._with_evidence(self._by_name(values))

    def _tile_means(self, tile: Tile) -> TableAndStates:
        return TableAndStates(tile.expected(), self._states(tile.belief.backward))

    @cached_property
    def std(self) -> ByName:
        r"""Standard deviations from 64 internal draws and the noise; $\sqrt{p(1-p)}$ for Bernoulli.

        NaN for categorical leaves, which have none, and for latent nodes if the answer is not
        joint, because then nothing is known of their spread.
        """

        def of(tile: Tile) -> TableAndStates:
            blocks = range(len(tile.belief.backward))
            states = [tile.state_deviations(block) for block in blocks]
            return TableAndStates(tile.deviations(), self._states(states))

        return self._with_evidence(self._over_tiles(of), certain=0.0)

    # Private.

    def _tiles(self) -> Iterator[tuple[Tensor, Tensor, Tile]]:
        device, seen = self._row_ids.device, self._given.seen
        temperature = self._model.spread.log_temperature.exp()
        for rows, positions, ids in self._own_tiles(TILE.get(device.type, OTHER_TILE)):
            mask, belief = place_rows(seen, rows, positions, len(ids), False), self._belief
            if self._padded:
                belief = belief.select(rows).place(positions, len(ids))
            # Rows without evidence have the noise of whole rows about the roots of whole rows.
            alone = without_evidence(self._model, mask, belief.evidence)
            tile = Tile(
                self._model,
                belief,
                noise=with_deviations(
                    self._model, belief, noise_scale(self._model, mask | alone[:, None])
                ),
                temperature=temperature,
                row_ids=ids,
                seed=self._seed,
                remembered=self._moments,
            )
            yield rows, positions, tile

    def _shares(self, tile: Tile, target: Target) -> Tensor:
        block, row = self._model.passing.schedule.place[target.node]
        return tile.moments.chances[block][row]

    def _draw(self, tile: Tile, count: int) -> TableAndStates:
        tables, states = [], []
        # Without padding nothing keeps the draws of few rows from being decoded at once.
        size = GROUP if self._padded else count
        for first in range(0, count, size):
            draws = torch.arange(first, first + size)
            decoded = tile.states(draws)
            tables.append(tile.at_levels(decoded, tile.levels(draws)))
            states.append(self._states(decoded))
        latent = {node: torch.cat([part[node] for part in states])[:count] for node in states[0]}
        return TableAndStates(
            torch.cat(tables)[:count], latent if self.joint else _as_unknown(latent)
        )

    def _quantiles(self, tile: Tile, levels: Tensor) -> TableAndStates:
        is_discrete = discrete_columns(self._model)
        discrete = discrete_quantiles(tile.expected(), tile.deviations(), levels)
        table = torch.where(is_discrete, discrete, tile.plain_quantiles(levels))
        if not self.joint:
            states = self._states([x.expand(len(levels), *x.shape) for x in tile.belief.backward])
            return TableAndStates(table, _as_unknown(states))
        drawn = self._draw(tile, DRAWS_FOR_QUANTILES).map(lambda x: sorted_quantiles(x, levels))
        mixed = torch.where(is_discrete, table, drawn.table)
        return TableAndStates(mixed, drawn.states)


def with_deviations(model: VFG, belief: Belief, noise: Tensor) -> Tensor:
    """The noise of the leaves `(rows, columns)`, of completed cells their deviations."""
    if not belief.deviations:
        return noise
    parts = model.sections.split(noise)
    for block, own in belief.deviations.items():
        parts[block] = torch.where(own.isnan(), parts[block], own.to(noise))
    return model.sections.join(parts)


def _as_unknown(states: dict[str, Tensor]) -> dict[str, Tensor]:
    return {node: torch.full_like(state, torch.nan) for node, state in states.items()}


def discrete_quantiles(mean: Tensor, deviation: Tensor, levels: Tensor) -> Tensor:
    """Quantiles of Bernoulli columns; NaN of codes, which have no order and no deviation."""
    ones = (levels[:, None, None] > 1.0 - mean).to(deviation)
    return torch.where(deviation.isnan(), torch.nan, ones)


def sorted_quantiles(draws: Tensor, levels: Tensor) -> Tensor:
    r"""Quantiles over the first axis, with a Normal tail where draws are too few.

    Between draws the quantile is interpolated. Where fewer than `TAIL` of n draws lie outside, at
    a level q beyond $t = \mathrm{TAIL} / n$, it is $m + (x_t - m) z_q / z_t$ with the median m, the
    quantile $x_t$ and Normal quantiles z.
    """
    if bool(((levels < LEVELS[0]) | (levels > LEVELS[1])).any()):
        raise ValueError(
            f"quantiles from {len(draws)} draws are reliable from {LEVELS[0]:g} to {LEVELS[1]:g}, "
            f"and intervals up to a level of {LEVELS[1] - LEVELS[0]:g}, but the levels are "
            f"{', '.join(f'{level:g}' for level in levels.tolist())}; take more with samples(n)"
        )
    ordered = draws.sort(dim=0).values
    end = min(TAIL / len(draws), 0.25)
    inside = levels.clamp(end, 1.0 - end)

    def at(level: Tensor) -> Tensor:
        position = level * (len(draws) - 1)
        below = position.floor().long().clamp(max=len(draws) - 2)
        share = (position - below).to(draws).view(-1, *[1] * (draws.ndim - 1))
        return ordered[below] + share * (ordered[below + 1] - ordered[below])

    result = at(inside)
    if bool((inside == levels).all()):
        return result
    middle = at(torch.full_like(levels[:1], 0.5))
    ratio = torch.special.ndtri(levels) / torch.special.ndtri(inside)
    stretch = torch.where(inside == levels, 1.0, ratio).to(draws)
    return middle + (result - middle) * stretch.view(-1, *[1] * (draws.ndim - 1))


def as_targets(model: Tabular, names: Name | Sequence[Name] | None) -> list[Target]:
    """Targets by name, each once; None means all leaves.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 2}, width=3))
        >>> [target.shape for target in as_targets(model, ["b", "root"])]
        [(2,), (3,)]
    """
    if names is None:
        names = model.graph.leaves
    chosen = [names] if isinstance(names, str | int) else list(dict.fromkeys(names))
    if not chosen:
        raise ValueError("targets is empty; name leaves, columns or latent nodes, or leave it out")
    return [_target(model, name) for name in chosen]


def check_draws(n: int) -> None:
    """Refuse numbers of draws that are not positive and whole."""
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"the number of draws must be a positive whole number, but is {n!r}")


def as_row_ids(model: nn.Module, row_ids: ArrayLike | None, rows: int) -> Tensor:
    """Distinct integers from 0 on, on the model's device; None means the position.

    Example:
        >>> import vfg
        >>> as_row_ids(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1})), [7, 3], rows=2)
        tensor([7, 3])
    """
    device = next(model.parameters()).device
    if row_ids is None:
        return torch.arange(rows, device=device)
    ids = as_tensor(row_ids, "row_ids")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"row_ids must be integers, but they are {ids.dtype}")
    if tuple(ids.shape) != (rows,):
        raise ValueError(f"there must be one row id per row ({rows}), but got {tuple(ids.shape)}")
    ids = ids.long().to(device)
    if rows and int(ids.min()) < 0:
        raise ValueError(f"row_ids must be 0 or more, but one is {int(ids.min())}")
    values, counts = ids.unique(return_counts=True)
    if len(values) < rows:
        raise ValueError(f"row_ids must differ, but {int(values[counts > 1][0])} appears twice")
    return ids


def _target(model: Tabular, name: Name) -> Target:
    graph, positions = model.graph, model.sections.positions
    columns: tuple[Name, ...] = graph.columns or ()
    if isinstance(name, str) and name in positions:
        places = positions[name]
        return Target(name, name, places, leaf_labels(model, name), (len(places),))
    if isinstance(name, str) and name in model.passing.schedule.place:
        width = graph.node(name).width
        return Target(name, name, (), coordinate_labels(name, width), (width,))
    column = column_of(model, name)
    if column is not None:
        leaf = next(leaf for leaf, places in positions.items() if column in places)
        return Target(name, leaf, (column,), (str(name),), ())
    known = [*(node.name for node in graph.nodes), *map(str, columns)]
    raise ValueError(
        f"the target {name!r} is not a leaf, column or latent node; "
        f"{suggestion(str(name), dict.fromkeys(known))}"
    )
