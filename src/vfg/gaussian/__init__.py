"""The exact member: linear-Gaussian graphs under invertible leaves, every query in closed form.

Every such graph is one (mixture of) factor model(s) over independent innovations.
"""

from vfg.gaussian.answers import GaussianAnswer, Posterior
from vfg.gaussian.fitting import GaussianSettings, LikelihoodHistory
from vfg.gaussian.model import Candidate, GaussianVFG, Selection, select

__all__ = [
    "Candidate",
    "GaussianAnswer",
    "GaussianSettings",
    "GaussianVFG",
    "LikelihoodHistory",
    "Posterior",
    "Selection",
    "select",
]
