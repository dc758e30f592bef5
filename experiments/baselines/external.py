"""Methods whose requirements do not go with this project's: run by another interpreter.

Its path is in the environment variable VFG_BASELINES_PYTHON, a folder with packages for it may be
in VFG_BASELINES_PATH; arrays travel in two npz files.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXTERNAL = (
    "miceforest",
    "miceforest40",
    "hyperimpute",
    "gain",
    "utrees",
    "gcimpute",
    "forestdiffusion",
)
WORKER = Path(__file__).parent / "external_worker.py"


class BaselineError(RuntimeError):
    """A method of another environment ended with an error."""


def packages() -> str:
    """The folder of the worker's packages, "" if its interpreter has them."""
    named = os.environ.get("VFG_BASELINES_PATH")
    return str(Path(named).resolve()) if named else ""


def run_external(
    name: str,
    shown: NDArray[np.float64],
    unseen: NDArray[np.float64] | None,
    seed: int,
    threads: int,
    categories: Sequence[int] = (),
) -> dict[str, NDArray[Any]]:
    """The arrays that the worker answers with: point, times, peak memory, perhaps draws.

    Columns of `categories` hold numbers of categories, which miceforest alone treats as such.
    """
    # No GPU: HyperImpute would try other models and GAIN would train elsewhere than the others.
    limits = {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **limits, "PYTHONPATH": packages()}
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question.npz", Path(folder) / "answer.npz"
        given: dict[str, Any] = {"shown": shown, "seed": seed, "threads": threads}
        given["categories"] = np.array(categories, dtype=np.int64)
        np.savez(question, **given if unseen is None else {**given, "unseen": unseen})
        command = [os.environ["VFG_BASELINES_PYTHON"], *map(str, [WORKER, name, question, answer])]
        ended = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            lines = ended.stderr.strip().splitlines() or ["no message"]
            raise BaselineError(f"{name} ended with status {ended.returncode}: {lines[-1]}")
        with np.load(answer) as found:
            return dict(found)
