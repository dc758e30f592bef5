"""Time and memory of functions, and what the machine can do at best."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from vfg.flows.fast.primitives import round_to, tensor_cores

from ...cells import Cell, Cells

Work = Callable[[], object]
LEAST = 5
"""How often everything is repeated at least."""
MOST = 500
"""How often at most."""


@dataclass(frozen=True)
class Where:
    """What a part is told: the device, whether small sizes will do, and what is known already."""

    device: torch.device
    quick: bool
    cells: Cells
    until: float = math.inf
    """When to begin no further cells, on the clock of `time.monotonic`."""

    @property
    def has_time(self) -> bool:
        """Whether further cells may begin."""
        return time.monotonic() < self.until

    def cell(self, key: Cell, measure: Callable[[], Cell]) -> Cell | None:
        """What is known under a key, or else is measured if there is time."""
        if self.cells.get(key) is None and self.has_time:
            self.cells.add(key, measure())
            print(self.cells.get(key), flush=True)
        return self.cells.get(key)

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.device.type == "cuda"


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Work, device: torch.device) -> float:
    settle(device)
    begun = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - begun


def in_turns(works: Mapping[str, Work], device: torch.device, cap: float) -> dict[str, list[float]]:
    """Seconds of the calls of every function, called in turns so that all meet the same machine.

    Args:
        works: by name; each is called beforehand, those that are fast twice.
        device: where they run.
        cap: seconds for the calls of one function; there are five all the same.
    """
    for work in works.values():
        if seconds(work, device) < cap / LEAST:
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    going = list(works)
    while going:
        for name in going:
            times[name].append(seconds(works[name], device))
        going = [name for name in going if _goes_on(times[name], cap)]
    return times


def _goes_on(times: list[float], cap: float) -> bool:
    return len(times) < LEAST or (sum(times) < cap and len(times) < MOST)


def medians(works: Mapping[str, Work], device: torch.device, cap: float) -> dict[str, float]:
    """The median of what `in_turns` finds for every function."""
    return {name: median(times) for name, times in in_turns(works, device, cap).items()}


def matrix_rate(device: torch.device, *, quick: bool = False, precision: str = "float32") -> float:
    """Operations per second of a large matrix product in a precision of conditioners."""
    size = 512 if quick else 8192 if device.type == "cuda" else 1536
    a, b = round_to(torch.randn(2, size, size, device=device), precision)
    with tensor_cores(precision, device):
        best = min(seconds(lambda: a @ b, device) for _ in range(8))
    return 2.0 * size**3 / best


def bandwidth(device: torch.device, *, quick: bool = False) -> float:
    """Bytes per second of a large copy, read and written."""
    size = 2**22 if quick else 2**29 if device.type == "cuda" else 2**26
    source = torch.zeros(size, device=device)
    target = torch.empty_like(source)
    best = min(seconds(lambda: target.copy_(source), device) for _ in range(8))
    return 8.0 * size / best


def load() -> float:
    """How many processes want to run, averaged over a minute."""
    return round(os.getloadavg()[0], 2)


class PeakMemory:
    """The largest memory in use inside a `with` block beyond what was in use before, in MiB."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.mebibytes = device, 0.0

    def __enter__(self) -> PeakMemory:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            # What was freed before goes back to the system, so that it cannot be taken unnoticed.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
        self._before = self._peak()
        return self

    def __exit__(self, *_: object) -> None:
        self.mebibytes = self._peak() - self._before

    def _peak(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


def slope(sizes: list[float], values: list[float]) -> float:
    """Of the straight line through the last points of a log-log plot, those of larger sizes.

    Example:
        >>> round(slope([1, 10, 100, 1000], [5.0, 20.0, 200.0, 2000.0]), 2)
        1.0
    """
    chosen = slice(len(sizes) // 2 - (len(sizes) < 4), None)
    x = torch.tensor(sizes[chosen], dtype=torch.float64).log()
    y = torch.tensor(values[chosen], dtype=torch.float64).log()
    centred: Tensor = x - x.mean()
    return float((centred * y).sum() / centred.square().sum())
