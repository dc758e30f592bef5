"""VFG: a graph whose edges are flows, as one module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vfg import inference
from vfg.distributions.likelihoods import Likelihood, LikelihoodSpec, likelihoods_by_leaf
from vfg.distributions.priors import LATENTS, PosteriorMixture, Prior, PriorSpec, prior_spec
from vfg.flows import Coupling, FlowSpec, LinearStart
from vfg.graph import Graph
from vfg.graph.graph import as_graph
from vfg.inference.calibration import new_calibration
from vfg.inputs import ArrayLike, as_evidence, as_labels, as_table
from vfg.objectives import bound as bounds
from vfg.objectives import surrogate as surrogates
from vfg.passing.aggregation import State
from vfg.passing.aggregation import aggregation as aggregation_called
from vfg.passing.messages import MessagePassing, Passes, States
from vfg.passing.schedule import Block, Schedule, compile_schedule
from vfg.passing.sections import Scaling, Sections
from vfg.sampling import (
    Sampled,
    SampledStates,
    StatesSpec,
    draw_states,
    no_noise,
    root_posterior,
    states_spec,
)
from vfg.utils.specs import check_choice, for_each, spec_from_dict

if TYPE_CHECKING:
    from vfg.gaussian import GaussianVFG
    from vfg.structure import LearnedGraph


WIDEST = 32
"""The widest latent nodes whose messages carry precision matrices by default. Beyond, a Cholesky
factor per row and node takes longer than the flows."""


def default_aggregation(graph: Graph, prior: PriorSpec) -> str:
    """The aggregation of a model that is given none: `gaussian` where it can serve, else `mean`.

    Example:
        >>> default_aggregation(Graph.star({"a": 1}), prior_spec("normal"))
        'gaussian'
    """
    widest = max(node.width for node in graph.nodes if graph.children(node.name))
    is_normal = prior.build(1, 1).is_normal
    return "gaussian" if is_normal and widest <= WIDEST else "mean"


def default_flow(
    graph: Graph, treated: Mapping[str, str], likelihoods: Mapping[str, LikelihoodSpec]
) -> FlowSpec:
    """The flow of a model that is given none: one with a linear start where the graph has one.

    It has one if the leaves are real, and whatever leaves send reaches one root whole: latent nodes
    of equal width, flow edges to all coordinates, precision matrices everywhere.
    """
    latent = [node for node in graph.nodes if node.name not in likelihoods]
    starts_linear = (
        len(graph.roots) == 1
        and len({node.width for node in latent}) == 1
        and all(treated[node.name] == "gaussian" for node in latent)
        and all(edge.kind == "flow" and edge.coordinates is None for edge in graph.edges)
        and all(spec.is_real for spec in likelihoods.values())
    )
    return LinearStart() if starts_linear else Coupling()


def flow_specs(graph: Graph, given: FlowSpec | Mapping[str, FlowSpec]) -> dict[str, FlowSpec]:
    """The flow of every flow edge, by edge name."""
    edges = [edge.name for edge in graph.edges if edge.kind == "flow"]
    by_edge = {"*": given} if isinstance(given, FlowSpec) else dict(given)
    chosen = for_each(edges, by_edge, "flow edge")
    leaves = graph.sections
    for edge in graph.edges:
        spec = chosen.get(edge.name)
        if isinstance(spec, LinearStart) and spec.columns is None:
            chosen[edge.name] = replace(spec, columns=leaves.get(edge.child, 0))
    return chosen


def treatments(
    graph: Graph, likelihoods: Mapping[str, LikelihoodSpec], aggregation: str
) -> dict[str, str]:
    """The likelihood (its description) of leaves, the aggregation (its name) of other nodes."""
    leaves = dict.fromkeys(graph.leaves)
    result = {}
    for node in graph.nodes:
        if node.name in leaves:
            result[node.name] = repr(likelihoods[node.name])
        else:
            result[node.name] = node.aggregation or aggregation
            aggregation_called(result[node.name])
    return result


def check_prior(block: Block, prior: Prior, spec: PriorSpec, states: StatesSpec) -> None:
    """Refuse a prior that does not go with the aggregation or the states."""
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


class VFG(nn.Module):
    r"""A variational flow graphical model.

    Forward messages go from the data to the roots, backward messages from the roots to the data,
    both through the same invertible edges:

    $$h^{(i)} = \operatorname{aggregate}_{j \in ch(i)} f_{(j,i)}(h^{(j)}), \qquad
      \hat h^{(i)} = \frac{1}{|pa(i)|} \sum_{j \in pa(i)} f^{-1}_{(i,j)}(\hat h^{(j)})$$

    Tables are tensors or arrays `(rows, columns)` with NaN where nothing was observed, or a
    mapping from leaves to such arrays. Results keep the dtype and device of the table.

    Args:
        graph: the nodes and edges, or a learned graph.
        flow: the function of every flow edge, or a mapping from edge names (`"child->parent"`) to
            functions, with `"*"` for all others. None is `vfg.LinearStart()`, couplings that
            `vfg.fit` starts at a factor analysis of the table; or `vfg.Coupling()` where the graph
            has no linear start: several roots, latent nodes of different widths, leaves that are
            not real, or another aggregation.
        aggregation: how nodes combine the messages of their children: `mean`, `concatenation`,
            `precision` or `gaussian`; a node's own `aggregation` takes precedence. None is
            `gaussian`, or `mean` for latent nodes wider than 32, priors that are not Normal and
            `vfg.Bottleneck`.
        states: how latent states are computed: `deterministic` (default), as in the paper's
            algorithms; `sampled`, for a bound on the likelihood; or `vfg.Sampled(...)`.
        latent: the distribution of a latent state given its parents: `laplace` or `normal`. With
            deterministic states it decides how the objective measures the distance between
            forward and backward states. None is `laplace` for deterministic states and `normal`
            for sampled ones.
        likelihood: of the leaves: `gaussian` (default; unit noise, or with sampled states learned
            noise), `bernoulli`, a spec such as `vfg.Categorical(5)`, or a mapping from leaves to
            those, with `"*"` for all others.
        prior: of the roots: `normal` (default), `laplace`, `vfg.PerLabel(labels)`,
            `vfg.Mixture(components)` or, with sampled states, `vfg.VampPrior(components)` or
            `vfg.FlowPrior(...)`.
        seed: of the initial parameters (default 0).

    Raises:
        ValueError: if widths do not fit together, or a name is not known.

    Example:
        >>> import vfg
        >>> graph = vfg.Graph.star({"a": 2, "b": 2}, width=4)
        >>> model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=8))
        >>> table = torch.tensor([[0.5, 1.0, float("nan"), float("nan")]])
        >>> model.reconstruct(table).shape
        torch.Size([1, 4])
    """

    is_trained: Tensor

    def __init__(
        self,
        graph: Graph | LearnedGraph,
        *,
        flow: FlowSpec | Mapping[str, FlowSpec] | None = None,
        aggregation: str | None = None,
        states: str | StatesSpec = "deterministic",
        latent: str | None = None,
        likelihood: str | LikelihoodSpec | Mapping[str, str | LikelihoodSpec] = "gaussian",
        prior: str | PriorSpec = "normal",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.graph, self.seed = (graph := as_graph(graph)), seed
        self.states_spec = states_spec(states)
        if latent is None:
            latent = "normal" if isinstance(self.states_spec, Sampled) else "laplace"
        check_choice("latent", latent, tuple(LATENTS))
        self.prior_spec = prior_spec(prior)
        if aggregation is None:
            given = flow.values() if isinstance(flow, Mapping) else [flow]
            carries = all(spec is None or spec.carries_precision for spec in given)
            aggregation = default_aggregation(graph, self.prior_spec) if carries else "mean"
        self.aggregation, self.latent = aggregation, latent
        # A bound on log p needs the noise of the data; distances of the surrogate have none.
        learn_noise = isinstance(self.states_spec, Sampled)
        self.likelihood_specs = likelihoods_by_leaf(graph.leaves, likelihood, learn_noise)
        treated = treatments(graph, self.likelihood_specs, aggregation)
        if flow is None:
            flow = default_flow(graph, treated, self.likelihood_specs)
        self.flow_specs = flow_specs(graph, flow)
        schedule = compile_schedule(graph, self.flow_specs, treated)
        generator = torch.Generator().manual_seed(seed)
        self.passing = MessagePassing(schedule, generator)
        self.sections = Sections(schedule, self.likelihood_specs)
        self.scaling = Scaling(self.sections.columns)
        self.register_buffer("is_trained", torch.tensor(False))
        self.likelihoods, self.priors = self._build_ends(schedule)
        self.sampling = (
            SampledStates(schedule, self.states_spec, latent, generator)
            if isinstance(self.states_spec, Sampled)
            else None
        )
        self.spread = new_calibration(self)
        for index in self._blocks_of(self.priors):
            self._attach_posterior(index)

    def _build_ends(self, schedule: Schedule) -> tuple[nn.ModuleDict, nn.ModuleDict]:
        """The likelihoods of leaf blocks and the priors of root blocks, by the block's name."""
        likelihoods, priors = nn.ModuleDict(), nn.ModuleDict()
        for block in schedule.blocks:
            if block.is_leaf:
                spec = self.likelihood_specs[block.nodes[0]]
                likelihoods[block.name] = spec.build(len(block.nodes), block.width)
            if block.is_root:
                top = self.prior_spec.build(len(block.nodes), block.width)
                check_prior(block, top, self.prior_spec, self.states_spec)
                priors[block.name] = top
        return likelihoods, priors

    @classmethod
    def from_gaussian(
        cls, linear: GaussianVFG, *, flow: Coupling | None = None, seed: int = 0
    ) -> VFG:
        """The deep model that starts as a fitted linear one.

        Every leaf edge is lifted. It consists of couplings, which start as identities, and of the
        linear map that encodes a column by its loading; it also has the precision of the loading.
        Therefore states, means and deviations are those of the linear model until training changes
        them. With monotone leaves the states are equal, but the means are not.

        Args:
            linear: a `vfg.GaussianVFG` with one component and affine or spline leaves, on a star,
                or on a tree whose inner edges are noise-free and invertible.
            flow: the couplings; the linear map takes the place of their final scale.
            seed: of the couplings' initial parameters.

        Raises:
            ValueError: for other linear models, naming the edge or the mixture.

        Example:
            >>> import vfg
            >>> from vfg.data import synthetic
            >>> linear = vfg.GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(8)}, width=3))
            >>> table = synthetic(200).double()
            >>> history = linear.fit(table)
            >>> deep = vfg.VFG.from_gaussian(linear, flow=vfg.Coupling(blocks=2, hidden=8))
            >>> torch.allclose(deep.embed(table), linear.embed(table), atol=1e-6)
            True
        """
        return linear.deepen(cls, flow=flow, seed=seed)

    @property
    def variables(self) -> dict[str, inference.Variable]:
        """The columns of the table by name: their kinds, ranges and categories."""
        return inference.graph_variables(self)

    @property
    def states(self) -> str:
        """How latent states are computed: `deterministic` or `sampled`."""
        return self.states_spec.name

    # Public methods.

    @torch.no_grad()
    def encode(
        self,
        table: ArrayLike,
        *,
        observed: ArrayLike | None = None,
        evidence: Mapping[str, ArrayLike] | None = None,
        labels: ArrayLike | None = None,
    ) -> States:
        """Forward messages: the states of all nodes given the observed cells.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells may be used; NaN cells are never used.
            evidence: values that fix latent nodes, `(rows, width)`, NaN where free.
            labels: label per row, −1 for none, if the prior has labels.

        Returns:
            The forward states by node; see `States`.

        Example:
            >>> model = VFG(Graph.star({"a": 1, "b": 1}, width=2))
            >>> model.encode(torch.zeros(3, 2))["root"].shape
            torch.Size([3, 2])
        """
        cells, seen, like = as_table(self, table, observed)
        given, _, _ = as_evidence(self, evidence or {}, rows=len(cells))
        passes = self(cells, seen, as_labels(self, labels, len(cells)), given)
        return States.of(self.passing.schedule, passes.forward, like)

    @torch.no_grad()
    def reconstruct(
        self,
        table: ArrayLike,
        *,
        observed: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Tensor:
        """Forward and backward messages: the expected value of every cell, missing ones included.

        With sampled states the centres of q take the place of draws.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells may be used.
            labels: label per row, −1 for none, if the prior has labels.

        Returns:
            The expected table, `(rows, columns)`.

        Example:
            >>> model = VFG(Graph.star({"a": 1, "b": 1}, width=2))
            >>> model.reconstruct(torch.full((3, 2), torch.nan)).isfinite().all()
            tensor(True)
        """
        cells, seen, like = as_table(self, table, observed)
        given = as_labels(self, labels, len(cells))
        if self.sampling is None or not len(cells):
            states = self(cells, seen, given).backward
        else:
            draw = draw_states(self, cells, seen, given, {}, no_noise, 1)
            states = [state[:, 0] for state in draw.states]
        return self.scaling.undo(self.sections.join(self.leaf_means(states))).to(like)

    # Functions of other modules whose first argument is the model.

    decode = inference.decode
    sample = inference.sample
    surrogate = surrogates.surrogate
    consistency = surrogates.consistency
    bound = bounds.bound
    log_likelihood = bounds.log_likelihood
    effective_sample_size = bounds.effective_sample_size

    infer = inference.infer
    counterfactual = inference.counterfactual
    fill = inference.fill
    log_prob = inference.log_prob
    transport = inference.transport
    embed = inference.embed
    classify = inference.classify
    label_probabilities = inference.label_probabilities
    traverse = inference.traverse

    # What training and inference are built from: tensors in, tensors out, nothing checked.

    def forward(
        self,
        cells: Tensor,
        observed: Tensor,
        labels: Tensor | None = None,
        evidence: dict[int, Tensor] | None = None,
        wanted: dict[int, Tensor] | None = None,
    ) -> Passes:
        """Both passes for a table without NaN and a mask of the same shape."""
        leaves, priors = self._leaf_states(cells, observed), self._prior_means(labels)
        return self.passing.run(leaves, priors, evidence or {}, wanted=wanted)

    objective = surrogates.compute_surrogate

    def likelihood_at(self, block: int) -> Likelihood:
        """The likelihood of a leaf block."""
        likelihood = self.likelihoods[self.passing.schedule.blocks[block].name]
        assert isinstance(likelihood, Likelihood)
        return likelihood

    def prior_at(self, block: int) -> Prior:
        """The prior of a root block."""
        prior = self.priors[self.passing.schedule.blocks[block].name]
        assert isinstance(prior, Prior)
        return prior

    # How a model describes itself.

    def to_dict(self) -> dict[str, Any]:
        """Graph and configuration, ready for JSON; `VFG.from_dict` builds an equal model."""
        return {
            "graph": self.graph.to_dict(),
            "flow": {edge: spec.to_dict() for edge, spec in self.flow_specs.items()},
            "aggregation": self.aggregation,
            "states": self.states if self.sampling is None else self.states_spec.to_dict(),
            "latent": self.latent,
            "likelihood": {leaf: spec.to_dict() for leaf, spec in self.likelihood_specs.items()},
            "prior": self.prior_spec.to_dict(),
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> VFG:
        """A new model with the configuration that `to_dict` returned, at its initial parameters."""
        states = description["states"]  # a name, or name and settings
        return cls(
            Graph.from_dict(description["graph"]),
            flow={k: spec_from_dict(FlowSpec, v) for k, v in description["flow"].items()},
            aggregation=description["aggregation"],
            states=states if isinstance(states, str) else spec_from_dict(StatesSpec, states),
            latent=description["latent"],
            likelihood={
                k: spec_from_dict(LikelihoodSpec, v) for k, v in description["likelihood"].items()
            },
            prior=spec_from_dict(PriorSpec, description["prior"]),
            seed=description["seed"],
        )

    def extra_repr(self) -> str:
        return f"aggregation={self.aggregation!r}, states={self.states!r}, latent={self.latent!r}"

    # Private.

    @property
    def _some(self) -> Tensor:
        return next(self.parameters())

    def _blocks_of(self, modules: nn.ModuleDict) -> list[int]:
        blocks = self.passing.schedule.blocks
        return [index for index, block in enumerate(blocks) if block.name in modules]

    def _attach_posterior(self, index: int) -> None:
        """Tell a prior of mixed posteriors what q is."""
        prior = self.prior_at(index)
        if not isinstance(prior, PosteriorMixture):
            return
        kinds = {leaf: spec.name for leaf, spec in self.likelihood_specs.items()}
        for leaf, kind in kinds.items():
            if kind not in ("gaussian", "bernoulli"):
                raise ValueError(
                    f"VampPrior learns rows as inputs, which cannot have categories, but leaf "
                    f"{leaf!r} is {kind}; use vfg.Mixture(components) or vfg.FlowPrior(...)"
                )
        assert isinstance(self.states_spec, Sampled)
        if self.states_spec.blocks:
            raise ValueError(
                f"VampPrior mixes Normal posteriors, but q has {self.states_spec.blocks} coupling "
                "layers; use vfg.Sampled(blocks=0) or vfg.FlowPrior(...)"
            )
        if any(self.passing.schedule.groups[g].coordinates is not None
               for g in self.passing.schedule.into(index)):  # fmt: skip
            raise ValueError(
                "VampPrior needs messages that reach all coordinates of the roots; use "
                "aggregation='mean'"
            )
        binary = torch.zeros(self.sections.columns, dtype=torch.bool)
        for leaf, places in self.sections.positions.items():
            binary[list(places)] = kinds[leaf] == "bernoulli"
        prior.attach(partial(root_posterior, self, index), binary)

    def _prior_means(self, labels: Tensor | None) -> dict[int, Tensor]:
        return {index: self.prior_at(index).mean(labels) for index in self._blocks_of(self.priors)}

    def _leaf_states(self, cells: Tensor, observed: Tensor) -> dict[int, State]:
        data, seen = self.sections.split(cells), self.sections.split(observed)
        states = {}
        for index, part in data.items():
            value = self.likelihood_at(index).embed(part)
            states[index] = State(value, seen[index].expand_as(value))
        return states

    def leaf_means(self, backward: list[Tensor]) -> dict[int, Tensor]:
        """The means of the leaf blocks given their backward states."""
        return {
            index: self.likelihood_at(index).mean(backward[index])
            for index in self._blocks_of(self.likelihoods)
        }
