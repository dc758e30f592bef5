"""Variational flow graphical models: graphs whose edges are invertible neural functions."""

from importlib.metadata import PackageNotFoundError, version

from vfg.flows import Coupling, Linear, Spline
from vfg.graph import Edge, Graph, Node
from vfg.likelihoods import Bernoulli, Categorical, Gaussian
from vfg.model import VFG
from vfg.objective import Surrogate, Terms
from vfg.priors import Laplace, Normal, PerLabel
from vfg.states import States

try:
    __version__ = version("vfg")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "unknown"

__all__ = [
    "VFG",
    "Bernoulli",
    "Categorical",
    "Coupling",
    "Edge",
    "Gaussian",
    "Graph",
    "Laplace",
    "Linear",
    "Node",
    "Normal",
    "PerLabel",
    "Spline",
    "States",
    "Surrogate",
    "Terms",
]
