"""Benchmarks of this library, run by `python -m experiments.benchmarks.NAME`."""
