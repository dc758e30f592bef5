"""How many mixtures over rows there are, of which kinds and sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST = 10_000
"""How many rows are components, at most, drawn at random."""
FEW, MANY = 6, 20
"""Numbers of columns below which there are fewer mixtures, and from which on there are more."""
CELLS = 1_000_000
"""How many cells all components of a mixture have, at most."""
LOOK_SECONDS = 3e-7
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
        affordable = (seconds / (max(self.number, 1) * LOOK_SECONDS)) ** 0.5
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
    return NeighbourPlan(number, min(rows, MOST, CELLS // columns), columns)
