"""Filling and intervals of a table's ensemble as one torch module: `Filler`."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from vfg.gaussian.conditional_means import NEGLIGIBLE
from vfg.imputation.categories import MODEL_ALONE, REGRESSION_SMOOTHING, SMOOTHING, TINY
from vfg.imputation.ensemble import DISTANCES, INSIDE, NEAR, TARGETED, VOTES
from vfg.imputation.extrapolation import (
    beyond_range,
    follow_line,
    hold_level,
    linear_share,
    share_outside,
)
from vfg.imputation.gaussian_processes import GaussianProcesses, trust_in_rows
from vfg.imputation.limits import lift_passed
from vfg.imputation.missingness import FURTHEST, WIDENING
from vfg.imputation.mixtures import Mixture
from vfg.imputation.parts import KINDS
from vfg.imputation.row_mixture import (
    MOST_DEVIATIONS,
    NOISE,
    RowMeans,
    RowMixture,
    row_features,
)
from vfg.imputation.table_model import TableModel
from vfg.imputation.trees import MOST_SHARES, Forest, Votes
from vfg.model import VFG
from vfg.serving.modules import (
    CategoryChooser,
    ComponentPosterior,
    Decoder,
    Encoder,
    LinearMixture,
    LinearRelations,
    NearestValues,
    Scatter,
)
from vfg.tables.categorical import CategoricalEncoding
from vfg.tables.cells import Array
from vfg.tables.numeric import KNOTS, NormalScores, outer_values
from vfg.training.model_stack import repeat_columns


class Interpolation(nn.Module):
    """Piecewise linear maps, one per column, in which the pieces are found by bisection."""

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("knots", knots.detach().cpu().double().flatten())
        self.register_buffer("values", values.detach().cpu().double().flatten())
        self.register_buffer("starts", torch.arange(len(knots)) * KNOTS)

    def forward(self, numbers: Tensor) -> Tensor:
        """Images of numbers `(..., columns)`."""
        starts = self.get_buffer("starts")
        right = torch.zeros_like(numbers, dtype=torch.long) + starts
        step = KNOTS // 2
        while step:  # how many knots lie below, as powers of two
            right = torch.where(self.knots[right + (step - 1)] < numbers, right + step, right)
            step //= 2
        right = starts + (right - starts).clamp(1, KNOTS - 1)
        start, end = self.knots[right - 1], self.knots[right]
        share = (numbers - start) / (end - start)
        return (1.0 - share) * self.values[right - 1] + share * self.values[right]


def to_scores(ranks: NormalScores) -> Interpolation:
    """The map from values to scores."""
    return Interpolation(ranks.knots, ranks.scores)


def to_values(ranks: NormalScores) -> Interpolation:
    """The map from scores to values."""
    return Interpolation(ranks.scores, ranks.knots)


class MixtureMeans(nn.Module):
    """The means of a mixture of linear models of scores; see `Mixture`."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.normals = LinearMixture(mixture.exact)
        self.scores, self.values = to_scores(mixture.ranks), to_values(mixture.ranks)

    def forward(self, values: Tensor, observed: Tensor) -> Tensor:
        posterior: ComponentPosterior = self.normals(self.scores(values), observed)
        shares = posterior.scores.softmax(1)
        shares = torch.where(shares > NEGLIGIBLE[True], shares, 0.0)
        shares = shares / shares.sum(1, keepdim=True)
        means = self.values(self.normals.means(posterior))
        return torch.where(observed, values, (shares[..., None] * means).sum(1))


