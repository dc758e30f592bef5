"""How the models of images are trained, all alike: VFGs by `vfg.fit`, others by its loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import vfg
from vfg.training import maximise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CHECKS = 20
"""How often a run of a number of steps is validated."""
BETWEEN_CHECKS = 100
"""Fewest steps between two validations of a run of some seconds."""
MOST_EPOCHS = 10_000
"""More than fit into any number of seconds."""


@dataclass(frozen=True)
class Budget:
    """How long to train and how: seconds, or steps if their number is given."""

    seconds: float
    steps: int | None = None
    batch: int = 256
    rate: float = 1e-3
    seed: int = 0
    """Of the first model; those of the others follow."""
    checkpoint: Path | None = None
    """Folder that keeps the runs of VFGs, so that they resume."""

    def options(self, rows: int, share: float = 1.0) -> dict[str, Any]:
        """Settings of `vfg.fit` for so many rows and a share of the seconds."""
        if self.steps is None:
            each = max(BETWEEN_CHECKS, 5 * rows // self.batch)
            length = {"epochs": MOST_EPOCHS, "steps": each, "budget": share * self.seconds}
        else:
            each = max(1, self.steps // CHECKS)
            length = {"epochs": max(1, self.steps // each), "steps": each}
        common = {"batch": self.batch, "rate": self.rate, "precision": "tf32", "masking": None}
        schedule = {"schedule": "cosine", "average": 0.05, "clip": "running", "warmup": 0.1}
        return {**length, **common, **schedule, "device": DEVICE, "progress": False}


@dataclass(frozen=True)
class Trained:
    """How the training of some models went."""

    histories: list[vfg.History]
    steps: int
    seconds: float
    captured: bool
    """Whether steps were recorded as CUDA graphs wherever there is a GPU."""

    @property
    def setbacks(self) -> int:
        """How often training went back to a best state at a lower rate."""
        return sum(history.restarts for history in self.histories)


def train(members: Sequence[Any], rows: Tensor, valid: Tensor, budget: Budget) -> Trained:
    """Train models that differ in their seed: VFGs as one batched model if that is faster.

    Grouped convolutions of several are not. The seconds of a budget are for all of them together.
    Pixels are probabilities and are drawn black or white in every step; the state with the best
    objective on `valid` is kept.
    """
    begun = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        histories = list(_train(members, rows, valid, budget))
    for warning in caught:
        print(f"  {warning.message}", flush=True)
    steps = budget.options(len(rows))["steps"] * max(map(len, histories))
    is_slow = any("not recorded" in str(warning.message) for warning in caught)
    return Trained(histories, steps, time.monotonic() - begun, not is_slow)


def _train(members: Sequence[Any], rows: Tensor, valid: Tensor, budget: Budget) -> Any:
    if isinstance(members[0].model if hasattr(members[0], "model") else None, vfg.VFG):
        models = [member.model for member in members]
        parts = [models] if members[0].stacks else [[model] for model in models]
        options = budget.options(len(rows), 1.0 / len(parts)) | members[0].settings
        for seed, part in enumerate(parts, start=budget.seed):
            kept = None if budget.checkpoint is None else budget.checkpoint / str(seed)
            yield vfg.fit(
                part,
                rows,
                validation=valid,
                augment=torch.bernoulli,
                seed=seed,
                checkpoint=kept,
                **options,
            )
        return
    for seed, member in enumerate(members, start=budget.seed):
        options = budget.options(len(rows), 1.0 / len(members))

        def validate(member: Any = member) -> float:
            return -float(member.bound(valid).mean())

        yield maximise(member, rows, validate=validate, seed=seed, **options)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
