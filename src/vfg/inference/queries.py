"""Queries of a VFG: infer, fill, embed, classify, traverse, decode, sample, transport."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vfg.distributions.likelihoods import Bernoulli
from vfg.distributions.priors import LabelPrior
from vfg.graph import Edge
from vfg.inference.answers import Answer, MessageAnswer, as_row_ids, as_targets
from vfg.inference.calibration import knows_roots, noise_scale, without_evidence
from vfg.inference.completion import believe
from vfg.inference.draws import quantile
from vfg.inference.evidence import Given, as_given, warn_of_extrapolation
from vfg.inference.interventions import intervene, is_intervention
from vfg.inference.propagation import (
    ROUNDS,
    Belief,
    evaluating,
    place_batch,
    tiles,
)
from vfg.inference.sampled import SampledAnswer
from vfg.inputs import (
    ArrayLike,
    Name,
    Tabular,
    as_evidence,
    as_labels,
    as_table,
    as_tensor,
    as_value,
    check_labelled,
    frame_names,
    frame_numbers,
)
from vfg.passing.messages import States
from vfg.sampling import draw_states, generated_noise
from vfg.tables.frames import is_frame, open_table

if TYPE_CHECKING:
    from vfg.model import VFG


CHUNK = {"cpu": 256}
"""Rows that pass messages together, by type of device, else `OTHER_CHUNK`; bits depend on it."""
WIDE = 24
"""Columns from which half as many rows pass messages together: with 32 columns a single row, which
costs a whole tile, takes 10 ms instead of 16, and many rows take 10 % more."""
OTHER_CHUNK = 4096


@torch.no_grad()
def infer(
    model: VFG,
    given: ArrayLike,
    targets: Name | Sequence[Name] | None = None,
    *,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    seed: int = 0,
    row_ids: ArrayLike | None = None,
    rounds: int = ROUNDS,
    importance: int = 0,
    padded: bool = True,
    do: Mapping[Name, Any] | None = None,
    dag: Any = None,
) -> Answer:
    """Any targets given any evidence.

    The missing values of a section that is observed in part are predicted by the mixture that
    `vfg.fit` kept for it, if there is one. Those of any other state are filled by backward
    messages, repeatedly, until they converge. With sampled states nothing is iterated: latent nodes
    are drawn given the observed cells, and the answer is a `SampledAnswer`. Rows run in chunks of a
    fixed size aligned to their ids, so the answer for a row with the same id is the same bit for
    bit in every batch and order.

    Args:
        model: the model.
        given: an array or tensor with NaN for missing values; a frame with some of the columns; a
            mapping from names of leaves, columns and latent nodes to values, which are numbers or
            have the shape `(rows,)` or `(rows, width)`; or a list of such mappings, one per row.
        targets: leaves, columns or latent nodes by name; None means all leaves. A column without
            a name is called `leaf[0]`, `leaf[1]`, ...
        observed: which cells may be used, as a boolean mask, or by leaf or column.
        labels: label per row, −1 for none, if the prior has labels.
        seed: of the draws.
        row_ids: distinct integers from 0 on that draws and chunks depend on; None means the
            position in the input.
        rounds: how often missing values are filled at most.
        importance: with sampled states, how many draws per row get self-normalised importance
            weights, which brings the answer nearer to the posterior; 0 for plain draws.
        padded: False computes the rows as they are, without padding to the fixed size. This is
            faster for a few rows; numbers are the same up to rounding.
        do: values by column that an intervention sets, one each or one per row; see `dag`.
        dag: (cause, effect) pairs of columns, or a `LearnedGraph`, along which effects follow from
            `do`: each column is drawn from the model given its causes. `given` must not hold
            effects of the columns that are set. The answer is wrong if edges are wrong, or if
            columns have common causes that are not in the table.

    Returns:
        Means, deviations, quantiles and draws; see `Answer`.

    Raises:
        ValueError: for unknown names, wrong shapes, infinite values, or contradictions.
        TypeError: for values that are not numbers.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> infer(model, {"a": [1.0, 2.0]}, targets=["b"]).mean["b"]
        tensor([[1.],
                [2.]], dtype=torch.float64)
    """
    if rounds < 0:
        raise ValueError(f"rounds must be 0 or more, but is {rounds}")
    _warn_untrained(model)
    if is_intervention(do, dag):
        return intervene(model, given, targets, do or {}, dag, observed=observed, seed=seed)
    evidence = as_given(model, given, observed)
    warn_of_extrapolation(model, given, stacklevel=4)  # above infer and torch's no_grad
    ids = as_row_ids(model, row_ids, evidence.rows)
    chosen = as_targets(model, targets)
    kinds = as_labels(model, labels, evidence.rows)
    if importance < 0 or (importance and model.sampling is None):
        raise ValueError(
            f"importance is a number of draws, 0 for none, of a model with states='sampled', but "
            f"got {importance} for states={model.states!r}"
        )
    if model.sampling is not None:
        shared = (evidence, chosen, ids, seed, padded)
        return SampledAnswer(model, *shared, labels=kinds, importance=importance)
    belief = compute_belief(model, evidence, kinds, ids, rounds, padded=padded)
    belief = _with_trained_roots(model, evidence, belief)
    return MessageAnswer(model, evidence, chosen, ids, seed, padded, belief=belief)


@torch.no_grad()
def embed(
    model: VFG,
    table: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> Tensor:
    """The states of the roots side by side, `(rows, sum of their widths)`.

    Roots without evidence are at their prior's mean.

    Args:
        model: the model.
        table: evidence in any form that `infer` takes.
        observed: which cells may be used.
        labels: label per row, −1 for none, if the prior has labels.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> embed(model, torch.zeros(3, 2)).shape
        torch.Size([3, 2])
    """
    roots = model.graph.roots
    answer = infer(model, table, list(roots), observed=observed, labels=labels)
    return torch.cat([answer.mean[root] for root in roots], dim=1)


@torch.no_grad()
def label_probabilities(
    model: VFG, table: ArrayLike, *, observed: ArrayLike | None = None
) -> Tensor:
    r"""Probabilities of the labels, `(rows, labels)`; without evidence all are equal.

    $p(u \mid x) \propto p(h \mid u)$ on the observed coordinates of the roots. For roots with a
    precision it is exact: $\exp(\tfrac12 (\eta + \lambda_u)^\top P^{-1} (\eta + \lambda_u) -
    \tfrac12 \lVert \lambda_u \rVert^2)$, where η leaves out the prior.

    Args:
        model: a model with the prior `vfg.PerLabel`.
        table: evidence in any form that `infer` takes.
        observed: which cells may be used.

    Raises:
        ValueError: if the prior has no labels.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}), prior=vfg.PerLabel(4))
        >>> label_probabilities(model, torch.zeros(1, 2))  # at the start all labels are alike
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    given = as_given(model, table, observed)
    check_labelled(model)
    belief = compute_belief(model, given, None, as_row_ids(model, None, given.rows), ROUNDS)
    scores = []
    for block in model._blocks_of(model.priors):
        prior = model.prior_at(block)
        assert isinstance(prior, LabelPrior)
        scores.append(_label_scores(belief, block, prior).sum(0))
    return torch.stack(scores).sum(0).softmax(-1).to(given.table)


