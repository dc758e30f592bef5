"""Long gradients are shortened by what is usual, and runs that blow up find back."""

import math
import warnings

import numpy as np
import pytest
import torch

import vfg
from vfg.training import loop
from vfg.training.history import Epoch
from vfg.training.optimiser import AdamW, RunningNorm, has_diverged

EPOCHS = {"epochs": 12, "batch": 64, "progress": False}


def bent(rows=300):
    """Five columns that are functions of two numbers."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, rows, generator=generator)
    table = torch.stack([x, x.square(), y, x * y, x + y], dim=1)
    return table + 0.1 * torch.randn(rows, 5, generator=generator)


def sampled(seed=0, **options):
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 2}, width=3)
    flow = vfg.Coupling(blocks=2, hidden=16)
    fixed = {"aggregation": "mean", "latent": "laplace", "likelihood": vfg.Gaussian()}
    return vfg.VFG(graph, flow=flow, states="sampled", seed=seed, **fixed | options)


def epoch(number, objective, validation, beta=1.0):
    return Epoch(number, objective, 0.0, 0.0, 0.0, 0.0, 0.0, validation, 1e-3, beta, 0.0)


def states_equal(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# Gradients.


def test_usual_norms_are_a_running_mean_of_shortened_norms():
    usual, expected = RunningNorm(torch.device("cpu")), 3.0
    assert usual.factor(torch.tensor(3.0)).item() == 1.0
    for norm in (4.0, 5.9, 1000.0, 0.5):
        limited = min(norm, 2.0 * expected)
        assert usual.factor(torch.tensor(norm)).item() == pytest.approx(limited / norm)
        expected += 0.02 * (limited - expected)
        assert usual.value.item() == pytest.approx(expected)


@pytest.mark.parametrize("norm", [math.inf, math.nan])
def test_norms_that_are_not_finite_are_not_remembered(norm):
    usual = RunningNorm(torch.device("cpu"))
    usual.factor(torch.tensor(norm))
    assert usual.value.item() == 0.0
    usual.factor(torch.tensor(2.0))
    usual.factor(torch.tensor(norm))
    assert usual.value.item() == 2.0


def test_no_gradient_at_all_stays_none():
    assert RunningNorm(torch.device("cpu")).factor(torch.tensor(0.0)).item() == 1.0


def test_a_long_gradient_is_shortened_to_twice_the_usual_norm():
    model = torch.nn.Linear(3, 2)
    optimiser = AdamW(model, 1e-3, 0.0)
    for length in (1.0, 1.0, 50.0):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, length / math.sqrt(8))
        found = optimiser.clip("running")
        assert found.item() == pytest.approx(length)
    norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    assert norm.item() == pytest.approx(2.0)
    kept = optimiser.copy()
    optimiser.restore({})
    assert optimiser.usual.value.item() == 0.0
    optimiser.restore(kept)
    assert optimiser.usual.value.item() == pytest.approx(1.02)


@pytest.mark.parametrize("clip", ["often", "", 0.0, -1.0])
def test_clips_that_cannot_be_are_refused(clip):
    with pytest.raises(ValueError, match="clip"):
        vfg.fit(sampled(), bent(), clip=clip, **EPOCHS)


# Epochs.

LEARNED = [epoch(0, -9.0, 2.0), epoch(1, -6.0, 1.4), epoch(2, -5.0, 1.2), epoch(3, -4.9, 1.21)]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (epoch(4, -20.0, 4.0), True),
        (epoch(4, -20.0, math.inf), True),
        (epoch(4, -4.0, 4.0), False),  # learned by heart
        (epoch(4, -20.0, 1.3), False),  # predicts as before
        (epoch(4, -20.0, 1.55), False),  # less than half of what was learned
        (epoch(4, -20.0, 4.0, beta=0.5), False),  # not comparable
        (epoch(4, -20.0, None), False),
    ],
)
def test_blow_ups_are_told_from_other_bad_epochs(last, expected):
    assert has_diverged(LEARNED, last) is expected


def test_the_first_epoch_cannot_blow_up():
    assert not has_diverged([], epoch(0, -1e9, 1e9))


# Runs.


def test_a_rate_that_explodes_is_survived_with_one_warning():
    gentle, wild = sampled(), sampled()
    expected = vfg.fit(gentle, bent(), rate=3e-2, **EPOCHS)
    with pytest.warns(UserWarning, match=r"diverged in epoch \d+, .*best state") as caught:
        history = vfg.fit(wild, bent(), rate=2.0, clip=1e9, **EPOCHS)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert history.restarts >= 2
    assert len(history) == EPOCHS["epochs"]
    assert all(value.isfinite().all() for value in wild.state_dict().values())
    best, other = (run[run.best].validation for run in (history, expected))
    assert best < other + 0.15
    assert max(one.validation for one in history) < history[0].validation + 0.5


@pytest.mark.parametrize("states", ["sampled", "deterministic"])
def test_nothing_changes_where_nothing_blows_up(monkeypatch, states):
    model, alone = sampled(), sampled()
    if states == "deterministic":
        model, alone = (vfg.VFG(model.graph, flow=vfg.Coupling(2, 16)) for _ in range(2))
    vfg.fit(model, bent(), **EPOCHS)
    monkeypatch.setattr(loop, "has_diverged", lambda *epochs: False)
    vfg.fit(alone, bent(), **EPOCHS)
    assert states_equal(model, alone)


def test_a_run_that_blows_up_at_every_rate_ends_at_its_best_state(monkeypatch):
    model, alone = sampled(), sampled()
    monkeypatch.setattr(loop, "has_diverged", lambda before, epoch: len(before) >= 2)
    with pytest.warns(UserWarning, match="diverged in epoch 2"):
        history = vfg.fit(model, bent(), **EPOCHS)
    assert history.stopped == "diverged"
    assert history.restarts == loop.RESTARTS
    assert len(history) == 2
    assert "diverged" in repr(history)
    monkeypatch.undo()
    monkeypatch.setattr(loop.Run, "_decide", _stop_after_two)
    vfg.fit(alone, bent(), **EPOCHS)
    assert states_equal(model, alone)


def _stop_after_two(self):
    if len(self.history) == 2:
        self.history.stopped = "epochs"


def test_a_loss_that_breaks_twice_goes_back_to_the_best_state(monkeypatch):
    model, calls, restored = sampled(), [], []
    real, restore = loop.Steps.epoch, loop._restore

    def broken(self, number, *others):
        means, finite = real(self, number, *others)
        calls.append(number)
        return means, finite and calls.count(3) not in (1, 2)

    monkeypatch.setattr(loop.Steps, "epoch", broken)
    monkeypatch.setattr(loop, "_restore", lambda m, s: (restored.append(s), restore(m, s)))
    history = vfg.fit(model, bent(), **EPOCHS)
    assert history.restarts == calls.count(3) - 1 == 2
    assert restored[0] is not restored[1]
    assert len(history) == EPOCHS["epochs"]


def test_running_norms_survive_a_resumed_run(tmp_path, monkeypatch):
    expected, model = sampled(), sampled()
    vfg.fit(expected, bent(), clip="running", **EPOCHS)
    decide = loop.Run._decide

    def crash(self):
        decide(self)
        if len(self.history) == 5:
            raise RuntimeError("power failure")

    monkeypatch.setattr(loop.Run, "_decide", crash)
    options = {"clip": "running", "checkpoint": tmp_path, **EPOCHS}
    with pytest.raises(RuntimeError, match="power failure"):
        vfg.fit(sampled(), bent(), **options)
    monkeypatch.undo()
    history = vfg.fit(model, bent(), **options)
    assert len(history) == EPOCHS["epochs"]
    assert states_equal(model, expected)


@pytest.mark.parametrize("clip", [1.0, "running"])
def test_clipping_does_not_keep_a_model_from_learning(clip):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = vfg.fit(sampled(), bent(), rate=2e-2, clip=clip, **EPOCHS)
    losses = [one.validation for one in history]
    assert np.isfinite(losses).all()
    assert min(losses) < losses[0] - 0.1
