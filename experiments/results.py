"""What every experiment shares: its options, where its results go, and who measured them.

A module declares `def main()`, calls `arguments(__doc__)`, and hands its numbers to `write` and its
figures to `save` of what comes back. In a checkout full runs write `docs/results/NAME.json` and
`docs/images/NAME.png`, quick ones write both into `outputs/`; outside a checkout both go to
`outputs/` of the current folder, and `--output` names any other folder.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import joblib
import torch
from rich.progress import track

import vfg
from vfg.plots.style import FILLED, HAIRLINE, INK, PAPER, REFERENCE, tidy

SCRIPTS = Path(__file__).parent
PROJECT = SCRIPTS.parent
CARRIED = "_experiments"
"""The folder of the scripts in an installed package."""
IS_CHECKOUT = (PROJECT / "pyproject.toml").is_file()
FOLDER = PROJECT / "docs" / "results"
IMAGES = PROJECT / "docs" / "images"
TRIALS = (PROJECT if IS_CHECKOUT else Path.cwd()) / "outputs"
"""Where quick runs write, which are no results."""
STARTED = time.time()
CIRCUMSTANTIAL = {"--output": 1, "--minutes": 1, "--seconds": 1, "--jobs": 1, "--resume": 0}
"""Options that do not change what is measured, and how many values they take."""


class Arguments(argparse.Namespace):
    """What the user asked for; `seeds` and `output` are None where the experiment decides."""

    quick: bool
    seeds: int | None
    output: Path | None

    def chosen(self, *, full: int, quick: int) -> list[int]:
        """The seeds to run, 0 and up."""
        return list(range(self.seeds or (quick if self.quick else full)))

    def write(self, name: str, results: dict[str, Any]) -> Path:
        """Write `NAME.json`: the results, the command, the machine, the time taken."""
        described = {
            "command": _command(),
            "seconds": round(time.time() - STARTED, 1),
            "machine": machine(),
            **results,
        }
        path = self._folder(FOLDER) / f"{name}.json"
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(described, indent=1) + "\n")
        os.replace(beside, path)  # a run that is cut off leaves a whole file behind
        return path

    def save(self, figure: Any, name: str) -> Path:
        """Write a figure of matplotlib as `NAME.png`, close it and print the path."""
        import matplotlib.pyplot as plt
        from PIL import Image

        path = self._folder(IMAGES) / f"{name}.png"
        whole = io.BytesIO()
        figure.savefig(whole, dpi=220)  # twice the size at which pages show it, for fine screens
        Image.open(whole).convert("RGB").quantize(128).save(path, optimize=True)
        plt.close(figure)
        print(path, flush=True)
        return path

    def _folder(self, full: Path) -> Path:
        folder = self.output or (TRIALS if self.quick or not IS_CHECKOUT else full)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def arguments(description: str | None, **options: dict[str, Any]) -> Arguments:
    """The options of an experiment; further ones by name with the arguments of `add_argument`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="minutes on 2 cores, no download")
    parser.add_argument("--seeds", type=positive, help="how many seeds, from 0")
    parser.add_argument("--output", type=Path, help="folder for the JSON file and the figures")
    for name, settings in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    return parser.parse_args(namespace=Arguments())


def subplots(*shape: int, **options: Any) -> tuple[Any, Any]:
    """A figure that needs no screen, and its axes, as from `matplotlib.pyplot.subplots`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(*shape, layout="constrained", **options)


QUIET = "#D9D9D9"
"""Boxes of methods to compare with."""


def plain_ticks(axis: Any, ticks: Sequence[float]) -> None:
    """Label a logarithmic axis (`axes.xaxis` or `axes.yaxis`) with plain numbers."""
    low, high = axis.get_view_interval()
    shown = [tick for tick in ticks if low < tick < high]
    axis.set_ticks(shown, labels=[f"{tick:g}" for tick in shown])
    axis.set_ticks([], minor=True)


def box_plots(axis: Any, values: dict[str, Sequence[float]]) -> None:
    """Horizontal boxes from top to bottom on a logarithmic axis, those of a VFG in colour."""
    boxes = axis.boxplot(
        list(values.values()),
        orientation="horizontal",
        tick_labels=list(values),
        patch_artist=True,
        medianprops={"color": "black"},
        whiskerprops={"color": INK, "linewidth": HAIRLINE},
        capprops={"color": INK, "linewidth": HAIRLINE},
        flierprops={"marker": ".", "markersize": 4, "markeredgecolor": REFERENCE},
    )
    for name, box in zip(values, boxes["boxes"], strict=True):
        box.set(facecolor=FILLED if "VFG" in name else QUIET, edgecolor=INK, linewidth=HAIRLINE)
    axis.set_xscale("log")
    axis.grid(axis="x", color=PAPER, linewidth=HAIRLINE)
    axis.set_axisbelow(True)
    axis.invert_yaxis()
    tidy(axis)


def positive(text: str) -> int:
    """A number of seeds or steps, of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, but got {text!r}")
    return int(text)


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


@cache
def commit() -> str | None:
    """The commit of the code, shortened; None if the code lies in no tree of git.

    It is read once: what a process has loaded stays the same when commits follow.
    """
    if not IS_CHECKOUT:
        return None
    command = ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return ended.stdout.strip() or None


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of other packages; those that are not installed are left out."""
    known = {found.name.lower(): found.version for found in distributions()}
    return {package: known[package] for package in packages if package in known}


def on_all_cores(function: Callable[..., Any], cases: list[tuple[Any, ...]]) -> list[Any]:
    """`function` of every case, one process and one thread per core, with a progress bar."""
    running = joblib.Parallel(n_jobs=os.cpu_count(), return_as="generator")(
        joblib.delayed(_on_one_thread)(function, case) for case in cases
    )
    return list(track(running, description="running", total=len(cases)))


def as_they_end(
    function: Callable[..., Any], cases: Iterable[tuple[Any, ...]], jobs: int, seconds: float
) -> Iterator[Any]:
    """`function` of the cases in `jobs` processes of one thread; none is begun after `seconds`."""
    ends = time.monotonic() + seconds
    calls = (
        joblib.delayed(_on_one_thread)(function, case)
        for case in itertools.takewhile(lambda _: time.monotonic() < ends, cases)
    )
    # One case at a time, so that none waits in a queue when the time is up.
    options = {"batch_size": 1, "pre_dispatch": jobs}
    running: Iterator[Any] = joblib.Parallel(jobs, return_as="generator_unordered", **options)(
        calls
    )
    return running


def _on_one_thread(function: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    torch.set_num_threads(1)
    return function(*case)


def slug(name: str) -> str:
    """A name as part of a file's.

    Example:
        >>> slug("NVIDIA H200")
        'nvidia-h200'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _command() -> str:
    """How the script was called, but for what says where and how long it may run."""
    script, *given = sys.argv
    for option, values in CIRCUMSTANTIAL.items():
        if option in given:
            place = given.index(option)
            given = given[:place] + given[place + 1 + values :]
    path = Path(script).resolve().with_suffix("")
    module = path.parent if path.name == "__main__" else path
    if SCRIPTS.name == CARRIED:
        return " ".join(["vfg reproduce", module.name, *given])
    name = ".".join(module.relative_to(PROJECT).parts)
    return " ".join(["python -m", name, *given])
