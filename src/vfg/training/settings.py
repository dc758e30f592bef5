"""Everything that decides what a training run does."""

from __future__ import annotations

from dataclasses import dataclass

from vfg.flows.keeping import check_memory
from vfg.flows.precision import check_precision
from vfg.training.compiling import check_compile
from vfg.training.masking import Masking


@dataclass(frozen=True)
class Settings:
    """Everything that decides what training does to a model, beside the model and the table."""

    masking: Masking | None
    layerwise: bool
    beta: float
    warmup: int
    free_bits: float
    epochs: int
    steps: int | None
    budget: float | None
    batch: int
    rate: float
    weight_decay: float
    clip: float | str
    validation: float
    patience: int | None
    scale: bool
    compile: bool | str
    seed: int
    precision: str = "float32"
    memory: str = "store"

    def __post_init__(self) -> None:
        _at_least("epochs", self.epochs, 1)
        _at_least("batch", self.batch, 1)
        _at_least("steps", 1 if self.steps is None else self.steps, 1)
        _at_least("warmup", self.warmup, 0)
        _at_least("beta", self.beta, 0.0)
        _at_least("free_bits", self.free_bits, 0.0)
        _at_least("patience", 1 if self.patience is None else self.patience, 1)
        check_compile(self.compile)
        check_precision(self.precision)
        check_memory(self.memory)
        if not 0.0 <= self.validation < 1.0:
            raise ValueError(
                f"validation is the share of cells held out, from 0 to below 1, but got "
                f"{self.validation}"
            )
        if isinstance(self.clip, str) and self.clip != "running":
            raise ValueError(f"clip is a positive norm or 'running', but got {self.clip!r}")
        for name in ("rate", "clip", "budget"):
            value = getattr(self, name)
            if isinstance(value, str):
                continue
            if value is not None and not value > 0.0:
                raise ValueError(f"{name} must be positive, but got {value}")


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, but got {value}")
