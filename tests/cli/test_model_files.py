"""The history beside a model: written, drawn, and refused where it is none."""

import json

import pytest

from vfg.cli.model_files import draw_history, history_file, read_history, write_history
from vfg.training.history import Epoch, History


def history(losses, held_out=True):
    made = History()
    for number, loss in enumerate(losses):
        held = loss if held_out else None
        made.add(Epoch(number, -loss, 0.0, 0.0, 0.0, 0.0, 0.0, held, 1e-3, 1.0, float(number)))
    made.stopped = "epochs"
    return made


def test_a_history_is_kept_beside_its_model(tmp_path):
    made = history([3.0, 1.0, 2.0])
    write_history(tmp_path / "m.vfg", made)
    assert [path.name for path in tmp_path.iterdir()] == ["m.history.json"]
    assert read_history(tmp_path / "m.vfg") == made.to_dict()


def test_a_model_without_history_does_not_keep_that_of_another(tmp_path):
    write_history(tmp_path / "m.vfg", history([1.0]))
    write_history(tmp_path / "m.vfg", None)
    assert read_history(tmp_path / "m.vfg") is None


@pytest.mark.parametrize("text", ["", "[]", '{"epochs": 3}', '{"epochs": [{"number": 1}]}'])
def test_what_is_no_history_is_refused(tmp_path, text):
    history_file(tmp_path / "m.vfg").write_text(text)
    with pytest.raises(ValueError, match=r"m.history.json is not a training history; remove it"):
        read_history(tmp_path / "m.vfg")


def test_the_picture_has_the_last_epoch_and_not_too_many():
    losses = [100.0 - k for k in range(100)]
    words, picture = draw_history(history(losses).to_dict())
    assert words == (
        "held-out loss 100 to 1 in 100 epochs of 99 s, best in epoch 100 (stopped: epochs)"
    )
    assert len(picture) == 48
    assert (picture[0], picture[-1]) == ("█", "▁")


def test_without_held_out_cells_the_objective_is_drawn():
    words, picture = draw_history(history([3.0, 2.0, 1.0], held_out=False).to_dict())
    assert words.startswith("loss 3 to 1 in 3 epochs")
    assert picture == "█▅▁"
    assert draw_history(History().to_dict()) == ["training had no epochs"]


def test_show_draws_what_is_there(store, here, commands):
    (here / "m.vfg").write_bytes(store.model.read_bytes())
    assert "held-out" not in commands.succeed("show", "m.vfg")
    write_history(here / "m.vfg", history([3.0, 1.0]))
    assert "held-out loss 3 to 1 in 2 epochs" in commands.succeed("show", "m.vfg")
    assert json.loads(commands.succeed("show", "m.vfg", "--json"))["history"]["best"] == 1
