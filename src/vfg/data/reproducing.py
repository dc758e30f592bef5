"""The paper's experiments by name, each run in a process of its own.

In a checkout they are the modules of `experiments/paper/`; a wheel carries a copy of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from vfg.utils.extras import needs

EXPERIMENTS = ("synthetic", "california", "gaussian", "likelihood", "representation")
PACKAGES = {
    "vfg._experiments": Path(__file__).parents[2],
    "experiments": Path(__file__).parents[3],
}
"""The package of the experiments in a wheel and in a checkout, and the folder that holds it."""


def names() -> tuple[str, ...]:
    """Names of the experiments, which `reproduce` takes, in the order of the paper.

    Example:
        >>> names()
        ('synthetic', 'california', 'gaussian', 'likelihood', 'representation')
    """
    return EXPERIMENTS


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    output: str | Path | None = None,
) -> dict[str, Any]:
    """Run an experiment of the paper, with its progress and its numbers on the screen.

    Args:
        name: one of `names()`.
        quick: a small run of minutes on two cores, on data that need no download.
        seeds: how many seeds to run, which are 0, 1, 2 and so on; None leaves it to the experiment.
        output: folder for the JSON file and the figures; None means `docs/` in a checkout
            (`outputs/` for quick runs), and `outputs/` of the current folder otherwise.

    Returns:
        The results, as the experiment wrote them to the file `NAME.json`.

    Raises:
        ValueError: for an unknown name, or a number of seeds below 1.
        FileNotFoundError: if the experiments are neither in the package nor beside it.
        ImportError: if a package for figures or frames is missing; it names the extra.
        RuntimeError: if the experiment fails; its output has the reason.
    """
    package = _package(name)
    if seeds is not None and seeds < 1:
        raise ValueError(f"reproduce expects at least 1 seed, but got {seeds}")
    # Say so before hours of work if figures could not be drawn after them.
    for extra, module in {"plot": "matplotlib", "table": "pandas"}.items():
        with needs(extra):
            import_module(module)
    folder = Path.cwd() / "outputs" if output is None else Path(output).absolute()
    if output is None and package == "experiments":
        folder = PACKAGES[package] / ("outputs" if quick else "docs/results")
    options = ["--quick"] * quick
    options += [] if seeds is None else ["--seeds", str(seeds)]
    options += [] if output is None else ["--output", str(folder)]
    # The process does not inherit changes of `sys.path`, and -P leaves out the current folder,
    # where a file may have the name of a package.
    folders = [str(PACKAGES[package]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-P", "-m", f"{package}.paper.{name}", *options]
    ended = subprocess.run(command, check=False, env=environment)
    if ended.returncode != 0:
        raise RuntimeError(f"the experiment {name!r} ended with status {ended.returncode}")
    result: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return result


def _package(name: str) -> str:
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; choose among {', '.join(EXPERIMENTS)}")
    for package, folder in PACKAGES.items():
        if folder.joinpath(*package.split("."), "paper", f"{name}.py").is_file():
            return package
    places = " nor as ".join(f"{package} in {folder}" for package, folder in PACKAGES.items())
    raise FileNotFoundError(
        f"the experiment {name!r} is found neither as {places}; install vfg from a wheel, or run "
        "it from a checkout"
    )
