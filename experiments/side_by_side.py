"""Training that is the same for all models of an experiment, several of them at a time on one GPU.

A step is captured once as a CUDA graph and replayed, so that it costs its arithmetic and not its
launches; every run has a stream and a random state of its own, and shares the GPU with the others.
On a CPU they take turns. A model may itself be several copies side by side, with all parameters
joined along their first axis: each copy then has its own best state. All data are on the device.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vfg.flows import Conditioner
from vfg.training.optimiser import RunningNorm

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROUND = 10
"""How many steps follow each other before schedules and averages move on."""
CHECKS = 20
"""How often a run is validated."""
FOREIGN = 4 * 2**30
"""More bytes of the GPU than this beside our own tensors are somebody else's."""
LOST = 1.15
"""How many times worse than its best a run may be before it goes back there at half its rate."""


def is_shared() -> bool:
    """Whether other processes hold memory of the GPU."""
    if DEVICE.type == "cpu":
        return False
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved() > FOREIGN


@dataclass(frozen=True)
class Budget:
    """How long to train and how: seconds, or steps if their number is given."""

    seconds: float
    steps: int | None = None
    batch: int = 256
    rate: float = 1e-3
    decay: float = 1e-2

    def done(self, steps: int, seconds: float) -> float:
        """The share of the budget that is spent."""
        return seconds / self.seconds if self.steps is None else steps / self.steps


