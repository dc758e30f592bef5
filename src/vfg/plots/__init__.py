"""Pictures of graphs, training, tables, answers and latent spaces, in one style.

Every function takes the Axes to draw on, or makes new ones, and returns them; those that need
several return the Figure. They need matplotlib: `pip install 'vfg[plot]'`.
"""

from vfg.plots.answers import answer
from vfg.plots.graphs import dag, graph, positions
from vfg.plots.imputations import (
    coverage,
    distribution,
    distributions,
    hidden_cells,
    missingness,
    sensitivity,
)
from vfg.plots.latents import embedding, reconstructions, traversal, traversal_curves
from vfg.plots.runs import consistency, cost, history, likelihoods

__all__ = [
    "answer",
    "consistency",
    "cost",
    "coverage",
    "dag",
    "distribution",
    "distributions",
    "embedding",
    "graph",
    "hidden_cells",
    "history",
    "likelihoods",
    "missingness",
    "positions",
    "reconstructions",
    "sensitivity",
    "traversal",
    "traversal_curves",
]
