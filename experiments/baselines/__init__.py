"""Rivals of the experiments, trained as well as we can."""
