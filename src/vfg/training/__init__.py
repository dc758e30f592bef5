"""Training: Algorithms 1 and 2, layer by layer or all at once; interrupted runs resume exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfg.utils.lazy import lazy_names

if TYPE_CHECKING:
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

__getattr__ = lazy_names(
    __name__,
    {
        "history": ("Epoch", "History"),
        "loop": ("fit", "maximise"),
        "settings": ("FitSettings", "Masking", "RunSettings", "paper_settings"),
    },
    globals(),
)