class RowMixtureMeans(nn.Module):
    """The means and votes of a mixture with a component at every row; see `RowMixture`."""

    def __init__(self, mixture: RowMixture) -> None:
        super().__init__()
        self.sizes = mixture.sizes
        self.scores, self.values = to_scores(mixture.ranks), to_values(mixture.ranks)
        self.residual = LinearMixture(mixture.residual)
        with torch.no_grad():
            arrays = {
                "log_weights": mixture._log_weights,
                "targets": mixture._targets,
                "votes": mixture._vote_targets,
                "scale": mixture.scale,
                "noise": mixture.noise.double(),
                "doubts": mixture.doubts,
                "distant": mixture.distant,
            }
        for name, array in arrays.items():
            self.register_buffer(name, array.detach().cpu())

    def forward(self, values: Tensor, observed: Tensor) -> RowMeans:
        scores, get = self.scores(values), self.get_buffer
        # In single precision, as the model does.
        shares = (row_features(scores, observed) @ get("log_weights")).softmax(1)
        expected, plain = (shares @ get("targets")).double().chunk(2, dim=1)
        has_residuals = observed & (get("scale") > NOISE[0])
        left = torch.where(has_residuals, (scores - expected) / get("scale"), 0.0)
        predicted = self.residual.means(self.residual(left, has_residuals))[:, 0]
        correction = predicted.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS) * get("scale")
        corrected = expected + torch.where(observed, 0.0, correction)
        known = observed & get("distant")
        variances = get("noise") + (shares @ get("doubts")).double()
        squares = torch.where(known, (scores - expected).square() / variances, 0.0)
        distances = squares.sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        return RowMeans(plain, self.values(corrected), self._votes(shares), distances)

    def _votes(self, shares: Tensor) -> Tensor:
        if not self.sizes:
            return shares[:, :0].double()
        targets, widths = self.get_buffer("votes"), [*self.sizes, len(self.sizes)]
        counts = (shares @ targets).double().split(widths, dim=1)
        similar = 1.0 / shares.square().sum(1, keepdim=True).double()
        every, votes = targets.double().sum(0).split(widths), []
        for place in range(len(self.sizes)):
            own = counts[-1][:, place : place + 1]
            overall = every[place] / every[place].sum().clamp(min=1e-12)
            number = similar * counts[place].sum(1, keepdim=True) + own
            part = (similar * counts[place] + own * overall) / number.clamp(min=1e-12)
            votes.append(part)
        return torch.cat(votes, dim=1)


class TargetedMeans(nn.Module):
    """The means of a row mixture by the metrics of columns; see `RowMixture.targeted_means`."""

    def __init__(self, mixture: RowMixture) -> None:
        super().__init__()
        assert mixture.metric is not None
        self.scores, self.columns = to_scores(mixture.ranks), len(mixture.noise)
        self.targets = mixture.metric.any(1).nonzero()[:, 0].tolist()
        self.scatter = Scatter(self.targets, self.columns)
        chosen = mixture.metric_components
        with torch.no_grad():
            arrays = {
                "metric": mixture.metric,
                "factors": mixture._metric_factors,
                "truth": mixture._targets[chosen, self.columns :],
                "often": mixture.log_metric_weights,
            }
        for name, array in arrays.items():
            self.register_buffer(name, array.detach().cpu())

    def forward(self, values: Tensor, observed: Tensor) -> Tensor:
        features, get, means = row_features(self.scores(values), observed), self.get_buffer, []
        for target in self.targets:
            logs = (features * get("metric")[target].repeat(3)) @ get("factors")
            shares = (logs + get("often")[:, target]).softmax(1)
            means.append((shares @ get("truth")[:, target]).double())
        table: Tensor = self.scatter(torch.zeros_like(values), torch.stack(means, dim=1))
        return table


class MemberMeans(nn.Module):
    """The means of all nonlinear members, for rows whose sections are known as a whole."""

    def __init__(self, stack: VFG, members: int) -> None:
        super().__init__()
        self.stack, self.members = stack, members

    def forward(self, values: Tensor, observed: Tensor) -> list[Tensor]:
        """One matrix `(rows, columns)` per member."""
        stack = self.stack
        seen = repeat_columns(observed, self.members)
        known = torch.where(seen, repeat_columns(values, self.members), 0.0)
        cells = torch.where(seen, stack.scaling.apply_to(known), 0.0)
        passes = stack(cells.to(next(stack.parameters()).dtype), seen)
        means = stack.sections.join(stack.leaf_means(passes.backward))
        return list(stack.scaling.undo(means).chunk(self.members, dim=1))