@torch.no_grad()
def fill(model: Tabular, table: ArrayLike, *, row_ids: ArrayLike | None = None) -> Any:
    """A copy of a table with missing values filled by expected values.

    Observed cells stay as they are. Bernoulli and categorical leaves are filled with the most
    probable value. A frame may have other columns, which stay.

    Args:
        model: the model.
        table: a tensor, an array, nested lists, or a frame with the columns of the model.
        row_ids: as in `infer`.

    Returns:
        A table of the same kind; nested lists come back as an array.

    Raises:
        ValueError: for a table without the columns of the model.
        TypeError: for a mapping, or a column that does not hold numbers.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> fill(model, [[2.0, float("nan")]])
        array([[2., 2.]])
    """
    if isinstance(table, Mapping):
        raise TypeError("fill takes a table; use infer for values by name")
    if isinstance(table, Tensor):
        return torch.where(table.isnan(), _expected_cells(model, table, row_ids).to(table), table)
    opened = open_table(table)
    names = frame_names(model, opened.labels) if is_frame(table) else None
    places = range(len(opened.labels)) if names is None else _places(opened.labels, names)
    cells = frame_numbers(opened, dict(enumerate(places)), len(places))
    expected = _expected_cells(model, torch.from_numpy(cells), row_ids).numpy()
    missing = np.isnan(cells)
    fills = {
        place: (missing[:, k], expected[missing[:, k], k])
        for k, place in enumerate(places)
        if missing[:, k].any()
    }
    return opened.replace_cells(fills)


