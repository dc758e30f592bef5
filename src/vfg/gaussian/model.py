"""GaussianVFG: the exact member of the family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from vfg.config import check_choice, spec_from_dict
from vfg.flows import Coupling, FlowSpec, Spline
from vfg.gaussian.answers import GaussianAnswer
from vfg.gaussian.factors import condition, grouped_masks, log_mixture
from vfg.gaussian.fitting import LikelihoodHistory, Plan, Training, fit_exact
from vfg.gaussian.leaves import Leaves
from vfg.gaussian.parameters import Parameters, factors_of
from vfg.gaussian.posteriors import Posterior, posterior_of
from vfg.gaussian.structure import Structure
from vfg.gaussian.trees import prefers_tree, tree_pass
from vfg.graph import Graph
from vfg.inference.evidence import as_given
from vfg.inference.propagation import evaluating
from vfg.inference.queries import _names, _row_ids, _target
from vfg.inputs import ArrayLike, Name, as_cells, as_mask, as_table, scaled, table_columns
from vfg.likelihoods import Gaussian, LikelihoodSpec
from vfg.model import VFG
from vfg.modelfile.kinds import register
from vfg.schedule import Schedule
from vfg.sections import Scaling, Sections, column_positions
from vfg.training.data import Table, fit_scaling, held_out

ROWS_AT_ONCE = 4096
Finish = Literal["auto", "gradient", "none"]


class Passing(NamedTuple):
    """Where nodes are, as the functions that read tables and evidence expect it."""

    schedule: Schedule


@register("GaussianVFG")
class GaussianVFG(nn.Module):
    r"""A graph of linear-Gaussian edges under invertible leaves; every query is exact.

    $$u_j = g_j(x_j), \qquad h_i = \sum_{u \in pa(i)} B_{iu} h_u + c_i + \varepsilon_i, \qquad
      \varepsilon_i \sim N(0, \mathrm{diag}(d_i^2))$$

    and the same for the leaves $u_j$; roots are independent and standard Normal, or a mixture of
    Normals. For any mask log-densities, posteriors, conditionals and draws have closed forms, on
    trees and on any directed acyclic graph. Tables are what `vfg.VFG` takes; leaves hold real
    numbers. Parameters are float64, and so is all linear algebra whatever their dtype.

    Args:
        graph: the nodes and edges; identity edges are not learned.
        components: of the mixture.
        leaf: the maps g: `"affine"`, `"spline"` (a monotone spline per column), `vfg.Spline(...)`,
            or a `vfg.Coupling` for whole sections.
        mixture: what components differ in: `"root"` (means and covariances of the roots) or
            `"loadings"` (loadings, offsets and noises of the leaves).
        inner_noise: whether latent nodes below the roots have noise of their own.
        noise_floor: what standard deviations never fall below, relative to a column's own.
        seed: of the initial parameters.

    Raises:
        ValueError: if a choice is not known or a leaf cannot be explained.

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
        graph: Graph,
        components: int = 1,
        *,
        leaf: str | FlowSpec = "affine",
        mixture: str = "root",
        inner_noise: bool = True,
        noise_floor: float = 1e-3,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("mixture", mixture, ("root", "loadings"))
        if components < 1 or not noise_floor > 0.0:
            raise ValueError(
                f"a GaussianVFG needs components >= 1 and noise_floor > 0, but got {components} "
                f"and {noise_floor}"
            )
        self.graph, self.components, self.mixture = graph, components, mixture
        self.inner_noise, self.noise_floor, self.seed = inner_noise, noise_floor, seed
        self.leaf_spec = _leaf_spec(leaf)
        self.likelihood_specs: dict[str, LikelihoodSpec] = dict.fromkeys(graph.leaves, Gaussian())
        positions = column_positions(graph, self.likelihood_specs)
        self.structure = Structure(graph, positions, inner_noise)
        schedule = self.structure.schedule()
        self.passing = Passing(schedule)
        self.sections = Sections(schedule, self.likelihood_specs)
        self.scaling = Scaling(self.sections.columns)
        generator = torch.Generator().manual_seed(seed)
        self.linear = Parameters(self.structure, components, mixture, noise_floor, generator)
        self.leaves = Leaves(positions, self.leaf_spec, generator)
        self.double()

    # What users call.

    def fit(
        self,
        table: ArrayLike,
        *,
        observed: ArrayLike | None = None,
        iterations: int = 300,
        tolerance: float = 1e-5,
        restarts: int | None = None,
        finish: Finish = "auto",
        steps: int = 500,
        shrinkage: float = 0.0,
        validation: float = 0.0,
        seed: int = 0,
        progress: bool = False,
    ) -> LikelihoodHistory:
        """Maximise the likelihood of the observed cells, from a fresh start.

        EM with expected moments of every family; then, if g or noise-free edges are learned,
        gradient steps on everything.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells may be used.
            iterations: of EM, at the most.
            tolerance: EM stops when an iteration gains less than this per row.
            restarts: how many runs of EM to choose from; None means 1, or 3 for mixtures.
            finish: `"gradient"` steps afterwards or `"none"`; `"auto"` takes them for splines,
                couplings and noise-free inner nodes.
            steps: how many.
            shrinkage: pseudo-rows that pull the loadings of every component to 0 and its noises
                to 1; 0 is maximum likelihood.
            validation: share of cells held out to choose between runs and steps.
            seed: of starts, held-out cells and batches.
            progress: whether to print what every run reaches.

        Returns:
            The log-likelihoods on the way.

        Raises:
            ValueError: for an unusable table or choice.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9]]).converged
            True
        """
        check_choice("finish", finish, ("auto", "gradient", "none"))
        _check_counts(iterations, restarts, steps, validation)
        cells, seen = as_cells(self._vfg, table, observed)
        self._rescale(cells, seen)
        cells, seen = scaled(self._vfg, cells, seen)
        held = torch.zeros_like(seen)
        if validation > 0.0:
            held = held_out(self._vfg, Table(cells, seen, None), validation, seed)
        runs = restarts or (1 if self.components == 1 else 3)
        steps = steps if self._needs_gradients(finish) else 0
        plan = Plan(iterations, tolerance, runs, steps, shrinkage, seed, progress)
        return fit_exact(self, Training(cells.double(), seen & ~held, held), plan)

    @torch.no_grad()
    def log_prob(self, table: ArrayLike, *, observed: ArrayLike | None = None) -> Tensor:
        """log p of the observed cells of every row, in data units.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells count.

        Returns:
            `(rows,)`; 0 for a row without observed cells.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.log_prob([[float("nan")] * 2])
            tensor([0.], dtype=torch.float64)
        """
        cells, seen, like = as_table(self._vfg, table, observed)
        return self.scores(cells, seen).to(like)

    def conditional_log_prob(
        self, table: ArrayLike, given: Name | Sequence[Name] | ArrayLike
    ) -> Tensor:
        """log p of the observed cells that are not given, given those that are.

        Args:
            table: the data; NaN is unobserved.
            given: leaves or columns by name, or a boolean mask of the table's shape.

        Returns:
            `(rows,)`, in data units.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.conditional_log_prob([[0.0, 1.0]], ["a"]).shape
            torch.Size([1])
        """
        joint = self.log_prob(table)
        cells, _ = as_cells(self._vfg, table, None)
        return joint - self.log_prob(table, observed=self._given_mask(given, cells))

    @torch.no_grad()
    def posterior(self, table: ArrayLike, *, observed: ArrayLike | None = None) -> Posterior:
        """Mean and covariance of every latent node given the observed cells.

        Args:
            table: the data; NaN is unobserved.
            observed: which cells may be used.

        Returns:
            Moments by node, of the whole mixture and of every component.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=3))
            >>> model.posterior([[0.0, 1.0]]).covariance["root"].shape
            torch.Size([1, 3, 3])
        """
        cells, seen, like = as_table(self._vfg, table, observed)
        with evaluating(self):
            leaves, _ = self.leaves(cells.double(), seen)
            values = self.linear.values()
        return posterior_of(self.structure, values, leaves, seen).to(like)

    @torch.no_grad()
    def infer(
        self,
        given: ArrayLike,
        targets: Name | Sequence[Name] | None = None,
        *,
        observed: ArrayLike | None = None,
        seed: int = 0,
        row_ids: ArrayLike | None = None,
    ) -> GaussianAnswer:
        """Any targets given any evidence; the same forms as `VFG.infer` takes.

        Args:
            given: an array, tensor or frame with NaN for gaps; or values by the names of leaves,
                columns and latent nodes.
            targets: leaves, columns or latent nodes by name; None means all leaves.
            observed: which cells may be used.
            seed: of the draws.
            row_ids: distinct integers from 0 on that draws depend on; None means the position.

        Returns:
            Means, deviations, covariances, quantiles and joint draws.

        Example:
            >>> model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
            >>> model.infer({"a": 2.0}, targets=["b"]).mean["b"].shape
            torch.Size([1, 1])
        """
        evidence = as_given(self._vfg, given, observed)
        self.leaves.check(evidence.seen)
        ids = _row_ids(self._vfg, row_ids, evidence.rows)
        chosen = [_target(self._vfg, name) for name in _names(self._vfg, targets)]
        return GaussianAnswer(self, evidence, chosen, ids, seed)

    def sample(self, rows: int, *, seed: int = 0) -> Tensor:
        """Draw rows from the model.

        Args:
            rows: how many.
            seed: of the draws.

        Returns:
            A table `(rows, columns)`.

        Example:
            >>> GaussianVFG(Graph.star({"a": 1, "b": 1}, width=2)).sample(5).shape
            torch.Size([5, 2])
        """
        some = self.linear.offsets
        empty = some.new_full((rows, self.sections.columns), torch.nan)
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
        found = self.posterior(table, observed=observed).mean
        return torch.cat([found[root] for root in self.graph.roots], dim=1)

    # What fitting is built from: tensors in, tensors out, nothing checked.

    def score(self, cells: Tensor, seen: Tensor) -> Tensor:
        """log p of scaled cells in data units, `(rows,)`; differentiable."""
        leaves, log_slopes = self.leaves(cells.double(), seen)
        values, masks = self.linear.values(), grouped_masks(seen)
        if prefers_tree(self.structure):
            log_probs = tree_pass(self.structure, values, leaves, masks).log_probs
            found = (values.log_weights + log_probs).logsumexp(-1)
        else:
            factors = factors_of(self.structure, values)
            found = log_mixture(factors, condition(factors, leaves, masks))
        return cast(Tensor, found + log_slopes.sum(-1) - self.log_volumes(seen))

    def scores(self, cells: Tensor, seen: Tensor) -> Tensor:
        """The same by chunks of rows, without gradients."""
        with evaluating(self):
            parts = zip(cells.split(ROWS_AT_ONCE), seen.split(ROWS_AT_ONCE), strict=True)
            return torch.cat([self.score(*part) for part in parts])

    def log_volumes(self, seen: Tensor) -> Tensor:
        """What scaling takes from the log-density of every row."""
        return seen.double() @ self.scaling.scale.log()

    # How a model describes itself.

    def to_dict(self) -> dict[str, Any]:
        """Graph and configuration, ready for JSON; `from_dict` builds an equal model."""
        return {
            "graph": self.graph.to_dict(),
            "components": self.components,
            "leaf": None if self.leaf_spec is None else self.leaf_spec.to_dict(),
            "mixture": self.mixture,
            "inner_noise": self.inner_noise,
            "noise_floor": self.noise_floor,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> GaussianVFG:
        """A new model with the configuration that `to_dict` returned."""
        leaf = description["leaf"]
        return cls(
            Graph.from_dict(description["graph"]),
            description["components"],
            leaf="affine" if leaf is None else spec_from_dict(FlowSpec, leaf),
            mixture=description["mixture"],
            inner_noise=description["inner_noise"],
            noise_floor=description["noise_floor"],
            seed=description["seed"],
        )

    def extra_repr(self) -> str:
        return f"components={self.components}, mixture={self.mixture!r}"

    # Private.

    @property
    def _vfg(self) -> VFG:
        """This model for functions that read tables: it has the attributes that they use."""
        return cast(VFG, self)

    def _needs_gradients(self, finish: Finish) -> bool:
        bent = not self.leaves.is_identity
        stiff = not self.inner_noise and bool(self.structure.inner)
        return finish == "gradient" or (finish == "auto" and (bent or stiff))

    def _rescale(self, cells: Tensor, seen: Tensor) -> None:
        self.scaling.is_fitted.fill_(False)
        self.scaling.high.fill_(torch.inf)
        device = self.linear.offsets.device
        fit_scaling(self._vfg, cells.to(device), seen.to(device), True)

    def _given_mask(self, given: Name | Sequence[Name] | ArrayLike, cells: Tensor) -> Tensor:
        if isinstance(given, Sequence | str | int):
            names = [given] if isinstance(given, str | int) else given
            mask = torch.zeros(cells.shape, dtype=torch.bool, device=cells.device)
            for name in names:
                mask[:, list(table_columns(self._vfg, name, "given"))] = True
            return mask
        return as_mask(self._vfg, given, cells)


def _leaf_spec(leaf: str | FlowSpec) -> FlowSpec | None:
    if isinstance(leaf, str):
        check_choice("leaf", leaf, ("affine", "spline"))
        return None if leaf == "affine" else Spline()
    if not isinstance(leaf, Coupling | Spline) or getattr(leaf, "decreasing", False):
        raise ValueError(
            f"leaf must be 'affine', 'spline', an increasing vfg.Spline or a vfg.Coupling, but "
            f"got {leaf!r}"
        )
    return leaf


def _check_counts(iterations: int, restarts: int | None, steps: int, validation: float) -> None:
    if iterations < 1 or steps < 0 or (restarts is not None and restarts < 1):
        raise ValueError(
            f"fit needs iterations >= 1, restarts >= 1 and steps >= 0, but got {iterations}, "
            f"{restarts} and {steps}"
        )
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"validation is a share from 0 up to 1, but got {validation}")
