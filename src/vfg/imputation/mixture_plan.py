"""How many exact mixtures there are beside the bent members, and of which sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

ROWS = (3_000, 10_000)
"""How many rows a mixture is fitted to, at most, of tables that are not large and that are; every
mixture to others."""
COMPONENTS = (64, 96)
"""The most components, likewise."""
ROWS_PER_COMPONENT = 10
"""How many rows there are for every component, counting known cells."""
ITERATIONS = 15
"""How often expectations are taken, at most."""
WORK = 12_000_000
"""How often all mixtures together look at a row of eleven columns through a component."""
LOOK_SECONDS = 5e-7
"""What one such look takes, about."""
MOST = 16
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
        number = min(int(WORK / plan.work), COMPONENTS_IN_ALL // plan.components, MOST)
        number = max(1 + large, number)
    return replace(plan, number=number)
