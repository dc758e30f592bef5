"""Fitted models that many tests of the studio ask, and none changes."""

import numpy as np
import pytest
from imputation.mixed_tables import light, linear, mixed, numbers

import vfg
from vfg.studio.asking.model import open_model


@pytest.fixture(scope="session")
def mixed_imputer():
    return light(mixtures=1).fit(mixed())


@pytest.fixture(scope="session")
def mixed_opened(mixed_imputer):
    """A bent model of a table with a column of every kind."""
    return open_model(mixed_imputer)


@pytest.fixture(scope="session")
def linear_opened():
    """The exact linear model of a table of numbers."""
    return open_model(linear().fit(numbers()[1]))


@pytest.fixture(scope="session")
def network():
    """An exact model of a known network."""
    edges = [("A", "C"), ("B", "C"), ("C", "D")]
    model = vfg.GaussianVFG(vfg.Graph.from_bayesian_network(edges, variables="ABCD"))
    generator = np.random.default_rng(0)
    table = generator.normal(size=(200, 4))
    names = list(model.graph.columns)
    a, b, c, d = (names.index(name) for name in "ABCD")
    table[:, c] += table[:, a] + table[:, b]
    table[:, d] -= table[:, c]
    model.fit(table)
    return model


@pytest.fixture(scope="session")
def network_opened(network):
    return open_model(network)


@pytest.fixture(scope="session")
def deep():
    """A deep model with joint draws, trained a little."""
    sections = {"a": 2, "b": 1, "c": 1}
    model = vfg.VFG(
        vfg.Graph.star(sections, width=4),
        flow=vfg.Coupling(blocks=2, hidden=8),
        aggregation="gaussian",
    )
    table = np.random.default_rng(1).normal(size=(60, 4)) @ np.tri(4)
    vfg.fit(model, table, epochs=3, seed=0)
    return model


@pytest.fixture(scope="session")
def picture_model():
    """A model of images of 4 by 6 pixels."""
    graph = vfg.Graph.blocks(4, 6, rows=2, columns=2)
    return vfg.VFG(graph, flow=vfg.Coupling(blocks=1, hidden=8), likelihood="bernoulli")
