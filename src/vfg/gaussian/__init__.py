"""The exact member: linear-Gaussian graphs under invertible leaves, every query in closed form.

Every such graph is one (mixture of) factor model(s) over independent innovations. The rooms, each
leaning on those before it: `factors` (factor models and masks), `structure` (which coordinate
depends on which), `parameters`, `trees` (messages from node to node), `leaves` (the maps g),
`codes` (categories as points), `em`, `starting`, `fitting`, `posteriors`, `tiles` (rows computed
together), `chains` (discrete columns in turn), `scoring`, `answers`, `model`, `selection`,
`deepening` (the way to a deep model).
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
