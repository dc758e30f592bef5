"""Interventions and counterfactuals: what follows when columns are set, under a stated DAG."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy
import torch

from vfg.graph.checks import find_cycle, suggestion
from vfg.inference.answers import Answer, ByName, check_draws
from vfg.inference.evidence import is_records, warn_of_extrapolation
from vfg.inference.variables import (
    Array,
    Marginal,
    Model,
    Variable,
    central_levels,
    days_of,
    given_marginal,
    is_missing_value,
    moments_of,
)
from vfg.inputs import Name
from vfg.tables.frames import is_frame, open_table

if TYPE_CHECKING:
    from typing import Self

DRAWS, FEWEST_DRAWS = 2048, 512
"""Draws of the columns behind a target, and how few each of many rows has. Means average
conditional means over them, so that their standard error is 2 % to 4 % of the deviation that the
causes make. A model of cheap conditionals has more in its `draws_of_interventions`."""
FEW_ROWS = 32
"""Up to how many rows are computed without padding: tiles have 32 rows, so that padding fewer costs
more than it computes."""
RANKS = np.linspace(-3.0, 3.0, 25)
"""Normal scores at which conditional quantiles are read; between and beyond them ranks are
interpolated, which is exact for Normal columns."""
RARE = 0.01
"""Share of rows with similar causes below which a value that is set counts as far from the data."""
EDGE = 0.05
"""Share of all rows with a value as far out, on both sides together, below which a value is at the
edge of the data: beyond two deviations of a Normal, where few rows say how a relation bends."""


@dataclass(frozen=True)
class Causes:
    """A DAG of columns: the direct causes of every column that it names, causes first."""

    parents: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, dag: Any, known: Iterable[str]) -> Causes:
        """Edges from pairs (cause, effect), a `LearnedGraph`, or a directed graph of networkx.

        Raises:
            ValueError: for no edges, unknown columns or a cycle.
        """
        if dag is None:
            raise ValueError(
                "do needs dag=: the (cause, effect) pairs of columns, or the result of "
                "vfg.learn_graph; this model was fitted without one, so the effects of an "
                "intervention are not known"
            )
        listed = getattr(dag, "edges", dag)
        listed = listed() if callable(listed) and not isinstance(listed, Iterable) else listed
        edges = []
        for pair in listed:
            if isinstance(pair, str) or len(tuple(pair)) != 2:
                raise ValueError(f"dag= has (cause, effect) pairs, but got {pair!r}")
            edges.append((str(pair[0]), str(pair[1])))
        known = list(known)
        for name in dict.fromkeys(name for pair in edges for name in pair):
            if name not in known:
                raise ValueError(
                    f"dag= names {name!r}, which is no column of the model; "
                    f"{suggestion(name, known)}"
                )
        cycle = find_cycle(known, edges)
        if cycle is not None:
            raise ValueError(f"dag= has the cycle {' -> '.join(cycle)}; remove one of these edges")
        parents = {name: tuple(c for c, e in edges if e == name) for name in known}
        return cls({name: parents[name] for name in _causes_first(parents)})

    def below(self, names: Iterable[str]) -> set[str]:
        """All effects of some columns, themselves left out unless one follows from another."""
        found: set[str] = set()
        chosen = set(names)
        for name, parents in self.parents.items():
            if found.union(chosen).intersection(parents):
                found.add(name)
        return found

    def above(self, names: Iterable[str]) -> set[str]:
        """Some columns and all their causes."""
        found = set(names)
        for name in reversed(list(self.parents)):
            if name in found:
                found.update(self.parents[name])
        return found


def _causes_first(parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    order: list[str] = []
    left = list(parents)
    while left:
        ready = [name for name in left if all(cause in order for cause in parents[name])]
        order += ready
        left = [name for name in left if name not in ready]
    return order


def is_intervention(do: Mapping[Name, Any] | None, dag: Any) -> bool:
    """Whether a query sets columns.

    Raises:
        ValueError: for a DAG without anything that is set.
    """
    if do is None and dag is not None:
        raise ValueError("dag= says what an intervention changes; give do= too, or leave dag= out")
    return do is not None


def intervene(
    model: Model,
    given: Any,
    targets: Name | Sequence[Name] | None,
    do: Mapping[Name, Any],
    dag: Any,
    *,
    observed: Any = None,
    seed: int = 0,
) -> InterventionAnswer:
    r"""Targets when columns are set to values, by truncated factorisation along a DAG.

    $$p(v \mid do(x)) = \prod_{i \notin X} p(v_i \mid pa_i)$$

    at the values of the columns X. Columns that X has no effect on are drawn from the model given
    the evidence; effects follow, causes first, each drawn from the model's own
    $p(v_i \mid pa_i)$. Evidence describes rows before the intervention, so it may only be about
    columns on which X has no effect.
    """
    variables = _by_name(model)
    dag = model.graph.network if dag is None else dag
    causes = Causes.read(dag, variables)
    settings, count = _read_settings(variables, do)
    rows = _read_rows(variables, given, observed)
    rows = _repeat(rows, count)
    effects = causes.below(settings)
    for name in rows.named:
        if name in settings:
            raise ValueError(f"{name!r} is both given and set by do; leave it out of the evidence")
        if name in effects:
            raise ValueError(
                f"{name!r} is given, but it is an effect of {', '.join(map(repr, settings))}; "
                "leave it out, or ask counterfactual what it would have been in this row"
            )
    chosen = _read_targets(variables, targets)
    warn_of_extrapolation(model, given, stacklevel=5)  # above infer and torch's no_grad
    settings = {name: np.resize(values, rows.count) for name, values in settings.items()}
    world = _World(model, causes, variables, settings, rows, seed)
    world.check_directions(dag)
    world.check_overlap()
    return InterventionAnswer(world, chosen, _number_of_draws(model, rows.count))


def counterfactual(
    model: Model,
    row: Any,
    do: Mapping[Name, Any],
    *,
    dag: Any = None,
    targets: Name | Sequence[Name] | None = None,
    seed: int = 0,
) -> InterventionAnswer:
    r"""What rows would have been if columns had been set, by conditional ranks.

    Each effect v of the columns that are set keeps its rank given its causes,

    $$v' = F^{-1}(F(v \mid pa) \mid pa')$$

    with the conditional distributions F of the model. Missing cells are drawn first, given the
    whole row. This assumes that the DAG is right and that a column is an increasing function of its
    noise; ranks of categories are not defined.

    Args:
        model: a fitted model.
        row: evidence as for `infer`: what was observed.
        do: values by column; one each, or one per row.
        dag: (cause, effect) pairs of columns, or a `LearnedGraph`; None for that of the model's
            graph.
        targets: columns by name; None means all.
        seed: of the draws of missing cells.

    Returns:
        Means, quantiles and draws of the targets; draws differ only where cells are missing.

    Raises:
        ValueError: for unknown columns, a cycle, or an effect that is no number.

    Example:
        >>> import vfg
        >>> graph = vfg.Graph.star({"x": 1, "y": 1}, width=1)
        >>> model = vfg.GaussianVFG(graph, noise_floor=1e-3)
        >>> _ = model.fit([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [2.0, 4.1]])
        >>> answer = model.counterfactual({"x": 1.0, "y": 3.0}, {"x": 2.0}, dag=[("x", "y")])
        >>> answer.mean["y"].round(1).tolist()
        [5.0]
    """
    variables = _by_name(model)
    dag = model.graph.network if dag is None else dag
    causes = Causes.read(dag, variables)
    settings, count = _read_settings(variables, do)
    rows = _repeat(_read_rows(variables, row, None), count)
    chosen = _read_targets(variables, targets)
    effects = causes.below(settings) & causes.above(chosen)
    for name in causes.parents:
        if name in effects and name not in settings and variables[name].kind in ("choice", "date"):
            why = "is a date" if variables[name].kind == "date" else "has categories without order"
            raise ValueError(
                f"{name!r} {why}, but a counterfactual keeps the rank of a number; ask "
                "infer(..., do=...) for its distribution instead"
            )
    settings = {name: np.resize(values, rows.count) for name, values in settings.items()}
    world = _Counterfactual(model, causes, variables, settings, rows, seed)
    world.check_directions(dag)
    draws = _number_of_draws(model, rows.count) if rows.has_missing else 2
    return InterventionAnswer(world, chosen, draws)


def _number_of_draws(model: Model, rows: int) -> int:
    most: int = getattr(model, "draws_of_interventions", DRAWS)
    return max(min(most, FEWEST_DRAWS), min(most, 16 * most // max(rows, 1)))


@dataclass(frozen=True)
class _Rows:
    """Evidence by column; None where nothing is known."""

    cells: Mapping[str, Array]
    count: int

    @property
    def named(self) -> list[str]:
        """Columns of which some row knows the value."""
        return [name for name, own in self.cells.items() if any(c is not None for c in own)]

    @property
    def has_missing(self) -> bool:
        """Whether some cell is not known."""
        return any(c is None for own in self.cells.values() for c in own)


def _by_name(model: Model) -> dict[str, Variable]:
    return {str(name): variable for name, variable in model.variables.items()}


def _read_targets(variables: Mapping[str, Variable], targets: Any) -> list[str]:
    if targets is None:
        return list(variables)
    names = [targets] if isinstance(targets, str | int) else list(dict.fromkeys(targets))
    chosen = [_check_name(variables, name) for name in names]
    if not chosen:
        raise ValueError("targets is empty; name columns, or leave it out")
    return chosen


def _check_name(variables: Mapping[str, Variable], name: Name) -> str:
    if str(name) not in variables:
        raise ValueError(
            f"interventions are about columns, but there is no column {name!r}; "
            f"{suggestion(str(name), variables)}"
        )
    return str(name)


def _read_settings(
    variables: Mapping[str, Variable], do: Mapping[Name, Any]
) -> tuple[dict[str, Array], int]:
    """The values that columns are set to, and for how many rows."""
    if not isinstance(do, Mapping) or not do:
        raise ValueError(f"do= has values by column, such as {{'x': 1.0}}, but got {do!r}")
    settings = {}
    for name, value in do.items():
        known = _check_name(variables, name)
        variable = variables[known]
        single = isinstance(value, str | bytes) or not hasattr(value, "__len__")
        single = single or getattr(value, "ndim", 1) == 0
        parsed = [_parse(variable, cell) for cell in ([value] if single else list(value))]
        if not parsed or any(cell is None for cell in parsed):
            raise ValueError(f"do= sets {known!r} to {value!r}; give a value of the column")
        settings[known] = _as_cells(parsed)
    sizes = {len(values) for values in settings.values()} - {1}
    if len(sizes) > 1:
        raise ValueError(f"do= has lists of {sorted(sizes)} values; give one each, or one per row")
    return settings, max(sizes, default=1)


def _parse(variable: Variable, cell: Any) -> Any:
    """A cell as evidence; None if it is missing."""
    cell = cell.item() if isinstance(cell, np.generic | torch.Tensor) else cell
    if is_missing_value(cell):
        return None
    return cell if variable.kind == "date" else variable.parse(cell)


def _as_cells(cells: Sequence[Any]) -> Array:
    values = np.empty(len(cells), dtype=object)
    values[:] = cells
    return values


def _read_rows(variables: Mapping[str, Variable], given: Any, observed: Any) -> _Rows:
    """Evidence in the forms that `infer` takes, by column."""
    if observed is not None:
        raise ValueError("observed= is not used with do; leave unknown cells missing instead")
    columns: dict[Any, list[Any]] = {}
    if isinstance(given, Mapping):
        sized = {k: v for k, v in given.items() if hasattr(v, "__len__") and not isinstance(v, str)}
        count = max((len(v) for v in sized.values()), default=1)
        columns = {k: list(v) if k in sized else [v] * count for k, v in given.items()}
    elif is_records(given):
        count = len(given)
        keys = dict.fromkeys(name for row in given for name in row)
        columns = {name: [row.get(name) for row in given] for name in keys}
    else:
        opened = open_table(given)
        count = opened.rows
        names = list(opened.labels) if is_frame(given) else list(variables)
        if len(names) != len(opened.labels):
            raise ValueError(
                f"the table has {len(opened.labels)} columns, but the model {len(variables)}; give "
                "values by name instead"
            )
        for name, column in zip(names, opened.columns(), strict=True):
            values = column.values.astype(object)
            values[column.missing] = None
            columns[name] = values.tolist()
    cells = {name: _as_cells([None] * count) for name in variables}
    for name, own in columns.items():
        known = _check_name(variables, name)
        if len(own) != count:
            raise ValueError(f"{name!r} has {len(own)} values, but other columns {count}")
        parsed = [np.ravel(v)[0] if isinstance(v, list | np.ndarray) else v for v in own]
        cells[known] = _as_cells([_parse(variables[known], cell) for cell in parsed])
    return _Rows(cells, count)


def _repeat(rows: _Rows, count: int) -> _Rows:
    """One row of evidence for each of several settings."""
    if count == 1 or rows.count == count:
        return rows
    if rows.count != 1:
        raise ValueError(f"do= has {count} values, but the evidence has {rows.count} rows")
    return _Rows({name: np.resize(cells, count) for name, cells in rows.cells.items()}, count)


class Conditional(Protocol):
    """What is asked about a column given its causes."""

    def samples(self, n: int) -> Mapping[Any, Any]:
        """Draws `(n, rows)` by column."""

    def expectations(self) -> Mapping[str, Array]:
        """Means `(rows,)`, or probabilities `(rows, categories)`."""

    def quantile(self, q: Sequence[float]) -> Mapping[Any, Any]:
        """Quantiles `(levels, rows)`."""


class _World:
    """Rows of an intervened model: all columns are drawn, those behind a target first."""

    def __init__(
        self,
        model: Model,
        causes: Causes,
        variables: Mapping[str, Variable],
        settings: Mapping[str, Array],
        rows: _Rows,
        seed: int,
    ) -> None:
        self.model, self.causes, self.variables = model, causes, variables
        self.settings, self.rows, self.seed = settings, rows, seed
        self.effects = causes.below(settings)
        self._families: Any = None

    def select(self, rows: Sequence[int]) -> Self:
        """The same for some rows."""
        chosen = list(rows)
        cells = {name: own[chosen] for name, own in self.rows.cells.items()}
        settings = {name: own[chosen] for name, own in self.settings.items()}
        return type(self)(
            self.model,
            self.causes,
            self.variables,
            settings,
            _Rows(cells, len(chosen)),
            self.seed,
        )

    def fixed_draws(self, name: str, count: int) -> Array | None:
        """Draws of a column that is set or known in all rows; None for others."""
        cells = self.settings.get(name)
        if cells is None:
            cells = self.rows.cells[name]
            if name in self.effects or any(cell is None for cell in cells):
                return None
        return np.tile(cells, (count, 1))

    def draw(self, targets: Sequence[str], count: int) -> tuple[dict[str, Array], dict[str, Any]]:
        """Draws `(count, rows)` of the targets, and what is expected of their effects given causes.

        The first draws are the same for every count.
        """
        needed = self._with_causes(targets)
        self._families = self._fit_families(needed)
        drawn = self._draw_unaffected(needed, count)
        expected: dict[str, Any] = {}
        for name in self.causes.parents:
            if name in drawn or name not in needed:
                continue
            answer = self._given_causes(name, drawn)
            drawn[name] = _column(answer.samples(1)[name])[0].reshape(count, -1)
            if name in targets:
                expected[name] = answer
        return drawn, expected

    def _with_causes(self, targets: Iterable[str]) -> set[str]:
        """The targets, and the causes behind them up to the columns that are set."""
        found = set(targets)
        for name in reversed(list(self.causes.parents)):
            if name in found and name in self.effects and name not in self.settings:
                found.update(self.causes.parents[name])
        return found

    def _draw_unaffected(self, needed: set[str], count: int) -> dict[str, Array]:
        drawn, free = {}, []
        for name in self.causes.parents:
            if name not in needed:
                continue
            known = self.fixed_draws(name, count)
            if known is not None:
                drawn[name] = known
            elif name not in self.effects:
                free.append(name)
        if free:
            drawn |= self._samples(free, count)
        return drawn

    def _samples(self, names: list[str], count: int) -> dict[str, Array]:
        """Joint draws of columns given what is known of each row, before anything was set."""
        draw_rows = getattr(self.model, "draw_kept_rows", None)
        if draw_rows is not None and not self.rows.named:
            families = self._families
            kept = None if families is None else families.draw_rows(names, count, self.seed)
            kept = draw_rows(names, count, self.seed) if kept is None else kept
            if kept is not None:  # causes as they are in the table
                return {
                    name: np.tile(own[:, None], (1, self.rows.count)) for name, own in kept.items()
                }
        few = self.rows.count <= FEW_ROWS
        chosen: list[Name] = list(names)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the evidence has")  # said before, once
            answer = self.model.infer(self._records(), chosen, seed=self.seed, padded=not few)
        return {str(name): _column(own) for name, own in answer.samples(count).items()}

    def _records(self) -> list[dict[str, Any]]:
        """What is known of each row, before anything was set."""
        return [
            {name: own[k] for name, own in self.rows.cells.items() if own[k] is not None}
            for k in range(self.rows.count)
        ]

    def _fit_families(self, needed: set[str]) -> Any:
        """Models of the families that are drawn from; None for the conditionals of the model.

        An ensemble that fills cells given all others has models of families beside it. They are
        fitted together with those of their causes and of the effects of both, which tell about
        missing cells.
        """
        fit = getattr(self.model, "family_models", None)
        drawn = {name for name in needed & self.effects if name not in self.settings}
        if fit is None or not drawn:
            return None
        parents = self.causes.parents
        near = drawn.union(*(parents[name] for name in drawn))
        return fit(
            {
                name: causes
                for name, causes in parents.items()
                if causes and (name in near or near.intersection(causes))
            }
        )

    def _given_causes(self, name: str, drawn: Mapping[str, Array]) -> Conditional:
        """The answer about a column given draws of its causes, one after the other."""
        parents = self.causes.parents[name]
        if self._families is not None and name in self._families:
            causes = {cause: _evidence(drawn[cause]) for cause in parents}
            answer: Conditional = self._families.given(name, causes, self._seed_of(name))
            return answer
        return self._conditional(self.model, name, parents, drawn)

    def _conditional(
        self, model: Model, name: str, parents: Sequence[str], drawn: Mapping[str, Array]
    ) -> Answer:
        evidence: Any = {cause: _evidence(drawn[cause]) for cause in parents}
        if not parents:
            evidence = [{}] * (next(iter(drawn.values())).size if drawn else self.rows.count)
        return model.infer(evidence, [name], seed=self._seed_of(name))

    def _seed_of(self, name: str) -> int:
        """The draws of a column must not repeat those of another."""
        return self.seed + 1 + list(self.causes.parents).index(name)

    def check_directions(self, dag: Any) -> None:
        """Warn of edges of a learned DAG whose direction is not known, where it matters."""
        touched = self.effects.union(self.settings)
        open_edges = [pair for pair in getattr(dag, "undirected", ()) if touched.intersection(pair)]
        if open_edges:
            listed = ", ".join(f"{cause} -> {effect}" for cause, effect in open_edges)
            warnings.warn(
                f"the table does not determine the direction of these edges, taken as {listed}; "
                "the answer is right only if these directions are right: state them by tiers or "
                "required edges when the graph is learned, or pass a list of edges as dag=",
                stacklevel=4,
            )

    def check_overlap(self) -> None:
        """Warn of values that the table hardly has, alone or given the causes of the column."""
        for name, cells in self.settings.items():
            variable = self.variables[name]
            outside = [c for c in cells if variable.describe_range(c)]
            if outside:
                known = variable.describe_range(outside[0])
                warnings.warn(
                    f"do sets {name!r} to {outside[0]}, but {known}; what follows is extrapolated",
                    stacklevel=4,
                )
                continue
            message = "" if variable.kind == "date" else self._overlap_warning(name)
            if message:
                warnings.warn(message, stacklevel=4)

    def _overlap_warning(self, name: str) -> str:
        """What is wrong with the first value of a column that few rows have; nothing if none is."""
        cells = self.settings[name]
        everywhere = self._shares_of_rows(name)
        rare = np.flatnonzero(everywhere < (RARE if self._is_choice(name) else EDGE))
        if len(rare):
            share = max(100 * float(everywhere[rare[0]]), 0.1)
            like = "have it" if self._is_choice(name) else "are as far out"
            return (
                f"do sets {name!r} to {cells[rare[0]]}, but only {share:.1g} % of the rows {like}; "
                "the answer depends on few rows"
            )
        parents = self.causes.parents[name]
        if not parents or self.effects.intersection(parents):
            return ""
        # One row in four at least must have causes with which the value is not rare.
        usual = np.quantile(self._shares(name, parents, 32), 0.75, axis=0)
        rare = np.flatnonzero(usual < RARE)
        if not len(rare):
            return ""
        return (
            f"do sets {name!r} to {cells[rare[0]]}, which is rare given its causes "
            f"({', '.join(parents)}): for three in four rows, fewer than {100 * RARE:g} % of those "
            "with the same causes are as far out; the answer depends on few rows"
        )

    def _is_choice(self, name: str) -> bool:
        return self.variables[name].kind == "choice"

    def _shares_of_rows(self, name: str) -> Array:
        """How many rows have a value that is set, or one further out, `(rows,)`."""
        draw_rows = getattr(self.model, "draw_kept_rows", None)
        kept = None if draw_rows is None else draw_rows([name], DRAWS, self.seed)
        if kept is None or self._is_choice(name):
            result: Array = self._shares(name, (), 1)[0]
            return result
        cells = self.settings[name].astype(float)
        drawn = np.asarray(kept[name], dtype=float)[:, None]
        return np.asarray(2.0 * np.minimum((drawn <= cells).mean(0), (drawn >= cells).mean(0)))

    def _shares(self, name: str, parents: Sequence[str], count: int) -> Array:
        """How probable a value that is set, or one further out, is given draws of some causes.

        `(count, rows)`; on both sides of the distribution together, or of a category.
        """
        given = self.draw(parents, count)[0] if parents else {}
        # A warning does not need a model of the family, which takes seconds to fit.
        answer = self._conditional(self.model, name, parents, given)
        cells = np.tile(self.settings[name], (count, 1))
        if self._is_choice(name):
            place = {c: k for k, c in enumerate(self.variables[name].categories)}
            shares = answer.expectations()[name].reshape(*cells.shape, -1)
            codes = np.array([place[cell] for cell in self.settings[name]])
            own = np.take_along_axis(shares, np.tile(codes, (count, 1))[:, :, None], 2)
            return np.asarray(own[:, :, 0])
        levels = _rank(answer, name, cells.astype(float).reshape(-1)).reshape(cells.shape)
        return np.asarray(2.0 * scipy.special.ndtr(-np.abs(levels)))


class _Counterfactual(_World):
    """Rows as they were, and as they would have been."""

    def fixed_draws(self, name: str, count: int) -> Array | None:
        cells = self.settings.get(name)
        return None if cells is None else np.tile(cells, (count, 1))

    def draw(self, targets: Sequence[str], count: int) -> tuple[dict[str, Array], dict[str, Any]]:
        needed = self._with_causes(targets)
        self._families = self._fit_families(needed)
        behind = {cause for name in needed for cause in self.causes.parents[name]}
        factual = self._factual([n for n in self.causes.parents if n in needed | behind], count)
        changed = {name: np.tile(own, (count, 1)) for name, own in self.settings.items()}
        for name in self.causes.parents:
            if name not in needed or name in changed:
                continue
            parents = self.causes.parents[name]
            if name not in self.effects:
                changed[name] = factual[name]
                continue
            before = self._given_causes(name, {p: factual[p] for p in parents})
            after = self._given_causes(name, {p: changed[p] for p in parents})
            own = factual[name].astype(float).reshape(-1)
            ranks = _rank(before, name, own)
            changed[name] = _at_rank(after, name, ranks).reshape(count, -1)
        return changed, {}

    def _factual(self, names: Sequence[str], count: int) -> dict[str, Array]:
        """The rows that were observed, with missing cells drawn given all others."""
        cells = self.rows.cells
        free = [name for name in names if any(cell is None for cell in cells[name])]
        drawn = {name: np.tile(cells[name], (count, 1)) for name in names if name not in free}
        if free:
            drawn |= self._samples(free, count)
        return drawn


def _rank(answer: Conditional, name: str, values: Array) -> Array:
    """Normal scores of the ranks of values, `(rows,)`."""
    return _interpolate(
        values, _column(answer.quantile(scipy.special.ndtr(RANKS).tolist())[name]), RANKS[:, None]
    )


def _at_rank(answer: Conditional, name: str, ranks: Array) -> Array:
    """Values at Normal scores of ranks, `(rows,)`."""
    return _interpolate(
        ranks, RANKS[:, None], _column(answer.quantile(scipy.special.ndtr(RANKS).tolist())[name])
    )


def _interpolate(at: Array, places: Array, values: Array) -> Array:
    """Piecewise linear functions per row, continued beyond their ends, `(rows,)`."""
    places, values = np.broadcast_arrays(places.astype(float), values.astype(float))
    if places.shape[1] != len(at):
        places, values = (np.broadcast_to(x, (len(x), len(at))) for x in (places, values))
    index = np.clip((places < at).sum(0) - 1, 0, len(places) - 2)
    every = np.arange(len(at))
    low, high = places[index, every], places[index + 1, every]
    span = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (at - low) / span, 0.5)
    result: Array = values[index, every] + share * (values[index + 1, every] - values[index, every])
    return result


def _column(values: Any) -> Array:
    """Values of one column `(..., rows)` as an array, from a column or a leaf of width 1."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    array: Array = values.detach().cpu().numpy()
    return array[..., 0] if array.ndim > 2 else array


