"""Nodes, edges and graphs: layers, checks, builders, drawings; pure Python, no torch."""

from vfg.graph.graph import Graph
from vfg.graph.nodes import Edge, Network, Node

__all__ = ["Edge", "Graph", "Network", "Node"]
