"""Variational flow graphical models: graphs whose edges are invertible neural functions."""

from importlib.metadata import PackageNotFoundError, version

from vfg.bound import Bound
from vfg.flows import Coupling, Linear, Spline
from vfg.gaussian import GaussianVFG
from vfg.graph import Edge, Graph, Node
from vfg.inference import Answer
from vfg.likelihoods import Bernoulli, Categorical, Gaussian
from vfg.model import VFG
from vfg.modelfile import load, save
from vfg.objective import Surrogate, Terms
from vfg.pooling import pool
from vfg.priors import Laplace, Normal, PerLabel
from vfg.rich_priors import Flowed, Mixture
from vfg.sampling import Sampled
from vfg.states import States
from vfg.training import History, Masking, fit

try:
    __version__ = version("vfg")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "unknown"

__all__ = [
    "VFG",
    "Answer",
    "Bernoulli",
    "Bound",
    "Categorical",
    "Coupling",
    "Edge",
    "Flowed",
    "Gaussian",
    "GaussianVFG",
    "Graph",
    "History",
    "Laplace",
    "Linear",
    "Masking",
    "Mixture",
    "Node",
    "Normal",
    "PerLabel",
    "Sampled",
    "Spline",
    "States",
    "Surrogate",
    "Terms",
    "fit",
    "load",
    "pool",
    "save",
]