@contextlib.contextmanager
def _own_random_state() -> Iterator[None]:
    """Draw on the GPU from a state that nothing else draws from.

    A captured graph reads where its state stands from a place on the device that all graphs of that
    state share, so graphs that run at the same time would draw the same numbers. A capture that
    fails leaves its state believing that it is captured: it is left behind with it.
    """
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.graphsafe_get_state()
    own = generator.clone_state()
    own.manual_seed(int(torch.randint(2**62, ())))
    generator.graphsafe_set_state(own)
    try:
        yield
    finally:
        generator.graphsafe_set_state(before)


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """Matrix products in TF32, good enough for training and not for densities."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Run:
    """One model in training: AdamW with a warm-up and a cosine; the average of late states.

    Args:
        model: has `objective(*parts, beta)`, a number to maximise; `copies` says how many there
            are of it side by side, if it is not one.
        parts: tensors on the device with a row per example.
        score: what to choose states by, one number per copy, on rows that are not trained on;
            larger is better.
        budget: how long, and how.
        unit: by what the objective is divided, so that clipping means the same for all data.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: tuple[Tensor, ...],
        score: Callable[[], Sequence[float]],
        budget: Budget,
        unit: float,
    ) -> None:
        self.model, self.parts, self.score = model.to(DEVICE), parts, score
        self.budget, self.unit, self.copies = budget, unit, int(getattr(model, "copies", 1))
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        is_gpu = DEVICE.type == "cuda"
        rate = torch.tensor(budget.rate, device=DEVICE) if is_gpu else budget.rate
        self.optimiser = torch.optim.AdamW(
            decaying(model, budget.decay),
            lr=rate,
            betas=(0.9, 0.99),
            fused=True,
            capturable=is_gpu,
        )
        self.beta, self.loss = torch.zeros(2, device=DEVICE).unbind()
        self.usual = RunningNorm(DEVICE)
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self.chosen = [parameter.detach().clone() for parameter in self.parameters]
        self.best = [-math.inf] * self.copies
        self.steps, self.slowed, self.is_captured = 0, 1.0, False
        self.stream = torch.cuda.Stream() if is_gpu else None
        self.model.train()
        self._schedule(0.0)
        with fast_products():  # what is captured stays as it is
            self.step = self._captured() if is_gpu else self._step

    @property
    def setbacks(self) -> int:
        """How often a copy went back to its best state."""
        return round(-math.log2(self.slowed))

    def advance(self, done: float) -> None:
        """A round of steps, queued on the run's own stream."""
        with self._own_stream():
            self._schedule(done)
            for _ in range(ROUND):
                self.step()
            self.steps += ROUND
            # The average reaches back over the last twentieth of the run.
            weight = min(1.0, ROUND / (1.0 + 0.05 * self.steps))
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.parameters, weight)

    def check(self) -> None:
        """Keep the averaged states that are the best so far; go back there from lost ones."""
        with self._own_stream():
            own = [parameter.detach().clone() for parameter in self.parameters]
            assign(self.parameters, self.average)
            self.model.eval()
            lost = [copy for copy, value in enumerate(self.score()) if self._judge(copy, value)]
            assign(self.parameters, own)
            for copy in lost:
                self._start_over(copy)
            self.model.train()

    def _judge(self, copy: int, value: float) -> bool:
        """Keep the averaged state of a copy if it is its best; whether the copy is lost."""
        best = self.best[copy]
        if value > best:
            self.best[copy] = value
            assign(self._of(self.chosen, copy), self._of(self.average, copy))
        return not value >= best - (LOST - 1.0) * abs(best)

    def _start_over(self, copy: int) -> None:
        """From the best state, at half the rate, with an optimiser that remembers nothing."""
        self.slowed *= 0.5
        for states in (self.average, self.parameters):
            assign(self._of(states, copy), self._of(self.chosen, copy))
        memories = [m for state in self.optimiser.state.values() for m in state.values()]
        for memory in self._of([m for m in memories if m.ndim], copy):
            memory.zero_()
        if self.copies == 1:
            for count in (m for m in memories if not m.ndim):
                count.zero_()
        self.usual.value.zero_()

    def _of(self, tensors: Sequence[Tensor], copy: int) -> list[Tensor]:
        """The parts of tensors that belong to one copy."""
        if self.copies == 1:
            return list(tensors)
        return [tensor.detach().chunk(self.copies)[copy] for tensor in tensors]

    def finish(self) -> None:
        """Give the model the best state."""
        with self._own_stream():
            assign(self.parameters, self.chosen)
        self.model.eval()
        if self.stream is not None:
            torch.cuda.synchronize()

    def _step(self) -> None:
        count = self.budget.batch * self.copies
        rows = torch.randint(len(self.parts[0]), (count,), device=DEVICE)
        loss = -self.model.objective(*(part[rows] for part in self.parts), self.beta)
        self.optimiser.zero_grad(set_to_none=True)
        (loss / self.unit).backward()
        self._shorten([p.grad for p in self.parameters if p.grad is not None])
        self.optimiser.step()
        self.loss.copy_(loss.detach())

    def _shorten(self, gradients: list[Tensor]) -> None:
        """Have very steep gradients shortened, and steps left out whose gradient is not finite."""
        norm = nn.utils.get_total_norm(gradients)
        # The fused optimiser divides by one and obeys the other without a kernel more.
        self.optimiser.grad_scale = self.usual.factor(norm).reciprocal().nan_to_num(1.0)
        self.optimiser.found_inf = (~norm.isfinite()).float()

    def _captured(self) -> Callable[[], None]:
        # Workspaces of matrix products belong to streams: graphs that are captured on one stream
        # share them and must not run at the same time.
        assert self.stream is not None
        gc.collect()  # a graph that dies later would take the workspaces of its stream with it
        self.stream.wait_stream(torch.cuda.current_stream())
        torch.backends.cudnn.benchmark = True  # sizes never change in training
        graph = torch.cuda.CUDAGraph()
        try:
            with _own_random_state():
                with torch.cuda.stream(self.stream):
                    for _ in range(3):
                        self._step()
                torch.cuda.synchronize()
                self.optimiser.zero_grad(set_to_none=True)
                with torch.cuda.graph(graph, stream=self.stream):
                    self._step()
        except RuntimeError as error:
            print(f"  steps run one by one, because they cannot be captured: {error}", flush=True)
            torch.cuda.synchronize()
            return self._step
        finally:
            torch.backends.cudnn.benchmark = False
        self.is_captured = True
        return graph.replay

    def _schedule(self, done: float) -> None:
        share = min(done / 0.02, 1.0) * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
        rate = max(share, 1e-3) * self.slowed * self.budget.rate
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.beta.fill_(min(1.0, 0.05 + done / 0.1))

    def _own_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def train(runs: list[Run], budget: Budget, name: str = "") -> float:
    """Train all runs at the same time until the budget is spent; the seconds it took."""
    begun, done, checked = time.monotonic(), 0.0, 0
    with fast_products():
        while done < 1.0:
            for run in runs:
                run.advance(done)
            if DEVICE.type == "cuda" and runs[0].steps % (5 * ROUND) == 0:
                torch.cuda.synchronize()  # the queue would run ahead of the clock
            done = budget.done(runs[0].steps, time.monotonic() - begun)
            if int(done * CHECKS) > checked or done >= 1.0:
                checked = int(done * CHECKS)
                for run in runs:
                    run.check()
                if checked % (CHECKS // 4) == 0 or done >= 1.0:
                    shown = ", ".join(f"{-best:.2f}" for run in runs for best in run.best)
                    print(
                        f"  {name} {100 * done:.0f} %, {runs[0].steps} steps: {shown}", flush=True
                    )
    for run in runs:
        run.finish()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
    return time.monotonic() - begun


def decaying(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Parameters of networks, whose weights decay, and all others."""
    kinds = Conditioner | nn.Linear | nn.Conv2d | nn.ConvTranspose2d
    networks = [module for module in model.modules() if isinstance(module, kinds)]
    decayed = {id(parameter) for network in networks for parameter in network.parameters()}
    chosen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in chosen if id(p) in decayed], "weight_decay": decay},
        {"params": [p for p in chosen if id(p) not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@torch.no_grad()
def assign(targets: list[Any], values: list[Tensor]) -> None:
    """Copy values into tensors in place."""
    torch._foreach_copy_(targets, values)
