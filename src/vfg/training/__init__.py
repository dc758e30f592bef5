"""Learning: Algorithms 1 and 2, layer by layer or all at once, resumable to the bit."""

from vfg.training.history import Epoch, History
from vfg.training.loop import fit, maximise
from vfg.training.settings import FitSettings, Masking

__all__ = ["Epoch", "FitSettings", "History", "Masking", "fit", "maximise"]
