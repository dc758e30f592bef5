"""The history of a run, and how training hides sections."""

import json

import pytest
import torch

import vfg
from vfg.training import Epoch


def made(validations):
    history = vfg.History()
    for number, validation in enumerate(validations):
        history.add(Epoch(number, -3.0, -1.0, 0.5, 0.5, -1.0, 0.0, validation, 1e-3, 1.0, 0.1))
    return history


@pytest.mark.parametrize(
    ("validations", "best"),
    [([3.0, 1.0, 2.0], 1), ([None, None], 1), ([1.0, float("nan")], 0), ([2.0, 2.0], 0)],
)
def test_the_best_epoch_is_the_lowest_or_else_the_last(validations, best):
    assert made(validations).best == best


def test_a_history_survives_json(tmp_path):
    history = made([3.0, 1.0])
    history.save(tmp_path / "history.json")
    found = vfg.History.from_dict(json.loads((tmp_path / "history.json").read_text()))
    assert found == history


def test_a_history_prints_plots_and_exports():
    import matplotlib

    matplotlib.use("Agg")
    history = made([3.0 - 0.1 * k for k in range(20)])
    assert "held-out loss 1.1" in repr(history)
    assert str(history).count("\n") == 12
    assert list(history.to_frame()["validation"])[:2] == [3.0, 2.9]
    axes = history.plot()
    assert list(axes.lines[0].get_ydata()) == [3.0] * 20


def test_every_row_draws_its_own_share():
    masking = vfg.Masking(keep=(0.2, 0.6))
    kept = masking.draw(4000, 50, torch.Generator().manual_seed(0)).float()
    assert kept.mean().item() == pytest.approx(0.4, abs=0.01)
    # A share that is uniform from row to row spreads the counts far beyond binomial noise.
    assert kept.mean(1).std().item() == pytest.approx((0.4**2 / 12 + 0.24 / 50) ** 0.5, rel=0.1)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.75, 1.0])
def test_masked_steps_have_their_share(rate):
    masked = [vfg.Masking(rate=rate).is_masked(step) for step in range(100)]
    assert sum(masked) == round(100 * rate)


@pytest.mark.parametrize("options", [{"rate": 1.5}, {"keep": (0.8, 0.2)}, {"visible": -1.0}])
def test_bad_masking_is_refused(options):
    with pytest.raises(ValueError, match="Masking expects"):
        vfg.Masking(**options)
