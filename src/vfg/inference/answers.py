"""Answer: what is inferred about the targets, with its spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vfg.extras import needs
from vfg.inference.draws import GROUP, Moments, Tile, is_joint
from vfg.inference.evidence import Given
from vfg.inference.propagation import Belief, evaluating, tiles
from vfg.inference.spread import continuous_columns, noise_scale
from vfg.inputs import Name
from vfg.likelihoods import CategoricalLikelihood

if TYPE_CHECKING:
    import pandas

    from vfg.model import VFG

DRAWS_FOR_QUANTILES = 256
"""How many draws the quantiles of joint answers are read from."""
TILE = {"cpu": 32}
"""How many rows are decoded together, each with `GROUP` draws, by type of device."""
OTHER_TILE = 1024


class ByName(dict[Name, Tensor]):
    """Tensors by target."""

    def __missing__(self, name: Name) -> Tensor:
        raise KeyError(f"{name!r} is not among the targets {', '.join(map(repr, self))}")


@dataclass(frozen=True)
class Target:
    """One thing that is asked for: a leaf, one column, or a latent node."""

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


def picked(places: tuple[int, ...]) -> slice | list[int]:
    """An index for some places: a slice, which copies nothing, where one follows the other.

    Example:
        >>> picked((2, 3, 4)), picked((2, 4))
        (slice(2, 5, None), [2, 4])
    """
    follow = places == tuple(range(places[0], places[0] + len(places)))
    return slice(places[0], places[-1] + 1) if follow else list(places)


@dataclass(frozen=True)
class Picture:
    """Cells `(..., rows, columns)` and latent states by node `(..., rows, width)`."""

    table: Tensor
    states: dict[str, Tensor]

    def map(self, change: Callable[[Tensor], Tensor]) -> Picture:
        """Change every tensor in the same way."""
        states = {node: change(state) for node, state in self.states.items()}
        return Picture(change(self.table), states)


class Answer:
    r"""What is inferred about some targets given evidence, in data units.

    What the numbers mean depends on the roots. If all of them aggregate by `gaussian` or
    `precision`, draws are **joint**: $h \sim N(r, P^{-1}/\tau)$ at the roots, decoded, plus the
    noise of the leaves. The mean is decode(r), and the states that a row's draws decode to are
    shifted so that 64 fixed internal draws have that mean. Otherwise the spread is noise alone,
    whose scale depends on which leaves were observed, independent from column to column.

    Observed values come back as they were given, with deviation 0. Draws are made when they are
    asked for, so ask before the model is trained any further.

    Args:
        model: the model.
        given: the evidence.
        belief: what the messages said.
        targets: what was asked for.
        row_ids: the ids of the rows.
        seed: of the draws.

    Example:
        >>> import vfg
        >>> from vfg.inference.queries import infer
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> answer = infer(model, {"a": 2.0}, targets=["b"])
        >>> answer
        Answer: 1 row, targets 'b'; noise independent by column; all rows converged
        >>> answer.mean["b"].item(), answer.std["b"].item(), answer.samples(5)["b"].shape
        (2.0, 1.0, torch.Size([5, 1, 1]))
    """

    def __init__(
        self,
        model: VFG,
        given: Given,
        belief: Belief,
        targets: Sequence[Target],
        row_ids: Tensor,
        seed: int,
    ) -> None:
        self._model, self._given, self._belief = model, given, belief
        self._targets, self._row_ids, self._seed = tuple(targets), row_ids, seed
        self._moments: dict[int, Moments] = {}

    @property
    def targets(self) -> tuple[Name, ...]:
        """The names of the targets."""
        return tuple(target.name for target in self._targets)

    @property
    def joint(self) -> bool:
        """Whether draws of different targets in one row belong together."""
        return is_joint(self._model)

    @property
    def converged(self) -> Tensor:
        """Which rows' gaps inside partly observed sections have settled, `(rows,)`."""
        return self._belief.converged[0].to(self._given.table.device)

    @cached_property
    def mean(self) -> ByName:
        """Expected values `(rows, width)`, of a column `(rows,)`.

        Of Bernoulli leaves the probability of 1, of categorical leaves the most probable code.
        """
        sections, scaling = self._model.sections, self._model.scaling
        expected = scaling.undo(sections.join(self._belief.means))
        picture = Picture(expected, self._states(self._belief.backward))
        return self._with_evidence(self._named(picture))

    @cached_property
    @torch.no_grad()
    def std(self) -> ByName:
        r"""Standard deviations, shaped like `mean`; 0 where observed.

        From 64 internal draws and the noise in closed form; $\sqrt{p(1-p)}$ for Bernoulli leaves.
        NaN for categorical leaves, which have none, and for latent nodes if the answer is not
        joint, because then nothing is known of their spread.
        """

        def of(tile: Tile) -> Picture:
            blocks = range(len(tile.belief.backward))
            states = [tile.state_deviations(block) for block in blocks]
            return Picture(tile.deviations(), self._states(states))

        return self._with_evidence(self._by_tiles(of), certain=0.0)

    @torch.no_grad()
    def quantile(self, q: float | Sequence[float] | Tensor) -> ByName:
        """Quantiles, shaped like `mean`; several levels come first: `(levels, rows, width)`.

        In closed form if the answer is not joint, else from the first 256 draws; of Bernoulli
        leaves from their probability. NaN where `std` is.

        Args:
            q: a level or several, strictly between 0 and 1.

        Raises:
            ValueError: for a level outside of that.

        Example:
            >>> import vfg
            >>> from vfg.inference.queries import infer
            >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
            >>> infer(model, {"a": 2.0}).quantile([0.1, 0.9])["b"].flatten()
            tensor([0.7184, 3.2816], dtype=torch.float64)
        """
        levels = torch.as_tensor(q, dtype=torch.float64)
        if not bool(((levels > 0.0) & (levels < 1.0)).all()):
            raise ValueError(f"quantile levels lie strictly between 0 and 1, but got {q}")
        flat = levels.reshape(-1).to(self._row_ids.device)
        named = self._with_evidence(self._at_levels(flat))
        if levels.ndim:
            return named
        return ByName({name: value[0] for name, value in named.items()})

    def _at_levels(self, levels: Tensor) -> ByName:
        """Quantiles of all rows before evidence is put in place, `(levels, rows, ...)`."""
        return self._by_tiles(lambda tile: self._quantiles(tile, levels), (len(levels),))

    @torch.no_grad()
    def samples(self, n: int) -> ByName:
        """Draws `(n, rows, width)`, of a column `(n, rows)`; 0 or 1, or codes, of discrete leaves.

        The first draws are the same for every `n`, and for every choice of targets. Latent nodes
        are NaN if the answer is not joint.

        Args:
            n: how many draws per row.

        Raises:
            ValueError: if `n` is not positive.

        Example:
            >>> import vfg
            >>> from vfg.inference.queries import infer
            >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
            >>> answer = infer(model, {"a": 2.0})
            >>> torch.equal(answer.samples(100)["b"][:20], answer.samples(20)["b"])
            True
        """
        if n < 1:
            raise ValueError(f"the number of draws must be positive, but is {n}")
        return self._with_evidence(self._by_tiles(lambda tile: self._drawn(tile, n), (n,)))

    @cached_property
    @torch.no_grad()
    def probabilities(self) -> ByName:
        """Probabilities of every code `(rows, categories)` of the categorical targets."""
        found = ByName()
        for target in self._targets:
            block, row = self._model.passing.schedule.place[target.node]
            if target.is_latent:
                continue
            likelihood = self._model.likelihood_at(block)
            if isinstance(likelihood, CategoricalLikelihood):
                table = likelihood.logits(self._belief.backward[block]).softmax(-1)[row]
                known = self._given.table[:, target.columns[0]].to(table.device)
                codes = torch.arange(table.shape[1], device=table.device)
                certain = (codes == known[:, None]).to(table)
                table = torch.where(known.isnan()[:, None], table, certain)
                found[target.name] = table.to(self._given.table)
        return found

    def to_frame(self, *, std: bool = False, quantiles: Sequence[float] = ()) -> pandas.DataFrame:
        """The means as a frame with one row per row and one column per target column.

        Args:
            std: whether to add a column `"<name> std"` for each.
            quantiles: levels for which to add a column `"<name> q<level>"` each.

        Raises:
            ImportError: without pandas, which comes with the extra `table`.

        Example:
            >>> import vfg
            >>> from vfg.inference.queries import infer
            >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
            >>> infer(model, {"a": [1.0, 2.0]}).to_frame(quantiles=[0.5])
                 a    b  a q0.5  b q0.5
            0  1.0  1.0     1.0     1.0
            1  2.0  2.0     2.0     2.0
        """
        with needs("table"):
            import pandas
        columns = self._columns(self.mean, "")
        columns |= self._columns(self.std, " std") if std else {}
        for level in quantiles:
            columns |= self._columns(self.quantile(level), f" q{level:g}")
        return pandas.DataFrame(columns, index=self._given.index)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.targets[:6])) + (", ..." if len(self.targets) > 6 else "")
        rows, open_rows = self._given.rows, int((~self.converged).sum())
        return (
            f"Answer: {rows} row{'' if rows == 1 else 's'}, targets {names}; "
            f"{'joint draws' if self.joint else 'noise independent by column'}; "
            f"{f'{open_rows} rows did not converge' if open_rows else 'all rows converged'}"
        )

    # Private.

    def _states(self, states: Sequence[Tensor]) -> dict[str, Tensor]:
        """The latent targets among states by block `(..., nodes, rows, width)`."""
        place = self._model.passing.schedule.place
        latent = {target.node: place[target.node] for target in self._targets if target.is_latent}
        return {node: states[block].select(-3, row) for node, (block, row) in latent.items()}

    def _tiles(self) -> Iterator[tuple[Tensor, Tensor, Tile]]:
        """Rows, their positions, and the padded tile in which they lie."""
        device, seen = self._row_ids.device, self._given.seen
        size = TILE.get(device.type, OTHER_TILE)
        temperature = self._model.spread.log_temperature.exp()
        for rows, positions in tiles(self._row_ids, size):
            wide = seen.new_zeros((size, seen.shape[1]))
            first = self._row_ids[rows[0]] // size * size
            tile = Tile(
                self._model,
                self._belief.select(rows).place(positions, size),
                noise=noise_scale(self._model, wide.index_copy(0, positions, seen[rows])),
                temperature=temperature,
                row_ids=first + torch.arange(size, device=device),
                seed=self._seed,
                remembered=self._moments,
            )
            yield rows, positions, tile

    def _by_tiles(self, of: Callable[[Tile], Picture], leading: tuple[int, ...] = ()) -> ByName:
        """The targets of all rows from a picture of every tile, evidence not yet put in place."""
        like, rows, axis = self._given.table, self._given.rows, len(leading)
        whole = ByName(
            {
                target.name: like.new_zeros((*leading, rows, *target.shape))
                for target in self._targets
            }
        )
        with evaluating(self._model):
            for chosen, positions, tile in self._tiles():
                here = chosen.to(like.device)
                for name, part in self._named(of(tile)).items():
                    whole[name].index_copy_(axis, here, part.index_select(axis, positions).to(like))
        return whole

    def _drawn(self, tile: Tile, count: int) -> Picture:
        tables, states = [], []
        for group in range(-(-count // GROUP)):
            decoded = tile.states(group)
            tables.append(tile.data(group, decoded))
            states.append(self._states(decoded))
        latent = {node: torch.cat([part[node] for part in states])[:count] for node in states[0]}
        return Picture(torch.cat(tables)[:count], latent if self.joint else _unknown(latent))

    def _quantiles(self, tile: Tile, levels: Tensor) -> Picture:
        # Codes have no order, which shows in their deviations.
        table = torch.where(tile.deviations().isnan(), torch.nan, tile.plain_quantiles(levels))
        if not self.joint:
            states = self._states([x.expand(len(levels), *x.shape) for x in tile.belief.backward])
            return Picture(table, _unknown(states))
        drawn = self._drawn(tile, DRAWS_FOR_QUANTILES).map(lambda x: sorted_quantiles(x, levels))
        mixed = torch.where(continuous_columns(self._model), drawn.table, table)
        return Picture(mixed, drawn.states)

    def _named(self, found: Picture) -> ByName:
        named = ByName()
        for target in self._targets:
            if target.is_latent:
                named[target.name] = found.states[target.node]
            else:
                chosen = target.columns[0] if target.is_column else picked(target.columns)
                named[target.name] = found.table[..., chosen]
        return named

    @cached_property
    def _known(self) -> ByName:
        """What was given of every target, NaN where nothing was."""
        given = self._given
        free = {
            target.node: given.table.new_full((given.rows, *target.shape), torch.nan)
            for target in self._targets
            if target.is_latent
        }
        return self._named(Picture(given.table, {**free, **given.states}))

    def _with_evidence(self, found: ByName, certain: float | None = None) -> ByName:
        """Put what was given, or what `certain` says of it, in place of what was inferred."""
        put = ByName()
        for name, value in found.items():
            known = self._known[name]
            chosen = known if certain is None else torch.full_like(known, certain)
            put[name] = torch.where(known.isnan(), value.to(known), chosen)
        return put

    def _columns(self, values: ByName, suffix: str) -> dict[str, Any]:
        found = {}
        for target in self._targets:
            value = values[target.name].detach().cpu()
            value = value[:, None] if target.is_column else value
            for place, label in enumerate(target.labels):
                found[label + suffix] = value[:, place].numpy()
        return found


def _unknown(states: dict[str, Tensor]) -> dict[str, Tensor]:
    return {node: torch.full_like(state, torch.nan) for node, state in states.items()}


def sorted_quantiles(draws: Tensor, levels: Tensor) -> Tensor:
    """Quantiles over the first axis by linear interpolation between neighbours in order."""
    ordered = draws.sort(dim=0).values
    position = levels * (len(draws) - 1)
    below = position.floor().long().clamp(max=len(draws) - 2)
    share = (position - below).to(draws).view(-1, *[1] * (draws.ndim - 1))
    return ordered[below] + share * (ordered[below + 1] - ordered[below])
