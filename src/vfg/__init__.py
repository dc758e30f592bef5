"""Variational flow graphical models: graphs whose edges are invertible neural functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vfg.utils.lazy import lazy_names

if TYPE_CHECKING:
    from vfg.distributions.likelihoods import Bernoulli, Categorical, Gaussian
    from vfg.distributions.priors import FlowPrior, Laplace, Mixture, Normal, PerLabel, VampPrior
    from vfg.flows import Bottleneck, Coupling, Linear, LinearStart, Spline
    from vfg.gaussian import GaussianSettings, GaussianVFG
    from vfg.graph import Edge, Graph, Network, Node
    from vfg.graph.files import read_graph
    from vfg.imputation.rubin import pool
    from vfg.imputation.settings import ImputerSettings
    from vfg.imputation.table_model import TableModel
    from vfg.inference import Answer, Model
    from vfg.model import VFG
    from vfg.modelfile import load, save
    from vfg.objectives.bound import Bound
    from vfg.objectives.surrogate import Surrogate, Terms
    from vfg.passing.messages import States
    from vfg.sampling import Sampled
    from vfg.serving.export import export
    from vfg.structure import LearnedGraph, learn_graph
    from vfg.training import FitSettings, History, Masking, fit, paper_settings

    __version__: str

_NAMES = {
    "objectives.bound": ("Bound",),
    "flows": ("Bottleneck", "Coupling", "Linear", "LinearStart", "Spline"),
    "gaussian": ("GaussianSettings", "GaussianVFG"),
    "graph": ("Edge", "Graph", "Network", "Node"),
    "graph.files": ("read_graph",),
    "inference": ("Answer", "Model"),
    "distributions.likelihoods": ("Bernoulli", "Categorical", "Gaussian"),
    "model": ("VFG",),
    "modelfile": ("load", "save"),
    "objectives.surrogate": ("Surrogate", "Terms"),
    "imputation.rubin": ("pool",),
    "imputation.settings": ("ImputerSettings",),
    "imputation.table_model": ("TableModel",),
    "distributions.priors": ("FlowPrior", "Laplace", "Mixture", "Normal", "PerLabel", "VampPrior"),
    "sampling": ("Sampled",),
    "serving.export": ("export",),
    "passing.messages": ("States",),
    "structure": ("LearnedGraph", "learn_graph"),
    "training": ("FitSettings", "History", "Masking", "fit", "paper_settings"),
}
"""Which module has which public names. They are imported when they are first used, since importing
torch takes seconds, and some commands do not need it."""

_MODULES = tuple(dict.fromkeys(module.partition(".")[0] for module in _NAMES))
_find = lazy_names(__name__, _NAMES, globals())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _MODULES:
        return import_module(f"vfg.{name}")
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("vfg")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


__all__ = [
    "VFG",
    "Answer",
    "Bernoulli",
    "Bottleneck",
    "Bound",
    "Categorical",
    "Coupling",
    "Edge",
    "FitSettings",
    "FlowPrior",
    "Gaussian",
    "GaussianSettings",
    "GaussianVFG",
    "Graph",
    "History",
    "ImputerSettings",
    "Laplace",
    "LearnedGraph",
    "Linear",
    "LinearStart",
    "Masking",
    "Mixture",
    "Model",
    "Network",
    "Node",
    "Normal",
    "PerLabel",
    "Sampled",
    "Spline",
    "States",
    "Surrogate",
    "TableModel",
    "Terms",
    "VampPrior",
    "export",
    "fit",
    "learn_graph",
    "load",
    "paper_settings",
    "pool",
    "read_graph",
    "save",
]
