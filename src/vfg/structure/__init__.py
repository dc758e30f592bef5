"""Graphs learned from tables with missing values: DAGs among columns, trees with latent nodes."""

from vfg.structure.distances import (
    edge_f1,
    structural_hamming_distance,
    structural_intervention_distance,
)
from vfg.structure.learned import LearnedGraph
from vfg.structure.learning import learn_graph
from vfg.structure.pdag import equivalence_class

__all__ = [
    "LearnedGraph",
    "edge_f1",
    "equivalence_class",
    "learn_graph",
    "structural_hamming_distance",
    "structural_intervention_distance",
]
