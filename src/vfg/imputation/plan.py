"""Sizes of all parts by the shape of the table."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

from vfg.flows import Coupling

ROWS = (3_000, 10_000)
"""The most rows that a mixture is fitted to, of small and of large tables; each draws its own."""
COMPONENTS = (64, 96)
"""The most components of a mixture, of small and of large tables."""
ROWS_PER_COMPONENT = 10
"""Rows per component at least, weighted by their known cells: detail against overfitting."""
ITERATIONS = 15
"""Iterations of EM at most, which bounds the time."""
MIXTURE_WORK = 12_000_000
"""Work of all mixtures together, in pairs of a row of eleven columns and a component."""
PAIR_SECONDS = 5e-7
"""Time for one such pair, about."""
MOST_MIXTURES = 16
"""The most mixtures, which bounds the time for filling."""
COMPONENTS_IN_ALL = 400
"""Components of all mixtures together, about, which bounds the time for filling a row."""


@dataclass(frozen=True)
class MixturePlan:
    """How many mixtures there are, and of which size."""

    number: int
    components: int  # of each
    rows: int  # to which each is fitted, at most
    width: int  # of their roots
    columns: int  # of the matrix

    @property
    def work(self) -> float:
        """Work of one mixture, in pairs of a row of eleven columns and a component."""
        active = min(self.components, 4 + self.components / 8)
        pairs = (2 + ITERATIONS / 5) * self.components + 3 * ITERATIONS * active
        size = self.width**2 * (self.width + self.columns) / 2662
        return float(self.rows * pairs * max(1.0, size) ** 0.6)

    def limited(self, number: int, components: int) -> MixturePlan:
        """A plan with at most so many mixtures, and components of each."""
        least = min(self.components, components)
        rows = self.rows if least == self.components else min(self.rows, ROWS[0])
        return replace(self, number=min(self.number, number), components=least, rows=rows)

    def within(self, seconds: float) -> MixturePlan:
        """A plan with smaller mixtures, the first of which takes no longer than this."""
        share = min(1.0, seconds / (self.work * PAIR_SECONDS)) ** 0.5
        return replace(
            self,
            components=max(2, int(share * self.components)),
            rows=max(min(500, self.rows), int(share * self.rows)),
        )


def plan_mixtures(
    rows: int, columns: int, *, known: float, width: int, large: bool, number: int | None = None
) -> MixturePlan:
    """Plan mixtures: components by the share of `known` entries, and as many as the work allows.

    Example:
        >>> plan = plan_mixtures(1000, 8, known=0.5, width=10, large=False)
        >>> plan.number, plan.components
        (8, 50)
    """
    components = min(int(known * rows / ROWS_PER_COMPONENT), COMPONENTS[large])
    plan = MixturePlan(1, max(2, components), min(rows, ROWS[large]), width, columns)
    if number is None:
        most = COMPONENTS_IN_ALL // plan.components
        number = max(1 + large, min(int(MIXTURE_WORK / plan.work), most, MOST_MIXTURES))
    return replace(plan, number=number)


MOST_ROW_MIXTURES = 10_000
"""The most rows that become components, drawn at random."""
FEW, MANY = 6, 20
"""Numbers of columns below which there are fewer mixtures, and from which on there are more."""
CELLS = 1_000_000
"""The most cells of all components of a mixture, which bounds memory."""
ROW_PAIR_SECONDS, ROW_CELL_SECONDS = 5e-8, 2e-5
"""Time for fitting per pair of components, and per cell of one, about."""


FEWEST_COMPONENTS = 100
"""The fewest components under a budget, where there are as many."""


@dataclass(frozen=True)
class RowMixtureKind:
    """How one row mixture differs from the others."""

    ranks: bool  # whether columns are moved halfway to their normal scores
    uses_all_columns: bool  # or a random subset decides which rows are similar


ROW_MIXTURE_KINDS = tuple(
    RowMixtureKind(ranks, every) for every in (True, False) for ranks in (True, False)
)
"""The kinds that row mixtures take in turn."""


@dataclass(frozen=True)
class NeighbourPlan:
    """How many row mixtures there are, and of which size."""

    number: int
    components: int  # of each, at most
    columns: int  # of the matrix

    def limited(self, number: int, components: int) -> NeighbourPlan:
        """A plan with at most so many mixtures, and components of each."""
        least = min(self.components, components)
        return replace(self, number=min(self.number, number), components=least)

    def within(self, seconds: float) -> NeighbourPlan:
        """A plan with fewer components, so that all mixtures take about this long."""
        each, half = seconds / max(self.number, 1), 0.5 * ROW_CELL_SECONDS * self.columns
        affordable = (math.sqrt(half**2 + ROW_PAIR_SECONDS * each) - half) / ROW_PAIR_SECONDS
        components = max(FEWEST_COMPONENTS, min(self.components, int(affordable)))
        return replace(self, components=min(self.components, components))


def plan_row_mixtures(
    rows: int, columns: int, *, large: bool, number: int | None = None
) -> NeighbourPlan:
    """Plan row mixtures: more of them, on different columns, for wider tables.

    Example:
        >>> plan_row_mixtures(1000, 4, large=False).number
        2
        >>> plan_row_mixtures(1000, 8, large=False).number
        4
    """
    if number is None:
        number = 2 if large or columns < FEW else 4 if columns < MANY else 6
    return NeighbourPlan(number, min(rows, MOST_ROW_MIXTURES, CELLS // columns), columns)


@dataclass(frozen=True)
class ProcessPlan:
    """The size of Gaussian process regressions."""

    rows: int  # that they are fitted to, at most
    fitted: int  # rows that their scales are fitted to, at most
    steps: int  # of that


PROCESS_WORK = 1.5e10
"""Cubes of rows, over all columns, which bounds the time for fitting regressions: about 1 s."""
PROCESS_COLUMNS = 100
"""Columns up to which there are regressions: distances of wider rows say little."""


def plan_processes(columns: int, most: ProcessPlan) -> ProcessPlan:
    """Plan Gaussian process regressions: the more columns, the fewer rows.

    Example:
        >>> plan_processes(60, ProcessPlan(1000, 200, 25)).rows
        629
    """
    return replace(most, rows=min(most.rows, int((PROCESS_WORK / columns) ** (1 / 3))))


METRIC_COLUMNS = 20
"""Columns up to which row mixtures have metrics of single columns: the time to fit and to fill goes
by the square of this number. With 30 columns and 200 rows the squared error was 5 % larger."""
MOST_ROWS = 200_000
"""The most rows that members are trained on, drawn at random."""
EPOCH = 25
"""Steps between two evaluations of the held-out cells."""
BUDGET_EPOCH = 5
"""The same under a budget, which is checked as often."""
SMALL, LARGE = 30_000, 150_000
"""Cells up to which a table counts as small, and from which on as large."""
LONG = 400_000
"""Cells up to which a large table gets 600 steps; one twice as large gets twice as many."""
FULL_BATCH = 600
"""Tables with fewer rows are trained in smaller batches."""
WORK = 2_000_000
"""Work of training all members of a small table, in rows times columns times members. Four times
the work was no better on the tables tried, where mixtures and row mixtures predict most."""
WIDE = 300
"""Columns from which on one conditioner serves all of them, with an embedding per column."""
WIDE_WORK = 4_000_000
"""The same as `WORK` for these tables."""
MOST_COLUMNS = 3_000
"""Tables with more columns get the linear model alone: a step would take many seconds."""
MOST_FITTED = 10_000
"""The most columns of real numbers that are fitted: covariances of so many take 3 GB."""
LIFTS_MOST_FITTED = "VFG_MOST_COLUMNS"
"""The environment variable that names another number."""
FEWEST_ROWS = 20
"""Tables with fewer rows get the linear model alone."""


def check_number_of_columns(number: int) -> None:
    """Refuse a table with more columns than are fitted in reasonable time and memory."""
    most = int(os.environ.get(LIFTS_MOST_FITTED, MOST_FITTED))
    if number > most:
        raise ValueError(
            f"the table has {number:,} encoded columns (numbers, and coordinates of categories), "
            f"but at most {most:,} are fitted; leave some out, or set the environment variable "
            f"{LIFTS_MOST_FITTED} to a larger number if there is memory for the square of it"
        )


@dataclass(frozen=True)
class Effort:
    """The most parts of each kind, and how long members are trained at first."""

    members: int
    steps: int  # of their training
    mixtures: int
    neighbours: int
    trees: tuple[int, int]  # of every column, in tables with categories and of numbers alone
    sets: int  # of held-out cells that parts are weighed by, where members do not need more
    components: tuple[int, int]  # of mixtures and of row mixtures
    processes: ProcessPlan | None = None
    mixtures_of_numbers: int = 10**9
    """The most mixtures of tables that have Gaussian processes, too."""
    adaptive: bool = False
    """Whether members are trained only where they promise to reduce the error, and those with much
    weight for all steps of the plan."""


NO_LIMIT = 10**9
EFFORTS = {
    "fast": Effort(0, 50, 2, 2, (30, 0), 1, (48, 2_500), ProcessPlan(600, 128, 15)),
    "balanced": Effort(
        2, 100, 4, 2, (50, 30), 2, (NO_LIMIT, 5_000), ProcessPlan(600, 128, 15), 2, adaptive=True
    ),
    "best": Effort(
        NO_LIMIT,
        NO_LIMIT,
        NO_LIMIT,
        NO_LIMIT,
        (100, 50),
        1,
        (NO_LIMIT, NO_LIMIT),
        ProcessPlan(2_000, 400, 40),
    ),
}
"""Limits by the name of an effort. On seven tables for tuning, MCAR 30 and 50 %, two seeds,
Gaussian processes of up to 600 rows reduced the squared error by 1.0 %, the absolute one by 1.1
% and the CRPS by 0.4 %; with up to 1,500 rows squared and absolute errors by 1.7 % (one seed).
Two mixtures instead of four beside them changed the squared error by 0.1 % and the CRPS by -0.1
% on nine fits of five tables, for 59 % of the time of a fit and 55 % of that of filling. On 13
UCI tables under MCAR and MAR, training for 100 steps instead of 500 to 600 changed the squared
error by 0.45 % on average and took a sixth of the time; 4 mixtures and 2 row mixtures, instead
of up to 16 and 6, added 0.4 %. Fast fits of six tables had the same squared error on average
before, with a member of 50 steps; `experiments.benchmarks.imputation.effort` measures what
efforts cost."""
LEAST_GAIN = 0.005
"""The share of the squared error at held-out cells that a step towards the linear model, at which
members start, must remove before members are trained. On eight tables for tuning and five made
ones, members changed the error by -0.7 % on average (-2.3 to +0.3 %) where the share was larger,
and by +0.4 % (-0.9 to +2.5 %) where it was smaller, for 40 % of the time of a fit."""
MOST_SETS = 4
"""Sets of held-out cells of small tables with categories, one per mixture at most. Two hold out 8
to 46 cells of a column in tables of 140 to 250 rows, too few for the weights of one column. On
eight tables for tuning with 25 and 50 % of the cells missing, four had 1.1 and 2.0 % lower error
rates, 1.9 and 1.4 % lower log scores, and 1.5 % lower and 1.5 % higher squared errors than two
(0.5 % lower without one table), for 14 % more time; see also `trees.REGRESSED_WEIGHTS`. Eight,
with as many mixtures, had another 1 % lower log scores on two tables, for 45 % more time."""
WIDE_NEIGHBOURS = 2
"""How many times more row mixtures tables of `MANY` columns get: they use different columns."""
EXTENDED_WEIGHT = 0.3
"""Weight of briefly trained members in the stack from which on they are trained further. Of the 13
tables it is reached where members matter most; there 100 steps alone cost up to 15 %."""


@dataclass(frozen=True)
class Plan:
    """The size of an ensemble and its training."""

    members: int
    width: int  # of their roots
    flow: Coupling
    steps: int
    batch: int
    rate: float = 3e-3  # the highest
    held_out: float = 0.1  # share of the observed cells that each member holds out
    mixtures: MixturePlan | None = None
    neighbours: NeighbourPlan | None = None
    more_steps: int = 0  # of training, if the members get much weight
    trees: int = 0  # of every column, at most
    adaptive: bool = False  # whether members are trained only where they promise to pay
    least_sets: int = 1  # of held-out cells
    metrics: bool = False  # whether columns have metrics of similar rows
    processes: ProcessPlan | None = None
    calibrated: int | None = None  # members that calibrate their draws; others copy the first

    @property
    def sets(self) -> int:
        """Sets of held-out cells that weigh the parts; the first are those of the members."""
        return max(self.members, self.least_sets)


def make_plan(
    rows: int,
    columns: int,
    *,
    effort: str = "balanced",
    known: float = 1.0,
    members: int | None = None,
    mixtures: int | None = None,
    neighbours: int | None = None,
    width: int | None = None,
    flow: Coupling | None = None,
    steps: int | None = None,
    trees: int | None = None,
    categories: bool = False,
) -> Plan:
    """Plan the ensemble of a table; given values are kept.

    Small tables get many small members, since averaging reduces overfitting; large tables get few
    and larger members. The wider a table, the fewer members, so that the work stays the same; the
    widest get one, whose columns share their conditioner. Columns are those of the matrix, `known`
    is the share of its entries that are known, `categories` says whether some columns have them;
    other arguments are those of `VFGImputer`.

    Example:
        >>> make_plan(500, 8, effort="best").members, make_plan(500, 8).members
        (4, 2)
    """
    plan = _plan_wide(columns) if columns > WIDE else _plan_usual(rows, columns)
    flow = flow or (plan.flow if members in (None, 1) else replace(plan.flow, shared=0))
    width = width or plan.width
    number = 0 if mixtures is None and columns > WIDE else mixtures
    row_mixtures = 0 if neighbours is None and columns > WIDE else neighbours
    large, limits = rows * columns > LARGE, EFFORTS[effort]
    exact = plan_mixtures(rows, columns, known=known, width=width, large=large, number=number)
    if mixtures is None:
        few = not categories and columns <= PROCESS_COLUMNS and row_mixtures != 0
        most_mixtures = min(limits.mixtures, limits.mixtures_of_numbers if few else NO_LIMIT)
        exact = exact.limited(most_mixtures, limits.components[0])
    by_row = plan_row_mixtures(rows, columns, large=large, number=row_mixtures)
    if neighbours is None:
        most = limits.neighbours * (WIDE_NEIGHBOURS if columns >= MANY and limits.members else 1)
        by_row = by_row.limited(most, limits.components[1])
    first = min(plan.steps, limits.steps)
    # The widest tables have no other parts besides the linear model.
    most_members = max(limits.members, 0 if exact.number or by_row.number else 1)
    number_of_members = members or min(plan.members, most_members)
    adaptive = limits.adaptive and members is None and steps is None
    sets = number_of_members or min(limits.sets, exact.number or limits.sets)
    if categories and rows * columns <= SMALL and (adaptive or not number_of_members):
        sets = max(sets, min(exact.number, MOST_SETS))
    return replace(
        plan,
        members=number_of_members,
        width=width,
        flow=flow,
        steps=steps or first,
        batch=min(plan.batch, rows),
        mixtures=exact,
        neighbours=by_row,
        more_steps=plan.steps if limits.adaptive and steps is None and first < plan.steps else 0,
        trees=(0 if columns > WIDE else limits.trees[not categories]) if trees is None else trees,
        adaptive=adaptive,
        least_sets=sets,
        processes=None  # without row mixtures a model holds no rows of the table
        if limits.processes is None or categories or columns > PROCESS_COLUMNS or not by_row.number
        else plan_processes(columns, limits.processes),
        metrics=limits.members > 0 and columns <= METRIC_COLUMNS and not categories,
        calibrated=None if effort == "best" else 1,
    )


def _plan_usual(rows: int, columns: int) -> Plan:
    cells, width = rows * columns, _width(columns)
    batch = 256 if rows >= FULL_BATCH else 128
    if cells <= SMALL:
        members = _clamp(2, round(WORK / (columns * batch * 500)), 4)
        steps = _clamp(200, WORK // (members * columns * batch), 600)
        return Plan(members, width, _flow(64, 0.2), steps, batch)
    if cells <= LARGE:
        return Plan(2, width, _flow(64, 0.2), 600, batch)
    hidden, members = 128 if columns <= 32 else 64, _clamp(1, 48 // columns, 2)
    steps = _clamp(600, 600 * cells // LONG, 1200)
    return Plan(members, width, _flow(hidden, 0.1), steps, 512)


def _plan_wide(columns: int) -> Plan:
    steps = _clamp(20, WIDE_WORK // (columns * 64), 400)
    return Plan(1, _width(columns), replace(_flow(64, 0.1), shared=16), steps, 64)


def _flow(hidden: int, dropout: float) -> Coupling:
    return Coupling(blocks=4, hidden=hidden, layers=2, dropout=dropout, gain=2.45)


def _clamp(least: int, value: int, most: int) -> int:
    return max(least, min(value, most))


def _width(columns: int) -> int:
    return _clamp(8, max(8 + columns // 3, columns), 16)
