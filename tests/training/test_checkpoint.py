"""Runs that are killed and resumed, and processes that train together."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import vfg
from vfg.training import data

SCRIPT = """
import hashlib, sys, torch, vfg
torch.set_num_threads(1)
folder, wait = sys.argv[1], len(sys.argv) > 2
generator = torch.Generator().manual_seed(0)
table = torch.randn(200, 6, generator=generator)
table[torch.rand(200, 6, generator=generator) < 0.2] = torch.nan
graph = vfg.Graph.tree({name: 2 for name in "abc"}, arity=2, width=4)
model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=16, dropout=0.1))
history = vfg.fit(model, table, epochs=40, batch=32, checkpoint=folder, progress=False)
digest = hashlib.sha256()
for value in model.state_dict().values():
    digest.update(value.numpy().tobytes())
print(len(history), history.best, digest.hexdigest())
"""


def run(folder):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_bits(tmp_path):
    undisturbed = run(tmp_path / "undisturbed")
    kills = 0
    for delay in (0.0, 0.07, 0.15, 0.02):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "killed")])
        file = tmp_path / "killed" / "training.safetensors"
        before = file.stat().st_mtime_ns if file.exists() else None
        limit = time.monotonic() + 60
        while time.monotonic() < limit and process.poll() is None:
            if file.exists() and file.stat().st_mtime_ns != before:
                break
            time.sleep(0.005)
        time.sleep(delay)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2
    assert run(tmp_path / "killed") == undisturbed
    assert run(tmp_path / "killed") == undisturbed  # finished: nothing is done again


def trained(folder, model=None, **options):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(100, 4, generator=generator)
    model = model or vfg.VFG(vfg.Graph.star({"a": 2, "b": 2}, width=2))
    settings = {"epochs": 6, "batch": 32, "progress": False, "checkpoint": folder} | options
    return model, vfg.fit(model, table, **settings)


def test_a_run_goes_on_from_its_last_epoch(tmp_path, monkeypatch):
    from vfg.training import loop

    expected, _ = trained(None)
    decide = loop.Run._decide

    def crash(self):
        decide(self)
        if len(self.history) == 4:
            raise RuntimeError("power failure")

    monkeypatch.setattr(loop.Run, "_decide", crash)
    with pytest.raises(RuntimeError, match="power failure"):
        trained(tmp_path)
    monkeypatch.undo()
    model, history = trained(tmp_path)
    assert [epoch.number for epoch in history] == list(range(6))
    for name, value in expected.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    trained(tmp_path)
    with pytest.raises(ValueError, match=r"another model, table, labels or settings.*folder"):
        trained(tmp_path, rate=1e-4)
    with pytest.raises(ValueError, match="another model, table, labels or settings"):
        trained(tmp_path, vfg.VFG(vfg.Graph.star({"a": 2, "b": 2}, width=3)))


def test_a_checkpoint_knows_its_labels(tmp_path):
    def labelled(labels):
        model = vfg.VFG(vfg.Graph.star({"a": 2, "b": 2}, width=2), prior=vfg.PerLabel(2))
        return trained(tmp_path, model, labels=labels)

    labels = torch.arange(100) % 2
    first, _ = labelled(labels)
    again, _ = labelled(labels)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    with pytest.raises(ValueError, match="another model, table, labels or settings"):
        labelled(1 - labels)


def test_a_checkpoint_that_cannot_be_read_says_what_to_do(tmp_path):
    trained(tmp_path)
    file = tmp_path / "training.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cannot be read.*remove it to start again"):
        trained(tmp_path)


def test_nothing_but_the_checkpoint_is_left_in_the_folder(tmp_path):
    trained(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["training.safetensors"]


PARALLEL = """
import sys, torch, vfg
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
table = torch.randn(203, 6, generator=generator)
table[torch.rand(203, 6, generator=generator) < 0.2] = torch.nan
graph = vfg.Graph.tree({name: 2 for name in "abc"}, arity=2, width=4)
model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=16), aggregation="gaussian").double()
options = {"layerwise": True} if "layerwise" in sys.argv else {}
history = vfg.fit(model, table, epochs=5, batch=64, device="cpu", progress=False, **options)
import os
if os.environ.get("RANK", "0") == "0":
    torch.save({k: v for k, v in model.state_dict().items()}, sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["together", "layerwise"])
def test_two_processes_agree_with_one_on_the_joint_batch(tmp_path, mode):
    script = tmp_path / "train.py"
    script.write_text(PARALLEL)
    alone, both = tmp_path / "alone.pt", tmp_path / "both.pt"
    subprocess.run([sys.executable, script, alone, mode], check=True)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*launch, script, both, mode], check=True, capture_output=True)
    one, two = torch.load(alone, weights_only=True), torch.load(both, weights_only=True)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_fingerprints_tell_tensors_and_settings_apart():
    from vfg.training.history import fingerprint

    base = fingerprint({"a": 1}, {"x": torch.zeros(3)})
    assert base == fingerprint({"a": 1}, {"x": torch.zeros(3)})
    others = [
        fingerprint({"a": 2}, {"x": torch.zeros(3)}),
        fingerprint({"a": 1}, {"x": torch.ones(3)}),
        fingerprint({"a": 1}, {"y": torch.zeros(3)}),
        fingerprint({"a": 1}, {"x": torch.zeros(3, dtype=torch.float64)}),
    ]
    assert len({base, *others}) == 5
    assert len(base) == len(hashlib.sha256().hexdigest())


def test_terms_of_an_epoch_are_means_over_all_processes_and_so_are_doubts(monkeypatch):
    """Two threads stand for two processes, whose tensors are summed when both have come."""
    barrier, given = threading.Barrier(2, timeout=20.0), []

    def all_reduce(tensor):
        given.append(tensor.clone())
        barrier.wait()
        tensor.copy_(torch.stack(given).sum(0))
        barrier.wait()

    monkeypatch.setattr(data.dist, "all_reduce", all_reduce)
    terms = [torch.tensor([1.0, 3.0]), torch.tensor([2.0, -3.0])]
    finite = [torch.tensor(True), torch.tensor(False)]
    worlds = [data.World(rank, 2) for rank in range(2)]
    threads = [
        threading.Thread(target=world.average, args=(terms[world.rank], finite[world.rank]))
        for world in worlds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, is_finite in zip(terms, finite, strict=True):
        assert own.tolist() == [1.5, 0.0]
        assert not bool(is_finite)
    data.World(0, 1).average(own, is_finite)
    assert own.tolist() == [1.5, 0.0]
