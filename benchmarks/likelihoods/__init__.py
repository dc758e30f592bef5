"""The parts of benchmarks/likelihood.py: images, models, training."""
