"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest
import torch
from modelfile.examples import assert_same_bits, small, tiny, unpacked
from strategies import perturbed

import vfg
from vfg import modelfile
from vfg.modelfile import container, dumps, load, loads, registry, save


def test_overwriting_replaces_the_file_and_leaves_nothing_else(tmp_path):
    save(small(), tmp_path / "m.vfg")
    save(tiny(), str(tmp_path / "m.vfg"))
    assert_same_bits(tiny(), load(str(tmp_path / "m.vfg")))
    assert os.listdir(tmp_path) == ["m.vfg"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    def fail(*arguments):
        raise error

    save(tiny(), tmp_path / "m.vfg")
    before = (tmp_path / "m.vfg").read_bytes()
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        save(small(), tmp_path / "m.vfg")
    with pytest.raises(type(error)):
        save(small(), tmp_path / "new.vfg")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["m.vfg"]
    assert (tmp_path / "m.vfg").read_bytes() == before


def test_everything_is_on_the_disk_before_the_name_appears(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        events.append(("sync", is_folder, os.fstat(descriptor).st_size))
        fsync(descriptor)

    def watched_replace(source, target):
        events.append(("replace", Path(source).parent == Path(target).parent))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(tiny(), tmp_path / "m.vfg")
    size = (tmp_path / "m.vfg").stat().st_size
    assert events[:2] == [("sync", False, size), ("replace", True)]
    assert [event[0] for event in events[2:]] == ["sync"]
    if os.path.isdir("/proc/self/fd"):
        assert events[2][1]


def test_a_missing_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere.* does not exist; create it"):
        save(tiny(), tmp_path / "nowhere" / "m.vfg")
    with pytest.raises(FileNotFoundError, match=r"there is no model file '.*m\.vfg'"):
        load(tmp_path / "m.vfg")


def test_only_registered_classes_are_saved():
    with pytest.raises(
        TypeError, match="only VFG, GaussianVFG, TableModel models can be saved, but got Lin"
    ):
        dumps(torch.nn.Linear(1, 1))

    class Mine(vfg.VFG):
        pass

    mine = Mine(tiny().graph, flow=vfg.Linear())
    with pytest.raises(TypeError, match="got Mine; unwrap the model, or register its class"):
        dumps(mine)


def test_other_kinds_can_be_registered(monkeypatch):
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))

    @modelfile.register("mine")
    class Mine(vfg.VFG):
        pass

    model = perturbed(Mine(tiny().graph, flow=vfg.Linear()), 0)
    assert_same_bits(model, loads(dumps(model)))
    assert unpacked(dumps(model))[1]["kind"] == "mine"
    assert modelfile.register("mine")(Mine) is Mine
    with pytest.raises(ValueError, match=r"the kind 'VFG' belongs to VFG already; choose another"):
        modelfile.register("VFG")(Mine)


def test_what_could_not_be_loaded_is_not_saved(monkeypatch):
    model = tiny()
    model.register_buffer("added", torch.zeros(3))
    with pytest.raises(ValueError, match=r"cannot be saved: its file has the tensor 'added'"):
        dumps(model)
    monkeypatch.setattr(container, "LONGEST_HEADER", 100)
    with pytest.raises(ValueError, match="this model cannot be saved"):
        dumps(tiny())
