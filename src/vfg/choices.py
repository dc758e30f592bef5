"""What users choose for a model, spread over its nodes and edges and checked against its graph."""

from __future__ import annotations

from collections.abc import Mapping

from vfg.distributions.likelihoods import LikelihoodSpec
from vfg.distributions.priors import Prior, PriorSpec
from vfg.flows import FlowSpec
from vfg.graph import Graph
from vfg.passing.aggregation import aggregation as aggregation_called
from vfg.passing.schedule import Block
from vfg.sampling.specs import Sampled, StatesSpec
from vfg.utils.specs import for_each


def flow_specs(graph: Graph, given: FlowSpec | Mapping[str, FlowSpec]) -> dict[str, FlowSpec]:
    """The flow of every flow edge, by edge name.

    Raises:
        ValueError: for an edge that does not exist, or one without a flow.
    """
    edges = [edge.name for edge in graph.edges if edge.kind == "flow"]
    by_edge = {"*": given} if isinstance(given, FlowSpec) else dict(given)
    return for_each(edges, by_edge, "flow edge")


def treatments(
    graph: Graph, likelihoods: Mapping[str, LikelihoodSpec], aggregation: str
) -> dict[str, str]:
    """The likelihood (its description) of leaves, the aggregation (its name) of other nodes.

    Raises:
        ValueError: for an aggregation that is not known.
    """
    leaves = dict.fromkeys(graph.leaves)
    found = {}
    for node in graph.nodes:
        if node.name in leaves:
            found[node.name] = repr(likelihoods[node.name])
        else:
            found[node.name] = node.aggregation or aggregation
            aggregation_called(found[node.name])
    return found


def check_prior(block: Block, prior: Prior, spec: PriorSpec, states: StatesSpec) -> None:
    """Refuse a prior that does not go with the aggregation or the states.

    Raises:
        ValueError: if the roots know their precision and the prior is not Normal, so that it cannot
            be one more message; or if it needs whole states and states are deterministic.
    """
    if prior.needs_whole_states and not isinstance(states, Sampled):
        raise ValueError(
            f"the prior {spec.name!r} has no density of single coordinates, which deterministic "
            "states need; build the model with states='sampled'"
        )
    if aggregation_called(block.treatment).carries != "none" and not prior.is_normal:
        raise ValueError(
            f"root {block.nodes[0]!r} aggregates by {block.treatment!r}, which needs a Normal "
            f"prior, but the prior is {spec.name!r}; use prior='normal' or vfg.PerLabel(labels)"
        )
