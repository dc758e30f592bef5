"""How long it takes until something happens: imports, and the help of the command line.

python benchmarks/starting.py            medians of 15 starts each, a minute
python benchmarks/starting.py --quick    of 3

Every start is a process of its own, with all files in the cache of the system. Wall time is what a
user waits; processor time says how much of it is work, which tells a slow program from a busy
machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "experiments"))
from results import write

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


def start(arguments: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one start."""
    before, begun = _processor(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(arguments: list[str], times: int) -> dict[str, float]:
    """Medians over several starts, after one that fills the caches."""
    start(arguments)
    wall, processor = zip(*(start(arguments) for _ in range(times)), strict=True)
    return {
        "wall": round(statistics.median(wall), 3),
        "processor": round(statistics.median(processor), 3),
        "fastest": round(min(wall), 3),
    }


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 starts each")
    quick = parser.parse_args().quick
    times = 3 if quick else 15
    load = os.getloadavg()[0]
    found: dict[str, Any] = {name: measure(what, times) for name, what in STARTS.items()}
    content = {"seeds": [], "starts": times, "load": round(load, 1), "seconds_to_start": found}
    print(write("starting", content, quick=quick))
    for name, seconds in found.items():
        words = "  ".join(f"{what} {value:.3f} s" for what, value in seconds.items())
        print(f"{name:22}{words}")


if __name__ == "__main__":
    main()
