"""Part 5: how long it takes until something happens: imports, and commands that do little.

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
from tempfile import TemporaryDirectory
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
    "vfg show": ["-m", "vfg", "show", "model.vfg"],
    "vfg query": ["-m", "vfg", "query", "model.vfg", "--given", "petal length (cm)=5"],
}
"""What is started, as arguments of Python."""
MODEL = ("data iris --missing 0.2 -o iris.csv", "fit iris.csv --effort fast -o model.vfg")
"""Commands that make the model of a small table, which others show and ask."""


def measured(where: Where) -> dict[str, Any]:
    """Medians over several starts, in turns."""
    times = 3 if where.quick else 15
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    with TemporaryDirectory() as folder:
        for line in MODEL:
            _start(["-m", "vfg", *line.split()], folder)
        for arguments in STARTS.values():
            _start(arguments, folder)  # fills the caches
        for _ in range(times):
            for name, arguments in STARTS.items():
                found[name].append(_start(arguments, folder))
    return {"starts": times, "seconds": {name: _medians(each) for name, each in found.items()}}


def _start(arguments: list[str], folder: str) -> tuple[float, float]:
    """Wall and processor seconds of one start in a folder."""
    before, begun = _processor(), time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, *arguments], check=True, cwd=folder, **quiet)
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
