"""Part 5: how long it takes until something happens: imports, and the help of the command line.

Every start is a process of its own, with all files in the cache of the system. Wall time is what a
user waits; processor time says how much of it is work, which tells a slow program from a busy
machine.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from .clock import Where

STARTS = {
    "python": ["-c", "pass"],
    "import vfg": ["-c", "import vfg"],
    "import vfg; vfg.VFG": ["-c", "import vfg; vfg.VFG"],
    "import torch": ["-c", "import torch"],
    "vfg --help": ["-m", "vfg", "--help"],
    "vfg impute --help": ["-m", "vfg", "impute", "--help"],
    "vfg data": ["-m", "vfg", "data"],
}
"""What is started, as arguments of Python."""


def measured(where: Where) -> dict[str, Any]:
    """Medians over several starts, in turns."""
    times = 3 if where.quick else 15
    for arguments in STARTS.values():
        _start(arguments)  # fills the caches
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for _ in range(times):
        for name, arguments in STARTS.items():
            found[name].append(_start(arguments))
    return {"starts": times, "seconds": {name: _medians(each) for name, each in found.items()}}


def _start(arguments: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one start."""
    before, begun = _processor(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _medians(starts: list[tuple[float, float]]) -> dict[str, float]:
    wall, processor = zip(*starts, strict=True)
    return {
        "wall": round(statistics.median(wall), 3),
        "processor": round(statistics.median(processor), 3),
        "fastest": round(min(wall), 3),
    }
