r"""Random forests, and logistic regressions, that predict columns of a table from all others.

They are the second stage of an ensemble. All other parts, stacked, say what to expect of the
missing cells of a row; trees then predict each of its missing cells from the filled row. Let $s$ be
the stacked mean of a cell, $f$ the mean of the trees, and $e$ the share of the other columns that
are known. Then the cell has the mean

$$s + a e (f - s),$$

and categories have probabilities that pool those of the other parts with their shares among the
trees and, in columns of up to nine, with those of a logistic regression; see
`vfg.imputation.categories`. The weights of every column are fitted to held-out cells. Each is
predicted there by trees and a regression that did not see its row. Answers without evidence do not
change.

Trees split at single columns, which serves categories that decide numbers, interactions, and rows
that repeat, and at products of two columns that depend on both together; see
`vfg.imputation.interactions`. A tree is grown by scikit-learn and kept as arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from vfg.gaussian.conditional_means import MeanFunction
from vfg.imputation.categories import (
    CategoryColumn,
    HeldOutCategories,
    SecondStage,
    fit_pooling,
)
from vfg.imputation.interactions import Products
from vfg.imputation.resources import Turn
from vfg.tables.categorical import CategoricalEncoding, OrdinalEncoding, simplex_weights
from vfg.tables.cells import Array
from vfg.utils.cached import CachedModule

FEWEST_TREES = 16
"""Trees of a column at least, however many columns there are."""
FEWEST_IN_TIME = 5
"""The same under a budget, or there are none."""
NODES = 2**20
"""Nodes of all trees together, about, which bounds time and the size of model files (10 MB)."""
MOST_ROWS = 4000
"""Rows that trees are grown from at most, which bounds the time to fill them first."""
MOST_DRAWN = 2000
"""Rows that are drawn for a tree at most, which bounds its nodes."""
MOST_FEATURES = 32
"""Features that compete for a split, drawn at random where there are more: bounds the time."""
MOST_CATEGORIES = 256
"""Columns of more categories have no trees: nearly every tree would vote for another one."""
FEWEST_CELLS = 20
"""Observed cells below which a column has no trees."""
WEIGHT = 0.5
"""Prior weight of trees of numbers: on seven mixed tables with a quarter of the cells missing,
errors were least at 0.3 to 0.5 in all, which is 0.4 to 0.7 of the share that is known."""
CLASS_WEIGHTS = (0.3, 0.6)
"""Prior weights of the other parts and of trees for categories, between (0.2, 0.6) and (0.33, 0.7),
the best two of four pairs tried on ten mixed tables for tuning (19 fits, a quarter of the cells
missing). Next to a linear mixture with trees of rows that knew the cell, log scores are 1.4 %
lower (standard error 0.9 %) and error rates 1.1 % (1.1 %)."""
REGRESSED_WEIGHTS = (0.2, 0.45, 0.3)
"""The same of other parts, trees and regressions: the best of three such triples, by log score, on
eight tables for tuning with 25 and 50 % of the cells missing. Next to trees alone, error rates are
1.2 and 1.1 % lower there, and log scores 0.6 and 0.2 %. On six further tables, regressions and
`plan.MOST_SETS` together changed error rates by +1.9 and -1.5 % and log scores by -0.3 and +0.4 %;
on all 14 error rates by -0.5 and -2.4 %, and log scores by -1.5 and -0.7 %."""
STRENGTH = 0.3
"""Inverse strength of the ridge penalty of regressions, in units of scikit-learn. On the same
tables 0.1, 0.3, 1 and 3 differed by less than 0.2 % of the log score."""
FOLDS = 3
"""Folds in which regressions are fitted again, without the rows of each, for fitting weights."""
MOST_EXTREME = 5.0
"""Deviations beyond which entries count as so many for regressions: rows unlike all others would
have probabilities of 0 and 1."""
MANY_CLASSES = "The number of unique classes is greater than"
"""How scikit-learn's warning begins that categories could be numbers."""
IMPOSSIBLE = -30.0
"""Logit of categories that no row of a fold has."""
WEIGHT_PRIOR = 30.0
"""Weight of the prior weight, in cells whose predictions differ by one deviation, or whose log
probabilities do."""
COLUMN_PRIOR = 10.0
"""The same of the common weight in that of one column."""


@dataclass(frozen=True)
class TreeSettings:
    """How trees are grown and weighed."""

    share: float  # of the features that compete for a split
    leaf: int  # rows of a leaf, at least
    weight: float = WEIGHT
    weight_prior: float = WEIGHT_PRIOR
    column_prior: float = COLUMN_PRIOR


