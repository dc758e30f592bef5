"""Training that goes astray: gradients that are too long, and epochs that undo what was learned."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from vfg.training.history import Epoch

STEEPEST = 2.0
"""How many times the usual norm a gradient may have; longer ones are shortened to that."""
FORGETTING = 0.02
"""The weight of a new norm in the usual one."""
LOST = 0.5
"""The share of what was learned that must be gone before an epoch counts as a blow-up,"""
WORSE = 0.2
"""and the share of the best held-out loss by which it must have risen,"""
LEAST = 0.1
"""and the nats per cell."""


class RunningNorm:
    """How long gradients usually are: a running mean, in which no gradient counts too much.

    A gradient that is clipped at a fixed norm is still remembered for long by an optimiser whose
    other gradients are much shorter; one that is shortened to twice the usual norm is not.

    Args:
        device: of the gradients.

    Example:
        >>> usual = RunningNorm(torch.device("cpu"))
        >>> [round(usual.factor(torch.tensor(norm)).item(), 3) for norm in (1.0, 1.5, 100.0)]
        [1.0, 1.0, 0.02]
    """

    def __init__(self, device: torch.device) -> None:
        self.value = torch.zeros((), device=device)

    def factor(self, norm: Tensor) -> Tensor:
        """What a gradient of this norm is multiplied by, at most 1; waits for no device."""
        usual = torch.where(self.value > 0.0, self.value, norm)
        limited = torch.minimum(norm, STEEPEST * usual)
        moved = torch.lerp(usual, limited, FORGETTING)
        self.value.copy_(torch.where(norm.isfinite(), moved, self.value))
        return (limited / norm).nan_to_num(1.0)


def has_blown_up(before: Sequence[Epoch], epoch: Epoch) -> bool:
    """Whether an epoch undid what earlier ones with the same β had learned.

    Its held-out loss is then far above the best one, and its objective below the usual one, which
    it is not where a model merely learns its table by heart.

    Args:
        before: the epochs of the run so far.
        epoch: the one that follows them.

    Example:
        >>> def epoch(number, objective, validation):
        ...     return Epoch(number, objective, 0, 0, 0, 0, 0, validation, 1e-3, 1.0, 0.0)
        >>> run = [epoch(0, -9.0, 2.0), epoch(1, -6.0, 1.4), epoch(2, -5.0, 1.2)]
        >>> has_blown_up(run, epoch(3, -20.0, 4.0)), has_blown_up(run, epoch(3, -4.0, 4.0))
        (True, False)
    """
    alike = [one for one in before if one.beta == epoch.beta]
    losses = [one.validation for one in alike if one.validation is not None]
    if not losses or epoch.validation is None:
        return False
    best = min(losses)
    far = max(LOST * (losses[0] - best), WORSE * abs(best), LEAST)
    return epoch.validation - best > far and epoch.objective < median(e.objective for e in alike)
