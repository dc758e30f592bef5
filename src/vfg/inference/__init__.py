"""Inference: any nodes given any others, on trees and DAGs, with uncertainty."""

from vfg.inference.answers import Answer
from vfg.inference.queries import classify, embed, infer, label_probabilities, traverse
from vfg.inference.spread import Spread, fit_spread
from vfg.inference.transport import transport

__all__ = [
    "Answer",
    "Spread",
    "classify",
    "embed",
    "fit_spread",
    "infer",
    "label_probabilities",
    "transport",
    "traverse",
]