def _places(labels: Sequence[Any], names: Sequence[str]) -> list[int]:
    missing = [name for name in names if name not in labels]
    if missing:
        raise ValueError(
            f"the frame lacks the column {', '.join(map(repr, missing[:6]))} of the model; "
            "add it, or use infer, which takes a frame with some of the columns"
        )
    return [list(labels).index(name) for name in names]


def _expected_cells(model: Any, table: Tensor, row_ids: ArrayLike | None) -> Tensor:
    """The expected table; of Bernoulli columns the more probable value."""
    answer = model.infer(table, row_ids=row_ids)
    expected = torch.empty_like(table if table.is_floating_point() else table.double())
    for leaf, columns in model.sections.positions.items():
        part = answer.mean[leaf]
        is_chance = isinstance(model.likelihood_specs[leaf], Bernoulli)
        expected[:, list(columns)] = ((part > 0.5).to(part) if is_chance else part).to(expected)
    return expected


def log_prob(model: VFG, table: ArrayLike, *, observed: ArrayLike | None = None) -> Tensor:
    """Raise a ValueError: a VFG has no log-density in closed form; see `log_likelihood`."""
    if model.sampling is not None:
        raise ValueError(
            "a VFG with sampled states has no log_prob in closed form; estimate it by importance "
            "weighting with log_likelihood(table), or take the lower bound bound(table)"
        )
    raise ValueError(
        "a VFG with deterministic states has no likelihood; use surrogate(table), build the model "
        'with states="sampled" and use log_likelihood, or use a vfg.GaussianVFG'
    )


def classify(model: VFG, table: ArrayLike, *, observed: ArrayLike | None = None) -> Tensor:
    """The most probable label of every row, integers `(rows,)`; see `label_probabilities`.

    Args:
        model: a model with the prior `vfg.PerLabel`.
        table: evidence in any form that `infer` takes.
        observed: which cells may be used.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}), prior=vfg.PerLabel(4))
        >>> classify(model, torch.zeros(3, 2)).shape
        torch.Size([3])
    """
    return label_probabilities(model, table, observed=observed).argmax(-1)


@torch.no_grad()
def traverse(
    model: VFG,
    table: ArrayLike,
    node: str,
    coordinate: int,
    values: ArrayLike,
    *,
    observed: ArrayLike | None = None,
) -> Tensor:
    """Decode rows with one coordinate of one latent node moved.

    Args:
        model: the model.
        table: evidence in any form that `infer` takes.
        node: a latent node; its backward state is fixed, roots and other nodes stay.
        coordinate: which of its coordinates.
        values: the numbers that are added to that coordinate, one after the other.
        observed: which cells may be used.

    Returns:
        The expected tables `(rows, values, columns)` in data units.

    Raises:
        ValueError: for a node that is no latent node, or a coordinate that it does not have.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> traverse(model, torch.zeros(1, 2), "root", 0, [-1.0, 1.0])[0]
        tensor([[-1., -1.],
                [ 1.,  1.]])
    """
    width = model.graph.node(node).width
    if node in model.graph.leaves:
        raise ValueError(f"{node!r} is a leaf; traverse moves a latent node")
    if not 0 <= coordinate < width:
        raise ValueError(
            f"node {node!r} has the coordinates 0 to {width - 1}, but got {coordinate}"
        )
    steps = as_tensor(values, "the values").reshape(-1)
    given = as_given(model, table, observed)
    belief = compute_belief(model, given, None, as_row_ids(model, None, given.rows), ROUNDS)
    with evaluating(model):
        moved = [_decode_moved(model, belief, node, coordinate, float(step)) for step in steps]
    empty = given.table.new_zeros((given.rows, 0, model.sections.columns))
    return torch.stack(moved, dim=1).to(given.table) if moved else empty


