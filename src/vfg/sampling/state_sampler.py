"""Drawing all latent states of a graph: up through the messages, down through the parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from vfg.distributions.priors import LATENTS
from vfg.passing.aggregation import State, aggregation
from vfg.passing.incidence import add_all
from vfg.passing.messages import EdgeGroup
from vfg.passing.schedule import Schedule
from vfg.sampling.noise import Noise, no_noise, pass_through_noise
from vfg.sampling.samplers import Incoming, LadderPrediction, Move, Proposal, Sampled, Sampler

if TYPE_CHECKING:
    from vfg.model import VFG


class Draw(NamedTuple):
    """States drawn together, by block; every tensor is `(nodes, draws, rows, ...)`."""

    states: list[Tensor]
    """Drawn states of latent nodes; at leaves the states that explain the data."""
    prior: dict[int, Tensor]
    """log p(h | parents) of latent blocks, 0 at pruned nodes, `(nodes, draws, rows)`."""
    posterior: dict[int, Tensor]
    """log q(h | messages) of latent blocks, likewise."""


class SampledStates(nn.Module):
    """The samplers of all latent blocks, and how all states are drawn from them.

    A node without observed descendants is *pruned*: its terms are 0, and its state, where
    it is wanted, is drawn from p given its parents. Its children are pruned too, and no parent of
    another node is, so what is left is the model of the observed leaves alone.
    """

    def __init__(
        self, schedule: Schedule, spec: Sampled, latent: str, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.spec, self.law = spec, LATENTS[latent]
        self.samplers = nn.ModuleDict(
            {
                block.name: Sampler(block, _children(schedule, index), spec, generator)
                for index, block in enumerate(schedule.blocks)
                if not block.is_leaf
            }
        )

    def sampler(self, name: str) -> Sampler:
        """The sampler of the latent block called `name`."""
        sampler = self.samplers[name]
        assert isinstance(sampler, Sampler)
        return sampler


class _StateSampler:
    """One drawing of all states; holds what the steps share.

    If `states` are given, they are not drawn but judged: the result has their densities.
    """

    def __init__(
        self,
        model: VFG,
        leaves: dict[int, State],
        labels: Tensor | None,
        evidence: dict[int, Tensor],
        noise: Noise,
        draws: int,
        pruned: bool,
        *,
        states: list[Tensor] | None = None,
        complete: bool = False,
    ) -> None:
        self.sampled, self.passing = sampling_of(model), model.passing
        self.priors = {index: model.prior_at(index) for index in model._blocks_of(model.priors)}
        self.leaves, self.labels, self.evidence = leaves, labels, evidence
        self.noise, self.draws, self.pruned = noise, draws, pruned
        self.states, self.complete = states, complete
        self.schedule, self.ladder = self.passing.schedule, self.sampled.spec.ladder
        self.some = next(iter(leaves.values())).value
        self.rows = self.some.shape[1]
        self.roots = {index: self._root_default(index) for index in self.priors}
        self.incoming: dict[int, Incoming] = {}
        self.moves: dict[int, Move] = {}
        self.numbers: dict[int, Tensor] = {}
        self.proposals: dict[int, Proposal] = {}

    def run(self) -> Draw:
        self._pass_up()
        return self._pass_down()

    # Up: messages, with draws in them unless this is a ladder.

    def _pass_up(self) -> None:
        states: list[State] = []
        outgoing: list[tuple[Tensor, Tensor]] = []
        for index, block in enumerate(self.schedule.blocks):
            if block.is_leaf:
                state = self.leaves[index]
                filled = torch.where(state.observed, state.value, self._default(index))
            else:
                state = self._aggregate(index, states, outgoing)
                self.moves[index] = self._sampler(index).move(self.incoming[index])
                if self.states is None:
                    self.numbers[index] = self._numbers(index)
                if not self.ladder:
                    self.proposals[index] = self._propose(index, None)
                state = self._outgoing(index, state)
                filled = state.value
            states.append(state)
            outgoing.append((filled, state.observed.any(-1, keepdim=True).to(filled.dtype)))

    def _aggregate(
        self, index: int, states: list[State], outgoing: list[tuple[Tensor, Tensor]]
    ) -> State:
        """Aggregate the messages of the children, and store them."""
        block = self.schedule.blocks[index]
        rule = aggregation(block.treatment)
        parts, children = [], []
        for g in self.schedule.into(index):
            group, child = self.passing.group(g), self.schedule.groups[g].child
            message = group.send(*outgoing[child])
            parts.append(rule.contribute(group, message, states[child]))
            children.append((group, *outgoing[child]))
        batch = max(part[-1].shape[1] for part in parts)
        total = tuple(
            add_all([self._repeat_rows(part, batch) for part in same])
            for same in zip(*parts, strict=True)
        )
        given = self.evidence.get(index)
        state = rule.resolve(
            total,
            self._repeat_rows(self._default(index), batch),
            self._repeat_rows(self.roots[index], batch) if index in self.roots else None,
            None if given is None else self._repeat_rows(given, batch),
        )
        filled = state.value  # with a precision, the default is in it already
        if state.precision is None:
            filled = torch.where(
                state.observed, filled, self._repeat_rows(self._default(index), batch)
            )
        self.incoming[index] = Incoming(
            self._split_draws(filled),
            self._split_draws(state.observed),
            self._split_draws(total[-1]),
            None if state.information is None else self._split_draws(state.information),
            None if state.precision is None else self._split_draws(state.precision),
            self._split_draws(self._join_children(children, batch))
            if self.sampled.spec.amortised and self.sampled.spec.children
            else None,
        )
        return state._replace(value=filled)

    def _join_children(
        self, children: list[tuple[EdgeGroup, Tensor, Tensor]], batch: int
    ) -> Tensor:
        """The children's states side by side, with flags, `(nodes, batch, numbers)`."""
        parts = []
        for group, states, sent in children:
            for part in (states * sent, sent):
                by_node = group.above.by_node(group.below.spread(part)).movedim(1, 2).flatten(2)
                parts.append(self._repeat_rows(by_node, batch))
        return torch.cat(parts, dim=-1)

    def _outgoing(self, index: int, state: State) -> State:
        """What a block sends on: its draws, or in a ladder the centre that is known from below."""
        has = state.observed.any(-1, keepdim=True)
        if not self.ladder:
            value = self._put_evidence(index, self.proposals[index].state).flatten(1, 2)
            seen = self._repeat_rows(has, value.shape[1]).expand_as(value)
            if state.precision is None or index in self.roots:
                return State(value, seen)
            precision = self._above(index)[:, 0] * seen
            return State(value, seen, precision * value, precision)
        if state.information is None or state.precision is None or index in self.roots:
            moved = self._put_evidence(index, self.incoming[index].value + self.moves[index].shift)
            return state._replace(value=moved.flatten(1, 2))
        above = self._above(index)[:, 0].expand_as(state.value)
        eta, precision = pass_through_noise(state.information, state.precision, above)
        return state._replace(information=eta, precision=precision)

    # Down: what parents expect, draws from it where no message came, and the log-densities.

    def _pass_down(self) -> Draw:
        states: dict[int, Tensor] = {}
        prior: dict[int, Tensor] = {}
        posterior: dict[int, Tensor] = {}
        for index in reversed(range(len(self.schedule.blocks))):
            if index in self.leaves and self.states is not None:
                states[index] = self.states[index]
                continue
            expected = None if index in self.roots else self._expect(index, states)
            if index in self.leaves:
                assert expected is not None
                states[index] = expected
                continue
            if self.ladder:
                self.proposals[index] = self._propose(index, expected)
            proposal = self.proposals[index]
            has = self.incoming[index].observed.any(-1)
            drawn = proposal.state
            if self.pruned and self.states is None:
                drawn = torch.where(has[..., None], drawn, self._draw_from_prior(index, expected))
            states[index] = self._put_evidence(index, drawn)
            log_p = self._log_prior(index, states[index], expected)
            log_q = proposal.log_density
            if index in self.evidence:
                log_q = log_q * self.evidence[index].isnan()[:, None]
            if self.complete:
                prior[index], posterior[index] = log_p, torch.where(has, log_q.sum(-1), log_p)
            else:
                prior[index], posterior[index] = log_p * has, log_q.sum(-1) * has
        return Draw([states[index] for index in range(len(states))], prior, posterior)

    def _expect(self, index: int, states: dict[int, Tensor]) -> Tensor:
        """The mean of the parents' backward messages."""
        parts = []
        for g in self.schedule.out_of(index):
            group = self.passing.group(g)
            above = states[self.schedule.groups[g].parent].flatten(1, 2)
            back = group.return_(group.arrive(above))
            single = len(self.schedule.out_of(index)) == 1 and group.below.is_aligned
            parts.append(back if single else group.below.collect(group.share * back))
        return self._split_draws(add_all(parts))

    def _draw_from_prior(self, index: int, expected: Tensor | None) -> Tensor:
        """Draws from p, for nodes without observed descendants."""
        numbers = self.numbers[index]
        if expected is None:
            labels = None if self.labels is None else self.labels.repeat(self.draws)
            drawn = self.priors[index].push(numbers.flatten(1, 2), labels)
            return self._split_draws(drawn)
        return expected + self._log_scale(index).exp() * self.sampled.law.standard(numbers)

    def _log_prior(self, index: int, state: Tensor, expected: Tensor | None) -> Tensor:
        """log p(h | parents), `(nodes, draws, rows)`."""
        with torch.autocast(state.device.type, enabled=False):
            if expected is None:
                flat = state.flatten(1, 2)
                labels = None if self.labels is None else self.labels.repeat(self.draws)
                seen = torch.ones_like(flat, dtype=torch.bool)
                density = self.priors[index].log_prob(flat, seen, labels)
                return self._split_draws(density.value - density.constant)
            log_scale = self._log_scale(index)
            distance = self.sampled.law.distance((state - expected) * (-log_scale).exp())
            constant = self.sampled.law.constant_per_coordinate
            return -(distance + log_scale + constant).sum(-1)

    # What the steps share.

    def _propose(self, index: int, expected: Tensor | None) -> Proposal:
        width, sampler = self.schedule.blocks[index].width, self._sampler(index)
        given = (
            self.incoming[index],
            self.moves[index],
            self._default(index)[:, None],
            None if expected is None else LadderPrediction(expected, self._above(index)),
        )
        if self.states is not None:
            return sampler.judge(*given, self.states[index])
        drawn = sampler.propose(*given, self.numbers[index][..., :width])
        # Evidence takes the place of some coordinates: the others must not depend on them in q.
        return drawn if index in self.evidence else sampler.transform(self.incoming[index], drawn)

    def _sampler(self, index: int) -> Sampler:
        return self.sampled.sampler(self.schedule.blocks[index].name)

    def _log_scale(self, index: int) -> Tensor:
        return self._sampler(index).expected_log_scale()

    def _above(self, index: int) -> Tensor:
        """The precision with which parents expect a state, `(nodes, 1, 1, width)`."""
        return (-2.0 * self._log_scale(index)).exp() / self.sampled.law.variance

    def _numbers(self, index: int) -> Tensor:
        """Standard Normal numbers, as many as a draw from p takes."""
        block = self.schedule.blocks[index]
        count = self.priors[index].numbers() if index in self.roots else block.width
        shape = (len(block.nodes), self.draws, self.rows, count)
        return self.noise(index, self.some.new_empty(shape))

    def _root_default(self, index: int) -> Tensor:
        """What stands for coordinates of roots that no message reaches, `(nodes, 1, width)`.

        Where every message reaches all of them, a root without messages is pruned and the default
        is never used: the mean of a flow is then not worth an inverse of it.
        """
        prior, block = self.priors[index], self.schedule.blocks[index]
        groups = [self.schedule.groups[g] for g in self.schedule.into(index)]
        if prior.needs_whole_states and all(group.coordinates is None for group in groups):
            return self.some.new_zeros(len(block.nodes), 1, block.width)
        return prior.mean(self.labels)

    def _default(self, index: int) -> Tensor:
        return self.passing.default(index, self.roots)

    def _put_evidence(self, index: int, drawn: Tensor) -> Tensor:
        """Put evidence in place of what was drawn."""
        if index not in self.evidence:
            return drawn
        given = self.evidence[index][:, None]
        return torch.where(given.isnan(), drawn, given)

    def _repeat_rows(self, part: Tensor, batch: int) -> Tensor:
        """Rows repeated for every draw where they are not yet."""
        if part.shape[1] == batch or part.shape[1] != self.rows:
            return part
        return part.repeat(1, self.draws, *[1] * (part.ndim - 2))

    def _split_draws(self, part: Tensor) -> Tensor:
        """`(nodes, draws · rows, ...)` to `(nodes, draws, rows, ...)`, 1 draw if all are alike."""
        draws = 1 if part.shape[1] == self.rows else self.draws
        return part.view(part.shape[0], draws, self.rows, *part.shape[2:])


