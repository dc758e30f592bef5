"""Compiled flows of other libraries, each in a process of its own: compilers crash and hang.

    python -m experiments.benchmarks.speed.attempts '{"library": "zuko", "kind": "inverse", ...}'

prints what was found as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

PATIENCE = 240.0
"""Seconds that compiling and measuring one flow may take."""


def attempt(key: dict[str, Any], threads: int, patience: float = PATIENCE) -> dict[str, Any]:
    """Times of one library, kind of work and size, or an `"error"`: how the process ended."""
    return outcome([sys.executable, "-m", __spec__.name, json.dumps(key), str(threads)], patience)


def outcome(command: list[str], patience: float) -> dict[str, Any]:
    """The last line that a command prints, as JSON; an error if there is none."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as beside:
        try:
            out, err = beside.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(beside.pid, signal.SIGKILL)  # the compiler's own processes too
            return {"error": f"not done after {patience:g} s"}
    if beside.returncode < 0:
        return {"error": f"ended by {signal.Signals(-beside.returncode).name}"}
    if beside.returncode > 0:
        return {"error": (err.strip().splitlines() or ["no message"])[-1][:200]}
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def main() -> None:
    import torch

    from ...cells import Cells
    from .clock import Where
    from .edges import measured_here

    key = json.loads(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    print(json.dumps(measured_here(key, Where(torch.device("cpu"), False, Cells(None)))))


if __name__ == "__main__":
    main()
