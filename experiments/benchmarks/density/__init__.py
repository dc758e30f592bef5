"""What `benchmarks/density.py` is made of."""