def fold_constants(module: nn.Module, example: tuple[Tensor, ...]) -> nn.Module:
    """A module of the same function of rows, in which what follows from parameters is computed.

    Matrices of flows are inverted there once, by operations that runtimes need not have.
    """
    rows = torch.export.Dim("rows")
    shapes = tuple({0: rows} for _ in example)
    graph_module: Any = torch.export.export(module, example, dynamic_shapes=shapes).module()
    known: dict[torch.fx.Node, Any] = {}
    for node in graph_module.graph.nodes:
        if node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(graph_module)
        elif node.op == "call_function" and all(own in known for own in node.all_input_nodes):
            arguments = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*arguments[0], **arguments[1])
    for place, (node, value) in enumerate(known.items()):
        if node.op == "get_attr" or not isinstance(value, Tensor):
            continue
        if all(user in known for user in node.users):
            continue
        name = f"folded_{place}"
        graph_module.register_buffer(name, value.detach().clone())
        with graph_module.graph.inserting_before(node):
            node.replace_all_uses_with(graph_module.graph.get_attr(name))
    for node in list(graph_module.graph.nodes):
        if node.op == "call_module" and not node.users:  # checks of shapes
            graph_module.graph.erase_node(node)
    graph_module.graph.eliminate_dead_code()
    return torch.fx.GraphModule(graph_module, graph_module.graph)


class ForestVotes(nn.Module):
    """What trees predict, by descents of the depth of the deepest tree; see `Forest`."""

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        self.forest = forest
        self.depths = [_depth(forest, target) for target in range(len(forest.roots))]

    def forward(self, filled: Tensor) -> Votes:
        forest = self.forest
        features = forest.features(filled)
        means = [torch.zeros_like(filled[:, :1])] * filled.shape[1]
        shares = [torch.zeros_like(filled[:, :1]).expand(-1, size) for size in forest.sizes]
        numbers = len(forest.numbers)
        for target in range(len(forest.roots)):
            outputs = self._leaves(target, features)
            if target < numbers:
                average = forest.output[outputs].double().mean(1, keepdim=True)
                means[forest.numbers[target]] = average
            else:
                place = forest.categories[target - numbers]
                shares[place] = _class_shares(forest, outputs, forest.sizes[place])
        every = torch.cat([filled[:, :0], *shares], dim=1)
        slopes = forest.regressions
        regressions = None if slopes is None else forest.regress(filled, slopes)
        return Votes(torch.cat(means, dim=1) + every @ forest.levels, every, regressions)

    def pool(
        self, place: int, others: Tensor, votes: Votes, trust: Tensor, frequencies: Tensor
    ) -> Tensor:
        """Probabilities of categories by trees and by all other parts; see `SecondStage.pool`."""
        shares: Tensor = votes.shares.split(self.forest.sizes, dim=1)[place]
        weights = self.forest.class_weights[place]
        if place not in self.forest.categories:
            return others
        if weights.ndim == 0:
            return others + (weights * trust).clamp(max=1.0) * (shares - others)
        base = frequencies.log()
        model = (others + TINY).log() - base
        trees = _smooth(shares, frequencies, SMOOTHING) - base
        logs, start = trust * (weights[0] * model + weights[1] * trees), model
        if votes.regressions is not None and place in self.forest.regressed:
            chances = votes.regressions.split(self.forest.sizes, dim=1)[place]
            regression = _smooth(chances, frequencies, REGRESSION_SMOOTHING) - base
            start = 0.5 * (model + regression)
            logs = logs + trust * weights[2] * regression
        logs = base + (1.0 - trust) * start + logs
        return torch.where(trust > 0.0, logs.softmax(1), others)

    def _leaves(self, target: int, features: Tensor) -> Tensor:
        """Places of the first outputs of the leaves of all trees, `(rows, trees)`."""
        forest = self.forest
        node = forest.roots[target].long() + torch.zeros_like(features[:, :1], dtype=torch.long)
        for _ in range(self.depths[target]):
            feature = forest.feature[node].long()
            left = features.gather(1, feature.clamp(min=0)) <= forest.threshold[node]
            step = torch.where(left, node + 1, forest.after[node].long())
            node = torch.where(feature >= 0, step, node)
        return forest.after[node].long()


def _smooth(shares: Tensor, frequencies: Tensor, share: float) -> Tensor:
    return ((1.0 - share) * shares + share * frequencies).log()


class ProcessMeans(nn.Module):
    """Filled rows moved by Gaussian process regressions; see `GaussianProcesses.move`."""

    def __init__(self, processes: GaussianProcesses) -> None:
        super().__init__()
        self.processes = processes

    def forward(self, means: Tensor, observed: Tensor) -> Tensor:
        """All entries moved, the known ones too."""
        one, trust, columns = self.processes, trust_in_rows(observed), list(means.unbind(1))
        for target in one.targets:
            found = one.covariance(target, means) @ one.coefficients[target]
            columns[target] = columns[target] + one.weigh(target, trust, found - means[:, target])
        return torch.stack(columns, dim=1)


