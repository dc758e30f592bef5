"""The formulas of the method as dictionaries and loops, one row at a time, for comparison.

Nothing here uses the schedule's tensors, the incidence tables or the aggregation classes: only the
graph, the parameters of the edges, and each edge's flow, which has contract tests of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

RIDGE, CERTAINTY = 1e-3, 1e6


def edge_parts(model, edge):
    """The stack that an edge lives in and its place there."""
    schedule = model.passing.schedule
    for index, group in enumerate(schedule.groups):
        if edge in group.edges:
            return model.passing.group(index), group.edges.index(edge)
    raise AssertionError(f"{edge} is in no group")


def aggregation_of(model, node):
    return model.graph.node(node).aggregation or model.aggregation


def carries(model, node):
    return node not in model.graph.leaves and aggregation_of(model, node) in (
        "precision",
        "gaussian",
    )


def coordinates_of(model, edge):
    parent = edge.parent
    if aggregation_of(model, parent) == "concatenation":
        start = 0
        for other in model.graph.edges_into(parent):
            width = model.graph.node(other.child).width
            if other == edge:
                return list(range(start, start + width))
            start += width
    if edge.coordinates is not None:
        return list(edge.coordinates)
    return list(range(model.graph.node(parent).width))


def lifted(model, edge, state):
    stack, k = edge_parts(model, edge)
    return state if stack.lifting is None else torch.cat([state, stack.lifting.constants[k, 0]])


def apply(model, edge, state):
    """f(lift(state)) of one edge for one row."""
    stack, k = edge_parts(model, edge)
    wide = lifted(model, edge, state)
    if stack.flow is None:
        return wide
    return stack.flow(wide.expand(stack.flow.edges, 1, -1))[0][k, 0][
        : len(coordinates_of(model, edge))
    ]


def lowered(model, edge, states):
    """The parent's coordinates with the constants that stand for those it does not read."""
    stack, k = edge_parts(model, edge)
    if stack.lowering is None:
        return states
    constants = stack.lowering.constants[k, 0]
    return torch.cat([states, constants.expand(*states.shape[:-1], -1)], dim=-1)


def invert(model, edge, state):
    """drop(f⁻¹(state)) of one edge for one row."""
    stack, k = edge_parts(model, edge)
    state = lowered(model, edge, state)
    if stack.flow is not None:
        state = stack.flow.inverse(state.expand(stack.flow.edges, 1, -1))[0][k, 0]
    return state[: model.graph.node(edge.child).width]


def default_of(model, node):
    block, row = model.passing.schedule.place[node]
    return model.passing.defaults[model.passing.schedule.blocks[block].name][row, 0]


def prior_mean(model, root, label):
    block, row = model.passing.schedule.place[root]
    prior = model.prior_at(block)
    if hasattr(prior, "locations"):
        table = prior.locations[row]
        return table.mean(0) if label is None or label < 0 else table[label]
    return prior.location[row, 0]


@dataclass
class Row:
    h: dict
    o: dict
    eta: dict
    precision: dict
    hat: dict
    known: dict
    up: dict
    down: dict


def leaf_state(model, leaf, x):
    """Data of one leaf as its state; only used for likelihoods that embed elementwise."""
    block, row = model.passing.schedule.place[leaf]
    likelihood = model.likelihood_at(block)
    stacked = x[None, None].expand(len(model.passing.schedule.blocks[block].nodes), 1, -1)
    return likelihood.embed(stacked)[row, 0]


def passes(model, x, observed, label=None, evidence=None):
    """One row through both passes: `x` by leaf without gaps, `observed` by leaf."""
    evidence = evidence or {}
    row = Row({}, {}, {}, {}, {}, {}, {}, {})
    graph = model.graph
    for leaf in graph.leaves:
        row.h[leaf] = leaf_state(model, leaf, x[leaf])
        row.o[leaf] = observed[leaf].expand(len(row.h[leaf]))
    for layer in graph.layers[1:]:
        for node in layer:
            forward_node(model, node, row, label, evidence.get(node))
    for root in graph.roots:
        row.hat[root] = torch.where(row.o[root], row.h[root], prior_mean(model, root, label))
        row.known[root] = bool(row.o[root].any())
        fix(row.hat, root, evidence)
    for layer in reversed(graph.layers[:-1]):
        for node in layer:
            if node not in graph.roots:
                backward_node(model, node, row)
                fix(row.hat, node, evidence)
    return row


def fix(states, node, evidence):
    if node in evidence:
        states[node] = torch.where(evidence[node].isnan(), states[node], evidence[node])


def forward_node(model, node, row, label, evidence):
    graph, width = model.graph, model.graph.node(node).width
    for edge in graph.edges_into(node):
        child = edge.child
        if not row.o[child].any():
            continue
        state = row.h[child]
        if not carries(model, child):
            state = torch.where(row.o[child], state, default_of(model, child))
        row.up[edge.name] = (state, apply(model, edge, state))
    sending = [edge for edge in graph.edges_into(node) if edge.name in row.up]
    kind = aggregation_of(model, node)
    if kind in ("mean", "concatenation"):
        h, o = torch.zeros(width, dtype=torch.float64), torch.zeros(width, dtype=torch.bool)
        for c in range(width):
            values = [
                row.up[edge.name][1][coordinates_of(model, edge).index(c)]
                for edge in sending
                if c in coordinates_of(model, edge)
            ]
            if values:
                h[c], o[c] = sum(values) / len(values), True
    else:
        h, o = informed_node(model, node, row, sending, kind, label, evidence)
    if evidence is not None:
        fixed = ~evidence.isnan()
        h, o = torch.where(fixed, evidence, h), o | fixed
    row.h[node], row.o[node] = h, o


