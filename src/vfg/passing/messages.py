"""Forward and backward message passing, one batched call per group of equal-shaped edges."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vfg.flows import Flow
from vfg.passing.aggregation import Gap, Message, State, aggregation, learned_precision
from vfg.passing.incidence import EdgeRows, Incidence, add_all, choose_rows
from vfg.passing.lifting import Coordinates, Lifting
from vfg.passing.schedule import Group, Schedule

STEP = 1e-2
"""The step of central differences, in the model's units: at 1e-2 rounding and curvature both
change a derivative in float32 by about 1e-4."""


def is_lowered(group: Group) -> bool:
    """Whether parents read only some of the coordinates that the flows return."""
    return group.wide < group.space


class EdgeGroup(nn.Module):
    """The parameters and index tables of a group of edges, and the two directions through them."""

    parents_each: Tensor
    joined: Tensor

    def __init__(self, group: Group, schedule: Schedule, generator: torch.Generator) -> None:
        super().__init__()
        edges, graph = len(group.edges), schedule.graph
        child, parent = schedule.blocks[group.child], schedule.blocks[group.parent]
        self.below = Incidence(group.child_rows, len(child.nodes))
        self.above = Incidence(group.parent_rows, len(parent.nodes))
        self.lifting = (
            Lifting(edges, group.narrow, group.space, generator=generator)
            if group.narrow < group.space
            else None
        )
        # The same at the other end, for flows in a space that is wider than the parents.
        self.lowering = Lifting(edges, group.wide, group.space) if is_lowered(group) else None
        self.flow: Flow | None = (
            group.flow.build(edges, group.space, generator=generator) if group.flow else None
        )
        self.coordinates = (
            Coordinates(group.coordinates, parent.width) if group.coordinates else None
        )
        carried = "none" if child.is_leaf else aggregation(child.treatment).carries
        expected = aggregation(parent.treatment).carries
        if self.lowering is not None and not carried == expected == "none":
            raise ValueError(
                f"edge {group.edges[0].name!r} leads from width {group.narrow} to {group.wide} and "
                f"carries no precision, but {parent.nodes[0]!r} or its child aggregates by one; "
                "use aggregation='mean'"
            )
        self.precision = (
            learned_precision(expected, edges, group.wide, self.flow) if carried == "none" else None
        )
        parents_of = Counter(edge.child for edge in graph.edges)
        children_of = Counter(edge.parent for edge in graph.edges)
        parents = [float(parents_of[edge.child]) for edge in group.edges]
        # Counts, not shares: a count is exact in every dtype that the module is moved to.
        self.register_buffer("parents_each", torch.tensor(parents).view(-1, 1, 1), persistent=False)
        siblings = [children_of[edge.parent] for edge in group.edges]
        is_flow = group.flow is not None
        self.joined_edges = [k for k, count in enumerate(siblings) if is_flow and count > 1]
        self.register_buffer("joined", torch.tensor(self.joined_edges), persistent=False)

    @property
    def share(self) -> Tensor:
        """1 / |pa(child)| of every edge, `(edges, 1, 1)`."""
        return 1.0 / self.parents_each

    def send(self, states: Tensor, sent: Tensor, *, sparse: bool = False) -> Message:
        """Children to parents: states `(children, batch, narrow)` without NaN, sent `(..., 1)`.

        If `sparse`, rows in which a child sends nothing may be left at 0.
        """
        source, sent = self.below.spread(states), self.below.spread(sent)
        rows = choose_rows(sent[..., 0] > 0) if sparse and self.flow is not None else None
        if rows is not None:
            source = rows.select(source)
        source, value = self.up(source)
        if rows is not None:
            source, value = rows.place(source), rows.place(value)
        return Message(source, value, sent)

    def gap(self, filled: Tensor, child: State, certainty: Tensor) -> Gap:
        """How the missing coordinates of children that send something enter their messages.

        Derivatives are central differences, which every flow has and which are exact for affine
        ones.
        """
        missing = child.observed.any(-1, keepdim=True) & ~child.observed
        states, missing = self.below.spread(filled), self.below.spread(missing)
        narrow, batch = states.shape[-1], states.shape[1]
        moves = STEP * torch.eye(narrow, dtype=states.dtype, device=states.device)[:, None]
        moved = torch.cat([states[:, None] + moves, states[:, None] - moves], dim=1)
        values = self.up(moved.flatten(1, 2))[1].unflatten(1, (2, narrow, batch))
        slopes = (values[:, 0] - values[:, 1]).movedim(1, 2) / (2.0 * STEP)
        return Gap(torch.where(missing[..., None], slopes, 0.0), self.below.spread(certainty))

    def up(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """States `(edges, batch, narrow)`, lifted, and what the flow makes of them."""
        if self.lifting is not None:
            source = self.lifting.lift(source)
        if self.flow is None:
            return source, source
        if self.lowering is not None:
            return source, self.flow.leading(source, self.lowering.narrow)
        return source, self.flow(source)[0]

    def arrive(self, states: Tensor) -> Tensor:
        """The coordinates of the parents' states that each edge covers, `(edges, batch, wide)`."""
        arrived = self.above.spread(states)
        return arrived if self.coordinates is None else self.coordinates.select(arrived)

    def return_(self, arrived: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Parents to children: `(edges, batch, wide)` to `(edges, batch, narrow)`.

        Rows that are not `wanted (children, batch)` may be left at 0.
        """
        rows: EdgeRows | None = None
        if wanted is not None and self.flow is not None:
            rows = choose_rows(self.below.spread(wanted))
        if rows is not None:
            arrived = rows.select(arrived)
        if self.lowering is not None:
            arrived = self.lowering.lift(arrived)
        narrow = arrived.shape[-1] if self.lifting is None else self.lifting.narrow
        if self.flow is None:
            value = arrived[..., :narrow]
        elif self.lowering is not None:
            value = self.flow.leading_inverse(arrived, narrow)
        else:
            value = self.flow.inverse(arrived)[0][..., :narrow]
        return value if rows is None else rows.place(value)

    def gather(self, messages: Tensor) -> Tensor:
        """Sum `(edges, batch, wide)` at the parents' coordinates, `(parents, batch, width)`."""
        if self.coordinates is not None:
            messages = self.coordinates.place(messages)
        return self.above.collect(messages)

    def gather_matrix(self, matrices: Tensor) -> Tensor:
        """Sum `(edges, batch, wide, wide)` at the parents, `(parents, batch, width, width)`."""
        if self.coordinates is not None:
            matrices = self.coordinates.place_matrix(matrices)
        return self.above.collect(matrices)

    def gather_constant(self, weights: Tensor, matrices: Tensor) -> Tensor:
        """The same for `weights (edges, batch)` times `matrices (edges, wide, wide)`."""
        if self.coordinates is not None:
            matrices = self.coordinates.place_matrix(matrices)
        total = self.above.collect_weighted(weights, matrices.flatten(1))
        return total.view(*total.shape[:-1], *matrices.shape[1:])

    def count(self, sent: Tensor) -> Tensor:
        """How many messages reach each coordinate: `(parents, batch, width or 1)`."""
        reached = sent if self.coordinates is None else sent * self.coordinates.covered
        return self.above.collect(reached)

    def learned_precision(self) -> Tensor:
        """The edges' own Λ, `(edges, wide)` or `(edges, wide, wide)`."""
        if self.precision is None:
            raise RuntimeError("these edges carry their children's precision and learn none")
        precision: Tensor = self.precision()
        return precision

    def carry(self, message: Message, child: State) -> tuple[Tensor, Tensor]:
        """Take the children's (η, Λ) through the flow; Λ comes back as a matrix."""
        if child.information is None or child.precision is None:
            raise RuntimeError("the children of these edges carry no precision")
        eta = self.below.spread(child.information)
        matrix = self.below.spread(child.precision)
        if child.precision.ndim == child.value.ndim:
            matrix = torch.diag_embed(matrix)
        extra = message.value.shape[-1] - eta.shape[-1]
        eta = nn.functional.pad(eta, (0, extra))
        matrix = nn.functional.pad(matrix, (0, extra, 0, extra))
        if self.flow is not None:
            back, _ = torch.linalg.inv_ex(self.flow.linear_part())
            shift = message.value @ back.mT - message.source
            eta = (eta + (matrix @ shift[..., None])[..., 0]) @ back
            matrix = back.mT[:, None] @ matrix @ back[:, None]
        return self.share * eta, self.share[..., None] * matrix


class Passes(NamedTuple):
    """Everything that one forward and one backward pass compute, by block and by group."""

    forward: list[State]
    """Forward states h, by block."""
    sent: list[Tensor]
    """Which children send anything, by group, `(edges, batch, 1)`."""
    upward: list[Tensor]
    """f(h) of the child, by group, `(edges, batch, wide)`."""
    backward: list[Tensor]
    """Backward states ĥ, by block."""
    arrived: list[Tensor]
    """ĥ of the parent on the edge's coordinates, by group, `(edges, batch, wide)`."""
    downward: list[Tensor]
    """f⁻¹ of that, by group, `(edges, batch, narrow)`."""


class MessagePassing(nn.Module):
    """The two passes over a scheduled graph."""

    def __init__(self, schedule: Schedule, generator: torch.Generator) -> None:
        super().__init__()
        self.schedule = schedule
        self.groups = nn.ModuleDict(
            {group.name: EdgeGroup(group, schedule, generator) for group in schedule.groups}
        )
        # A root's default is the mean of its prior, which the caller passes in.
        self.defaults = nn.ParameterDict(
            {
                block.name: nn.Parameter(torch.zeros(len(block.nodes), 1, block.width))
                for block in schedule.blocks
                if not block.is_root
            }
        )

    def group(self, index: int) -> EdgeGroup:
        """The group at `index` of the schedule."""
        group = self.groups[self.schedule.groups[index].name]
        assert isinstance(group, EdgeGroup)
        return group

    def default(self, block: int, roots: dict[int, Tensor]) -> Tensor:
        """Values for the missing coordinates of a block: `(nodes, 1 or batch, width)`."""
        return roots[block] if block in roots else self.defaults[self.schedule.blocks[block].name]

    def run(
        self,
        leaves: dict[int, State],
        roots: dict[int, Tensor],
        evidence: dict[int, Tensor],
        fills: dict[int, Tensor] | None = None,
        wanted: dict[int, Tensor] | None = None,
        gaps: dict[int, Tensor] | None = None,
    ) -> Passes:
        """Forward, then backward.

        Args:
            leaves: states of the leaf blocks.
            roots: the prior's mean for every root block, `(nodes, 1 or batch, width)`.
            evidence: for some latent blocks values that fix nodes, NaN where a coordinate is free.
            fills: for some blocks other than roots, values for the missing coordinates of partly
                observed states, `(nodes, batch, width)`, in place of their learned default.
            wanted: by leaf block, whose data are needed in which rows, `(nodes, batch)`. Other
                data, and messages of leaves that send nothing, may then be 0. None computes
                everything.
            gaps: for some leaf blocks, the precision of the values that fill missing coordinates,
                `(nodes, batch, width, width)`; nodes that carry a precision count them accordingly.
        """
        sparse = wanted is not None
        states, messages = self.forward_pass(
            leaves, roots, evidence, fills, gaps=gaps, sparse=sparse
        )
        tops = {
            block: torch.where(states[block].observed, states[block].value, roots[block])
            for block in roots
        }
        known = {block: states[block].observed.any(-1, keepdim=True) for block in roots}
        backward, arrived, downward = self.backward_pass(tops, known, evidence, wanted)
        return Passes(
            states,
            [message.sent for message in messages],
            [message.value for message in messages],
            backward,
            arrived,
            downward,
        )

    def forward_pass(
        self,
        leaves: dict[int, State],
        roots: dict[int, Tensor],
        evidence: dict[int, Tensor],
        fills: dict[int, Tensor] | None = None,
        *,
        gaps: dict[int, Tensor] | None = None,
        sparse: bool = False,
    ) -> tuple[list[State], list[Message]]:
        """From the leaves to the roots: the states of every block, the messages of every group."""
        states: list[State] = []
        messages: list[Message] = []
        outgoing: list[tuple[Tensor, Tensor]] = []
        for index, block in enumerate(self.schedule.blocks):
            default = self.default(index, roots)
            if block.is_leaf:
                state = leaves[index]
            else:
                rule = aggregation(block.treatment)
                into = self.schedule.into(index)
                for g in into:
                    child = self.schedule.groups[g].child
                    spare = sparse and self.schedule.blocks[child].is_leaf
                    messages.append(self.group(g).send(*outgoing[child], sparse=spare))
                    if gaps and child in gaps and self.group(g).precision is not None:
                        gap = self.group(g).gap(outgoing[child][0], states[child], gaps[child])
                        messages[g] = messages[g]._replace(gap=gap)
                parts = [
                    rule.contribute(
                        self.group(g), messages[g], states[self.schedule.groups[g].child]
                    )
                    for g in into
                ]
                total = tuple(add_all(tensors) for tensors in zip(*parts, strict=True))
                state = rule.resolve(total, default, roots.get(index), evidence.get(index))
            states.append(state)
            fill = default if fills is None else fills.get(index, default)
            filled = torch.where(state.observed, state.value, fill)
            sent = state.observed.any(-1, keepdim=True).to(filled.dtype)
            # The state of a node with a precision includes its default already.
            outgoing.append((filled if state.precision is None else state.value, sent))
        return states, messages

    def backward_pass(
        self,
        tops: dict[int, Tensor],
        known: dict[int, Tensor],
        evidence: dict[int, Tensor],
        wanted: dict[int, Tensor] | None = None,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """From the roots to the leaves; `evidence` and `wanted` are those of `run`.

        Args:
            tops: states of the root blocks.
            known: which of them have evidence beneath, `(nodes, batch, 1)`.
            evidence: by block.
            wanted: by leaf block.

        Returns:
            ĥ by block; ĥ of the parents on each edge's coordinates and f⁻¹ of it by group.
        """
        blocks, groups = self.schedule.blocks, self.schedule.groups
        states: dict[int, Tensor] = dict(tops)
        known = dict(known)
        arrived: dict[int, Tensor] = {}
        downward: dict[int, Tensor] = {}
        for index in reversed(range(len(blocks))):
            if not blocks[index].is_root:
                out = self.schedule.out_of(index)
                for g in out:
                    arrived[g] = self.group(g).arrive(states[groups[g].parent])
                    rows = None if wanted is None else wanted.get(index)
                    downward[g] = self.group(g).return_(arrived[g], rows)
                states[index], known[index] = self._meet(out, downward, known)
            if index in evidence:
                given = evidence[index]
                states[index] = torch.where(given.isnan(), states[index], given)
        order = range(len(groups))
        return (
            [states[index] for index in range(len(blocks))],
            [arrived[g] for g in order],
            [downward[g] for g in order],
        )

    def _meet(
        self, out: tuple[int, ...], downward: dict[int, Tensor], known: dict[int, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Mean over the parents with evidence beneath some root above them, else over all."""
        groups = self.schedule.groups
        if len(out) == 1 and self.group(out[0]).below.is_aligned:
            group = self.group(out[0])  # one parent each: nothing to average
            return downward[out[0]], group.above.spread(known[groups[out[0]].parent])
        ends = [self.group(g).below for g in out]
        weights = [
            self.group(g).above.spread(known[groups[g].parent]).to(downward[g].dtype) for g in out
        ]
        pairs = list(zip(ends, out, weights, strict=True))
        informed = add_all([end.collect(weight * downward[g]) for end, g, weight in pairs])
        count = add_all([end.collect(weight) for end, _, weight in pairs])
        plain = add_all([end.collect(downward[g]) for end, g, _ in pairs])
        number = add_all([end.collect(torch.ones_like(weight)) for end, _, weight in pairs])
        mean = torch.where(count > 0, informed / count.clamp(min=1), plain / number)
        return mean, count > 0


class States(dict[str, Tensor]):
    """Forward states by node, each `(rows, width)`.

    Coordinates without evidence are 0 and marked in `observed`.

    Args:
        values: states by node.
        observed: which coordinates have evidence, by node.
        precision: Λ of nodes that aggregate by `precision`, `(rows, width)`, or by `gaussian`,
            `(rows, width, width)`; at roots it includes the prior.
        top: the names of the roots.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> states = model.encode([[1.0, float("nan")]])
        >>> states["root"].shape, states.observed["b"].tolist(), states.top
        (torch.Size([1, 2]), [[False]], ('root',))
    """

    def __init__(
        self,
        values: dict[str, Tensor],
        observed: dict[str, Tensor],
        precision: dict[str, Tensor],
        top: tuple[str, ...],
    ) -> None:
        super().__init__(values)
        self.observed, self.precision, self.top = observed, precision, top

    @classmethod
    def of(cls, schedule: Schedule, states: list[State], like: Tensor) -> States:
        """The states of a pass, in the dtype and on the device of `like`."""
        values, observed, precision = {}, {}, {}
        for node in schedule.graph.nodes:
            block, row = schedule.place[node.name]
            state = states[block]
            values[node.name] = state.value[row].to(like)
            observed[node.name] = state.observed[row].to(like.device)
            if state.precision is not None:
                precision[node.name] = state.precision[row].to(like)
        return cls(values, observed, precision, schedule.graph.roots)

    def roots(self) -> dict[str, Tensor]:
        """The roots' states, NaN where there is no evidence."""
        return {root: torch.where(self.observed[root], self[root], torch.nan) for root in self.top}

    def __missing__(self, node: str) -> Tensor:
        raise KeyError(f"there is no node {node!r}; there are {', '.join(self)}")

    def __repr__(self) -> str:
        inside = ", ".join(f"{node}: {tuple(value.shape)}" for node, value in self.items())
        return f"States({inside})"
