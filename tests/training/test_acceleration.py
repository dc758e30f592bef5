"""Recorded steps: what they read must not move, and replaying must be running."""

from contextlib import nullcontext
from itertools import count
from typing import ClassVar

import pytest
import torch

import vfg
from vfg.flows.fast.primitives import PRECISIONS
from vfg.training import steps as step_module
from vfg.training.acceleration import (
    COST,
    MARGIN,
    WARM_UP,
    Recorder,
    Replayed,
    compile_loss,
    compiling_pays,
    expected_gain,
)
from vfg.training.data import TrainingTable, World
from vfg.training.history import Progress
from vfg.training.loop import Run
from vfg.training.settings import RunSettings
from vfg.training.tasks import TableTask


@pytest.mark.parametrize("gain", [1.25, 2.0, 4.0])
def test_it_pays_once_enough_work_is_saved(gain):
    enough = MARGIN * COST["cpu"] / (1.0 - 1.0 / gain)
    assert compiling_pays(1000, 1.01 * enough / 1000, gain, COST["cpu"])
    assert not compiling_pays(1000, 0.99 * enough / 1000, gain, COST["cpu"])
    assert compiling_pays(100, 1.01 * enough / 100, gain, COST["cpu"], budget=1.01 * enough)
    assert not compiling_pays(100_000, enough, gain, COST["cpu"], budget=0.99 * enough)


def test_it_never_pays_without_gain_or_steps():
    assert not compiling_pays(10**9, 1.0, gain=1.0, cost=1.0)
    assert not compiling_pays(0, 1e9, gain=2.0, cost=1.0)


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

    monkeypatch.setattr(step_module, "compiling_pays", lambda *_: answer)
    monkeypatch.setattr(step_module, "compile_loss", fake)
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
    loss = compile_loss(lambda x: 2.0 * x)
    with pytest.warns(UserWarning, match=r"not compiled and run slower: no compiler was found$"):
        assert loss(torch.tensor(3.0)) == 6.0
    assert loss(torch.tensor(4.0)) == 8.0


def test_errors_of_the_loss_itself_are_raised(monkeypatch):
    def fails(x):
        raise RuntimeError("the loss is broken")

    monkeypatch.setattr(torch, "compile", lambda loss: loss)
    with pytest.raises(RuntimeError, match="the loss is broken"):
        compile_loss(fails)(torch.ones(1))


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="compile to be one of True, False, 'auto', but got"):
        RunSettings(compile="always")


RATE = {"masking": vfg.Masking(rate=0.5), "epochs": 3, "steps": 4, "batch": 16, "rate": 1e-2}
FIXED = {"beta": 0.1, "warmup": 2, "free_bits": 0.0, "budget": None, "weight_decay": 1e-2}
OTHERS = {"clip": 1.0, "validation": 0.1, "patience": None, "scale": False, "compile": False}


class Imitation:
    """Stands for a recorder on a machine without a GPU: keeps the work, and says when."""

    def __init__(self, *_):
        self.events = []

    def warm_up(self, work):
        self.events.append("warm up")
        work()

    def record(self, work):
        self.events.append("record")

        def replay():
            self.events.append("replay")
            work()

        return replay


def run_of(layerwise=False, seed=0):
    graph = vfg.Graph.tree({"a": 1, "b": 1, "c": 1, "d": 2}, arity=2, width=3)
    flow = vfg.Coupling(blocks=2, hidden=8, dropout=0.2)
    model = vfg.VFG(graph, flow=flow, aggregation="gaussian", seed=seed)
    table = torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    data = TrainingTable(
        table, torch.rand(50, 5, generator=torch.Generator().manual_seed(2)) > 0.2, None
    )
    settings = RunSettings(layerwise=layerwise, seed=0, **RATE, **FIXED, **OTHERS)
    return Run(TableTask([model], data, settings), settings, World())


def places(run):
    """Where everything lies that a step reads or writes."""
    moments = [value for state in run.optimiser.inner.state.values() for value in state.values()]
    own = [run.steps.rows, run.steps.beta, run.steps.total, run.steps.finite]
    own += [loss.value for loss in run.task.losses]
    tensors = [*run.model.state_dict().values(), *run.task.data[:2], *moments, *own]
    return [tensor.data_ptr() for tensor in tensors]


