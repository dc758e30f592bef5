"""Fitting the parts of a `TableModel`: columns, graph, linear start, members and mixtures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vfg.distributions.likelihoods import GaussianLikelihood
from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import exact_means, mean_function
from vfg.graph import Graph, Network
from vfg.graph.checks import suggestion
from vfg.imputation.calibration import calibrate_draws
from vfg.imputation.categories import (
    CategoryColumn,
    category_columns,
    fit_set_thresholds,
    without_own,
)
from vfg.imputation.constraints import Constraints, tightened_bounds
from vfg.imputation.ensemble import Ensemble
from vfg.imputation.extrapolation import (
    LINE,
    NEARLY_LINE,
    fit_following,
    followed_widths,
    furthest_ends,
)
from vfg.imputation.gaussian_processes import LeftOut, choose_rows, fit_processes, weigh_processes
from vfg.imputation.held_out import FEWEST_MEMBERS, held_out_rows, observed_range
from vfg.imputation.medians import fit_medians
from vfg.imputation.missingness import find_mechanism, find_reach, fit_together
from vfg.imputation.mixtures import (
    LINEAR_SETTINGS,
    START_ROWS,
    Mixture,
    fit_linear,
    fit_mixtures,
    star,
)
from vfg.imputation.parts import KINDS, Parts, Stacking
from vfg.imputation.plan import (
    BUDGET_EPOCH,
    EPOCH,
    EXTENDED_WEIGHT,
    FEWEST_ROWS,
    LEAST_GAIN,
    MOST_COLUMNS,
    MOST_ROWS,
    ROW_MIXTURE_KINDS,
    Plan,
    ProcessPlan,
    check_number_of_columns,
    make_plan,
)
from vfg.imputation.progress import (
    CALIBRATION,
    PROCESSES,
    TRAINING,
    TREES,
    FitBar,
    limited_threads,
)
from vfg.imputation.relations import EXACT, Relations, find_copies, find_relations
from vfg.imputation.resources import Resources, Turn
from vfg.imputation.row_mixture import (
    METRIC_SETS,
    Labels,
    RowMixture,
    fit_metrics,
    fit_row_mixture,
)
from vfg.imputation.settings import ImputerSettings
from vfg.imputation.shrinkage import SETS as SHRINKAGE_SETS
from vfg.imputation.shrinkage import SHARE as HELD_OUT
from vfg.imputation.shrinkage import TIME_SHARE as SHRINKAGE_TIME
from vfg.imputation.shrinkage import choose_shrinkage, deserves_choice
from vfg.imputation.stacking import fit_stacking, gain_towards_linear
from vfg.imputation.trees import MOST_ROWS as TREE_ROWS
from vfg.imputation.trees import HeldOutRows, TreeTable, Unseen, fit_weights, grow_forest
from vfg.inference import fit_calibration
from vfg.model import VFG
from vfg.tables.categorical import category_indices
from vfg.tables.cells import Array, Label, Mask
from vfg.tables.encoding import Encoding
from vfg.tables.frames import Table, quote
from vfg.tables.numeric import nearest_values
from vfg.tables.schema import Schema
from vfg.training.data import TrainingTable, choose_device, forked_generators, join_world
from vfg.training.history import Checkpoint, History, fingerprint
from vfg.training.loop import Run
from vfg.training.losses import draw_rows
from vfg.training.model_stack import repeat_columns, stack_models, unstack_models
from vfg.training.settings import Masking, RunSettings
from vfg.training.tasks import TableTask

if TYPE_CHECKING:
    from vfg.imputation.table_model import TableModel

FILLED_ROWS = 8192
"""Rows that are filled together for trees, which bounds memory."""
AS_GOOD = 1.02
"""How many times larger the squared error of held-out cells may be with values of few-valued
columns: uniform digits that nothing predicts, rounded, have 1.01."""
LINEAR_ROWS = (30, 1000)
"""Fewest and most rows that tell whether the linear model fills a few-valued column with values."""
ALL_LINEAR_ROWS = 10_000
"""The most of these rows of all columns together: two seconds for two hundred columns."""
LINEAR_SHARE = 0.6
"""The share of a budget that the linear model may take; beyond it there are no other parts."""
SHARES = {
    "held-out linear models": 0.08,
    "row mixtures": 0.17,
    "mixtures": 0.14,
    "weights": 0.15,
    "members": 0.15,
    "trees": 0.2,
    "Gaussian processes": 0.15,
    "calibration": 0.11,
}
"""The shares of parts, those that are planned, in the time after the linear model. Without a budget
they took 6, 17, 19, 14, 0, 23, 8 and 12 % of it (means of three tables)."""
USED = 0.98
"""The share of a budget that is given to parts; the rest is for putting them together."""
FILLING_SHARE = 0.4
"""The share of the time of trees, and of processes, in which rows are filled for them."""
FILLED_TOGETHER = 256
"""Rows that are filled together where time is limited, before the clock is read again."""
FEWEST_LINEAR_ROWS = 500
"""Rows to which linear models of held-out cells are fitted at least under a budget."""
MASKING = Masking(rate=1.0, keep=(0.3, 1.0), visible=0.2)
"""Every step hides cells, since members are used for filling only."""
ROWS_OF_ERRORS = 4096
"""Rows with held-out cells from which the errors of the linear model are estimated: a column with
a tenth of its cells held out has about 400 of them, enough for a scale within 4 %."""
CALIBRATION_CELLS = 16_384
"""How many cells the spread of draws is calibrated with, about, in `CALIBRATION_ROWS` rows."""
CALIBRATION_ROWS = (24, 256)
"""The fewest and the most rows for calibration."""


def fit_parts(
    table: Table,
    settings: ImputerSettings,
    start: TableModel | None = None,
    weights: Tensor | None = None,
) -> tuple[Encoding, list[int], Parts]:
    """Fit all parts to a table; every column is read once.

    Rows count as often as `weights` say. A model as `start` keeps its encoding and graph, and
    copies of its members are trained further. Returned are the encoding, the modelled columns of
    its matrix, and the parts.
    """
    settings.warn_of_unused()
    with limited_threads(settings.n_jobs) as workers, FitBar(visible=settings.progress) as bar:
        resources = Resources(settings.budget, bar, workers, members=settings.members is not None)
        fitted = _fit_parts(table, settings, start, resources, weights)
        fitted[-1].left_out = tuple(resources.left_out)
        return fitted


def _fit_parts(
    table: Table,
    settings: ImputerSettings,
    start: TableModel | None,
    resources: Resources,
    weights: Tensor | None,
) -> tuple[Encoding, list[int], Parts]:
    often, members = None if weights is None else weights.numpy(), None
    with resources.bar.part("reading", 0.5):
        encoding = fit_encoding(table, settings, often) if start is None else start.encoding
        check_number_of_columns(encoding.width)
    with resources.bar.part("encoding", 0.5):
        values, observed, rows, weights = encoding.weighted_matrix(table, often)
        whole = values, observed
        if start is None:
            columns, graph = choose_columns(encoding, whole, settings, weights)
        else:
            columns = start.columns
            graph = None if start.linear is None else start.linear.graph
            members = [deepcopy(member).cpu() for member in start.member_models] or None
    constraints, given = Constraints.of(settings.constraints, encoding), None
    if constraints is not None:
        constraints.check(table)
        given = constraints.equations(columns)
    categories = category_columns(encoding, columns)
    labels = read_labels(table, encoding, categories)
    labels = labels._replace(places=labels.places[rows])
    extra = encoding.unordered[columns], list(categories.values()), labels
    few_valued = encoding.few_valued(columns)
    # A whole schema may be that of another fit, whose columns were inferred.
    given_kinds = () if isinstance(settings.schema, Schema) else settings.schema or ()
    starts = {encoding.sections[label].start for label in given_kinds}
    declared = [place for place in few_valued if columns[place] in starts]
    parts = _fit_to_matrix(
        columns,
        graph,
        whole,
        *extra,
        few_valued,
        declared,
        settings,
        members,
        resources,
        weights,
        given,
    )
    encoding = encoding.filling_values([columns[k] for k in parts.with_values])
    if parts.mechanism.reach is not None:
        ends, found = parts.mechanism.reach.numpy(), parts.mechanism.slopes is not None
        lines = None if parts.slope_errors is None else (parts.slope_errors <= LINE).numpy()
        encoding = encoding.reaching(columns, ends, turns_positive=found, lines=lines)
    if parts.slope_errors is not None:
        lines = (parts.slope_errors <= NEARLY_LINE).all(0).numpy()
        exact = _in_exact_relations(parts, len(columns))
        encoding = encoding.seeing_further(columns, lines, exact)
    return encoding, columns, parts


def _in_exact_relations(parts: Parts, columns: int) -> Mask:
    """Which columns follow exactly from others, where these are known."""
    known = parts.relations
    if known is None:
        return np.zeros(columns, dtype=bool)
    coefficients = known.coefficients[known.noise == 0.0, :-1]
    return (coefficients.abs() > EXACT).any(0).numpy()


def read_labels(
    table: Table, encoding: Encoding, categories: Mapping[Label, CategoryColumn]
) -> Labels:
    """The categories of the rows of a table."""
    position = {label: place for place, label in enumerate(encoding.schema)}
    places = [
        category_indices(table.column(position[label]), column.part.categories)
        for label, column in categories.items()
    ]
    stacked = np.stack(places, axis=1) if places else np.zeros((table.rows, 0), dtype=np.int64)
    return Labels(torch.from_numpy(stacked), [len(c.part.categories) for c in categories.values()])


def fit_encoding(table: Table, settings: ImputerSettings, weights: Array | None = None) -> Encoding:
    """Fit the encoding of a table; filled cells stay within the observed range."""
    schema, marker = settings.schema, settings.missing_values
    if not isinstance(schema, Schema):
        schema = Schema.infer(table, schema, missing_values=marker, discrete=settings.discrete)
    if settings.bounds is not None:
        schema = schema.bounded(settings.bounds)
    if settings.constraints:
        schema = schema.bounded(tightened_bounds(settings.constraints, schema))
    return Encoding.fit(schema, table, missing_values=marker, weights=weights)


def _fit_to_matrix(
    columns: list[int],
    graph: Graph | None,
    whole: tuple[Tensor, Tensor],
    unordered: Tensor,
    categories: list[CategoryColumn],
    labels: Labels,
    few_valued: Mapping[int, Array],
    declared: Sequence[int],
    settings: ImputerSettings,
    members: list[VFG] | None,
    resources: Resources,
    weights: Tensor | None,
    given: Tensor | None,
) -> Parts:
    if graph is None:
        return Parts()
    values, observed, rows = _matrix(whole, columns, settings.seed)
    weights = None if weights is None else weights[rows]
    parts = _fit_linear_parts(
        graph, values, observed, unordered, settings, resources, weights, given
    )
    # Without held-out cells, columns that are few valued only by inference keep their means.
    if not supports_deep(graph, len(values), settings.bend):
        left_out = _without_columns(parts, declared, (values, observed, weights), settings.seed)
        parts.with_values = _filled_with_values(few_valued, left_out)
        return parts
    plan = _make_plan(values, observed, settings, members, bool(categories))
    if settings.structure is not None:
        plan = replace(plan, trees=0, processes=None)
    if resources.is_past(LINEAR_SHARE) and not resources.members:
        resources.leave_out(*_planned(plan))
        return parts
    wanted = {"held-out linear models", *_planned(plan), "weights", "calibration"}
    resources.share_out({part: x for part, x in SHARES.items() if part in wanted}, USED)
    own = labels._replace(places=labels.places[rows])
    votes = not all(column.part.is_simplex for column in categories)
    stacked = fit_members(
        graph,
        values,
        observed,
        plan,
        seed=settings.seed,
        resources=resources,
        device=choose_device(settings.device),
        unordered=unordered,
        categories=categories,
        labels=own if votes else None,
        members=members,
        checkpoint=settings.checkpoint,
        relations=parts.relations,
        weights=weights,
        shrinkage=parts.shrinkage,
    )
    if stacked.combination is None:  # there was no time for a part that can be weighed
        resources.leave_out(*_planned(plan))
        return parts
    stacked.linear, stacked.mechanism = parts.linear, parts.mechanism
    stacked.following, stacked.slope_errors = parts.following, parts.slope_errors
    _fit_second_stage(
        stacked, graph, (values, observed, weights), unordered, categories, own, few_valued, plan,
        settings.seed, resources,
    )  # fmt: skip
    return stacked


def _fit_linear_parts(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    unordered: Tensor,
    settings: ImputerSettings,
    resources: Resources,
    weights: Tensor | None,
    given: Tensor | None,
) -> Parts:
    """The linear model, exact relations, why cells are missing, and how far fills may reach."""
    bar, seed = resources.bar, settings.seed
    with bar.part("shrinkage", 0.5):
        shrinkage = LINEAR_SETTINGS.shrinkage  # where the user says which columns are related
        if settings.structure is None:
            shrinkage = _choose_shrinkage(graph, values, observed, seed, weights, resources)
    with resources.measured():
        with bar.part("linear model", 1.0), resources.measured():
            linear = fit_linear(graph, values, observed, seed, weights=weights, shrinkage=shrinkage)
        resources.linear = resources.last
        with bar.part("relations", 0.5):
            relations = find_relations(values, observed, linear, unordered, weights, given)
        with bar.part("missing cells", 0.5):
            mechanism = find_mechanism(
                linear, values, observed, unordered, assumed=settings.missingness, seed=seed,
                weights=weights,
            )  # fmt: skip
            if settings.structure is None:  # the Normal model of all columns has no other graph
                mechanism = fit_together(mechanism, values, observed, seed, weights)
        with bar.part("ranges", 0.5):
            reach = find_reach(linear, values, observed, mechanism, seed)
            mechanism = replace(mechanism, reach=reach)
            following = uncertain = None
            if mechanism.slopes is None:
                table = values, observed, unordered
                following, uncertain = fit_following(linear, *table, weights, seed)
                widths, ends = followed_widths(uncertain), observed_range(values, observed)
                ends = furthest_ends(following, widths, ends)
                mechanism = replace(mechanism, reach=ends)
    return Parts(
        linear=linear, shrinkage=shrinkage, relations=relations, following=following,
        slope_errors=uncertain, mechanism=mechanism,
    )  # fmt: skip


def _choose_shrinkage(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    seed: int,
    weights: Tensor | None,
    resources: Resources,
) -> float:
    """The pseudo-rows of linear models; as usual in tables for which it changes little."""
    number = float(len(values)) if weights is None else float(weights.sum())
    if not deserves_choice(number, values.shape[1]):
        return LINEAR_SETTINGS.shrinkage
    # Drawn among different rows that count, so that weights equal repeated rows in any order.
    counts = torch.ones(len(values), dtype=torch.bool) if weights is None else weights > 0.0
    cells = torch.cat([values, observed.to(values)], dim=1)[counts]
    distinct, places = cells.unique(dim=0, return_inverse=True)
    known, held = distinct[:, values.shape[1] :] > 0.0, []
    for k in range(SHRINKAGE_SETS):
        own = torch.zeros_like(observed)
        own[counts] = _hold_out_sections(graph, known, HELD_OUT, seed * 1009 + k)[places]
        held.append(own)
    turn = resources.turn("linear model").first(SHRINKAGE_TIME)
    return choose_shrinkage(graph, values, observed, held, seed, weights, turn)


def _make_plan(
    values: Tensor,
    observed: Tensor,
    settings: ImputerSettings,
    members: list[VFG] | None,
    has_categories: bool,
) -> Plan:
    """What is fitted after the linear model, by the shape of the table and the settings."""
    return make_plan(
        *values.shape,
        effort=settings.effort,
        known=float(observed.double().mean()),
        members=settings.members if members is None else len(members),
        mixtures=settings.mixtures,
        # Row mixtures do not use a given graph.
        neighbours=settings.neighbours if settings.structure is None else 0,
        width=settings.width,
        flow=settings.flow,
        steps=settings.steps,
        trees=settings.trees,
        categories=has_categories,
    )


def _fit_second_stage(
    parts: Parts,
    graph: Graph,
    matrix: tuple[Tensor, Tensor, Tensor | None],
    unordered: Tensor,
    categories: list[CategoryColumn],
    labels: Labels,
    few_valued: Mapping[int, Array],
    plan: Plan,
    seed: int,
    resources: Resources,
) -> None:
    """Fit what builds on the stacked parts: trees, Gaussian processes, few values, sets."""
    values, observed, weights = matrix
    held_out, unseen = held_out_rows(parts, categories, labels), None
    if plan.trees:
        cells = values, observed, labels.places
        with resources.part("trees", TREES) as turn:
            held_out, unseen = _add_forest(
                parts, graph, cells, categories, plan.trees, seed, held_out, weights, turn
            )
    ordered = torch.ones(values.shape[1], dtype=torch.bool)
    ordered[[place for column in categories for place in column.places]] = False
    left_out = None
    if plan.processes is not None:
        with resources.part("Gaussian processes", PROCESSES) as turn:
            held_out, left_out = _add_processes(
                parts, matrix, ordered, plan.processes, seed, held_out, turn
            )
    with resources.part("calibration", CALIBRATION) as turn:
        not_seen, table = (unseen, left_out), (values, observed)
        parts.combination = calibrate_draws(parts, not_seen, ordered, table, seed, turn)
        if not turn.is_past:
            few = few_valued, len(values), seed
            parts.medians = fit_medians(parts, held_out, unordered, *few)
    parts.with_values = _filled_with_values(few_valued, held_out)
    if categories:
        parts.set_thresholds = _fit_sets(categories, held_out)
    parts.held_out = ()
    parts.exact_at_held.clear()


def _fit_sets(categories: list[CategoryColumn], held_out: Sequence[HeldOutRows]) -> Tensor:
    """Thresholds of the sets of categories, `(columns of categories, levels)`."""
    cells: list[list[tuple[Array, Array]]] = [[] for _ in categories]
    for one in held_out:
        for column, own, known in zip(categories, cells, one.probabilities, strict=True):
            if known is not None:
                _, shares, truth = known
                own.append((without_own(column, shares, truth), truth))
    return torch.from_numpy(fit_set_thresholds(cells))


def _add_forest(
    parts: Parts,
    graph: Graph,
    matrix: tuple[Tensor, Tensor, Tensor],
    categories: list[CategoryColumn],
    trees: int,
    seed: int,
    held_out: list[HeldOutRows],
    weights: Tensor | None,
    turn: Turn,
) -> tuple[list[HeldOutRows], Unseen | None]:
    """Grow and weigh trees on values, mask and categories.

    Returned are what held-out rows are expected then, and what did not see which rows.
    """
    if turn.is_past:
        turn.give_up()
        return held_out, None
    values, observed, places = matrix
    chosen = draw_rows(torch.ones(len(values), dtype=torch.bool), TREE_ROWS, seed)
    chosen, filled = _fill_rows(parts, values, observed, chosen, seed, turn.first(FILLING_SHARE))
    x, seen = values[chosen], observed[chosen]
    copies = torch.from_numpy(find_copies(x.numpy(), seen.numpy()))
    often = None if weights is None else weights[chosen]
    cells = x, seen, filled, categories, places[chosen], copies, often
    linear = None if parts.linear is None else mean_function(parts.linear)
    table = TreeTable(list(graph.sections.values()), *cells, linear)
    grown = grow_forest(table, trees, seed, turn)
    if grown is None:
        return held_out, None
    parts.forest, unseen = grown
    everywhere = {k: torch.ones(len(values), own.shape[1]) for k, own in unseen.trees.items()}
    for k, own in unseen.trees.items():
        everywhere[k][chosen] = own.float()
    folds = torch.zeros(len(values), dtype=torch.long)  # no regression saw rows beyond the chosen
    folds[chosen] = unseen.folds
    frequencies = [column.frequencies for column in categories]
    unseen = unseen._replace(trees=everywhere, folds=folds)
    return fit_weights(parts.forest, unseen, held_out, frequencies), unseen


def _add_processes(
    parts: Parts,
    matrix: tuple[Tensor, Tensor, Tensor | None],
    ordered: Tensor,
    plan: ProcessPlan,
    seed: int,
    held_out: list[HeldOutRows],
    turn: Turn,
) -> tuple[list[HeldOutRows], LeftOut | None]:
    """Fit and weigh Gaussian process regressions; what held-out rows are expected then."""
    if turn.is_past:
        turn.give_up()
        return held_out, None
    values, observed, weights = matrix
    copies = torch.from_numpy(find_copies(values.numpy(), observed.numpy()))
    rows = choose_rows(copies, plan.rows, seed)
    rows, filled = _fill_rows(parts, values, observed, rows, seed, turn.first(FILLING_SHARE))
    often = None if weights is None else weights[rows]
    cells, targets = (values[rows], observed[rows], filled), ordered.nonzero()[:, 0].tolist()
    own = torch.zeros_like(observed)
    for one in held_out:
        own[one.ids] |= one.counted > 0
    left_out = fit_processes(rows, cells, copies, targets, plan, seed, often, turn, own[rows])
    if left_out is None:
        return held_out, None
    parts.processes = left_out.processes
    return weigh_processes(left_out, held_out), left_out


def _fill_rows(
    parts: Parts, values: Tensor, observed: Tensor, rows: Tensor, seed: int, turn: Turn
) -> tuple[Tensor, Tensor]:
    """Rows of a matrix, or as many random ones of them as there is time for, and these filled."""
    if not turn.is_limited:
        return rows, _filled(parts, values[rows], observed[rows])
    generator = torch.Generator().manual_seed(seed)
    order, filled = rows[torch.randperm(len(rows), generator=generator)], list[Tensor]()
    for own in order.split(FILLED_TOGETHER):
        if filled and not turn.has_time_for_another(len(filled)):
            break
        filled.append(_filled(parts, values[own], observed[own]))
    together = torch.cat(filled)
    kept, places = order[: len(together)].sort()
    return kept, together[places]


@torch.no_grad()
def _filled(parts: Parts, values: Tensor, observed: Tensor) -> Tensor:
    """A matrix whose missing entries are filled by the stacked parts, without trees."""
    model, rows = Ensemble(values.shape[1], parts), torch.arange(len(values))
    pieces = [
        model.joint_means(values[own], observed[own], own).means for own in rows.split(FILLED_ROWS)
    ]
    return torch.cat(pieces)


def _filled_with_values(
    few_valued: Mapping[int, Array], held_out: Sequence[HeldOutRows]
) -> tuple[int, ...]:
    """The few-valued columns whose held-out cells are predicted as well by values that occur."""
    chosen = []
    for place, values in few_valued.items():
        cells, errors = 0, np.zeros(2)
        for one in held_out:
            rows = one.counted[:, place] > 0
            expected, truth = (x[rows, place].numpy() for x in (one.means, one.values))
            nearest = nearest_values(expected, values)
            often = one.counted[rows, place].numpy()
            errors += [often @ np.square(x - truth) for x in (expected, nearest)]
            cells += len(truth)
        if cells and errors[1] <= AS_GOOD * errors[0]:
            chosen.append(place)
    return tuple(chosen)


def _without_columns(
    parts: Parts,
    places: Sequence[int],
    matrix: tuple[Tensor, Tensor, Tensor | None],
    seed: int,
) -> list[HeldOutRows]:
    """Rows as the linear model predicts their cells of one of some columns from the others.

    The model was fitted to these cells, but has few parameters. Nothing is predicted where there
    are so many columns that few rows are left for each.
    """
    values, observed, weights = matrix
    most = min(LINEAR_ROWS[1], ALL_LINEAR_ROWS // max(1, len(places)))
    if not places or most < LINEAR_ROWS[0]:
        return []
    drawn = [draw_rows(observed[:, place], most, seed) for place in places]
    rows = torch.cat(drawn)
    columns = torch.tensor(places).repeat_interleave(torch.tensor([len(x) for x in drawn]))
    shown, counted = observed[rows].clone(), torch.zeros(len(rows), values.shape[1]).double()
    each = torch.arange(len(rows))
    shown[each, columns] = False
    counted[each, columns] = 1.0 if weights is None else weights[rows].double()
    means = _filled(parts, torch.where(shown, values[rows], 0.0), shown)
    return [HeldOutRows(rows, values[rows], shown, counted, means, [])]


def _matrix(
    whole: tuple[Tensor, Tensor], columns: list[int], seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The entries to fit, and their rows: at most `MOST_ROWS` with observed cells."""
    values, observed = (part[:, columns] for part in whole)
    rows = draw_rows(observed.any(1), MOST_ROWS, seed)
    return values[rows].contiguous(), observed[rows].contiguous(), rows