def _depth(forest: Forest, target: int) -> int:
    """The depth of the deepest tree of a target."""
    level, depth = forest.roots[target].long(), 0
    while True:
        level = level[forest.feature[level] >= 0]
        if not len(level):
            return depth
        level, depth = torch.cat([level + 1, forest.after[level].long()]), depth + 1


def _class_shares(forest: Forest, outputs: Tensor, size: int) -> Tensor:
    if size <= MOST_SHARES:
        parts = [forest.output[outputs + k].double().mean(1) for k in range(size)]
        return torch.stack(parts, dim=1)
    chosen = forest.output[outputs][..., None] == torch.arange(size, dtype=torch.float32)
    return chosen.double().mean(1)


class NearestEntries(nn.Module):
    """Missing entries with the nearest values in some few-valued columns."""

    def __init__(self, values: Mapping[int, Array], columns: int) -> None:
        super().__init__()
        self.nearest = NearestValues(list(values.values()))
        self.scatter = Scatter(list(values), columns)
        for k, own in enumerate(values.values()):
            self.register_buffer(f"values{k}", torch.tensor(own, dtype=torch.float64))

    def forward(self, table: Tensor, observed: Tensor) -> Tensor:
        if not self.scatter.places:
            return table
        nearest = self.nearest(table[:, self.scatter.places])
        return torch.where(observed, table, self.scatter(table, nearest))

    def outer(self, ends: Tensor, observed: Tensor, side: int) -> Tensor:
        """Ends of intervals with the nearest values outside of them."""
        if not self.scatter.places:
            return ends
        parts = [
            outer_values(ends[:, place], self.get_buffer(f"values{k}"), side)
            for k, place in enumerate(self.scatter.places)
        ]
        return torch.where(observed, ends, self.scatter(ends, torch.stack(parts, dim=1)))


