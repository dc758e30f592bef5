"""How large a table's model is and how long it learns, from the table's shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vfg.flows import Coupling
from vfg.imputation.mixture_plan import MixturePlan, planned_mixtures
from vfg.imputation.row_mixture_plan import NeighbourPlan, planned_neighbours

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