def choose_columns(
    encoding: Encoding,
    whole: tuple[Tensor, Tensor],
    settings: ImputerSettings,
    weights: Tensor | None = None,
) -> tuple[list[int], Graph | None]:
    """The columns of the matrix that are modelled, leaf by leaf, and a graph over them.

    Without a graph the leaves are ordered by the contents of their columns, so that the order of a
    table's columns does not matter. The graph is None if no column is informative.
    """
    if settings.structure is not None:
        return _graph_over(settings.structure, encoding)
    active = [label for label in encoding.sections if label not in encoding.idle]

    def key(label: Label) -> tuple[float, ...]:
        values, observed = (part[:, encoding.sections[label]] for part in whole)
        return _contents(values, observed, weights)

    active.sort(key=key)
    columns = [place for label in active for place in encoding.places(label)]
    if not active:
        return columns, None
    widths = [encoding.parts[label].width for label in active]
    plan = make_plan(1000, len(columns), width=settings.width)
    root = star(widths, plan.width)
    return columns, Graph(root.nodes, root.edges, _check_causes(settings.causes, encoding))


def _check_causes(causes: Network | None, encoding: Encoding) -> Network | None:
    """Causes and effects, if all are columns of the table."""
    names = list(map(str, encoding.schema))
    for name in () if causes is None else dict.fromkeys(chain(*causes.edges)):
        if name not in names:
            raise ValueError(
                f"graph= names {name!r}, which is no column of the table; {suggestion(name, names)}"
            )
    return causes


