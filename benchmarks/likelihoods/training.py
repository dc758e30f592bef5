"""Training that is the same for all models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows import Conditioner

from .images import DEVICE, Images


@dataclass(frozen=True)
class Budget:
    """How long to train: minutes, or steps if their number is given."""

    minutes: float
    steps: int | None

    def done(self, steps: int, seconds: float) -> float:
        """The share of the budget that is spent."""
        return seconds / (60.0 * self.minutes) if self.steps is None else steps / self.steps

    def __str__(self) -> str:
        return f"{self.minutes:g} minutes" if self.steps is None else f"{self.steps:,} steps"


def weighed(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters of networks, whose weights decay, and all others."""
    networks = [m for m in model.modules() if isinstance(m, Conditioner | nn.Linear)]
    decayed = {id(parameter) for network in networks for parameter in network.parameters()}
    chosen = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in chosen if id(p) in decayed]},
        {"params": [p for p in chosen if id(p) not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class Trainer:
    """AdamW with a warm-up and a cosine until the budget is spent; the step is one CUDA graph."""

    def __init__(self, model: nn.Module, images: Images, batch: int, rate: float) -> None:
        self.model, self.images, self.batch, self.rate = model.to(DEVICE), images, batch, rate
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        is_gpu = DEVICE.type == "cuda"
        lr = torch.tensor(rate, device=DEVICE) if is_gpu else rate
        self.optimiser = torch.optim.AdamW(
            weighed(model), lr=lr, weight_decay=1e-2, fused=True, capturable=is_gpu
        )
        self.beta = torch.zeros((), device=DEVICE)
        self.loss = torch.zeros((), device=DEVICE)
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self._schedule(0.0)
        self.step = self._captured() if is_gpu else self._step

    def _step(self) -> None:
        rows = torch.randint(len(self.images.train), (self.batch,), device=DEVICE)
        loss = -self.model.objective(self.images.train[rows], self.beta)
        self.optimiser.zero_grad(set_to_none=True)
        (loss / self.images.train.shape[1]).backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        self.loss.copy_(loss.detach())

    def _captured(self) -> Callable[[], None]:
        self.model.train()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self.optimiser.zero_grad(set_to_none=True)
        try:
            with torch.cuda.graph(graph):
                self._step()
        except RuntimeError as error:
            print(f"  steps run one by one, because they cannot be captured: {error}", flush=True)
            torch.cuda.synchronize()
            return self._step
        return graph.replay

    def run(self, budget: Budget) -> dict[str, float]:
        """Train; afterwards the model has the averaged state that was best on validation rows."""
        begun, steps, best, checked = time.monotonic(), 0, -math.inf, 0.0
        chosen = [parameter.clone() for parameter in self.average]
        done = 0.0
        self.model.train()
        while done < 1.0:
            self._schedule(done)
            for _ in range(10):
                self.step()
            steps += 10
            self._follow(steps)
            if DEVICE.type == "cuda" and steps % 100 == 0:
                torch.cuda.synchronize()
            done = budget.done(steps, time.monotonic() - begun)
            if done - checked >= 0.05 or done >= 1.0:
                checked = done
                value = self._validated()
                if not math.isfinite(float(self.loss)):
                    print("  the loss is not finite; the best state so far is kept", flush=True)
                    break
                if value > best:
                    best, chosen = value, [parameter.clone() for parameter in self.average]
                if round(done * 20) % 5 == 0:
                    print(f"  {100 * done:3.0f} %  {steps} steps  valid {-value:.2f}", flush=True)
        _assign(self.parameters, chosen)
        self.model.eval()
        return {"steps": steps, "seconds": time.monotonic() - begun, "valid": -best}

    def _schedule(self, done: float) -> None:
        share = min(done / 0.02, 1.0) * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
        rate = max(share, 1e-3) * self.rate
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.beta.fill_(min(1.0, 0.05 + done / 0.1))

    def _follow(self, steps: int) -> None:
        """Average the parameters over the last twentieth of the run so far."""
        weight = min(1.0, 10.0 / (1.0 + 0.05 * steps))
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self.parameters, weight)

    def _validated(self) -> float:
        own = [parameter.detach().clone() for parameter in self.parameters]
        _assign(self.parameters, self.average)
        self.model.eval()
        value = self.model.bound(self.images.valid).mean().item()
        _assign(self.parameters, own)
        self.model.train()
        return value


@torch.no_grad()
def _assign(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
