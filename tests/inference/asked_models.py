"""Models and tables that are asked in tests of inference."""

import math

import torch
from strategies import all_masks, perturbed

import vfg
import vfg.inference.calibration

NAN = float("nan")
AGGREGATIONS = ("mean", "precision", "gaussian")
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def small(aggregation="mean", seed=0, **options):
    """A tree with sections of 2, 1 and 2 columns, away from its start, with odd units."""
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=4)
    flow = vfg.Coupling(blocks=2, hidden=8)
    model = vfg.VFG(graph, flow=flow, aggregation=aggregation, **options)
    model = perturbed(model.double(), seed, size=0.2)
    model.scaling.location.copy_(torch.tensor([5.0, -3, 0.1, 2, 1e3]))
    model.scaling.scale.copy_(torch.tensor([2.0, 0.5, 10, 1.7, 3]))
    return model


def dag(aggregation="mean", seed=0):
    """Two roots, a leaf with two parents, a skipped layer."""
    edges = [("a", "h"), ("b", "h"), ("b", "r"), ("h", "r"), ("h", "s"), ("c", "s")]
    graph = vfg.Graph.from_edges(edges, widths={"a": 2, "b": 2, "c": 1, "h": 2, "r": 3, "s": 2})
    flow = vfg.Coupling(blocks=2, hidden=8)
    return perturbed(vfg.VFG(graph, flow=flow, aggregation=aggregation).double(), seed, size=0.2)


def table_for(model, rows=6, seed=0, gaps=0.4):
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, model.sections.columns)
    table = model.scaling.undo(torch.randn(shape, generator=generator, dtype=torch.float64))
    table[torch.rand(shape, generator=generator) < gaps] = NAN
    return table


def named(columns=("p", "q", "u", "v", "w")):
    nodes = [
        vfg.Node("a", 2, columns=columns[:2]),
        vfg.Node("b", 1, columns=columns[2:3]),
        vfg.Node("c", 2, columns=columns[3:]),
        vfg.Node("root", 3),
    ]
    graph = vfg.Graph(nodes, [vfg.Edge(leaf, "root") for leaf in "abc"])
    flow = vfg.Coupling(blocks=2, hidden=8)
    return perturbed(vfg.VFG(graph, flow=flow).double(), 0, size=0.2)


def same(one, two):
    assert list(one) == list(two)
    for name in one:
        assert torch.equal(one[name], two[name]), name


def gaussian_star(width, seed=0, noise=(0.3, 0.5, 0.7)):
    """A star whose messages are exact: x_j = w_j (h − b_j) + noise, with the matching precisions.

    Returns the model, and the joint mean and covariance of the leaves.
    """
    leaves = dict.fromkeys("xyz", width)
    model = vfg.VFG(
        vfg.Graph.star(leaves, width=2), flow=vfg.Linear(), aggregation="gaussian"
    ).double()
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.randn(3, 2, 2, generator=generator).double() + 1.5 * torch.eye(2)
    shifts = torch.randn(3, 2, generator=generator).double()
    stack = model.passing.group(0)
    stack.flow.set_matrix(matrices, shifts)
    loadings = torch.linalg.inv(matrices)[:, :width]
    with torch.no_grad():
        stack.precision.factor.zero_()
        for j, sigma in enumerate(noise):
            stack.precision.factor[j, :, :width] = loadings[j].T / sigma
        if stack.lifting is not None:
            stack.lifting.constants.normal_(generator=generator)
        model.prior_at(1).location.copy_(torch.tensor([[[0.4, -0.8]]], dtype=torch.float64))
    model.spread = vfg.inference.calibration.Calibration(3 * width, 3).double()
    for j, sigma in enumerate(noise):
        model.spread.log_noise[j * width : (j + 1) * width] = math.log(sigma)
    mean = torch.cat(
        [
            w @ (torch.tensor([0.4, -0.8], dtype=torch.float64) - b)
            for w, b in zip(loadings, shifts, strict=True)
        ]
    )
    tall = loadings.reshape(-1, 2)
    sigmas = torch.tensor(noise, dtype=torch.float64).repeat_interleave(width)
    return model, mean, tall @ tall.T + torch.diag(sigmas**2)


def star_rows(width):
    masks = all_masks(3).repeat_interleave(width, dim=1)
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(masks.shape, generator=generator, dtype=torch.float64)
    return torch.where(masks, table, NAN)