def _contents(values: Tensor, observed: Tensor, weights: Tensor | None) -> tuple[float, ...]:
    """A sort key of columns that does not depend on their sign or order."""
    sizes = values.abs().T.contiguous()
    steps = torch.arange(1.0, len(values) + 1.0, dtype=torch.float64)
    often = torch.ones_like(steps) if weights is None else weights
    return (
        float(values.shape[1]),
        float((observed.T * often).sum()),
        float((sizes.pow(3) * often).sum()),
        float((sizes * steps).sum()),
    )


def _graph_over(graph: Graph, encoding: Encoding) -> tuple[list[int], Graph]:
    """The encoded columns in the order of a user's leaves, and the graph with their widths."""
    labels = _labels(graph, encoding)
    _check_labels(labels, encoding)
    columns: list[int] = []
    nodes = []
    for node in graph.nodes:
        if node.name in labels:
            own = [place for label in labels[node.name] for place in encoding.places(label)]
            places = tuple(range(len(columns), len(columns) + len(own)))
            columns += own
            node = replace(node, width=len(places), columns=places)
        nodes.append(node)
    return columns, Graph(nodes, graph.edges, graph.causes)


def _labels(graph: Graph, encoding: Encoding) -> dict[str, tuple[Label, ...]]:
    """The columns of the table that every leaf holds.

    These are the columns that it names, by name or position; else the column of its own name; else,
    if no leaf names any, consecutive columns by the widths of the leaves.
    """
    known = list(encoding.sections)
    widths = graph.sections
    named = graph.columns is not None or all(leaf in encoding.sections for leaf in widths)
    if not named and sum(widths.values()) == len(known):
        columns = iter(known)
        return {leaf: tuple(next(columns) for _ in range(width)) for leaf, width in widths.items()}
    given = {leaf: graph.node(leaf).columns or (leaf,) for leaf in widths}
    positions: dict[Label, Label] = dict(enumerate(known))
    return {
        leaf: tuple(c if c in encoding.sections else positions.get(c, c) for c in columns)
        for leaf, columns in given.items()
    }