MIXED = TreeSettings(1.0, 1)
"""For tables with categories."""
NUMERIC = TreeSettings(0.5, 3, weight_prior=20.0, column_prior=50.0)
"""For tables of numbers, which the other parts predict well. On five tables for tuning, MCAR 50 %
and MAR 30 %, 30 of these trees reduced the squared error by 0.8 % (worst +0.3 %) and took 10 % of
the time of a fit; with the settings of tables with categories it was 0.3 % (+3.7 %) and 25 %. Where
100 cells stood for a prior weight of 0.2 instead of 0.5, squared errors of 300 rows of 49 pixels
were 1.0 % larger (MCAR 50 %, three seeds), those of glass, wine, blood_transfusion and concrete 0.1
to 0.6 %, and those of six other tables, one of independent columns, equal within 0.3 %."""
SPREAD_PRIOR = 20.0
"""Weight of the prior that errors have the same size with trees, in cells."""
LEAST_SPREAD = 0.5
"""The least factor of the width of draws."""
MOST_WEIGHT = 1.25
"""The largest weight; rows of which more than four fifths are known then have trees alone."""
STEPS_OF_SHARE = 20
"""Steps of the share of the columns that are predicted, which then changes little."""
STEP = 1.5
"""How many times further than at held-out cells trees of tables of numbers may move a mean: rows
that are unlike all others may end in a leaf of a few outliers. As `stacking.DEPARTURE`."""
FEWEST_STEPS = 100
"""Held-out cells below which a column takes the largest step of all columns."""
ENTRIES = 2**17
"""Pairs of rows and trees that are computed together, which bounds memory. With 5,000 rows of 11
columns, 30 % of the cells missing and 30 trees each, 2**13, 2**15 and 2**17 took 65, 43 and 37 ms.
"""
LEVELS = 6
"""Levels of trees that are walked between looks at which walks have ended: 2, 4 and 6 took 52, 40
and 37 ms there."""


class Votes(NamedTuple):
    """What trees predict for some rows."""

    means: Tensor  # of every entry, (rows, columns); 0 where there are no trees
    shares: Tensor  # of the categories of all columns, (rows, all categories)
    regressions: Tensor | None = None  # probabilities by regressions, alike
    deviations: Tensor | None = None  # of the trees' means from each other, (rows, columns)


class Unseen(NamedTuple):
    """What did not see the rows of a table in growing."""

    trees: dict[int, Tensor]  # which trees, (rows, trees), by target
    folds: Tensor  # the fold of every row, (rows,)
    regressions: Tensor | None  # without the rows of each fold, (folds, columns + 1, categories)


class Nodes(NamedTuple):
    """The nodes of all trees, ready for walking: leaves are their own children."""

    feature: Tensor  # 0 at leaves
    threshold: Tensor
    children: Tensor  # right and left by turns
    is_inner: Tensor


