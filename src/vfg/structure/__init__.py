"""Graphs learned from tables with missing values: DAGs among columns, trees with latent nodes."""

from vfg.structure.learned import LearnedGraph
from vfg.structure.learning import learn_graph
from vfg.structure.pdag import (
    edge_f1,
    equivalence_class,
    structural_hamming_distance,
    structural_intervention_distance,
)

__all__ = [
    "LearnedGraph",
    "edge_f1",
    "equivalence_class",
    "learn_graph",
    "structural_hamming_distance",
    "structural_intervention_distance",
]