def compute_belief(
    model: VFG,
    given: Given,
    labels: Tensor | None,
    row_ids: Tensor,
    rounds: int = ROUNDS,
    *,
    padded: bool = True,
) -> Belief:
    """Pass messages for rows, in padded tiles of a fixed size or as they are."""
    size = CHUNK.get(row_ids.device.type, OTHER_CHUNK) // (1 + (model.sections.columns >= WIDE))
    if not padded:
        size, row_ids = given.rows, torch.arange(given.rows, device=row_ids.device)
    parts, order = [], []
    empty = row_ids.new_zeros(0)
    with evaluating(model):
        for rows, positions in tiles(row_ids, size) or [(empty, empty)]:
            batch = place_batch(given, labels, rows, positions, size)
            parts.append(believe(model, *batch, rounds=rounds).select(positions))
            order.append(rows)
    whole = Belief.join(parts, lambda *same: torch.cat(same, dim=1))
    return whole.select(torch.cat(order).argsort())


def _with_trained_roots(model: VFG, given: Given, belief: Belief) -> Belief:
    """The belief with the roots' moments of training, as in `sample`, in rows without evidence."""
    alone = without_evidence(model, given.seen, given.evidence)
    if not bool(alone.any()):
        return belief
    rows, heat = alone[None, :, None], model.spread.log_temperature.exp()
    roots, tops = {}, {}
    for place, (block, state) in enumerate(belief.roots.items()):
        mean, factor = (
            model.spread.get_buffer(f"root_{part}{place}").to(state.value)
            for part in ("mean", "factor")
        )
        assert state.precision is not None  # draws are joint
        covariance = factor @ factor.mT if factor.ndim == 3 else factor.square().diag_embed()
        covariance = covariance * heat.to(factor)  # by which draws are divided
        if state.precision.ndim == state.value.ndim:
            kept = covariance.diagonal(dim1=-2, dim2=-1).reciprocal()[:, None]
            precision = torch.where(rows, kept, state.precision)
        else:
            precision = torch.where(
                rows[..., None], torch.linalg.inv(covariance)[:, None], state.precision
            )
        roots[block] = state._replace(observed=state.observed | rows, precision=precision)
        tops[block] = mean[:, None]
    with evaluating(model):
        pairs = zip(_states_below(model, tops), belief.backward, strict=True)
        backward = [torch.where(rows, expected, before) for expected, before in pairs]
        return replace(belief, backward=backward, means=model.leaf_means(backward), roots=roots)


def _label_scores(belief: Belief, block: int, prior: LabelPrior) -> Tensor:
    """log p(evidence below | label) up to a constant, `(nodes, rows, labels)`."""
    state = belief.roots[block]
    if state.information is None or state.precision is None:
        return prior.log_prob_by_label(state.value, state.observed)
    means = prior.locations[:, None]
    joined = (state.information - prior.mean(None))[:, :, None] + means
    if state.precision.ndim == state.value.ndim:
        explained = (joined.square() / state.precision[:, :, None]).sum(-1)
    else:
        factor, _ = torch.linalg.cholesky_ex(state.precision)
        half = torch.linalg.solve_triangular(factor, joined.mT, upper=False)
        explained = half.square().sum(-2)
    return 0.5 * (explained - means.square().sum(-1))


def _decode_moved(model: VFG, belief: Belief, node: str, coordinate: int, step: float) -> Tensor:
    block, row = model.passing.schedule.place[node]
    fixed = belief.backward[block][row].clone()
    fixed[:, coordinate] += step
    own = belief.evidence.get(block, torch.full_like(belief.backward[block], torch.nan)).clone()
    own[row] = fixed
    evidence = {**belief.evidence, block: own}
    tops = {index: belief.backward[index] for index in belief.roots}
    known = {index: state.observed.any(-1, keepdim=True) for index, state in belief.roots.items()}
    return _expected_table(model, model.passing.backward_pass(tops, known, evidence)[0])


def _states_below(
    model: VFG, tops: dict[int, Tensor], evidence: dict[int, Tensor] | None = None
) -> list[Tensor]:
    """Backward states of all blocks, given all roots by block `(nodes, rows, width)`."""
    known = {index: torch.ones_like(top[..., :1]).bool() for index, top in tops.items()}
    return model.passing.backward_pass(tops, known, evidence or {})[0]


