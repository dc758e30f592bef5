"""Inference: any nodes given any others, on trees and DAGs, with uncertainty."""

from vfg.inference.answers import Answer
from vfg.inference.calibration import Calibration, fit_calibration
from vfg.inference.protocol import Model
from vfg.inference.queries import (
    classify,
    embed,
    fill,
    infer,
    label_probabilities,
    log_prob,
    traverse,
)
from vfg.inference.transport import transport
from vfg.inference.variables import Marginal, Variable, graph_variables

__all__ = [
    "Answer",
    "Marginal",
    "Model",
    "Calibration",
    "Variable",
    "classify",
    "embed",
    "fill",
    "fit_calibration",
    "graph_variables",
    "infer",
    "label_probabilities",
    "log_prob",
    "transport",
    "traverse",
]
