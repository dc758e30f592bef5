"""The progress bar of a fit, and threads that come back."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from vfg.imputation.fitting import _fit_parts
from vfg.imputation.progress import FitBar, limited_threads
from vfg.imputation.resources import Resources
from vfg.imputation.settings import ImputerSettings
from vfg.sklearn import VFGImputer
from vfg.tables.frames import open_table


def table(rows=60):
    generator = np.random.default_rng(0)
    values = generator.normal(size=(rows, 1)) + 0.5 * generator.normal(size=(rows, 4))
    return np.where(generator.random(values.shape) < 0.2, np.nan, values)


def test_the_bar_ends_at_the_whole_and_shows_parts_and_errors(capsys):
    VFGImputer(effort="fast", verbose=True, random_state=0).fit(table())
    shown = "".join(capsys.readouterr())
    assert "100%" in shown
    assert "held-out error" in shown


def test_the_bar_moves_through_every_part_and_never_back():
    seen, shares = [], []

    class Watched(FitBar):
        @contextmanager
        def part(self, name, work):
            seen.append(name)
            with super().part(name, work) as show:

                def watched(share):
                    show(share)
                    shares.append((name, self.completed))

                yield watched
            shares.append((name, self.completed))

    generator = np.random.default_rng(1)
    values = np.where(generator.random((120, 4)) < 0.2, np.nan, generator.normal(size=(120, 4)))
    with Watched(visible=False) as bar:
        settings = ImputerSettings(effort="fast", trees=5, seed=0)
        _fit_parts(open_table(values), settings, None, Resources(None, bar), None)
        assert bar.completed == pytest.approx(1.0)
    names = list(dict.fromkeys(seen))
    last = ["row mixtures", "mixtures", "weights", "trees", "Gaussian processes", "calibration"]
    assert names[-6:] == last
    for name in ("trees", "Gaussian processes", "calibration"):
        assert len({share for part, share in shares if part == name}) >= 3
    assert [share for _, share in shares] == sorted(share for _, share in shares)


def test_parts_advance_the_bar():
    bar = FitBar(visible=False)
    bar.plan(10.0)
    with bar.part("mixtures", 4.0) as show:
        assert bar.completed == 0.0
        show(0.5)
        assert bar.completed == 0.2
    assert bar.completed == 0.4


def test_the_bar_moves_before_all_work_is_known():
    shares = []

    class Watched(FitBar):
        def plan(self, work):
            shares.append(self.completed)
            super().plan(work)
            shares.append(self.completed)

    with Watched(visible=False) as bar:
        resources = Resources(None, bar)
        fit_parts_with(resources)
    assert 0.0 < shares[0] < shares[1] < 0.5  # read, encoded, linear: of 40, then of the plan


def fit_parts_with(resources):
    settings = ImputerSettings(effort="fast", seed=0)
    return _fit_parts(open_table(table()), settings, None, resources, None)


def threads_of_blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_the_threads_of_blas_are_limited_and_come_back():
    with threadpool_limits(2, user_api="blas"):
        before = threads_of_blas()
        with limited_threads(None), limited_threads(None):
            assert set(threads_of_blas()) == {1}
        assert threads_of_blas() == before
        with limited_threads(2):
            assert set(threads_of_blas()) == {2}
        assert threads_of_blas() == before


def test_threads_are_as_before_even_if_fits_overlap():
    before = torch.get_num_threads()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with limited_threads(None):
            entered.set()
            leave.wait(10.0)

    thread = threading.Thread(target=other)
    torch.set_num_threads(2)
    try:
        with limited_threads(None) as workers:
            thread.start()
            entered.wait(10.0)
            assert workers == 2
            assert torch.get_num_threads() == 1
        leave.set()
        thread.join()
        assert torch.get_num_threads() == 2
        with limited_threads(3) as workers:
            assert workers == torch.get_num_threads() == 3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_spent_budget_leaves_the_linear_model():
    imputer = VFGImputer(budget=1e-3, random_state=0).fit(table())
    assert not imputer.model_.is_stacked
    assert "mixtures" in imputer.model_.left_out
    assert np.isfinite(imputer.transform(table())).all()


def test_members_need_time():
    resources = Resources(10.0)
    assert resources.is_left_for_members()
    resources.begun -= 8.0
    assert not resources.is_left_for_members()
    assert Resources(None).left_for_training() is None
