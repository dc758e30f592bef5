"""The models of benchmarks/likelihood.py; what they share with the experiments is found there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
