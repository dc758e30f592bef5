"""The exact member: linear-Gaussian graphs under invertible leaves, every query in closed form.

Every such graph is one (mixture of) factor model(s) over independent innovations. The modules, each
building on those before it: `factors` (factor models and masks), `structure` (which coordinate
depends on which), `parameters`, `trees` (messages from node to node), `em`, `leaves` (the maps g
and their fit), `category_points` (categories as points), `fitting`, `log_prob` (with the chain of
discrete columns), `tiles` (rows computed together), `answers`, `to_deep` (the start of a deep
model), `model`, `conditional_means` (fast means for many rows).
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