def _check_labels(labels: dict[str, tuple[Label, ...]], encoding: Encoding) -> None:
    named = [label for columns in labels.values() for label in columns]
    unknown = [label for label in named if label not in encoding.sections]
    lacking = [
        label for label in encoding.sections if label not in named and label not in encoding.idle
    ]
    wrong = [f"the table lacks {quote(unknown)}"] if unknown else []
    wrong += [f"the graph lacks {quote(lacking)}"] if lacking else []
    if wrong:
        raise ValueError(
            f"the leaves of the graph must hold the columns of the table, but {' and '.join(wrong)}"
            "; name leaves like columns, or give them columns="
        )


def supports_deep(graph: Graph, rows: int, wanted: bool = True) -> bool:
    """Whether there are enough rows, and the graph has a nonlinear form.

    Trees of flows have one if all latent nodes have the same width and no leaf exceeds it.

    Example:
        >>> supports_deep(Graph.star({"a": 1, "b": 1}, width=2), rows=100)
        True
        >>> network = Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("a", "b")])
        >>> supports_deep(network, rows=100)
        False
    """
    if not wanted or rows < FEWEST_ROWS or not 2 <= len(graph.leaves) <= MOST_COLUMNS:
        return False
    is_forest = all(len(graph.parents(edge.child)) == 1 for edge in graph.edges)
    plain = all(edge.kind == "flow" and edge.coordinates is None for edge in graph.edges)
    latent = [node for node in graph.nodes if node.name not in graph.sections]
    alike = len({node.width for node in latent}) == 1
    wide = max(graph.sections.values()) <= latent[0].width
    joint = all(node.aggregation in (None, "gaussian") for node in latent)
    return is_forest and plain and alike and wide and joint


