"""Pictures of training runs and of consistency."""

from itertools import combinations

import numpy as np
import pytest
import torch

import vfg
from vfg import plots
from vfg.gaussian import LikelihoodHistory
from vfg.training.history import Epoch


def run(scores):
    history = vfg.History()
    for number, score in enumerate(scores):
        history.add(Epoch(number, -3.0 + number, 0, 0, 0, 0, 0, score, 1e-3, 1.0, 0.1))
    return history


def test_a_history_shows_losses_held_out_scores_and_the_epoch_that_was_kept():
    ax = plots.history(run([1.5, 1.1, 1.2]))
    other = next(each for each in ax.figure.axes if each is not ax)
    assert ax.lines[0].get_ydata().tolist() == [3.0, 2.0, 1.0]
    assert other.lines[0].get_ydata().tolist() == [1.5, 1.1, 1.2]
    assert other.lines[1].get_xydata().tolist() == [[1.0, 1.1]]


def test_without_held_out_cells_there_is_one_axis():
    ax = plots.history(run([None, None]))
    assert ax.figure.axes == [ax]


def test_an_empty_history_is_refused():
    with pytest.raises(ValueError, match="no epochs"):
        plots.history(vfg.History())


def test_gradient_steps_follow_the_iterations_of_em():
    ax = plots.likelihoods(LikelihoodHistory(log_likelihoods=[-3.0, -2.0], steps=[-1.5]))
    assert ax.lines[1].get_xydata().tolist() == [[3.0, -1.5]]


def test_consistency_shows_means_and_quantiles_of_every_node():
    model = vfg.VFG(vfg.Graph.tree({"a": 1, "b": 1, "c": 1}, width=2))
    found = model.consistency(torch.randn(40, 3))
    ax = plots.consistency(found)
    means, places = ax.lines[0].get_data()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(found)
    np.testing.assert_allclose(means, [float(found[name].mean()) for name in found], rtol=1e-6)
    ends = np.array([line[:, 0] for line in ax.collections[0].get_segments()])
    wanted = [found[name].double().quantile(torch.tensor([0.05, 0.95]).double()) for name in found]
    np.testing.assert_allclose(ends, torch.stack(wanted).numpy(), rtol=1e-6)
    assert places.tolist() == list(range(len(found)))


def test_no_nodes_are_refused():
    with pytest.raises(ValueError, match="no nodes"):
        plots.consistency({})


def test_names_of_methods_do_not_cover_each_other():
    scores = {"vfg": (8.0, 0.74), "softimpute": (0.09, 0.76), "linear": (0.2, 0.76)}
    axes = plots.cost({name: [pair] for name, pair in {**scores, "mean": (0.001, 1.0)}.items()})
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 4
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
