"""Training of the models of images, all in the same way: VFGs by `vfg.fit`, others by its loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import vfg
from vfg.training import maximise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CHECKS = 20
"""How often a run of a number of steps is validated."""
BETWEEN_CHECKS = 100
"""Fewest steps between two validations of a run of some seconds."""
NEXT_STAGE = 10
"""What a second call of `vfg.fit` adds to the seed."""
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

    def part(self, share: float) -> Budget:
        """A share of the seconds or steps."""
        steps = None if self.steps is None else max(1, round(share * self.steps))
        return replace(self, seconds=share * self.seconds, steps=steps)

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


class Part(NamedTuple):
    """One call of `vfg.fit` or `maximise`."""

    history: vfg.History
    each: int
    """Steps of an epoch."""
    batch: int

    @property
    def steps(self) -> int:
        return self.each * len(self.history)


@dataclass(frozen=True)
class Trained:
    """How the training of some models went."""

    runs: list[list[Part]]
    """Of every call for a model or for a stack of models, those that follow each other."""
    seconds: float
    captured: bool
    """Whether steps were recorded as CUDA graphs wherever there is a GPU."""

    @property
    def histories(self) -> list[vfg.History]:
        """Of the first call of every run."""
        return [first.history for first, *_ in self.runs]

    @property
    def setbacks(self) -> int:
        """How often training went back to a best state at a lower rate."""
        return sum(part.history.restarts for run in self.runs for part in run)

    @property
    def longest(self) -> list[Part]:
        """The run with the most steps."""
        return max(self.runs, key=lambda run: sum(part.steps for part in run))

    @property
    def steps(self) -> int:
        """Of the longest run."""
        return sum(part.steps for part in self.longest)

    @property
    def first_steps(self) -> int:
        """Of the first run, whose history is the one that is kept."""
        return sum(part.steps for part in self.runs[0])

    @property
    def images(self) -> int:
        """Rows that the steps of the first run have seen."""
        return sum(part.steps * part.batch for part in self.runs[0])


def train(members: Sequence[Any], rows: Tensor, valid: Tensor, budget: Budget) -> Trained:
    """Train models that differ in their seed: VFGs as one batched model if that is faster.

    Grouped convolutions of several are not. The seconds of a budget are for all of them together.
    Pixels are probabilities and are drawn black or white in every step; the state with the best
    objective on `valid` is kept. A member with a `finish` goes on from there with other settings.
    """
    begun = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runs = list(_train(members, rows, valid, budget))
    for warning in caught:
        print(f"  {warning.message}", flush=True)
    is_slow = any("not recorded" in str(warning.message) for warning in caught)
    return Trained(runs, time.monotonic() - begun, not is_slow)


def _train(
    members: Sequence[Any], rows: Tensor, valid: Tensor, budget: Budget
) -> Iterator[list[Part]]:
    if isinstance(members[0].model if hasattr(members[0], "model") else None, vfg.VFG):
        models = [member.model for member in members]
        parts = [models] if members[0].stacks else [[model] for model in models]
        stages = list(_stages(members[0], budget, len(rows), 1.0 / len(parts)))
        for seed, part in enumerate(parts, start=budget.seed):
            kept = None if budget.checkpoint is None else budget.checkpoint / str(seed)
            run = []
            for number, options in enumerate(stages):
                history = vfg.fit(
                    part,
                    rows,
                    validation=valid,
                    augment=torch.bernoulli,
                    seed=seed + NEXT_STAGE * number,
                    checkpoint=kept and (kept if not number else kept / "finish"),
                    **options,
                )
                run.append(Part(history, options["steps"], options["batch"]))
            yield run
        return
    for seed, member in enumerate(members, start=budget.seed):
        options = budget.options(len(rows), 1.0 / len(members))

        def validate(member: Any = member) -> float:
            return -float(member.bound(valid).mean())

        history = maximise(member, rows, validate=validate, seed=seed, **options)
        yield [Part(history, options["steps"], options["batch"])]


def _stages(member: Any, budget: Budget, rows: int, share: float) -> Iterator[dict[str, Any]]:
    """Settings of the calls of `vfg.fit` that follow each other, for a share of the seconds."""
    finish = dict(getattr(member, "finish", {}))
    last = finish.pop("share", 0.0)
    yield budget.part(1.0 - last).options(rows, share) | member.settings
    if last:
        yield budget.part(last).options(rows, share) | member.settings | finish


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
