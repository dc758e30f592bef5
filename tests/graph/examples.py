"""Graphs that several tests look at."""

from vfg.graph import Graph

APPENDIX = [
    *[("1", "4"), ("2", "4"), ("2", "5"), ("3", "5")],
    *[("4", "6"), ("5", "6"), ("5", "7"), ("6", "7")],
]


def appendix_graph():
    return Graph.from_edges(APPENDIX, widths=2)


def names(edges):
    return [edge.name for edge in edges]