def _evidence(drawn: Array) -> Any:
    """Draws as evidence, one row after the other."""
    flat = drawn.reshape(-1)
    numbers = flat.dtype == object and all(type(cell) in (float, int) for cell in flat)
    return flat.astype(np.float64) if numbers else flat


class InterventionAnswer(Answer):
    """What follows from an intervention, by draws: arrays `(rows,)` by column, in data units.

    Means and probabilities of effects average those of the model given each draw of their causes,
    which varies less than the draws do.
    """

    def __init__(self, world: _World, targets: Sequence[str], draws: int) -> None:
        self._world, self._targets, self._draws = world, tuple(targets), draws

    @property
    def targets(self) -> tuple[Name, ...]:
        return self._targets

    @property
    def rows(self) -> int:
        return self._world.rows.count

    @property
    def converged(self) -> Array:
        return np.ones(self.rows, dtype=bool)

    @cached_property
    def _result(self) -> tuple[dict[str, Array], dict[str, Any]]:
        drawn, answers = self._world.draw(self._targets, self._draws)
        expected = {name: answer.expectations()[name] for name, answer in answers.items()}
        return drawn, expected

    def _numbers(self, name: str) -> Array:
        """Draws of a column on its axis, `(draws, rows)`; dates in days."""
        values = self._result[0][name]
        if self._variable(name).kind == "date":
            return days_of(values.astype("M8[us]"))
        return values.astype(np.float64)

    def _variable(self, name: str) -> Variable:
        return self._world.variables[name]

    def _is_choice(self, name: str) -> bool:
        return self._variable(name).kind == "choice"

    @cached_property
    def mean(self) -> ByName:
        """Expected values `(rows,)`; of categories the most probable one."""
        values = ByName()
        for name in self._targets:
            if self._is_choice(name):
                categories = _as_cells(self._variable(name).categories)
                values[name] = categories[self.probabilities[name].argmax(1)]
                continue
            centre = self._centre(name)
            values[name] = moments_of(centre) if self._variable(name).kind == "date" else centre
        return values

    def _centre(self, name: str) -> Array:
        expected = self._result[1].get(name)
        if expected is None:
            return np.asarray(self._numbers(name).mean(0))
        return np.asarray(expected.reshape(-1, self.rows).mean(0))

    @cached_property
    def std(self) -> ByName:
        """Standard deviations `(rows,)` of the draws; of dates in days, NaN for categories."""
        return ByName(
            {
                name: np.full(self.rows, np.nan)
                if self._is_choice(name)
                else self._numbers(name).std(0)
                for name in self._targets
            }
        )

    @cached_property
    def probabilities(self) -> ByName:
        """Probabilities `(rows, categories)` of the targets that have categories."""
        shares = ByName()
        for name in filter(self._is_choice, self._targets):
            categories = self._variable(name).categories
            expected = self._result[1].get(name)
            if expected is None:
                drawn = self._result[0][name]
                own = np.stack([(drawn == c).mean(0) for c in categories], axis=1)
            else:
                own = expected.reshape(-1, self.rows, len(categories)).mean(0)
            shares[name] = own
        return shares

    @property
    def categories(self) -> dict[Name, tuple[Any, ...]]:
        return {
            name: self._variable(name).categories for name in self._targets if self._is_choice(name)
        }

    def samples(self, n: int) -> ByName:
        """Joint draws `(n, rows)` by column.

        Args:
            n: how many draws per row.

        Raises:
            ValueError: if `n` is not positive.
        """
        check_draws(n)
        drawn = self._result[0] if n <= self._draws else self._world.draw(self._targets, n)[0]
        return ByName({name: drawn[name][:n] for name in self._targets})

    def covariance(self, targets: Name | Sequence[Name]) -> Array:
        """The covariance of the draws of one target or several, `(rows, targets, targets)`.

        Args:
            targets: columns among the targets.

        Raises:
            KeyError: for another name.
        """
        names = [targets] if isinstance(targets, str | int) else list(targets)
        known = ByName({name: name for name in self._targets})
        chosen = [str(known[name]) for name in names]
        unordered = np.full((self._draws, self.rows), np.nan)
        draws = np.stack(
            [unordered if self._is_choice(name) else self._numbers(name) for name in chosen],
            axis=-1,
        )
        left = draws - draws.mean(0)
        return np.asarray(np.einsum("dni,dnj->nij", left, left) / max(len(draws) - 1, 1))

    def select(self, rows: int | Sequence[int]) -> InterventionAnswer:
        chosen = [rows] if isinstance(rows, int) else list(rows)
        return InterventionAnswer(self._world.select(chosen), self._targets, self._draws)

    def expectations(self) -> dict[str, Array]:
        return {
            name: self.probabilities[name] if self._is_choice(name) else self._centre(name)
            for name in self._targets
        }

    def _quantiles_at(self, levels: Sequence[float]) -> ByName:
        values = ByName()
        for name in self._targets:
            if self._is_choice(name):
                values[name] = np.full((len(levels), self.rows), np.nan)
                continue
            ends = np.quantile(self._numbers(name), levels, axis=0)
            values[name] = moments_of(ends) if self._variable(name).kind == "date" else ends
        return values

    def _frame_columns(self, values: ByName) -> dict[str, Array]:
        return {str(name): values[name] for name in self._targets}

    def _marginals(self, level: float, draws: int) -> dict[str, Marginal]:
        marginals = {}
        for name in self._targets:
            variable = self._variable(name)
            known = self._world.fixed_draws(name, 1)
            if known is not None:
                value = known[0, 0]
                if variable.kind == "date":
                    value = variable.value_of(days_of(np.array([value], "M8[us]"))[0])
                marginals[name] = given_marginal(variable, value)
            elif variable.kind == "choice":
                shares = self.probabilities[name][0]
                marginals[name] = Marginal(
                    variable, variable.categories[int(shares.argmax())], probabilities=shares
                )
            else:
                own = self._numbers(name)[:, 0]
                low, high = (float(x) for x in np.quantile(own, central_levels(level)))
                centre, spread = float(self._centre(name)[0]), float(own.std())
                shown = own[: draws or 2]
                value = variable.value_of(centre) if math.isfinite(centre) else None
                marginals[name] = Marginal(variable, value, False, centre, spread, low, high, shown)
        return marginals
