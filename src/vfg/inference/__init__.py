"""Inference: any nodes given any others, on trees and DAGs, with uncertainty."""

from vfg.inference.answers import Answer
from vfg.inference.calibration import Calibration, fit_calibration
from vfg.inference.interventions import counterfactual, intervene, is_intervention
from vfg.inference.queries import (
    classify,
    decode,
    embed,
    fill,
    infer,
    label_probabilities,
    log_prob,
    sample,
    transport,
    traverse,
)
from vfg.inference.variables import Marginal, Model, Variable, graph_variables

__all__ = [
    "Answer",
    "Marginal",
    "Model",
    "Calibration",
    "Variable",
    "classify",
    "counterfactual",
    "decode",
    "embed",
    "fill",
    "fit_calibration",
    "graph_variables",
    "infer",
    "intervene",
    "is_intervention",
    "label_probabilities",
    "log_prob",
    "sample",
    "transport",
    "traverse",
]
