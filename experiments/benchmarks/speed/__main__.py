"""How fast flows, training and filling are, against other libraries and against the machine.

    python -m experiments.benchmarks.speed    every part, then all that was measured into one file

    --only edges --threads 2    one part, or several
    --collect                   all that was measured into one file
    --quick                     every part at small sizes, a minute

PARTS. Every part is a file of its own under outputs/speed/ with the
machine it was measured on; parts that measure many cells keep each as soon as it is there,
and go on where they were stopped. Copy files of other machines beneath that folder: `--collect`
writes docs/results/speed.json with the last measurement of each part and device, and draws growth
into docs/images/. Other libraries are compared with if they can be imported.
"""

from __future__ import annotations

import datetime
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...cells import Cells
from ...report.growth import draw
from ...results import FOLDER, TRIALS, arguments, machine, versions
from . import edges, filling, growth, masks, parts, starting, steps, variants
from .clock import Where, load

PARTS: dict[str, tuple[Callable[[Where], Any], str]] = {
    "edges": (edges.measured, "sibling edges as one stack against other libraries in a loop"),
    "steps": (steps.measured, "whole training steps against their floors"),
    "filling": (filling.measured, "rows per second of imputers"),
    "growth": (growth.measured, "time and memory against rows, columns and depth"),
    "precision": (variants.rounded, "conditioners in TF32 and bf16: loss and time of a step"),
    "fused": (variants.as_one_kernel, "conditioners as one GPU kernel against layer by layer"),
    "compile": (variants.compiled, "steps as they are and compiled, and what compiling takes"),
    "masks": (masks.measured, "rows grouped by equal masks against a solve per row"),
    "kernels": (variants.profiled, "where the time of a step goes"),
    "starting": (starting.measured, "imports and the command line"),
}
OTHERS = ("freia", "zuko", "normflows", "nflows", "scikit-learn")


def main() -> None:
    what = "Parts:\n" + "\n".join(f"  {name:10}{text}" for name, (_, text) in PARTS.items())
    given = arguments(
        (__doc__ or "").replace("PARTS. ", f"{what}\n\n"),
        only={"nargs": "+", "choices": list(PARTS), "help": "some of the parts"},
        collect={"action": "store_true", "help": "measure nothing, merge the parts"},
        device={"default": "cuda" if torch.cuda.is_available() else "cpu"},
        threads={"type": int, "default": torch.get_num_threads()},
        seconds={"type": float, "default": math.inf, "help": "begin no cells of a part after"},
    )
    torch.set_num_threads(given.threads)
    warnings.filterwarnings("ignore", module=r"(FrEIA|zuko|normflows|nflows)\b")
    folder = (given.output or TRIALS) / ("speed-quick" if given.quick else "speed")
    if not given.collect:
        for part in given.only or PARTS:
            measure(part, torch.device(given.device), folder, given.quick, given.seconds)
    if given.collect or given.quick or not given.only:
        file = (given.output or FOLDER) / "speed.json"
        is_known = file.is_file() and not given.quick
        older = json.loads(file.read_text())["parts"] if is_known else []
        newer = [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]
        found = parts.merged(older, newer, list(PARTS))
        print(given.write("speed", {"parts": found}))
        draw(found, given)


def measure(part: str, device: torch.device, folder: Path, quick: bool, limit: float) -> None:
    """Measure one part and write it with its circumstances."""
    threads = torch.get_num_threads()
    name, begun, before = parts.device_name(device, threads), time.time(), load()
    cells = Cells(None if quick else parts.file_of(folder, part, name, "jsonl"))
    found = PARTS[part][0](Where(device, quick, cells, time.monotonic() + limit))
    described = {
        "part": part,
        "device": device.type,
        "name": name,
        "threads": threads,
        "load": before,
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - begun, 1),
        "machine": machine(),
        "versions": versions(*OTHERS),
        "found": found,
    }
    text = json.dumps(described, indent=1)
    path = parts.file_of(folder, part, name, "json")
    path.write_text(text + "\n")
    print(text, path, sep="\n", flush=True)


if __name__ == "__main__":
    main()