def informed_node(model, node, row, sending, kind, label, evidence):
    width = model.graph.node(node).width
    eta = torch.zeros(width, dtype=torch.float64)
    precision = torch.zeros(width, width, dtype=torch.float64)
    o = torch.zeros(width, dtype=torch.bool)
    for edge in sending:
        own_eta, own_precision = pair(model, edge, row)
        if kind == "precision":
            own_precision = torch.diag(own_precision.diagonal())
        share = 1.0 / len(model.graph.parents(edge.child))
        where = coordinates_of(model, edge)
        for a, c in enumerate(where):
            eta[c] += share * own_eta[a]
            o[c] = True
            for b, d in enumerate(where):
                precision[c, d] += share * own_precision[a, b]
    if evidence is not None:
        fixed = ~evidence.isnan()
        for c in range(width):
            if not fixed[c]:
                eta[c] -= sum(precision[c, d] * evidence[d] for d in range(width) if fixed[d])
        for c in range(width):
            for d in range(width):
                if fixed[c] or fixed[d]:
                    precision[c, d] = CERTAINTY if c == d else 0.0
            if fixed[c]:
                eta[c] = CERTAINTY * evidence[c]
    if node in model.graph.roots:
        eta = eta + prior_mean(model, node, label)
        precision = precision + torch.eye(width, dtype=torch.float64)
        h = torch.linalg.inv(precision) @ eta
    else:
        ridged = precision + RIDGE * torch.eye(width, dtype=torch.float64)
        h = torch.linalg.inv(ridged) @ (eta + RIDGE * default_of(model, node))
    row.eta[node], row.precision[node] = eta, precision
    return h, o


def pair(model, edge, row):
    """(η, Λ) of the message along one edge, before it is shared among the child's parents."""
    stack, k = edge_parts(model, edge)
    state, message = row.up[edge.name]
    if not carries(model, edge.child):
        precision = stack.precision()[k]
        matrix = torch.diag(precision) if precision.ndim == 1 else precision
        return matrix @ message, matrix
    width = len(message)
    eta, precision = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width).double()
    narrow = model.graph.node(edge.child).width
    eta[:narrow], precision[:narrow, :narrow] = row.eta[edge.child], row.precision[edge.child]
    if stack.flow is None:
        return eta, precision
    inverse = torch.linalg.inv(stack.flow.linear_part()[k])
    shift = inverse @ message - lifted(model, edge, state)
    return inverse.T @ (eta + precision @ shift), inverse.T @ precision @ inverse


def backward_node(model, node, row):
    edges = model.graph.edges_from(node)
    for edge in edges:
        arrived = row.hat[edge.parent][coordinates_of(model, edge)]
        row.down[edge.name] = invert(model, edge, arrived)
    informed = [edge for edge in edges if row.known[edge.parent]]
    used = informed or edges
    row.hat[node] = sum(row.down[edge.name] for edge in used) / len(used)
    row.known[node] = bool(informed)


def surrogate(model, row, x, scored, label=None):
    """The named terms of the objective for one row, from the formulas."""
    graph = model.graph
    laplace = model.latent == "laplace"
    distance = (lambda v: v.abs()) if laplace else (lambda v: 0.5 * v * v)
    constant = math.log(2) if laplace else 0.5 * math.log(2 * math.pi)
    terms = {"reconstruction": {}, "kl": {}, "edge": {}, "root": 0.0, "constants": 0.0}
    for leaf in graph.leaves:
        terms["reconstruction"][leaf] = (
            log_likelihood(model, leaf, x[leaf], row.hat[leaf]) * scored[leaf]
        ).sum()
    for node in (node.name for node in graph.nodes):
        if node in graph.leaves or node in graph.roots:
            continue
        o = row.o[node].double()
        edges = graph.edges_from(node)
        terms["kl"][node] = sum(
            (distance(row.h[node] - row.down[edge.name]) * o).sum() for edge in edges
        ) / len(edges)
        terms["constants"] += constant * o.sum()
    for edge in graph.edges:
        if edge.kind == "identity" or len(graph.children(edge.parent)) < 2:
            continue
        terms["edge"][edge.name] = torch.zeros((), dtype=torch.float64)
        if edge.name in row.up:
            arrived = row.hat[edge.parent][coordinates_of(model, edge)]
            terms["edge"][edge.name] = distance(row.up[edge.name][1] - arrived).sum()
            terms["constants"] += constant * len(arrived)
    for root in graph.roots:
        value, normaliser = log_prior(model, root, row.h[root], row.o[root], label)
        terms["root"] += value
        terms["constants"] += normaliser
    return terms


def log_likelihood(model, leaf, x, state):
    block, k = model.passing.schedule.place[leaf]
    likelihood = model.likelihood_at(block)
    if model.likelihood_specs[leaf].name == "bernoulli":
        p = torch.sigmoid(likelihood.log_steepness[k, 0].exp() * state)
        return torch.log(torch.where(x == 1, p, 1 - p))
    scale = likelihood.scale()[k, 0]
    return torch.distributions.Normal(state, scale).log_prob(x)


def log_prior(model, root, h, o, label):
    """log p without constants, and the constants."""
    count = o.sum().double()
    name = model.prior_spec.name
    if name == "laplace":
        far = (h - prior_mean(model, root, label)).abs()
        return -(far * o).sum(), count * math.log(2)
    if name == "per_label" and (label is None or label < 0):
        block, k = model.passing.schedule.place[root]
        means = model.prior_at(block).locations[k]
        each = torch.stack([-0.5 * ((h - mean) ** 2 * o).sum() for mean in means])
        return torch.log(each.exp().mean()), count * 0.5 * math.log(2 * math.pi)
    far = 0.5 * (h - prior_mean(model, root, label)) ** 2
    return -(far * o).sum(), count * 0.5 * math.log(2 * math.pi)
