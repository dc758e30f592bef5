"""The time of a fit, to which every part keeps, with its progress bar and its threads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vfg.imputation.plan import Plan
from vfg.imputation.progress import FitBar


def now() -> float:
    """Seconds of the clock that budgets are measured by."""
    return time.monotonic()


class Turn:
    """The time that a part of a fit has, and its share of the progress bar.

    Args:
        end: when the part ends, in seconds of `now`; None (default) for no limit.
        show: is told which share of the part is done.

    Example:
        >>> Turn().left, Turn().is_past
        (inf, False)
        >>> Turn(now() - 1.0).is_past
        True
    """

    def __init__(
        self, end: float | None = None, show: Callable[[float], None] | None = None
    ) -> None:
        self.end, self._show = end, show
        self.gave_up = False  # whether the part is left out for lack of time
        self._begun = None if end is None else now()  # without a limit nothing depends on a clock

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.end is not None

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return math.inf if self.end is None else self.end - now()

    @property
    def is_past(self) -> bool:
        """Whether nothing may begin any more."""
        return self.left <= 0.0

    @property
    def spent(self) -> float:
        """Seconds since the part began; 0 without a limit."""
        return 0.0 if self._begun is None else now() - self._begun

    def has_time_for_another(self, done: int) -> bool:
        """Whether one more of several equal pieces, of which some are done, ends in time."""
        return self.left > (self.spent / done if done else 0.0)

    def first(self, share: float) -> Turn:
        """The first share of the time that is left."""
        return self if self.end is None else Turn(now() + share * self.left, self._show)

    def give_up(self) -> None:
        """Note that the part is left out for lack of time."""
        self.gave_up = True

    def show(self, share: float) -> None:
        """Show that a share of the part is done."""
        if self._show is not None:
            self._show(share)


class Resources:
    """The time of a fit, its progress bar and its threads.

    Seconds of a budget are those of a clock; None is unlimited, and nothing depends on a clock.
    Shares are of the time after the linear model, once `share_out` was called.
    """

    def __init__(
        self,
        budget: float | None = None,
        bar: FitBar | None = None,
        workers: int | None = None,
        *,
        members: bool = False,
    ) -> None:
        self.begun, self.budget = now(), budget
        self.bar, self.workers = bar or FitBar(visible=False), workers
        self.members = members  # whether a number of members is asked for
        self.first = 0.0  # seconds before the time that is shared out
        self.linear = 0.0  # seconds of the linear model
        self.last = 0.0  # seconds of what was measured last
        self.slowness = 1.0  # seconds per second of a processor
        self.left_out: list[str] = []  # parts that there was no time for

    @contextmanager
    def part(self, name: str, work: float, until: float = 1.0) -> Iterator[Turn]:
        """Fit a part, which is shown in the bar and ends when a share of the time is spent.

        It is noted as left out if it gave up.
        """
        with self.bar.part(name, work) as show:
            turn = Turn(self.deadline(until), show)
            yield turn
        if turn.gave_up:
            self.leave_out(name)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure how long something takes, and how much other processes slow it down."""
        begun, used = now(), time.process_time()
        yield
        self.last = now() - begun
        self.slowness = max(1.0, self.last / max(time.process_time() - used, 1e-3))

    def share_out(self) -> None:
        """Let shares be those of the time that is left now."""
        self.first = 0.0 if self.budget is None else min(self.spent, self.budget)

    def leave_out(self, part: str) -> None:
        """Note that there was no time for a part."""
        if part not in self.left_out:
            self.left_out.append(part)

    def leave_out_all(self, plan: Plan) -> None:
        """Note that there was time for the linear model alone."""
        rows, mixtures = (x is not None and x.number > 0 for x in (plan.neighbours, plan.mixtures))
        planned = {
            "row mixtures": rows,
            "mixtures": mixtures,
            "members": plan.members > 0,
            "trees": plan.trees > 0,
            "Gaussian processes": plan.processes is not None,
        }
        self.left_out = [part for part, is_planned in planned.items() if is_planned]

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return now() - self.begun

    def is_past(self, share: float) -> bool:
        """Whether more than a share is spent."""
        return self.budget is not None and Turn(self.deadline(share)).is_past

    def deadline(self, share: float) -> float | None:
        """When a share is spent, in seconds of `now`; None without a budget."""
        if self.budget is None:
            return None
        return self.begun + self.first + share * (self.budget - self.first)

    def left(self, share: float) -> float | None:
        """Seconds of a processor until a share is spent; None without a budget."""
        if self.budget is None:
            return None
        return max(0.0, Turn(self.deadline(share)).left) / self.slowness

    def left_for_training(self, share: float) -> float | None:
        """Seconds in which members may be trained, so that they are weighed within a share."""
        if self.budget is None:
            return None
        return max(0.05 * self.budget, Turn(self.deadline(share)).left - 1.5 * self.last)

    def is_left_for_members(self, share: float, least: float) -> bool:
        """Whether training members may take a least share of the budget within another one."""
        if self.budget is None or self.members:
            return True
        return Turn(self.deadline(share)).left - 1.5 * self.last > least * self.budget
