"""AdamW, schedules, averages of weights, the running norm of gradients, tests for divergence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows import Rounding
from vfg.training.history import Epoch

STEEPEST = 2.0
"""How many times the usual norm a gradient may have; longer ones are shortened to that."""
FORGETTING = 0.02
"""The weight of a new norm in the usual one."""
LOST = 0.5
"""The share of what was learned that must be lost before an epoch counts as diverged,"""
WORSE = 0.2
"""and the share of the best held-out loss by which it must have risen,"""
LEAST = 0.1
"""and the nats per cell."""


class RunningNorm:
    """The running mean of the norms of gradients, in which no gradient counts too much.

    A gradient that is clipped at a fixed norm is still remembered for long by an optimiser whose
    other gradients are much shorter; one that is shortened to twice the usual norm is not.

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


def has_diverged(before: Sequence[Epoch], epoch: Epoch) -> bool:
    """Whether an epoch undid what earlier ones with the same β had learned.

    Its held-out loss is then far above the best one, and its objective below the usual one, which
    it is not where a model merely overfits.

    Example:
        >>> def epoch(number, objective, validation):
        ...     return Epoch(number, objective, 0, 0, 0, 0, 0, validation, 1e-3, 1.0, 0.0)
        >>> run = [epoch(0, -9.0, 2.0), epoch(1, -6.0, 1.4), epoch(2, -5.0, 1.2)]
        >>> has_diverged(run, epoch(3, -20.0, 4.0)), has_diverged(run, epoch(3, -4.0, 4.0))
        (True, False)
    """
    alike = [one for one in before if one.beta == epoch.beta]
    losses = [one.validation for one in alike if one.validation is not None]
    if not losses or epoch.validation is None:
        return False
    is_low = epoch.objective < median(one.objective for one in alike)
    return is_far(losses, epoch.validation) and is_low


def lost_copies(before: Sequence[Epoch], epoch: Epoch) -> list[int]:
    """The copies of a stack whose held-out loss is far above their best, by their position.

    Example:
        >>> def epoch(number, *losses):
        ...     return Epoch(number, 0, 0, 0, 0, 0, 0, None, 1e-3, 1.0, 0.0, losses)
        >>> lost_copies([epoch(0, 2.0, 2.0), epoch(1, 1.2, 1.4)], epoch(2, 4.0, 1.3))
        [0]
    """
    alike = [one.members for one in before if one.beta == epoch.beta]
    return [
        copy
        for copy, value in enumerate(epoch.members)
        if alike and is_far([losses[copy] for losses in alike], value)
    ]


def is_far(losses: Sequence[float], value: float) -> bool:
    """Whether a loss is so far above the best one that most of what was learned is gone."""
    best = min(losses)
    return not value - best <= max(LOST * (losses[0] - best), WORSE * abs(best), LEAST)


USUAL = "usual norm"
"""What the usual norm is called in a copy of the memory, where all else has a slash."""


BETAS, EPSILON = (0.9, 0.999), 1e-8
"""The constants of Adam, as torch has them."""


