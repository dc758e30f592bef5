"""Sizes of all parts by the shape of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vfg.flows import Coupling

ROWS = (3_000, 10_000)
"""How many rows a mixture is fitted to, at most, of tables that are not large and that are; every
mixture to others."""
COMPONENTS = (64, 96)
"""The most components, likewise."""
ROWS_PER_COMPONENT = 10
"""How many rows there are for every component, counting known cells."""
ITERATIONS = 15
"""How often expectations are taken, at most."""
MIXTURE_WORK = 12_000_000
"""How often all mixtures together look at a row of eleven columns through a component."""
LOOK_SECONDS = 5e-7
"""What one such look takes, about."""
MOST_MIXTURES = 16
"""Mixtures at the most."""
COMPONENTS_IN_ALL = 400
"""Through how many components a row is looked at when it is filled, about."""


@dataclass(frozen=True)
class MixturePlan:
    """How many mixtures there are, and of which size.

    Args:
        number: of mixtures.
        components: of each.
        rows: to which each is fitted, at most.
        width: of their roots.
        columns: of the matrix.
    """

    number: int
    components: int
    rows: int
    width: int
    columns: int

    @property
    def work(self) -> float:
        """What one of them takes, in looks at rows of eleven columns."""
        active = min(self.components, 4 + self.components / 8)
        looks = (2 + ITERATIONS / 5) * self.components + 3 * ITERATIONS * active
        size = self.width**2 * (self.width + self.columns) / 2662
        return float(self.rows * looks * max(1.0, size) ** 0.6)

    def within(self, seconds: float) -> MixturePlan:
        """Smaller ones, so that the first takes no longer than this."""
        share = min(1.0, seconds / (self.work * LOOK_SECONDS)) ** 0.5
        return replace(
            self,
            components=max(2, int(share * self.components)),
            rows=max(min(500, self.rows), int(share * self.rows)),
        )


def planned_mixtures(
    rows: int, columns: int, *, known: float, width: int, large: bool, number: int | None = None
) -> MixturePlan:
    """Components by how much is known; as many mixtures as there is time for.

    Args:
        rows: of the table.
        columns: of its matrix.
        known: share of its entries that are known.
        width: of the roots.
        large: whether the table is large.
        number: of mixtures, if it is given.

    Example:
        >>> plan = planned_mixtures(1000, 8, known=0.5, width=10, large=False)
        >>> plan.number, plan.components
        (8, 50)
    """
    components = min(int(known * rows / ROWS_PER_COMPONENT), COMPONENTS[large])
    plan = MixturePlan(1, max(2, components), min(rows, ROWS[large]), width, columns)
    if number is None:
        number = min(
            int(MIXTURE_WORK / plan.work), COMPONENTS_IN_ALL // plan.components, MOST_MIXTURES
        )
        number = max(1 + large, number)
    return replace(plan, number=number)


MOST_ROW_MIXTURES = 10_000
"""How many rows are components, at most, drawn at random."""
FEW, MANY = 6, 20
"""Numbers of columns below which there are fewer mixtures, and from which on there are more."""
CELLS = 1_000_000
"""How many cells all components of a mixture have, at most."""
ROW_LOOK_SECONDS = 3e-7
"""What fitting takes per pair of components, about."""


@dataclass(frozen=True)
class Kind:
    """How one of several differs from the others.

    Args:
        ranks: whether columns are brought halfway to a Normal form.
        hears_all: whether all columns count in who is a neighbour, or only some, drawn at random.
    """

    ranks: bool
    hears_all: bool


KINDS = (Kind(True, True), Kind(False, True), Kind(True, False), Kind(False, False))
"""Of one, of the next, and again."""


@dataclass(frozen=True)
class NeighbourPlan:
    """How many such mixtures there are, and of which size.

    Args:
        number: of mixtures.
        components: of each, at most.
        columns: of the matrix.
    """

    number: int
    components: int
    columns: int

    def within(self, seconds: float) -> NeighbourPlan:
        """Fewer components, so that all take no longer than this, about."""
        affordable = (seconds / (max(self.number, 1) * ROW_LOOK_SECONDS)) ** 0.5
        return replace(self, components=max(100, min(self.components, int(affordable))))


def planned_neighbours(
    rows: int, columns: int, *, large: bool, number: int | None = None
) -> NeighbourPlan:
    """The more columns there are, the more mixtures hear different ones.

    Args:
        rows: of the table.
        columns: of its matrix.
        large: whether the table is large.
        number: of mixtures, if it is given.

    Example:
        >>> planned_neighbours(1000, 4, large=False).number
        2
        >>> planned_neighbours(1000, 8, large=False).number
        4
    """
    if number is None:
        number = 2 if large or columns < FEW else 4 if columns < MANY else 6
    return NeighbourPlan(number, min(rows, MOST_ROW_MIXTURES, CELLS // columns), columns)


MOST_ROWS = 200_000
"""How many rows are learned from, at most, drawn at random."""
EPOCH = 25
"""Steps between two looks at the held-out cells."""
HURRIED = 5
"""The same with a budget, which is looked at as often."""
SMALL, LARGE = 30_000, 150_000
"""Numbers of cells up to which a table counts as small, and from which on as large."""
LONG = 400_000
"""Cells up to which a large table gets 600 steps; one twice as large gets twice as many."""
FULL_BATCH = 600
"""Tables with fewer rows learn in smaller batches."""
WORK = 2_000_000
"""How many rows of all edges the members of a small table learn from together. Mixtures and
neighbours say most of what there is to say: four times the work is no better on tables tried."""
WIDE = 300
"""Columns from which on one conditioner serves all of them, told apart by embeddings."""
WIDE_WORK = 4_000_000
"""The same as `WORK` for these tables."""
MOST_COLUMNS = 3_000
"""Tables with more columns get the linear model alone: a step would take many seconds."""
FEWEST_ROWS = 20
"""Below this many rows nothing is bent."""


@dataclass(frozen=True)
class Plan:
    """The size of an ensemble and its training.

    Args:
        members: how many models are averaged.
        width: of their roots.
        flow: the couplings that bend their edges.
        steps: of training.
        batch: rows per step.
        rate: the highest learning rate.
        held_out: share of the observed cells that each member keeps aside to know when to stop.
        mixtures: exact mixtures that are averaged with them; None means no plan for any.
        neighbours: mixtures with a component at every row, likewise.
    """

    members: int
    width: int
    flow: Coupling
    steps: int
    batch: int
    rate: float = 3e-3
    held_out: float = 0.1
    mixtures: MixturePlan | None = None
    neighbours: NeighbourPlan | None = None


def planned(
    rows: int,
    columns: int,
    *,
    known: float = 1.0,
    members: int | None = None,
    mixtures: int | None = None,
    neighbours: int | None = None,
    width: int | None = None,
    flow: Coupling | None = None,
    steps: int | None = None,
) -> Plan:
    """The plan for a table; what is given is kept.

    Small tables get many small members, since averaging is what keeps them from overfitting; large
    ones get few and larger members, since there is enough to learn from. The wider a table, the
    fewer members, so that the work stays the same; the widest get one, whose columns share their
    conditioner.

    Args:
        rows: of the table.
        columns: of its matrix.
        known: share of its entries that are known.
        members: how many models are averaged.
        mixtures: how many exact mixtures are averaged with them.
        neighbours: how many mixtures with a component at every row.
        width: of their roots.
        flow: the couplings that bend their edges.
        steps: of training.

    Example:
        >>> planned(500, 8).members, planned(1_000_000, 8).members
        (4, 2)
    """
    made = _wide(columns) if columns > WIDE else _usual(rows, columns)
    flow = flow or (made.flow if members in (None, 1) else replace(made.flow, shared=0))
    width = width or made.width
    number = 0 if mixtures is None and columns > WIDE else mixtures
    near = 0 if neighbours is None and columns > WIDE else neighbours
    large = rows * columns > LARGE
    return replace(
        made,
        members=members or made.members,
        width=width,
        flow=flow,
        steps=steps or made.steps,
        batch=min(made.batch, rows),
        mixtures=planned_mixtures(
            rows, columns, known=known, width=width, large=large, number=number
        ),
        neighbours=planned_neighbours(rows, columns, large=large, number=near),
    )


def _usual(rows: int, columns: int) -> Plan:
    cells, width = rows * columns, _width(columns)
    batch = 256 if rows >= FULL_BATCH else 128
    if cells <= SMALL:
        members = _between(2, round(WORK / (columns * batch * 500)), 4)
        steps = _between(200, WORK // (members * columns * batch), 600)
        return Plan(members, width, _flow(64, 0.2), steps, batch)
    if cells <= LARGE:
        return Plan(2, width, _flow(64, 0.2), 600, batch)
    hidden, members = 128 if columns <= 32 else 64, _between(1, 48 // columns, 2)
    steps = _between(600, 600 * cells // LONG, 1200)
    return Plan(members, width, _flow(hidden, 0.1), steps, 512)


def _wide(columns: int) -> Plan:
    steps = _between(20, WIDE_WORK // (columns * 64), 400)
    return Plan(1, _width(columns), replace(_flow(64, 0.1), shared=16), steps, 64)


def _flow(hidden: int, dropout: float) -> Coupling:
    return Coupling(blocks=4, hidden=hidden, layers=2, dropout=dropout, gain=2.45)


def _between(least: int, value: int, most: int) -> int:
    return max(least, min(value, most))


def _width(columns: int) -> int:
    return _between(8, max(8 + columns // 3, columns), 16)
