"""Random graphs and models for property tests."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st

import vfg

AGGREGATIONS = ("mean", "concatenation", "precision", "gaussian")
FLOWS = (
    vfg.Coupling(blocks=2, hidden=4, activation="tanh"),
    vfg.Linear(),
    vfg.Spline(bins=3),
)


@st.composite
def graphs(draw, aggregations=AGGREGATIONS, most_columns=5):
    """DAGs with several roots, several parents, skipped layers, identities and coordinates."""
    widths = draw(
        st.lists(st.integers(1, 2), min_size=2, max_size=4).filter(
            lambda found: sum(found) <= most_columns
        )
    )
    nodes = [vfg.Node(f"x{i}", width) for i, width in enumerate(widths)]
    leaves = len(nodes)
    edges = []
    for i in range(draw(st.integers(1, 4))):
        pool = [node.name for node in nodes]
        orphans = [name for name in pool if all(edge.child != name for edge in edges)]
        size = draw(st.integers(1, min(3, len(pool))))
        chosen = draw(st.permutations(pool))[:size]
        if i == 0:
            chosen = [name for name in chosen if name in pool[:leaves]] or [pool[0]]
        nodes, edges = _add_node(draw, nodes, edges, f"h{i}", chosen, aggregations)
    orphans = [node.name for node in nodes[:leaves] if all(e.child != node.name for e in edges)]
    if orphans:
        nodes, edges = _add_node(draw, nodes, edges, "top", orphans, aggregations)
    return vfg.Graph(nodes, edges)


def _add_node(draw, nodes, edges, name, children, aggregations):
    kind = draw(st.sampled_from(aggregations))
    widths = {node.name: node.width for node in nodes}
    needed = [widths[child] for child in children]
    width = sum(needed) if kind == "concatenation" else max(needed) + draw(st.integers(0, 1))
    added = []
    for child in children:
        coordinates = None
        if kind != "concatenation" and draw(st.booleans()):
            size = draw(st.integers(widths[child], width))
            coordinates = tuple(draw(st.permutations(range(width)))[:size])
        how = draw(st.sampled_from(("flow", "flow", "identity")))
        added.append(vfg.Edge(child, name, how, coordinates))
    return [*nodes, vfg.Node(name, width, aggregation=kind)], [*edges, *added]


@st.composite
def models(draw, aggregations=AGGREGATIONS, likelihoods=("gaussian", "bernoulli")):
    """A float64 model on a random graph, away from its identity start."""
    graph = draw(graphs(aggregations))
    informed = any(node.aggregation in ("precision", "gaussian") for node in graph.nodes)
    priors = ["normal", vfg.PerLabel(3)] + ([] if informed else ["laplace"])
    flow_edges = [edge.name for edge in graph.edges if edge.kind == "flow"]
    model = vfg.VFG(
        graph,
        flow={name: draw(st.sampled_from(FLOWS)) for name in flow_edges} or vfg.Linear(),
        latent=draw(st.sampled_from(("laplace", "normal"))),
        likelihood={leaf: draw(st.sampled_from(likelihoods)) for leaf in graph.leaves},
        prior=draw(st.sampled_from(priors)),
    )
    return perturbed(model.double(), draw(st.integers(0, 2**16)))


def perturbed(model, seed, size=0.3):
    """Every parameter moved by a little noise, from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(size * noise)
    return model


def all_masks(columns):
    """Every subset of the columns, `(2 ** columns, columns)`."""
    return torch.tensor(list(itertools.product([True, False], repeat=columns)))


def rows_for(model, masks, seed=0):
    """Random data that every leaf can explain, one row per mask."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(masks.shape, generator=generator, dtype=torch.float64)
    for leaf, columns in model.sections.positions.items():
        if model.likelihood_specs[leaf].name == "bernoulli":
            chosen = list(columns)
            table[:, chosen] = (table[:, chosen] > 0).double()
    return table


def by_leaf(model, row):
    return {leaf: row[list(columns)] for leaf, columns in model.sections.positions.items()}
