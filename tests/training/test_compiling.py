"""When compiling pays, and what happens if it cannot be done."""

import pytest
import torch

import vfg
from vfg.flows.fast.primitives import PRECISIONS
from vfg.training import steps as step_module
from vfg.training.compiling import COST, MARGIN, check_compile, compiled, expected_gain, pays


@pytest.mark.parametrize("gain", [1.25, 2.0, 4.0])
def test_it_pays_once_enough_work_is_saved(gain):
    enough = MARGIN * COST["cpu"] / (1.0 - 1.0 / gain)
    assert pays(1000, 1.01 * enough / 1000, gain, COST["cpu"])
    assert not pays(1000, 0.99 * enough / 1000, gain, COST["cpu"])
    assert pays(100, 1.01 * enough / 100, gain, COST["cpu"], budget=1.01 * enough)
    assert not pays(100_000, enough, gain, COST["cpu"], budget=0.99 * enough)


def test_it_never_pays_without_gain_or_steps():
    assert not pays(10**9, 1.0, gain=1.0, cost=1.0)
    assert not pays(0, 1e9, gain=2.0, cost=1.0)


@pytest.mark.parametrize(
    ("flow", "gains"),
    [
        (vfg.Coupling(kind="spline"), True),
        (vfg.Coupling(), False),
        (vfg.Coupling(shared=4), False),
        (vfg.Linear(), False),
    ],
)
def test_only_spline_couplings_gain_on_a_cpu(flow, gains):
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), flow=flow)
    assert (expected_gain(model, "cpu") > 1.0) == gains


@pytest.mark.parametrize("precision", PRECISIONS)
def test_affine_couplings_gain_on_a_gpu_and_nothing_else_is_known_to(precision):
    def gain(flow):
        return expected_gain(flow.build(edges=2, width=4), "cuda", precision)

    assert 1.0 < gain(vfg.Coupling()) < 2.0
    assert gain(vfg.Coupling(kind="spline")) == gain(vfg.Linear()) == 1.0


def fitted(monkeypatch, answer, **options):
    """How often the loss was compiled, and the history."""
    made = []

    def fake(loss):
        made.append(loss)
        return loss

    monkeypatch.setattr(step_module, "pays", lambda *_: answer)
    monkeypatch.setattr(step_module, "compiled", fake)
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), flow=vfg.Coupling(hidden=4))
    table = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    history = vfg.fit(model, table, epochs=3, batch=32, progress=False, device="cpu", **options)
    return len(made), history


def test_the_first_epoch_decides_once(monkeypatch):
    count, history = fitted(monkeypatch, True)
    assert count == 1
    assert fitted(monkeypatch, False)[0] == 0
    count, plain = fitted(monkeypatch, True, compile=False)
    assert count == 0
    assert [epoch.objective for epoch in plain] == [epoch.objective for epoch in history]


def test_a_loss_that_cannot_be_compiled_runs_as_it_is(monkeypatch):
    def broken(loss):
        def call(*_):
            raise RuntimeError("no compiler was found\nand more")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    loss = compiled(lambda x: 2.0 * x)
    with pytest.warns(UserWarning, match=r"not compiled and run slower: no compiler was found$"):
        assert loss(torch.tensor(3.0)) == 6.0
    assert loss(torch.tensor(4.0)) == 8.0


def test_errors_of_the_loss_itself_are_raised(monkeypatch):
    def fails(x):
        raise RuntimeError("the loss is broken")

    monkeypatch.setattr(torch, "compile", lambda loss: loss)
    with pytest.raises(RuntimeError, match="the loss is broken"):
        compiled(fails)(torch.ones(1))


def test_other_words_are_refused():
    with pytest.raises(ValueError, match='compile is True, False or "auto", but got'):
        check_compile("always")