def root_posterior(model: VFG, index: int, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and log-scale of q at a block of roots, `(nodes, rows, width)`, for whole rows.

    Nodes below are at the centres of their q. Rows are in the model's units.
    """
    leaves = model._leaf_states(rows, torch.ones_like(rows, dtype=torch.bool))
    sampler = _StateSampler(model, leaves, None, {}, no_noise, 1, False)
    sampler._pass_up()
    found = sampler._sampler(index).normal(sampler.incoming[index], sampler.moves[index])
    centre, log_scale = (part[:, 0] for part in torch.broadcast_tensors(*found))
    return centre, log_scale


def _children(schedule: Schedule, index: int) -> list[tuple[int, int]]:
    """How many children of which width one node of a block has, for every group of edges."""
    groups = [schedule.groups[g] for g in schedule.into(index)]
    return [
        (max(group.parent_rows.count(row) for row in group.parent_rows), group.narrow)
        for group in groups
    ]


def draw_states(
    model: VFG,
    cells: Tensor,
    seen: Tensor,
    labels: Tensor | None,
    evidence: dict[int, Tensor],
    noise: Noise,
    draws: int,
    *,
    pruned: bool = True,
    complete: bool = False,
) -> Draw:
    """All latent states given the seen cells of a table in the model's units.

    Evidence fixes coordinates of latent nodes, by block, NaN where free; it counts in p like data
    and not in q. Without `pruned`, states of nodes without seen descendants mean nothing; the terms
    of the bound do not depend on them. If `complete`, both terms of pruned nodes are log p in place
    of 0: the densities of all that was drawn.
    """
    leaves = model._leaf_states(cells, seen)
    drawing = _StateSampler(
        model, leaves, labels, evidence, noise, draws, pruned, complete=complete
    )
    return drawing.run()


def condition(model: VFG, draw: Draw, cells: Tensor, given: Tensor, labels: Tensor | None) -> Draw:
    r"""The same states with log q given fewer cells as their prior; the draw is `complete`.

    $p(x_v, h)$ is replaced by $q(h \mid x_v)$, so that bounds are those of the other cells under
    the density $\int q(h \mid x_v) p(x \mid h) dh$, from which draws given $x_v$ come.
    """
    leaves, draws = model._leaf_states(cells, given), next(iter(draw.prior.values())).shape[1]
    judging = _StateSampler(
        model, leaves, labels, {}, no_noise, draws, True, states=draw.states, complete=True
    )
    return draw._replace(prior=judging.run().posterior)


def log_likelihoods(model: VFG, draw: Draw, cells: Tensor, scored: Tensor) -> dict[int, Tensor]:
    """log p(x | h) of the scored cells by leaf block, `(nodes, draws, rows)`."""
    data, counted = model.sections.split(cells), model.sections.split(scored.to(cells.dtype))
    parts = {}
    for index, part in data.items():
        state = draw.states[index]
        wide = part[:, None].expand(-1, state.shape[1], -1, -1).flatten(1, 2)
        each = model.likelihood_at(index).log_prob(wide, state.flatten(1, 2))
        parts[index] = (each.unflatten(1, state.shape[1:3]) * counted[index][:, None]).sum(-1)
    return parts


def log_weights(model: VFG, draw: Draw, cells: Tensor, scored: Tensor) -> Tensor:
    """log p(x, h) − log q(h), `(draws, rows)`, in float64 and the model's units."""
    explained = log_likelihoods(model, draw, cells, scored)
    signed = [*explained.values(), *draw.prior.values(), *(-q for q in draw.posterior.values())]
    return torch.stack([part.double().sum(0) for part in signed]).sum(0)


def sampling_of(model: VFG) -> SampledStates:
    """The samplers of the states of a model.

    Raises:
        ValueError: if its states are deterministic.
    """
    if model.sampling is None:
        raise ValueError(
            "a bound needs sampled states, but the states of this model are deterministic; build "
            "it with states='sampled', or use model.surrogate, which is not a bound"
        )
    return model.sampling