def fit_members(
    graph: Graph,
    values: Tensor,
    observed: Tensor,
    plan: Plan,
    *,
    seed: int,
    resources: Resources,
    device: torch.device,
    unordered: Tensor | None = None,
    categories: Sequence[CategoryColumn] = (),
    labels: Labels | None = None,
    members: list[VFG] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    relations: Relations | None = None,
    weights: Tensor | None = None,
    shrinkage: float = LINEAR_SETTINGS.shrinkage,
) -> Parts:
    """Fit members, mixtures and row mixtures, and their stacking, within the time there is.

    Exact parts come first: they bring most per second. Members start linear and are trained
    together to fill hidden cells; they come back on the CPU. They are left out where the held-out
    cells promise too little, if the plan says so, and where the stacked exact parts have used up
    the time of a budget.
    Every member and every mixture has random held-out cells of its own. Row mixtures have none.
    The matrix is 0 where nothing is known. `labels` are the categories of `categories`; `members`
    are trained further instead of new ones; a folder `checkpoint` keeps their training. The parts
    have no `linear`, and of the relations those that are useful. Losses of rows are multiplied by
    `weights` over their mean. Parts have no combination if there is no time for any that could be
    weighed.
    """
    often = None if weights is None else weights / weights.mean()
    no_order = torch.zeros(values.shape[1], dtype=torch.bool) if unordered is None else unordered
    task = MatrixFit(
        graph, values, observed, no_order, labels, plan, seed, resources, often, shrinkage
    )
    number = max(plan.sets, plan.mixtures.number if plan.mixtures else 0)
    held_out = [task.hold_out(k) for k in range(number)]
    resources.bar.plan(_work(plan))
    linears = None if members is not None else task.fit_linears(held_out[: plan.sets])
    parts = Parts([], linears, [], task.fit_row_mixtures(held_out), relations=relations)
    parts.mixtures = task.fit_mixtures(held_out)
    held = held_out[: len(members or linears or [])]

    def weigh(parts: Parts) -> Stacking:
        own = held[: len(parts.members) or None]  # all, if no part needs a set of its own
        within = "members" if parts.members else "weights"
        with resources.part("weights", 2, within) as turn, resources.measured():
            stacking = fit_stacking(
                parts, values, observed, own, categories=categories, labels=labels, seed=seed,
                turn=turn, weights=often,
            )  # fmt: skip
        resources.bar.show_error(stacking.error)
        return stacking

    exact, early = bool(parts.mixtures or parts.neighbours), resources.budget is not None
    if exact and (not plan.members or plan.adaptive or early) and members is None:
        parts.combination = weigh(parts)
    pays = not plan.adaptive or gain_towards_linear(parts) >= LEAST_GAIN
    has_time = resources.is_left_for_members()
    if parts.combination is None and not (has_time or members) and not plan.members:
        return parts
    if parts.combination is None or (plan.members and pays and has_time):
        own = members or task.start_members(linears or [], held)
        parts = task.train_members(parts, own, held, weigh, device, checkpoint)
    elif plan.members and pays:
        resources.leave_out("members")
    resources.bar.plan(_second_work(plan))
    assert parts.combination is not None
    # The first row mixture, whose metrics they are, predicts by them as well as all do.
    uses_metrics = parts.combination.means.targeted is not None
    for mixture in parts.neighbours[1 if uses_metrics else 0 :]:
        mixture.metric = None
    if relations is not None and parts.combination.useful is not None:
        parts.relations = relations.select(parts.combination.useful)
    return parts


