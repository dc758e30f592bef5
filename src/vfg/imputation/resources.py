"""The time of a fit, to which every part keeps, with its progress bar and its threads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from vfg.imputation.progress import FitBar

TRAINING_SHARE = 0.2
"""The share of a budget that must be left for members, or they are not trained."""


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
    Parts have shares of the time after the linear model, once `share_out` was called. What a part
    does not need is left to those after it.
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
        self.ends: dict[str, float] = {}  # of parts, in seconds of a budget
        self.linear = 0.0  # seconds of the linear model
        self.last = 0.0  # seconds of what was measured last
        self.slowness = 1.0  # seconds per second of a processor
        self.left_out: list[str] = []  # parts that there was no time for

    @contextmanager
    def part(self, name: str, work: float, within: str | None = None) -> Iterator[Turn]:
        """Fit a part, which is shown in the bar and noted as left out if it gives up.

        Its time is that of its name, or of another part that it is `within`.
        """
        with self.bar.part(name, work) as show:
            turn = self.turn(within or name, show)
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

    def share_out(self, shares: Mapping[str, float], used: float) -> None:
        """Give parts, in their order, shares of what is left now of a used share of the budget."""
        if self.budget is None:
            return
        end, ahead = self.spent, sum(shares.values())
        left = max(used * self.budget - end, 0.0)
        for part, share in shares.items():
            end += left * share / ahead
            self.ends[part] = end

    def turn(self, part: str, show: Callable[[float], None] | None = None) -> Turn:
        """The time of a part; all of the budget without a share."""
        if self.budget is None:
            return Turn(None, show)
        return Turn(self.begun + self.ends.get(part, self.budget), show)

    def leave_out(self, *parts: str) -> None:
        """Note that there was no time for some parts."""
        self.left_out += [part for part in parts if part not in self.left_out]

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return now() - self.begun

    def is_past(self, share: float) -> bool:
        """Whether more than a share of the budget is spent."""
        return self.budget is not None and self.spent > share * self.budget

    def left(self, part: str) -> float | None:
        """Seconds of a processor until the end of a part; None without a budget."""
        if self.budget is None:
            return None
        return max(0.0, self.turn(part).left) / self.slowness

    def left_for_training(self) -> float | None:
        """Seconds in which members may be trained, so that there is time to weigh them."""
        if self.budget is None:
            return None
        return max(0.05 * self.budget, self.turn("members").left - 1.5 * self.last)

    def is_left_for_members(self) -> bool:
        """Whether there is time to train members and to weigh them."""
        if self.budget is None or self.members:
            return True
        return self.turn("members").left - 1.5 * self.last > TRAINING_SHARE * self.budget
