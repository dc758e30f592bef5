"""A deep model that starts as the exact linear one, for every mask, and what cannot start one."""

import itertools

import pytest
import torch

import vfg
from vfg.flows.linear_start import reflections_to, triangular_frame

COLUMNS = {f"x{k}": 1 for k in range(5)}
GRAPHS = {
    "star": (vfg.Graph.star(COLUMNS, width=3), {}),
    "sections": (vfg.Graph.star({"a": 2, "b": 2, "c": 1}, width=4), {}),
    "square": (vfg.Graph.star({"a": 2, "b": 2, "c": 1}, width=2), {}),
    "tree": (vfg.Graph.tree(COLUMNS, arity=2, width=3), {"inner_noise": False}),
}


def table(rows=300):
    """A column that nothing explains, one that is one factor alone, and three mixed ones."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(rows, 3, generator=generator).double()
    weights = torch.randn(3, 5, generator=generator).double()
    weights[:, 3] = 0.0
    weights[:, 4] = torch.tensor([2.0, 0.0, 0.0])
    return factors @ weights + 0.3 * torch.randn(rows, 5, generator=generator).double() + 5.0


def fitted(name, idle=0.0, **options):
    graph, more = GRAPHS[name]
    linear = vfg.GaussianVFG(graph, **more | options)
    linear.fit(table())
    with torch.no_grad():
        linear.linear.loadings[:, 3] = idle  # loads nothing, to the bit
        linear.linear.loadings[:, 4] = 0.0  # lies along an axis
        linear.linear.loadings[:, 4, -1] = 1.5
        linear.linear.edges.add_(0.1 * torch.randn(linear.linear.edges.shape, dtype=torch.float64))
    return linear


def every_mask(linear):
    """One row per subset of the leaves."""
    leaves = list(linear.sections.positions.values())
    masks = list(itertools.product([True, False], repeat=len(leaves)))
    rows = table()[: len(masks)].clone()
    for row, mask in zip(rows, masks, strict=True):
        for keep, columns in zip(mask, leaves, strict=True):
            if not keep:
                row[list(columns)] = torch.nan
    return rows


@pytest.mark.parametrize("name", GRAPHS)
def test_the_first_step_is_the_linear_model(name):
    linear = fitted(name)
    deep = vfg.VFG.from_gaussian(linear, flow=vfg.Coupling(blocks=2, hidden=8))
    rows = every_mask(linear)
    one, two = linear.infer(rows), deep.infer(rows)
    torch.testing.assert_close(deep.embed(rows), linear.embed(rows), rtol=0.0, atol=1e-6)
    for leaf in linear.graph.leaves:
        torch.testing.assert_close(two.mean[leaf], one.mean[leaf], rtol=0.0, atol=1e-6)
        torch.testing.assert_close(two.std[leaf], one.std[leaf], rtol=0.0, atol=1e-6)


def test_inner_nodes_have_the_linear_models_means_too():
    linear = fitted("tree")
    deep = vfg.VFG.from_gaussian(linear, flow=vfg.Coupling(blocks=1, hidden=4))
    rows = every_mask(linear)
    latent = [node for layer in linear.graph.layers[1:] for node in layer]
    one, two = linear.infer(rows, targets=latent), deep.infer(rows, targets=latent)
    for node in latent:
        torch.testing.assert_close(two.mean[node], one.mean[node], rtol=0.0, atol=1e-6)


def test_with_monotone_leaves_the_states_are_equal():
    linear = fitted("star", leaf="spline")
    with torch.no_grad():
        for parameter in linear.leaves.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, dtype=parameter.dtype))
    deep = vfg.VFG.from_gaussian(linear, flow=vfg.Coupling(blocks=1, hidden=4))
    rows = every_mask(linear)
    torch.testing.assert_close(deep.embed(rows), linear.embed(rows), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("name", GRAPHS)
def test_training_bends_it_and_keeps_precisions_non_negative(name):
    linear = fitted(name, idle=0.1)
    deep = vfg.VFG.from_gaussian(linear, flow=vfg.Coupling(blocks=2, hidden=8)).float()
    bent = table().float()
    bent[:, 0] = bent[:, 1].square()
    history = vfg.fit(deep, bent, epochs=10, batch=50, beta=0.0, rate=5e-3, progress=False)
    assert history[history.best].validation < history[0].validation
    for index in range(len(deep.passing.schedule.groups)):
        precision = deep.passing.group(index).precision
        if precision is not None:
            matrix = precision()
            assert torch.linalg.eigvalsh(matrix).min() > -1e-4 * matrix.abs().max()
            assert precision.rest.min() >= 0.0 if precision.rest.numel() else True


def test_a_deepened_model_survives_a_file(tmp_path):
    deep = vfg.VFG.from_gaussian(fitted("tree"), flow=vfg.Coupling(blocks=1, hidden=4))
    vfg.save(deep, tmp_path / "deep.vfg")
    other = vfg.load(tmp_path / "deep.vfg")
    rows = table()[:20]
    assert torch.equal(other.reconstruct(rows), deep.reconstruct(rows))


@pytest.mark.parametrize(
    ("linear", "message"),
    [
        (lambda: vfg.GaussianVFG(GRAPHS["star"][0], components=3), r"mixture of 3"),
        (lambda: vfg.GaussianVFG(GRAPHS["tree"][0]), r"edge 'node1_1->.*' has noise of its own"),
        (
            lambda: vfg.GaussianVFG(
                vfg.Graph.from_edges(
                    [("x", "h"), ("y", "h"), ("z", "r"), ("h", "r")],
                    widths={"x": 1, "y": 1, "z": 1, "h": 2, "r": 3},
                ),
                inner_noise=False,
            ),
            r"edge 'h->r' leads from width 2 to 3",
        ),
        (
            lambda: vfg.GaussianVFG(
                vfg.Graph.from_edges([("x", "h"), ("y", "h"), ("y", "r")], widths=1)
            ),
            r"edge 'y->h' is one of several above 'y'",
        ),
    ],
)
def test_other_linear_models_are_refused(linear, message):
    with pytest.raises(ValueError, match=message):
        vfg.VFG.from_gaussian(linear())


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_reflections_take_axes_to_directions(columns):
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(6, columns, 4, generator=generator).double()
    loadings[0] = torch.eye(4).double()[:columns]
    loadings[1] = -torch.eye(4).double()[:columns]
    triangle, directions = triangular_frame(loadings)
    torch.testing.assert_close(triangle @ directions.mT, loadings)
    frame = vfg.flows.Householder(6, 4, reflections=2 * columns).double()
    with torch.no_grad():
        frame.vectors.copy_(reflections_to(directions))
    torch.testing.assert_close(frame.linear_part()[..., :columns], directions)
