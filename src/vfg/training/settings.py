"""The settings of a training run; `Masking`, which makes Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vfg.flows import MEMORIES, PRECISIONS, check_choice
from vfg.training.optimiser import SCHEDULES


@dataclass(frozen=True)
class Masking:
    """How training hides sections.

    In a masked step every row draws its own share of sections to keep, and then which ones;
    messages come from the kept sections only, and the likelihood counts the hidden ones, plus
    `visible` times the kept ones. Steps of the two algorithms alternate as evenly as `rate` allows.

    Args:
        rate: share of steps that use Algorithm 2; the others use Algorithm 1.
        keep: range of the share of sections that a row keeps.
        visible: weight of the kept sections in the likelihood of a masked step.

    Raises:
        ValueError: if a share is not between 0 and 1, or `visible` is negative.

    Example:
        >>> [Masking(rate=0.5).is_masked(step) for step in range(4)]
        [False, True, False, True]
    """

    rate: float = 0.5
    keep: tuple[float, float] = (0.3, 1.0)
    visible: float = 0.2

    def __post_init__(self) -> None:
        low, high = self.keep
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"Masking expects a rate from 0 to 1, but got {self.rate}")
        if not 0.0 <= low <= high <= 1.0:
            raise ValueError(
                f"Masking expects keep as a range (low, high) within 0 and 1, but got {self.keep}"
            )
        if not self.visible >= 0.0:
            raise ValueError(f"Masking expects visible to be at least 0, but got {self.visible}")

    def is_masked(self, step: int) -> bool:
        """Whether the step with this number uses Algorithm 2."""
        return int((step + 1) * self.rate) > int(step * self.rate)

    def draw(self, rows: int, sections: int, generator: torch.Generator) -> Tensor:
        """Which sections each row keeps, `(rows, sections)`."""
        low, high = self.keep
        device = generator.device
        share = low + (high - low) * torch.rand(rows, 1, generator=generator, device=device)
        return torch.rand(rows, sections, generator=generator, device=device) < share


BOTH_ALGORITHMS = Masking()
"""Algorithms 1 and 2 alternate."""


@dataclass(frozen=True)
class FitSettings:
    """Everything that decides what training does to a `vfg.VFG`, beside the model and the table.

    Args:
        masking: Algorithm 2, or None for Algorithm 1 alone.
        layerwise: update the edges of one layer per step, cycling through the layers.
        beta: weight of the KL and prior terms; with sampled states only 1 is a bound.
        warmup: epochs during which that weight rises from 0; below 1 a share of the run.
        free_bits: with sampled states, nats per latent node below which its KL term does not
            count, so that no node collapses to its prior early.
        input_dropout: with sampled states, share of the cells that a step hides from the messages
            at random while its bound counts them, so that q overfits less; it stays a bound.
        epochs: how many; after each the held-out loss is computed.
        steps: how many steps make an epoch; None means one pass over the table.
        budget: seconds after which to stop all the same; the schedule shrinks to fit.
        batch: rows per step.
        rate: the highest learning rate of the schedule.
        schedule: of the rate: `"one-cycle"` rises for 30 % of the run, then falls to almost 0;
            `"cosine"` rises for 2 %.
        average: share of the steps so far over whose end weights are averaged; the averages are
            what is validated and kept. 0 averages nothing; 0.05 suits noisy objectives such as
            the bound of sampled states.
        weight_decay: of the conditioners.
        clip: largest norm of a gradient; `"running"` shortens gradients to twice their usual norm,
            whatever that is.
        validation: share of the observed sections that is held out to choose the best state; 0
            keeps the last state.
        patience: stop after this many epochs without a better held-out loss.
        scale: whether a new model learns location and scale of real-valued columns.
        compile: whether to compile the step with `torch.compile`; `"auto"` does, after the first
            epochs, where it was measured to be faster and work enough is left to pay for it.
            Compiled steps are the same up to rounding.
        seed: decides everything that is drawn; global generators are left alone.
        precision: of the products inside conditioners while training: `"float32"`, the model's own;
            `"tf32"`, on a GPU's tensor cores; `"bf16"`, hidden layers included. States,
            log-determinants, sums and solves keep the model's own, and so does the held-out loss.
        memory: what flows keep for the derivative: `"store"`, all that it needs; `"recompute"`, the
            states between their layers, from which the rest is computed again; `"invert"`, only
            what comes out, which is inverted layer by layer, so that deep flows need hardly more
            memory than shallow ones.

    Raises:
        ValueError: for values that cannot be.

    Example:
        >>> FitSettings(epochs=20).batch
        256
    """

    masking: Masking | None = BOTH_ALGORITHMS
    layerwise: bool = False
    beta: float = 1.0
    warmup: float = 0
    free_bits: float = 0.0
    input_dropout: float = 0.0
    epochs: int = 200
    steps: int | None = None
    budget: float | None = None
    batch: int = 256
    rate: float = 2e-3
    schedule: str = "one-cycle"
    average: float = 0.0
    weight_decay: float = 1e-2
    clip: float | str = 1.0
    validation: float = 0.1
    patience: int | None = None
    scale: bool = True
    compile: bool | str = "auto"
    seed: int = 0
    precision: str = "float32"
    memory: str = "store"

    def __post_init__(self) -> None:
        least: dict[str, float] = {"epochs": 1, "batch": 1, "steps": 1, "patience": 1}
        for name, bound in {**least, "warmup": 0, "beta": 0.0, "free_bits": 0.0}.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise ValueError(f"{name} must be at least {bound}, but got {value}")
        for name, choices in {
            "compile": (True, False, "auto"),
            "precision": PRECISIONS,
            "memory": MEMORIES,
            "schedule": SCHEDULES,
        }.items():
            check_choice("FitSettings", name, getattr(self, name), choices)
        if not 0.0 <= self.validation < 1.0:
            raise ValueError(
                f"validation is the share of cells held out, from 0 to below 1, but got "
                f"{self.validation}"
            )
        for name in ("average", "input_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"{name} is a share from 0 to below 1, but got {getattr(self, name)}"
                )
        if isinstance(self.clip, str) and self.clip != "running":
            raise ValueError(f"clip is a positive norm or 'running', but got {self.clip!r}")
        for name in ("rate", "clip", "budget"):
            value = getattr(self, name)
            if not isinstance(value, str | None) and not value > 0.0:
                raise ValueError(f"{name} must be positive, but got {value}")
