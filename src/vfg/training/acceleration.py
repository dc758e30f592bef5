"""Faster steps: `torch.compile` where it saves time, and CUDA graphs."""

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vfg.flows import AffineCoupling, SplineCoupling, of_kind
from vfg.flows.image_networks import GroupedConvolution

Loss = Callable[..., Tensor]
COST = {"cpu": 120.0, "cuda": 60.0}
"""Seconds that compiling takes, by device, as measured by `experiments.benchmarks.speed`."""
GAIN = 2.0
"""By how much steps of spline couplings are faster on a CPU; others gain nothing or little."""
GPU_GAIN = {"float32": 1.3, "tf32": 1.3, "bf16": 1.35}
"""By how much steps of affine couplings are faster on a GPU at least, by the precision of the
conditioners; others were not measured there."""
CONVOLUTION_GAIN = 1.7
"""By how much steps of convolutions in half precision are: 3.7 in place of 6.4 ms on an H200 for
`vfg.Bottleneck` with 64 channels and 256 rows, as what lies between the products is fused."""
MARGIN = 2.0
"""How many times the cost has to be saved: an estimate that is wrong must not cost much."""


def expected_gain(model: nn.Module, device: str, precision: str = "float32") -> float:
    """By how much compiled steps of a model on `"cpu"` or `"cuda"` are expected to be faster.

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
    if is_cuda and precision == "bf16" and of_kind(model, GroupedConvolution):
        return CONVOLUTION_GAIN
    kind = AffineCoupling if is_cuda else SplineCoupling
    gain = GPU_GAIN[precision] if is_cuda else GAIN
    return gain if any(isinstance(part, kind) for part in model.modules()) else 1.0


def compiling_pays(
    steps: int, seconds: float, gain: float, cost: float, budget: float | None = None
) -> bool:
    """Whether compiling the steps that are left saves clearly more time than it takes.

    A step takes `seconds` now, compiling `cost`, and `budget` is what is left if time is limited.

    Example:
        >>> [compiling_pays(steps, 0.1, gain=2.0, cost=120.0) for steps in (1000, 10_000)]
        [False, True]
        >>> compiling_pays(10_000, 0.1, gain=1.0, cost=120.0)
        False
    """
    work = steps * seconds
    if budget is not None:
        work = min(work, budget)
    return work * (1.0 - 1.0 / gain) > MARGIN * cost


def compile_loss(loss: Loss) -> Loss:
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


WARM_UP = 2
"""How often work runs before it is recorded: what happens only at first must not be recorded."""

Work = Callable[[], None]
"""What it reads and writes are tensors that stay where they are; it decides nothing by numbers."""


class Recorder:
    """Records work on one GPU as CUDA graphs, which share their memory.

    Work that cannot be recorded, because it waits for the device or calls something that does, runs
    as it is, with a warning. It may draw from `generators`, beside the global one of the device.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self.device = device
        own = torch.cuda.current_device() if device.index is None else device.index
        self.generators = list(generators)
        self.all_generators = [torch.cuda.default_generators[own], *generators]
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.kept: torch.cuda.CUDAGraph | None = None
        """Holds the pool: torch refuses one whose recordings are all gone."""

    def warm_up(self, work: Work) -> None:
        """Run the work beside the main stream, as a recording will."""
        main = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            work()
        main.wait_stream(self.stream)

    def record(self, work: Work) -> Work:
        """What replays the work, which is not run now; the work itself if it cannot be recorded."""
        # What is freed while recording would wait for the device.
        gc.collect()
        torch.cuda.synchronize(self.device)
        before = [generator.clone_state() for generator in self.all_generators]
        try:
            if self.kept is None:
                self.kept = self._capture(self._minimal_work)
            return self._capture(work).replay
        except RuntimeError as error:
            self._recover(before)
            reason = str(error).partition("\n")[0]
            warnings.warn(
                f"steps are not recorded as CUDA graphs and run slower: {reason}", stacklevel=2
            )
            return work

    def _recover(self, before: list[torch.Generator]) -> None:
        """Make everything usable again after a recording that failed.

        Its generators believe that they are still recorded, and work that was recorded before could
        neither draw nor be replayed. A recording that succeeds ends that; if none does, generators
        go on in the states `before`, apart from what was recorded.
        """
        torch.cuda.synchronize(self.device)
        self.pool = torch.cuda.graph_pool_handle()  # the old one may never be closed
        try:
            self.kept = self._capture(self._minimal_work)
        except RuntimeError:
            self.kept = None
            for generator, state in zip(self.all_generators, before, strict=True):
                generator.graphsafe_set_state(state)
        torch.cuda.synchronize(self.device)

    def _minimal_work(self) -> None:
        torch.zeros(1, device=self.device)

    def _capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool)
            try:
                work()
            finally:
                graph.capture_end()
        return graph


class Replayed:
    """Work that runs as it is a few times and is replayed from then on, if there is a recorder.

    Example:
        >>> total = torch.zeros(())
        >>> add = Replayed(lambda: total.add_(1.0), None)
        >>> for _ in range(3):
        ...     add()
        >>> total
        tensor(3.)
    """

    def __init__(self, work: Callable[[], object], recorder: Recorder | None) -> None:
        self.work, self.recorder = work, recorder
        self.calls = 0
        self.replay: Work | None = None
        self.recorded_at = -math.inf
        """When it was recorded, on the clock of `time.monotonic`; infinite while it will be."""
        if recorder is not None:
            self.recorded_at = math.inf

    @property
    def is_recorded(self) -> bool:
        """Whether calls replay a recording."""
        return self.replay is not None and self.replay != self._run

    def __call__(self) -> None:
        """Do the work once."""
        self.calls += 1
        if self.recorder is None:
            self.work()
        elif self.calls <= WARM_UP:
            self.recorder.warm_up(self._run)
        else:
            if self.replay is None:
                self.replay = self.recorder.record(self._run)
                self.recorded_at = time.monotonic()
            self.replay()

    def _run(self) -> None:
        self.work()
