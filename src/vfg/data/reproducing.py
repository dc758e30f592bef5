"""The paper's experiments by name, run as scripts of their own.

In a checkout they are the files of `experiments/`; an installed package carries a copy of them.
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
CARRIED = Path(__file__).parents[1] / "_experiments"
"""Where an installed package keeps the scripts."""
CHECKOUT = Path(__file__).parents[3] / "experiments"
"""Where they are beside the sources."""


def names() -> tuple[str, ...]:
    """Names of the experiments, in the order of the paper.

    Returns:
        What `reproduce` takes.

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
        The results, as the script wrote them to the file `NAME.json`.

    Raises:
        ValueError: for a name or a number of seeds that cannot be.
        FileNotFoundError: if the scripts are neither in the package nor beside it.
        ImportError: if a package for figures or frames is missing; it names the extra.
        RuntimeError: if the script fails; its output has the reason.
    """
    script = _script(name)
    if seeds is not None and seeds < 1:
        raise ValueError(f"reproduce expects at least 1 seed, but got {seeds}")
    _check_extras()
    folder = _default_folder(script, quick) if output is None else Path(output).absolute()
    options = ["--quick"] * quick
    options += [] if seeds is None else ["--seeds", str(seeds)]
    options += [] if output is None else ["--output", str(folder)]
    # The script runs in a process of its own, which does not inherit changes of `sys.path`.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, str(script), *options], check=False, env=environment)
    if ended.returncode != 0:
        raise RuntimeError(f"the experiment {name!r} ended with status {ended.returncode}")
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def _check_extras() -> None:
    """Say so before hours of work if figures could not be drawn after them."""
    with needs("plot"):
        import_module("matplotlib")
    with needs("table"):
        import_module("pandas")


def _script(name: str) -> Path:
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; choose among {', '.join(EXPERIMENTS)}")
    for folder in (CARRIED, CHECKOUT):
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py"
    raise FileNotFoundError(
        f"the script of the experiment {name!r} is neither in {CARRIED} nor in {CHECKOUT}; install "
        "vfg from a wheel, or run it from a checkout"
    )


def _default_folder(script: Path, quick: bool) -> Path:
    """Where the scripts write of themselves."""
    if script.parent != CHECKOUT:
        return Path.cwd() / "outputs"
    return CHECKOUT.parent / ("outputs" if quick else "docs/results")