def test_work_is_warmed_up_recorded_once_and_replayed():
    recorder, done = Imitation(), []
    work = Replayed(lambda: done.append(1), recorder)
    for _ in range(5):
        work()
    assert len(done) == 5
    assert recorder.events == ["warm up"] * WARM_UP + ["record"] + ["replay"] * (5 - WARM_UP)


@pytest.mark.parametrize("layerwise", [False, True])
def test_every_kind_of_step_is_recorded_once(layerwise):
    plain, recorded = run_of(layerwise), run_of(layerwise)
    recorded.steps.recorder = Imitation()
    histories = [run.train(Progress(3, visible=False)) for run in (plain, recorded)]
    events = recorded.steps.recorder.events
    kinds = len(recorded.steps.kinds)
    assert kinds == (4 if layerwise else 2)
    assert events.count("record") == kinds
    assert events.count("warm up") == WARM_UP * kinds
    assert events.count("replay") == 12 - WARM_UP * kinds
    assert [e.objective for e in histories[0]] == [e.objective for e in histories[1]]


def test_nothing_that_a_step_reads_moves_between_epochs_and_restarts():
    run = run_of()
    torch.manual_seed(0)
    run._epoch(0.0)
    before, memory = places(run), run.optimiser.copy()
    run._epoch(0.0)
    run.optimiser.restore(memory)
    assert places(run) == before
    for name, value in run.optimiser.copy().items():
        assert torch.equal(value, memory[name]), name


def test_going_back_to_before_the_first_step_forgets_all_moments():
    run = run_of()
    memory = run.optimiser.copy()
    run._epoch(0.0)
    run.optimiser.restore(memory)
    assert all(bool((value == 0).all()) for value in run.optimiser.copy().values())


def test_the_pace_is_taken_from_an_epoch_in_which_nothing_was_recorded(monkeypatch):
    run, asked = run_of(), []
    run.steps.recorder, run.steps.may_compile = Imitation(), True
    decide = run.steps._decide
    monkeypatch.setattr(run.steps, "_decide", lambda done, s: asked.append(done) or decide(done, s))
    for _ in range(4):
        run._epoch(0.0)
    # Four steps an epoch, two of each kind: the third of each is recorded in the second epoch.
    assert asked == [3]


class Graph:
    """Stands for a CUDA graph: like torch, it refuses a pool whose graphs are all gone."""

    users: ClassVar[dict[int, int]] = {}

    def capture_begin(self, pool):
        if self.users.get(pool) == 0:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.users[pool] = self.users.get(pool, 0) + 1
        self.pool = pool

    def capture_end(self):
        pass

    def replay(self):
        pass

    def __del__(self):
        if hasattr(self, "pool"):
            self.users[self.pool] -= 1


@pytest.fixture
def recorder(monkeypatch):
    """One on a machine without a GPU."""
    numbers = count()
    Graph.users.clear()
    for name, stands in {
        "CUDAGraph": Graph,
        "Stream": lambda _: None,
        "stream": lambda _: nullcontext(),
        "synchronize": lambda _: None,
        "graph_pool_handle": lambda: next(numbers),
        "default_generators": (torch.Generator(),),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stands)
    made = Recorder(torch.device("cuda", 0), [])
    made.device = torch.device("cpu")
    return made


def test_steps_are_recorded_after_all_recordings_are_gone(recorder):
    for _ in range(3):  # what is returned goes at once
        assert recorder.record(lambda: None).__name__ == "replay"


def test_steps_are_recorded_after_a_recording_that_failed(recorder):
    def fails():
        raise RuntimeError("operation not permitted when stream is capturing")

    for _ in range(2):
        with pytest.warns(
            UserWarning, match="not recorded as CUDA graphs and run slower: operation not"
        ):
            assert recorder.record(fails) is fails
        assert recorder.record(lambda: None).__name__ == "replay"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recording_that_fails_leaves_others_as_they_are():
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(0)
    recorder, drawn = Recorder(device, [generator]), torch.zeros(2, device=device)

    def good():
        drawn[0] = torch.rand((), device=device)
        drawn[1] = torch.rand((), device=device, generator=generator)

    def waits():
        float(torch.rand((), device=device, generator=generator))

    first, fails, later = (Replayed(work, recorder) for work in (good, waits, good))
    seen = []
    for work in (first, fails, first, later, first):
        for call in range(4):
            if work is fails and call == WARM_UP:
                with pytest.warns(UserWarning, match="not recorded"):
                    work()
            else:
                work()
            if work is not fails:
                seen.append(tuple(drawn.tolist()))
    assert len(set(seen)) == len(seen)
