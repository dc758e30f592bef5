"""The parts of benchmarks/imputation.py: cells, methods, metrics, summaries."""
