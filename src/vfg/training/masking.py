"""Algorithm 2: hide sections, pass messages from the others, score what was hidden."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Masking:
    """How training hides sections.

    In a masked step every row draws its own share of sections to keep, between the two ends of
    `keep`, and then which ones; messages come from the kept sections only, and the likelihood
    counts the hidden ones, plus `visible` times the kept ones. Steps of the two algorithms
    alternate as evenly as `rate` allows.

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
