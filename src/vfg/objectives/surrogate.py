r"""The training objective of the paper, term by term.

$$\sum_{t} \log p(x^{(t)} \mid \hat x^{(t)})
  - \beta \Big( \sum_{i} \mathrm{KL}^{(i)} + \sum_{(j,i)} \mathrm{KL}^{(j,i)}
  - \sum_{r} \log p(h^{(r)}) \Big)$$

The states are deterministic and their log q is dropped, so this is a *surrogate* and not a bound on
the likelihood: the KL terms are distances between forward and backward states plus constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vfg.distributions.priors import LATENTS, SinglePrior
from vfg.inputs import ArrayLike, as_labels, as_table
from vfg.passing.incidence import add_all
from vfg.passing.messages import MessagePassing, Passes

if TYPE_CHECKING:
    from vfg.model import VFG


class Terms(Mapping[str, Tensor]):
    """Named terms, each of shape `(rows,)`, stored in stacks.

    Args:
        names: the names of each stack's rows.
        stacks: tensors `(names, rows)`.

    Example:
        >>> terms = Terms([("a", "b")], [torch.tensor([[1.0, 2.0], [3.0, 4.0]])])
        >>> terms["b"], terms.sum()
        (tensor([3., 4.]), tensor([4., 6.]))
    """

    def __init__(self, names: list[tuple[str, ...]], stacks: list[Tensor]) -> None:
        self.names = names
        self.stacks = stacks

    def __getitem__(self, name: str) -> Tensor:
        for names, stack in zip(self.names, self.stacks, strict=True):
            if name in names:
                return stack[names.index(name)]
        raise KeyError(f"there is no term {name!r}; the terms are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (name for names in self.names for name in names)

    def __len__(self) -> int:
        return sum(len(names) for names in self.names)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name!r}: {self[name].mean():.4g}" for name in self)
        return f"Terms({{{inside}}})"

    def sum(self) -> Tensor:
        """The sum of all terms, `(rows,)`; zero if there are none."""
        return add_all([stack.sum(0) for stack in self.stacks] or [torch.zeros(1)])

    def to(self, like: Tensor) -> Terms:
        """The same terms in the dtype and on the device of `like`."""
        return Terms(self.names, [stack.to(like) for stack in self.stacks])


@dataclass(frozen=True)
class Surrogate:
    """The surrogate objective per row, in named parts.

    `total` is Σ reconstruction − β (Σ kl + Σ edge − root + constants).

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> list(model.surrogate(torch.zeros(3, 2)).reconstruction)
        ['a', 'b']
    """

    reconstruction: Terms
    """log p(x | x̂) by leaf, on the scored cells, with its normalising constants."""
    kl: Terms
    """Distance between h and f⁻¹(ĥ of the parents), averaged over parents, by inner node."""
    edge: Terms
    """Distance between f(h of the child) and ĥ of an aggregation node, by edge."""
    root: Tensor
    """log p(h) of all roots without its normalising constants, `(rows,)`."""
    constants: Tensor
    """The normalising constants of the kl, edge and root terms, `(rows,)`."""
    beta: float | Tensor
    """Weight of everything but the reconstruction."""

    @property
    def total(self) -> Tensor:
        """The objective, `(rows,)`; larger is better."""
        distances = [stack.sum(0) for terms in (self.kl, self.edge) for stack in terms.stacks]
        return self.reconstruction.sum() - self.beta * add_all(
            [self.constants - self.root, *distances]
        )

    def to(self, like: Tensor) -> Surrogate:
        """The same terms in the dtype and on the device of `like`."""
        return replace(self, **{name: getattr(self, name).to(like) for name in PARTS})

    def __repr__(self) -> str:
        means = show_means(self, ("total", *PARTS))
        return f"Surrogate({means}, beta={float(self.beta):g}; means over rows)"


PARTS = ("reconstruction", "kl", "edge", "root", "constants")


def show_means(terms: Any, names: Iterable[str]) -> str:
    """The means over rows of some parts of an objective, as text."""
    parts = {name: getattr(terms, name) for name in names}
    sums = {name: p.sum() if isinstance(p, Terms) else p for name, p in parts.items()}
    return ", ".join(f"{name}={part.mean():.4g}" for name, part in sums.items())


def compute_surrogate(
    model: VFG,
    cells: Tensor,
    observed: Tensor,
    scored: Tensor,
    labels: Tensor | None,
    beta: float | Tensor,
) -> Surrogate:
    """The surrogate of tensors without NaN in the model's units; nothing is checked.

    Args:
        model: the model.
        cells: the table.
        observed: which cells send messages.
        scored: how much each cell counts in the reconstruction. Algorithm 1 scores the observed
            cells, Algorithm 2 those that were hidden from the messages.
        labels: label per row for priors that have one mean per label, −1 for none.
        beta: weight of the KL and prior terms.
    """
    data, weights = model.sections.split(cells), model.sections.split(scored.to(cells.dtype))
    wanted = {block: (weight > 0).any(-1) for block, weight in weights.items()}
    passes = model.forward(cells, observed, labels, wanted=wanted)
    explained = {
        index: model.likelihood_at(index).log_prob(part, passes.backward[index]) * weights[index]
        for index, part in data.items()
    }
    blocks = model.passing.schedule.blocks
    reconstruction = Terms(
        [blocks[index].nodes for index in data], [part.sum(-1) for part in explained.values()]
    )
    rule = LATENTS[model.latent]
    # Terms without weight are reported but not differentiated.
    weighs = isinstance(beta, Tensor) or beta != 0.0
    with torch.set_grad_enabled(torch.is_grad_enabled() and weighs):
        kl, kl_counts = _node_terms(model.passing, passes, rule)
        edge, edge_counts = _edge_terms(model.passing, passes, rule)
        densities = [
            model.prior_at(index).log_prob(state.value, state.observed, labels)
            for index, state in enumerate(passes.forward)
            if blocks[index].is_root
        ]
    root = add_all([density.value.sum(0) for density in densities])
    constants = add_all([density.constant.sum(0) for density in densities])
    counts = add_all([torch.zeros_like(constants), *kl_counts, *edge_counts])
    return Surrogate(
        reconstruction, kl, edge, root, constants + rule.constant_per_coordinate * counts, beta
    )


def _node_terms(
    passing: MessagePassing, passes: Passes, rule: type[SinglePrior]
) -> tuple[Terms, list[Tensor]]:
    """KL⁽ⁱ⁾ of the latent nodes that are not roots, and how many coordinates they count."""
    names, stacks, counts = [], [], []
    for index, block in enumerate(passing.schedule.blocks):
        if block.is_leaf or block.is_root:
            continue
        mask = passes.forward[index].observed.to(passes.backward[index].dtype)
        parts = []
        for g in passing.schedule.out_of(index):
            group = passing.group(g)
            own = group.below.spread(passes.forward[index].value)
            seen = group.below.spread(mask)
            distance = (rule.distance(own - passes.downward[g]) * seen).sum(-1)
            parts.append(group.below.collect(group.share[..., 0] * distance))
        names.append(block.nodes)
        stacks.append(add_all(parts))
        counts.append(mask.sum((0, 2)))
    return Terms(names, stacks), counts


def _edge_terms(
    passing: MessagePassing, passes: Passes, rule: type[SinglePrior]
) -> tuple[Terms, list[Tensor]]:
    """The terms of flow edges into nodes with several children, and their coordinate count."""
    names, stacks, counts = [], [], []
    for g, scheduled in enumerate(passing.schedule.groups):
        group = passing.group(g)
        members = group.joined_edges
        if not members:
            continue
        weight = passes.sent[g][..., 0]
        difference = passes.upward[g] - passes.arrived[g]
        distance = rule.distance(difference).sum(-1) * weight
        if len(members) < len(scheduled.edges):
            distance, weight = distance[group.joined], weight[group.joined]
        names.append(tuple(scheduled.edges[k].name for k in members))
        stacks.append(distance)
        counts.append(scheduled.wide * weight.sum(0))
    return Terms(names, stacks), counts


def in_data_units(model: VFG, reconstruction: Terms, seen: Tensor) -> Terms:
    """Log-densities of scaled cells, by leaf, as those of the cells themselves."""
    volume = model.sections.split(seen * model.scaling.scale.log())
    stacks = [
        stack - part.sum(-1).to(stack)
        for stack, part in zip(reconstruction.stacks, volume.values(), strict=True)
    ]
    return Terms(reconstruction.names, stacks)


def surrogate(
    model: VFG,
    table: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    beta: float = 1.0,
) -> Surrogate:
    """The objective of Algorithm 1 per row, in named parts; differentiable.

    It trains models with deterministic states. It is not a bound on the likelihood: such states
    have no density q, so that the term log q is left out. For sampled states `bound` is one.

    Args:
        model: the model.
        table: the data; NaN is unobserved.
        observed: which cells may be used.
        labels: label per row, −1 for none, if the prior has labels.
        beta: weight of the KL and prior terms.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> objective = model.surrogate(torch.zeros(3, 2))
        >>> objective.total.shape, list(objective.edge)
        (torch.Size([3]), ['a->root', 'b->root'])
    """
    cells, seen, like = as_table(model, table, observed)
    scaled = model.objective(cells, seen, seen, as_labels(model, labels, len(cells)), beta)
    units = in_data_units(model, scaled.reconstruction, seen)
    return replace(scaled, reconstruction=units).to(like)


@torch.no_grad()
def consistency(model: VFG, table: ArrayLike, *, observed: ArrayLike | None = None) -> Terms:
    """Distances between forward and backward states, by node; 0 where all messages agree.

    The mean is over the paper's two consistency rules: a node's forward state against what its
    parents send back, and its children's messages against its backward state.

    Args:
        model: the model.
        table: the data; NaN is unobserved.
        observed: which cells may be used.

    Returns:
        By node the mean absolute difference per coordinate, `(rows,)`.

    Example:
        >>> import vfg
        >>> graph = vfg.Graph.star({"a": 2, "b": 2}, width=2)
        >>> model = vfg.VFG(graph, aggregation="mean")  # all edges start as identities
        >>> model.consistency(torch.tensor([[1.0, 2.0, 1.0, 2.0]]))["root"].item()
        0.0
    """
    cells, observed_cells, like = as_table(model, table, observed)
    passes, schedule = model(cells, observed_cells), model.passing.schedule
    distances: list[list[Tensor]] = [[] for _ in schedule.blocks]
    counts: list[list[Tensor]] = [[] for _ in schedule.blocks]
    for g, scheduled in enumerate(schedule.groups):
        group, sent = model.passing.group(g), passes.sent[g][..., 0]
        up = (passes.upward[g] - passes.arrived[g]).abs().sum(-1) * sent
        distances[scheduled.parent].append(group.above.collect(up))
        counts[scheduled.parent].append(group.above.collect(scheduled.wide * sent))
        state = passes.forward[scheduled.child]
        seen = group.below.spread(state.observed.to(state.value.dtype))
        own = group.below.spread(state.value)
        down = ((own - passes.downward[g]).abs() * seen).sum(-1)
        distances[scheduled.child].append(group.below.collect(down))
        counts[scheduled.child].append(group.below.collect(seen.sum(-1)))
    pairs = zip(distances, counts, strict=True)
    means = [add_all(far) / add_all(many).clamp(min=1) for far, many in pairs]
    return Terms([block.nodes for block in schedule.blocks], means).to(like)