class Forest(CachedModule):
    """Trees of some columns as arrays, and their weights.

    The left child of a node is the next one. Leaves have no feature; `after` is the right child of
    a node, or the place of a leaf's first output.

    Args:
        starts: the first columns of the matrix of every column of the table.
        columns: of the matrix.
        features: of the trees, linear in the entries of a row.
        sizes: numbers of categories of the columns of categories.
        grown: which columns, and then which columns of categories, have trees.
        trees: of each of these.
        nodes: of all trees.
        outputs: of all leaves.
        pooled: whether logarithms of probabilities are pooled; earlier versions mixed them.
        regressed: whether there are regressions of up to nine categories; not in earlier versions.
        limited: whether means are moved by no more than `limits`.
        products: how many products of two features there are; none in earlier versions.
    """

    cached = ("_nodes",)
    slopes: Tensor
    offsets: Tensor
    levels: Tensor
    feature: Tensor
    threshold: Tensor
    after: Tensor
    output: Tensor
    roots: Tensor
    weights: Tensor
    class_weights: Tensor
    spread: Tensor
    limits: Tensor | None
    regressions: Tensor | None
    products: Tensor | None

    def __init__(
        self,
        starts: Sequence[int],
        columns: int,
        features: int,
        sizes: Sequence[int],
        grown: tuple[Sequence[int], Sequence[int]],
        trees: int,
        nodes: int,
        outputs: int,
        pooled: bool = True,
        limited: bool = False,
        regressed: bool = False,
        products: int = 0,
    ) -> None:
        super().__init__()
        self.sizes, self.numbers, self.categories = list(sizes), list(grown[0]), list(grown[1])
        self.starts, self.trees = list(starts), trees
        double, every = torch.float64, sum(sizes)
        self.register_buffer("slopes", torch.zeros(columns, features, dtype=double))
        self.register_buffer("offsets", torch.zeros(features, dtype=double))
        # Scores of ordered categories, from which their means follow.
        self.register_buffer("levels", torch.zeros(every, columns, dtype=double))
        self.register_buffer("feature", torch.zeros(nodes, dtype=torch.int16))
        self.register_buffer("threshold", torch.zeros(nodes, dtype=torch.float32))
        self.register_buffer("after", torch.zeros(nodes, dtype=torch.int32))
        self.register_buffer("output", torch.zeros(outputs, dtype=torch.float32))
        targets = len(self.numbers) + len(self.categories)
        self.register_buffer("roots", torch.zeros(targets, trees, dtype=torch.int32))
        self.register_buffer("weights", torch.zeros(columns, dtype=double))
        # Of the other parts, of the trees, and of the regressions.
        each = (len(sizes), 2 + regressed) if pooled else (len(sizes),)
        self.register_buffer("class_weights", torch.zeros(each, dtype=double))
        self.register_buffer("spread", torch.ones(columns, dtype=double))
        # None is no part of the state, so that files of earlier versions are complete.
        limits = torch.zeros(columns, dtype=double) if limited else None
        self.register_buffer("limits", limits)
        # Slopes of the entries of a row and, last, intercepts.
        slopes = torch.zeros(columns + 1, every, dtype=double) if regressed else None
        self.register_buffer("regressions", slopes)
        pairs = torch.zeros(products, 2, dtype=torch.long) if products else None
        self.register_buffer("products", pairs)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move to another device, but not to another dtype: thresholds are no parameters."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)

    def features(self, filled: Tensor) -> Tensor:
        """What trees split at in rows whose missing entries are filled, `(rows, features)`."""
        centred = filled.double() @ self.slopes
        features = centred + self.offsets
        if self.products is not None:
            first, second = (centred[:, places] for places in self.products.unbind(1))
            features = torch.cat([features, first * second], dim=1)
        return features.float()

    def trust(self, observed: Tensor) -> Tensor:
        """The share of the other columns that is known where one is missing, `(rows, 1)`."""
        known = observed[:, self.starts].double().sum(1, keepdim=True)
        return (known / max(len(self.starts) - 1, 1)).clamp(max=1.0)

    def step(self, votes: Votes, means: Tensor) -> Tensor:
        """From means to those of the trees, no further than the limits."""
        step = votes.means - means
        return step if self.limits is None else step.clamp(-self.limits, self.limits)

    @property
    def regressed(self) -> list[int]:
        """Which columns of categories have regressions."""
        if self.regressions is None:
            return []
        return [place for place in self.categories if self.sizes[place] <= MOST_SHARES]

    def regress(self, filled: Tensor, slopes: Tensor) -> Tensor:
        """Probabilities of the categories of all columns by regressions, `(rows, all categories)`.

        Slopes are as `regressions`. Columns without a regression have equal probabilities.
        """
        inputs = filled.double().clamp(-MOST_EXTREME, MOST_EXTREME)
        # Sums of products depend on the number of rows in the last bits.
        logits = (inputs @ slopes[:-1] + slopes[-1]).float().double()
        return torch.cat([own.softmax(1) for own in logits.split(self.sizes, dim=1)], dim=1)

    def votes(
        self,
        filled: Tensor,
        wanted: Tensor | None = None,
        used: Mapping[int, Tensor] | None = None,
        *,
        spread: bool = False,
    ) -> Votes:
        """What the trees predict for rows whose missing entries are filled, `(rows, columns)`.

        Args:
            filled: the rows.
            wanted: which entries are needed; None for all. Others may be 0.
            used: which trees may predict which rows, `(rows, trees)`, by target; None for all.
            spread: whether deviations of trees from each other are computed.
        """
        features = self.features(filled)
        means = torch.zeros_like(filled, dtype=torch.float64)
        deviations = torch.zeros_like(means) if spread else None
        numbers = torch.tensor(self.numbers, dtype=torch.long, device=filled.device)
        needed = means == 0.0 if wanted is None else wanted
        by_number = [] if used is None else [used[k] for k in range(len(numbers))]
        shown = torch.stack(by_number) if by_number else None
        # In the order of targets, whose trees then stay in the cache.
        for pairs in needed[:, numbers].T.nonzero().split(max(1, ENTRIES // self.trees)):
            target, row = pairs.unbind(1)
            first = self._reach_leaves(features, row, target)
            weights = None if shown is None else shown[target, row]
            outputs = self.output[first]
            mean = _average(outputs, weights)
            means[row, numbers[target]] = mean
            if deviations is not None:
                apart = (outputs.double() - mean[:, None]).square()
                deviations[row, numbers[target]] = _average(apart, weights).sqrt()
        shares = [means.new_zeros(len(filled), size) for size in self.sizes]
        for target, place in enumerate(self.categories, len(numbers)):
            for rows in torch.arange(len(filled)).split(max(1, ENTRIES // self.trees)):
                weights = None if used is None else used[target][rows]
                first = self._reach_leaves(
                    features, rows.to(filled.device), numbers.new_tensor(target)
                )
                shares[place][rows] = self._class_shares(first, self.sizes[place], weights)
        every = torch.cat([means[:, :0], *shares], dim=1)
        regressions = None if self.regressions is None else self.regress(filled, self.regressions)
        return Votes(means + every @ self.levels, every, regressions, deviations)

    def _reach_leaves(self, features: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        """Places of the first outputs of the leaves that rows reach, `(pairs, trees)`.

        Rows and targets, `(pairs,)`, belong together; a single target is that of all rows.
        """
        nodes, shape = self._nodes, (len(rows), self.trees)
        cells = features.index_select(0, rows).reshape(-1)
        starts = torch.arange(len(rows), dtype=torch.int32, device=rows.device) * features.shape[1]
        start = starts.repeat_interleave(self.trees)
        node = self.roots[targets].expand(shape).reshape(-1)
        ends, walking = node, None
        while len(node):
            for _ in range(LEVELS):
                place = start + nodes.feature.index_select(0, node)
                left = cells.index_select(0, place) <= nodes.threshold.index_select(0, node)
                node = nodes.children.index_select(0, 2 * node + left)
            # Most leaves lie much higher than the deepest one: only walks that go on are kept.
            ends = node if walking is None else ends.index_copy(0, walking, node)
            inner = nodes.is_inner.index_select(0, node).nonzero()[:, 0]
            walking = inner if walking is None else walking.index_select(0, inner)
            node, start = node.index_select(0, inner), start.index_select(0, inner)
        return self.after.index_select(0, ends).view(shape)

    def _class_shares(self, first: Tensor, size: int, used: Tensor | None) -> Tensor:
        """Mean shares of categories, or shares of votes, from places of outputs, `(rows, size)`."""
        if size <= MOST_SHARES:
            return torch.stack([_average(self.output[first + k], used) for k in range(size)], dim=1)
        weights = torch.ones_like(first, dtype=torch.float64) if used is None else used.double()
        votes = weights.new_zeros(len(first), size)
        votes.scatter_add_(1, self.output[first].long(), weights)
        return votes / weights.sum(1, keepdim=True).clamp(min=1.0)

    @cached_property
    def _nodes(self) -> Nodes:
        inner, every = self.feature >= 0, torch.arange(len(self.feature)).to(self.after)
        children = torch.stack([self.after, every + 1], dim=1)
        return Nodes(
            self.feature.clamp(min=0).int(),
            self.threshold.masked_fill(~inner, -torch.inf),
            torch.where(inner[:, None], children, every[:, None]).view(-1),
            inner,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON."""
        return {
            "starts": self.starts,
            "columns": len(self.slopes),
            "features": len(self.offsets),
            "sizes": self.sizes,
            "grown": [self.numbers, self.categories],
            "trees": self.trees,
            "nodes": len(self.feature),
            "outputs": len(self.output),
            "pooled": self.class_weights.ndim == 2,
            **({} if self.regressions is None else {"regressed": True}),
            **({} if self.limits is None else {"limited": True}),
            **({} if self.products is None else {"products": len(self.products)}),
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Forest:
        """A new forest with the configuration that `to_dict` returned."""
        return cls(**{"pooled": False, **description})


def _average(outputs: Tensor, used: Tensor | None) -> Tensor:
    """Mean outputs `(rows, trees)` of all trees, or of those that are used.

    Sums of single numbers in double precision are exact, whatever their order.
    """
    if used is None:
        return outputs.double().sum(1) / outputs.shape[1]
    weights = used.double()
    return (outputs.double() * weights).sum(1) / weights.sum(1).clamp(min=1.0)


MOST_SHARES = 9
"""Categories up to which leaves keep the shares of all; else the most frequent one."""


@dataclass
class Growing:
    """Arrays of trees that are being grown."""

    seed: int
    trees: int
    settings: TreeSettings = MIXED
    turn: Turn = field(default_factory=Turn)
    targets: int = 1  # that get trees
    feature: list[Array] = field(default_factory=list)
    threshold: list[Array] = field(default_factory=list)
    after: list[Array] = field(default_factory=list)
    output: list[Array] = field(default_factory=list)
    roots: list[list[int]] = field(default_factory=list)
    products: list[Array] = field(default_factory=list)  # of two features, by target
    used: list[Array] = field(default_factory=list)  # (rows, trees): not drawn, by target
    nodes: int = 0
    outputs: int = 0
    seconds: float = 0.0  # that trees took, without what else a target needs

    @property
    def product_count(self) -> int:
        """How many products there are so far."""
        return sum(map(len, self.products))

    def keep_time(self, grown: int = 0) -> None:
        """Grow fewer trees of each target from now on if those of all would end too late.

        `grown` are the trees of the next target that there are already.
        """
        ahead, all_grown = self.targets - len(self.roots), sum(map(len, self.roots)) + grown
        self.turn.show((len(self.roots) + grown / max(self.trees, 1)) / self.targets)
        if self.turn.is_limited and ahead and all_grown:
            begun, still = (len(self.roots) + 1, ahead - 1) if grown else (len(self.roots), ahead)
            besides = (self.turn.spent - self.seconds) / begun * still
            more = (self.turn.left - besides) * all_grown / max(self.seconds, 1e-9)
            self.trees = min(self.trees, max(int((max(more, 0.0) + grown) / ahead), grown))

    def grow(
        self,
        features: Array,
        own: Array,
        rows: Array,
        truth: Array,
        groups: Array,
        categories: int = 0,
        weights: Array | None = None,
        pairs: Array | None = None,
        offsets: Array | float = 0.0,
    ) -> None:
        """Grow the trees of a target from the features that are not its `own`, at some rows.

        The truth are numbers, or places among the categories. Rows of a group, copies of each
        other, are drawn together. The trees also split at products of `pairs` of features without
        their `offsets`.
        """
        # Files are loaded and asked without scikit-learn.
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        place, roots = len(self.roots), []
        kept, inner = np.flatnonzero(~own), features[rows][:, ~own]
        if pairs is not None and len(pairs):
            centred, first = (features - offsets)[rows], features.shape[1] + self.product_count
            kept = np.append(kept, first + np.arange(len(pairs)))
            both = centred[:, pairs[:, 0]] * centred[:, pairs[:, 1]]
            inner = np.concatenate([inner, both], axis=1)
            self.products.append(pairs)
        inputs = np.ascontiguousarray(inner, dtype=np.float32)
        names, group = np.unique(groups[rows], return_inverse=True)
        unused = np.ones((len(features), self.trees), dtype=bool)
        kind = DecisionTreeClassifier if categories else DecisionTreeRegressor
        for tree in range(self.trees):
            if tree >= self.trees:  # there is less time by now
                break
            begun = self.turn.spent
            generator = np.random.default_rng([self.seed, place, tree])
            drawn = generator.integers(len(names), size=min(len(names), MOST_DRAWN))
            counts = np.bincount(drawn, minlength=len(names))[group].astype(np.float64)
            # Every other tree of categories has half of the features at a split.
            share = 0.5 if categories and tree % 2 else self.settings.share
            model = kind(
                max_features=min(MOST_FEATURES, max(1, int(share * len(kept)))),
                min_samples_leaf=self.settings.leaf,
                random_state=int(generator.integers(2**31 - 1)),
            )
            often = counts if weights is None else counts * weights[rows]
            with warnings.catch_warnings():
                # Columns of many categories are common; the caller can do nothing about it.
                warnings.filterwarnings("ignore", MANY_CLASSES)
                model.fit(inputs, truth, sample_weight=often)
            unused[rows, tree] = counts == 0.0
            roots.append(self.nodes)
            self._keep(model, kept, categories)
            self.seconds += self.turn.spent - begun
            if self.turn.is_limited and tree + 1 < self.trees:
                self.keep_time(tree + 1)
        self.roots.append(roots)
        self.used.append(unused)

    def _keep(self, model: Any, kept: Array, categories: int) -> None:
        tree = model.tree_
        leaf = tree.children_left < 0
        values = tree.value[leaf, 0, :]
        feature = np.where(leaf, -1, kept[np.maximum(tree.feature, 0)])
        after = tree.children_right + self.nodes
        if categories:
            values = _outputs(model.classes_, values, categories)
        width = values.shape[1]
        after[leaf] = self.outputs + width * np.arange(int(leaf.sum()))
        self.feature.append(feature.astype(np.int16))
        self.threshold.append(tree.threshold.astype(np.float32))
        self.after.append(after.astype(np.int32))
        self.output.append(values.astype(np.float32).ravel())
        self.nodes += len(feature)
        self.outputs += values.size

    def finish(self, forest: Forest) -> None:
        """Put the arrays into a forest of their sizes."""
        for name in ("feature", "threshold", "after", "output"):
            getattr(forest, name).copy_(torch.from_numpy(np.concatenate(getattr(self, name))))
        forest.roots.copy_(torch.tensor([roots[: self.trees] for roots in self.roots]))
        if forest.products is not None:
            forest.products.copy_(torch.from_numpy(np.concatenate(self.products)))
        forest.forget()


def _outputs(seen: Array, values: Array, categories: int) -> Array:
    """Outputs of leaves from the weights of the categories that a tree saw."""
    shares = values / values.sum(1, keepdims=True)
    if categories > MOST_SHARES:
        return np.asarray(seen[shares.argmax(1)][:, None], dtype=np.float64)
    every = np.zeros((len(shares), categories))
    every[:, seen] = shares
    return every


def plan_trees(rows: int, targets: int, most: int) -> int:
    """How many trees each target has, by the nodes that they need.

    Example:
        >>> plan_trees(500, 10, 50), plan_trees(2000, 100, 50)
        (50, 16)
    """
    # Two thirds of the rows differ in a draw of as many, and trees have twice as many nodes.
    nodes = 4 * min(rows, MOST_DRAWN) / 3
    return min(most, max(FEWEST_TREES, int(NODES / (nodes * max(targets, 1)))))


def make_features(
    widths: Sequence[int], categories: Sequence[CategoryColumn]
) -> tuple[Array, Array, Array]:
    """Slopes and offsets of features, and which column of the matrix each begins its section at.

    Entries are features, but sections of three to nine categories become probabilities of these.
    """
    columns = int(sum(widths))
    starts = np.cumsum([0, *widths])[:-1]
    simplexes = {
        column.places[0]: column.part
        for column in categories
        if isinstance(column.part, CategoricalEncoding) and column.part.is_simplex
    }
    slopes, offsets, owners = [], [], []
    for start, width in zip(starts.tolist(), widths, strict=True):
        inner, shift = np.eye(width), np.zeros(width)
        if width > 1 and start in simplexes:
            part = simplexes[start]
            shift = simplex_weights(part.counts)
            inner = (shift[:, None] * part.points).T
        whole = np.zeros((columns, inner.shape[1]))
        whole[start : start + width] = inner
        slopes.append(whole)
        offsets.append(shift)
        owners.append(np.full(len(shift), start))
    return np.concatenate(slopes, axis=1), np.concatenate(offsets), np.concatenate(owners)


@dataclass(frozen=True)
class TreeTable:
    """A table that trees are grown from."""

    widths: list[int]  # of the sections of the matrix
    values: Tensor  # (rows, columns)
    observed: Tensor
    filled: Tensor  # the values, and stacked means where they are missing
    categories: list[CategoryColumn]
    labels: Tensor  # places of the rows' categories, -1 for none, (rows, columns of categories)
    copies: Tensor  # for every row the first that it is a copy of
    weights: Tensor | None = None  # how often rows count
    linear: MeanFunction | None = None  # of the linear model; None if nothing is missing

    def without(self, places: Sequence[int]) -> Tensor:
        r"""The filled rows as if the cells of some columns had been missing, `(rows, columns)`.

        Missing cells are filled from all others of their row. Trees that predict one of those would
        learn to read it from the filled cells, which do not know it where it is missing. So the
        filled cells move by how much the linear model's means move when it is hidden.
        """
        partial = (self.observed[:, places].any(1) & ~self.observed.all(1)).nonzero()[:, 0]
        if self.linear is None or not len(partial):
            return self.filled
        values, shown = self.values[partial], self.observed[partial]
        hidden = shown.clone()
        hidden[:, places] = False
        change = self.linear(values, hidden, partial) - self._linear_means[partial]
        filled = self.filled.clone()
        filled[partial] += torch.where(shown, 0.0, change)
        return filled

    @cached_property
    def _linear_means(self) -> Tensor:
        assert self.linear is not None
        return self.linear(self.values, self.observed, torch.arange(len(self.values)))


def grow_forest(
    table: TreeTable, most: int, seed: int, turn: Turn | None = None
) -> tuple[Forest, Unseen] | None:
    """Grow a forest; what did not see which rows. None without any target, or without time.

    Trees are fewer if they would not be grown within the `turn`.
    """
    import sklearn.linear_model
    import sklearn.tree  # noqa: F401  which takes a while at first and is no part of growing

    slopes, offsets, owners = make_features(table.widths, table.categories)
    starts = np.cumsum([0, *table.widths])[:-1].tolist()
    known = table.observed.numpy()
    sizes = [len(column.part.categories) for column in table.categories]
    numbers, grown = _choose_targets(table, starts, sizes)
    if len(starts) < 2 or not (numbers or grown):
        return None
    features = table.filled.numpy() @ slopes + offsets
    trees = plan_trees(len(known), len(numbers) + len(grown), most)
    how = MIXED if table.categories else NUMERIC
    targets, fewest = len(numbers) + len(grown), min(trees, FEWEST_IN_TIME)
    turn = turn or Turn()
    growing = Growing(seed, trees, how, turn.first(1.0), targets)
    groups = table.copies.numpy()
    weights = None if table.weights is None else table.weights.numpy()
    products = _make_products(table, features - offsets, owners)
    for start in numbers:
        rows, own = np.flatnonzero(known[:, start]), owners == start
        truth = table.values[rows, start].numpy()
        pairs = products.choose(rows, truth[:, None], own, weights)
        growing.grow(
            features, own, rows, truth, groups, weights=weights, pairs=pairs, offsets=offsets
        )
        growing.keep_time()
        if growing.trees < fewest:
            turn.give_up()
            return None
    regressed = any(sizes[place] <= MOST_SHARES for place in grown)
    folds = np.random.default_rng([seed, len(known)]).integers(FOLDS, size=len(known))[groups]
    fitted = np.zeros((1 + FOLDS, len(slopes) + 1, sum(sizes)))
    for place in grown:
        column, labels = table.categories[place], table.labels[:, place].numpy()
        rows = np.flatnonzero(labels >= 0)
        own = owners == column.places[0]
        filled = table.without(column.places).numpy()
        features, pairs = filled @ slopes + offsets, products.pairs[:0]
        if sizes[place] <= MOST_SHARES:
            pairs = products.choose(rows, np.eye(sizes[place])[labels[rows]], own, weights)
        growing.grow(
            features, own, rows, labels[rows], groups, sizes[place], weights, pairs, offsets
        )
        if sizes[place] <= MOST_SHARES:
            filled = np.clip(filled, -MOST_EXTREME, MOST_EXTREME)
            filled[:, column.places] = 0.0
            section = slice(sum(sizes[:place]), sum(sizes[: place + 1]))
            fitted[..., section] = _fit_folds(filled, labels, rows, folds, sizes[place], weights)
        growing.keep_time()
        if growing.trees < fewest:
            turn.give_up()
            return None
    trees = growing.trees
    shape = starts, len(slopes), len(offsets), sizes, (numbers, grown), trees
    forest = Forest(
        *shape, growing.nodes, growing.outputs, limited=not table.categories, regressed=regressed,
        products=growing.product_count,
    )  # fmt: skip
    growing.finish(forest)
    without = None
    if forest.regressions is not None:
        forest.regressions.copy_(torch.from_numpy(fitted[0]))
        without = torch.from_numpy(fitted[1:])
    forest.slopes.copy_(torch.from_numpy(slopes))
    forest.offsets.copy_(torch.from_numpy(offsets))
    _set_levels(forest, table.categories, sizes)
    unseen = {k: torch.from_numpy(used[:, :trees]) for k, used in enumerate(growing.used)}
    return forest, Unseen(unseen, torch.from_numpy(folds), without)


def _make_products(table: TreeTable, features: Array, owners: Array) -> Products:
    """Products of features in tables with categories of few levels; none in others."""
    few = [column.places[0] for column in table.categories if column.part.is_simplex]
    many = [column.places[0] for column in table.categories if not column.part.is_simplex]
    return Products(features, owners, many if few else owners.tolist(), few)


def _choose_targets(
    table: TreeTable, starts: Sequence[int], sizes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The first matrix columns of numbers, and the places of categories, that trees predict."""
    of_categories = {column.places[0] for column in table.categories}
    numbers = [
        start
        for start in starts
        if start not in of_categories and int(table.observed[:, start].sum()) >= FEWEST_CELLS
    ]
    grown = [
        place
        for place, size in enumerate(sizes)
        if size <= MOST_CATEGORIES and int((table.labels[:, place] >= 0).sum()) >= FEWEST_CELLS
    ]
    # Random numbers go by the order of the matrix, which is not that of the table's columns.
    grown.sort(key=lambda place: table.categories[place].places[0])
    return numbers, grown


def _fit_folds(
    inputs: Array, labels: Array, rows: Array, folds: Array, categories: int, weights: Array | None
) -> Array:
    """Regressions on all rows, and on those outside each fold, `(1 + folds, columns + 1, ...)`."""
    fitted = []
    for fold in range(-1, FOLDS):
        some = rows[folds[rows] != fold]
        often = None if weights is None else weights[some]
        fitted.append(fit_regression(inputs[some], labels[some], categories, often))
    return np.stack(fitted)


def _set_levels(forest: Forest, categories: Sequence[CategoryColumn], sizes: Sequence[int]) -> None:
    """Write the scores of ordered levels into a forest."""
    first = 0
    for column, size in zip(categories, sizes, strict=True):
        if isinstance(column.part, OrdinalEncoding):
            scores = torch.from_numpy(column.part.scores)
            forest.levels[first : first + size, column.places[0]] = scores
        first += size


def fit_regression(
    inputs: Array, truth: Array, categories: int, weights: Array | None = None
) -> Array:
    """Slopes of a logistic regression and, last, its intercepts, `(columns + 1, categories)`.

    Example:
        >>> slopes = fit_regression(
        ...     np.array([[-1.0], [-0.8], [0.9], [1.0]]), np.array([0, 0, 2, 2]), 3
        ... )
        >>> (np.array([1.0, 1.0]) @ slopes).argmax(), (np.array([-1.0, 1.0]) @ slopes).argmax()
        (np.int64(2), np.int64(0))
    """
    # Files are loaded and asked without scikit-learn.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    result = np.zeros((inputs.shape[1] + 1, categories))
    seen = np.unique(truth)
    result[-1] = np.where(np.isin(np.arange(categories), seen), 0.0, IMPOSSIBLE)
    if len(seen) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # as good as it needs to be
            warnings.filterwarnings("ignore", MANY_CLASSES)
            model = LogisticRegression(C=STRENGTH).fit(inputs, truth, sample_weight=weights)
        slopes, start = model.coef_.T, model.intercept_
        if len(seen) == 2:  # the logit of the second
            slopes, start = np.hstack([0.0 * slopes, slopes]), np.append(0.0, start)
        result[:-1, seen], result[-1, seen] = slopes, start
    return result


@dataclass(frozen=True)
class HeldOutRows:
    """Rows with held-out cells, as the other parts predict them without these cells."""

    ids: Tensor  # of the rows in the table
    values: Tensor
    shown: Tensor
    counted: Tensor  # 1 at held-out cells, else 0
    means: Tensor  # that are predicted
    probabilities: list[tuple[Array, Array, Array] | None]
    """By column of categories: some rows, the probabilities there `(rows, categories)`, and the
    places of the true ones; None if they are not known."""


def fit_weights(
    forest: Forest,
    unseen: Unseen,
    held_out: Sequence[HeldOutRows],
    frequencies: Sequence[Array],
) -> list[HeldOutRows]:
    """Fit the weights of the second stage to held-out cells, predicted by what did not see them.

    `frequencies` are those of the categories of every column. Returned are the rows with the means
    and probabilities that trees move.
    """
    columns = len(forest.weights)
    has_trees = (forest.levels != 0.0).any(0)
    has_trees[forest.numbers] = True
    sums = torch.zeros(3, columns, dtype=torch.float64)  # of products, and squares of both
    cells, largest = torch.zeros(2, columns, dtype=torch.float64)
    trusts, steps, shares = list[Tensor](), list[Tensor](), list[Sequence[Tensor]]()
    regressions: list[Sequence[Tensor]] = []
    for one in held_out:
        filled = torch.where(one.shown, one.values, one.means)
        own = {target: trees[one.ids] for target, trees in unseen.trees.items()}
        votes, trust = forest.votes(filled, used=own), forest.trust(one.shown)
        left, step = one.values - one.means, trust * (votes.means - one.means)
        steps.append(step)
        distances = (votes.means - one.means).abs() * one.counted * has_trees
        largest = torch.maximum(largest, distances.amax(0))
        for row, product in enumerate((left * step, step * step, left * left)):
            sums[row] += (product * one.counted).sum(0)
        cells += one.counted.sum(0)
        trusts.append(trust)
        shares.append(votes.shares.split(forest.sizes, dim=1))
        if unseen.regressions is not None:
            folds = torch.stack([forest.regress(filled, own) for own in unseen.regressions])
            chances = folds[unseen.folds[one.ids], torch.arange(len(filled))]
            regressions.append(chances.split(forest.sizes, dim=1))
    if forest.limits is not None:
        forest.limits.copy_(STEP * _largest_steps(largest, cells))
    usual = float(torch.cat(trusts).mean()) if trusts else 1.0
    _set_weights(forest, sums * has_trees, cells, has_trees, usual)
    pooled = _fit_class_weights(forest, held_out, trusts, (shares, regressions), frequencies)
    return [
        replace(one, means=one.means + forest.weights.clamp(max=1.0) * step, probabilities=own)
        for one, step, own in zip(held_out, steps, pooled, strict=True)
    ]


def move_means(forest: Forest, unseen: Unseen, one: HeldOutRows) -> Tensor:
    """The means of held-out rows, moved by weighed trees that did not see these."""
    filled = torch.where(one.shown, one.values, one.means)
    own = {target: trees[one.ids] for target, trees in unseen.trees.items()}
    votes, trust = forest.votes(filled, one.counted > 0, own), forest.trust(one.shown)
    weights = (forest.weights * trust).clamp(max=1.0)
    return one.means + weights * forest.step(votes, one.means)


def _largest_steps(largest: Tensor, cells: Tensor) -> Tensor:
    """The largest steps by column; of all columns where a column has few cells."""
    return torch.where(cells >= FEWEST_STEPS, largest, largest.max())


def _fit_class_weights(
    forest: Forest,
    held_out: Sequence[HeldOutRows],
    trusts: Sequence[Tensor],
    predicted: tuple[Sequence[Sequence[Tensor]], Sequence[Sequence[Tensor]]],
    frequencies: Sequence[Array],
) -> list[list[tuple[Array, Array, Array] | None]]:
    """Fit the weights of categories; the probabilities of held-out cells with the second stage.

    Predicted are shares of trees and, perhaps, probabilities of regressions.
    """
    pooled = [list(one.probabilities) for one in held_out]
    regressed = forest.regressed
    others = [place for place in forest.categories if place not in regressed]
    kinds = (regressed, REGRESSED_WEIGHTS), (others, CLASS_WEIGHTS)
    for places, start in kinds if regressed else kinds[1:]:
        found: list[list[tuple[int, SecondStage]]] = []
        cells: list[list[HeldOutCategories]] = []
        for place in places:
            found.append([])
            cells.append([])
            for part, (one, trust) in enumerate(zip(held_out, trusts, strict=True)):
                known = one.probabilities[place]
                if known is not None:
                    rows, chances, truth = known
                    votes, *more = (kind[part][place][rows].numpy() for kind in predicted if kind)
                    chosen = more[0] if place in regressed else None
                    second = SecondStage(votes, trust[rows].numpy(), (), chosen)
                    found[-1].append((part, second))
                    gains = second.gains(chances, frequencies[place])
                    cells[-1].append(HeldOutCategories(*gains, truth))
        weights = fit_pooling(cells, start, (WEIGHT_PRIOR, COLUMN_PRIOR))
        forest.class_weights[places, : len(start)] = torch.from_numpy(weights)
        for place, own, parts in zip(places, weights.tolist(), found, strict=True):
            for part, second in parts:
                known = held_out[part].probabilities[place]
                assert known is not None
                moved = replace(second, weights=tuple(own)).pool(known[1], frequencies[place])
                pooled[part][place] = known[0], moved, known[2]
    return pooled


def weigh_steps(
    sums: tuple[Tensor, Tensor, Tensor], cells: Tensor, priors: tuple[float, float, float]
) -> Tensor:
    """Weights of steps by column, from held-out cells.

    Least squares with a prior weight, the weight of this prior in the common weight, and that of
    the common one in a column's, times the probability that there is anything to gain.

    Args:
        sums: by column, of products of steps with errors, of squares of steps, and of errors.
        cells: their number by column.
        priors: the prior weight and its two weights.
    """
    products, squares, errors = sums
    start, common_prior, column_prior = priors
    common = (products.sum() + common_prior * start) / (squares.sum() + common_prior)
    weights = (products + column_prior * common.clamp(0.0, 1.0)) / (squares + column_prior)
    weights = weights.clamp(0.0, MOST_WEIGHT)
    gains = weights * (2.0 * products - weights * squares)
    return weights * chances_of_gain(gains, errors, cells)


def chances_of_gain(gains: Tensor, errors: Tensor, cells: Tensor) -> Tensor:
    r"""The probability, by column, that predictions reduce errors, and did not do so by chance.

    A column can be predicted or it cannot. With Normal errors of the variance $\sigma^2$, the
    logarithm of the ratio of the likelihoods is the gain at held-out cells over $2 \sigma^2$. The
    share of the columns that can be predicted is estimated from all of them: where no column is
    predicted clearly, small gains are chance. Tables of 100 to 500 rows of independent columns have
    1.01 times the squared error of means with this factor, at most 1.06.

    Args:
        gains: by how much predictions reduce the sum of squared errors.
        errors: this sum without them.
        cells: their number.

    Example:
        >>> cells = torch.full((6,), 40.0)
        >>> gains = torch.tensor([0.5, -0.8, -0.4, 0.3, -0.6, -0.2])
        >>> chances_of_gain(gains, cells, cells).mul(100).round().tolist()
        [49.0, 34.0, 38.0, 47.0, 36.0, 41.0]
        >>> gains[0] = 20.0
        >>> chances_of_gain(gains, cells, cells).mul(100).round().tolist()
        [100.0, 50.0, 55.0, 63.0, 52.0, 57.0]
    """
    some, left = cells > 0, (errors - gains).clamp(min=0.0)
    usual = left.sum() / cells.sum().clamp(min=1.0)
    variances = (left + SPREAD_PRIOR * usual) / (cells + SPREAD_PRIOR)
    evidence = gains / (2.0 * variances.clamp(min=1e-9))
    chances = evidence.sigmoid()
    for _ in range(STEPS_OF_SHARE):
        share = ((chances * some).sum() + 1.0) / (some.sum() + 2.0)
        chances = (evidence + share.logit()).sigmoid()
    return chances


def _set_weights(
    forest: Forest, sums: Tensor, cells: Tensor, has_trees: Tensor, usual: float
) -> None:
    """Weights of the means and factors of draws from sums of products and squares by column.

    `usual` is the mean trust at held-out cells, at which errors shrink as they do there.
    """
    products, squares, errors = sums
    how = MIXED if forest.sizes else NUMERIC
    priors = how.weight, how.weight_prior, how.column_prior
    weights = weigh_steps((products, squares, errors), cells * has_trees, priors)
    forest.weights.copy_(weights * has_trees)
    after = errors - 2.0 * forest.weights * products + forest.weights.square() * squares
    prior = SPREAD_PRIOR * errors / cells.clamp(min=1.0)
    ratio = ((after + prior) / (errors + prior).clamp(min=1e-12)).clamp(0.0, 1.0).sqrt()
    factors = (1.0 - (1.0 - ratio) / max(usual, 0.1)).clamp(LEAST_SPREAD, 1.0)
    forest.spread.copy_(torch.where(has_trees & (errors > 0.0), factors, 1.0))