class Filler(nn.Module):
    """Cells `(rows, columns)` to the same cells, the missing ones filled, and interval ends.

    Cells are numbers, and places of categories; NaN is missing. See `vfg.serving.export`.

    Args:
        model: the fitted model.
        units: step and origin of the cells of every column, in the numbers of its encoding.
        without: parts that are left out; see `vfg.export`.
        steps: how many deviations intervals reach to either side; None for no intervals.
    """

    def __init__(
        self,
        model: TableModel,
        units: Sequence[tuple[float, float]],
        *,
        without: Sequence[str] = (),
        steps: float | None,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(model, units), Decoder(model, units)
        self.has_intervals = steps is not None
        self.register_buffer("steps", torch.tensor(steps or 0.0, dtype=torch.float64))
        self.linear = None if model.linear is None else LinearMixture(model.linear)
        kinds = [kind for kind in KINDS if kind.split()[-1] not in without]
        self._set_parts(model, kinds)
        with_trees = model.forest is not None and "trees" not in without
        self.forest = ForestVotes(model.forest) if with_trees and model.forest else None
        # Like row mixtures, they hold rows of the table.
        with_processes = model.processes is not None and "neighbours" not in without
        self.processes = (
            ProcessMeans(model.processes) if with_processes and model.processes else None
        )
        self.relations = (
            None
            if model.relations is None or "relations" in without
            else LinearRelations(model.relations, model.relation_noise)
        )
        slopes = None if "missingness" in without else model.slopes
        self.register_buffer("slopes", slopes if slopes is None else slopes.detach().cpu())
        if self.linear is None:
            return  # every column has one value or none
        self.register_buffer("unordered", model.unordered)
        self.register_buffer("usual_range", model.usual_range)
        self.register_buffer("widest_range", model.widest_range)
        self.register_buffer("limits", model.limits if model.has_soft_limits else None)
        self._set_values(model)
        self._set_categories(model, kinds)

    def _set_parts(self, model: TableModel, kinds: Sequence[str]) -> None:
        """The parts with positive weights; weights of those that are left out go to the others."""
        weights = model.weights.detach().cpu().clone()
        total = weights.sum()
        for place, kind in enumerate(KINDS):
            weights[place] = weights[place] if kind in kinds else 0.0
        if bool(weights.sum() > 0.0):
            weights = weights * (total / weights.sum())
        else:  # the linear model alone
            weights[KINDS.index("linear")] = total
        used = model.used_kinds() & {k for k, w in zip(KINDS, weights, strict=True) if w > 0.0}
        votes = model.pooling is not None and KINDS[3] in kinds
        self.stacked, self.weights = model.is_stacked, weights.tolist()
        used = used if self.stacked else set()
        names = ("factors", "reach", "departures") if self.stacked else ()
        for name in (*names, "trust", "usual_distance", "held_levels", "following"):
            buffer = getattr(model, name)
            self.register_buffer(name, None if buffer is None else buffer.detach().cpu())
        held = model.held_levels
        self.holds_levels = held is not None and bool(held.any())
        self.members = None
        if "members" in used:
            example = torch.zeros(3, len(model.columns), dtype=torch.float64)
            means = MemberMeans(model.stack, len(model.members)).eval()
            with torch.no_grad():
                self.members = fold_constants(means, (example, example > 0.0))
        self.mixtures = nn.ModuleList(
            MixtureMeans(one) for one in model.mixture_models if "mixtures" in used
        )
        near = votes or not used.isdisjoint(KINDS[3:])
        self.neighbours = nn.ModuleList(
            RowMixtureMeans(one) for one in model.row_mixture_models if near
        )
        uses_metrics = model.targeted is not None and KINDS[3] in kinds
        self.by_metrics = nn.ModuleList(
            TargetedMeans(one)
            for one in model.row_mixture_models
            if uses_metrics and one.metric is not None
        )
        targeted = model.targeted.detach().cpu() if model.targeted is not None else None
        self.register_buffer("targeted", targeted if len(self.by_metrics) else None)

    def _set_values(self, model: TableModel) -> None:
        """The values of few-valued columns, and those whose cells are filled with them."""
        owner = {model.encoding.sections[k].start: p for k, p in model.encoding.parts.items()}
        filled = [
            at
            for at in model.few_valued
            if getattr(owner[model.columns[at]], "fills_values", False)
        ]
        columns = len(model.columns)
        self.at_any_values, self.at_filled_values = (
            NearestEntries({at: model.few_valued[at] for at in chosen}, columns)
            for chosen in (model.few_valued, filled)
        )

    def _set_categories(self, model: TableModel, kinds: Sequence[str]) -> None:
        self.choosers = nn.ModuleList()
        self.pooling: list[tuple[float, float]] = []
        self.sizes = [len(c.part.categories) for c in model.category_sections.values()]
        self.is_category = []
        votes = model.pooling is not None and KINDS[3] in kinds
        for place, (label, column) in enumerate(model.category_sections.items()):
            prior = model.priors[label]
            is_category = isinstance(column.part, CategoricalEncoding)
            self.is_category.append(is_category)
            chooser = CategoryChooser(column, prior)
            chooser.register_buffer("frequencies", torch.from_numpy(column.frequencies))
            weights = MODEL_ALONE
            if votes and model.pooling is not None and prior.votes is not None:
                first, second = model.pooling[place].tolist()
                weights = first, second
                starts = {
                    "model_start": prior.model_probabilities[0],
                    "votes_start": prior.votes[0],
                }
                for name, start in starts.items():
                    chooser.register_buffer(name, torch.from_numpy(start))
            self.pooling.append(weights)
            self.choosers.append(chooser)

    def forward(self, cells: Tensor) -> tuple[Tensor, ...]:
        """Filled cells; with intervals also their lower and upper ends."""
        if self.linear is None:
            filled = self.decoder(cells, cells, ())
            return (filled, filled, filled) if self.has_intervals else (filled,)
        values, observed = self.encoder(cells)
        posterior = self.linear(values, observed)
        linear = torch.where(observed, values, self.linear.means(posterior)[:, 0])
        means, votes, trees = self._predict(values, observed, linear)
        shift = self._shift(posterior, observed)
        if shift is not None:
            moved = (self._within_range(means) + shift).clamp(*self.get_buffer("widest_range"))
            means = self._follow(torch.where(observed, values, moved), values, observed)
        codes = self._categories(means, posterior, votes, trees)
        estimates = self.at_filled_values(means, observed)
        filled = self.decoder(cells, estimates, codes)
        if not self.has_intervals:
            return (filled,)
        low, high = self._ends(values, observed, linear, posterior, shift)
        limits = cast("Tensor | None", self.limits)
        if limits is not None:
            least, greatest = lift_passed(limits, means)
            low, high = (end.maximum(least).minimum(greatest) for end in (low, high))
        wider = low.minimum(estimates), high.maximum(estimates)
        ends = [self.at_any_values.outer(end, observed, side) for side, end in enumerate(wider)]
        return filled, *(self.decoder(cells, end, codes) for end in ends)

    def _predict(
        self, values: Tensor, observed: Tensor, linear: Tensor
    ) -> tuple[Tensor, Tensor | None, tuple[Votes, Tensor] | None]:
        """Means as of `Ensemble.joint_means`; votes, and those of trees and trust in them."""
        expected = self._by_kind(values, observed, linear)
        means = self._stack(expected) if self.stacked else linear
        means = torch.where(observed, values, self._within_range(means))
        trees = None
        if self.forest is not None:
            votes, trust = self.forest(means), self.forest.forest.trust(observed)
            weights = (self.forest.forest.weights * trust).clamp(max=1.0)
            moved = means + weights * self.forest.forest.step(votes, means)
            means, trees = torch.where(observed, means, moved), (votes, trust)
        if self.processes is not None:
            moved = self.processes(means, observed).clamp(*self.get_buffer("reach"))
            means = torch.where(observed, means, moved)
        means = torch.where(observed, values, self._towards_linear(means, linear, expected))
        return self._follow(means, values, observed), expected.get(VOTES), trees

    def _towards_linear(
        self, means: Tensor, linear: Tensor, expected: Mapping[str, Tensor]
    ) -> Tensor:
        """As in `Ensemble`."""
        learned = self.trust, self.usual_distance, self.following
        trust, usual, following = (cast("Tensor | None", x) for x in learned)
        if following is None:
            return means
        inner = expected["linear"] if self.stacked else self._within_range(linear)
        beyond, ends = beyond_range(linear, inner, following), self.get_buffer("widest_range")
        if trust is None or usual is None or DISTANCES not in expected:
            return (means + beyond).clamp(*ends)
        target, held = inner + beyond, cast("Tensor | None", self.held_levels)
        if held is not None:
            followed = self.weights[KINDS.index("linear")] * self.get_buffer("factors") * beyond
            means = (means + followed).clamp(*ends)
        if held is not None and INSIDE in expected:
            outside = share_outside(expected[NEAR], expected[DISTANCES], usual)
            target = target + hold_level(means, expected[INSIDE], outside, held)
        linear = target.clamp(*ends)
        return means + linear_share(expected[DISTANCES], usual, trust) * (linear - means)

    def _by_kind(self, values: Tensor, observed: Tensor, linear: Tensor) -> dict[str, Tensor]:
        expected = {"linear": linear.clamp(*self.get_buffer("reach"))} if self.stacked else {}
        if self.members is not None:
            expected["members"] = self._average(self.members(values, observed))
        if len(self.mixtures):
            expected["mixtures"] = self._average([one(values, observed) for one in self.mixtures])
        if len(self.neighbours):
            several = [one(values, observed) for one in self.neighbours]
            expected[KINDS[3]] = self._average([one.plain for one in several])
            expected[KINDS[4]] = self._average([one.corrected for one in several])
            expected[VOTES] = torch.stack([one.votes for one in several]).mean(0)
            expected[DISTANCES] = torch.stack([one.distances for one in several]).mean(0)
            if self.holds_levels:
                expected.update(self._inside_ranges(values, observed))
        if len(self.by_metrics):
            each = [one(values, observed) for one in self.by_metrics]
            expected[TARGETED] = self._average(each)
        return expected

    def _inside_ranges(self, values: Tensor, observed: Tensor) -> dict[str, Tensor]:
        """As in `Ensemble`; rows whose cells all lie within their ranges are not moved."""
        assert self.linear is not None
        inside = torch.where(observed, values.clamp(*self.get_buffer("reach")), values)
        means = self.linear.means(self.linear(inside, observed))[:, 0]
        several = [one(inside, observed).distances for one in self.neighbours]
        moved = (inside != values).any(1, keepdim=True)
        near = torch.where(moved, torch.stack(several).mean(0), torch.inf)
        ends, following = self.get_buffer("reach"), self.get_buffer("following")
        return {INSIDE: follow_line(means, ends, following), NEAR: near}

    def _stack(self, expected: Mapping[str, Tensor]) -> Tensor:
        total, linear = torch.zeros_like(expected["linear"]), expected["linear"]
        departures = cast("Tensor | None", self.departures)
        for place, kind in enumerate(KINDS):
            if kind in expected and self.weights[place] > 0.0:
                means = expected[kind]
                if departures is not None and kind != "linear":
                    means = linear + (means - linear).clamp(-departures[place], departures[place])
                total = total + self.weights[place] * means
        means = self.get_buffer("factors") * total
        if TARGETED not in expected:
            return means
        return means + self.get_buffer("targeted") * (expected[TARGETED] - means)

    def _average(self, tables: Sequence[Tensor]) -> Tensor:
        clipped = [table.clamp(*self.get_buffer("reach")) for table in tables]
        return torch.stack(clipped).mean(0)

    def _within_range(self, means: Tensor) -> Tensor:
        return means.clamp(*self.get_buffer("usual_range"))

    def _follow(self, table: Tensor, values: Tensor, observed: Tensor) -> Tensor:
        return table if self.relations is None else self.relations.follow(table, values, observed)

    def _shift(self, posterior: ComponentPosterior, observed: Tensor) -> Tensor | None:
        """How missing cells of a linear model move; see `tilt_by_rows`."""
        slopes = cast("Tensor | None", self.slopes)
        if slopes is None:
            return None
        assert self.linear is not None
        shift = self.linear.times_covariance(posterior, observed, slopes)
        length = (shift * slopes).sum(1, keepdim=True).clamp(min=1e-12).sqrt()
        return shift * (FURTHEST / length).clamp(max=1.0)

    def _categories(
        self,
        means: Tensor,
        posterior: ComponentPosterior,
        votes: Tensor | None,
        trees: tuple[Votes, Tensor] | None,
    ) -> list[Tensor]:
        """The places of the most probable categories, one vector per column of categories."""
        assert self.linear is not None
        codes, every = [], [None] * len(self.sizes)
        own_votes: Any = every if votes is None else votes.split(self.sizes, dim=1)
        for place, chooser in enumerate(self.choosers):
            assert isinstance(chooser, CategoryChooser)
            if not self.is_category[place]:  # ordered levels are decoded from their scores
                codes.append(means[:, 0])
                continue
            covariance = None
            if not chooser.simplex:
                covariance = self.linear.section_covariance(posterior, chooser.places)
            chances = chooser(means[:, chooser.places], covariance)
            weights = self.pooling[place]
            if own_votes[place] is not None and weights != MODEL_ALONE:
                model, vote = (
                    torch.log(now + TINY) - torch.log(chooser.get_buffer(start) + TINY)
                    for now, start in ((chances, "model_start"), (own_votes[place], "votes_start"))
                )
                base = chooser.get_buffer("frequencies").log()
                chances = (base + weights[0] * model + weights[1] * vote).softmax(1)
            if trees is not None and self.forest is not None:
                frequencies = chooser.get_buffer("frequencies")
                chances = self.forest.pool(place, chances, *trees, frequencies)
            codes.append(chances.argmax(1).to(means.dtype))
        return codes

    def _ends(
        self,
        values: Tensor,
        observed: Tensor,
        linear: Tensor,
        posterior: ComponentPosterior,
        shift: Tensor | None,
    ) -> list[Tensor]:
        """Ends of the intervals of a linear model alone; see `MissingCells.quantiles`."""
        assert self.linear is not None
        spread = torch.where(observed, 0.0, self.linear.deviations(posterior))
        spread = torch.where(self.get_buffer("unordered"), 0.0, spread)
        spread = spread if self.relations is None else self.relations.narrow(spread, observed)
        centre, ends = self._follow(linear, values, observed), []
        for side in (-1.0, 1.0):
            end = centre + side * self.get_buffer("steps") * spread
            end = self._pin(self.at_any_values(end, observed), side, values, observed)
            if shift is not None:
                middle = linear + shift
                wider = middle + WIDENING * (end + shift - middle)
                end = self._pin(torch.where(shift == 0.0, end, wider), side, values, observed)
            ends.append(end)
        return ends

    def _pin(self, end: Tensor, side: float, values: Tensor, observed: Tensor) -> Tensor:
        return end if self.relations is None else self.relations.pin(end, side, values, observed)
