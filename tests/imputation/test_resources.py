"""Budgets, by a clock on which every piece of work takes as long as it is told to."""

from types import SimpleNamespace

import pytest
from imputation.mixed_tables import light, mixed, numbers

import vfg
from vfg.imputation import (
    calibration,
    fitting,
    gaussian_processes,
    held_out,
    mixtures,
    resources,
    trees,
)
from vfg.imputation.resources import Resources, Turn

COSTS = {
    (fitting, "fit_linear"): 0.5,
    (fitting, "fit_row_mixture"): 2.0,
    (mixtures, "fit_mixture"): 3.0,
    (held_out, "_held_out_cells"): 1.0,
    (fitting, "_filled"): 0.2,
    (trees.Growing, "_keep"): 0.1,
    (gaussian_processes, "_fit_scales"): 1.0,
    (calibration, "hide_further"): 0.5,
}
"""Seconds of pieces of work; without a budget, those of the table below take 22."""
LONGEST = max(COSTS.values())


class Clock:
    """A clock that only work moves, and when which work began."""

    def __init__(self):
        self.seconds, self.begun = 0.0, []

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    ticking = Clock()
    time = SimpleNamespace(monotonic=ticking, process_time=ticking)
    monkeypatch.setattr(resources, "time", time)

    def working(name, work, cost):
        def timed(*given, **options):
            ticking.begun.append((name, ticking.seconds))
            ticking.seconds += cost
            return work(*given, **options)

        return timed

    for (place, name), cost in COSTS.items():
        monkeypatch.setattr(place, name, working(name, getattr(place, name), cost))
    return ticking


def fitted(budget, table=None):
    model = vfg.TableModel(effort="fast", trees=8, budget=budget, n_jobs=1)
    model.fit(numbers(rows=90, columns=5)[1] if table is None else table)
    return model


def test_without_a_budget_every_part_is_fitted(clock):
    model = fitted(None)
    assert clock.seconds > 20.0
    assert model.left_out == ()
    assert model.forest.trees == 8
    assert len(model.processes.targets) == 5


@pytest.mark.parametrize("budget", [1.0, 4.0, 8.0, 12.0, 20.0, 25.0, 1e6])
@pytest.mark.parametrize("kind", ["numbers", "mixed"])
def test_nothing_begins_after_the_end_and_parts_without_time_are_named(clock, budget, kind):
    model = fitted(budget, mixed(rows=90) if kind == "mixed" else None)
    late = [(name, begun) for name, begun in clock.begun if begun >= budget]
    assert not late
    assert clock.seconds <= budget + LONGEST
    there = {
        "row mixtures": len(model.neighbours) > 0,
        "mixtures": len(model.mixtures) > 0,
        "trees": model.forest is not None,
        "Gaussian processes": model.processes is not None or kind == "mixed",
    }
    lacking = {part for part, is_there in there.items() if not is_there}
    assert lacking == set(model.left_out) - {"calibration"}
    assert (budget < 1e6) or not model.left_out
    assert model.left_out or budget > 4.0


def test_much_of_a_budget_is_used(clock):
    for budget in (8.0, 12.0, 20.0):
        clock.seconds, clock.begun = 0.0, []
        fitted(budget)
        assert clock.seconds > 0.7 * budget


def test_a_slow_linear_model_stays_alone(clock, monkeypatch):
    linear = fitting.fit_linear

    def slow(*given, **options):
        clock.seconds += 7.0
        return linear(*given, **options)

    monkeypatch.setattr(fitting, "fit_linear", slow)
    model = fitted(10.0)
    assert not model.is_stacked
    assert model.left_out == ("row mixtures", "mixtures", "trees", "Gaussian processes")


def test_training_members_keeps_to_the_budget(clock, monkeypatch):
    """A look at the clock takes as long as a step of training."""

    def look():
        clock.seconds += 0.01
        return clock.seconds

    monkeypatch.setattr("vfg.training.loop.time", SimpleNamespace(monotonic=look))
    model = light(steps=1_000_000, budget=10.0).fit(numbers(rows=100)[1]).model_
    assert len(model.member_models) >= 1
    assert model.history.stopped == "budget"
    assert clock.seconds <= 10.0 + LONGEST


def test_a_turn_has_time_for_what_ends_in_it(clock):
    turn = Turn(10.0)
    assert turn.has_time_for_another(0)
    clock.seconds = 4.0
    assert turn.has_time_for_another(1)
    clock.seconds = 8.0
    assert not turn.has_time_for_another(2)
    assert turn.has_time_for_another(8)
    assert turn.first(0.5).left == 1.0
    clock.seconds = 10.0
    assert turn.is_past
    assert not turn.has_time_for_another(100)


def test_parts_share_what_is_left_and_leave_the_rest_to_later_ones(clock):
    shared = Resources(10.0)
    clock.seconds = 2.0
    shared.share_out({"a": 1.0, "b": 3.0}, used=1.0)
    assert [shared.turn(part).left for part in ("a", "b", "other")] == [2.0, 8.0, 8.0]
    with shared.part("a", 1.0) as turn:
        turn.give_up()
    with shared.part("b", 1.0) as turn:
        assert turn.left == 8.0
    assert shared.left_out == ["a"]
    endless = Resources(None)
    endless.share_out({"a": 1.0}, used=1.0)
    assert not endless.turn("a").is_limited
    assert endless.left("a") is None
