"""How large a table's model is and how long it learns, from the table's shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vfg.flows import Coupling

MOST_ROWS = 200_000
"""How many rows are learned from, at most, drawn at random."""
START_ROWS = 20_000
"""How many rows a linear start is fitted to, at most."""
EPOCH = 25
"""Steps between two looks at the held-out cells."""
HURRIED = 5
"""The same with a budget, which is looked at as often."""
SMALL, LARGE = 30_000, 150_000
"""Numbers of cells up to which a table counts as small, and from which on as large."""
FULL_BATCH = 600
"""Tables with fewer rows learn in smaller batches."""
MOST_COLUMNS = 300
"""Tables with more columns get the linear model alone: a step would take seconds."""
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
    """

    members: int
    width: int
    flow: Coupling
    steps: int
    batch: int
    rate: float = 3e-3
    held_out: float = 0.1


def planned(
    rows: int,
    columns: int,
    *,
    members: int | None = None,
    width: int | None = None,
    flow: Coupling | None = None,
    steps: int | None = None,
) -> Plan:
    """The plan for a table; what is given is kept.

    Small tables get many small members, since averaging is what keeps them from overfitting; large
    ones get few and larger members, since there is enough to learn from. Wide ones get fewer, so
    that the work does not grow with the number of columns twice.

    Args:
        rows: of the table.
        columns: of its matrix.
        members: how many models are averaged.
        width: of their roots.
        flow: the couplings that bend their edges.
        steps: of training.

    Example:
        >>> planned(500, 8).members, planned(1_000_000, 8).members
        (6, 2)
    """
    cells = rows * columns
    if cells <= SMALL:
        made = Plan(_between(2, 60 // columns, 6), _width(columns, 16), _flow(64, 0.2), 1000, 256)
    elif cells <= LARGE:
        made = Plan(_between(2, 36 // columns, 4), _width(columns, 16), _flow(64, 0.2), 800, 256)
    else:
        hidden = 128 if columns <= 32 else 64
        made = Plan(
            _between(1, 48 // columns, 2), _width(columns, 24), _flow(hidden, 0.1), 2500, 512
        )
    return replace(
        made,
        members=members or made.members,
        width=width or made.width,
        flow=flow or made.flow,
        steps=steps or made.steps,
        batch=min(made.batch if rows >= FULL_BATCH else 128, rows),
    )


def _flow(hidden: int, dropout: float) -> Coupling:
    return Coupling(blocks=4, hidden=hidden, layers=2, dropout=dropout, gain=2.45)


def _between(least: int, value: int, most: int) -> int:
    return max(least, min(value, most))


def _width(columns: int, most: int) -> int:
    return _between(8, 8 + columns // 3, most)