def _expected_table(model: VFG, states: list[Tensor]) -> Tensor:
    """The means of the leaves given backward states, in data units."""
    return model.scaling.undo(model.sections.join(model.leaf_means(states)))


@torch.no_grad()
def decode(model: VFG, states: Mapping[str, ArrayLike]) -> dict[str, Tensor]:
    """Backward messages: the expected data `(rows, columns)` of leaves given states above them.

    Args:
        model: the model.
        states: values of roots, and of other latent nodes to fix, `(rows, width)`. A root that
            is not given, or NaN, is at its prior's mean. If the result of `encode` is given,
            only its roots are used.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2))
        >>> model.decode({"root": torch.zeros(3, 2)})["a"].shape
        torch.Size([3, 1])
    """
    if isinstance(states, States):
        states = states.roots()
    evidence, rows, like = as_evidence(model, states)
    priors = model._prior_means(None)
    tops = {index: mean.expand(-1, rows, -1) for index, mean in priors.items()}
    table = _expected_table(model, _states_below(model, tops, evidence)).to(like)
    return {leaf: table[:, list(columns)] for leaf, columns in model.sections.positions.items()}


@torch.no_grad()
def sample(model: VFG, rows: int, *, label: int | ArrayLike | None = None, seed: int = 0) -> Tensor:
    """Draw rows: roots from the prior, backward messages, leaves from their likelihoods.

    With sampled states every latent node is drawn around the prediction of its parents. The roots
    of a trained model with deterministic states are drawn from a Normal with the moments that they
    had in training, because training does not keep them near the prior.

    Args:
        model: the model.
        rows: number of rows.
        label: one label for all rows or one per row, if the prior has labels.
        seed: of the draws.

    Example:
        >>> import vfg
        >>> vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2)).sample(5).shape
        torch.Size([5, 2])
    """
    _warn_untrained(model)
    labels = as_labels(model, label, rows)
    generator = torch.Generator(model._some.device).manual_seed(seed)
    if labels is None and knows_roots(model):
        return _calibrated_rows(model, rows, generator).to(model._some.dtype)
    if model.sampling is None:
        blocks = model._blocks_of(model.priors)
        tops = {index: model.prior_at(index).sample(rows, labels, generator) for index in blocks}
        states = _states_below(model, tops)
    else:  # nothing is observed, so that all nodes are drawn from p
        cells = model._some.new_zeros(rows, model.sections.columns)
        seen = torch.zeros_like(cells, dtype=torch.bool)
        draw = draw_states(model, cells, seen, labels, {}, generated_noise(generator), 1)
        states = [state[:, 0] for state in draw.states]
    drawn = {
        index: model.likelihood_at(index).sample(states[index], generator)
        for index in model._blocks_of(model.likelihoods)
    }
    return model.scaling.undo(model.sections.join(drawn)).to(model._some.dtype)


def _warn_untrained(model: VFG) -> None:
    """Warn of answers that come from parameters as they were drawn."""
    if not bool(model.is_trained):
        warnings.warn(
            "the model is not trained, so its answers follow from its random start alone; call "
            "vfg.fit(model, table) first, or load a trained model with vfg.load",
            stacklevel=4,  # above infer or sample and torch's no_grad
        )


def _calibrated_rows(model: VFG, rows: int, generator: torch.Generator) -> Tensor:
    """Rows from roots that are distributed as in training, with the noise of held-out cells."""
    spread, tops = model.spread, {}
    for place, index in enumerate(model._blocks_of(model.priors)):
        mean, factor = (spread.get_buffer(f"root_{part}{place}") for part in ("mean", "factor"))
        shape = (len(mean), rows, mean.shape[-1])
        normals = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        offset = normals @ factor.mT if factor.ndim == 3 else normals * factor[:, None]
        tops[index] = mean[:, None] + offset
    states = _states_below(model, tops)
    every = torch.ones_like(spread.log_noise, dtype=torch.bool).expand(rows, -1)
    drawn = {}
    for index, part in model.sections.split(noise_scale(model, every)).items():
        level = torch.rand(part.shape, generator=generator, dtype=torch.float64, device=part.device)
        drawn[index] = quantile(model.likelihood_at(index), states[index], level, part)
    return model.scaling.undo(model.sections.join(drawn))


