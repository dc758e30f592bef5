"""Pictures of latent spaces and images."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import vfg
from vfg import plots
from vfg.plots.latents import principal_components


def test_many_coordinates_are_shown_by_their_principal_components():
    points = torch.randn(50, 5) @ torch.diag(torch.tensor([5.0, 3.0, 1.0, 0.5, 0.1]))
    ax = plots.embedding(points)
    shown = np.asarray(ax.collections[0].get_offsets())
    analysis = PCA(2).fit(points.numpy())
    wanted = analysis.transform(points.numpy())
    np.testing.assert_allclose(np.abs(shown), np.abs(wanted), atol=1e-4)
    assert f"{analysis.explained_variance_ratio_[0]:.0%}" in ax.get_xlabel()


def test_two_coordinates_are_shown_as_they_are():
    points = np.array([[0.0, 1.0], [2.0, 3.0]])
    shown = plots.embedding(points, colour=[0.5, 1.5]).collections[0]
    assert np.asarray(shown.get_offsets()).tolist() == points.tolist()
    assert np.asarray(shown.get_array()).tolist() == [0.5, 1.5]


@pytest.mark.parametrize("colour", [["x", "y", "x"], [True, False, True], np.array([3, 1, 3])])
def test_categories_differ_in_colour_and_marker(colour):
    ax = plots.embedding(np.eye(3)[:, :2], colour=colour)
    first, second = ax.collections
    assert sorted(len(part.get_offsets()) for part in (first, second)) == [1, 2]
    assert first.get_facecolor().tolist() != second.get_facecolor().tolist()
    assert len(first.get_paths()[0].vertices) != len(second.get_paths()[0].vertices)


def test_a_traversal_is_a_grid_of_the_images_that_the_model_decodes():
    model = vfg.VFG(vfg.Graph.blocks(4, 6))
    images, steps = torch.rand(2, 24), [-1.0, 0.0, 2.0]
    moved = model.traverse(images, "root", 1, steps)
    figure = plots.traversal(moved, steps, (4, 6), names=["one", "two"])
    shown = [np.asarray(ax.images[0].get_array()) for ax in figure.axes]
    np.testing.assert_allclose(np.stack(shown).reshape(2, 3, 24), moved, rtol=1e-6)
    assert [ax.get_title() for ax in figure.axes[:3]] == ["-1", "0", "2"]
    assert [figure.axes[k].get_ylabel() for k in (0, 3)] == ["one", "two"]


def test_curves_of_a_traversal_hold_the_columns():
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    steps = torch.linspace(-1.0, 1.0, 5)
    moved = model.traverse(torch.zeros(1, 2), "root", 0, steps)[0]
    ax = plots.traversal_curves(moved, steps, columns=["a", "b"])
    for line, column in zip(ax.lines, moved.T, strict=True):
        assert line.get_ydata().tolist() == column.tolist()
        assert line.get_xdata().tolist() == steps.tolist()


def test_reconstructions_show_data_what_was_seen_and_what_was_made_of_it():
    data, rebuilt = np.random.default_rng(0).random((2, 3, 4))
    seen = np.array([[True, False, True, True]] * 3)
    figure = plots.reconstructions(data, rebuilt, (2, 2), observed=seen)
    shown = np.stack([np.ma.filled(ax.images[0].get_array(), np.nan) for ax in figure.axes])
    shown = shown.reshape(3, 3, 4)
    np.testing.assert_allclose(shown[0], data)
    np.testing.assert_allclose(shown[1], np.where(seen, data, np.nan))
    np.testing.assert_allclose(shown[2], rebuilt)
    assert [figure.axes[k].get_ylabel() for k in (0, 3, 6)] == ["data", "seen", "rebuilt"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.embedding(np.zeros(3)), r"\(rows, coordinates\)"),
        (lambda: plots.embedding(np.zeros((3, 2)), colour=[1.0]), "3 points, but 1 colours"),
        (lambda: plots.traversal(np.zeros((1, 2, 4)), [0.0], (2, 2)), "1 values"),
        (lambda: plots.traversal(np.zeros((1, 1, 5)), [0.0], (2, 2)), "4 pixels, not 5"),
        (lambda: plots.reconstructions(np.zeros((1, 4)), np.zeros((2, 4)), (2, 2)), "shapes"),
        (lambda: plots.traversal_curves(np.zeros((2, 3)), [0.0, 1.0], columns=["a"]), "1 names"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_principal_coordinates_keep_distances_of_a_plane():
    plane = np.random.default_rng(0).normal(size=(20, 2)) @ np.random.default_rng(1).normal(
        size=(2, 7)
    )
    found = principal_components(plane)[0]

    def distances(points):
        return np.linalg.norm(points[:, None] - points, axis=-1)

    np.testing.assert_allclose(distances(found), distances(plane), atol=1e-9)
    assert found[:, 0].var() >= found[:, 1].var()
    np.testing.assert_allclose(principal_components(plane)[0], found)
