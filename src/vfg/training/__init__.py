"""Learning: Algorithms 1 and 2, layer by layer or all at once, resumable to the bit."""

from vfg.training.history import Epoch, History
from vfg.training.loop import fit, maximise
from vfg.training.settings import FitSettings, Masking, RunSettings, paper_settings

__all__ = [
    "Epoch",
    "FitSettings",
    "History",
    "Masking",
    "RunSettings",
    "fit",
    "maximise",
    "paper_settings",
]
