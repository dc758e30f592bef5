"""log p of the observed cells of a row by integrating over a grid of all latent coordinates.

Nothing here uses the schedule's tensors or the sampler's arithmetic: only the graph, the parameters
and each edge's flow, which has contract tests of its own. Nothing is pruned either.
"""

from __future__ import annotations

import math

import torch
from reference import coordinates_of, edge_parts, lowered

LIMIT = 6.0


def backward(model, edge, states):
    """drop(f⁻¹(h)) of one edge for many states of its parent `(points, width)`."""
    stack, k = edge_parts(model, edge)
    arrived = lowered(model, edge, states[edge.parent][:, coordinates_of(model, edge)])
    if stack.flow is not None:
        arrived = stack.flow.inverse(arrived.expand(stack.flow.edges, -1, -1).contiguous())[0][k]
    return arrived[:, : model.graph.node(edge.child).width]


def expected(model, node, states):
    """The mean of the parents' backward messages."""
    edges = model.graph.edges_from(node)
    return sum(backward(model, edge, states) for edge in edges) / len(edges)


def noise_scale(model, node):
    """The scale of p(h | parents)."""
    block, row = model.passing.schedule.place[node]
    sampler = model.sampling.samplers[model.passing.schedule.blocks[block].name]
    return (LIMIT * torch.tanh(sampler.log_noise[row, 0, 0] / LIMIT)).exp()


def log_prior(model, root, state, label):
    block, row = model.passing.schedule.place[root]
    prior = model.prior_at(block)
    kind = model.prior_spec.name
    if kind == "laplace":
        return torch.distributions.Laplace(prior.location[row, 0], 1.0).log_prob(state).sum(-1)
    if kind == "per_label":
        means = prior.locations[row]
        each = torch.distributions.Normal(means, 1.0).log_prob(state[:, None]).sum(-1)
        if label is not None and label >= 0:
            return each[:, label]
        return each.logsumexp(-1) - math.log(len(means))
    return torch.distributions.Normal(prior.location[row, 0], 1.0).log_prob(state).sum(-1)


def log_leaf(model, leaf, x, observed, states):
    block, row = model.passing.schedule.place[leaf]
    likelihood, state = model.likelihood_at(block), expected(model, leaf, states)
    if model.likelihood_specs[leaf].name == "bernoulli":
        logits = likelihood.log_steepness[row, 0].exp() * state
        each = torch.distributions.Bernoulli(logits=logits).log_prob(x.expand_as(logits))
    else:
        each = torch.distributions.Normal(state, likelihood.scale()[row, 0]).log_prob(x)
    return (each * observed).sum(-1)


def log_joint(model, states, x, observed, label=None):
    """log p(x_observed, h) for many latent states by node `(points, width)`."""
    law = torch.distributions.Laplace if model.latent == "laplace" else torch.distributions.Normal
    graph, total = model.graph, 0.0
    for node in (node.name for node in graph.nodes):
        if node in graph.leaves:
            chosen = list(model.sections.positions[node])
            total = total + log_leaf(model, node, x[chosen], observed[chosen], states)
        elif node in graph.roots:
            total = total + log_prior(model, node, states[node], label)
        else:
            centre, scale = expected(model, node, states), noise_scale(model, node)
            total = total + law(centre, scale).log_prob(states[node]).sum(-1)
    return total


def grid(model, points, reach):
    """All combinations of `points` values between ±reach for every latent coordinate, by node."""
    graph = model.graph
    latent = [node for node in graph.nodes if node.name not in graph.leaves]
    axis = torch.linspace(-reach, reach, points, dtype=torch.float64)
    whole = torch.cartesian_prod(*[axis] * sum(node.width for node in latent))
    whole = whole.reshape(points ** sum(node.width for node in latent), -1)
    parts = whole.split([node.width for node in latent], dim=1)
    states = {node.name: part for node, part in zip(latent, parts, strict=True)}
    return states, sum(node.width for node in latent) * math.log(axis[1] - axis[0])


@torch.no_grad()
def log_density(model, table, *, points, reach, labels=None):
    """log p of the observed cells of every row of a table in the model's units."""
    states, log_cell = grid(model, points, reach)
    found = []
    for b, row in enumerate(table):
        observed = ~row.isnan()
        label = None if labels is None else int(labels[b])
        joint = log_joint(model, states, torch.where(observed, row, 0.0), observed, label)
        found.append(joint.logsumexp(0) + log_cell)
    return torch.stack(found)