class FusedAdamW:
    """AdamW by torch's fused kernel, with the same bits and state as `torch.optim.AdamW`.

    The first optimiser of `torch.optim` in a process imports the compiler of torch and a thousand
    other modules. That takes 1.1 s, as long as a whole fit of a table of 300 rows.

    Args:
        groups: `params` and their `weight_decay`, one mapping per group.
        rate: the learning rate, or a tensor that has it.
    """

    def __init__(self, groups: Sequence[Mapping[str, Any]], rate: float | Tensor) -> None:
        self.groups = [(list(group["params"]), float(group["weight_decay"])) for group in groups]
        self.rate = rate
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have gradients."""
        for parameters, decay in self.groups:
            kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
            for parameter in parameters:
                if parameter.grad is not None:
                    kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
            for own in kinds.values():
                self._update(own, decay)

    def _update(self, parameters: list[Tensor], decay: float) -> None:
        states = [self._state_of(parameter) for parameter in parameters]
        steps, means, squares = (
            [state[key] for state in states] for key in ("step", "exp_avg", "exp_avg_sq")
        )
        torch._foreach_add_(steps, 1)
        gradients = [p.grad for p in parameters if p.grad is not None]
        rate: Any = self.rate
        torch._fused_adamw_(
            parameters, gradients, means, squares, [], steps, amsgrad=False, lr=rate,
            beta1=BETAS[0], beta2=BETAS[1], weight_decay=decay, eps=EPSILON, maximize=False,
        )  # fmt: skip

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


NETWORKS = (Rounding, nn.Linear, nn.Conv2d, nn.ConvTranspose2d)
"""Modules whose parameters decay; those of flows, scales and priors do not."""


class AdamW:
    """AdamW with weight decay on networks only."""

    def __init__(self, model: nn.Module, rate: float, weight_decay: float) -> None:
        decayed = {
            id(parameter)
            for module in model.modules()
            if isinstance(module, NETWORKS)
            for parameter in module.parameters()
        }
        self.named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        conditioners = [p for p in self.named.values() if id(p) in decayed]
        other = [p for p in self.named.values() if id(p) not in decayed]
        groups = [
            {"params": conditioners, "weight_decay": weight_decay},
            {"params": other, "weight_decay": 0.0},
        ]
        device = next(iter(self.named.values())).device
        self.usual = RunningNorm(device)
        # On a GPU the rate lies on the device, where a recorded step reads it.
        self._tensor = torch.tensor(rate, device=device) if device.type == "cuda" else None
        self._rate = rate
        self.inner = FusedAdamW(
            [group for group in groups if group["params"]],
            rate if self._tensor is None else self._tensor,
        )

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self._rate

    @rate.setter
    def rate(self, value: float) -> None:
        self._rate = value
        if self._tensor is not None:
            self._tensor.fill_(value)
            return
        self.inner.rate = value

    def clip(self, largest: float | str, copies: int = 1) -> Tensor:
        """Shorten the gradient if it is longer than `largest`, a norm, or `"running"`: than usual.

        The gradient of a stack is that of all copies, so it may be as much longer. Returns its norm
        before that.
        """
        if not isinstance(largest, str):
            parameters = list(self.named.values())
            return nn.utils.clip_grad_norm_(parameters, largest * math.sqrt(copies))
        gradients = [p.grad for p in self.named.values() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, self.usual.factor(norm))
        return norm

    def copy(self) -> dict[str, Tensor]:
        """The moments and step counts, by parameter, and the usual norm of a gradient."""
        moments = {
            f"{name}/{key}": value.detach().clone()
            for name, parameter in self.named.items()
            for key, value in self.inner.state[parameter].items()
        }
        return {**moments, USUAL: self.usual.value.clone()}

    def forget(self, copy: int, copies: int) -> None:
        """Set the moments of one copy of a stack to 0."""
        for state in self.inner.state.values():
            for value in state.values():
                if value.ndim:
                    value.chunk(copies)[copy].zero_()

    def restore(self, memory: dict[str, Tensor]) -> None:
        """Go back to what `copy` returned; tensors stay where they are."""
        for name, parameter in self.named.items():
            for key, value in self.inner.state[parameter].items():
                # A parameter without memory starts from zeros.
                value.copy_(memory.get(f"{name}/{key}", torch.zeros_like(value)))
        self.usual.value.copy_(memory.get(USUAL, torch.zeros_like(self.usual.value)))
        for name, value in memory.items():
            if name == USUAL:
                continue
            owner, _, key = name.rpartition("/")
            self.inner.state[self.named[owner]].setdefault(key, value.clone())


AVERAGED_EVERY = 10
"""Steps between two updates of an average, which together cost less than a tenth of a step."""


class Average:
    """A running mean of parameters that reaches back over the last share of the steps; 0 for none.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = Average(model, 0.5)
        >>> for step in range(20):
        ...     _ = nn.init.constant_(model.weight, float(step))
        ...     average.update(step)
        >>> with average.applied():
        ...     round(model.weight.item(), 2)
        18.09
        >>> model.weight.item()
        19.0
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        named = model.named_parameters() if share else ()
        self.share, self.own = share, {n: p for n, p in named if p.requires_grad}
        self.values = {name: value.detach().clone() for name, value in self.own.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the parameters after the step with this number; most steps are passed over."""
        if self.share and (step + 1) % AVERAGED_EVERY == 0:
            weight = min(1.0, AVERAGED_EVERY / (1.0 + self.share * (step + 1)))
            torch._foreach_lerp_(list(self.values.values()), list(self.own.values()), weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context the model has the averages for parameters."""
        before = {name: value.detach().clone() for name, value in self.own.items()}
        copy_into(self.own, self.values)
        try:
            yield
        finally:
            copy_into(self.own, before)

    def reset(self) -> None:
        """Begin again at the parameters of now."""
        copy_into(self.values, self.own)


@torch.no_grad()
def copy_into(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy tensors in place, by name."""
    for name, target in targets.items():
        target.copy_(values[name])


def cosine(done: float) -> float:
    """The share of the highest rate: up a line for 2 % of the run, then down along a cosine.

    Example:
        >>> [round(cosine(done), 3) for done in (0.0, 0.01, 0.5, 1.0)]
        [0.001, 0.5, 0.5, 0.001]
    """
    return max(min(done / 0.02, 1.0) * 0.5 * (1.0 + math.cos(math.pi * done)), 1e-3)


def one_cycle(done: float) -> float:
    """The share of the highest rate after a share `done` of the run.

    It rises along a cosine from 1/25 during the first 30 %, then falls along one to almost nothing.

    Example:
        >>> [round(one_cycle(done), 3) for done in (0.0, 0.15, 0.3, 0.65, 1.0)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if done < 0.3:
        return 0.04 + 0.96 * 0.5 * (1.0 - math.cos(math.pi * done / 0.3))
    return max(0.5 * (1.0 + math.cos(math.pi * (done - 0.3) / 0.7)), 1e-6)


SCHEDULES = {"one-cycle": one_cycle, "cosine": cosine}
