"""GaussianVFG, the exact member of the family, and the selection among several structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from vfg import inference
from vfg.distributions.likelihoods import Gaussian, LikelihoodSpec, likelihoods_by_leaf
from vfg.flows import Coupling, FlowSpec
from vfg.gaussian.answers import GaussianAnswer, Posterior, posterior_of
from vfg.gaussian.category_points import CategoryPoints
from vfg.gaussian.fitting import GaussianSettings, LikelihoodHistory, fit_exact, training_of
from vfg.gaussian.leaves import Leaves, leaf_spec
from vfg.gaussian.log_prob import Encoded, chunk_size, row_scores
from vfg.gaussian.parameters import Parameters
from vfg.gaussian.row_sums import Summary, summarise
from vfg.gaussian.structure import Passing, Structure
from vfg.gaussian.to_deep import make_deep
from vfg.graph import Graph
from vfg.graph.graph import as_graph
from vfg.inference.answers import as_row_ids, as_targets
from vfg.inference.evidence import as_given, warn_of_extrapolation
from vfg.inference.propagation import evaluating
from vfg.inputs import (
    ArrayLike,
    Name,
    as_cells,
    as_given_mask,
    as_table,
    as_weights,
    name_columns,
    scale_cells,
)
from vfg.model import VFG
from vfg.modelfile.registry import register
from vfg.passing.sections import Scaling, Sections, column_positions
from vfg.training.data import fit_scaling
from vfg.utils.specs import check_choice, spec_from_dict, with_options

if TYPE_CHECKING:
    from vfg.structure import LearnedGraph


@register("GaussianVFG")
class GaussianVFG(nn.Module):
    r"""A graph of linear-Gaussian edges under invertible leaves; every query is exact.

    $$u_j = g_j(x_j), \qquad h_i = \sum_{u \in pa(i)} B_{iu} h_u + c_i + \varepsilon_i, \qquad
      \varepsilon_i \sim N(0, \mathrm{diag}(d_i^2))$$

    and the same for the leaves $u_j$; roots are independent and standard Normal, or a mixture of
    Normals. For any mask log-densities, posteriors, conditionals and draws have closed forms, on
    trees and on any directed acyclic graph. Tables are what `vfg.VFG` takes. Parameters are
    float64, and so is all linear algebra whatever their dtype.

    A **discrete** column with C categories has $\min(C - 1, 8)$ coordinates in its leaf, whatever
    the width of the node. Category c is a learned point $e_c$ there with a frequency $\pi_c$;
    evidence of c is $u = e_c$, and given anything else o,

    $$P(c \mid o) \propto \pi_c \bigl((1 - \delta_c)\, p(u = e_c \mid o) / p(u = e_c) +
      \delta_c\bigr),$$

    a softmax over Mahalanobis distances: Bayes' rule with $p(o \mid u = e_c)$ as the likelihood
    of c. Given nothing it is $\pi_c$. A category with n rows has $\delta_c = 1 / (2n + 1)$: one
    that never occurred may be anywhere and keeps its frequency.

    log p of a row is **defined** by the chain rule: the density of its real cells, times the
    probability of each discrete cell, in the order of the table, given the real cells and the
    discrete ones before it. It is therefore normalised over the values of the observed cells, for
    any mask. However, it depends on the order of the discrete columns. Summing out the earlier one
    of two discrete cells, or integrating out a real cell beside a discrete one, does not give
    exactly the log p of the smaller table. Draws follow the chain given the evidence.

    Args:
        graph: the nodes and edges, or a learned graph; identity edges are not learned.
        components: number of components of the mixture (default 1: none). More suit clusters.
        leaf: the maps g of real columns: `"affine"` (default), `"spline"` (a monotone spline per
            column, for skewed columns), `vfg.Spline(...)`, or a `vfg.Coupling` for whole sections.
        likelihood: `"gaussian"` (real numbers, default), `"bernoulli"`, `vfg.Categorical(...)`, or
            a mapping from leaves to those, with `"*"` for all others. Noises are always learned.
        mixture: what components differ in: `"root"` (means and covariances of the roots, default)
            or `"loadings"` (loadings, offsets and noises of the leaves).
        inner_noise: whether latent nodes below the roots have noise of their own (default True).
        noise_floor: lower bound of standard deviations, relative to that of the column. At the
            default, 5e-5, cells of exact linear relations are filled up to 1e-6 standard
            deviations. Raise it if a likelihood grows without bound.
        seed: of the initial parameters (default 0).

    Raises:
        ValueError: if a choice is not known, or a leaf cannot have the likelihood.

    Example:
        >>> from vfg.data import synthetic
        >>> table = synthetic(200)
        >>> model = GaussianVFG(Graph.star({f"x{k}": 1 for k in range(8)}, width=2))
        >>> history = model.fit(table)
        >>> bool(model.log_prob(table).mean() > -1.0)
        True
    """

    def __init__(
        self,
        graph: Graph | LearnedGraph,
        components: int = 1,
        *,
        leaf: str | FlowSpec = "affine",
        likelihood: str | LikelihoodSpec | Mapping[str, str | LikelihoodSpec] = "gaussian",
        mixture: str = "root",
        inner_noise: bool = True,
        noise_floor: float = 5e-5,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("mixture", mixture, ("root", "loadings"))
        if components < 1 or not noise_floor > 0.0:
            raise ValueError(
                f"a GaussianVFG needs components >= 1 and noise_floor > 0, but got {components} "
                f"and {noise_floor}"
            )
        self.graph, self.components, self.mixture = (graph := as_graph(graph)), components, mixture
        self.inner_noise, self.noise_floor, self.seed = inner_noise, noise_floor, seed
        self.leaf_spec = leaf_spec(leaf)
        self.likelihood_specs = likelihoods_by_leaf(graph.leaves, likelihood)
        positions = column_positions(graph, self.likelihood_specs)
        self.codes = CategoryPoints(positions, self.likelihood_specs)
        self.structure = Structure(graph, self.codes.positions, inner_noise)
        schedule = self.structure.schedule(positions)
        self.passing = Passing(schedule)
        self.sections = Sections(schedule, self.likelihood_specs)
        self.scaling = Scaling(self.sections.columns)
        generator = torch.Generator().manual_seed(seed)
        self.linear = Parameters(self.structure, components, mixture, noise_floor, generator)
        real = {k: v for k, v in positions.items() if self.likelihood_specs[k].is_real}
        self.leaves = Leaves(real, self.leaf_spec, generator)
        self.register_buffer("summary", None)  # of the rows that `partial_fit` was given
        self.double()

    summary: Tensor | None
    draws_of_interventions = 4096  # exact conditionals are cheap

    # What users call.

    def fit(
        self,
        table: ArrayLike,
        settings: GaussianSettings | None = None,
        *,
        observed: ArrayLike | None = None,
        columns: Sequence[Name] | None = None,
        sample_weight: ArrayLike | None = None,
        **options: Any,
    ) -> LikelihoodHistory:
        """Maximise the likelihood of the observed cells, from a fresh start.

        EM with expected moments of every family; then, if g, noise-free edges or the points of
        categories are learned, gradient steps on everything. EM takes the points as given and
        maximises their density; the steps maximise log p itself.

        Args:
            table: the data; NaN is unobserved.
            settings: how; None for the defaults.
            observed: which cells may be used, a mask in the order of the model's columns.
            columns: names of the columns of an array, in its order; None takes the model's order.
            sample_weight: how often every row counts; None for once. A row of weight 3 counts like
                three equal rows, one of weight 0 is left out. Gradient steps multiply the loss.
            options: fields of `GaussianSettings` that differ from `settings`.

        Raises:
            ValueError: for an unusable table or choice, or weights that are no numbers from 0 on.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9]]).converged
            True
        """
        chosen = with_options(settings, options, GaussianSettings, "a GaussianVFG")
        rows = self._read_rows(table, observed, columns, sample_weight)
        self.summary = None
        self.scaling.high.fill_(torch.inf)
        return self._fit(*rows, chosen)

    def partial_fit(
        self,
        table: ArrayLike,
        settings: GaussianSettings | None = None,
        *,
        observed: ArrayLike | None = None,
        columns: Sequence[Name] | None = None,
        sample_weight: ArrayLike | None = None,
        **options: Any,
    ) -> LikelihoodHistory:
        """Fit the model to further rows and to all that were given before.

        Rows are not kept but summed by mask. These sums are sufficient: the model is the one that
        `fit` finds for all rows at once. There is one exception: if more than 50,000 rows have rare
        masks, some of them are left out. Model files keep the sums. Another `fit` discards them.

        Args:
            table: further rows; the arguments are those of `fit`.
            settings: how; None for the defaults.
            observed: which cells may be used.
            columns: names of the columns of an array.
            sample_weight: how often every row counts; None for once.
            options: fields of `GaussianSettings` that differ from `settings`.

        Raises:
            ValueError: for mixtures, maps of leaves that are not affine, discrete leaves, inner
                nodes without noise and held-out cells, whose likelihood does not follow from sums.

        Example:
            >>> table = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
            >>> models = [GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1)) for _ in range(2)]
            >>> histories = [models[0].partial_fit(part) for part in table.split(20)]
            >>> history = models[1].fit(table)
            >>> torch.allclose(*(model.log_prob(table) for model in models))
            True
        """
        chosen = with_options(settings, options, GaussianSettings, "a GaussianVFG")
        self._check_partial(chosen)
        cells, seen, weights = self._read_rows(table, observed, columns, sample_weight)
        own = cells.new_ones(len(cells), dtype=torch.float64) if weights is None else weights
        summary, first = summarise(cells, seen, own), self.summary is None
        if self.summary is not None:
            summary = Summary.unpack(self.summary).plus(summary, chosen.seed)
        low, high = self.scaling.low.clone(), self.scaling.high.clone()
        self.scaling.high.fill_(torch.inf)
        fit_scaling(self, cells, seen, False)  # the range of rows, which sums do not have
        if not first:
            self.scaling.low.copy_(torch.minimum(self.scaling.low, low))
            self.scaling.high.copy_(torch.maximum(self.scaling.high, high))
        self.summary = summary.packed
        return self._fit(*summary, chosen)

    def remember(
        self, table: ArrayLike, observed: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> None:
        """Store the sums of rows that the model was fitted to, for `partial_fit`."""
        self._check_partial(GaussianSettings())
        cells, seen, weights = self._read_rows(table, observed, None, sample_weight)
        own = cells.new_ones(len(cells), dtype=torch.float64) if weights is None else weights
        self.summary = summarise(cells, seen, own).packed

    def _check_partial(self, chosen: GaussianSettings) -> None:
        """Refuse models whose likelihood does not follow from sums over rows."""
        reasons = {
            "it has several components": self.components > 1,
            "the maps of its leaves are not affine": not self.leaves.is_identity,
            "it has discrete leaves": bool(self.codes.units),
            "it has inner nodes without noise": self.structure.is_stiff,
            "validation= holds out cells": chosen.validation not in (0, 0.0)
            if isinstance(chosen.validation, int | float)
            else True,
            "finish='gradient' needs rows": chosen.finish == "gradient",
        }
        for reason, applies in reasons.items():
            if applies:
                raise ValueError(
                    f"partial_fit keeps sums over rows, which do not suffice here: {reason}; use "
                    "fit with all rows"
                )

    def _read_rows(
        self,
        table: ArrayLike,
        observed: ArrayLike | None,
        columns: Sequence[Name] | None,
        sample_weight: ArrayLike | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Cells, which are observed, and weights, without rows of weight 0."""
        named = table if columns is None else name_columns(table, columns)
        cells, seen = as_cells(self, named, observed)
        weights, device = as_weights(sample_weight, len(cells)), self.linear.offsets.device
        if weights is not None:
            kept, weights = weights > 0.0, weights[weights > 0.0].to(device)
            cells, seen = cells[kept.to(cells.device)], seen[kept.to(seen.device)]
        return cells.to(device), seen.to(device), weights

    def _fit(
        self, cells: Tensor, seen: Tensor, weights: Tensor | None, chosen: GaussianSettings
    ) -> LikelihoodHistory:
        self.scaling.is_fitted.fill_(False)
        fit_scaling(self, cells, seen, True, weights)
        cells, seen = scale_cells(self, cells, seen)
        training = training_of(self, cells, seen, chosen.validation, chosen.seed, weights)
        self.codes.start(cells, training.seen, weights)
        learned = self.structure.is_stiff or not self.leaves.is_identity or bool(self.codes.units)
        takes_steps = chosen.finish == "gradient" or (chosen.finish == "auto" and learned)
        restarts = chosen.restarts or (1 if self.components == 1 else 3)
        plan = replace(chosen, restarts=restarts, steps=chosen.steps if takes_steps else 0)
        return fit_exact(self, training, plan)

    @torch.no_grad()
    def log_prob(self, table: ArrayLike, *, observed: ArrayLike | None = None) -> Tensor:
        """log p of the observed cells of every row, in data units; discrete ones by the chain rule.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells count; a row without any has log p 0.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.log_prob([[float("nan")] * 2])
            tensor([0.], dtype=torch.float64)
        """
        cells, seen, like = as_table(self, table, observed)
        return self.scores(cells, seen).to(like)

    def conditional_log_prob(
        self, table: ArrayLike, given: Name | Sequence[Name] | ArrayLike
    ) -> Tensor:
        """log p of the observed cells that are not given, given those that are, in data units.

        The real ones come first, then the discrete ones in the order of the table: for a single
        discrete cell this is the log of its probability in `infer`.

        Args:
            table: the data; NaN is unobserved.
            given: leaves or columns by name, or a boolean mask of the table's shape.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.conditional_log_prob([[0.0, 1.0]], ["a"]).shape
            torch.Size([1])
        """
        cells, seen, like = as_table(self, table, None)
        return self.scores(cells, seen, as_given_mask(self, given, cells)).to(like)

    @torch.no_grad()
    def posterior(self, table: ArrayLike, *, observed: ArrayLike | None = None) -> Posterior:
        """Mean and covariance of every latent node, of the whole mixture and of every component.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells may be used.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=3))
            >>> model.posterior([[0.0, 1.0]]).covariance["root"].shape
            torch.Size([1, 3, 3])
        """
        cells, seen, like = as_table(self, table, observed)
        with evaluating(self):
            encoded, values = self.encode(cells, seen), self.linear.values()
        return posterior_of(self.structure, values, encoded.values, encoded.seen).to(like)

    @overload
    def infer(
        self, given: ArrayLike, targets: Name | Sequence[Name] | None = None, *,
        observed: ArrayLike | None = None, seed: int = 0, row_ids: ArrayLike | None = None,
        padded: bool = True, do: None = None, dag: None = None,
    ) -> GaussianAnswer: ...  # fmt: skip
    @overload
    def infer(
        self, given: ArrayLike, targets: Name | Sequence[Name] | None = None, *,
        observed: ArrayLike | None = None, seed: int = 0, row_ids: ArrayLike | None = None,
        padded: bool = True, do: Mapping[Name, Any] | None = None, dag: Any = None,
    ) -> inference.Answer: ...  # fmt: skip
    @torch.no_grad()
    def infer(
        self,
        given: ArrayLike,
        targets: Name | Sequence[Name] | None = None,
        *,
        observed: ArrayLike | None = None,
        seed: int = 0,
        row_ids: ArrayLike | None = None,
        padded: bool = True,
        do: Mapping[Name, Any] | None = None,
        dag: Any = None,
    ) -> inference.Answer:
        """Any targets given any evidence; arguments are those of `VFG.infer`.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.infer({"a": 2.0}, targets=["b"]).mean["b"].shape
            torch.Size([1, 1])
        """
        if inference.is_intervention(do, dag):
            return inference.intervene(
                self, given, targets, do or {}, dag, observed=observed, seed=seed
            )
        evidence = as_given(self, given, observed)
        self.leaves.check(evidence.seen)
        warn_of_extrapolation(self, given, stacklevel=4)  # above infer and torch's no_grad
        ids = as_row_ids(self, row_ids, evidence.rows)
        chosen = as_targets(self, targets)
        return GaussianAnswer(self, evidence, chosen, ids, seed, padded)

    fill = inference.fill
    counterfactual = inference.counterfactual

    @property
    def variables(self) -> dict[str, inference.Variable]:
        """The columns of the table by name: their kinds, ranges and categories."""
        return inference.graph_variables(self)

    def sample(self, rows: int, *, seed: int = 0) -> Tensor:
        """Draw rows from the model, a table `(rows, columns)`.

        Args:
            rows: number of rows.
            seed: of the draws.

        Example:
            >>> GaussianVFG(Graph.star({"a": 1, "b": 1}, width=2)).sample(5).shape
            torch.Size([5, 2])
        """
        empty = self.linear.offsets.new_full((rows, self.sections.columns), torch.nan)
        drawn = self.infer(empty, seed=seed).samples(1)
        for leaf, columns in self.sections.positions.items():
            empty[:, list(columns)] = drawn[leaf][0]
        return empty

    def embed(self, table: ArrayLike, *, observed: ArrayLike | None = None) -> Tensor:
        """The posterior means of the roots side by side, `(rows, sum of their widths)`.

        Example:
            >>> GaussianVFG(Graph.star({"a": 1, "b": 1}, width=2)).embed([[0.0, 1.0]]).shape
            torch.Size([1, 2])
        """
        result = self.posterior(table, observed=observed).mean
        return torch.cat([result[root] for root in self.graph.roots], dim=1)

    def deepen(self, kind: type[VFG], *, flow: Coupling | None = None, seed: int = 0) -> VFG:
        """The deep model of class `kind` that starts as this one; see `VFG.from_gaussian`."""
        return make_deep(kind, self, flow, seed)

    # What fitting is built from: tensors in, tensors out, nothing checked.

    def encode(self, cells: Tensor, seen: Tensor) -> Encoded:
        """Scaled cells as coordinates of the leaves; differentiable."""
        values, log_slopes = self.leaves(cells.double(), seen)
        return Encoded(*self.codes.encode(values, seen), log_slopes)

    def decode(self, values: Tensor) -> Tensor:
        """Coordinates of the leaves `(..., coordinates)` as cells in data units, 0 if discrete."""
        return self.scaling.undo(self.leaves.inverse(self.codes.narrow(values)))

    def score(self, cells: Tensor, seen: Tensor, given: Tensor | None = None) -> Tensor:
        """log p of scaled cells in data units, `(rows,)`, given some; differentiable."""
        return row_scores(self, cells, seen, given)

    def scores(self, cells: Tensor, seen: Tensor, given: Tensor | None = None) -> Tensor:
        """The same by chunks of rows, without gradients."""
        chosen = [cells, seen] if given is None else [cells, seen, given]
        size = chunk_size(self)
        with evaluating(self):
            parts = zip(*(part.split(size) for part in chosen), strict=True)
            return torch.cat([self.score(*part) for part in parts])

    def log_volumes(self, seen: Tensor) -> Tensor:
        """The term of the scaling, which is subtracted from the log-density of every row."""
        return seen.double() @ self.scaling.scale.log()

    # How a model describes itself.

    def to_dict(self) -> dict[str, Any]:
        """Graph and configuration, ready for JSON; `from_dict` builds an equal model."""
        return {
            "graph": self.graph.to_dict(),
            "components": self.components,
            "leaf": None if self.leaf_spec is None else self.leaf_spec.to_dict(),
            "likelihood": {leaf: spec.to_dict() for leaf, spec in self.likelihood_specs.items()},
            "mixture": self.mixture,
            "inner_noise": self.inner_noise,
            "noise_floor": self.noise_floor,
            "seed": self.seed,
            **({} if self.summary is None else {"summary": len(self.summary)}),
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> GaussianVFG:
        """A new model with the configuration that `to_dict` returned."""
        leaf = description["leaf"]
        # The first files know real leaves only.
        likelihood = description.get("likelihood", {"*": Gaussian().to_dict()})
        model = cls(
            Graph.from_dict(description["graph"]),
            description["components"],
            leaf="affine" if leaf is None else spec_from_dict(FlowSpec, leaf),
            likelihood={k: spec_from_dict(LikelihoodSpec, v) for k, v in likelihood.items()},
            mixture=description["mixture"],
            inner_noise=description["inner_noise"],
            noise_floor=description["noise_floor"],
            seed=description["seed"],
        )
        if "summary" in description:
            shape = description["summary"], model.sections.columns + 1
            model.summary = model.linear.offsets.new_zeros(shape)
        return model

    def extra_repr(self) -> str:
        return f"components={self.components}, mixture={self.mixture!r}"


@dataclass(frozen=True)
class Candidate:
    """One structure that was tried."""

    graph: Graph
    components: int
    score: float
    """Mean log-density of a held-out cell given the rest of its row, in data units."""


@dataclass(frozen=True)
class Selection:
    """The chosen model, fitted to all observed cells, and all candidates."""

    model: GaussianVFG
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The candidate that the model was built from."""
        return max(self.candidates, key=lambda candidate: candidate.score)


def select(
    table: ArrayLike,
    graphs: Sequence[Graph],
    components: Sequence[int] = (1,),
    *,
    leaf: str | FlowSpec = "affine",
    likelihood: str | LikelihoodSpec | Mapping[str, str | LikelihoodSpec] = "gaussian",
    mixture: str = "root",
    share: float = 0.1,
    seed: int = 0,
    settings: GaussianSettings | None = None,
) -> Selection:
    """Fit every graph with every number of components; keep the best model of held-out cells.

    Args:
        table: the data; NaN is unobserved.
        graphs: structures over the same leaves, such as stars of several widths.
        components: numbers of mixture components.
        leaf: the maps of the leaves, as in `GaussianVFG`.
        likelihood: of the leaves, as in `GaussianVFG`.
        mixture: what components differ in, as in `GaussianVFG`.
        share: of the observed cells that is held out.
        seed: of held-out cells and starts.
        settings: of the fits; None for the defaults.

    Returns:
        The best model, fitted again to all cells, and the scores of all.

    Raises:
        ValueError: if there is nothing to choose from, or `share` is not between 0 and 1.

    Example:
        >>> from vfg.data import synthetic
        >>> columns = {f"x{k}": 1 for k in range(8)}
        >>> stars = [Graph.star(columns, width=width) for width in (1, 3)]
        >>> select(synthetic(300), stars).best.graph.node("root").width
        3
    """
    if not graphs or not components or not 0.0 < share < 1.0:
        raise ValueError(
            f"select needs graphs, components and a share between 0 and 1, but got {len(graphs)} "
            f"graphs, components {tuple(components)} and share {share}"
        )

    def build(graph: Graph, count: int) -> GaussianVFG:
        return GaussianVFG(
            graph, count, leaf=leaf, likelihood=likelihood, mixture=mixture, seed=seed
        )

    cells, seen = as_cells(build(graphs[0], 1), table, None)
    generator = torch.Generator().manual_seed(seed)
    held = seen & (torch.rand(seen.shape, generator=generator) < share).to(seen.device)
    whole = torch.where(seen, cells, torch.nan)
    candidates = []
    for graph in graphs:
        for count in components:
            model = build(graph, count)
            model.fit(whole, settings, observed=seen & ~held, seed=seed)
            score = model.conditional_log_prob(whole, ~held).sum() / held.sum()
            candidates.append(Candidate(graph, count, float(score)))
    chosen = max(candidates, key=lambda candidate: candidate.score)
    model = build(chosen.graph, chosen.components)
    model.fit(whole, settings, seed=seed)
    return Selection(model, tuple(candidates))