@torch.no_grad()
def transport(model: VFG, value: ArrayLike, source: str, target: str) -> Tensor:
    r"""Map values of one node to another through their closest common ancestor.

    $\hat x^{(j)} = f_{(a,j)}(f_{(i,a)}(x^{(i)}))$ on a tree, with a the closest common ancestor.
    With mean aggregation this is the mean of `infer` if nothing but the source is observed; it
    differs if more is observed, or if nodes combine their messages with a prior.

    Args:
        model: a model whose graph is a tree.
        value: values of the source, none missing: `(rows, width)`, or `(rows,)` or a number if its
            width is 1.
        source: a leaf or latent node.
        target: a leaf or latent node.

    Returns:
        Values of the target, `(rows, width)`, in data units if it is a leaf.

    Raises:
        ValueError: if the graph is no tree, a node is unknown or a value is missing.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))  # edges are identities
        >>> transport(model, [1.0, 2.0], "a", "b").flatten()
        tensor([1., 2.], dtype=torch.float64)
    """
    graph = model.graph
    _check_tree(model)
    graph.node(source), graph.node(target)
    given = as_value(model, source, value)
    if not bool(given.isfinite().all()):
        raise ValueError(f"transport needs all of {source!r}, but its value has NaN or infinities")
    kind = given if given.is_floating_point() else given.new_zeros((), dtype=torch.float64)
    state = _to_state(model, source, given)
    ancestor = graph.common_ancestor(source, target)
    with evaluating(model):
        for edge in graph.path(source, ancestor):
            state = _up(model, edge, state)
        for edge in reversed(graph.path(target, ancestor)):
            state = _down(model, edge, state)
    return _from_state(model, target, state).to(kind)


def _check_tree(model: VFG) -> None:
    graph = model.graph
    if graph.is_tree:
        return
    several = [node.name for node in graph.nodes if len(graph.parents(node.name)) > 1]
    why = (
        f"node {several[0]!r} has the parents {', '.join(map(repr, graph.parents(several[0])))}"
        if several
        else f"there are several roots: {', '.join(map(repr, graph.roots))}"
    )
    raise ValueError(f"transport is defined on trees only, but {why}; use infer")


def _to_state(model: VFG, node: str, value: Tensor) -> Tensor:
    """A value in data units as a state `(rows, width)`."""
    if node not in model.sections.positions:
        return value.to(next(model.parameters()))
    cells, seen, _ = as_table(model, {node: value}, None)
    states = model._leaf_states(cells, seen)
    block, row = model.passing.schedule.place[node]
    return states[block].value[row]


def _from_state(model: VFG, node: str, state: Tensor) -> Tensor:
    """A state in data units."""
    if node not in model.sections.positions:
        return state
    schedule = model.passing.schedule
    states = [
        state.new_zeros((len(block.nodes), len(state), block.width)) for block in schedule.blocks
    ]
    block, row = schedule.place[node]
    states[block][row] = state
    return _expected_table(model, states)[:, list(model.sections.positions[node])]


def _place_of(model: VFG, edge: Edge) -> tuple[int, int]:
    """The group of an edge and its place there."""
    for index, group in enumerate(model.passing.schedule.groups):
        if edge in group.edges:
            return index, group.edges.index(edge)
    raise RuntimeError(f"edge {edge.name!r} is in no group")


def _up(model: VFG, edge: Edge, state: Tensor) -> Tensor:
    """f of one edge; coordinates of the parent that it does not cover get their default."""
    index, k = _place_of(model, edge)
    passing, group = model.passing, model.passing.group(index)
    members = len(passing.schedule.groups[index].edges)
    value = group.up(state.expand(members, *state.shape))[1][k]
    if group.coordinates is None:
        return value
    block, row = passing.schedule.place[edge.parent]
    whole = passing.default(block, model._prior_means(None))[row].expand(len(value), -1).clone()
    whole[:, group.coordinates.chosen[k]] = value
    return whole


def _down(model: VFG, edge: Edge, state: Tensor) -> Tensor:
    """f⁻¹ of one edge."""
    index, k = _place_of(model, edge)
    group = model.passing.group(index)
    members = len(model.passing.schedule.groups[index].edges)
    arrived = state if group.coordinates is None else state[:, group.coordinates.chosen[k]]
    return group.return_(arrived.expand(members, *arrived.shape))[k]
