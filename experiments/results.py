"""Where results go: a small JSON per experiment under docs/results, with its circumstances."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import torch
from rich.progress import track

import vfg

PROJECT = Path(__file__).parent.parent
FOLDER = PROJECT / "docs" / "results"
IMAGES = PROJECT / "docs" / "images"
TRIALS = PROJECT / "outputs"
"""Where quick runs write, which are no results."""
STARTED = time.time()


def machine() -> dict[str, Any]:
    """What the numbers depend on beside the code."""
    return {
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "vfg": vfg.__version__,
    }


def on_all_cores(function: Callable[..., Any], cases: list[tuple[Any, ...]]) -> list[Any]:
    """`function` of every case, one process and one thread per core, with a progress bar."""
    calls = (joblib.delayed(_on_one_thread)(function, case) for case in cases)
    running = joblib.Parallel(n_jobs=os.cpu_count(), return_as="generator")(calls)
    return list(track(running, description="running", total=len(cases)))


def _on_one_thread(function: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    torch.set_num_threads(1)
    return function(*case)


def write(name: str, results: dict[str, Any], *, quick: bool) -> Path:
    """Write `docs/results/NAME.json`: the results, the command, the machine, the time taken."""
    folder = TRIALS if quick else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    script = Path(sys.argv[0]).resolve().relative_to(PROJECT.resolve()).as_posix()
    described = {
        "command": " ".join(["python", script, *sys.argv[1:]]),
        "seconds": round(time.time() - STARTED, 1),
        "machine": machine(),
        **results,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(described, indent=1) + "\n")
    return path
