"""How fast flows, training and filling are, against other libraries and against the machine.

    python benchmarks/speed.py                       all parts, on the GPU if there is one
    python benchmarks/speed.py --device cpu          all parts on the CPU: 15 minutes on 2 cores
    python benchmarks/speed.py --parts edges steps   some of them
    python benchmarks/speed.py --quick               every part at small sizes, a minute

Parts: `edges` (sibling edges as one stack against FrEIA, zuko, normflows and nflows in a loop, if
installed), `steps` (whole training steps against their floors), `filling` (rows per second
of imputers), `growth` (time and memory against rows, columns and depth). Results of several runs
and devices are kept side by side in docs/results/speed.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from speeds import edges, filling, growth, steps
from speeds.clock import load

sys.path.insert(0, str(Path(__file__).parent.parent / "experiments"))
from results import FOLDER, versions, write

PARTS = {
    "edges": edges.measured,
    "steps": steps.measured,
    "filling": filling.measured,
    "growth": growth.measured,
}


def main() -> None:
    """Measure, and put the numbers beside those of other devices."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="folder for the JSON file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    warnings.filterwarnings("ignore", module=r"(FrEIA|zuko|normflows|nflows)\b")
    found: dict[str, Any] = {"threads": given.threads, "name": _name(device)}
    found["versions"] = versions("freia", "zuko", "normflows", "nflows", "scikit-learn")
    for part in given.parts:
        before = load()
        found[part] = {"load": before, "found": PARTS[part](device, quick=given.quick)}
        print(part, json.dumps(found[part]["found"], indent=1), flush=True)
    kept = {} if given.quick else _kept(given.output)
    kept[device.type] = kept.get(device.type, {}) | found
    print(write("speed", {"devices": kept}, quick=given.quick, output=given.output))


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _kept(output: Path | None) -> dict[str, Any]:
    file = (output or FOLDER) / "speed.json"
    return dict(json.loads(file.read_text())["devices"]) if file.is_file() else {}


if __name__ == "__main__":
    main()
