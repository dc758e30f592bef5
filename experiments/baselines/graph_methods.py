"""Graph learners and causal models of other libraries, run by another interpreter.

Its path is in the environment variable VFG_GRAPHS_PYTHON; see graph_worker.py for its packages.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

WORKER = Path(__file__).parent / "graph_worker.py"
VARIABLE = "VFG_GRAPHS_PYTHON"
LIMIT = 60.0
"""Processor seconds of one method on one table."""


class GraphWorker:
    """One process that answers questions, arrays by name in npz files, until it is closed."""

    def __init__(self) -> None:
        if VARIABLE not in os.environ:
            raise OSError(f"{VARIABLE} must name the interpreter that has the baselines")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        environment.pop("PYTHONPATH", None)
        self.folder = tempfile.TemporaryDirectory()
        self.log = (Path(self.folder.name) / "log.txt").open("w")
        self.process = subprocess.Popen(
            [os.environ[VARIABLE], str(WORKER)],
            env=environment,
            cwd=self.folder.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def ask(self, name: str, limit: float = LIMIT, **question: Any) -> dict[str, Any]:
        """What a method finds.

        Raises:
            RuntimeError: if it fails or takes too long.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked, answered = (Path(self.folder.name) / f"{part}.npz" for part in ("asked", "answered"))
        np.savez(asked, limit=limit, **question)
        self.process.stdin.write(f"{name} {asked} {answered}\n")
        self.process.stdin.flush()
        if self.process.stdout.readline().strip() != "done":
            raise RuntimeError(f"{name} ended the process of the baselines")
        with np.load(answered) as found:
            answer = {key: value if value.ndim else value.item() for key, value in found.items()}
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']}")
        return answer

    def close(self) -> None:
        self.process.communicate()
        self.log.close()
        self.folder.cleanup()

    def __enter__(self) -> GraphWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=1)
def own_worker() -> GraphWorker:
    """The one worker of this process, which ends with it."""
    return GraphWorker()