def _work(plan: Plan) -> float:
    """The work of all parts, in units of a linear model, about."""
    rows, mixtures = (0 if x is None else x.number for x in (plan.neighbours, plan.mixtures))
    weights, training = 2.0, TRAINING if plan.members else 0.0
    return plan.sets + 2.0 * (rows + mixtures) + weights + training + _second_work(plan)


def _second_work(plan: Plan) -> float:
    """The same of what builds on the stacked parts."""
    return TREES * bool(plan.trees) + PROCESSES * (plan.processes is not None) + CALIBRATION


def _planned(plan: Plan) -> list[str]:
    """The parts beside the linear model that a plan has."""
    planned = {
        "row mixtures": plan.neighbours is not None and plan.neighbours.number > 0,
        "mixtures": plan.mixtures is not None and plan.mixtures.number > 0,
        "members": plan.members > 0,
        "trees": plan.trees > 0,
        "Gaussian processes": plan.processes is not None,
    }
    return [part for part, is_planned in planned.items() if is_planned]


def _deserve_training(parts: Parts, plan: Plan) -> bool:
    """Whether members that were trained briefly predict so much that more training pays."""
    assert parts.combination is not None
    weight = float(parts.combination.means.weights[KINDS.index("members")])
    return plan.more_steps > 0 and weight >= EXTENDED_WEIGHT


