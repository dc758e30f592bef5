"""Whether compiling a step pays, and compiling it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vfg.flows import AffineCoupling, SplineCoupling

Loss = Callable[..., Tensor]
COST = {"cpu": 120.0, "cuda": 60.0}
"""Seconds that compiling takes, by device; see the part `compile` of benchmarks/speed.py."""
GAIN = 2.0
"""By how much steps of spline couplings are faster on a CPU; others gain nothing or little."""
GPU_GAIN = {"float32": 1.3, "tf32": 1.3, "bf16": 1.35}
"""By how much steps of affine couplings are faster on a GPU at least, by the precision of the
conditioners; others were not measured there."""
MARGIN = 2.0
"""How many times the cost has to be saved: a guess that is wrong must not cost much."""


def check_compile(compile: bool | str) -> None:
    """Refuse what is neither a decision nor `"auto"`."""
    if compile not in (True, False, "auto"):
        raise ValueError(f'compile is True, False or "auto", but got {compile!r}')


def expected_gain(model: nn.Module, device: str, precision: str = "float32") -> float:
    """By how much compiled steps of a model are expected to be faster.

    Args:
        model: a model or flow.
        device: `"cpu"` or `"cuda"`.
        precision: of its conditioners.

    Example:
        >>> import vfg
        >>> expected_gain(vfg.Coupling(kind="spline").build(edges=1, width=4), "cpu")
        2.0
        >>> expected_gain(vfg.Coupling().build(edges=1, width=4), "cpu")
        1.0
        >>> expected_gain(vfg.Coupling().build(edges=1, width=4), "cuda")
        1.3
    """
    is_cuda = device == "cuda"
    kind = AffineCoupling if is_cuda else SplineCoupling
    gain = GPU_GAIN[precision] if is_cuda else GAIN
    return gain if any(isinstance(part, kind) for part in model.modules()) else 1.0


def pays(steps: int, seconds: float, gain: float, cost: float, budget: float | None = None) -> bool:
    """Whether compiling the steps that are left saves clearly more time than it takes.

    Args:
        steps: how many are left.
        seconds: what one takes as it is.
        gain: by how much compiled ones are expected to be faster.
        cost: seconds that compiling takes.
        budget: seconds that are left, if they are limited.

    Example:
        >>> pays(1000, 0.1, gain=2.0, cost=120.0), pays(10_000, 0.1, gain=2.0, cost=120.0)
        (False, True)
        >>> pays(10_000, 0.1, gain=1.0, cost=120.0)
        False
    """
    work = steps * seconds
    if budget is not None:
        work = min(work, budget)
    return work * (1.0 - 1.0 / gain) > MARGIN * cost


def compiled(loss: Loss) -> Loss:
    """A compiled loss; as it is, with a warning, if it cannot be compiled here."""
    fast: Loss = torch.compile(loss)

    def call(*arguments: Tensor | float | None) -> Tensor:
        nonlocal fast
        try:
            return fast(*arguments)
        except (RuntimeError, OSError) as error:  # no compiler here, or one that fails
            if fast is loss:
                raise
            reason = str(error).strip().partition("\n")[0]
            warnings.warn(f"steps are not compiled and run slower: {reason}", stacklevel=2)
            fast = loss
            return fast(*arguments)

    return call
