"""Exact models with discrete leaves."""

import itertools

import torch

import vfg
from vfg.distributions.likelihoods import Bernoulli, Categorical
from vfg.gaussian import GaussianVFG

MIXED = {"c": Categorical(3), "b": Bernoulli(), "*": "gaussian"}
STAR = vfg.Graph.star({"x": 1, "c": 1, "y": 1, "b": 1}, width=2)
DAG = vfg.Graph.from_edges(
    [("x", "h"), ("c", "h"), ("c", "k"), ("y", "k"), ("b", "k"), ("h", "r"), ("k", "r")],
    widths={"x": 1, "c": 1, "y": 1, "b": 1, "h": 2, "k": 1, "r": 2},
)
DISCRETE = vfg.Graph.star({"c": 2, "b": 2, "d": 1}, width=2)
ALL_DISCRETE = {"c": Categorical(3), "b": Bernoulli(), "d": Categorical(11)}


def random_model(graph=STAR, likelihood=MIXED, **options):
    """A model whose parameters are all away from their start, with a scaling of its own."""
    model = GaussianVFG(graph, likelihood=likelihood, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.4 * noise)
    for index, unit in enumerate(model.codes.units):
        doubts = torch.linspace(0.0, 0.3, unit.categories, dtype=torch.float64)
        model.codes.get_buffer(f"doubts{index}").copy_(doubts)
    for leaf, columns in model.sections.positions.items():
        if model.likelihood_specs[leaf].is_real:
            model.scaling.location[list(columns)] = 0.7
            model.scaling.scale[list(columns)] = 1.6
    return model


def every_row(model):
    """All combinations of the discrete columns of a model, for tables without real ones."""
    counts = [range(unit.categories) for unit in model.codes.units]
    return torch.tensor(list(itertools.product(*counts)), dtype=torch.float64)


def example_rows(rows):
    """Columns x, c, y and b."""
    generator = torch.Generator().manual_seed(4)
    real = 1.5 * torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    category = torch.randint(3, (rows,), generator=generator)
    bit = torch.randint(2, (rows,), generator=generator)
    return torch.stack([real[:, 0], category, real[:, 1], bit], dim=1)


def bits(rows):
    return [torch.full((rows, 1), float(bit), dtype=torch.float64) for bit in (0, 1)]


# Brute force.