@dataclass(frozen=True)
class MatrixFit:
    """A matrix that parts are fitted to, and how."""

    graph: Graph  # over the sections of the matrix
    values: Tensor  # (rows, columns), 0 where nothing is known
    observed: Tensor  # which entries are known
    unordered: Tensor  # columns that have no order
    labels: Labels | None  # categories that row mixtures vote for
    plan: Plan
    seed: int
    clock: Resources
    weights: Tensor | None = None  # of rows, 1 on average
    shrinkage: float = LINEAR_SETTINGS.shrinkage  # pseudo-rows of linear models

    @cached_property
    def copies(self) -> Tensor:
        """For every row the first row that it is a copy of."""
        return torch.from_numpy(find_copies(self.values.numpy(), self.observed.numpy()))

    def hold_out(self, part: int) -> Tensor:
        """The held-out entries of a part, by its number."""
        share, own = self.plan.held_out, self.seed * 1009 + part
        return _hold_out_sections(self.graph, self.observed, share, own, self.copies)

    def fit_linears(self, held: list[Tensor]) -> list[GaussianVFG]:
        """Linear models without the held-out cells of each set, or of a few under a budget."""
        linears: list[GaussianVFG] = []
        number = len(held) if self.clock.budget is None else min(len(held), self.fewest_sets)
        table = self._table_for_linears(number)
        for k, own in enumerate(held[:number]):
            if linears and self.clock.turn("held-out linear models").is_past:
                break
            values, shown, rows, often = table
            with self.clock.part("held-out linear models", 1):
                linears.append(fit_linear(
                    self.graph, values, shown & ~own[rows], self.seed * 1009 + k,
                    inner_noise=False, weights=often, shrinkage=self.shrinkage,
                ))  # fmt: skip
        return linears

    @property
    def fewest_sets(self) -> int:
        """How many sets of held-out cells are used under a budget."""
        return max(FEWEST_MEMBERS, self.plan.members)

    def _table_for_linears(
        self, number: int
    ) -> tuple[Tensor, Tensor, Tensor | slice, Tensor | None]:
        """Values, mask, places and weights of rows that so many models have time for."""
        turn = self.clock.turn("held-out linear models")
        share = turn.left / max(number * self.clock.linear, 1e-9)
        if share >= 1.0:
            return self.values, self.observed, slice(None), self.weights
        generator = torch.Generator().manual_seed(self.seed)
        most = max(FEWEST_LINEAR_ROWS, int(share * min(len(self.values), START_ROWS)))
        rows = torch.randperm(len(self.values), generator=generator)[:most].sort().values
        often = None if self.weights is None else self.weights[rows]
        return self.values[rows], self.observed[rows], rows, often

    def start_members(self, linears: list[GaussianVFG], held: list[Tensor]) -> list[VFG]:
        """Members that start as linear models."""
        members = []
        chosen = zip(linears[: self.plan.members], held, strict=False)
        for k, (linear, own) in enumerate(chosen):
            shown, start = self.observed & ~own, self.seed * 1009 + k
            members.append(VFG.from_gaussian(linear, flow=self.plan.flow, seed=start).float())
            _weigh_columns(members[-1], linear, self.values, shown, own, start)
        return members

    def train_members(
        self,
        parts: Parts,
        members: list[VFG],
        held: list[Tensor],
        weigh: Callable[[Parts], Stacking],
        device: torch.device,
        checkpoint: str | os.PathLike[str] | None,
    ) -> Parts:
        """Parts with trained members, for more steps where they get much weight."""
        exact, own = parts, held[: len(members)]
        model = stack_models(members)
        for turn, steps in enumerate((self.plan.steps, self.plan.more_steps)):
            folder = None if checkpoint is None else os.path.join(checkpoint, f"turn-{turn}")
            seconds = self.clock.left_for_training()
            history = self.train(model, own, steps, seconds, device, folder)
            late = self.clock.turn("all").left < self.clock.last
            late = late and not self.clock.members
            if exact.combination is not None and late:
                return exact  # there is no time to weigh the members
            unstack_models(model, members)
            if not parts.mixtures and not parts.neighbours:  # which draw instead of members
                self.calibrate(members, own)
            # A model that was on a GPU keeps tensors there that are no part of its state.
            stack = (model if device.type == "cpu" else stack_models(members)).eval()
            parts = replace(parts, members=members, stack=stack, history=history)
            parts.combination = weigh(parts)
            if self.clock.turn("weights").is_past or not _deserve_training(parts, self.plan):
                break
        return parts

    def fit_row_mixtures(self, held: list[Tensor]) -> list[RowMixture]:
        """As many mixtures with a component at every row as planned, or as the time allows.

        Metrics are fitted without the cells at which they are weighed.
        """
        sizes, left = self.plan.neighbours, self.clock.left("row mixtures")
        if sizes is None or not sizes.number:
            return []
        sizes = sizes if left is None else sizes.within(left)
        kinds = [ROW_MIXTURE_KINDS[place % len(ROW_MIXTURE_KINDS)] for place in range(sizes.number)]
        mixtures: list[RowMixture] = []
        whole = self.clock.turn("row mixtures")
        for place, kind in enumerate(kinds):
            if not whole.has_time_for_another(len(mixtures)):
                break
            with self.clock.part("row mixtures", 2):
                mixtures.append(fit_row_mixture(
                    self.values, self.observed, kind, unordered=self.unordered,
                    width=self.plan.width, most=sizes.components, labels=self.labels,
                    seed=self.seed * 1009 + place, copies=self.copies, weights=self.weights,
                ))  # fmt: skip
        if not mixtures:
            self.clock.leave_out("row mixtures")
        if mixtures and self.plan.metrics and whole.has_time_for_another(len(mixtures)):
            targets = (~self.unordered).nonzero()[:, 0].tolist()
            hidden = torch.stack(held[:METRIC_SETS]).any(0)
            fit_metrics(mixtures[0], targets, self.seed * 1009, hidden)
            for other in mixtures[1:]:
                other.metric = mixtures[0].metric
        return mixtures

    def fit_mixtures(self, held: list[Tensor]) -> list[Mixture]:
        """As many exact mixtures as planned, or as the time allows, each without its own cells."""
        sizes, left = self.plan.mixtures, self.clock.left("mixtures")
        if sizes is None or not sizes.number:
            return []
        if left is not None:
            sizes = sizes.within(left / min(sizes.number, 2))
        table = self.graph, self.values, self.observed
        with self.clock.part("mixtures", 2 * sizes.number) as turn:
            mixtures = fit_mixtures(
                *table, held, sizes, unordered=self.unordered, seed=self.seed, turn=turn,
                workers=self.clock.workers, weights=self.weights,
            )  # fmt: skip
            if not mixtures:
                turn.give_up()
        return mixtures

    def train(
        self,
        model: VFG,
        held: list[Tensor],
        steps: int,
        budget: float | None,
        device: torch.device,
        checkpoint: str | None,
    ) -> History:
        """Train stacked members to fill hidden cells, without the held-out ones of each."""
        scaling, members = model.scaling, len(held)
        cells = (repeat_columns(self.values, members) - scaling.location) / scaling.scale
        cells = cells.float().to(device)
        seen = repeat_columns(self.observed, members).to(device)
        model.to(device)
        pace = min(steps, EPOCH if budget is None else BUDGET_EPOCH)
        settings = RunSettings(
            masking=MASKING, layerwise=False, beta=0.0, warmup=0, free_bits=0.0,
            epochs=max(1, steps // pace), steps=pace, budget=budget, batch=self.plan.batch,
            rate=self.plan.rate, weight_decay=1e-2, clip=1.0, validation=0.0, patience=None,
            scale=True, compile=False, seed=self.seed,
        )  # fmt: skip
        often = None if self.weights is None else self.weights.float().to(device)
        data = TrainingTable(torch.where(seen, cells, 0.0), seen, None, often)
        hidden = torch.cat(held, 1)
        folder = None
        if checkpoint is not None:
            # The time that is left differs from run to run.
            chosen = asdict(replace(settings, budget=None))
            tensors = {"cells": data.cells, "seen": seen, "held": hidden, **model.state_dict()}
            tensors |= {} if often is None else {"weights": often}
            described = {"settings": chosen, "model": model.to_dict()}
            folder = Checkpoint(checkpoint, fingerprint(described, tensors))
        with join_world(device) as world, forked_generators(device):
            task = TableTask([model], data, settings, hidden.to(device))
            run = Run(task, settings, world, folder)
            bar = self.clock.bar.training(settings.epochs, visible=world.is_first)
            history = run.train(bar)
        if history.stopped == "interrupted":
            # Other parts are not fitted yet, so there is no usable model to return.
            raise KeyboardInterrupt
        model.eval().cpu()
        return history

    def calibrate(self, members: list[VFG], held: list[Tensor]) -> None:
        """Calibrate the draws of as many members as planned; the others copy the first."""
        fewest, most = CALIBRATION_ROWS
        rows = min(max(fewest, CALIBRATION_CELLS // self.values.shape[1]), most)
        for k, (member, own) in enumerate(zip(members, held, strict=True)):
            late = k and self.clock.is_past(0.9)
            if late or k >= (self.plan.calibrated or len(members)):
                member.spread.load_state_dict(members[0].spread.state_dict())
                continue
            cells = ((self.values - member.scaling.location) / member.scaling.scale).float()
            cells, seen = torch.where(self.observed, cells, 0.0), self.observed & ~own
            fit_calibration(member, cells, seen, own, seed=self.seed + k, most_rows=rows)


@torch.no_grad()
def _weigh_columns(
    member: VFG, linear: GaussianVFG, values: Tensor, seen: Tensor, held: Tensor, seed: int
) -> None:
    """Set the scales of the likelihoods to the size of the linear model's errors.

    The noise of the leaves is far smaller than the errors where other columns are missing, and a
    column whose scale is too small outweighs all others.
    """
    rows = draw_rows(held.any(1), ROWS_OF_ERRORS, seed)
    if not len(rows):
        return
    error = (exact_means(linear, values[rows], seen[rows]) - values[rows]).square() * held[rows]
    # Five cells' worth of a unit error for columns with few held-out cells.
    size = ((error.sum(0) + 5.0) / (held[rows].sum(0) + 5.0)).sqrt() / member.scaling.scale
    for block, scales in member.sections.split(size[None].float()).items():
        likelihood = member.likelihood_at(block)
        assert isinstance(likelihood, GaussianLikelihood)
        excess = (scales.square() - likelihood.floor**2).clamp(min=1e-6)
        likelihood.log_scale.copy_(0.5 * excess.log())


def _hold_out_sections(
    graph: Graph, observed: Tensor, share: float, seed: int, copies: Tensor | None = None
) -> Tensor:
    """Hold out whole sections of some rows; the first known cell of a column is never held out.

    A cell and its copies, in rows to which `copies` gives the same first row, are held out
    together.
    """
    generator = torch.Generator().manual_seed(seed)
    widths = torch.tensor(list(graph.sections.values()))
    drawn = torch.rand(len(observed), len(widths), generator=generator) < share
    drawn = drawn if copies is None else drawn[copies]
    held = observed & drawn.repeat_interleave(widths, dim=1)
    held[observed.int().argmax(0), torch.arange(observed.shape[1])] = False
    return held
