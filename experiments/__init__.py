"""Experiments, benchmarks and their baselines, run by `python -m experiments.NAME`."""
